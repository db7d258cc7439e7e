"""The compiler: models and shapes to programs of warps. Knows the machine's descriptions, not its RTL."""
