"""Writes a quantised BERT encoder layer: a float model with random weights, quantised by onnxruntime.

Its matrix products, residual additions, GELU, softmax and layer normalisation are what one layer of BERT has
(Devlin et al., 2019); sizes can be chosen.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from quantising import quantise

OPSET = 20


class Layer:
    """The float model, node by node."""

    def __init__(self, sequence: int, hidden: int, heads: int, feed_forward: int, seed: int):
        self.shape = (1, sequence, hidden)
        self.heads, self.feed_forward = heads, feed_forward
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, array: np.ndarray) -> str:
        """A weight, or a shape."""
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """One node, named after its output."""
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def dense(self, x: str, name: str, inputs: int, outputs: int) -> str:
        """A product with weights, and a bias."""
        scale = 1 / np.sqrt(inputs)
        w = self.constant(f"{name}.weight", self.rng.normal(0, scale, (inputs, outputs)).astype(np.float32))
        b = self.constant(f"{name}.bias", self.rng.normal(0, 0.1, outputs).astype(np.float32))
        return self.node("Add", [self.node("MatMul", [x, w], f"{name}.product"), b], name)

    def split(self, x: str, name: str, order: list[int]) -> str:
        """Heads out of the hidden axis, axes in this order."""
        _, sequence, hidden = self.shape
        shape = self.constant(f"{name}.shape", np.array([1, sequence, self.heads, hidden // self.heads]))
        return self.node("Transpose", [self.node("Reshape", [x, shape], f"{name}.split")], name, perm=order)

    def normalised(self, x: str, name: str) -> str:
        """Layer normalisation."""
        hidden = self.shape[-1]
        gamma = self.constant(f"{name}.gamma", self.rng.normal(1, 0.1, hidden).astype(np.float32))
        beta = self.constant(f"{name}.beta", self.rng.normal(0, 0.1, hidden).astype(np.float32))
        return self.node("LayerNormalization", [x, gamma, beta], name, axis=-1, epsilon=1e-5)

    def model(self) -> onnx.ModelProto:
        """The whole layer."""
        hidden = self.shape[-1]
        x = "input"
        query, key, value = (self.dense(x, name, hidden, hidden) for name in ("query", "key", "value"))
        q, v = (self.split(y, f"{y}.heads", [0, 2, 1, 3]) for y in (query, value))
        k = self.split(key, f"{key}.heads", [0, 2, 3, 1])
        root = self.constant("root", np.array(np.sqrt(hidden // self.heads), np.float32))
        scores = self.node("Div", [self.node("MatMul", [q, k], "scores.product"), root], "scores")
        weights = self.node("Softmax", [scores], "attention", axis=-1)
        context = self.node("MatMul", [weights, v], "context.heads")
        together = self.node("Transpose", [context], "context.joined", perm=[0, 2, 1, 3])
        shape = self.constant("context.shape", np.array(self.shape))
        joined = self.node("Reshape", [together, shape], "context")
        output = self.dense(joined, "output", hidden, hidden)
        first = self.normalised(self.node("Add", [x, output], "residual_1"), "norm_1")
        inner = self.node("Gelu", [self.dense(first, "feed_forward_1", hidden, self.feed_forward)], "gelu")
        outer = self.dense(inner, "feed_forward_2", self.feed_forward, hidden)
        result = self.normalised(self.node("Add", [first, outer], "residual_2"), "result")
        graph = helper.make_graph(
            self.nodes,
            "bert_encoder_layer",
            [helper.make_tensor_value_info(x, TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, self.shape)],
            self.constants,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def write(path: Path, sequence: int, hidden: int, heads: int, feed_forward: int, seed: int) -> None:
    """Write the quantised model of a layer of this size."""
    quantise(Layer(sequence, hidden, heads, feed_forward, seed).model(), path, seed)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("bert_encoder.onnx"))
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--feed-forward", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    write(given.output, given.sequence, given.hidden, given.heads, given.feed_forward, given.seed)


if __name__ == "__main__":
    main()
