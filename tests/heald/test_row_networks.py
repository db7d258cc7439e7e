"""Softmax, normalisation and pooling on the RTL: the reference's bytes, every event in its cycle."""

from __future__ import annotations

import numpy as np
import pytest

from cosim.backends import simulator
from cosim.session.network import compile_model
from cosim.settings import MemorySettings
from heald.model_run import ModelRun, run_model
from hw.config import load
from sw.graph import reference
from sw.patches import Axis
from tests.budget import sweep
from tests.sw.compile.row_networks import Builder


def ran(builder: Builder, preset: str = "test") -> ModelRun:
    """The network on the RTL."""
    config, network = load(preset), builder.network()
    inputs = reference.random_inputs(network, np.random.default_rng(2))
    settings = MemorySettings.of(config)
    model = compile_model(network, config)
    return run_model(model, inputs, settings, lambda: simulator(config, "cpp"))


def rows_of_any_length() -> Builder:
    """Softmax and normalisation."""
    builder = Builder()
    builder.softmax((57, 100))
    builder.softmax((2, 3, 77), "uint8", "uint8")
    builder.softmax((13, 401), "int8", "uint8")
    builder.normalisation((9, 33), "uint8")
    builder.normalisation((2, 5, 500), result="uint8")
    builder.normalisation((40, 72))
    builder.normalisation((9, 33), "uint8", x_zero=131)
    builder.normalisation((2, 3, 500), result="uint8", x_zero=-5)
    return builder


@pytest.mark.parametrize("preset", sweep(["test", "tiny"], kept=("test",)))
def test_rows_of_any_length(preset: str) -> None:
    report = ran(rows_of_any_length(), preset)
    assert report.verified
    assert report.correct


def test_windows_with_dilations_and_results_between_others() -> None:
    builder = Builder()
    builder.pool((2, 16), Axis(13, 3, 2, 1, 1), Axis(11, 3, 2, 1, 1))
    builder.pool((1, 2), Axis(20, 36, 2, 12, 12), Axis(12, 1), "uint8", padded=3)
    builder.pool((1, 6), Axis(12, 3, 1, 2, 2, 2), Axis(9, 2, 2, 0, 0, 3))
    builder.pool((1, 1), Axis(1, 1), Axis(50, 9, 3, 4, 4), "uint8")
    report = ran(builder)
    assert report.verified
    assert report.correct
