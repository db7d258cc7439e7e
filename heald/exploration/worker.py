"""The evaluating side of an exploration: loads the models once per process, and runs one task per point.

A task's answer separates the point's own failures from those of its surroundings, so a full disk never turns
into a refused point.
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
from sw.plugins import load_plugin


class WorkerLostError(Exception):
    """The worker of a point is gone; others, and a replacement, go on."""


class ClusterLostError(Exception):
    """No workers are left to evaluate points."""


#: Packages and modules that affect the result of a point.
_OF_HEALD = ("exploration", "partition.py", "problems.py", "sources.py")
_DECISIVE = ("hw", "sw", "cosim", *(f"heald/{name}" for name in _OF_HEALD))
#: Their subpackages that only talk to machines or prove properties of them.
_ASIDE = ("bus", "device", "formal")


@dataclass(frozen=True)
class Answer:
    """The result of a task: an evaluation, or why there is none.

    `refused` is the compiler's reason, `failed` an error of Heald or of synthesis. `hindered` is a problem of
    the worker's surroundings, such as a full disk; the point stays open.
    """

    evaluation: Evaluation | None = None
    refused: str | None = None
    failed: str | None = None
    hindered: str | None = None


#: Workloads with their loaded models, by name; a cluster's process may serve several explorations.
_loaded: dict[str, tuple[Workload, tuple[LoadedModel, ...]]] = {}
#: The compiler switches the process's garbage collector, so points are evaluated one at a time.
_turn = threading.Lock()


@functools.cache
def compiler() -> str:
    """A fingerprint of all sources that affect the result of a point."""
    places = {name: name.split("/") for name in _DECISIVE}
    found = {name: resources.files(first).joinpath(*rest) for name, (first, *rest) in places.items()}
    return fingerprint(text for name, item in found.items() for text in sources(item, name, _ASIDE))


def load(name: str, workload: Workload) -> None:
    """Read the models of a workload, which tasks then refer to by name. Raises `InputError`."""
    for file in workload.plugins:
        load_plugin(file)
    _loaded[name] = workload, tuple(map(load_model, workload.models))


#: Bytes of a pool process's status line, and where it writes it.
LINE = 160
_said: Any = SimpleNamespace(value=b"")


def start(name: str, workload: Workload, said: Any) -> None:
    """Prepare a process of a pool: it ignores interrupts, and ends when its parent is gone.

    `said` is memory shared with the parent.
    """
    global _said
    _said = said
    processes.ignore_interrupts()
    processes.install((signal.SIGTERM, signal.SIGHUP), _idle)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    load(name, workload)


def _idle(number: int) -> None:
    """End the process now, unless a point is being evaluated: that cleans up, and the pool ends it."""
    if not _turn.locked():
        os._exit(128 + number)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        if not _turn.acquire(blocking=False):
            os.kill(os.getpid(), signal.SIGTERM)
            # The point cleans up; a lost signal is sent again.
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
            # Files that cannot be read or written have nothing to do with the machine
            # (`hw.cache.unwritable`).
            if _from_surroundings(error):
                return Answer(hindered=str(error))
            return Answer(refused=str(error))
        except (OSError, ToolError) as error:
            return Answer(hindered=str(error))
        except (CheckError, SynthesisError) as error:
            return Answer(failed=str(error))
        except Exception as error:
            # An internal error of Heald on one point must not end an exploration of thousands.
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
