"""Attempts of routing: which clocks are tried, and when one is given up."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hw.synthesis.route import StuckError, route, shares
from hw.synthesis.tools import Progress

Log = Iterator[str]


def rounds(crowded: list[int], late: list[int] | None = None) -> Log:
    """Lines of nextpnr for rounds with so many wires that are used twice and connections that are late."""
    for number, wires in enumerate(crowded, 1):
        tells = "" if late is None else f" tmgfail={late[number - 1]}"
        yield f"Info:     iter={number} wires=744269 overused={wires} overuse=955{tells} archfail=NA"


#: A routing that ends, one with paths that stay late, and one with wires that stay used twice.
ENDS = [9, 3, 0], [0, 7, 0]
LATE = [9, 3] + 200 * [0], [0, 5] + 100 * [16, 25]
CROWDED = [9] + 200 * [4], 201 * [0]


class Router:
    """Stands for nextpnr: what its log says depends on the frequency; remembers what it was asked."""

    def __init__(self, says: Callable[[float, bool], Log]):
        self.says, self.asked, self.read = says, list[tuple[float, bool]](), 0

    def __call__(self, arguments: list[str], line: Progress) -> None:
        frequency, timed = float(arguments[arguments.index("--freq") + 1]), "--tmg-ripup" in arguments
        self.asked.append((frequency, timed))
        for text in self.says(frequency, timed):
            line(text)
            self.read += 1


def routed(router: Router, *tried: float) -> float:
    """The part of 100 MHz that is aimed at in the end."""
    return route(router, "85k", 100, tried or (1.03, 1.0, 0.96), lambda aimed: lambda text: None)


def test_an_attempt_that_ends_is_the_last_one() -> None:
    router = Router(lambda frequency, timed: rounds(*ENDS))
    assert routed(router) == 1.03
    assert router.asked == [(103, True)]


def test_paths_that_stay_late_make_the_next_attempt_slower() -> None:
    router = Router(lambda frequency, timed: rounds(*(LATE if frequency > 98 else ENDS)))
    assert routed(router) == 0.96
    assert router.asked == [(103, True), (100, True), (96, True)]
    assert router.read == 2 * 52 + 3, "fifty rounds after the best one, twice, and the last one whole"


def test_the_last_attempt_does_not_look_at_time() -> None:
    router = Router(lambda frequency, timed: rounds(*LATE) if timed else rounds([5, 0]))
    assert routed(router) == 1
    assert router.asked == [(103, True), (100, True), (96, True), (100, False)]


def test_routing_that_makes_no_progress_is_given_up() -> None:
    router = Router(lambda frequency, timed: rounds(*CROWDED))
    with pytest.raises(
        StuckError, match="routing does not end, 4 wires or more are used twice after 102 rounds"
    ):
        routed(router, 1.0)
    assert router.asked == [(100, True), (100, False)]


@pytest.mark.parametrize(
    ("estimate", "tried"),
    [
        (90, [1.03, 1.0, 0.96, 0.92, 0.88]),
        (68, [1.0, 0.96, 0.92, 0.88]),
        (60, [0.88]),
        (50, [0.75, 0.72, 0.69, 0.66]),
        (None, [1.03, 1.0, 0.96, 0.92, 0.88]),
    ],
)
def test_what_is_far_beyond_the_estimate_is_not_tried(
    tmp_path: Path, estimate: float | None, tried: list[float]
) -> None:
    log = tmp_path / "placement.log"
    line = f"Info: Max frequency for clock '$glbnet$clk': {estimate} MHz (FAIL at 100.00 MHz)\n"
    log.write_text(line if estimate is not None else "a design without a clock\n")
    assert shares(log, 100) == pytest.approx(tried)
