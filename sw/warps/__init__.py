"""Converts a sequential tile program into warps that run in parallel (docs/warps.md)."""
