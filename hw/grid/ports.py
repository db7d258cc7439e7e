"""The accesses of a step: which banks serve which ports in a cycle, and when the step can end."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw.bits import log2
from hw.bits import low as low_bits
from hw.cgra import store_layout
from hw.config import BufferShape, MachineConfig
from hw.fabric.bitstream import ACC, OUT, SCRATCH
from hw.grid.access import INT8, INT32, access_layout
from hw.grid.units import WIDTH
from hw.memory.accumulator import BankedRowRead
from hw.memory.buffer import BankedWrite, WordRead

WORD_BYTES = WIDTH // 8


class Ports(Component):
    """Serves the accesses of `ports` memory ports, in ascending order, over as many cycles as they need.

    `settled` says that every access of the step is or was served; `advance` ends the step. Nothing is served
    while `hold` is 1.

    **Timing.** Combinational from `access` to the banks and to `settled`. What a load brings is `arrived` in
    the cycle after the one in which it was served, with `fresh`, and only then.
    """

    def __init__(self, config: MachineConfig, ports: int):
        self._config, self._ports = config, ports
        derived = config.derived
        super().__init__(
            {
                "access": In(access_layout(config)).array(ports),
                "hold": In(1),
                "advance": In(1),
                "settled": Out(1),
                "fresh": Out(max(1, ports)),
                "arrived": Out(WIDTH).array(ports),
                "stores": Out(store_layout(config)).array(ports),
                "acc": Out(BankedRowRead(config)),
                "scratch": Out(WordRead(derived.scratch)),
                "out_read": Out(WordRead(derived.out)),
                "out_write": Out(BankedWrite(derived.out)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        numbers = range(self._ports)
        done = Signal(max(1, self._ports))
        opened, loads, writes = ([Signal(name=f"{n}{p}") for p in numbers] for n in ("open", "load", "write"))
        places = [self._place(m, p) for p in numbers]
        for p in numbers:
            m.d.comb += [
                opened[p].eq(self.access[p].valid & ~done[p]),
                loads[p].eq(opened[p] & ~self.access[p].store),
                writes[p].eq(opened[p] & self.access[p].store),
            ]
        bank, word = self._meetings(m, places)

        # Loads: the first of every bank says which word it serves.
        first = [Signal(name=f"first{p}") for p in numbers]
        served = [Signal(name=f"served{p}") for p in numbers]
        waiting = [Signal(name=f"waiting{p}") for p in numbers]
        for p in numbers:
            before = Cat(loads[q] & bank[q, p] for q in range(p)).any() if p else 0
            shared = Cat(first[q] & word[q, p] for q in range(p)).any() if p else 0
            m.d.comb += [
                first[p].eq(loads[p] & ~before),
                served[p].eq(loads[p] & (first[p] | shared) & ~places[p].held),
                waiting[p].eq(loads[p] & ~served[p]),
            ]
        # Stores: a word that is still to be read must stay.
        able = [Signal(name=f"able{p}") for p in numbers]
        stored = [Signal(name=f"stored{p}") for p in numbers]
        for p in numbers:
            read = Cat(waiting[q] & word[min(p, q), max(p, q)] for q in numbers if q != p).any()
            before = Cat(able[q] & bank[q, p] for q in range(p)).any() if p else 0
            m.d.comb += [able[p].eq(writes[p] & ~read), stored[p].eq(able[p] & ~before)]
        still = Cat(opened[p] & ~served[p] & ~stored[p] for p in numbers)
        m.d.comb += self.settled.eq(~still.any() if self._ports else 1)
        with m.If(self.advance):
            m.d.sync += done.eq(0)
        with m.Elif(~self.hold):
            m.d.sync += done.eq(done | Cat(served[p] | stored[p] for p in numbers))

        self._reads(m, places, first, served)
        self._writes(m, places, stored)
        return m

    def _place(self, m: Module, p: int) -> Signal:
        """Where the access of a port goes: space, bank, word of the bank; whether others hold the bank."""
        c, access = self._config, self.access[p]
        address = access.address
        row = log2(c.derived.acc_word_bytes)
        inner = log2(c.derived.acc_bank_words)
        scratch, out = word_banks(c.derived.scratch), word_banks(c.derived.out)
        bits = {
            ACC: (row + inner, log2(c.acc_banks), row, inner),
            SCRATCH: (2, log2(scratch), 2 + log2(scratch), log2(c.derived.scratch.depth)),
            OUT: (2, log2(out), 2 + log2(out), log2(c.derived.out.depth)),
        }
        layout = data.StructLayout(
            {
                "acc": 1,
                "scratch": 1,
                "out": 1,
                "bank": max(1, *(b[1] for b in bits.values())),
                "word": max(b[3] for b in bits.values()),
                "held": 1,
            }
        )
        place = Signal(layout, name=f"place{p}")
        is_space = {ACC: place.acc, SCRATCH: place.scratch, OUT: place.out}
        m.d.comb += [flag.eq(access.space == space) for space, flag in is_space.items()]

        def by_space(low: int, width: int) -> Value:
            at = {s: low_bits(address[b[low] :], b[width]) for s, b in bits.items()}
            return Mux(place.acc, at[ACC], Mux(place.scratch, at[SCRATCH], at[OUT]))

        acc_held = Signal(name=f"acc_held{p}")
        m.d.comb += [
            place.bank.eq(by_space(0, 1)),
            place.word.eq(by_space(2, 3)),
            acc_held.eq(self.acc.held.bit_select(place.bank, 1)),
            place.held.eq(
                (place.acc & acc_held)
                | (place.scratch & self.scratch.held)
                | (place.out & self.out_read.held)
            ),
        ]
        return place

    @staticmethod
    def _meetings(
        m: Module, places: list[Signal]
    ) -> tuple[dict[tuple[int, int], Value], dict[tuple[int, int], Value]]:
        """For pairs of ports, the lower one first: whether they mean one bank, and one word of it."""
        bank, word = {}, {}
        for q in range(len(places)):
            for p in range(q):
                one, other = places[p], places[q]
                bank[p, q], word[p, q] = Signal(name=f"bank{p}_{q}"), Signal(name=f"word{p}_{q}")
                same = (one.acc == other.acc) & (one.scratch == other.scratch)
                m.d.comb += [
                    bank[p, q].eq(same & (one.bank == other.bank)),
                    word[p, q].eq(bank[p, q] & (one.word == other.word)),
                ]
        return bank, word

    def _reads(self, m: Module, places: list[Signal], first: list[Signal], served: list[Signal]) -> None:
        """Addresses to the banks, and in the next cycle words to the ports."""
        c = self._config
        for space, port, banks in (
            ("acc", self.acc, c.acc_banks),
            ("scratch", self.scratch, word_banks(c.derived.scratch)),
            ("out", self.out_read, word_banks(c.derived.out)),
        ):
            enables, addresses = [], []
            width = len(Value.cast(port.address)) // banks
            for b in range(banks):
                asks = [
                    f & getattr(place, space) & (place.bank == b)
                    for f, place in zip(first, places, strict=True)
                ]
                held = port.held[b] if space == "acc" else port.held
                enables.append(Cat(*asks).any() & ~held)
                addresses.append(_merge(asks, [place.word for place in places], width))
            m.d.comb += [port.enable.eq(Cat(*enables)), port.address.eq(Cat(*addresses))]
        m.d.sync += self.fresh.eq(Cat(*served) & (~self.hold).replicate(len(served)) if served else 0)
        lane_bits = log2(c.cols)
        for p, place in enumerate(places):
            access = self.access[p]
            sent = Signal(
                data.StructLayout(
                    {
                        "acc": 1,
                        "scratch": 1,
                        "bank": len(place.bank),
                        "lane": lane_bits,
                        "byte": 2,
                        "element": 2,
                    }
                ),
                name=f"sent{p}",
            )
            with m.If(served[p]):
                m.d.sync += [
                    sent.acc.eq(place.acc),
                    sent.scratch.eq(place.scratch),
                    sent.bank.eq(place.bank),
                    sent.lane.eq(access.address[2:]),
                    sent.byte.eq(access.address),
                    sent.element.eq(access.element),
                ]
            word, byte = Signal(WIDTH, name=f"word_of{p}"), Signal(8, name=f"byte_of{p}")
            of_acc = self.acc.data.word_select(Cat(sent.lane, sent.bank[: log2(c.acc_banks)]), WIDTH)
            of_scratch = _word(self.scratch.data, sent.bank)
            of_out = _word(self.out_read.data, sent.bank)
            m.d.comb += [
                word.eq(Mux(sent.acc, of_acc, Mux(sent.scratch, of_scratch, of_out))),
                byte.eq(word.word_select(sent.byte, 8)),
                self.arrived[p].eq(
                    Mux(
                        sent.element == INT32,
                        word,
                        Cat(byte, (byte[7] & (sent.element == INT8)).replicate(WIDTH - 8)),
                    )
                ),
            ]

    def _writes(self, m: Module, places: list[Signal], stored: list[Signal]) -> None:
        """Stores to the banks of the output buffer, and what they were."""
        write = self.out_write
        banks = word_banks(self._config.derived.out)
        lanes, values = [], []
        for p in range(self._ports):
            access = self.access[p]
            whole = access.element == INT32
            strobe, value = Signal(WORD_BYTES, name=f"strobe{p}"), Signal(WIDTH, name=f"value{p}")
            byte = access.data[:8]
            m.d.comb += [
                strobe.eq(Mux(whole, 15, 1 << access.address[:2])),
                value.eq(Mux(whole, access.data, byte.replicate(WORD_BYTES))),
                self.stores[p].valid.eq(stored[p] & ~self.hold),
                self.stores[p].address.eq(access.address),
                self.stores[p].value.eq(Mux(whole, access.data, byte)),
            ]
            lanes.append(strobe)
            values.append(value)
        enables, addresses, words = [], [], []
        width = len(Value.cast(write.address)) // (WORD_BYTES * banks)
        for b in range(banks):
            hits = [s & (place.bank == b) for s, place in zip(stored, places, strict=True)]
            enables.append(_merge(hits, lanes, WORD_BYTES) & (~self.hold).replicate(WORD_BYTES))
            addresses += [_merge(hits, [place.word for place in places], width)] * WORD_BYTES
            words.append(_merge(hits, values, WIDTH))
        m.d.comb += [
            write.enable.eq(Cat(*enables)),
            write.address.eq(Cat(*addresses)),
            write.data.eq(Cat(*words)),
        ]


def word_banks(shape: BufferShape) -> int:
    """Banks of four bytes of a buffer."""
    return shape.banks // WORD_BYTES


def _word(value: Value, bank: Value) -> Value:
    """A bank's word."""
    count = len(value) // WIDTH
    return value.word_select(bank[: log2(count)], WIDTH) if count > 1 else value


def _merge(selects: list[Value], values: list[Value], width: int) -> Value:
    """The low bits of the value of which the select is 1; 0 where none is."""
    merged: Value = Const(0, width)
    for select, value in zip(selects, values, strict=True):
        merged = merged | Mux(select, value[:width], 0)
    return merged
