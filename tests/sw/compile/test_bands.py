"""Convolutions in bands of output rows: their results, and when they are chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import heald as hd
from cosim.jobs import exact_cycles
from cosim.refine import refine, refined_blockings
from cosim.settings import MemorySettings
from hw.config import MachineConfig, load
from sw.compile.array_tiles import LoweredProduct
from sw.compile.bands import LoweredBands
from sw.compile.stages import Compiled
from sw.compiler import compile_network
from sw.frontend.network import import_model
from sw.graph import reference
from sw.graph.network import Network, Tensor
from sw.patches import Axis
from tests.sw.compile.convolution_networks import Builder, same
from tests.sw.compile.footprints import Footprints
from tests.sw.compile.sequential import Sequential, results, steps_of

TEST, DEFAULT = load("test"), load("default")
BOTH = pytest.mark.parametrize("config", [TEST, DEFAULT], ids=["test", "default"])


def network(x: tuple[int, ...], channels: int, rows: Axis, cols: Axis, **options: Any) -> Network:
    """One convolution of images of a shape, of int8 if nothing else is said."""
    b = Builder(np.random.default_rng(sum(x)))
    element = options.pop("element", "int8")
    return b.network(b.convolution(b.input(x, element), channels, rows, cols, **options))


def compiled(made: Network, config: MachineConfig, **options: Any) -> Compiled:
    """The network as one program."""
    (step,) = compile_network(made, config, **options)
    assert isinstance(step, Compiled)
    return step


def taken(made: Network, config: MachineConfig) -> LoweredBands:
    """The tiles of a network of one convolution, after its program was found to be right."""
    program = compiled(made, config)
    inputs = reference.random_inputs(made, np.random.default_rng(3))
    wanted = reference.run(made, inputs)
    (step,) = steps_of([program])
    assert isinstance(step, Sequential)
    assert list(Footprints(step.source, config, step.memory.homes).wrong()) == []
    found = results(made, [step], inputs, 5)
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)
    (part,) = program.parts
    assert isinstance(part, LoweredBands)
    return part


@BOTH
def test_rows_that_no_band_divides(config: MachineConfig) -> None:
    made = network((1, 8, 19, 13), 8, same(19, 5), same(13, 5), groups=8)
    bands = taken(made, config).nest.bands
    assert bands.number > 1
    assert 19 % bands.tall


def test_images_of_one_band_are_stored_at_once() -> None:
    made = network((2, 8, 9, 30), 8, same(9, 5), same(30, 5), groups=8)
    bands = taken(made, DEFAULT).nest.bands
    assert (bands.tall, bands.number) == (9, 1)


@BOTH
def test_strides_dilations_and_padding_on_one_side(config: MachineConfig) -> None:
    rows, cols = Axis(23, 3, 2, 3, 1, 4), Axis(12, 3, 1, 0, 2, 2)
    bands = taken(network((2, 12, 23, 12), 12, rows, cols, groups=12), config).nest.bands
    # Rows between those of stride and dilation are neither loaded nor multiplied.
    assert bands.rows.dilation == 2


@BOTH
@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")])
def test_zero_points(config: MachineConfig, types: tuple[str, str]) -> None:
    zeros = 77 if types[1] == "uint8" else -5, 130 if types[0] == "uint8" else -9
    axes = same(15, 5), same(9, 3)
    made = network((1, 6, 15, 9), 6, *axes, groups=6, element=types[1], types=types, zeros=zeros)
    assert set(taken(made, config).nest.problem.zeros) == set(zeros)


def test_groups_of_several_channels() -> None:
    made = network((1, 12, 14, 14), 18, same(14, 5), same(14, 5), groups=6)
    bands = taken(made, DEFAULT).nest.bands
    assert (bands.out, bands.patches.channels) == (3, 2)


@pytest.mark.parametrize(("channels", "size", "bands"), [(4, 40, 4), (64, 14, 1)])
def test_sums(channels: int, size: int, bands: int) -> None:
    axes = same(size, 3), same(size, 3)
    made = network((1, channels, size, size), channels, *axes, groups=channels, epilogue=False)
    part = taken(made, DEFAULT)
    assert part.chosen is None
    assert part.nest.bands.number == bands


def test_results_that_are_images_of_patches_have_padding() -> None:
    b = Builder(np.random.default_rng(1))
    axes = same(12, 5), same(11, 5)
    x = b.convolution(b.input((1, 8, 12, 11)), 8, *axes, groups=8)
    made = b.network(b.convolution(x, 8, *axes, groups=8))
    program = compiled(made, DEFAULT)
    assert all(isinstance(part, LoweredBands) for part in program.parts)
    inputs = reference.random_inputs(made, np.random.default_rng(0))
    wanted, found = reference.run(made, inputs), results(made, steps_of([program]), inputs)
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


def test_who_takes_other_tiles() -> None:
    axes = same(14, 3), same(14, 3)
    many = network((1, 64, 14, 14), 64, *axes)
    b = Builder(np.random.default_rng(1))
    x = b.input((1, 8, 14, 14))
    added = b.network(b.convolution(x, 8, *axes, groups=8, residual=x))
    for made in (many, added):
        (part,) = compiled(made, DEFAULT).parts
        assert isinstance(part, LoweredProduct)
    (part,) = compiled(network((1, 8, 14, 14), 8, *axes, groups=8), DEFAULT, bands=False).parts
    assert isinstance(part, LoweredProduct)


def test_weights_that_are_computed_take_other_tiles() -> None:
    b = Builder(np.random.default_rng(1))
    made = b.network(b.convolution(b.input((1, 8, 14, 14)), 8, same(14, 5), same(14, 5), groups=8))
    weights = made.operators[0].inputs[1].tensor
    tensors = dict(made.tensors) | {weights: Tensor(weights, (8, 1, 5, 5), "int8")}
    given = Network("given", tensors, made.operators, (*made.inputs, weights), made.outputs)
    (part,) = compiled(given, DEFAULT).parts
    assert isinstance(part, LoweredProduct)


def test_bands_take_the_cycles_that_are_predicted() -> None:
    made = network((1, 64, 14, 14), 64, same(14, 5), same(14, 5), groups=64)
    settings = MemorySettings.of(DEFAULT)
    cycles = exact_cycles(compiled(made, DEFAULT), settings)
    other = exact_cycles(compiled(made, DEFAULT, bands=False), settings)
    assert 2 * cycles < other


def test_refinement_leaves_bands_alone() -> None:
    made = network((1, 8, 14, 14), 8, same(14, 3), same(14, 3), groups=8, epilogue=False)
    settings = MemorySettings.of(DEFAULT)
    assert isinstance(refine(made, DEFAULT, settings, 2)[0].part, LoweredProduct)
    assert refined_blockings(made, DEFAULT, settings, 2) == {}


def sums_model() -> onnx.ModelProto:
    """A depthwise ConvInteger with zero points, strides, and padding on one side."""
    w = np.random.default_rng(0).integers(0, 256, (16, 1, 5, 3)).astype(np.uint8)
    attributes = {"group": 16, "pads": [2, 1, 2, 0], "strides": [1, 2], "kernel_shape": [5, 3]}
    node = helper.make_node("ConvInteger", ["x", "w", "zx", "zw"], ["y"], **attributes)
    ends = [
        helper.make_tensor_value_info("x", TensorProto.UINT8, (2, 16, 17, 21)),
        helper.make_tensor_value_info("y", TensorProto.INT32, (2, 16, 17, 10)),
    ]
    constants = {"w": w, "zx": np.uint8(120), "zw": np.uint8(131)}
    held = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph([node], "depthwise", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_sums_are_those_of_onnxruntime() -> None:
    model = sums_model()
    made = import_model(model)
    program = compiled(made, DEFAULT)
    assert any(isinstance(part, LoweredBands) for part in program.parts)
    inputs = reference.random_inputs(made, np.random.default_rng(1))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, inputs)
    (found,) = results(made, steps_of([program]), inputs).values()
    assert np.array_equal(found, wanted)


def test_a_model_whose_products_are_all_in_bands_can_be_refined() -> None:
    model = sums_model()
    cycles = [hd.compile(model, "default", refine=refined).predict().cycles for refined in (0, 2)]
    assert cycles[0] == cycles[1]
