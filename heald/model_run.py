"""Runs of models, on a simulator or on a board."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cosim.advice import Predictor
from cosim.job import Simulator
from cosim.session.driver import drive
from cosim.session.machine_program import KernelFacts
from cosim.session.network import CompiledModel, Execution, predictor
from cosim.session.onnxruntime_comparison import ModelComparison, compare_model
from cosim.session.operators import OperatorResult, ProgramRun, difference, equal, operators_of
from cosim.session.results import Check, check, results_check
from cosim.settings import MemorySettings
from heald.report.html.data import RunReport
from heald.report.html.pages import of_model
from heald.run import Run
from heald.sources import OnnxSource
from hw.config import MachineConfig
from hw.errors import InputError
from sw.compile.legal import stores_sums
from sw.graph.accuracy import told
from sw.graph.host import HostOperator
from sw.graph.islands import Island, islands

Arrays = Mapping[str, np.ndarray]


@dataclass(kw_only=True, repr=False)
class ModelRun(Run):
    """The run of a model; `results` holds its programs, which contain its operators.

    `found` are the outputs, `wanted` those of the reference. `seconds` has the time of each pass. `source` is
    the compiled model, None for a problem; `inputs` are the run's. `tensors` are all tensors: as they ran, or
    the reference's if they were overwritten. `compared` is the comparison with onnxruntime, if one was made.
    With `host_only`, a model may run without the machine.
    """

    results: Sequence[ProgramRun]
    model: CompiledModel
    found: Arrays
    wanted: Arrays
    seconds: Mapping[str, float] = field(default_factory=dict)
    source: OnnxSource | None = None
    inputs: Arrays = field(default_factory=dict)
    tensors: Arrays = field(default_factory=dict)
    compared: ModelComparison | None = None
    host_only: bool = False

    def compare_reference(self) -> ModelComparison:
        """Compare the model, tensor by tensor, with onnxruntime, which executes it unchanged.

        The run's report, JSON and checks include the comparison from then on. Raises `InputError` if there is
        no ONNX model, or if onnxruntime cannot run it.
        """
        if self.source is None:
            raise InputError("a comparison with onnxruntime needs an ONNX model, not a problem")
        if self.compared is None:
            network = self.source.network(fuse=False)
            wrong = {*self.wrong_outputs, *(name for result in self.results for name in result.wrong_tensors)}
            self.compared = compare_model(self.source.proto, network, self.inputs, self.tensors, wrong)
        return self.compared

    @property
    def ran_on_machine(self) -> bool:
        """Whether any operator ran on the machine."""
        return bool(self.results)

    @property
    def checks(self) -> tuple[Check, ...]:
        """All checks; they include that something ran on the machine, and onnxruntime if it was compared."""
        checks = super().checks
        if not self.ran_on_machine and not self.host_only:
            checks = (_NOTHING_RAN, *checks)
        if self.compared is not None:
            wrong = [] if self.compared.ok else [str(self.compared.first)]
            what = f"tensors against onnxruntime {self.compared.version}, except roundings next to a tie"
            checks = (*checks, check("onnxruntime", what, wrong, len(self.compared.tensors), "tensors"))
        return checks

    @property
    def wrong_outputs(self) -> list[str]:
        """Outputs that differ from the reference."""
        return [name for name, array in self.wanted.items() if not equal(self.found[name], array)]

    @property
    def correct(self) -> bool:
        """Whether all outputs, and all tensors left in memory, equal the reference's."""
        return all(r.correct for r in self.results) and not self.wrong_outputs

    @property
    def kernels(self) -> list[KernelFacts]:
        """Configurations of the CGRA, without duplicates."""
        found = {k.words: k for r in self.results for k in r.program.kernels}
        return list(found.values())

    @property
    def unverified(self) -> list[KernelFacts]:
        """Configurations whose words do not implement their loop."""
        return [k for k in self.kernels if not k.verified]

    @property
    def configurations(self) -> Mapping[str, Sequence[str]]:
        """Bitstreams of the CGRA by name, with the differences between each and its loop."""
        return {k.name: k.differences for k in self.kernels}

    @property
    def first_wrong(self) -> tuple[str, str] | None:
        """The first operator with a wrong result, and the difference."""
        found = next((r.wrong for r in self.results if r.wrong is not None), None)
        if found is None and (names := self.wrong_outputs):
            return names[0], difference(self.found[names[0]], self.wanted[names[0]])
        return found

    @property
    def operators(self) -> list[OperatorResult]:
        """All operators, in execution order."""
        return operators_of(self.model.steps, self.results)

    @property
    def host_operators(self) -> list[str]:
        """Names of operators that the host executed, except edges."""
        return [s.name for s in self.model.steps if isinstance(s, HostOperator) and not s.edge]

    @property
    def islands(self) -> tuple[Island, ...]:
        """Groups of adjacent host operators, and what moves between them and the machine."""
        return islands(self.model.network, self.model.steps)

    @property
    def outputs(self) -> Arrays:
        """The outputs of the model."""
        return dict(self.found)

    def _predictor(self) -> Predictor | None:
        return predictor(self.model.network, self.inputs, self.tensors)

    def _results_check(self) -> Check:
        values = sum(array.size for r in self.results for array in r.values.values())
        values += sum(array.size for array in self.found.values())
        what = f"tensors that the RTL left in memory, and the outputs, against {self.reference}"
        return results_check(what, ": ".join(self.first_wrong) if self.first_wrong else "", values)

    def page(self) -> RunReport:
        """The contents of the report."""
        page = of_model(self._page(), self.results, self.operators, self.kernels)
        return replace(page, compared=self.compared)

    def _facts(self) -> dict[str, str]:
        passes = {f"compilation: {name}": f"{seconds:.2f} s" for name, seconds in self.seconds.items()}
        fixed = zip(["fixed point"], told(self.model.network.accuracy), strict=False)
        return super()._facts() | dict(fixed) | passes

    def as_dict(self) -> dict[str, Any]:
        """The JSON that `heald run --json` prints."""
        first = self.first_divergence
        operator = first[0].at if first is not None and isinstance(first[0], ProgramRun) else None
        base = super().as_dict()
        if base["first_divergence"] is not None:
            base["first_divergence"]["program"] = base["first_divergence"]["operator"]
            base["first_divergence"]["operator"] = operator
        wrong = self.first_wrong
        operators = [o.as_dict() for o in self.operators]
        for entry in operators:
            if entry["program"] is not None and len(self.results[entry["program"]].program.operators) == 1:
                # The facts of a program with one operator belong to that operator.
                entry |= self.results[entry["program"]].as_dict() | entry
        return base | {
            "checked": base["checked"] | {"dependences": sum(r.checked.dependences for r in self.results)},
            "first_wrong": wrong and {"operator": wrong[0], "difference": wrong[1]},
            "operators": operators,
            "host_operators": self.host_operators,
            "islands": [island.as_dict() for island in self.islands],
            "fixed_point": {n: a.as_dict() for n, a in self.model.network.accuracy.items()},
            "ii": [k.as_dict() for k in self.kernels],
            "programs": [r.as_dict() for r in self.results],
            "compile_seconds": dict(self.seconds),
            "ran_on_machine": self.ran_on_machine,
            "compared": self.compared and self.compared.as_dict(),
            "outputs": {n: {"type": str(a.dtype), "shape": list(a.shape)} for n, a in self.found.items()},
        }


#: The failed check if all of a model was left to the host.
_NOTHING_RAN = Check(
    "machine",
    "operators that the machine executed",
    False,
    unit="operators",
    detail="nothing ran on the machine: the host executed the whole model (--host-only accepts that)",
)


class DeviceRun(ModelRun):
    """The run of a model on a board: the board counts the cycles, and only results are compared.

    The speed of a board's memory is unknown, so there is no prediction of its cycles.
    """

    @property
    def model_cycles(self) -> None:
        """None: nothing was predicted for this memory."""

    @property
    def first_divergence(self) -> None:
        """None: cycles are not compared."""

    @property
    def checks(self) -> tuple[Check, ...]:
        """The check of results; cycles are not checked."""
        return tuple(c for c in super().checks if c.name not in ("cycles", "warps", "configurations"))

    def as_dict(self) -> dict[str, Any]:
        """The JSON that `heald run --device ... --json` prints."""
        whole = super().as_dict()
        return {
            "device": self.sim,
            "correct": self.correct,
            "cycles": self.cycles,
            "seconds": self.sim_seconds,
            **{name: whole[name] for name in ("first_wrong", "outputs", "ran_on_machine", "compared")},
            "programs": [
                {
                    "name": r.name,
                    "cycles": r.observed.cycles,
                    "seconds": r.observed.seconds,
                    "error": r.observed.error and r.observed.error.text,
                    "counters": dict(r.observed.counters),
                }
                for r in self.results
            ],
        }

    def report(self, file: Any) -> None:
        """Raises `InputError`: a report shows events, which a board does not record."""
        raise InputError("a report needs a run on a simulator: a board records no events")

    trace = report


def run_model(
    model: CompiledModel,
    inputs: Arrays,
    memories: MemorySettings,
    simulator: Callable[[], Simulator],
    *,
    title: str = "",
    sim: str = "",
    progress: Callable[[str], None] = lambda text: None,
    kind: type[ModelRun] = ModelRun,
    source: OnnxSource | None = None,
) -> ModelRun:
    """Run a compiled model and compare everything.

    `simulator` is called once the first program is predicted, and never if there is none. `source` is a field
    of the run. Raises `InputError` for inputs that are missing, unknown, or of another type or shape.
    """
    execution = Execution(model, inputs, memories)
    made = drive(execution.programs, simulator, sim=sim, progress=progress)
    network = model.network
    return kind(
        **vars(made),
        title=title or network.name or "model",
        memories=memories,
        config=memories.behind(model.config),
        compile_seconds=sum(model.seconds.values()),
        sim=sim,
        reference="NumPy" if all(stores_sums(o) for o in network.operators) else "the reference",
        model=model,
        found={name: execution.arrays[name] for name in network.outputs},
        wanted={name: execution.expected[name] for name in network.outputs},
        seconds=execution.seconds,
        source=source,
        inputs=dict(inputs),
        tensors=execution.expected | execution.arrays,
    )


def check_device(address: str, config: MachineConfig | None = None) -> None:
    """Raises `BusError` unless the machine at `uart:...` or `mmio:...` answers, and is that of `config`."""
    from cosim.device import Device, open_bus

    with contextlib.closing(open_bus(address)) as bus:
        if config is not None:
            Device(bus, config)


def run_on_device(
    model: CompiledModel, inputs: Arrays, address: str, *, timeout: float | None = 60.0, **options: Any
) -> ModelRun:
    """Run a model on the board at `uart:...` or `mmio:...`, which must hold the machine it was compiled for.

    `timeout` is in seconds for each program; `options` are those of `run_model`. Raises `InputError` for
    inputs that do not fit, and `BusError`, a subclass, if the board has too little memory, does not finish in
    time, or cannot be reached.
    """
    # These need pyserial, which only boards do.
    from cosim.device import Device, DeviceSimulator, open_bus

    with contextlib.closing(open_bus(address)) as bus:
        machine = DeviceSimulator(Device(bus, model.config), timeout)
        what = (model, inputs, MemorySettings.of(model.config), lambda: machine)
        return run_model(*what, sim=address, kind=DeviceRun, **options)
