"""Advice on refused nodes, by reason, form of the model, and the inputs that they depend on."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.refusal import Refusal
from sw.frontend.values import Constant, Stored

_STATICALLY = "quantize_static(..., quant_format=QuantFormat.QDQ)"
#: Advice for models with real numbers, by form of the model; `_types` handles "qdq".
_FORMS = {
    "float": f"the model is float32: quantise it first with {_STATICALLY}",
    "weights": "--dynamic quantises it at run time, or quantise the float32 original with quantize_static",
    "dynamic": f"quantise the float32 original with {_STATICALLY}",
    "qoperator": f"quantise the float32 original with {_STATICALLY}",
}
#: Advice by operator and reason; the first match counts.
_REMEDIES = (
    (
        r"DynamicQuantizeLSTM",
        "quantise the float32 original with quantize_static, which keeps LSTM, and use --fixed-point",
    ),
    (
        r"domain 'com.microsoft'",
        "optimise the model at a lower level in onnxruntime, which keeps it standard",
    ),
    (r"(not|from) int64", "make it int32 in the model"),
    (r"float16", "convert the model to float32, then quantise it"),
    (r"\bu?int(2|4|16)\b|float[48]", "quantise to 8 bits (activation_type, weight_type: QuantType.QInt8)"),
    (r"must be int8 or uint8 or int32, not (real|float)", ""),
    (r"opset", "convert the model to a newer opset (onnx.version_converter)"),
    (r"blocks", "quantise by tensor or by channel"),
)
#: Reasons that concern real numbers, and inputs that must be known.
_REAL = r"DequantizeLinear|QuantizeLinear|float32|real numbers|in fixed point"
_CONSTANT = r"its condition must|must be a constant, '(?P<name>.*)' is computed|shape of its result"
#: The reason that concerns the range of a state.
_STATE = r"range of its first state is not known \('(?P<name>.*)'\)"
_REGISTERED = "op_types_to_quantize=[*QDQRegistry, *QLinearOpsRegistry, "
_QUANTISATION = ("QuantizeLinear", "DequantizeLinear")
#: Most operator types named.
_MOST_TYPES = 6


def advised(importer: Importer, refusals: Sequence[Refusal], fixed: Importer | None) -> tuple[Refusal, ...]:
    """Adds advice to refusals; `fixed` is the model read in fixed point, if that was tried."""
    # A node that only computes an If's condition takes the refusal of the If.
    deciding = {n.place: r for r in refusals if r.op == "If" for n in _made_by(importer, r.inputs[:1])}
    types = _types(importer, refusals) if importer.model.form == "qdq" else ""
    left = {} if fixed is None else {r.place: r for r in fixed.refusals}
    causes = {r.place for r in importer.refusals if not r.follows}
    # Fixed point does not help if it only leads to the next refusal.
    helps = fixed is not None and all(r.follows or r.place in causes for r in fixed.refusals)
    found = []
    for r in refusals:
        cause = deciding.get(r.place, r)
        blocking = _blocking(importer, r, refusals)
        advice = [f"it may run once {blocking} does" if blocking else _advice(importer, cause, types)]
        if fixed is not None and re.search(_REAL, r.reason) and not r.lost:
            other = left.get(r.place)
            if other is None and not r.follows and helps:
                advice.insert(0, "use --fixed-point")
            elif other is not None and "--fixed-point" in r.reason:
                advice = [f"use --fixed-point and {_advice(fixed, other, types)}"]
        follows, advice = (r.follows and r.op != "If") or cause is not r, list(filter(None, advice))
        found.append(dataclasses.replace(r, follows=follows, lost=cause.lost, advice=tuple(advice)))
    return tuple(found)


def may_be_fixed(importer: Importer) -> bool:
    """Whether fixed point may change the refusals of a model that was read without it."""
    quantised = importer.model.form in ("qdq", "qoperator", "dynamic")
    real = any(re.search(_REAL, r.reason) for r in importer.refusals if not r.lost)
    return not importer.limbs and quantised and real


def _advice(importer: Importer, r: Refusal, types: str) -> str:
    if found := re.search(_CONSTANT, r.reason):
        names = (found["name"],) if found["name"] else r.inputs[: 1 if r.op == "If" else None]
        given = _given(importer, r, names)
        if given:
            return given
    if found := re.search(_STATE, r.reason):
        inputs = list(_inputs(importer, (found["name"],)))
        behind = f"input {inputs[0]!r}" if inputs else repr(found["name"])
        quantised = (
            f"put QuantizeLinear, DequantizeLinear after {behind} (op_types_to_quantize with {r.op!r})"
        )
        return f"{quantised} or make it a constant"
    if "scales must be positive" in r.reason:
        made = {n for n, node in importer.producers.items() if node.place == r.place}
        readers = [r.name, *(n.name for n in importer.model.nodes if not made.isdisjoint(n.inputs))]
        return f"quantise without what reads it (nodes_to_exclude=[{readers[-1]!r}])"
    told = f"{r.op}: {r.reason}"
    for pattern, text in _REMEDIES:
        if re.search(pattern, told):
            return text
    if not re.search(_REAL, r.reason):
        return ""
    branch = _origin(importer, r.name, r.op)[1]
    if branch:
        return (
            f"branches are not quantised: remove {branch} (quant_pre_process, or export without it), then "
            f"quantise"
        )
    return _FORMS.get(importer.model.form, types)


def _given(importer: Importer, r: Refusal, names: Sequence[str]) -> str:
    """How to supply the model's inputs that the compiler must know; empty if that is impossible."""
    inputs = importer.model.inputs
    decide = list(_inputs(importer, names))
    small = [n for n in decide if len(inputs[n][1]) <= 1]
    if small and (len(small) == len(decide) or "shape of its result" in r.reason):
        which = ", ".join(f"{n!r} ({inputs[n][0]}, shape {list(inputs[n][1])})" for n in small[:3])
        whole = [*small, *(n for n in inputs if n not in small)][:4]  # `heald run` takes all of them
        values = ", ".join(f"{n}=..." if n.isidentifier() else f"**{{{n!r}: ...}}" for n in whole)
        return f"it depends on input {which}: numpy.savez('in.npz', {values}), then --inputs in.npz"
    if r.op == "If" and decide:
        return (
            f"it depends on input {decide[0]!r}, which each run may change: export the model without the If"
        )
    if "shape of its result" in r.reason:
        return "remove it and everything after it from the model (onnx.utils.extract_model)"
    return "quantise statically (onnxruntime's quantize_static)" if re.search("scale|zero", r.reason) else ""


def _made_by(importer: Importer, names: Sequence[str]) -> Iterator[OnnxNode]:
    """The nodes that tensors depend on, each once."""
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        node = importer.producers.get(name)
        if node is not None:
            yield node
            waiting += node.inputs


def _inputs(importer: Importer, names: Sequence[str]) -> Iterator[str]:
    """The inputs of the model that tensors depend on."""
    read = {*names, *(n for node in _made_by(importer, names) for n in node.inputs)}
    return (name for name in importer.model.inputs if name in read)


def _blocking(importer: Importer, r: Refusal, refusals: Sequence[Refusal]) -> str:
    """The place of the operator that causes a refusal and that no quantisation can fix."""
    others = {x.place for x in refusals if not x.follows and not re.search(_REAL, x.reason)}
    made = _in_float32(importer, r.inputs) if r.follows and importer.model.form == "qdq" else ()
    return next((node.place for node in made if node.place in others), "")


def _types(importer: Importer, refusals: Sequence[Refusal]) -> str:
    """The quantiser option for operators that a quantised model has in float32."""
    real = [r for r in refusals if re.search(_REAL, r.reason) and not _blocking(importer, r, refusals)]
    nodes = [(r.name, r.op) for r in real]
    nodes += [(n.name, n.op) for n in _in_float32(importer, [name for r in real for name in r.inputs])]
    own = [t for t in dict.fromkeys(_origin(importer, *n)[0] for n in nodes) if t not in _QUANTISATION]
    named = ([t for t in own if t not in _quantised_anyway()] or own)[:_MOST_TYPES]
    return f"quantise again with {_REGISTERED}{', '.join(map(repr, named))}]"


def _in_float32(importer: Importer, names: Sequence[str]) -> Iterator[OnnxNode]:
    """The nodes that make tensors out of the nearest quantised ones."""
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop(0)
        node, value = importer.producers.get(name), importer.values.get(name)
        whole_numbers = isinstance(value, Constant) or (
            isinstance(value, Stored) and not value.element.startswith("float")
        )
        if node is None or whole_numbers or name in seen or node.op in _QUANTISATION:
            continue
        seen.add(name)
        held = [importer.model.constants[n] for n in node.inputs if n in importer.model.constants]
        if any(a.dtype.kind == "f" and not np.isfinite(a).all() for a in held):
            continue  # a number without a scale
        yield node
        waiting += node.inputs


def _origin(importer: Importer, name: str, op: str) -> tuple[str, str]:
    """The operator of a node in the file, and the If whose branch contains it, if any."""
    return importer.model.origins.get(name, (op, ""))


def _quantised_anyway() -> set[str]:
    """The types of operators that onnxruntime quantises by default."""
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    return {*QDQRegistry, *QLinearOpsRegistry}
