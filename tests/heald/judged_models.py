"""Judges models: operators against onnxruntime and exact arithmetic, programs on model and RTL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

from cosim.job import Simulator
from cosim.session.network import compile_model
from cosim.settings import MemorySettings
from heald.model_run import run_model
from hw.config import MachineConfig
from hw.errors import InputError
from sw.frontend.network import import_model
from sw.graph import reference
from sw.graph.host import HostOperator
from sw.graph.network import Network
from sw.operators.normalisation.operator import Normalisation
from sw.operators.softmax_rows import SoftmaxRows
from tests.heald.exact_models import Exact, unexplained
from tests.sw.quantised_models import operator_results, runtime

#: Limits that the documentation states, by what their messages say.
DOCUMENTED = (
    "no (sum|product) in fixed point is exact for these scales",
    "too far apart in magnitude for a sum of 32 bits",
    "QuantizeLinear and DequantizeLinear are needed between",
    "must fit .* bytes of the scratchpad",
    "no tile fits accumulator",
)


@dataclass
class Judged:
    """What became of a model.

    `rounded` and `wrong` count elements of single operators that differ from onnxruntime: next to a tie, or
    otherwise; `apart` those of the whole model's outputs. `failures` are sentences.
    """

    kinds: list[str]
    operators: int = 0
    elements: int = 0
    rounded: int = 0
    wrong: int = 0
    apart: int = 0
    outputs: int = 0
    refused: str = ""
    documented: bool = True
    diverged: int = 0
    programs: int = 0
    cycles: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.failures and self.documented

    def refuse(self, error: InputError) -> None:
        """The model cannot be had."""
        self.refused = str(error)
        self.documented = any(re.search(text, self.refused) for text in DOCUMENTED)


def judged(
    model: onnx.ModelProto,
    kinds: list[str],
    config: MachineConfig,
    seed: int,
    simulator: Callable[[], Simulator] | None,
    settings: MemorySettings | None = None,
) -> Judged:
    """Compare a model's operators with onnxruntime, then its programs with the reference.

    Without a simulator the second part is left out. `seed` is that of the inputs.
    """
    settings = settings or MemorySettings.of(config)
    made = Judged(kinds)
    try:
        network = import_model(model)
    except InputError as error:
        made.refuse(error)
        return made
    inputs = reference.random_inputs(network, np.random.default_rng(seed))
    _compare(made, model, network, inputs)
    if simulator is None:
        return made
    try:
        compiled = compile_model(network, settings.behind(config))
    except InputError as error:
        made.refuse(error)
        return made
    report = run_model(compiled, inputs, settings, simulator)
    made.programs, made.cycles = len(report.results), sum(r.observed.cycles for r in report.results)
    if not report.correct:
        made.failures.append(f"wrong on the RTL: {report.first_wrong}")
        made.wrong += 1
    for run in report.results:
        if run.divergence is not None:
            made.diverged += 1
            made.failures.append(f"{run.name}: {run.divergence}")
        if not run.checked.ok:
            made.failures.append(f"{run.name}: warps: {run.checked.reason}")
    made.failures += [f"{k.name}: {k.differences[0]}" for k in report.unverified]
    made.diverged += len([r for r in report.results if not r.checked.ok]) + len(report.unverified)
    return made


def _compare(
    made: Judged, model: onnx.ModelProto, network: Network, inputs: Mapping[str, np.ndarray]
) -> None:
    """Every operator, given onnxruntime's operands; then the outputs of the whole model."""
    theirs, found = operator_results(model, network, dict(inputs), False)
    for operator, result in zip(network.operators, found, strict=True):
        made.operators += not isinstance(operator, HostOperator)
        tensor = operator.output.tensor
        if result is None:
            continue
        expected = operator.output.of(theirs[tensor].reshape(network.tensors[tensor].shape))
        apart = np.abs(result.astype(np.float64) - expected)
        made.elements += apart.size
        if isinstance(operator, SoftmaxRows | Normalisation):
            bad = int((apart > 1).sum())
            made.rounded += int((apart > 0).sum()) - bad
        elif result.dtype.kind == "f":
            bad = int((apart > 1e-5 * np.maximum(1, np.abs(expected))).sum())
        elif not apart.any():
            bad = 0
        else:
            exact = Exact(model, {**theirs, **inputs}, operator.nodes).unrounded(tensor)
            exact = operator.output.of(np.ascontiguousarray(exact).reshape(network.tensors[tensor].shape))
            # Where ours is onnxruntime's, a tie inside of the operator may go the other way in `exact`.
            bad = unexplained(exact[apart > 0], result[apart > 0])
            made.rounded += int((apart > 0).sum()) - bad
        if bad:
            made.wrong += bad
            made.failures.append(f"{operator.name} ({operator.op}): {bad} of {apart.size} are wrong")
    ours, whole = reference.run(network, inputs), runtime(model, dict(inputs))
    for name, array in ours.items():
        made.outputs += array.size
        made.apart += int((array != whole[name]).sum())
        if array.shape != whole[name].shape or array.dtype != whole[name].dtype:
            made.failures.append(f"{name}: {array.dtype} of {array.shape}")
            made.wrong += 1
