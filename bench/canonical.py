"""The same as `python -m tests.fuzz.canonical`: what reports and older notes call `python -m bench.canonical`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("tests.fuzz.canonical", run_name="__main__", alter_sys=True)
