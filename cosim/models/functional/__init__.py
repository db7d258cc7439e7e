"""What operations of the machine do to memory and buffers, without their timing."""

from cosim.models.functional.memories import Memories, OperationError
from cosim.models.functional.sequential import execute

__all__ = ["Memories", "OperationError", "execute"]
