"""Warps: a sequential tile program becomes programs that run side by side (docs/warps.md)."""
