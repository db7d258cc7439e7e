"""The compiler, from models and shapes to warp programs; it knows the machine's description, not its RTL."""
