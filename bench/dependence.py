"""The same as `python -m tests.fuzz.dependence`: what reports and older notes call `python -m bench.dependence`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("tests.fuzz.dependence", run_name="__main__", alter_sys=True)
