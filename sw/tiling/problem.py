"""The tiling problem: a matrix product or convolution, memories, buffers, array.

Sizes are in elements unless a name says bytes; bandwidths are in bytes per cycle. Convolutions are products
of weights and patches (source, paragraphs 261-280).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from hw.errors import InputError
from sw.convolution import Convolution
from sw.patches import Axis

#: Upper limits: of counts of elements and blocks and of bytes per element; and of capacities.
LARGEST_SIZE, LARGEST_CAPACITY = (1 << 31) - 1, 1 << 53
#: Slowest and fastest rate (bytes or MACs per cycle), which keep cycles representable as a float.
RATES = (1e-6, 1e15)

_CAPACITIES = ("buf_a", "buf_b", "acc_max")
_RATES = ("bw_a", "bw_b", "macs_per_cycle")
_SHAPE = ("m", "k", "n")
_CONVOLUTION = frozenset(("sn", "ic", "h", "w", "oc", "kh", "kw", "stride", "pad", "dilation"))


def convolution_of(
    *,
    sn: int,
    ic: int,
    h: int,
    w: int,
    oc: int,
    kh: int,
    kw: int,
    stride: int = 1,
    pad: int = 0,
    dilation: int = 1,
) -> Convolution:
    """`sn` images of `ic` x `h` x `w`, and `oc` kernels of `kh` x `kw`; `stride` etc. apply to both axes.

    Raises `InputError` for numbers out of range and for kernels larger than the padded image.
    """
    for name, value in list(locals().items()):
        _check_size(f"conv.{name}", value, 0 if name == "pad" else 1)
    rows, cols = (Axis(size, kernel, stride, pad, pad, dilation) for size, kernel in ((h, kh), (w, kw)))
    for image, axis in zip("hw", (rows, cols), strict=True):
        if axis.outputs < 1:
            raise InputError(
                f"conv.k{image} must fit the padded image: {axis.kernel} with dilation "
                f"{dilation} covers {axis.reach}, conv.{image} = {axis.size} with "
                f"conv.pad = {pad} on both sides is {axis.size + 2 * pad}"
            )
    made = Convolution(sn, ic, rows, cols, oc)
    for name, size in zip(_SHAPE, _shape(made), strict=True):
        if size > LARGEST_SIZE:
            raise InputError(f"conv makes a product of {name} = {size}, the most is {LARGEST_SIZE}")
    return made


def _shape(conv: Convolution) -> tuple[int, int, int]:
    """The equivalent product (m, k, n): A is the weights, B the patches of all images."""
    return conv.m, conv.k, conv.images * conv.n


@dataclass(frozen=True, kw_only=True)
class TilingProblem:
    """C[m,n] = A[m,k] · B[k,n], or a convolution, on a machine; with `conv`, m, k and n follow from it.

    `elem_bytes` and `acc_elem_bytes` are the bytes of an element of A and B, and of an accumulator element.
    `bw_a` and `bw_b` are the bandwidths of the memories that hold A and B, and `write_b` that of writing
    patches into the buffer of B (None: no limit), all in bytes/cycle. `buf_a`, `buf_b` and `acc_max` are
    capacities in bytes. `macs_per_cycle` is the array's peak; `block_m` and `block_n` are its smallest block.
    `sync_granularity` is the number of blocks that one inner iteration passes on. `halo` counts the elements
    that neighbouring tiles read again in each load of a convolution's B. Raises `InputError` for values out
    of range.
    """

    m: int = 0
    k: int = 0
    n: int = 0
    elem_bytes: int
    acc_elem_bytes: int
    bw_a: float
    bw_b: float
    buf_a: int
    buf_b: int
    acc_max: int
    macs_per_cycle: float
    block_m: int
    block_n: int
    sync_granularity: int
    write_b: float | None = None
    halo: int = 0
    conv: Convolution | None = None

    def __post_init__(self) -> None:
        _check_size("halo", self.halo, 0)
        if self.conv is not None:
            given, shape = (self.m, self.k, self.n), _shape(self.conv)
            if given not in ((0, 0, 0), shape):
                raise InputError(
                    f"m, k, n must not be given beside conv, which makes them {shape}, not {given}"
                )
            for name, size in zip(_SHAPE, shape, strict=True):
                object.__setattr__(self, name, size)
        elif self.halo:
            raise InputError(f"halo goes with conv: a plain product reads nothing twice, halo is {self.halo}")
        for name in (*_SHAPE, "elem_bytes", "acc_elem_bytes", "block_m", "block_n", "sync_granularity"):
            _check_size(name, getattr(self, name), 1)
        for name in _CAPACITIES:
            _check_size(name, getattr(self, name), 1, LARGEST_CAPACITY)
        for name in _RATES if self.write_b is None else (*_RATES, "write_b"):
            _check_rate(name, getattr(self, name))

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any], place: str) -> TilingProblem:
        """The problem described by names and numbers, as in a JSON file.

        `place` starts the text of every `InputError`. `write_b`, `halo` and `conv` are optional.
        """
        try:
            return cls._from(mapping)
        except InputError as error:
            raise InputError(f"{place}: {error}") from None

    @classmethod
    def _from(cls, mapping: Mapping[str, Any]) -> TilingProblem:
        values = dict(mapping)
        conv = values.get("conv")
        if conv is None:
            values.pop("conv", None)
            _check_names("", values, _names(cls) - {"conv"}, _names(cls, required=True) | set(_SHAPE))
        else:
            both = [name for name in _SHAPE if name in values]
            if both:
                raise InputError(f"{', '.join(both)} must not be given beside conv, which says the same")
            if not isinstance(conv, Mapping):
                raise InputError(f"conv must be an object of names and numbers, not {_shown(conv)}")
            _check_names("", values, _names(cls), _names(cls, required=True))
            _check_names("conv.", conv, _CONVOLUTION, _CONVOLUTION)
            values["conv"] = convolution_of(**conv)
        return cls(**values)

    @property
    def kernel(self) -> int:
        """The depth that a cut of K does not split: the positions of a kernel, or 1."""
        return 1 if self.conv is None else self.conv.patches.kernel

    @property
    def pixels(self) -> int:
        """Elements that one load of all of B reads, including the halo."""
        conv = self.conv
        return self.k * self.n if conv is None else conv.images * conv.patches.pixels + self.halo

    def __str__(self) -> str:
        return f"{self.m}x{self.k}x{self.n}"


def _names(cls: type[TilingProblem], required: bool = False) -> frozenset[str]:
    """Names of the fields, or only of those without a default."""
    fields = dataclasses.fields(cls)
    return frozenset(f.name for f in fields if not required or f.default is dataclasses.MISSING)


#: Fields that a problem must have besides its shape.
REQUIRED = _names(TilingProblem, required=True)


def _check_names(
    prefix: str, values: Mapping[str, Any], known: frozenset[str], required: frozenset[str]
) -> None:
    for name in values:
        if name not in known:
            raise InputError(f"{prefix}{shown_name(name)} is unknown; valid are {', '.join(sorted(known))}")
    missing = sorted(required - values.keys())
    if missing:
        raise InputError(f"{', '.join(prefix + name for name in missing)} must be given")


def _check_size(name: str, value: object, least: int, most: int = LARGEST_SIZE) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{name} must be a whole number from {least} to {most}, not {_shown(value)}")


def _check_rate(name: str, value: object) -> None:
    low, high = RATES
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Comparisons with NaN are false, so this test rejects NaN too.
    if not number or not low <= cast(float, value) <= high:
        raise InputError(f"{name} must be a number from {low:g} to {high:g}, not {_shown(value)}")


def shown_name(name: object) -> str:
    """A name from a file, for a message of one line: quoted and cut short unless it looks like a name."""
    text = str(name)
    return text if text.isascii() and text.isidentifier() and len(text) <= 60 else _cut(repr(text))


def _shown(value: object) -> str:
    """A value for a message of one line; Python refuses to print integers of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of about {math.ceil(value.bit_length() * math.log10(2))} digits"
    if value is None or isinstance(value, int | float | str):
        return _cut(repr(value))
    return f"a {type(value).__name__}"


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."
