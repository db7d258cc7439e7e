"""Issue cycles that depend only on a warp's own program."""

import pytest

from cosim.job import EventKind
from cosim.models.cycle import predict
from hw.assembly import Code, assemble, encode
from hw.errors import InputError
from tests.cosim.models.cycle.jobs import TEST, issues, job_of, run, turn, turns


def test_one_instruction_issues_per_turn_and_the_last_event_ends_the_run() -> None:
    outcome = run("li r1, 1\nnop\nhalt")
    assert issues(outcome) == [(0, 0), (6, 1), (12, 2)]
    assert outcome.cycles == 13
    assert outcome.error is None


@pytest.mark.parametrize(("warps", "period"), [(1, 6), (5, 6), (6, 6), (7, 7), (8, 8), (16, 16)])
def test_every_warp_has_one_turn_in_a_period(warps: int, period: int) -> None:
    outcome = run(*["nop\nhalt"] * warps, config=TEST.replace(warps=warps))
    assert [issues(outcome, w) for w in range(warps)] == [[(w, 0), (w + period, 1)] for w in range(warps)]
    assert outcome.cycles == warps + period


def test_turns_of_warps_that_do_nothing_pass_idle() -> None:
    job = job_of(["halt", "halt", "halt", "nop\nnop\nhalt"])
    alone = job_of(["halt"])
    alone.programs[3] = job.programs[3]
    assert issues(predict(TEST, job), 3) == issues(predict(TEST, alone), 3) == [(3, 0), (9, 1), (15, 2)]


def test_quotients_take_longer_unless_their_predicate_is_false() -> None:
    outcome = run("li r1, 1\nmul r2, r1, r1\ndiv r2, r1, r1\nrem r2, r1, r1\n@r0 div r2, r1, r1\nhalt")
    assert [number for number, _ in turns(outcome)] == [0, 1, 2, 38, 74, 75]


def test_predicates_choose_by_register_and_sense() -> None:
    outcome = run("li r1, 1\n@r1 jump 1\nnop\n@!r1 jump 1\nnop\n@!r0 jump 1\nnop\nhalt")
    assert [pc for _, pc in issues(outcome)] == [0, 1, 3, 4, 5, 7]


def test_loops_nest_and_return_at_no_cost() -> None:
    outcome = run("li r1, 2\nli r2, 3\nloop r1, 4\nnop\nloop r2, 1\nnop\nnop\nhalt")
    body = [3, 4, 5, 5, 5, 6]
    assert [pc for _, pc in issues(outcome)] == [0, 1, 2, *body, *body, 7]
    assert [number for number, _ in turns(outcome)] == list(range(16))


@pytest.mark.parametrize("count", [0, -5])
def test_a_loop_without_turns_is_skipped(count: int) -> None:
    outcome = run(f"li r1, {count}\nloop r1, 2\nnop\nnop\nhalt")
    assert turns(outcome) == [(0, 0), (1, 1), (2, 4)]


@pytest.mark.parametrize(
    ("program", "void"),
    [
        ("li r1, 1\n@r1 nop", [0, 0]),
        ("li r1, 1\n@!r1 nop", [0, 1]),
        ("li r1, 1\n@r2 nop", [0, 1]),
        ("li r0, 1\n@r0 nop", [0, 1]),
        ("li r0, 1\n@!r0 nop", [0, 0]),
        ("@r2 li r1, 1\n@r1 nop", [1, 1]),
        ("li r1, 1\nli r1, 0\n@r1 nop", [0, 0, 1]),
        ("li r1, 2\nloop r1, 1\nnop", [0, 0, 0, 0]),
        ("li r1, 3\nsubi r1, r1, 1\nloop r1, 1\nnop", [0, 0, 0, 0, 0]),
        ("li r1, 2\n@r2 loop r1, 1\nnop", [0, 1, 0]),
        ("li r1, 1\nselect r2, r1, r1, r0\n@r2 nop", [0, 0, 0]),
        ("li r1, 1\nmul r1, r1, r1\n@r1 nop", [0, 0, 0]),
        ("li r2, 2\nloop r2, 2\n@r1 nop\naddi r1, r1, 1", [0, 0, 1, 0, 0, 0]),
    ],
)
def test_a_predicate_and_a_count_are_what_the_turn_before_wrote(program: str, void: list[int]) -> None:
    outcome = run(f"{program}\nhalt")
    assert [e.kind is EventKind.VOID for e in outcome.events] == [bool(v) for v in [*void, 0]]
    assert [number for number, _ in turns(outcome)] == list(range(len(void) + 1))


def test_a_loop_with_a_false_predicate_is_a_no_op() -> None:
    outcome = run("li r1, 3\n@r0 loop r1, 1\nnop\nhalt")
    assert [pc for _, pc in issues(outcome)] == [0, 1, 2, 3]


def test_a_false_predicate_on_the_last_instruction_of_a_loop_still_returns() -> None:
    outcome = run("li r1, 2\nloop r1, 2\nnop\n@r0 nop\nhalt")
    assert [pc for _, pc in issues(outcome)] == [0, 1, 2, 3, 2, 3, 4]


def test_a_backward_jump_repeats() -> None:
    outcome = run("li r1, 2\nsubi r1, r1, 1\n@r1 jump -2\nhalt")
    assert [pc for _, pc in issues(outcome)] == [0, 1, 2, 1, 2, 3]


def test_a_taken_jump_at_the_end_of_a_loop_neither_ends_nor_returns_it() -> None:
    outcome = run("li r1, 2\nloop r1, 2\nxori r2, r2, 1\n@r2 jump -2\nhalt")
    assert [pc for _, pc in issues(outcome)] == [0, 1, *[2, 3, 2, 3] * 2, 4]


def test_a_skipped_loop_at_the_end_of_a_loop_neither_ends_nor_returns_it() -> None:
    job = job_of(["li r1, 2\nloop r1, 2\nnop\nnop\nnop\nhalt"])
    job.programs[0][3] = encode(Code("loop", {"rs1": 0, "length": 1}))  # the assembler refuses it
    assert [pc for _, pc in issues(predict(TEST, job))] == [0, 1, 2, 3, 5]


def test_the_first_word_follows_the_last_one_of_the_memory() -> None:
    padding = TEST.imem_words - 4
    outcome = run("@r1 jump 2\nli r1, 1\njump 1\nhalt\n" + "nop\n" * padding)
    pcs = [pc for _, pc in issues(outcome)]
    assert pcs == [0, 1, 2, *range(4, TEST.imem_words), 0, 3]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("li r1, -7\ndivi r1, r1, 2", -4),
        ("li r1, -7\nremi r1, r1, 2", 1),
        ("li r1, 1\nshli r1, r1, 31\ndivi r1, r1, -1", -(2**31)),
        ("li r1, 1\nshli r1, r1, 31\nremi r1, r1, -1", 0),
        ("li r1, -1\nshri r1, r1, 31", -1),
        ("li r1, 3\nshli r1, r1, 33", 6),
        ("li r1, 1\nlih r1, -1", 65535),
        ("li r1, 5\nli r2, 9\nselect r1, r0, r1, r2", 9),
        ("li r1, 5\nli r2, 9\nselect r1, r1, r2, r0", 9),
        ("li r1, -3\nmini r1, r1, 2", -3),
        ("li r1, -3\nlti r1, r1, 2", 1),
        ("li r0, 7\nadd r1, r0, r0", 0),
        ("li r1, 16383\nmul r1, r1, r1\nmul r1, r1, r1", 16383**4 % 2**32 - 2**32 * (16383**4 >> 31 & 1)),
    ],
)
def test_scalar_results(text: str, value: int) -> None:
    # The result decides whether the last instruction is jumped over.
    bits = value & 0xFFFFFFFF
    build = f"li r9, {bits >> 30}\nlih r9, {_low(bits >> 15)}\nlih r9, {_low(bits)}"
    outcome = run(f"{text}\n{build}\neq r10, r1, r9\n@r10 jump 1\nnop\nhalt")
    pcs = [pc for _, pc in issues(outcome)]
    assert pcs[-1] - pcs[-2] == 2


def _low(value: int) -> int:
    value &= 0x7FFF
    return value - 0x8000 if value >= 0x4000 else value


def test_warps_that_are_not_in_the_job_do_nothing() -> None:
    job = job_of(["halt"])
    job.programs[3] = assemble("nop\nhalt")
    outcome = predict(TEST, job)
    assert {e.warp for e in outcome.events} == {0, 3}
    assert outcome.counters["WARP3_INSTRUCTIONS"] == 2
    assert outcome.counters["WARP1_INSTRUCTIONS"] == 0


def test_a_warp_that_the_machine_does_not_have_is_refused() -> None:
    job = job_of(["halt"])
    job.programs[6] = assemble("halt")
    with pytest.raises(InputError, match="warp must be 0 to 5, not 6"):
        predict(TEST, job)


def test_a_program_longer_than_the_memory_is_refused() -> None:
    with pytest.raises(InputError, match="at most 256 words, not 300"):
        run("nop\n" * 299 + "halt")


def test_a_program_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosim.models.cycle.warp.INSTRUCTION_LIMIT", 50_000)
    with pytest.raises(InputError, match="warp 0 must end within 50000 instructions"):
        run("jump -1\nhalt")


def test_another_warps_error_stops_one_that_never_ends() -> None:
    outcome = run("jump -1\nhalt", "li r1, 0\ndivi r2, r1, 0\nhalt")
    assert outcome.error is not None
    assert outcome.error.warp == 1
    assert outcome.cycles == turn(1, 1)
    assert outcome.events[-1][:2] == (turn(1), 0)
