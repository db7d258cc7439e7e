"""The side of an exploration that evaluates: what a process loads once, and one task for each point.

What a task gives tells apart what a point is to blame for and what it is not, so that a full disk never
becomes a refused point.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from dataclasses import dataclass
from importlib import resources
from multiprocessing import parent_process
from types import SimpleNamespace
from typing import Any

from heald.exploration.evaluate import (
    CheckError,
    Evaluation,
    LoadedModel,
    ToolError,
    Workload,
    evaluate,
    load_model,
)
from hw import processes
from hw.area.measure import SynthesisError
from hw.cache import fingerprint, sources
from hw.config import MachineConfig
from hw.errors import InputError
from sw.ir.syntax import paused_collector
from sw.kernels import mappings


class WorkerLostError(Exception):
    """The worker of a point is gone; others, and a new one in its place, go on."""


class ClusterLostError(Exception):
    """Nobody is left to evaluate points."""


#: Packages and modules that decide what a point comes to.
_OF_HEALD = ("exploration", "partition.py", "problems.py", "sources.py")
_DECISIVE = ("hw", "sw", "cosim", *(f"heald/{name}" for name in _OF_HEALD))
#: What lies in them and only talks to machines or proves things of them.
_ASIDE = ("bus", "device", "formal")


@dataclass(frozen=True)
class Answer:
    """What a task gives: an evaluation, or why there is none.

    `refused` is the compiler's reason, `failed` an error of Heald or of synthesis; `hindered` tells of the
    worker's surroundings, such as a full disk: the point is as open as before.
    """

    evaluation: Evaluation | None = None
    refused: str | None = None
    failed: str | None = None
    hindered: str | None = None


#: Workloads and their models as read, by name; a cluster's process may work for several explorations.
_loaded: dict[str, tuple[Workload, tuple[LoadedModel, ...]]] = {}
#: The compiler switches the garbage collector, which belongs to the process: one point at a time.
_turn = threading.Lock()


@functools.cache
def compiler() -> str:
    """A fingerprint of all sources that decide what a point comes to."""
    places = {name: name.split("/") for name in _DECISIVE}
    found = {name: resources.files(first).joinpath(*rest) for name, (first, *rest) in places.items()}
    return fingerprint(text for name, item in found.items() for text in sources(item, name, _ASIDE))


def load(name: str, workload: Workload) -> None:
    """Read the models of a workload, which tasks then call by its name. Raises `InputError`."""
    _loaded[name] = workload, tuple(map(load_model, workload.models))


#: Bytes of what a process of a pool says that it does, and where it says so.
LINE = 160
_said: Any = SimpleNamespace(value=b"")


def start(name: str, workload: Workload, said: Any) -> None:
    """Make a process of a pool ready: it leaves interrupts to its parent, and ends when that is gone.

    `said` is memory that it shares with its parent.
    """
    global _said
    _said = said
    processes.ignore_interrupts()
    processes.install((signal.SIGTERM, signal.SIGHUP), _idle)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    load(name, workload)


def _idle(number: int) -> None:
    """End the process at once, unless a point is evaluated: that tidies up, and its pool ends the process."""
    if not _turn.locked():
        os._exit(128 + number)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        if not _turn.acquire(blocking=False):
            os.kill(os.getpid(), signal.SIGTERM)
            # The point tidies up; a signal that was lost comes again.
            _turn.acquire(timeout=processes.AGAIN + processes.TIDYING)
        os._exit(1)


def run(name: str, config: MachineConfig) -> Answer:
    """Evaluate a point."""
    if name not in _loaded:
        return Answer(hindered="a worker does not have the models: it started without the cluster's plugin")
    workload, models = _loaded[name]
    with _turn, paused_collector(), mappings.heard(_say):
        try:
            _say("")
            return Answer(evaluate(models, config, workload))
        except InputError as error:
            # What could not be read or written is no matter of the machine (`hw.cache.unwritable`).
            if _from_surroundings(error):
                return Answer(hindered=str(error))
            return Answer(refused=str(error))
        except (OSError, ToolError) as error:
            return Answer(hindered=str(error))
        except (CheckError, SynthesisError) as error:
            return Answer(failed=str(error))
        except Exception as error:
            # One point in which Heald itself fails must not end an exploration of thousands.
            return Answer(failed=f"internal error: {type(error).__name__}: {error}")


def _say(text: str) -> None:
    _said.value = text.encode()[: LINE - 1]


def _from_surroundings(error: BaseException) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
