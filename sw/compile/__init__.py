"""From a network to one program of the machine: memory, tiles, warps, configurations (docs/compile.md)."""
