"""The accelerator: configuration, instruction set, registers and RTL (Amaranth)."""
