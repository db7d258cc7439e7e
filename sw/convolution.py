"""A convolution in the compiler: sizes, types, zero points, strides, padding, dilation, groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hw.errors import InputError
from sw.patches import Axis, Patches
from sw.problem import Product, check_operand, drawn


@dataclass(frozen=True)
class Convolution:
    """Y[n, o, r, c] = sum of (W[o, i, kr, kc] - zero_a) * (X[n, i, y, x] - zero_b), in int32.

    As for a product, operand A is the weights [out, in / groups, kernel rows, kernel columns] and B the
    images [images, channels, rows, columns]; pixels outside the image count as `zero_b`. Raises
    `InputError` for sizes that do not make a convolution, and for invalid types or zero points.
    """

    images: int
    channels: int
    rows: Axis
    cols: Axis
    out_channels: int
    type_a: str = "int8"
    type_b: str = "int8"
    zero_a: int = 0
    zero_b: int = 0
    groups: int = 1

    def __post_init__(self) -> None:
        for name in ("images", "channels", "out_channels", "groups"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} of a convolution must be at least 1, not {getattr(self, name)}")
        for name, axis in (("rows", self.rows), ("columns", self.cols)):
            for what in ("size", "kernel", "stride", "dilation"):
                if getattr(axis, what) < 1:
                    raise InputError(f"{what} along {name} must be at least 1, not {getattr(axis, what)}")
            if min(axis.before, axis.after) < 0:
                raise InputError(
                    f"padding along {name} must be at least 0, not {axis.before} and {axis.after}"
                )
            if axis.outputs < 1:
                raise InputError(
                    f"the kernel covers {axis.reach} {name}, the padded image must have as many, "
                    f"not {axis.size + axis.before + axis.after}"
                )
        for name in ("channels", "out_channels"):
            if getattr(self, name) % self.groups:
                raise InputError(
                    f"{name} must be a multiple of the {self.groups} groups, not {getattr(self, name)}"
                )
        Product(1, 1, 1, self.type_a, self.type_b, self.zero_a, self.zero_b)

    @property
    def patches(self) -> Patches:
        """The patches of one image and group."""
        return Patches(self.rows, self.cols, self.channels // self.groups)

    @property
    def m(self) -> int:
        """Rows of each group's product: output channels."""
        return self.out_channels // self.groups

    @property
    def k(self) -> int:
        """Depth of each product: channels times kernel elements."""
        return self.patches.channels * self.patches.kernel

    @property
    def n(self) -> int:
        """Columns of the product of one image: output pixels."""
        return self.patches.outputs

    @property
    def shape_a(self) -> tuple[int, ...]:
        """Shape of the weights."""
        return self.out_channels, self.patches.channels, self.rows.kernel, self.cols.kernel

    @property
    def shape_b(self) -> tuple[int, ...]:
        """Shape of the images."""
        return self.images, self.channels, self.rows.size, self.cols.size

    @property
    def shape_c(self) -> tuple[int, ...]:
        """Shape of the result."""
        return self.images, self.out_channels, self.rows.outputs, self.cols.outputs

    @property
    def macs(self) -> int:
        """Number of multiply-accumulates, including those on padding."""
        return self.images * self.groups * self.m * self.k * self.n

    def __str__(self) -> str:
        r, c = self.rows, self.cols
        image = f"{self.images}x{self.channels}x{r.size}x{c.size}"
        text = f"conv {image} * {self.out_channels}x{r.kernel}x{c.kernel}"
        if (r.stride, c.stride) != (1, 1):
            text += f" /{r.stride}" + (f"x{c.stride}" if c.stride != r.stride else "")
        return text + (f" in {self.groups} groups" if self.groups > 1 else "")

    def check(self, a: np.ndarray, b: np.ndarray) -> None:
        """Raises `InputError` unless the arrays have the shapes and types of weights and images."""
        check_operand("W", a, self.type_a, self.shape_a)
        check_operand("X", b, self.type_b, self.shape_b)

    def reference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Computes the convolution with NumPy in int32; sums wrap at 32 bits, as on the machine.

        Computed in float64, which is exact here: no sum reaches 2^53 for depths below 1.3e11.
        """
        self.check(a, b)
        r, c, g = self.rows, self.cols, self.groups
        padded = np.pad(
            b.astype(np.float64) - self.zero_b, ((0, 0), (0, 0), (r.before, r.after), (c.before, c.after))
        )
        views = np.lib.stride_tricks.sliding_window_view(padded, (r.reach, c.reach), (2, 3))
        views = views[:, :, :: r.stride, :: c.stride, :: r.dilation, :: c.dilation]
        weights = (a.astype(np.float64) - self.zero_a).reshape(g, self.m, self.k)
        # One image at a time: patches take much memory.
        sums = [weights @ view.transpose(0, 3, 4, 1, 2).reshape(g, self.k, self.n) for view in views]
        exact: np.ndarray = np.stack(sums).reshape(self.shape_c).astype(np.int64).astype(np.int32)
        return exact

    def random(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draws weights and images over the whole range of their types."""
        return drawn(rng, self.type_a, self.shape_a), drawn(rng, self.type_b, self.shape_b)
