"""Convolutions of models: layouts of images in memory, copies, tiles."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hw.config import load
from sw.compile import array_tiles
from sw.compile.array_tiles import Choices, LoweredProduct, lowered
from sw.compile.images import convolution_problem, follows_of, joined, product_of
from sw.compile.legal import legal
from sw.compile.memory import Lines, plan_memory
from sw.compile.refused import OperatorsError
from sw.compile.stages import Compiled
from sw.compiler import compile_network
from sw.graph import reference
from sw.graph.expression import Argument
from sw.graph.network import Elementwise, ImageConvolution, MatrixProduct, Network, View, whole
from sw.operators.convolutions import lines
from sw.patches import Axis
from tests.sw.compile.convolution_networks import Builder, channel_wise, drawn, same

TEST = load("test", {"imem_words": 4096})


def parts_of(network: Network) -> list[object]:
    (stage,) = compile_network(network, TEST)
    assert isinstance(stage, Compiled)
    return list(stage.parts)


def builder() -> Builder:
    return Builder(np.random.default_rng(5))


def results(network: Network, seed: int = 0) -> dict[str, np.ndarray]:
    return reference.run(network, reference.random_inputs(network, np.random.default_rng(seed)))


@pytest.mark.parametrize("seed", range(20))
def test_a_legal_network_means_the_same(seed: int) -> None:
    network = drawn(seed)
    found, wanted = results(legal(network, TEST)), results(network)
    assert all(np.array_equal(found[name], wanted[name]) for name in network.outputs)


def test_a_convolution_of_single_pixels_is_a_product() -> None:
    b = builder()
    y = b.convolution(b.input((2, 4, 5, 7)), 6, Axis(5, 1), Axis(7, 1), groups=2)
    (product,) = legal(b.network(y), TEST).operators
    assert isinstance(product, MatrixProduct)
    assert product.output.shape == (2, 2, 3, 35)


def test_a_machine_without_patches_takes_convolutions_of_single_pixels_alone() -> None:
    machine, b = TEST.replace(convolutions=False), builder()
    x = b.input((1, 2, 6, 7))
    pixels = b.convolution(x, 3, Axis(6, 1), Axis(7, 1))
    patches = b.convolution(x, 3, same(6, 3), same(7, 3))
    with pytest.raises(OperatorsError, match="patches; this needs convolutions = true") as error:
        compile_network(b.network(pixels, patches), machine)
    assert [o.name for o, _ in error.value.refused] == [b.network(patches).operators[1].name]
    assert compile_network(b.network(pixels, patches), TEST)


def test_images_of_patches_have_padding_and_start_behind_their_border() -> None:
    b = builder()
    y = b.convolution(b.input((1, 2, 6, 7)), 3, same(6, 3), same(7, 3))
    z = b.convolution(y, 2, same(6, 5), same(7, 5))
    made = legal(b.network(z), TEST)
    assert lines(made, TEST) == {"t0": Lines(8, 1), y.name: Lines(8, 2)}
    memory = plan_memory(made, made.operators, lines(made, TEST), TEST)
    home = memory.homes[y.name]
    assert (home.pitch, home.address % TEST.load_b_bytes, home.dense) == (8, 2, False)


def test_rows_of_whole_words_stay_dense() -> None:
    b = builder()
    made = legal(b.network(b.convolution(b.input((1, 2, 6, 8)), 3, same(6, 3), same(8, 3))), TEST)
    assert lines(made, TEST) == {"t0": Lines(8, 1)}


def two_convolutions() -> list[LoweredProduct]:
    """The tiles of two convolutions, the second of which reads patches of the first one's result."""
    b = builder()
    y = b.convolution(b.input((1, 4, 6, 6)), 4, same(6, 3), same(6, 3))
    z = b.convolution(y, 4, same(6, 3), same(6, 3))
    parts = parts_of(b.network(z))
    found = [part for part in parts if isinstance(part, LoweredProduct)]
    assert len(found) == len(parts) == 2
    return found


def test_bands_with_padding_are_stored_channel_by_channel() -> None:
    first, second = two_convolutions()
    assert first.tiles.segments is not None
    assert (first.tiles.segments.length, first.tiles.segments.apart["result"]) == (6, 8)
    assert second.tiles.segments is None


def test_what_is_computed_of_short_rows_falls_into_their_gaps() -> None:
    first, _ = two_convolutions()
    assert first.chosen is not None
    segments = first.tiles.segments
    assert segments is not None
    # Six elements could be computed in twos at most.
    assert first.chosen.elementwise.per_iteration >= 4
    assert (segments.computed, segments.gaps["segment_gaps"]) == (8, {0: -2, "result": 0})
    # The bias of a channel stands there for each of its rows.
    assert first.records["rows"].elements == first.tiles.whole_rows * segments.count


def test_tiles_inside_of_rows_with_gaps_do_not_reach_across_them() -> None:
    b = builder()
    y = b.convolution(b.input((1, 4, 6, 6)), 4, same(6, 3), same(6, 3))
    b.convolution(y, 4, same(6, 3), same(6, 3))
    network = legal(b.network(y), TEST)
    made = lines(network, TEST) | {y.name: Lines(8, 1)}
    memory = plan_memory(network, network.operators, made, TEST)
    (o, *_) = network.operators
    assert isinstance(o, ImageConvolution)
    p = convolution_problem(o, memory.homes, TEST)
    assert p.images
    part = array_tiles._lowered(p, 8192, Choices())
    assert part.nest.blocking.partition_n <= 6


def test_who_cannot_do_with_padding_gets_images_without() -> None:
    b = builder()
    x = b.convolution(b.input((1, 2, 5, 5)), 2, same(5, 3), same(5, 3))
    y = b.convolution(x, 2, same(5, 3), same(5, 3))
    flat = View(x.name, (1, 50), (50, 1))
    z = b.tensor((1, 50), "int8")
    b.operators.append(dataclasses.replace(copy_of(whole(z), flat), name="flatten"))
    made = legal(b.network(y, z), TEST)
    (copy,) = (o for o in made.operators if o.op == "Copy" and o.name != "flatten")
    assert isinstance(copy, Elementwise)
    assert copy.operands == (whole(x),)
    assert x.name not in lines(made, TEST)
    assert copy.output.tensor in lines(made, TEST)


def copy_of(target: View, source: View) -> Elementwise:
    return Elementwise("copy", "Copy", ("copy",), target, Argument(0), (source,))


def test_weights_that_do_not_lie_in_rows_are_laid_anew() -> None:
    b = builder()
    y = b.convolution(b.input((1, 2, 4, 8)), 3, same(4, 3), same(8, 3))
    (o,) = b.operators
    assert isinstance(o, ImageConvolution)
    turned = b.constant((3, 3, 2, 3), "int8")
    o = dataclasses.replace(o, w=View(turned.name, (3, 2, 3, 3), (1, 3, 6, 18)))
    b.operators[:] = [o]
    network = b.network(y)
    made = legal(network, TEST)
    (changed,) = made.operators
    assert isinstance(changed, ImageConvolution)
    assert made.tensors[changed.w.tensor].constant is not None
    assert np.array_equal(results(made)[y.name], results(network)[y.name])


def test_operands_follow_channels_and_pixels() -> None:
    shape = (2, 3, 4, 5)
    b = builder()
    image, bias, one = b.input(shape), b.constant((3,), "int32"), b.input((5,))
    assert follows_of(whole(image)) == "full"
    assert follows_of(channel_wise(bias, shape)) == "row"
    assert follows_of(View(one.name, shape, (0, 0, 0, 0))) == "scalar"
    assert follows_of(View(one.name, shape, (0, 0, 0, 1))) is None
    assert joined(View(image.name, (2, 3, 2, 5), (60, 20, 10, 1))) is None


def test_only_convolutions_of_single_pixels_are_products() -> None:
    b = builder()
    b.convolution(b.input((1, 2, 4, 8)), 3, same(4, 3), same(8, 3))
    (o,) = b.operators
    assert isinstance(o, ImageConvolution)
    assert product_of(o, ()) is None


def test_every_output_is_in_one_tile() -> None:
    b = builder()
    x = b.input((2, 4, 9, 13))
    y = b.convolution(x, 10, Axis(9, 3, 2, 1, 1), Axis(13, 3, 2, 1, 1))
    z = b.convolution(y, 7, same(5, 3), same(7, 3))
    network = legal(b.network(z), TEST)
    memory = plan_memory(network, network.operators, lines(network, TEST), TEST)
    for o in network.operators:
        assert isinstance(o, ImageConvolution)
        part = lowered(convolution_problem(o, memory.homes, TEST), 8192)
        counts = {loop.name: loop.count for loop in part.tiles.loops}
        down = -(-part.tiles.whole_rows // part.tiles.rows)
        assert counts.get("image", 1) == 2
        assert part.tiles.rows * down >= part.tiles.whole_rows
        assert part.nest.blocking.partition_n * counts.get("n", 1) >= part.nest.extent.n
