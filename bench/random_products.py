"""The same as `python -m tests.fuzz.random_products`: what reports and older notes call `python -m bench.random_products`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("tests.fuzz.random_products", run_name="__main__", alter_sys=True)
