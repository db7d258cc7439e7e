"""The measurement `python -m tests.fuzz.random_products`, which bench/README.md has the table of."""

import runpy

if __name__ == "__main__":
    runpy.run_module("tests.fuzz.random_products", run_name="__main__", alter_sys=True)
