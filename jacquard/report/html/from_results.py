"""The report of tile programs: from `jacquard.results.Report`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from cosim.settings import MemorySettings
from hw.config import PORTS
from jacquard.program_run import ProgramResult
from jacquard.report.html.data import Check, OperatorRow, Run, RunReport, TensorRow
from jacquard.results import Report, Result
from sw.layout import Placement


def run_report(report: Report, title: str, settings: MemorySettings) -> RunReport:
    """What the page of a run shows; programs follow each other on one axis."""
    results = report.results
    runs = tuple(
        Run(r.name, r.job, r.predicted, r.observed, r.divergence, owner=i) for i, r in enumerate(results)
    )
    starts = itertools.accumulate((run.cycles for run in runs), initial=0)
    return RunReport(
        title=title,
        config=report.config,
        settings=settings,
        checks=checks(report),
        operators=tuple(_operator(r, at) for r, at in zip(results, starts, strict=False)),
        runs=runs,
        tensors=tuple(t for i, r in enumerate(results) for t in _tensors(r, i)),
        facts=facts(report),
    )


def checks(report: Report) -> tuple[Check, ...]:
    """What was compared: results, cycles, warps."""
    wrong = [_wrong(r) for r in report.results if not r.correct]
    values = sum(array.size for r in report.results for array in r.values.values())
    what = f"every value that the RTL left in memory against {report.reference}, bit for bit"
    return (
        Check("results", what, not wrong, values, "values", "\n".join(wrong)),
        *runs_checks(report.results),
    )


def runs_checks(results: Sequence[Result]) -> tuple[Check, Check]:
    """Cycles against the model, warps against the dependences."""
    diverging = [f"{r.name}: {r.divergence}" for r in results if r.divergence is not None]
    rejected = [
        "\n".join([f"{r.name}: {r.checked.reason}", *(f"  {line}" for line in r.checked.schedule)])
        for r in results
        if not r.checked.ok
    ]
    stored = sum(len(r.observed.stored) for r in results)
    return (
        Check(
            "cycles",
            "the cycle of every event of the RTL against the independent, event-driven model",
            not diverging,
            sum(len(r.observed.events) for r in results),
            "events" if not stored else f"events and {stored:,} stores of the grid",
            "\n".join(diverging),
        ),
        Check(
            "warps",
            "the warps' programs against the dependences of the sequential program",
            not rejected,
            sum(r.checked.dependences for r in results),
            "dependences",
            "\n".join(rejected),
        ),
    )


def _wrong(result: Result) -> str:
    error = result.observed.error
    if error is None:
        return f"{result.name}: {result.output} is not what it must be"
    cause = error.cause.name.lower()
    return f"{result.name}: the machine stopped with error {cause}, warp {error.warp}, pc {error.pc}"


def facts(report: Report) -> dict[str, str]:
    """How long it took, and by what."""
    speed = report.cycles / report.sim_seconds if report.sim_seconds else 0.0
    return {
        "simulator": report.sim or "unknown",
        "build": f"{report.build_seconds:.1f} s",
        "compilation": f"{report.compile_seconds:.2f} s",
        "cycle model": f"{report.model_seconds:.2f} s",
        "simulation": f"{report.sim_seconds:.1f} s ({speed:,.0f} cycles per second)",
    }


def _operator(result: Result, start: int) -> OperatorRow:
    return OperatorRow(
        name=result.name,
        op=result.op,
        start=start,
        end=start + result.observed.cycles,
        shape=result.shape.replace("x", "×"),
        where="array" if result.macs else "memory",
        macs=result.macs,
        bounds=result.bounds,
        moved=moved(result),
        ok=result.correct and result.divergence is None and result.checked.ok,
    )


def moved(result: Result) -> dict[str, int]:
    """Bytes by memory port: the words that passed on the RTL."""
    words = {port: result.observed.counters.get(f"{port.upper()}_WORDS", 0) for port in PORTS}
    return {port: count * result.config.port_bytes(port) for port, count in words.items() if count}


def _tensors(result: Result, number: int) -> list[TensorRow]:
    if isinstance(result, ProgramResult):
        return of_program(result, number)
    return []


def of_program(result: ProgramResult, number: int) -> list[TensorRow]:
    """The buffers in memory of a tile program."""
    bound = result.compiled.bound
    kinds = {name: "written" if name in bound.stored else "input" for name in bound.memory}
    return [_row(name, p, number, kinds[name]) for name, p in bound.memory.items()]


def _row(name: str, place: Placement, number: int, kind: str) -> TensorRow:
    return TensorRow(name, place.address, place.size, number, number, kind, str(place.dtype))
