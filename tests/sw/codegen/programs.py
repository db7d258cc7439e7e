"""Random programs of one warp: nested loops, ragged sizes, rotating buffers, conditions, predicates."""

from __future__ import annotations

import random

from hw import isa

_LOADS = ("load_a", "load_a_t", "load_b", "load_b_t", "load_c")
_STORES = ("store",)
_NAMES = ("i", "j", "k", "l")


class Draw:
    """Draws one program: how deep loops nest, how many instructions, how deep expressions nest."""

    def __init__(self, seed: int, depth: int = 3, size: int = 7, nesting: int = 2):
        self.r = random.Random(seed)
        self.depth = depth
        self.lines: list[str] = []
        self.count = 0
        self.left = size
        self.nesting = nesting

    def text(self) -> str:
        """The program."""
        self.lines = ["@program", "def p():"]
        self.body(1, {}, {}, self.r.randint(1, 3))
        return "\n".join(self.lines) + "\n"

    def add(self, level: int, line: str) -> None:
        self.lines.append("    " * level + line)

    def fresh(self) -> str:
        self.count += 1
        return f"x{self.count}"

    def body(self, level: int, loops: dict[str, int], scalars: dict[str, int], size: int) -> None:
        """Statements; `loops` and `scalars` hold bounds of what may be used: values lie in 0 to bound."""
        scalars = dict(scalars)
        self.add(level, "pass")
        for _ in range(size):
            if self.left <= 0:
                return
            kind = self.r.random()
            if kind < 0.35 and len(loops) < self.depth:
                self.loop(level, loops, scalars)
            elif kind < 0.45 and level < 6:
                self.branch(level, loops, scalars)
            elif kind < 0.55:
                name = self.fresh()
                self.add(level, f"{name} = {self.number(loops, scalars)}")
                scalars[name] = 1 << 16
            else:
                self.instruction(level, loops, scalars)

    def loop(self, level: int, loops: dict[str, int], scalars: dict[str, int]) -> None:
        name = _NAMES[len(loops)]
        r = self.r
        match r.randint(0, 5):
            case 0 if loops:
                other = r.choice(list(loops))
                self.add(level, f"for {name} in range({other}):")
                count = loops[other]
            case 1:
                start, step = r.randint(-2, 3), r.choice((1, 2, 3, -1, -2))
                count = r.randint(0, 4)
                self.add(level, f"for {name} in range({start}, {start + step * count}, {step}):")
                count = 12
            case _:
                count = r.choice((1, 2, 3, 4, 5))
                self.add(level, f"for {name} in range({count}):")
        self.body(level + 1, loops | {name: count}, scalars, r.randint(1, 3))

    def branch(self, level: int, loops: dict[str, int], scalars: dict[str, int]) -> None:
        self.add(level, f"if {self.condition(loops, scalars)}:")
        self.body(level + 1, loops, scalars, self.r.randint(1, 2))
        if self.r.random() < 0.5:
            self.add(level, "else:")
            self.body(level + 1, loops, scalars, self.r.randint(1, 2))

    # Expressions

    def atom(self, loops: dict[str, int], scalars: dict[str, int]) -> str:
        choices = [*loops, *loops, *scalars]
        if choices and self.r.random() < 0.85:
            return self.r.choice(choices)
        return str(self.r.choice((0, 1, 2, 7, 64, 300, 511, 512, 513, 4096, 65536, 1 << 20)))

    def linear(self, loops: dict[str, int], scalars: dict[str, int]) -> str:
        parts = [str(self.r.choice((0, 1, 40, 4096, -96, 100000)))]
        for _ in range(self.r.randint(1, 3)):
            by = self.r.choice((1, 1, 2, 3, 16, 64, 100, 1024, 4099, -16, -300))
            parts.append(f"{by}*{self.atom(loops, scalars)}")
        self.r.shuffle(parts)
        return "(" + " + ".join(parts) + ")"

    def number(self, loops: dict[str, int], scalars: dict[str, int], depth: int = 0) -> str:
        r = self.r

        def a() -> str:
            inner = depth < self.nesting
            return self.number(loops, scalars, depth + 1) if inner else self.atom(loops, scalars)

        match r.randint(0, 13):
            case 0 | 1 | 2 | 3:
                return self.linear(loops, scalars)
            case 4:
                return f"min({self.linear(loops, scalars)}, {r.choice((16, 64, 700))})"
            case 5:
                return f"max({a()}, {a()})"
            case 6 | 7:
                d = r.choice((2, 2, 3, 4, 5))
                scale = r.choice((1, 64, 512, 1000, -48))
                return f"({self.linear(loops, scalars)} % {d} * {scale} + {r.choice((0, 0, 7))})"
            case 8:
                return f"({a()} // {r.choice((1, 2, 3, 7, 16, -3, 1000))})"
            case 9:
                return f"({a()} % {r.choice((1, 2, 7, 64, 1024, -5, 999))})"
            case 10:
                return f"({a()} if {self.condition(loops, scalars, depth + 1)} else {a()})"
            case 11:
                return f"({a()} {r.choice('&|^')} {a()})"
            case 12:
                return f"({a()} {r.choice(('<<', '>>'))} {r.choice((0, 1, 5, 31, 33))})"
            case _:
                return f"({a()} {r.choice('+-*')} {a()})"

    def condition(self, loops: dict[str, int], scalars: dict[str, int], depth: int = 0) -> str:
        r = self.r
        if depth < self.nesting and r.random() < 0.3:

            def c() -> str:
                return self.condition(loops, scalars, depth + 1)

            return r.choice((f"({c()} and {c()})", f"({c()} or {c()})", f"(not {c()})", f"({c()} != {c()})"))
        if r.random() < 0.2:
            divisor = f"({self.atom(loops, scalars)} - {r.randint(0, 2)})"
            return f"({divisor} != 0 and {r.randint(5, 900)} // {divisor} > {r.randint(0, 9)})"
        a = self.linear(loops, scalars) if r.random() < 0.3 else self.atom(loops, scalars)
        return f"({a} {r.choice(('==', '!=', '<', '<=', '>', '>='))} {r.choice((0, 0, 1, 2, 3, 600, -1))})"

    # Instructions

    def instruction(self, level: int, loops: dict[str, int], scalars: dict[str, int]) -> None:
        r = self.r
        self.left -= 1
        when = f", when={self.condition(loops, scalars)}" if r.random() < 0.4 else ""
        if r.random() < 0.4:
            self.add(level, f"{r.choice(('wait', 'signal'))}(channel={r.randint(0, 3)}{when})")
            return
        name = r.choice((*_LOADS, "gemm", "gemm_acc", *_STORES))
        spec = isa.INSTRUCTIONS[name]
        given = [f"{o.name}={self.number(loops, scalars)}" for o in spec.operands]
        for p in spec.parameters:
            if r.random() < 0.4:
                given.append(f"{p}={self.limited(isa.PARAMETERS[p].bits, loops, scalars)}")
        self.add(level, f"{name}({', '.join(given)}{when})")

    def limited(self, bits: int, loops: dict[str, int], scalars: dict[str, int]) -> str:
        """A value that fits a parameter register."""
        if self.r.random() < 0.5:
            return str(self.r.choice((0, 1, 2, 3, (1 << min(bits, 20)) - 1)))
        number = self.number(loops, scalars)
        return number if bits >= 32 else f"({number} & {(1 << bits) - 1})"
