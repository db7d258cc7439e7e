"""Pictures that other modules draw: mappings of the grid, a panel per step, and tilings."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hw.fabric.draw import document
from jacquard.report.html.data import Kernel, RunReport, Tiling
from jacquard.report.html.pack import text
from sw.cgra.draw import panel


def mappings(report: RunReport) -> list[dict[str, Any]]:
    """For every kernel what stands beside its drawing, and the drawings of its contexts, packed."""
    return [_mapping(kernel) for kernel in report.kernels]


def _mapping(kernel: Kernel) -> dict[str, Any]:
    mapping = kernel.mapping
    ii = mapping.ii
    contexts = [document(mapping.fabric, [panel(mapping, context)], per_row=1) for context in range(ii)]
    busy = len(mapping.graph.nodes) / (ii * mapping.fabric.size)
    limit = f"The least II is {kernel.bound.mii}" + (
        f": {kernel.bound.why}." if kernel.bound.mii > 1 else "."
    )
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
    """For every tiling its title, reason, operators, and its picture, packed."""
    return [
        {
            "title": tiling.title,
            "operators": tiling.operators,
            "reason": tiling.plan.reason,
            "picture": text(picture(tiling).encode()),
        }
        for tiling in report.tilings
    ]


def picture(tiling: Tiling) -> str:
    """The picture of a tiling as SVG."""
    # Matplotlib takes a while to import.
    from jacquard.report.tiling_plot import draw

    with tempfile.TemporaryDirectory(prefix="jacquard-") as name:
        file = Path(name) / "tiling.svg"
        draw(
            tiling.problem,
            tiling.plan,
            file,
            title=tiling.title,
            predicted=tiling.predicted,
            stays=tiling.stays,
        )
        return file.read_text(encoding="utf-8")
