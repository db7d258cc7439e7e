"""Proof of the array: operations are taken once and complete once, in order."""

from __future__ import annotations

import dataclasses
from functools import partial

from hw.config import MachineConfig
from hw.formal import engines
from hw.formal.bench import Bench
from hw.formal.proof import Proof
from hw.formal.storer import COMMON_FAULTS
from hw.rtl.gemm.engine import Gemm


def build(bench: Bench, config: MachineConfig) -> None:
    """Any operations; the data does not matter."""
    dut = bench.add(Gemm(config), "dut")
    engines.surroundings(bench, dut.control)
    engines.operations(bench, dut.control)


def proof(config: MachineConfig) -> Proof:
    """The proof for the array, with its faults."""
    faults = tuple(dataclasses.replace(fault, depth=18) for fault in COMMON_FAULTS)
    builds = partial(build, config=config)
    return Proof("gemm", "array: operations", engines.COMMON, builds, faults, bounded=24)
