"""The components of a machine, and the numbers that their size depends on.

A part is an RTL component that occurs one or more times. Its features are numbers derived from the
configuration; the fitted model (`hw.area.model`) says how much of an FPGA one unit of each feature uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hw import csr, isa
from hw.config import ENGINES, BufferShape, MachineConfig
from hw.fabric import OPERATIONS, Fabric, Unit, layout
from hw.fabric.layout import made
from hw.rtl.bits import log2
from hw.rtl.memory.load_steps import STEPS, forms_patches, loader_target, step_layout

if TYPE_CHECKING:
    from amaranth.lib.wiring import Component

#: Number of words that one LUT RAM holds.
LUT_RAM = 16
#: Number of LUT RAMs (16 words of 4 bits) up to which Yosys prefers them to one block RAM.
WORTH = 32
#: Copies of the registers of all warps: four operands and the predicate are read at once.
READERS = 5


@dataclass(frozen=True)
class Part:
    """A component of a machine: its kind, how often it occurs, and the features that determine its size.

    `index` selects among components of a kind with different shapes (the number of a PE). `key` is equal for
    components that have the same size in the model.
    """

    kind: str
    index: int
    count: int
    features: Mapping[str, float]

    @property
    def key(self) -> tuple[object, ...]:
        """Kind and features."""
        return self.kind, *sorted(self.features.items())


def parts(config: MachineConfig) -> tuple[Part, ...]:
    """All parts of a machine."""
    found = [Part(kind, 0, 1, features(config)) for kind, features in _SINGLE.items()]
    grid = config.cgra
    if grid is not None:
        found += [
            Part("output_buffer", 0, 1, _buffer(config.derived.out, words=True)),
            Part("grid_control", 0, 1, _grid_control(config, grid)),
            Part("grid_ports", 0, 1, _grid_ports(config, grid)),
        ]
        by_features: Counter[tuple[tuple[str, float], ...]] = Counter()
        first: dict[tuple[tuple[str, float], ...], int] = {}
        for pe in range(grid.size):
            key = tuple(_pe(config, grid, pe).items())
            by_features[key] += 1
            first.setdefault(key, pe)
        found += [Part("pe", first[key], count, dict(key)) for key, count in by_features.items()]
    return tuple(found)


def _sequencer(c: MachineConfig) -> dict[str, float]:
    words = c.warps << (c.registers - 1).bit_length()
    return {
        "one": 1,
        "warps": c.warps,
        # For each turn of a round: an entry in rings of registers, with a program counter.
        "period": c.derived.period,
        "period_pcs": c.derived.period * log2(c.imem_words),
        "block_rams": READERS * memory_blocks(words, 32),
        "lut_rams": READERS * lut_blocks(words, 32),
    }


def _issue(c: MachineConfig) -> dict[str, float]:
    used = _parameters(c)
    queued = [_queued_bits(c, engine, used) for engine in _engines(c)]
    # The oldest operation of each engine is in a register. One more is in another register, several are in
    # LUT RAM.
    several = c.queue_depth > 2
    return {
        "one": 1,
        "oldest_bits": sum(queued),
        "waiting_bits": 0 if several else sum(queued),
        "waiting_rams": several * sum(-(-bits // 4) for bits in queued),
        "parameter_rams": sum(-(-isa.PARAMETERS[name].bits // 4) for name in used),
    }


def _engines(c: MachineConfig) -> list[str]:
    """The engines that a machine has."""
    return [engine for engine in ENGINES if engine != "cgra" or c.cgra is not None]


def _parameters(c: MachineConfig) -> set[str]:
    """The parameters that the instructions of a machine use."""
    return {name for i in isa.INSTRUCTIONS.values() if not c.lacks(i.name) for name in i.parameters}


def _queued_bits(c: MachineConfig, engine: str, used: set[str]) -> int:
    """Width of an entry in an engine's queue: operands, parameters, variant, warp, pc."""
    rows = isa.of_engine(engine)
    bits = {operand.name: operand.bits for operand in rows[0].operands}
    bits |= {n: isa.PARAMETERS[n].bits for row in rows for n in row.parameters if n in used}
    return sum(bits.values()) + 2 + (c.warps - 1).bit_length() + log2(c.imem_words)


def _channels(c: MachineConfig) -> dict[str, float]:
    return {
        "one": 1,
        "channels": c.channels,
        "counters": c.channels * c.channel_depth.bit_length(),
    }


def _host(c: MachineConfig) -> dict[str, float]:
    counters = len(csr.WARP_COUNTERS) * c.warps + len(csr.ENGINE_COUNTERS) * len(_engines(c))
    return {
        "one": 1,
        "windows": c.windows,
        "warps": c.warps,
        "counters": counters,
        # The short counters, whose range is the length of a round.
        "counter_bits": counters * (counters + 5).bit_length(),
    }


def _gemm(c: MachineConfig) -> dict[str, float]:
    a, b = c.derived.buffer_a, c.derived.buffer_b
    macs = c.rows * c.cols
    return {
        "one": 1,
        "macs": macs,
        "sum_bits": macs * min(32, 17 + log2(min(a.columns, b.columns))),
        # Operands of A that are delayed for their row.
        "waiting": c.rows * (c.rows - 1) / 2,
        "lanes": c.rows + c.cols,
        "turned": _turned_lanes(a) + _turned_lanes(b),
    }


def _loader(port: str) -> Callable[[MachineConfig], dict[str, float]]:
    def features(c: MachineConfig) -> dict[str, float]:
        width = c.port_bytes(port)
        shape = loader_target(c, port)
        patches = forms_patches(c, port)
        # Blocks that a beat can touch, minus one; with a single lane all are in one group of columns.
        blocks = max(1, width // shape.lanes) if shape.lanes > 1 else 1
        row = log2(shape.columns) - log2(shape.banks)
        return {
            "one": 1,
            "windows": c.windows,
            "width": width,
            "banks": shape.banks,
            # Bits of two-to-one muxes: for each byte, its data and whether it is written.
            "turned_bits": 9 * _turned(shape.banks, width),
            # For each bank, a mux over the addresses of the blocks, and the lane.
            "chosen_bits": shape.banks * blocks * row,
            "lane_bits": shape.banks * log2(shape.lanes),
            "block_bits": blocks * log2(shape.columns),
            # Blocks whose offset is not the pitch times a power of two, so that it takes a multiplier.
            "multiples": sum(i & (i - 1) > 0 for i in range(blocks + 1)),
            "block_rams": memory_blocks(STEPS, step_layout(c, port).size),
            "patches": patches,
            "patch_width": patches * width,
            # Inputs of the muxes that select every stride-th byte, for all strides.
            "patch_choices": patches * sum((width - 1) // i for i in range(1, width)),
        }

    return features


def _storer(c: MachineConfig) -> dict[str, float]:
    outputs = 0 if c.cgra is None else c.derived.out.banks
    sources = c.derived.acc_word_bytes + c.derived.scratch.banks + outputs
    return {
        "one": 1,
        "windows": c.windows,
        "width": c.store_bytes,
        "turned": _turned(c.store_bytes),
        # Inputs of the mux that selects the bytes of a beat.
        "sources": sources,
        "chunks": sources // c.store_bytes,
    }


def _accumulator(c: MachineConfig) -> dict[str, float]:
    return {
        "one": 1,
        "columns": c.cols,
        # Inputs of the muxes between banks: for the storer, and in front of the adders, whose LUTs hold one.
        "chosen_columns": c.cols * (c.acc_banks - 1),
        "added_columns": c.cols * max(0, c.acc_banks - 2),
        "addresses": c.acc_banks * log2(c.derived.acc_bank_words),
        "block_rams": c.acc_banks * memory_blocks(c.derived.acc_bank_words, 32 * c.cols),
        "lut_rams": c.acc_banks * lut_blocks(c.derived.acc_bank_words, 32 * c.cols),
    }


def _buffer(shape: BufferShape, *, words: bool) -> dict[str, float]:
    return {
        "one": 1,
        "banks": shape.banks,
        "addresses": shape.banks * log2(shape.depth),
        "word_addresses": shape.banks // 4 * log2(shape.depth) if words else 0,
        "block_rams": shape.banks * memory_blocks(shape.depth, 8),
        "lut_rams": shape.banks * lut_blocks(shape.depth, 8),
    }


def _program(c: MachineConfig) -> dict[str, float]:
    return {
        "one": 1,
        "block_rams": memory_blocks(c.warps * c.imem_words, isa.STORED_BITS),
        "lut_rams": lut_blocks(c.warps * c.imem_words, isa.STORED_BITS),
        "chosen": isa.STORED_BITS * (_blocks(c.warps * c.imem_words, isa.STORED_BITS)[1] - 1),
    }


def _grid_control(c: MachineConfig, grid: Fabric) -> dict[str, float]:
    return {
        "one": 1,
        "pes": grid.size,
        "contexts": (grid.contexts - 1).bit_length(),
        "pipelined": grid.pipelined,
    }


def _grid_ports(c: MachineConfig, grid: Fabric) -> dict[str, float]:
    ports = len(grid.having(Unit.MEMORY))
    banks = {"acc": c.acc_banks, "scratch": c.derived.scratch.banks // 4, "out": c.derived.out.banks // 4}
    pairs = ports * (ports - 1) / 2
    return {
        "one": 1,
        "ports": ports,
        "pairs": pairs,
        "pipelined_pairs": pairs * grid.pipelined,
        # Inputs of the muxes that select the words for each port.
        "row_words": ports * c.acc_banks * c.cols,
        "words": ports * (banks["scratch"] + banks["out"]),
        # Inputs of the muxes that select an access for each bank.
        "addresses": ports * sum(banks.values()),
        "stores": ports * banks["out"],
    }


def _pe(c: MachineConfig, grid: Fabric, pe: int) -> dict[str, float]:
    kind, shape, late = grid.kinds[pe], layout(grid, pe), grid.pipelined
    executed = [o for o in OPERATIONS.values() if kind.units and o.unit in kind.units and kind.executes(o)]
    operands = "abc"[: max((o.operands for o in executed if not o.opaque), default=0)]
    slow = any(o.unit is not Unit.ALU for o in executed)
    # Sources that every PE has, or that no unit drives.
    silent = {"zero", "const", "always", "keep", "none"}
    silent |= set() if executed else {"result"}
    silent |= set() if Unit.ALU in kind.units else {made(1 << late)}
    silent |= set() if slow else {made(2 << late)}
    sources = {name: len(set(found) - silent) for name, found in shape.sources.items()}
    units = {
        "alu": Unit.ALU in kind.units,
        "shifter": any(o.name in ("shl", "shr", "shr_logical") for o in executed),
        "multiplier": Unit.MULTIPLIER in kind.units,
        "memory": Unit.MEMORY in kind.units,
        "table": Unit.TABLE in kind.units,
        "quantiser": Unit.QUANTISER in kind.units,
    }
    operand_sources = sum(sources[name] for name in operands)
    # Without a register behind the operands, a shift and the logic after it form the longest path; synthesis
    # spends LUTs to shorten it.
    hurried = units["shifter"] and not late
    # A PE that only passes links on keeps one word of its entry: no operands, no constants.
    words = shape.words if kind.units or kind.registers else 1
    shared: dict[str, float] = {
        "one": 1,
        "block_rams": words * _blocks(grid.contexts, 32)[0] + kind.lanes * _blocks(kind.table_words, 32)[0],
        # Each data operand has two registers, for a constant and for `init`.
        "operands": len(operands),
        # The registers behind the context memory of a pipelined fabric.
        "pipelined_words": late * words,
        # A memory port makes one address, whatever its lanes.
        "memory": Unit.MEMORY in kind.units,
        "hurried_memory": hurried and units["memory"],
        "pipelined_memory": late and units["memory"],
        # The unit across lanes: a tree for sums and maxima, and the stages of a rotation.
        "across": (Unit.LANES in kind.units) * kind.lanes * log2(kind.lanes),
    }
    lane = {
        **units,
        "zeros": any(o.name == "clz" for o in executed),
        "operand_sources": operand_sources,
        "predicate_sources": sources["p"],
        "links": len(grid.outgoing[pe]),
        "other_sources": sum(n for name, n in sources.items() if name not in "abcp"),
        "registers": kind.registers > 0,
        "register_rams": _lut_rams(kind.registers),
        "hurried": hurried,
        "hurried_sources": hurried * operand_sources,
        "hurried_multiplier": hurried and units["multiplier"],
        # The registers in each unit of a pipelined fabric.
        **{f"pipelined_{name}": late and there for name, there in units.items() if name != "memory"},
    }
    return {name: kind.lanes * number for name, number in lane.items()} | shared


def _turned(units: int, filled: int | None = None) -> int:
    """Two-to-one muxes of a left rotator over `units` units, of which only `filled` can be non-zero."""
    reached, muxes = filled or units, 0
    for stage in range(log2(units)):
        reached = min(units, reached + (1 << stage))
        muxes += reached
    return muxes


def _turned_lanes(shape: BufferShape) -> int:
    """Two-to-one muxes, in bytes, that rotate the lanes of a column to the front."""
    needed, muxes = shape.lanes, 0
    for stage in range(log2(shape.banks)):
        muxes += needed
        needed = min(shape.banks, needed + (1 << stage))
    return muxes


def _lut_rams(words: int) -> int:
    """Number of LUT RAMs in depth."""
    return -(-words // LUT_RAM)


def memory_blocks(depth: int, width: int) -> int:
    """Number of 18-Kbit block RAMs that a memory uses; 0 if it becomes LUT RAM."""
    if not depth:
        return 0
    blocks, _ = _blocks(depth, width)
    return blocks if blocks * WORTH <= _lut_rams(depth) * -(-width // 4) else 0


def _blocks(depth: int, width: int) -> tuple[int, int]:
    """Number of block RAMs of a memory that is always block RAM, and how many are cascaded in depth."""
    # From 512 words of 36 bits to 16,384 words of 1 bit; every eight bits have a ninth if the width allows.
    shapes = [(512, 36), (1024, 18), (2048, 9), (4096, 4), (8192, 2), (16384, 1)]
    return min((-(-depth // d) * -(-width // w), -(-depth // d)) for d, w in shapes)


def lut_blocks(depth: int, width: int) -> float:
    """Number of LUT RAMs (16 words of 4 bits) that a memory uses; 0 if it becomes block RAM."""
    if not depth or memory_blocks(depth, width):
        return 0
    return _lut_rams(depth) * -(-width // 4)


#: Features of the parts that every machine has.
_SINGLE: dict[str, Callable[[MachineConfig], dict[str, float]]] = {
    "sequencer": _sequencer,
    "program": _program,
    "issue": _issue,
    "channels": _channels,
    "host": _host,
    "load_a": _loader("load_a"),
    "load_b": _loader("load_b"),
    "load_c": _loader("load_c"),
    "gemm": _gemm,
    "accumulator": _accumulator,
    "store": _storer,
    "buffer_a": lambda c: _buffer(c.derived.buffer_a, words=False),
    "buffer_b": lambda c: _buffer(c.derived.buffer_b, words=False),
    "scratchpad": lambda c: _buffer(c.derived.scratch, words=c.cgra is not None),
}

#: Name of the top module of a part.
TOP = "part"


def component(config: MachineConfig, kind: str, index: int = 0) -> Component:
    """The RTL component that a part represents."""
    # Amaranth takes half a second to import.
    from hw.rtl.cgra.control import Control
    from hw.rtl.cgra.pe import ProcessingElement
    from hw.rtl.cgra.ports import Ports
    from hw.rtl.core.channels import Channels
    from hw.rtl.core.host import Host
    from hw.rtl.core.issue import Issue
    from hw.rtl.core.program import ProgramMemory
    from hw.rtl.core.sequencer import Sequencer
    from hw.rtl.gemm.engine import Gemm
    from hw.rtl.memory.accumulator import Accumulator
    from hw.rtl.memory.buffer import BankedBuffer
    from hw.rtl.memory.loader import Loader
    from hw.rtl.memory.storer import Storer

    derived, fabric = config.derived, config.cgra
    if kind in ("load_a", "load_b", "load_c"):
        return Loader(config, kind)
    makers: dict[str, Callable[[], Component]] = {
        "sequencer": lambda: Sequencer(config),
        "program": lambda: ProgramMemory(config),
        "issue": lambda: Issue(config),
        "channels": lambda: Channels(config),
        "host": lambda: Host(config),
        "gemm": lambda: Gemm(config),
        "accumulator": lambda: Accumulator(config),
        "store": lambda: Storer(config),
        "buffer_a": lambda: BankedBuffer(derived.buffer_a),
        "buffer_b": lambda: BankedBuffer(derived.buffer_b),
        "scratchpad": lambda: BankedBuffer(derived.scratch, words=fabric is not None),
        "output_buffer": lambda: BankedBuffer(derived.out, words=True),
    }
    if fabric is not None:
        makers |= {
            "grid_control": lambda: Control(config, fabric),
            "grid_ports": lambda: Ports(config, _port_lanes(fabric), fabric.pipelined),
            "pe": lambda: ProcessingElement(config, fabric, index),
        }
    return makers[kind]()


def _port_lanes(fabric: Fabric) -> list[int]:
    return [fabric.kinds[pe].lanes for pe in fabric.having(Unit.MEMORY)]


def verilog(config: MachineConfig, kind: str, index: int = 0) -> str:
    """Verilog of a single part, top module `part`, from which the model is fitted by synthesis."""
    from hw.emit import converted

    return converted(component(config, kind, index), TOP)
