"""Accuracy of real numbers in fixed point (docs/network.md, "Fixed point")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Accuracy:
    """Real numbers from `low` to `high` that `node` makes, at most `error` from exact arithmetic.

    They are a tensor of int32 with `bits` fractional bits, or what QuantizeLinear with this `step` rounds.
    """

    node: str
    low: float
    high: float
    error: float
    bits: int | None = None
    step: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Its JSON."""
        return asdict(self)


def told(found: Mapping[str, Accuracy]) -> list[str]:
    """What is in fixed point and its greatest errors, in a line; none where nothing is."""
    bits = [a.bits for a in found.values() if a.bits is not None]
    if not bits:
        return []
    text = f"{len(bits)} tensors in fixed point, {min(bits)} to {max(bits)} bits behind the point"
    ends = [(a.error / a.step, name) for name, a in found.items() if a.step]
    if ends:
        worst, name = max(ends)
        text += f"; what QuantizeLinear rounds is off by at most {worst:.2g} of a step ({name})"
    return [text]
