"""Problems: derived values, and every possible mistake."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hw.errors import InputError
from sw.tiling.problem import TilingProblem, convolution_of

GOOD: dict[str, Any] = {
    "m": 512,
    "k": 1024,
    "n": 4096,
    "elem_bytes": 1,
    "acc_elem_bytes": 4,
    "bw_a": 12.8,
    "bw_b": 32,
    "buf_a": 65536,
    "buf_b": 65536,
    "acc_max": 65536,
    "macs_per_cycle": 256,
    "block_m": 16,
    "block_n": 16,
    "sync_granularity": 16,
}
CONV: dict[str, Any] = {"sn": 2, "ic": 3, "h": 224, "w": 100, "oc": 64, "kh": 7, "kw": 5}


def with_conv(**changes: Any) -> dict[str, Any]:
    values = {name: value for name, value in GOOD.items() if name not in "mkn"}
    return values | {"conv": CONV | {"stride": 1, "pad": 0, "dilation": 1} | changes}


def test_a_product_from_a_file() -> None:
    p = TilingProblem.from_dict(GOOD | {"write_b": None, "conv": None}, "x.json")
    assert (p.m, p.k, p.n, p.bw_a) == (512, 1024, 4096, 12.8)
    assert (p.write_b, p.halo, p.conv, p.kernel, p.pixels) == (None, 0, None, 1, 1024 * 4096)
    assert str(p) == "512x1024x4096"


def test_a_convolution_is_a_product() -> None:
    p = TilingProblem.from_dict(with_conv(stride=2, pad=3), "x.json")
    assert p.conv is not None
    assert (p.conv.rows.outputs, p.conv.cols.outputs) == (112, 51)
    assert (p.m, p.k, p.n) == (64, 3 * 7 * 5, 2 * 112 * 51)
    assert (p.kernel, p.pixels) == (35, 2 * 3 * 224 * 100)


def test_dilation_spreads_the_kernel() -> None:
    c = convolution_of(sn=1, ic=1, h=9, w=9, oc=1, kh=3, kw=3, dilation=4)
    assert (c.rows.outputs, c.cols.outputs) == (1, 1)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("m", 0, "m must be a whole number from 1 to 2147483647, not 0"),
        ("k", -3, "k must be a whole number from 1 to 2147483647, not -3"),
        ("n", 2.0, "n must be a whole number from 1 to 2147483647, not 2.0"),
        ("m", True, "m must be a whole number from 1 to 2147483647, not True"),
        ("m", "7", "m must be a whole number from 1 to 2147483647, not '7'"),
        ("m", [1], "m must be a whole number from 1 to 2147483647, not a list"),
        ("m", None, "m must be a whole number from 1 to 2147483647, not None"),
        ("m", math.inf, "m must be a whole number from 1 to 2147483647, not inf"),
        ("n", 10**400, "n must be a whole number from 1 to 2147483647, not a number of about 401 digits"),
        pytest.param("n", 10**9999, "n must be .*, not a number of about 10000 digits", id="long"),
        ("elem_bytes", 0, "elem_bytes must be a whole number from 1"),
        ("block_n", 0.5, "block_n must be a whole number from 1 to 2147483647, not 0.5"),
        ("sync_granularity", 0, "sync_granularity must be a whole number from 1"),
        ("buf_a", 0, "buf_a must be a whole number from 1 to 9007199254740992, not 0"),
        ("acc_max", -1, "acc_max must be a whole number from 1 to 9007199254740992, not -1"),
        ("bw_a", 0, "bw_a must be a number from 1e-06 to 1e+15, not 0"),
        ("bw_b", -1.5, "bw_b must be a number from 1e-06 to 1e+15, not -1.5"),
        ("bw_b", math.nan, "bw_b must be a number from 1e-06 to 1e+15, not nan"),
        ("bw_b", math.inf, "bw_b must be a number from 1e-06 to 1e+15, not inf"),
        ("bw_a", 10**400, "bw_a must be a number from 1e-06 to 1e+15, not a number of about 401 digits"),
        ("bw_a", False, "bw_a must be a number from 1e-06 to 1e+15, not False"),
        ("macs_per_cycle", "fast", "macs_per_cycle must be a number from 1e-06 to 1e+15, not 'fast'"),
        ("write_b", 0, "write_b must be a number from 1e-06 to 1e+15, not 0"),
        ("halo", -1, "halo must be a whole number from 0"),
        ("halo", 5, "halo goes with conv: a plain product reads nothing twice, halo is 5"),
        ("bufa", 5, "bufa is unknown; valid are acc_elem_bytes, "),
        ("\n\ud800", 5, r"'\\n\\ud800' is unknown"),
        ("x" * 100, 5, "x{59}... is unknown"),
        ("conv", CONV, "m, k, n must not be given beside conv, which says the same"),
    ],
)
def test_bad_values_are_refused_with_name_and_number(name: str, value: Any, text: str) -> None:
    with pytest.raises(InputError, match=rf"^p\.json: .*{text.replace('1e+15', '1e.15')}"):
        TilingProblem.from_dict(GOOD | {name: value}, "p.json")


@pytest.mark.parametrize("name", GOOD)
def test_what_is_missing_is_named(name: str) -> None:
    values = {key: value for key, value in GOOD.items() if key != name}
    with pytest.raises(InputError, match=rf"^p: {name} must be given$"):
        TilingProblem.from_dict(values, "p")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"kh": 0}, "conv.kh must be a whole number from 1"),
        ({"pad": -1}, "conv.pad must be a whole number from 0"),
        ({"stride": 0}, "conv.stride must be a whole number from 1"),
        ({"stride": 1.5}, "conv.stride must be a whole number from 1 to 2147483647, not 1.5"),
        (
            {"h": 2, "pad": 2},
            "conv.kh must fit the padded image: 7 with dilation 1 covers 7, conv.h = 2 with",
        ),
        ({"dilation": 30}, "conv.kw must fit the padded image: 5 with dilation 30 covers 121, conv.w = 100"),
        ({"size": 1}, "conv.size is unknown; valid are dilation, h, ic, kh, kw, oc, pad, sn, stride, w"),
        ({"sn": 1 << 30}, "conv makes a product of n = "),
    ],
)
def test_bad_convolutions_are_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=f"^p: {text}"):
        TilingProblem.from_dict(with_conv(**changes), "p")


def test_a_convolution_needs_all_its_sizes() -> None:
    values = with_conv(pad=0)
    del values["conv"]["kh"], values["conv"]["ic"]
    with pytest.raises(InputError, match=r"^p: conv\.ic, conv\.kh must be given$"):
        TilingProblem.from_dict(values, "p")
    with pytest.raises(InputError, match=r"^p: conv must be an object of names and numbers, not 3$"):
        TilingProblem.from_dict(with_conv() | {"conv": 3}, "p")
    with pytest.raises(InputError, match="m, k, n must not be given beside conv"):
        TilingProblem(**GOOD, conv=convolution_of(**CONV))
