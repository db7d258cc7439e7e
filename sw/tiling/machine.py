"""Chooses the blocking of a problem on a machine.

The planner (`sw.tiling.plan`) minimises the time of array and loads alone. A machine also stores, fills and
drains its pipeline, cuts blocks at edges, and passes tiles between engines. The estimate
(`sw.tiling.estimate`) accounts for these, so that it agrees with the machine and the best estimate is the
best blocking there. As a rule, one tile takes half of each buffer and of the accumulator, so that the next is
loaded, multiplied or stored meanwhile (`sw.tiling.candidates`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hw.config import MachineConfig
from hw.errors import InputError
from hw.isa import KERNEL_BITS, SIZE_BITS
from sw.tiling.blocking import Blocking, Extent, pitch
from sw.tiling.candidates import candidates, inner_cuts
from sw.tiling.estimate import Estimate, Ports, estimated, refined, widths
from sw.tiling.uniform import uniform

#: Cost per step, per inner tile and per byte beyond the estimated time. It makes larger tiles win when times
#: are close: they need fewer instructions and tolerate memory stalls better.
STEP_PENALTY, INNER_PENALTY, TRAFFIC_PENALTY = 16, 2, 1 / 32
#: Minimum saving (share of the time) for a partition that fills the accumulator, since storer and array then
#: contend for it.
SINGLE_PENALTY = 0.02
#: Number of partitions for which inner tiles are tried, and of blockings that are refined.
FINALISTS = 6
_LARGEST_SIZE = (1 << SIZE_BITS) - 1


@dataclass(frozen=True)
class Choice:
    """A blocking with its estimate; choices are compared by `score`."""

    blocking: Blocking
    estimate: Estimate
    score: float


def best(
    extent: Extent, config: MachineConfig, bandwidth: Mapping[str, int] | None = None, count: int = 1
) -> list[Choice]:
    """The `count` best blockings by estimated time, best first.

    `bandwidth`, in bytes per cycle, overrides the width of slower ports. If the blocking that all large
    products share (`sw.tiling.uniform`) is no slower, it comes first. Raises `InputError` if not even the
    smallest tile fits half of the buffers.
    """
    _check_geometry(extent)
    ports = Ports(extent, config, bandwidth)
    choices = [judged(ports, t) for t in candidates(extent, config, single=False)]
    # Partitions that fill the accumulator save loads, which helps only if the array waits for loads.
    first = min(choices, key=lambda c: c.score, default=None)
    if first is None or first.estimate.waits > SINGLE_PENALTY * first.estimate.cycles:
        choices += [judged(ports, t) for t in candidates(extent, config, single=True)]
    if not choices:
        raise InputError(_nothing_fits(extent, config))
    choices.sort(key=lambda c: c.score)
    # Inner tiles mostly affect the drain, so only the best partitions are cut.
    most = FINALISTS + count
    for choice in choices[:most]:
        choices += [judged(ports, t) for t in inner_cuts(config, choice.blocking)]
    choices.sort(key=lambda c: c.score)
    final = [judged(ports, c.blocking, c.estimate) for c in choices[:most]]
    final.sort(key=lambda c: c.score)
    shared = uniform(extent, config)
    if shared is not None:
        choice = judged(ports, shared, estimated(ports, shared))
        if choice.estimate.cycles <= final[0].estimate.cycles:
            final = [choice, *(c for c in final if c.blocking != shared)]
    return final[:count]


def array_sets_pace(
    extent: Extent, config: MachineConfig, t: Blocking, bandwidth: Mapping[str, int] | None = None
) -> bool:
    """Whether the array is estimated to be busier than the storer."""
    estimate = estimated(Ports(extent, config, bandwidth), t)
    return estimate.stores < estimate.ideal + estimate.ragged


def judged(ports: Ports, t: Blocking, refine: Estimate | None = None) -> Choice:
    """A blocking with its estimate, refined if one is given, and its score."""
    estimate = refined(ports, t, refine) if refine else estimated(ports, t)
    return Choice(t, estimate, estimate.cycles + _penalty(ports.extent, t, estimate))


def _check_geometry(extent: Extent) -> None:
    if extent.patches is None:
        return
    limit = (1 << KERNEL_BITS) - 1
    for name, axis in (("rows", extent.patches.rows), ("columns", extent.patches.cols)):
        for what in ("kernel", "stride", "dilation"):
            if getattr(axis, what) > limit:
                raise InputError(f"{what} along {name} must be at most {limit}, not {getattr(axis, what)}")
        for what in ("size", "before"):
            if getattr(axis, what) > _LARGEST_SIZE // 2:
                raise InputError(
                    f"{what} along {name} must be at most {_LARGEST_SIZE // 2}, not {getattr(axis, what)}"
                )


def _nothing_fits(extent: Extent, config: MachineConfig) -> str:
    d = config.derived
    kernel = extent.patches.kernel if extent.patches else 1
    need_a = min(extent.m, config.rows) * kernel
    need_b = config.cols * pitch(d.buffer_b, True, 2 if extent.patches else 1, kernel)
    return (
        f"buffers must hold two tiles: a tile of one block and {kernel} step{'s' * (kernel > 1)} of K needs "
        f"{need_a} bytes in half of buffer A (it has {config.buffer_a_bytes // 2}), {need_b} in half of "
        f"buffer B ({config.buffer_b_bytes // 2}) and {config.rows * d.acc_word_bytes} in half of the "
        f"accumulator ({config.acc_bytes // 2})"
    )


def _penalty(extent: Extent, t: Blocking, estimate: Estimate) -> float:
    """The weight of steps, array operations and traffic when blockings are compared."""
    partitions = -(-extent.m // t.partition_m) * sum(count for _, count in widths(extent, t))
    steps = extent.batch // extent.images * partitions * -(-extent.k // t.partition_k)
    traffic = estimate.loads_a + estimate.loads_b
    risk = SINGLE_PENALTY * estimate.cycles if t.single_c else 0
    return risk + STEP_PENALTY * steps + INNER_PENALTY * steps * (t.parts - 1) + TRAFFIC_PENALTY * traffic
