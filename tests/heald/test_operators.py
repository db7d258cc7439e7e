"""Operators on the RTL against onnxruntime: equal bit for bit, every event in its cycle."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import heald as hd
from heald.testing.models import Builder
from hw.errors import InputError
from sw.frontend.network import import_model
from sw.graph.reference import random_inputs, run
from tests.machines import TEST
from tests.sw.quantised_models import runtime


def bits(shape: tuple[int, ...], element: str, seed: int = 0) -> np.ndarray:
    """Elements whose bits are drawn: of float32 also what is no number."""
    kind = np.dtype(element)
    if kind.kind == "b":
        return np.random.default_rng(seed).integers(0, 2, shape).astype(np.bool_)
    size = int(np.prod(shape)) * kind.itemsize
    drawn = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    return drawn.view(kind).reshape(shape)


def compare(b: Builder, *outputs: str, rtl: bool = True, allow_host: bool = False) -> None:
    """A model's results for inputs drawn bit by bit equal onnxruntime's; `rtl`: on the RTL, else by NumPy.

    Float32 that is quantised at run time is drawn from numbers.
    """
    made = b.model(*outputs)
    network = import_model(made, allow_host=allow_host)
    dynamic = [n.input[0] for n in made.graph.node if n.op_type == "DynamicQuantizeLinear"]
    inputs = {}
    for number, name in enumerate(network.inputs):
        t = network.tensors[name]
        inputs[name] = bits(t.shape, t.element, number)
        if name in dynamic:
            inputs[name] = b.rng.normal(size=t.shape).astype(np.float32)
    if rtl:
        report = hd.compile(made, TEST, allow_host=allow_host).run(inputs, on="cpp")
        assert report.verified, report.failure
    found = report.outputs if rtl else run(network, inputs)
    for name, wanted in runtime(made, inputs).items():
        assert (found[name].dtype, found[name].shape) == (wanted.dtype, wanted.shape)
        assert found[name].tobytes() == wanted.tobytes(), name


def whole(b: Builder, *numbers: int) -> str:
    return b.constant(numbers, np.int64)


Move = Callable[[Builder, str], str]


def sliced(b: Builder, x: str) -> str:
    return b.op("Slice", x, whole(b, 8, 6), whole(b, 0, 1), whole(b, 1, 0), whole(b, -3, -2))


def gathered(b: Builder, x: str) -> str:
    return b.op("GatherElements", x, b.constant([[1, 2, 0], [2, 0, 0]], np.int64), axis=0)


def points(b: Builder, x: str) -> str:
    return b.op("GatherND", x, b.constant([[0, 2], [1, 0]], np.int64))


def padded(b: Builder, x: str) -> str:
    return b.op("Pad", x, whole(b, 1, 2, 0, -1), b.constant(-1.5, np.float32))


def reflected(b: Builder, x: str) -> str:
    return b.op("Pad", x, whole(b, 0, 0, 1, 2, 0, 0, 2, 1), mode="reflect")


def scattered(b: Builder, x: str) -> str:
    return b.op("ScatterND", x, b.constant([[1], [3]], np.int64), b.input((2, 4), "float32"))


def joined(b: Builder, x: str) -> str:
    return b.op("Concat", x, b.constant(np.ones((2, 1), np.float32)), x, axis=1)


MOVES: list[tuple[str, tuple[int, ...], Move]] = [
    ("float32", (3, 4, 5), lambda b, x: b.op("Transpose", x, perm=[2, 0, 1])),
    ("uint32", (7, 9), sliced),
    ("float32", (5, 6), lambda b, x: b.op("Gather", x, whole(b, 4, 0, 1, 1), axis=1)),
    ("int32", (3, 3), gathered),
    ("float32", (2, 3, 4), points),
    ("bool", (2, 3), lambda b, x: b.op("Tile", x, whole(b, 2, 3))),
    ("float32", (3, 4), padded),
    ("float32", (1, 2, 4, 5), reflected),
    ("int8", (3, 4), lambda b, x: b.op("Pad", x, whole(b, 1, 2, 2, 0), mode="edge")),
    ("int8", (3, 4), lambda b, x: b.op("Pad", x, whole(b, 1, 2, 2, 0), mode="wrap")),
    ("float32", (1, 2, 4, 6), lambda b, x: b.op("SpaceToDepth", x, blocksize=2)),
    ("float32", (1, 8, 2, 3), lambda b, x: b.op("DepthToSpace", x, blocksize=2, mode="CRD")),
    ("float32", (5, 4), scattered),
    ("float32", (4, 5), lambda b, x: b.op("Trilu", x, b.constant(1, np.int64), upper=0)),
    ("float32", (2, 3), joined),
]


@pytest.mark.parametrize("rtl", [False, True])
def test_elements_are_moved_bit_for_bit(rtl: bool) -> None:
    b = Builder()
    some = MOVES[1:2] + MOVES[5:8] if rtl else MOVES
    compare(b, *(move(b, b.input(shape, element)) for element, shape, move in some), rtl=rtl)


def pair(b: Builder, op: str, element: str) -> str:
    x = b.input((40,), element)
    return b.op(op, x, b.op("Where", b.input((40,), "bool"), x, b.input((40,), element)))


def test_whole_numbers_and_truth_values_are_computed_as_they_are() -> None:
    b = Builder()
    unsigned = b.input((40,), "uint32")
    few = b.op("BitwiseAnd", unsigned, b.constant(63, np.uint32))
    floats = [pair(b, op, "float32") for op in ("Less", "Equal", "GreaterOrEqual")]
    outputs = [
        *floats,
        *(pair(b, op, "uint32") for op in ("Greater", "Max", "Mul")),
        b.op("BitShift", unsigned, few, direction="RIGHT"),
        b.op("Div", b.input((40,)), b.constant(-7, np.int8)),
        b.op("Mod", b.input((40,), "uint8"), b.constant(9, np.uint8)),
        b.op("Cast", b.op("Not", b.input((40,), "bool")), to=6),
        b.op("Cast", b.input((40,), "float32"), to=9),
        b.op("Abs", b.input((40,), "float32")),
    ]
    compare(b, *outputs, rtl=False)


def test_comparisons_run_on_the_machine() -> None:
    b = Builder()
    compare(b, b.op("Not", b.op("Less", b.input((9, 5), "int32"), b.input((9, 5), "int32"))))


def weights(b: Builder, *shape: int, scale: float = 0.01) -> str:
    held = b.constant(b.rng.integers(-127, 128, shape, dtype=np.int8))
    return b.op("DequantizeLinear", held, b.constant(scale, np.float32))


def test_windows_run_on_the_machine() -> None:
    """A transposed convolution, a long kernel, nearest neighbours, maxima over all pixels."""
    b = Builder(4)
    x = b.real(b.input((1, 4, 5, 6)), "int8", 0.05)
    larger = b.op("ConvTranspose", x, weights(b, 4, 3, 3, 2), strides=[2, 1], pads=[1, 0, 0, 1])
    line = b.real(b.input((1, 1, 700)), "int8", 0.05)
    spectrum = b.op("Conv", line, weights(b, 6, 1, 256), strides=[64], pads=[96, 96])
    nearest = b.op("Resize", b.input((1, 2, 3, 4)), "", b.constant([1, 1, 2, 3], np.float32))
    twice = b.op("Resize", b.input((1, 3, 5, 5)), "", b.constant([1, 1, 2, 2], np.float32))
    greatest = b.op("GlobalMaxPool", x)
    outputs = [b.quantised(y, "int8", 0.5) for y in (larger, spectrum, greatest)]
    compare(b, *outputs, nearest, twice)


@pytest.mark.parametrize(
    ("shape", "strides", "dilations", "pads", "more", "groups"),
    [
        ((3, 3), (2, 2), (1, 1), (1, 1, 1, 1), (1, 1), 1),
        ((3, 4), (3, 2), (2, 1), (0, 1, 2, 1), (0, 0), 2),
        ((2, 2), (4, 4), (1, 1), (0, 0, 0, 0), (0, 0), 3),
        ((1, 1), (2, 3), (1, 1), (0, 0, 0, 0), (1, 1), 6),
    ],
)
def test_transposed_convolutions_are_onnxruntimes(
    shape: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[int, ...],
    more: tuple[int, int],
    groups: int,
) -> None:
    b = Builder(3)
    x = b.real(b.input((2, 6, 5, 4), "uint8"), "uint8", 0.05)
    held = b.rng.integers(-127, 128, (6, 2, *shape), dtype=np.int8)
    scales = b.constant(np.array([0.01, 0.007], np.float32))
    w = b.op("DequantizeLinear", b.constant(held), scales, axis=1)
    bias = b.constant(b.rng.uniform(-1, 1, 2 * groups), np.float32)
    how = {"strides": strides, "dilations": dilations, "pads": pads, "output_padding": more, "group": groups}
    compare(b, b.quantised(b.op("ConvTranspose", x, w, bias, **how), "int8", 0.1), rtl=False)


@pytest.mark.parametrize("place", ["half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn"])
@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest_neighbours_are_onnxruntimes(place: str, nearest: str) -> None:
    b = Builder()
    how = {"coordinate_transformation_mode": place, "nearest_mode": nearest}
    x = b.input((1, 2, 5, 6), "float32")
    # The last one takes fewer copies along one axis after the other.
    sizes = [(10, 18), (3, 11), (7, 4), (1, 6), (17, 21)]
    compare(b, *(b.op("Resize", x, "", "", whole(b, 1, 2, *size), **how) for size in sizes), rtl=False)


@pytest.mark.parametrize("place", ["half_pixel", "asymmetric"])
@pytest.mark.parametrize("factors", [(2, 2), (3, 1), (4, 5)])
def test_linear_neighbours_are_exact(place: str, factors: tuple[int, int]) -> None:
    b = Builder(1)
    x = b.real(b.input((1, 3, 5, 4)), "int8", 0.05)
    given = b.constant([1, 1, *factors], np.float32)
    how = {"mode": "linear", "coordinate_transformation_mode": place}
    assert_exact(b, b.op("Resize", x, "", given, **how), 0.04, rtl=False)


@pytest.mark.parametrize(("channels", "groups", "dilation"), [(1, 1, 1), (2, 1, 2), (4, 4, 1)])
def test_long_kernels_are_products(channels: int, groups: int, dilation: int) -> None:
    b = Builder(1)
    x, w = b.input((2, channels, 700)), weights(b, 4, channels // groups, 256)
    how = {"strides": [30], "pads": [20, 7], "dilations": [dilation], "group": groups}
    compare(b, b.quantised(b.op("Conv", b.real(x, "int8", 0.05), w, **how), "int8", 1.0), rtl=False)


def test_maxima_over_axes_are_onnxruntimes() -> None:
    b = Builder(1)
    x, line = b.input((2, 3, 7, 9)), b.input((2, 3, 20), "uint8")
    real = b.real(x, "int8", 0.05)
    axes = whole(b, 1, 3)
    outputs = [
        b.quantised(b.op("GlobalMaxPool", b.real(line, "uint8")), "uint8"),
        b.op("ReduceMax", x, axes, keepdims=0),
        b.quantised(b.op("ReduceMax", b.op("Sigmoid", real), axes), "uint8", 0.004),
    ]
    compare(b, *outputs, rtl=False)


def test_real_numbers_move_with_their_scales() -> None:
    """Elements of one scale, sums of products, and functions that are not computed yet."""
    b = Builder(2)
    x = b.real(b.input((4, 6)), "int8")
    w = b.op(
        "DequantizeLinear", b.constant(b.rng.integers(-99, 99, (6, 4)), np.int8), b.constant(0.1, np.float32)
    )
    product = b.op("MatMul", x, w)
    edges, zero = whole(b, 1, 1, 0, 2), b.constant(0.0, np.float32)
    moved = [
        b.op("Pad", x, edges, mode="reflect"),
        b.op("Pad", product, edges, zero),
        b.op("Gather", b.op("Sigmoid", x), whole(b, 3, 0, 0, 1), axis=1),
        b.op("Concat", b.op("Trilu", x), b.op("Relu", product), axis=1),
    ]
    model = b.model(*(b.quantised(m, "int8", 0.05) for m in moved))
    network = import_model(model)
    inputs = random_inputs(network, np.random.default_rng(1))
    found = run(network, inputs)
    for name, wanted in runtime(model, inputs).items():
        assert np.array_equal(found[name], wanted), name


@pytest.mark.parametrize("op", ["Tile", "Expand", "Pad"])
def test_a_result_that_is_too_large_is_refused_at_once(op: str) -> None:
    b = Builder()
    how = {"mode": "edge"} if op == "Pad" else {}
    model = b.model(b.op(op, b.input((1,)), whole(b, *([0] * (op == "Pad")), 1 << 30), **how))
    with pytest.raises(InputError, match=rf"n0 \({op}\): the result must have at most 33554432 elements"):
        import_model(model)


def regular(size: int) -> tuple[Builder, list[str]]:
    """Movements of boxes of a square: a hundred rows from all over it, parts, a frame around it."""
    b = Builder()
    x = b.input((size, size))
    parts = b.ops("Split", x, whole(b, size // 4, size // 2, size - size // 4 - size // 2), count=3)
    rows = [
        b.op("Slice", x, whole(b, (7 * n) % size), whole(b, (7 * n) % size + 1), whole(b, 0))
        for n in range(100)
    ]
    outputs = [
        b.op("Concat", *rows, axis=0),
        b.op("Slice", x, whole(b, -1, 3), whole(b, 0, 1 << 62), whole(b, 1, 0), whole(b, -2, 3)),
        b.op("Transpose", b.op("Concat", parts[2], parts[0], axis=0), perm=[1, 0]),
        b.op("Reshape", b.op("Unsqueeze", parts[1], whole(b, 1)), whole(b, -1)),
        b.op("Pad", x, whole(b, 1, 0, 2, -3), b.constant(7, np.int8)),
    ]
    return b, outputs


def test_regular_movements_are_onnxruntimes() -> None:
    b, outputs = regular(20)
    compare(b, *outputs, rtl=False)


def test_regular_movements_take_no_memory_for_elements() -> None:
    """Of a quarter of a billion elements not even a bit each, whatever is moved where."""
    b, outputs = regular(1 << 14)
    model = b.model(*outputs)
    tracemalloc.start()
    try:
        network = import_model(model)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(network.tensors[name].elements for name in network.outputs) > 5e8
    assert most < 1 << 24


def test_what_takes_many_copies_is_refused() -> None:
    b = Builder()
    places = b.rng.permutation(400).reshape(20, 20)
    x = b.input((400,))
    model = b.model(b.op("Reshape", b.op("Gather", x, b.constant(places, np.int64)), whole(b, 400)))
    with pytest.raises(InputError, match=r"n0 \(Gather\): moving its elements takes more than 64 copies"):
        import_model(model)


def dynamic(b: Builder, x: str) -> tuple[str, str, str]:
    found = b.ops("DynamicQuantizeLinear", x, count=3)
    return found[0], found[1], found[2]


def scaled(b: Builder, total: str, scale: str) -> str:
    """Sums of products times the scale that was found, and one of weights."""
    both = b.op("Mul", scale, b.constant(0.013, np.float32))
    return b.op("Mul", b.op("Cast", total, to=1), both)


def test_products_of_dynamic_quantisation_run_on_the_machine() -> None:
    """The host computes float32 at the edges of the model only: nothing has to be allowed."""
    b = Builder(3)
    x, scale, zero = dynamic(b, b.input((1, 3, 6, 7), "float32"))
    w = b.constant(b.rng.integers(0, 256, (4, 3, 3, 3), dtype=np.uint8))
    total = b.op("ConvInteger", x, w, zero, b.constant(119, np.uint8), pads=[1, 1, 0, 1])
    y = b.op("Relu", b.op("Add", scaled(b, total, scale), b.constant(np.ones((4, 1, 1)), np.float32)))
    a, a_scale, a_zero = dynamic(b, b.input((5, 9), "float32"))
    product = b.op("MatMulInteger", a, b.constant(b.rng.integers(-99, 99, (9, 4), dtype=np.int8)), a_zero)
    compare(b, y, scaled(b, product, a_scale))


@pytest.mark.parametrize(
    ("shape", "kernel", "how"),
    [
        ((2, 4, 7, 8), (6, 2, 3, 3), {"pads": [1, 2, 1, 0], "strides": [2, 1], "group": 2}),
        ((1, 3, 9), (5, 3, 4), {"pads": [2, 2], "dilations": [2]}),
        ((1, 2, 700), (3, 2, 200), {"pads": [20, 20], "strides": [7]}),
    ],
)
def test_zero_points_of_images_may_be_computed(
    shape: tuple[int, ...], kernel: tuple[int, ...], how: dict[str, Any]
) -> None:
    b = Builder(2)
    x, zero = b.input(shape, "uint8"), b.input((), "uint8")
    w, zero_w = b.constant(b.rng.integers(0, 255, kernel, dtype=np.uint8)), b.constant(120, np.uint8)
    compare(
        b, b.op("ConvInteger", x, w, zero, zero_w, **how), b.op("ConvInteger", x, w, zero, **how), rtl=False
    )


def assert_exact(b: Builder, real: str, scale: float, rtl: bool) -> None:
    """A real result on a grid is onnxruntime's but next to ties, which its float32 may miss."""
    model = b.model(b.quantised(real, "int8", scale), real)
    network = import_model(_without(model, real))
    inputs = random_inputs(network, np.random.default_rng(0))
    theirs = runtime(model, inputs)
    ((name, found),) = run(network, inputs).items()
    steps = theirs[real].astype(np.float64) / np.float32(scale)
    ties = np.abs(np.abs(steps - np.rint(steps)) - 0.5) < 2**-12
    assert np.array_equal(found[~ties], theirs[name][~ties])
    assert np.abs(found.astype(int) - theirs[name]).max() <= 1
    if rtl:
        report = hd.compile(_without(model, real), TEST).run(inputs, on="cpp")
        assert report.verified, report.failure
        assert np.array_equal(report.outputs[name], found)


def _without(model: onnx.ModelProto, output: str) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    kept = [o for o in made.graph.output if o.name != output]
    del made.graph.output[:]
    made.graph.output.extend(kept)
    return made


def again(b: Builder, real: str, scale: float) -> str:
    """Real numbers quantised and dequantised, none of them below 0."""
    grid = b.constant(scale, np.float32), b.constant(-128, np.int8)
    return b.op("DequantizeLinear", b.op("QuantizeLinear", real, *grid), *grid)


@pytest.mark.parametrize(
    ("count", "element", "square", "divided", "axes", "rtl"),
    [
        (16, "int8", "Pow", True, [-1], True),
        (120, "uint8", "Pow", True, [-1], False),
        (768, "int8", "Mul", False, [-1], False),
        (6, "uint8", "Mul", True, [1, 2], False),
    ],
)
def test_a_normalisation_may_be_quantised_inside(
    count: int, element: str, square: str, divided: bool, axes: list[int], rtl: bool
) -> None:
    """What quantize_static makes of a layer normalisation written with smaller operators."""
    b = Builder(count)
    x, along, step = b.real(b.input((2, 5, count), element), element, 0.03), whole(b, *axes), 0.02
    less = b.op("Sub", x, b.op("ReduceMean", x, along))
    squares = b.op("Mul", less, less) if square == "Mul" else b.op("Pow", less, b.constant(2, np.float32))
    variance = again(b, b.op("ReduceMean", squares, along), step)
    root = b.op("Sqrt", again(b, b.op("Add", variance, b.constant(1e-5, np.float32)), step))
    result = b.op("Div", less, root) if divided else b.op("Mul", less, b.op("Reciprocal", root))
    assert_exact(b, result, 0.02, rtl)


@pytest.mark.parametrize("op", ["Mul", "Div"])
def test_a_value_times_a_function_is_exact(op: str) -> None:
    b = Builder(9)
    x, gate = b.real(b.input((3, 400)), "int8", 0.05), b.real(b.input((3, 1), "uint8"), "uint8", 0.02)
    assert_exact(b, b.op(op, x, b.op("Sigmoid", gate)), 0.04, rtl=False)


def test_sums_over_axes_are_exact() -> None:
    """A sum, and a variance of what was moved after its mean was taken off."""
    b = Builder(6)
    x = b.real(b.input((3, 7, 20), "uint8"), "uint8", 0.03)
    assert_exact(b, b.op("ReduceSum", x, whole(b, 0, 2), keepdims=0), 0.4, rtl=False)
    b = Builder(6)
    x = b.real(b.input((3, 7, 20)), "int8", 0.03)
    less = b.op("Transpose", b.op("Sub", x, b.op("ReduceMean", x, whole(b, 1))), perm=[2, 0, 1])
    assert_exact(
        b, b.op("ReduceMean", b.op("Pow", less, b.constant(2, np.float32)), whole(b, 2)), 0.02, rtl=False
    )


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("form", ["Div", "Reciprocal", "Pow"])
def test_a_normalisation_may_name_its_axis_and_its_root_otherwise(opset: int, form: str) -> None:
    """The axis counted from the front, and a power of -0.5, as other exporters write them."""
    b = Builder(1)
    x, along = b.real(b.input((2, 5, 16)), "int8", 0.03), whole(b, 2)
    given: tuple[str, ...] = (along,) if opset > 17 else ()
    axes = {} if opset > 17 else {"axes": [2]}
    less = b.op("Sub", x, b.op("ReduceMean", x, *given, **axes))
    squares = b.op("ReduceMean", b.op("Mul", less, less), *given, **axes)
    variance = b.op("Add", squares, b.constant(1e-5, np.float32))
    root = b.op("Sqrt", variance) if form != "Pow" else b.op("Pow", variance, b.constant(-0.5, np.float32))
    factor = b.op("Reciprocal", root) if form == "Reciprocal" else root
    real = b.op("Div" if form == "Div" else "Mul", less, factor)
    scaled = b.op("Mul", real, b.constant(b.rng.uniform(0.5, 1.5, 16), np.float32))
    model = b.model(b.quantised(scaled, "int8", 0.03), opset=opset)
    network = import_model(model)
    assert [o.op for o in network.operators] == ["LayerNormalization"]
    inputs = random_inputs(network, np.random.default_rng(0))
    ((name, found),) = run(network, inputs).items()
    assert np.abs(found.astype(int) - runtime(model, inputs)[name]).max() <= 1
