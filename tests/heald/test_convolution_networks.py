"""Networks of convolutions on the RTL: values of the reference, every event in its cycle, warps accepted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from cosim.backends import simulator
from cosim.compare import compare
from cosim.job import Job, Region, Window
from cosim.models.cycle import predict
from cosim.session.warps import verdict_on
from cosim.settings import MemorySettings
from hw.assembly import listing
from hw.config import MachineConfig, load
from sw.compile.bands import LoweredBands
from sw.compile.stages import Compiled
from sw.compiler import compile_network
from sw.graph import reference
from sw.graph.network import Network
from sw.patches import Axis
from tests.budget import cases
from tests.sw.compile.convolution_networks import Builder, drawn, same


def compiled(network: Network, config: MachineConfig) -> Compiled:
    """The network as one program."""
    (stage,) = compile_network(network, config)
    assert isinstance(stage, Compiled)
    return stage


def job_of(made: Compiled, inputs: Mapping[str, np.ndarray]) -> Job:
    """The program with its inputs."""
    given = tuple((home.address, home.image(inputs[name])) for name, home in made.inputs.items())
    return Job(
        made.programs,
        MemorySettings.of(made.config),
        tuple(Window(*w) for w in made.memory.windows),
        (*made.constants, *given),
        tuple(Region(home.address, home.size) for home in made.outputs.values()),
    )


def bottleneck() -> Network:
    """Single pixels, 3 x 3 and single pixels again, with a residual; rows are no whole words."""
    b = Builder(np.random.default_rng(1))
    one = Axis(6, 1), Axis(7, 1)
    x = b.input((1, 16, 6, 7))
    y = b.convolution(x, 8, *one)
    y = b.convolution(y, 8, same(6, 3), same(7, 3))
    return b.network(b.convolution(y, 16, *one, residual=x))


def residual() -> Network:
    """Two convolutions, where the operand that is added has padding, an operator between, and depthwise."""
    b = Builder(np.random.default_rng(2))
    axes = same(9, 3), same(10, 3)
    x = b.input((2, 4, 9, 10), "uint8")
    y = b.doubled(b.convolution(x, 4, *axes, types=("uint8", "uint8"), zeros=(3, 120)))
    z = b.convolution(y, 4, *axes, types=("int8", "uint8"), residual=x)
    return b.network(b.convolution(z, 4, *axes, groups=4, zeros=(128, 0)))


def wide() -> Network:
    """Rows that no tile holds, a single row, and a stride; sums without epilogue at the end."""
    b = Builder(np.random.default_rng(3))
    y = b.convolution(b.input((1, 2, 1, 300)), 3, Axis(1, 1), Axis(300, 5, 1, 2, 2))
    return b.network(b.convolution(y, 3, Axis(1, 1), Axis(300, 3, 2, 1, 1, 2), epilogue=False))


def depthwise() -> Network:
    """Bands of rows of outputs: with padding behind rows, a stride, zero points, two channels, sums."""
    b = Builder(np.random.default_rng(4))
    x = b.input((1, 8, 19, 13), "uint8")
    y = b.convolution(x, 8, same(19, 5), same(13, 5), groups=8, zeros=(9, 0), types=("int8", "uint8"))
    y = b.convolution(y, 8, same(19, 5, 2), same(13, 3), groups=8, zeros=(3, 130), types=("uint8", "int8"))
    return b.network(b.convolution(y, 4, same(10, 5), same(13, 5), groups=4, epilogue=False))


#: With images of one column, copies, groups and several images among them.
SEEDS = (9, 215, 3, 14, 221)[: cases(2, 5)]


@pytest.mark.drawn
def test_networks_of_convolutions_are_executed_exactly() -> None:
    config = load("test")
    networks = [bottleneck(), residual(), wide(), depthwise(), *(drawn(seed) for seed in SEEDS)]
    rng = np.random.default_rng(0)
    inputs = [reference.random_inputs(network, rng) for network in networks]
    made = [compiled(network, config) for network in networks]
    assert all(isinstance(part, LoweredBands) for part in made[3].parts)
    jobs = [job_of(*pair) for pair in zip(made, inputs, strict=True)]
    machine = simulator(config, "cpp")
    # One at a time: what tiles compute beyond their edges comes of what lies in the chip's memories.
    outcomes = [machine.run([job])[0] for job in jobs]
    for network, given, program, job, outcome in zip(networks, inputs, made, jobs, outcomes, strict=True):
        assert compare(config, job, predict(config, job), outcome) is None
        assert outcome.error is None
        texts = {warp: listing(words) for warp, words in program.programs.items()}
        assert verdict_on(program.source, texts, config).ok
        wanted = reference.run(network, given)
        found = zip(program.outputs.items(), outcome.outputs, strict=True)
        assert all(np.array_equal(home.extract(data), wanted[name]) for (name, home), data in found)


@pytest.mark.parametrize("seed", [300, 302])
def test_machines_with_larger_arrays_find_no_error(seed: int) -> None:
    # Onto the fabric of `tiny` loops take a minute to map.
    config = load("tiny", {"cgra": "compact4x4"})
    network = drawn(seed)
    inputs = reference.random_inputs(network, np.random.default_rng(seed))
    assert predict(config, job_of(compiled(network, config), inputs)).error is None
