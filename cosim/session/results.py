"""The results of each program on cycle model and RTL, and their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from cosim.causes import Bottleneck, CriticalPath, bottleneck
from cosim.compare import Divergence
from cosim.job import EventKind, Job, Outcome
from hw.assembly import decode
from hw.config import PORTS, MachineConfig
from sw.check import Verdict

#: Display names of the resources that can bound an operator, by their key in `bounds`.
RESOURCES = {
    "gemm": "array",
    "cgra": "CGRA",
    "load_a": "load A",
    "load_b": "load B",
    "load_c": "load C",
    "store": "store",
}


class Bounded:
    """Has lower bounds of its cycles by resource (a key of `RESOURCES`), and its cycles by cause."""

    bounds: Mapping[str, int]
    causes: Mapping[str, int]

    @property
    def bound(self) -> str:
        """The resource with the largest lower bound; empty if no bound is known."""
        return max(self.bounds, key=lambda name: self.bounds[name], default="")

    @property
    def bound_cycles(self) -> int:
        """The largest lower bound: no machine with this array and these ports can be faster."""
        return max(self.bounds.values(), default=0)

    @property
    def bottleneck(self) -> Bottleneck | None:
        """The cause of most of its cycles, with its share; None if it takes no cycles."""
        return bottleneck(self.causes)

    def limits(self) -> dict[str, Any]:
        """Bounds and causes for its JSON."""
        found = self.bottleneck
        return {
            "bound": self.bound,
            "bound_cycles": self.bound_cycles,
            "bottleneck": found and found._asdict(),
            "causes": dict(self.causes),
        }


@dataclass
class ProgramPrediction(Bounded):
    """The cycle model's prediction for one program.

    `op` is the kind of program, `shape` its size in words. `bounds` are lower bounds of cycles by resource:
    `gemm`, `cgra`, or a port at its bytes per cycle. `checked` is the checker's verdict on the warps.
    """

    name: str
    op: str
    shape: str
    config: MachineConfig
    job: Job
    predicted: Outcome
    checked: Verdict
    macs: int
    bounds: Mapping[str, int]

    @property
    def outcome(self) -> Outcome:
        """The outcome that provides its cycles and events."""
        return self.predicted

    def given(self) -> dict[str, Any]:
        """Its fields, to build a result with more fields."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def cycles(self) -> int:
        """Its cycles."""
        return self.outcome.cycles

    @cached_property
    def path(self) -> CriticalPath:
        """Its critical path; of the observed events if it was run."""
        return CriticalPath(self.config, self.job, self.outcome, self.predicted)

    @cached_property
    def causes(self) -> Mapping[str, int]:  # type: ignore[override]
        """Its cycles by cause (docs/report.md)."""
        return self.path.causes(0, self.cycles)

    @property
    def instructions(self) -> dict[int, int]:
        """Static instructions by warp."""
        return {warp: len(words) for warp, words in self.job.programs.items()}

    @property
    def utilization(self) -> float:
        """Multiply-accumulates as a fraction of the array's peak in its cycles."""
        return utilization(self.macs, self.outcome.cycles, self.config)

    def as_dict(self) -> dict[str, Any]:
        """An entry of `operators` in the JSON of a prediction."""
        return {
            "name": self.name,
            "op": self.op,
            "where": "machine",
            "shape": self.shape,
            "macs": self.macs,
            "model_cycles": self.predicted.cycles,
            "events": len(self.outcome.events),
            "utilization": self.utilization,
            **self.limits(),
            "instructions": {str(warp): count for warp, count in self.instructions.items()},
            "checked": self.checked.as_dict(),
        }


@dataclass
class Result(ProgramPrediction):
    """One program that was run: what was observed, and how it compares with prediction and reference.

    `values` are its results by name.
    """

    observed: Outcome
    correct: bool
    divergence: Divergence | None
    values: Mapping[str, np.ndarray]

    @property
    def outcome(self) -> Outcome:
        """The observed outcome."""
        return self.observed

    @property
    def output(self) -> str:
        """The names of its results."""
        return ", ".join(self.values)

    @property
    def failure(self) -> str:
        """What is wrong with its results, or empty."""
        error = self.observed.error
        if error is None:
            return f"{self.name}: {self.output} is not the expected result"
        return f"{self.name}: the machine stopped with error {error.text}"

    @property
    def verified(self) -> bool:
        """Whether results and cycles are correct, and the warps passed the checker."""
        return self.correct and self.divergence is None and self.checked.ok

    @property
    def sync_operations(self) -> int:
        """Waits and signals that the warps executed."""
        sync = {
            (warp, pc)
            for warp, words in self.job.programs.items()
            for pc, word in enumerate(words)
            if (code := decode(word)) is not None and code.name in ("wait", "signal")
        }
        issued = (e for e in self.observed.events if e.kind is EventKind.ISSUE)
        return sum((e.warp, e.pc) in sync for e in issued)

    @property
    def memory_words(self) -> dict[str, int]:
        """Words that each memory port transferred on the RTL, including padding of rows."""
        counters = self.observed.counters
        return {port: counters.get(f"{port.upper()}_WORDS", 0) for port in PORTS}

    def as_dict(self) -> dict[str, Any]:
        """An entry of `operators` in the JSON of a run."""
        error = self.observed.error
        return super().as_dict() | {
            "output": self.output,
            "cycles": self.observed.cycles,
            "memory_words": self.memory_words,
            "correct": self.correct,
            "error": error and {"cause": error.cause.name.lower(), "warp": error.warp, "pc": error.pc},
            "sync_operations": self.sync_operations,
        }


@dataclass(frozen=True)
class Check:
    """A comparison: a short `name`, what was compared with what, how many items, and the outcome.

    If it failed, `detail` says what differs and where, in one or more lines.
    """

    name: str
    what: str
    ok: bool
    count: int = 0
    unit: str = ""
    detail: str = ""


def check(name: str, what: str, wrong: Sequence[str], count: int, unit: str) -> Check:
    """A check that passes if nothing is wrong."""
    return Check(name, what, not wrong, count, unit, "\n".join(wrong))


def results_check(what: str, wrong: str, count: int) -> Check:
    """Check values against the expected ones; `wrong` is empty if they agree."""
    return check("results", f"{what}, bit for bit", [wrong] * bool(wrong), count, "values")


def runs_checks(results: Sequence[Result]) -> tuple[Check, Check]:
    """Check cycles against the model, and warps against the dependences."""
    rejected = [
        "\n".join([f"{r.name}: {r.checked.reason}", *(f"  {line}" for line in r.checked.schedule)])
        for r in results
        if not r.checked.ok
    ]
    stored = sum(len(r.observed.stored) for r in results)
    return (
        check(
            "cycles",
            "the cycle of every event of the RTL against the independent, event-driven model",
            [f"{r.name}: {r.divergence}" for r in results if r.divergence is not None],
            sum(len(r.observed.events) for r in results),
            "events" if not stored else f"events and {stored:,} stores of the CGRA",
        ),
        check(
            "warps",
            "the warps' programs against the dependences of the sequential program",
            rejected,
            sum(r.checked.dependences for r in results),
            "dependences",
        ),
    )


def utilization(macs: int, cycles: int, config: MachineConfig) -> float:
    """Multiply-accumulates as a fraction of the array's peak in `cycles` cycles."""
    return macs / (cycles * config.macs_per_cycle) if cycles else 0.0
