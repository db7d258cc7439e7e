"""Places for buffers, and operations of the machine for instructions on regions (docs/programs.md)."""

from sw.tile_programs.bind import Bound, bind

__all__ = ["Bound", "bind"]
