"""Hardware loops of a warp."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory
from amaranth.lib.wiring import Component, In, Out

from hw.isa import STORED_BITS


class LoopStack(Component):
    """The loops around the current instruction, innermost on top.

    `go` tells that the instruction before `next` is done; if it is a taken `jump`, loops neither end nor
    return. `push` opens a loop with `count` >= 1 iterations from the next instruction, at `start` with the
    code `start_word`, to the one before `after`; with `full` it must not happen. `back` is 1 if, with `go`, a
    loop returns to `top_start`, where `top_word` stands.

    **Timing.** `back` and what is on top are combinational, so a return costs no cycle.
    """

    def __init__(self, depth: int, pc_bits: int, after_bits: int):
        self._depth = depth
        super().__init__(
            {
                "next": In(after_bits),
                "go": In(1),
                "jump": In(1),
                "push": In(1),
                "start": In(pc_bits),
                "start_word": In(STORED_BITS),
                "after": In(after_bits),
                "count": In(32),
                "full": Out(1),
                "back": Out(1),
                "top_start": Out(pc_bits),
                "top_word": Out(STORED_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bounds = data.StructLayout(
            {"start": len(self.start), "after": len(self.after), "word": len(self.start_word)}
        )
        depth = max(2, self._depth)
        m.submodules.bounds = places = memory.Memory(shape=bounds, depth=depth, init=[])
        m.submodules.left = left = memory.Memory(shape=32, depth=depth, init=[])
        level, top = Signal(range(self._depth + 1)), Signal(range(depth))
        place, turns = places.read_port(domain="comb"), left.read_port(domain="comb")
        opened, counted = places.write_port(), left.write_port()
        ends, last = Signal(), Signal()
        m.d.comb += [
            place.addr.eq(top),
            turns.addr.eq(top),
            last.eq(turns.data == 1),
            ends.eq((level != 0) & (self.next == place.data.after) & ~self.jump & ~self.push),
            self.full.eq(level == self._depth),
            self.top_start.eq(place.data.start),
            self.top_word.eq(place.data.word),
            self.back.eq(ends & ~last),
            opened.en.eq(self.go & self.push),
            opened.addr.eq(level),
            opened.data.start.eq(self.start),
            opened.data.after.eq(self.after),
            opened.data.word.eq(self.start_word),
            counted.en.eq(self.go & (self.push | self.back)),
            counted.addr.eq(Mux(self.push, level, top)),
            counted.data.eq(Mux(self.push, self.count, turns.data - 1)),
        ]
        with m.If(self.go & self.push):
            m.d.sync += [level.eq(level + 1), top.eq(level)]
        with m.Elif(self.go & ends & last):
            m.d.sync += [level.eq(level - 1), top.eq(top - 1)]
        return m
