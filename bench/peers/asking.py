"""Asks a tool about a layer: in a separate process, with a time limit, caching the answer."""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.peers.layers import Layer
from bench.peers.tools import Tool
from hw import cache, processes
from hw.config import MachineConfig

#: Characters of a message that are shown.
MESSAGE = 160
#: Start of failures that may be the computer's fault, and are not cached.
UNKEPT = "no answer"


@dataclass(frozen=True)
class Answer:
    """Cycles that a tool predicts and the seconds that it took, or why there are none."""

    cycles: float | None
    seconds: float
    failed: str | None = None


def kept(tool: Tool, config: MachineConfig, layer: Layer) -> Path:
    """Cache file of an answer; its name depends on everything that the answer depends on."""
    files = tool.describe(config, layer)
    parts = [tool.requirements.read_text("utf-8"), tool.worker.read_text("utf-8")]
    parts += [text for item in sorted(files.items()) for text in item]
    # The number of groups may not be in the files.
    parts.append(str(layer.sizes[0]))
    return cache.directory() / "peers" / "answers" / f"{tool.name}-{cache.fingerprint(parts)}.json"


def stored(path: Path) -> Answer | None:
    """A cached answer, or None."""
    try:
        return Answer(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def ask(tool: Tool, python: Path, config: MachineConfig, layer: Layer, timeout: float) -> Answer:
    """Ask, and cache the answer; after a timeout, the question is asked again next time."""
    # Layers of different shapes may be the same product to a tool.
    if (known := stored(kept(tool, config, layer))) is not None:
        return known
    with tempfile.TemporaryDirectory(prefix=f"{tool.name}-") as folder:
        for name, text in tool.describe(config, layer).items():
            (Path(folder) / name).write_text(text, "utf-8")
        begin = time.monotonic()
        failed = _run([str(python), "-P", "-W", "ignore", str(tool.worker)], folder, timeout)
        seconds = time.monotonic() - begin
        answer = Path(folder) / tool.answer
        if failed is None:
            try:
                cycles = tool.cycles(answer.read_text("utf-8"), layer)
                found = Answer(cycles, seconds)
            except (OSError, ValueError, KeyError, IndexError) as error:
                found = Answer(None, seconds, f"no cycles in {tool.answer}: {error!r:.{MESSAGE}}")
        else:
            found = Answer(None, seconds, failed)
    if found.failed is None or not found.failed.startswith(UNKEPT):
        cache.write(kept(tool, config, layer), json.dumps(asdict(found)))
    return found


def _run(command: list[str], folder: str, timeout: float) -> str | None:
    """Run a command to its end; returns None or a one-line reason for failure. No process is left behind."""
    log = Path(folder) / "log"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"MPLBACKEND": "Agg"}
    options = {"cwd": folder, "env": environment}
    with log.open("w") as out, processes.started(command, stdout=out, stderr=out, **options) as process:
        if not processes.ended(process, timeout):
            return f"{UNKEPT} in {timeout:g} s"
    code = process.returncode
    if code == 0:
        return None
    if code < 0:
        return f"{UNKEPT}: ended by signal {-code}"
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return (lines or [f"exit code {code}"])[-1][:MESSAGE]
