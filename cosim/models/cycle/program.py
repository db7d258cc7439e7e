"""Instruction words as compact tuples that the sequencer executes.

A decoded instruction is `(kind, guard, sense, a, b, c, turns, extra)`. `guard` is the predicate register, or
-1 for "always"; `a`, `b`, `c` are fields whose meaning depends on the kind. Writes to register 0 go to an
extra register after the last one, so register 0 stays 0.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from hw import assembly, isa
from hw.config import MachineConfig
from hw.errors import InputError

# Kinds of instructions; those from WAIT on may be held.
NOP, HALT, LI, LIH, SELECT, LOOP, JUMP, BINARY, BINARY_I = range(9)
WAIT, SIGNAL, ENGINE, PARAM, PARAM_I, ILLEGAL, WRAP = range(9, 16)

Decoded = tuple[int, int, bool, int, int, int, int, Any]

ILLEGAL_WORD: Decoded = (ILLEGAL, -1, False, 0, 0, 0, 1, None)

#: Follows the last word of a memory; execution continues at the first word.
WRAP_WORD: Decoded = (WRAP, -1, False, 0, 0, 0, 0, None)

#: Number of decoded words cached per configuration.
KNOWN_WORDS = 1 << 14

_PLAIN = {"nop": NOP, "halt": HALT, "li": LI, "lih": LIH, "loop": LOOP, "jump": JUMP}


def decode(config: MachineConfig, words: Sequence[int]) -> list[Decoded]:
    """The program of a warp. Raises `InputError` if it does not fit the instruction memory."""
    if len(words) > config.imem_words:
        raise InputError(f"program must have at most {config.imem_words} words, not {len(words)}")
    known = _known(config)
    if len(known) > KNOWN_WORDS:
        known.clear()
    for word in words:
        if word not in known:
            known[word] = _decode(word, config)
    return [known[word] for word in words]


@functools.lru_cache(maxsize=8)
def _known(_config: MachineConfig) -> dict[int, Decoded]:
    """Cache of decoded words for a configuration."""
    return {}


def _decode(word: int, config: MachineConfig) -> Decoded:
    code = assembly.decode(word)
    if code is None or assembly.illegal(code, config) is not None:
        return ILLEGAL_WORD
    spec, f, name = code.spec, code.fields, code.name
    always = code.predicate == 0 and not code.sense
    guard, sense = -1 if always else code.predicate, code.sense
    rd = f.get("rd") or config.registers

    def made(kind: int, a: int = 0, b: int = 0, c: int = 0, extra: Any = None) -> Decoded:
        return (kind, guard, sense, a, b, c, spec.turns, extra)

    if spec.engine is not None:
        registers = tuple(f[x.name] for x in spec.fields)
        limits = tuple((1 << o.bits) - 1 for o in spec.operands)
        return made(ENGINE, extra=(spec.engine, name, registers, limits))
    if name in ("li", "lih"):
        return made(_PLAIN[name], rd, f["imm"])
    if name == "loop":
        return made(LOOP, f["rs1"], f["length"])
    if name == "jump":
        return made(JUMP, b=f["offset"])
    if name in _PLAIN:
        return made(_PLAIN[name])
    if name == "select":
        return made(SELECT, rd, f["rs1"], f["rs2"], f["rs3"])
    if name in ("wait", "signal"):
        return made(WAIT if name == "wait" else SIGNAL, f["channel"])
    if name in ("param", "parami"):
        bits = isa.BY_PARAMETER[f["parameter"]].bits
        by_register = name == "param"
        value = f["rs1"] if by_register else f["imm"]
        return made(PARAM if by_register else PARAM_I, f["parameter"], value, extra=bits)
    assert spec.semantics is not None
    kind = BINARY_I if "imm" in f else BINARY
    a, b = (f[source] for source in spec.sources)
    return made(kind, rd, a, b, spec.semantics.exact)
