"""Register allocation: liveness, and the machine register of each value.

Values are never spilled: there is no memory for scalars. Liveness is exact, along the edges of loops and
jumps. Registers are assigned in the order of the first definition: each value gets the lowest free one,
preferably that of a value it is copied from or to.
"""

from __future__ import annotations

from dataclasses import dataclass

from sw.codegen.virtual import ZERO, Code, VirtualInstruction


@dataclass(frozen=True)
class Allocation:
    """The machine register of each virtual register, and the number used, r0 included."""

    registers: tuple[int, ...]
    count: int


def live_out(code: Code) -> list[int]:
    """For every operation, the registers (as bits) whose values are needed after it."""
    operations = code.operations
    count = len(operations)
    reads = [_bits(o.reads) for o in operations]
    kills = [0 if o.target is None or o.predicate else 1 << o.target for o in operations]
    exits = _exits(operations)
    live_in = [0] * (count + 1)
    found = [0] * count
    changed = True
    while changed:
        changed = False
        for i in range(count - 1, -1, -1):
            out = 0
            for successor in exits[i]:
                out |= live_in[successor]
            out &= ~(1 << ZERO)
            if out != found[i]:
                found[i] = out
                changed = True
            live_in[i] = reads[i] | out & ~kills[i]
    return found


def _bits(registers: tuple[int, ...]) -> int:
    bits = 0
    for register in registers:
        bits |= 1 << register
    return bits


def _exits(operations: list[VirtualInstruction]) -> list[list[int]]:
    """Where control goes from each operation; the index after the last one is the end."""
    exits = [[i + 1] for i in range(len(operations))]
    for i, o in enumerate(operations):
        if o.name == "halt":
            exits[i] = []
        elif o.name == "jump":
            exits[i] = [o.link] if o.predicate is None else [i + 1, o.link]
        elif o.name == "loop":
            # From the last instruction back to the first; a loop with zero iterations is skipped.
            exits[o.link].append(i + 1)
            if not o.certain:
                exits[i].append(o.link + 1)
    return exits


def pressure(code: Code, live: list[int]) -> list[int]:
    """How many registers, not counting r0, are live at each operation, including its result.

    `live` is `live_out` of the code.
    """
    found = []
    for o, bits in zip(code.operations, live, strict=True):
        if o.target is not None:
            bits |= 1 << o.target
        found.append(bits.bit_count())
    return found


def allocate(code: Code, live: list[int] | None = None) -> Allocation:
    """Assigns registers, as few as this order of definitions allows; `live` is `live_out`, if known."""
    operations = code.operations
    live = live_out(code) if live is None else live
    beside = [0] * code.registers
    friends: list[list[int]] = [[] for _ in range(code.registers)]
    order = dict.fromkeys(code.given)
    for register in order:
        beside[register] |= _bits(tuple(order)) & ~(1 << register)
    for o, out in zip(operations, live, strict=True):
        target = o.target
        if target is None:
            continue
        order.setdefault(target)
        others = out & ~(1 << target)
        if o.name == "addi" and o.immediate == 0 and o.predicate is None:
            # A copy may share its source's register.
            others &= ~(1 << o.sources[0])
        if o.sources:
            friends[target].append(o.sources[0])
            friends[o.sources[0]].append(target)
        beside[target] |= others
        for other in _members(others):
            beside[other] |= 1 << target
    given = [ZERO] * code.registers
    done = 0
    for register in order:
        taken = {given[x] for x in _members(beside[register] & done)} | {ZERO}
        wished = [given[f] for f in friends[register] if done >> f & 1 and given[f] not in taken]
        lowest = next(n for n in range(1, code.registers + 1) if n not in taken)
        given[register] = wished[0] if wished else lowest
        done |= 1 << register
    return Allocation(tuple(given), 1 + max(given, default=0))


def _members(bits: int) -> list[int]:
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found
