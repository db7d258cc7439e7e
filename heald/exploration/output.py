"""What is written of an exploration: JSON, a table, CSV, configurations."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from heald.exploration.results import METRICS, Confirmation, Exploration, Point, State, front_table
from heald.exploration.space import Space
from heald.files import write_directory, write_text
from heald.report.console import plain_table
from hw.config import to_toml

#: What the JSON of a point of the front always has.
_FRONT = ("cycles", "luts", "ffs", "brams", "dsps", "fmax_mhz")
#: Names of files that `export` writes.
_EXPORTED = re.compile(r"point-(?:0|[1-9][0-9]*)\.toml")


def as_dict(found: Exploration, storage: str) -> dict[str, Any]:
    """The JSON of the command."""
    return {
        "trials": len(found.points),
        "refused": len(found.of(State.REFUSED)),
        "infeasible": len(found.of(State.INFEASIBLE)),
        "failed": len(found.of(State.FAILED)),
        "front": [_front(found, found.point(number)) for number in found.front],
        "points_per_second": found.points_per_second,
        "study": found.name,
        "storage": storage,
        "size": found.size,
        "objectives": dict(found.objectives),
        "hypervolume": found.hypervolume,
        "reference": dict(found.reference),
        "importance": {name: dict(shares) for name, shares in found.importance.items()},
        "reasons": [
            {"number": p.number, "state": p.state.value, "parameters": dict(p.parameters), "reason": p.reason}
            for p in found.points
            if p.reason is not None
        ],
        "confirmations": [_confirmation(c) for c in found.confirmations],
    }


def _confirmation(confirmation: Confirmation) -> dict[str, Any]:
    held = asdict(confirmation)
    return {"number": held.pop("point"), **held}


def _front(found: Exploration, point: Point) -> dict[str, Any]:
    confirmation = found.confirmation(point.number)
    return {
        "number": point.number,
        "parameters": dict(point.parameters),
        "hw": dict(point.hw),
        **{name: point.metrics.get(name) for name in _FRONT},
        **point.metrics,
        "confirmed": confirmation is not None and confirmation.confirmed,
        "difference": None if confirmation is None else confirmation.difference,
    }


def summary(found: Exploration) -> str:
    """How many points there are, in words."""
    states = Counter(p.state for p in found.points)
    others = [f"{states[s]:,} {s.value}" for s in State if s is not State.COMPLETE and states[s]]
    rest = f" ({', '.join(others)})" if others else ""
    return f"{len(found.points):,} of {found.size:,} points{rest}, {len(found.front)} on the front"


def show(found: Exploration, console: Console) -> None:
    """The front for people, reasons, and what matters."""
    console.print()
    console.print(Text(summary(found)))
    head, rows = front_table(found)
    table = plain_table(*(f">{title}" for title in head))
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        table.add_row(*row)
    console.print(table)
    others = [c for c in found.confirmations if c.point not in found.front]
    if others:
        good = sum(c.confirmed for c in others)
        console.print(Text(f"behind the front {good} of {len(others)} points were confirmed on the RTL"))
    for reason, count in Counter(p.reason for p in found.points if p.reason).most_common(5):
        console.print(Text(f"{count:>5} × {reason}"))
    for objective, shares in found.importance.items():
        order = sorted(shares.items(), key=lambda each: -each[1])
        listed = ", ".join(f"{name} {100 * share:.0f} %" for name, share in order)
        console.print(Text(f"{objective} depends on {listed}"))
    console.print(Text(f"{found.points_per_second:.2f} points per second"))


def write_csv(path: Path, found: Exploration) -> None:
    """All points as a table."""
    out = io.StringIO()
    names = [p.name for p in found.parameters]
    writer = csv.writer(out)
    writer.writerow(["point", "state", *names, *METRICS, "front", "confirmed", "reason"])
    for p in found.points:
        confirmation = found.confirmation(p.number)
        confirmed = "" if confirmation is None else "yes" if confirmation.confirmed else "no"
        writer.writerow(
            [p.number, p.state.value]
            + [p.parameters[n] for n in names]
            + [p.metrics.get(n, "") for n in METRICS]
            + ["yes" if p.number in found.front else "no", confirmed, p.reason or ""]
        )
    write_text(path, out.getvalue())


def export(path: Path, found: Exploration, space: Space) -> None:
    """The machine of every point of the front as a TOML file that `--hw` takes; files of other points go."""

    def fill(folder: Path) -> None:
        for number in found.front:
            config = space.machine(found.point(number).parameters)
            text = to_toml(config.replace(name=f"{found.name}-{number}"))
            (folder / f"point-{number}.toml").write_text(text, encoding="utf-8")

    write_directory(path, fill, _EXPORTED.fullmatch)


def report(path: Path, found: Exploration, space: Space) -> None:
    """The page of an exploration, with the grids that it needs to write machines as files."""
    from heald.report.explore import page

    grids = {grid.name: grid for grid in (space.base.cgra, *space.grids.values()) if grid is not None}
    write_text(path, page(found, grids))
