"""Random tile programs as warps: checked, under random schedules, on the RTL; and with every single change.

    python -m tests.fuzz.warps_random [--programs N] [--seed S] [--rtl N] [--mutated N]

Programs are of the kinds of `tests/sw/warps/random_programs.py`. Of every ten, one each is converted with
`obtained`, with `unique` (64 channels) and with `--unroll`, the others by default for the 16 channels of
`default`. Exit code 1 if the checker rejects anything, if a schedule gives another result, if RTL and model
or result differ, or if the checker accepts a change that some schedule breaks.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from cosim.backends import simulator
from cosim.session.driver import simulate
from cosim.session.tile_program import PreparedProgram, prepare
from cosim.session.warps import Warped, converted
from cosim.settings import MemorySettings
from hw.config import load
from hw.errors import InputError
from sw.check import Limits, compile_all
from sw.check.streams import run
from sw.check.trace import TooLongError, trace
from sw.ir.program import Program
from sw.warps.channels import Channels
from sw.warps.reduce import Reduction
from tests.sw.warps.mutations import Fate, Judge, Kind, mutations
from tests.sw.warps.random_programs import differs, drawn, runs

#: How many of twenty programs are of each kind.
SHARES = {"nests": 5, "control": 3, "everything": 4, "bindable": 3, "pipelines": 4, "long": 1}
#: Instruction memory is no limit here, and `unique` gets all the channels that a machine can have.
DEFAULT = load("default").replace(imem_words=16384)
MANY = DEFAULT.replace(channels=64)
TEST = load("test")
#: Programs that are changed: events of all warps together in one run, and values of the parameters, at most.
_EVENTS, _VALUES = 300, 16
#: All values of the parameters for which a program runs.
Values = Sequence[Mapping[str, int]]
#: What was changed, and what became of it.
Outcome = tuple[Kind, Fate]
#: Jobs of one simulation.
_BATCH = 50


@dataclass
class Tally:
    """What came of the programs of one kind or way."""

    count: int = 0
    refused: int = 0
    rejected: int = 0
    differs: int = 0
    schedules: int = 0
    channels: int = 0
    faults: list[str] = field(default_factory=list)


def converted_as(program: Program, way: str) -> Warped:
    """The warps of a program, one of four ways."""
    match way:
        case "obtained":
            return converted(program, DEFAULT, Reduction.OBTAINED)
        case "unique":
            return converted(program, MANY, channels=Channels.UNIQUE)
        case "--unroll":
            return converted(program, DEFAULT, unroll=True)
    return converted(program, DEFAULT)


def cases(programs: int, seed: int) -> Iterator[tuple[str, str, int, Program]]:
    """Kind, way, seed and program."""
    kinds = [kind for kind, share in SHARES.items() for _ in range(share)]
    ways = {0: "obtained", 1: "unique", 2: "--unroll"}
    for n in range(seed, seed + programs):
        rng = random.Random(n)
        kind = rng.choice(kinds)
        way = ways.get(n % 10, "default")
        if way == "--unroll" and kind == "long":
            way = "default"
        yield kind, way, n, drawn(kind, n)


def proved(
    kind: str, way: str, seed: int, program: Program, all_: Values, tally: Tally, progress: Console
) -> Warped | None:
    """Convert, check, and run under random schedules; None for what is not right."""
    tally.count += 1
    try:
        made = converted_as(program, way)
    except InputError as error:
        tally.refused += 1
        progress.print(f"{kind}, {way}, seed {seed}: refused: {error}", markup=False)
        return None
    tally.channels = max(tally.channels, made.channel_count)
    config = MANY if way == "unique" else DEFAULT
    if not made.verdict.ok:
        tally.rejected += 1
        fault = f"rejected: {made.verdict.reason}"
    else:
        values, schedules = (1, 1) if kind == "long" else (2, 3)
        some = random.Random(seed).sample(all_, min(values, len(all_)))
        tally.schedules += len(some) * schedules
        try:
            fault = differs(program, made.texts, config, some, schedules, seed) or ""
        except InputError as error:
            fault = str(error)
        if not fault:
            return made
        tally.differs += 1
    tally.faults.append(f"{kind}, {way}, seed {seed}: {fault}")
    progress.print(tally.faults[-1], markup=False)
    return None


def fits(program: Program, made: Warped, all_: Values) -> bool:
    """Whether all schedules of changed warps may be gone through."""
    if len(all_) > _VALUES:
        return False
    try:
        for v in all_:
            trace(program, v, _EVENTS // 2)
    except TooLongError:
        return False
    warps = compile_all(program, made.texts, Limits(DEFAULT.channels, DEFAULT.channel_depth))
    return all(sum(run(code, v).events.size for code in warps.values()) <= _EVENTS for v in all_)


def changed(
    case: str, program: Program, made: Warped, values: Values, counts: Counter[Outcome], progress: Console
) -> None:
    """Every single change to the warps of a program."""
    judge = Judge(program, DEFAULT, values)
    for what, where, texts in mutations(made.texts):
        found = judge.fate(texts)
        counts[what, found] += 1
        if found is not Fate.REJECTED:
            progress.print(f"{case}: {what.value} ({where}): {found.value}", markup=False)


def on_rtl(count: int, seed: int, sim: str, progress: Console) -> list[str]:
    """So many programs bound to loads and stores: what differs."""
    faults: list[str] = []
    machine = simulator(TEST, sim)
    ready: list[tuple[int, PreparedProgram]] = []
    number, done, cycles, events = seed, 0, 0, 0
    while done < count:
        while len(ready) < min(_BATCH, count - done):
            number += 1
            program = drawn("bindable", number)
            rng = random.Random(number)
            given = {name: np.array(v) for name, v in rng.choice(runs(program)).items()}
            settings = MemorySettings.of(TEST, stall_seed=number)
            try:
                ready.append((number, prepare(program, TEST, settings, given, seed=number)))
            except InputError as error:
                progress.print(f"RTL, seed {number}: refused: {error}", markup=False)
        for (which, p), result in zip(ready, simulate([p for _, p in ready], machine), strict=True):
            cycles += result.observed.cycles
            events += len(result.observed.events)
            if not (result.correct and result.divergence is None and p.compiled.verdict.ok):
                faults.append(f"RTL, seed {which}: correct {result.correct}, {result.divergence}")
                progress.print(faults[-1], markup=False)
        done += len(ready)
        ready.clear()
        progress.print(f"RTL: {done} programs, {cycles:,} cycles, {events:,} events", markup=False)
    return faults


@click.command()
@click.option("--programs", default=500, show_default=True, help="Programs that are converted and checked.")
@click.option("--seed", default=0, show_default=True)
@click.option("--rtl", default=20, show_default=True, help="Programs that run on the RTL.")
@click.option("--mutated", default=100, show_default=True, help="Results of which every change is tried.")
@click.option("--sim", default="cpp", show_default=True, type=click.Choice(["verilator", "cpp"]))
def main(programs: int, seed: int, rtl: int, mutated: int, sim: str) -> None:
    """Measure the conversion to warps on random programs."""
    console = Console(width=140)
    begin = time.perf_counter()
    tallies: dict[tuple[str, str], Tally] = {}
    counts: Counter[Outcome] = Counter()
    tried = 0
    for kind, way, number, program in cases(programs, seed):
        tally = tallies.setdefault((kind, way), Tally())
        all_ = runs(program)
        made = proved(kind, way, number, program, all_, tally, console)
        if made is None or way != "default" or tried >= mutated or len(made.texts) < 2:
            continue
        if fits(program, made, all_):
            tried += 1
            changed(f"{kind}, seed {number}", program, made, all_, counts, console)
    _table_of_programs(console, tallies)
    if tried:
        _table_of_changes(console, counts, tried)
    faults = [f for t in tallies.values() for f in t.faults]
    faults += on_rtl(rtl, seed, sim, console) if rtl else []
    missed = sum(n for (_, found), n in counts.items() if found is Fate.MISSED)
    console.print(f"{time.perf_counter() - begin:,.0f} s")
    raise SystemExit(bool(faults or missed))


def _table_of_programs(console: Console, tallies: dict[tuple[str, str], Tally]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("kind", "way", "programs", "refused", "rejected", "schedules", "differ", "most channels"):
        table.add_column(title, justify="left" if title in ("kind", "way") else "right")
    for (kind, way), t in sorted(tallies.items()):
        numbers = (t.count, t.refused, t.rejected, t.schedules, t.differs, t.channels)
        table.add_row(kind, way, *(f"{n:,}" for n in numbers))
    all_ = list(tallies.values())
    sums = (
        sum(getattr(t, f) for t in all_) for f in ("count", "refused", "rejected", "schedules", "differs")
    )
    table.add_row("all", "", *(f"{n:,}" for n in sums), str(max((t.channels for t in all_), default=0)))
    console.print(table)


def _table_of_changes(console: Console, counts: Counter[Outcome], tried: int) -> None:
    console.print(f"every single change to {tried:,} results:")
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("change")
    for title in ("number", *(f.value for f in Fate)):
        table.add_column(title, justify="right")
    for kind in Kind:
        row = [counts[kind, f] for f in Fate]
        table.add_row(kind.value, *(f"{n:,}" for n in (sum(row), *row)))
    console.print(table)


if __name__ == "__main__":
    main()
