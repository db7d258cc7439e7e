"""The queue in front of an engine."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, stream
from amaranth.lib.wiring import Component, In, Out


class OperationQueue(Component):
    """A queue whose entries are announced a cycle before they are there.

    With `coming` in cycle t, `data` in t + 1 is the entry. `room` is 1 while fewer than `depth` entries are
    there or announced; nothing may come without.

    **Timing.** What comes in cycle t is offered by `out` from t + 1 on, behind all that came before. If an
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
        places = max(2, 1 << (depth - 1).bit_length())
        m.submodules.storage = storage = memory.Memory(shape=self._width, depth=places, init=[])
        write, read = storage.write_port(), storage.read_port(domain="comb")
        # `level` entries are stored, and one `enters`: it passes by if nothing is stored before it.
        enters, stored, taken = Signal(), Signal(), Signal()
        level = Signal(range(depth + 1))
        produce, consume = Signal(range(places)), Signal(range(places))
        m.d.comb += [
            write.en.eq(enters),
            write.addr.eq(produce),
            write.data.eq(self.data),
            read.addr.eq(consume),
            self.room.eq(Mux(enters, level != depth - 1, level != depth)),
            self.out.valid.eq(enters | stored),
            self.out.payload.eq(Mux(stored, read.data, self.data)),
            taken.eq(self.out.valid & self.out.ready),
        ]
        m.d.sync += [
            enters.eq(self.coming),
            produce.eq(produce + enters),
            consume.eq(consume + taken),
            level.eq(level + enters - taken),
        ]
        with m.If(enters & ~taken):
            m.d.sync += stored.eq(1)
        with m.Elif(taken & ~enters):
            m.d.sync += stored.eq(level != 1)
        return m
