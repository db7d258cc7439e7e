"""The area model: parts of machines, sums, and real synthesis of parts outside the fit."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from math import log2

import pytest
from amaranth.hdl import Fragment

from hw.area import estimate
from hw.area.model import DEVICE, FAMILIES, LUTS, RESOURCES, Model, is_fitted, load
from hw.area.parts import TOP, lut_blocks, memory_blocks, parts, verilog
from hw.config import ENGINES, PORTS, MachineConfig, preset_names
from hw.config import load as machine
from hw.errors import InputError
from hw.fabric import load as fabric
from hw.rtl.core.issue import Issue
from hw.rtl.gemm.widths import block_bits
from hw.synthesis import find_device, synthesise
from hw.synthesis.resources import DEFAULT

FITTED = [family for family in FAMILIES if is_fitted(family)]
#: The module, whose name in its package is that of its function.
ESTIMATES = import_module("hw.area.model")
#: A machine that is no sample of the fit.
ODD = machine("test", {"rows": 8, "warps": 5, "channels": 11, "channel_depth": 12, "windows": 3})


@pytest.mark.parametrize("name", preset_names())
def test_every_component_is_a_part_of_the_machine(name: str) -> None:
    config = machine(name)
    assert config.cgra is not None
    counts = {
        kind: sum(p.count for p in parts(config) if p.kind == kind)
        for kind in {p.kind for p in parts(config)}
    }
    assert counts.pop("pe") == config.cgra.size
    assert set(counts.values()) == {1}


def test_pes_that_are_alike_are_one_part() -> None:
    config = machine("default").replace(cgra=fabric("torus4x4"))
    kinds = [p for p in parts(config) if p.kind == "pe"]
    assert len(kinds) < 8
    assert len({p.key for p in kinds}) == len(kinds)
    assert sum(p.count for p in kinds) == 16


@pytest.mark.parametrize("config", [*map(machine, preset_names()), ODD], ids=lambda c: c.name)
def test_features_are_what_the_rtl_has(config: MachineConfig) -> None:
    found = {p.kind: p.features for p in parts(config)}
    issue = Issue(config)
    Fragment.get(issue, None)  # Amaranth complains of components that nothing elaborates
    assert found["issue"]["oldest_bits"] == sum(issue._entry(engine).size for engine in ENGINES)
    assert found["gemm"]["sum_bits"] == config.rows * config.cols * block_bits(config)


def test_queues_do_not_keep_what_a_machine_lacks() -> None:
    whole = machine("tiny")
    bare = whole.replace(cgra=None, convolutions=False)
    bits = [p.features["oldest_bits"] for c in (whole, bare) for p in parts(c) if p.kind == "issue"]
    assert bits[1] < 0.7 * bits[0]


@pytest.mark.parametrize("family", FITTED)
def test_pipelined_pes_take_more_registers_and_no_more_luts(family: str) -> None:
    """The longest path of a PE that is not pipelined costs LUTs."""
    grid = fabric("mesh4x4")
    plain, late = (
        {
            resource: sum(p.count * load(family).part("pe", resource, p.features) for p in found)
            for resource in RESOURCES
        }
        for found in (
            [p for p in parts(machine("tiny").replace(cgra=g)) if p.kind == "pe"]
            for g in (grid, replace(grid, pipelined=True))
        )
    )
    assert late["ffs"] > 1.3 * plain["ffs"]
    assert late["luts"] < plain["luts"]
    assert late["brams"] == plain["brams"]


def test_a_machine_without_a_grid_has_no_parts_of_one() -> None:
    config = machine("tiny").replace(cgra=None)
    assert not {p.kind for p in parts(config)} & {"pe", "grid_control", "grid_ports", "output_buffer"}


@pytest.mark.parametrize("family", FITTED)
@pytest.mark.parametrize("resource", ["luts", "ffs"])
def test_deeper_queues_do_not_take_less(family: str, resource: str) -> None:
    """One and two are alike: one waits behind the oldest. Of more, LUT RAM replaces the registers."""
    one, two, three, four = (
        getattr(estimate(machine("tiny", {"queue_depth": depth}), family), resource) for depth in (1, 2, 3, 4)
    )
    assert one == two
    assert abs(four - three) < 0.02 * three
    assert resource == "luts" or three < one


def test_parts_count_as_often_as_they_occur_and_factors_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    config = machine("default", {"cgra": "torus4x4"})
    assert config.cgra is not None
    kinds = {p.kind for p in parts(config)}
    nothing: dict[str, dict[str, float]] = {r: {} for r in RESOURCES}
    weights = dict.fromkeys(kinds, nothing)
    weights["pe"] = nothing | {"luts": {"one": 10.0, "links": 1.0}}
    weights["host"] = nothing | {"luts": {"one": 7.0}, "ffs": {"one": 4.0}}
    model = Model(weights, {"luts": 0.5, "ffs": 2.0, "brams": 1.0, "dsps": 1.0}, {})
    monkeypatch.setattr(ESTIMATES, "load", lambda family: model)
    found = estimate(config)
    assert (config.cgra.size, len(config.cgra.links)) == (16, 64)
    assert (found.luts, found.ffs, found.brams, found.dsps) == (round((16 * 10 + 64 + 7) * 0.5), 8, 0, 0)
    assert found.fmax_mhz is None


def test_the_clock_falls_with_what_makes_paths_long(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = {"one": 10.0, "full": 5.0, "multiplier": 2.0, "array": 0.5, "port": 0.25, "banks": 1.0}
    model = replace(load("ecp5"), clock=weights)
    monkeypatch.setattr(ESTIMATES, "load", lambda family: model)
    config = machine("tiny")
    found = estimate(config)
    assert (config.rows * config.cols, config.acc_banks, len(config.store_pes)) == (64, 1, 2)
    port = log2(max(config.port_bytes(port) for port in PORTS))
    period = 10 + 5 * found.luts / LUTS + 2 + 0.5 * 6 + 0.25 * port + log2(1 + 2)
    assert found.fmax_mhz == pytest.approx(1000 / period, abs=0.06)
    bare = estimate(config.replace(cgra=None)).fmax_mhz
    wide = estimate(machine("tiny", {"rows": 64, "cols": 64})).fmax_mhz
    assert bare is not None
    assert wide is not None
    assert wide < found.fmax_mhz < bare
    # Beyond the device's size nothing is known.
    huge = replace(model, clock={"full": 10.0})
    monkeypatch.setattr(ESTIMATES, "load", lambda family: huge)
    assert estimate(machine("large")).luts > LUTS
    assert estimate(machine("large")).fmax_mhz == 100


def test_the_clock_is_of_the_device_that_the_flow_takes() -> None:
    assert DEFAULT == DEVICE
    assert find_device(DEVICE).holds.luts == LUTS


@pytest.mark.parametrize("family", FITTED)
def test_the_sum_of_the_parts_is_the_whole(family: str) -> None:
    config = machine("tiny")
    model, found = load(family), estimate(config, family)
    for resource in RESOURCES:
        total = sum(p.count * model.part(p.kind, resource, p.features) for p in parts(config))
        assert getattr(found, resource) == pytest.approx(total * model.whole[resource], abs=1)
    assert sum(found.luts_by_part.values()) == pytest.approx(found.luts, abs=len(found.luts_by_part))
    assert min(found.luts, found.ffs, found.brams, found.dsps) > 0


@pytest.mark.parametrize("family", FITTED)
@pytest.mark.parametrize(
    ("change", "resource"),
    [
        ({"rows": 16}, "dsps"),
        ({"warps": 8}, "luts"),
        ({"cols": 16}, "ffs"),
        ({"buffer_a_bytes": 65536}, "brams"),
        ({"load_a_bytes": 32}, "luts"),
    ],
)
def test_what_is_larger_takes_more(family: str, change: dict[str, int], resource: str) -> None:
    small, large = estimate(machine("tiny"), family), estimate(machine("tiny", change), family)
    assert getattr(large, resource) > getattr(small, resource)
    bare = estimate(machine("tiny").replace(cgra=None), family)
    assert all(getattr(bare, r) < getattr(small, r) for r in RESOURCES)


@pytest.mark.parametrize("family", FITTED)
def test_the_array_takes_multipliers(family: str) -> None:
    """At most one per element; two small products may share one."""
    few, many = (estimate(machine("tiny", {"rows": r, "cgra": "none"}), family).dsps for r in (4, 16))
    elements = 8 * (16 - 4)
    assert 0.3 * elements < many - few < 1.1 * elements


def test_a_family_without_a_model_is_refused() -> None:
    with pytest.raises(InputError, match="family must be one that has an area model, ecp5"):
        estimate(machine("tiny"), "ice40")
    assert "ecp5" in FITTED


@pytest.mark.parametrize(
    ("depth", "width", "blocks", "luts"),
    [
        (0, 32, 0, 0),
        (16, 32, 0, 8),
        (512, 36, 1, 0),
        (1024, 32, 2, 0),
        (2048, 8, 1, 0),
        (2049, 8, 2, 0),
        # As many bits as a block RAM holds, but wider than 15 of them.
        (32, 512, 0, 256),
        (64, 512, 15, 0),
    ],
)
def test_what_memories_become(depth: int, width: int, blocks: int, luts: int) -> None:
    assert (memory_blocks(depth, width), lut_blocks(depth, width)) == (blocks, luts)


@pytest.mark.parametrize("kind", ["channels", "program", "buffer_a", "accumulator"])
def test_parts_that_were_never_fitted(kind: str) -> None:
    part = next(p for p in parts(ODD) if p.kind == kind)
    found = synthesise(verilog(ODD, kind, part.index), TOP, "ecp5", netlist=False).resources
    model = load("ecp5")
    for resource in RESOURCES:
        there = getattr(found, resource)
        assert model.part(kind, resource, part.features) == pytest.approx(there, rel=0.25, abs=60), resource


def test_machines_differ_only_by_what_synthesis_sees() -> None:
    config: MachineConfig = machine("tiny")
    assert estimate(config) == estimate(config.replace(name="other", load_a_latency=99))
