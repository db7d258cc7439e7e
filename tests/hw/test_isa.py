"""The instruction table is consistent, and text and words are equivalent forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw import csr, isa
from hw.assembly import Code, assemble, decode, disassemble, disassemble_words, encode, illegal, listing
from hw.config import load
from hw.errors import InputError


@st.composite
def codes(draw: st.DrawFn) -> Code:
    spec = draw(st.sampled_from(list(isa.INSTRUCTIONS.values())))
    fields = {}
    for f in spec.fields:
        half = 1 << f.width - 1
        signed = f.kind is isa.FieldKind.IMMEDIATE
        fields[f.name] = draw(st.integers(-half, half - 1) if signed else st.integers(0, 2 * half - 1))
    return Code(spec.name, fields, draw(st.integers(0, 31)), draw(st.booleans()))


@given(codes())
def test_words_and_text_are_inverse(code: Code) -> None:
    word = encode(code)
    assert decode(word) == code
    if code.name not in ("loop", "jump"):
        assert assemble(disassemble(code)) == [word]


@given(st.lists(st.integers(0, 0xFFFFFFFF), max_size=20))
def test_any_words_disassemble_to_text_of_as_many_lines(words: list[int]) -> None:
    assert len(disassemble_words(words)) == len(words)


def test_labels_stand_behind_bodies_and_before_what_jumps_lead_to() -> None:
    text = "loop r1, L3\n@r2 jump L1\nnop\nL1:\nloop r2, L2\nnop\nL2:\njump L1\nL3:\nhalt\n"
    words = assemble(text)
    numbers = "loop r1, 5\n@r2 jump 1\nnop\nloop r2, 1\nnop\njump -3\nhalt"
    assert words == assemble(numbers)
    assert listing(words) == text


@st.composite
def programs(draw: st.DrawFn) -> list[int]:
    """Words with jumps and loops that the assembler takes: loops do not share their ends."""
    count = draw(st.integers(1, 12))
    words = [encode(Code("nop"))] * count
    ends = {count}
    for pc in draw(st.lists(st.integers(0, count - 1), unique=True)):
        if draw(st.booleans()):
            words[pc] = encode(Code("jump", {"offset": draw(st.integers(-pc - 1, count - 2 - pc))}))
        elif (end := draw(st.integers(pc, count))) not in ends and end > pc:
            ends.add(end)
            words[pc] = encode(Code("loop", {"rs1": 1, "length": end - pc}))
    return [*words, draw(st.integers(0, 0xFFFFFFFF))]


@given(programs())
def test_a_listing_reads_back_as_the_same_words(words: list[int]) -> None:
    text = listing(words)
    try:
        numbers = assemble("\n".join(disassemble_words(words)))
    except InputError:
        with pytest.raises(InputError):
            assemble(text)
        return
    assert assemble(text) == numbers == words


def test_fields_do_not_overlap_and_opcodes_differ() -> None:
    head = {*range(isa.SENSE_LOW, isa.WORD_BITS)}
    for spec in isa.INSTRUCTIONS.values():
        used = set(head)
        for f in spec.fields:
            bits = {*range(f.low, f.low + f.width)}
            assert not bits & used, (spec.name, f.name)
            used |= bits
    assert len(isa.BY_OPCODE) == len(isa.INSTRUCTIONS)
    assert 0 not in isa.BY_OPCODE, "the word of empty memory must stop a warp"


def test_register_offsets_differ_on_the_largest_machine() -> None:
    machine = load("large").replace(warps=16, windows=12)
    offsets = [r.offset for r in csr.registers(machine)]
    assert len(set(offsets)) == len(offsets)
    assert max(offsets) < 1 << 16


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("frob r1", "p.s:1: unknown instruction 'frob r1'"),
        ("nop\nadd r1, r2", "p.s:2: add takes rd, rs1, rs2"),
        ("li r1, 99999", "li: imm must be -16384 to 16383, not 99999"),
        ("add r1, 2, r3", "add: rs1 must be a register, not '2'"),
        ("wait x", "wait: channel must be a number, not 'x'"),
        ("param gemm_q, r1", "param: parameter must be a number, not 'gemm_q'"),
        ("loop r1, 5\nnop", "loop body must hold 1 to 1 instructions"),
        ("loop r1, 2\nloop r1, 1\nnop", "loop must end before the loop around it ends"),
        ("loop r1, 2\nnop\njump 1\nhalt", "jump must stay in its loop, pc 1 to 2"),
        ("jump L1\nnop", "p.s:1: jump: there is no label L1"),
        ("L1:\nnop\nL1:", "p.s:3: the label L1 must be defined once"),
        ("2:\nnop", "p.s:1: a label must be a name, not '2'"),
        ("L1:\nloop r1, L1\nnop", "p.s:2: loop: the label L1 must come after the loop's body"),
    ],
)
def test_wrong_assembly_names_line_and_reason(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("'", ".")):
        assemble(text, "p.s")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("wait 16", "channel 16"),
        ("add r9, r1, r1", "r9"),
        ("@r8 nop", "predicate r8"),
        ("param 60, r1", "parameter 60"),
        ("cgra r1, r2, r3, r4", "cgra needs a machine with a CGRA"),
        ("load_b_conv r1, r2, r3, r4", "load_b_conv needs a machine with convolutions = true"),
        (".word 0", "no such opcode"),
    ],
)
def test_what_a_small_machine_lacks_is_illegal(text: str, reason: str) -> None:
    machine = load("test").replace(registers=8, cgra=None, convolutions=False)
    assert reason in str(illegal(decode(assemble(text)[0]), machine))
    assert illegal(decode(assemble("add r7, r1, r1")[0]), machine) is None
