"""A node of a model."""

from __future__ import annotations

import itertools
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

from hw.errors import InputError


def fresh(hint: str, taken: Container[str]) -> str:
    """A unique name: the hint, with a number if necessary."""
    numbered = (f"{hint}.{number}" for number in itertools.count(1))
    return next(name for name in itertools.chain([hint], numbered) if name not in taken)


@dataclass(frozen=True)
class OnnxNode:
    """A node: inputs by name, with an empty name for a missing optional input.

    `op` of a non-standard domain is `DOMAIN::OPERATOR`. `refused` says why the machine does not execute the
    node.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    refused: str = ""

    @property
    def place(self) -> str:
        """The name of the node in messages."""
        return f"node {self.name} ({self.op})"

    def error(self, text: str) -> InputError:
        """An error at this node."""
        return InputError(f"{self.place}: {text}")

    def optional(self, index: int) -> str:
        """The name of an input, empty if it is missing."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def axis(self, axis: int, rank: int) -> int:
        """Normalises an axis to count from 0; raises `InputError` if the rank does not have it."""
        if not -rank <= axis < rank:
            raise self.error(f"axis must be {-rank} to {rank - 1}, not {axis}")
        return axis % rank
