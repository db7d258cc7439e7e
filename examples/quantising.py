"""Quantisation of float models by onnxruntime's own tool, calibrated with random inputs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """Random inputs that the tool looks at to choose scales."""

    def __init__(self, name: str, shape: tuple[int, ...], seed: int, count: int = 4):
        rng = np.random.default_rng([seed, 1])
        self.left = iter([{name: rng.normal(0, 1, shape).astype(np.float32)} for _ in range(count)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next input."""
        return next(self.left, None)


def quantise(model: onnx.ModelProto, path: Path, seed: int = 0, per_channel: bool = False) -> None:
    """Write a model of one float input with int8 weights and activations, quantised and dequantised (QDQ)."""
    (given,) = model.graph.input
    shape = tuple(d.dim_value for d in given.type.tensor_type.shape.dim)
    with tempfile.TemporaryDirectory() as folder:
        plain, prepared = str(Path(folder) / "float.onnx"), str(Path(folder) / "prepared.onnx")
        onnx.save(model, plain)
        quant_pre_process(plain, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            str(path),
            Samples(given.name, shape, seed),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            per_channel=per_channel,
        )
