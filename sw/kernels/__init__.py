"""CGRA loops of a model's operators, and their configurations (docs/operators.md)."""
