"""The state of the analysis: what every buffer may hold and what every scalar is, with undo for branches."""

from __future__ import annotations

from dataclasses import dataclass, field

from sw.dependence.cells import Joiner
from sw.dependence.conditions import Truth
from sw.dependence.forms import Facts
from sw.dependence.region_map import Node, join
from sw.dependence.scalars import Evaluator, Scalar


@dataclass
class Journal:
    """What was there before the first change since the journal was opened."""

    maps: dict[str, Node] = field(default_factory=dict)
    values: dict[str, Scalar | None] = field(default_factory=dict)
    facts: Facts = field(default_factory=dict)


@dataclass
class State:
    """What is known at a point of the program.

    `maps` holds one map per buffer, `facts` what the branches and loops around say. `dead`: no run gets here.
    """

    evaluator: Evaluator
    maps: dict[str, Node] = field(default_factory=dict)
    facts: Facts = field(default_factory=dict)
    dead: bool = False
    journals: list[Journal] = field(default_factory=list)

    def set_map(self, buffer: str, node: Node) -> None:
        """Change what a buffer may hold."""
        if self.journals:
            self.journals[-1].maps.setdefault(buffer, self.maps[buffer])
        self.maps[buffer] = node

    def set_value(self, name: str, value: Scalar) -> None:
        """Change a scalar."""
        if self.journals:
            self.journals[-1].values.setdefault(name, self.evaluator.values.get(name))
        self.evaluator.values[name] = value

    def forget(self, name: str) -> None:
        """A name that has no value any more."""
        self.evaluator.values.pop(name, None)

    def open(self) -> None:
        """Begin a branch."""
        self.journals.append(Journal(facts=self.facts))

    def undo(self) -> Branched:
        """Take back what was done since `open`; what it led to is returned."""
        journal = self.journals.pop()
        after = Branched({b: self.maps[b] for b in journal.maps}, {}, self.dead)
        self.maps.update(journal.maps)
        values = self.evaluator.values
        for name, old in journal.values.items():
            after.values[name] = values.get(name)
            if old is None:
                values.pop(name, None)
            else:
                values[name] = old
        self.facts, self.dead = journal.facts, False
        return after

    def take(self, after: Branched) -> None:
        """Go on from where a branch ended."""
        for buffer, node in after.maps.items():
            self.set_map(buffer, node)
        for name, value in after.values.items():
            if value is not None:
                self.set_value(name, value)
        self.dead = after.dead

    def merge(self, condition: Truth | None, first: Branched, second: Branched) -> None:
        """The phi node after two branches, the first taken where the condition holds."""
        if first.dead or second.dead:
            self.take(second if first.dead else first)
            return
        joiner = Joiner(condition)
        for buffer in {**first.maps, **second.maps}:
            here = self.maps[buffer]
            node = join(first.maps.get(buffer, here), second.maps.get(buffer, here), joiner)
            if node is not here:
                self.set_map(buffer, node)
        values = self.evaluator.values
        known = None if isinstance(condition, int) else condition
        for name in {**first.values, **second.values}:
            a, b = first.values.get(name, values.get(name)), second.values.get(name, values.get(name))
            # A scalar without value on one way has none that may be used.
            value = a if b is None else b if a is None else self.evaluator.either(known, a, b)
            if value is not None:
                self.set_value(name, value)


@dataclass
class Branched:
    """What a branch changed: maps and scalars at its end."""

    maps: dict[str, Node]
    values: dict[str, Scalar | None]
    dead: bool = False


def unchanged() -> Branched:
    """A branch in which nothing happens."""
    return Branched({}, {})
