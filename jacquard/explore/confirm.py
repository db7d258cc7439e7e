"""Points on the RTL: results bit by bit, events cycle by cycle, warps and configurations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import find_libpython

from cosim import toolchain
from cosim.backends import simulator
from cosim.settings import MemorySettings
from hw.config import MachineConfig
from hw.errors import InputError
from jacquard.explore.evaluate import LoadedModel
from jacquard.explore.results import Confirmation, Point
from jacquard.network_results import NetworkReport
from jacquard.network_run import run_network


def check_tools(sim: str) -> None:
    """Raise `InputError` where the tools that run the RTL are missing, before work is done for it."""
    if sim == "amaranth":
        return
    toolchain.find()
    if sim == "verilator" and find_libpython.find_libpython() is None:
        raise InputError(
            f"--sim verilator needs Python as a shared library, which {sys.executable} does not have: "
            "--sim cpp does without"
        )


def confirm(
    point: Point,
    config: MachineConfig,
    models: Sequence[LoadedModel],
    sim: str,
    progress: Callable[[str], None],
) -> Confirmation:
    """Run all models of a point on the RTL and compare.

    A run that breaks off does not hold either. Raises `InputError` for tools that are missing, or fail.
    """
    try:
        built = simulator(config, sim)
    except RuntimeError as error:
        raise InputError(f"--confirm: the RTL of point {point.number} cannot be built: {error}") from None
    events = cycles = 0
    differences: list[str] = []
    for model, known in zip(models, point.models, strict=True):
        settings = MemorySettings.of(config)
        try:
            report = run_network(
                model.network, config, settings, lambda: built, model.inputs, sim=sim, progress=progress
            )
        except RuntimeError as error:
            differences.append(f"{model.name}: the run broke off: {error}")
            continue
        events += report.events
        cycles += report.cycles
        found = _difference(report)
        if found is None and report.cycles != known.cycles:
            found = f"{report.cycles} cycles, not the {known.cycles} that were explored"
        if found is not None:
            differences.append(f"{model.name}: {found}")
    return Confirmation(point.number, not differences, events, cycles, "; ".join(differences) or None)


def _difference(report: NetworkReport) -> str | None:
    """The first thing that does not hold; None where the run is proven."""
    if report.proven:
        return None
    if report.first_wrong is not None:
        operator, how = report.first_wrong
        return f"{operator}: {how}"
    if report.first_divergence is not None:
        return str(report.first_divergence[1])
    if report.rejected is not None:
        return f"the checker does not accept the warps: {report.rejected[1].reason}"
    return f"configuration {report.unverified[0].name} does not mean its loop"


def chosen(ranks: Sequence[Sequence[Point]], count: int) -> list[Point]:
    """The best points: those of the front, evenly spread if there are too many, then the next ranks."""
    found: list[Point] = []
    for rank in ranks:
        left = count - len(found)
        if len(rank) > left:
            last = len(rank) - 1
            picked = [round(i * last / max(1, left - 1)) for i in range(left)]
            return found + [rank[i] for i in picked]
        found += rank
    return found
