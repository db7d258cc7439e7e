"""Our cycles of a layer: compiled for the machine, its sums stored, and run by the cycle model or the RTL."""

from __future__ import annotations

import time

import numpy as np

from bench.peers.asking import Answer
from bench.peers.layers import Layer
from cosim.backends import simulator
from cosim.compare import compare
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from heald.testing.problems import compile_problem, problem_job, result
from hw.config import MachineConfig
from hw.errors import InputError


def predicted(config: MachineConfig, layer: Layer) -> Answer:
    """By the cycle model, the compiler's time included."""
    begin = time.monotonic()
    try:
        program = compile_problem(layer.problem, config)
        a, b = (
            np.zeros(shape, kind)
            for shape, kind in (
                (layer.problem.shape_a, layer.problem.type_a),
                (layer.problem.shape_b, layer.problem.type_b),
            )
        )
        job = problem_job(program, a, b, MemorySettings.of(config))
        cycles = predict(config, job, values=False).cycles
    except InputError as error:
        return Answer(None, time.monotonic() - begin, str(error))
    return Answer(cycles, time.monotonic() - begin)


def observed(config: MachineConfig, layer: Layer) -> tuple[int, bool]:
    """By the RTL on random operands: cycles, and whether results and every event are as predicted."""
    program = compile_problem(layer.problem, config)
    a, b = layer.problem.random(np.random.default_rng(0))
    job = problem_job(program, a, b, MemorySettings.of(config))
    (outcome,) = simulator(config, "verilator").run([job])
    same = compare(config, job, predict(config, job), outcome) is None
    return outcome.cycles, same and np.array_equal(result(program, outcome), layer.problem.reference(a, b))
