"""The queue in front of an engine."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import memory, stream
from amaranth.lib.wiring import Component, In, Out


class OperationQueue(Component):
    """A queue whose entries are announced a cycle before they are there.

    With `coming` in cycle t, `data` in t + 1 is the entry. `room` is 1 while fewer than `depth` entries are
    there or announced; nothing may come without. An entry stays where it was put until it is taken, so that
    the engine's answer, which comes late in a cycle, decides about a few bits and not about a wide register.
    `room` and whether something is offered are registers: engines and warps have their whole cycle.

    **Timing.** What comes in cycle t is offered by `out` from t + 2 on, behind all that came before. If an
    entry is taken in cycle s there is room again from s + 1 on.
    """

    def __init__(self, width: int, depth: int):
        self._width, self._depth = width, depth
        super().__init__(
            {
                "coming": In(1),
                "data": In(width),
                "room": Out(1),
                "out": Out(stream.Signature(width)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = self._depth
        count, full = Signal(range(depth + 1)), Signal()  # of those that are there or announced
        enters, taken = Signal(), Signal()
        m.d.comb += [
            self.room.eq(~full),
            taken.eq(self.out.valid & self.out.ready),
            self.out.payload.eq(self._oldest(m, enters, taken)),
        ]
        m.d.sync += [
            enters.eq(self.coming),
            count.eq(count + self.coming - taken),
            full.eq(~taken & (full | (self.coming & (count == depth - 1)))),
            self.out.valid.eq(Mux(taken, count > 1, count != 0)),
        ]
        return m

    def _oldest(self, m: Module, enters: Signal, taken: Signal) -> Value:
        """Put what `enters` in its place; returns the oldest entry that is there."""
        if self._depth == 1:
            entry = Signal(self._width, reset_less=True)
            with m.If(enters):
                m.d.sync += entry.eq(self.data)
            return entry
        places = 1 << (self._depth - 1).bit_length()
        free, oldest = Signal(range(places)), Signal(range(places))
        m.d.sync += [free.eq(free + enters), oldest.eq(oldest + taken)]
        if places > 2:
            m.submodules.storage = storage = memory.Memory(shape=self._width, depth=places, init=[])
            writer, reader = storage.write_port(), storage.read_port(domain="comb")
            m.d.comb += [
                writer.en.eq(enters),
                writer.addr.eq(free),
                writer.data.eq(self.data),
                reader.addr.eq(self._reads(oldest)),
            ]
            return reader.data
        entries = [Signal(self._width, name=f"entry{i}", reset_less=True) for i in range(2)]
        for i, kept in enumerate(entries):
            with m.If(enters & (free == i)):
                m.d.sync += kept.eq(self.data)
        return Mux(oldest, entries[1], entries[0])

    def _reads(self, oldest: Signal) -> Value:
        """The place of the oldest entry in a memory."""
        return oldest
