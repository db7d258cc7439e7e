"""Geometry of a two-dimensional convolution, and of the image region that a tile of outputs covers."""

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
        """Pixels from the first to the last one that a kernel covers."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def outputs(self) -> int:
        """Number of outputs along the axis; below 1 if the kernel does not fit the padded image."""
        return (self.size + self.before + self.after - self.reach) // self.stride + 1

    @property
    def used(self) -> int:
        """Number of pixels along the axis that any output uses."""
        places = {
            r * self.stride + i * self.dilation for r in range(self.outputs) for i in range(self.kernel)
        }
        return sum(0 <= place - self.before < self.size for place in places)

    def read(self, tile: int) -> int:
        """Pixels without padding that tiles of `tile` outputs cover, summed over all tiles."""
        read = 0
        for first in range(0, self.outputs, tile):
            start = first * self.stride - self.before
            end = start + self.span(min(tile, self.outputs - first))
            read += max(0, min(end, self.size) - max(start, 0))
        return read

    def span(self, outputs: int) -> int:
        """Pixels, including padding, that `outputs` consecutive outputs cover."""
        return (outputs - 1) * self.stride + self.reach


@dataclass(frozen=True)
class Patches:
    """The patches of one image: two axes and the channels."""

    rows: Axis
    cols: Axis
    channels: int

    @property
    def outputs(self) -> int:
        """Number of outputs of one channel."""
        return self.rows.outputs * self.cols.outputs

    @property
    def kernel(self) -> int:
        """Number of kernel elements, which are the depth steps of one channel."""
        return self.rows.kernel * self.cols.kernel

    @property
    def pixels(self) -> int:
        """Number of pixels of all channels."""
        return self.rows.size * self.cols.size * self.channels
