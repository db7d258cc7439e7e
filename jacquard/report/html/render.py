"""The page: template, style and scripts of this folder filled with a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup

import jacquard
from hw.config import FIELDS, PORTS
from jacquard.files import write_text
from jacquard.report.html.data import RESOURCES, OperatorRow, RunReport
from jacquard.report.html.drawings import mappings, tilings
from jacquard.report.html.environment import POLICY, as_json, file, template
from jacquard.report.html.lost import LOSSES, Busy, busy, losses
from jacquard.report.html.memory import kinds, memory_map
from jacquard.report.html.roofline import points, roofline
from jacquard.report.html.timeline import timeline

_PACKAGE = "jacquard.report.html"
SCRIPTS = ("packed.js", "lanes.js", "painter.js", "timeline.js", "page.js")


def write(report: RunReport, path: Path) -> None:
    """Write the page, whole or not at all; raises `InputError` for a file that cannot be written."""
    write_text(path, render(report))


def render(report: RunReport) -> str:
    """The page as text."""
    line = timeline(report)
    description, columns = line.packed
    engines = busy(line.rtl, report.cycles)
    rows = [_row(i, o, engines, report) for i, o in enumerate(report.operators)]
    whole = OperatorRow("whole run", "", 0, report.cycles, macs=sum(o.macs for o in report.operators))
    drawings = {"mappings": mappings(report), "tilings": tilings(report)}
    return template(_PACKAGE).render(
        report=report,
        policy=POLICY,
        version=jacquard.__version__,
        style=file(_PACKAGE, "style.css"),
        scripts=[file(_PACKAGE, name) for name in SCRIPTS],
        failed=[check for check in report.checks if not check.ok],
        rows=rows,
        whole=losses(engines, whole, report.config.macs_per_cycle),
        losses=LOSSES,
        resources=RESOURCES,
        bound_names=[name for name in RESOURCES if any(name in o.bounds for o in report.operators)],
        roofline=Markup(roofline(report)),
        points=points(report),
        memory=Markup(memory_map(report)),
        kinds=kinds(report),
        timeline=description,
        columns=columns,
        events=sum(len(run.observed.events) for run in report.runs),
        differing=sum(1 for lane in line.description["lanes"] if lane["different"]),
        drawings=drawings,
        drawings_json=as_json(drawings),
        machine=_machine(report),
        ports=_ports(report),
    )


def _row(number: int, operator: OperatorRow, engines: Busy, report: RunReport) -> dict[str, Any]:
    """An operator with where its cycles went."""
    macs = report.config.macs_per_cycle
    return {
        "number": number + 1,
        "operator": operator,
        "losses": losses(engines, operator, macs),
        "array": operator.macs / (operator.cycles * macs) if operator.cycles else 0.0,
    }


def _machine(report: RunReport) -> list[tuple[str, str, str]]:
    """Name, value and meaning of the fields of the machine."""
    config = report.config
    found = []
    for name, field in FIELDS.items():
        value = getattr(config, name)
        if name == "cgra":
            told = "none" if value is None else f"{value.name}, {value.rows} × {value.cols}"
        else:
            told = f"{value:,}" if isinstance(value, int) else str(value)
        found.append((name, told, field.metadata.get("meaning", "")))
    return found


def _ports(report: RunReport) -> list[tuple[str, int, int, int]]:
    """Name, width, bandwidth and latency of the memories behind the ports."""
    ports = report.settings.ports
    return [(RESOURCES[p], ports[p].width, ports[p].bandwidth, ports[p].latency) for p in PORTS]
