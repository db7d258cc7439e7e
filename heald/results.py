"""What runs on model and RTL give: an entry for each program, and the report of a whole run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosim.compare import Divergence
from cosim.job import EventKind, Job, Outcome
from hw.assembly import decode
from hw.config import PORTS, MachineConfig
from sw.check import Verdict

#: What can bound an operator, by the key in `bounds`, for people.
RESOURCES = {
    "gemm": "array",
    "cgra": "grid",
    "load_a": "load A",
    "load_b": "load B",
    "load_c": "load C",
    "store": "store",
}


class Bounded:
    """What has lower bounds of its cycles, by resource (a key of `RESOURCES`)."""

    bounds: Mapping[str, int]

    @property
    def bound(self) -> str:
        """The resource that limits it at best; empty where nothing is known."""
        return max(self.bounds, key=lambda name: self.bounds[name], default="")

    @property
    def bound_cycles(self) -> int:
        """Least cycles: no machine of this array and these ports can be quicker."""
        return max(self.bounds.values(), default=0)


@dataclass
class ProgramPrediction(Bounded):
    """One program and what the cycle model says of it.

    `op` says what kind of thing it is, `shape` in words how large. `bounds` are least cycles by what limits
    them: `gemm`, `cgra`, or a port at its bytes per cycle. `checked` is what the checker says of the warps.
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
        """Where its cycles and events come from."""
        return self.predicted

    @property
    def cycles(self) -> int:
        """Its cycles."""
        return self.outcome.cycles

    @property
    def instructions(self) -> dict[int, int]:
        """Static instructions per warp."""
        return {warp: len(words) for warp, words in self.job.programs.items()}

    @property
    def utilization(self) -> float:
        """Multiply-accumulates by what the array could have done in its cycles."""
        return utilization(self.macs, self.outcome.cycles, self.config)

    def as_dict(self) -> dict[str, Any]:
        """One entry of `operators` in the JSON of a prediction."""
        return {
            "name": self.name,
            "op": self.op,
            "where": "machine",
            "shape": self.shape,
            "macs": self.macs,
            "model_cycles": self.predicted.cycles,
            "events": len(self.outcome.events),
            "utilization": self.utilization,
            "bound_cycles": self.bound_cycles,
            "bound": self.bound,
            "instructions": {str(warp): count for warp, count in self.instructions.items()},
            "checked": self.checked.as_dict(),
        }


@dataclass
class Result(ProgramPrediction):
    """One program that ran: what was observed, and how it compares with prediction and reference.

    `values` are its results by name.
    """

    observed: Outcome
    correct: bool
    divergence: Divergence | None
    values: Mapping[str, np.ndarray]

    @property
    def outcome(self) -> Outcome:
        """What was observed."""
        return self.observed

    @property
    def output(self) -> str:
        """The names of its results."""
        return ", ".join(self.values)

    @property
    def failure(self) -> str:
        """What is wrong with its results, where they are."""
        error = self.observed.error
        if error is None:
            return f"{self.name}: {self.output} is not what it must be"
        cause = error.cause.name.lower()
        return f"{self.name}: the machine stopped with error {cause}, warp {error.warp}, pc {error.pc}"

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
        """Words that each memory port transferred on the RTL, padding of rows included."""
        counters = self.observed.counters
        return {port: counters.get(f"{port.upper()}_WORDS", 0) for port in PORTS}

    def as_dict(self) -> dict[str, Any]:
        """One entry of `operators` in the JSON of a run."""
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
    """Something that was compared: `name` in a few words, `what` with what, how many items, and the answer.

    Where it does not hold, `detail` says what and where, in one or more lines.
    """

    name: str
    what: str
    ok: bool
    count: int = 0
    unit: str = ""
    detail: str = ""


def check(name: str, what: str, wrong: Sequence[str], count: int, unit: str) -> Check:
    """A check that holds where nothing is wrong."""
    return Check(name, what, not wrong, count, unit, "\n".join(wrong))


def results_check(what: str, wrong: str, count: int) -> Check:
    """Whether values are what they must be; `wrong` is empty where they are."""
    return check("results", f"{what}, bit for bit", [wrong] * bool(wrong), count, "values")


def runs_checks(results: Sequence[Result]) -> tuple[Check, Check]:
    """Cycles against the model, warps against the dependences."""
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
            "events" if not stored else f"events and {stored:,} stores of the grid",
        ),
        check(
            "warps",
            "the warps' programs against the dependences of the sequential program",
            rejected,
            sum(r.checked.dependences for r in results),
            "dependences",
        ),
    )


@dataclass
class RunRecord:
    """A whole run; `reference` is what results were compared with."""

    config: MachineConfig
    results: list[Result]
    build_seconds: float
    sim_seconds: float
    model_seconds: float
    compile_seconds: float = 0.0
    sim: str = ""
    reference: str = "NumPy"

    @property
    def correct(self) -> bool:
        """Whether every result is the reference's."""
        return all(r.correct for r in self.results)

    @property
    def cycles(self) -> int:
        """Cycles of all on the RTL."""
        return sum(r.observed.cycles for r in self.results)

    @property
    def model_cycles(self) -> int:
        """Cycles of all by the model."""
        return sum(r.predicted.cycles for r in self.results)

    @property
    def bound_cycles(self) -> int:
        """Least cycles of all."""
        return sum(r.bound_cycles for r in self.results)

    @property
    def events(self) -> int:
        """Events that were compared."""
        return sum(len(r.observed.events) for r in self.results)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all."""
        return sum(r.macs for r in self.results)

    @property
    def utilization(self) -> float:
        """Multiply-accumulates by what the array could have done in all cycles."""
        return utilization(self.macs, self.cycles, self.config)

    @property
    def first_divergence(self) -> tuple[Result, Divergence] | None:
        """The first result whose prediction differs, and how."""
        return next(((r, r.divergence) for r in self.results if r.divergence is not None), None)

    @property
    def rejected(self) -> tuple[Result, Verdict] | None:
        """The first result whose warps the checker does not accept, and why."""
        return next(((r, r.checked) for r in self.results if not r.checked.ok), None)

    @property
    def proven(self) -> bool:
        """Whether results and cycles are all as they must be, and the warps passed the checker."""
        return self.correct and self.first_divergence is None and self.rejected is None

    @property
    def divergence(self) -> Divergence | None:
        """Where model and RTL differ first; None if they agree."""
        return self.first_divergence[1] if self.first_divergence else None

    @property
    def outputs(self) -> Mapping[str, np.ndarray]:
        """Results by the names of their tensors."""
        return {name: value for result in self.results for name, value in result.values.items()}

    @property
    def operators(self) -> Sequence[Any]:
        """The rows of the table: programs, or operators of a model."""
        return self.results

    @property
    def checks(self) -> tuple[Check, ...]:
        """What was compared: results, cycles, warps."""
        values = sum(array.size for r in self.results for array in r.values.values())
        wrong = "\n".join(r.failure for r in self.results if not r.correct)
        what = f"every value that the RTL left in memory against {self.reference}"
        return (results_check(what, wrong, values), *runs_checks(self.results))

    def as_dict(self) -> dict[str, Any]:
        """The JSON of a run."""
        first = self.first_divergence
        warps = sorted({warp for r in self.results for warp in r.instructions})
        return {
            "correct": self.correct,
            "cycles": self.cycles,
            "model_cycles": self.model_cycles,
            "events": self.events,
            "first_divergence": first and {"operator": first[0].name} | first[1].as_dict(),
            "macs": self.macs,
            "utilization": self.utilization,
            "bound_cycles": self.bound_cycles,
            "build_seconds": self.build_seconds,
            "sim_seconds": self.sim_seconds,
            "cycles_per_second": self.cycles / self.sim_seconds if self.sim_seconds else 0.0,
            "model_seconds": self.model_seconds,
            "instructions": {str(w): sum(r.instructions.get(w, 0) for r in self.results) for w in warps},
            "sync_operations": sum(r.sync_operations for r in self.results),
            "checked": {"ok": self.rejected is None},
            "hw": self.config.hash,
            "operators": [r.as_dict() for r in self.results],
            "host_operators": [],
            "ii": [],
        }


def utilization(macs: int, cycles: int, config: MachineConfig) -> float:
    """Multiply-accumulates by what the array could have done in so many cycles."""
    return macs / (cycles * config.macs_per_cycle) if cycles else 0.0
