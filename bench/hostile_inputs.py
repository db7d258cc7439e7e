"""Hostile inputs: damaged files of every kind, and options that make no sense (`bench.hostile`)."""

from __future__ import annotations

import base64
import copy
import hashlib
import io
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

#: Values put in place of expected ones.
WHOLE = (
    0,
    -1,
    1,
    2,
    3,
    7,
    255,
    256,
    4096,
    65537,
    2**31 - 1,
    2**31,
    2**32,
    2**63 - 1,
    2**64,
    10**40,
    -(2**63),
)
OTHERS = (None, True, 1.5, float("nan"), float("inf"), 1e308, "", "x", "../x", "/etc/passwd", "a\0b", "é\n")
NAMES = (
    "",
    "x",
    "../../x",
    "/dev/null",
    "/dev/full",
    "a" * 300,
    "b/" * 600,
    "no\ntwo",
    "ünï",
    "$HOME",
    "-",
    ".",
)
SIM = ("--sim", "cpp", "--json")


@dataclass
class Case:
    """A command line with the files that it reads; `stdout` is where its output goes."""

    kind: str
    arguments: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    stdout: str = "file"


@dataclass(frozen=True)
class Good:
    """Good files by kind: models, bundles (paths with bytes), texts of the other kinds."""

    models: list[bytes]
    bundles: list[dict[str, bytes]]
    texts: dict[str, list[str]]
    arrays: list[bytes]


Draw = random.Random


def damaged_bytes(r: Draw, data: bytes) -> bytes:
    """Truncate, change, repeat, insert or drop bytes."""
    how, at = r.randrange(7), r.randrange(len(data) + 1)
    size = min(len(data), r.choice((1, 2, 8, 100, 5000)))
    if how == 0:
        return data[:at]
    if how == 1:
        return data[:at] + r.randbytes(size) + data[at + size :]
    if how == 2:
        return data[:at] + data[at : at + size] * r.choice((2, 3, 50)) + data[at + size :]
    if how == 3:
        return data[:at] + data[at + size :]
    if how == 4:
        return data[:at] + bytes(size) + data[at:]
    if how == 5:
        return b"" if r.random() < 0.3 else data + r.randbytes(size)
    changed = bytearray(data)
    for _ in range(r.choice((1, 3, 20))):
        if changed:
            changed[r.randrange(len(changed))] ^= 1 << r.randrange(8)
    return bytes(changed)


def odd_value(r: Draw, like: Any = None) -> Any:
    """An unexpected value, sometimes of the same kind."""
    if isinstance(like, int) and r.random() < 0.5:
        return like + r.choice((-1, 1, -like, like, 10**6))
    how = r.random()
    if how < 0.4:
        return r.choice(WHOLE)
    if how < 0.8:
        return r.choice(OTHERS)
    if how < 0.85:
        return "A" * r.choice((300, 100_000))
    if how < 0.9:
        return json.loads("[" * 400 + "]" * 400)
    return r.choice(([], {}, [[]], [1, 2], ["x", None], {"a": 1}, [-1] * 5))


def damaged_json(r: Draw, text: str) -> str:
    """JSON with some values changed, dropped, or duplicated."""
    value = {"": json.loads(text)}
    for _ in range(r.choice((1, 1, 1, 2, 5))):
        places = list(_places(value))
        holder, key = r.choice(places)
        how = r.random()
        if how < 0.15 and key != "":
            del holder[key]
        elif how < 0.25:
            other, name = r.choice(places)
            holder[key] = copy.deepcopy(other[name])
        elif how < 0.3 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif how < 0.35 and isinstance(holder, dict):
            holder[r.choice(NAMES)] = odd_value(r)
        else:
            holder[key] = odd_value(r, holder[key])
    made = json.dumps(value.get(""))
    return re.sub(r'("\w+": [^,{}\[\]]+),', r"\1,\1,", made, count=1) if r.random() < 0.03 else made


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


_TOKEN = re.compile(r"\d+\.\d+|\d+|[A-Za-z_]\w*|\"[^\"\n]*\"|[^\s\w]")
_WORDS = (
    "for",
    "if",
    "while",
    "lambda: 0",
    "None",
    "import os",
    "1/0",
    "x" * 2000,
    "(" * 300,
    "-" * 500 + "1",
    "...",
)


def damaged_text(r: Draw, text: str) -> str:
    """A text with words or lines changed, dropped, repeated or swapped."""
    for _ in range(r.choice((1, 1, 2, 4))):
        if r.random() < 0.35:
            lines = text.splitlines(keepends=True) or [""]
            at, other = r.randrange(len(lines)), r.randrange(len(lines))
            how = r.randrange(5)
            if how == 0:
                del lines[at]
            elif how == 1:
                lines[at:at] = [lines[at]] * r.choice((1, 1, 20, 300))
            elif how == 2:
                lines[at], lines[other] = lines[other], lines[at]
            elif how == 3:
                lines[at] = r.choice(("    ", "\t", "")) + lines[at]
            else:
                lines[at] = lines[at].lstrip()
            text = "".join(lines)
            continue
        found = list(_TOKEN.finditer(text))
        if not found:
            return text
        token, other_token = r.choice(found), r.choice(found)
        if token[0].isdigit() and r.random() < 0.7:
            new = str(r.choice(WHOLE))
        elif r.random() < 0.5:
            new = other_token[0]
        else:
            new = r.choice((*_WORDS, "", str(r.choice(WHOLE)), repr(r.choice(NAMES))))
        text = text[: token.start()] + new + text[token.end() :]
    return text


def damaged_model(r: Draw, data: bytes) -> bytes:
    """A model with nodes, tensors, shapes, types or names changed, or a file that is no model."""
    if r.random() < 0.2:
        return damaged_bytes(r, data)
    proto = onnx.load_model_from_string(data)
    for _ in range(r.choice((1, 1, 2, 3))):
        r.choice((_node, _node, _constant, _constant, _border, _head))(r, proto)
    return proto.SerializeToString()


def _node(r: Draw, proto: Any) -> None:
    graph = proto.graph
    if not graph.node:
        return
    node, other = r.choice(graph.node), r.choice(graph.node)
    how = r.randrange(9)
    if how == 0:
        node.op_type = r.choice(
            (other.op_type, "Add", "Loop", "If", "Reshape", "Gather", "Nope", "Resize", "")
        )
    elif how == 1 and node.input:
        names = [*other.input, *other.output, *(t.name for t in graph.initializer), "", "nope"]
        node.input[r.randrange(len(node.input))] = r.choice(names)
    elif how == 2:
        graph.node.remove(node)
    elif how == 3:
        graph.node.append(node)
    elif how == 4 and node.output:
        node.output[0] = r.choice((other.output[0] if other.output else "", "", "A" * 100_000, "a\nb"))
    elif how == 5 and node.input:
        node.input.append(r.choice((node.input[0], ""))) if r.random() < 0.5 else node.input.pop()
    elif how == 6 and node.attribute:
        attribute = r.choice(node.attribute)
        values = [r.choice((*WHOLE[:-4], 2**63 - 1, -(2**63))) for _ in range(r.choice((0, 1, 2, 4, 30)))]
        new = values if r.random() < 0.5 else r.choice([*(values[:1] or [0]), 1.5, "x"])
        try:
            made = helper.make_attribute(attribute.name, new, attr_type=None if new else 7)
        except (TypeError, ValueError, OverflowError):
            return
        attribute.CopyFrom(made)
    elif how == 7:
        node.domain = r.choice(("", "com.microsoft", "nope", "ai.onnx.ml"))
    else:
        node.name = r.choice(NAMES).replace("\0", "") * r.choice((1, 1, 2000))


def _constant(r: Draw, proto: Any) -> None:
    graph = proto.graph
    if not graph.initializer:
        return
    tensor = r.choice(graph.initializer)
    how = r.randrange(7)
    if how == 0:
        tensor.raw_data = damaged_bytes(r, tensor.raw_data)
    elif how == 1:
        del tensor.dims[:]
        tensor.dims.extend(r.choice((0, -1, 1, 2, 3, 2**31, 2**40)) for _ in range(r.randrange(6)))
    elif how == 2:
        tensor.data_type = r.randrange(25)
    elif how == 3:
        tensor.data_location = 1
        tensor.external_data.add(key="location", value=r.choice(("/etc/passwd", "../x", "nope.bin", "")))
    elif how == 4:
        array = numpy_helper.to_array(tensor)
        extremes = (0, -1, 127, -128, 1e30, -1e-30, float("nan"), float("inf"), 2**31 - 1)
        with np.errstate(all="ignore"):
            new = np.full(array.shape, r.choice(extremes)).astype(array.dtype)
        tensor.CopyFrom(numpy_helper.from_array(new, tensor.name))
    elif how == 5:
        array = numpy_helper.to_array(tensor)
        shape = r.choice(((), (0,), (1,), (3,), (*array.shape, 1), (2, *array.shape), array.shape[::-1]))
        tensor.CopyFrom(numpy_helper.from_array(np.ones(shape, array.dtype), tensor.name))
    else:
        tensor.name = r.choice(NAMES)


def _border(r: Draw, proto: Any) -> None:
    values = [*proto.graph.input, *proto.graph.output, *proto.graph.value_info]
    if not values:
        return
    value = r.choice(values)
    shape = value.type.tensor_type.shape
    how = r.randrange(6)
    if how == 0 and shape.dim:
        r.choice(shape.dim).dim_value = r.choice((0, -1, 1, 2, 5, 10_000, 2**31, 2**62))
    elif how == 1 and shape.dim:
        r.choice(shape.dim).dim_param = r.choice(("batch", "", "N" * 10_000))
    elif how == 2:
        shape.dim.add().dim_value = r.choice((1, 3))
    elif how == 3 and shape.dim:
        del shape.dim[r.randrange(len(shape.dim))]
    elif how == 4:
        value.type.tensor_type.elem_type = r.randrange(25)
    else:
        value.name = r.choice(NAMES)


def _head(r: Draw, proto: Any) -> None:
    how = r.randrange(5)
    if how == 0 and proto.opset_import:
        proto.opset_import[0].version = r.choice((0, 1, 7, 9, 12, 18, 22, 100, 2**40))
    elif how == 1:
        proto.ir_version = r.choice((0, 1, 4, 99))
    elif how == 2:
        proto.graph.name = r.choice(NAMES)
    elif how == 3:
        del proto.opset_import[:]
    else:
        del proto.graph.output[:]


def damaged_bundle(r: Draw, files: dict[str, bytes]) -> dict[str, bytes]:
    """A compiled directory with a changed file, whose hash mostly fits."""
    made = dict(files)
    for _ in range(r.choice((1, 1, 1, 2))):
        name = r.choice(
            [n for n in made if not n.endswith(".svg")] + ["manifest.json", "program0/plan.json"] * 4
        )
        if name not in made:
            continue
        try:
            if name.endswith(".json"):
                made[name] = damaged_json(r, made[name].decode()).encode(errors="replace")
            elif name.endswith((".txt", ".toml", ".py", ".s")) and r.random() < 0.8:
                made[name] = damaged_text(r, made[name].decode()).encode(errors="replace")
            elif name.endswith(".onnx"):
                made[name] = damaged_model(r, made[name])
            else:
                made[name] = damaged_bytes(r, made[name])
        except (ValueError, RecursionError):
            continue
    if r.random() < 0.8:
        try:
            manifest = json.loads(made["manifest.json"])
            hashes = manifest["files"]
            for name in made:
                if isinstance(hashes.get(name), str):
                    hashes[name] = hashlib.sha256(made[name]).hexdigest()
            made["manifest.json"] = json.dumps(manifest).encode()
        except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
            pass
    return made


def damaged_arrays(r: Draw, data: bytes) -> bytes:
    """An .npz file that is damaged, or holds other arrays."""
    if r.random() < 0.4:
        return damaged_bytes(r, data)
    with np.load(io.BytesIO(data)) as held:
        arrays = {name: held[name] for name in held.files}
    name = r.choice(list(arrays))
    shape = r.choice((arrays[name].shape, (), (0,), (3,), (1, *arrays[name].shape)))
    kinds = ("int8", "float64", "complex64", "U5", "bool", "int64", "datetime64[s]")
    arrays[r.choice((name, name, "nope", "../x"))] = np.zeros(shape, r.choice(kinds))
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


# Programs whose cost grows faster than their text.
def chained_model(r: Draw) -> bytes:
    """A chain of many operators."""
    op = r.choice(("Add", "Relu", "Sum", "Identity", "Mul"))
    # Products take long to map to the CGRA, like every loop with so many operators.
    count = r.choice((2, 5, 8) if op == "Mul" else (2, 5, 22, 60, 900 if op == "Relu" else 100))
    nodes = [
        helper.make_node(op, [f"t{i}"] * (2 if op in ("Add", "Sum", "Mul") else 1), [f"t{i + 1}"])
        for i in range(count)
    ]
    kind = r.choice((onnx.TensorProto.INT8, onnx.TensorProto.FLOAT, onnx.TensorProto.INT32))
    border = [helper.make_tensor_value_info(n, kind, [2, 4]) for n in ("t0", f"t{count}")]
    graph = helper.make_graph(nodes, "chain", border[:1], border[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made.SerializeToString()


def chained_program(r: Draw) -> str:
    """Squarings, huge and deep loops, long sums."""
    how, count = r.randrange(5), r.choice((3, 19, 60, 300))
    head = "@program\ndef p(n: int[1, 2147483647]):\n    a: Buffer[64]\n"
    use = "P = produce(write=a[{0}:{0} + 4], warp=0)\n{1}C = consume(read=a[{0}:{0} + 4], warp=1)\n"
    if how == 0:
        lines = "".join(f"    x{i + 1} = x{i} * x{i}\n" for i in range(count))
        return f"{head}    x0 = n + 1\n{lines}    {use.format(f'x{count} % 16', '    ')}"
    if how == 1:
        bound = r.choice(("n", str(2**31 - 1), str(10**12), "1000000"))
        return f"{head}    for i in range({bound}):\n        {use.format('4 * (i % 8)', '        ')}"
    if how == 2:
        depth = min(count, r.choice((5, 19, 19, 200)))
        loops = "".join(
            f"{'    ' * (i + 1)}for i{i} in range({r.choice((2, 3, 100))}):\n" for i in range(depth)
        )
        inner = "    " * (depth + 1)
        return f"{head}{loops}{inner}{use.format(f'(i0 + i{depth - 1}) % 16', inner)}"
    if how == 3:
        text = " + ".join(f"n * {i}" for i in range(count * 20))
        return f"{head}    x = ({text}) % 16\n    {use.format('x', '    ')}"
    return head + "".join(f"    x{i} = ({'(' * count}n{' + 1)' * count}) % 16\n" for i in range(3))


def options(r: Draw, pairs: dict[str, tuple[str, ...]], least: int = 0) -> list[str]:
    """Some options with values that may be wrong."""
    made = []
    for name in r.sample(list(pairs), min(len(pairs), r.randrange(least, 4))):
        values = pairs[name]
        made += [name, r.choice(values)] if values else [name]
    return made


NUMBERS = (*map(str, WHOLE), *("", "x", "1e9", "0x10", "٣", "NaN"))
PLACES = (
    "out/file",
    "/dev/null",
    "/dev/full",
    "nowhere/x",
    "",
    "n" * 300,
    "caf\udce9",
    "a\nb.json",
    ".",
    "pipe",
)
MACHINE = {
    "--hw": ("test", "tiny", "default", "nope", "machine.toml", *NAMES),
    "--set": (
        "rows=16",
        "rows=0",
        "cols=100000",
        "rows",
        "=",
        "nope=1",
        "rows=x",
        "acc_bytes=" + "9" * 50,
        "warps=1",
    ),
    "--latency": ("store=5", "store", "x=1", "load_a=-1", "load_b=" + "9" * 30),
    "--bandwidth": ("store=0", "load_a=3", "store=999999999", "="),
}
RUN = {
    "--seed": NUMBERS,
    "--stall": NUMBERS,
    "--trace": PLACES,
    "--report": PLACES,
    "--outputs": PLACES,
    "--waves": ("w.vcd", "w.fst", "w", "/dev/null", *PLACES),
    "--waves-from": NUMBERS,
    "--waves-to": NUMBERS,
    "--waves-around": ("divergence", "nope", ""),
    "--inputs": ("inputs.npz", "nope.npz", ".", "model.onnx", "/dev/zero", "pipe"),
    "--allow-host": (),
    "--refine": ("0", "1", "-1", "x"),
    "--print-after": ("tile", "nope", ""),
    "--device": ("uart:/dev/null", "uart:nope", "mmio:", "x", "mmio:/dev/null@x,/dev/null"),
}


def packed(files: dict[str, bytes]) -> str:
    """Files as JSON, to keep a failing input."""
    return json.dumps({name: base64.b64encode(data).decode() for name, data in files.items()})


Maker = Callable[[Draw, Good], Case]
