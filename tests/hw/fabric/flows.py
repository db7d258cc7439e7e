"""The data flow between the operations of a configuration."""

from __future__ import annotations

from hw.fabric.decode import Decoded


def flows(decoded: Decoded) -> set[tuple[int, int, str, int]]:
    """The values that flow: numbers of operations, operand, distance in iterations."""
    return {
        (operand.source, target, name, operand.distance)
        for target, executed in enumerate(decoded.operations)
        for name, operand in executed.operands.items()
        if operand.source is not None
    }
