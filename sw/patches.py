"""Geometry of a two-dimensional convolution, and of the part of an image that a tile of outputs covers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """One axis of a convolution: pixels, kernel, stride, padding before and after, dilation."""

    size: int
    kernel: int
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1

    @property
    def reach(self) -> int:
        """Pixels from the first to the last that a kernel covers."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def outputs(self) -> int:
        """Outputs along the axis; below 1 where the kernel does not fit the padded image."""
        return (self.size + self.before + self.after - self.reach) // self.stride + 1

    @property
    def used(self) -> int:
        """Pixels along the axis that any output uses."""
        places = {
            r * self.stride + i * self.dilation for r in range(self.outputs) for i in range(self.kernel)
        }
        return sum(0 <= place - self.before < self.size for place in places)

    def read(self, tile: int) -> int:
        """Pixels along the axis that tiles of so many outputs span, padding left out, all tiles together."""
        read = 0
        for first in range(0, self.outputs, tile):
            start = first * self.stride - self.before
            end = start + self.span(min(tile, self.outputs - first))
            read += max(0, min(end, self.size) - max(start, 0))
        return read

    def span(self, outputs: int) -> int:
        """Pixels, padding included, that so many successive outputs cover."""
        return (outputs - 1) * self.stride + self.reach


@dataclass(frozen=True)
class Patches:
    """The patches of one image: two axes and the channels."""

    rows: Axis
    cols: Axis
    channels: int

    @property
    def outputs(self) -> int:
        """Outputs of one channel."""
        return self.rows.outputs * self.cols.outputs

    @property
    def kernel(self) -> int:
        """Elements of the kernel, which are depth steps of one channel."""
        return self.rows.kernel * self.cols.kernel

    @property
    def pixels(self) -> int:
        """Pixels of all channels."""
        return self.rows.size * self.cols.size * self.channels
