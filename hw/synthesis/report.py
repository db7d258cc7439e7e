"""The report of a build, as a JSON object and as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from hw.package.text import filled
from hw.synthesis import Placement, Resources
from hw.synthesis.flow import Build
from hw.synthesis.resources import NAMES, grouped

#: The name for cells and instances of the top itself.
TOP = "(top)"


def as_json(build: Build, files: Sequence[str]) -> dict[str, Any]:
    """The JSON object: figures first, then what they were measured on.

    LUTs, registers, block RAMs and multipliers are those after synthesis; `utilisation` counts after packing.
    """
    synthesis, placement = build.synthesis, build.placement
    found: dict[str, Any] = {"fmax_mhz": build.fmax_mhz} | _figures(synthesis.resources)
    found |= {
        "files": list(files),
        "machine": build.config.name,
        "hash": build.config.hash,
        "top": build.design.module,
        "family": build.target.family,
        "device": None,
        "frequency_mhz": build.target.frequency,
        "components": [
            {"component": name or TOP} | _figures(resources)
            for name, resources in grouped(synthesis.components).items()
        ],
        "instances": {
            name or TOP: _figures(resources) for name, resources in sorted(synthesis.components.items())
        },
        "cells": dict(synthesis.cells),
        "seconds": {"synthesis": synthesis.seconds},
        "tools": [synthesis.tool],
    }
    if placement is not None:
        found |= {
            "device": placement.device,
            "package": placement.package,
            "speed": placement.speed,
            "board": build.design.board,
            "seed": placement.seed,
            "seeds": [{"seed": seed, "fmax_mhz": fmax} for seed, fmax in build.tried.items()],
            "reached": placement.reached,
            "clocks": {
                clock_name(name): {"reached_mhz": reached, "required_mhz": required}
                for name, (reached, required) in placement.clocks.items()
            },
            "utilisation": {
                field: {"used": used, "available": getattr(placement.available, field)}
                for field, used in _figures(placement.used).items()
            },
            "critical_path": path(placement),
            "seconds": {"synthesis": synthesis.seconds, "placement": placement.seconds},
            "tools": [synthesis.tool, placement.tool],
        }
    return found


def _figures(resources: Resources) -> dict[str, int]:
    return {field: getattr(resources, field) for field in NAMES}


def path(placement: Placement) -> dict[str, Any] | None:
    """The critical path: its delay in nanoseconds, the components it crosses, its hops."""
    hops = placement.critical_path
    if not hops:
        return None
    return {
        "delay_ns": round(sum(hop.delay for hop in hops), 3),
        "logic_ns": round(sum(hop.delay for hop in hops if hop.kind != "routing"), 3),
        "routing_ns": round(sum(hop.delay for hop in hops if hop.kind == "routing"), 3),
        "from": signal(hops[0].source),
        "to": signal(hops[-1].sink),
        "components": [name or TOP for name, _ in groupby(hop.component for hop in hops)],
        "hops": [asdict(hop) for hop in hops],
    }


#: Suffixes with which Yosys and nextpnr name a cell after a signal.
_SUFFIX = re.compile(
    r"_(?:TRELLIS_|LUT4|PFUMX|L6MUX21|CCU2C|MULT18X18D|DP16KD|PDPW16KD)|\$(?:CCU2|nextpnr|PACKER)_"
)


def signal(name: str) -> str:
    """The signal after which a cell or net is named: `issue.count` for `issue.count_TRELLIS_FF_Q_3.Q`."""
    return _SUFFIX.split(name, maxsplit=1)[0].removeprefix("\\") or name


def clock_name(net: str) -> str:
    """The name of a clock without nextpnr's additions for global nets."""
    return re.sub(r"^\$glbnet\$|\$TRELLIS_IO_IN$", "", net)


def report(build: Build) -> str:
    """The report in Markdown: clock, critical path, resources by component, utilisation."""
    figures, placement = as_json(build, []), build.placement
    rows = [*figures["components"], figures | {"component": "all"}]
    found, steps = None, []
    if placement is not None and (found := path(placement)) is not None:
        at = 0.0
        # Carries between neighbours take no time on a net, so the hops along a carry chain become one line.
        timed = (hop for hop in placement.critical_path if hop.delay)
        for kind, hops in groupby(timed, lambda h: (h.kind, h.component or TOP, signal(h.net or h.sink))):
            delay = sum(hop.delay for hop in hops)
            at += delay
            steps.append((at, delay, *kind))
    return filled(
        "fpga.md", build=build, placement=placement, figures=figures, rows=rows, path=found, steps=steps
    )
