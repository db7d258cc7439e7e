"""Patches of convolutions: hand-computed timelines (4 x 4 array, ports of 8 bytes, latency 6), properties."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosim.job import MachineError, Window
from cosim.models.cycle.memory_port import port_of
from cosim.models.cycle.patches import Geometry, Patches
from cosim.settings import MemorySettings
from hw.config import BufferShape
from hw.isa import INSTRUCTIONS, PARAMETERS, TIMING, Cause
from tests.cosim.models.cycle.jobs import PERIOD, TEST, completions, job_of, patch_geometry, run, turn
from tests.cosim.models.cycle.stepping_loader import Op, SlowLoader
from tests.cosim.models.cycle.test_stepping import assert_agreement

NAMES = [name for name in INSTRUCTIONS["load_b_conv"].parameters if name != "load_fill"]

#: Kernel of 1 x 1 on one row of 8 pixels: 10 steps of setup, 3 that find the kernel row, 1 for the beat.
ONE = dict.fromkeys(NAMES, 1) | {"load_stride": 0, "load_pitch": 4, "conv_line": 8, "conv_width": 8}
ONE |= {"conv_top": 0, "conv_left": 0, "conv_out_cols": 8, "memory": 0, "target": 0, "outer": 1, "inner": 8}

#: Kernel of 3 x 3 on rows of one beat. Rows 0 to 3 are used by 1, 2, 2, 1 kernel rows, 1 to 3 are in memory:
#: 10 + 4*5 + 6*3 = 48 steps, words requested in 10 + 5 + 3 + 5 = 23, 23 + 6 + 5 = 34 and 34 + 6 + 5 = 45.
THREE = ONE | {"conv_height": 4, "conv_width": 6, "conv_top": 1, "conv_left": 1, "conv_rows": 3}
THREE |= {"conv_out_rows": 2, "conv_out_cols": 4, "conv_kernel_h": 3, "conv_kernel_w": 3}
THREE |= {"memory": 9, "inner": 5, "load_pitch": 12}

#: The pc of the operation of `program`, and the cycle in which it issues.
PC = len(NAMES) + 4
ISSUED = turn(PC)

#: The cycle in which the loader takes it, if it has nothing else to do, and that of step 0.
TAKEN = ISSUED + TIMING.enqueue
STEP0 = TAKEN + TIMING.load_request - 1


def program(geometry: dict[str, int], *behind: str) -> str:
    """A program whose load_b_conv issues in cycle ISSUED, followed by other instructions."""
    lines = [f"parami {name}, {geometry[name]}" for name in NAMES]
    lines += [f"li r{i}, {geometry[n]}" for i, n in enumerate(("memory", "target", "outer", "inner"), 1)]
    return "\n".join([*lines, "load_b_conv r1, r2, r3, r4", *behind, "halt"])


def model_of(geometry: dict[str, int], width: int = 8, shape: BufferShape | None = None) -> Patches:
    """The plan of an operation."""
    operands = [geometry[name] for name in ("target", "outer", "inner")]
    values = [geometry[name] for name in NAMES]
    shape = shape or TEST.derived.buffer_b
    return Patches(Geometry(geometry["memory"] % width, *operands, *values), shape, width)


def test_parameters_are_in_the_order_of_the_geometry() -> None:
    names = [n.removeprefix("load_").removeprefix("conv_") for n in NAMES]
    assert Geometry._fields == ("memory", "target", "channels", "inner", *names)
    assert all(name in PARAMETERS for name in NAMES)


def test_one_beat() -> None:
    # Step 13 requests, accepted one later, answered 6 later.
    outcome = run(program(ONE))
    assert completions(outcome) == [STEP0 + 13 + 1 + 6 + 4]
    assert outcome.counters["LOAD_B_BUSY"] == 14
    assert outcome.counters["LOAD_B_STALL_MEMORY"] == 0


def test_rows_take_a_step_for_every_kernel_element_that_uses_them() -> None:
    assert model_of(THREE).steps == 48
    assert list(model_of(THREE).memory_steps()) == [23, 34, 45]
    # The last word, requested in step 45, is written in three steps.
    outcome = run(program(THREE))
    assert completions(outcome) == [STEP0 + 45 + 1 + 6 + 2 + 4]
    assert outcome.counters["LOAD_B_BUSY"] == 48


def test_memory_that_is_slow_delays_the_steps() -> None:
    # 1 of 8 bytes: cycles 0, 8, 16 ... are available. Step 0 happens in 127, step 23 in 150.
    assert STEP0 == 127
    outcome = run(program(THREE), memory={"bandwidth": {"load_b": 1}})
    # Presented 151, accepted 152, when the next step happens; presented 163, accepted 168; then 179 and 184.
    assert completions(outcome) == [184 + 6 + 2 + 4]
    assert outcome.counters["LOAD_B_STALL_MEMORY"] == 1 + 5 + 5


def test_padding_is_written_without_memory() -> None:
    # Written from two cycles behind step 0 on, a step per cycle.
    assert completions(run(program(THREE | {"conv_rows": 0}))) == [STEP0 + 2 + 47 + 4]


def test_padding_is_written_behind_what_is_under_way() -> None:
    # The second is taken in TAKEN + 18, with four steps behind its setup. The first is written in TAKEN + 24.
    lines = program(ONE, "parami conv_rows, 0", "load_b_conv r1, r2, r3, r4")
    assert completions(run(lines)) == [TAKEN + 28, STEP0 + 18 + 13 + 2 + 4]
    outcome = run(lines, memory={"latency": {"load_b": 100}})
    assert completions(outcome) == [TAKEN + 28 + 94, TAKEN + 24 + 94 + 4 + 4]


@pytest.mark.parametrize(
    ("changes", "steps", "words"),
    [
        ({"memory": 3}, 15, [13, 14]),  # two words at that alignment
        ({"conv_left": 8, "conv_width": 16, "conv_out_cols": 16}, 15, [14]),
        ({"conv_left": 3, "memory": 3, "inner": 2}, 14, [13]),
        ({"conv_left": 9}, 15, []),
        (
            {"conv_left": 7, "memory": 7, "conv_width": 6},
            14,
            [13],
        ),  # x = 7 is behind the image, but in the beat
        ({"conv_left": 16}, 14, []),
        ({"conv_stride_w": 2, "conv_width": 16, "inner": 16}, 15, [13, 14]),
        ({"conv_height": 3, "conv_rows": 3, "conv_stride_h": 2, "conv_out_rows": 2}, 21, [13, 20]),
        ({"conv_height": 2, "conv_rows": 2}, 17, [13]),  # nobody uses the last row
        ({"outer": 3, "load_stride": 64}, 16, [13, 14, 15]),
        (
            {"outer": 2, "conv_kernel_w": 2, "conv_width": 9, "load_stride": 64, "load_pitch": 12},
            21,
            [13, 17],
        ),
    ],
)
def test_steps_and_words(changes: dict[str, int], steps: int, words: list[int]) -> None:
    plan = model_of(ONE | changes)
    assert plan.steps == steps
    assert list(plan.memory_steps()) == words


def test_the_next_load_is_taken_behind_the_last_step() -> None:
    # Step 13 happens in TAKEN + 17, the next load is taken in TAKEN + 18, its beat presented from + 23 on.
    behind = "parami load_pad_inner, 0", "load_b r1, r2, r3, r4"
    assert completions(run(program(ONE, *behind))) == [TAKEN + 28, TAKEN + 18 + 5 + 6 + 4]
    # 1 of 8 bytes: the word of step 13 (in 145) is accepted in 152, that of the load in the next such cycle.
    slow = run("nop\n" + program(ONE, *behind), memory={"bandwidth": {"load_b": 1}})
    assert completions(slow) == [152 + 10, 160 + 10]
    # Another one makes its step 0 in 152, its step 13 in 165.
    again = "nop\n" + program(ONE, "nop", "load_b_conv r1, r2, r3, r4")
    slow = run(again, memory={"bandwidth": {"load_b": 1}})
    assert completions(slow) == [152 + 10, 168 + 10]


def test_steps_follow_a_load_with_fill() -> None:
    # The load issues in turn 21, 126, is taken in 129, its nine beats pass in 134 to 142; the last enters in
    # 141, behind which the other, issued in 132, is taken; it is written in 148. Step 0 in 146, step 13 in
    # 159.
    load = "parami load_pad_inner, 64\nload_b r1, r2, r3, r4\n"
    outcome = run(program(ONE).replace("load_b_conv", load + "load_b_conv"))
    assert completions(outcome) == [148 + 4, 159 + 1 + 6 + 4]


def test_four_operations_are_in_flight() -> None:
    outcome = run(program(ONE, *["load_b_conv r1, r2, r3, r4"] * 4), memory={"latency": {"load_b": 100}})
    # Each is taken 18 cycles after the one before, the fifth when the first is complete.
    first = TAKEN + 28 + 94
    assert completions(outcome) == [first, first + 18, first + 36, first + 54, first + 1 + 18 + 104]


@pytest.mark.parametrize("name", [n for n in NAMES if n[:4] == "conv" and n not in ("conv_line", "conv_top")])
def test_zeros(name: str) -> None:
    allowed = name in ("conv_left", "conv_rows")
    error = None if allowed else MachineError(Cause.OPERAND, 0, PC)
    assert run(program(ONE | {name: 0})).error == error


@pytest.mark.parametrize(
    "changes",
    [
        {"outer": 0},
        {"inner": 0},
        {"load_stride": 4},
        {"conv_line": 9},
        {"load_pitch": 8},
        {"load_pitch": 0},
        {"conv_out_rows": 64, "conv_out_cols": 1024},
        {"outer": 256, "conv_kernel_h": 16, "conv_kernel_w": 16},
    ],
)
def test_operands_that_do_not_fit(changes: dict[str, int]) -> None:
    assert run(program(ONE | changes)).error == MachineError(Cause.OPERAND, 0, PC)


def error_cycle(geometry: dict[str, int], **changes: Any) -> tuple[int, Cause]:
    """The cycle of an operation's error, up to which its warp goes on, and the cause."""
    outcome = run(program(geometry, *["nop"] * 100), **changes)
    assert outcome.error is not None
    assert outcome.error[1:] == (0, PC)
    assert outcome.events[-1].cycle in range(outcome.cycles - PERIOD, outcome.cycles)
    return outcome.cycles, outcome.error.cause


#: From the step of a word to the error of what is written with it: accepted a cycle later, answered, told.
ANSWER = 1 + TEST.load_b_latency + TIMING.load_write - 1


@pytest.mark.parametrize(
    ("changes", "cycle", "cause"),
    [
        ({"conv_width": 0}, STEP0 + 1, Cause.OPERAND),
        ({"conv_out_rows": 8191, "conv_out_cols": 9}, STEP0 + 1, Cause.OPERAND),
        ({"target": 1023}, STEP0 + 13 + ANSWER, Cause.BUFFER_RANGE),
        ({"target": 1019}, None, None),
        ({"target": 1020}, STEP0 + 13 + ANSWER, Cause.BUFFER_RANGE),
        ({"target": 1023, "conv_out_cols": 4}, None, None),
        ({"target": 1023, "conv_out_cols": 5, "conv_width": 4, "conv_rows": 0}, None, None),
        ({"target": 1022, "outer": 3, "conv_out_cols": 4}, STEP0 + 15 + ANSWER, Cause.BUFFER_RANGE),
        ({"memory": 297}, STEP0 + 13 + 1, Cause.WINDOW),
        ({"memory": 297, "conv_rows": 0}, None, None),
        ({"memory": 297, "target": 1023}, STEP0 + 13 + 1, Cause.WINDOW),
        ({"memory": 280, "outer": 3}, STEP0 + 15 + 1, Cause.WINDOW),
    ],
)
def test_errors_come_in_their_step(changes: dict[str, int], cycle: int | None, cause: Cause | None) -> None:
    geometry = ONE | {"load_stride": 16} | changes
    windows = (Window(0, 99, read=False), Window(200, 303), Window(0, 160))
    if cycle is None:
        assert run(program(geometry), windows=windows).error is None
    else:
        assert error_cycle(geometry, windows=windows) == (cycle, cause)


def test_an_error_waits_for_the_words_before_it() -> None:
    # As above, step 24 happens in 152, so step 34 in 162; the row of its word is not permitted.
    slow = {"bandwidth": {"load_b": 1}}
    assert error_cycle(THREE, windows=(Window(0, 20),), memory=slow) == (162 + 1, Cause.WINDOW)


def test_rows_may_wrap_around_memory_but_none_may_cross_its_end() -> None:
    windows = (Window(0, 15), Window(2**32 - 16, 2**32 - 1))
    wrap = ONE | {"memory": -16, "outer": 4, "load_stride": 8}
    assert run(program(wrap), windows=windows).error is None
    assert run(program(wrap | {"outer": 5}), windows=windows).error == MachineError(Cause.WINDOW, 0, PC)
    crossing = wrap | {"memory": -12, "outer": 1, "conv_width": 20}
    assert run(program(crossing), windows=windows).error is None
    crossing["outer"] = 2
    assert run(program(crossing), windows=windows).error == MachineError(Cause.WINDOW, 0, PC)
    down = ONE | {"memory": 8, "outer": 3, "load_stride": -8}
    assert run(program(down), windows=windows).error is None
    job = job_of([program(crossing)], windows=windows)
    assert_agreement(TEST, job)


def oracle_steps(geometry: dict[str, int], width: int, cols: int, *windows: Window) -> list[Any]:
    """The steps that the slow machine makes, up to one that fails; all memory is open unless windows are."""
    changes = {"load_b_bytes": width, "cols": cols, "acc_bytes": 8192, "buffer_b_bytes": 1024 * cols}
    config = TEST.replace(**changes)
    loader = SlowLoader(config, "load_b", 1, np.ones(1), windows or (Window(0, 2**32 - 1),))
    operands = [geometry[name] for name in ("memory", "target", "outer", "inner")]
    steps = loader.make_patches(Op(0, 0, 0, "load_b_conv", operands, geometry))
    for number, step in enumerate(steps):
        if step.outside and not step.cause:
            step.cause = Cause.BUFFER_RANGE
            return steps[: number + 1]
    return steps


@given(
    st.randoms(use_true_random=False),
    st.sampled_from([(4, 4), (8, 4), (16, 4), (8, 8), (4, 8)]),
    st.integers(0, 100),
    st.sampled_from([0, 950, 1000, 1023]),
)
def test_closed_forms_are_those_of_a_walk(
    chance: random.Random, sizes: tuple[int, int], memory: int, target: int
) -> None:
    width, cols = sizes
    geometry = patch_geometry(chance, width, cols) | {"memory": memory, "target": target}
    shape = BufferShape(cols, max(cols, width), 1024)
    plan = model_of(geometry, width, shape)
    steps = oracle_steps(geometry, width, cols)
    words = [i for i, step in enumerate(steps) if step.memory]
    if steps[-1].cause is Cause.BUFFER_RANGE:
        assert plan.outside == len(steps) - 1
        assert [k for k in plan.memory_steps() if k < len(steps)] == words
        return
    assert plan.outside is None
    assert plan.steps == len(steps)
    assert list(plan.memory_steps()) == words
    assert plan.reads == bool(words)
    settings: list[dict[str, Any]] = [{}, {"bandwidth": {"load_b": chance.randint(1, width)}}]
    settings.append({"stall_seed": 3, "stall_rate": 120})
    config = TEST.replace(load_b_bytes=width, buffer_b_bytes=8192)
    for change in settings:
        port, at_port = (
            port_of(MemorySettings.of(config, **change), "load_b"),
            model_of(geometry, width, shape),
        )
        for enter in (chance.randint(0, 5000), chance.randint(0, 5000)):
            r, last, w = enter, enter, enter + 3 - 1  # of the next step, of the last one, its write
            for k, step in enumerate(steps):
                last, r = r, port.after(r + 1, 1) if step.memory else r + 1
                w = r + port.latency if step.memory else w + 1
                if k in (0, 7, 20, len(steps) - 1):
                    assert plan.reach(port, enter, k) == last
                    assert plan.written(port, enter, enter + 3, k) == w
            assert at_port.finish(port, enter) == (last, r)


@given(
    st.randoms(use_true_random=False),
    st.integers(0, 300),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=3),
)
def test_the_first_row_outside_the_windows_fails_in_its_step(
    chance: random.Random, memory: int, edges: list[tuple[int, int]]
) -> None:
    geometry = patch_geometry(chance, 8, 4) | {"memory": memory, "target": 0}
    plan = model_of(geometry, shape=BufferShape(4, 8, 1 << 20))
    steps = oracle_steps(geometry, 8, 4, *(Window(low, low + size) for low, size in edges))
    found = plan.outside_windows([(low, low + size) for low, size in edges], memory)
    if steps[-1].cause is not Cause.BUFFER_RANGE:
        assert found == (len(steps) - 1 if steps[-1].cause else None)


@pytest.mark.parametrize("seed", range(40))
def test_loads_of_all_kinds_follow_each_other(seed: int) -> None:
    r = random.Random(seed)
    lines = ["li r5, 2", "li r6, 9"]
    for _ in range(r.randint(2, 6)):
        geometry = patch_geometry(r, 8, 4) | {"memory": r.randint(0, 999), "target": r.randint(0, 9)}
        other = r.choice(["load_b r1, r0, r5, r6", "load_b r1, r0, r5, r5", "nop"])
        pads = f"parami load_pad_inner, {r.choice([0, 9])}", f"parami load_pad_outer, {r.choice([0, 2])}"
        lines += program(geometry, *pads, other).splitlines()[:-1]
        lines += [lines[-4]] * r.choice([0, 0, 1, 5])
    memory: dict[str, Any] = {"latency": {"load_b": r.choice([1, 2, 9, 200])}}
    if r.random() < 0.5:
        memory["bandwidth"] = {"load_b": r.randint(1, 8)}
    if r.random() < 0.3:
        memory |= {"stall_seed": seed, "stall_rate": 150}
    config = TEST.replace(imem_words=256, queue_depth=r.choice([1, 4]))
    job = job_of(["\n".join([*lines, "halt"])], config, memory=memory)
    assert_agreement(config, job)


def test_a_large_image() -> None:
    geometry = ONE | {"conv_height": 226, "conv_width": 226, "conv_top": 1, "conv_left": 1, "conv_rows": 224}
    geometry |= {"conv_kernel_h": 3, "conv_kernel_w": 3, "conv_out_rows": 224, "conv_out_cols": 224}
    geometry |= {"outer": 4, "inner": 224, "load_pitch": 44, "conv_line": 224, "load_stride": 0, "memory": 1}
    plan = model_of(geometry, shape=BufferShape(4, 8, 1 << 20))
    assert plan.steps == 10 + 226 * 5 + 224 * 3 * 4 * 29 * 3
    assert len(list(plan.memory_steps())) == 224 * 4 * 29
    port = port_of(MemorySettings.of(TEST), "load_b")
    assert plan.finish(port, 50) == (50 + plan.steps - 1, 50 + plan.steps)
