"""Every error that a program can provoke: cause, warp, pc, and events up to it."""

import zlib

import pytest

from cosim.job import EventKind, MachineError, Window, loaded
from hw.config import load
from hw.errors import InputError
from hw.isa import Cause
from tests.cosim.models.cycle.jobs import TEST, issues, job_of, run, turn

SIZES = "li r3, 2\nli r4, 8\nli r5, -1\n"


@pytest.mark.parametrize(
    "text",
    [
        ".word 0",
        ".word 0xffffffff",
        "wait 16",
        "signal 99",
        "@r0 wait 16",
        "parami 41, 1",
        "cgra r0, r0, r0, r0",
        "@r9 nop",
        "add r1, r20, r1",
    ],
)
def test_what_the_machine_does_not_have_is_illegal(text: str) -> None:
    outcome = run(f"nop\n{text}\nhalt", config=TEST.replace(registers=8))
    assert outcome.error == MachineError(Cause.ILLEGAL_INSTRUCTION, 0, 1)
    assert issues(outcome) == [(0, 0)]


def test_running_past_the_program_is_illegal() -> None:
    assert run("nop").error == MachineError(Cause.ILLEGAL_INSTRUCTION, 0, 1)


@pytest.mark.parametrize(
    "text",
    [
        "parami load_fill, 256",
        "parami load_pitch, -1",
        "param gemm_m, r5",
        "load_a r0, r5, r3, r4",
        "load_a r0, r0, r5, r4",
        "gemm r0, r0, r0, r5",
        "store r0, r0, r5, r4",
        "load_a r0, r0, r0, r4",
        "load_a r0, r0, r3, r0",
        "gemm r0, r0, r0, r4",
        "store r0, r0, r0, r4",
        "store r0, r0, r3, r0",
        "store_scratch r0, r3, r3, r4",
        "load_a_t r0, r0, r3, r4",
    ],
)
def test_operands_that_no_operation_can_have(text: str) -> None:
    assert run(f"{SIZES}{text}\nhalt").error == MachineError(Cause.OPERAND, 0, 3)


def test_negative_values_suit_32_bit_operands() -> None:
    assert run("parami load_stride, -8\nparami store_stride, -1\nhalt").error is None


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ("", "li r1, 1023\nload_a r0, r1, r3, r4"),
        ("parami load_pitch, 1020\nli r3, 5", "load_b r0, r0, r3, r4"),
        ("parami load_pad_inner, 1017", "load_a r0, r0, r3, r4"),
        ("parami load_pad_outer, 1023", "li r4, 4\nload_a_t r0, r0, r3, r4"),
        ("parami load_pitch, 4090", "load_c r0, r0, r3, r4"),
        ("parami gemm_m, 4\nparami gemm_n, 4", "li r1, 1017\ngemm r1, r0, r0, r4"),
        ("parami gemm_m, 4\nparami gemm_n, 5\nparami gemm_b_pitch, 1017", "gemm r0, r0, r0, r4"),
        ("parami gemm_m, 4\nparami gemm_n, 4\nparami gemm_c_pitch, 86", "gemm r0, r0, r0, r4"),
        ("parami store_pitch, 256", "store r0, r0, r3, r4"),
        ("parami store_pitch, 4096", "store_scratch r0, r0, r3, r4"),
        ("", "li r1, 256\nstore r0, r1, r3, r4"),
    ],
)
def test_leaving_a_buffer(params: str, text: str) -> None:
    program = "\n".join(x for x in (SIZES.strip(), params, text, "halt") if x)
    pc = program.count("\n") - 1
    assert run(program).error == MachineError(Cause.BUFFER_RANGE, 0, pc)


@pytest.mark.parametrize("name", ["load_a", "load_b_t", "load_c", "store"])
def test_rows_outside_the_windows(name: str) -> None:
    kind = name.split("_")[0]
    text = f"li r1, 100\nli r3, 3\nli r4, 4\nparami {kind}_stride, 50\n{name} r1, r0, r3, r4\nhalt"
    good = (Window(100, 153), Window(200, 203))
    assert run(text, windows=good).error is None
    error = MachineError(Cause.WINDOW, 0, 4)
    assert run(text, windows=()).error == error
    assert run(text, windows=(Window(100, 152), Window(153, 300))).error == error
    assert run(text, windows=(Window(100, 300, read=name == "store", write=name != "store"),)).error == error


def test_a_row_must_not_wrap_around_memory() -> None:
    text = "li r1, -4\nli r3, 1\nli r4, 8\nload_a r1, r0, r3, r4\nhalt"
    assert run(text, windows=(Window(0, 2**32 - 1),)).error == MachineError(Cause.WINDOW, 0, 3)


def test_rows_may_wrap_from_one_to_the_next() -> None:
    text = "li r1, -8\nli r3, 2\nli r4, 8\nparami load_stride, 8\nload_a r1, r0, r3, r4\nhalt"
    assert run(text, windows=(Window(0, 2**32 - 1),)).error is None


def test_what_completes_before_the_failing_row_is_seen() -> None:
    load = "li r4, 8\nload_a r0, r0, r3, r4\n"
    text = f"li r3, 1\n{load}parami load_stride, 8\nli r3, 400\n{load}halt"
    windows = (Window(0, 8 * 399 - 1),)
    # The load that completes is issued in 12, taken in 15, accepted in 20, answered in 26.
    outcome = run(text, windows=windows)
    assert outcome.error == MachineError(Cause.WINDOW, 0, 6)
    assert [e.cycle for e in outcome.events if e.kind is EventKind.COMPLETE] == [30]


def test_the_first_of_two_errors_counts_and_warps_come_before_engines() -> None:
    divide = "nop\nnop\ndivi r1, r1, 0\nhalt"  # in 13
    assert run("nop\nnop\nnop\n.word 0", divide).error == MachineError(Cause.DIVIDE_BY_ZERO, 1, 2)
    assert run("nop\nnop\n.word 0", divide).error == MachineError(Cause.ILLEGAL_INSTRUCTION, 0, 2)
    # The load is issued in 6, taken in 9, would enter in 13 and fails in 14, when warp 2 divides first; then
    # it is warp 3, in 15.
    load = "nop\nload_a r0, r0, r0, r0\nhalt"
    outcome = run(load, "halt", divide)
    assert (outcome.error, outcome.cycles) == (MachineError(Cause.DIVIDE_BY_ZERO, 2, 2), turn(2, 2))
    outcome = run(load, "halt", "halt", divide)
    assert (outcome.error, outcome.cycles) == (MachineError(Cause.OPERAND, 0, 1), turn(2, 2))


@pytest.mark.parametrize("text", ["div r1, r1, r0", "rem r1, r1, r0", "divi r1, r1, 0", "remi r1, r1, 0"])
def test_zero_divisors(text: str) -> None:
    assert run(f"{text}\nhalt").error == MachineError(Cause.DIVIDE_BY_ZERO, 0, 0)
    assert run(f"@r1 {text}\nhalt").error is None


def test_loops_nest_as_deep_as_the_machine_can() -> None:
    def nest(depth: int) -> str:
        loops = [f"loop r1, {2 * (depth - i) - 1}" for i in range(depth)]
        return "\n".join(["li r1, 1", *loops, *["nop"] * depth, "halt"])

    assert run(nest(TEST.loop_depth)).error is None
    assert run(nest(TEST.loop_depth + 1)).error == MachineError(Cause.LOOP_DEPTH, 0, TEST.loop_depth + 1)


def test_a_deadlock_ends_by_the_watchdog_and_names_the_first_warp_held() -> None:
    outcome = run("halt", "nop\nwait 0\nhalt", "wait 1\nhalt")
    assert outcome.error == MachineError(Cause.WATCHDOG, 1, 1)
    assert outcome.cycles == turn(0, 1) + 1
    with pytest.raises(InputError, match="watchdog must be above 0"):
        run("wait 0\nhalt", watchdog=0)


def test_a_wrong_check_word_stops_the_start() -> None:
    outcome = run("halt", check_word=1)
    assert outcome.error == MachineError(Cause.CHECK_WORD, 0, 0)
    assert outcome.events == []
    words = job_of(["halt"]).programs[0]
    right = zlib.crc32(b"".join(word.to_bytes(4, "little") for word in loaded(TEST, words)))
    assert run("halt", check_word=right).error is None


@pytest.mark.parametrize("text", ["load_c r0, r0, r3, r3", "load_a r0, r0, r3, r3"])
def test_nothing_is_worked_out_behind_an_error(text: str) -> None:
    # Four thousand million bytes through a port that stalls: all of it would take minutes, and gigabytes.
    program = f"li r3, 1\nlih r3, -1\n{text}\nhalt"
    outcome = run(program, memory={"stall_seed": 1, "stall_rate": 100})
    assert outcome.error is not None
    assert outcome.error.cause in (Cause.BUFFER_RANGE, Cause.WINDOW)
    assert outcome.cycles < 1 << 20
    assert outcome.counters[f"{text[:6].upper()}_WORDS"] < 1 << 20


@pytest.mark.parametrize(
    "text",
    ["load_c r0, r0, r3, r3", "gemm r0, r0, r0, r5", "gemm r0, r0, r0, r3", "store r0, r0, r3, r3"],
)
def test_what_fails_is_not_carried_out_beside_a_grid(text: str) -> None:
    # Of four thousand million elements; the grid is there, so memory is kept.
    config = load("test")
    program = "li r3, 1\nlih r3, -1\nli r5, 1\nparam gemm_m, r3\nparam gemm_n, r3\n@r0 cgra r0, r0, r0, r0\n"
    outcome = run(f"{program}{text}\nhalt", config=config)
    assert outcome.error == MachineError(Cause.BUFFER_RANGE, 0, 6)
