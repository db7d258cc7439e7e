"""A proof and its planted faults, as data."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from hw.formal.bench import Bench, Sabotage


class Method(enum.Enum):
    """The reach of a proof."""

    INDUCTION = "induction"  # all reachable states, at any distance from reset
    BOUNDED = "bounded"  # every run of at most `depth` cycles from reset


@dataclass(frozen=True)
class Fault:
    """A fault to plant, and the statement that must fail because of it within `depth` cycles."""

    name: str
    meaning: str
    breaks: str
    sabotage: Sabotage
    depth: int = 12


def planted(
    name: str, breaks: str, alter: Callable[..., object], depth: int = Fault.depth, replaces: str = ""
) -> Fault:
    """A fault at a component's ports, or in place of `replaces`; the docstring of `alter` describes it."""
    meaning = (alter.__doc__ or "").removesuffix(".")
    sabotage = Sabotage(replaced={replaces: alter}) if replaces else Sabotage(alter)  # type: ignore[arg-type]
    return Fault(name, meaning[:1].lower() + meaning[1:], breaks, sabotage, depth)


@dataclass(frozen=True)
class Proof:
    """Statements about one component, proved together.

    `statements` explains each name that `build` requires. `induction` is the length of the induction; if it
    is 0, all runs of `bounded` cycles from reset are searched instead. If an induction does not close, such a
    search (if `bounded` is not 0) shows whether a statement is wrong or only an invariant. `solver` names the
    solver that this proof needs, if the default for its method does not finish.
    """

    name: str
    title: str
    statements: dict[str, str]
    build: Callable[[Bench], None]
    faults: tuple[Fault, ...] = ()
    induction: int = 0
    bounded: int = 0
    solver: str = ""

    @property
    def method(self) -> Method:
        """How far it reaches."""
        return Method.INDUCTION if self.induction else Method.BOUNDED

    @property
    def depth(self) -> int:
        """Length of the induction, or cycles from reset."""
        return self.induction or self.bounded

    def bench(self, fault: Fault | None = None, *, bounded: bool = False) -> Bench:
        """The module to be proved; with a fault, only the statement that must fail."""
        if fault is None:
            bench = Bench(induction=self.method is Method.INDUCTION and not bounded)
            self.build(bench)
        else:
            bench = Bench(only=fault.breaks, sabotage=fault.sabotage)
            with fault.sabotage.applied():
                self.build(bench)
        assert set(bench.statements) == set(self.statements), (self.name, bench.statements)
        return bench
