"""Explorations for tests of their report: real machines, and figures that follow formulas."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from typing import Any

from cosim.session.metrics import ModelMetrics, OperatorMetrics
from heald.exploration.results import (
    Confirmation,
    Exploration,
    Parameter,
    Point,
    State,
    ranked,
)
from heald.exploration.study import fields_of
from hw.config import FIELDS, PORTS, MachineConfig, load
from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric import load as load_fabric

#: Values of the parameters, from those that matter most on.
VALUES: Mapping[str, tuple[int | str, ...]] = {
    "rows": (4, 8, 16, 32),
    "cols": (4, 8, 16, 32),
    "load_b_bytes": (8, 32),
    "acc_bytes": (4096, 65536),
    "cgra": ("none", "torus4x4"),
    "load_a_latency": tuple(range(5, 101)),
}
#: Products of the model: rows, columns, depth.
SHAPES = ((128, 256, 256), (128, 128, 256), (128, 256, 128), (128, 1024, 256), (128, 256, 1024))
LIMIT = 60_000


def exploration(
    latencies: int = 2, models: int = 1, confirmed: tuple[bool, ...] = (True, True)
) -> Exploration:
    """A grid of 128 points for each latency; the first points of the front ran on the RTL."""
    values = {**VALUES, "load_a_latency": VALUES["load_a_latency"][:latencies]}
    base = load("test").replace(buffer_a_bytes=8192, buffer_b_bytes=8192)
    combined = itertools.product(*values.values())
    points = tuple(
        _point(i, dict(zip(values, each, strict=True)), base, models) for i, each in enumerate(combined)
    )
    objectives = {"cycles": "minimize", "luts": "minimize"}
    front = ranked(points, objectives)[0]
    ran = [_confirmation(p, holds) for p, holds in zip(front, confirmed, strict=False)]
    meanings = {name: FIELDS[name].metadata["meaning"] for name in values}
    return Exploration(
        name="space-encoder",
        base="test",
        models=tuple(f"models/encoder_{m}.onnx" for m in range(models)),
        parameters=tuple(Parameter(n, v, meanings[n]) for n, v in values.items()),
        derived={},
        constraints=("rows <= 4 * cols",),
        limits=(f"luts <= {LIMIT}",),
        objectives=objectives,
        size=len(points),
        sampler="grid",
        family="ecp5",
        measured=False,
        energy_table="Horowitz, ISSCC 2014, 45 nm",
        points=points,
        front=tuple(p.number for p in front),
        confirmations=tuple(ran),
        importance={"cycles": _shares(values, 0.5), "luts": _shares(values, 0.7)},
        hypervolume=0.93,
        reference={},
        points_per_second=0.61,
    )


@functools.cache
def fabric(name: str) -> Fabric:
    """A grid."""
    return load_fabric(name)


def _shares(values: Mapping[str, Any], first: float) -> dict[str, float]:
    """Each parameter matters less than the one before it."""
    found = {name: first * (1 - first) ** i for i, name in enumerate(values)}
    return {name: share / sum(found.values()) for name, share in found.items()}


def _confirmation(point: Point, holds: bool) -> Confirmation:
    cycles = int(point.metrics["cycles"])
    difference = None if holds else "cycle 812, warp 2: storer: expected 812, got 815"
    return Confirmation(point.number, holds, 3000 + point.number, cycles, difference)


def _point(number: int, parameters: dict[str, Any], base: MachineConfig, models: int) -> Point:
    grid = fabric("torus4x4") if parameters["cgra"] == "torus4x4" else None
    try:
        config = base.replace(**{**parameters, "cgra": grid})
    except InputError as error:
        return Point(number, parameters, State.REFUSED, dict(parameters), str(error))
    hw = fields_of(config)
    if config.rows == 4 and config.cols == 32:
        return Point(number, parameters, State.FAILED, hw, "killed its worker 3 times: <signal 9> & more")
    found = tuple(_model(f"models/encoder_{m}.onnx", config) for m in range(models))
    cycles = sum(m.cycles for m in found)
    luts = 4000 + 38 * config.macs_per_cycle + 90 * sum(config.port_bytes(p) for p in PORTS)
    luts += 17000 if grid else 0
    fmax = 92 - 6 * math.log2(config.macs_per_cycle) / 2
    metrics = {
        "cycles": cycles,
        "seconds_per_inference": cycles / fmax / 1e6,
        "bytes_moved": sum(sum(m.bytes_moved.values()) for m in found),
        "energy_pj": sum(sum(m.energy.values()) for m in found),
        "utilization": sum(m.macs for m in found) / (config.macs_per_cycle * cycles),
        "luts": luts,
        "fmax_mhz": round(fmax, 1),
    }
    if luts > LIMIT:
        return Point(number, parameters, State.INFEASIBLE, hw, f"beyond luts <= {LIMIT}", metrics, found, 1.5)
    return Point(number, parameters, State.COMPLETE, hw, None, metrics, found, 1.5)


def _model(name: str, config: MachineConfig) -> ModelMetrics:
    """Products one after the other, a softmax on the grid, or on the host if there is none."""
    operators: list[OperatorMetrics] = []
    at = last = 0
    for i, (m, n, k) in enumerate(SHAPES):
        moved = {"load_a": m * k, "load_b": n * k, "load_c": 4 * n, "store": m * n}
        bounds = {p: math.ceil(moved[p] / config.port_bytes(p)) for p in PORTS}
        bounds["gemm"] = math.ceil(m * n * k / config.macs_per_cycle)
        end = at + round(1.1 * max(bounds.values())) + config.load_a_latency * (2 + k // 64)
        operators.append(
            OperatorMetrics(
                f"layer.{i}/MatMul", "matmul", "machine", at, end, end - last, m * n * k, bounds, moved
            )
        )
        at, last = end - (end - at) // 8, end
        if i == 2:
            where = "host" if config.cgra is None else "machine"
            grid = {} if config.cgra is None else {"cgra": m * n // 4}
            operators.append(
                OperatorMetrics("softmax", "softmax", where, last, last + m * n // 3, m * n // 3, 0, grid, {})
            )
            at = last = operators[-1].end
    moved = {p: sum(o.moved.get(p, 0) for o in operators) for p in PORTS}
    energy = {"memory": 162.5 * sum(moved.values()), "array": 0.3 * sum(o.macs for o in operators)}
    macs = sum(o.macs for o in operators)
    return ModelMetrics(name, last, macs, 900, 1, moved, energy, tuple(operators))
