"""Runs `python -m tests.fuzz.random_products`; bench/README.md has its table."""

import runpy

if __name__ == "__main__":
    runpy.run_module("tests.fuzz.random_products", run_name="__main__", alter_sys=True)
