"""Machines as ZigZag's and AccelForge's YAML: written in their format, and read back.

What their formats cannot express (warps, channels, the CGRA) is left out, and gets its default when read
back. `read` also accepts files from elsewhere: it recognises memories by what they keep, and returns notes on
what it had to round or guess.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from hw.config import FIELDS, MOST_LATENCY, MachineConfig
from hw.errors import InputError

#: Bits of an operand and of a sum.
OPERAND, SUM = 8, 32
#: Bits per cycle of ports that must not limit, and of those by which partial sums would return from memory,
#: which the machine never does.
WIDE, NARROW = 1 << 20, 8
#: Bytes of a memory that holds everything.
ENDLESS = 1 << 40
SIDES = ["D1", "D2"]


def zigzag(config: MachineConfig) -> dict[str, Any]:
    """The machine for ZigZag: D1 are rows (A, I1), D2 columns (B, I2); memories from the array outwards."""
    c = config
    row, column, sums = OPERAND * c.rows, OPERAND * c.cols, 8 * c.derived.acc_word_bytes
    bits = {p: 8 * c.port_bytes(p) for p in ("load_a", "load_b", "store")}
    memories = {
        # A unit has the sum that it works on and the one that drains: tiles follow without a bubble.
        "cell": _memory(2 * SUM // 8, "O", [], _partial(SUM, SUM, SUM, SUM)),
        "buffer_a": _memory(
            c.buffer_a_bytes, "I1", SIDES, [("write", bits["load_a"], ["I1, fh"]), ("read", row, ["I1, tl"])]
        ),
        "buffer_b": _memory(
            c.buffer_b_bytes,
            "I2",
            SIDES,
            [("write", bits["load_b"], ["I2, fh"]), ("read", column, ["I2, tl"])],
        ),
        "accumulator": _memory(c.acc_bytes, "O", SIDES, _partial(sums, sums, NARROW, sums)),
        "memory": _memory(
            ENDLESS,
            "I1 I2 O",
            SIDES,
            [
                ("read", bits["load_a"], ["I1, tl"]),
                ("read", bits["load_b"], ["I2, tl"]),
                ("write", WIDE, ["I1, fh", "I2, fh"]),
                *_partial(NARROW, WIDE, WIDE, bits["store"]),
            ],
            max(c.load_a_latency, c.load_b_latency, c.store_latency),
        ),
    }
    array = {"input_precision": [OPERAND, OPERAND], "unit_energy": 1.0, "unit_area": 1.0}
    array |= {"dimensions": SIDES, "sizes": [c.rows, c.cols]}
    return {"name": c.name, "memories": memories, "operational_array": array}


def _partial(low: int, high: int, from_high: int, from_low: int) -> list[tuple[str, int, list[str]]]:
    """The four paths of sums through a memory: read to below and above, written from above and below."""
    return [
        ("read", low, ["O, tl"]),
        ("read", high, ["O, th"]),
        ("write", from_high, ["O, fh"]),
        ("write", from_low, ["O, fl"]),
    ]


def _memory(
    size: int,
    operands: str,
    served: Sequence[str],
    ports: Sequence[tuple[str, int, list[str]]],
    latency: int = 1,
) -> dict[str, Any]:
    numbers, named = {"read": 0, "write": 0}, []
    for kind, bits, uses in ports:
        numbers[kind] += 1
        name = f"{kind[0]}_port_{numbers[kind]}"
        width = {"bandwidth_min": bits, "bandwidth_max": bits}
        named.append({"name": name, "type": kind, **width, "allocation": uses})
    cost = {"r_cost": 1.0, "w_cost": 1.0, "area": 0.0, "latency": latency}
    return {
        "size": 8 * size,
        **cost,
        "operands": operands.split(),
        "ports": named,
        "served_dimensions": list(served),
    }


class Node(dict[str, Any]):
    """A node of AccelForge's architecture: a mapping with a tag (`!Memory`)."""

    def __init__(self, tag: str, **values: Any):
        super().__init__(values)
        self.tag = tag


def accelforge(config: MachineConfig) -> dict[str, Any]:
    """The machine for AccelForge, with throughputs in bits per cycle; tensors are a, b and c (renames)."""
    c = config
    row, column, sums = OPERAND * c.rows, OPERAND * c.cols, 8 * c.derived.acc_word_bytes
    bits = {p: 8 * c.port_bytes(p) for p in ("load_a", "load_b", "store")}
    nodes = [
        # A memory for each port, as they work at the same time.
        _store("MemoryA", "inf", "a", bits["load_a"], bits["load_a"]),
        _store("MemoryB", "inf", "b", bits["load_b"], bits["load_b"]),
        _store("MemoryC", "inf", "c", NARROW, bits["store"]),
        _store("BufferA", 8 * c.buffer_a_bytes, "a", row, bits["load_a"]),
        _store("BufferB", 8 * c.buffer_b_bytes, "b", column, bits["load_b"]),
        _store("Accumulator", 8 * c.acc_bytes, "c", sums, sums),
        Node(
            "!Container",
            name="Array",
            spatial=[
                {"name": "Rows", "fanout": c.rows, "reuse": "b"},
                {"name": "Columns", "fanout": c.cols, "reuse": "a"},
            ],
        ),
        _store("Cell", 2 * SUM, "c", "inf", "inf"),
        Node(
            "!Compute",
            name="MAC",
            leak_power=0,
            area=0,
            actions=[{"name": "compute", "energy": 0, "throughput": 1}],
        ),
    ]
    return {"arch": {"nodes": nodes}}


def _store(name: str, size: int | str, tensor: str, read: int | str, write: int | str) -> Node:
    """A memory with separate ports for reading and writing."""
    return Node(
        "!Memory",
        name=name,
        size=size,
        total_latency="max(a.n_calls / a.throughput for a in actions)",
        leak_power=0,
        area=0,
        tensors={"keep": tensor},
        actions=[
            {"name": "read", "energy": 0, "throughput": read},
            {"name": "write", "energy": 0, "throughput": write},
        ],
    )


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(Node, lambda dumper, node: dumper.represent_mapping(node.tag, dict(node)))


class _Loader(yaml.SafeLoader):
    pass


_Loader.add_multi_constructor(
    "!", lambda loader, tag, node: Node(f"!{tag}", **loader.construct_mapping(node, deep=True))
)

#: Exporters by the name of the tool.
EXPORTERS: Mapping[str, Callable[[MachineConfig], dict[str, Any]]] = {
    "zigzag": zigzag,
    "accelforge": accelforge,
}


def text(value: Any) -> str:
    """YAML in field order, as both tools take memories in this order."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=110))


def export(tool: str, config: MachineConfig) -> str:
    """A machine as a tool's file."""
    return text(EXPORTERS[tool](config))


def read(path: Path) -> tuple[MachineConfig, list[str]]:
    """A machine from a ZigZag or AccelForge file, and notes on what was rounded or guessed."""
    try:
        values = yaml.load(path.read_text("utf-8"), _Loader)  # a SafeLoader
    except (OSError, UnicodeError) as error:
        raise InputError(f"{path}: must be a file that can be read: {error}") from None
    except (yaml.YAMLError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: must be YAML: {' '.join(str(error).split())}") from None
    try:
        return _machine(values, path)
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Any field of a foreign file may be missing or have another type.
        found = f"{type(error).__name__}: {error}"
        raise InputError(
            f"{path}: must have the fields of ZigZag or AccelForge, each of its type, but: {found} "
            "(--export writes one that does)"
        ) from None


def _machine(values: Any, path: Path) -> tuple[MachineConfig, list[str]]:
    """A machine from the contents of a file, whose fields may be missing or invalid."""
    notes: list[str] = []
    if isinstance(values, dict) and isinstance(values.get("operational_array"), dict):
        found = _Zigzag(values, str(path), notes).fields()
    elif isinstance(values, dict) and (nodes := _nodes(values.get("arch"))) is not None:
        found = _Accelforge(nodes, str(path), notes).fields()
    else:
        raise InputError(
            f"{path}: must describe a machine for ZigZag (operational_array, memories) or AccelForge (arch)"
        )
    return _fitted(found | {"name": str(values.get("name") or path.stem)}, str(path), notes), notes


def _nodes(arch: Any) -> list[Node] | None:
    """The nodes of an AccelForge architecture; None if it is none."""
    nodes = arch.get("nodes") if isinstance(arch, dict) else None
    return nodes if isinstance(nodes, list) and all(isinstance(n, Node) for n in nodes) else None


def _fitted(found: Mapping[str, Any], place: str, notes: list[str]) -> MachineConfig:
    """A configuration with fields rounded to powers of two in range; every change is noted."""
    fields: dict[str, Any] = {}
    for name, value in found.items():
        if name == "name":
            fields[name] = value
            continue
        limits = FIELDS[name].metadata
        fitted = max(limits["low"], min(limits["high"], int(value) if value < math.inf else limits["high"]))
        if limits["power_of_two"]:
            fitted = 1 << (fitted.bit_length() - 1)
        if fitted != value:
            notes.append(
                f"{name} = {fitted}: the file says {value:g}, which the machine cannot be built with"
            )
        fields[name] = fitted
    try:
        return MachineConfig(**fields)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


class _Zigzag:
    """Reads ZigZag's memories: the last one is external memory, the one before it the buffer."""

    def __init__(self, values: Mapping[str, Any], place: str, notes: list[str]):
        self.array, self.place, self.notes = values["operational_array"], place, notes
        self.memories = list((values.get("memories") or {}).items())

    def fields(self) -> dict[str, Any]:
        """The fields that the file gives."""
        sizes, dimensions = self.array.get("sizes") or [], self.array.get("dimensions") or []
        if len(sizes) != 2:
            raise InputError(
                f"{self.place}: operational_array must have two dimensions (rows, columns), not {len(sizes)}"
            )
        self.lanes = dict(zip(dimensions, sizes, strict=True))
        fields: dict[str, Any] = {"rows": sizes[0], "cols": sizes[1]}
        for operand, buffer, port, way in (
            ("I1", "buffer_a_bytes", "load_a", "tl"),
            ("I2", "buffer_b_bytes", "load_b", "tl"),
            ("O", "acc_bytes", "store", "fl"),
        ):
            levels = [(name, m) for name, m in self.memories if operand in m["operands"]]
            if len(levels) < 2:
                raise InputError(
                    f"{self.place}: operand {operand} must have a buffer and a memory, "
                    f"not {len(levels)} level(s)"
                )
            fields[buffer] = self._size(*levels[-2])
            fields[f"{port}_bytes"] = self._width(*levels[-1], operand, way)
            fields[f"{port}_latency"] = min(MOST_LATENCY, int(levels[-1][1].get("latency", 1)))
        return fields

    def _size(self, name: str, memory: Mapping[str, Any]) -> float:
        """Bytes of all instances of a memory, divided by the operands that share it."""
        copies = math.prod(n for d, n in self.lanes.items() if d not in memory.get("served_dimensions", []))
        shared = len(memory["operands"])
        if shared > 1:
            self.notes.append(f"{name} is shared by {shared} operands: each is given an equal part")
        return memory["size"] * copies / 8 / shared

    def _width(self, name: str, memory: Mapping[str, Any], operand: str, way: str) -> float:
        """Bytes per cycle of an operand's port, divided by the operands that share it in this direction.

        Transfers that fill the outermost memory do not count.
        """
        for port in memory["ports"]:
            uses = [[part.strip() for part in use.split(",")] for use in port["allocation"]]
            if [operand, way] in uses:
                users = {o for o, w in uses if (o, w) in (("I1", "tl"), ("I2", "tl"), ("O", "fl"))}
                if len(users) > 1:
                    self.notes.append(f"a port of {name} is shared by {len(users)} operands: equal parts")
                return float(port["bandwidth_max"]) / 8 / len(users)
        raise InputError(f"{self.place}: memory {name} must have a port for `{operand}, {way}`")


#: Arithmetic allowed in sizes and throughputs.
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _number(value: Any, place: str) -> float:
    """A number or an expression of numbers."""

    def of(node: ast.AST) -> float:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return float(node.value)
        if isinstance(node, ast.Name) and node.id == "inf":
            return math.inf
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return float(_OPERATORS[type(node.op)](of(node.left), of(node.right)))
        raise ValueError

    try:
        return of(ast.parse(str(value), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError):
        raise InputError(f"{place}: must be a number or arithmetic of numbers, not {value!r}") from None


class _Accelforge:
    """Reads AccelForge's nodes, which are ordered from memory to the array."""

    #: Names of operands in files.
    NAMES: Mapping[str, str] = {"input": "a", "weight": "b", "output": "c", "a": "a", "b": "b", "c": "c"}

    def __init__(self, nodes: Sequence[Node], place: str, notes: list[str]):
        self.nodes, self.place, self.notes = nodes, place, notes

    def fields(self) -> dict[str, Any]:
        """The fields that the file gives."""
        array = next((i for i, n in enumerate(self.nodes) if len(n.get("spatial") or []) == 2), None)
        if array is None:
            raise InputError(
                f"{self.place}: arch must have a node with two spatial dimensions (rows, columns)"
            )
        computes = [n for n in self.nodes[array:] if n.tag == "!Compute"]
        if not computes:
            raise InputError(f"{self.place}: arch must have a !Compute below the array")
        clock = self._throughput(computes[-1], "compute")
        rows, cols = self._sides(self.nodes[array]["spatial"])
        fields: dict[str, Any] = {"rows": rows, "cols": cols}
        for tensor, buffer, port, action in (
            ("a", "buffer_a_bytes", "load_a", "read"),
            ("b", "buffer_b_bytes", "load_b", "read"),
            ("c", "acc_bytes", "store", "write"),
        ):
            levels = [n for n in self.nodes[:array] if n.tag == "!Memory" and tensor in self._kept(n)]
            if len(levels) < 2:
                raise InputError(
                    f"{self.place}: tensor {tensor} must have a buffer and a memory above the array, "
                    f"not {len(levels)} level(s)"
                )
            fields[buffer] = (
                self._shared(levels[-1], _number(levels[-1].get("size"), self._at(levels[-1]))) / 8
            )
            width = self._throughput(levels[0], action) / clock / 8
            fields[f"{port}_bytes"] = self._shared(levels[0], width)
        return fields

    def _at(self, node: Node) -> str:
        return f"{self.place}: {node.get('name')}"

    def _sides(self, spatial: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
        """Rows and columns; rows are the side along which b is reused."""
        first, second = ((str(s.get("reuse")), _number(s.get("fanout"), self.place)) for s in spatial)
        turned = self.NAMES.get(first[0]) == "a" or self.NAMES.get(second[0]) == "b"
        return (second[1], first[1]) if turned else (first[1], second[1])

    def _kept(self, node: Node) -> set[str]:
        """The tensors that a memory keeps, as far as its expression names them."""
        words = str((node.get("tensors") or {}).get("keep", "")).replace("|", " ").split()
        if words and words[0] in ("All", "~Intermediates", "~MainMemory", "~MainMemory.tensors"):
            return {"a", "b", "c"}
        unknown = [w for w in words if w not in self.NAMES]
        if unknown or not words:
            raise InputError(
                f"{self._at(node)}: tensors.keep must be All, ~Intermediates, or a union of "
                f"{', '.join(self.NAMES)}, not {' '.join(words) or 'nothing'}"
            )
        return {self.NAMES[w] for w in words}

    def _shared(self, node: Node, value: float) -> float:
        kept = len(self._kept(node))
        if kept > 1:
            self.notes.append(f"{node.get('name')} is shared by {kept} tensors: each is given an equal part")
        return value / kept

    def _throughput(self, node: Node, action: str) -> float:
        for found in node.get("actions") or []:
            if found.get("name") == action and "throughput" in found:
                return _number(found["throughput"], f"{self._at(node)}: {action}")
        raise InputError(f"{self._at(node)}: action {action} must have a throughput in bits")
