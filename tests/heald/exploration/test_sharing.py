"""What points share: results computed for one machine are correct for another."""

from __future__ import annotations

import functools
import gc
from pathlib import Path
from typing import Any

import pytest

from heald.exploration.space import read
from hw.config import MachineConfig, load
from hw.fabric import toml as fabrics
from sw.compile.stages import Compiled
from sw.compiler import compile_network
from sw.frontend.network import import_model
from sw.tiling.blocking import Extent
from sw.tiling.machine import best
from tests.heald.network_models import perceptron

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/11_exploration"


def made(config: MachineConfig) -> list[Any]:
    """All that a compilation gives, as far as it can be compared."""
    found = []
    for c in compile_network(import_model(perceptron()), config):
        if isinstance(c, Compiled):
            bitstreams = [k.words for p in c.parts for k in p.configured]
            found.append((c.programs, dict(c.operator_of), c.source, c.synchronised, bitstreams))
    return found


def forget() -> None:
    """Empty all caches of functions."""
    for found in gc.get_objects():
        if isinstance(found, functools._lru_cache_wrapper):
            found.cache_clear()


def test_machines_compiled_one_after_the_other_are_compiled_as_if_alone() -> None:
    base = load("test")
    machines = [
        base,
        base.replace(load_a_latency=40, queue_depth=9, channel_depth=20),
        base.replace(cgra=fabrics.load("mesh4x4")),
        base.replace(out_bytes=8192, registers=12),
    ]
    forget()
    together = [made(config) for config in machines]
    for config, found in zip(machines[1:], together[1:], strict=True):
        forget()
        assert made(config) == found


@pytest.mark.parametrize("preset", ["test", "lean", "default"])
def test_blockings_do_not_depend_on_the_grid(preset: str) -> None:
    config = load(preset)
    for extent in (Extent(64, 64, 64), Extent(64, 256, 1024), Extent(5, 300, 17)):
        assert best(extent, config, None, 8) == best(extent, config.replace(cgra=None), None, 8)


def test_the_spaces_of_the_example_can_be_built() -> None:
    space = read(EXAMPLE / "space.toml")
    assert space.feasible.size == 200
    assert len({space.machine(point).hash for point in space.feasible}) == 200
    assert read(EXAMPLE / "small.toml").feasible.size == 4
