"""Functional model: what the machine's operations do to memory and buffers, without timing."""

from cosim.models.functional.memories import Memories, OperationError
from cosim.models.functional.sequential import execute

__all__ = ["Memories", "OperationError", "execute"]
