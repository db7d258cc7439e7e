"""What comes before an access: a walk backwards through the program, its element as a symbol.

A *case* is what is known of the element, of the iterations of the access and of the place where the walk is.
At an earlier access the case is cut in two where it is open whether the element lies in its region: where it
does, a certain write ends the walk; where it does not, the walk goes on. So what was overwritten is never
reached. At a loop the walk goes to the last iteration that can touch the element, found from the bounds of
regions as a distance from a number that is known, then to those before it (docs/dependence.md, "The walk").
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sw.dependence.accesses import AccessTree, SymbolicAccess, SymbolicLoop
from sw.dependence.conditions import Condition, assume, decide
from sw.dependence.forms import (
    PLACES,
    Bounds,
    Facts,
    Form,
    Symbol,
    Terms,
    Value,
    add,
    differences,
    factor_of,
    fits,
    make,
    scale,
    substitute,
    symbol_bounds,
    symbol_form,
    whole,
)
from sw.dependence.instance import Instance
from sw.dependence.uses import UNIQUE, bound_symbols
from sw.ir.expression import Op
from sw.ir.types import HIGH, LOW

#: Cuts of cases and visits of iterations of one walk; beyond them nothing is cut, and iterations are one.
_CUTS, _VISITS = 400, 400
#: Iterations of a loop that are visited one by one where its accesses do not rotate.
_STEPS = 6
#: Divisors up to which remainders are told apart.
_MOST_DIVISOR = 16
_FAR = 1 << 34


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """What is known on a walk.

    `point` is the element, `own` are the iterations of the access that the walk began at, `numbers` those of
    the loops where the walk is, outermost first, `kept` other numbers of use later. `read_since`: something
    read the element after the place where the walk is.
    """

    facts: Facts
    point: tuple[Value, ...]
    own: tuple[Value, ...]
    numbers: tuple[Value, ...]
    read_since: bool = False
    kept: tuple[Value, ...] = ()


#: What is called for a source: the access, the case, and what is known where the two meet.
Found = Callable[[SymbolicAccess, Case, Facts], None]


@dataclass(frozen=True)
class Reach:
    """The iterations in which an access can touch the element: those `low` to `high` before `anchor`.

    `repeats`: what it touches depends on the iteration by remainders alone, which come again after `period`.
    """

    anchor: Value
    low: int
    high: int
    repeats: bool = False
    period: int = 1


class Walk:
    """A walk from one access of a program; `found` hears of every source."""

    def __init__(self, tree: AccessTree, sink: SymbolicAccess, found: Found):
        self.tree, self.evaluator, self.symbols = tree, tree.evaluator, tree.evaluator.symbols
        self.sink, self.found = sink, found
        self.cuts, self.visits = _CUTS, _VISITS

    def run(self) -> list[Case]:
        """Walk back to the start of the program; the cases left see what was there on entry."""
        sink, root = self.sink, self.tree.root
        start = self.start()
        if start is None:
            return []
        cases, position = [start], sink.position
        while position and self.own_access(sink.loops[-1] if sink.loops else root, position - 1):
            position -= 1
        for depth in range(len(sink.loops), -1, -1):
            loop = sink.loops[depth - 1] if depth else root
            cases = self.children(loop, position, cases)
            if not depth:
                break
            going: list[Case] = []
            for case in cases:
                outer = dataclasses.replace(case, numbers=case.numbers[: depth - 1])
                going += self.iterations(loop, outer, add(case.numbers[depth - 1], -1))
            cases, position = _joined(going), loop.position
        return cases

    def own_access(self, loop: SymbolicLoop, position: int) -> bool:
        """Whether a child is an access of the sink's instruction that does not come before it."""
        child = loop.children[position]
        sink = self.sink
        return (
            isinstance(child, SymbolicAccess) and child.slot == sink.slot and (child.write or not sink.write)
        )

    def start(self) -> Case | None:
        """The case of the sink; None if it never happens."""
        sink = self.sink
        facts: Facts | None = {}
        numbers: list[Value] = []
        for loop in sink.loops:
            number = symbol_form(loop.symbol) if loop.symbol.high else 0
            if facts is not None and isinstance(loop.count, Form):
                facts = not_negative(facts, add(add(loop.count, number, -1), -1))
            numbers.append(number)
        for condition, holds in sink.conditions:
            facts = None if facts is None else assume(facts, condition, holds)
        point: list[Value] = []
        for axis, (low, high) in enumerate(sink.hull):
            begin, end = (low, high) if sink.box is None else sink.box[axis]
            length = add(end, begin, -1)
            exact = isinstance(length, int) and 0 < length <= PLACES
            within = self.symbols.fresh("x", 0, (length if exact else high - low) - 1)  # type: ignore[operator]
            if within.terms[0][0].high == 0:
                place = begin
            elif exact or (isinstance(begin, int) and begin == low):
                place = add(begin, within)
            else:
                place = add(low, within)
                facts = None if facts is None else not_negative(facts, add(place, begin, -1))
            if facts is not None and not exact:
                facts = not_negative(facts, add(add(end, place, -1), -1))
            if facts is not None and isinstance(place, Form):
                facts = not_negative(facts, add(place, -low))
                facts = None if facts is None else not_negative(facts, add(high - 1, place, -1))
            point.append(place)
        return None if facts is None else Case(facts, tuple(point), tuple(numbers), tuple(numbers))

    # Statements

    def children(self, loop: SymbolicLoop, position: int, cases: list[Case]) -> list[Case]:
        """The accesses and loops of a body before a position, from the last on."""
        for child in reversed(loop.by_buffer.get(self.sink.buffer, ())):
            if child.position >= position:
                continue
            if not cases:
                break
            before = cases
            cases = []
            for case in before:
                if isinstance(child, SymbolicAccess):
                    cases += self.access(child, case)
                else:
                    count = self.instance(case, child.around).value(child.count)
                    cases += self.iterations(child, case, add(count, -1))
            if len(cases) > 1:
                cases = _joined(cases)
        return cases

    def instance(self, case: Case, loops: tuple[SymbolicLoop, ...], other: int = 0) -> Instance:
        """Numbers of the text at the iterations where the walk is; loops further in are at any iteration."""
        numbers = list(case.numbers[: len(loops)])
        numbers += [symbol_form(loop.other) for loop in loops[len(numbers) :]]
        same = 0
        for loop, own, number, now in zip(loops, self.sink.loops, numbers, case.own, strict=False):
            if loop is not own or number != now:
                break
            same += 1
        known = {loop.symbol: n for loop, n in zip(loops, numbers, strict=True)}
        return Instance(self.evaluator, case.facts, known, loops, tuple(numbers), same)

    def relevant(self, access: SymbolicAccess, case: Case) -> bool:
        """Whether an access can matter to a case, by its kind and by the known bounds of its region."""
        if not self.sink.write and not access.write:
            return False
        for (low, high), place in zip(access.hull, case.point, strict=True):
            least, most = whole(place, case.facts)
            if least >= high or most < low:
                return False
        return True

    def access(self, access: SymbolicAccess, case: Case) -> list[Case]:
        """An access of the present iteration; the cases that are left of one."""
        if not self.relevant(access, case):
            return [case]
        instance = self.instance(case, access.loops)
        facts = case.facts
        open_at: list[tuple[Value | Condition, bool]] = []
        for place, (start, stop) in zip(case.point, access.box or (), strict=False):
            for form in self.sides(instance, place, start, stop):
                verdict = sign(form, facts)
                if verdict is False:
                    return [case]
                if verdict is None:
                    open_at.append((form, True))
        for condition, holds in access.conditions:
            truth = instance.truth(condition)
            decided = decide(truth, facts)
            if decided is not None and decided != holds:
                return [case]
            if decided is None:
                assert isinstance(truth, Condition)
                open_at.append((truth, holds))
        if open_at and self.cuts > 0:
            undecided = [part for part, _ in open_at]
            parts = self.by_remainder(case, undecided) or self.by_choice(case, undecided)
            if parts is not None:
                return [left for part in parts for left in self.access(access, part)]
        inside: Facts = facts
        outside: list[Case] = []
        for part, holds in open_at:
            without, within = _assume(inside, part, not holds), _assume(inside, part, holds)
            if within is None:
                return [case]
            if without is not None:
                outside.append(dataclasses.replace(case, facts=without))
            inside = within
        if (access.write or self.sink.write) and not (access.write and case.read_since):
            self.found(access, case, inside)
        ends = access.write and access.box is not None
        if not (ends or (self.sink.write and not access.write and not case.read_since)):
            return [case]
        if outside and self.cuts <= 0:
            return [case]
        self.cuts -= len(outside)
        if not ends:
            outside.append(dataclasses.replace(case, facts=inside, read_since=True))
        return outside

    @staticmethod
    def sides(instance: Instance, place: Value, start: Value, stop: Value) -> tuple[Value, Value]:
        """Two numbers that are not negative where a place is in an interval."""
        low = add(place, instance.value(start), -1)
        if isinstance(start, Form) and isinstance(stop, Form) and start.terms == stop.terms:
            return low, add(add(stop.constant - start.constant - 1, low, -1), 0)
        return low, add(add(instance.value(stop), place, -1), -1)

    # Loops

    def iterations(self, loop: SymbolicLoop, case: Case, upper: Value) -> list[Case]:
        """The iterations of a loop up to one, from the last on; `case.numbers` are of the loops around."""
        if whole(upper, case.facts)[1] < 0:
            return [case]
        left = self.reached(loop, dataclasses.replace(case, kept=(*case.kept, upper)))
        return _joined([dataclasses.replace(c, kept=c.kept[:-1]) for c in left])

    def reached(self, loop: SymbolicLoop, case: Case) -> list[Case]:
        """The same, up to the last number of `kept`."""
        reaches: list[Reach] = []
        facts = not_negative(case.facts, add(case.kept[-1], symbol_form(loop.other), -1))
        for access in loop.accesses[self.sink.buffer]:
            if facts is not None and self.relevant(access, case):
                reach = self.reach(loop, access, case, facts)
                if isinstance(reach, list):
                    return [left for part in reach for left in self.reached(loop, part)]
                if reach is not None:
                    reaches.append(reach)
        if not reaches:
            return [case]
        together = _together(reaches, case)
        cases = self.steps(loop, [dataclasses.replace(case, kept=(*case.kept, together.anchor))], together)
        return [dataclasses.replace(c, kept=c.kept[:-1]) for c in cases]

    def steps(self, loop: SymbolicLoop, cases: list[Case], reach: Reach) -> list[Case]:
        """The iterations that can touch the element; their anchor is the last of `kept`."""
        steps, same = max(_STEPS, 2 * reach.period), 0
        for back in range(reach.low, reach.high + 1):
            if same == reach.period and reach.repeats:
                if loop not in self.sink.loops:
                    return cases
                steps = 0
            if back - reach.low >= steps or self.visits <= 0:
                return [left for c in cases for left in self.far(loop, c, back, reach.high)]
            going = [left for c in cases for left in self.step(loop, c, back)]
            going = _joined(going)
            if not going:
                return []
            unchanged = [(c.point, c.read_since) for c in going] == [(c.point, c.read_since) for c in cases]
            same = same + 1 if unchanged else 0
            cases = going
        return cases

    def step(self, loop: SymbolicLoop, case: Case, back: Value) -> list[Case]:
        """One iteration, if there is one so many before the anchor."""
        upper, anchor = case.kept[-2:]
        number = add(anchor, back, -1)
        inside, outside = case.facts, []
        for form in (number, add(upper, number, -1)):
            verdict = sign(form, inside)
            if verdict is True:
                continue
            without = not_negative(inside, add(scale(form, -1), -1))
            if without is not None:
                outside.append(dataclasses.replace(case, facts=without))
            within = None if verdict is False else not_negative(inside, form)
            if within is None:
                return outside
            inside = within
        self.visits -= 1
        depth = len(case.numbers)
        into = dataclasses.replace(case, facts=inside, numbers=(*case.numbers, number))
        walked = self.children(loop, len(loop.children), [into])
        return [dataclasses.replace(c, numbers=c.numbers[:depth]) for c in walked] + outside

    def far(self, loop: SymbolicLoop, case: Case, low: int, high: int) -> list[Case]:
        """All iterations further back at once: one stands for all, and ends what each of them ends."""
        upper, anchor = case.kept[-2:]
        left = self.any_iteration(loop, case, upper, Reach(anchor, low, high))
        first = add(anchor, -low)
        if left is None or not (sign(first, case.facts) and sign(add(upper, first, -1), case.facts)):
            return [case]
        if all(c.read_since for c in left):
            return [dataclasses.replace(case, read_since=True)] if left else []
        return [case]

    def any_iteration(self, loop: SymbolicLoop, case: Case, upper: Value, reach: Reach) -> list[Case] | None:
        """What is left of a case after any one of some iterations; None if there is none of them."""
        low, high = reach.low, reach.high
        back = self.symbols.fresh("o", low, high) if low < high else low
        number = add(reach.anchor, back, -1)
        facts = not_negative(case.facts, number)
        facts = None if facts is None else not_negative(facts, add(upper, number, -1))
        if facts is None:
            return None
        into = dataclasses.replace(case, facts=facts, numbers=(*case.numbers, number))
        return self.children(loop, len(loop.children), [into])

    def reach(
        self, loop: SymbolicLoop, access: SymbolicAccess, case: Case, facts: Facts
    ) -> Reach | list[Case] | None:
        """Which iterations of a loop can touch the element with one access; or cases to ask again in."""
        upper = case.kept[-1]
        other = loop.other
        instance = self.instance(case, access.loops)
        instance.facts = facts
        known: Facts | None = facts
        sides: list[tuple[Value, Value]] = []
        inner = access.loops[len(case.numbers) + 1 :]
        repeats, period = not any(_mentions(instance.value(i.count), other) for i in inner), 1
        for place, (start, stop) in zip(case.point, access.box or (), strict=False):
            pair = self.sides(instance, place, start, stop)
            for form in pair:
                if sign(form, facts) is False:
                    return None
                known = None if known is None else not_negative(known, form)
                moduli = _moduli(form, other)
                repeats = repeats and moduli is not None
                period = math.lcm(period, moduli or 1)
            sides.append(pair)
        for condition, holds in access.conditions:
            truth = instance.truth(condition)
            if decide(truth, facts) is (not holds):
                return None
            known = None if known is None else assume(known, truth, holds)
            repeats = repeats and not (isinstance(truth, Condition) and _mentions(truth, other))
        for form in (form for pair in sides for form in pair):
            known = None if known is None else not_negative(known, form)
        if known is None:
            return None
        least, most = symbol_bounds(other, known)
        best: tuple[int, Value, int, int] | None = None
        for low, high in sides:
            f = -factor_of(low, other)
            if not f or factor_of(high, other) != f:
                continue
            base = substitute(low, other, 0)
            uneven = _uneven(base, f, known)
            if uneven is not None and self.cuts > 0:
                self.cuts -= 1
                parted = self.divided(case, *uneven, None)
                return [] if parted is None else [parted]
            anchor = _quotient(base, f)
            parts = self.by_remainder(case, [anchor]) if self.cuts > 0 else None
            if parts is not None:
                return parts
            slack = whole(add(base, anchor, -f), known)[1]
            room = whole(add(substitute(high, other, 0), anchor, f), known)[1]
            ends = (-(slack // f), room // f) if f > 0 else (-(room // -f), slack // -f)
            if best is None or ends[1] - ends[0] < best[0]:
                best = ends[1] - ends[0], anchor, *ends
        anchor, first, last = best[1:] if best is not None else (upper, 0, _FAR)
        first = max(first, whole(add(anchor, upper, -1), known)[0], whole(anchor, known)[0] - most)
        last = min(last, whole(anchor, known)[1] - least)
        if first > last:
            return None
        return Reach(anchor, first, last, repeats and best is None, min(period, _MOST_DIVISOR))

    # Cuts

    def by_remainder(self, case: Case, parts: Iterable[Value | Condition]) -> list[Case] | None:
        """A case cut by the remainder of a number that remainders in what is open are made of."""
        for part in parts:
            for term in _symbols(part):
                if not term.kind or term.by > _MOST_DIVISOR or isinstance(term.of, int):
                    continue
                for symbol, factor in term.of.terms:
                    by = term.by // math.gcd(term.by, factor)
                    if by > 1 and symbol.key is None and _bounded(symbol, case.facts):
                        self.cuts -= by
                        made = [self.divided(case, symbol, by, rest) for rest in range(by)]
                        return [c for c in made if c is not None]
        return None

    def by_choice(self, case: Case, parts: Iterable[Value | Condition]) -> list[Case] | None:
        """A case cut by which of two numbers the smaller or larger one is that something open is made of."""
        for part in parts:
            for term in _symbols(part):
                choice = _choice(term, case.facts)
                if choice is None:
                    continue
                self.cuts -= 1
                return self.chosen(case, choice)
        return None

    def chosen(self, case: Case, choice: Symbol) -> list[Case]:
        """The case for each of the two numbers that a smaller or larger one may be."""
        assert isinstance(choice.key, tuple)
        op, a, b = choice.key
        apart, found = add(a, b, -1), []
        if op is Op.MIN:
            a, b = b, a
        for form, value in ((apart, a), (add(-1, apart, -1), b)):
            facts = not_negative(case.facts, form)
            known = dataclasses.replace(case, facts=facts or {})
            made = None if facts is None else self.replaced(known, choice, value)
            found += [] if made is None else [made]
        return found

    def divided(self, case: Case, symbol: Symbol, by: int, rest: int | None) -> Case | None:
        """The case with symbol = by * q + rest, for a new symbol q, and for a rest that is not given."""
        low, high = symbol_bounds(symbol, case.facts)
        if rest is not None:
            first, last = -((rest - low) // by), (high - rest) // by
            if first > last:
                return None
            quotient = self.symbols.fresh("q", first, last) if first < last else first
            return self.replaced(case, symbol, add(scale(quotient, by), rest))
        quotient = self.symbols.fresh("q", low // by, high // by) if low // by < high // by else low // by
        return self.replaced(case, symbol, add(scale(quotient, by), self.symbols.fresh("r", 0, by - 1)))

    def replaced(self, case: Case, symbol: Symbol, value: Value) -> Case | None:
        """The case with a symbol replaced everywhere; None if that contradicts what is known."""
        instance = Instance(self.evaluator, {}, {symbol: value})
        facts: Facts | None = {t: b for t, b in case.facts.items() if t[-1][0].number < instance.first}
        for terms, (low, high) in [*case.facts.items(), (((symbol, 1),), (symbol.low, symbol.high))]:
            if terms[-1][0].number < instance.first:
                continue
            form = instance.value(Form(terms))
            if facts is not None and low >= LOW:
                facts = not_negative(facts, add(form, -low))
            if facts is not None and high < HIGH:
                facts = not_negative(facts, add(high, form, -1))
        if facts is None:
            return None
        instance = Instance(self.evaluator, facts, {symbol: value})
        forms = case.point, case.own, case.numbers, case.kept
        point, own, numbers, kept = (tuple(map(instance.value, v)) for v in forms)
        return Case(facts, point, own, numbers, case.read_since, kept)


def sign(form: Value, facts: Facts) -> bool | None:
    """Whether a difference of places surely is not negative, surely is, or neither."""
    if isinstance(form, int):
        return form >= 0
    found = differences(form, 0, facts)
    if all(low >= 0 for low, _ in found):
        return True
    return False if all(high < 0 for _, high in found) else None


def not_negative(facts: Facts, form: Value) -> Facts | None:
    """The facts with a difference of places not being negative; None if it is."""
    if isinstance(form, int):
        return facts if form >= 0 else None
    low, high = whole(form, facts)
    if low >= 0 or low <= -UNIQUE or high >= UNIQUE:
        return facts
    if high < 0:
        return None
    grown: dict[Terms, Bounds] = dict(facts)
    if not bound_symbols(scale(form, -1), grown):
        return None
    if len(form.terms) > 1:
        terms, least, most = form.terms, -form.constant, _FAR
        if terms[0][1] < 0:
            terms, least, most = tuple((s, -f) for s, f in terms), -_FAR, form.constant
        before = grown.get(terms, (-_FAR, _FAR))
        grown[terms] = max(before[0], least), min(before[1], most)
    return grown


def _assume(facts: Facts, part: Value | Condition, holds: bool) -> Facts | None:
    """The facts with a difference not being negative, or a condition, or the opposite."""
    if isinstance(part, Condition):
        return assume(facts, part, holds)
    return not_negative(facts, part if holds else add(scale(part, -1), -1))


def _joined(cases: list[Case]) -> list[Case]:
    """Cases of the same element at the same place as one, with what is known of all of them."""
    if len(cases) < 2:
        return cases
    found: dict[object, Case] = {}
    for case in cases:
        key = case.point, case.numbers, case.kept, case.own, case.read_since
        other = found.get(key)
        if other is None:
            found[key] = case
            continue
        facts = {
            terms: (min(low, other.facts[terms][0]), max(high, other.facts[terms][1]))
            for terms, (low, high) in case.facts.items()
            if terms in other.facts
        }
        found[key] = dataclasses.replace(case, facts=facts)
    return list(found.values())


def _together(reaches: list[Reach], case: Case) -> Reach:
    """All iterations that some accesses can touch the element in, counted from one anchor.

    Where their anchors do not differ by constants these are all iterations from the last one on.
    """
    first = min(reaches, key=lambda r: r.high - r.low)
    shifts = [add(first.anchor, r.anchor, -1) for r in reaches]
    lows = [r.low + n for r, n in zip(reaches, shifts, strict=True) if isinstance(n, int)]
    highs = [r.high + n for r, n in zip(reaches, shifts, strict=True) if isinstance(n, int)]
    anchor, low, high = first.anchor, min(lows), max(highs)
    if len(lows) < len(reaches):
        anchor, low = case.kept[-1], 0
        high = whole(anchor, case.facts)[1]
    return Reach(anchor, low, high, all(r.repeats for r in reaches), math.lcm(*(r.period for r in reaches)))


def _symbols(part: Value | Condition) -> list[Symbol]:
    """The symbols of a number or a condition."""
    if isinstance(part, Condition):
        own = [] if part.atom is None else [s for s, _ in part.atom.terms]
        return own + [s for inner in part.parts for s in _symbols(inner)]
    return [] if isinstance(part, int) else [s for s, _ in part.terms]


def _parts(symbol: Symbol) -> Iterable[Value | Condition]:
    """The arguments of the operator that a symbol is the result of."""
    if isinstance(symbol.key, tuple):
        yield from (part for part in symbol.key[1:] if isinstance(part, int | Form | Condition))


def _mentions(part: Value | Condition, symbol: Symbol) -> bool:
    """Whether a symbol occurs in a number or a condition, also in the arguments of operators."""
    return any(
        s is symbol or (s.number > symbol.number and any(_mentions(p, symbol) for p in _parts(s)))
        for s in _symbols(part)
    )


def _moduli(value: Value, symbol: Symbol) -> int | None:
    """What a number repeats after in steps of a symbol; None where it does not."""
    period = 1
    for s in _symbols(value):
        if s is symbol:
            return None
        if s.kind == "%" and isinstance(s.of, Form):
            if _moduli(substitute(s.of, symbol, 0), symbol) is None:
                return None
            period = math.lcm(period, s.by // math.gcd(s.by, factor_of(s.of, symbol)))
        elif any(_mentions(p, symbol) for p in _parts(s)):
            return None
    return period


def _choice(symbol: Symbol, facts: Facts) -> Symbol | None:
    """A smaller or larger one of two sums of numbers without meaning that a symbol is made of."""
    for part in _parts(symbol):
        for inner in _symbols(part):
            found = _choice(inner, facts)
            if found is not None:
                return found
    if isinstance(symbol.key, tuple) and symbol.key[0] in (Op.MIN, Op.MAX):
        _, a, b = symbol.key
        plain = all(s.key is None for s in _symbols(a) + _symbols(b))
        if plain and fits(a, facts) and fits(b, facts) and sign(add(a, b, -1), facts) is None:
            return symbol
    return None


def _bounded(symbol: Symbol, facts: Facts) -> bool:
    low, high = symbol_bounds(symbol, facts)
    return high - low < PLACES


def _uneven(base: Value, factor: int, facts: Facts) -> tuple[Symbol, int] | None:
    """A symbol of a number that is to be divided, so that the rest is less than the factor, and by what."""
    if isinstance(base, int):
        return None
    for symbol, f in base.terms:
        if f % factor and symbol.key is None and symbol.name != "j" and _bounded(symbol, facts):
            low, high = symbol_bounds(symbol, facts)
            by = abs(factor) // math.gcd(factor, f)
            if by > 1 and high // by > low // by:
                return symbol, by
    return None


def _quotient(base: Value, factor: int) -> Value:
    """The part of a number that a factor divides, divided by it."""
    if isinstance(base, int):
        return base // factor
    whole_terms = {s: f // factor for s, f in base.terms if f % factor == 0}
    return make(whole_terms, base.constant // factor)
