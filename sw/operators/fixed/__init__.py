"""Real numbers between quantised tensors in fixed point, on request (docs/network.md).

A float32 tensor without an exact integer form becomes int32 with a power-of-two scale. Its range decides the
number of fractional bits, and every operator adds to its error bound.
"""
