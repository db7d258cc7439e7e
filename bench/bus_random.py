"""The same as `python -m tests.fuzz.bus_random`: what reports and older notes call `python -m bench.bus_random`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("tests.fuzz.bus_random", run_name="__main__", alter_sys=True)
