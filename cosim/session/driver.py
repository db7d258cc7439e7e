"""The driver of all runs: executes compiled and predicted programs on the RTL, and checks their results.

Tile programs, models and kernels differ in what they prepare and how they judge; all of them run here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from cosim.job import Job, Outcome, Simulator
from cosim.session.results import ProgramPrediction, Result

R = TypeVar("R", bound=Result)
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Prepared(ABC, Generic[R]):
    """A program ready to run on the RTL: the jobs to simulate, the prediction, and the expected results.

    `jobs` are the program's own, and before and after it those that fill and dump memories of the machine.
    `model_seconds` is the time that the cycle model took.
    """

    jobs: Sequence[Job]
    prediction: ProgramPrediction
    model_seconds: float

    @abstractmethod
    def judged(self, outcomes: Sequence[Outcome]) -> R:
        """Compare the outcomes of the jobs on the RTL with what is expected."""


@dataclass
class Simulated(Generic[R]):
    """The results of programs in the order in which they ran, and the time taken."""

    results: list[R] = field(default_factory=list)
    build_seconds: float = 0.0
    model_seconds: float = 0.0


def simulate(prepared: Sequence[Prepared[R]], machine: Simulator) -> list[R]:
    """Run programs as jobs of one simulation, and judge them."""
    jobs = [
        replace(job, predicted=p.prediction.predicted) if job is p.prediction.job else job
        for p in prepared
        for job in p.jobs
    ]
    outcomes = machine.run(jobs)
    results = []
    for p in prepared:
        own, outcomes = outcomes[: len(p.jobs)], outcomes[len(p.jobs) :]
        results.append(p.judged(own))
    return results


def drive(
    programs: Callable[[Sequence[R]], Iterable[Prepared[R]]],
    simulator: Callable[[], Simulator],
    *,
    sim: str = "",
    progress: Progress = lambda text: None,
) -> Simulated[R]:
    """Run programs one after the other; each may depend on what earlier ones left in memory.

    `programs` gets the growing list of results and prepares the next program from it. `simulator` is called
    once the first program is predicted, and never if there is none. `sim` is the simulator's name or the
    board's address, for users. Each program is a simulation of its own: the padding of tiles is computed from
    the previous contents of buffers, which the cycle model takes to be 0.
    """
    made: Simulated[R] = Simulated()
    board = ":" in sim
    where = f"board {sim}" if board else f"simulator {sim}"
    machine: Simulator | None = None
    for prepared in programs(made.results):
        name, cycles = prepared.prediction.name, prepared.prediction.predicted.cycles
        made.model_seconds += prepared.model_seconds
        progress(f"model: {name}: {cycles:,} cycles predicted in {made.model_seconds:.2f} s")
        if machine is None:
            if not board:
                name = prepared.prediction.config.name
                progress(f"{where}: building the machine {name!r}, or taking it from the cache")
            machine = simulator()
            made.build_seconds = machine.build_seconds
        ready = "" if board else f"ready after {machine.build_seconds:.1f} s, "
        progress(f"{where}: {ready}running {cycles:,} cycles")
        made.results += simulate([prepared], machine)
    return made
