"""The area model against synthesis: fit it, and measure its error on machines outside the fit.

    python -m bench.area --fit ecp5      # synthesise a spread of components, fit, write hw/area/ecp5.json
    python -m bench.area --fit xilinx
    python -m bench.area --fit-clock     # place and route whole machines, fit the clock of ECP5: hours
    python -m bench.area --fit ecp5 --kind issue --no-whole      # fit only what has changed
    python -m bench.area                 # whole machines, synthesised in one piece, beside their estimates
    python -m bench.area --judged 5      # the five smallest of these ten

Synthesis is cached; the first fit takes most of an hour on one core. Exit code 1 if the median error of a
resource is 10 % or more, or the worst 25 % or more.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track
from rich.table import Table

import hw.area
from hw.area.model import DEVICE, FAMILIES, LUTS, RESOURCES, features
from hw.area.parts import TOP, Part, parts, verilog
from hw.config import MachineConfig, load
from hw.emit import TOP as MACHINE
from hw.emit import verilog as machine_verilog
from hw.errors import InputError
from hw.fabric import preset_names
from hw.synthesis import DEVICES, Resources, place_and_route, synthesise
from hw.synthesis.tools import ToolError

Floats = npt.NDArray[np.float64]
T = TypeVar("T")
R = TypeVar("R")

#: Machines in one piece: those that measure the effect of joining parts, and those that judge the model.
JOINED, JUDGED = 4, 10
#: Presets that are placed and routed for the clock, beside the judging machines, and the largest fraction of
#: the device that these may use: beyond it, routing may not end.
PRESETS, MOST = ("test", "tiny"), 0.66
#: Kinds of parts that are one component of the RTL, and share their coefficients.
ALIKE = (("load_a", "load_b", "load_c"), ("buffer_a", "buffer_b", "scratchpad", "output_buffer"))
#: Kinds of parts that are smaller in a machine without CGRA or patches, which their features do not show:
#: they are fitted on machines that have both.
COMPLETE = ("host", "issue", "store")
#: Clock frequency that the flow requests of placement.
FREQUENCY_MHZ = 60.0


@dataclass(frozen=True)
class Sample:
    """A part of a machine to synthesise."""

    config: MachineConfig
    part: Part


def machines(seed: int, count: int, *, whole: bool = False) -> list[MachineConfig]:
    """Random machines; those synthesised in one piece (`whole`) are limited in size."""
    rng = random.Random(seed)
    made: list[MachineConfig] = []
    while len(made) < count:
        rows, cols = (rng.choice((4, 8, 16) if whole else (4, 8, 16, 32)) for _ in "rc")
        if rows * cols > (128 if whole else 512):
            continue
        grids = [
            "none",
            "mesh2x2",
            "torus2x2",
            "mixed4x4",
            "compact4x4",
            "mesh4x4",
            "torus4x4",
            "diagonal4x4",
        ]
        width = (4, 8, 16, 32) if whole else (4, 8, 16, 32, 64)
        kib = 1024
        values = {
            "rows": rows,
            "cols": cols,
            "buffer_a_bytes": rng.choice((4, 8, 16, 64)) * kib,
            "buffer_b_bytes": rng.choice((4, 8, 16, 64)) * kib,
            "acc_bytes": rng.choice((4, 16, 64)) * kib,
            "acc_banks": rng.choice((1, 2, 2, 4)),
            "scratch_bytes": rng.choice((16, 32, 64)) * kib,
            "out_bytes": rng.choice((16, 32, 64)) * kib,
            "load_a_bytes": rng.choice(width),
            "load_b_bytes": rng.choice(width),
            "load_c_bytes": rng.choice(width[:4]),
            "store_bytes": rng.choice(width[:4]),
            "warps": rng.choice((4, 6, 6, 8)),
            "registers": rng.choice((16, 32, 32)),
            "channels": rng.choice((8, 16, 32)),
            "channel_depth": rng.choice((8, 15, 63)),
            "imem_words": rng.choice((256, 1024, 4096)),
            "loop_depth": rng.choice((4, 6, 8)),
            "queue_depth": rng.choice((1, 2, 2, 3, 4, 8)),
            "windows": rng.choice((2, 4, 8)),
            "convolutions": len(made) % 3 > 0,
            "cgra": rng.choice(grids[:5] if whole else grids),
        }
        try:
            made.append(load("default", {"name": f"random{len(made)}", **values}))
        except InputError:
            continue
    return made


def candidates() -> list[MachineConfig]:
    """Machines from whose parts the fit chooses, in all sizes that are judged.

    They include CGRAs as they are and pipelined, and on one machine the fabrics whose kinds lack operations.
    """
    drawn = machines(1, 400, whole=True)
    drawn += [load("tiny", {"cgra": name}) for name in preset_names()]
    grids = [(c, c.cgra) for c in drawn if c.cgra is not None]
    return drawn + [c.replace(cgra=replace(grid, pipelined=not grid.pipelined)) for c, grid in grids]


def spread(kinds: Sequence[str], drawn: Sequence[MachineConfig], most: int) -> list[Sample]:
    """Parts of some kinds that lie far apart in features, more of them than the model has coefficients."""
    found = {tuple(p.features.values()): Sample(c, p) for c in drawn for p in parts(c) if p.kind in kinds}
    samples = list(found.values())
    points = np.array([[np.log2(1 + v) for v in s.part.features.values()] for s in samples])
    span = points.max(0) - points.min(0)
    points = points[:, span > 0] / span[span > 0]
    wanted = min(len(samples), 2 * points.shape[1] + 3, most)
    chosen = [int(points.sum(1).argmin())]
    distance = np.linalg.norm(points - points[chosen[0]], axis=1)
    while len(chosen) < wanted:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=1))
    return [samples[i] for i in chosen]


def fitted(samples: Sequence[Sample], amounts: Sequence[float]) -> dict[str, float]:
    """Non-negative coefficients of features that minimise the relative errors.

    If the computed number of block RAMs is right for most samples, it is used as it is.
    """
    from scipy.optimize import nnls

    right = [s.part.features.get("block_rams") == a > 0 for s, a in zip(samples, amounts, strict=True)]
    if 2 * sum(right) > len(right):
        return {"block_rams": 1.0}
    names = list(samples[0].part.features)
    matrix = np.array([[s.part.features[n] for n in names] for s in samples], float)
    wanted = np.array(amounts, float)
    weight = 1 / np.maximum(wanted, max(1.0, 0.05 * wanted.max()))
    solution, _ = nnls(matrix * weight[:, None], wanted * weight)
    return {n: float(f"{v:.5g}") for n, v in zip(names, solution, strict=True) if v > 1e-9}


def in_parallel(
    work: Callable[[T], R], items: Sequence[T], what: str, console: Console, workers: int
) -> list[R]:
    """Results for all items, in order; the tools run as separate processes."""
    with ThreadPoolExecutor(workers) as pool:
        results = pool.map(work, items)
        return list(track(results, what, len(items), console=console, transient=True))


def fit(family: str, console: Console, most: int, workers: int, only: Sequence[str]) -> None:
    """Fit the coefficients of a family and write them, kind by kind. Factors and clock stay as they are.

    With `only`, only the coefficients of these kinds of parts, and of kinds that share them, change.
    """
    drawn = candidates()
    kinds = sorted({p.kind for c in drawn for p in parts(c)})
    if unknown := set(only) - set(kinds):
        raise click.UsageError(f"--kind must be one of {', '.join(kinds)}, not {unknown.pop()}")
    alike = {kind: group for group in ALIKE for kind in group}
    groups = list(dict.fromkeys(alike.get(kind, (kind,)) for kind in only or kinds))
    table = Table(
        "part", "samples", *(f"{r}: median, worst %" for r in RESOURCES), title="errors on the fit's samples"
    )
    for group in groups:
        whole = [c for c in drawn if c.cgra is not None and c.convolutions]
        samples = spread(group, whole if group[0] in COMPLETE else drawn, most)

        def taken(s: Sample) -> Resources | None:
            try:
                made = verilog(s.config, s.part.kind, s.part.index)
                return synthesise(made, TOP, family, netlist=False).resources
            except ToolError as error:  # Yosys has bugs that a few shapes trigger
                console.print(f"{s.part.kind}, {dict(s.part.features)}: left out: {error}")
                return None

        tried = in_parallel(taken, samples, group[0], console, workers)
        known = [(s, f) for s, f in zip(samples, tried, strict=True) if f is not None]
        weights, cells = {}, []
        for r in RESOURCES:
            amounts = [getattr(f, r) for _, f in known]
            weights[r] = fitted([s for s, _ in known], amounts)
            errors = [
                abs(sum(w * s.part.features[n] for n, w in weights[r].items()) - a) / max(a, 1)
                for (s, _), a in zip(known, amounts, strict=True)
            ]
            cells.append(f"{100 * statistics.median(errors):.1f}, {100 * max(errors):.0f}")
        table.add_row(", ".join(group), str(len(known)), *cells)
        keep(family, kinds, dict.fromkeys(group, weights))
    console.print(table)


def keep(family: str, kinds: Sequence[str], weights: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Write the coefficients of some kinds of parts into the model of a family."""
    path = model_path(family)
    nothing: dict[str, Any] = {"coefficients": {}, "whole": dict.fromkeys(RESOURCES, 1.0), "clock": {}}
    values = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else nothing
    merged = values["coefficients"] | weights
    write(path, values | {"coefficients": {kind: merged[kind] for kind in kinds if kind in merged}})


def model_path(family: str) -> Path:
    """The model file of a family."""
    return Path(hw.area.__file__).with_name(f"{family}.json")


def clock(console: Console, workers: int) -> dict[str, float]:
    """Nanoseconds of the longest path per feature of a machine, from machines that are placed and routed."""
    drawn = [c for c in machines(3, JUDGED, whole=True) if hw.area.estimate(c).luts < MOST * LUTS]
    chosen = [*(load(name) for name in PRESETS), *drawn]

    def period(config: MachineConfig) -> float | None:
        try:
            netlist = synthesise(machine_verilog(config, trace=False), MACHINE, "ecp5")
            reached = place_and_route(netlist, DEVICES[DEVICE], FREQUENCY_MHZ).fmax_mhz
        except InputError as error:
            console.print(f"{config.name}: left out: {error}")
            return None
        return 1000 / reached if reached else None

    tried = in_parallel(period, chosen, "machines for the clock", console, workers)
    known = [(c, p) for c, p in zip(chosen, tried, strict=True) if p is not None]
    rows = [features(c, hw.area.estimate(c).luts) for c, _ in known]
    periods = np.array([p for _, p in known])
    weights = weighed(rows, periods)
    table = Table("machine", "array", "LUTs", "MHz: found", "fitted", "without it", title="clock")
    errors = []
    for i, ((config, found), row) in enumerate(zip(known, rows, strict=True)):
        without = weighed(rows[:i] + rows[i + 1 :], np.delete(periods, i))
        fitted, told = (sum(w * row[n] for n, w in ws.items()) for ws in (weights, without))
        errors.append(abs(found / told - 1))
        size = f"{config.rows}x{config.cols}"
        luts = f"{hw.area.estimate(config).luts:,}"
        table.add_row(config.name, size, luts, *(f"{1000 / ns:.1f}" for ns in (found, fitted, told)))
    console.print(table)
    median = 100 * statistics.median(errors)
    console.print(
        f"each told by the fit of all others: median error {median:.1f} %, worst {100 * max(errors):.1f} %"
    )
    return weights


def weighed(rows: Sequence[Mapping[str, float]], wanted: Floats) -> dict[str, float]:
    """Non-negative weights of features that minimise the relative errors of sums."""
    from scipy.optimize import nnls

    matrix = np.array([list(row.values()) for row in rows])
    solution, _ = nnls(matrix / wanted[:, None], np.ones(len(wanted)))
    return {n: float(f"{v:.4g}") for n, v in zip(rows[0], solution, strict=True) if v > 1e-9}


def whole(config: MachineConfig, family: str) -> Mapping[str, int]:
    """Resources of a machine synthesised in one piece."""
    found = synthesise(machine_verilog(config, trace=False), MACHINE, family).resources
    return {r: getattr(found, r) for r in RESOURCES}


def factors(family: str, console: Console, workers: int) -> dict[str, float]:
    """Factor from the sum of the parts to the whole, by resource: the median of some machines."""
    ratios: dict[str, list[float]] = {r: [] for r in RESOURCES}
    chosen = machines(2, JOINED, whole=True)
    made = in_parallel(lambda c: whole(c, family), chosen, "whole machines", console, workers)
    for config, found in zip(chosen, made, strict=True):
        estimated = hw.area.estimate(config, family)
        for r in RESOURCES:
            ratios[r].append(found[r] / max(1, getattr(estimated, r)))
    return {r: round(statistics.median(v), 4) for r, v in ratios.items()}


def judge(family: str, console: Console, workers: int, count: int) -> bool:
    """Print errors on the `count` smallest machines outside the fit; returns whether they are acceptable."""
    table = Table("machine", "array", "grid", *(f"{r}: found, estimated" for r in RESOURCES), title=family)
    errors: dict[str, list[float]] = {r: [] for r in RESOURCES}
    drawn = machines(3, JUDGED, whole=True)
    chosen = sorted(drawn, key=lambda c: hw.area.estimate(c, family).luts)[:count]
    made = in_parallel(lambda c: whole(c, family), chosen, "whole machines", console, workers)
    for config, found in zip(chosen, made, strict=True):
        estimated = hw.area.estimate(config, family)
        cells = []
        for r in RESOURCES:
            guess = getattr(estimated, r)
            errors[r].append(abs(guess - found[r]) / max(1, found[r]))
            cells.append(f"{found[r]:,} {guess:,} ({100 * (guess / max(1, found[r]) - 1):+.0f} %)")
        grid = config.cgra.name if config.cgra else "none"
        table.add_row(config.name, f"{config.rows}x{config.cols}", grid, *cells)
    console.print(table)
    good = True
    for r, values in errors.items():
        median, worst = statistics.median(values), max(values)
        good &= median < 0.10 and worst < 0.25
        console.print(f"{family} {r}: median error {100 * median:.1f} %, worst {100 * worst:.1f} %")
    return good


def write(path: Path, values: Mapping[str, object]) -> None:
    """Write the model of a family."""
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    hw.area.model.load.cache_clear()


@click.command()
@click.option("--fit", "to_fit", type=click.Choice(FAMILIES), help="Fit the model of a family and write it.")
@click.option("--family", type=click.Choice(FAMILIES), multiple=True, default=("ecp5",), show_default=True)
@click.option("--kind", multiple=True, help="Fit the parts of this kind alone; repeatable.")
@click.option("--samples", default=99, help="At most so many components of a kind for the fit.")
@click.option("--fit-clock", is_flag=True, help="Place and route whole machines, fit the clock and write it.")
@click.option(
    "--whole/--no-whole", "joined", default=True, help="Whether to synthesise machines in one piece."
)
@click.option("--judged", default=JUDGED, show_default=True, help="Judge by so many machines, the smallest.")
@click.option("--workers", default=2, show_default=True, help="Syntheses at a time.")
def main(
    to_fit: str | None,
    family: tuple[str, ...],
    kind: tuple[str, ...],
    samples: int,
    fit_clock: bool,
    joined: bool,
    judged: int,
    workers: int,
) -> None:
    """Fit the area model, or judge it."""
    console = Console(width=150)
    if to_fit:
        fit(to_fit, console, samples, workers, kind)
        if joined:
            path = model_path(to_fit)
            values = json.loads(path.read_text(encoding="utf-8"))
            write(path, values | {"whole": dict.fromkeys(RESOURCES, 1.0)})
            write(path, values | {"whole": factors(to_fit, console, workers)})
    if fit_clock:
        path = model_path("ecp5")
        values = json.loads(path.read_text(encoding="utf-8"))
        write(path, values | {"clock": clock(console, workers)})
    if to_fit or fit_clock:
        return
    raise SystemExit(not min(judge(f, console, workers, judged) for f in family))


if __name__ == "__main__":
    main()
