"""Random fabrics with different kinds of PEs."""

from __future__ import annotations

import random
from dataclasses import replace

from hw.fabric import OPERATIONS, Fabric, PEKind, Unit
from hw.fabric.toml import regular

#: Operations that a kind may lack.
_LACKED = ("shl", "clz", "select", "lt", "min", "mul_shift_round")
#: How often a kind of PE has a unit.
_SHARES = ((Unit.ALU, 0.85), (Unit.MULTIPLIER, 0.6), (Unit.TABLE, 0.45), (Unit.MEMORY, 0.55))


def random_fabric(seed: int, lanes: int = 1) -> Fabric:
    """A grid of 2 x 2 to 6 x 6 PEs of up to five kinds, with regular links, some of them missing.

    Most kinds have so many lanes, where there are several; the first one surely does.
    """
    rng = random.Random(f"fabric {seed}")
    rows, cols = rng.randint(2, 6), rng.randint(2, 6)
    kinds = tuple(_kind(rng, f"kind{i}") for i in range(rng.randint(2, 5)))
    if lanes > 1:
        kinds = tuple(_with_lanes(rng, kind, lanes, i == 0) for i, kind in enumerate(kinds))
    styles = rng.choice((("mesh",), ("mesh",), ("torus",), ("mesh", "diagonal"), ("torus", "diagonal")))
    links = sorted({link for style in styles for link in regular(style, rows, cols)})
    if rng.random() < 0.6:
        links = [link for link in links if rng.random() >= 0.08]
    return Fabric(
        f"random{seed}",
        rows,
        cols,
        tuple(rng.choice(kinds) for _ in range(rows * cols)),
        tuple(links),
        rng.choice((4, 8, 16, 32)),
        rng.choice((8, 16, 64)),
        rng.random() < 0.4,
    )


def _kind(rng: random.Random, name: str) -> PEKind:
    units = frozenset(unit for unit, share in _SHARES if rng.random() < share)
    if Unit.MULTIPLIER in units and rng.random() < 0.7:
        units |= {Unit.QUANTISER}
    words = rng.choice((8, 24, 64)) if Unit.TABLE in units else 0
    whole = PEKind(name, units, rng.randint(0, 4), words)
    lacked = [name for name in _LACKED if whole.executes(OPERATIONS[name]) and rng.random() < 0.2]
    return replace(whole, without=frozenset(lacked))


def _with_lanes(rng: random.Random, kind: PEKind, lanes: int, surely: bool) -> PEKind:
    if not surely and rng.random() < 0.35:
        return kind
    across = {Unit.LANES} if rng.random() < 0.7 else set()
    return replace(kind, units=kind.units | across, lanes=lanes)
