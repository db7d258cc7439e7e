"""The measurement `python -m tests.fuzz.extreme_models`, which bench/README.md has the table of."""

import runpy

if __name__ == "__main__":
    runpy.run_module("tests.fuzz.extreme_models", run_name="__main__", alter_sys=True)
