"""Pages of results: what they show of a tile program, a model, a kernel on the grid."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosim.settings import MemorySettings
from heald.network_results import ModelRecord, OperatorResult, ProgramRun
from heald.program_run import ProgramResult
from heald.report.html.data import Kernel, OperatorRow, ProgramTimeline, RunReport, TensorRow, Tiling
from heald.report.html.render import write
from heald.results import Result, RunRecord, check, results_check, runs_checks

if TYPE_CHECKING:
    # The mapper behind it takes time to import.
    from heald.grid_run import KernelResult


def write_report(report: RunRecord, title: str, settings: MemorySettings, file: Path) -> None:
    """Write the page of a run on memories of such settings; raises `InputError` for a file that cannot be."""
    write(run_report(report, title, settings), file)


def run_report(report: RunRecord, title: str, settings: MemorySettings) -> RunReport:
    """What the page of a run shows; its programs follow each other on one axis."""
    made = RunReport(title, report.config, settings, report.checks, (), (), facts=_facts(report))
    if isinstance(report, ModelRecord):
        return _of_network(made, report)
    runs = tuple(_run(result, owner=i) for i, result in enumerate(report.results))
    starts = itertools.accumulate((run.cycles for run in runs), initial=0)
    return replace(
        made,
        operators=tuple(_program(r, at) for r, at in zip(report.results, starts, strict=False)),
        runs=runs,
        tensors=tuple(t for i, r in enumerate(report.results) for t in _buffers(r, i)),
    )


def kernel_report(result: KernelResult, title: str, settings: MemorySettings) -> RunReport:
    """What the page of a kernel's run shows."""
    ran, kernel = result.result, result.kernel
    mapped = list(kernel.program.mapped.values())
    bounds = {name: cycles for name, cycles in ran.bounds.items() if cycles}
    operator = replace(_program(ran, 0), op="kernel", where="grid", bounds=bounds, macs=0, ok=result.proven)
    values = sum(a.size for a in kernel.expected.arrays.values()) + len(kernel.expected.scalars)
    wrong = [f"{m.graph.name}: {text}" for m in mapped for text in m.differences]
    return RunReport(
        title=title,
        config=ran.config,
        settings=settings,
        checks=(
            results_check(
                "every value of the RTL against what the function means", result.difference or "", values
            ),
            *runs_checks([ran]),
            check(
                "bitstreams",
                "every bitstream, decoded independently, against the graph of its loop",
                wrong,
                len(mapped),
                "configurations",
            ),
        ),
        operators=(operator,),
        runs=(_run(ran, owner=0),),
        kernels=tuple(
            Kernel(m.graph.name, m.found, m.bound, m.proved_minimal, not m.differences) for m in mapped
        ),
        tensors=tuple(_buffers(ran, 0)),
        facts={
            "build": f"{result.build_seconds:.1f} s",
            "mapping": f"{kernel.map_seconds:.2f} s",
            "cycle model": f"{kernel.prepared.model_seconds:.2f} s",
            "simulation": f"{ran.observed.seconds:.2f} s",
        },
    )


def _facts(report: RunRecord) -> dict[str, str]:
    """How long it took, and by what."""
    speed = report.cycles / report.sim_seconds if report.sim_seconds else 0.0
    passes = report.seconds if isinstance(report, ModelRecord) else {}
    return {
        "simulator": report.sim or "unknown",
        "build": f"{report.build_seconds:.1f} s",
        "compilation": f"{report.compile_seconds:.2f} s",
        "cycle model": f"{report.model_seconds:.2f} s",
        "simulation": f"{report.sim_seconds:.1f} s ({speed:,.0f} cycles per second)",
        **{f"compilation: {name}": f"{seconds:.2f} s" for name, seconds in passes.items()},
    }


# Programs


def _run(result: Result, **owner: Any) -> ProgramTimeline:
    return ProgramTimeline(
        result.name, result.job, result.predicted, result.observed, result.divergence, **owner
    )


def _program(result: Result, start: int) -> OperatorRow:
    """A program as one row."""
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
        ok=result.correct and result.divergence is None and result.checked.ok,
    )


def _buffers(result: Result, number: int) -> Iterable[TensorRow]:
    """The buffers in memory of a tile program."""
    assert isinstance(result, ProgramResult)
    bound = result.compiled.bound
    for name, place in bound.memory.items():
        kind = "written" if name in bound.stored else "input"
        yield TensorRow(name, place.address, place.size, number, number, kind, str(place.dtype))


# Models


def _of_network(made: RunReport, report: ModelRecord) -> RunReport:
    """With the operators, configurations, tilings and tensors of a model."""
    operators = report.operators
    # The rows of each program's operators.
    rows = [[i for i, o in enumerate(operators) if o.program == n] for n in range(len(report.runs))]
    runs = [
        _run(run, owners={at: own[i] for at, i in run.program.operator_of.items()})
        for run, own in zip(report.runs, rows, strict=True)
    ]
    return replace(
        made,
        operators=tuple(_operator(o) for o in operators),
        runs=tuple(runs),
        # Those that were read from a directory have no mapping.
        kernels=tuple(
            Kernel(
                k.name,
                k.configured.mapping,
                k.bound,
                k.proved_minimal,
                k.verified,
                tuple(o.name for o in operators if any(own.words == k.words for own in o.kernels)),
            )
            for k in report.kernels
            if k.configured is not None
        ),
        tilings=tuple(
            Tiling(o.name, p.tiling, p.plan, (o.cycles, o.utilization), p.stays, (o.name,))
            for o in operators
            if (p := o.plan) is not None
        ),
        tensors=tuple(t for run, own in zip(report.runs, rows, strict=True) for t in _tensors(run, own)),
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
    )


def _tensors(run: ProgramRun, rows: Sequence[int]) -> Iterable[TensorRow]:
    """The tensors of a program whose operators are those rows."""
    last = len(rows) - 1
    for name, home in run.program.homes.items():
        ends = rows[min(max(home.first, 0), last)], rows[min(home.last, last)]
        yield TensorRow(name, home.address, home.size, *ends, home.kind.value, home.tensor.element)
