"""Error arbiter: selects which error of engines, warps and watchdog is reported."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw.rtl.interfaces import ErrorReport


class Errors(Component):
    """Fixed-priority arbiter over `sources` of errors; the first source has the highest priority.

    A source raises its bit of `happens` in each cycle with an error, and supplies its report in the same
    cycle. `failed` returns the bits to the sources one cycle later, so that a failing engine stops before all
    others; `error` and `report` follow another cycle later. They show every cycle with an error; the receiver
    uses the first of a run. The first source may also raise `late`, for an error in the previous cycle.

    **Timing.** Errors arrive late in a cycle, from many places, so they are registered before and after the
    selection. An error of cycle t is in `failed` in t + 1 and in `error` in t + 2.
    """

    def __init__(self, sources: int):
        super().__init__(
            {
                "happens": In(sources),
                "late": In(1),
                "reports": In(data.ArrayLayout(ErrorReport, sources)),
                "failed": Out(sources),
                "error": Out(1),
                "report": Out(ErrorReport),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        reports = Signal(self.reports.shape(), reset_less=True)
        chosen, happened = Signal(ErrorReport), Signal(len(self.happens))
        m.d.comb += happened.eq(self.failed | self.late)
        for i in reversed(range(len(self.happens))):
            with m.If(happened[i]):
                m.d.comb += chosen.eq(reports[i])
        m.d.sync += [
            self.failed.eq(self.happens),
            reports.eq(self.reports),
            self.error.eq(happened.any()),
            self.report.eq(chosen),
        ]
        return m
