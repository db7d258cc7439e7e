"""The contract of the grid in plain Python, one step, cycle and access after the other (docs/cgra.md)."""

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


@dataclass
class Access:
    """An access of a step that is not served yet."""

    pe: int
    store: bool
    space: int
    address: int
    element: int
    value: int

    def bank(self, config: MachineConfig) -> tuple[int, int, int]:
        """Space, bank, word of it."""
        if self.space == ACC:
            bank, row = divmod(self.address // config.derived.acc_word_bytes, config.derived.acc_bank_words)
            return ACC, bank, row
        shape = config.derived.scratch if self.space == SCRATCH else config.derived.out
        return self.space, self.address // 4 % (shape.banks // 4), self.address // 4


class Reference:
    """A grid with its registers and the memories that it sees; `held` tells what others read in a cycle."""

    def __init__(self, config: MachineConfig, memories: Sequence[bytearray], held: Callable[[int], Held]):
        assert config.cgra is not None
        self.config, self.memories, self.held = config, memories, held
        self.fabric: Fabric = config.cgra
        size = self.fabric.size
        self.result, self.pending, self.fourth, self.third, self.made = ([0] * size for _ in range(5))
        self.shown: tuple[list[Access], bool] = [], False
        self.files = [[0] * kind.registers for kind in self.fabric.kinds]
        self.links = [0] * len(self.fabric.links)
        self.configuration: Configuration | None = None
        self.history: dict[int, list[int]] = {0: list(self.links)}  # links from a cycle on

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
            size = self.fabric.size
            self.pending, self.fourth, self.third, self.made = ([0] * size for _ in range(4))
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
        y, later = [0] * self.fabric.size, [0] * self.fabric.size
        accesses = []
        outside = False
        for pe in range(self.fabric.size):
            fields = c.entry(pe, context).fields
            mine, start = const.get((pe, context), 0), init.get((pe, context), 0)
            i = k - fields.get("stage", 0)
            values = []
            for bit, name in enumerate("abcp"):
                value = self._source(pe, name, fields, mine, 0)
                if fields.get("initial", 0) >> bit & 1 and i < fields.get("first", 0):
                    value = start
                values.append(value)
            a, b, _, p = values
            operation = BY_NUMBER.get(fields.get("op", 0))
            if operation is None or not self.fabric.kinds[pe].executes(operation):
                continue
            if (p == 0) != bool(fields.get("negate", 0)):
                continue
            active = 0 <= i < n
            name = operation.name
            if name in ("load", "store"):
                number = fields.get("array", 0)
                space, element, base, length = arrays[number] if number < len(arrays) else (0, 0, 0, 0)
                if active and (a >= length or (name == "store" and space != OUT)):
                    outside = True
                elif active:
                    address = base + a * (1 if element else 4)
                    accesses.append(Access(pe, name == "store", space, address, element, b))
            elif name == "table":
                table = c.tables.get(pe, ())
                place = a + (mine & 0xFFFF)
                if active and (a >= mine >> 16 or place >= len(table)):
                    outside = True
                elif active:
                    later[pe] = table[place]
            elif name == "const":
                y[pe] = mine
            elif not name.startswith("opaque"):
                meaning = operations.OPERATIONS[name].meaning
                assert meaning is not None
                data = [v - (v >> 31 << 32) for v in values[: operation.operands]]
                (y if operation.latency == 1 else later)[pe] = meaning(*data) & MASK
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

    def _serve(
        self, found: Launch, begin: int, accesses: list[Access], outside: bool, later: list[int]
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

    def _cycle(self, found: Launch, now: int, waiting: list[Access], later: list[int]) -> list[Access]:
        """Serve what one cycle serves; what stays open."""
        held = self.held(now)
        reads: dict[tuple[int, int], int] = {}
        opened = []
        unread = {access.bank(self.config) for access in waiting if not access.store}
        for access in waiting:
            if access.store:
                continue
            space, bank, word = access.bank(self.config)
            others = (held.acc >> bank & 1, held.scratch, held.out)[space]
            if not others and reads.setdefault((space, bank), word) == word:
                memory, at = self.memories[space], access.address
                width = 1 if access.element else 4
                data = memory[at : at + width]
                later[access.pe] = int.from_bytes(data, "little", signed=access.element != 2) & MASK
            else:
                opened.append(access)
        written = set()
        for access in waiting:
            if not access.store:
                continue
            space, bank, word = access.bank(self.config)
            first = bank not in written
            written.add(bank)
            if not first or (space, bank, word) in unread:
                opened.append(access)
                continue
            width = 1 if access.element else 4
            value = access.value & (1 << 8 * width) - 1
            self.memories[OUT][access.address : access.address + width] = value.to_bytes(width, "little")
            found.stores.append((now, access.pe, access.address, value))
        return sorted(opened, key=lambda access: access.pe)

    def _source(self, pe: int, name: str, fields: dict[str, int], const: int, y: int) -> int:
        sources = layout(self.fabric, pe).sources[name]
        number = fields.get(name, 0)
        source = sources[number if number < len(sources) else 0]
        if source.startswith("in"):
            return self.links[self.fabric.incoming[pe][int(source[2:])]]
        file, at = self.files[pe], fields.get("read_at", 0)
        return {
            "zero": 0,
            "always": 1,
            "const": const,
            "result": self.result[pe],
            "register": (file[at] if at < len(file) else file[0]) if file else 0,
            "y": y,
            "y2": self.pending[pe],
            "y4": self.fourth[pe],
        }[source]

    def _clock(self, context: int, y: list[int], later: list[int], const: dict[tuple[int, int], int]) -> None:
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
                    links[link] = self._source(pe, f"out{i}", fields, mine, y[pe])
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
