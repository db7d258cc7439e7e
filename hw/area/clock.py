"""What the longest path of a whole machine grows with, for a clock that is estimated from the configuration.

Paths of parts that are placed alone hardly depend on their sizes: what decides is how far signals travel in a
machine, and so how much of the device is in use and what is joined to what.
"""

from __future__ import annotations

from math import log2

from hw.config import PORTS, MachineConfig
from hw.fabric import Unit

#: The device that clocks are estimated for, that of `jacquard fpga`, in its only grade; and its LUTs.
DEVICE, LUTS = "um5g-85k", 83_640


def features(config: MachineConfig, luts: float) -> dict[str, float]:
    """Numbers that the delay of the longest path is a sum of, each times its nanoseconds.

    `luts` are those of the whole machine. One that is larger than the device counts as a full one.
    """
    grid = config.cgra
    multiplies = grid is not None and any(Unit.MULTIPLIER in kind.units for kind in grid.kinds)
    return {
        "one": 1.0,
        "full": min(1.0, luts / LUTS),
        "multiplier": float(multiplies),
        "array": log2(config.rows * config.cols),
        "port": log2(max(config.port_bytes(port) for port in PORTS)),
        "banks": log2(1 + len(config.store_pes) * config.acc_banks),
    }
