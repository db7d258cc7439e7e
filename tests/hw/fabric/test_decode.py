"""The decoder follows registers backwards to the operation that made a value, and counts the iterations."""

from __future__ import annotations

from hw.fabric import OPERATIONS, Fabric, Link, PEKind, Unit, layout
from hw.fabric.bitstream import Configuration, Entry
from hw.fabric.decode import DecodedOperand, decode
from tests.hw.fabric.flows import flows

ALL = PEKind("all", frozenset({Unit.ALU, Unit.MULTIPLIER}), registers=2)
NONE = PEKind("none", frozenset({Unit.MEMORY}), registers=0)
#: A ring of three PEs; the last has neither ALU nor registers.
RING = Fabric("ring", 1, 3, (ALL, ALL, NONE), (Link(0, 1), Link(1, 2), Link(2, 0)), contexts=4, stages=4)


def entry(pe: int, operation: str | None = None, const: int = 0, **fields: str | int) -> Entry:
    """An entry whose muxes are given by the names of their sources."""
    sources = layout(RING, pe).sources
    numbers = {n: sources[n].index(v) if isinstance(v, str) else v for n, v in fields.items()}
    if operation is not None:
        numbers["op"] = OPERATIONS[operation].number
    return Entry(numbers, const)


def decoded(ii: int, **entries: Entry):
    """Entries by `peP_C`: PE P, context C."""
    places = {tuple(int(n) for n in key[2:].split("_")): value for key, value in entries.items()}
    return decode(Configuration(RING, ii, ii, places))


def test_a_sum_that_stays_in_its_result_register_comes_from_the_iteration_before():
    found = decoded(1, pe0_0=entry(0, "add", 5, a="result", b="const", result="y"))
    assert flows(found) == {(0, 0, "a", 1)}
    assert found.operations[0].operands["b"] == DecodedOperand(value=5)
    assert found.operations[0].operands["p"] == DecodedOperand(value=1)


def test_a_value_that_is_kept_over_a_whole_interval_is_as_old_as_the_write():
    found = decoded(
        3,
        pe0_0=entry(0, "const", 1, result="y"),
        pe0_1=entry(0, "mov", a="result"),
        pe0_2=entry(0, "mov", a="result"),
    )
    assert [(o.pe, o.step, o.operation.name) for o in found.operations] == [
        (0, 0, "const"),
        (0, 1, "mov"),
        (0, 2, "mov"),
    ]
    assert flows(found) == {(0, 1, "a", 0), (0, 2, "a", 0)}


def test_a_route_through_links_and_a_register_file():
    found = decoded(
        2,
        # A product of step 0 leaves in step 1 by the link to PE 1, is there in step 2, and written to its
        # register 1, where it is in steps 3 and 4; the sum of step 4 (stage 2) reads it.
        pe0_0=entry(0, "mul", 3, a="const", b="const"),
        pe0_1=entry(0, out0="y2"),
        pe1_0=entry(1, "add", a="register", b="zero", read_at=1, stage=2, write="in0", write_at=1),
    )
    assert flows(found) == {(0, 1, "a", 0)}
    assert found.operations[1].operands["b"] == DecodedOperand(value=0)
    assert found.operations[1].step == 4


def test_the_stages_of_writer_and_reader_give_the_distance():
    # The reader sees what the writer made a step before: of the same iteration if it is one stage later.
    for writer, reader, distance in ((0, 1, 0), (0, 0, 1), (1, 0, 2), (0, 2, -1)):
        found = decoded(
            1,
            pe0_0=entry(0, "const", out0="y", stage=writer),
            pe1_0=entry(1, "mov", a="in0", stage=reader),
        )
        assert flows(found) == {(0, 1, "a", distance)}, (writer, reader)


def test_a_value_that_goes_round_is_as_many_iterations_old_as_the_round_takes():
    found = decoded(
        1,
        pe0_0=entry(0, "mov", a="in0", out0="y", stage=2),
        pe1_0=entry(1, out0="in0"),
        pe2_0=entry(2, out0="in0"),
    )
    assert flows(found) == {(0, 0, "a", 3)}


def test_what_nothing_writes_is_said():
    found = decoded(
        2,
        pe0_0=entry(0, "add", a="register", b="result", read_at=1, result="y2"),
        pe1_0=entry(1, "mov", a="in0", p="result", negate=1),
    )
    operands = found.operations[0].operands
    assert operands["a"].why == "no operation writes register 1 of PE (0,0)"
    assert operands["b"].why == "PE (0,0) starts no operation of latency 2 in context 1"
    operands = found.operations[1].operands
    assert operands["a"].why == "no operation writes the link from PE (0,0) to PE (0,1)"
    assert operands["p"].why == "no operation writes the result register of PE (0,1)"
    assert found.operations[1].entry["negate"]
    assert flows(found) == set()


def test_operations_that_a_pe_lacks_are_none():
    found = decoded(2, pe2_0=entry(2, "add"), pe2_1=Entry({"op": 31}), pe0_0=entry(0, "table"))
    assert found.operations == ()
    assert found.idle == {
        (0, 0): "table needs a unit table",
        (2, 0): "add needs a unit alu",
        (2, 1): "there is no operation 31",
    }


def test_numbers_beyond_the_last_count_as_zero():
    found = decoded(1, pe0_0=Entry({"op": OPERATIONS["mov"].number, "a": 7}))
    assert found.operations[0].operands == {"a": DecodedOperand(value=0), "p": DecodedOperand(value=1)}
