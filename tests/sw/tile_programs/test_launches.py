"""Launches of the CGRA: addresses of configurations and arrays, effects, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from cosim.models.functional import Memories, execute
from hw.config import load
from hw.errors import InputError
from hw.fabric import load as load_fabric
from hw.fabric.bitstream import ArrayEntry
from sw.cgra.search import map_graphs
from sw.dfg.graph import Graph
from sw.dfg.python import parse_kernel
from sw.dfg.transform import fuse_constants
from sw.ir.expression import Const
from sw.ir.parse import parse_program
from sw.ir.walk import instructions
from sw.tile_programs import Bound, bind
from sw.tile_programs.stated import Launches

FABRIC = load_fabric("mesh4x4", (2, 2))
GRID = load("test", {"scratch_bytes": 8192}).replace(cgra=FABRIC)
#: Elements of x, and words of the configuration's buffer.
SIZE, WORDS = 12, 128

BUFFERS = f"""
    bits: Buffer[{WORDS}, uint32, memory]
    x: Buffer[{SIZE}, int32, memory]
    y: Buffer[{SIZE}, int32, memory]
    first: Buffer[6, int8, scratch]
    c: Buffer[{WORDS}, uint32, scratch]
    xs: Buffer[{SIZE}, int32, scratch]
    ys: Buffer[{SIZE}, int32, out]
    g: Buffer[1, int8, grid]
"""
LAUNCH = "L = cgra(bitstream=c, iterations=n, live0=3, live1=0, read=xs, write=ys)"
TEXT = ["load_c(bits, c)", "load_c(x, xs)", LAUNCH, "S = store_out(source=ys[0:n], memory=y[0:n])"]


def bound(*lines: str, n: int = SIZE) -> Bound:
    body = "\n".join(f"    {line}" for line in lines)
    return bind(parse_program(f"@program\ndef p(n: int[0, 13]):{BUFFERS}{body}\n", "f.py"), GRID, {"n": n})


def tripled() -> Graph:
    text = "def f(n, a, x, y):\n    for i in range(n):\n        y[i] = a * x[i] + i\n"
    return fuse_constants(parse_kernel(text, "f").loops[0].graph)


def contents(made: Bound) -> dict[str, np.ndarray]:
    """Buffers in memory: a configuration for the places of the arrays, and numbers."""
    graph = tripled()
    places = {
        name: ArrayEntry(space, 0, made.places[at].base, SIZE)
        for name, at, space in (("x", "xs", 1), ("y", "ys", 2))
        if at in made.places
    }
    words = map_graphs([graph], FABRIC)[graph].words(places)
    bits = np.zeros(WORDS, np.uint32)
    bits[: len(words)] = words
    return {"bits": bits, "x": np.arange(5, 5 + SIZE, dtype=np.int32), "y": np.zeros(SIZE, np.int32)}


def run(made: Bound, held: dict[str, np.ndarray]) -> np.ndarray:
    """What a sequential execution leaves in y."""
    memory = np.zeros(made.size, np.uint8)
    for name, place in made.memory.items():
        memory[place.address : place.address + place.size] = place.image(held[name])
    state = Memories(GRID, memory, strict=True)
    execute(made.program, state, stated=Launches(made.places, GRID).stated)
    place = made.memory["y"]
    found: np.ndarray = place.extract(state.memory[place.address : place.address + place.size])
    return found


def test_a_launch_computes_what_its_configuration_means() -> None:
    for n in (1, 5, SIZE):
        made = bound(*TEXT, n=n)
        held = contents(made)
        expected = np.where(np.arange(SIZE) < n, 3 * held["x"] + np.arange(SIZE), 0)
        assert run(made, held).tolist() == expected.tolist()


def test_a_configuration_is_an_address_in_units_of_16_bytes() -> None:
    made = bound("load_c(x, xs)", *TEXT)
    launch = next(s for s in instructions(made.program) if s.label == "L")
    assert dict(launch.operands)["bitstream"] == Const(made.places["c"].base // 16)
    assert [r.buffer for r in launch.reads] == ["xs", "c"]  # type: ignore[union-attr]


def test_a_kept_configuration_is_the_one_before() -> None:
    bring = "cgra(bitstream=c, iterations=0, live0=0, live1=0, write=g)"
    keep = LAUNCH.replace("bitstream=c", "bitstream=65535").replace("read=xs", "read=[xs, g]")
    made = bound(*TEXT[:2], bring, keep, TEXT[3])
    held = contents(made)
    assert run(made, held).tolist() == (3 * held["x"] + np.arange(SIZE)).tolist()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["cgra(bitstream=x, iterations=1, live0=0, live1=0, write=ys)"], "x in space memory as bitstream"),
        (["cgra(bitstream=4, iterations=1, live0=0, live1=0, read=x)"], "read= of x in space memory"),
        (["cgra(bitstream=4, iterations=1, live0=0, live1=0, write=xs)"], "write= of xs in space scratch"),
        (
            ["load_c(bits, c)", LAUNCH.replace("=c,", "=c[1:],")],
            "a configuration at byte 4 of the scratchpad",
        ),
        (["store_out(source=xs, memory=y)"], "xs in space scratch as source of store_out"),
    ],
)
def test_what_no_launch_can_do_is_refused(lines: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bound(*lines)


@pytest.mark.parametrize(
    ("changes", "spoil", "message"),
    [
        ({"read=xs": "read=xs[0:4]"}, None, r"a read of byte \d+ of the scratchpad, which is in no region"),
        (
            {"write=ys": "write=ys[0:4]"},
            None,
            r"a write of byte 16 of the output buffer, which is in no region",
        ),
        ({}, ("bits", 7), "a bitstream at 0x0 of the scratchpad that is refused"),
        (
            {"iterations=n": "iterations=n + 1"},
            None,
            r"an access outside of its array or table by PE \(\d, \d\)",
        ),
        ({"bitstream=c": "bitstream=65535", "read=xs": "read=[xs, g]"}, None, "a launch that keeps"),
    ],
)
def test_what_a_launch_must_not_do_is_told(
    changes: dict[str, str], spoil: tuple[str, int] | None, message: str
) -> None:
    line = LAUNCH
    for old, new in changes.items():
        line = line.replace(old, new)
    made = bound(*TEXT[:2], line, TEXT[3])
    held = contents(made)
    if spoil:
        held[spoil[0]][spoil[1]] ^= 1
    with pytest.raises(InputError, match=message):
        run(made, held)
