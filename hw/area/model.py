"""The fitted model: what one unit of every feature of every part takes of an FPGA family."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from hw.errors import InputError

FAMILIES = ("ecp5", "xilinx")
#: What is counted, in the order of reports.
RESOURCES = ("luts", "ffs", "brams", "dsps")


@dataclass(frozen=True)
class Model:
    """Coefficients by part, resource and feature; nanoseconds of the longest path by feature of the machine.

    `whole` are factors by resource from the sum of the parts to the whole machine in one piece. `clock` is
    empty where none was measured.
    """

    coefficients: Mapping[str, Mapping[str, Mapping[str, float]]]
    whole: Mapping[str, float]
    clock: Mapping[str, float]

    def part(self, kind: str, resource: str, features: Mapping[str, float]) -> float:
        """What a part takes of a resource."""
        weights = self.coefficients[kind][resource]
        return sum(weight * features[name] for name, weight in weights.items())

    def delay(self, features: Mapping[str, float]) -> float:
        """Nanoseconds of the longest path of a machine (`hw.area.clock`); 0 where none was measured."""
        return sum(weight * features[name] for name, weight in self.clock.items())


def is_fitted(family: str) -> bool:
    """Whether there is a model of a family."""
    return family in FAMILIES and (resources.files("hw.area") / f"{family}.json").is_file()


@functools.cache
def load(family: str) -> Model:
    """The model of a family; raises `InputError` for a family that has none."""
    if not is_fitted(family):
        fitted = " or ".join(f for f in FAMILIES if is_fitted(f))
        raise InputError(f"family must be one that has an area model, {fitted}, not {family!r}")
    values = json.loads((resources.files("hw.area") / f"{family}.json").read_text(encoding="utf-8"))
    return Model(values["coefficients"], values["whole"], values["clock"])
