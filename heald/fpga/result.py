"""What a build says: the JSON object and the text report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from heald.fpga.flow import NAMES, Build
from hw.synthesis import Hop, Placement, Resources
from hw.synthesis.resources import grouped

#: What cells and instances of the top itself are called.
TOP = "(top)"


def as_json(build: Build, files: Sequence[str]) -> dict[str, Any]:
    """The JSON object: figures first, then where they come from.

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
                field: {
                    "used": getattr(placement.used, field),
                    "available": getattr(placement.available, field),
                }
                for field in NAMES
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


#: What Yosys and nextpnr put behind the name of a signal when they name a cell after it.
_SUFFIX = re.compile(
    r"_(?:TRELLIS_|LUT4|PFUMX|L6MUX21|CCU2C|MULT18X18D|DP16KD|PDPW16KD)|\$(?:CCU2|nextpnr|PACKER)_"
)


def signal(name: str) -> str:
    """The signal after which a cell or net is named: `issue.count` of `issue.count_TRELLIS_FF_Q_3.Q`."""
    return _SUFFIX.split(name, maxsplit=1)[0].removeprefix("\\") or name


def clock_name(net: str) -> str:
    """The name of a clock without what nextpnr adds when it puts it on a global net."""
    return re.sub(r"^\$glbnet\$|\$TRELLIS_IO_IN$", "", net)


def report(build: Build) -> str:
    """The report in Markdown: clock, critical path, resources by component, utilisation."""
    c, design, target = build.config, build.design, build.target
    lines = [f"# Machine {c.name} ({c.hash}), top `{design.module}`", ""]
    lines += [*_clock(build), "## Resources by component", ""]
    lines += [
        "After synthesis. Logic between two components counts with the signal after which it is named.",
        "",
        "| component | LUTs | share | registers | block RAMs | multipliers |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    total = build.synthesis.resources
    rows = [*grouped(build.synthesis.components).items(), ("all", total)]
    for name, r in rows:
        share = f"{r.luts / total.luts:.1%}" if total.luts else ""
        lines.append(f"| {name or TOP} | {r.luts:,} | {share} | {r.ffs:,} | {r.brams} | {r.dsps} |")
    if build.placement is not None:
        lines += ["", f"## Utilisation of {build.placement.device}", ""]
        lines += ["After packing.", "", "| what | used | available | share |", "| --- | ---: | ---: | ---: |"]
        for bel, (used, available) in sorted(build.placement.utilisation.items()):
            if used:
                lines.append(f"| {bel} | {used:,} | {available:,} | {used / available:.1%} |")
    tools = [build.synthesis.tool] + ([build.placement.tool] if build.placement else [])
    lines += ["", f"Family {target.family}. Tools: {', '.join(tools)}.", ""]
    return "\n".join(lines)


def _clock(build: Build) -> list[str]:
    """Clocks and critical path, or why there are none."""
    placement = build.placement
    if placement is None:
        if build.target.family == "ecp5":
            return ["Synthesised only.", ""]
        return [f"Synthesised only: there is no place and route for {build.target.family}.", ""]
    pins = "for clock and reset alone" if build.design.constraints is None else "of a board"
    lines = [
        "## Clock",
        "",
        f"{placement.device}, package {placement.package}, speed grade {placement.speed}, "
        f"seed {placement.seed}, pins {pins}.",
        "",
        "| clock | reached | asked for |",
        "| --- | ---: | ---: |",
    ]
    for name, (reached, required) in placement.clocks.items():
        lines.append(f"| {clock_name(name)} | {reached:.2f} MHz | {required:.2f} MHz |")
    lines.append("")
    if len(build.tried) > 1:
        told = ", ".join(f"{seed}: {f'{f:.2f}' if f else 'failed'}" for seed, f in build.tried.items())
        lines += [f"MHz by seed: {told}.", ""]
    return lines + _path(placement)


def _path(placement: Placement) -> list[str]:
    """The critical path as a table."""
    about = path(placement)
    if about is None:
        return []
    lines = [
        "## Critical path",
        "",
        f"{about['delay_ns']:.2f} ns ({about['logic_ns']:.2f} logic, {about['routing_ns']:.2f} routing) from "
        f"`{about['from']}` to `{about['to']}`, through {', '.join(about['components'])}.",
        "",
        "| at ns | delay | kind | component | signal |",
        "| ---: | ---: | --- | --- | --- |",
    ]
    time = 0.0
    # Carries between neighbours take no time on a net.
    timed = (hop for hop in placement.critical_path if hop.delay)
    for (kind, place, name), hops in groupby(timed, _step):
        delay = sum(hop.delay for hop in hops)
        time += delay
        lines.append(f"| {time:.2f} | {delay:.2f} | {kind} | {place or TOP} | `{name}` |")
    return [*lines, ""]


def _step(hop: Hop) -> tuple[str, str, str]:
    """What hops have in common that are one line of the table, as those along a carry chain."""
    return hop.kind, hop.component, signal(hop.net or hop.sink)
