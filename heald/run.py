"""A run in Python: what came out, whether it is right, and its page, trace and waves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from cosim.compare import Divergence
from cosim.settings import MemorySettings
from heald import trace
from heald.results import Check, RunRecord


@dataclass(frozen=True)
class Run:
    """What became of a model, problem or tile program on the RTL.

    `record` holds everything that was observed and compared, `title` is what ran, `memories` are those behind
    the ports, `waves` is the file of waves that the simulator wrote.
    """

    record: RunRecord
    title: str
    memories: MemorySettings
    waves: Path | None = None

    @property
    def outputs(self) -> Mapping[str, np.ndarray]:
        """The results by name, in the model's types."""
        return self.record.outputs

    @property
    def correct(self) -> bool:
        """Whether every result equals the reference's bit for bit."""
        return self.record.correct

    @property
    def verified(self) -> bool:
        """Whether all checks hold: results, cycles, warps, configurations."""
        return self.record.proven

    @property
    def cycles(self) -> int:
        """Cycles that were observed on the RTL."""
        return self.record.cycles

    @property
    def model_cycles(self) -> int:
        """Cycles that the cycle model predicted."""
        return self.record.model_cycles

    @property
    def divergence(self) -> Divergence | None:
        """Where model and RTL differ first, None if they agree: `cycle`, `warp`, `pc`, `expected`, `got`."""
        return self.record.divergence

    @property
    def operators(self) -> Sequence[Any]:
        """The rows of the table: operators of a model, or the tile program."""
        return self.record.operators

    @property
    def checks(self) -> tuple[Check, ...]:
        """What was compared, and whether it holds."""
        return self.record.checks

    def report(self, file: str | Path) -> None:
        """Write the page of the run (HTML); raises `InputError` for a file that cannot be written."""
        # Draws with libraries that take time to import.
        from heald.report.html.pages import write_report

        write_report(self.record, self.title, self.memories, Path(file))

    def trace(self, file: str | Path) -> None:
        """Write a trace for Perfetto (JSON), the events of model and RTL beside each other."""
        trace.write(self.record, Path(file))

    def as_dict(self) -> dict[str, Any]:
        """The JSON that `heald run --json` prints."""
        return self.record.as_dict()

    def _repr_html_(self) -> str:
        checks = "".join(
            f"<li>{'&#10003;' if c.ok else '&#10007;'} {escape(c.what)}: {c.count:,} {escape(c.unit)}"
            f"{'' if c.ok else ': ' + escape(c.detail)}</li>"
            for c in self.checks
        )
        rows = "".join(
            f"<tr><td>{escape(o.name)}</td><td>{escape(o.op)}</td><td>{o.cycles:,}</td>"
            f"<td>{o.bound_cycles:,}</td><td>{100 * o.utilization:.1f} %</td></tr>"
            for o in self.operators
        )
        head = "<th>operator</th><th>kind</th><th>cycles</th><th>lower bound</th><th>array busy</th>"
        return (
            f"<p><b>{escape(self.title)}</b>: {self.cycles:,} cycles</p>"
            f"<table><tr>{head}</tr>{rows}</table><ul>{checks}</ul>"
        )
