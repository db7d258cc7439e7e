"""The page of whatever `jacquard run` ran."""

from __future__ import annotations

from pathlib import Path

from cosim.settings import MemorySettings
from jacquard.network_results import NetworkReport
from jacquard.report.html.from_network import network_report
from jacquard.report.html.from_results import run_report
from jacquard.report.html.render import write
from jacquard.results import Report


def write_report(report: Report, title: str, settings: MemorySettings, file: Path) -> None:
    """Write the page of a run on memories of such settings; raises `InputError` for a file that cannot be."""
    if isinstance(report, NetworkReport):
        write(network_report(report, title, settings), file)
    else:
        write(run_report(report, title, settings), file)
