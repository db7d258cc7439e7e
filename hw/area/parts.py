"""The components of a machine, and the numbers that their size depends on.

A part is a component of the RTL that occurs one or more times. Its features are numbers that follow from the
configuration; the fitted model (`hw.area.model`) says what one unit of each takes of an FPGA.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hw import csr, isa
from hw.config import ENGINES, BufferShape, MachineConfig
from hw.fabric import OPERATIONS, Fabric, Unit, layout
from hw.rtl.bits import log2
from hw.rtl.memory.load_steps import STEPS, forms_patches, loader_target, step_layout

if TYPE_CHECKING:
    from amaranth.lib.wiring import Component

#: Words of a memory that one LUT RAM holds.
LUT_RAM = 16
#: LUT RAMs of 16 words of 4 bits that Yosys takes rather than a block RAM, but no more.
WORTH = 32
#: Copies of the registers of all warps: four operands and the predicate are read at once.
READERS = 5


@dataclass(frozen=True)
class Part:
    """A component of a machine: its kind, where its shape comes from, how often it occurs.

    `index` chooses among components of a kind with shapes of their own (the number of a PE), `key` is equal
    for components whose size is the same to the model.
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
    made = [Part(kind, 0, 1, features(config)) for kind, features in _SINGLE.items()]
    grid = config.cgra
    if grid is not None:
        control = {"one": 1, "pes": grid.size, "contexts": (grid.contexts - 1).bit_length()}
        made += [
            Part("output_buffer", 0, 1, _buffer(config.derived.out, words=True)),
            Part("grid_control", 0, 1, control),
            Part("grid_ports", 0, 1, _grid_ports(config)),
        ]
        by_features: Counter[tuple[tuple[str, float], ...]] = Counter()
        first: dict[tuple[tuple[str, float], ...], int] = {}
        for pe in range(grid.size):
            key = tuple(_pe(config, grid, pe).items())
            by_features[key] += 1
            first.setdefault(key, pe)
        made += [Part("pe", first[key], count, dict(key)) for key, count in by_features.items()]
    return tuple(made)


def _sequencer(c: MachineConfig) -> dict[str, float]:
    words = c.warps << (c.registers - 1).bit_length()
    return {
        "one": 1,
        "warps": c.warps,
        "period": c.derived.period,
        "loops": c.loop_depth,
        "channels": c.channels,
        "block_rams": READERS * memory_blocks(words, 32),
        "lut_rams": READERS * lut_blocks(words, 32),
    }


def _issue(c: MachineConfig) -> dict[str, float]:
    # Queues hold operations of one and the same width: in a register or two, or in LUT RAM if there are more.
    few = c.queue_depth <= 2
    return {
        "one": 1,
        "registers": c.queue_depth * few,
        "chosen": c.queue_depth == 2,
        "stored": 0 if few else _lut_rams(c.queue_depth),
        # Parameters of patches are kept, and operations are wider.
        "patches": c.convolutions,
        "patch_registers": c.convolutions * c.queue_depth * few,
        "patch_chosen": c.convolutions * (c.queue_depth == 2),
    }


def _channels(c: MachineConfig) -> dict[str, float]:
    return {
        "one": 1,
        "channels": c.channels,
        "counters": c.channels * c.channel_depth.bit_length(),
    }


def _host(c: MachineConfig) -> dict[str, float]:
    counters = len(csr.WARP_COUNTERS) * c.warps + len(csr.ENGINE_COUNTERS) * len(ENGINES)
    return {"one": 1, "windows": c.windows, "warps": c.warps, "counters": counters}


def _gemm(c: MachineConfig) -> dict[str, float]:
    a, b = c.derived.buffer_a, c.derived.buffer_b
    return {
        "one": 1,
        "macs": c.rows * c.cols,
        "edges": c.rows + c.cols,
        "columns": c.cols * log2(c.rows),
        "turned": _turned(a.banks) + _turned(b.banks),
    }


def _loader(port: str) -> Callable[[MachineConfig], dict[str, float]]:
    def features(c: MachineConfig) -> dict[str, float]:
        width = c.port_bytes(port)
        shape = loader_target(c, port)
        patches = forms_patches(c, port)
        return {
            "one": 1,
            "windows": c.windows,
            "width": width,
            "turned_width": _turned(width),
            "banks": shape.banks,
            "turned_banks": _turned(shape.banks),
            "addresses": shape.banks * log2(shape.depth),
            "lanes": shape.lanes,
            # Blocks of a beat that lie a multiple of the pitch away which takes a multiplier.
            "multiples": sum(i & (i - 1) > 0 for i in range(width // shape.lanes + 1)),
            "block_rams": memory_blocks(STEPS, step_layout(c, port).size),
            "patches": patches,
            "patch_width": patches * width,
            # Bytes among which every stride-th is chosen: of each stride, as many as there are.
            "patch_choices": patches * sum((width - 1) // i for i in range(1, width)),
        }

    return features


def _storer(c: MachineConfig) -> dict[str, float]:
    return {
        "one": 1,
        "windows": c.windows,
        "width": c.store_bytes,
        "turned_width": _turned(c.store_bytes),
        "row": 4 * c.cols,
        "banks": c.derived.scratch.banks + c.derived.out.banks,
    }


def _accumulator(c: MachineConfig) -> dict[str, float]:
    return {
        "one": 1,
        "columns": c.cols,
        "bank_columns": c.cols * c.acc_banks,
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


def _grid_ports(c: MachineConfig) -> dict[str, float]:
    ports = len(c.store_pes)
    banks = {"acc": c.acc_banks, "scratch": c.derived.scratch.banks // 4, "out": c.derived.out.banks // 4}
    address = log2(max(c.acc_bytes, c.scratch_bytes, c.out_bytes))
    return {
        "one": 1,
        "ports": ports,
        "pairs": ports * (ports - 1) / 2,
        "rows": ports * c.acc_banks * c.cols,
        "words": ports * (banks["scratch"] + banks["out"]),
        "addresses": ports * address,
        "bank_addresses": ports * sum(banks.values()) * address / 8,
    }


def _pe(c: MachineConfig, grid: Fabric, pe: int) -> dict[str, float]:
    kind, shape = grid.kinds[pe], layout(grid, pe)
    executed = [o for o in OPERATIONS.values() if kind.units and o.unit in kind.units and kind.executes(o)]
    muxes = "abc"[: max((o.operands for o in executed if not o.opaque), default=0)]
    operands = sum(len(shape.sources[name]) - 1 for name in muxes)
    others = sum(len(s) - 2 for name, s in shape.sources.items() if name.startswith(("out", "write")))
    return {
        "one": 1,
        "alu": Unit.ALU in kind.units,
        "shifter": any(o.name in ("shl", "shr", "shr_logical") for o in executed),
        "zeros": any(o.name == "clz" for o in executed),
        "multiplier": Unit.MULTIPLIER in kind.units,
        "memory": Unit.MEMORY in kind.units,
        "table": Unit.TABLE in kind.units,
        # Of an entry that only leads from links to links, one word is left: no operands, no constants.
        "block_rams": (shape.words if kind.units or kind.registers else 1) * _blocks(grid.contexts, 32)[0]
        + _blocks(kind.table_words, 32)[0],
        "operands": operands,
        "others": others,
        "predicates": len(shape.sources["p"]),
        "links": len(grid.outgoing[pe]),
        "registers": kind.registers > 0,
        "register_words": _lut_rams(kind.registers),
    }


def _turned(width: int) -> int:
    """Two-to-one muxes of bytes in a rotator."""
    return width * log2(width)


def _lut_rams(words: int) -> int:
    """LUT RAMs in depth."""
    return -(-words // LUT_RAM)


def memory_blocks(depth: int, width: int) -> int:
    """Block RAMs of 18 Kbit that a memory takes; 0 where it is LUT RAM."""
    if not depth:
        return 0
    blocks, _ = _blocks(depth, width)
    return blocks if blocks * WORTH <= _lut_rams(depth) * -(-width // 4) else 0


def _blocks(depth: int, width: int) -> tuple[int, int]:
    """Block RAMs of a memory that is one in any case, and how many of them lie behind each other."""
    # From 512 words of 36 bits to 16384 words of 1 bit; a ninth bit beside every eight.
    shapes = [(512, 36), (1024, 18), (2048, 9), (4096, 4), (8192, 2), (16384, 1)]
    return min((-(-depth // d) * -(-width // w), -(-depth // d)) for d, w in shapes)


def lut_blocks(depth: int, width: int) -> float:
    """LUT RAMs of 16 words of 4 bits that a memory takes; 0 where it is block RAM."""
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
    """The component of a machine that a part stands for."""
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
    """Verilog of a part alone, top module `part`, for the synthesis that the model is fitted on."""
    from hw.emit import converted

    return converted(component(config, kind, index), TOP)
