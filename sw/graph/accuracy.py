"""Accuracy of real numbers in fixed point (docs/network.md, "Fixed point")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Accuracy:
    """Real numbers from `low` to `high` that `node` computes, within `error` of exact arithmetic.

    They are an int32 tensor with `bits` fractional bits, or are rounded by a QuantizeLinear with this `step`.
    """

    node: str
    low: float
    high: float
    error: float
    bits: int | None = None
    step: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


def told(found: Mapping[str, Accuracy]) -> list[str]:
    """One line about fixed point and its largest errors; empty if it is not used."""
    bits = [a.bits for a in found.values() if a.bits is not None]
    if not bits:
        return []
    text = f"{len(bits)} tensors in fixed point, {min(bits)} to {max(bits)} fractional bits"
    ends = [(a.error / a.step, name) for name, a in found.items() if a.step]
    if ends:
        worst, name = max(ends)
        text += f"; the error before QuantizeLinear is at most {worst:.2g} of a step ({name})"
    return [text]
