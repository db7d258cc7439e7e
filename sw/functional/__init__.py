"""What operations of the machine do to memory and buffers, without their timing."""

from sw.functional.errors import OperationError
from sw.functional.memories import Memories
from sw.functional.sequential import execute

__all__ = ["Memories", "OperationError", "execute"]
