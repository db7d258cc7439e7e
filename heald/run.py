"""A run on the RTL: its results, whether they are verified, and its report, trace and waveforms."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cosim import trace
from cosim.advice import Advice, Predictor, advise
from cosim.compare import Divergence
from cosim.job import Simulator
from cosim.session.driver import Prepared, Progress, drive
from cosim.session.results import Check, Result, check, results_check, runs_checks, utilization
from cosim.session.tile_program import PreparedProgram, ProgramResult
from cosim.settings import MemorySettings
from heald.comparison import Comparison, Side
from heald.files import write_text
from heald.report.html.data import RunReport
from heald.report.html.pages import of_programs
from hw.config import MachineConfig
from hw.errors import InputError
from hw.html import table
from sw.check import Verdict


@dataclass(kw_only=True, repr=False)
class Run:
    """The run of a model, problem, tile program or loop on the RTL.

    `title` names what ran, `memories` holds the settings of the memories, and `results` has an entry per
    program. `reference` names what results were compared with. `waves` is the waveform file, if one was
    written. `advice` says what bounds the run and what would help, once `advise` or `report` was called.
    """

    title: str
    memories: MemorySettings
    config: MachineConfig
    results: Sequence[Result]
    build_seconds: float = 0.0
    model_seconds: float = 0.0
    compile_seconds: float = 0.0
    sim: str = ""
    reference: str = "NumPy"
    waves: Path | None = None
    advice: Advice | None = None

    @property
    def correct(self) -> bool:
        """Whether every result equals the reference's bit for bit."""
        return all(r.correct for r in self.results)

    @property
    def verified(self) -> bool:
        """Whether all checks passed: results, cycles, warps, bitstreams."""
        return all(c.ok for c in self.checks)

    @property
    def failure(self) -> str:
        """Why the first failed check failed; empty if all passed."""
        return next((c.detail for c in self.checks if not c.ok), "")

    @property
    def cycles(self) -> int:
        """Cycles observed on the RTL."""
        return sum(r.observed.cycles for r in self.results)

    @property
    def model_cycles(self) -> int | None:
        """Cycles predicted by the cycle model; None on a board, where cycles are not compared."""
        return sum(r.predicted.cycles for r in self.results)

    @property
    def bound_cycles(self) -> int:
        """Lower bound of the cycles of all programs."""
        return sum(r.bound_cycles for r in self.results)

    @property
    def events(self) -> int:
        """Number of events that were compared."""
        return sum(len(r.observed.events) for r in self.results)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all programs."""
        return sum(r.macs for r in self.results)

    @property
    def utilization(self) -> float:
        """Multiply-accumulates as a fraction of what the array could have done in these cycles."""
        return utilization(self.macs, self.cycles, self.config)

    @property
    def sim_seconds(self) -> float:
        """Seconds that the simulation of all programs took."""
        return sum(r.observed.seconds for r in self.results)

    @property
    def first_divergence(self) -> tuple[Result, Divergence] | None:
        """The first result whose cycles differ from the prediction, and where."""
        return next(((r, r.divergence) for r in self.results if r.divergence is not None), None)

    @property
    def divergence(self) -> Divergence | None:
        """The first difference of RTL and model: `cycle`, `warp`, `pc`, `expected`, `got`; None if equal."""
        return self.first_divergence[1] if self.first_divergence else None

    @property
    def rejected(self) -> tuple[Result, Verdict] | None:
        """The first result whose warps the checker rejects, and why."""
        return next(((r, r.checked) for r in self.results if not r.checked.ok), None)

    @property
    def configurations(self) -> Mapping[str, Sequence[str]]:
        """Bitstreams of the CGRA by name, with the differences between each and its loop."""
        return {}

    @property
    def outputs(self) -> Mapping[str, np.ndarray]:
        """The results by name, in the model's types."""
        return {name: value for result in self.results for name, value in result.values.items()}

    @property
    def operators(self) -> Sequence[Any]:
        """The rows of the table: operators of a model, or programs."""
        return self.results

    @property
    def checks(self) -> tuple[Check, ...]:
        """Every check and its outcome: results, cycles, warps, bitstreams of the CGRA."""
        checks = (self._results_check(), *runs_checks(self.results))
        if not self.configurations:
            return checks
        bad = [f"{name}: {text}" for name, texts in self.configurations.items() for text in texts]
        what = "the bitstreams of the CGRA, decoded again, against the loops that they implement"
        return (*checks, check("configurations", what, bad, len(self.configurations), "configurations"))

    def _results_check(self) -> Check:
        values = sum(array.size for r in self.results for array in r.values.values())
        wrong = "\n".join(r.failure for r in self.results if not r.correct)
        return results_check(
            f"every value that the RTL left in memory against {self.reference}", wrong, values
        )

    def report(self, file: str | Path) -> None:
        """Write the report of the run (HTML); raises `InputError` if the file cannot be written."""
        # Imports drawing libraries, which take time.
        from heald.report.html import render

        self.advise()
        render.write(self.page(), Path(file))

    def advise(self, progress: Progress = lambda text: None) -> Advice | None:
        """Find what bounds the run and what would help most, by compiling for changed machines.

        The report and the JSON include it afterwards. None for a loop on the CGRA and for a run that stopped.
        """
        predict = None if any(r.predicted.error for r in self.results) else self._predictor()
        if self.advice is None and predict is not None and self.model_cycles:
            causes: Counter[str] = Counter()
            for result in self.results:
                causes.update(result.causes)
            about = (self.model_cycles, causes, self.config, self.memories)
            self.advice = advise(*about, predict, progress)
        return self.advice

    def _predictor(self) -> Predictor | None:
        """A function that predicts its cycles on other machines."""
        (result,) = self.results
        return result.elsewhere if isinstance(result, ProgramResult) else None

    def page(self) -> RunReport:
        """The contents of the report."""
        return of_programs(self._page(), self.results)

    def _page(self) -> RunReport:
        """The contents of the report without its programs."""
        about = (self.title, self.config, self.memories, self.checks)
        return RunReport(*about, (), (), facts=self._facts(), advice=self.advice)

    def _facts(self) -> dict[str, str]:
        """Simulator and run times, as text for people."""
        speed = self.cycles / self.sim_seconds if self.sim_seconds else 0.0
        return {
            "simulator": self.sim or "unknown",
            "build": f"{self.build_seconds:.1f} s",
            "compilation": f"{self.compile_seconds:.2f} s",
            "cycle model": f"{self.model_seconds:.2f} s",
            "simulation": f"{self.sim_seconds:.1f} s ({speed:,.0f} cycles per second)",
        }

    def trace(self, file: str | Path) -> None:
        """Write a trace for Perfetto (JSON) with the events of both model and RTL.

        Raises `InputError` if the file cannot be written.
        """
        parts = [
            (r.job, {f"{r.name} (model)": r.predicted, f"{r.name} (RTL)": r.observed}) for r in self.results
        ]
        write_text(Path(file), json.dumps(trace.documents(self.config, parts)))

    def compare_reference(self) -> Any:
        """Compare with onnxruntime; raises `InputError`, because only a model can be compared."""
        raise InputError(f"a comparison with onnxruntime needs an ONNX model, and {self.title} is not one")

    def compare(self, other: Any) -> Comparison:
        """Compare this run with another run or a prediction; raises `InputError` for anything else."""
        return Comparison(Side.of_run(self), Side.of_run(other))

    def as_dict(self) -> dict[str, Any]:
        """The JSON that `heald run --json` prints."""
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
            "machine": self.config.as_dict(),
            "memories": self.memories.as_dict(),
            "operators": [r.as_dict() for r in self.results],
            "host_operators": [],
            "islands": [],
            "fixed_point": {},
            "ii": [],
            **({"advice": self.advice.as_dict()} if self.advice else {}),
        }

    def __repr__(self) -> str:
        wrong = next((f"{c.name} wrong" for c in self.checks if not c.ok), "verified")
        return f"<{self.title}: {self.cycles:,} cycles, {wrong}>"

    def _repr_html_(self) -> str:
        checks = "".join(
            f"<li>{'&#10003;' if c.ok else '&#10007;'} {escape(c.what)}: {c.count:,} {escape(c.unit)}"
            f"{'' if c.ok else ': ' + escape(c.detail)}</li>"
            for c in self.checks
        )
        rows = [
            (o.name, o.op, o.cycles, o.bound_cycles, o.bottleneck or "", f"{100 * o.utilization:.1f} %")
            for o in self.operators
        ]
        head = ("operator", "kind", "cycles", "lower bound", "bottleneck", "array busy")
        about = f"<p><b>{escape(self.title)}</b>: {self.cycles:,} cycles</p>"
        return f"{about}{table(head, rows)}<ul>{checks}</ul>"


RunT = TypeVar("RunT", bound=Run)


def run_prepared(
    prepared: Prepared[Any],
    simulator: Callable[[], Simulator],
    kind: type[RunT],
    *,
    title: str = "",
    sim: str = "",
    progress: Progress = lambda text: None,
    **fields: Any,
) -> RunT:
    """Run a tile program or kernel and verify it; `fields` are further fields of the `Run`.

    Raises `InputError` if its warps deadlock.
    """
    prediction = prepared.prediction
    if prediction.checked.deadlock:
        raise InputError(f"{prediction.name}: {prediction.checked.reason}")
    made = drive(lambda done: [prepared], simulator, sim=sim, progress=progress)
    title, config = title or prediction.name, prediction.config
    return kind(**vars(made), title=title, memories=prediction.job.settings, config=config, sim=sim, **fields)


def run_program(prepared: PreparedProgram, simulator: Callable[[], Simulator], **options: Any) -> Run:
    """Run a tile program and verify it; `options` are those of `run_prepared`."""
    options |= {"compile_seconds": prepared.compile_seconds, "reference": "the sequential execution"}
    return run_prepared(prepared, simulator, Run, **options)
