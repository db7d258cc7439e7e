"""The same as `python -m tests.fuzz.grid_random`: what reports and older notes call `python -m bench.grid_random`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("tests.fuzz.grid_random", run_name="__main__", alter_sys=True)
