"""The worked examples of the method: both instruction tables and the phi node."""

from __future__ import annotations

from itertools import pairwise

from sw.dependence import analyse
from sw.dependence.explain import Row, rows
from sw.ir.parse import parse_program
from sw.ir.walk import instructions

FIRST = """
@program
def first():
    a: Buffer[65]
    ir1 = f(write=a[0:32])
    ir2 = f(read=a[0:32])
    ir3 = f(write=a[0:16])
    ir4 = f(read=a[0:32])
    ir5 = f(write=a[16:32])
    ir6 = f(read=a[0:65])
"""
SECOND = """
@program
def second(x: int, y: int, p: bool):
    a: Buffer[64]
    b: Buffer[64]
    ir1 = f(write=a[0:32])
    ir2 = f(write=a[0:x])
    ir3 = f(read=a[0:y])
    ir4 = f(write=ANY)
    ir5 = f(write=a[0:32], when=p)
    ir6 = f(read=ANY)
"""
PHI = """
@program
def phi(p: bool, q: bool):
    a: Buffer[128]
    if p:
        ir1 = f(write=a[0:128])
        ir2 = f(write=a[0:128], when=q)
        k1 = f(write=a[1:128])
    else:
        ir3 = f(write=a[0:128])
        ir4 = f(write=a[0:128], when=q)
        k2 = f(write=a[32:64])
    use = f(read=a[0:128])
"""
Shown = dict[str, tuple[set[str], list[tuple[tuple[int, int], ...]], bool]]


def shown(found: list[Row]) -> Shown:
    """A table: by descriptor its definitions, kill set and mark."""
    return {r.descriptor: (set(r.definitions), list(r.kill), r.marked) for r in found}


def tables(text: str) -> dict[str, Shown]:
    """The tables after every instruction."""
    program = parse_program(text)
    return {i.label: shown(rows(program, i.label, after=True)) for i in instructions(program)}


def test_first_example_reads() -> None:
    found = analyse(parse_program(FIRST), details=True)
    assert found.use_def == {
        "ir1": [],
        "ir2": ["ir1"],
        "ir3": [],
        "ir4": ["ir1", "ir3"],
        "ir5": [],
        "ir6": ["entry", "ir3", "ir5"],
    }
    areas: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for e in found.edges:
        areas.setdefault((e.use, e.source), set()).add(e.area[0])
    assert _union(areas["ir4", "ir1"]) == (16, 32)
    assert _union(areas["ir4", "ir3"]) == (0, 16)
    assert _union(areas["ir6", "entry"]) == (32, 65)


def _union(intervals: set[tuple[int, int]]) -> tuple[int, int]:
    """The interval that adjacent ones make."""
    ordered = sorted(intervals)
    assert all(a[1] == b[0] for a, b in pairwise(ordered))
    return ordered[0][0], ordered[-1][1]


def test_first_example_definitions_and_kill_sets() -> None:
    md1, md2, md3 = "a[0:32]", "a[0:16]", "a[16:32]"
    half = [((0, 16),)]
    after = tables(FIRST)
    assert after["ir1"] == after["ir2"] == {md1: ({"ir1"}, [], False)}
    assert after["ir3"] == after["ir4"] == {md1: ({"ir1"}, half, False), md2: ({"ir3"}, [], False)}
    assert after["ir5"] == after["ir6"] == {md2: ({"ir3"}, [], False), md3: ({"ir5"}, [], False)}


def test_second_example_reads() -> None:
    assert analyse(parse_program(SECOND)).use_def == {
        "ir1": [],
        "ir2": [],
        "ir3": ["entry", "ir1", "ir2"],
        "ir4": [],
        "ir5": [],
        "ir6": ["entry", "ir1", "ir2", "ir4", "ir5"],
    }


def test_second_example_definitions_and_kill_sets() -> None:
    md1, md2, md4 = "a[0:32]", "a[0:x]", "b[0:64]"
    after = tables(SECOND)
    assert after["ir1"] == {md1: ({"ir1"}, [], False)}
    assert after["ir2"] == after["ir3"] == {md1: ({"ir1"}, [], True), md2: ({"ir2"}, [], False)}
    assert after["ir4"] == {
        md1: ({"ir1", "ir4"}, [], True),
        md2: ({"ir2", "ir4"}, [], False),
        md4: ({"ir4"}, [], False),
    }
    assert after["ir5"] == after["ir6"] == after["ir4"] | {md1: ({"ir1", "ir4", "ir5"}, [], True)}


def test_one_and_the_same_parameter_is_exact() -> None:
    assert analyse(parse_program(SECOND.replace("a[0:y]", "a[0:x]"))).use_def["ir3"] == ["ir2"]


def test_phi_node_unites_definitions_and_intersects_kill_sets() -> None:
    before = tables(PHI)
    assert before["k1"]["a[0:128]"] == ({"ir1", "ir2"}, [((1, 128),)], False)
    assert shown(rows(parse_program(PHI), "use"))["a[0:128]"] == (
        {"ir1", "ir2", "ir3", "ir4"},
        [((32, 64),)],
        False,
    )


def test_a_predicated_write_leaves_entry_alive() -> None:
    text = """
@program
def settled(p: bool):
    a: Buffer[8]
    w = f(write=a[5:6], when=p)
    r = f(read=a[5:6])
"""
    assert analyse(parse_program(text)).use_def["r"] == ["entry", "w"]
