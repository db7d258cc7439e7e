"""The unit of a processing element that combines or moves its lanes."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from hw.rtl.bits import log2, rotate_right, where
from hw.rtl.cgra.units import WIDTH, later


class Across(Component):
    """Reduces all lanes of A to their sum or maximum, or moves lanes; 0 if no operation starts.

    `start` says for each lane that an operation of this unit executes and its predicate holds. With `moves`,
    lane i gets lane i + `by`, or (`halves`) lane 2i or (`odd`) 2i + 1, of the lanes of A followed by those of
    B. Otherwise every lane gets the maximum (`greatest`) or the sum of A.

    **Timing.** As `Multiplier`: operands of a step that ends (`advance`) in cycle t give `y` from t + 1 on,
    until the next step has ended; in a pipelined unit, one step later.
    """

    def __init__(self, lanes: int, pipelined: bool = False):
        self._lanes, self._pipelined = lanes, pipelined
        super().__init__(
            {
                "start": In(lanes),
                "greatest": In(1),
                "moves": In(1),
                "halves": In(1),
                "odd": In(1),
                "advance": In(1),
                "a": In(WIDTH * lanes),
                "b": In(WIDTH * lanes),
                "by": In(log2(lanes)),
                "y": Out(WIDTH * lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        greatest, moves = self.greatest, self.moves
        every = range(self._lanes)
        a, b = ([operand.word_select(i, WIDTH) for i in every] for operand in (self.a, self.b))
        even, odd = Cat([*a, *b][::2]), Cat([*a, *b][1::2])
        # Lanes of A below `by` are dropped; those of B take their place.
        rotated = rotate_right(m, Cat(Mux(i < self.by, b[i], a[i]) for i in every), self.by, unit=WIDTH)
        moved: Value = Mux(self.halves, Mux(self.odd, odd, even), rotated)
        words = self._half(m, a, greatest)
        words, moved, start, greatest, moves = self._held(m, "first", words, moved, greatest, moves)
        if self._pipelined:
            words = self._half(m, words, greatest)
            words, moved, start, greatest, moves = self._held(
                m, "second", words, moved, greatest, moves, start
            )
        while len(words) > 1:
            words = self._half(m, words, greatest)
        m.d.comb += self.y.eq(
            Cat(where(start[i], Mux(moves, moved.word_select(i, WIDTH), words[0])) for i in every)
        )
        return m

    def _half(self, m: Module, words: list[Value], greatest: Value) -> list[Value]:
        """Combines neighbouring words in pairs to their sum or maximum; a single word stays as it is."""
        found: list[Value] = []
        for i, (one, other) in enumerate(zip(words[::2], words[1::2], strict=False)):
            word = Signal(WIDTH, name=f"of{2 * self._lanes // len(words)}_{i}")
            less = one.as_signed() < other.as_signed()
            m.d.comb += word.eq(Mux(greatest, Mux(less, other, one), one + other))
            found.append(word)
        return found or words

    def _held(
        self,
        m: Module,
        name: str,
        words: list[Value],
        moved: Value,
        greatest: Value,
        moves: Value,
        start: Value | None = None,
    ) -> tuple[list[Value], Value, Value, Value, Value]:
        """Registers all of these values for one step."""

        def held(what: str, value: Value) -> Value:
            return later(m, self.advance, f"{name}_{what}", value, reset=what == "start")

        return (
            [held(f"word{i}", word) for i, word in enumerate(words)],
            held("moved", moved),
            held("start", self.start if start is None else start),
            held("greatest", greatest),
            held("moves", moves),
        )
