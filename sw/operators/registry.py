"""The questions that the compiler asks each kind of operator, and the registries that hold the answers.

| question | answered by |
| --- | --- |
| what does a node of a model become? | a function under `imports` |
| are these nodes one operator, written with smaller ones? | a function under `rewrites` |
| which views can it read and write? | `legalise.register` |
| can it work on rows with padding after them? | `takes_padding.register` |
| what does the machine execute? | `lower.register` |

`Operator.reference` defines an operator's semantics.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from hw.config import MachineConfig
from hw.errors import InputError
from sw.compile.array_tiles import Choices
from sw.compile.launches import LaunchWriter
from sw.compile.memory import Allocation
from sw.compile.writer import ChipSpace
from sw.frontend.importer import Handler
from sw.frontend.model import OnnxModel
from sw.graph.network import Operator, Tensor, View
from sw.ir.program import Statement
from sw.kernels.configuration import Configured
from sw.operators.copies import Copies

#: Import functions by operator: for any operands, for real numbers, for integers.
HANDLERS: dict[str, Handler] = {}
REAL_HANDLERS: dict[str, Handler] = {}
WHOLE_HANDLERS: dict[str, Handler] = {}
#: Rewrites of a model before its nodes are imported.
REWRITES: list[Callable[[OnnxModel], OnnxModel]] = []


def imports(*names: str, into: dict[str, Handler] = HANDLERS) -> Callable[[Handler], Handler]:
    """Registers the import function of these operators."""

    def register(handler: Handler) -> Handler:
        into.update(dict.fromkeys(names, handler))
        return handler

    return register


def rewrites(rewrite: Callable[[OnnxModel], OnnxModel]) -> Callable[[OnnxModel], OnnxModel]:
    """Registers a rewrite of models."""
    REWRITES.append(rewrite)
    return rewrite


class LoweredOperator(Protocol):
    """An operator with its tiles; it emits statements once everything has an address."""

    @property
    def operator(self) -> Operator:
        """The operator that it computes."""
        ...

    @property
    def configured(self) -> tuple[Configured, ...]:
        """Configurations of its launches."""
        ...

    @property
    def blobs(self) -> tuple[Tensor, ...]:
        """The constants that it adds."""
        ...

    def emit(self, launcher: LaunchWriter, scratch: ChipSpace, out: ChipSpace) -> list[Statement]:
        """The statements; raises `InputError` if an area is too small."""
        ...


@dataclass(frozen=True)
class LoweringContext:
    """The context of tiling: machine, allocations, and bytes of scratchpad for this operator.

    `allowed` are the tiles that products may use.
    """

    config: MachineConfig
    homes: Mapping[str, Allocation]
    room: int
    allowed: Choices = field(default_factory=Choices)


@functools.singledispatch
def lower(operator: Operator, context: LoweringContext) -> LoweredOperator:
    """Chooses tiles and configurations; raises `InputError` naming the operator."""
    raise InputError(f"{operator.name} ({operator.op}): the machine cannot execute it")


@functools.singledispatch
def legalise(operator: Operator, copies: Copies) -> None:
    """Appends the operator to `copies`, with copies of views that it cannot access directly."""
    copies.operators.append(operator)


@functools.singledispatch
def takes_padding(operator: Operator, view: View, row: int) -> bool:
    """Whether a tensor in this view may have padding after its rows of `row` elements."""
    return False
