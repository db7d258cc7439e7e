"""Heald as a backend of ONNX (`onnx.backend.base.Backend`): models on the RTL, checked as in every run.

    from heald.backend import Backend
    outputs = Backend.run_model(model, [a, b])

Models are compiled for the machine that HEALD_HW names (a preset or file, `test` if it is not set) and run
in the "cpp" simulator, which is built once and cached.
"""

from __future__ import annotations

import os
import unittest
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend import base

from heald.run import Run
from heald.session import Arrays, GraphModel, compile
from heald.sources import OnnxSource
from hw.config import MachineConfig, load
from hw.errors import InputError
from sw.frontend.model import load as load_model

#: The environment variable that names the machine, and the preset if it is not set.
VARIABLE, PRESET = "HEALD_HW", "test"


class UnsupportedError(InputError, unittest.SkipTest):
    """A model that cannot be compiled for the machine; `onnx.backend.test` skips its test."""


def machine() -> MachineConfig:
    """The machine that models run on."""
    return load(os.environ.get(VARIABLE) or PRESET)


def compiled(proto: onnx.ModelProto, inputs: Arrays, config: MachineConfig) -> GraphModel:
    """The model compiled for inputs, some of which may become constants; the host only handles the edges.

    Raises `UnsupportedError` for what the machine cannot execute, and if it would execute nothing.
    """
    try:
        model = compile(OnnxSource("model", proto), config, inputs=inputs, progress=lambda text: None)
    except InputError as error:
        raise UnsupportedError(str(error)) from None
    assert isinstance(model, GraphModel)
    if not model.compiled.programs:
        raise UnsupportedError("the machine executes nothing of it, all is quantisation at its edges")
    return model


def named(proto: onnx.ModelProto, inputs: Any) -> dict[str, np.ndarray]:
    """Inputs, in the model's order or by name, as arrays by name; raises `InputError` for a wrong number."""
    held = {tensor.name for tensor in proto.graph.initializer}
    names = [value.name for value in proto.graph.input if value.name not in held]
    if isinstance(inputs, Mapping):
        return {name: np.asarray(array) for name, array in inputs.items()}
    arrays = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    if len(arrays) != len(names):
        raise InputError(f"the model takes {len(names)} inputs ({', '.join(names)}), not {len(arrays)}")
    return {name: np.asarray(array) for name, array in zip(names, arrays, strict=True)}


def outputs(proto: onnx.ModelProto, run: Run) -> tuple[np.ndarray, ...]:
    """The outputs in the model's order; raises `RuntimeError` if a check of the run failed."""
    if not run.verified:
        raise RuntimeError(f"the run is not proven: {run.failure}")
    return tuple(run.outputs[value.name] for value in proto.graph.output)


class Rep(base.BackendRep):  # type: ignore[misc]  # the package has no types
    """A model ready to run; it is compiled once the values of its parameters are known."""

    def __init__(self, proto: onnx.ModelProto, config: MachineConfig):
        self.proto, self.config = proto, config
        self._compiled: list[GraphModel] = []

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for inputs in the model's order or by name.

        Raises `UnsupportedError` for what cannot be compiled, `InputError` for inputs that do not fit, and
        `RuntimeError` if a check of the run failed.
        """
        arrays = named(self.proto, inputs)
        for model in self._compiled:
            if all(n in arrays and np.array_equal(arrays[n], a) for n, a in model.bound.items()):
                break
        else:
            model = compiled(self.proto, arrays, self.config)
            self._compiled.append(model)
        return outputs(self.proto, model.run(arrays, on="cpp", host_only=True))


class Backend(base.Backend):  # type: ignore[misc]  # as above
    """Compiles and runs models on the RTL of one machine; the host handles nothing but the edges."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the machine can execute the model; parameters that are inputs count as ones."""
        try:
            ones = {name: np.ones(shape, dtype) for name, (dtype, shape) in load_model(model).inputs.items()}
            compiled(model, ones, machine())
        except InputError:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Rep:
        """A model ready to run; raises `InputError` for an invalid model or another device."""
        if not cls.supports_device(device):
            raise InputError(f"device must be CPU, not {device}")
        try:
            onnx.checker.check_model(model)
        except onnx.checker.ValidationError as error:
            raise InputError(f"not a valid ONNX model: {str(error).splitlines()[0]}") from None
        return Rep(model, machine())

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node; `opset_version` selects its definition."""
        names = [name for name in node.input if name]
        arrays = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        if len(arrays) != len(names):
            raise InputError(f"the node takes {len(names)} inputs, not {len(arrays)}")
        taken = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip(names, map(np.asarray, arrays), strict=True)
        ]
        made = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = helper.make_graph([node], "node", taken, made)
        opset = helper.make_opsetid("", int(kwargs.get("opset_version", onnx.defs.onnx_opset_version())))
        model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[opset]))
        return cls.prepare(model, device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Only CPU, as which the simulated machine counts."""
        return device.split(":")[0] == "CPU"


prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
is_compatible = Backend.is_compatible
supports_device = Backend.supports_device
