"""The simulation's side of test_bus_rules.py: drives pins cycle by cycle, and reports what checkers say."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from cosim.bus.commands import connect, obey

PINS = (
    *(f"{c}{end}" for c in ("aw", "w", "b", "ar", "r") for end in ("valid", "ready")),
    *("awid", "bid", "arid", "rid", "awaddr", "araddr", "awlen", "arlen", "awsize", "arsize"),
    *("awburst", "arburst", "bresp", "rresp", "wdata", "rdata", "wstrb", "wlast", "rlast"),
)


class Pins:
    """Drives the pins."""

    def __init__(self, dut: Any):
        self._dut = dut

    async def play(self, cycles: list[dict[str, int]]) -> tuple[int, int, int, int]:
        """Broken rules of both buses, and what is open on them, after pins were driven so."""
        dut = self._dut
        dut.aresetn.value = 0
        for pin in PINS:
            getattr(dut, pin).value = 0
        await ClockCycles(dut.aclk, 4)
        before = int(dut.axi_broken.value), int(dut.lite_broken.value)
        dut.aresetn.value = 1
        await ClockCycles(dut.aclk, 2)
        for values in [*cycles, {}]:
            for pin in (*PINS, "aresetn"):
                getattr(dut, pin).value = values.get(pin, int(pin == "aresetn"))
            await RisingEdge(dut.aclk)
        await ClockCycles(dut.aclk, 2)
        # Bits stay set: what earlier cases broke is taken away.
        axi, lite = int(dut.axi_broken.value) & ~before[0], int(dut.lite_broken.value) & ~before[1]
        return axi, lite, int(dut.axi_open.value), int(dut.lite_open.value)


@cocotb.test()
async def serve(dut: Any) -> None:
    """Play what comes."""
    with connect() as connection:
        Clock(dut.aclk, 2, "step").start(start_high=False)
        await obey(connection, Pins(dut))
