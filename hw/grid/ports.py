"""The accesses of a step: which banks serve which ports in a cycle, and which accesses stay open."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from hw.bits import log2, where
from hw.cgra import store_layout
from hw.config import BufferShape, MachineConfig
from hw.grid.access import access_layout
from hw.grid.units import WIDTH, any_of
from hw.memory.accumulator import BankedRowRead
from hw.memory.buffer import BankedWrite, WordRead

WORD_BYTES = WIDTH // 8
SPACES = ("acc", "scratch", "out")
Pairs = dict[tuple[int, int], Value]


class Ports(Component):
    """Serves the accesses of `ports` memory ports, in ascending order.

    `open` says which accesses are not served in this cycle. Nothing is stored while `hold` is 1.

    **Timing.** Combinational from `access` to the banks and to `open`. What a load brings is `arrived` in
    the cycle after the one in which it was served, with `fresh`; else it is 0.
    """

    def __init__(self, config: MachineConfig, ports: int):
        self._config, self._ports = config, ports
        derived = config.derived
        super().__init__(
            {
                "access": In(access_layout(config)).array(ports),
                "hold": In(1),
                "open": Out(max(1, ports)),
                "fresh": Out(max(1, ports)),
                "arrived": Out(WIDTH).array(ports),
                "stores": Out(store_layout(config)).array(ports),
                "acc": Out(BankedRowRead(config)),
                "scratch": Out(WordRead(derived.scratch)),
                "out_read": Out(WordRead(derived.out)),
                "out_write": Out(BankedWrite(derived.out)),
            }
        )
        row, inner = log2(derived.acc_word_bytes), log2(derived.acc_bank_words)
        scratch, out = log2(word_banks(derived.scratch)), log2(word_banks(derived.out))
        #: Of every space, the bits of an address that number the bank, and the word (the row) in it.
        self._parts = {
            "acc": (slice(row + inner, row + inner + log2(config.acc_banks)), slice(row, row + inner)),
            "scratch": (slice(2, 2 + scratch), slice(2 + scratch, log2(config.scratch_bytes))),
            "out": (slice(2, 2 + out), slice(2 + out, log2(config.out_bytes))),
        }

    def elaborate(self, platform: object) -> Module:
        m = Module()
        numbers = range(self._ports)
        loads, writes, held = ([Signal(name=f"{n}{p}") for p in numbers] for n in ("load", "write", "held"))
        for p in numbers:
            access = self.access[p]
            m.d.comb += [
                loads[p].eq(access.valid & ~access.store),
                writes[p].eq(access.valid & access.store),
                held[p].eq(self._held(access)),
            ]
        bank, word = self._meetings(m)
        # Loads: the first of every bank says which word it serves.
        first, served, waiting = (
            [Signal(name=f"{n}{p}") for p in numbers] for n in ("first", "served", "waits")
        )
        for p in numbers:
            before = Cat(loads[q] & bank[q, p] for q in range(p)).any() if p else 0
            shared = Cat(first[q] & word[q, p] for q in range(p)).any() if p else 0
            m.d.comb += [
                first[p].eq(loads[p] & ~before),
                served[p].eq(loads[p] & (first[p] | shared) & ~held[p]),
                waiting[p].eq(loads[p] & ~served[p]),
            ]
        # Stores: a word that is still to be read must stay, whether it is read in this cycle or not: to know
        # that, too, takes longer than a cycle has.
        able, stored = ([Signal(name=f"{n}{p}") for p in numbers] for n in ("able", "stored"))
        for p in numbers:
            read = Cat(loads[q] & word[min(p, q), max(p, q)] for q in numbers if q != p).any()
            before = Cat(able[q] & bank[q, p] for q in range(p)).any() if p else 0
            m.d.comb += [able[p].eq(writes[p] & ~read), stored[p].eq(able[p] & ~before)]
        m.d.comb += self.open.eq(Cat(waiting[p] | (writes[p] & ~stored[p]) for p in numbers))
        self._ask(m, first)
        self._answer(m, served)
        self._write(m, stored)
        return m

    def _select(self, access: Value, space: str, bank: int) -> Value:
        """Whether an access goes to a bank of a space."""
        bits = access.address[self._parts[space][0]]
        there = getattr(access, space)
        return there & (bits == bank) if len(bits) else there

    def _held(self, access: Value) -> Value:
        """Whether others hold what an access reads."""
        acc = [self._select(access, "acc", b) & self.acc.held[b] for b in range(self._config.acc_banks)]
        return any_of([*acc, access.scratch & self.scratch.held, access.out & self.out_read.held])

    def _meetings(self, m: Module) -> tuple[Pairs, Pairs]:
        """For pairs of ports, the lower one first: whether they mean one bank, and one word of it."""
        bank: Pairs = {}
        word: Pairs = {}
        for q in range(self._ports):
            for p in range(q):
                one, other = self.access[p], self.access[q]
                bank[p, q], word[p, q] = Signal(name=f"bank{p}_{q}"), Signal(name=f"word{p}_{q}")
                same = Signal(len(one.address), name=f"same{p}_{q}")
                both = {s: getattr(one, s) & getattr(other, s) for s in SPACES}
                meets = {s: both[s] & same[self._parts[s][0]].all() for s in SPACES}
                m.d.comb += [
                    same.eq(~(one.address ^ other.address)),
                    bank[p, q].eq(any_of(meets.values())),
                    word[p, q].eq(any_of(meets[s] & same[self._parts[s][1]].all() for s in SPACES)),
                ]
        return bank, word

    def _ask(self, m: Module, first: list[Signal]) -> None:
        """Addresses to the banks."""
        for space, port in (("acc", self.acc), ("scratch", self.scratch), ("out", self.out_read)):
            enables, addresses = [], []
            for b in range(len(port.enable)):
                asks = [
                    f & self._select(access, space, b) for f, access in zip(first, self.access, strict=True)
                ]
                held = port.held[b] if space == "acc" else port.held
                enables.append(Cat(*asks).any() & ~held)
                addresses.append(self._merged(asks, [a.address[self._parts[space][1]] for a in self.access]))
            m.d.comb += [port.enable.eq(Cat(*enables)), port.address.eq(Cat(*addresses))]

    def _merged(self, selects: list[Value], values: list[Value]) -> Value:
        """The value of which the select is 1; 0 where none is."""
        return any_of(where(select, value) for select, value in zip(selects, values, strict=True))

    def _words(self) -> list[tuple[str, int, int | None, Value]]:
        """All words that banks give: space, bank, place in the row of the accumulator, the word."""
        lanes, found = self._config.cols, []
        for space, port in (("acc", self.acc), ("scratch", self.scratch), ("out", self.out_read)):
            for i in range(len(port.data) // WIDTH):
                bank, at = divmod(i, lanes) if space == "acc" else (i, None)
                found.append((space, bank, at, port.data.word_select(i, WIDTH)))
        return found

    def _answer(self, m: Module, served: list[Signal]) -> None:
        """In the cycle after: words from the banks to the ports, bytes as words."""
        lane = slice(2, 2 + log2(self._config.cols))
        words = self._words()
        m.d.sync += self.fresh.eq(Cat(*served))
        for p in range(self._ports):
            access = self.access[p]
            picks = Signal(len(words), name=f"picks{p}")
            byte_at, whole, signed = (
                Signal(2, name=f"byte_at{p}"),
                Signal(name=f"whole{p}"),
                Signal(name=f"signed{p}"),
            )
            wanted = [
                served[p]
                & self._select(access, space, b)
                & (True if at is None else access.address[lane] == at)
                for space, b, at, _ in words
            ]
            m.d.sync += [
                picks.eq(Cat(*wanted)),
                byte_at.eq(access.address[:2]),
                whole.eq(access.whole),
                signed.eq(access.signed),
            ]
            word, byte = Signal(WIDTH, name=f"word_of{p}"), Signal(8, name=f"byte_of{p}")
            m.d.comb += [
                word.eq(any_of(where(pick, value) for pick, (*_, value) in zip(picks, words, strict=True))),
                byte.eq(Mux(whole, word, word.word_select(byte_at, 8))),
                self.arrived[p].eq(
                    Cat(byte, where(whole, word[8:]) | (signed & byte[7]).replicate(WIDTH - 8))
                ),
            ]

    def _write(self, m: Module, stored: list[Signal]) -> None:
        """Stores to the banks of the output buffer, and what they were."""
        write = self.out_write
        strobes, values = [], []
        for p in range(self._ports):
            access = self.access[p]
            strobe, value = Signal(WORD_BYTES, name=f"strobe{p}"), Signal(WIDTH, name=f"value{p}")
            byte = access.data[:8]
            m.d.comb += [
                strobe.eq(Cat(access.whole | (access.address[:2] == i) for i in range(WORD_BYTES))),
                value.eq(Mux(access.whole, access.data, byte.replicate(WORD_BYTES))),
                self.stores[p].valid.eq(stored[p] & ~self.hold),
                self.stores[p].address.eq(access.address),
                self.stores[p].value.eq(Cat(byte, where(access.whole, access.data[8:]))),
            ]
            strobes.append(strobe)
            values.append(value)
        enables, addresses, words = [], [], []
        places = [access.address[self._parts["out"][1]] for access in self.access]
        for b in range(word_banks(self._config.derived.out)):
            hits = [s & self._select(a, "out", b) for s, a in zip(stored, self.access, strict=True)]
            enables.append(where(~self.hold, self._merged(hits, strobes)))
            addresses += [self._merged(hits, places)] * WORD_BYTES
            words.append(self._merged(hits, values))
        m.d.comb += [
            write.enable.eq(Cat(*enables)),
            write.address.eq(Cat(*addresses)),
            write.data.eq(Cat(*words)),
        ]


def word_banks(shape: BufferShape) -> int:
    """Banks of four bytes of a buffer."""
    return shape.banks // WORD_BYTES
