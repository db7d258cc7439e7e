"""Performance counters, and the host registers that share their memory."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Mapping

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import memory
from amaranth.lib.wiring import Component, In, Out

from hw import csr
from hw.config import ENGINES, MachineConfig
from hw.rtl.bits import where

#: Bits of a word's number: the offset of its register without the bits inside of a word.
WORD_BITS = 8
#: Words that are no counters. In the turns of the first ones nothing is written, so that in that of the last
#: one a word can be read for the host, when all before it are up to date.
_PAUSES, _HOST = (0, 1, 2), 3


def counter_registers(config: MachineConfig) -> list[csr.Register]:
    """The registers of the counters, warps first, in the order of their events."""
    names = [f"WARP{w}_{n.upper()}" for w in range(config.warps) for n in csr.WARP_COUNTERS]
    names += [f"{e.upper()}_{n.upper()}" for e in ENGINES for n in csr.ENGINE_COUNTERS]
    table = {r.name: r for r in csr.registers(config)}
    return [table[name] for name in names]


class RegisterMemory(Component):
    """Registers in one memory: counters, constants, and what the host wrote, for it to read back.

    Each counter counts the cycles in which its bit of `events` is 1: cycles of `count`, or the one after. Its
    low bits are a short counter beside the memory; round and round, counter after counter has its turn, in
    which the memory is brought up to date. A round is short enough that no short counter goes round more than
    once.

    `clear` resets the counters in `round_cycles` + 4 cycles. Without it and `count`, `write` sets the word
    `number`. `read` asks for that word: `valid` tells, in one cycle, that it is the `value`; until then
    `read` and `number` stay. Words that nothing writes, and that are no constants (word number to value), are
    0.

    **Timing.** The answer is there in the fourth cycle after `read`; with `count`, at most a round later;
    with `clear`, after it.
    """

    def __init__(self, config: MachineConfig, constants: Mapping[int, int]):
        self._counters = [r.offset // 4 for r in counter_registers(config)]
        self._turns = [*self._counters, *_PAUSES, _HOST]
        self._init = [constants.get(i, 0) for i in range(1 << WORD_BITS)]
        super().__init__(
            {
                "events": In(len(self._counters)),
                "count": In(1),
                "clear": In(1),
                "write": In(1),
                "data": In(32),
                "read": In(1),
                "number": In(WORD_BITS),
                "valid": Out(1),
                "value": Out(32),
            }
        )

    @property
    def round_cycles(self) -> int:
        """Cycles in which all counters have their turn."""
        return len(self._turns)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = memory.Memory(
            shape=32, depth=len(self._init), init=self._init, attrs={"no_rw_check": 1}
        )
        read, write = words.read_port(), words.write_port()
        turn, following = Signal(WORD_BITS, init=_HOST), Signal(WORD_BITS)
        walks, hosts, asks = Signal(), Signal(), Signal()
        # A word goes through four stages: its number is known, it is read, it is kept with the short counter,
        # its value is known. `owns` tells in which stages it is that of a counter that has its turn, `asked`
        # that it is the host's.
        numbers = [Signal(WORD_BITS, name=f"number{i}") for i in range(4)]
        owns, asked, counts = Signal(4), Signal(4), Signal()
        whole, low = Signal(32), Signal((self.round_cycles + 1).bit_length())
        short, is_counter = self._short_counters(m, numbers[0], len(low))
        m.d.comb += [
            walks.eq(self.count | self.clear),
            hosts.eq(~walks | (turn == _HOST)),
            asks.eq(self.read & hosts & ~asked.any() & ~self.clear),
            following.eq(turn + 1),
            read.en.eq(1),
            read.addr.eq(numbers[0]),
            self.valid.eq(asked[-1]),
            # The host writes when nothing walks: what is lost of a counter then is still in its short one.
            write.en.eq(owns[-1] | self.write),
            write.addr.eq(Mux(self.write, self.number, numbers[-1])),
            write.data.eq(Mux(self.write, self.data, where(~self.clear, self.value))),
        ]
        with m.Switch(turn):
            for number, successor in zip(self._turns, self._turns[1:] + self._turns[:1], strict=True):
                if successor != number + 1:
                    with m.Case(number):
                        m.d.comb += following.eq(successor)
        m.d.sync += [
            turn.eq(Mux(walks, following, turn)),
            numbers[0].eq(Mux(hosts, self.number, turn)),
            *[after.eq(before) for before, after in itertools.pairwise(numbers)],
            owns.eq(Cat(walks & ~hosts & ~Cat(turn == pause for pause in _PAUSES).any(), owns)),
            asked.eq(Cat(asks, asked)),
            whole.eq(read.data),
            low.eq(short),
            counts.eq(is_counter),
            # The low bits count on from those in memory: where they are less, they have gone round.
            self.value.eq(Mux(counts, Cat(low, whole[len(low) :] + (low < whole[: len(low)])), whole)),
        ]
        return m

    def _short_counters(self, m: Module, number: Value, bits: int) -> tuple[Value, Value]:
        """That of the word `number`, and whether the word is a counter, both in the next cycle."""
        chosen, values = [], []
        for i, counter in enumerate(self._counters):
            short, here = Signal(bits, name=f"short{i}"), Signal(name=f"here{i}")
            with m.If(self.clear):
                m.d.sync += short.eq(0)
            with m.Elif(self.events[i]):
                m.d.sync += short.eq(short + 1)
            m.d.sync += here.eq(number == counter)
            chosen.append(here)
            values.append(where(here, short))
        return functools.reduce(operator.or_, values), Cat(*chosen).any()
