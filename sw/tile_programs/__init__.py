"""Binds tile programs to a machine: addresses for buffers, operations for instructions (docs/programs.md)."""

from sw.tile_programs.bind import Bound, bind

__all__ = ["Bound", "bind"]
