"""Encodes a mapping as the configuration of a fabric."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass, field

from hw.errors import InputError
from hw.fabric import Unit
from hw.fabric.bitstream import OUT, PATCHED, SCRATCH, ArrayEntry, Configuration, Entry, Patch, encode
from hw.fabric.layout import ARRAYS, OPERAND_FIELDS, layout, made
from hw.fabric.operations import LOADS, STORES
from sw.cgra.legal import starts
from sw.cgra.mapping import Mapping, Register
from sw.cgra.verify import opaque_number, verify
from sw.dfg.graph import DATA, PREDICATE, Edge, Node, Value, arrays_of

#: The operand muxes.
_MUX = dict(zip((*DATA, PREDICATE), OPERAND_FIELDS, strict=True))
#: Address bits of a table memory.
_TABLE_BITS = 16


def configuration(
    mapping: Mapping,
    arrays: Dictionary[str, ArrayEntry] | None = None,
    scalars: Dictionary[str, int] | None = None,
) -> Configuration:
    """The configuration of a mapping.

    `arrays` holds the allocation of the graph's arrays, by number (default: all of length 0, in order of
    use); `scalars` maps names to the launch's scalar numbers. Raises `InputError` for a missing array or
    scalar, and for too many arrays.
    """
    graph, fabric = mapping.graph, mapping.fabric
    arrays = _arrays(mapping) if arrays is None else arrays
    if len(arrays) > ARRAYS:
        raise InputError(f"graph {graph.name!r}: arrays must be at most {ARRAYS}, not {len(arrays)}")
    writer = _EntryWriter(mapping, {name: i for i, name in enumerate(arrays)}, scalars or {})
    writer.tables()
    for node in graph.nodes:
        writer.node(node)
    for number in sorted(mapping.routes):
        writer.route(number)
    return Configuration(
        fabric,
        mapping.ii,
        max(1, mapping.depth),
        {key: writer.entry(key) for key in sorted(writer.fields)},
        tuple(arrays.values()),
        tuple(writer.patches),
        writer.contents,
    )


def differences(mapping: Mapping) -> tuple[str, ...]:
    """The errors of a mapping: differences between its decoded words and the graph."""
    scalars = {name: i for i, name in enumerate(mapping.graph.scalars)}
    try:
        words = encode(configuration(mapping, scalars=scalars))
    except InputError as error:
        return (str(error),)
    return tuple(verify(mapping.graph, words, mapping.fabric, mapping.places, scalars=scalars))


def _arrays(mapping: Mapping) -> dict[str, ArrayEntry]:
    """The arrays in order of use, with length 0: every access to them is an error."""
    if mapping.graph.opaque:
        return {}
    written = arrays_of(mapping.graph, *STORES)
    names = arrays_of(mapping.graph, *LOADS, *STORES)
    return {name: ArrayEntry(OUT if name in written else SCRATCH, 0, 0, 0) for name in names}


@dataclass
class _EntryWriter:
    """The fields of all entries so far."""

    mapping: Mapping
    arrays: Dictionary[str, int]
    scalars: Dictionary[str, int]
    fields: dict[tuple[int, int], dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    consts: dict[tuple[int, int], int] = field(default_factory=dict)
    inits: dict[tuple[int, int], int] = field(default_factory=dict)
    patches: list[Patch] = field(default_factory=list)
    contents: dict[int, tuple[int, ...]] = field(default_factory=dict)
    bases: dict[tuple[int, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fabric = self.mapping.fabric
        self.layouts = [layout(fabric, pe) for pe in range(fabric.size)]
        self.link_in = {link: f"in{i}" for links in fabric.incoming for i, link in enumerate(links)}
        self.link_out = {link: f"out{i}" for links in fabric.outgoing for i, link in enumerate(links)}

    def entry(self, key: tuple[int, int]) -> Entry:
        """The entry of a PE in a context."""
        fields = {name: value for name, value in self.fields[key].items() if value}
        return Entry(fields, self.consts.get(key, 0), self.inits.get(key, 0))

    def set(self, pe: int, step: int, name: str, value: int) -> None:
        """Sets a field; a correct mapping sets it to one value only."""
        context = step % self.mapping.ii
        if self.fields[pe, context].setdefault(name, value) != value:
            raise self.error(pe, step, f"{name} must have one value, not two")

    def select(self, pe: int, step: int, name: str, source: str) -> None:
        """Makes a mux select a source."""
        sources = self.layouts[pe].sources.get(name, ())
        if source not in sources:
            raise self.error(pe, step, f"{name} cannot select {source}")
        self.set(pe, step, name, sources.index(source))

    def error(self, pe: int, step: int, what: str) -> InputError:
        """An error of an entry."""
        at, context = self.mapping.fabric.at(pe), step % self.mapping.ii
        return InputError(f"graph {self.mapping.graph.name!r}: PE {at}, context {context}: {what}")

    def value(self, place: str, what: str, key: tuple[int, int], value: Value) -> int:
        """A number, or a patch for a named scalar."""
        if isinstance(value, int):
            return value
        if value not in self.scalars:
            raise InputError(f"{place}: there is no scalar {value!r} in this launch")
        self.patches.append(Patch(PATCHED.index(what), self.scalars[value], *key))
        return 0

    def tables(self) -> None:
        """The tables of every PE, one after the other."""
        graph = self.mapping.graph
        if graph.opaque:
            return
        words = dict(graph.tables)
        for node in graph.nodes:
            if node.op == "table" and node.memory:
                key = self.mapping.places[node.id].pe, node.memory.name
                if key not in self.bases:
                    before = self.contents.get(key[0], ())
                    self.bases[key] = len(before)
                    self.contents[key[0]] = (*before, *words[key[1]])

    def node(self, node: Node) -> None:
        """Operation, stage, immediate, initial values, array or table of a node."""
        graph, place = self.mapping.graph, self.mapping.places[node.id]
        pe, step, ii = place.pe, place.step, self.mapping.ii
        key, name = (pe, step % ii), f"graph {graph.name!r}, node {node}"
        self.set(pe, step, "op", graph.operation(node).number)
        self.set(pe, step, "stage", step // ii)
        if graph.opaque:
            self.consts[key] = opaque_number(node)
            return
        self.start(node, key, name)
        if node.op == "table":
            assert node.memory is not None
            size = len(dict(graph.tables)[node.memory.name])
            self.consts[key] = size << _TABLE_BITS | self.bases[pe, node.memory.name]
            return
        if node.memory and graph.operation(node).unit is Unit.MEMORY:
            if node.memory.name not in self.arrays:
                raise InputError(f"{name}: there is no array {node.memory.name!r} in this launch")
            self.set(pe, step, "array", self.arrays[node.memory.name])
        if node.immediate is not None:
            self.consts[key] = self.value(name, "const", key, node.immediate)
            for operand, given in graph.operands(node).items():
                if not isinstance(given, Edge):
                    self.select(pe, step, _MUX[operand], "const")

    def start(self, node: Node, key: tuple[int, int], name: str) -> None:
        """The values of operands in the first iterations."""
        graph = self.mapping.graph
        held = starts(graph, node.id)
        if not held:
            return
        (first, value) = next(iter(held))
        late = [e.operand for e in graph.incoming[node.id] if e.routed and e.distance]
        mask = sum(1 << list(_MUX).index(operand) for operand in late)
        self.set(*key, "first", first)
        self.set(*key, "initial", mask)
        self.inits[key] = self.value(name, "init", key, value)

    def mux(self, number: int) -> str:
        """The operand mux of an edge."""
        edge = self.mapping.graph.edges[number]
        given = self.mapping.graph.operands(self.mapping.graph.by_id[edge.target])
        return _MUX[next(operand for operand, found in given.items() if found is edge)]

    def name(self, register: Register) -> str:
        """The name of a register in the muxes of the PE that reads it."""
        return self.link_in[register.number] if register.kind == "link" else register.kind

    def route(self, number: int) -> None:
        """The muxes that write the registers of a route, and the one that reads the last."""
        graph, fabric = self.mapping.graph, self.mapping.fabric
        edge, hops = graph.edges[number], self.mapping.routes[number]
        before: Register | None = None
        source = made(graph.latency(edge.source, fabric))
        for hop in hops:
            r, step = hop.register, hop.step - 1
            if r != before:
                if before is not None:
                    source = self.name(before)
                    self.read(before, step)
                mux = {"result": "result", "register": "write"}.get(r.kind) or self.link_out[r.number]
                self.select(r.pe, step, mux, source)
                if r.kind == "register":
                    self.set(r.pe, step, "write_at", r.number)
            elif r.kind != "register":
                mux = "result" if r.kind == "result" else self.link_out[r.number]
                self.select(r.pe, step, mux, "keep")
            before = r
        place = self.mapping.places[edge.target]
        last, step = hops[-1].register, hops[-1].step
        if place.pe != last.reader(fabric):
            raise self.error(place.pe, step, f"{self.mux(number)} cannot read {last}")
        self.read(last, step)
        self.select(place.pe, step, self.mux(number), self.name(last))
        if edge.negated:
            self.set(place.pe, step, "negate", 1)

    def read(self, register: Register, step: int) -> None:
        """The read port of a register file."""
        if register.kind == "register":
            self.set(register.pe, step, "read_at", register.number)
