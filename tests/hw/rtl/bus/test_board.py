"""Boards, clocks and constraints."""

from __future__ import annotations

from pathlib import Path

import pytest

from hw.errors import InputError
from hw.rtl.bus import pll
from hw.rtl.bus.board import Board, board_names, constraints, load_board


def test_the_boards_that_come_with_it() -> None:
    assert board_names() == ["ecpix5", "ulx3s"]
    boards = [load_board(name) for name in board_names()]
    assert [(b.device, b.package, b.clock_hz) for b in boards] == [
        ("um5g-85k", "CABGA554", 100_000_000),
        ("85k", "CABGA381", 25_000_000),
    ]


@pytest.mark.parametrize("name", ["ecpix5", "ulx3s"])
def test_constraints_name_every_port_and_no_pin_twice(name: str) -> None:
    board = load_board(name)
    lines = constraints(board).splitlines()
    sites = {line.split('"')[1]: line.split('"')[3] for line in lines if line.startswith("LOCATE")}
    ports = {"clk", "uart_rx", "uart_tx", *(f"led[{i}]" for i in range(4)), *board.constants}
    assert set(sites) == ports | ({"reset"} if board.reset_pin else set())
    assert len(set(sites.values())) == len(sites)
    levels = [line.split('"')[1] for line in lines if line.startswith("IOBUF")]
    assert levels == list(sites)
    assert f'FREQUENCY PORT "clk" {board.clock_hz / 1e6:.6f} MHZ;' in lines


@pytest.mark.parametrize("clock", [12_000_000, 25_000_000, 48_000_000, 100_000_000])
def test_dividers_stay_inside_the_limits_and_near_the_wanted_clock(clock: int) -> None:
    for wanted in range(4_000_000, 160_000_000, 11_300_000):
        found = pll.solve(clock, wanted)
        assert wanted * 0.99 < found.hz(clock) <= wanted
        assert found.hz(clock) * found.output == found.oscillator_hz(clock)
        assert 400_000_000 <= found.oscillator_hz(clock) <= 800_000_000
        assert clock / found.reference >= 3.125e6
        assert 1 <= found.reference <= 128
        assert 1 <= found.feedback <= 80
        assert 1 <= found.loop <= 128
        assert 1 <= found.output <= 128


def test_exact_clocks_are_found() -> None:
    assert pll.solve(25_000_000, 60_000_000).hz(25_000_000) == 60_000_000
    assert pll.solve(100_000_000, 75_000_000).hz(100_000_000) == 75_000_000


@pytest.mark.parametrize(
    ("clock", "wanted", "message"),
    [
        (5_000_000, 60_000_000, "board's clock must be 8 to 400 MHz, not 5 MHz"),
        (25_000_000, 500_000_000, "machine's clock must be 3.125 to 400 MHz, not 500 MHz"),
        (25_000_000, 1_000_000, "not 1 MHz"),
    ],
)
def test_a_clock_out_of_range_is_refused(clock: int, wanted: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        pll.solve(clock, wanted)


GOOD = """
title = "Own"
device = "85k"
package = "CABGA381"
speed = 6
io_type = "LVCMOS33"
clock_pin = "G2"
clock_hz = 25_000_000
uart_rx_pin = "M1"
uart_tx_pin = "L4"
led_pins = ["B2", "C2", "C1", "D2"]
"""


def test_a_board_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(GOOD)
    board = load_board(str(path))
    assert isinstance(board, Board)
    assert (board.name, board.reset_pin, board.led_pins) == ("own", None, ("B2", "C2", "C1", "D2"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("speed = 6", 'speed = "fast"'), "speed must be a int, not 'fast'"),
        (("speed = 6", ""), "speed is missing"),
        (("speed = 6", "speed = 6\ncolour = 1"), "unknown field 'colour'"),
        (('"B2", "C2", ', ""), "led_pins must be 4 pins"),
        (("25_000_000", "1" + "0" * 400), "clock_hz must be from 0 to 4294967295, not 0x"),
        (("speed = 6", "speed ="), "not valid TOML"),
        (("speed = 6", f"speed = {'6' * 5000}"), "not valid TOML"),
    ],
)
def test_a_wrong_board_is_refused(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(GOOD.replace(*change))
    with pytest.raises(InputError, match=message):
        load_board(str(path))


@pytest.mark.parametrize("name", ["led", "clk", "elaborate", "signature", "metadata"])
def test_a_constant_with_a_name_of_the_top_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(GOOD + f"constants = {{ {name} = {{ pin = 'A1', level = 1 }} }}")
    with pytest.raises(InputError, match=f"constants.{name} must have a name that the top does not use"):
        load_board(str(path))


@pytest.mark.parametrize("name", ["_x", "__x__", "1x", "a-b", "größe", ""])
def test_a_constant_whose_name_no_port_can_have_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(GOOD + f"constants = {{ '{name}' = {{ pin = 'A1', level = 1 }} }}", encoding="utf-8")
    with pytest.raises(InputError, match=f"must have a name that begins with a letter .*, not '{name}'"):
        load_board(str(path))


@pytest.mark.parametrize(
    "value", ["{ pin = 'A1', level = 2 }", "{ pin = 'A1', level = 1.0 }", "{ pin = 'A1' }", "1"]
)
def test_a_constant_needs_a_pin_and_a_level(tmp_path: Path, value: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(GOOD + f"constants = {{ x = {value} }}")
    with pytest.raises(InputError, match=r"constants\.x must have a pin and a level of 0 or 1"):
        load_board(str(path))


def test_a_board_whose_name_is_too_long_for_a_file_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be read: File name too long; the board must be one of"):
        load_board("b" * 300)


def test_an_unknown_board_is_refused() -> None:
    with pytest.raises(InputError, match="must be one of ecpix5, ulx3s, or a TOML file, not 'de10'"):
        load_board("de10")
