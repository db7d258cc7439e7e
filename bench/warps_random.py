"""Runs `python -m tests.fuzz.warps_random`; bench/README.md has its table."""

import runpy

if __name__ == "__main__":
    runpy.run_module("tests.fuzz.warps_random", run_name="__main__", alter_sys=True)
