"""The report of a kernel on the grid: from `jacquard.grid_run.KernelResult`."""

from __future__ import annotations

from cosim.settings import MemorySettings
from jacquard.grid_run import KernelResult
from jacquard.report.html.data import Check, Kernel, OperatorRow, Run, RunReport
from jacquard.report.html.from_results import moved, of_program, runs_checks
from sw.cgra.search import SearchResult


def kernel_report(result: KernelResult, title: str, settings: MemorySettings) -> RunReport:
    """What the page of a kernel's run shows."""
    ran = result.result
    mapped = list(result.kernel.program.mapped.values())
    bounds = {name: cycles for name, cycles in ran.bounds.items() if cycles}
    operator = OperatorRow(
        name=ran.name,
        op="kernel",
        start=0,
        end=ran.observed.cycles,
        shape=ran.shape,
        where="grid",
        bounds=bounds,
        moved=moved(ran),
        ok=result.proven,
    )
    return RunReport(
        title=title,
        config=ran.config,
        settings=settings,
        checks=_checks(result, mapped),
        operators=(operator,),
        runs=(Run(ran.name, ran.job, ran.predicted, ran.observed, ran.divergence, owner=0),),
        kernels=tuple(kernel_of(each) for each in mapped),
        tensors=tuple(of_program(ran, 0)),
        facts={
            "build": f"{result.build_seconds:.1f} s",
            "mapping": f"{result.kernel.map_seconds:.2f} s",
            "cycle model": f"{result.kernel.prepared.model_seconds:.2f} s",
            "simulation": f"{ran.observed.seconds:.2f} s",
        },
    )


def kernel_of(mapped: SearchResult, used_by: tuple[str, ...] = ()) -> Kernel:
    """A configuration as it is drawn."""
    name, verified = mapped.graph.name, not mapped.differences
    return Kernel(name, mapped.found, mapped.bound, mapped.proved_minimal, verified, used_by)


def configurations_check(mapped: list[SearchResult]) -> Check:
    """Every bitstream, decoded, against its graph."""
    wrong = [f"{m.graph.name}: {text}" for m in mapped for text in m.differences]
    what = "every bitstream, decoded independently, against the graph of its loop"
    return Check("bitstreams", what, not wrong, len(mapped), "configurations", "\n".join(wrong))


def _checks(result: KernelResult, mapped: list[SearchResult]) -> tuple[Check, ...]:
    expected = result.kernel.expected
    values = sum(array.size for array in expected.arrays.values()) + len(expected.scalars)
    what = "every value of the RTL against what the function means, bit for bit"
    return (
        Check("results", what, result.correct, values, "values", result.difference or ""),
        *runs_checks([result.result]),
        configurations_check(mapped),
    )
