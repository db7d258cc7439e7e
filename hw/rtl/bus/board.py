"""The machine on an ECP5 board: PLL, reset, pins, constraints."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amaranth.hdl import ClockDomain, ClockSignal, Const, Instance, Module, Signal
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import Component, In, Out

from hw import toml_text
from hw.config import MachineConfig
from hw.errors import InputError, unknown
from hw.rtl.bus import pll
from hw.rtl.bus.protocol import Serial
from hw.rtl.bus.uart_machine import LEDS, UartMachine


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board: device, package and speed grade in the terms of nextpnr-ecp5, and its pins.

    `reset_pin` is a button. `constants` are outputs with a constant level, by name (`pin`, `level`).
    """

    name: str
    title: str
    device: str
    package: str
    speed: int
    io_type: str
    clock_pin: str
    clock_hz: int
    uart_rx_pin: str
    uart_tx_pin: str
    led_pins: tuple[str, ...]
    led_active_low: bool = False
    reset_pin: str | None = None
    reset_active_low: bool = False
    constants: dict[str, dict[str, Any]] = field(default_factory=dict)


def board_names() -> list[str]:
    """Names of the boards that come with Heald."""
    return list(toml_text.presets("hw.rtl.bus", "boards"))


def load_board(source: str) -> Board:
    """Loads a board by name or from a TOML file; raises `InputError` if it is invalid."""
    known = toml_text.presets("hw.rtl.bus", "boards")
    needed = f"the board must be one of {', '.join(known)}, or a TOML file"
    text, _ = toml_text.found(source, known, needed)
    return _board(source, toml_text.parsed(text, source))


def _board(source: str, values: dict[str, Any]) -> Board:
    fields = {f.name: f for f in dataclasses.fields(Board) if f.name != "name"}
    for key in values:
        if key not in fields:
            raise InputError(f"{source}: {unknown('field', key, fields)}")
    for key, f in fields.items():
        needed = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if needed and key not in values:
            raise InputError(f"{source}: {key} is missing")
    kinds: dict[str, type] = {"speed": int, "clock_hz": int, "led_pins": list, "constants": dict}
    kinds |= {"led_active_low": bool, "reset_active_low": bool}
    for key, value in values.items():
        kind = kinds.get(key, str)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise InputError(f"{source}: {key} must be a {kind.__name__}, not {value!r}")
        if isinstance(value, int) and not 0 <= value < 1 << 32:
            raise InputError(f"{source}: {key} must be from 0 to {(1 << 32) - 1}, not {value:#x}")
    if len(values["led_pins"]) != len(LEDS) or not all(isinstance(p, str) for p in values["led_pins"]):
        raise InputError(f"{source}: led_pins must be {len(LEDS)} pins, not {values['led_pins']!r}")
    for key, value in values.get("constants", {}).items():
        _check_constant(f"{source}: constants.{key}", key, value)
    pins = {"led_pins": tuple(values["led_pins"])}
    return Board(name=Path(source).stem, **(values | pins))


def _check_constant(place: str, name: str, value: Any) -> None:
    """Raises `InputError` unless `value` is a valid constant output whose name the top does not use."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        needed = "a name that begins with a letter and has letters, digits and _ alone"
        raise InputError(f"{place} must have {needed}, not {name!r}")
    if name in _PORTS or hasattr(Ecp5Board, name):
        raise InputError(f"{place} must have a name that the top does not use itself, not {name!r}")
    right = isinstance(value, dict) and set(value) == {"pin", "level"} and isinstance(value["pin"], str)
    if not right or type(value["level"]) is not int or value["level"] not in (0, 1):
        raise InputError(f"{place} must have a pin and a level of 0 or 1, not {value!r}")


_PORTS = ("clk", "reset", "uart_rx", "uart_tx", "led")


def constraints(board: Board) -> str:
    """The LPF text of a board: pin sites, I/O standards, and the frequency of its oscillator.

    From that frequency and the PLL, nextpnr derives the machine's clock.
    """
    pins = {"clk": board.clock_pin, "uart_rx": board.uart_rx_pin, "uart_tx": board.uart_tx_pin}
    pins |= {f"led[{i}]": pin for i, pin in enumerate(board.led_pins)}
    if board.reset_pin is not None:
        pins["reset"] = board.reset_pin
    pins |= {name: constant["pin"] for name, constant in board.constants.items()}
    pull = {"uart_rx": "UP", "reset": "UP" if board.reset_active_low else "DOWN"}
    lines = [f"# {board.title}", "BLOCK RESETPATHS;", "BLOCK ASYNCPATHS;"]
    for port, pin in pins.items():
        mode = f" PULLMODE={pull[port]}" if port in pull else ""
        lines.append(f'LOCATE COMP "{port}" SITE "{pin}";')
        lines.append(f'IOBUF PORT "{port}" IO_TYPE={board.io_type}{mode};')
    lines.append(f'FREQUENCY PORT "clk" {board.clock_hz / 1e6:.6f} MHZ;')
    return "\n".join(lines) + "\n"


#: Inputs of the PLL that are tied to 0.
_UNUSED = (
    *("RST", "STDBY", "PHASESEL0", "PHASESEL1", "PHASEDIR", "PHASESTEP", "PHASELOADREG"),
    *("PLLWAKESYNC", "ENCLKOP", "ENCLKOS"),
)


class Ecp5Board(Component):
    """The top `heald_ecp5`: `UartMachine` behind a PLL, with ports for the pins of a board.

    The machine's clock is the highest that does not exceed `serial.clock_hz` (`hw.rtl.bus.pll.solve`). Reset
    lasts until the PLL has locked, and while the board's reset button is pressed.

    **Timing.** As `UartMachine`, on the clock of the PLL. Reset asserts asynchronously and deasserts
    synchronously.
    """

    def __init__(self, config: MachineConfig, board: Board, serial: Serial):
        self._board, self._pll = board, pll.solve(board.clock_hz, serial.clock_hz)
        hz = round(self._pll.hz(board.clock_hz))
        self._config, self._serial = config, dataclasses.replace(serial, clock_hz=hz)
        ports = {"clk": In(1), "uart_rx": In(1), "uart_tx": Out(1), "led": Out(len(LEDS))}
        if board.reset_pin is not None:
            ports["reset"] = In(1)
        super().__init__(ports | {name: Out(1) for name in board.constants})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        board, dividers = self._board, self._pll
        m.domains.sync = ClockDomain()
        loop, locked, reset = Signal(), Signal(), Signal()
        m.submodules.pll = Instance(
            "EHXPLLL",
            # Loop filter settings that Project Trellis' ecppll uses for every frequency.
            a_ICP_CURRENT="12",
            a_LPF_RESISTOR="8",
            a_MFG_ENABLE_FILTEROPAMP="1",
            a_MFG_GMCREF_SEL="2",
            p_PLLRST_ENA="DISABLED",
            p_INTFB_WAKE="DISABLED",
            p_STDBY_ENABLE="DISABLED",
            p_DPHASE_SOURCE="DISABLED",
            p_OUTDIVIDER_MUXA="DIVA",
            p_FEEDBK_PATH="CLKOP",
            p_CLKI_DIV=dividers.reference,
            p_CLKFB_DIV=dividers.feedback,
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_DIV=dividers.loop,
            p_CLKOP_CPHASE=dividers.loop - 1,
            p_CLKOP_FPHASE=0,
            p_OUTDIVIDER_MUXB="DIVB",
            p_CLKOS_ENABLE="ENABLED",
            p_CLKOS_DIV=dividers.output,
            p_CLKOS_CPHASE=dividers.output - 1,
            p_CLKOS_FPHASE=0,
            i_CLKI=self.clk,
            i_CLKFB=loop,
            **{f"i_{name}": Const(0) for name in _UNUSED},
            o_CLKOP=loop,
            o_CLKOS=ClockSignal(),
            o_LOCK=locked,
        )
        button = Const(0)
        if board.reset_pin is not None:
            button = ~self.reset if board.reset_active_low else self.reset
        m.d.comb += reset.eq(~locked | button)
        m.submodules.synchroniser = ResetSynchronizer(reset)
        m.submodules.machine = machine = UartMachine(self._config, self._serial)
        m.d.comb += [
            machine.uart_rx.eq(self.uart_rx),
            self.uart_tx.eq(machine.uart_tx),
            self.led.eq(~machine.led if board.led_active_low else machine.led),
        ]
        m.d.comb += [getattr(self, name).eq(value["level"]) for name, value in board.constants.items()]
        return m
