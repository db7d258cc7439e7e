"""Places for buffers, and operations of the machine for instructions on regions (docs/programs.md)."""

from sw.binding.bind import Bound, bind

__all__ = ["Bound", "bind"]
