"""The picture of a tiling plan: complete, reproducible, and small for all sizes."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from heald.report import tiling_plot
from sw.tiling.plan import plan
from sw.tiling.problem import TilingProblem, convolution_of
from tests.heald.conftest import MACHINE

SVG = "{http://www.w3.org/2000/svg}"
TITLE = "fc1 on small"


def picture(title: str = TITLE, predicted: tuple[float, float] | None = None, **given: Any) -> str:
    problem = TilingProblem(**{**MACHINE, **given})
    text = tiling_plot.picture(problem, plan(problem), title=title, predicted=predicted)
    assert ElementTree.fromstring(text).tag == f"{SVG}svg"
    assert len(text) < 100_000
    return text


def labels(svg: str) -> str:
    """The texts of a picture."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}text")
    return " ".join(" ".join("".join(element.itertext()) for element in found).split())


def test_split() -> None:
    text = labels(picture(m=512, k=1024, n=4096))
    for label in (
        TITLE,
        "512 × 1,024 × 4,096 (m × k × n)",
        "loaded 16 times, 8.4 MB",
        "loaded 8 times, 33.6 MB",
        "m = 512",
        "k = 1,024",
        "n = 4,096",
        "128 partitions of 64 × 256, row by row",
        "stays in the accumulator",
        "m_outer: 8 × 64",
        "n_inner: 2 × 128",
        "array's peak 4,096 MACs/cycle",
        "51.2 MACs/byte, 2,048/cycle (50 %)",
        "A and B loaded once",
        "K is split, because",
    ):
        assert label in text
    assert "on the machine" not in text


def test_predicted_on_the_machine() -> None:
    text = labels(picture(predicted=(1_310_720, 0.4), m=512, k=1024, n=4096))
    assert "on the machine, 1,310,720 cycles" in text
    assert "1,638/cycle (40 %)" in text


@pytest.mark.parametrize("predicted", [(0.0, 0.5), (float("nan"), 0.5), (100.0, 0.0), (float("inf"), 0.5)])
def test_a_point_that_no_logarithm_has_is_left_out(predicted: tuple[float, float]) -> None:
    assert "on the machine" not in labels(picture(predicted=predicted, m=20, k=20, n=20))


def test_resident() -> None:
    text = labels(picture(m=4096, k=64, n=1))
    assert "all of it stays in its buffer (hatched)" in text
    assert "streams through its buffer" in text
    assert "8 partitions of 512 × 1, column by column" in text
    assert "Not to scale" in text


def test_a_piece_stays() -> None:
    text = labels(picture(m=2048, k=512, n=2048, acc_max=64, bw_a=64, bw_b=64))
    assert "64 rows stay in the buffer at a time" in text
    assert "loaded 32 times" in text


def test_whole() -> None:
    text = labels(picture(m=20, k=20, n=20))
    assert "whole, in one partition" in text


def test_convolution() -> None:
    conv = convolution_of(sn=2, ic=64, h=56, w=56, oc=64, kh=3, kw=3, pad=1)
    text = labels(picture(conv=conv, write_b=32))
    assert "A convolution: 2 images of 64 × 56 × 56, 64 kernels of 3 × 3" in text
    assert "B: patches, 576 × 6,272" in text
    assert "pixels loaded" in text
    assert "patches are written at 32" in text.replace("\n", " ")


def test_kernels_cut() -> None:
    conv = convolution_of(sn=1, ic=1, h=64, w=64, oc=64, kh=16, kw=16)
    text = labels(picture(conv=conv, buf_a=2048, buf_b=2048))
    assert "(each read" in text


def test_same_text() -> None:
    assert picture(m=512, k=1024, n=4096) == picture(m=512, k=1024, n=4096)


HUGE = (1 << 31) - 1


@pytest.mark.parametrize(
    "given",
    [
        {"m": 65536, "k": 65536, "n": 65536},
        {"m": 65536, "k": 65536, "n": 65536, "bw_a": 1 / 3, "bw_b": 0.37},
        {"m": HUGE, "k": HUGE, "n": HUGE},
        {"m": HUGE, "k": 1, "n": 1},
        {"m": 1, "k": HUGE, "n": 1},
        {"m": 1, "k": 1, "n": HUGE},
        {"m": 1, "k": 1, "n": 1},
        {"m": 1, "k": 1, "n": 1, "bw_a": 1e15, "bw_b": 1e15, "macs_per_cycle": 1e-6},
        {"m": HUGE, "k": HUGE, "n": HUGE, "bw_a": 1e-6, "bw_b": 1e15, "macs_per_cycle": 1e15},
        {"m": 100, "k": 100, "n": 100, "bw_a": 1e-6, "bw_b": 1e-6, "macs_per_cycle": 1e15},
        {"m": 1000, "k": 3000, "n": 17, "block_m": 1, "block_n": 1, "sync_granularity": 1},
        {"m": 25 * 16, "k": 32768, "n": 25 * 16, "buf_a": 16, "buf_b": 16},
        {"m": 17, "k": 3, "n": 33, "sync_granularity": 2, "acc_max": 1024},
    ],
    ids=str,
)
def test_extremes(given: dict[str, Any]) -> None:
    text = labels(picture(predicted=(1e12, 1e-9), **given))
    assert "{m:,} × {k:,} × {n:,} (m × k × n)".format(**given) in text


@pytest.mark.parametrize(
    "title", ["", " ", "$x^2$ & <b>--\\frac{", "漢字 🧵\x00\n\ud800 ü", "long " * 300, "x" * 5000]
)
def test_any_title(title: str) -> None:
    text = picture(title=title, m=20, k=20, n=20)
    assert "20 × 20 × 20 (m × k × n)" in labels(text)
