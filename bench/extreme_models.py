"""Runs `python -m tests.fuzz.extreme_models`; bench/README.md has its table."""

import runpy

if __name__ == "__main__":
    runpy.run_module("tests.fuzz.extreme_models", run_name="__main__", alter_sys=True)
