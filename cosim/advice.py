"""Find what bounds a run, and what would help most: double each bottleneck and predict the cycles again.

Each change is compiled and predicted by the cycle model like any explored machine; no result is scaled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cosim.causes import CAUSES
from cosim.settings import MemorySettings, PortSettings
from hw.config import MachineConfig
from hw.errors import InputError

#: Causes whose name takes an article.
_ARTICLES = {"gemm": "the ", "cgra": "the ", "store": "the "}
#: Causes below this share of the cycles are not worth a change; at most this many causes are tried.
LEAST, MOST = 0.05, 3
#: A change helps if it saves more than this share of the cycles.
HELPS = 0.01
#: Fields of the buffers that a port refills again and again: a larger buffer keeps more of the data.
_BUFFERS = {"load_a": "buffer_a_bytes", "load_b": "buffer_b_bytes"}

Predictor = Callable[[MachineConfig, MemorySettings], int]


@dataclass(frozen=True)
class Change:
    """A changed machine or memory: `what` changes, in words, and the `cause` of cycles that it addresses.

    `cycles` is the prediction, or None if the machine cannot be built or compiled for; `why` then has the
    reason.
    """

    what: str
    cause: str
    cycles: int | None = None
    why: str = ""


@dataclass(frozen=True)
class Advice:
    """What bounds a run of `cycles` cycles, and the changes that were tried, fastest first."""

    cycles: int
    causes: Mapping[str, int]
    changes: tuple[Change, ...]

    @property
    def best(self) -> Change | None:
        """The change that saves the most cycles, or None if no change helps."""
        found = next(iter(self.changes), None)
        if found is None or found.cycles is None:
            return None
        return found if self.cycles - found.cycles > HELPS * self.cycles else None

    def saved(self, change: Change) -> float:
        """Fraction of the cycles that a change saves."""
        return 0.0 if change.cycles is None or not self.cycles else 1 - change.cycles / self.cycles

    @property
    def sentences(self) -> tuple[str, str]:
        """Two sentences: what bounds the run, and what would help most."""
        total = max(1, sum(self.causes.values()))
        names = greatest(self.causes)[:2] or ["warps"]
        shares = [f"in {_percent(self.causes.get(c, 0) / total)} {CAUSES[c][1]}" for c in names]
        name = _ARTICLES.get(names[0], "") + CAUSES[names[0]][0]
        bound = f"The bottleneck of these {self.cycles:,} cycles is {name}: {', '.join(shares)}."
        return bound, self._help(len(self.changes))

    def _help(self, count: int) -> str:
        """What would help most, as a sentence."""
        if (best := self.best) is not None:
            what = f"{best.what[0].upper()}{best.what[1:]} would help"
            if count > 1:
                what = f"Of {count} changes that were tried, {best.what} would help most"
            return (
                f"{what}: {best.cycles:,} cycles, {_percent(self.saved(best), 1)} fewer, by the cycle model."
            )
        if not count:
            return "No change was tried: no field of the machine doubles what these cycles go to."
        return f"None of {count} changes that were tried saves more than {_percent(HELPS)} of the cycles."

    def as_dict(self) -> dict[str, Any]:
        """The `advice` object in the JSON of a run."""
        changes = [{**vars(c), "saved": self.saved(c)} for c in self.changes]
        return {"text": " ".join(self.sentences), "model_cycles": self.cycles, "changes": changes}


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def greatest(causes: Mapping[str, int]) -> list[str]:
    """The causes that are worth a change, largest first."""
    total = sum(causes.values())
    worth = [c for c in causes if causes[c] and causes[c] >= LEAST * total]
    return sorted(worth, key=lambda c: -causes[c])[:MOST]


def advise(
    cycles: int,
    causes: Mapping[str, int],
    config: MachineConfig,
    memories: MemorySettings,
    predict: Predictor,
    progress: Callable[[str], None] = lambda text: None,
) -> Advice:
    """Try changes against the largest causes of cycles; `predict` returns the cycles on a changed machine.

    A change for which `predict` raises `InputError` is listed without cycles.
    """
    made = []
    for cause in greatest(causes):
        for what, change in changes(cause, config, memories):
            progress(f"advice: the cycle model predicts {what}")
            try:
                made.append(Change(what, cause, predict(*change())))
            except InputError as error:
                made.append(Change(what, cause, why=str(error)))
    order = sorted(made, key=lambda c: (c.cycles is None, c.cycles or 0))
    return Advice(cycles, causes, tuple(order))


Made = Callable[[], tuple[MachineConfig, MemorySettings]]


def changes(cause: str, config: MachineConfig, memories: MemorySettings) -> Iterator[tuple[str, Made]]:
    """Yield changes that double the resource behind a cause: a description, and a function to apply it."""
    c = config

    def field(name: str) -> Made:
        return lambda: _with(config.replace(**{name: 2 * getattr(config, name)}), memories)

    match cause:
        case "gemm":
            yield f"an array of {2 * c.rows} x {c.cols} instead of {c.rows} x {c.cols}", field("rows")
            yield f"an array of {c.rows} x {2 * c.cols} instead of {c.rows} x {c.cols}", field("cols")
        case "drain":
            yield (
                f"an accumulator of {2 * c.acc_bytes:,} bytes instead of {c.acc_bytes:,}",
                field("acc_bytes"),
            )
        case "cgra":
            yield from _lanes(config, memories)
        case "warps":
            yield f"queues of {2 * c.queue_depth} operations instead of {c.queue_depth}", field("queue_depth")
        case "load_a" | "load_b" | "load_c" | "store":
            yield from _port(cause, config, memories)
            if (name := _BUFFERS.get(cause)) is not None:
                size = getattr(config, name)
                yield (
                    f"{2 * size:,} bytes of input buffer {cause[-1].upper()} instead of {size:,}",
                    field(name),
                )


def _lanes(config: MachineConfig, memories: MemorySettings) -> Iterator[tuple[str, Made]]:
    """The CGRA with twice the lanes. Links and PEs stay the same, so loops are mapped quickly."""
    fabric = config.cgra
    if fabric is None:
        return
    lanes = fabric.lanes

    def made() -> tuple[MachineConfig, MemorySettings]:
        kinds = tuple(replace(k, lanes=2 * lanes) if k.lanes == lanes else k for k in fabric.kinds)
        return _with(config.replace(cgra=replace(fabric, name=f"{fabric.name}-lanes", kinds=kinds)), memories)

    yield f"a CGRA of {2 * lanes} lanes instead of {lanes}", made


def _port(port: str, config: MachineConfig, memories: MemorySettings) -> Iterator[tuple[str, Made]]:
    """Twice the bytes per cycle on a port (a wider port if needed), and half its latency."""
    name, now = CAUSES[port][0], memories.ports[port]
    wider = config.port_bytes(port) * (1 + (2 * now.bandwidth > now.width))

    def bytes_() -> tuple[MachineConfig, MemorySettings]:
        made = config.replace(**{f"{port}_bytes": wider})
        return _with(made, memories, port, PortSettings(wider, now.latency, 2 * now.bandwidth))

    def latency() -> tuple[MachineConfig, MemorySettings]:
        return _with(config, memories, port, replace(now, latency=now.latency // 2))

    yield f"{2 * now.bandwidth} bytes per cycle for {name} instead of {now.bandwidth}", bytes_
    if now.latency > 1:
        yield f"a latency of {now.latency // 2} cycles for {name} instead of {now.latency}", latency


def _with(
    config: MachineConfig, memories: MemorySettings, *other: Any
) -> tuple[MachineConfig, MemorySettings]:
    """A machine with these memories, optionally with one port's settings replaced."""
    ports = memories.ports | (dict([other]) if other else {})
    made = replace(memories, ports=ports)
    return made.behind(config), made
