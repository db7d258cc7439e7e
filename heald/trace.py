"""Traces of runs for Perfetto: events of model and RTL of all programs in one document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cosim import trace as chrome
from heald.files import write_text
from heald.results import RunRecord


def write(run: RunRecord, file: Path) -> None:
    """Write the document; raises `InputError` for a file that cannot be written."""
    write_text(file, json.dumps(document(run)))


def document(run: RunRecord) -> dict[str, Any]:
    """The traces of all programs, each with processes of its own."""
    whole: dict[str, Any] = {"traceEvents": []}
    for number, result in enumerate(run.results):
        name = result.name
        outcomes = {f"{name} (model)": result.predicted, f"{name} (RTL)": result.observed}
        part = chrome.document(result.job, outcomes)
        for event in part["traceEvents"]:
            event["pid"] += len(outcomes) * number
        whole = part | {"traceEvents": whole["traceEvents"] + part["traceEvents"]}
    return whole
