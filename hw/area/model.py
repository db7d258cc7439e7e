"""The fitted model: what one unit of every feature of every part takes of an FPGA family."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from hw.errors import InputError

FAMILIES = ("ecp5", "xilinx")
#: What is counted, in the order of reports.
RESOURCES = ("luts", "ffs", "brams", "dsps")


@dataclass(frozen=True)
class Model:
    """Coefficients by part, resource and feature; delays by part and feature.

    `whole` are factors by resource from the sum of the parts to the whole machine in one piece, `delays` are
    in nanoseconds, `crowding` is the part of the delay that a full device adds.
    """

    coefficients: Mapping[str, Mapping[str, Mapping[str, float]]]
    whole: Mapping[str, float]
    delays: Mapping[str, Mapping[str, float]]
    crowding: float

    def part(self, kind: str, resource: str, features: Mapping[str, float]) -> float:
        """What a part takes of a resource."""
        weights = self.coefficients[kind][resource]
        return sum(weight * features[name] for name, weight in weights.items())

    def delay(self, kind: str, features: Mapping[str, float]) -> float:
        """Nanoseconds of the longest path of a part alone; 0 where none was measured."""
        weights = self.delays.get(kind, {})
        return sum(weight * scale(name, features[name]) for name, weight in weights.items())


def scale(name: str, value: float) -> float:
    """How a feature counts in a delay: paths grow with the logarithm of sizes."""
    return 1.0 if name == "one" else math.log2(1 + value)


def is_fitted(family: str) -> bool:
    """Whether there is a model of a family."""
    return family in FAMILIES and (resources.files("hw.area") / f"{family}.json").is_file()


@functools.cache
def load(family: str) -> Model:
    """The model of a family; raises `InputError` for a family that has none."""
    if not is_fitted(family):
        fitted = " or ".join(f for f in FAMILIES if is_fitted(f))
        raise InputError(f"family must be one that has an area model, {fitted}, not {family!r}")
    values = json.loads((resources.files("hw.area") / f"{family}.json").read_text())
    return Model(values["coefficients"], values["whole"], values["delays"], values["crowding"])
