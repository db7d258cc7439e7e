"""A kernel: the loops of a function as launches of graphs, in execution order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from hw.fabric import Unit
from sw.dfg.graph import Graph, Value
from sw.dfg.transform import dead_code


def trips(count: Value, scalars: Mapping[str, int]) -> int:
    """Number of iterations given by a number or a scalar's name; never negative."""
    return max(0, count if isinstance(count, int) else scalars[count])


@dataclass(frozen=True)
class Launch:
    """One run of a loop: takes scalars by name, and sets those that the graph outputs."""

    graph: Graph
    count: Value

    @property
    def once(self) -> bool:
        """Whether it is straight-line code rather than a loop."""
        return self.count == 1

    @property
    def on_host(self) -> bool:
        """Whether it only computes scalars once, which the host does without the CGRA."""
        needed = any(self.graph.operation(n).unit is Unit.MEMORY for n in self.graph.nodes)
        return self.once and not needed and not self.graph.of_lanes


@dataclass(frozen=True)
class HostLoop:
    """A loop around launches; `variable` counts from 0."""

    variable: str
    count: Value
    body: tuple[Step, ...]


Step = Launch | HostLoop


@dataclass(frozen=True)
class Array:
    """An int32 array, and whether the kernel reads or writes it."""

    name: str
    read: bool
    written: bool


@dataclass(frozen=True)
class Kernel:
    """A compiled function.

    `iterations` is the name in the outermost `range()`, or None if that is a number. `scalars` are the other
    int32 parameters. `results` are the scalars returned, as names in the body or numbers.
    """

    name: str
    file: str
    arrays: tuple[Array, ...]
    scalars: tuple[str, ...]
    iterations: str | None
    body: tuple[Step, ...]
    results: tuple[Value, ...]

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All launches in program order."""
        return tuple(launches_in(self.body))

    @property
    def loops(self) -> tuple[Launch, ...]:
        """The launches that are loops: those that run on the CGRA."""
        return tuple(launch for launch in self.launches if not launch.once)


def launches_in(body: Iterable[Step]) -> Iterator[Launch]:
    """Yields all launches in program order."""
    for step in body:
        yield from (step,) if isinstance(step, Launch) else launches_in(step.body)


# Removal of dead code: outputs that nothing reads, launches without effect


def prune(body: tuple[Step, ...], results: tuple[Value, ...]) -> tuple[Step, ...]:
    """Removes outputs that no later launch, trip count or result reads."""
    return _live(body, {name for name in results if isinstance(name, str)})[0]


def _live(body: tuple[Step, ...], after: set[str]) -> tuple[tuple[Step, ...], set[str]]:
    """The steps that remain, and the names live before them."""
    kept: list[Step] = []
    for step in reversed(body):
        found: Step | None
        found, after = _launch(step, after) if isinstance(step, Launch) else _host_loop(step, after)
        if found is not None:
            kept.append(found)
    return tuple(reversed(kept)), after


def _launch(step: Launch, after: set[str]) -> tuple[Step | None, set[str]]:
    outputs = tuple(o for o in step.graph.outputs if o.name in after)
    graph = dead_code(replace(step.graph, outputs=outputs))
    if not graph.nodes:
        return None, after
    # A launch sets its outputs even if it runs no iteration.
    before = after - {o.name for o in outputs} | set(graph.scalars)
    return Launch(graph, step.count), before | _name(step.count)


def _host_loop(step: HostLoop, after: set[str]) -> tuple[Step | None, set[str]]:
    """What the next iteration reads is live at the end of this one."""
    end = after
    while True:
        inner, start = _live(step.body, end)
        start -= {step.variable}
        if start <= end:
            break
        end = end | start
    if not inner:
        return None, after
    return replace(step, body=inner), end | _name(step.count)


def _name(value: Value) -> set[str]:
    return {value} if isinstance(value, str) else set()
