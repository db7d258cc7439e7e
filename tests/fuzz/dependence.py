"""Measures the dependence analysis: nothing missing on random programs, its excess, and its cost.

    python -m tests.fuzz.dependence [--programs N] [--seed S] [--runs R] [--every E] [--sizes 100,...]

The interpreter runs random programs with random parameters and unknown addresses, or with all parameters if
there are at most --every choices. Half of the programs are analysed with as few comparisons as large programs
have ("few"). The excess is what the analysis reports and no run showed; part of it are dependences that the
sampled runs did not reach. Exit code 1 if a dependence of a run is missing, or if a fitted exponent of the
cost is above 1.3.
"""

from __future__ import annotations

import math
import random
import re
import resource
import sys
import time
from collections.abc import Callable

import click
from rich.console import Console
from rich.table import Table

from sw.dependence import analyse
from sw.dependence.walk import WalkBudget
from sw.ir.parse import parse_program
from tests.sw.dependence.oracle import compare
from tests.sw.random_tile_programs import NESTS, STRAIGHT, Knobs, random_program

#: Kinds of random programs.
KINDS = {
    "straight, exact": STRAIGHT,
    "nests, exact": NESTS,
    "inexact bounds": Knobs(unknown=0, predicates=0, branches=0, whiles=0, loops=0, scalars=0),
    "predicates": Knobs(inexact=0, unknown=0, loops=0, branches=0, predicates=0.5, scalars=0),
    "branches": Knobs(inexact=0, unknown=0, loops=0, branches=0.35, predicates=0, scalars=0),
    "loops of unknown length": Knobs(
        inexact=0, unknown=0, branches=0, predicates=0, loops=0.4, parametric=0.6
    ),
    "unknown addresses": Knobs(unknown=0.3, inexact=0, loops=0, branches=0, predicates=0),
    "everything": Knobs(),
}
#: Comparisons of a walk where there are few.
_FEW = (2, 8, 24)
_MOST_EXPONENT = 1.3


def soundness(programs: int, first: int, runs: int, every: int, console: Console) -> bool:
    """Compare with the interpreter; whether nothing was missing."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("programs", "walks", "number", "runs", "missing", "edges", "excess", "distances", "excess"):
        table.add_column(title, justify="left" if title in ("programs", "walks") else "right")
    good = True
    # Rounded up: at least as many as asked for.
    each = -(-programs // (2 * len(KINDS)))
    for name, knobs in KINDS.items():
        for way in ("as it is", "few"):
            edges = real = distances = real_distances = missing = number = ran = 0
            for seed in range(first, first + each):
                rng = random.Random(f"{name} {way} {seed}")
                program = random_program(rng, knobs)
                least = _FEW[seed % len(_FEW)]
                budget = WalkBudget(least, least) if way == "few" else None
                found = compare(program, rng, runs, steps=1000, every=every, budget=budget)
                number += 1
                ran += found.runs
                edges, real = edges + found.edges, real + found.real
                distances += found.distances
                real_distances += found.real_distances
                missing += bool(found.missing)
                if found.missing:
                    console.print(f"{name}, seed {seed}: {found.missing}\n{program}", markup=False)
            good = good and not missing
            table.add_row(
                name,
                way,
                f"{number:,}",
                f"{ran:,}",
                str(missing),
                f"{edges:,}",
                _excess(edges, real),
                f"{distances:,}",
                _excess(distances, real_distances),
            )
    console.print(table)
    return good


def _excess(found: int, real: int) -> str:
    return f"{100 * (found / real - 1):.1f} %" if real else ""


# Programs whose cost is measured: functions of the random generator, instructions, elements of a buffer.
Kind = Callable[[random.Random, int, int], list[str]]


def _access(rng: random.Random, size: int, offset: str = "", length: int = 64) -> str:
    start = rng.randrange(size - 200)
    plus = f"{offset} + " if offset else ""
    return f"{rng.choice('ab')}[{plus}{start}:{plus}{start + rng.randint(1, length)}]"


def _line(rng: random.Random, number: int, access: Callable[[], str], more: str = "") -> str:
    return f"I{number} = f(read={access()}, write={access()}{more})"


def straight(rng: random.Random, n: int, size: int) -> list[str]:
    """One after the other."""
    return [_line(rng, i, lambda: _access(rng, size)) for i in range(n)]


def branches(rng: random.Random, n: int, size: int) -> list[str]:
    """Branches of four instructions on each side."""
    lines = []
    for i in range(0, n, 8):
        for j in range(8):
            if j % 4 == 0:
                lines.append(f"if {rng.choice('pq')}:" if j == 0 else "else:")
            lines.append("    " + _line(rng, i + j, lambda: _access(rng, size)))
    return lines


def predicates(rng: random.Random, n: int, size: int) -> list[str]:
    """Half of the instructions under a predicate."""
    return [
        _line(rng, i, lambda: _access(rng, size), rng.choice(("", f", when={rng.choice('pq')}")))
        for i in range(n)
    ]


def loops(rng: random.Random, n: int, size: int) -> list[str]:
    """Loops of eight iterations around six instructions."""
    lines = []
    for i in range(0, n, 6):
        lines.append(f"for i{i} in range(8):")
        offset = f"8*i{i}"
        lines += ["    " + _line(rng, i + j, lambda o=offset: _access(rng, size, o, 8)) for j in range(6)]  # type: ignore[misc]
    return lines


def nests(rng: random.Random, n: int, size: int) -> list[str]:
    """Nests of eight by eight iterations around six instructions."""
    lines = []
    for i in range(0, n, 6):
        lines += [f"for i{i} in range(8):", f"    for j{i} in range(8):"]
        offset = f"16*i{i} + 2*j{i}"
        lines += [" " * 8 + _line(rng, i + j, lambda o=offset: _access(rng, size, o, 2)) for j in range(6)]  # type: ignore[misc]
    return lines


def one_loop(rng: random.Random, n: int, size: int) -> list[str]:
    """Everything in one loop of eight iterations."""
    lines = ["for i in range(8):"]
    return lines + ["    " + _line(rng, i, lambda: _access(rng, size, "8*i", 8)) for i in range(n)]


def tiles(rng: random.Random, n: int, size: int) -> list[str]:
    """Overlapping boxes of a matrix."""

    def access() -> str:
        row, column = 8 * rng.randrange(28), 8 * rng.randrange(28)
        return f"c[{row}:{row + 32}, {column}:{column + 24}]"

    return [_line(rng, i, access) for i in range(n)]


def inexact(rng: random.Random, n: int, size: int) -> list[str]:
    """A third of the accesses at an offset that is not known."""
    return [
        _line(rng, i, lambda: _access(rng, size, "x" if rng.random() < 0.3 else "", 16)) for i in range(n)
    ]


def _strided(rng: random.Random, more: str = "") -> str:
    """Within a window of 576 elements that moves by 64, or at a place that stays."""
    start, length = rng.randrange(512), rng.randint(1, 64)
    if rng.random() < 0.15:
        return f"c[{start % 192}:{start % 192 + 1 + length % 64}, 0:256]"
    return f"{rng.choice('ab')}[64*i{more} + {start}:64*i{more} + {start + length}]"


def long_loop(rng: random.Random, n: int, size: int) -> list[str]:
    """Everything in one loop of unknown length, a tenth under a predicate."""
    lines = ["for i in range(n):"]
    for i in range(n):
        more = ", when=p" if rng.random() < 0.1 else ""
        lines.append("    " + _line(rng, i, lambda: _strided(rng), more))
    return lines


def long_nest(rng: random.Random, n: int, size: int) -> list[str]:
    """Everything in two loops of unknown length within each other."""
    lines = ["for i in range(n):", "    for j in range(m):"]
    return lines + [" " * 8 + _line(rng, i, lambda: _strided(rng, " + 8*j")) for i in range(n)]


def inner_loops(rng: random.Random, n: int, size: int) -> list[str]:
    """Loops of eight iterations around six instructions each, in one loop of unknown length."""
    lines = ["for i in range(n):"]
    for i in range(0, n, 6):
        lines.append("    for j in range(8):")
        lines += [" " * 8 + _line(rng, i + j, lambda: _strided(rng, " + 8*j")) for j in range(6)]
    return lines


def short_loops(rng: random.Random, n: int, size: int) -> list[str]:
    """Loops of unknown length around three instructions each, one after the other."""
    lines = []
    for i in range(0, n, 3):
        lines.append(f"for i{i} in range(m):")
        offset = f"4*i{i}"
        lines += ["    " + _line(rng, i + j, lambda o=offset: _access(rng, size, o, 8)) for j in range(3)]  # type: ignore[misc]
    return lines


def mixed(rng: random.Random, n: int, size: int) -> list[str]:
    """About 48 instructions of each of the other kinds, in random order."""
    lines: list[str] = []
    for first in range(0, n, 48):
        kind = rng.choice((*COSTS[:-2], short_loops))
        text = "\n".join(kind(rng, min(48, n - first), size))
        numbered = re.sub(r"\b([Iij])(\d+)\b", lambda m, by=first: f"{m[1]}{int(m[2]) + by}", text)  # type: ignore[misc]
        lines += numbered.splitlines()
    return lines


#: Kinds of programs; those of long loops have large buffers.
COSTS = (straight, branches, predicates, loops, nests, one_loop, tiles, inexact, short_loops, mixed)
LONG = (long_loop, long_nest, inner_loops)
#: Elements of a buffer per instruction.
_ROOM: dict[Kind, int] = {short_loops: 20, mixed: 4}


def program_of(kind: Kind, n: int) -> str:
    """A program with that many instructions; its buffers grow with it."""
    size = 10_000_000 if kind in LONG else max(512, _ROOM.get(kind, 1) * n)
    body = "\n".join("    " + line for line in kind(random.Random(n), n, size))
    head = f"    a: Buffer[{size}]\n    b: Buffer[{size}]\n    c: Buffer[256, 256]\n"
    given = "p: bool, q: bool, x: int[0, 64], n: int[0, 100000], m: int[0, 100]"
    return f"@program\ndef cost({given}):\n{head}{body}\n"


def cost(sizes: list[int], console: Console) -> bool:
    """Measure seconds by number of instructions, and the most memory until then.

    Returns whether all fitted exponents are small enough.
    """
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("seconds for", *(f"{n:,}" for n in sizes), "exponent", "GB"):
        table.add_column(title, justify="left" if title == "seconds for" else "right")
    good = True
    for kind in (*COSTS, *LONG):
        seconds = []
        for n in sizes:
            program = parse_program(program_of(kind, n))
            start = time.process_time()
            analyse(program)
            seconds.append(time.process_time() - start)
        slope = _slope([math.log(n) for n in sizes], [math.log(s) for s in seconds])
        good = good and slope <= _MOST_EXPONENT
        # The most memory so far, that of the programs themselves included.
        peak = f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f}"
        table.add_row(kind.__name__.replace("_", " "), *(f"{s:.2f}" for s in seconds), f"{slope:.2f}", peak)
    console.print(table)
    return good


def _slope(x: list[float], y: list[float]) -> float:
    """Of the line with the least squares."""
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread if spread else 0.0


@click.command()
@click.option("--programs", default=20_000, show_default=True, help="Random programs.")
@click.option("--seed", default=0, show_default=True, help="The first seed.")
@click.option("--runs", default=8, show_default=True, help="Runs of each, with other parameters.")
@click.option("--sizes", default="100,1000,10000,100000", show_default=True, help="Instructions.")
@click.option("--every", default=64, show_default=True, help="Choices of parameters that are all run.")
def main(programs: int, seed: int, runs: int, every: int, sizes: str) -> None:
    """Print both tables."""
    console = Console(width=140)
    good = soundness(programs, seed, runs, every, console) if programs else True
    if sizes:
        console.print()
        good = cost([int(n) for n in sizes.split(",")], console) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
