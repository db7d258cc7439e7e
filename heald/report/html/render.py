"""The page of a run: template, style and scripts of this folder, filled with a report."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from markupsafe import Markup

import heald
from cosim.causes import CAUSES
from cosim.session.results import RESOURCES
from cosim.session.usage import MEMORIES, capacity
from heald.files import write_text
from heald.report.html.data import Kernel, RunReport
from heald.report.html.environment import POLICY, as_json, file, template, text
from heald.report.html.memory import kinds, memory_map
from heald.report.html.roofline import points, roofline
from heald.report.html.timeline import timeline
from heald.report.tiling_plot import picture
from hw.config import FIELDS, PORTS
from hw.fabric.draw import document
from sw.cgra.draw import panel

_PACKAGE = "heald.report.html"
SCRIPTS = ("packed.js", "lanes.js", "painter.js", "export.js", "timeline.js", "page.js")
#: Display names of energy components (`cosim.energy.energy`).
ENERGY = {
    "memory": "off-chip memory",
    **{"buffer_a": "input buffer A", "buffer_b": "input buffer B", "accumulator": "accumulator"},
    **{"scratchpad": "scratchpad", "output_buffer": "output buffer", "array": "array", "grid": "CGRA"},
    "control": "instructions and clock",
}


def write(report: RunReport, path: Path) -> None:
    """Write the page atomically; raises `InputError` if the file cannot be written."""
    write_text(path, render(report))


def render(report: RunReport) -> str:
    """The page as text."""
    line = timeline(report)
    description, columns = line.packed
    whole: Counter[str] = Counter()
    for operator in report.operators:
        whole.update(operator.causes)
    drawings = {"mappings": mappings(report), "tilings": tilings(report)}
    return template(_PACKAGE).render(
        report=report,
        policy=POLICY,
        version=heald.__version__,
        style=file(_PACKAGE, "style.css"),
        scripts=[file(_PACKAGE, name) for name in SCRIPTS],
        failed=[check for check in report.checks if not check.ok],
        whole=whole,
        causes=CAUSES,
        resources=RESOURCES,
        bound_names=[name for name in RESOURCES if any(name in o.bounds for o in report.operators)],
        roofline=Markup(roofline(report)),
        points=points(report),
        memory=Markup(memory_map(report)),
        kinds=kinds(report),
        held=_held(report),
        chip=_chip(report),
        energy=[(name, ENERGY[name], value) for name, value in report.energy.items()],
        timeline=description,
        columns=columns,
        events=sum(len(run.observed.events) for run in report.runs),
        differing=sum(1 for lane in line.description["lanes"] if lane["different"]),
        drawings=drawings,
        drawings_json=as_json(drawings),
        machine=_machine(report),
        ports=_ports(report),
    )


def _held(report: RunReport) -> Counter[str]:
    """Bytes of tensors by kind."""
    found: Counter[str] = Counter()
    for tensor in report.tensors:
        found[tensor.kind] += tensor.size
    return found


def _chip(report: RunReport) -> list[dict[str, Any]]:
    """On-chip memories: size, bytes used, and the operator that uses most."""
    found = []
    for key, size in capacity(report.config).items():
        most = max(report.operators, key=lambda o: o.fill.get(key, 0), default=None)
        by = most.name if most is not None and most.fill.get(key) else ""
        used = report.fill.get(key, 0)
        found.append({"key": key, "name": MEMORIES[key], "size": size, "used": used, "operator": by})
    return found


def _machine(report: RunReport) -> list[tuple[str, str, str]]:
    """Name, value and meaning of the machine's fields."""
    config = report.config
    found = []
    for name, field in FIELDS.items():
        value = getattr(config, name)
        if name == "cgra":
            told = "none" if value is None else f"{value.name}, {value.rows} × {value.cols}"
        else:
            told = f"{value:,}" if type(value) is int else str(value)
        found.append((name, told, field.metadata.get("meaning", "")))
    return found


def _ports(report: RunReport) -> list[tuple[str, int, int, int]]:
    """Name, width, bandwidth and latency of each memory port."""
    ports = report.settings.ports
    return [(RESOURCES[p], ports[p].width, ports[p].bandwidth, ports[p].latency) for p in PORTS]


def mappings(report: RunReport) -> list[dict[str, Any]]:
    """For every kernel, the text beside its drawing, and the packed drawings of its contexts."""
    return [_mapping(kernel) for kernel in report.kernels]


def _mapping(kernel: Kernel) -> dict[str, Any]:
    mapping = kernel.mapping
    ii = mapping.ii
    contexts = [document(mapping.fabric, [panel(mapping, context)], per_row=1) for context in range(ii)]
    busy = len(mapping.graph.nodes) / (ii * mapping.fabric.size)
    limit = f"The MII is {kernel.bound.mii}" + (f": {kernel.bound.why}." if kernel.bound.mii > 1 else ".")
    if ii == kernel.bound.mii or kernel.proved_minimal:
        reached = "No smaller II is possible."
    else:
        reached = "The search found no mapping with a smaller II; none is ruled out."
    return {
        "name": kernel.name,
        "ii": ii,
        "mii": kernel.bound.mii,
        "why": f"{limit} {reached}",
        "depth": mapping.depth,
        "operations": len(mapping.graph.nodes),
        "busy": busy,
        "verified": kernel.verified,
        "used_by": kernel.used_by,
        "fabric": f"{mapping.fabric.name}, {mapping.fabric.rows} × {mapping.fabric.cols}",
        "drawings": text("\0".join(contexts).encode()),
    }


def tilings(report: RunReport) -> list[dict[str, Any]]:
    """For every tiling, its title, reason and operators, and its packed picture."""
    return [
        {
            "title": t.title,
            "operators": t.operators,
            "reason": t.plan.reason,
            "picture": text(
                picture(t.problem, t.plan, title=t.title, predicted=t.predicted, stays=t.stays).encode()
            ),
        }
        for t in report.tilings
    ]
