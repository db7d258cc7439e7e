"""One session: compile, predict, simulate and judge models, tile programs and kernels of the CGRA."""
