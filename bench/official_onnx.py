"""Runs the integer product and convolution cases of the official ONNX backend test suite on the RTL.

    python -m bench.official_onnx [--hw PRESET] [--sim verilator|cpp|amaranth]

Results are compared with those that the suite gives, beside the checks of every run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from heald.cli import call

OPERATORS = ("MatMulInteger", "ConvInteger")


def cases(operator: str | None) -> list[Any]:
    """The suite's node cases (`onnx.backend.test.case.test_case.TestCase`) with this operator, or all."""
    with warnings.catch_warnings():
        # The suite's cases overflow and divide by zero on purpose.
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        # Collect all at once: the package makes its cases on the first call, and only then filters by
        # operator.
        found = collect_testcases(None)
    if operator is None:
        return list(found)
    return [c for c in found if any(node.op_type == operator for node in c.model.graph.node)]


def run_case(case: Any, hw: str, sim: str) -> int:
    """Run all data sets of a case; returns the number that fail."""
    failed = 0
    for number, (inputs, wanted) in enumerate(case.data_sets):
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            (root / "model.onnx").write_bytes(case.model.SerializeToString())
            names = [value.name for value in case.model.graph.input]
            np.savez(root / "inputs.npz", **dict(zip(names, inputs, strict=True)))
            code = call(
                [
                    *("run", str(root / "model.onnx"), "--hw", hw, "--sim", sim),
                    *("--inputs", str(root / "inputs.npz"), "--outputs", str(root / "outputs.npz")),
                ]
            )
            good = code == 0
            if good:
                with np.load(root / "outputs.npz") as got:
                    names = [value.name for value in case.model.graph.output]
                    good = all(
                        got[n].dtype == w.dtype and np.array_equal(got[n], w)
                        for n, w in zip(names, wanted, strict=True)
                    )
            print(f"{case.name} data set {number}: {'passes' if good else 'FAILS'}")
            failed += not good
    return failed


def main() -> int:
    """Command line; returns 1 if a case fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hw", default="test")
    parser.add_argument("--sim", default="verilator")
    given = parser.parse_args()
    found = []
    for operator in OPERATORS:
        some = cases(operator)
        if not some:
            print(f"the suite holds no case of {operator}")
            return 1
        found += some
    return int(sum(run_case(case, given.hw, given.sim) for case in found) > 0)


if __name__ == "__main__":
    sys.exit(main())
