"""Resources of cells, and the instance that each belongs to."""

from __future__ import annotations

from hw.synthesis.nets import component
from hw.synthesis.resources import Resources, by_component, grouped, of_cells


def test_ecp5_counts_look_up_tables_as_nextpnr_does() -> None:
    cells = {"LUT4": 10, "CCU2C": 3, "TRELLIS_DPR16X4": 2, "TRELLIS_FF": 7, "DP16KD": 1, "MULT18X18D": 4}
    assert of_cells(cells | {"PFUMX": 9}, "ecp5") == Resources(luts=28, ffs=7, brams=1, dsps=4)
    assert of_cells({"$_DLATCH_P_": 2}, "ecp5") == Resources(latches=2)


def test_xilinx_counts_block_ram_in_eighteen_kilobits() -> None:
    cells = {
        "LUT6": 4,
        "LUT2": 1,
        "RAM32M": 1,
        "FDRE": 5,
        "FDSE": 1,
        "RAMB36E1": 2,
        "RAMB18E1": 1,
        "DSP48E1": 3,
    }
    assert of_cells(cells, "xilinx") == Resources(luts=9, ffs=6, brams=5, dsps=3)


def test_a_cell_belongs_to_the_deepest_instance_that_its_name_begins_with() -> None:
    paths = frozenset({"warp0", "warp0.multiply", "gemm"})
    assert component("warp0.multiply.sum_LUT4_Z_3", paths) == "warp0.multiply"
    assert component("warp0.words.0.1_TRELLIS_FF_Q", paths) == "warp0"
    assert component("gemmy.x_LUT4_Z", paths) == ""
    assert component("running_LUT4_Z", paths) == ""


def test_cells_are_counted_by_instance_and_instances_without_cells_are_told() -> None:
    kinds = {"a": "$scopeinfo", "a.b": "$scopeinfo", "a.x_LUT4_Z": "LUT4", "a.y_LUT4_Z": "LUT4", "z": "CCU2C"}
    found = by_component({name: {"type": kind} for name, kind in kinds.items()})
    assert {path: dict(cells) for path, cells in found.items()} == {
        "a": {"LUT4": 2},
        "a.b": {},
        "": {"CCU2C": 1},
    }


def test_an_instance_with_more_than_half_is_told_by_its_own_instances() -> None:
    luts = {"": 5, "core": 1, "core.host": 9, "core.gemm": 30, "core.gemm.array": 50, "core.gemm.control": 3}
    luts |= {"bridge": 10, "bridge.frames": 7}
    groups = grouped({path: Resources(luts=number) for path, number in luts.items()})
    assert {name: r.luts for name, r in groups.items()} == {
        "core.gemm.array": 50,
        "core.gemm": 30,
        "bridge": 17,
        "core.host": 9,
        "": 5,
        "core.gemm.control": 3,
        "core": 1,
    }
    assert next(iter(groups)) == "core.gemm.array", "largest first"
