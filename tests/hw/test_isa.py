"""The instruction table contradicts itself nowhere, and text and words are two forms of one thing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw import csr, isa
from hw.assembly import Code, assemble, decode, disassemble, disassemble_words, encode, illegal
from hw.config import load
from hw.errors import InputError


@st.composite
def codes(draw: st.DrawFn) -> Code:
    spec = draw(st.sampled_from(list(isa.INSTRUCTIONS.values())))
    fields = {}
    for f in spec.fields:
        half = 1 << f.width - 1
        signed = f.kind is isa.Kind.IMMEDIATE
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
        ("cgra r1, r2, r3, r4", "no CGRA grid"),
        (".word 0", "no such opcode"),
    ],
)
def test_what_a_small_machine_lacks_is_illegal(text: str, reason: str) -> None:
    machine = load("test").replace(registers=8)
    assert reason in str(illegal(decode(assemble(text)[0]), machine))
    assert illegal(decode(assemble("add r7, r1, r1")[0]), machine) is None
