"""Tiles of pooling: every tile has the pixels of its windows, sizes fit, and impossible cases are refused."""

from __future__ import annotations

import errno
import math
import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hw.cache import unwritable
from hw.config import MachineConfig, load
from hw.errors import InputError, UnwritableError
from sw.compile.forms import Loop
from sw.compile.stages import Compiled
from sw.compile.writer import LONGEST
from sw.compiler import compile_network
from sw.graph import reference
from sw.ir.expression import evaluate
from sw.kernels import mappings
from sw.operators.pools import wide
from sw.operators.pools.lower import LoweredPool
from sw.operators.pools.operator import MaxPool
from sw.operators.pools.tiles import Cut, Results, cut_of, piece
from sw.operators.tiles import ACROSS, DOWN
from sw.patches import Axis
from tests.caches import forget_configurations
from tests.sw.compile.row_networks import Builder
from tests.sw.functional import Machine

TEST = load("test", {"cgra": "torus4x4"})
#: Eight columns for eight lanes.
WIDE = load("test", {"cols": 8, "cgra": "vector3x4"})


def axis(rng: random.Random, size: int) -> Axis:
    """An axis of a pooling whose windows all have pixels."""
    kernel, dilation = rng.randint(1, 5), rng.choice((1, 1, 2))
    reach = (kernel - 1) * dilation + 1
    pads = rng.randint(0, reach - 1), rng.randint(0, reach - 1)
    return Axis(max(size, reach), kernel, rng.randint(1, 3), *pads, dilation)


def pool_of(rows: Axis, cols: Axis, channels: int = 1) -> MaxPool:
    """The greatest pixel of every window."""
    builder = Builder()
    builder.pool((1, channels), rows, cols)
    (operator,) = builder.operators
    assert isinstance(operator, MaxPool)
    return operator


@given(st.integers(0, 1 << 30), st.sampled_from([DOWN, ACROSS]))
@settings(max_examples=100)
def test_tiles_cover_all_outputs_and_hold_the_pixels_of_their_windows(seed: int, name: str) -> None:
    rng = random.Random(seed)
    own = axis(rng, rng.randint(1, 40))
    tile = rng.randint(1, own.outputs)
    number = math.ceil(own.outputs / tile)
    loops = [Loop(name, number)] if number > 1 else []
    made = piece(own, tile, loops, name)
    covered: set[int] = set()
    for step in range(number):
        values = {name: step}
        start, outputs, first, held, before = (
            evaluate(e, values) for e in (made.start, made.outputs, made.first, made.held, made.before)
        )
        assert start + outputs <= own.outputs
        covered |= set(range(start, start + outputs))
        # Where the tile begins, counted from the first pixel of the image.
        place = start * own.stride - own.before
        assert first - before == place
        wanted = {place + k for k in range(own.span(outputs))} & set(range(own.size))
        assert wanted <= set(range(first, first + held)) <= set(range(own.size))
    assert covered == set(range(own.outputs))


@given(st.integers(0, 1 << 30))
@settings(max_examples=60)
def test_tiles_fit_the_memories(seed: int) -> None:
    rng = random.Random(seed)
    planes, room = rng.randint(1, 70), rng.choice((1500, 6000, 20000))
    pool = pool_of(axis(rng, rng.randint(1, 90)), axis(rng, rng.randint(1, 90)), planes)
    rows, cols = pool.rows.outputs, pool.cols.outputs
    made = cut_of(
        pool, planes, Results(cols + (rows > 1) * rng.randint(0, 1), rows * (cols + 1)), TEST, room, False
    )
    whole = (made.planes, made.rows, made.cols) == (planes, rows, cols)
    places = 1 if whole else 2
    assert places * (made.image) <= room
    assert places * made.results <= TEST.out_bytes
    assert max(made.results, made.pitch) <= LONGEST
    assert made.planes == 1 or (made.all_rows and made.cols == cols)
    assert made.apart % TEST.store_bytes == 0


def test_rows_that_start_at_words_of_the_port_are_told_by_their_gaps() -> None:
    pool = pool_of(Axis(9, 3), Axis(13, 3), 4)
    dense = cut_of(pool, 4, Results(11, 77), TEST, 8000, False)
    padded = cut_of(pool, 4, Results(16, 7 * 16), TEST, 8000, False)
    assert (dense.planes, dense.apart, dense.results) == (4, 0, 4 * 77)
    assert (padded.planes, padded.apart, padded.results) == (4, 16, 4 * 7 * 16)


def test_windows_that_do_not_fit_are_refused_with_their_size() -> None:
    pool = pool_of(Axis(300, 300), Axis(301, 300))
    with pytest.raises(InputError, match="operator0: the 90000 bytes of pixels of an output must fit 5000"):
        cut_of(pool, 1, Results(2, 2), TEST, 5000, False)


def computed(
    builder: Builder, config: MachineConfig = TEST
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], list[Cut]]:
    """What the programs leave by the meaning of instructions in any order, what they should, and tiles."""
    network = builder.network()
    inputs = reference.random_inputs(network, np.random.default_rng(1))
    (stage,) = compile_network(network, config)
    assert isinstance(stage, Compiled)
    compiled = stage
    memory = np.zeros(1 << 20, np.uint8)
    images = [*compiled.constants, *((h.address, h.image(inputs[n])) for n, h in compiled.inputs.items())]
    for address, data in images:
        memory[address : address + len(data)] = data
    Machine(config, compiled.programs, memory, seed=3).run()
    found = {n: h.extract(memory[h.address : h.address + h.size]) for n, h in compiled.outputs.items()}
    cuts = [p.cut for p in compiled.parts if isinstance(p, LoweredPool)]
    return found, reference.run(network, inputs), cuts


def test_channels_rows_and_columns_are_cut_and_computed() -> None:
    builder = Builder()
    builder.pool((2, 7), Axis(16, 2, 1, 1, 1), Axis(12, 3, 1, 2, 1))
    builder.pool((1, 1), Axis(80, 3, 3, 1, 1), Axis(120, 3, 3, 1, 1), "uint8")
    builder.pool((1, 1), Axis(30, 30), Axis(1200, 1))
    found, wanted, cuts = computed(builder)
    assert 1 < cuts[0].planes < 14
    assert cuts[1].planes == 1
    assert not cuts[1].all_rows
    assert cuts[2].cols < 1200
    assert all(np.array_equal(found[n], wanted[n]) for n in wanted)


def test_results_between_others_are_computed() -> None:
    builder = Builder()
    builder.pool((1, 3), Axis(6, 2), Axis(11, 4), padded=3)
    builder.pool((1, 2), Axis(10, 7, 1, 3, 3), Axis(9, 5), padded=2)
    found, wanted, cuts = computed(builder)
    assert [cut.apart for cut in cuts] == [8, 8]
    assert all(
        np.array_equal(o.output.of(found[o.output.tensor]), o.output.of(wanted[o.output.tensor]))
        for o in builder.operators
    )


def test_loops_with_lanes_take_channels_rows_and_columns_of_any_size() -> None:
    builder = Builder()
    builder.pool((2, 7), Axis(17, 3, 2, 1, 1), Axis(21, 3, 2, 1, 1))
    builder.pool((1, 1), Axis(80, 3, 2), Axis(120, 3, 2, 2, 0), "uint8")
    builder.pool((1, 1), Axis(7, 3, 1, 1, 1), Axis(1500, 2, 2, 0, 1))
    builder.pool((1, 3), Axis(9, 3, 1, 1, 1), Axis(24, 3, 1, 1, 1), padded=3)
    builder.pool((1, 4), Axis(16, 2, 2, 1), Axis(16, 2, 2, 1))  # the last pixel of a row is in no window
    builder.pool((1, 3), Axis(17, 2, 2), Axis(17, 2, 2))
    builder.pool((2, 3), Axis(4, 4), Axis(6, 2, 3))
    found, wanted, cuts = computed(builder, WIDE)
    assert [cut.lanes for cut in cuts] == [8, 8, 8, 8, 8, 8, 1]
    assert 1 < cuts[0].planes < 14
    assert not cuts[1].all_rows
    assert cuts[2].cols < 750
    assert all(
        np.array_equal(o.output.of(found[o.output.tensor]), o.output.of(wanted[o.output.tensor]))
        for o in builder.operators
    )


def test_a_full_disk_is_no_reason_to_refuse_a_loop_or_an_operator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(path: Path, text: str) -> None:
        raise unwritable(path.parent, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    def refused() -> None:
        forget_configurations()
        with monkeypatch.context() as patch:
            patch.setattr(mappings, "write", full)
            with pytest.raises(UnwritableError, match="No space left on device"):
                compile_network(network, WIDE)
        forget_configurations()

    monkeypatch.setenv("HEALD_CACHE", str(tmp_path))
    builder = Builder()
    builder.pool((1, 2), Axis(12, 3, 1), Axis(12, 3, 1))
    network = builder.network()
    refused()
    with monkeypatch.context() as patch:
        patch.setattr(wide, "possible", lambda *_: False)
        compile_network(network, WIDE)
    refused()  # the loop without lanes is in the cache now, the one with lanes cannot be kept
