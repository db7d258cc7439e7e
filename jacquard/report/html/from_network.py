"""The report of a whole model: from `jacquard.network_results.NetworkReport`."""

from __future__ import annotations

from cosim.settings import MemorySettings
from jacquard.network_program import KernelFacts
from jacquard.network_results import NetworkReport, OperatorResult, ProgramRun
from jacquard.report.html.data import Check, Kernel, OperatorRow, Run, RunReport, TensorRow, Tiling
from jacquard.report.html.from_results import facts, runs_checks


def network_report(report: NetworkReport, title: str, settings: MemorySettings) -> RunReport:
    """What the page of a model's run shows; its programs follow each other on one axis."""
    operators = report.operators
    runs = report.runs
    return RunReport(
        title=title,
        config=report.config,
        settings=settings,
        checks=_checks(report),
        operators=tuple(_row(o) for o in operators),
        runs=tuple(_run(r, i, operators) for i, r in enumerate(runs)),
        kernels=tuple(_kernels(report, operators)),
        tilings=tuple(_tiling(o) for o in operators if o.plan is not None),
        tensors=tuple(t for i, r in enumerate(runs) for t in _tensors(r, i, operators)),
        facts=facts(report) | {f"compilation: {n}": f"{s:.2f} s" for n, s in report.seconds.items()},
    )


def _checks(report: NetworkReport) -> tuple[Check, ...]:
    wrong = report.first_wrong
    values = sum(a.size for r in report.runs for a in r.values.values()) + sum(
        a.size for a in report.found.values()
    )
    cycles, warps = runs_checks(report.results)
    bad = [f"{k.name}: {difference}" for k in report.unverified for difference in k.differences]
    found = [
        Check(
            "results",
            f"tensors that the RTL left in memory, and the outputs, against {report.reference}, bit for bit",
            report.correct,
            values,
            "values",
            f"{wrong[0]}: {wrong[1]}" if wrong else "",
        ),
        cycles,
        warps,
    ]
    if report.kernels:
        found.append(
            Check(
                "configurations",
                "the bitstreams of the grid, decoded again, against the loops that they were made from",
                not bad,
                len(report.kernels),
                "configurations",
                "\n".join(bad),
            )
        )
    return tuple(found)


def _row(operator: OperatorResult) -> OperatorRow:
    facts = operator.facts
    array = operator.macs > 0
    return OperatorRow(
        name=operator.name,
        op=operator.op,
        start=operator.start,
        end=operator.end,
        shape="×".join(map(str, operator.shape)),
        where=("array" if array else "grid") if operator.where == "machine" else operator.where,
        macs=operator.macs,
        bounds={name: cycles for name, cycles in operator.bounds.items() if cycles},
        moved=dict(facts.moved) if facts else {},
        nodes=operator.nodes,
        plan=_plan(operator),
        ok=operator.same is not False,
    )


def _tiling(operator: OperatorResult) -> Tiling:
    """How a product is cut."""
    plan = operator.plan
    assert plan is not None
    predicted = operator.cycles, operator.utilization
    return Tiling(operator.name, plan.tiling, plan.plan, predicted, plan.stays, (operator.name,))


def _plan(operator: OperatorResult) -> str:
    if operator.facts is None or not operator.facts.tile:
        return ""
    t = operator.facts.tile
    return f"{t['whole_rows']} × {t['whole_columns']} in tiles of {t['rows']} × {t['columns']}"


def _places(number: int, operators: list[OperatorResult]) -> list[int]:
    """The rows of a program's operators."""
    return [i for i, o in enumerate(operators) if o.program == number]


def _run(run: ProgramRun, number: int, operators: list[OperatorResult]) -> Run:
    rows = _places(number, operators)
    owners = {at: rows[own] for at, own in run.program.operator_of.items()}
    return Run(run.name, run.job, run.predicted, run.observed, run.divergence, owners=owners)


def _kernels(report: NetworkReport, operators: list[OperatorResult]) -> list[Kernel]:
    """Configurations with their mapping, which those that were read from a directory do not have."""

    def users(kernel: KernelFacts) -> tuple[str, ...]:
        return tuple(o.name for o in operators if any(k.words == kernel.words for k in o.kernels))

    return [
        Kernel(k.name, k.configured.mapping, k.bound, k.proved_minimal, k.verified, users(k))
        for k in report.kernels
        if k.configured is not None
    ]


def _tensors(run: ProgramRun, number: int, operators: list[OperatorResult]) -> list[TensorRow]:
    rows = _places(number, operators)
    end = len(rows) - 1
    return [
        TensorRow(
            name,
            h.address,
            h.size,
            rows[min(max(h.first, 0), end)],
            rows[min(h.last, end)],
            h.kind.value,
            h.tensor.element,
        )
        for name, h in run.program.homes.items()
    ]
