"""The last tokens that nobody takes are not given."""

from __future__ import annotations

import pytest

from hw.config import MachineConfig
from sw.warps.convert import convert
from sw.warps.sites import Gap, spots
from sw.warps.trailing import counters
from tests.sw.warps.samples import program_of, values_of
from tests.sw.warps.test_convert import syncs, warps_of

CONFIG = MachineConfig(imem_words=4096)

PLACES = """
    @program
    def places({parameters}):
        a: Buffer[20]
        for i in {outer}:
            for j in range({inner}):
                P = f(write=a[10 * (j % 2):10 * (j % 2) + 10], warp=0)
                C = g(read=a[10 * (j % 2):10 * (j % 2) + 10], warp={last})
"""


def guards(outer: str, inner: int, parameters: str = "", last: int = 1) -> list[str]:
    """The predicates of the signals for places that are free, in their loops."""
    text = PLACES.format(outer=outer, inner=inner, parameters=parameters, last=last)
    source = program_of(text)
    program = convert(source, CONFIG, values=values_of(source)).program
    signals = [s.instruction for s in spots(program) if s.instruction.name == "signal" and s.loops]
    return [str(s.when) for s in signals if s.warp == last]


@pytest.mark.parametrize(
    ("outer", "inner", "guard"),
    [
        # Two tokens are left over: those of a whole iteration outside, or of the last one of both loops.
        ("range(5)", 2, "i != 4"),
        ("range(5)", 4, "i * 4 + j != 19"),
        ("range(3, 8)", 4, "(i - 3) * 4 + j != 19"),
        ("range(1)", 4, "i * 4 + j != 3"),
    ],
)
def test_the_outermost_loops_whose_last_iteration_nobody_asks_for(outer: str, inner: int, guard: str) -> None:
    assert guards(outer, inner) == [guard]


@pytest.mark.parametrize(
    ("outer", "parameters"), [("range(n)", "n: int[1, 9]"), ("range(0, 10, 2)", ""), ("range(8, 3, -1)", "")]
)
def test_loops_that_are_not_counted_in_the_text_keep_all(outer: str, parameters: str) -> None:
    assert guards(outer, 4, parameters) == ["None"]


def test_only_the_last_warp_leaves_signals_out() -> None:
    text = PLACES.format(outer="range(5)", inner=4, parameters="", last=1)
    text += "        E = f(write=a[0], warp=0)"
    made = warps_of(text)
    assert syncs(made, 1) == ["signal 1", "signal 1", "wait 0", "signal 1"]


def test_places_in_branches_are_not_counted() -> None:
    program = program_of(
        """
        @program
        def p(q: bool):
            a: Buffer[10]
            for i in range(2, 6):
                if q:
                    P = f(write=a, warp=0)
        """
    )
    inside = counters(program, Gap(((0, 0),), 0))
    assert inside is not None
    assert [(str(number), count) for number, count in inside] == [("i - 2", 4)]
    assert counters(program, Gap(((0, 0), (0, 0)), 0)) is None
