"""Compiles a network into one program of the machine: memory, tiles, warps, bitstreams (docs/compile.md)."""
