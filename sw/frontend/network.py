"""Imports an ONNX model as a network of integer operators (docs/network.md)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hw.errors import InputError
from sw.frontend.advice import advised, may_be_fixed
from sw.frontend.fold import computed
from sw.frontend.importer import Handler, Importer, attempt
from sw.frontend.model import OnnxModel, load
from sw.frontend.node import OnnxNode
from sw.frontend.protos import outer_names
from sw.frontend.recurrent import RECURRENT
from sw.frontend.refusal import Refusal, RefusedError
from sw.frontend.values import Constant, Stored, Value, is_real
from sw.graph.fuse import fused, with_tensor
from sw.graph.islands import gathered
from sw.graph.network import Network, Tensor, whole
from sw.operators import host
from sw.operators.dynamic import behind
from sw.operators.fixed import limits, recurrent
from sw.operators.registry import HANDLERS, REAL_HANDLERS, REWRITES, WHOLE_HANDLERS

#: Operators that the machine executes.
SUPPORTED = tuple(sorted({*HANDLERS, *REAL_HANDLERS, *WHOLE_HANDLERS}))


def import_model(
    source: Path | str | Any,
    *,
    allow_host: bool = False,
    place: str = "model",
    hosted: Mapping[str, str] = MappingProxyType({}),
    fuse: bool = True,
) -> Network:
    """Imports an ONNX file, or an `onnx.ModelProto` that messages call `place`, as a network.

    Nodes that the machine cannot execute are refused, or left to the host with `allow_host`. So are those
    named in `hosted`, for the reason given there. Without `fuse`, every quantised tensor has its own
    operator. Raises `RefusedError` with all refusals, and `InputError` for a file that cannot be read.
    """
    importer = read(source, allow_host=allow_host, place=place, hosted=hosted)
    refused = [r for r in importer.refusals if r.lost or not allow_host]
    if refused:
        raise RefusedError(refusals(importer, refused))
    return network_of(importer, fuse)


def read(source: Path | str | Any, *, allow_host: bool, place: str, hosted: Mapping[str, str]) -> Importer:
    """Reads the operators of a model; refused nodes are recorded and left to the host.

    In fixed point, products use as few bytes of their operands as the error limits allow.
    """
    model = load(source, place)
    for rewrite in REWRITES:
        model = rewrite(model)
    return _of_model(model, allow_host, hosted)


def refusals(importer: Importer, refused: Sequence[Refusal] | None = None) -> tuple[Refusal, ...]:
    """Refusals of a model (or those given) with advice; tries fixed point to find it."""
    fixed = None
    if may_be_fixed(importer):
        model = dataclasses.replace(importer.model, fixed_point=True)
        fixed = _of_model(model, importer.allow_host, importer.wanted)
    return advised(importer, importer.refusals if refused is None else refused, fixed)


def _of_model(model: OnnxModel, allow_host: bool, hosted: Mapping[str, str]) -> Importer:
    if not model.fixed_point:
        return _read(Importer(model, allow_host, hosted))
    tried: list[Importer] = []
    for limbs in (2, 3, 4):
        tried.append(_read(Importer(model, allow_host, hosted, limbs)))
        if not tried[-1].imprecise:
            break
    return min(tried, key=lambda importer: len(importer.refusals))


def _read(importer: Importer) -> Importer:
    model = importer.model
    for name, (dtype, shape) in model.inputs.items():
        importer.tensors[name] = Tensor(name, shape, str(dtype))
        importer.values[name] = Stored(whole(importer.tensors[name]), str(dtype))
    for node in model.nodes:
        _import(importer, node)
    if importer.limbs:
        limits.outputs(importer)
    host.outputs(importer)
    return importer


def network_of(importer: Importer, fuse: bool = True) -> Network:
    """The imported operators as a network."""
    model, operators, tensors = importer.model, importer.operators, importer.tensors
    for name, instead in importer.taken.items():
        inner = importer.fresh(f"{name}.inner")
        for old, new in ((name, inner), (instead, name)):
            operators = [with_tensor(operator, old, new) for operator in operators]
            tensors[new] = dataclasses.replace(tensors.pop(old), name=new)
    ranges, accuracy = importer.ranges, importer.accuracy
    network = Network(
        *(model.name, tensors, tuple(operators), tuple(model.inputs), model.outputs, ranges, accuracy)
    )
    return gathered(fused(network) if fuse else network)


def _import(importer: Importer, node: OnnxNode) -> None:
    importer.producers.update({name: node for name in node.outputs if name})
    if not importer.lost.isdisjoint(node.inputs):
        importer.lost.update(node.outputs)
        return
    for name in node.inputs:
        if name and name not in importer.values and name not in importer.model.constants:
            raise node.error(f"input {name!r} is not known")
    try:
        found = _values(importer, node)
    except InputError as error:
        found = _left_to_host(importer, node, str(error))
    importer.values.update({n: v for n, v in zip(node.outputs, found, strict=False) if n and v is not None})


def _values(importer: Importer, node: OnnxNode) -> Sequence[Value | None]:
    """The values of a node's results on the machine."""
    found = _folded(importer, node)
    if found is not None:
        return found
    if reason := node.refused or importer.wanted.get(node.name):
        raise node.error(reason.removeprefix(f"{node.place}: "))
    handler = _handler(importer, node)
    return attempt(limits.extended(handler) if importer.limbs else handler, importer, node)


def _left_to_host(importer: Importer, node: OnnxNode, reason: str) -> Sequence[Value | None]:
    """The host's results for a refused node; none if it cannot execute it."""
    if around := outer_names(node):
        # What nested graphs read is not among the node's inputs.
        read = "" if node.op == "If" else f"; its graph reads {min(around)!r} of the enclosing graph"
        importer.refuse(node, f"{reason}{read}", lost=True)
        importer.lost.update(node.outputs)
        return []
    if behind(importer, node):
        return host.on_host(importer, node, "", edge=True)
    importer.refuse(node, reason)
    operators = len(importer.operators)
    try:
        return host.on_host(importer, node, importer.refusals[-1].reason)
    except InputError as error:
        del importer.operators[operators:]
        importer.refusals.pop()
        both = reason if str(error) in reason else f"{reason}; {str(error).removeprefix(f'{node.place}: ')}"
        importer.refuse(node, both, lost=True)
        importer.lost.update(node.outputs)
        return []


def _handler(importer: Importer, node: OnnxNode) -> Handler:
    if node.op in HANDLERS:
        return HANDLERS[node.op]
    if node.op in RECURRENT:
        if not importer.limbs:
            raise recurrent.refused(node)
        return functools.partial(recurrent.layer, _values)
    values = [importer.value(node, i) for i, name in enumerate(node.inputs) if name]
    real = any(is_real(v) or (isinstance(v, Stored) and v.element == "float32") for v in values)
    handler = (REAL_HANDLERS if real else WHOLE_HANDLERS).get(node.op)
    if handler is None:
        known = node.op in SUPPORTED
        kind = f" on {'real' if real else 'whole'} numbers" if known else ""
        others = "" if known else f"; docs/operators.md has the {len(SUPPORTED)} that are"
        raise node.error(f"the operator is not supported{kind}{others}")
    return handler


def _folded(importer: Importer, node: OnnxNode) -> Sequence[Value] | None:
    """The results of a node whose inputs are all constants; None if some are computed."""
    values = {name: importer.value(node, index) for index, name in enumerate(node.inputs) if name}
    held = {name: value.array for name, value in values.items() if isinstance(value, Constant)}
    arrays = computed(node, importer.model.opset, held)
    return None if arrays is None else [Constant(array) for array in arrays]
