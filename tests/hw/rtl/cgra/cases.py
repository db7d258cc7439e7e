"""Random configurations, memories and neighbours for the CGRA."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import lru_cache

from hw.config import MachineConfig, load
from hw.fabric import Fabric, Link, PEKind, Unit, layout
from hw.fabric.bitstream import ArrayEntry, Configuration, Entry, Patch, encode, to_bytes
from hw.fabric.operations import LOADS, OPERATIONS, STORES
from hw.isa import KEEP_BITSTREAM
from tests.hw.rtl.cgra.bench import Case, operation
from tests.hw.rtl.cgra.reference import Held

A, M, T, P = Unit.ALU, Unit.MULTIPLIER, Unit.TABLE, Unit.MEMORY
FULL = PEKind("full", frozenset({A, M, T, P}), 3, 20)
PLAIN = PEKind("plain", frozenset({A}), 1)
PORT = PEKind("port", frozenset({P}), 0)
ARITHMETIC = PEKind("arithmetic", frozenset({A, M}), 4)
#: Of its ALU's and multiplier's operations some are missing, one of a group or all of it.
FEW = PEKind(
    "few",
    frozenset({A, M}),
    1,
    without=frozenset({"shl", "clz", "select", "mul_shift_round", "le", "max", "predicate"}),
)
NOTHING = PEKind("nothing", frozenset(), 2)


@lru_cache
def small(kinds: tuple[PEKind, ...], rows: int, cols: int, contexts: int = 5, stages: int = 4) -> Fabric:
    """A mesh, one direction of one link missing and a long link added."""
    links = set()
    for pe in range(rows * cols):
        r, c = divmod(pe, cols)
        if c + 1 < cols:
            links |= {Link(pe, pe + 1), Link(pe + 1, pe)}
        if r + 1 < rows:
            links |= {Link(pe, pe + cols), Link(pe + cols, pe)}
    if rows * cols > 2:
        links.remove(Link(1, 0))
        links.add(Link(rows * cols - 1, 0))
    return Fabric("small", rows, cols, kinds, tuple(sorted(links)), contexts, stages)


def machine(fabric: Fabric, banks: int = 8) -> MachineConfig:
    """The machine `test` with a grid, ports of so many bytes and small buffers."""
    store = min(banks, 16)
    return load("test").replace(
        cgra=fabric, load_c_bytes=banks, store_bytes=store, cols=8, scratch_bytes=4096, out_bytes=4096
    )


_PLAIN = (
    (small((FULL, ARITHMETIC, PORT, FULL), 2, 2), 8),
    (small((PORT, FULL, NOTHING, FULL, PLAIN, FEW), 2, 3, 7, 2), 16),
    (small((FULL, FULL, FULL, FULL), 1, 4, 3, 8), 4),
    (small((ARITHMETIC, FEW, NOTHING), 3, 1, 1, 2), 8),
    (Fabric("alone", 1, 1, (PEKind("alone", frozenset({A, T, P}), 1, 1),), (), 1, 2), 4),
)


def _wide(kind: PEKind, lanes: int, *units: Unit) -> PEKind:
    return replace(kind, lanes=lanes, units=kind.units | set(units))


_LANES = (
    (small((_wide(FULL, 4, Unit.LANES), ARITHMETIC, PORT, _wide(FULL, 4, Unit.QUANTISER)), 2, 2), 8),
    (
        small((_wide(PORT, 8), _wide(FULL, 8), NOTHING, FULL, PLAIN, _wide(FEW, 8, Unit.LANES)), 2, 3, 7, 2),
        16,
    ),
    (small((_wide(PORT, 2), _wide(FULL, 2), _wide(FULL, 2, Unit.LANES), _wide(PORT, 2)), 1, 4, 3, 8), 4),
)
_ALL = (*_PLAIN, *_LANES)
#: Fabrics and the bytes of their ports; behind those that are not pipelined the same pipelined.
FABRICS = (*_ALL, *((replace(fabric, pipelined=True), banks) for fabric, banks in _ALL))
#: How many are of several lanes, behind the others.
WITH_LANES = len(_LANES)


def random_configuration(r: random.Random, config: MachineConfig) -> Configuration:
    """Any fields, but indices that are often inside of their arrays."""
    fabric = config.cgra
    assert fabric is not None
    ii = r.randint(1, fabric.contexts)
    sizes = config.acc_bytes, config.scratch_bytes, config.out_bytes
    arrays = []
    for _ in range(r.choice([0, 1, 3, 16])):
        space, element = r.choice([0, 1, 2, 2, 2]), r.randrange(3)
        size = 1 if element else 4
        length = r.choice([1, 4, 16, 64])
        whole = size * (r.choice([1, fabric.lanes, fabric.lanes]) if fabric.lanes > 1 else 1)
        base = whole * r.randrange((sizes[space] - size * length) // whole)
        arrays.append(ArrayEntry(space, element, base, length))
    tables = {
        pe: tuple(r.randrange(1 << 32) for _ in range(r.randint(1, fabric.kinds[pe].table_words)))
        for pe in fabric.having(Unit.TABLE)
        if r.random() < 0.8
    }
    entries = {
        (pe, context): random_entry(r, fabric, pe, arrays, tables.get(pe, ()))
        for pe in range(fabric.size)
        for context in range(ii)
        if r.random() < 0.9
    }
    patches = []
    for _ in range(r.choice([0, 0, 1, 2, 9])):
        what = r.choice([0, 1, 1, 2, 3]) if arrays else r.choice([0, 1])
        at = r.randrange(ii) if what < 2 else r.randrange(len(arrays))
        patches.append(Patch(what, r.randrange(14), r.randrange(fabric.size), at))
    depth = r.randint(1, min(ii * fabric.stages, 3 * ii))
    return Configuration(fabric, ii, depth, entries, tuple(arrays), tuple(patches), tables)


def random_entry(
    r: random.Random, fabric: Fabric, pe: int, arrays: list[ArrayEntry], table: tuple[int, ...]
) -> Entry:
    """The fields of one entry."""
    shape, kind = layout(fabric, pe), fabric.kinds[pe]
    fields = {f.name: r.randrange(1 << f.width) for f in shape.fields}
    names = [o.name for o in OPERATIONS.values() if kind.executes(o)] + ["opaque"]
    names += ["load", "store"] * 4 * (P in kind.units)
    names += ["load_lanes", "store_lanes"] * 6 * (P in kind.units and kind.lanes > 1)
    op = r.choice(names)
    fields["op"] = OPERATIONS[op].number if r.random() < 0.95 else r.randrange(64)
    fields["initial"] = r.choice([0, 0, fields["initial"]])
    fields["stage"] = r.choice([0, fields["stage"]])
    const = r.choice([0, 1, 2, 31, r.randrange(1 << 32)])
    init = r.choice([0, 1, 3, 1 << 31, r.randrange(1 << 32)])
    if r.random() < 0.97 and op in (*LOADS, *STORES):
        # An index that is small: an immediate, or what a comparison gives.
        fields["a"], fields["initial"] = 1, fields["initial"] & 14
        size = kind.lanes if op.endswith("lanes") else 1
        possible = [
            i
            for i, a in enumerate(arrays)
            if (op in LOADS or a.space == 2)
            and a.length >= size
            and not a.base % (size * (1 if a.element else 4))
        ]
        if possible:
            fields["array"] = r.choice(possible)
            const = size * r.randrange(arrays[fields["array"]].length // size)
        else:
            fields["op"] = 0
    elif r.random() < 0.97 and op == "table":
        if table:
            first = r.randrange(len(table))
            const, init = first | (len(table) - first) << 16, r.randrange(len(table) - first)
            fields["a"] = 0
            if r.random() < 0.5:
                fields |= {"initial": 1, "first": 7}
        else:
            fields["op"] = 0
    return Entry(fields, const, init)


def random_case(seed: int, config: MachineConfig) -> Case:
    """Some launches of one or two configurations, with neighbours that hold banks."""
    r = random.Random(seed)
    sizes = config.acc_bytes, config.scratch_bytes, config.out_bytes
    memories = [bytearray(r.randbytes(size)) for size in sizes]
    starts, at = [], 0
    for _ in range(r.choice([1, 2])):
        data = to_bytes(encode(random_configuration(r, config)))
        at += 16 * r.choice([0, 1, 5])
        if at + len(data) > len(memories[1]):
            break
        memories[1][at : at + len(data)] = data
        starts.append(at // 16)
        at += -(-len(data) // 16) * 16
    ops, issued = [], r.choice([0, 3])
    for i in range(r.choice([1, 2, 4])):
        bitstream = r.choice(starts) if not i or r.random() < 0.4 else KEEP_BITSTREAM
        scalars = [r.choice([0, 1, 4, 64, r.randrange(1 << 32)]) for _ in range(14)]
        ops.append((issued, operation(bitstream, r.choice([0, 1, 2, 3, 9, 17]), scalars)))
        issued += r.choice([1, 1, 500])
    rate = r.choice([0.0, 0.2, 0.6])
    pattern = [
        Held(
            r.random() < rate,
            r.random() < rate,
            sum((r.random() < rate) << b for b in range(config.acc_banks)),
        )
        for _ in range(1021)
    ]
    return Case(f"seed {seed}", ops, memories, lambda cycle: pattern[cycle % len(pattern)])
