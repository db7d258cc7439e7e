"""Products and convolutions as sequential tile programs, operands as closed forms of the loops."""
