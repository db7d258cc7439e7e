"""The distinct convolutions of ResNet-50, smaller, on the RTL: results, cycles, pixels read.

At full size they are run by `python -m bench.prediction --set resnet`.
"""

from __future__ import annotations

import numpy as np
import pytest

from bench.prediction import RESNET
from cosim.backends import simulator
from cosim.compare import compare
from cosim.models.cycle import predict
from cosim.refine import part_of
from cosim.session.tiling import plan_of
from cosim.settings import MemorySettings
from heald.testing.problems import compile_problem, problem_job, result
from sw.convolution import Convolution
from sw.patches import Axis
from tests.budget import cases
from tests.machines import TEST


def small(size: int, channels: int, out: int, kernel: int, stride: int, pad: int) -> Convolution:
    """A layer with an eighth of its channels on a quarter of its image, at most."""
    axis = Axis(min(size, max(7, size // 4)), kernel, stride, pad, pad)
    return Convolution(1, -(-channels // 8), axis, axis, -(-out // 8), type_b="uint8", zero_b=128)


@pytest.mark.drawn
def test_resnets_convolutions_are_exact_and_read_every_pixel_once_per_load() -> None:
    problems = [small(*shape) for shape in RESNET[:: cases(2, 1)]]
    settings = MemorySettings.of(TEST)
    kernels = [compile_problem(problem, TEST) for problem in problems]
    operands = [problem.random(np.random.default_rng(i)) for i, problem in enumerate(problems)]
    jobs = [problem_job(k, *ab, settings) for k, ab in zip(kernels, operands, strict=True)]
    outcomes = simulator(TEST, "verilator").run(jobs)
    for problem, kernel, ab, job, outcome in zip(problems, kernels, operands, jobs, outcomes, strict=True):
        assert compare(TEST, job, predict(TEST, job), outcome) is None, problem
        assert np.array_equal(result(kernel, outcome), problem.reference(*ab)), problem
        if not part_of(kernel).problem.extent.patches:
            continue
        # Words of a row: as many as its pixels and padding fill, once per tile and load.
        plan = plan_of(part_of(kernel), settings.bandwidth).plan
        blocking, width = part_of(kernel).nest.blocking, TEST.load_b_bytes
        assert blocking.out_cols == problem.cols.outputs
        words = -(-problem.cols.span(blocking.out_cols) // width)
        rows_read = plan.bytes_b // problem.cols.size
        assert 0 < outcome.counters["LOAD_B_WORDS"] <= rows_read * words, problem
