"""Measures the time and quality of tiling plans, against an exhaustive search and ZigZag.

    python -m bench.tiling [--every N] [--zigzag N] [--lpf N]

The problems are all products of a BERT-large layer at three sequence lengths, the distinct convolutions of
ResNet-50, and random shapes, on machines with buffers of 2 KiB to 1 MiB and equal and unequal bandwidths.
Every N-th is searched exhaustively. Exit code 1 if a search finds anything better than the plan.

ZigZag (PyPI: zigzag-dse) searches mappings for any memory hierarchy. It gets the first N of a few products on
the same machine: the array with a register per cell, buffers for A and B, an accumulator, and memory behind a
port each for A and B. How often its mapping loads A and B is put into the planner's cost.
"""

from __future__ import annotations

import itertools
import logging
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from bench.exhaustive import Found, search, search_fast
from sw.tiling.cost import cost, times
from sw.tiling.plan import TilingPlan, plan
from sw.tiling.problem import TilingProblem, convolution_of

T = TypeVar("T")

#: Hidden size, head size, feed-forward size; sequence lengths.
HIDDEN, HEAD, FFN, SEQUENCES = 1024, 64, 4096, (128, 384, 512)

#: The distinct convolutions of ResNet-50 (stride in the 3x3): channels, edge, kernels, their edge, stride.
RESNET50 = (
    (3, 224, 64, 7, 2),
    (64, 56, 64, 1, 1),
    (64, 56, 64, 3, 1),
    (64, 56, 256, 1, 1),
    (256, 56, 64, 1, 1),
    (256, 56, 128, 1, 1),
    (128, 56, 128, 3, 2),
    (128, 28, 512, 1, 1),
    (256, 56, 512, 1, 2),
    (512, 28, 128, 1, 1),
    (128, 28, 128, 3, 1),
    (512, 28, 256, 1, 1),
    (256, 28, 256, 3, 2),
    (256, 14, 1024, 1, 1),
    (512, 28, 1024, 1, 2),
    (1024, 14, 256, 1, 1),
    (256, 14, 256, 3, 1),
    (1024, 14, 512, 1, 1),
    (512, 14, 512, 3, 2),
    (512, 7, 2048, 1, 1),
    (1024, 14, 2048, 1, 2),
    (2048, 7, 512, 1, 1),
    (512, 7, 512, 3, 1),
)

#: One of this many array-searched problems is also searched one choice at a time.
PLAIN = 20

BUFFERS = tuple(1 << e for e in range(11, 21))
BANDWIDTHS = ((32, 32), (8, 32), (32, 8), (12.5, 64))
MACHINE: dict[str, Any] = {
    "elem_bytes": 1,
    "acc_elem_bytes": 4,
    "block_m": 16,
    "block_n": 16,
    "sync_granularity": 16,
}


def bert_shapes() -> list[tuple[int, int, int]]:
    """The products (m, k, n) of a BERT-large layer: projections, feed-forward, attention of one head."""
    return [
        shape
        for s in SEQUENCES
        for shape in (
            (s, HIDDEN, HIDDEN),
            (s, HIDDEN, FFN),
            (s, FFN, HIDDEN),
            (s, HEAD, s),
            (s, s, HEAD),
        )
    ]


def bert() -> Iterator[TilingProblem]:
    """Every product, buffer and bandwidth, and two accumulators; buffer B as large as A, or an eighth."""
    for (m, k, n), buf_a, part, (bw_a, bw_b), acc in itertools.product(
        bert_shapes(), BUFFERS, (1, 8), BANDWIDTHS, (1 << 14, 1 << 17)
    ):
        yield TilingProblem(
            **MACHINE,
            m=m,
            k=k,
            n=n,
            bw_a=bw_a,
            bw_b=bw_b,
            buf_a=buf_a,
            buf_b=buf_a // part,
            acc_max=acc,
            macs_per_cycle=256,
        )


def resnet() -> Iterator[TilingProblem]:
    """Every convolution, buffer and bandwidth, and two accumulators; every second one writes slowly."""
    settings = itertools.product(RESNET50, BUFFERS, BANDWIDTHS, (1 << 14, 1 << 17))
    for number, ((ic, edge, oc, kernel, stride), buf, (bw_a, bw_b), acc) in enumerate(settings):
        yield TilingProblem(
            **MACHINE,
            conv=convolution_of(
                sn=1, ic=ic, h=edge, w=edge, oc=oc, kh=kernel, kw=kernel, stride=stride, pad=kernel // 2
            ),
            bw_a=bw_a,
            bw_b=bw_b,
            buf_a=buf,
            buf_b=buf,
            acc_max=acc,
            macs_per_cycle=256,
            write_b=None if number // 2 % 2 else 64,
        )


def drawn(count: int = 2000, seed: int = 0) -> Iterator[TilingProblem]:
    """Random products and machines."""
    r = random.Random(seed)
    for _ in range(count):
        yield TilingProblem(
            m=round(2 ** r.uniform(0, 11)),
            k=round(2 ** r.uniform(0, 13)),
            n=round(2 ** r.uniform(0, 11)),
            elem_bytes=r.choice([1, 2, 4]),
            acc_elem_bytes=r.choice([2, 4]),
            bw_a=r.choice([4, 8, 12.5, 32, 64]),
            bw_b=r.choice([4, 8, 12.5, 32, 64]),
            buf_a=round(2 ** r.uniform(11, 20)),
            buf_b=round(2 ** r.uniform(11, 20)),
            acc_max=round(2 ** r.uniform(12, 20)),
            macs_per_cycle=r.choice([64, 256, 1024, 4096]),
            block_m=r.choice([8, 16, 32]),
            block_n=r.choice([8, 16, 32]),
            sync_granularity=r.choice([1, 16, 64]),
        )


def large() -> Iterator[TilingProblem]:
    """Products with 65536 along every axis and blocks of one: the largest number of choices."""
    for buf, acc, macs in itertools.product((1 << 10, 1 << 16, 1 << 20), (1 << 12, 1 << 20), (64, 4096)):
        yield TilingProblem(
            **MACHINE | {"block_m": 1, "block_n": 1},
            m=65536,
            k=65536,
            n=65536,
            bw_a=32,
            bw_b=32,
            buf_a=buf,
            buf_b=buf,
            acc_max=acc,
            macs_per_cycle=macs,
        )


#: Problems by name, and whether their search takes hours.
SETS: dict[str, tuple[Callable[[], Iterator[TilingProblem]], bool]] = {
    "BERT-large": (bert, True),
    "ResNet-50": (resnet, True),
    "random": (drawn, True),
    "65536, blocks of 1": (large, False),
}


def ticks(problem: TilingProblem, planned: TilingPlan) -> int:
    """The exact time of a plan."""
    return cost(problem, planned.partition_m, planned.partition_n, planned.partition_k, planned.order).ticks


def timed(function: Callable[[TilingProblem], T], problem: TilingProblem, repeat: int = 1) -> tuple[float, T]:
    """Microseconds of the fastest of some calls, and the result of the last."""
    best, result = float("inf"), None
    for _ in range(repeat):
        begin = time.perf_counter()
        result = function(problem)
        best = min(best, time.perf_counter() - begin)
    assert result is not None
    return 1e6 * best, result


def measure(every: int) -> tuple[Table, int]:
    """Times of plans and searches, and how many plans a search beats."""
    table = Table(
        "problems",
        "plans",
        "median",
        "95 %",
        "max",
        "searched with arrays",
        "median",
        "/ plan",
        "one by one",
        "median",
        "/ plan",
        "plans beaten",
        title="microseconds per plan, and per exhaustive search",
    )
    all_beaten = 0
    for name, (make, searchable) in SETS.items():
        problems = list(make())
        plans: list[float] = []
        # By kind of search: its time, and that as a multiple of the plan's.
        searches: dict[Callable[[TilingProblem], Found], list[tuple[float, float]]]
        searches = {search_fast: [], search: []}
        beaten = 0
        for number, problem in enumerate(problems):
            microseconds, planned = timed(plan, problem, 3)
            plans.append(microseconds)
            for function, step in ((search_fast, every), (search, PLAIN * every)):
                if searchable and number % step == 0:
                    longer, found = timed(function, problem)
                    searches[function].append((longer, longer / microseconds))
                    beaten += found.ticks < ticks(problem, planned)
        plans.sort()
        row = [len(plans), statistics.median(plans), plans[int(0.95 * len(plans))], plans[-1]]
        for taken in searches.values():
            row += [len(taken), *(statistics.median(x) for x in zip(*taken, strict=True))] if taken else [0]
            row += [] if taken else [float("nan")] * 2
        row.append(beaten)
        table.add_row(name, *("-" if x != x else f"{x:,.0f}" for x in row))
        all_beaten += beaten
    return table, all_beaten


#: Questions to ZigZag: product, bytes per cycle of A and B, bytes of each buffer, of the accumulator.
QUESTIONS = (
    ((512, 64, 512), (2, 4), 2048, 16384),
    ((512, 512, 64), (4, 1), 4096, 4096),
    ((384, 1024, 1024), (2, 4), 8192, 16384),
    ((512, 1024, 4096), (4, 4), 16384, 65536),
    ((512, 1024, 4096), (2, 2), 8192, 16384),
    ((512, 4096, 1024), (1, 8), 16384, 16384),
)
EDGE = 16
#: Bits per cycle of ports that must not limit, and of the port by which partial sums would return.
WIDE, NARROW = 1 << 20, 8


def compare_with_zigzag(count: int, lpf: int) -> Table | None:
    """Time and cycles of plans beside ZigZag's; None, with a note on stderr, if it is not installed."""
    try:
        from zigzag.api import get_hardware_performance_zigzag  # type: ignore[import-not-found]
    except ImportError as error:
        click.echo(
            f"ZigZag is left out ({error}). It needs an environment of its own: python -m venv zigzag && "
            "zigzag/bin/pip install -e . zigzag-dse six && zigzag/bin/python -m bench.tiling",
            err=True,
        )
        return None
    table = Table(
        "product",
        "plan, µs",
        "ZigZag, s",
        "ZigZag / plan",
        "loads A, B: plan",
        "ZigZag",
        "cycles: plan",
        "ZigZag's mapping, same cost",
        "ZigZag's own latency",
        "its sums re-read",
        title=f"beside ZigZag (loma, at most {lpf} loop factors, for latency)",
    )
    logging.disable(logging.WARNING)
    for (m, k, n), (bw_a, bw_b), buf, acc in QUESTIONS[:count]:
        problem = TilingProblem(
            **MACHINE,
            m=m,
            k=k,
            n=n,
            bw_a=bw_a,
            bw_b=bw_b,
            buf_a=buf,
            buf_b=buf,
            acc_max=acc,
            macs_per_cycle=EDGE * EDGE,
        )
        microseconds, planned = timed(plan, problem, 20)
        with tempfile.TemporaryDirectory() as directory:
            files = _zigzag_files(problem, Path(directory))
            begin = time.perf_counter()
            _, latency, found = get_hardware_performance_zigzag(
                *files,
                opt="latency",
                dump_folder=directory,
                lpf_limit=lpf,
                loma_show_progress_bar=False,
            )
            seconds = time.perf_counter() - begin
        loads_a, loads_b, again = _zigzag_loads(found[0][1][0][0], problem)
        t = times(problem)
        same = max(t.gemm, loads_a * t.load_a, loads_b * t.load_b) / t.unit
        table.add_row(
            f"{m}x{k}x{n}",
            f"{microseconds:,.0f}",
            f"{seconds:.2f}",
            f"{1e6 * seconds / microseconds:,.0f}",
            f"{planned.loads_a}, {planned.loads_b}",
            f"{loads_a:g}, {loads_b:g}",
            f"{planned.cycles:,.0f}",
            f"{same:,.0f}",
            f"{latency:,.0f}",
            f"{again:.0%}",
        )
    logging.disable(logging.NOTSET)
    return table


def _zigzag_files(p: TilingProblem, directory: Path) -> tuple[list[dict[str, Any]], str, str]:
    """The product, and files that describe the machine and the array's use: m along one edge, n the other."""
    import yaml  # type: ignore[import-untyped]

    def port(name: str, kind: str, bits: int, *uses: str) -> dict[str, Any]:
        width = {"bandwidth_min": bits, "bandwidth_max": bits}
        return {"name": name, "type": kind, **width, "allocation": list(uses)}

    def memory(size: int, operands: str, served: str, *ports: dict[str, Any]) -> dict[str, Any]:
        cost = {"r_cost": 1.0, "w_cost": 1.0, "area": 0.0, "latency": 1}
        about = {"operands": operands.split(), "ports": list(ports), "served_dimensions": served.split()}
        return {"size": 8 * size, **cost, **about}

    def both(read: int, write: int) -> list[dict[str, Any]]:
        return [
            port("r_port_8", "read", read, "O, tl"),
            port("r_port_9", "read", WIDE, "O, th"),
            port("w_port_8", "write", WIDE, "O, fh"),
            port("w_port_9", "write", write, "O, fl"),
        ]

    bits_a, bits_b = int(8 * p.bw_a), int(8 * p.bw_b)
    a, b = port("r_port_1", "read", WIDE, "I1, tl"), port("r_port_1", "read", WIDE, "I2, tl")
    sides = "D1 D2"
    memories = {
        "cell": memory(p.acc_elem_bytes, "O", "", *both(8 * p.acc_elem_bytes, 8 * p.acc_elem_bytes)),
        "buf_a": memory(p.buf_a, "I1", sides, port("w_port_1", "write", bits_a, "I1, fh"), a),
        "buf_b": memory(p.buf_b, "I2", sides, port("w_port_1", "write", bits_b, "I2, fh"), b),
        "acc": memory(p.acc_max, "O", sides, *both(WIDE, WIDE)),
        "memory": memory(
            1 << 40,
            "I1 I2 O",
            sides,
            port("r_port_1", "read", bits_a, "I1, tl"),
            port("r_port_2", "read", bits_b, "I2, tl"),
            port("w_port_1", "write", WIDE, "I1, fh", "I2, fh"),
            *both(NARROW, WIDE),
        ),
    }
    array = {"input_precision": [8, 8], "unit_energy": 1.0, "unit_area": 1.0}
    array |= {"dimensions": sides.split(), "sizes": [EDGE, EDGE]}
    machine = {"name": "two_levels", "memories": memories, "operational_array": array}
    mapping = {
        "name": "default",
        "spatial_mapping": {"D1": [f"M, {EDGE}"], "D2": [f"N, {EDGE}"]},
        "memory_operand_links": {"O": "O", "W": "I2", "I": "I1"},
    }
    work = {
        "id": 0,
        "name": "product",
        "operator_type": "Gemm",
        "equation": "O[m][n]+=I[m][k]*W[k][n]",
        "loop_dims": ["M", "N", "K"],
        "loop_sizes": [p.m, p.n, p.k],
        "operand_precision": {"W": 8, "I": 8, "O": 8 * p.acc_elem_bytes, "O_final": 8},
        "operand_source": {},
    }
    names = []
    for name, value in (("machine", machine), ("mapping", [mapping])):
        # ZigZag orders memories from the array outwards.
        (directory / f"{name}.yaml").write_text(yaml.safe_dump(value, sort_keys=False))
        names.append(str(directory / f"{name}.yaml"))
    return [work], names[0], names[1]


def _zigzag_loads(found: Any, p: TilingProblem) -> tuple[float, float, float]:
    """How often its mapping reads all of A and B from memory, and sums of C that it wrote there."""
    words = {str(operand): levels[-1] for operand, levels in found.memory_word_access.items()}
    read = {operand: _read_down(level) for operand, level in words.items()}
    return (
        read["I"] * p.bw_a / (p.m * p.k * p.elem_bytes),
        read["W"] * p.bw_b / (p.k * p.n * p.elem_bytes),
        read["O"] * NARROW / 8 / (p.m * p.n * p.acc_elem_bytes),
    )


def _read_down(level: Any) -> float:
    """Words that a level sends to the one below, or to the array."""
    return float(level.get("rd_out_to_low"))


@click.command()
@click.option("--every", default=5, show_default=True, help="Search every N-th problem exhaustively.")
@click.option("--zigzag", default=len(QUESTIONS), show_default=True, help="Products for ZigZag; 0: none.")
@click.option("--lpf", default=8, show_default=True, help="Loop factors that ZigZag may order.")
def main(every: int, zigzag: int, lpf: int) -> None:
    """Measure the planner against an exhaustive search and ZigZag."""
    console = Console(width=150)
    table, beaten = measure(every)
    console.print(table)
    beside = compare_with_zigzag(zigzag, lpf) if zigzag else None
    if beside is not None:
        console.print(beside)
        for line in (
            "ZigZag's pieces divide the sizes, the plan's need not; fewer loop factors, fewer pieces.",
            "Same cost: the larger of multiplying, and of loading A and B as often as ZigZag's mapping does.",
            "Its own latency adds filling, draining, and stalls of buffers without room to be filled ahead.",
            "Sums re-read: partial sums that come back from memory, as a share of C; the plan has none.",
        ):
            console.print(line, highlight=False)
    raise SystemExit(bool(beaten))


if __name__ == "__main__":
    main()
