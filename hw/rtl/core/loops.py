"""The hardware loop stacks of all warps."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory
from amaranth.lib.wiring import Component, In, Out

from hw.config import MachineConfig
from hw.rtl.bits import log2
from hw.rtl.core.ring import Ring
from hw.rtl.interfaces import warp_number

#: LUTs are scarce: the few words of each warp go to block RAM.
BLOCK = {"ram_style": "block", "no_rw_check": 1}
#: Number of cycles before a turn in which the innermost loop of its warp is read.
AHEAD = 3


class LoopStack(Component):
    """The loops around the current instruction of each warp, innermost on top.

    `warp_ahead` is the warp whose turn comes in `AHEAD` cycles. `behind_ahead` is the address after the
    current instruction of the warp whose turn is next. In a turn, `go` means that the instruction executes;
    with `jump` (a taken `jump`) loops neither end nor return. `push` opens a loop of `count` >= 1 iterations,
    from `behind` to the instruction before `after`; it must not be 1 while `full` is. `back` means that,
    given `go`, the innermost loop returns to `start`.

    **Timing.** `full` and `start` come from registers; `back` depends on `jump` and `push` in the same cycle.
    """

    def __init__(self, config: MachineConfig, after_bits: int):
        self._config = config
        bits = log2(config.imem_words)
        super().__init__(
            {
                "warp_ahead": In(warp_number(config)),
                "behind_ahead": In(after_bits),
                "warp": In(warp_number(config)),
                "behind": In(bits),
                "go": In(1),
                "jump": In(1),
                "push": In(1),
                "after": In(after_bits),
                "count": In(32),
                "full": Out(1),
                "back": Out(1),
                "start": Out(bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = self._config.loop_depth
        place_bits = max(1, (depth - 1).bit_length())
        places = self._config.warps << place_bits
        level = Ring(m, range(depth + 1), self._config.derived.period, "level")
        bounds = data.StructLayout({"start": len(self.start), "after": len(self.after)})
        m.submodules.bounds = kept = memory.Memory(shape=bounds, depth=places, init=[], attrs=BLOCK)
        m.submodules.left = left = memory.Memory(shape=32, depth=places, init=[], attrs=BLOCK)
        bound, turns = kept.read_port(), left.read_port()
        opened, counted = kept.write_port(), left.write_port()

        # Read, registered, and compared in the three cycles before the turn.
        top, iterations = Signal(bounds), Signal(32)
        fewer, ends, last = Signal(32), Signal(), Signal()
        above = Signal(place_bits)
        m.d.comb += [
            above.eq(level.ahead(AHEAD) - 1),
            bound.addr.eq(Cat(above, self.warp_ahead)),
            turns.addr.eq(bound.addr),
        ]
        m.d.sync += [
            top.eq(bound.data),
            iterations.eq(turns.data),
            self.start.eq(top.start),
            fewer.eq(iterations - 1),
            last.eq(iterations == 1),
            ends.eq((level.ahead(1) != 0) & (self.behind_ahead == top.after)),
        ]
        ended = Signal()
        inner = Signal(place_bits)
        m.d.comb += [
            ended.eq(ends & ~self.jump & ~self.push),
            self.full.eq(level.now == depth),
            self.back.eq(ended & ~last),
            inner.eq(level.now - 1),
            opened.en.eq(self.go & self.push),
            opened.addr.eq(Cat(level.now[:place_bits], self.warp)),
            opened.data.start.eq(self.behind),
            opened.data.after.eq(self.after),
            counted.en.eq(self.go & (self.push | self.back)),
            counted.addr.eq(Cat(Mux(self.push, level.now[:place_bits], inner), self.warp)),
            counted.data.eq(Mux(self.push, self.count, fewer)),
        ]
        # `go` is a late input.
        deeper = Mux(self.push, level.now + 1, Mux(ended & last, level.now - 1, level.now))
        m.d.comb += level.then.eq(Mux(self.go, deeper, level.now))
        return m
