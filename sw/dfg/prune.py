"""Leaves out of a kernel what nothing needs: outputs that nobody reads, and launches without effect."""

from __future__ import annotations

from dataclasses import replace

from sw.dfg.graph import Value
from sw.dfg.kernel import HostLoop, Launch, Step
from sw.dfg.transform import dead_code


def prune(body: tuple[Step, ...], results: tuple[Value, ...]) -> tuple[Step, ...]:
    """The same steps with only those outputs that a later launch, count or result reads by name."""
    return _live(body, {name for name in results if isinstance(name, str)})[0]


def _live(body: tuple[Step, ...], after: set[str]) -> tuple[tuple[Step, ...], set[str]]:
    """The steps that are left, and the names that must hold something before them."""
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
    return Launch(graph, step.count), before | _name(step.count.value)


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
    return replace(step, body=inner), end | _name(step.count.value)


def _name(value: Value) -> set[str]:
    return {value} if isinstance(value, str) else set()
