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
    """All of a program's run but the RTL: what to simulate, what is predicted, what must come out.

    `jobs` are the program's, and before and after it those that fill and empty memories of the machine;
    `model_seconds` is how long the cycle model took.
    """

    jobs: Sequence[Job]
    prediction: ProgramPrediction
    model_seconds: float

    @abstractmethod
    def judged(self, outcomes: Sequence[Outcome]) -> R:
        """What the RTL did in the jobs, compared with what must come out."""


@dataclass
class Simulated(Generic[R]):
    """The results of programs in the order in which they ran, and how long it took."""

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
    """Run programs one after the other; each may depend on what those before it left.

    `sim` is the name of the simulator, or the address of a board, for people.
    `programs` gets the list of results, which grows, and prepares one program after the other. `simulator` is
    called when the first of them is predicted, and not at all where there is none. Every program is a
    simulation of its own: the padding of tiles is computed from what buffers held before, which the cycle
    model takes to be 0.
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
