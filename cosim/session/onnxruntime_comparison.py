"""Compares a model's tensors with those of onnxruntime, which executes the model without rewriting it.

Each operator is computed twice: as it ran, and again on onnxruntime's operands. The second shows the
differences that the operator itself adds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from hw.errors import InputError
from hw.html import table
from sw.graph import reference
from sw.graph.host import session
from sw.graph.network import Network, Operator
from sw.operators.normalisation.operator import Normalisation
from sw.operators.softmax_rows import SoftmaxRows

Arrays = Mapping[str, np.ndarray]
#: Status of a tensor: equal; differs by its own roundings next to a tie; carries only its operands'
#: differences; or differs in any other way.
Status = Literal["equal", "rounded", "carried", "different"]
#: Tolerances of onnxruntime's real numbers, which are float32: absolute in steps, relative to a tensor's
#: largest magnitude in steps, and absolute for functions. Sums of products add more (`_Nodes.float_error`).
_NEAR, _RELATIVE, _FUNCTION = 2.0**-12, 2.0**-21, 2.0**-22
_PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")
#: Functions that onnxruntime approximates with an absolute error.
_FUNCTIONS = ("Sigmoid", "Tanh", "Erf", "Gelu", "Softmax", "Softplus", "Mish", "Swish", "Elu", "Selu", "Celu")
#: Tolerance of the float results of one operator, relative to the largest.
_FLOATS = 1e-5


@dataclass(frozen=True)
class ComparedTensor:
    """A quantised tensor of the model, and how it differs from onnxruntime's.

    `node` and `op` are the model's node that produces it. The `largest` and `mean` differences are in steps
    of its scale; for floats without a scale they are plain numbers, and `unit` is empty. `cosine` compares
    all elements after subtracting the zero point. `own` is the operator's largest difference on onnxruntime's
    operands.
    """

    name: str
    node: str
    op: str
    element: str
    elements: int
    differing: int
    largest: float
    mean: float
    cosine: float
    own: float
    status: Status
    unit: str = "steps"

    def as_dict(self) -> dict[str, Any]:
        """Its JSON, with null for values that are not finite."""
        found = asdict(self).items()
        return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in found}

    def __str__(self) -> str:
        unit = f" {self.unit.removesuffix('s' * (self.largest == 1))}" if self.unit else ""
        return (
            f"node {self.node} ({self.op}): {self.differing:,} of {self.elements:,} elements of {self.name} "
            f"differ, by {self.largest:.4g}{unit} at most, cosine {self.cosine:.6f}"
        )


@dataclass(frozen=True, repr=False)
class ModelComparison:
    """The comparison of a model with onnxruntime; `tensors` are in the model's order."""

    version: str
    tensors: tuple[ComparedTensor, ...]

    @property
    def ok(self) -> bool:
        """Whether all tensors are equal, or differ only as docs/network.md allows."""
        return not any(t.status == "different" for t in self.tensors)

    @property
    def first(self) -> ComparedTensor | None:
        """The first tensor with status `different`, or else the first that is not equal."""
        apart = [t for t in self.tensors if t.status != "equal"]
        return next((t for t in apart if t.status == "different"), apart[0] if apart else None)

    def count(self, status: Status) -> int:
        """Number of tensors with this status."""
        return sum(t.status == status for t in self.tensors)

    @property
    def summary(self) -> str:
        """One line for users."""
        equal, all_of_them = self.count("equal"), len(self.tensors)
        if self.first is None:
            return f"all {all_of_them} compared tensors equal onnxruntime's"
        if not self.ok:
            return f"differs from onnxruntime: {self.first}"
        return (
            f"{equal} of {all_of_them} tensors equal onnxruntime's, {all_of_them - equal} differ by "
            f"roundings next to a tie and their consequences; first {self.first}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Its JSON."""
        first = self.first
        return {
            "with": "onnxruntime",
            "version": self.version,
            "ok": self.ok,
            "summary": self.summary,
            "first": first and first.as_dict(),
            "tensors": [t.as_dict() for t in self.tensors],
        }

    def __repr__(self) -> str:
        return f"<onnxruntime {self.version}: {self.summary}>"

    def _repr_html_(self) -> str:
        head = ("tensor", "node", "elements", "differ", "largest", "mean", "cosine", "")
        rows = [
            (t.name, f"{t.node} ({t.op})", t.elements, t.differing, t.largest, t.mean, t.cosine, t.status)
            for t in self.tensors
        ]
        return f"<p>{self.summary}</p>{table(head, rows)}"


def compare_model(
    model: Any, network: Network, inputs: Arrays, ran: Arrays, wrong: Collection[str] = ()
) -> ModelComparison:
    """Compare tensors of a run with onnxruntime's for the same `onnx.ModelProto` and inputs.

    `network` is the model without fusing, so each rounding is examined separately. `ran` are tensors of the
    run by name; other tensors are computed by `network` from the inputs. Tensors in `wrong` differ from the
    reference, so no rounding excuses them. Raises `InputError` if onnxruntime cannot run the model.
    """
    import onnxruntime

    made = _Nodes(model)
    written = {operator.output.tensor for operator in network.operators}
    names = [n for n in made.producers if n in written]
    theirs = {**inputs, **_run(model, {*names, *made.reals(names)}, inputs)}
    arrays, own = _computed(network, inputs, theirs, made)
    arrays |= {n: a for n, a in ran.items() if n in arrays and a.shape == arrays[n].shape}
    tensors = []
    for name in names:
        element = network.tensors[name].element
        if str(theirs[name].dtype) != element and name not in network.outputs:
            continue  # our whole numbers in place of real ones
        compared = _compared(name, made, arrays[name], theirs[name], own.get(name, _Own()))
        if name in wrong and compared.status != "equal":
            compared = replace(compared, status="different")
        tensors.append(compared)
    return ModelComparison(str(onnxruntime.__version__), tuple(tensors))


def check_model(model: Any) -> None:
    """Raise `InputError` if onnxruntime does not accept an `onnx.ModelProto`."""
    with _refused():
        _session(model, set())


class _Nodes:
    """Look-ups in a model: the producer of a tensor, its scale and its zero point."""

    #: Input number of the result's scale, which is followed by its zero point.
    _RESULTS: Mapping[str, int] = {
        "QuantizeLinear": 1,
        "QLinearConv": 6,
        "QLinearMatMul": 6,
        "QGemm": 7,
        "QLinearAdd": 6,
        "QLinearMul": 6,
        "QLinearConcat": 0,
    }

    def __init__(self, model: Any) -> None:
        from onnx import numpy_helper

        self.producers: dict[str, tuple[str, Any]] = {}
        self.constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        for number, node in enumerate(model.graph.node):
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self.constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
                continue
            self.producers |= {name: (node.name or f"#{number}", node) for name in node.output if name}
        self.grids = dict(self._grids())

    def _grids(self) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
        for _, node in self.producers.values():
            at = self._RESULTS.get(node.op_type)
            given = list(node.input)
            if at is not None and at < len(given):
                yield node.output[0], self._grid(*given[at : at + 2])
            if node.op_type == "DequantizeLinear":
                yield given[0], self._grid(*given[1:3])
                # A real number at the edge of the model has the step size of the tensor it was dequantised
                # from.
                yield node.output[0], (self._grid(*given[1:3])[0], np.zeros(()))

    def _grid(self, scale: str, zero: str = "") -> tuple[np.ndarray, np.ndarray]:
        return self.constants.get(scale, np.zeros(())), self.constants.get(zero, np.zeros(()))

    def reals(self, names: Sequence[str]) -> set[str]:
        """Names of the real tensors that QuantizeLinear quantises to these tensors."""
        found = {self.real(name) for name in names}
        return {name for name in found if name in self.producers}

    def real(self, name: str) -> str:
        """Name of the real tensor that QuantizeLinear quantises to `name`; empty if there is none."""
        node = self.producers[name][1] if name in self.producers else None
        return str(node.input[0]) if node is not None and node.op_type == "QuantizeLinear" else ""

    def steps(self, name: str, theirs: Arrays) -> np.ndarray | None:
        """A tensor in steps before rounding and clipping; None if the model does not have it."""
        real = theirs.get(self.real(name))
        scale, zero = self.grids.get(name, (np.zeros(()), np.zeros(())))
        if real is None or not scale.all():
            return None
        if scale.size > 1:
            node = self.producers[name][1]
            axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
            form = [1] * real.ndim
            form[axis] = -1
            scale, zero = scale.reshape(form), zero.reshape(form) if zero.size > 1 else zero
        return np.asarray(real.astype(np.float64) / scale + zero)

    def step(self, name: str) -> float:
        """The smallest step of a tensor's grid; 1 if it has none."""
        scale = self.grids.get(name, (np.ones(()),))[0]
        return float(scale.min()) if scale.all() else 1.0

    def float_error(self, name: str, theirs: Arrays) -> float:
        """Error bound, in steps, of the float32 computation that produces a tensor.

        For sums of products, it grows with the root of their depth and with the sum of the magnitudes.
        """
        if name not in self.grids:
            return 0.0
        waiting, seen, error = [self.real(name)], set[str](), 0.0
        while waiting:
            at = waiting.pop()
            node = self.producers.get(at, ("", None))[1]
            if node is None or at in seen or node.op_type in ("QuantizeLinear", "DequantizeLinear"):
                continue
            seen.add(at)
            error += _FUNCTION * (node.op_type in _FUNCTIONS)
            if node.op_type in _PRODUCTS:
                depth, most = self._sums(node, theirs)
                error += most * (depth**0.5 + 2) * 2.0**-24
            else:
                waiting += node.input
        scale = self.grids[name][0]
        return error / float(scale.min()) if error and scale.all() else 0.0

    def _sums(self, node: Any, theirs: Arrays) -> tuple[int, float]:
        """The depth of a product, and a bound of its sum of magnitudes."""
        x, w = (self._magnitudes(n, theirs) for n in node.input[:2])
        depths = {"MatMul": (-2,), "Gemm": (-2,), "Conv": tuple(range(1, w.ndim))}.get(node.op_type, (0,))
        if any(a.name == "transB" and a.i for a in node.attribute):
            depths = (-1,)
        bias = float(self._magnitudes(node.input[2], theirs).max(initial=0)) if len(node.input) > 2 else 0.0
        if w.ndim < 2:
            return x.size, bias + float(x.max(initial=0) * w.max(initial=0)) * (x.shape[-1] if x.ndim else 1)
        depth = int(np.prod([w.shape[a] for a in depths]))
        return depth, bias + float(x.max(initial=0) * w.sum(axis=depths).max(initial=0))

    def _magnitudes(self, name: str, theirs: Arrays) -> np.ndarray:
        """The magnitudes of a dequantised tensor; ones if it is not known."""
        node = self.producers.get(name, ("", None))[1]
        if node is None or node.op_type != "DequantizeLinear":
            return np.asarray(np.abs(theirs.get(name, self.constants.get(name, np.ones(1)))))
        whole = theirs.get(node.input[0], self.constants.get(node.input[0], np.full(1, 255)))
        scale, zero = self._grid(*list(node.input)[1:3])
        offset = zero.astype(np.float32) if zero.size == 1 else 0
        return np.asarray(np.abs(whole.astype(np.float32) - offset) * float(scale.max(initial=0)))


def _run(model: Any, names: set[str], inputs: Arrays) -> dict[str, np.ndarray]:
    """Compute tensors of a model with onnxruntime."""
    with _refused():
        made = _session(model, names)
        order = [o.name for o in made.get_outputs()]
        return dict(zip(order, made.run(None, {n: np.asarray(a) for n, a in inputs.items()}), strict=True))


def _session(model: Any, names: set[str]) -> Any:
    """An onnxruntime session of a copy of the model with more outputs."""
    from onnx import ModelProto, helper

    wider = ModelProto()
    wider.CopyFrom(model)
    have = {o.name for o in wider.graph.output}
    wider.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in sorted(names - have))
    return session(wider)


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Turn errors of onnxruntime into `InputError`."""
    try:
        yield
    except Exception as error:  # the library raises errors of any type
        line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(f"onnxruntime cannot run the model, so nothing is compared: {line[:180]}") from None


@dataclass
class _Own:
    """Own differences of the operators that write a tensor; `documented` if docs/network.md allows them."""

    largest: float = 0.0
    documented: bool = True


def _computed(
    network: Network, inputs: Arrays, theirs: Arrays, made: _Nodes
) -> tuple[dict[str, np.ndarray], dict[str, _Own]]:
    """The tensors of a network, and each operator's own differences, computed on onnxruntime's operands.

    Tensors that onnxruntime does not have are computed from those that it has.
    """
    ours = {n: t.constant for n, t in network.tensors.items() if t.constant is not None} | dict(inputs)
    held, known = dict(ours), set[str]()
    for name, array in theirs.items():
        tensor = network.tensors.get(name)
        if tensor is not None and str(array.dtype) == tensor.element and array.size == tensor.elements:
            held[name] = array.reshape(tensor.shape)
            known.add(name)
    apart, found = set[str](), dict[str, _Own]()
    for operator in network.operators:
        tensor = network.tensors[operator.output.tensor]
        result = reference.result_of(operator, network, held).astype(tensor.element)
        moved = any(v.tensor in apart for v in operator.inputs)
        own = reference.result_of(operator, network, ours).astype(tensor.element) if moved else result
        operator.output.write(ours.setdefault(tensor.name, np.zeros(tensor.shape, tensor.element)), own)
        if tensor.name in known:
            wanted = operator.output.of(held[tensor.name])
            steps, error = made.steps(tensor.name, theirs), made.float_error(tensor.name, theirs)
            if (accuracy := network.accuracy.get(tensor.name)) is not None:
                error += accuracy.error / made.step(tensor.name)
            _judge(found.setdefault(tensor.name, _Own()), operator, result, wanted, steps, error)
        else:
            operator.output.write(
                held.setdefault(tensor.name, np.zeros(tensor.shape, tensor.element)), result
            )
            wanted = result
        if not np.array_equal(own, wanted):
            apart.add(tensor.name)
    return ours, found


def _judge(
    own: _Own,
    operator: Operator,
    ours: np.ndarray,
    theirs: np.ndarray,
    steps: np.ndarray | None,
    error: float,
) -> None:
    """Add the differences of one operator to those of its tensor."""
    apart = _apart(ours, theirs)
    largest = float(apart.max(initial=0))
    own.largest = max(own.largest, largest)
    if ours.dtype.kind == "f":
        own.documented &= largest <= _FLOATS * float(np.abs(theirs).max(initial=1)) + error
    elif ours.dtype.itemsize > 1:
        own.documented &= largest == 0
    elif steps is None or (largest <= 1 and isinstance(operator, SoftmaxRows | Normalisation)):
        own.documented &= largest <= 1
    elif largest:
        limits = np.iinfo(ours.dtype)
        near = 0.5 + _NEAR + _RELATIVE * float(np.abs(steps).max(initial=0)) + error
        real = operator.output.of(np.ascontiguousarray(np.clip(steps, limits.min, limits.max)))
        own.documented &= bool(np.all(np.abs(ours - real)[apart > 0] <= near))


def _apart(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Absolute differences of elements; 0 where both are NaN."""
    with np.errstate(all="ignore"):
        apart = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def _compared(name: str, made: _Nodes, ours: np.ndarray, theirs: np.ndarray, own: _Own) -> ComparedTensor:
    node, proto = made.producers[name]
    known = (name, node, str(proto.op_type), str(theirs.dtype), int(theirs.size))
    if ours.dtype != theirs.dtype or ours.size != theirs.size:
        return ComparedTensor(*known, int(theirs.size), np.inf, np.inf, 0.0, np.inf, "different", "")
    ours = ours.reshape(theirs.shape)
    scale, zero = made.grids.get(name, (np.zeros(()), np.zeros(())))
    apart = _apart(ours, theirs)
    whole = theirs.dtype.kind in "iub"
    steps = whole or (scale.size == 1 and scale.item() > 0)
    if steps and not whole:
        apart = apart / scale.item()
    differing, own_largest = int((apart > 0).sum()), own.largest
    if steps and not whole:
        own_largest /= scale.item()
    status: Status = "carried"
    if not own.documented:
        status = "different"
    elif not differing:
        status = "equal"
    elif own.largest:
        status = "rounded"
    offset = zero.item() if whole and zero.size == 1 else 0
    return ComparedTensor(
        *(*known, differing, float(apart.max(initial=0)), float(apart.mean()) if apart.size else 0.0),
        *(_cosine(ours, theirs, offset) if differing else 1.0, own_largest, status, "steps" if steps else ""),
    )


def _cosine(ours: np.ndarray, theirs: np.ndarray, zero: float) -> float:
    """The cosine of the angle between two arrays; 1 if both are 0."""
    a, b = (x.astype(np.float64).reshape(-1) - zero for x in (ours, theirs))
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    if not lengths or not np.isfinite(lengths):
        return float(np.array_equal(a, b))
    return float(np.clip(a @ b / lengths, -1, 1))
