"""Program memory of a warp, and what fetches from it one instruction ahead."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import memory
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.isa import STORED_BITS
from hw.rtl.bits import log2
from hw.rtl.core.decoder import Sort, sort_of
from hw.rtl.core.loops import LoopStack

_LENGTH = isa.layout("loop")["length"]
_OFFSET = isa.layout("jump")["offset"]


class ProgramMemory(Component):
    """The instruction memory of a warp: words with their sorts; written while the machine is idle.

    **Timing.** The words at `address` and `target` in a cycle t with `read` are `word` and `target_word` from
    t + 1 on, until the cycle after the next `read` or `write`.
    """

    def __init__(self, words: int):
        self._words = words
        bits = log2(words)
        super().__init__(
            {
                "read": In(1),
                "address": In(bits),
                "word": Out(STORED_BITS),
                "target": In(bits),
                "target_word": Out(STORED_BITS),
                "write": In(1),
                "write_address": In(bits),
                "data": In(STORED_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = memory.Memory(
            shape=STORED_BITS, depth=self._words, init=[], attrs={"no_rw_check": 1}
        )
        read, target, write = words.read_port(), words.read_port(), words.write_port()
        # One address for reading and writing: two ports in all, as block RAM has them.
        address = Signal(len(self.address))
        m.d.comb += [
            address.eq(Mux(self.write, self.write_address, self.address)),
            read.en.eq(self.read | self.write),
            read.addr.eq(address),
            self.word.eq(read.data),
            target.en.eq(self.read),
            target.addr.eq(self.target),
            self.target_word.eq(target.data),
            write.en.eq(self.write),
            write.addr.eq(address),
            write.data.eq(self.data),
        ]
        return m


class Fetch(Component):
    """The instruction that executes (`word` at `pc`), and the next one, which is there before it is decided.

    All that may come next is at hand: what stands behind (`next_word`), what a jump or a loop without
    iterations leads to (`target_word`), and the first instruction of the loop around. `jump` tells that the
    instruction jumps, `push` that it opens a loop of `count` iterations, `go` that it is done. `load`, for
    two cycles, takes the first instruction of the program. In a cycle with `read`, `word` becomes `coming`.

    **Timing.** What is decided in cycle t executes in t + 1. The words at `address` and `target` in a cycle
    with `read` are needed from the next one on.
    """

    def __init__(self, imem_words: int, loop_depth: int):
        self._depth = loop_depth
        bits = log2(imem_words)
        super().__init__(
            {
                "load": In(1),
                "go": In(1),
                "jump": In(1),
                "push": In(1),
                "count": In(32),
                "full": Out(1),
                "coming": Out(STORED_BITS),
                "word": Out(STORED_BITS),
                "pc": Out(bits, init=imem_words - 2),
                "read": Out(1),
                "address": Out(bits),
                "next_word": In(STORED_BITS),
                "target": Out(bits),
                "target_word": In(STORED_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = len(self.pc)
        # Behind a loop may be beyond the memory: such a loop never ends.
        after_bits = max(bits, _LENGTH.width) + 1
        m.submodules.loops = loops = LoopStack(self._depth, bits, after_bits)
        after = Signal(after_bits)
        behind, following, word = Signal(bits + 1), Signal(bits), self.coming
        m.d.comb += [
            behind.eq(self.pc + 1),
            loops.next.eq(behind),
            loops.go.eq(self.go),
            loops.jump.eq(self.jump),
            loops.push.eq(self.push),
            loops.start.eq(behind),
            loops.start_word.eq(self.next_word),
            loops.after.eq(after),
            loops.count.eq(self.count),
            self.full.eq(loops.full),
        ]
        with m.If(self.jump):
            m.d.comb += [following.eq(after), word.eq(self.target_word)]
        with m.Elif(loops.back):
            m.d.comb += [following.eq(loops.top_start), word.eq(loops.top_word)]
        with m.Else():
            m.d.comb += [following.eq(behind), word.eq(self.next_word)]
        ahead = (Cat(Const(1, 1), following) + Cat(Const(1, 1), self._offset(word, after_bits)))[1:]
        m.d.comb += [
            self.read.eq(self.go | self.load),
            self.address.eq(following + 1),
            self.target.eq(ahead),
        ]
        with m.If(self.read):
            m.d.sync += [self.pc.eq(following), self.word.eq(word), after.eq(ahead)]
        return m

    def _offset(self, word: Value, bits: int) -> Value:
        """How far behind the next instruction a `loop` or `jump` leads; both fields start at bit 0."""
        jump = sort_of(word) == Sort.JUMP
        further = word[_LENGTH.width : _OFFSET.width] & jump.replicate(_OFFSET.width - _LENGTH.width)
        if len(self.pc) <= _LENGTH.width:
            return word[: _LENGTH.width]
        return Cat(word[: _LENGTH.width], further)[:bits]
