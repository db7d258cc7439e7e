"""Unrolled programs have the same meaning, and their warps keep every edge."""

import dataclasses
import random
from collections.abc import Mapping

import pytest

from cosim.session.warps import Warped, converted
from hw.config import MachineConfig
from hw.errors import InputError
from sw.check.trace import Trace, trace
from sw.ir.errors import IRError
from sw.ir.expression import Const, substitute
from sw.ir.program import Program
from sw.ir.scope import retype
from sw.ir.walk import rewrite
from sw.warps.channels import Channels
from sw.warps.convert import Conversion, convert
from sw.warps.listing import MOST_DISTANCES, bounded_runs, by_kind, rolled_edges
from sw.warps.reduce import Reduction
from sw.warps.unroll import unrolled
from tests.sw.ir.interpret import difference, run
from tests.sw.random_tile_programs import NESTS, Knobs, random_program, sample_run
from tests.sw.warps.instance_edges import edges
from tests.sw.warps.samples import ordered, program_of, streams, values_of, with_warps

CONFIG = MachineConfig(channels=64, imem_words=4096)


@pytest.mark.parametrize("seed", range(80))
def test_unrolled_programs_compute_the_same(seed: int) -> None:
    rng = random.Random(seed)
    program = random_program(rng, whiles=0, unknown=0)
    sample = sample_run(rng, program)
    if sample is None:
        pytest.skip("a program that does not run")
    values, _ = sample
    some = {name: value for name, value in values.items() if rng.random() < 0.5}
    for given in ({}, some, values):
        known = with_values(program, given)
        try:
            made = unrolled(known)
        except IRError:
            # A loop whose bounds nothing limits.
            assert given is not values
            continue
        rest = {name: value for name, value in values.items() if name not in given}
        before, after = run(program, values), run(made.program, rest)
        assert difference(before, after) is None
        assert [str(i) for i in before.reads] == [made.name(i.label) for i in after.reads]


def with_values(program: Program, values: Mapping[str, int]) -> Program:
    """The program with numbers for some of its parameters."""
    known = {p.name: Const(values[p.name], p.type.kind) for p in program.parameters if p.name in values}
    return retype(
        dataclasses.replace(
            program,
            parameters=tuple(p for p in program.parameters if p.name not in known),
            buffers=tuple(
                dataclasses.replace(b, shape=tuple(substitute(e, known) for e in b.shape))
                for b in program.buffers
            ),
            body=rewrite(program.body, expression=lambda e: substitute(e, known)),
        )
    )


def edges_between_labels(run: Trace) -> list[tuple[str, str]]:
    """The edges of a program without loops, one run of which is given."""
    label = {int(t): rows.instruction.label for rows in run.rows for t in rows.time}
    return [(label[a], label[b]) for a, b in edges(run).pairs.tolist()]


def check(program: Program, made: Warped | Conversion) -> None:
    """All edges of all runs are kept by the warps, with no more tokens than a channel holds."""
    source = unrolled(program).program
    for found in made.bounded.runs:
        values = found.sample.values
        before = ordered(streams(made.program, values), CONFIG.channel_depth)
        try:
            run = trace(source, values)
        except IRError:
            continue
        for a, b in edges_between_labels(run):
            assert a in before[b]


KNOBS = [NESTS, Knobs(parametric=0, inexact=0), Knobs(branches=0.4, predicates=0.4, inexact=0.1)]


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 8, 9, 11, 12, 13, 14, 15])
def test_warps_of_random_programs_keep_every_edge(seed: int) -> None:
    rng = random.Random(seed)
    program = with_warps(rng, random_program(rng, rng.choice(KNOBS), instructions=6, whiles=0), 5)
    try:
        source = unrolled(program).program
        how = rng.choice(list(Reduction)), rng.choice(list(Channels))
        made = convert(source, CONFIG, *how, values=values_of(source))
    except IRError:
        pytest.skip("a program that does not run, or has loops without a bound")
    check(program, made)


AHEAD = """
    @program
    def ahead():
        a: Buffer[200]
        for i in range(20):
            P = f(write=a[10*i:10*i+10], warp=0)
            C = g(read=a[10*i:10*i+10], warp=1)
"""


def test_a_producer_that_nothing_holds_back_is_throttled() -> None:
    program = program_of(AHEAD)
    made = converted(program, CONFIG, unroll=True)
    assert tuple(made.throttle) == tuple((f"C[{n}]", f"P[{n + 8}]") for n in range(12))
    assert made.channels["C[0]->P[8]"] == 1
    assert not [e for e in made.entries if not e.data]
    check(program, made)


def test_more_tokens_into_one_instance_than_a_channel_holds() -> None:
    text = """
        @program
        def p():
            a: Buffer[200]
            for i in range(20):
                P = f(write=a[10*i:10*i+10], warp=0)
            C = g(read=a, warp=1)
    """
    program = program_of(text)
    made = converted(program, CONFIG, Reduction.OBTAINED, unroll=True)
    check(program, made)
    # Both warps meet once.
    assert [text.count(" 0") for text in made.texts.values()] == [1, 1]


BRANCHES = """
    @program
    def p(p: bool, q: bool):
        a: Buffer[30]
        P0 = f(write=a[0:20], warp=0)
        if p:
            P1 = f(write=a[0:10], warp=0)
            C1 = g(read=a[0:10], warp=1)
        else:
            P2 = f(write=a[10:20], warp=0, when=q)
        C2 = g(read=a[0:20], warp=1)
        P3 = f(write=a[0:30], warp=0)
"""


@pytest.mark.parametrize("channels", list(Channels))
def test_what_a_branch_leaves_out_nobody_awaits(channels: Channels) -> None:
    program = program_of(BRANCHES)
    made = converted(program, CONFIG, Reduction.FULL, channels, unroll=True)
    check(program, made)
    listed = by_kind(list(made.entries))
    assert ["P1", "C1"] in listed["data"]
    assert ["P2", "C2"] in listed["data"]
    # Where q does not hold, what P0 wrote is still there.
    assert ["P0", "C2"] in [*listed["data"], *listed["dropped"]]
    assert ["C2", "P3"] in listed["resource"]
    taken = streams(made.program, {"p": 1, "q": 0})
    left = streams(made.program, {"p": 0, "q": 0})
    assert ("op", "C1") in taken[1]
    assert sum(kind == "wait" for kind, _ in taken[1]) > sum(kind == "wait" for kind, _ in left[1])


def test_tokens_that_would_cross_are_taken_earlier() -> None:
    text = """
        @program
        def p(p: bool):
            a: Buffer[10]
            b: Buffer[10]
            X1 = f(write=a, warp=0)
            if p:
                X2 = f(write=b, warp=0)
                Y2 = g(read=b, warp=1)
            Y1 = g(read=a, warp=1)
    """
    program = program_of(text)
    made = converted(program, CONFIG, unroll=True)
    check(program, made)
    assert made.channels == {"X1->Y1": 0, "X2->Y2": 0}
    assert streams(made.program, {"p": 1})[1][0] == ("wait", 0)


def test_loops_up_to_a_parameter() -> None:
    text = """
        @program
        def p(n: int[1, 4]):
            a: Buffer[30]
            for i in range(n):
                P = f(write=a[10*i:10*i+10], warp=0)
                C = g(read=a[10*i:10*i+10], warp=1)
    """
    program = program_of(text)
    made = converted(program, CONFIG, unroll=True)
    check(program, made)
    assert [e.name for e in made.entries] == ["P[0]->C[0]", "P[1]->C[1]", "P[2]->C[2]"]
    assert list(made.texts) == [0, 1]
    assert made.texts[0].startswith("arg r")
    with pytest.raises(IRError, match="the loop over i"):
        converted(program_of(text.replace("int[1, 4]", "int")), CONFIG, unroll=True)


def rolled(program: Program) -> Mapping[str, list[list[str]]]:
    return by_kind(rolled_edges(bounded_runs(program)))


def test_rolled_edges_have_distances_in_common_loops() -> None:
    text = """
        @program
        def p():
            a: Buffer[60]
            for i in range(4):
                for j in range(6):
                    P = f(write=a[10*(j % 3):10*(j % 3)+10], warp=0)
                    C = g(read=a[10*(j % 3):10*(j % 3)+10], warp=1)
            D = g(read=a, warp=2)
    """
    found = rolled(program_of(text))
    assert found["data"] == [["P", "C@0,0"], ["P", "D"]]
    assert found["resource"] == [["C", "P@0,3"], ["C", "P@1,-3"]]


def test_many_distances_are_one() -> None:
    count = MOST_DISTANCES + 6
    text = f"""
        @program
        def p():
            a: Buffer[{count}]
            b: Buffer[{count}]
            for i in range({count}):
                P = f(write=a[i], warp=0)
                C = g(read=a[0:i + 1], write=b[i], warp=1)
    """
    graph = bounded_runs(program_of(text), Reduction.OBTAINED)
    assert [(e.source, e.sink) for e in rolled_edges(graph)] == [("P", "C@*")]


def test_an_edge_goes_only_where_all_runs_drop_it() -> None:
    text = """
        @program
        def p(p: bool):
            a: Buffer[10]
            b: Buffer[10]
            P1 = f(write=a, warp=0)
            P2 = f(write=b, warp=0)
            C1 = g(read=b, warp=1, when=p)
            C2 = g(read=a, warp=1)
    """
    values = [{"p": 0}, {"p": 1}]
    listed = by_kind(rolled_edges(bounded_runs(program_of(text), values=values)))
    assert listed["data"] == [["P1", "C2"], ["P2", "C1"]]
    always = program_of(text.replace(", when=p", ""))
    listed = by_kind(rolled_edges(bounded_runs(always, values=values)))
    assert listed["dropped"] == [["P1", "C2"]]


def test_more_instructions_than_words() -> None:
    wanted = r"warp 0, P\[0\] to P\[39\]: imem_words must be at least \d+, not 32"
    with pytest.raises(InputError, match=wanted):
        converted(
            program_of(AHEAD.replace("20", "40").replace("200", "400")),
            CONFIG.replace(imem_words=32),
            unroll=True,
        )
