"""The tops that a machine can be built as: bare, behind AXI4, behind a UART, on a board."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hw.config import MachineConfig

if TYPE_CHECKING:
    from hw.rtl.bus.board import Board

#: MHz that placement aims at when none is asked for.
FREQUENCY = 60.0
#: Memory and speed of the tops with a UART unless told otherwise.
MEMORY_BYTES, BAUD = 65536, 1_000_000


@dataclass(frozen=True)
class Top:
    """A kind of top: the name of its module, of its clock, and what it is."""

    name: str
    module: str
    clock: str
    meaning: str


TOPS = {
    top.name: top
    for top in (
        Top("core", "jacquard", "clk", "the machine with its streams (docs/ports.md), without `trace_*`"),
        Top("axi", "jacquard_axi", "aclk", "AXI4-Lite slave and AXI4 master"),
        Top("uart", "jacquard_uart", "clk", "memory in block RAM, driven over a UART"),
        Top("board", "jacquard_ecp5", "clk", "the same with a board's clock and pins"),
    )
}


@dataclass(frozen=True)
class Serial:
    """What the tops with a UART need: bytes of memory, clock in Hz, bits per second."""

    memory_bytes: int
    clock_hz: int
    baud: int


@dataclass(frozen=True)
class Design:
    """A top of a machine, ready for synthesis.

    `constraints` is the text of the LPF file with the pins of a board, None where the design is placed with
    clock and reset alone as pins. `board` is the name of the board.
    """

    top: Top
    verilog: str
    constraints: str | None = None
    board: str | None = None

    @property
    def module(self) -> str:
        """The name of the top module."""
        return self.top.module


def design(
    config: MachineConfig, top: Top, board: Board | None = None, serial: Serial | None = None
) -> Design:
    """The top of a machine as Verilog, with a board's pins where it has one.

    `board` is needed by the top `board` alone. Raises `InputError` for a memory, a clock or a baud rate that
    the top cannot have.
    """
    from hw import emit as core  # Amaranth takes half a second to import
    from hw.rtl.bus import emit

    if top.name == "core":
        return Design(top, core.verilog(config, trace=False))

    if top.name == "axi":
        return Design(top, emit.axi_verilog(config))
    serial = serial or Serial(MEMORY_BYTES, round(FREQUENCY * 1e6), BAUD)
    if top.name == "uart":
        return Design(top, emit.uart_verilog(config, serial.memory_bytes, serial.clock_hz, serial.baud))
    from hw.rtl.bus.board import constraints

    assert board is not None
    text = emit.board_verilog(config, board, serial.memory_bytes, serial.clock_hz, serial.baud)
    return Design(top, text, constraints(board), board.name)
