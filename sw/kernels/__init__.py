"""Loops for the grid that operators of a model are made of, and their configurations (docs/operators.md)."""
