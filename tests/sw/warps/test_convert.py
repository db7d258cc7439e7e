"""Sequential programs become warps with their loops kept: sites, tokens, throttles, and refusals."""

from __future__ import annotations

import textwrap

import pytest

from cosim.session.warps import Warped, converted
from hw.config import MachineConfig
from hw.errors import InputError
from sw.ir.split import warps
from sw.warps.channels import Channels
from sw.warps.convert import convert
from sw.warps.reduce import Reduction
from sw.warps.text import warp_assembly
from tests.budget import sweep
from tests.sw.warps.mutations import Fate, Judge, Kind, mutations
from tests.sw.warps.random_programs import differs, drawn, runs
from tests.sw.warps.samples import WORKED, program_of

CONFIG = MachineConfig(imem_words=4096)
MANY = CONFIG.replace(channels=64)


def warps_of(text: str, config: MachineConfig = CONFIG) -> Warped:
    """The warps of a program, which are right and compute the same under random schedules."""
    program = program_of(text)
    made = converted(program, config)
    assert made.verdict.ok, made.verdict.reason
    assert made.verdict.method == "exact"
    assert differs(program, made.texts, config, runs(program)[:4], schedules=4) is None
    return made


def lines(text: str) -> list[str]:
    """The instructions and labels of a text."""
    return textwrap.dedent(text).split("\n")[1:-1]


def syncs(made: Warped, warp: int) -> list[str]:
    """The waits and signals of a warp; an @ in front of those under a predicate."""
    words = [line.split() for line in made.texts[warp].splitlines()]
    found = [w for w in words if {"wait", "signal"} & set(w)]
    return [f"{'@' * w[0].startswith('@')}{w[-2]} {w[-1]}" for w in found]


def test_the_worked_example() -> None:
    made = warps_of(WORKED)
    assert made.texts[0].splitlines() == lines(
        """
        li r1, 3
        loop r1, L1
        op P
        signal 0
        L1:
        li r1, 3
        wait 1
        loop r1, L2
        op P4
        signal 0
        L2:
        wait 1
        op P7
        signal 0
        halt
        """
    )
    assert made.texts[1].splitlines() == lines(
        """
        li r1, 3
        loop r1, L1
        wait 0
        op C
        L1:
        signal 1
        li r1, 3
        loop r1, L2
        wait 0
        op C4
        L2:
        signal 1
        wait 0
        op C7
        halt
        """
    )
    assert made.channel_count == 2
    assert not made.throttle


#: A product of tiles: two places for each operand, and for the result.
PRODUCT = """
    @program
    def product():
        a: Buffer[2, 4, A]
        b: Buffer[2, 4, B]
        c: Buffer[2, 4, acc]
        for i in range(4):
            for k in range(3):
                LA = fetch_a(write=a[(3 * i + k) % 2, 0:4], warp=0)
                LB = fetch_b(write=b[(3 * i + k) % 2, 0:4], warp=1)
                G = multiply(
                    read=[a[(3 * i + k) % 2, 0:4], b[(3 * i + k) % 2, 0:4]], write=c[i % 2, 0:4], warp=2
                )
            S = put(read=c[i % 2, 0:4], warp=3)
"""


def test_a_product_with_two_places_for_each_tile() -> None:
    made = warps_of(PRODUCT)
    assert made.texts[0].splitlines() == lines(
        """
        li r1, 4
        loop r1, L2
        li r1, 3
        loop r1, L1
        wait 2
        op LA
        signal 0
        L1:
        nop
        L2:
        halt
        """
    )
    assert made.texts[1] == made.texts[0].replace("LA", "LB").replace("wait 2", "wait 3").replace(
        "signal 0", "signal 1"
    )
    # Both loads get their first token before either gets its second. The tile of the result is handed on
    # before places are given back.
    assert syncs(made, 2) == [
        *("signal 2", "signal 3", "signal 2", "signal 3"),
        *("wait 5", "wait 0", "wait 1", "@signal 4", "signal 2", "signal 3"),
    ]
    # Nobody takes the last token.
    assert syncs(made, 3) == ["signal 5", "signal 5", "wait 4", "signal 5"]


#: Operands stay while several products use them; of the last column there is but one part.
STAYING = """
    @program
    def staying():
        a: Buffer[4, A]
        b: Buffer[2, 4, B]
        c: Buffer[2, 2, 4, acc]
        LA = fetch_a(write=a[0:4], warp=0)
        for n in range({columns}):
            LB = fetch_b(write=b[n % 2, 0:4], warp=1)
            for m in range(2):
                for part in range(2):
                    G = multiply(read=[a[0:4], b[n % 2, 0:4]], write=c[m, part, 0:4], warp=2{there})
                for part in range(2):
                    S = put(read=c[m, part, 0:4], warp=3{there})
"""
RAGGED = STAYING.format(columns=5, there=", when=part < 2 - n // 4")


def test_data_is_awaited_in_front_of_what_reads_it_and_behind_all_else() -> None:
    made = warps_of(RAGGED)
    given_back = made.channels["S->G@1,0"]
    text = [line for line in made.texts[2].splitlines() if {"wait", "op"} & set(line.split())]
    # Loads that stand outside are awaited in the first iteration, where operands are known by then.
    data = [made.channels["LA->G"], made.channels["LB->G@0"]]
    assert [line.split()[-1] for line in text] == [str(given_back), *map(str, data), "G"]
    assert [line.startswith("@") for line in text] == [False, True, True, True]


@pytest.mark.parametrize(
    ("there", "early", "tokens"),
    [("", True, 2), (", when=part < 2 - n // 4", True, 4), (", when=part < 2 - n // 4", False, 2)],
)
def test_places_are_given_back_one_by_one_where_some_are_not_used(
    there: str, early: bool, tokens: int
) -> None:
    program = program_of(STAYING.format(columns=5, there=there))
    made = convert(program, CONFIG, release_early=early)
    texts = {warp: warp_assembly(made.program, warp, CONFIG, f"warp {warp}") for warp in warps(made.program)}
    assert differs(program, texts, CONFIG, runs(program)[:4], schedules=4) is None
    lines = [line.strip() for line in texts[3].splitlines() if "@" not in line]
    # Those at the start, and the one in the loop.
    assert lines.count(f"signal {made.channels['S->G@1,0']}") == tokens + 1


ROTATING = """
    @program
    def rotating():
        a: Buffer[{places}0]
        for i in range({count}):
            P = f(write=a[10 * (i % {places}):10 * (i % {places}) + 10], warp=0)
            C = g(read=a[10 * (i % {places}):10 * (i % {places}) + 10], warp=1)
"""


@pytest.mark.parametrize("places", [1, 2, 3, 7])
def test_a_token_in_advance_for_every_place(places: int) -> None:
    made = warps_of(ROTATING.format(places=places, count=30))
    assert syncs(made, 0) == ["wait 1", "signal 0"]
    assert syncs(made, 1) == ["signal 1"] * places + ["wait 0", "signal 1"]
    assert dict(made.channels) == {"P->C@0": 0, f"C->P@{places}": 1}


def test_more_places_than_a_channel_holds_tokens() -> None:
    made = warps_of(ROTATING.format(places=12, count=30))
    assert syncs(made, 1).count("signal 1") == CONFIG.channel_depth + 1
    assert {flow.most for flow in made.verdict.channels.values()} == {CONFIG.channel_depth}


@pytest.mark.parametrize("text", [PRODUCT.replace("range(4)", "range({count})"), ROTATING])
def test_the_size_of_a_program_does_not_grow_with_the_problem(text: str) -> None:
    sizes = set()
    # Some with more instances than places are derived from.
    for count in (30, 3000, 12_000):
        made = converted(program_of(text.replace("{count}", str(count)).replace("{places}", "3")), CONFIG)
        assert made.verdict.ok
        sizes.add(tuple(len(t.splitlines()) for t in made.texts.values()))
    assert len(sizes) == 1


def test_what_comes_behind_a_long_loop_is_in_order_too() -> None:
    text = (
        ROTATING.format(places=2, count=7000)
        + """
        Q = f(write=a[0:20], warp=2)
        D = g(read=a[5:15], warp=1)
    """
    )
    made = converted(program_of(text), CONFIG)
    assert made.verdict.ok, made.verdict.reason
    assert "Q->D" in made.channels


def test_branches_on_parameters() -> None:
    text = """
        @program
        def p(p: bool, q: bool):
            a: Buffer[20]
            for i in range(6):
                if p:
                    P = f(write=a[10 * (i % 2):10 * (i % 2) + 10], warp=0)
                    C = g(read=a[10 * (i % 2):10 * (i % 2) + 10], warp=1, when=q)
                else:
                    D = g(read=a[10 * (i % 2):10 * (i % 2) + 10], warp=1)
            E = h(write=a[0:20], warp=0)
    """
    made = warps_of(text)
    assert made.verdict.bindings == 4
    assert "jump" in made.texts[0]


def test_predicates() -> None:
    text = """
        @program
        def p(n: int[1, 9]):
            a: Buffer[10]
            b: Buffer[10]
            for i in range(9):
                P = f(write=a, warp=0, when=i % 3 == 0)
                Q = f(read=a, write=b, warp=1, when=i < n)
                C = g(read=b, warp=2)
    """
    made = warps_of(text)
    assert made.verdict.bindings == 8


def test_a_value_whose_edge_is_not_among_those_that_were_tried() -> None:
    text = """
        @program
        def p(x: int[0, 200]):
            a: Buffer[200]
            P = f(write=a[123], warp=0)
            C = g(read=a[x], warp=1, when=x < 150)
    """
    made = converted(program_of(text), CONFIG)
    assert made.verdict.ok, made.verdict.reason
    assert list(made.channels) == ["P->C"]


PHASES = """
    @program
    def phases():
        a: Buffer[40]
        for i in range(12):
            P = f(write=a[10 * (i % 4):10 * (i % 4) + 10], warp=0)
            C = g(read=a[10 * (i % 4):10 * (i % 4) + 10], warp=1)
        for j in range(12):
            Q = f(write=a[20 * (j % 2):20 * (j % 2) + 20], warp=0)
            D = g(read=a[20 * (j % 2):20 * (j % 2) + 20], warp=1)
        for k in range(12):
            R = f(write=a, warp=0)
            E = g(read=a, warp=1)
"""


def test_phases_with_different_numbers_of_tokens_fill_and_drain() -> None:
    made = warps_of(PHASES)
    assert made.channel_count == 2
    # Four places, then two, then one; the tokens of the last phase stay.
    assert syncs(made, 0) == [
        *("wait 1", "signal 0"),
        *("wait 1", "wait 1", "wait 1", "signal 0"),
        *("wait 1", "wait 1", "signal 0"),
    ]
    assert syncs(made, 1) == [
        *(["signal 1"] * 4 + ["wait 0", "signal 1"]),
        *("wait 0", "signal 1"),
        *("wait 0", "signal 1"),
    ]


AHEAD = """
    @program
    def ahead():
        a: Buffer[400]
        for i in range(40):
            P = f(write=a[10 * i:10 * i + 10], warp=0)
            C = g(read=a[10 * i:10 * i + 10], warp=1)
"""


def test_a_producer_that_nothing_holds_back_is_throttled() -> None:
    made = warps_of(AHEAD)
    assert list(made.throttle) == [("C", "P")]
    assert {flow.most for flow in made.verdict.channels.values()} == {8}
    assert syncs(made, 1) == ["signal 1"] * 8 + ["wait 0", "signal 1"]
    assert syncs(made, 0) == ["wait 1", "signal 0"]


def test_too_few_channels_are_named() -> None:
    with pytest.raises(InputError, match=r"\w+ -> \w+ needs channel 5: channels must be at least 6, not 3"):
        converted(program_of(PRODUCT), CONFIG.replace(channels=3))
    with pytest.raises(InputError, match=r"channels must be at least \d+, not 2"):
        converted(program_of(WORKED), CONFIG.replace(channels=2), channels=Channels.UNIQUE)


@pytest.mark.parametrize("kind", ["nests", "control", "everything", "bindable", "pipelines"])
@pytest.mark.parametrize("block", sweep(range(3), kept=(0,)))
def test_random_programs_give_the_sequential_result(kind: str, block: int) -> None:
    for seed in range(4 * block, 4 * block + 4):
        program = drawn(kind, 90_000 + seed)
        way = seed % 4
        made = converted(
            program,
            MANY,
            Reduction.OBTAINED if way == 1 else Reduction.FULL,
            Channels.UNIQUE if way == 2 else Channels.FIFO,
            unroll=way == 3,
        )
        assert made.verdict.ok, (seed, made.verdict.reason)
        assert differs(program, made.texts, MANY, runs(program)[:2], schedules=2, seed=seed) is None, seed


@pytest.mark.parametrize(
    ("text", "needless"),
    [
        (WORKED, set()),
        # Loads may also go side by side with each other's tokens.
        (PRODUCT, {Kind.TOKEN, Kind.SWAP}),
        (PHASES.replace("12", "5"), {Kind.TOKEN}),
        (ROTATING.format(places=1, count=4), set()),
        (ROTATING.format(places=2, count=4), {Kind.TOKEN}),
    ],
)
def test_no_wait_and_no_signal_is_needless(text: str, needless: set[Kind]) -> None:
    program = program_of(text)
    judge = Judge(program, CONFIG, runs(program))
    fates = {(kind, judge.fate(texts)) for kind, _, texts in mutations(converted(program, CONFIG).texts)}
    # One of two tokens in advance less: less happens side by side, and all is right.
    assert fates >= {(Kind.WAIT, Fate.REJECTED), (Kind.SIGNAL, Fate.REJECTED)}
    assert {kind for kind, found in fates if found is not Fate.REJECTED} <= needless
    assert not {Fate.MISSED, Fate.STRICT} & {found for _, found in fates}


@pytest.mark.parametrize(("kind", "seed"), [("nests", 19), ("nests", 49), ("nests", 86), ("pipelines", 35)])
def test_needless_waits_where_parts_meet_and_at_the_end_are_gone(kind: str, seed: int) -> None:
    program = drawn(kind, seed)
    judge = Judge(program, CONFIG, runs(program))
    changes = [
        (what, t) for what, _, t in mutations(converted(program, CONFIG).texts) if what is not Kind.SWAP
    ]
    assert changes
    assert {judge.fate(texts) for _, texts in changes} == {Fate.REJECTED}


@pytest.mark.parametrize("channels", [16])
def test_pairs_of_warps_without_a_channel_tell_each_other_through_a_third_one(channels: int) -> None:
    buffers = [f"b{w}" for w in range(6)]
    stages = [f"X{w} = f(write={b}, warp={w})" for w, b in enumerate(buffers)]
    stages += [f"Y{w} = g(read=[{', '.join(buffers)}], warp={w})" for w in range(6)]
    declared = [f"    {b}: Buffer[4]" for b in buffers]
    body = [f"        {s}" for s in stages]
    text = "\n".join(["@program", "def p():", *declared, "    for i in range(5):", *body]) + "\n"
    assert warps_of(text, MANY).channel_count == 30
    made = warps_of(text, CONFIG.replace(channels=channels))
    assert made.channel_count <= channels


def test_no_third_warp_helps_where_there_is_none() -> None:
    with pytest.raises(InputError, match="channels must be at least 2, not 1"):
        converted(program_of(ROTATING.format(places=2, count=5)), CONFIG.replace(channels=1))


def test_what_tokens_order_less_once_they_share_a_channel_gets_its_own_again() -> None:
    """S9 and its wait order S8 and S11 too, in every iteration; behind the tokens of S2 only in the last."""
    made = warps_of(
        """
        @program
        def p(p0: bool):
            b0: Buffer[6]
            for i in range(2):
                S2 = f(write=b0[2*i : 2*i + 2], warp=1)
            for j in range(2):
                if p0:
                    S7 = f(read=b0[2*j : 2*j + 2], warp=0)
                else:
                    S8 = f(write=b0[2*j : 2*j + 2], warp=1)
                S9 = f(write=b0[2*j + 1 : 2*j + 2], warp=1)
                S11 = f(read=[b0[2:4], b0[0:1]], warp=0)
        """
    )
    assert made.verdict.bindings == 2  # each value of p0
