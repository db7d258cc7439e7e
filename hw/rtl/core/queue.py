"""The operation queue in front of an engine."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import memory, stream
from amaranth.lib.wiring import Component, In, Out


class OperationQueue(Component):
    """A queue whose entries are announced one cycle before their data.

    With `coming` in cycle t, `data` in t + 1 is the entry. `room` is 1 while fewer than `depth` entries are
    stored or announced; `coming` requires it. The oldest entry has a register of its own, so there is no
    multiplexer in front of the engine; the others wait in `depth` - 1 places, at least one. `room` and
    `out.valid` are registers too, and the register of the oldest entry is refilled when it is empty,
    independently of the engine. So both engines and warps have a whole cycle for their logic.

    **Timing.** An entry with `coming` in cycle t is offered by `out` from t + 3 on, after all earlier
    entries. If an entry is taken in cycle s, the next one is offered in s + 2, and there is room again from s
    + 1 on.
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
        depth, places = self._depth, max(self._depth - 1, 1)
        count, full = Signal(range(depth + 1)), Signal()  # number of entries stored or announced
        waiting, some = Signal(range(places + 1)), Signal()  # number of entries in the places; whether any
        offered = Signal(self._width, reset_less=True)
        enters, taken, moves = Signal(), Signal(), Signal()
        m.d.comb += [
            self.room.eq(~full),
            taken.eq(self.out.valid & self.out.ready),
            moves.eq(some & ~self.out.valid),
            self.out.payload.eq(offered),
        ]
        m.d.sync += [
            enters.eq(self.coming),
            count.eq(count + self.coming - taken),
            full.eq(~taken & (full | (self.coming & (count == depth - 1)))),
            waiting.eq(waiting + enters - moves),
            some.eq(enters | Mux(moves, waiting > 1, some)),
            self.out.valid.eq(moves | (self.out.valid & ~self.out.ready)),
        ]
        first = self._oldest(m, places, enters, moves)
        with m.If(moves):
            m.d.sync += offered.eq(first)
        return m

    def _oldest(self, m: Module, number: int, enters: Signal, moves: Signal) -> Value:
        """Stores the entry that `enters` in one of `number` places; returns the oldest entry in them."""
        if number == 1:
            entry = Signal(self._width, reset_less=True)
            with m.If(enters):
                m.d.sync += entry.eq(self.data)
            return entry
        places = 1 << (number - 1).bit_length()
        free, oldest = Signal(range(places)), Signal(range(places))
        m.d.sync += [free.eq(free + enters), oldest.eq(oldest + moves)]
        m.submodules.storage = storage = memory.Memory(
            shape=self._width, depth=places, init=[], attrs={"ram_style": "distributed"}
        )
        writer, reader = storage.write_port(), storage.read_port(domain="comb")
        m.d.comb += [
            writer.en.eq(enters),
            writer.addr.eq(free),
            writer.data.eq(self.data),
            reader.addr.eq(self._reads(oldest)),
        ]
        return reader.data

    def _reads(self, oldest: Signal) -> Value:
        """The place of the oldest entry in a memory."""
        return oldest
