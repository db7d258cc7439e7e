"""Small machines for the bus tops, and products to run on them."""

from __future__ import annotations

import functools

import numpy as np

from cosim.job import Job, Outcome
from cosim.settings import MemorySettings
from heald.testing.problems import compile_problem, problem_job, result
from hw.config import MachineConfig, load
from sw.compile.stages import Compiled
from sw.problem import Product

SMALL = load("test").replace(
    name="small", cgra=None, warps=4, scratch_bytes=4096, out_bytes=4096, imem_words=512
)
#: Ports of four widths, and the most transfers of a burst that goes with them here.
UNEVEN = SMALL.replace(name="uneven", rows=8, load_a_bytes=4, load_b_bytes=16, load_c_bytes=32, store_bytes=8)
UNEVEN_BEATS = 4


class Case:
    """A product with its operands: the job, and whether an outcome is right."""

    def __init__(self, config: MachineConfig, problem: Product, seed: int = 0):
        self.problem = problem
        self.kernel: Compiled = compile_problem(problem, config)
        self.a, self.b = problem.random(np.random.default_rng(seed))
        self.job: Job = problem_job(self.kernel, self.a, self.b, MemorySettings.of(config))

    def right(self, outcome: Outcome) -> bool:
        """Whether the product is NumPy's."""
        if outcome.error is not None:
            return False
        found = result(self.kernel, outcome)
        return bool(np.array_equal(found, self.problem.reference(self.a, self.b)))


@functools.cache
def cases(config: MachineConfig) -> list[Case]:
    """Products of odd sizes, transposed, with zero points, one of them two at once."""
    return [
        Case(config, Product(9, 33, 14, "int8", "uint8", 3, 120, True, False)),
        Case(config, Product(21, 12, 7, "uint8", "int8", 0, -5, False, True)),
        Case(config, Product(5, 7, 3, batch_a=(2,), batch_b=(2,))),
    ]
