"""The meaning of a program: an interpreter with byte-level memory that remembers the writer of every byte.

It does not know what a machine's instructions compute, and need not: every byte that an instruction writes is
a mix of its name, its operand values, the bytes it reads and the position in what it writes. So two programs
mean the same if and only if their final memories are equal for every start (docs/ir.md).
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hw.errors import InputError
from sw.ir.errors import IRError, Location
from sw.ir.expression import Expr
from sw.ir.intrinsics import effects
from sw.ir.program import Access, For, Instruction, Program, Region, While
from sw.ir.walk import Instance, executions, value_of, walk

#: Bytes of all buffers together that a run may take.
LARGEST = 1 << 28
#: Iterations of all loops together after which a run ends with an error.
STEPS = 10_000_000

Tokens = npt.NDArray[np.uint64]
#: First element and the one after the last, of every dimension.
Box = tuple[tuple[int, int], ...]


class OutsideError(IRError):
    """A region outside of its buffer at run time."""


class EndlessError(IRError):
    """A program that took more iterations than allowed."""


#: What a buffer held before the program, as the source of bytes.
ENTRY = Instance("entry")


@dataclass(frozen=True)
class Unknown:
    """An access at an unknown address that is about to happen.

    It is the `number`-th read or write of the instruction, which happens for the `occurrence`-th time; both
    count from 0.
    """

    instruction: Instruction
    iteration: tuple[int, ...]
    occurrence: int
    number: int
    writes: bool
    shapes: Mapping[str, tuple[int, ...]]


#: Says what an unknown address is this time: a buffer and a box of it, or nothing.
Choice = Callable[[Unknown], tuple[str, Box] | None]


def seeded_choice(seed: int, nothing: float = 0.2) -> Choice:
    """Random choices that depend on the seed, the label and how often it happened before, and nothing else.

    So a program without some of the instructions, or without loops of one iteration, makes the same choices
    for what is left. `nothing` is the share of accesses that touch nothing.
    """

    def choose(unknown: Unknown) -> tuple[str, Box] | None:
        key = f"{seed} {unknown.instruction.label} {unknown.occurrence} {unknown.number} {unknown.writes}"
        rng = random.Random(key)
        if not unknown.shapes or rng.random() < nothing:
            return None
        name = rng.choice(sorted(unknown.shapes))
        ends = [sorted(rng.sample(range(size + 1), 2)) for size in unknown.shapes[name]]
        return name, tuple((low, high) for low, high in ends)

    return choose


@dataclass(frozen=True)
class Execution:
    """What a run did.

    `memory` holds the final contents by buffer, as 64-bit numbers of shape [*sizes, bytes of an element]: a
    byte is modelled with 64 bits, so that different bytes do not agree by chance. `reads` holds for every
    executed instance the sources of the bytes that it read, with their number.
    """

    program: Program
    memory: dict[str, Tokens]
    reads: dict[Instance, Counter[Instance]]

    @cached_property
    def use_def(self) -> dict[str, set[str]]:
        """Labels (and "entry") of the writes that each instruction has read bytes of."""
        found: dict[str, set[str]] = {label: set() for label in self.loops}
        for use, sources in self.reads.items():
            found[use.label].update(source.label for source in sources)
        return found

    @cached_property
    def def_use(self) -> dict[str, set[str]]:
        """Labels of the instructions that have read bytes of each write, or of what buffers held on entry."""
        found: dict[str, set[str]] = {label: set() for label in (ENTRY.label, *self.loops)}
        for use, sources in self.use_def.items():
            for source in sources:
                found[source].add(use)
        return found

    @cached_property
    def distances(self) -> dict[str, set[int | tuple[int, ...]]]:
        """By "source->use": how many iterations of their common loops lie between write and read.

        A number for one common loop, one per loop (outermost first) for several. Pairs without a common loop
        are left out, and `entry` is in no loop.
        """
        found: dict[str, set[int | tuple[int, ...]]] = {}
        depth: dict[tuple[str, str], int] = {}
        for use, sources in self.reads.items():
            for source in sources:
                if source is ENTRY:
                    continue
                pair = source.label, use.label
                if pair not in depth:
                    depth[pair] = common_loops(self.loops[source.label], self.loops[use.label])
                n = depth[pair]
                if n:
                    apart = tuple(b - a for a, b in zip(source.iteration[:n], use.iteration[:n], strict=True))
                    found.setdefault("->".join(pair), set()).add(apart[0] if n == 1 else apart)
        return found

    @cached_property
    def loops(self) -> dict[str, tuple[int, ...]]:
        """The loops around each label, outermost first, as numbers in the order of the text."""
        return loops_around(self.program)


def loops_around(program: Program) -> dict[str, tuple[int, ...]]:
    """The loops around each label, outermost first, as numbers from 1 on in the order of the text."""
    numbers: dict[int, int] = {}
    count = itertools.count(1)
    found: dict[str, tuple[int, ...]] = {}
    for s, around in walk(program.body):
        if isinstance(s, For | While):
            numbers[id(s)] = next(count)
        elif isinstance(s, Instruction):
            found[s.label] = tuple(numbers[id(x)] for x in around if isinstance(x, For | While))
    return found


def common_loops(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """How many loops two instructions have in common, counted from the outermost."""
    pairs = zip(first, second, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def run(
    program: Program,
    parameters: Mapping[str, int] | None = None,
    *,
    seed: int = 0,
    choice: Choice | None = None,
    steps: int = STEPS,
    trace: bool = True,
) -> Execution:
    """Run a program.

    `parameters` gives a value for every parameter, within its declared range. `seed` decides what the buffers
    hold at the start: every byte differs. `choice` says what unknown addresses are. All loops together end
    after `steps` iterations. Without `trace` the sources of bytes are not recorded (`reads` stays empty).

    Raises `InputError` for parameters that do not fit or buffers too large, and `IRError` with the place for
    what goes wrong later: `OutsideError`, `EndlessError`, a zero divisor or step, a scalar without value.
    """
    values = _bind(program, parameters or {})
    machine = _Machine(program, values, choice, steps, trace)
    machine.allocate(seed)
    for i, iteration in executions(program.body, values, step=machine.step):
        machine.instruction(i, iteration)
    return Execution(program, machine.memory, machine.reads)


def difference(
    first: Execution, second: Execution, spaces: Container[str | None] | None = None
) -> str | None:
    """Where the final memories of two runs differ first, in words; None where they are equal.

    With `spaces` only buffers of these spaces are compared, such as those that outlive a program.
    """
    if first.memory.keys() != second.memory.keys():
        return f"buffers {', '.join(first.memory)} and buffers {', '.join(second.memory)}"
    for name, contents in first.memory.items():
        if spaces is not None and first.program.buffer(name).space not in spaces:
            continue
        other = second.memory[name]
        if contents.shape != other.shape:
            return f"{name} of shape {contents.shape} and of shape {other.shape}"
        if not np.array_equal(contents, other):
            place = np.argwhere((contents != other).any(axis=-1))[0]
            return f"{name}[{', '.join(map(str, place))}]"
    return None


def _bind(program: Program, given: Mapping[str, int]) -> dict[str, int]:
    """Values by name; raises `InputError` where they do not fit the declarations."""
    known = {p.name: p.type for p in program.parameters}
    for name in given:
        if name not in known:
            raise InputError(f"{program.name} has no parameter {name!r}, only {', '.join(known) or 'none'}")
    values = {}
    for name, wanted in known.items():
        if name not in given:
            raise InputError(f"parameter {name!r} must be given")
        value = given[name]
        if not isinstance(value, int | np.integer) or not wanted.low <= value < wanted.high:
            raise InputError(f"parameter {name!r} must be {wanted}, not {value!r}")
        values[name] = int(value)
    return values


_MASK = (1 << 64) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
#: Below this many elements a dictionary counts faster than a sort.
_FEW = 256


def _tokens(key: int, count: int) -> Tokens:
    """`count` numbers that are all different and depend on the key (the generator splitmix64)."""
    z = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN + np.uint64(key)
    z = (z ^ (z >> _S30)) * _MIX1
    z = (z ^ (z >> _S27)) * _MIX2
    result: Tokens = z ^ (z >> _S31)
    return result


def _digest(*parts: bytes) -> int:
    """A number of 64 bits for a list of byte strings."""
    state = hashlib.blake2b(digest_size=8)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return int.from_bytes(state.digest(), "little")


@dataclass
class _Machine:
    """The state of a run."""

    program: Program
    values: dict[str, int]
    choice: Choice | None
    steps: int
    trace: bool
    memory: dict[str, Tokens] = field(default_factory=dict)
    #: For every element the number of the instance that wrote it, 0 for entry.
    writers: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    instances: list[Instance] = field(default_factory=lambda: [ENTRY])
    reads: dict[Instance, Counter[Instance]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    occurrences: Counter[str] = field(default_factory=Counter)
    known_effects: dict[str, tuple[tuple[Access, ...], tuple[Access, ...]]] = field(default_factory=dict)

    def allocate(self, seed: int) -> None:
        """Make all buffers."""
        total = 0
        for b in self.program.buffers:
            shape = tuple(value_of(size, self.values, b.where) for size in b.shape)
            for size, text in zip(shape, b.shape, strict=True):
                if size <= 0:
                    raise IRError(b.where, f"size {text} = {size} of {b.name!r}", "a positive size")
            size = b.element_bytes * math.prod(shape)
            total += size
            if total > LARGEST:
                raise IRError(b.where, f"{total} bytes of buffers", f"at most {LARGEST} to run a program")
            self.shapes[b.name] = shape
            key = _digest(b"entry", str(seed).encode(), b.name.encode())
            self.memory[b.name] = _tokens(key, size).reshape(*shape, b.element_bytes)
            self.writers[b.name] = np.zeros(shape, np.int64)

    # Statements

    def step(self, where: Location | None) -> None:
        """One iteration of a loop."""
        self.steps -= 1
        if self.steps < 0:
            raise EndlessError(where, "a loop that goes on and on", "an end within the steps allowed")

    def instruction(self, i: Instruction, iteration: tuple[int, ...]) -> None:
        """Read everything, mix, write everything in order; a later write wins where two overlap."""
        if i.label not in self.known_effects:
            self.known_effects[i.label] = effects(i)
        read, written = self.known_effects[i.label]
        self.occurrences[i.label] += 1
        parts = [i.name.encode()]
        moved = {id(a) for a in (*read, *written)}
        for name, operand in i.operands:
            if isinstance(operand, Region):
                given = "" if id(operand) in moved else str((operand.buffer, self.box(operand)))
            else:
                given = str(value_of(operand, self.values, i.where))
            parts.append(f"{name}={given}".encode())
        sources: Counter[Instance] = Counter()
        for number, access in enumerate(read):
            place = self.place(access, i, iteration, number, writes=False)
            if place is None:
                parts += [b"", b""]
                continue
            name, index = place
            contents = self.memory[name][index]
            parts += [str(contents.shape).encode(), contents.tobytes()]
            if self.trace:
                self.count(sources, self.writers[name][index], contents.shape[-1])
        places = [self.place(a, i, iteration, n, writes=True) for n, a in enumerate(written)]
        if self.trace:
            instance = Instance(i.label, iteration)
            self.instances.append(instance)
            self.reads[instance] = sources
        digest = _digest(*parts)
        for number, place in enumerate(places):
            if place is None:
                continue
            name, index = place
            target = self.memory[name][index]
            key = (digest + number * 0xD1342543DE82EF95) & _MASK
            target[...] = _tokens(key, target.size).reshape(target.shape)
            self.writers[name][index] = len(self.instances) - 1

    def count(self, sources: Counter[Instance], writers: npt.NDArray[np.int64], size: int) -> None:
        """Add the sources of elements of so many bytes."""
        if writers.size <= _FEW:
            for writer, n in Counter(writers.ravel().tolist()).items():
                sources[self.instances[writer]] += n * size
        else:
            for writer, n in zip(*np.unique(writers, return_counts=True), strict=True):
                sources[self.instances[writer]] += int(n) * size

    def place(
        self, access: Access, i: Instruction, iteration: tuple[int, ...], number: int, *, writes: bool
    ) -> tuple[str, tuple[slice, ...]] | None:
        """The buffer and the slices of an access now, None where it touches nothing."""
        if isinstance(access, Region):
            name, box, where = access.buffer, self.box(access), access.where or i.where
        else:
            if self.choice is None:
                raise IRError(i.where, f"ANY in {i.label!r}", "a choice of what unknown addresses are")
            chosen = self.choice(
                Unknown(i, iteration, self.occurrences[i.label] - 1, number, writes, self.shapes)
            )
            if chosen is None:
                return None
            (name, box), where = chosen, i.where
        slices = []
        outside = False
        for (start, stop), size in zip(box, self.shapes[name], strict=True):
            if stop <= start:
                return None
            outside = outside or start < 0 or stop > size
            slices.append(slice(start, stop))
        if outside:
            text = f"{name}[{', '.join(f'{start}:{stop}' for start, stop in box)}]"
            inside = ", ".join(f"0:{size}" for size in self.shapes[name])
            at = f" in iteration {Instance(i.label, iteration)}" if iteration else ""
            raise OutsideError(where, f"the region {text}{at}", f"one inside of {name}[{inside}]")
        return name, tuple(slices)

    def box(self, region: Region) -> Box:
        """The ends of a region now."""
        ends = ((i.start, i.stop) for i in region.box)
        return tuple((self.end(start, region), self.end(stop, region)) for start, stop in ends)

    def end(self, expr: Expr, region: Region) -> int:
        """An end of a region now."""
        return value_of(expr, self.values, region.where)
