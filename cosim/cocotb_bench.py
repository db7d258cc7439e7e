"""The cocotb test: starts each job in the harness, waits for its end, and checks how it ended."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

from cosim import verdict
from hw import csr


@cocotb.test()  # type: ignore[untyped-decorator]  # cocotb has no types
async def run_jobs(dut: Any) -> None:
    """Every job must end with the machine done and no contract of its ports broken."""
    with (Path(os.environ["HEALD_DIRECTORY"]) / verdict.FILE).open("w") as verdicts:
        for job in range(int(os.environ["HEALD_JOBS"])):
            begin = time.perf_counter()
            dut.job.value = job
            dut.start.value = 1
            await RisingEdge(dut.done)
            seconds = time.perf_counter() - begin
            fault, status = int(dut.fault.value), int(dut.status.value)
            verdicts.write(f"{job} {fault} {status} {seconds:.6f}\n")
            verdicts.flush()
            if fault:
                raise AssertionError(f"job {job}: {verdict.fault_text(fault)}")
            if not status >> csr.DONE & 1 or status >> csr.RUNNING & 1:
                raise AssertionError(f"job {job}: STATUS must say done and not running, not {status:#x}")
            dut.start.value = 0
            await FallingEdge(dut.done)
