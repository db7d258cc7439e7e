"""Generates the Verilog of the bus tops."""

from __future__ import annotations

from hw import emit
from hw.config import MachineConfig
from hw.rtl.bus import pll
from hw.rtl.bus.board import Board, Ecp5Board
from hw.rtl.bus.machine import BEATS, AxiMachine, check_beats
from hw.rtl.bus.protocol import Serial
from hw.rtl.bus.ram import check_size
from hw.rtl.bus.uart import divisor
from hw.rtl.bus.uart_machine import UartMachine

AXI_TOP = "heald_axi"
UART_TOP = "heald_uart"
BOARD_TOP = "heald_ecp5"


def axi_verilog(config: MachineConfig, beats: int = BEATS, *, separate: bool = False) -> str:
    """Verilog text of the machine behind AXI4, top module `heald_axi`.

    `beats` is the maximum number of transfers in a burst; raises `InputError` unless it is 1 to 256. With
    `separate`, each memory port has its own master, `m_axi_load_a_...`, ..., `m_axi_store_...`.
    """
    check_beats(beats)
    return emit.of_machine(AxiMachine(config, beats, separate=separate), AXI_TOP, config)


def uart_verilog(config: MachineConfig, serial: Serial) -> str:
    """Verilog text of a `UartMachine`, top module `heald_uart`.

    Raises `InputError` for a memory that is not a multiple of 4,096 bytes, and for a baud rate that the clock
    cannot produce.
    """
    check_size(serial.memory_bytes)
    divisor(serial.clock_hz, serial.baud)
    return emit.of_machine(UartMachine(config, serial), UART_TOP, config)


def board_verilog(config: MachineConfig, board: Board, serial: Serial) -> str:
    """Verilog text of an `Ecp5Board`, top module `heald_ecp5`; the clock of `serial` is the machine's.

    Raises `InputError` as `uart_verilog` does, and for a clock that the PLL cannot produce.
    """
    check_size(serial.memory_bytes)
    divisor(round(pll.solve(board.clock_hz, serial.clock_hz).hz(board.clock_hz)), serial.baud)
    return emit.of_machine(Ecp5Board(config, board, serial), BOARD_TOP, config)
