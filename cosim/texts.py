"""Makes jobs from the assembly of warps, and runs many of them in one simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cosim.backends import simulator
from cosim.job import Job, Outcome
from cosim.settings import MemorySettings
from hw.assembly import assemble
from hw.config import MachineConfig


def job(config: MachineConfig, texts: Mapping[int, str], **fields: Any) -> Job:
    """A job with one assembly text per warp; `fields` are other fields of `Job`.

    By default, memory is the machine's own, and no window is open. Raises `InputError` with warp and line for
    an invalid text.
    """
    fields.setdefault("settings", MemorySettings.of(config))
    fields.setdefault("windows", ())
    return Job({warp: assemble(text, f"warp {warp}") for warp, text in texts.items()}, **fields)


def run_jobs(config: MachineConfig, jobs: Sequence[Job]) -> list[Outcome]:
    """Run jobs one after the other in one simulation of the machine, built if necessary."""
    return simulator(config, "cpp").run(jobs)
