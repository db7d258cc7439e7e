"""What is known of a point, and which way is better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MINIMIZE, MAXIMIZE = "minimize", "maximize"


class Metric(NamedTuple):
    """The direction that is wanted unless the space says otherwise, and what is measured."""

    direction: str
    meaning: str


METRICS: Mapping[str, Metric] = {
    "cycles": Metric(MINIMIZE, "cycles of all models, one inference each, by the exact cycle model"),
    "seconds_per_inference": Metric(MINIMIZE, "cycles by the clock"),
    "bytes_moved": Metric(MINIMIZE, "bytes through all memory ports"),
    "energy_pj": Metric(MINIMIZE, "counted accesses and multiply-accumulates times the energy table"),
    "utilization": Metric(MAXIMIZE, "share of the array's peak that is used"),
    "luts": Metric(MINIMIZE, "lookup tables"),
    "ffs": Metric(MINIMIZE, "flip-flops"),
    "brams": Metric(MINIMIZE, "block RAMs"),
    "dsps": Metric(MINIMIZE, "multipliers"),
    "fmax_mhz": Metric(MAXIMIZE, "clock"),
}
#: Metrics that need a clock.
CLOCKED = ("fmax_mhz", "seconds_per_inference")
#: Objectives of a space that names none.
DEFAULT = ("cycles", "luts")
