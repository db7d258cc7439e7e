"""Runs launches of passes in sequence: by their graphs, and by their bitstreams."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from cosim.models.functional import Memories
from hw.config import MachineConfig, load
from hw.fabric import load as load_fabric
from hw.fabric.bitstream import to_bytes
from hw.isa import INSTRUCTIONS
from sw.ir.expression import Expr, evaluate
from sw.kernels.configuration import Configured, configure
from sw.kernels.passes import Pass, Span, Value
from sw.kernels.quickest import quickest
from sw.layout import round_up
from sw.operators.rows import RowTile
from tests.sw.kernels.launching import launch

#: Bytes of the spaces that tiles are in; configurations lie behind them.
SIZE = 1 << 15
#: What a space holds where nothing was written.
UNKNOWN = 0x77
Bytes = npt.NDArray[np.uint8]


def number(value: Value, names: dict[str, int] | None = None) -> int:
    """The number that an expression is."""
    return evaluate(value, names or {}) if isinstance(value, Expr) else value


def spaces() -> dict[str, Bytes]:
    """Spaces in which nothing was written."""
    return {name: np.full(SIZE, UNKNOWN, np.uint8) for name in ("acc", "scratch", "out")}


def by_graph(passes: Iterable[Pass], held: dict[str, Bytes]) -> None:
    """Execute passes by the meaning of their graphs; every access must lie inside of what the pass states."""
    for one in passes:
        before = {name: space.copy() for name, space in held.items()}
        for name, space in held.items():
            stated = [s for s in (*one.reads, *one.writes) if s.space == name]
            hidden = ~mask(stated)
            space[hidden] = np.random.default_rng(1).integers(0, 256, int(hidden.sum()))
        given = {name: number(one.scalars[name]) for name in one.kernel.scalars}
        mixed = {name: space.copy() for name, space in held.items()}
        launch(one.kernel, held, given, number(one.iterations))
        for name, space in held.items():
            written = mask([s for s in one.writes if s.space == name])
            assert np.array_equal(space[~written], mixed[name][~written]), (one.kernel.name, name)
            space[~written] = before[name][~written]


def mask(spans: Iterable[Span]) -> npt.NDArray[np.bool_]:
    """The bytes of a space in any of the spans."""
    found = np.zeros(SIZE, np.bool_)
    for span in spans:
        start = number(span.start)
        found[start : start + number(span.size)] = True
    return found


def machine(fabric: str) -> MachineConfig:
    """A machine with room for the tiles and a configuration."""
    settings = {"scratch_bytes": 2 * SIZE, "out_bytes": SIZE, "load_c_bytes": 32, "store_bytes": 16}
    grid = load_fabric(fabric)
    return load("test", settings | {"cols": max(4, grid.lanes)}).replace(cgra=grid)


def lanes_of(config: MachineConfig) -> int:
    """Lanes of a machine's grid."""
    assert config.cgra is not None
    return config.cgra.lanes


def chosen_loops(
    choices: Iterable[Sequence[Pass]], config: MachineConfig
) -> tuple[tuple[int, ...], tuple[Configured, ...]]:
    """The numbers of the loops that the compiler takes, and their configurations."""
    found = [quickest(loops, config) for loops in choices]
    return tuple(i for i, _ in found), tuple(c for _, c in found)


def by_words(
    passes: Iterable[Pass],
    held: dict[str, Bytes],
    config: MachineConfig,
    configured: Sequence[Configured] = (),
) -> None:
    """Execute passes by the sequential execution's grid, from their bitstreams."""
    passes = list(passes)
    memories = Memories(config, np.zeros(64, np.uint8))
    memories.scratch[:SIZE] = held["scratch"]
    memories.out[:SIZE] = held["out"]
    spec = INSTRUCTIONS["cgra"]
    names = ["live0", "live1", *(f"cgra_{i}" for i in range(12))]
    for one, made in zip(passes, configured or [configure(p.kernel, config) for p in passes], strict=True):
        assert made.kernel == one.kernel
        assert made.verified, made.differences
        words = np.frombuffer(to_bytes(made.words), np.uint8)
        memories.scratch[SIZE:][: len(words)] = words
        operands = dict.fromkeys([*(o.name for o in spec.operands), *spec.parameters], 0)
        operands |= {"bitstream": SIZE // 16, "iterations": number(one.iterations)}
        scalars = (number(one.scalars[name]) & 0xFFFFFFFF for name in one.kernel.scalars)
        operands |= dict(zip(names, scalars, strict=False))
        memories.perform("cgra", operands)
    held["out"][:] = memories.out[:SIZE]


def row_tile(
    values: np.ndarray, fill: int, held: dict[str, Bytes], lanes: int = 1, apart: int = 0
) -> RowTile:
    """A tile of rows, put into the scratchpad, padded with `fill`; its places are as bad as they may be."""
    rows, columns = values.shape
    out = 16 + 16 * rows + 4 if lanes == 1 else round_up(16 + 16 * rows, 4 * lanes) + 4 * lanes
    found = RowTile(rows, columns, 64, 16, out, apart, lanes)
    padded = np.full((rows, found.pitch), fill, values.dtype)
    padded[:, :columns] = values
    held["scratch"][64 : 64 + padded.size] = padded.reshape(-1).view(np.uint8)
    return found


def row_results(tile: RowTile, held: dict[str, Bytes], element: str) -> np.ndarray:
    """What a tile's passes left, without padding."""
    start, rows, apart = number(tile.out), number(tile.rows), tile.apart or tile.pitch
    return held["out"][start : start + rows * apart].reshape(rows, apart)[:, : tile.columns].view(element)
