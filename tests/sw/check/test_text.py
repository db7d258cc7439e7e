"""Reading a warp's assembly, and executing its scalar instructions."""

from __future__ import annotations

import random

import pytest

from hw import isa
from hw.assembly import assemble, disassemble_words
from hw.config import load
from hw.errors import InputError
from sw.check.streams import EndlessError, Stream, compile_warp, run
from sw.check.text import parse
from tests.sw.codegen.trace import words_trace


def stream(text: str, steps: int = 100_000, **values: int) -> Stream:
    return run(compile_warp(parse(text, 4), 4), values, steps)


def told(found: Stream) -> list[str]:
    sites = [found.site(e) for e in range(found.events.size)]
    return [s.name if s.channel < 0 else f"{s.name} {s.channel}" for s in sites]


def test_loops_and_jumps_with_labels() -> None:
    found = stream(
        """
        li r1, 2
        loop r1, END
        op A
        @r2 jump ODD
        signal 3
        jump OUT
        ODD:
        wait 5
        OUT:
        xori r2, r2, 1
        END:
        halt
        """
    )
    assert told(found) == ["A", "signal 3", "A", "wait 5"]
    assert [found.site(e).line for e in range(4)] == [4, 6, 4, 9]


def test_a_loop_may_be_empty_and_end_where_another_does() -> None:
    text = "li r1, 3\nloop r1, B\nop A\nloop r1, A\nA:\nB:\nop C\nhalt"
    assert told(stream(text)) == ["A", "A", "A", "C"]


def test_a_jump_may_go_to_the_end_of_its_loop() -> None:
    text = "li r1, 3\nloop r1, B\naddi r2, r2, 1\neqi r3, r2, 2\n@r3 jump A\nop X\nA:\nB:\nhalt"
    assert told(stream(text)) == ["X", "X"]


def test_a_jump_may_go_back() -> None:
    assert told(stream("A:\naddi r1, r1, 1\nop X\nlti r2, r1, 4\n@r2 jump A\nhalt")) == ["X"] * 4


def test_a_loop_that_does_not_happen_is_passed_through_once() -> None:
    assert told(stream("li r1, 5\n@r2 loop r1, A\nop X\nA:\nhalt")) == ["X"]
    assert told(stream("loop r1, A\nop X\nA:\nhalt")) == []


def test_parameters_of_the_program() -> None:
    assert told(stream("arg r1, n\nloop r1, A\nop X\nA:\nhalt", n=3)) == ["X"] * 3
    with pytest.raises(InputError, match="no parameter n"):
        stream("arg r1, n\nhalt")


def random_code(rng: random.Random) -> str:
    """Scalar instructions with loops, forward jumps and predicates, and operations that show registers."""
    binary = list(isa.BINARY)
    lines: list[str] = []
    labels = 0

    def register() -> str:
        return f"r{rng.randrange(8)}"

    def guard() -> str:
        return rng.choice(("", "", "", f"@{register()} ", f"@!{register()} "))

    def body(size: int, depth: int) -> None:
        nonlocal labels
        for _ in range(size):
            pick = rng.random()
            if pick < 0.12 and depth < 2:
                labels += 1
                own = f"L{labels}"
                lines.append(f"andi r7, {register()}, 3")
                lines.append(f"{guard()}loop r7, {own}")
                body(rng.randint(1, 4), depth + 1)
                lines.extend(["nop", f"{own}:"])
            elif pick < 0.24:
                labels += 1
                own = f"L{labels}"
                lines.append(f"{guard()}jump {own}")
                body(rng.randint(0, 3), depth + 1)
                lines.extend([f"{own}:", "nop"])
            elif pick < 0.4:
                lines.append(f"{guard()}li {register()}, {rng.choice((0, 1, -1, 16383, -16384, 7))}")
            elif pick < 0.5:
                lines.append(f"{guard()}lih {register()}, {rng.randrange(-16384, 16384)}")
            elif pick < 0.56:
                lines.append(f"select {register()}, {register()}, {register()}, {register()}")
            elif pick < 0.62:
                lines.append(f"{guard()}{rng.choice(('wait', 'signal'))} {rng.randrange(4)}")
            elif pick < 0.7:
                lines.append(f"{guard()}store {register()}, r0, r0, r0")
            elif pick < 0.74:
                lines.append(f"{guard()}param store_stride, {register()}")
            elif pick < 0.87:
                lines.append(f"{guard()}{rng.choice(binary)} {register()}, {register()}, {register()}")
            else:
                lines.append(
                    f"{guard()}{rng.choice(binary)}i {register()}, {register()}, {rng.randrange(-512, 512)}"
                )

    body(rng.randint(4, 25), 0)
    return "\n".join([*lines, *(f"store r{r}, r0, r0, r0" for r in range(8)), "halt"])


@pytest.mark.parametrize("seed", range(150))
def test_scalars_loops_and_jumps_are_executed_as_by_the_machine(seed: int) -> None:
    """With labels, and as numbers: the words that the assembler makes, read back."""
    text = random_code(random.Random(seed))
    words = assemble(text)
    config = load("default")
    try:
        wanted = words_trace(words, config).events
    except ZeroDivisionError:
        with pytest.raises(InputError, match="division by zero"):
            stream(text)
        return
    for given in (text, "\n".join(disassemble_words(words))):
        found, counts, events = stream(given), dict[int, int](), []
        for e in range(found.events.size):
            number = int(found.events[e])
            site = found.sites[number]
            if site.channel >= 0:
                events.append((site.name, (site.channel,), ()))
                continue
            row = found.values[number][counts.get(number, 0)].tolist()
            counts[number] = counts.get(number, 0) + 1
            names = isa.INSTRUCTIONS[site.name].parameters
            events.append((site.name, tuple(row[:4]), tuple(zip(names, row[4:], strict=True))))
        assert events == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("frobnicate r1\nhalt", "warp 4, line 1: unknown instruction 'frobnicate r1'"),
        ("nop\nli r1\nhalt", "line 2: li takes rd, imm, not 'li r1'"),
        ("li r32, 1\nhalt", "line 1: r32: there are 32 registers"),
        ("li r1, 99999999\nhalt", "line 1: li: imm must be -16384 to 16383"),
        ("@r1 jump A\nhalt", "line 1: no label A"),
        ("A:\nnop\nA:\nhalt", "line 3: label A is defined twice"),
        (
            "jump A\nloop r1, B\nnop\nA:\nnop\nB:\nhalt",
            "line 1: jump must stay in its loop and not enter another",
        ),
        ("loop r1, B\njump A\nnop\nB:\nnop\nA:\nhalt", "line 2: jump must stay in its loop"),
        ("loop r1, B\nloop r1, A\nnop\nB:\nnop\nA:\nhalt", "line 2: loop must end after its start"),
        ("B:\nloop r1, B\nhalt", "line 2: loop must end after its start"),
        ("loop r1, 7\nhalt", "line 1: loop goes beyond"),
        ("op\nhalt", "line 1: op takes a label"),
        ("arg r1\nhalt", "line 1: arg takes a register and a parameter"),
        ("wait r1\nhalt", "line 1: wait: channel must be a number, not 'r1'"),
        ("param nowhere, r1\nhalt", "line 1: param: parameter must be a number, not 'nowhere'"),
        ("li r1, 5\ndiv r0, r1, r2\nhalt", "warp 4, line 2: division by zero"),
        ("li r1, -1\nparam load_fill, r1\nhalt", "warp 4, line 2: load_fill must fit 8 bits, not 4294967295"),
        ("li r1, -1\ngemm r1, r0, r0, r0\nhalt", "line 2: gemm: a must fit 20 bits, not 4294967295"),
        ("nop", "warp 4 runs past its end: a halt must end it"),
    ],
)
def test_what_is_wrong_is_named_with_warp_and_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        stream(text)
    assert message in str(caught.value)


def test_loops_that_nest_too_deep() -> None:
    text = "\n".join(["loop r1, A"] * 17 + ["nop", "A:", "halt"])
    with pytest.raises(InputError, match="line 17: loops nest deeper than 16"):
        stream(text)
    inner = "\n".join(["loop r1, A"] * 16 + ["B:", "nop", "@r1 jump B", "A:", "halt"])
    assert told(stream(inner)) == []


def test_a_warp_that_does_not_end() -> None:
    with pytest.raises(EndlessError, match="warp 4 executes more than 1,000 instructions"):
        stream("A:\nop X\njump A\nhalt", steps=1000)


def test_a_channel_that_the_machine_does_not_have() -> None:
    with pytest.raises(InputError, match="line 1: wait: channel must be 0 to 3, not 4"):
        parse("wait 4\nhalt", 0, channels=4)
