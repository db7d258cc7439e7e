"""Unrolls LSTM, GRU and RNN into smaller operators, step by step.

The product of the inputs with W is shared by all steps. A step has a product with R and elementwise
operators. Steps have the same form, so that they become a loop (`sw.compile.repeat`).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sw.frontend.node import OnnxNode

#: Gates in the order of the rows of W and R; and the default activations.
_GATES = {"LSTM": "iofc", "GRU": "zrh", "RNN": "h"}
_DEFAULTS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
#: Activations: the ONNX operator, and which of alpha and beta it has, with their defaults.
_ACTIVATIONS: dict[str, tuple[str, dict[str, float]]] = {
    "relu": ("Relu", {}),
    "tanh": ("Tanh", {}),
    "sigmoid": ("Sigmoid", {}),
    "softsign": ("Softsign", {}),
    "softplus": ("Softplus", {}),
    "affine": ("", {"alpha": 1.0, "beta": 0.0}),
    "scaledtanh": ("", {"alpha": 1.0, "beta": 1.0}),
    "leakyrelu": ("LeakyRelu", {"alpha": 0.01}),
    "thresholdedrelu": ("ThresholdedRelu", {"alpha": 1.0}),
    "elu": ("Elu", {"alpha": 1.0}),
    "hardsigmoid": ("HardSigmoid", {"alpha": 0.2, "beta": 0.5}),
}
#: Activations with values in [0, 1], and in [-1, 1].
_WEIGHTS = ("sigmoid", "hardsigmoid")
_WITHIN_ONE = (*_WEIGHTS, "tanh", "softsign")
RECURRENT = tuple(_GATES)
#: Most steps that are unrolled.
MOST_STEPS = 256


class Known(enum.Enum):
    """A bound on a state that holds for any weights."""

    NOTHING = "nothing"
    #: It lies in [-1, 1].
    ONE = "one"
    #: It lies between its previous value and numbers in [-1, 1].
    MEAN = "mean"
    #: Its magnitude grows by less than 1 per step.
    SUM = "sum"


def written_out(node: OnnxNode, shape: Sequence[int], hidden: int, constants: dict[str, np.ndarray]) -> Layer:
    """Unrolls an LSTM, GRU or RNN for X of this shape to nodes; adds new constants to `constants`.

    Raises `InputError` for computed sequence lengths, unknown activations, and more than `MOST_STEPS` steps.
    """
    layer = Layer(node, constants, tuple(shape), hidden)
    layer.write()
    return layer


@dataclass
class Layer:
    """The nodes of a layer, whose X has `shape` and whose state has `hidden` elements.

    `ends` holds the states after the nodes that end a step, with the bound of each.
    """

    node: OnnxNode
    constants: dict[str, np.ndarray]
    shape: tuple[int, ...]
    hidden: int
    nodes: list[OnnxNode] = field(default_factory=list)
    ends: dict[int, list[tuple[str, Known]]] = field(default_factory=dict)
    _constants: dict[tuple[str, tuple[int, ...], bytes], str] = field(default_factory=dict)
    _taken: dict[tuple[str, int, int | range], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stem = next(name for name in self.node.outputs if name)
        self.batch_first = bool(self.node.attributes.get("layout", 0))
        steps, batch, _ = self.shape
        self.steps, self.batch = (batch, steps) if self.batch_first else (steps, batch)
        if self.steps > MOST_STEPS:
            raise self.node.error(f"a sequence must have at most {MOST_STEPS} steps, not {self.steps}")
        self.lengths = self._lengths()

    def _lengths(self) -> np.ndarray | None:
        """The sequence lengths; None if all sequences are complete."""
        name = self.node.optional(4)
        if name and name not in self.constants:
            raise self.node.error(f"sequence_lens must be a constant, not {name!r}")
        whole = not name or np.all(self.constants[name] == self.steps)
        return None if whole else self.constants[name].astype(np.int64)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Appends a node and returns the name of its result."""
        output = f"{self.stem}.{len(self.nodes)}.{op}"
        self.nodes.append(OnnxNode(self.node.name, op, inputs, (output,), attributes))
        return output

    def constant(self, values: Any, kind: type = np.float32) -> str:
        """A constant of the layer; equal ones are shared."""
        array: np.ndarray = np.asarray(values, kind)
        key = (str(array.dtype), array.shape, array.tobytes())
        name = self._constants.setdefault(key, f"{self.stem}.constant.{len(self._constants)}")
        self.constants[name] = array
        return name

    def taken(self, name: str, axis: int, index: int | range) -> str:
        """One position along an axis, which is removed, or successive positions."""
        if (name, axis, index) not in self._taken:
            places = index if isinstance(index, int) else list(index)
            gathered = self.add("Gather", name, self.constant(places, np.int64), axis=axis)
            self._taken[name, axis, index] = gathered
        return self._taken[name, axis, index]

    def reshaped(self, name: str, *sizes: int) -> str:
        """The same elements in another shape."""
        return self.add("Reshape", name, self.constant(sizes, np.int64))

    def write(self) -> None:
        """Writes all nodes, with those of the outputs last."""
        direction = self.node.attributes.get("direction", "forward")
        backward = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
        x = self.node.inputs[0]
        if self.batch_first:
            x = self.add("Transpose", x, perm=[1, 0, 2])
        done = [_Direction(self, number, back).run(x) for number, back in enumerate(backward)]
        count, batch, hidden = len(done), self.batch, self.hidden
        rows = []
        if self.node.outputs[0]:
            rows = [self.reshaped(d.rows[t], 1, 1, batch, hidden) for t in range(self.steps) for d in done]
        states = [
            [self.reshaped(d.state[i], 1, batch, hidden) for d in done] for i in range(len(done[0].state))
        ]
        for index, name in enumerate(self.node.outputs):
            if not name:
                continue
            if index:
                made = self.add("Concat", *states[index - 1], axis=0)
                perm = [1, 0, 2]
            else:
                made = self.reshaped(self.add("Concat", *rows, axis=0), self.steps, count, batch, hidden)
                perm = [2, 0, 1, 3]
            if self.batch_first:
                made = self.add("Transpose", made, perm=perm)
            last = self.nodes[-1]
            self.nodes[-1] = OnnxNode(last.name, last.op, last.inputs, (name,), last.attributes)


class _Direction:
    """One direction of a layer: its weights, the state [h] or [h, c], the rows of Y by time."""

    def __init__(self, layer: Layer, number: int, backward: bool):
        self.layer, self.backward, self.op = layer, backward, layer.node.op
        self.attributes = layer.node.attributes
        self.gates = _GATES[self.op]
        self.number = number
        self.rows: list[str] = [""] * layer.steps
        self.functions = self._functions(number)
        self.r = layer.add("Transpose", self._weights(2), perm=[1, 0])
        both = self._weights(3)
        width = len(self.gates) * layer.hidden
        self.bias = [layer.taken(both, 0, range(i * width, (i + 1) * width)) for i in (0, 1)] if both else []
        self.peepholes = self._weights(7) if self.op == "LSTM" else ""
        self.state = [self._initial(5), *([self._initial(6)] if self.op == "LSTM" else [])]

    def run(self, x: str) -> _Direction:
        """Appends all steps; X is [steps, batch, inputs]."""
        layer = self.layer
        turned = self.backward and layer.lengths is not None
        if turned:
            x = self._reversed(x)
        product = layer.add("MatMul", x, layer.add("Transpose", self._weights(1), perm=[1, 0]))
        if self.bias:
            product = layer.add("Add", product, self._input_bias())
        times = range(layer.steps)
        for t in reversed(times) if self.backward and not turned else times:
            before = self.state
            self.state = self._step(layer.taken(product, 0, t))
            self.rows[t] = self._held(before, t) if layer.lengths is not None else self.state[0]
            layer.ends[len(layer.nodes)] = list(zip(self.state, self._known(), strict=True))
        if turned:
            form = (layer.batch, layer.hidden)
            rows = layer.add("Concat", *(layer.reshaped(row, 1, *form) for row in self.rows), axis=0)
            rows = self._reversed(rows)
            self.rows = [layer.taken(rows, 0, t) for t in times]
        return self

    def _weights(self, index: int) -> str:
        """The part of an input for this direction; empty if it is missing."""
        name = self.layer.node.optional(index)
        return self.layer.taken(name, 0, self.number) if name else ""

    def _initial(self, index: int) -> str:
        """The state before the first step; empty if it is zero."""
        name = self.layer.node.optional(index)
        held = self.layer.constants.get(name)
        if not name or (held is not None and not held.any()):
            return ""
        return self.layer.taken(name, 1 if self.layer.batch_first else 0, self.number)

    def _reversed(self, x: str) -> str:
        """Every sequence reversed; what follows it stays."""
        lengths = self.layer.constant(self.layer.lengths, np.int64)
        return self.layer.add("ReverseSequence", x, lengths, time_axis=0, batch_axis=1)

    def _held(self, before: list[str], t: int) -> str:
        """The row of Y at a step that some sequences lack: 0 for those, which keep their state."""
        layer = self.layer
        assert layer.lengths is not None
        there, zero = layer.constant((layer.lengths > t)[:, None], np.bool_), layer.constant(0)
        row = layer.add("Where", there, self.state[0], zero)
        pairs = zip(self.state, before, strict=True)
        self.state = [layer.add("Where", there, new, old or zero) for new, old in pairs]
        return row

    def _functions(self, number: int) -> list[tuple[str, dict[str, float]]]:
        """The activations of this direction, with their parameters."""
        default = _DEFAULTS[self.op]
        names = self.attributes.get("activations") or [*default, *default]
        given = {k: list(self.attributes.get(f"activation_{k}") or ()) for k in ("alpha", "beta")}
        found = []
        for name in names:
            name = name.decode() if isinstance(name, bytes) else str(name)
            if name.lower() not in _ACTIVATIONS:
                raise self.layer.node.error(f"activation {name!r} is not one of ONNX")
            _, parameters = _ACTIVATIONS[name.lower()]
            own = {k: given[k].pop(0) if given[k] else v for k, v in parameters.items()}
            found.append((name.lower(), own))
        return found[number * len(default) : (number + 1) * len(default)]

    def _activated(self, which: int, x: str) -> str:
        """An activation; the input of a gate (not c) is limited to -clip to clip if that is given."""
        layer, (name, own) = self.layer, self.functions[which]
        limit = float(self.attributes.get("clip", 0.0))
        if limit and which < 2:
            x = layer.add("Min", layer.add("Max", x, layer.constant(-limit)), layer.constant(limit))
        if name == "affine":
            return layer.add(
                "Add", layer.add("Mul", x, layer.constant(own["alpha"])), layer.constant(own["beta"])
            )
        if name == "scaledtanh":
            inner = layer.add("Tanh", layer.add("Mul", x, layer.constant(own["beta"])))
            return layer.add("Mul", inner, layer.constant(own["alpha"]))
        return layer.add(_ACTIVATIONS[name][0], x, **own)

    def _gate(self, name: str, letters: str) -> str:
        """The columns of adjacent gates."""
        hidden, first = self.layer.hidden, self.gates.index(letters[0])
        return self.layer.taken(name, -1, range(first * hidden, (first + len(letters)) * hidden))

    def _linear_before_reset(self) -> bool:
        return self.op == "GRU" and bool(self.attributes.get("linear_before_reset", 0))

    def _input_bias(self) -> str:
        """The bias of the inputs' product: both biases, without the part of R that the reset gate scales."""
        layer, (own, recurrent) = self.layer, self.bias
        if self._linear_before_reset():
            parts = [self._gate(recurrent, "zr"), layer.constant(np.zeros(layer.hidden))]
            recurrent = layer.add("Concat", *parts, axis=0)
        return layer.add("Add", own, recurrent)

    def _step(self, x: str) -> list[str]:
        """The state after a step, from the inputs' part of the gates [batch, gates]."""
        return {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}[self.op](x)

    def _plus_product(self, x: str) -> str:
        h = self.state[0]
        return self.layer.add("Add", x, self.layer.add("MatMul", h, self.r)) if h else x

    def _rnn(self, x: str) -> list[str]:
        return [self._activated(0, self._plus_product(x))]

    def _lstm(self, x: str) -> list[str]:
        layer, c = self.layer, self.state[1]
        x = self._plus_product(x)
        new = self._activated(1, self._gate(x, "c"))
        coupled = bool(self.attributes.get("input_forget", 0))
        if self.peepholes:
            i, f = (self._activated(0, self._looking(x, gate, c)) for gate in "if")
        else:
            gates = self._activated(0, self._gate(x, "iof"))
            i, o, f = (self._gate(gates, gate) for gate in "iof")
        kept = ""
        if c:
            f = layer.add("Sub", layer.constant(1), i) if coupled else f
            kept = layer.add("Mul", f, c)
        c = layer.add("Mul", i, new)
        c = layer.add("Add", kept, c) if kept else c
        if self.peepholes:
            o = self._activated(0, self._looking(x, "o", c))
        return [layer.add("Mul", o, self._activated(2, c)), c]

    def _looking(self, x: str, gate: str, c: str) -> str:
        """A gate that also sees c (a peephole)."""
        layer, own = self.layer, self._gate(x, gate)
        if not c:
            return own
        weights = layer.taken(self.peepholes, 0, range(*self._span(gate)))
        return layer.add("Add", own, layer.add("Mul", c, weights))

    def _span(self, gate: str) -> tuple[int, int]:
        first = self.gates.index(gate) * self.layer.hidden
        return first, first + self.layer.hidden

    def _gru(self, x: str) -> list[str]:
        layer, h = self.layer, self.state[0]
        inputs = self._gate(x, "h")
        if not h:
            z = self._activated(0, self._gate(x, "z"))
            if self._linear_before_reset() and self.bias:
                reset = layer.add(
                    "Mul", self._activated(0, self._gate(x, "r")), self._gate(self.bias[1], "h")
                )
                inputs = layer.add("Add", inputs, reset)
            new = self._activated(1, inputs)
            return [layer.add("Mul", layer.add("Sub", layer.constant(1), z), new)]
        weights = self.r
        if self._linear_before_reset():
            product = layer.add("MatMul", h, weights)
            gates = layer.add("Add", self._gate(x, "zr"), self._gate(product, "zr"))
        else:
            gates = layer.add("MatMul", h, self._gate(weights, "zr"))
            gates = layer.add("Add", self._gate(x, "zr"), gates)
        gates = self._activated(0, gates)
        z, r = (self._gate(gates, gate) for gate in "zr")
        if self._linear_before_reset():
            own = self._gate(product, "h")
            own = layer.add("Add", own, self._gate(self.bias[1], "h")) if self.bias else own
            reset = layer.add("Mul", r, own)
        else:
            reset = layer.add("MatMul", layer.add("Mul", r, h), self._gate(weights, "h"))
        new = self._activated(1, layer.add("Add", inputs, reset))
        return [layer.add("Add", new, layer.add("Mul", z, layer.add("Sub", h, new)))]

    def _known(self) -> list[Known]:
        """The bound of every state."""
        weight, new, *last = ((n in _WEIGHTS, n in _WITHIN_ONE) for n, _ in (*self.functions, ("", {})))
        if self.op == "RNN":
            return [Known.ONE if weight[1] else Known.NOTHING]
        kept = Known.NOTHING if not (weight[0] and new[1]) else Known.MEAN
        if self.op == "GRU":
            return [kept]
        if kept is Known.MEAN and not self.attributes.get("input_forget", 0):
            kept = Known.SUM
        return [Known.ONE if weight[0] and last[0][1] else Known.NOTHING, kept]
