"""Our cycles of a layer: compiled for the machine, with its sums stored, by the cycle model or the RTL."""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from bench.peers.asking import Answer
from bench.peers.layers import Layer
from cosim.backends import simulator
from cosim.compare import compare
from cosim.job import Job
from cosim.jobs import job_of
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from heald.testing.problems import result
from hw.config import MachineConfig
from hw.errors import InputError
from sw.compile.stages import Compiled
from sw.compiler import compile_network
from sw.convolution import Convolution
from sw.graph.problems import network_of


def weights(layer: Layer) -> str | None:
    """The operand that is constant in the network; None for products of attention."""
    if isinstance(layer.problem, Convolution):
        return "A"
    return "B" if layer.kind != "attention" else None


def compiled(config: MachineConfig, layer: Layer) -> tuple[Compiled, Job, np.ndarray]:
    """The layer with random operands and constant weights: program, job, and expected result."""
    a, b = layer.problem.random(np.random.default_rng(0))
    given, constant = {"A": a, "B": b}, weights(layer)
    network = network_of(layer.problem)
    if constant is not None:
        tensor = dataclasses.replace(network.tensors[constant], constant=given.pop(constant))
        tensors = {**network.tensors, constant: tensor}
        network = dataclasses.replace(network, tensors=tensors, inputs=tuple(given))
    (program,) = compile_network(network, config)
    if not isinstance(program, Compiled):
        raise InputError("the machine cannot do this layer")
    return program, job_of(program, given, MemorySettings.of(config)), layer.problem.reference(a, b)


def predicted(config: MachineConfig, layer: Layer) -> Answer:
    """Predict with the cycle model; the time includes the compiler's."""
    begin = time.monotonic()
    try:
        _, job, _ = compiled(config, layer)
        cycles = predict(config, job, values=False).cycles
    except InputError as error:
        return Answer(None, time.monotonic() - begin, str(error))
    return Answer(cycles, time.monotonic() - begin)


def observed(config: MachineConfig, layer: Layer) -> tuple[int, bool]:
    """Run on the RTL: cycles, and whether results and every event are as predicted."""
    program, job, expected = compiled(config, layer)
    (outcome,) = simulator(config, "verilator").run([job])
    same = compare(config, job, predict(config, job), outcome) is None
    return outcome.cycles, same and np.array_equal(result(program, outcome), expected)
