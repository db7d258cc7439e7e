"""The CGRA in RTL (docs/cgra.md)."""
