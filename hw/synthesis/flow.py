"""Builds a machine for an FPGA: top, Verilog, synthesis, and placement with one or more seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hw.config import MachineConfig
from hw.rtl.bus.protocol import Serial
from hw.synthesis import Device, Placement, Synthesis, place_and_route, synthesise
from hw.synthesis.fit import check_fit
from hw.synthesis.tools import Progress, ToolError

if TYPE_CHECKING:
    from hw.rtl.bus.board import Board

#: Default target frequency of placement, in MHz.
FREQUENCY = 60.0
#: Default memory size and baud rate of the tops with a UART.
MEMORY_BYTES, BAUD = 65536, 1_000_000


@dataclass(frozen=True)
class Top:
    """A kind of top: its name, its module, its clock, and a description."""

    name: str
    module: str
    clock: str
    meaning: str


TOPS = {
    top.name: top
    for top in (
        Top("core", "heald", "clk", "the machine with its streams (docs/ports.md), without `trace_*`"),
        Top("axi", "heald_axi", "aclk", "AXI4-Lite slave and AXI4 master"),
        Top("uart", "heald_uart", "clk", "memory in block RAM, driven over a UART"),
        Top("board", "heald_ecp5", "clk", "the same with a board's clock and pins"),
    )
}


@dataclass(frozen=True)
class Design:
    """A top of a machine, ready for synthesis.

    `constraints` is the text of the LPF file with the pins of a board, or None if only clock and reset get
    pins. `board` is the name of the board.
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
    config: MachineConfig,
    top: Top,
    board: Board | None = None,
    serial: Serial | None = None,
    *,
    trace: bool = False,
) -> Design:
    """Generates the Verilog of a top, with the pins of a board if it has one.

    `board` is only needed for the top `board`; `trace` says whether `core` has the ports for simulation.
    Raises `InputError` for a memory, a clock or a baud rate that the top cannot have.
    """
    from hw import emit as core  # Amaranth takes half a second to import
    from hw.rtl.bus import emit

    if top.name == "core":
        return Design(top, core.verilog(config, trace=trace))
    if top.name == "axi":
        return Design(top, emit.axi_verilog(config))
    serial = serial or Serial(MEMORY_BYTES, round(FREQUENCY * 1e6), BAUD)
    if top.name == "uart":
        return Design(top, emit.uart_verilog(config, serial))
    from hw.rtl.bus.board import constraints

    assert board is not None
    return Design(top, emit.board_verilog(config, board, serial), constraints(board), board.name)


@dataclass(frozen=True)
class Target:
    """Where to build a design: `device` is None if it is only synthesised; `frequency` is in MHz."""

    family: str
    device: Device | None
    package: str
    speed: int
    frequency: float
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Build:
    """The results of building a design.

    `tried` holds the frequency in MHz that each seed reached, or None if nextpnr gave up. `placement` is the
    best of them, or None if the design was only synthesised.
    """

    config: MachineConfig
    design: Design
    target: Target
    synthesis: Synthesis
    placement: Placement | None
    tried: dict[int, float | None]

    @property
    def fmax_mhz(self) -> float | None:
        """The clock that was reached, or None if nothing was placed."""
        return self.placement.fmax_mhz if self.placement else None


def build(config: MachineConfig, design: Design, target: Target, progress: Progress) -> Build:
    """Synthesises a design, and places and routes it if the target has a device.

    Raises `InputError` if the design does not fit, or a tool is missing or gives up with every seed.
    """
    synthesis = synthesise(design.verilog, design.module, target.family, progress=progress)
    if target.device is None:
        return Build(config, design, target, synthesis, None, {})
    check_fit(synthesis.resources, target.device)
    placements: dict[int, Placement] = {}
    failures: dict[int, ToolError] = {}
    for seed in target.seeds:
        several = f"seed {seed}: " if len(target.seeds) > 1 else ""

        def tell(text: str, several: str = several) -> None:
            progress(several + text)

        try:
            placements[seed] = place_and_route(
                synthesis,
                target.device,
                target.frequency,
                constraints=design.constraints,
                package=target.package,
                speed=target.speed,
                seed=seed,
                progress=tell,
            )
        except ToolError as error:
            failures[seed] = error
    if not placements:
        raise failures[target.seeds[0]]
    best = max(placements.values(), key=lambda placement: placement.margin)
    tried = {seed: placements[seed].fmax_mhz if seed in placements else None for seed in target.seeds}
    return Build(config, design, target, synthesis, best, tried)
