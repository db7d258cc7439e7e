"""Results of a model's programs and operators, on cycle model and RTL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cosim.causes import CriticalPath
from cosim.compare import compare
from cosim.job import Event, EventKind, Job, Outcome
from cosim.session.results import RESOURCES, Bounded, ProgramPrediction, Result, utilization
from cosim.session.tiling import MachinePlan, plan_of
from cosim.settings import MemorySettings
from hw.config import MachineConfig
from hw.html import table
from sw.check import Verdict
from sw.compile.program import holds_sums
from sw.graph.host import HostOperator

if TYPE_CHECKING:
    # These import the mapper, which takes time.
    from cosim.session.machine_program import KernelFacts, MachineProgram, OperatorFacts


@dataclass(frozen=True)
class OperatorResult(Bounded):
    """One operator, in execution order.

    `where` is `machine`, `host` or `edge`; `why` is the reason if the host executes it. `start` is the cycle
    of its first operation, `end` the cycle after its last completion, both counted from the start of the
    first program; operators may overlap. `cycles` count from the last completion of earlier operators to its
    own, so they add up to the run's; `utilization` is the fraction of the array's peak in them. `same` says
    whether its result equals the reference's; None if it was overwritten. `program` is the number of its
    program; there, its `cycles` end in cycle `until`, on `path`.
    """

    name: str
    op: str
    nodes: tuple[str, ...]
    where: str
    output: str
    shape: tuple[int, ...]
    start: int = 0
    end: int = 0
    cycles: int = 0
    facts: OperatorFacts | None = None
    bounds: Mapping[str, int] = field(default_factory=dict)
    kernels: tuple[KernelFacts, ...] = ()
    utilization: float = 0.0
    same: bool | None = None
    program: int | None = None
    plan: MachinePlan | None = None
    until: int = 0
    why: str = ""
    path: CriticalPath | None = field(default=None, repr=False, compare=False)

    @property
    def span(self) -> int:
        """Cycles from its first operation to its last completion."""
        return max(0, self.end - self.start)

    @cached_property
    def causes(self) -> Mapping[str, int]:  # type: ignore[override]
        """Its `cycles` by cause (docs/report.md)."""
        return self.path.causes(self.until - self.cycles, self.until) if self.path else {}

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the array."""
        return self.facts.macs if self.facts else 0

    def as_dict(self) -> dict[str, Any]:
        """An entry of `operators` in the JSON of a run."""
        return {
            "name": self.name,
            "op": self.op,
            "nodes": list(self.nodes),
            "output": self.output,
            "shape": list(self.shape),
            "where": self.where,
            **({"why": self.why} if self.where == "host" else {}),
            "cycles": self.cycles,
            "start": self.start,
            "end": self.end,
            "span": self.span,
            "macs": self.macs,
            "utilization": self.utilization,
            **self.limits(),
            "bounds": dict(self.bounds),
            "launches": self.facts.launches if self.facts else 0,
            "ii": [
                {"name": k.name, "ii": k.ii, "mii": k.bound.mii, "verified": k.verified} for k in self.kernels
            ],
            "correct": self.same,
            "program": self.program,
            "plan": self.plan.summary() if self.plan else None,
        }


@dataclass
class ModelProgramPrediction(ProgramPrediction):
    """One program of a model, predicted by the cycle model."""

    program: MachineProgram

    @classmethod
    def of(
        cls, program: MachineProgram, job: Job, predicted: Outcome, verdict: Verdict
    ) -> ModelProgramPrediction:
        """A prediction with the bounds of the program's operators."""
        config, rates, count = program.config, job.settings.bandwidth, len(program.operators)
        bounds = Counter({"gemm": 0})
        for operator in program.operators:
            bounds.update(operator.bounds(config, rates))
        return cls(
            name=job.name,
            op="network",
            shape=f"{count} operator{'s' * (count != 1)}",
            config=config,
            job=job,
            predicted=predicted,
            checked=verdict,
            macs=sum(o.macs for o in program.operators),
            bounds=bounds,
            program=program,
        )

    @property
    def plans(self) -> dict[int, MachinePlan]:
        """Plans of the products whose sums are stored, by number; empty for a program that was read."""
        parts = self.program.compiled.parts if self.program.compiled is not None else ()
        return {i: plan_of(p, self.job.settings.bandwidth) for i, p in enumerate(parts) if holds_sums(p)}

    def operators(self, offset: int, number: int) -> list[OperatorResult]:
        """Its operators, with cycles counted from `offset`; `number` is the program's number."""
        first, last = _times(self.program, self.outcome)
        plans, path = self.plans, self.path
        done, made = 0, []
        ended = max(last.values(), default=0)
        for index, facts in enumerate(self.program.operators):
            end = last.get(index, 0)
            # Remaining cycles at the end of the program belong to the operator that ends last.
            until = max(done, self.cycles if last and end == ended and not self.outcome.error else end)
            cycles, done = until - done, until
            made.append(
                OperatorResult(
                    facts.name,
                    facts.op,
                    facts.nodes,
                    "machine",
                    facts.output.tensor,
                    facts.output.shape,
                    offset + first.get(index, 0),
                    offset + end,
                    cycles,
                    facts,
                    facts.bounds(self.config, self.job.settings.bandwidth),
                    tuple(self.program.kernels[k] for k in facts.kernels),
                    utilization(facts.macs, cycles, self.config),
                    program=number,
                    plan=plans.get(index),
                    until=until,
                    path=path,
                )
            )
        return made


@dataclass
class ProgramRun(Result, ModelProgramPrediction):
    """One program of a model that was run.

    `values` are the tensors that it wrote and that memory still held at its end. `same` says by operator
    whether they equal the reference's. `wrong` is the first operator with a different result, and the
    difference.
    """

    same: Mapping[int, bool]
    wrong: tuple[str, str] | None

    @classmethod
    def after(
        cls, made: ModelProgramPrediction, observed: Outcome, expected: Mapping[str, np.ndarray]
    ) -> ProgramRun:
        """The observed outcome, compared with the prediction and with the expected results."""
        program, job = made.program, made.job
        homes = program.kept().items()
        values = {n: h.extract(d) for (n, h), d in zip(homes, observed.outputs, strict=True)}
        same, wrong = _compared(program, values, expected)
        if observed.error is not None:
            e = observed.error
            at = program.operator_of.get((e.warp, e.pc))
            cause = f"the machine stopped: {e.text}"
            wrong = job.name if at is None else program.operators[at].name, cause
        return cls(
            **made.given(),
            observed=observed,
            correct=wrong is None,
            divergence=compare(made.config, job, made.predicted, observed),
            values=values,
            same=same,
            wrong=wrong,
        )

    @property
    def wrong_tensors(self) -> list[str]:
        """Tensors left in memory that differ from the reference's."""
        return [self.program.operators[i].output.tensor for i, same in self.same.items() if not same]

    @property
    def at(self) -> str | None:
        """Name of the operator that contains the first divergence, if any."""
        d = self.divergence
        if d is None or d.warp is None or d.pc is None:
            return None
        number = self.program.operator_of.get((d.warp, d.pc))
        return None if number is None else self.program.operators[number].name

    def operators(self, offset: int, number: int) -> list[OperatorResult]:
        """Its operators, with cycles counted from `offset`; `number` is the program's number."""
        made = enumerate(super().operators(offset, number))
        return [replace(operator, same=self.same.get(index)) for index, operator in made]


def _compared(
    program: MachineProgram, values: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> tuple[dict[int, bool], tuple[str, str] | None]:
    """Whether results still in memory are as expected, by operator; and the first wrong one."""
    same: dict[int, bool] = {}
    wrong: tuple[str, str] | None = None
    for number, operator in enumerate(program.operators):
        name = operator.output.tensor
        # Copies that the compiler added have no counterpart in the network.
        if name not in values or name not in expected:
            continue
        found, wanted = (operator.output.of(x) for x in (values[name], expected[name]))
        same[number] = equal(found, wanted)
        if not same[number] and wrong is None:
            unknown = number + 1 - len(same)
            lost = f" (of {unknown} operators before it nothing was left to compare)" if unknown else ""
            wrong = operator.name, difference(found, wanted) + lost
    return same, wrong


def _times(program: MachineProgram, outcome: Outcome) -> tuple[dict[int, int], dict[int, int]]:
    """Cycle of the first issue, and cycle after the last completion, by operator."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    owner = program.operator_of
    for event in outcome.events:
        number = owner.get((event.warp, event.pc))
        if number is None:
            continue
        if event.kind is EventKind.ISSUE:
            first.setdefault(number, event.cycle)
        elif event.kind is EventKind.COMPLETE:
            last[number] = event.cycle + 1
    return first, last


@dataclass(frozen=True, repr=False)
class Prediction:
    """The cycle model's prediction for a model; nothing in it was observed.

    `steps` holds programs and host operators in execution order.
    """

    config: MachineConfig
    memories: MemorySettings
    steps: Sequence[MachineProgram | HostOperator]
    programs: Sequence[ProgramPrediction]

    @property
    def cycles(self) -> int:
        """Cycles of all programs."""
        return sum(p.predicted.cycles for p in self.programs)

    @property
    def events(self) -> list[Event]:
        """Every issue, completion and signal with its cycle, program after program."""
        return [event for p in self.programs for event in p.predicted.events]

    @property
    def operators(self) -> Sequence[OperatorResult | ProgramPrediction]:
        """All operators in execution order; a tile program counts as one operator."""
        found = [p for p in self.programs if isinstance(p, ModelProgramPrediction)]
        return operators_of(self.steps, found) if self.steps else list(self.programs)

    def __repr__(self) -> str:
        return f"<{self.cycles:,} cycles by the cycle model>"

    def _repr_html_(self) -> str:
        rows = [
            (o.name, o.op, o.cycles, o.bound_cycles, RESOURCES.get(o.bound, o.bound), o.bottleneck or "")
            for o in self.operators
        ]
        head = ("operator", "kind", "cycles", "lower bound", "bound by", "bottleneck")
        return f"<p><b>{self.cycles:,} cycles</b> by the cycle model</p>{table(head, rows)}"

    def as_dict(self) -> dict[str, Any]:
        """The JSON of a prediction."""
        return {
            "model_cycles": self.cycles,
            "events": len(self.events),
            "operators": [o.as_dict() for o in self.operators],
            "hw": self.config.hash,
            "machine": self.config.as_dict(),
            "memories": self.memories.as_dict(),
        }


def operators_of(
    steps: Sequence[MachineProgram | HostOperator], runs: Iterable[ModelProgramPrediction]
) -> list[OperatorResult]:
    """All operators in execution order; those of the host take no cycles of the machine."""
    left, made, at = enumerate(runs), list[OperatorResult](), 0
    for step in steps:
        if isinstance(step, HostOperator):
            where, output = "edge" if step.edge else "host", step.output
            about = (step.name, step.op, step.nodes, where, output.tensor, output.shape)
            made.append(OperatorResult(*about, at, at, why=step.reason))
            continue
        number, run = next(left)
        made += run.operators(at, number)
        at += run.outcome.cycles
    return made


def equal(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether two arrays are equal bit for bit."""
    same = found.dtype == wanted.dtype and found.shape == wanted.shape
    return same and found.tobytes() == wanted.tobytes()


def difference(found: np.ndarray, wanted: np.ndarray) -> str:
    """How many elements differ, and the first of them."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype} {list(found.shape)} instead of {wanted.dtype} {list(wanted.shape)}"
    places = np.argwhere(found != wanted)
    if not len(places):
        return "the bits differ, the numbers do not"
    index = tuple(int(i) for i in places[0])
    return (
        f"{len(places)} of {wanted.size} elements differ, first {list(index)}: "
        f"expected {wanted[index]}, got {found[index]}"
    )
