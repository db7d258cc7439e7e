"""The contract of the CGRA in plain Python, by single steps, cycles and accesses (docs/cgra.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hw.config import MachineConfig
from hw.errors import InputError
from hw.fabric import BY_NUMBER, Fabric, layout
from hw.fabric.bitstream import MAGIC, VERSION, Configuration, parse
from hw.isa import KEEP_BITSTREAM, Cause
from sw.dfg import operations

MASK = 0xFFFFFFFF
ACC, SCRATCH, OUT = range(3)


class Held(NamedTuple):
    """What others read in a cycle: scratchpad, output buffer, banks of the accumulator (a mask)."""

    scratch: bool = False
    out: bool = False
    acc: int = 0


@dataclass
class Launch:
    """What a launch does and when: the end is its completion, or the error."""

    taken: int
    end: int = 0
    cause: Cause | None = None
    stores: list[tuple[int, int, int, int]] = field(default_factory=list)  # cycle, PE, address, value
    steps: list[int] = field(default_factory=list)  # the cycles in which steps end
    stalls: int = 0


class LaunchError(Exception):
    """An error of a launch."""

    def __init__(self, cycle: int, cause: Cause):
        super().__init__(cycle, cause)
        self.cycle, self.cause = cycle, cause


#: A value: a word for each lane.
Word = list[int]


@dataclass
class Access:
    """An access of a step that is not served yet: of one element, or of one for each lane of `mask`.

    The value that a store has, by lane; `wide` are the lanes of an access of all of them, else 1.
    """

    pe: int
    store: bool
    space: int
    address: int
    element: int
    value: Word
    wide: int
    mask: list[bool]

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return 1 if self.element else 4

    def banks(self, config: MachineConfig) -> list[tuple[int, int, int]]:
        """Space, bank, word of it, for every byte of the access."""
        found = []
        for address in range(self.address, self.address + self.width * self.wide):
            if self.space == ACC:
                row = address // config.derived.acc_word_bytes
                bank, row = divmod(row, config.derived.acc_bank_words)
                found.append((ACC, bank, row))
            else:
                shape = config.derived.scratch if self.space == SCRATCH else config.derived.out
                found.append((self.space, address // 4 % (shape.banks // 4), address // 4))
        return sorted(set(found))


class Reference:
    """A grid with its registers and the memories that it sees; `held` tells what others read in a cycle."""

    def __init__(self, config: MachineConfig, memories: Sequence[bytearray], held: Callable[[int], Held]):
        assert config.cgra is not None
        self.config, self.memories, self.held = config, memories, held
        self.fabric: Fabric = config.cgra
        self.result, self.pending, self.fourth, self.third, self.made = (self.nothing() for _ in range(5))
        self.shown: tuple[list[Access], bool] = [], False
        self.files = [[[0] * kind.lanes for _ in range(kind.registers)] for kind in self.fabric.kinds]
        self.links = [[0] * self.fabric.link_lanes(i) for i in range(len(self.fabric.links))]
        self.configuration: Configuration | None = None
        self.history: dict[int, list[Word]] = {0: list(self.links)}  # links from a cycle on

    def nothing(self) -> list[Word]:
        """Zero in every lane of every PE."""
        return [[0] * kind.lanes for kind in self.fabric.kinds]

    def launch(self, taken: int, op: dict[str, int]) -> Launch:
        """Run an operation that is taken in a cycle."""
        found = Launch(taken)
        try:
            self._run(found, op)
        except LaunchError as stop:
            found.end, found.cause = stop.cycle, stop.cause
        return found

    def _run(self, found: Launch, op: dict[str, int]) -> None:
        ready = self._load(found.taken, op["bitstream"])
        c = self.configuration
        assert c is not None
        scalars = [op["live0"], op["live1"], *(op[f"cgra_{i}"] for i in range(12))]
        const = {key: entry.const for key, entry in c.entries.items()}
        init = {key: entry.init for key, entry in c.entries.items()}
        arrays = [[a.space, a.element, a.base, a.length] for a in c.arrays]
        for patch in c.patches:
            value = scalars[patch.scalar]
            if patch.what < 2:
                (const, init)[patch.what][patch.pe, patch.at] = value
            else:
                arrays[patch.at][patch.what] = value & (0xFFFFFF if patch.what == 2 else MASK)
        now = ready + len(c.patches) + self.fabric.pipelined
        sizes = self.config.acc_bytes, self.config.scratch_bytes, self.config.out_bytes
        for space, element, base, length in arrays:
            now += 1
            size = 1 if element else 4
            if space > 2 or element > 2 or base % size or base + length * size > sizes[space]:
                raise LaunchError(now + 1, Cause.OPERAND)
        now += max(0, 3 - len(arrays))
        n = op["iterations"]
        steps = (n - 1) * c.ii + c.depth if n else 0
        if self.fabric.pipelined:
            self.pending, self.fourth, self.third, self.made = (self.nothing() for _ in range(4))
            self.shown = [], False
        for t in range(steps):
            now = self._step(found, now + 1, t, n, const, init, arrays)
            found.steps.append(now)
        if self.fabric.pipelined:
            now = self._serve(found, now + 1, *self.shown, self.made)
        found.end = now + 1

    def _load(self, taken: int, bitstream: int) -> int:
        """Cycle f of the contract."""
        if bitstream == KEEP_BITSTREAM:
            if self.configuration is None:
                raise LaunchError(taken, Cause.BITSTREAM)
            return taken
        self.configuration = None
        scratch, start = self.memories[SCRATCH], 16 * bitstream
        words: list[int] = []
        q, total = taken, 7
        while len(words) < total:
            q += 1
            while self.held(q).scratch:
                q += 1
            at = start + 4 * len(words)
            word = int.from_bytes(scratch[at : at + 4], "little")
            words.append(word)
            i, ii = len(words) - 1, words[3] >> 20 if len(words) > 3 else 0
            wrong = (
                (i == 0 and (at >= len(scratch) or word != MAGIC << 16 | VERSION << 8))
                or (i == 1 and word != self.fabric.hash)
                or (i == 2 and not (word >= 7 and start + 4 * word <= len(scratch)))
                or (i == 3 and not 1 <= ii <= self.fabric.contexts)
                or (i == 3 and ((word >> 12 & 255) > 16 or (word & 0xFFF) > 64))
                or (i == 4 and not 1 <= word <= ii * self.fabric.stages)
            )
            if wrong:
                raise LaunchError(q + 2 + self.fabric.pipelined, Cause.BITSTREAM)
            if i == 2:
                total = word
        try:
            self.configuration = parse(words, self.fabric)
        except InputError:
            raise LaunchError(q + 2 + self.fabric.pipelined, Cause.BITSTREAM) from None
        return q + 2 + self.fabric.pipelined

    def _step(
        self,
        found: Launch,
        begin: int,
        t: int,
        n: int,
        const: dict[tuple[int, int], int],
        init: dict[tuple[int, int], int],
        arrays: list[list[int]],
    ) -> int:
        """One step that begins in a cycle; the cycle in which it ends."""
        c = self.configuration
        assert c is not None
        k, context = divmod(t, c.ii)
        y, later = self.nothing(), self.nothing()
        accesses: list[Access] = []
        outside = False
        for pe in range(self.fabric.size):
            fields = c.entry(pe, context).fields
            mine, start = const.get((pe, context), 0), init.get((pe, context), 0)
            i = k - fields.get("stage", 0)
            values: list[Word] = []
            for bit, name in enumerate("abcp"):
                value = self._source(pe, name, fields, mine, self.nothing()[pe])
                if fields.get("initial", 0) >> bit & 1 and i < fields.get("first", 0):
                    value = [start] * len(value)
                values.append(value)
            operation = BY_NUMBER.get(fields.get("op", 0))
            if operation is None or not self.fabric.kinds[pe].executes(operation):
                continue
            holds = [(p == 0) == bool(fields.get("negate", 0)) for p in values[3]]
            active = 0 <= i < n
            name = operation.name
            if name in ("load", "store", "load_lanes", "store_lanes"):
                number = fields.get("array", 0)
                array = arrays[number] if number < len(arrays) else [0, 0, 0, 0]
                asked = self._access(pe, name, holds, values, array)
                if active and asked is not None:
                    accesses += asked
                    outside |= not asked
            elif name == "table":
                table = c.tables.get(pe, ())
                for lane, a in enumerate(values[0]):
                    place = a + (mine & 0xFFFF)
                    if active and holds[lane] and (a >= mine >> 16 or place >= len(table)):
                        outside = True
                    elif active and holds[lane]:
                        later[pe][lane] = table[place]
            elif not name.startswith("opaque"):
                made = self._made(operation.name, mine, values)
                found_ = [m if h else 0 for m, h in zip(made, holds, strict=True)]
                (y if operation.latency == 1 else later)[pe] = found_
        loaded = later
        if self.fabric.pipelined:
            # Of the step before.
            shown, loaded = self.shown, self.made
            self.shown = accesses, outside
            accesses, outside = shown
        try:
            return self._serve(found, begin, accesses, outside, loaded)
        finally:
            # Registers take their values in any case. They do not wait for accesses; the next step does.
            self._clock(context, y, later, const)
            self.history[begin + 1] = list(self.links)

    def _access(
        self, pe: int, name: str, holds: list[bool], values: list[Word], array: list[int]
    ) -> list[Access] | None:
        """The access of an operation: None where there is none, an empty list where it must not be."""
        space, element, base, length = array
        wide = len(holds) if name.endswith("lanes") else 1
        mask = holds if wide > 1 else [holds[0]]
        if not any(mask):
            return None
        first, width = values[0][0], 1 if element else 4
        together = first % wide or base % (wide * width)
        if first + wide > length or together or (name.startswith("store") and space != OUT):
            return []
        address = base + first * width
        return [Access(pe, name.startswith("store"), space, address, element, values[1], wide, mask)]

    def _made(self, name: str, const: int, values: list[Word]) -> Word:
        """What an operation makes without memory, in every lane."""
        a, b = values[0], values[1]
        lanes = range(len(a))
        if name == "const":
            return [const] * len(a)
        if name == "lane":
            return list(lanes)
        if name == "sum_lanes":
            return [sum(a) & MASK] * len(a)
        if name == "max_lanes":
            return [max(a, key=lambda v: v - (v >> 31 << 32))] * len(a)
        if name == "shift_lanes":
            by = values[2][0] % len(a)
            return [*a, *b][by : by + len(a)]
        if name in ("even_lanes", "odd_lanes"):
            return [*a, *b][int(name == "odd_lanes") :: 2]
        operation = operations.OPERATIONS[name]
        assert operation.meaning is not None
        words = [*values[: operation.operands], *[[const] * len(a)] * operation.constant]
        data = ([v - (v >> 31 << 32) for v in value] for value in words)
        return [operation.meaning(*own) & MASK for own in zip(*data, strict=True)]

    def _serve(
        self, found: Launch, begin: int, accesses: list[Access], outside: bool, later: list[Word]
    ) -> int:
        """The last cycle of the accesses of a step, of which the first is `begin`."""
        if outside:
            raise LaunchError(begin + 1, Cause.GRID_RANGE)
        now, waiting = begin - 1, accesses
        while waiting or now < begin:
            now += 1
            waiting = self._cycle(found, now, waiting, later)
        found.stalls += now - begin
        return now

    def _cycle(self, found: Launch, now: int, waiting: list[Access], later: list[Word]) -> list[Access]:
        """Serve what one cycle serves; what stays open."""
        held = self.held(now)
        reads: dict[tuple[int, int], int] = {}
        opened = []
        unread = {place for access in waiting if not access.store for place in access.banks(self.config)}
        for access in waiting:
            if access.store:
                continue
            banks = access.banks(self.config)
            others = any((held.acc >> bank & 1, held.scratch, held.out)[space] for space, bank, _ in banks)
            mine = not others and [reads.setdefault((s, bank), word) == word for s, bank, word in banks]
            if not mine or not all(mine):
                opened.append(access)
                continue
            memory, width = self.memories[access.space], access.width
            got = []
            for lane in range(access.wide):
                at = access.address + lane * width
                data = memory[at : at + width]
                got.append(int.from_bytes(data, "little", signed=access.element != 2) & MASK)
            if access.wide == 1:
                later[access.pe] = got * len(later[access.pe])
            else:
                later[access.pe] = [g if m else 0 for g, m in zip(got, access.mask, strict=True)]
        written = set()
        for access in waiting:
            if not access.store:
                continue
            places = access.banks(self.config)
            first = written.isdisjoint(places_ := {place[:2] for place in places})
            written |= places_
            if not first or unread.intersection(places):
                opened.append(access)
                continue
            for lane in range(access.wide):
                if access.mask[lane]:
                    value = access.value[lane] & (1 << 8 * access.width) - 1
                    at = access.address + lane * access.width
                    self.memories[OUT][at : at + access.width] = value.to_bytes(access.width, "little")
                    found.stores.append((now, access.pe, at, value))
        return sorted(opened, key=lambda access: access.pe)

    def _source(self, pe: int, name: str, fields: dict[str, int], const: int, y: Word) -> Word:
        sources, lanes = layout(self.fabric, pe).sources[name], self.fabric.kinds[pe].lanes
        number = fields.get(name, 0)
        source = sources[number if number < len(sources) else 0]
        if source.startswith("in"):
            link = self.links[self.fabric.incoming[pe][int(source[2:])]]
            return link if len(link) == lanes else link * lanes
        file, at = self.files[pe], fields.get("read_at", 0)
        return {
            "zero": [0] * lanes,
            "always": [1] * lanes,
            "const": [const] * lanes,
            "result": self.result[pe],
            "register": (file[at] if at < len(file) else file[0]) if file else [0] * lanes,
            "y": y,
            "y2": self.pending[pe],
            "y4": self.fourth[pe],
        }[source]

    def _clock(
        self, context: int, y: list[Word], later: list[Word], const: dict[tuple[int, int], int]
    ) -> None:
        """All registers at once."""
        c = self.configuration
        assert c is not None
        links, results, files = list(self.links), list(self.result), [list(f) for f in self.files]
        for pe in range(self.fabric.size):
            fields = c.entry(pe, context).fields
            mine = const.get((pe, context), 0)

            def moves(name: str, pe: int = pe, fields: dict[str, int] = dict(fields)) -> bool:  # noqa: B006
                return 0 < fields.get(name, 0) < len(layout(self.fabric, pe).sources[name])

            for i, link in enumerate(self.fabric.outgoing[pe]):
                if moves(f"out{i}"):
                    value = self._source(pe, f"out{i}", fields, mine, y[pe])
                    links[link] = value[: self.fabric.link_lanes(link)]
            if moves("result"):
                results[pe] = self._source(pe, "result", fields, mine, y[pe])
            if files[pe] and moves("write"):
                at = fields.get("write_at", 0)
                files[pe][at if at < len(files[pe]) else 0] = self._source(pe, "write", fields, mine, y[pe])
        self.links, self.result, self.files = links, results, files
        if self.fabric.pipelined:
            # What took two steps in a plain grid is there in the fourth.
            self.pending, self.fourth, self.third, self.made = y, self.third, self.made, later
        else:
            self.pending = later
