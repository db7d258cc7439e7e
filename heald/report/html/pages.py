"""Builds report pages from results of tile programs, models, and kernels of the CGRA."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cosim import energy
from cosim.session.operators import OperatorResult, ProgramRun
from cosim.session.results import Result
from cosim.session.tile_program import ProgramResult
from cosim.session.usage import fill, operations
from heald.report.html.data import Kernel, OperatorRow, ProgramTimeline, RunReport, TensorRow, Tiling

if TYPE_CHECKING:
    # This imports the mapper, which takes time.
    from cosim.session.kernel import KernelResult
    from cosim.session.machine_program import KernelFacts


def of_programs(page: RunReport, results: Sequence[Result]) -> RunReport:
    """A page with tile programs, which follow each other on one axis."""
    runs = tuple(_run(result, owner=i) for i, result in enumerate(results))
    starts = itertools.accumulate((run.cycles for run in runs), initial=0)
    return replace(
        page,
        operators=tuple(_program(r, at) for r, at in zip(results, starts, strict=False)),
        runs=runs,
        tensors=tuple(t for i, r in enumerate(results) for t in _buffers(r, i)),
    )


def of_kernel(page: RunReport, result: KernelResult) -> RunReport:
    """A page with a kernel of the CGRA."""
    bounds = {name: cycles for name, cycles in result.bounds.items() if cycles}
    operator = replace(_program(result, 0), op="kernel", where="grid", bounds=bounds, macs=0)
    return replace(
        page,
        operators=(operator,),
        runs=(_run(result, owner=0),),
        kernels=tuple(
            Kernel(m.graph.name, m.found, m.bound, m.proved_minimal, not m.differences)
            for m in result.configurations
        ),
        tensors=tuple(_buffers(result, 0)),
    )


def _run(result: Result, **owner: Any) -> ProgramTimeline:
    return ProgramTimeline(
        result.name, result.job, result.predicted, result.observed, result.divergence, **owner
    )


def _program(result: Result, start: int) -> OperatorRow:
    words = {port: count for port, count in result.memory_words.items() if count}
    return OperatorRow(
        name=result.name,
        op=result.op,
        start=start,
        end=start + result.observed.cycles,
        shape=result.shape.replace("x", "×"),
        where="array" if result.macs else "memory",
        macs=result.macs,
        bounds=result.bounds,
        moved={port: count * result.config.port_bytes(port) for port, count in words.items()},
        ok=result.verified,
        cycles=result.cycles,
        causes=result.causes,
        utilization=result.utilization,
    )


def _buffers(result: Result, number: int) -> Iterable[TensorRow]:
    assert isinstance(result, ProgramResult)
    bound = result.compiled.bound
    for name, place in bound.memory.items():
        kind = "written" if name in bound.stored else "input"
        yield TensorRow(name, place.address, place.size, number, number, kind, str(place.dtype))


def of_model(
    page: RunReport,
    results: Sequence[ProgramRun],
    operators: Sequence[OperatorResult],
    kernels: Sequence[KernelFacts],
) -> RunReport:
    """A page with the operators, configurations, tilings and tensors of a model."""
    # The rows of each program's operators.
    rows = [[i for i, o in enumerate(operators) if o.program == n] for n in range(len(results))]
    runs = [
        _run(run, owners={at: own[i] for at, i in run.program.operator_of.items()})
        for run, own in zip(results, rows, strict=True)
    ]
    table, energies, fills = energy.read(None), Counter[str](), Counter[str]()
    used: dict[int, dict[str, Any]] = {}
    for run, own in zip(results, rows, strict=True):
        whole, each = fill(run.program)
        fills |= Counter(whole)
        energies.update(energy.spent(table, run.program, run.observed))
        used |= {
            i: {"fill": f, "operations": n}
            for i, f, n in zip(own, each, operations(run.program), strict=True)
        }
    return replace(
        page,
        operators=tuple(replace(_operator(o), **used.get(i, {})) for i, o in enumerate(operators)),
        runs=tuple(runs),
        fill=fills,
        energy=energies,
        energy_source=table.source,
        # Configurations read from a directory have no mapping.
        kernels=tuple(
            Kernel(
                k.name,
                k.configured.mapping,
                k.bound,
                k.proved_minimal,
                k.verified,
                tuple(o.name for o in operators if any(own.words == k.words for own in o.kernels)),
            )
            for k in kernels
            if k.configured is not None
        ),
        tilings=tuple(
            Tiling(o.name, p.tiling, p.plan, (o.cycles, o.utilization), p.stays, (o.name,))
            for o in operators
            if (p := o.plan) is not None
        ),
        tensors=tuple(t for run, own in zip(results, rows, strict=True) for t in _tensors(run, own)),
    )


def _operator(operator: OperatorResult) -> OperatorRow:
    facts = operator.facts
    tile = facts.tile if facts else {}
    return OperatorRow(
        name=operator.name,
        op=operator.op,
        start=operator.start,
        end=operator.end,
        shape="×".join(map(str, operator.shape)),
        where=operator.where if operator.where != "machine" else "array" if operator.macs else "grid",
        macs=operator.macs,
        bounds={name: cycles for name, cycles in operator.bounds.items() if cycles},
        moved=dict(facts.moved) if facts else {},
        nodes=operator.nodes,
        plan="{whole_rows} × {whole_columns} in tiles of {rows} × {columns}".format(**tile) if tile else "",
        ok=operator.same is not False,
        cycles=operator.cycles,
        causes=operator.causes,
        utilization=operator.utilization,
    )


def _tensors(run: ProgramRun, rows: Sequence[int]) -> Iterable[TensorRow]:
    """The tensors of a program whose operators have these rows."""
    last = len(rows) - 1
    for name, home in run.program.homes.items():
        ends = rows[min(max(home.first, 0), last)], rows[min(home.last, last)]
        yield TensorRow(name, home.address, home.size, *ends, home.kind.value, home.tensor.element)
