"""Sessions: compile, predict, simulate and verify models, tile programs and kernels of the CGRA."""
