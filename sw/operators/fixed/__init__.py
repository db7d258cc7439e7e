"""Real numbers between quantised tensors in fixed point, where that is asked for (docs/network.md).

A float32 tensor without an exact form becomes int32 with a power of two as scale. What it may hold decides
the number of fractional bits, and every operator adds to the greatest error that it may have.
"""
