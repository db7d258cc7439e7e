"""Integers and conditions of the text at iterations other than those that their symbols denote."""

from __future__ import annotations

from dataclasses import dataclass

from sw.dependence.accesses import SymbolicLoop
from sw.dependence.conditions import Condition, Truth, between, is_true, negate
from sw.dependence.forms import Facts, Form, Symbol, Value, symbol_form, unwrapped, weigh, whole
from sw.dependence.scalars import Evaluator
from sw.ir.expression import COMPARISONS, Op
from sw.ir.types import HIGH, LOW


@dataclass
class Instance:
    """Replaces the symbols of iterations, and what depends on them.

    `known` maps symbols to replacements; `facts` hold where the result is used. A symbol of which only bounds
    are known becomes a different one in another iteration. `loops` are the loops whose iterations are
    replaced, and `numbers` the iterations; the first `same` of these are unchanged.
    """

    evaluator: Evaluator
    facts: Facts
    known: dict[Symbol, Value]
    loops: tuple[SymbolicLoop, ...] = ()
    numbers: tuple[Value, ...] = ()
    same: int = 0

    def __post_init__(self) -> None:
        #: Symbols with smaller numbers do not depend on any replaced one.
        self.first = min((s.number for s in self.known), default=1 << 62)

    def value(self, value: Value) -> Value:
        """A number."""
        if isinstance(value, int) or value.terms[-1][0].number < self.first:
            return value
        found = unwrapped(*weigh(value.constant, ((self.symbol(s), f) for s, f in value.terms)))
        return self.evaluator.symbols.fresh("far") if found is None else found

    def symbol(self, symbol: Symbol) -> Value:
        """The replacement of a symbol."""
        if symbol.number < self.first:
            return symbol_form(symbol)
        found = self.known.get(symbol)
        if found is None:
            found = self.known[symbol] = self.made(symbol)
        return found

    def made(self, symbol: Symbol) -> Value:
        """The replacement of a symbol that is an operator: the operator of replaced arguments."""
        key, evaluator = symbol.key, self.evaluator
        if isinstance(key, tuple) and isinstance(key[0], Op) and key[0] not in COMPARISONS:
            return evaluator.arithmetic(key[0], self.value(key[1]), self.value(key[2]), self.facts)
        if isinstance(key, tuple) and key[0] == "select" and isinstance(key[2], int | Form):
            condition = self.truth(key[1])
            if isinstance(condition, int):
                return self.value(key[2] if condition else key[3])
            found = evaluator.either(condition, self.value(key[2]), self.value(key[3]))
            assert not isinstance(found, Condition)
            return found
        return self.renamed(symbol)

    def renamed(self, symbol: Symbol) -> Form:
        """The counterpart of an opaque symbol in another iteration."""
        depth = 0
        for loop in self.loops:
            if not loop.first <= symbol.number <= loop.last:
                break
            depth += 1
        if depth <= self.same:
            return symbol_form(symbol)
        key = "instance", symbol, self.numbers[:depth]
        return self.evaluator.symbols.named(key, symbol.name, (symbol.low, symbol.high))

    def truth(self, truth: Truth) -> Truth:
        """A condition."""
        if isinstance(truth, int):
            return truth
        atom = truth.atom
        if atom is None:
            parts = [self.truth(part) for part in truth.parts]
            if all(new is old for new, old in zip(parts, truth.parts, strict=True)):
                return truth
            return negate(parts[0]) if truth.word == "not" else self.evaluator.connect(truth.word, *parts)
        if atom.terms[-1][0].number < self.first:
            return truth
        if len(atom.terms) == 1 and (atom.terms[0][0].low, atom.terms[0][0].high) == (0, 1):
            found = self.boolean(atom.terms[0][0])
            if found is not None:
                allowed = [n for n in (0, 1) if atom.low <= n <= atom.high]
                return found if allowed == [1] else negate(found) if allowed == [0] else int(bool(allowed))
        form = self.value(Form(atom.terms))
        if isinstance(form, int):
            return int(atom.low <= form <= atom.high)
        low, high = whole(form)
        if low < 4 * LOW or high > 4 * HIGH:
            return is_true(self.evaluator.symbols.fresh("open", 0, 1))
        return between(form, atom.low, atom.high)

    def boolean(self, symbol: Symbol) -> Truth | None:
        """The replacement of a boolean symbol; None if it is a number or opaque."""
        key, evaluator = symbol.key, self.evaluator
        if symbol.number < self.first or not isinstance(key, tuple):
            return None
        if key[0] == "==":
            form = self.value(key[1])
            return int(form == 0) if isinstance(form, int) else evaluator.compared(Op.EQ, form, 0, self.facts)
        if key[0] in COMPARISONS:
            if isinstance(key[1], int | Form) and isinstance(key[2], int | Form):
                return evaluator.compared(key[0], self.value(key[1]), self.value(key[2]), self.facts)
            a, b = (self.truth(part) for part in key[1:])
            return evaluator.equal(key[0], a, b)
        if key[0] in ("and", "or"):
            return evaluator.connect(key[0], self.truth(key[1]), self.truth(key[2]))
        return None
