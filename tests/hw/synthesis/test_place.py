"""Placement and routing of small designs: clock, critical path, what fits and what does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hw.errors import InputError
from hw.synthesis import DEVICES, Placement, Synthesis, find_device, place, place_and_route, synthesise
from hw.synthesis.resources import Resources
from hw.synthesis.tools import ToolError
from tests.budget import sweep
from tests.hw.synthesis.designs import RESET, SMALL, many, results

PINS = 'LOCATE COMP "clk" SITE "P3";\nIOBUF PORT "clk" IO_TYPE=LVCMOS33;\nFREQUENCY PORT "clk" 25 MHZ;\n'


@pytest.fixture(scope="module")
def small() -> Synthesis:
    return synthesise(SMALL, "small")


@pytest.fixture
def netlist(tmp_path: Path) -> Synthesis:
    """One that no tool has made, for what is refused before a tool runs."""
    path = tmp_path / "small.json"
    path.write_text("{}")
    return Synthesis("small", "ecp5", Resources(luts=9, ffs=9), {}, {}, path, "key", "none", 0.0)


@pytest.fixture(scope="module")
def placed(small: Synthesis) -> Placement:
    return place_and_route(small, find_device("12k"), 50)


@pytest.mark.slow
def test_the_critical_path_takes_a_period_of_the_clock_that_is_reached(placed: Placement) -> None:
    assert placed.fmax_mhz is not None
    assert list(placed.clocks.values()) == [(placed.fmax_mhz, 50.0)]
    assert sum(hop.delay for hop in placed.critical_path) == pytest.approx(1000 / placed.fmax_mhz, abs=0.02)
    assert placed.critical_path[0].kind == "clk-to-q"
    assert placed.critical_path[-1].kind == "setup"
    assert {hop.component for hop in placed.critical_path} <= {"", "memory", "multiply"}
    assert placed.reached == (placed.fmax_mhz >= 50)


@pytest.mark.slow
def test_use_is_that_of_the_netlist(placed: Placement, small: Synthesis) -> None:
    assert (placed.used.dsps, placed.used.brams) == (1, 1)
    assert placed.used.luts >= small.resources.luts
    assert placed.config is None, "there is no bitstream without pins"


@pytest.mark.slow
def test_a_placement_is_found_again_without_running_the_tool(
    placed: Placement, small: Synthesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_arguments: object) -> float:
        raise AssertionError("the tool ran")

    monkeypatch.setattr(place, "run", never)
    assert place_and_route(small, find_device("12k"), 50) == placed
    with pytest.raises(AssertionError, match="the tool ran"):
        place_and_route(small, find_device("12k"), 50, seed=2)


@pytest.mark.parametrize("name", sweep(["12k", "45k", "85k"], kept=()))
def test_the_table_of_devices_is_nextpnrs(small: Synthesis, name: str) -> None:
    device = find_device(name)
    assert place_and_route(small, device, 50).available == device.holds


@pytest.mark.slow
def test_pins_give_a_configuration(small: Synthesis) -> None:
    device, options = find_device("85k"), ("--lpf-allow-unconstrained",)
    with pytest.raises(ToolError, match="'NOPE', which does not exist for package 'CABGA381'"):
        place_and_route(small, device, 25, constraints=PINS.replace("P3", "NOPE"), options=options)
    placed = place_and_route(small, device, 25, constraints=PINS, options=options)
    assert placed.config is not None
    assert ".device LFE5U-85F" in placed.config.read_text()
    assert placed.utilisation["TRELLIS_IO"][0] == 1 + 8 + 8, "clk, d, q"


@pytest.mark.slow
def test_without_constraints_only_clock_and_reset_have_pins(small: Synthesis) -> None:
    assert place_and_route(small, find_device("12k"), 50).utilisation["TRELLIS_IO"][0] == 1, "clk"
    placed = place_and_route(synthesise(RESET, "reset"), find_device("12k"), 50)
    assert placed.utilisation["TRELLIS_IO"][0] == 2, "clk, rst"
    assert placed.utilisation["DCCA"][0] == 1, "the clock goes over a global net"
    assert list(placed.clocks) == ["$glbnet$clk$TRELLIS_IO_IN"]


@pytest.mark.slow
def test_what_is_too_large_is_told_with_both_numbers() -> None:
    synthesis = synthesise(many(29), "many")
    assert synthesis.resources.dsps == 29
    with pytest.raises(InputError, match="the design needs 29 dsps, and 12k has 28"):
        place_and_route(synthesis, find_device("12k"), 50)


def test_routing_that_makes_no_progress_is_given_up() -> None:
    said: list[str] = []
    watch = place._watch(find_device("85k"), said.append)

    def batch(number: int, left: int) -> str:
        return f"Info: {number:>10} |    17692     111873 |  192   772 |{left:>10}|       2.89     313.15|"

    for number, left in enumerate([900 - n for n in range(100)] + [801 + n % 7 for n in range(99)], 1):
        watch(batch(1000 * number, left))
    assert said[-1] == "placement and routing: routing, 801 connections left"
    needed = "routing makes no progress, at least 801 connections are left after 200,000 were routed"
    with pytest.raises(InputError, match=needed):
        watch(batch(200_000, 801))


def test_an_interrupt_leaves_nothing(small: Synthesis, empty_cache: Path) -> None:
    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place_and_route(small, find_device("12k"), 50, progress=interrupt)
    assert not results(empty_cache)


@pytest.mark.parametrize(
    ("device", "package", "speed", "text"),
    [
        ("12k", "CABGA756", None, r"the package of 12k must be one of CABGA256, .*, not CABGA756"),
        ("85k", None, 9, "the speed grade must be one of 6, 7, 8, not 9"),
        ("um5g-85k", None, 6, "the speed grade of um5g-85k must be 8, not 6"),
    ],
)
def test_devices_that_do_not_exist_are_refused(
    netlist: Synthesis, device: str, package: str | None, speed: int | None, text: str
) -> None:
    with pytest.raises(InputError, match=text):
        place_and_route(netlist, find_device(device), 50, package=package, speed=speed)


def test_devices_have_names() -> None:
    assert DEVICES["85k"].holds == Resources(luts=83640, ffs=83640, brams=208, dsps=156)
    with pytest.raises(InputError, match=r"the device must be one of 12k, 25k, 45k, 85k, .*, not '99k'"):
        find_device("99k")


def test_placement_needs_a_netlist_and_a_frequency(netlist: Synthesis) -> None:
    with pytest.raises(InputError, match="needs a netlist for ecp5"):
        place_and_route(replace(netlist, family="xilinx"), find_device("85k"), 50)
    with pytest.raises(InputError, match="must be above 0 MHz, not 0"):
        place_and_route(netlist, find_device("85k"), 0)
