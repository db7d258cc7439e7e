"""What operations of the machine do to memory and buffers, without their timing."""

from sw.functional.memories import Memories, OperationError
from sw.functional.sequential import execute

__all__ = ["Memories", "OperationError", "execute"]
