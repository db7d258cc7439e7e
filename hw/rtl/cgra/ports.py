"""Memory ports of the CGRA: which banks serve which accesses of a step, and which accesses remain open."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from hw.config import BufferShape, MachineConfig
from hw.rtl.bits import log2, where
from hw.rtl.cgra.access import access_layout, arrived_layout
from hw.rtl.cgra.units import WIDTH, any_of
from hw.rtl.cgra_port import store_layout
from hw.rtl.memory.accumulator import BankedRowRead
from hw.rtl.memory.buffer import BankedWrite, WordRead

WORD_BYTES = WIDTH // 8
SPACES = ("acc", "scratch", "out")
#: For each space, by port and bank: whether the port addresses the bank.
Asks = dict[str, list[list[Signal]]]
#: A property of pairs of ports, the lower number first.
Pairs = dict[tuple[int, int], Signal]


class Ports(Component):
    """Arbitrates the accesses of the memory ports, which have `lanes` lanes each, in ascending order.

    `open` marks accesses that are not served in this cycle. `waiting` means that there was one in the
    previous cycle; all accesses that are valid now were then shown before. Nothing is stored while `hold` is
    1. `new` are the accesses regardless of those that wait; in a `pipelined` fabric these come from
    registers. `stores` are those of all lanes of a port, then of the next port.

    **Timing.** Combinational from `access` to the banks and to `open`. The data of a load is `arrived` in the
    cycle after the one in which it was served, with `fresh`. It is 0 if there was no load, and undefined if a
    load was not served.
    """

    def __init__(self, config: MachineConfig, lanes: Sequence[int], pipelined: bool = False):
        self._config, self._lanes, self._pipelined = config, lanes, pipelined
        self._ports = ports = len(lanes)
        #: Lanes of the widest port; all accesses and their data have this width.
        self._most = config.cgra.lanes if config.cgra is not None else 1
        derived = config.derived
        super().__init__(
            {
                "access": In(access_layout(config)).array(ports),
                "new": In(access_layout(config)).array(ports),
                "hold": In(1),
                "open": Out(max(1, ports)),
                "waiting": Out(1),
                "fresh": Out(max(1, ports)),
                "arrived": Out(arrived_layout(self._most)).array(ports),
                "stores": Out(store_layout(config)).array(sum(lanes)),
                "acc": Out(BankedRowRead(config)),
                "scratch": Out(WordRead(derived.scratch)),
                "out_read": Out(WordRead(derived.out)),
                "out_write": Out(BankedWrite(derived.out)),
            }
        )
        row, inner = log2(derived.acc_word_bytes), log2(derived.acc_bank_words)
        scratch, out = log2(word_banks(derived.scratch)), log2(word_banks(derived.out))
        #: For each space, the address bits that select the bank, and the word (the row) in it.
        self._parts = {
            "acc": (slice(row + inner, row + inner + log2(config.acc_banks)), slice(row, row + inner)),
            "scratch": (slice(2, 2 + scratch), slice(2 + scratch, log2(config.scratch_bytes))),
            "out": (slice(2, 2 + out), slice(2 + out, log2(config.out_bytes))),
        }

    def elaborate(self, platform: object) -> Module:
        m = Module()
        numbers = range(self._ports)
        loads, writes = ([Signal(name=f"{n}{p}") for p in numbers] for n in ("load", "write"))
        for p in numbers:
            access = self.access[p]
            m.d.comb += [
                loads[p].eq(access.valid & ~access.store),
                writes[p].eq(access.valid & access.store),
            ]
        word, bank, clash, out_bank, collide = self._meetings(m)
        # Loads: the first one of each bank decides which word the bank serves.
        reads, first = self._first(m, "read", loads, SPACES, bank)
        served = [Signal(name=f"served{p}") for p in numbers]
        for p in numbers:
            before = first if self._most == 1 else [self._has(reads, q, p) for q in range(p)]
            clashes = Cat(before[q] & clash[q, p] for q in range(p)).any() if p else 0
            m.d.comb += served[p].eq(loads[p] & ~clashes & ~self._held(self.access[p]))
        # Stores: a store waits for every load of its word, even one served in this cycle, because checking
        # that would take longer than a cycle. The result is late, so addresses do not depend on it.
        places, foremost = self._first(m, "store", writes, SPACES[2:], out_bank)
        ready, stored = ([Signal(name=f"{n}{p}") for p in numbers] for n in ("ready", "stored"))
        for p in numbers:
            read = Cat(loads[q] & word[min(p, q), max(p, q)] for q in numbers if q != p).any()
            m.d.comb += [ready[p].eq(~read), stored[p].eq(foremost[p] & ready[p])]
        m.d.comb += self.open.eq(Cat((loads[p] & ~served[p]) | (writes[p] & ~stored[p]) for p in numbers))
        # `waiting` is on the critical path. It looks at pairs of accesses and not at their order: of two that
        # cannot be served together, one stays open.
        valid = [access.valid for access in self.access]
        together = [valid[q] & valid[p] & both for (q, p), both in collide.items()]
        held = [loads[p] & self._held(self.access[p]) for p in numbers]
        m.d.sync += self.waiting.eq(Cat(*together, *held).any())
        self._ask(m, reads)
        self._answer(m, loads, served)
        # A port may be the first at some of its banks and not at others.
        self._write(m, places["out"], ready if self._most == 1 else stored, stored)
        return m

    def _has(self, reads: Asks, q: int, p: int) -> Value:
        """Whether port q has claimed a bank that port p addresses."""
        return Cat(
            has & self._select(self.access[p], space, b)
            for space, ports in reads.items()
            for b, has in enumerate(ports[q])
        ).any()

    def _first(
        self,
        m: Module,
        name: str,
        wants: list[Signal],
        spaces: Sequence[str],
        meet: Pairs,
    ) -> tuple[Asks, list[Signal]]:
        """For each bank, the first port that requests it: one bit per port and bank, and one per port.

        `meet` says of pairs of ports whether they address a common bank of these spaces. An access to no
        valid space claims no bank and never waits.
        """
        found: Asks = {}
        for space in spaces:
            numbers = self._parts[space][0]
            banks = range(1 << numbers.stop - numbers.start)
            found[space] = [
                [Signal(name=f"{name}_{space}{b}_{p}") for b in banks] for p in range(self._ports)
            ]
            for b in banks:
                there = [self._select(access, space, b) for access in self.access]
                asks = [want & here for want, here in zip(wants, there, strict=True)]
                for p, ask in enumerate(asks):
                    before = Cat(asks[:p]).any() if p else 0
                    m.d.comb += found[space][p][b].eq(ask & ~before)
        first = [Signal(name=f"first_{name}{p}") for p in range(self._ports)]
        for p, want in enumerate(wants):
            before = [wants[q] & meet[q, p] for q in range(p)]
            m.d.comb += first[p].eq(want & ~Cat(*before).any())
        return found, first

    def _select(self, access: Value, space: str, bank: int) -> Value:
        """Whether an access addresses a bank of a space."""
        bits = access.address[self._parts[space][0]]
        there = getattr(access, space)
        if not len(bits):
            return there
        return there & self._means(access, bits, bank, grouped=space != "acc")

    def _means(self, access: Value, bits: Value, number: int, *, grouped: bool = True) -> Value:
        """Whether these address bits equal a number or, if `grouped`, a wide access covers that number."""
        if self._most == 1 or not grouped:
            return bits == number
        pairs = zip(bits, self._free(access, len(bits)), strict=True)
        return Cat((bit == (number >> i & 1)) | free for i, (bit, free) in enumerate(pairs)).all()

    def _free(self, access: Value, bits: int) -> list[Value]:
        """For each bit of a word number, whether a wide access ignores it, since it covers several words."""
        words, of_bytes = log2(self._most), log2(max(1, self._most // WORD_BYTES))
        whole = [access.wide & (True if i < of_bytes else access.whole) for i in range(words)]
        return [*whole, *[Const(0, 1)] * bits][:bits]

    def _held(self, access: Value) -> Value:
        """Whether another engine holds what an access reads."""
        acc = [self._select(access, "acc", b) & self.acc.held[b] for b in range(self._config.acc_banks)]
        return any_of([*acc, access.scratch & self.scratch.held, access.out & self.out_read.held])

    def _meetings(self, m: Module) -> list[Pairs]:
        """For pairs of ports, whether the accesses address the same word, the same bank, and so on.

        In this order: one word (of the accumulator: one row); one bank of any space; two words of one bank;
        one bank of the output buffer; and whether they collide: two loads of different words of one bank, two
        stores to one bank, or a load and a store of one word.

        In a pipelined fabric new accesses are compared before it is known whether one waits; the results for
        those that wait were registered when they were new.
        """
        names = ("word", "bank", "clash", "out_bank", "collide")
        found: list[Pairs] = [{} for _ in names]
        accesses = self.new if self._pipelined else self.access
        for p in range(self._ports):
            for q in range(p):
                new = self._compare(accesses[q], accesses[p])
                for name, pairs, value in zip(names, found, new, strict=True):
                    pairs[q, p] = meet = Signal(name=f"{name}{q}_{p}")
                    if not self._pipelined:
                        m.d.comb += meet.eq(value)
                        continue
                    kept = Signal(name=f"kept_{name}{q}_{p}", reset_less=True)
                    m.d.comb += meet.eq(Mux(self.waiting, kept, value))
                    m.d.sync += kept.eq(meet)
        return found

    def _compare(self, one: Value, other: Value) -> tuple[Value, ...]:
        """The five results of `_meetings` for two accesses.

        In a smaller space the highest address bits are 0.
        """
        same = ~(one.address ^ other.address)
        spaces = {space: getattr(one, space) & getattr(other, space) for space in SPACES}
        if self._most == 1:
            banks = {space: both & same[self._parts[space][0]].all() for space, both in spaces.items()}
            row = self._parts["acc"][1].start
            word = any_of(spaces.values()) & same[row:].all() & (one.acc | same[2:row].all())
        else:
            banks = {space: both & self._meet(space, same, one, other) for space, both in spaces.items()}
            word = any_of(both & same[self._parts[space][1]].all() for space, both in banks.items())
        bank = any_of(banks.values())
        clash, out_bank = bank & ~word, banks["out"]
        both_load, both_store = ~one.store & ~other.store, one.store & other.store
        mixed = one.store ^ other.store
        return word, bank, clash, out_bank, (both_load & clash) | (both_store & out_bank) | (mixed & word)

    def _meet(self, space: str, same: Value, one: Value, other: Value) -> Value:
        """Whether accesses of a space share a bank; `same` marks the address bits in which they are equal."""
        bits = same[self._parts[space][0]]
        if space == "acc":
            return bits.all()
        free = zip(self._free(one, len(bits)), self._free(other, len(bits)), strict=True)
        return Cat(bit | a | b for bit, (a, b) in zip(bits, free, strict=True)).all()

    def _ask(self, m: Module, reads: Asks) -> None:
        """Addresses and enables of the banks."""
        for space, port in (("acc", self.acc), ("scratch", self.scratch), ("out", self.out_read)):
            enables, addresses = [], []
            for b in range(len(port.enable)):
                asks = [mine[b] for mine in reads[space]]
                held = port.held[b] if space == "acc" else port.held
                enables.append(Cat(*asks).any() & ~held)
                addresses.append(self._merged(asks, [a.address[self._parts[space][1]] for a in self.access]))
            m.d.comb += [port.enable.eq(Cat(*enables)), port.address.eq(Cat(*addresses))]

    def _merged(self, selects: list[Value], values: list[Value]) -> Value:
        """The value whose select is 1, or 0."""
        return any_of(where(select, value) for select, value in zip(selects, values, strict=True))

    def _words(self) -> list[tuple[str, int, int | None, Value]]:
        """All words that the banks return: space, bank, position in the row of the accumulator, the word."""
        lanes, found = self._config.cols, []
        for space, port in (("acc", self.acc), ("scratch", self.scratch), ("out", self.out_read)):
            for i in range(len(port.data) // WIDTH):
                bank, at = divmod(i, lanes) if space == "acc" else (i, None)
                found.append((space, bank, at, port.data.word_select(i, WIDTH)))
        return found

    def _answer(self, m: Module, loads: list[Signal], served: list[Signal]) -> None:
        """Returns the words of the banks to the ports in the next cycle.

        The word and the byte in it are selected before it is known whether the load is served.
        """
        lane = slice(2, 2 + log2(self._config.cols))
        words = self._words()
        m.d.sync += self.fresh.eq(Cat(*served))
        for p in range(self._ports):
            access = self.access[p]
            picks = Signal(len(words), name=f"picks{p}")
            lowest, signs = Signal(WORD_BYTES, name=f"lowest{p}"), Signal(WORD_BYTES, name=f"signs{p}")
            whole = Signal(name=f"whole{p}")
            wanted = [
                loads[p]
                & self._select(access, space, b)
                & (True if at is None else self._means(access, access.address[lane], at))
                for space, b, at, _ in words
            ]
            m.d.sync += [
                picks.eq(Cat(*wanted)),
                lowest.eq(where(loads[p], Mux(access.whole, 1, 1 << access.address[:2]))),
                signs.eq(where(loads[p] & access.signed, 1 << access.address[:2])),
                whole.eq(loads[p] & access.whole),
            ]
            arrived = self.arrived[p]
            # Words by lane, of the accumulator and of the other spaces.
            acc: list[list[Value]] = [[] for _ in range(self._most)]
            other: list[list[Value]] = [[] for _ in range(self._most)]
            for pick, (_, b, at, value) in zip(picks, words, strict=True):
                (other if at is None else acc)[(b if at is None else at) % self._most].append(
                    where(pick, value)
                )
            m.d.comb += [
                arrived.acc.eq(Cat(any_of(values) for values in acc)),
                arrived.other.eq(Cat(any_of(values) for values in other)),
                arrived.lowest.eq(lowest),
                arrived.signs.eq(signs),
                arrived.whole.eq(whole),
            ]
            if self._most > 1:
                self._answer_lanes(m, p, loads[p])

    def _answer_lanes(self, m: Module, p: int, loads: Value) -> None:
        """Registers, for the next cycle, which lanes get a value and from which bytes."""
        access, arrived = self.access[p], self.arrived[p]
        low, bytes_ = log2(self._most), access.wide & ~access.whole
        part = where(loads & bytes_, 1 << access.address[low : low + 2])
        for name, value in (
            ("wide", loads & access.wide),
            ("signed", loads & access.signed),
            ("part", part),
            ("mask", where(loads, access.mask)),
        ):
            register = Signal(len(arrived[name]), name=f"{name}{p}")
            m.d.sync += register.eq(value)
            m.d.comb += arrived[name].eq(register)

    def _write(
        self, m: Module, hits: list[list[Signal]], allowed: list[Signal], stored: list[Signal]
    ) -> None:
        """Sends stores to the banks of the output buffer, and reports them.

        A port writes a bank if it `hits` and is `allowed` to.
        """
        write = self.out_write
        strobes, values = [], []
        shown = iter(self.stores)
        for p in range(self._ports):
            access = self.access[p]
            strobe, value = Signal(WORD_BYTES, name=f"strobe{p}"), Signal(WIDTH, name=f"value{p}")
            word = access.data[:WIDTH]
            byte = word[:8]
            m.d.comb += [
                strobe.eq(
                    Cat(allowed[p] & (access.whole | (access.address[:2] == i)) for i in range(WORD_BYTES))
                ),
                value.eq(Mux(access.whole, word, byte.replicate(WORD_BYTES))),
            ]
            for lane in range(self._lanes[p]):
                store, own = next(shown), access.data.word_select(lane, WIDTH)
                valid, address = stored[p] & ~self.hold, access.address
                if self._most > 1:
                    valid = valid & access.mask[lane]
                    address = address | where(access.wide, Mux(access.whole, WORD_BYTES * lane, lane))
                m.d.comb += [
                    store.valid.eq(valid),
                    store.address.eq(address),
                    store.value.eq(Cat(own[:8], where(access.whole, own[8:]))),
                ]
            strobes.append(
                self._lanes_of(m, f"strobes{p}", access, strobe, self._strobes(access, allowed[p]))
            )
            values.append(self._lanes_of(m, f"values{p}", access, value, self._bytes(access)))
        enables, addresses, words = [], [], []
        places = [access.address[self._parts["out"][1]] for access in self.access]
        for b in range(word_banks(self._config.derived.out)):
            mine, at = [hit[b] for hit in hits], b % self._most
            enables.append(where(~self.hold, self._merged(mine, [strobe[at] for strobe in strobes])))
            addresses += [self._merged(mine, places)] * WORD_BYTES
            words.append(self._merged(mine, [value[at] for value in values]))
        m.d.comb += [
            write.enable.eq(Cat(*enables)),
            write.address.eq(Cat(*addresses)),
            write.data.eq(Cat(*words)),
        ]

    def _lanes_of(
        self, m: Module, name: str, access: Value, single: Signal, wide: list[Value]
    ) -> list[Signal]:
        """The words of a block: for an access that is not wide, all are the same."""
        if self._most == 1:
            return [single]
        found = [Signal(len(single), name=f"{name}_{i}") for i in range(self._most)]
        m.d.comb += [word.eq(Mux(access.wide, own, single)) for word, own in zip(found, wide, strict=True)]
        return found

    def _strobes(self, access: Value, allowed: Value) -> list[Value]:
        """The bytes of each word of a block that a wide access writes."""
        if self._most == 1:
            return []
        low = log2(self._most)
        part = access.address[low : low + 2]
        of_bytes = [
            access.mask[byte % self._most] & (part == byte // self._most)
            for byte in range(WORD_BYTES * self._most)
        ]
        return [
            where(
                allowed, Mux(access.whole, access.mask[i].replicate(WORD_BYTES), Cat(*of_bytes[4 * i :][:4]))
            )
            for i in range(self._most)
        ]

    def _bytes(self, access: Value) -> list[Value]:
        """The words of a block that a wide access writes."""
        if self._most == 1:
            return []
        lowest = [access.data.word_select(lane, WIDTH)[:8] for lane in range(self._most)]
        of_bytes = [lowest[byte % self._most] for byte in range(WORD_BYTES * self._most)]
        return [
            Mux(access.whole, access.data.word_select(i, WIDTH), Cat(*of_bytes[4 * i :][:4]))
            for i in range(self._most)
        ]


def word_banks(shape: BufferShape) -> int:
    """Number of four-byte banks of a buffer."""
    return shape.banks // WORD_BYTES
