"""The GEMM engine: `engine.Gemm` and its parts."""
