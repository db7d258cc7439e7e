"""Error arbiter: which of the errors of engines, warps and watchdog is reported."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw.rtl.interfaces import ErrorReport


class Errors(Component):
    """Chooses among `sources` of errors, the first of them before the others.

    A source has an error in each cycle in which its bit of `happens` is 1, and its report then. `failed`
    tells it a cycle later, so that an engine stops itself before all others do; `error` and `report` another
    cycle later. They tell of every cycle with an error: the first in a run counts. The first source may also
    say by `late` that it had an error in the cycle before.

    **Timing.** Errors come late in a cycle, from many places: they are kept, then chosen among, then told. An
    error of cycle t is in `failed` in t + 1 and in `error` in t + 2.
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
