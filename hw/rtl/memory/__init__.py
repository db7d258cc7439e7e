"""Buffers, accumulator, loaders and storer."""
