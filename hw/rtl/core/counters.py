"""Performance counters, and the host registers stored in the same memory."""

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

#: Width of a word number: a register's offset without the two byte bits.
WORD_BITS = 8
#: Numbers of words that are not counters. In the pause slots nothing is written, so the counter updates
#: before them finish. The host may then read a word in the last slot.
_PAUSES, _HOST = (0, 1, 2), 3


def counter_registers(config: MachineConfig) -> list[csr.Register]:
    """The registers of the counters, warps first, in the order of their events."""
    names = [f"WARP{w}_{n.upper()}" for w in range(config.warps) for n in csr.WARP_COUNTERS]
    names += [f"{e.upper()}_{n.upper()}" for e in ENGINES for n in csr.ENGINE_COUNTERS]
    table = {r.name: r for r in csr.registers(config)}
    return [table[name] for name in names]


class RegisterMemory(Component):
    """Registers in one memory: counters, constants, and host settings that the host reads back.

    Each counter counts the cycles in which its bit of `events` is 1, during `count` or one cycle later. The
    low bits of each counter are a short counter outside the memory. The memory is updated from the short
    counters in round-robin order, one word per cycle. A round is short enough that no short counter wraps
    more than once.

    `clear` resets the counters in `round_cycles` + 4 cycles. When neither `clear` nor `count` is 1, `write`
    sets word `number`. `read` requests word `number` and must stay with it until `valid` is 1, for one cycle,
    with the word in `value`. A word that is never written and is not in the constants (word number to value)
    reads as 0.

    **Timing.** The answer comes in the fourth cycle after `read`; with `count`, at most a round later; with
    `clear`, after it.
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
        """Length in cycles of one round over all counters."""
        return len(self._turns)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = memory.Memory(
            shape=32, depth=len(self._init), init=self._init, attrs={"no_rw_check": 1}
        )
        read, write = words.read_port(), words.write_port()
        turn, following = Signal(WORD_BITS, init=_HOST), Signal(WORD_BITS)
        walks, hosts, asks = Signal(), Signal(), Signal()
        # A word passes four stages: its number is known, it is read, it is registered with its short counter,
        # its value is known. Bit i of `owns` means that stage i updates a counter, bit i of `asked` that it
        # reads for the host.
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
            # The host writes only while updates are stopped. If a write replaces the last update of a
            # counter, the count is still in the short counter.
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
            # The short counter continues the low bits in memory; if it is smaller than these, it has wrapped.
            self.value.eq(Mux(counts, Cat(low, whole[len(low) :] + (low < whole[: len(low)])), whole)),
        ]
        return m

    def _short_counters(self, m: Module, number: Value, bits: int) -> tuple[Value, Value]:
        """The short counter of word `number`, and whether the word is a counter, both in the next cycle."""
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
