"""The measurement `python -m tests.fuzz.grid_kernels`, which bench/README.md has the table of."""

import runpy

if __name__ == "__main__":
    runpy.run_module("tests.fuzz.grid_kernels", run_name="__main__", alter_sys=True)
