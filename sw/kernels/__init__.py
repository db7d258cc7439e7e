"""CGRA loops for a model's operators, and their configurations (docs/operators.md)."""
