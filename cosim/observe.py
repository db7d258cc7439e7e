"""Turns what a harness wrote into an `Outcome`: events, error, counters, outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cosim.host import RESULTS, counter_names, region_words
from cosim.job import Event, EventKind, Job, MachineError, Outcome, Output
from hw import csr
from hw.assembly import decode
from hw.config import MachineConfig
from hw.isa import Cause

#: A run in which nothing moves is abandoned after twice the watchdog's cycles plus this many.
QUIET_CYCLES = 1 << 22


@dataclass(frozen=True)
class Records:
    """Cycles in which something happened: masks with one bit per warp, and the pcs of all warps.

    `cycle`, `issue`, `void`, `complete`, `signal` have shape (n,), `pc` has (n, warps).
    """

    cycle: np.ndarray
    issue: np.ndarray
    void: np.ndarray
    complete: np.ndarray
    signal: np.ndarray
    pc: np.ndarray


def quiet_limit(job: Job) -> int:
    """Cycles without any movement after which a run is abandoned; 0 (never) for a job without a watchdog."""
    return min(2 * job.watchdog + QUIET_CYCLES, (1 << 32) - 1) if job.watchdog else 0


def parse_records(data: bytes, warps: int) -> Records:
    """Parse records as the harness writes them (cosim/harness/recorder.sv)."""
    words = np.frombuffer(data, "<u4").reshape(-1, 4 + (warps + 1) // 2)
    pcs = np.ascontiguousarray(words[:, 4:]).view("<u2").reshape(len(words), 2 * ((warps + 1) // 2))
    return Records(
        cycle=words[:, 0].astype(np.int64) | words[:, 1].astype(np.int64) << 32,
        issue=words[:, 2] & 0xFFFF,
        void=words[:, 2] >> 16,
        complete=words[:, 3] & 0xFFFF,
        signal=words[:, 3] >> 16,
        pc=pcs[:, :warps].astype(np.int64),
    )


def parse_stored(data: bytes, config: MachineConfig) -> list[Output]:
    """Parse the CGRA's stores as the harness writes them (cosim/harness/recorder.sv)."""
    words = np.frombuffer(data, "<u4").reshape(-1, 4).astype(np.int64)
    cycles = words[:, 0] | (words[:, 1] & 0xFFFF) << 32
    pes = np.array(config.store_pes, np.int64)[words[:, 1] >> 16]
    columns = (cycles, pes, words[:, 2], words[:, 3])
    return list(map(Output._make, zip(*(column.tolist() for column in columns), strict=True)))


def events(programs: Mapping[int, Sequence[int]], records: Records) -> list[Event]:
    """All events by cycle, warp and kind.

    The machine traces only the pcs of issues. Completions and fires come in issue order within a warp, so the
    n-th belongs to the n-th engine operation or signal with a true predicate. One without a match gets pc -1.
    """
    parts = []
    for warp in range(records.pc.shape[1]):
        parts += _events_of(warp, programs.get(warp, ()), records)
    table = np.concatenate(parts) if parts else np.zeros((0, 4), np.int64)
    order = np.lexsort((table[:, 2], table[:, 1], table[:, 0]))
    kinds = list(EventKind)
    return [Event(cycle, warp, kinds[kind], pc) for cycle, warp, kind, pc in table[order].tolist()]


def _events_of(warp: int, words: Sequence[int], records: Records) -> list[np.ndarray]:
    codes = [decode(word) for word in words]
    engine = np.array([c is not None and c.spec.engine is not None for c in codes] + [False])
    signal = np.array([c is not None and c.name == "signal" for c in codes] + [False])
    issued = (records.issue >> warp & 1).astype(bool)
    pcs = records.pc[issued, warp]
    known = np.minimum(pcs, len(codes))
    real = (records.void[issued] >> warp & 1) == 0
    cycles = records.cycle[issued]
    out = [
        _rows(cycles[real], warp, EventKind.ISSUE, pcs[real]),
        _rows(cycles[~real], warp, EventKind.VOID, pcs[~real]),
    ]
    for kind, mask, owns in (
        (EventKind.COMPLETE, records.complete, engine),
        (EventKind.SIGNAL, records.signal, signal),
    ):
        cycles = records.cycle[(mask >> warp & 1).astype(bool)]
        owners = pcs[real & owns[known]][: len(cycles)]
        missing = np.full(len(cycles) - len(owners), -1, np.int64)
        out.append(_rows(cycles, warp, kind, np.concatenate([owners, missing])))
    return out


def _rows(cycles: np.ndarray, warp: int, kind: EventKind, pcs: np.ndarray) -> np.ndarray:
    return np.stack([cycles, np.full_like(cycles, warp), np.full_like(cycles, kind), pcs], axis=1)


def outcome(
    config: MachineConfig,
    job: Job,
    records: Records,
    results: Sequence[int],
    dump: np.ndarray,
    seconds: float,
    stored: Sequence[Output] = (),
) -> Outcome:
    """Assemble the outcome of a run.

    `results` are the registers read by the host script, `dump` the words of all output regions (uint32),
    `stored` the CGRA's stores. Raises `RuntimeError` if the machine reports an unknown error code.
    """
    names = counter_names(config)
    if len(results) != len(RESULTS) + len(names):
        raise RuntimeError(
            f"{job.name}: {len(RESULTS) + len(names)} registers must be read, not {len(results)}"
        )
    status, error, low, high = results[: len(RESULTS)]
    outputs = []
    data = dump.astype("<u4").view(np.uint8)
    at = 0
    for region in job.outputs:
        first, count = region_words(region)
        skip = at + region.address - 4 * first
        outputs.append(data[skip : skip + region.size].copy())
        at += 4 * count
    return Outcome(
        events=events(job.programs, records),
        cycles=low | high << 32,
        error=_error(job, error) if status >> csr.ERROR & 1 else None,
        counters=dict(zip(names, results[len(RESULTS) :], strict=True)),
        outputs=outputs,
        stored=list(stored),
        seconds=seconds,
    )


def _error(job: Job, word: int) -> MachineError:
    try:
        cause = Cause(word & 0xFF)
    except ValueError:
        raise RuntimeError(f"{job.name}: ERROR must hold a known cause, not {word:#010x}") from None
    return MachineError(cause, word >> 8 & 0xFF, word >> 16)
