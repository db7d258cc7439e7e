"""Dependences between the instructions of a tile program (docs/dependence.md)."""

from sw.dependence.analysis import ANY_DISTANCE, Dependences, SeenWrite, analyse
from sw.ir.parse import ENTRY

__all__ = ["ANY_DISTANCE", "ENTRY", "Dependences", "SeenWrite", "analyse"]
