"""Loads a configuration from the scratchpad: requests its words, checks them, and distributes them."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import MachineConfig
from hw.fabric import Fabric, Unit, layout
from hw.fabric.bitstream import HEADER_WORDS, MAGIC, PATCHED, SCALARS, VERSION
from hw.fabric.layout import ARRAYS, PATCHES
from hw.rtl.bits import log2, where
from hw.rtl.cgra.context import context_bits
from hw.rtl.cgra.units import WIDTH
from hw.rtl.memory.buffer import WordRead

#: Word 0 of every bitstream.
MARK = MAGIC << 16 | VERSION << 8
#: Number of words of a bitstream in which all parts but the entries are empty.
LEAST_WORDS = HEADER_WORDS + 1
#: Targets of a patch, by their numbers in `PATCHED`.
CONST, INIT, BASE, LENGTH = range(len(PATCHED))

Patch = data.StructLayout({"at": 12, "pe": 12, "scalar": 4, "what": 4})
TableHead = data.StructLayout({"words": 16, "pe": 16})


class Section(enum.Enum):
    """The part of a bitstream to which the next word belongs."""

    HEADER = 0
    ARRAYS = 1
    PATCHES = 2
    TABLES = 3
    ENTRIES = 4
    CHECK = 5
    OVER = 6


def pe_bits(fabric: Fabric) -> int:
    """Width of a PE number."""
    return max(1, (fabric.size - 1).bit_length())


def settings_layout(fabric: Fabric) -> data.StructLayout:
    """The fields of a configuration's header that are needed to run it."""
    most = fabric.contexts * fabric.stages
    return data.StructLayout(
        {
            "ii": fabric.contexts.bit_length(),
            "arrays": ARRAYS.bit_length(),
            "patches": PATCHES.bit_length(),
            "depth": most.bit_length(),
        }
    )


def placed_layout(fabric: Fabric) -> data.StructLayout:
    """Where a word goes: to an `entry`, an `array`, a `patch`, a `table` or a table's `head`."""
    words = max(layout(fabric, pe).words for pe in range(fabric.size))
    return data.StructLayout(
        {
            "entry": 1,
            "array": 1,
            "patch": 1,
            "table": 1,
            "head": 1,
            "pe": pe_bits(fabric),
            "context": context_bits(fabric),
            "word": (words - 1).bit_length(),
            "item": max((2 * ARRAYS - 1).bit_length(), (PATCHES - 1).bit_length()),
            "address": 14,
            "data": WIDTH,
        }
    )


class _Position:
    """The position of a word in a bitstream, and whether the words so far are valid.

    `found`: this word is invalid; `late`: the previous one was; `wrong`: an earlier one was. After an invalid
    word the counts are don't-care, so they are only as wide as valid values need.
    """

    def __init__(self, placed: data.View[data.StructLayout], fabric: Fabric):
        words = [fabric.kinds[pe].table_words for pe in fabric.having(Unit.TABLE)]
        most = max(words, default=1).bit_length()
        self.section = Signal(Section)
        self.wrong, self.late, self.found = Signal(), Signal(), Signal()
        #: Index of the array word, header word or patch.
        self.item = Signal(len(placed.item))
        #: Words left in the table section.
        self.tables = Signal((sum(words) + len(words)).bit_length())
        #: Words left in the current table, and the address of the next one.
        self.table_left, self.table_at = Signal(most), Signal(most)
        #: PE of the current table, and the lowest PE that the next table may have.
        self.table_pe, self.next_pe = Signal(len(placed.pe)), Signal(len(placed.pe) + 1)
        #: PE, context and word of an entry.
        self.pe, self.context = Signal(len(placed.pe)), Signal(len(placed.context))
        self.number = Signal(len(placed.word))

    def restart(self, m: Module) -> None:
        """Returns to the first word."""
        m.d.sync += [self.section.eq(Section.HEADER), self.wrong.eq(0)]
        for count in (self.item, self.table_left, self.pe, self.context, self.number, self.next_pe):
            m.d.sync += count.eq(0)


def _after_patches(some_tables: Value) -> Value:
    """The section after the patches."""
    return Mux(some_tables, Section.TABLES, Section.ENTRIES)


def _exceeds(word: Value, limit: Value) -> Value:
    """Whether a word exceeds a narrower limit; compares only as many bits as the limit has."""
    return word[len(limit) :].any() | (word[: len(limit)] > limit)


def _divided(word: int) -> int:
    """CRC-32 remainder of a word followed by 32 zeros, lowest bit first."""
    for _ in range(WIDTH):
        word = word >> 1 ^ (0xEDB88320 if word & 1 else 0)
    return word


class Loader(Component):
    """Reads a configuration from word `4*start` of the scratchpad on, checks and distributes its words.

    `placed` says of every word where it goes; `settings` are fields of the header. `error` reports an invalid
    header. `verdict` comes at the end, and `bad` then says whether the rest is invalid.

    **Timing.** A word requested in cycle q is `placed`, or checked if it is in the header, in q + 2;
    `verdict` comes with the last word. One word per cycle in which the scratchpad is free. In a pipelined
    fabric `error` and `verdict` come one cycle later.
    """

    def __init__(self, config: MachineConfig, fabric: Fabric):
        self._config, self._fabric = config, fabric
        super().__init__(
            {
                "begin": In(1),
                "start": In(isa.SIZE_BITS),
                "stop": In(1),
                "scratch": Out(WordRead(config.derived.scratch)),
                "settings": Out(settings_layout(fabric)),
                "placed": Out(placed_layout(fabric)),
                "error": Out(1),
                "verdict": Out(1),
                "bad": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words = self._config.scratch_bytes // 4
        bits = words.bit_length()
        total, asked = Signal(bits), Signal(bits)
        place = Signal(log2(words))
        active, beyond, room = Signal(), Signal(), Signal(bits)
        accepted, last = Signal(), Signal()
        m.d.comb += [
            accepted.eq(active & ~self.scratch.held & ~self.stop),
            last.eq(asked + 1 == total),
        ]
        with m.If(accepted):
            m.d.sync += [asked.eq(asked + 1), place.eq(place + 1)]
            with m.If(last):
                m.d.sync += active.eq(0)
        with m.If(self.begin):
            at = Signal(isa.SIZE_BITS + 2)
            m.d.comb += at.eq(self.start << 2)
            m.d.sync += [
                active.eq(1),
                asked.eq(0),
                place.eq(at),
                beyond.eq(at >= words),
                room.eq(words - at),
            ]
        with m.Elif(self.error):
            m.d.sync += active.eq(0)
        at = _Position(self.placed, self._fabric)
        word, valid, end = self._arrivals(m, place, active, accepted, last)
        begun = Signal()
        m.d.sync += begun.eq(self.begin)
        self._place(m, at, begun, word, valid, end)
        self._header(m, at, word, valid, beyond, room, total)
        with m.If(self.begin):
            m.d.sync += total.eq(0)
        with m.If(begun):
            at.restart(m)
        return m

    def _header(
        self, m: Module, at: _Position, word: Value, valid: Value, beyond: Value, room: Value, total: Signal
    ) -> None:
        """Checks the header: also that it is not `beyond` the scratchpad and has at most `room` words."""
        settings = self.settings
        heads = valid & (at.section == Section.HEADER)
        ii, arrays, patches = word[20:], word[12:20], word[:12]
        checks: list[Value] = [
            (word != MARK) | beyond,
            word != self._fabric.hash,
            (word < LEAST_WORDS) | _exceeds(word, room),
            (ii == 0) | (ii > self._fabric.contexts) | (arrays > ARRAYS) | (patches > PATCHES),
            (word == 0) | _exceeds(word, settings.ii << log2(self._fabric.stages)),
        ]
        wrong = Signal(len(checks))
        late = self._fabric.pipelined
        looked = heads & ~self.error if late else heads
        self._found(m, wrong, Cat(looked & (at.item == i) & check for i, check in enumerate(checks)))
        m.d.comb += self.error.eq(wrong.any())
        with m.If(heads), m.Switch(at.item):
            with m.Case(2):
                m.d.sync += total.eq(word)
            with m.Case(3):
                m.d.sync += [
                    settings.ii.eq(word[20:]),
                    settings.arrays.eq(word[12:20]),
                    settings.patches.eq(word[:12]),
                ]
            with m.Case(4):
                m.d.sync += settings.depth.eq(word)

    def _found(self, m: Module, target: Signal, value: Value) -> None:
        """Assigns the result of checking a word, one cycle later in a pipelined fabric."""
        m.d["sync" if self._fabric.pipelined else "comb"] += target.eq(value)

    def _arrivals(
        self, m: Module, place: Signal, active: Value, accepted: Value, last: Value
    ) -> tuple[Signal, Signal, Signal]:
        """Requests words from the banks; returns the word that arrived, its valid bit, whether it is last.

        After an error, words on their way are dropped. Addresses do not depend on the late `held`, because no
        PE reads while a configuration is loaded.
        """
        scratch = self.scratch
        banks = len(scratch.enable)
        low = log2(banks)
        fresh, final, bank = Signal(), Signal(), Signal(max(1, low))
        word, valid, end = Signal(WIDTH), Signal(), Signal()
        m.d.sync += [
            fresh.eq(accepted & ~self.error),
            final.eq(last),
            bank.eq(place[:low]),
            valid.eq(fresh & ~self.error),
            end.eq(final),
        ]
        at = [accepted & (place[:low] == b) if low else accepted for b in range(banks)]
        m.d.comb += [
            scratch.enable.eq(Cat(*at)),
            scratch.address.eq(where(active, place[low:]).replicate(banks)),
        ]
        with m.If(fresh):
            m.d.sync += word.eq(scratch.data.word_select(bank, WIDTH) if low else scratch.data)
        return word, valid, end

    def _place(
        self, m: Module, at: _Position, begun: Signal, word: Signal, valid: Signal, end: Signal
    ) -> None:
        """Finds the part to which each word belongs, one cycle after it arrived, and checks all parts."""
        # The word is added to the CRC before the division: each bit of the sum contributes once.
        check, mixed = Signal(WIDTH), Signal(WIDTH)
        with m.If(begun):
            m.d.sync += check.eq((1 << WIDTH) - 1)
        with m.Elif(valid & ~end):
            parts = [_divided(1 << i) for i in range(WIDTH)]
            m.d.sync += check.eq(
                Cat(
                    Cat(b for b, part in zip(mixed, parts, strict=True) if part >> i & 1).xor()
                    for i in range(WIDTH)
                )
            )
        m.d.comb += [
            mixed.eq(word ^ check),
        ]
        bad = at.wrong | at.late | (at.section != Section.CHECK) | (mixed != (1 << WIDTH) - 1)
        self._found(m, self.verdict, valid & end)
        self._found(m, self.bad, bad)
        self._tell(m, at, word, valid, end)
        with m.If(valid), m.Switch(at.section):
            with m.Case(Section.HEADER):
                self._in_header(m, at, word)
            with m.Case(Section.ARRAYS):
                self._in_arrays(m, at)
            with m.Case(Section.PATCHES):
                self._in_patches(m, at, word)
            with m.Case(Section.TABLES):
                self._in_tables(m, at, word)
            with m.Case(Section.ENTRIES):
                self._in_entries(m, at)
            with m.Default():
                m.d.sync += at.section.eq(Section.OVER)
        m.d.sync += at.late.eq(at.found)
        with m.If(at.late):
            m.d.sync += at.wrong.eq(1)

    def _tell(self, m: Module, at: _Position, word: Signal, valid: Signal, end: Signal) -> None:
        """Drives `placed`: the word and where it goes."""
        placed = self.placed
        in_table = at.section == Section.TABLES
        m.d.comb += [
            placed.data.eq(word),
            placed.item.eq(at.item),
            placed.context.eq(at.context),
            placed.word.eq(at.number),
            placed.address.eq(at.table_at),
            placed.entry.eq(valid & (at.section == Section.ENTRIES) & ~end),
            placed.array.eq(valid & (at.section == Section.ARRAYS)),
            placed.patch.eq(valid & (at.section == Section.PATCHES)),
            placed.head.eq(valid & in_table & (at.table_left == 0)),
            placed.table.eq(valid & in_table & (at.table_left != 0) & ~at.wrong),
            placed.pe.eq(at.pe),
        ]
        with m.If(in_table):
            m.d.comb += placed.pe.eq(Mux(at.table_left == 0, TableHead(word).pe, at.table_pe))

    def _in_header(self, m: Module, at: _Position, word: Signal) -> None:
        """Counts to the last word of the header, which holds the length of the tables."""
        m.d.sync += at.item.eq(at.item + 1)
        with m.If(at.item == HEADER_WORDS - 1):
            parts = Mux(
                self.settings.arrays != 0, Section.ARRAYS, self._after_arrays(word[: len(at.tables)] != 0)
            )
            m.d.sync += [at.item.eq(0), at.tables.eq(word), at.section.eq(parts)]
            m.d.comb += at.found.eq(word[len(at.tables) :].any())

    def _in_arrays(self, m: Module, at: _Position) -> None:
        """Two words per array."""
        m.d.sync += at.item.eq(at.item + 1)
        with m.If(at.item == (self.settings.arrays << 1) - 1):
            m.d.sync += [at.item.eq(0), at.section.eq(self._after_arrays(at.tables != 0))]

    def _in_patches(self, m: Module, at: _Position, word: Signal) -> None:
        """One word per patch."""
        m.d.sync += at.item.eq(at.item + 1)
        m.d.comb += at.found.eq(~self._patch_possible(Patch(word)))
        with m.If(at.item == self.settings.patches - 1):
            m.d.sync += at.section.eq(_after_patches(at.tables != 0))

    def _in_tables(self, m: Module, at: _Position, word: Signal) -> None:
        """A head, then the words that it counts, until the section ends."""
        head = TableHead(word)
        m.d.sync += at.tables.eq(at.tables - 1)
        with m.If(at.table_left == 0):
            m.d.sync += [
                at.table_left.eq(head.words),
                at.table_at.eq(0),
                at.table_pe.eq(head.pe),
                at.next_pe.eq(head.pe + 1),
            ]
            m.d.comb += at.found.eq(
                (head.words == 0)
                | (head.words >= at.tables)
                | (head.words > self._table_words(m, head.pe))
                | (head.pe[: len(at.next_pe)] < at.next_pe)
            )
        with m.Else():
            m.d.sync += [at.table_left.eq(at.table_left - 1), at.table_at.eq(at.table_at + 1)]
        with m.If(at.tables == 1):
            m.d.sync += at.section.eq(Section.ENTRIES)

    def _in_entries(self, m: Module, at: _Position) -> None:
        """Words of an entry, entries of a PE by context, PEs."""
        m.d.sync += at.number.eq(at.number + 1)
        with m.If(at.number == self._last_word(m, at.pe)):
            m.d.sync += [at.number.eq(0), at.context.eq(at.context + 1)]
            with m.If(at.context == self.settings.ii - 1):
                m.d.sync += [at.context.eq(0), at.pe.eq(at.pe + 1)]
                with m.If(at.pe == self._fabric.size - 1):
                    m.d.sync += at.section.eq(Section.CHECK)

    def _after_arrays(self, some_tables: Value) -> Value:
        """The section after the arrays."""
        return Mux(self.settings.patches != 0, Section.PATCHES, _after_patches(some_tables))

    def _patch_possible(self, patch: Value) -> Value:
        """Whether everything that a patch names exists."""
        settings = self.settings
        entry = (patch.pe < self._fabric.size) & (patch.at < settings.ii)
        there = Mux(patch.what[1], patch.at < settings.arrays, entry)
        return (patch.what[2:] == 0) & (patch.scalar < SCALARS) & there

    def _table_words(self, m: Module, pe: Value) -> Signal:
        """Size of a PE's table memory in words; 0 if it has none."""
        words = Signal(15)
        with m.Switch(pe):
            for number in self._fabric.having(Unit.TABLE):
                with m.Case(number):
                    m.d.comb += words.eq(self._fabric.kinds[number].table_words)
        return words

    def _last_word(self, m: Module, pe: Value) -> Signal:
        """The number of the last word in an entry of a PE."""
        last = Signal(len(self.placed.word))
        sizes: dict[int, list[int]] = {}
        for number in range(self._fabric.size):
            sizes.setdefault(layout(self._fabric, number).words - 1, []).append(number)
        with m.Switch(pe):
            for size, numbers in sizes.items():
                with m.Case(*numbers):
                    m.d.comb += last.eq(size)
        return last
