"""The same as `python -m tests.fuzz.grid_kernels`: what reports and older notes call `python -m bench.grid_kernels`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("tests.fuzz.grid_kernels", run_name="__main__", alter_sys=True)
