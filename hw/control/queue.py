"""The queue in front of an engine."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import memory, stream
from amaranth.lib.wiring import Component, In, Out


class OperationQueue(Component):
    """A queue whose entries are announced a cycle before they are there.

    With `coming` in cycle t, `data` in t + 1 is the entry. `room` is 1 while fewer than `depth` entries are
    there or announced; nothing may come without. What is offered lies in a register of its own, and `room` is
    one: engines and warps have their whole cycle.

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
        enters, taken, moves = Signal(), Signal(), Signal()
        stored, behind = self._behind(m, enters, moves)
        m.d.comb += [
            self.room.eq(~full),
            taken.eq(self.out.valid & self.out.ready),
            moves.eq(~self.out.valid | self.out.ready),
        ]
        m.d.sync += [
            enters.eq(self.coming),
            count.eq(count + self.coming - taken),
            full.eq(~taken & (full | (self.coming & (count == depth - 1)))),
        ]
        front = Signal(self._width, reset_less=True)
        with m.If(moves):
            m.d.sync += [self.out.valid.eq(stored | enters), front.eq(Mux(stored, behind, self.data))]
        m.d.comb += self.out.payload.eq(front)
        return m

    def _behind(self, m: Module, enters: Signal, moves: Signal) -> tuple[Value, Value]:
        """Those behind the entry that is offered: whether there are any, and the oldest.

        What `enters` goes there, unless the place in front is free or gets so and nobody waits for it. It is
        written in any case, to a place that is free, so that the engine's answer decides about one bit alone.
        """
        places, stored = self._depth - 1, Signal()
        if places == 0:
            return stored, self.data
        write, read = Signal(), Signal()
        m.d.comb += [write.eq(enters & (stored | ~moves)), read.eq(stored & moves)]
        if places == 1:
            behind = Signal(self._width, reset_less=True)
            with m.If(enters):
                m.d.sync += behind.eq(self.data)
            m.d.sync += stored.eq((stored & ~moves) | write)
            return stored, behind
        m.submodules.storage = storage = memory.Memory(
            shape=self._width, depth=max(2, 1 << (places - 1).bit_length()), init=[]
        )
        writer = storage.write_port()
        reader = storage.read_port(domain="comb")
        level = Signal(range(places + 1))
        m.d.comb += [writer.en.eq(enters), writer.data.eq(self.data)]
        m.d.sync += [
            writer.addr.eq(writer.addr + write),
            reader.addr.eq(reader.addr + read),
            level.eq(level + write - read),
        ]
        with m.If(write & ~read):
            m.d.sync += stored.eq(1)
        with m.Elif(read & ~write):
            m.d.sync += stored.eq(level != 1)
        return stored, reader.data
