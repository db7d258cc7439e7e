"""Loop nests of warp programs: what a program keeps up to date at the borders of its loops.

All warps of a kernel run the same nest, each without the loops inside of which its tile stays the same.
A `Walk` is one thing that a program keeps: an address, a size, the half of a buffer that is its turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sw.builder import Builder, Register, Value

HALVES = 2


@dataclass(frozen=True)
class Loop:
    """One level of the nest: its name, and how often it runs."""

    name: str
    count: int


Loops = Sequence[Loop]


class Walk:
    """What a program does at the borders of its loops; subclasses add to it."""

    def enter(self, loop: Loop) -> None:
        """Before the loop."""

    def start(self, depth: int) -> None:
        """At the start of a step inside `depth` loops."""

    def end(self, depth: int) -> None:
        """At the end of a step inside `depth` loops."""


@contextlib.contextmanager
def nest(b: Builder, loops: Loops, walks: Sequence[Walk]) -> Iterator[None]:
    """Opens the loops one inside the other and lets the walks add theirs at every border."""
    with contextlib.ExitStack() as stack:
        for depth in range(len(loops) + 1):
            if depth:
                for walk in walks:
                    walk.enter(loops[depth - 1])
                stack.enter_context(b.loop(loops[depth - 1].count))
            for walk in walks:
                walk.start(depth)
            # Callbacks run last in, first out: the walks end in reverse order, before their loop does.
            for walk in walks:
                stack.callback(walk.end, depth)
        yield


def depth_of(loops: Loops, name: str) -> int:
    """Inside how many loops the steps of the named loop are; 0 where there is no such loop."""
    return next((i + 1 for i, loop in enumerate(loops) if loop.name == name), 0)


class Pointer(Walk):
    """Keeps a number that moves on by a constant with every step of each loop.

    One register, moved on and back by constants.
    """

    def __init__(self, b: Builder, name: str, start: Value, loops: Loops, steps: Mapping[str, int]):
        self.b, self.loops = b, list(loops)
        self.steps = [steps.get(loop.name, 0) for loop in loops]
        self.register = b.register(name)
        if isinstance(start, int):
            b.set(self.register, start)
        self.step = b.constant(self.steps[-1]) if self.loops else 0

    def end(self, depth: int) -> None:
        """Move on by this loop's step, after taking back what the loop inside went."""
        if depth == len(self.loops):
            self.b.add(self.register, self.step)
        elif depth:
            back = self.loops[depth].count * self.steps[depth]
            self.b.add(self.register, self.steps[depth - 1] - back)


class Offset(Pointer):
    """A place inside the tile that has its turn: starts from the turn's register with each of its steps."""

    def __init__(
        self, b: Builder, name: str, turn: Turn, outside: int, loops: Loops, steps: Mapping[str, int]
    ):
        self.origin, self.outside = turn.register, outside
        self.moving = any(steps.get(loop.name) for loop in loops[outside:])
        if self.moving:
            super().__init__(b, name, self.origin, loops[outside:], steps)
        else:
            self.register = self.origin

    def start(self, depth: int) -> None:
        """A new tile has its turn."""
        if self.moving and depth == self.outside:
            self.b.set(self.register, self.origin)

    def end(self, depth: int) -> None:
        """Move on inside the tile."""
        if self.moving and depth > self.outside:
            super().end(depth - self.outside)


class Size(Walk):
    """Keeps the size of the present tile along an axis in a register.

    `total` is cut into tiles by the loop of that name. `value` is the size as far as it is known; without
    `keep` there is only a register where there must be.
    """

    def __init__(
        self, b: Builder, name: str, loops: Loops, loop: str, total: int, tile: int, *, keep: bool = True
    ):
        self.b, self.loop, self.total = b, loop, total
        self.depth = depth_of(loops, loop)
        self.tile = min(tile, total)
        self.ragged = self.depth > 0 and total % tile != 0
        self.value: Value = self.tile
        if self.ragged:
            self.register = b.register(f"size_{name}")
            self.left = b.register(f"left_{name}")
            self.value = self.register
        elif keep:
            self.register = b.register(f"size_{name}")
            b.set(self.register, self.tile)

    def enter(self, loop: Loop) -> None:
        """All of the axis is left before its loop."""
        if self.ragged and loop.name == self.loop:
            self.b.set(self.left, self.total)

    def start(self, depth: int) -> None:
        """The tile is as large as all tiles are, or what is left."""
        if self.ragged and depth == self.depth:
            self.b.op("min", self.register, self.left, self.tile)

    def end(self, depth: int) -> None:
        """One tile less is left."""
        if self.ragged and depth == self.depth:
            self.b.add(self.left, -self.tile)


class Part(Walk):
    """Keeps the size of the present part of a tile that the named loop cuts into parts.

    The loop runs as often for a tile cut off at the edge: `present` is then 0 in steps for which no part is
    left, and the size 1. It is None where every step has a part.
    """

    def __init__(self, b: Builder, name: str, loops: Loops, loop: str, whole: Size, tile: int):
        self.b, self.loop, self.whole, self.tile = b, loop, whole, tile
        self.depth = depth_of(loops, loop)
        self.value: Value = tile
        self.register = b.register(f"part_{name}")
        self.present: Register | None = b.register(f"present_{name}") if whole.ragged else None
        self.ragged = whole.ragged or whole.tile % tile != 0
        if self.ragged:
            self.left = b.register(f"left_{name}_parts")
            self.value = self.register
        else:
            b.set(self.register, tile)

    def enter(self, loop: Loop) -> None:
        """All of the tile is left before the loop."""
        if self.ragged and loop.name == self.loop:
            self.b.set(self.left, self.whole.value)

    def start(self, depth: int) -> None:
        """The part is as large as all parts are, or what is left."""
        if not self.ragged or depth != self.depth:
            return
        self.b.op("min", self.register, self.left, self.tile)
        if self.present:
            self.b.op("max", self.present, self.register, 0)
            self.b.op("min", self.present, self.present, 1)
            self.b.op("max", self.register, self.register, 1)

    def end(self, depth: int) -> None:
        """One part less is left."""
        if self.ragged and depth == self.depth:
            self.b.add(self.left, -self.tile)


class Parameter(Walk):
    """Copies a size into a parameter register at each step at which it changes (`size` comes before it)."""

    def __init__(self, b: Builder, size: Size | Part, parameter: str):
        self.b, self.size, self.parameter = b, size, parameter
        if isinstance(size.value, int):
            b.param(parameter, size.value)

    def start(self, depth: int) -> None:
        """Follows the size."""
        if isinstance(self.size.value, Register) and depth == self.size.depth:
            self.b.param(self.parameter, self.size.value)


class Multiple(Walk):
    """Keeps a multiple of a size in a register (`size` must come before it)."""

    def __init__(self, b: Builder, name: str, size: Size | Part, factor: int):
        self.b, self.size, self.factor = b, size, factor
        self.register = b.register(name)
        if isinstance(size.value, int):
            b.set(self.register, size.value * factor)

    def start(self, depth: int) -> None:
        """Follows the size."""
        if isinstance(self.size.value, Register) and depth == self.size.depth:
            if self.factor & self.factor - 1:
                self.b.op("mul", self.register, self.size.value, self.factor)
            else:
                self.b.op("shl", self.register, self.size.value, self.factor.bit_length() - 1)


class Turn(Walk):
    """Takes a half of a buffer at the start of a step and hands it on at the end of the step.

    Without `take` or `give` that is done elsewhere.
    """

    def __init__(self, b: Builder, name: str, depth: int, take: int | None, give: int | None, half: int):
        self.b, self.depth, self.take, self.give = b, depth, take, give
        self.register = b.register(f"half_{name}")
        b.set(self.register, 0)
        self.half = b.constant(half)

    def start(self, depth: int) -> None:
        """Wait for the half."""
        if depth == self.depth and self.take is not None:
            self.b.wait(self.take)

    def end(self, depth: int) -> None:
        """Hand it on, and go to the other."""
        if depth == self.depth:
            if self.give is not None:
                self.b.signal(self.give)
            if self.half != 0:
                self.b.op("xor", self.register, self.register, self.half)


class Steps(Walk):
    """Tells first and last step of a loop apart: `later` is 0 in the first, `left` 0 in the last one.

    Both are None where the loop does not exist.
    """

    def __init__(self, b: Builder, loops: Loops, name: str, *, first: bool = True, last: bool = False):
        self.b, self.name = b, name
        self.depth = depth_of(loops, name)
        self.count = loops[self.depth - 1].count if self.depth else 1
        self.later = b.register(f"later_{name}") if self.depth and first else None
        self.left = b.register(f"left_{name}_steps") if self.depth and last else None

    def enter(self, loop: Loop) -> None:
        """The step that comes is the first."""
        if loop.name == self.name:
            if self.later:
                self.b.set(self.later, 0)
            if self.left:
                self.b.set(self.left, self.count - 1)

    def end(self, depth: int) -> None:
        """The step that comes is not, and there is one less."""
        if self.depth and depth == self.depth:
            if self.later:
                self.b.set(self.later, 1)
            if self.left:
                self.b.add(self.left, -1)
