"""Proofs of the unit that combines and moves the lanes of a processing element."""

from __future__ import annotations

from functools import partial

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component

from hw.formal.bench import Bench
from hw.formal.proof import Proof, planted
from hw.rtl.cgra.across import Across
from hw.rtl.cgra.units import WIDTH

STATEMENTS = {
    "none_without_start": "a lane in which no operation of the unit starts, as its predicate fails, gives 0",
    "sum_of_all": "a sum is that of all lanes of A, in 32 bits",
    "greatest_of_all": "a maximum is a lane of A, and as signed numbers no lane of A is greater",
    "moved_by_a_distance": "a lane gets the one that many lanes behind it, of A followed by B",
    "every_other_lane": "a lane gets the even, or the odd, one at twice its number, of A followed by B",
}
LANES = 4


def build(bench: Bench, pipelined: bool) -> None:
    """Any operands in any step; steps end in any cycle."""
    dut = bench.add(Across(LANES, pipelined), "dut")
    names = ("start", "greatest", "moves", "halves", "odd", "by", "a", "b")
    step: dict[str, Value] = {name: getattr(dut, name) for name in names}
    for stage in ("first", "second")[: 1 + pipelined]:
        ended = {name: Signal(value.shape(), name=f"{name}_{stage}") for name, value in step.items()}
        with bench.m.If(dut.advance):
            bench.m.d.sync += [ended[name].eq(value) for name, value in step.items()]
        step = dict(ended)
        bench.invariant(stage, partial(_tied, bench, dut, stage, step))
    _require(bench, _words(dut.y), step)


def _require(bench: Bench, y: list[Value], step: dict[str, Value]) -> None:
    """States what the operands of a step give."""
    every, starts = range(LANES), step["start"]
    a, pairs = _words(step["a"]), [*_words(step["a"]), *_words(step["b"])]

    def in_lanes(applies: Value, holds: list[Value]) -> Value:
        """Whether something holds in all lanes in which such an operation starts."""
        return Cat(~starts[i] | ~applies | holds[i] for i in every).all()

    bench.require("none_without_start", Cat(starts[i] | (y[i] == 0) for i in every).all())
    total = ((a[0] + a[1]) + (a[2] + a[3]))[:WIDTH]
    sums = ~step["moves"] & ~step["greatest"]
    bench.require("sum_of_all", in_lanes(sums, [y[i] == total for i in every]))
    least = [Cat(word.as_signed() >= x.as_signed() for x in a).all() for word in y]
    one = [Cat(word == x for x in a).any() for word in y]
    greatest = [least[i] & one[i] for i in every]
    bench.require("greatest_of_all", in_lanes(~step["moves"] & step["greatest"], greatest))
    moved = [y[i] == Array(pairs)[i + step["by"]] for i in every]
    bench.require("moved_by_a_distance", in_lanes(step["moves"] & ~step["halves"], moved))
    halves = [y[i] == Mux(step["odd"], pairs[2 * i + 1], pairs[2 * i]) for i in every]
    bench.require("every_other_lane", in_lanes(step["moves"] & step["halves"], halves))


def _words(whole: Value) -> list[Value]:
    return [whole.word_select(i, WIDTH) for i in range(LANES)]


def _tied(bench: Bench, dut: Component, stage: str, step: dict[str, Value]) -> Value:
    """The registers behind a stage follow from the operands of a step, if it starts anything."""
    held = {n: bench.signal(dut, f"late_{stage}_{n}") for n in ("start", "greatest", "moves", "moved")}
    a, b = _words(step["a"]), _words(step["b"])
    pairs, every = [*a, *b], range(LANES)
    halves = Cat(Mux(step["odd"], pairs[2 * i + 1], pairs[2 * i]) for i in every)
    moved = Mux(step["halves"], halves, Cat(Array(pairs)[i + step["by"]] for i in every))
    words = a
    for _ in range(1 + (stage == "second")):
        words = [
            _combined(one, other, step["greatest"])
            for one, other in zip(words[::2], words[1::2], strict=True)
        ]
    own = [bench.signal(dut, f"late_{stage}_word{i}") for i in range(len(words))]
    equal = Cat(mine == word for mine, word in zip(own, words, strict=True)).all()
    flags = (held["greatest"] == step["greatest"]) & (held["moves"] == step["moves"])
    same = equal & flags & (held["moved"] == moved)
    return (held["start"] == step["start"]) & (~step["start"].any() | same)


def _combined(one: Value, other: Value, greatest: Value) -> Value:
    less = one.as_signed() < other.as_signed()
    return Value.cast(Mux(greatest, Mux(less, other, one), (one + other)[:WIDTH]))


def _starts_together(m: Module, outer: Component, inner: Component) -> None:
    """All lanes start where the first one does."""
    m.d.comb += inner.start.eq(outer.start[0].replicate(LANES))


def _last_is_first(m: Module, outer: Component, inner: Component) -> None:
    """The first lane is combined twice, the last one not at all."""
    kept = outer.a[:-WIDTH]
    m.d.comb += inner.a.eq(Mux(outer.moves, outer.a, Cat(kept, outer.a[:WIDTH])))


def _bits_less(m: Module, outer: Component, inner: Component) -> None:
    """The maximum of positive numbers is taken without their highest bit."""
    words = Cat(Cat(word[:-2], Const(0, 1), word[-1]) for word in _words(outer.a))
    m.d.comb += inner.a.eq(Mux(outer.greatest, words, outer.a))


def _turns(m: Module, outer: Component, inner: Component) -> None:
    """Lanes behind the last come from A again, not from B."""
    m.d.comb += inner.b.eq(Mux(outer.halves, outer.b, outer.a))


def _always_even(m: Module, outer: Component, inner: Component) -> None:
    """Odd lanes are read as even ones."""
    m.d.comb += inner.odd.eq(0)


def proofs() -> tuple[Proof, ...]:
    """The proofs for the unit as it is and with a register more, with their faults."""
    faults = (
        planted("lanes-start-together", "none_without_start", _starts_together, 6),
        planted("last-lane-not-added", "sum_of_all", _last_is_first, 6),
        planted("maximum-cut", "greatest_of_all", _bits_less, 6),
        planted("rotates-a", "moved_by_a_distance", _turns, 6),
        planted("odd-is-even", "every_other_lane", _always_even, 6),
    )
    kinds = (("lanes", "unit of lanes", False), ("lanes-pipelined", "pipelined unit of lanes", True))
    return tuple(
        Proof(name, title, STATEMENTS, partial(build, pipelined=pipelined), faults, induction=1)
        for name, title, pipelined in kinds
    )
