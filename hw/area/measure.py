"""The FPGA resources of a machine: estimated, or measured by synthesis."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from hw.config import MachineConfig

if TYPE_CHECKING:
    from hw.synthesis import Resources


class SynthesisError(Exception):
    """Synthesis of a machine started and failed."""


def area(config: MachineConfig, family: str, *, measured: bool) -> dict[str, float]:
    """The resources of a machine by metric, with `fmax_mhz` if the clock can be estimated.

    Raises `InputError` for an unknown family, missing tools and a cache that cannot be written, and
    `SynthesisError` if the tools fail on the machine. With `measured`, resources come from synthesis. The
    clock is always an estimate, because placing and routing a machine takes many minutes (`heald fpga` does
    it).
    """
    # Both are slow to import, and synthesis needs tools that estimates do not.
    from hw.area.model import RESOURCES, estimate, is_fitted

    guess = estimate(config, family) if is_fitted(family) or not measured else None
    clock = {} if guess is None or guess.fmax_mhz is None else {"fmax_mhz": guess.fmax_mhz}
    found = _measured(config, family) if measured else guess
    return {name: getattr(found, name) for name in RESOURCES} | clock


def _measured(config: MachineConfig, family: str) -> Resources:
    from hw.emit import TOP, verilog
    from hw.synthesis.tools import ToolError
    from hw.synthesis.yosys import synthesise

    try:
        return synthesise(verilog(config, trace=False), TOP, family).resources
    except ToolError as error:
        if any(os.strerror(errno.ENOSPC) in line for line in error.lines):
            raise  # the cache is full
        raise SynthesisError(str(error)) from None


def has_clock(family: str) -> bool:
    """Whether the area model of a family includes the clock."""
    from hw.area.model import is_fitted, load

    return is_fitted(family) and bool(load(family).clock)
