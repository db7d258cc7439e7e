"""Convolutions with `load_b_conv` on the RTL: results, events and errors, against NumPy and the model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from cosim.backends import simulator
from cosim.compare import compare
from cosim.job import Job, MachineError, Outcome, Region, Window
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from hw.assembly import assemble
from hw.config import load
from hw.isa import Cause

TEST = load("test")
WIDTH, LANES = TEST.load_b_bytes, TEST.cols
IMAGE, WEIGHTS, RESULT = 0x1003, 0x3000, 0x3800
OPEN = (Window(0, 0xFFFF),)
FILL = 3


@dataclass(frozen=True)
class Convolution:
    """One image of `channels` x `height` x `width` with padding all round, `outputs` kernels."""

    channels: int = 2
    height: int = 5
    width: int = 6
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pad: int = 1
    outputs: int = 4

    @property
    def out(self) -> tuple[int, int]:
        """Rows and columns of the result."""
        sizes = zip((self.height, self.width), self.kernel, self.stride, self.dilation, strict=True)
        rows, columns = ((n + 2 * self.pad - (k - 1) * d - 1) // s + 1 for n, k, s, d in sizes)
        return rows, columns

    @property
    def depth(self) -> int:
        """Depth of the product."""
        return self.channels * self.kernel[0] * self.kernel[1]

    @property
    def line(self) -> int:
        """Bytes from one image row to the next."""
        return -(-self.width // WIDTH) * WIDTH

    def parameters(self) -> dict[str, int]:
        """All parameters of the load, the product and the store."""
        rows, columns = self.out
        pitch = LANES % WIDTH + WIDTH * -(-self.depth // WIDTH)
        span = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in
                zip(self.out, self.stride, self.kernel, self.dilation, strict=True)]  # fmt: skip
        values = {"load_stride": self.line * self.height, "load_pitch": pitch, "load_fill": FILL}
        values |= {"conv_line": self.line, "conv_height": span[0], "conv_width": span[1]}
        values |= {"conv_top": self.pad, "conv_left": self.pad, "conv_rows": self.height}
        values |= {"conv_out_rows": rows, "conv_out_cols": columns}
        for name in ("kernel", "stride", "dilation"):
            values |= {f"conv_{name}_{edge}": v for edge, v in zip("hw", getattr(self, name), strict=True)}
        values |= {"gemm_m": self.outputs, "gemm_n": rows * columns, "gemm_a_pitch": self.depth}
        blocks = -(-rows * columns // LANES)
        values |= {"gemm_b_pitch": pitch, "gemm_c_pitch": blocks, "gemm_signed": 3, "gemm_zero_b": FILL}
        return values | {"store_pitch": blocks, "store_stride": 4 * rows * columns}

    def program(self) -> str:
        """Load kernels, load patches, multiply, store."""
        rows, columns = self.out
        lines = [f"parami load_stride, {self.depth}", f"parami load_pitch, {self.depth}"]
        lines += [
            f"li r1, {WEIGHTS}",
            f"li r3, {self.outputs}",
            f"li r4, {self.depth}",
            "load_a r1, r0, r3, r4",
        ]
        lines += [f"parami {name}, {value}" for name, value in self.parameters().items()]
        lines += [f"li r1, {IMAGE}", f"li r5, {self.channels}", f"li r6, {self.width}"]
        lines += [
            "load_b_conv r1, r0, r5, r6",
            "signal 0",
            "wait 0",
            "gemm r0, r0, r0, r4",
            "signal 0",
            "wait 0",
        ]
        return "\n".join(
            [*lines, f"li r1, {RESULT}", f"li r2, {4 * rows * columns}", "store r1, r0, r3, r2", "halt"]
        )

    def job(self, **memory: object) -> tuple[Job, np.ndarray]:
        """The job, and what it must store."""
        rng = np.random.default_rng(5)
        image = rng.integers(-128, 128, (self.channels, self.height, self.line), dtype=np.int8)
        weights = rng.integers(-128, 128, (self.outputs, self.channels, *self.kernel), dtype=np.int8)
        rows, columns = self.out
        settings = MemorySettings.of(TEST, **memory)  # type: ignore[arg-type]
        contents = ((IMAGE - IMAGE % 4, np.concatenate([np.zeros(IMAGE % 4, np.int8), image.ravel()])),
                    (WEIGHTS, weights.ravel()))  # fmt: skip
        job = Job(
            {0: assemble(self.program())},
            settings,
            OPEN,
            memory=tuple((at, data.view(np.uint8)) for at, data in contents),
            outputs=(Region(RESULT, 4 * self.outputs * rows * columns),),
            watchdog=4096,
        )
        padded = np.pad(
            image[:, :, : self.width].astype(np.int64) - FILL, ((0, 0), *[(self.pad, self.pad)] * 2)
        )
        expected = np.zeros((self.outputs, rows, columns), np.int64)
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                y, x = i * self.dilation[0], j * self.dilation[1]
                part = padded[:, y : y + (rows - 1) * self.stride[0] + 1 : self.stride[0]]
                part = part[:, :, x : x + (columns - 1) * self.stride[1] + 1 : self.stride[1]]
                expected += np.tensordot(weights[:, :, i, j].astype(np.int64), part, 1)
        return job, expected.ravel()


CONVOLUTIONS = {
    "same": Convolution(),
    "pointwise": Convolution(kernel=(1, 1), pad=0, channels=5),
    "strides": Convolution(stride=(2, 3), height=7, width=13),
    "dilations": Convolution(dilation=(2, 3), height=6, width=9, pad=2),
    "both": Convolution(stride=(3, 2), dilation=(2, 3), height=9, width=12, pad=3),
    "far apart": Convolution(stride=(1, 9), kernel=(1, 2), height=2, width=30, channels=3),
    "one row": Convolution(height=1, kernel=(1, 5), pad=2, width=17),
}
#: Changes of the parameters of "same", or of operands by register; the error; the windows if not `OPEN`.
FAULTS: dict[str, tuple[dict[str, int], Cause, tuple[Window, ...]]] = {
    "no width": ({"conv_width": 0}, Cause.OPERAND, OPEN),
    "no channels": ({"r5": 0}, Cause.OPERAND, OPEN),
    "no kernel": ({"conv_kernel_w": 0}, Cause.OPERAND, OPEN),
    "no stride": ({"conv_stride_h": 0}, Cause.OPERAND, OPEN),
    "rows unaligned": ({"conv_line": 12}, Cause.OPERAND, OPEN),
    "channels unaligned": ({"load_stride": 41}, Cause.OPERAND, OPEN),
    "pitch that collides": ({"load_pitch": 24}, Cause.OPERAND, OPEN),
    "too many outputs": ({"conv_out_rows": 8191, "conv_out_cols": 9}, Cause.OPERAND, OPEN),
    "too deep": ({"conv_kernel_h": 255, "conv_kernel_w": 255, "r5": 2}, Cause.OPERAND, OPEN),
    "closed memory": ({}, Cause.WINDOW, (Window(WEIGHTS, 0xFFFF),)),
    "last row closed": ({}, Cause.WINDOW, (Window(0, IMAGE + 32 + 4), Window(WEIGHTS, 0xFFFF))),
    "buffer too small": ({"r2": 1000}, Cause.BUFFER_RANGE, OPEN),
    "far behind the buffer": ({"load_pitch": 8188}, Cause.BUFFER_RANGE, OPEN),
}


def faulty_job(changes: dict[str, int], windows: tuple[Window, ...]) -> Job:
    """The convolution "same" with something wrong."""
    good, _ = Convolution().job()
    lines = Convolution().program().replace("load_b_conv r1, r0,", "load_b_conv r1, r2,").splitlines()
    settings = [f"li {n}, {v}" if n[0] == "r" else f"parami {n}, {v}" for n, v in changes.items()]
    at = next(i for i, line in enumerate(lines) if line.startswith("load_b_conv"))
    text = "\n".join([*lines[:at], *settings, *lines[at:]])
    return Job({0: assemble(text)}, good.settings, windows, memory=good.memory, watchdog=300)


@pytest.fixture(scope="module")
def outcomes() -> list[tuple[Job, Outcome]]:
    """All jobs in one simulation of one machine: convolutions, the same against stalls, and faults."""
    jobs = [c.job()[0] for c in CONVOLUTIONS.values()]
    jobs += [c.job(stall_seed=7, latency={"load_b": 2})[0] for c in CONVOLUTIONS.values()]
    jobs += [faulty_job(changes, windows) for changes, _, windows in FAULTS.values()]
    jobs.append(Convolution().job()[0])
    return list(zip(jobs, simulator(TEST, "verilator").run(jobs), strict=True))


def test_convolutions_are_right_when_the_model_says(outcomes: list[tuple[Job, Outcome]]) -> None:
    wanted = [c.job()[1] for c in CONVOLUTIONS.values()] * 2 + [Convolution().job()[1]]
    ran = [*outcomes[: 2 * len(CONVOLUTIONS)], outcomes[-1]]
    for name, (job, outcome), expected in zip(
        [*CONVOLUTIONS, *CONVOLUTIONS, "after"], ran, wanted, strict=True
    ):
        assert outcome.error is None, name
        assert outcome.outputs[0].view(np.int32).tolist() == expected.tolist(), name
        divergence = compare(TEST, job, predict(TEST, job), outcome)
        assert divergence is None, f"{name}: {divergence}"


@pytest.mark.parametrize("name", FAULTS)
def test_an_error_of_patches_stops_the_machine(name: str, outcomes: list[tuple[Job, Outcome]]) -> None:
    job, outcome = outcomes[2 * len(CONVOLUTIONS) + list(FAULTS).index(name)]
    changes, cause, _ = FAULTS[name]
    before = Convolution().program().splitlines()
    pc = next(i for i, line in enumerate(before) if line.startswith("load_b_conv")) + len(changes)
    assert outcome.error == MachineError(cause, 0, pc)
    assert compare(TEST, job, predict(TEST, job), outcome) is None
