"""Control flow graph, immediate dominators and dominance frontiers (dependence.md, "Method", 1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass, field

from sw.ir.program import Assign, For, If, Instruction, Program, Statement, While


@dataclass
class Block:
    """Statements that run one after the other; `head` is the loop whose iterations start here."""

    number: int
    statements: list[Instruction | Assign] = field(default_factory=list)
    predecessors: list[int] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)
    head: For | While | None = None


@dataclass
class Graph:
    """Blocks in reverse post-order, the entry first."""

    blocks: list[Block]

    def dominators(self) -> list[int]:
        """The immediate dominator of every block, the entry's own for the entry.

        Cooper, Harvey, Kennedy: "A simple, fast dominance algorithm": intersect the predecessors' paths to
        the entry in reverse post-order until nothing changes.
        """
        found = [-1] * len(self.blocks)
        found[0] = 0
        changed = True
        while changed:
            changed = False
            for block in self.blocks[1:]:
                new = -1
                for p in block.predecessors:
                    if found[p] >= 0:
                        new = p if new < 0 else _common(found, p, new)
                if new != found[block.number]:
                    found[block.number], changed = new, True
        return found

    def frontiers(self) -> list[set[int]]:
        """The dominance frontier of every block: where its dominance ends, which is where phi nodes stand."""
        dominators = self.dominators()
        found: list[set[int]] = [set() for _ in self.blocks]
        for block in self.blocks:
            if len(block.predecessors) > 1:
                for runner in block.predecessors:
                    while runner != dominators[block.number]:
                        found[runner].add(block.number)
                        runner = dominators[runner]
        return found


def _common(dominators: list[int], a: int, b: int) -> int:
    while a != b:
        while a > b:
            a = dominators[a]
        while b > a:
            b = dominators[b]
    return a


def build_graph(program: Program) -> Graph:
    """The control flow graph of a program; its blocks come out in reverse post-order."""
    builder = _Builder()
    builder.body(program.body, builder.block())
    return Graph(builder.blocks)


@dataclass
class _Builder:
    blocks: list[Block] = field(default_factory=list)

    def block(self, *predecessors: Block) -> Block:
        """A new block after these."""
        block = Block(len(self.blocks))
        self.blocks.append(block)
        for p in predecessors:
            self.edge(p, block)
        return block

    def edge(self, a: Block, b: Block) -> None:
        a.successors.append(b.number)
        b.predecessors.append(a.number)

    def body(self, body: tuple[Statement, ...], block: Block) -> Block:
        """Append a body to a block; the block at its end."""
        for s in body:
            if isinstance(s, If):
                then = self.body(s.body, self.block(block))
                other = self.body(s.orelse, self.block(block)) if s.orelse else block
                block = self.block(then, other)
            elif isinstance(s, For | While):
                head = self.block(block)
                head.head = s
                self.edge(self.body(s.body, self.block(head)), head)
                block = self.block(head)
            else:
                block.statements.append(s)
        return block
