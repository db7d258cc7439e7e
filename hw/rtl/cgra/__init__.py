"""The grid of processing elements in RTL (docs/cgra.md)."""
