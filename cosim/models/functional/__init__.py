"""Functional model: the effect of the machine's operations on memory and buffers, without timing."""

from cosim.models.functional.memories import Memories, OperationError
from cosim.models.functional.sequential import execute

__all__ = ["Memories", "OperationError", "execute"]
