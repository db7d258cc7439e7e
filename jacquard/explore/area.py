"""Resources and clock of a machine on an FPGA: estimated, or measured by synthesis."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from hw.config import MachineConfig

#: Resources by the names of the metrics.
RESOURCES = ("luts", "ffs", "brams", "dsps")


class SynthesisError(Exception):
    """Synthesis began and failed on a machine."""


@dataclass(frozen=True)
class Area:
    """What a machine takes; `fmax_mhz` is None where nothing is known of the clock."""

    luts: int
    ffs: int
    brams: int
    dsps: int
    fmax_mhz: float | None

    def metrics(self) -> dict[str, float]:
        """What is known, by the names of the metrics."""
        found: dict[str, float] = {name: getattr(self, name) for name in RESOURCES}
        return found if self.fmax_mhz is None else found | {"fmax_mhz": self.fmax_mhz}


def area(config: MachineConfig, family: str, *, measured: bool) -> Area:
    """What a machine takes.

    Raises `InputError` for an unknown family, missing tools and a cache that cannot be written, and
    `SynthesisError` where the tools fail on the machine.

    Measured are the resources, by synthesis. The clock is estimated all the same: placing and routing a
    machine takes many minutes (`jacquard fpga` does it).
    """
    # Both take time to import, and synthesis needs tools that estimates do not.
    from hw.area import estimate
    from hw.area.model import is_fitted

    guess = estimate(config, family) if is_fitted(family) or not measured else None
    if not measured and guess is not None:
        return Area(guess.luts, guess.ffs, guess.brams, guess.dsps, guess.fmax_mhz)
    from hw.emit import TOP, verilog
    from hw.synthesis.tools import ToolError
    from hw.synthesis.yosys import synthesise

    try:
        found = synthesise(verilog(config, trace=False), TOP, family).resources
    except ToolError as error:
        if any(os.strerror(errno.ENOSPC) in line for line in error.lines):
            raise  # the cache is full
        raise SynthesisError(str(error)) from None
    return Area(found.luts, found.ffs, found.brams, found.dsps, guess.fmax_mhz if guess else None)


def has_clock(family: str) -> bool:
    """Whether the clock of machines is known of a family."""
    from hw.area.model import is_fitted, load

    return is_fitted(family) and bool(load(family).clock)
