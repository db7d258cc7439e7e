"""Dependences between the instructions of a tile program (docs/dependence.md)."""

from sw.dependence.analysis import ANY_DISTANCE, ENTRY, Dependences, SeenWrite, analyse
from sw.dependence.tables import Row, tables

__all__ = ["ANY_DISTANCE", "ENTRY", "Dependences", "Row", "SeenWrite", "analyse", "tables"]
