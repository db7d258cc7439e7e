"""Runs the node cases of the official ONNX backend test suite on the RTL, where the machine supports them.

    python -m bench.onnx_backend [--hw PRESET] [--sim cpp|verilator|amaranth] [--match TEXT] [--reasons]

Integers must equal the suite's, real numbers must be within the suite's tolerance, and every check of a run
must pass. Cases that `heald.backend` refuses count as unsupported; their reasons are counted by kind.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.official_onnx import cases
from cosim.backends import BACKENDS, simulator
from cosim.settings import MemorySettings
from heald.backend import compiled, named, outputs
from heald.model_run import run_model
from heald.session import GraphModel
from hw.config import MachineConfig, load
from hw.errors import InputError

#: Kinds of reasons for unsupported cases, by texts in their messages; the first match counts.
KINDS = {
    "operator on sequences, optionals or texts": r"must be tensors|must be a tensor|must hold numbers",
    "operator that is not supported": r"the operator is not supported|operators of domain",
    "real numbers that are not quantised": r"not quantised|Linear of|(in|not) float32|real numbers",
    "operand that is not a constant": r"must be (a constant|constants)",
    "element type that is not supported": r"float|u?int(8|16|32|64)\b|bool|element type",
    "shape that is not fixed, or empty": r"must have (a fixed|fixed|elements)",
    "nothing left to execute": r"the machine executes nothing",
    "attribute or form that is not supported": r"",
}


def kinds_of(reasons: Iterable[str]) -> dict[str, int]:
    """Number of reasons of each kind."""
    found = dict.fromkeys(KINDS, 0)
    for why in reasons:
        # Names of inputs do not matter.
        text = re.sub(r"'[^']*'", "", why)
        found[next(kind for kind, pattern in KINDS.items() if re.search(pattern, text))] += 1
    return found


@dataclass(frozen=True)
class Ready:
    """A compiled data set of a case: its inputs and expected outputs."""

    name: str
    case: Any
    model: GraphModel
    inputs: dict[str, np.ndarray]
    wanted: Sequence[Any]


def prepared(case: Any, config: MachineConfig) -> list[Ready]:
    """The data sets of a case, compiled; raises `InputError` if they are not supported."""
    found = []
    for number, (inputs, wanted) in enumerate(case.data_sets):
        if not all(isinstance(x, np.ndarray | np.generic) for x in (*inputs, *wanted)):
            raise InputError("inputs and outputs must be tensors")
        arrays = named(case.model, list(inputs))
        model = compiled(case.model, arrays, config)
        found.append(Ready(f"{case.name} data set {number}", case, model, model.given(arrays), wanted))
    return found


def difference(ready: Ready, found: Sequence[np.ndarray]) -> str | None:
    """How outputs differ from the suite's."""
    for got, wanted in zip(found, ready.wanted, strict=True):
        want = np.asarray(wanted)
        if got.dtype != want.dtype or got.shape != want.shape:
            return f"{got.dtype} {list(got.shape)} instead of {want.dtype} {list(want.shape)}"
        exact = want.dtype.kind in "iub"
        near = {} if exact else {"rtol": ready.case.rtol, "atol": ready.case.atol, "equal_nan": True}
        if not (np.array_equal(got, want) if exact else np.allclose(got, want, **near)):
            return f"{int(np.sum(got != want))} of {want.size} values differ"
    return None


def select(config: MachineConfig, match: str = "") -> tuple[list[Ready], dict[str, str]]:
    """Cases that compile, and the reasons of the others by name."""
    ready: list[Ready] = []
    refused: dict[str, str] = {}
    for case in cases(None):
        if match not in case.name:
            continue
        try:
            ready += prepared(case, config)
        except InputError as error:
            refused[case.name] = str(error)
    return ready, refused


def failures(ready: Sequence[Ready], config: MachineConfig, sim: str) -> dict[str, str]:
    """Failures, by name."""
    settings, machine = MemorySettings.of(config), simulator(config, sim)
    found = {}
    for r in ready:
        try:
            report = run_model(r.model.compiled, r.inputs, settings, lambda: machine, sim=sim)
            wrong = difference(r, outputs(r.case.model, report))
        except RuntimeError as error:
            wrong = str(error)
        if wrong is not None:
            found[r.name] = wrong
    return found


def main() -> int:
    """Command line; returns 1 if a case fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hw", default="test")
    parser.add_argument("--sim", default="cpp", choices=BACKENDS)
    parser.add_argument("--match", default="", help="only cases whose name holds this")
    parser.add_argument("--reasons", action="store_true", help="count the messages too")
    given = parser.parse_args()
    config = load(given.hw)
    with warnings.catch_warnings():
        # The suite's cases and its reference overflow and divide by zero on purpose.
        warnings.simplefilter("ignore")
        ready, refused = select(config, given.match)
        failed = failures(ready, config, given.sim) if ready else {}
    for r in ready:
        print(f"{r.name}: {'FAILS: ' + failed[r.name] if r.name in failed else 'passes'}")
    for kind, count in kinds_of(refused.values()).items():
        print(f"unsupported: {count:5}  {kind}")
    if given.reasons:
        kinds = collections.Counter(
            re.sub(r"node \S+ |'[^']*'|\d+", "", why)[:90] for why in refused.values()
        )
        for why, count in kinds.most_common():
            print(f"{count:5}  {why}")
    print(f"passed {len(ready) - len(failed)}, unsupported {len(refused)}, failed {len(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
