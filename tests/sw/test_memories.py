"""Effects of operations on memory and buffers: padding, scratchpad, accumulator words, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from cosim.models.functional import Memories, OperationError
from hw import isa
from hw.config import load

TEST = load("test").replace(scratch_bytes=4096, out_bytes=4096, cgra=None)


def memories(strict: bool = False) -> Memories:
    memory = np.random.default_rng(4).integers(0, 256, 4096).astype(np.uint8)
    return Memories(TEST, memory, strict=strict)


def perform(state: Memories, name: str, **given: int) -> None:
    spec = isa.INSTRUCTIONS[name]
    state.perform(name, dict.fromkeys(spec.parameters, 0) | given)


def test_a_load_puts_rows_into_lanes_and_fills_what_memory_lacks() -> None:
    state = memories()
    sizes = {"outer": 5, "inner": 6, "load_stride": 10, "load_pitch": 9}
    pads = {"load_fill": 7, "load_pad_outer": 2, "load_pad_inner": 3}
    perform(state, "load_a", memory=3, target=1, **sizes, **pads)
    found = state.a[1 : 1 + 18].reshape(2, 9, 4).transpose(0, 2, 1).reshape(8, 9)[:7]
    wanted = np.full((7, 9), 7, np.uint8)
    for row in range(5):
        wanted[row, :6] = state.memory[3 + 10 * row : 9 + 10 * row]
    assert np.array_equal(found, wanted)
    assert state.moved == {"load_a": 30}


def test_transposing_loads_exchange_rows_and_lanes() -> None:
    state, other = memories(), memories()
    perform(state, "load_b_t", memory=0, target=0, outer=6, inner=4, load_stride=4, load_pitch=12)
    other.memory[:24] = state.memory[:24].reshape(6, 4).T.reshape(-1)
    perform(other, "load_b", memory=0, target=0, outer=4, inner=6, load_stride=6, load_pitch=12)
    assert np.array_equal(state.b[:6], other.b[:6])


def test_the_scratchpad_gives_back_what_was_loaded() -> None:
    state = memories(strict=True)
    perform(state, "load_c", memory=0, target=16, outer=3, inner=11, load_stride=20, load_pitch=16)
    move = {"source": 16, "rows": 3, "bytes": 11, "store_stride": 20, "store_pitch": 16}
    perform(state, "store_scratch", memory=2048, **move)
    for row in range(3):
        assert np.array_equal(state.memory[2048 + 20 * row :][:11], state.memory[20 * row :][:11])


def test_products_wrap_and_add() -> None:
    state = memories()
    for port in ("load_a", "load_b"):
        perform(state, port, memory=0, target=0, outer=3, inner=8, load_stride=8, load_pitch=8)
    pitches = {"gemm_a_pitch": 8, "gemm_b_pitch": 8, "gemm_c_pitch": 1}
    zeros = {"gemm_zero_a": 0x80, "gemm_zero_b": 5, "gemm_signed": 1}
    state.acc[:3] = np.iinfo(np.int32).max
    perform(state, "gemm_acc", a=0, b=0, c=0, k=8, gemm_m=3, gemm_n=3, **pitches, **zeros)
    rows = state.memory[:24].reshape(3, 8)
    wanted = (rows.view(np.int8).astype(np.int64) + 128) @ (rows.astype(np.int64) - 5).T + np.iinfo(
        np.int32
    ).max
    assert np.array_equal(state.acc[:3, :3], (wanted & 0xFFFFFFFF).astype(np.uint32).view(np.int32))
    assert state.macs == 72


_LOAD = {"memory": 0, "target": 0, "outer": 1, "inner": 8, "load_stride": 8, "load_pitch": 8}
_GEMM = {"a": 0, "b": 0, "c": 0, "k": 8, "gemm_m": 4, "gemm_n": 4}
_STORE = {"memory": 0, "source": 0, "rows": 1, "bytes": 16}


@pytest.mark.parametrize(
    ("name", "operands", "message"),
    [
        ("load_a", _LOAD | {"outer": 0}, "found outer = 0, inner = 8, expected at least 1"),
        ("load_a", _LOAD | {"target": 1017}, "found column of buffer A 1024, expected at most 1023"),
        ("load_a", _LOAD | {"memory": 4090}, "found bytes of memory up to 0x1002, expected up to 0x1000"),
        ("load_a_t", _LOAD, "found load_pitch = 8, expected 4 modulo 8"),
        ("load_a", _LOAD | {"inner": 65536}, "found inner = 65536, expected at most 65535"),
        ("load_c", _LOAD | {"target": 4090}, "found byte of the scratchpad 4097, expected at most 4095"),
        ("gemm", _GEMM | {"k": 0}, "found a product of 4 x 0 x 4, expected sizes of at least 1"),
        ("gemm", _GEMM, "found gemm_c_pitch = 0, expected at least 1"),
        ("gemm", _GEMM | {"c": 256}, "found word of the accumulator 256, expected at most 255"),
        ("store", _STORE | {"rows": 0}, "found rows = 0, bytes = 16, expected at least 1"),
        ("store_scratch", _STORE | {"source": 4}, "found source = 4, expected a multiple of 8"),
        ("store_out", _STORE, "found store_out, which needs a CGRA, expected an operation"),
    ],
)
def test_what_the_machine_stops_at_is_refused(name: str, operands: dict[str, int], message: str) -> None:
    with pytest.raises(OperationError) as error:
        perform(memories(), name, **operands)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "operands", "place"),
    [
        ("gemm", _GEMM | {"gemm_c_pitch": 1}, "buffer A"),
        ("store", _STORE, "the accumulator"),
        ("store_scratch", _STORE, "the scratchpad"),
    ],
)
def test_reading_what_nothing_wrote_is_refused_if_asked_for(
    name: str, operands: dict[str, int], place: str
) -> None:
    perform(memories(), name, **operands)
    with pytest.raises(OperationError, match=f"a read of {place} where nothing was written"):
        perform(memories(strict=True), name, **operands)


def test_what_lies_beside_a_product_in_a_word_counts_as_not_written() -> None:
    state = memories(strict=True)
    for port in ("load_a", "load_b"):
        perform(state, port, memory=0, target=0, outer=4, inner=8, load_stride=8, load_pitch=8)
    perform(state, "gemm", **(_GEMM | {"gemm_n": 3, "gemm_c_pitch": 1}))
    perform(state, "store", **(_STORE | {"bytes": 12}))
    with pytest.raises(OperationError, match="a read of the accumulator"):
        perform(state, "store", **_STORE)
