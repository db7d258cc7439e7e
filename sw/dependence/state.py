"""What is known of scalars at a place of the text, with undo for branches."""

from __future__ import annotations

from dataclasses import dataclass, field

from sw.dependence.conditions import Condition
from sw.dependence.forms import NO_FACTS, Facts
from sw.dependence.scalars import Evaluator, Scalar


@dataclass
class Branched:
    """What a branch changed: the values of scalars, those before it or those at its end."""

    facts: Facts
    values: dict[str, Scalar | None] = field(default_factory=dict)
    dead: bool = False


@dataclass
class ScalarState:
    """The scalars of `evaluator`, and `facts` of the branches around; `dead`: no run gets here."""

    evaluator: Evaluator
    facts: Facts = field(default_factory=lambda: NO_FACTS)
    dead: bool = False
    before: list[Branched] = field(default_factory=list)

    def set_value(self, name: str, value: Scalar) -> None:
        """Change a scalar."""
        if self.before:
            self.before[-1].values.setdefault(name, self.evaluator.values.get(name))
        self.evaluator.values[name] = value

    def forget(self, name: str) -> None:
        """A name that has no value any more."""
        self.evaluator.values.pop(name, None)

    def open(self) -> None:
        """Begin a branch."""
        self.before.append(Branched(self.facts))

    def undo(self) -> Branched:
        """Take back what was done since `open`; what it led to is returned."""
        before = self.before.pop()
        after = Branched(self.facts, dead=self.dead)
        values = self.evaluator.values
        for name, old in before.values.items():
            after.values[name] = values.get(name)
            if old is None:
                values.pop(name, None)
            else:
                values[name] = old
        self.facts, self.dead = before.facts, False
        return after

    def merge(self, condition: Condition, first: Branched, second: Branched) -> None:
        """The phi node after two branches, the first taken where the condition holds."""
        self.dead = first.dead and second.dead
        values = self.evaluator.values
        if first.dead or second.dead:
            for name, value in (second if first.dead else first).values.items():
                if value is not None:
                    self.set_value(name, value)
            return
        for name in {**first.values, **second.values}:
            a, b = first.values.get(name, values.get(name)), second.values.get(name, values.get(name))
            # A scalar without value on one way has none that may be used.
            value = a if b is None else b if a is None else self.evaluator.either(condition, a, b)
            if value is not None:
                self.set_value(name, value)
