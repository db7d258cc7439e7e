"""Placement and routing with nextpnr-ecp5: the clock that a netlist reaches, and what limits it."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hw import cache
from hw.errors import InputError
from hw.synthesis.nets import SCOPE, component
from hw.synthesis.resources import CLOCK_PINS, Device, Resources
from hw.synthesis.tools import Progress, ToolError, find, run
from hw.synthesis.yosys import Synthesis

#: A progress line of the router: connections routed, and connections left.
_BATCH = re.compile(r"Info:\s+(\d+) \|[^|]*\|[^|]*\|\s+(\d+)\|")
#: nextpnr's names of resources, by the fields of `Resources`.
_BELS = {"luts": "TRELLIS_COMB", "ffs": "TRELLIS_FF", "brams": "DP16KD", "dsps": "MULT18X18D"}
#: Log lines of nextpnr that begin a phase, and the text to report.
_PHASES = (
    (re.compile(r"Info: Packing"), "packing"),
    (re.compile(r"Info: Creating initial"), "placing"),
    (re.compile(r"Info:\s+at iteration #(\d+)"), "placing, iteration {}"),
    (re.compile(r"Info: Running simulated annealing"), "refining the placement"),
    (re.compile(r"Info: iter=(\d+) steplen"), "placing, iteration {}"),
    (re.compile(r"Info: Routing\.\."), "routing"),
    (_BATCH, "routing, {1} connections left"),
)
#: The electrostatic placer leaves less wire than the default. The first router is timing-driven; the second
#: leaves single nets on detours of several nanoseconds.
_ALGORITHMS = ("--placer", "static", "--router", "router1")
#: For each package, a pin from which a clock reaches the global nets on dice of every size. From a pin that
#: nextpnr chooses, the clock may have to pass through the fabric and fail to route.
_CLOCK_SITES = {"CABGA381": "G2"}
#: Minimum number of sinks of a net that counts as a reset.
_MANY = 64
#: Fraction of a device from which a design gets a floorplan; a smaller one should not be spread out.
_LARGE = 0.25
#: Number of router lines without progress after which it is stopped; it would go on forever.
_PATIENCE = 100
_USE = re.compile(r"Info:\s+(\w+):\s*(\d+)/\s*(\d+)\s+\d+%")
_NETLIST, _PINS, _REPORT, _CONFIG, _LOG = "netlist.json", "pins.lpf", "report.json", "design.config", "log"


@dataclass(frozen=True)
class Hop:
    """One step of a path: through a cell (`clk-to-q`, `logic`, `setup`) or along a net (`routing`).

    `delay` is in nanoseconds; `component` is the path of the instance in which `sink` lies, "" for the top.
    """

    kind: str
    delay: float
    source: str
    sink: str
    net: str | None
    component: str


@dataclass(frozen=True)
class Placement:
    """A routed design.

    `fmax_mhz` is the frequency of the clock that is slowest relative to its target, or None for a design
    without a clock. `clocks` maps nets to (reached, required) in MHz. `used` and `available` are counted by
    nextpnr after packing. `critical_path` runs from register to register in the clock of `fmax_mhz`. `config`
    is the bitstream in Trellis' text format, or None without constraints; `report` and `log` are those of
    nextpnr.
    """

    fmax_mhz: float | None
    clocks: Mapping[str, tuple[float, float]]
    used: Resources
    available: Resources
    utilisation: Mapping[str, tuple[int, int]]
    critical_path: tuple[Hop, ...]
    device: str
    package: str
    speed: int
    seed: int
    seconds: float
    tool: str
    config: Path | None
    report: Path
    log: Path

    @property
    def margin(self) -> float:
        """The smallest ratio of reached to required frequency; infinite without a clock."""
        return min((reached / required for reached, required in self.clocks.values()), default=math.inf)

    @property
    def reached(self) -> bool:
        """Whether every clock reaches its target."""
        return self.margin >= 1


def place_and_route(
    synthesis: Synthesis,
    device: Device,
    frequency: float,
    *,
    constraints: str | None = None,
    package: str | None = None,
    speed: int | None = None,
    seed: int = 1,
    options: tuple[str, ...] = (),
    progress: Progress | None = None,
) -> Placement:
    """Places and routes a netlist for `frequency` in MHz, or finds the result in the cache.

    `constraints` is the text of an LPF file. Without it, only clock and reset get pins, anywhere, and the
    other ports are left open. A missed frequency is not an error but part of the result. Raises `InputError`
    if there is no such device, the design does not fit, or nextpnr is missing or gives up.
    """
    if synthesis.family != "ecp5" or synthesis.netlist is None:
        raise InputError("placement needs a netlist for ecp5")
    if not frequency > 0:
        raise InputError(f"the frequency must be above 0 MHz, not {frequency:g}")
    from hw.synthesis import floorplan  # numba is slow to import

    package, speed = package or device.package, speed or device.speed()
    device.check(package, speed)
    tool = find("nextpnr-ecp5")
    arguments = [f"--{device.name}", "--package", package, "--speed", str(speed)]
    arguments += ["--freq", f"{frequency:g}", "--seed", str(seed), "--timing-allow-fail"]
    arguments += [*_ALGORITHMS, *options]
    arguments += ["--lpf-allow-unconstrained"] if constraints is None else []
    arguments += ["--lpf", _PINS]
    # Floorplan and pins follow from the netlist, the seed and the code that makes them.
    made = [inspect.getsource(floorplan), str(_CLOCK_SITES)]
    key = cache.fingerprint([synthesis.key, constraints or "", *arguments, tool.version, *made])

    def make(work: Path, _log: Path) -> None:
        if progress is not None:
            progress("placement and routing: floorplan")
        prepared = _prepare(synthesis, device, seed, constraints is None, work / _NETLIST)
        pins = _pins(prepared["clocks"], package) if constraints is None else constraints
        (work / _PINS).write_text(pins, encoding="utf-8")
        files = ["-q", "-l", _LOG, "--json", _NETLIST, "--report", _REPORT]
        files += ["--textcfg", _CONFIG] if constraints is not None else []
        try:
            seconds = run(tool, [*arguments, *files], work, _LOG, _watch(device, progress))
        except ToolError as error:
            _check_fit(error.lines, device)
            raise
        (work / _NETLIST).unlink()
        about = prepared | {"seconds": round(seconds, 1)}
        (work / "about.json").write_text(json.dumps(about), encoding="utf-8")

    final, _ = cache.cached("placement", key, make)
    return _read(final, device, package, speed, seed, tool.version)


def _pins(clocks: list[str], package: str) -> str:
    """Constraints of a design without any of its own: the pin of its clock."""
    if not clocks or package not in _CLOCK_SITES:
        return ""
    return f'LOCATE COMP "{clocks[0]}" SITE "{_CLOCK_SITES[package]}";\n'


def _prepare(synthesis: Synthesis, device: Device, seed: int, no_pins: bool, target: Path) -> dict[str, Any]:
    """Writes the netlist with a floorplan and, with `no_pins`, few ports.

    Returns the paths of its instances, the number of dummy LUTs that keep sites empty, and, with `no_pins`,
    the ports that are clocks.
    """
    from hw.synthesis import floorplan

    assert synthesis.netlist is not None
    design = json.loads(synthesis.netlist.read_text(encoding="utf-8"))
    module = design["modules"][synthesis.top]
    clocks = _drop_ports(module) if no_pins else []
    paths = sorted(name for name, cell in module["cells"].items() if cell["type"] == SCOPE)
    die = floorplan.DIES.get(device.holds.luts)
    empty: list[str] = []
    if die is not None and synthesis.resources.luts >= _LARGE * device.holds.luts:
        for cell, site in floorplan.plan(module["cells"], die, seed).items():
            module["cells"][cell]["attributes"]["BEL"] = site
        empty = floorplan.left_empty(die, synthesis.resources.luts)
        module["cells"] |= {f"$empty{i}": _table(site) for i, site in enumerate(empty)}
    target.write_text(json.dumps(design), encoding="utf-8")
    return {"paths": paths, "empty": len(empty), "clocks": clocks}


def _table(site: str) -> dict[str, Any]:
    """An unconnected LUT, which keeps nextpnr from using its site."""
    return {
        "type": "LUT4",
        "parameters": {"INIT": "0" * 16},
        "attributes": {"BEL": site},
        "port_directions": {},
        "connections": {},
    }


def _drop_ports(module: dict[str, Any]) -> list[str]:
    """Keeps only ports that drive clock pins or very many others (clock and reset); returns the clocks.

    A machine has more ports than a package has pins. nextpnr's own option for parts of a design,
    `--out-of-context`, has no global nets: it routes the clock through the fabric to every register, and the
    router cannot resolve the conflicts.
    """
    sinks, clocks = Counter[int | str](), set[int | str]()
    for cell in module["cells"].values():
        for pin, bits in cell["connections"].items():
            if cell.get("port_directions", {}).get(pin) == "input":
                sinks.update(bits)
            if pin in CLOCK_PINS:
                clocks.update(bits)
    module["ports"] = {
        name: port
        for name, port in module["ports"].items()
        if port["direction"] == "input"
        and len(port["bits"]) == 1
        and (port["bits"][0] in clocks or sinks[port["bits"][0]] > _MANY)
    }
    return [name for name, port in module["ports"].items() if port["bits"][0] in clocks]


def _watch(device: Device, progress: Progress | None) -> Progress:
    """A callback for nextpnr's lines: reports the phase, stops what cannot fit or makes no progress."""
    fewest, silent = math.inf, 0

    def line(text: str) -> None:
        nonlocal fewest, silent
        if progress is not None:
            for pattern, phase in _PHASES:
                if match := pattern.match(text):
                    progress(f"placement and routing: {phase.format(*match.groups())}")
        _check_fit((text,), device)
        if match := _BATCH.match(text):
            left = int(match[2])
            fewest, silent = (left, 0) if left < fewest else (fewest, silent + 1)
            if silent == _PATIENCE:
                raise InputError(
                    f"{device.name}: routing makes no progress, at least {fewest:,} connections are left "
                    f"after {int(match[1]):,} were routed; try another seed, a larger device or a smaller "
                    "machine (--synth-only reports resources alone)"
                )

    return line


def _check_fit(lines: tuple[str, ...], device: Device) -> None:
    """Raises `InputError` if nextpnr's utilisation table shows that a resource is exceeded."""
    names = {bel: field for field, bel in _BELS.items()} | {"TRELLIS_IO": "pins"}
    for text in lines:
        match = _USE.match(text)
        if match and match[1] in names and int(match[2]) > int(match[3]):
            raise InputError(
                f"the design needs {int(match[2]):,} {names[match[1]]}, "
                f"and {device.name} has {int(match[3]):,}"
            )


def _read(folder: Path, device: Device, package: str, speed: int, seed: int, tool: str) -> Placement:
    """Reads a result from the cache."""
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    report = json.loads((folder / _REPORT).read_text(encoding="utf-8"))
    use = {name: (bel["used"], bel["available"]) for name, bel in report["utilization"].items()}
    clocks = {
        clock: (round(found["achieved"], 2), float(found["constraint"]))
        for clock, found in report["fmax"].items()
    }
    luts, held = use[_BELS["luts"]]
    use[_BELS["luts"]] = luts - about["empty"], held
    slowest = min(clocks, key=lambda clock: clocks[clock][0] / clocks[clock][1], default=None)
    paths = frozenset(about["paths"])
    return Placement(
        fmax_mhz=None if slowest is None else clocks[slowest][0],
        clocks=clocks,
        used=Resources(**{field: use[bel][0] for field, bel in _BELS.items()}),
        available=Resources(**{field: use[bel][1] for field, bel in _BELS.items()}),
        utilisation=use,
        critical_path=_critical(report["critical_paths"], slowest, paths),
        device=device.name,
        package=package,
        speed=speed,
        seed=seed,
        seconds=about["seconds"],
        tool=tool,
        config=folder / _CONFIG if (folder / _CONFIG).is_file() else None,
        report=folder / _REPORT,
        log=folder / _LOG,
    )


def _critical(found: list[dict[str, Any]], clock: str | None, paths: frozenset[str]) -> tuple[Hop, ...]:
    """The critical path of nextpnr's report that stays within a clock."""
    edges = (f"posedge {clock}", f"negedge {clock}")
    for entry in found:
        if entry["from"] in edges and entry["to"] in edges:
            return tuple(
                Hop(
                    kind=hop["type"],
                    delay=round(hop["delay"], 3),
                    source=f"{hop['from']['cell']}.{hop['from']['port']}",
                    sink=f"{hop['to']['cell']}.{hop['to']['port']}",
                    net=hop.get("net"),
                    component=component(hop["to"]["cell"], paths),
                )
                for hop in entry["path"]
            )
    return ()
