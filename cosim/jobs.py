"""Makes jobs from compiled programs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cosim.job import Job, Region, Window
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from sw.compile.stages import Compiled


def job_of(program: Compiled, arrays: Mapping[str, np.ndarray], settings: MemorySettings) -> Job:
    """The job that runs a program on tensors by name; the rest of memory is empty.

    The job's outputs are those of the program, in order.
    """
    given = [(home.address, home.image(arrays[n])) for n, home in program.inputs.items() if n in arrays]
    return Job(
        programs=program.programs,
        settings=settings,
        windows=tuple(Window(*w) for w in program.memory.windows),
        memory=(*program.constants, *given),
        outputs=tuple(Region(home.address, home.size) for home in program.outputs.values()),
        name=program.network.name,
    )


def exact_cycles(program: Compiled, settings: MemorySettings) -> int:
    """Predicted cycles of a program whose cycles do not depend on its tensors."""
    return predict(program.config, job_of(program, {}, settings)).cycles
