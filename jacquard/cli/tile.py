"""`jacquard tile`: the blocking of a matrix product for given memories, buffers and array."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hw.errors import InputError
from jacquard.cli.options import as_json, print_json
from sw.tiling.plan import Plan, plan
from sw.tiling.problem import TilingProblem, shown_name

_STDIN = "-"
#: Digits of a whole number; Python itself stops at 4300.
_LONGEST = 4000


@click.command("tile")
@click.argument("problem", metavar="PROBLEM.json|-")
@as_json
def command(problem: str, json_: bool) -> None:
    """Plan piece sizes and loop order of a matrix product or convolution described by a JSON object.

    Its names are m, k, n (or conv: sn, ic, h, w, oc, kh, kw, stride, pad, dilation), elem_bytes,
    acc_elem_bytes, bw_a, bw_b, buf_a, buf_b, acc_max, macs_per_cycle, block_m, block_n, sync_granularity,
    and if wanted write_b and halo. - reads it from standard input.
    """
    given = problem_of(problem)
    planned = plan_of(given, problem)
    if json_:
        print_json(planned.as_dict())
    else:
        console = Console()
        render(given, planned, console if console.is_terminal else Console(width=120))


def problem_of(name: str) -> TilingProblem:
    """The problem in a JSON file, `-` for standard input."""
    return TilingProblem.from_dict(_read(name), _place(name))


def plan_of(problem: TilingProblem, name: str) -> Plan:
    """The plan; what does not fit is told with the name of the problem's file."""
    try:
        return plan(problem)
    except InputError as error:
        raise InputError(f"{_place(name)}: {error}") from None


def render(problem: TilingProblem, planned: Plan, console: Console) -> None:
    """The plan for people: a row per matrix or loop, then the reason."""
    console.print()
    conv = problem.conv
    what = "" if conv is None else f", a convolution of {conv.sn}×{conv.ic}×{conv.h}×{conv.w}"
    console.print(
        f"[bold]{str(problem).replace('x', '×')}[/]{what}: {planned.cycles:,.0f} cycles, "
        f"{100 * planned.utilization:.1f} % of the array's peak",
        highlight=False,
    )
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("", "size", "partition", "tile", "matrix", "loaded", "bytes loaded"):
        table.add_column(title, justify="left" if title in ("", "matrix") else "right", no_wrap=True)
    for axis, size, partition, tile, matrix, loads, loaded in (
        ("m", problem.m, planned.partition_m, planned.tile_m, "A", planned.loads_a, planned.bytes_a),
        ("n", problem.n, planned.partition_n, planned.tile_n, "B", planned.loads_b, planned.bytes_b),
    ):
        table.add_row(axis, f"{size:,}", f"{partition:,}", f"{tile:,}", matrix, f"{loads:,} ×", f"{loaded:,}")
    table.add_row("k", f"{problem.k:,}", f"{planned.partition_k:,}")
    console.print(table)
    split = f"K split, {planned.acc_needed:,} bytes of accumulator" if planned.split_k else "K whole"
    console.print(Text(f"loops: {', '.join(planned.loop_order)} ({split})"))
    console.print()
    console.print(Text(planned.reason))


def _place(name: str) -> str:
    return "standard input" if name == _STDIN else name or "''"


def _read(name: str) -> dict[str, Any]:
    """The JSON object in a file."""
    place = _place(name)
    try:
        data = sys.stdin.buffer.read() if name == _STDIN else Path(name).read_bytes()
    except OSError as error:
        raise InputError(f"{place}: cannot be read: {error.strerror or error}") from None
    except AttributeError:
        # Python has no standard input when it is closed.
        raise InputError(f"{place}: cannot be read: it is closed") from None
    try:
        value = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_object, parse_int=_whole)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: must hold JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{place}: must hold a JSON object of names and numbers, not {type(value).__name__}")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names differ; Python would keep the last of equal ones and say nothing."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise InputError(f"{shown_name(name)} must be given once, it is there twice")
        values[name] = value
    return values


def _whole(text: str) -> float:
    """A whole number; one longer than Python converts is endless, which every name refuses."""
    return int(text) if len(text) < _LONGEST else math.inf
