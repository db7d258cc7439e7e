"""Convolutions with few output channels per group: adjacent output rows fill the rows of the array.

The output channels of one group would leave most rows of the array empty. So several successive output rows,
a band, share patches tall enough for all of them. Each output row has its own row of weights: the kernel,
shifted down by its position in the band, with zeros around it. A tile holds a band of several groups. Each
group is a product of its own, but loads, launches and stores serve all groups of the tile.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hw.config import MachineConfig
from hw.isa import KERNEL_BITS
from sw.layout import round_up
from sw.patches import Axis, Patches
from sw.tiling.blocking import Blocking, Extent, Resident, pitch
from sw.tiling.estimate import Ports, estimated
from sw.tiling.machine import Choice, judged

#: Turns that a warp needs for each of several operations of a tile in a loop.
TURNS = 6
#: Number of tiles whose estimate is refined.
FINALISTS = 8


@dataclass(frozen=True)
class Bands:
    """A convolution in bands: `tall` output rows each, with `groups` of the `whole` groups in a tile.

    `patches` are those of one group, and `out` its output channels.
    """

    patches: Patches
    out: int
    whole: int
    images: int
    config: MachineConfig
    tall: int
    groups: int

    @property
    def number(self) -> int:
        """Bands per image; the last one may have fewer output rows."""
        return -(-self.patches.rows.outputs // self.tall)

    @functools.cached_property
    def rows(self) -> Axis:
        """The bands as outputs along an axis, with the image rows that all output rows of a band use."""
        axis = self.patches.rows
        step = math.gcd(axis.stride, axis.dilation)
        reach = (self.tall - 1) * axis.stride + axis.reach
        stride = self.tall * axis.stride
        after = (self.number - 1) * stride + reach - axis.size - axis.before
        return Axis(axis.size, (reach - 1) // step + 1, stride, axis.before, after, step)

    @property
    def depth(self) -> int:
        """Depth of a group's product."""
        return self.patches.channels * self.rows.kernel * self.patches.cols.kernel

    @property
    def lines(self) -> int:
        """Rows of a group's product: every output row of the band, for every output channel."""
        return self.out * self.tall

    @property
    def lanes(self) -> int:
        """Rows of A that a group takes, in whole blocks."""
        return round_up(self.lines, self.config.rows)

    @property
    def pitches(self) -> tuple[int, int]:
        """Columns between the blocks of A, and those of B."""
        d = self.config.derived
        a = pitch(d.buffer_a, True, self.groups * self.lanes // self.config.rows, self.depth)
        return a, pitch(d.buffer_b, True, 2, self.groups * self.depth)

    @property
    def extent(self) -> Extent:
        """The problem to tile, with groups as batches."""
        patches = dataclasses.replace(self.patches, rows=self.rows)
        lanes, batch = self.groups * self.lanes, self.whole // self.groups * self.images
        return Extent(lanes, patches.outputs, self.depth, True, False, batch, self.images, patches)

    @property
    def blocking(self) -> Blocking:
        """The blocking with whole rows and columns in a tile."""
        m, n = self.groups * self.lanes, self.patches.cols.outputs
        return Blocking(m, n, self.depth, m, n, True, Resident.WHOLE, Resident.TILE, 1, n)

    @property
    def tiles(self) -> int:
        """Number of tiles over all groups, images and bands."""
        return self.whole // self.groups * self.images * self.number

    @property
    def fits(self) -> bool:
        """Whether a tile fits half of the buffers and accumulator, and its kernel the operand fields."""
        c, axis = self.config, self.rows
        lanes, columns = self.groups * self.lanes, self.patches.cols.outputs
        (a, b), d = self.pitches, c.derived
        words = self.groups * self.lines * -(-columns // c.cols)
        return (
            max(axis.kernel, axis.stride) >> KERNEL_BITS == 0
            and 2 * (lanes // c.rows) * a <= d.buffer_a.columns
            and 2 * -(-columns // c.cols) * b <= d.buffer_b.columns
            and 2 * words <= d.acc_words
        )

    def choice(self, itemsize: int, bandwidth: Mapping[str, int], *, refine: bool) -> Choice:
        """The estimated time of array, loads and stores; `itemsize` is the size of a result in bytes."""
        ports = _BandPorts(self, itemsize, bandwidth)
        estimate = estimated(ports, self.blocking)
        found = judged(ports, self.blocking, estimate if refine else None)
        # Lower bound: no warp can issue faster than one operation per group in this time.
        least = self.whole * self.images * self.number * TURNS * self.config.derived.period
        return dataclasses.replace(found, score=max(found.score, least))


class _BandPorts(Ports):
    """Cycles of the memory ports for tiles of bands."""

    def __init__(self, bands: Bands, itemsize: int, bandwidth: Mapping[str, int]):
        super().__init__(bands.extent, bands.config, bandwidth)
        self.bands, self.itemsize = bands, itemsize

    def load_b(self, n: int, k: int, t: Blocking) -> float:
        """Loading the patches of all groups of a tile."""
        return super().load_b(n, k * self.bands.groups, t)

    def store(self, m: int, n: int, t: Blocking) -> float:
        """Storing a tile: output rows, channel by channel if an image has several bands."""
        b, size = self.bands, n * self.itemsize
        operations = b.groups * b.out if b.number > 1 else 1
        return max(
            self.beats("store", b.groups * b.lines, size, size),
            operations * TURNS * self.config.derived.period,
        )


def bands(patches: Patches, out: int, groups: int, images: int, config: MachineConfig) -> Iterator[Bands]:
    """Band tilings that fit: images divided about evenly, and group counts that divide all groups."""
    rows = patches.rows.outputs
    for tall in sorted({-(-rows // n) for n in range(1, rows + 1)} & set(range(1, config.rows + 1))):
        for own in range(1, groups + 1):
            if groups % own == 0:
                made = Bands(patches, out, groups, images, config, tall, own)
                if not made.fits:
                    break
                yield made
