"""The timeline of a report as packed columns and a description, which `timeline.js` draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cosim.lanes import KINDS, Columns, Lanes, Program
from heald.report.html.data import ProgramTimeline, RunReport
from heald.report.html.environment import compact, differences, pack, text
from heald.report.html.lanes import COLUMNS, different, equal, joined, operands_of, run_lanes
from hw import isa
from hw.assembly import disassemble_words

#: Columns of engine lanes that are stored as differences from the instruction's previous operation.
VALUES = ("value0", "value1", "value2", "value3", "parameters")


@dataclass(frozen=True)
class Timeline:
    """`lanes` of model and RTL; `description` and `columns` go into the page."""

    model: Lanes
    rtl: Lanes
    description: dict[str, Any]
    columns: tuple[np.ndarray, ...]

    @property
    def packed(self) -> tuple[str, str]:
        """Description and columns as text."""
        return text(compact(self.description).encode()), pack(self.columns)


def timeline(report: RunReport) -> Timeline:
    """The timeline of all runs, one after the other."""
    model, rtl = list[Lanes](), list[Lanes]()
    instructions: dict[str, list[Any]] = {key: [] for key in ("text", "name", "warp", "pc", "operator")}
    table: dict[tuple[int, ...], int] = {}
    for run, start in zip(report.runs, report.starts, strict=False):
        program, first = Program.of(run.job, report.config), len(instructions["text"])
        operands = operands_of(report.config, run, table)
        model.append(run_lanes(program, operands, run.predicted, start, first))
        rtl.append(run_lanes(program, operands, run.observed, start, first))
        for column, values in _instructions(run, program).items():
            instructions[column] += values
    sides = joined(model), joined(rtl)
    lanes, columns = _described(*sides)
    used = {name for name in instructions["name"] if name in isa.INSTRUCTIONS}
    description = {
        "cycles": report.cycles,
        "divergence": _divergence(report),
        "runs": [
            {"name": run.name, "start": start, "cycles": run.cycles}
            for run, start in zip(report.runs, report.starts, strict=False)
        ],
        "operators": [
            {"name": o.name, "start": o.start, "end": o.end, "cycles": o.cycles} for o in report.operators
        ],
        "instructions": instructions,
        "operands": {name: [o.name for o in isa.INSTRUCTIONS[name].operands] for name in sorted(used)},
        "parameterNames": {name: list(isa.INSTRUCTIONS[name].parameters) for name in sorted(used)},
        "parameters": [list(values) for values in table],
        "lanes": lanes,
    }
    return Timeline(*sides, description, columns)


def _instructions(run: ProgramTimeline, program: Program) -> dict[str, list[Any]]:
    """The rows of the instruction table, in the order of `program.codes`."""
    rows: list[tuple[str, int, int, int | None]] = []
    for warp, words in sorted(run.job.programs.items()):
        texts = enumerate(disassemble_words(words))
        rows += [(text, warp, pc, run.owners.get((warp, pc), run.owner)) for pc, text in texts]
        rows.append(("outside the program", warp, len(words), None))
    rows.append(("of a warp without a program", -1, -1, None))
    text, warps, pcs, owners = (list(column) for column in zip(*rows, strict=True))
    return {
        "text": text,
        "name": ["illegal" if c is None else c.name for c in program.codes],
        "warp": warps,
        "pc": pcs,
        "operator": [-1 if owner is None else owner for owner in owners],
    }


def _divergence(report: RunReport) -> dict[str, Any] | None:
    """The first divergence on the axis; one without a cycle is at the end of its run."""
    for run, start in zip(report.runs, report.starts, strict=False):
        if run.divergence is not None:
            at = run.divergence.cycle
            cycle = start + (run.cycles - 1 if at is None else min(at, run.cycles - 1))
            return {"cycle": cycle, "warp": run.divergence.warp, "text": f"{run.name}: {run.divergence}"}
    return None


def _described(model: Lanes, rtl: Lanes) -> tuple[list[dict[str, Any]], tuple[np.ndarray, ...]]:
    """Every lane with its sides: both if they differ, one if they are equal."""
    lanes: list[dict[str, Any]] = []
    columns: list[np.ndarray] = []
    for name in sorted({*model, *rtl}):
        one, other = model.get(name), rtl.get(name)
        same = equal(one, other)
        kind = KINDS[name.kind]
        sides = []
        for side in (one,) if same else (one, other):
            given = dict.fromkeys(COLUMNS[kind], np.zeros(0, np.int64)) if side is None else side
            # Values stored by the CGRA are many, so they are kept only where the sides differ.
            keys = [k for k in COLUMNS[kind] if not (kind == "grid" and k == "value" and same)]
            sides.append({"count": len(given[keys[0]]), "columns": keys})
            columns += _encoded(given, keys)
        lanes.append(
            {
                "name": str(name),
                "kind": kind,
                "number": name.number,
                "different": 0 if same else different(one, other),
                "sides": sides,
            }
        )
    return lanes, tuple(columns)


def _encoded(lane: Columns, keys: list[str]) -> list[np.ndarray]:
    """Small numbers: starts from the previous end, ends and issues from the start, others as steps."""
    made = []
    for key in keys:
        values = lane[key]
        if key == "start":
            made.append(values - np.concatenate([[0], lane["end"][:-1]])[: len(values)])
        elif key == "end":
            made.append(values - lane["start"])
        elif key == "issued":
            made.append(lane["start"] - values)
        elif key in ("cycle", "address", "tokens"):
            made.append(differences(values))
        elif key in VALUES:
            made.append(_per_instruction(values, lane["code"]))
        else:
            made.append(values)
    return made


def _per_instruction(values: np.ndarray, code: np.ndarray) -> np.ndarray:
    """Differences from the previous value of the same instruction; the first value stays."""
    order = np.argsort(code, kind="stable")
    sorted_values, sorted_codes = values[order], code[order]
    steps = differences(sorted_values)
    first = np.concatenate([[True], sorted_codes[1:] != sorted_codes[:-1]])[: len(values)]
    steps = np.where(first, sorted_values, steps)
    made = np.empty_like(steps)
    made[order] = steps
    return made
