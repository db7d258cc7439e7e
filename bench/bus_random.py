"""The measurement `python -m tests.fuzz.bus_random`, which bench/README.md has the table of."""

import runpy

if __name__ == "__main__":
    runpy.run_module("tests.fuzz.bus_random", run_name="__main__", alter_sys=True)
