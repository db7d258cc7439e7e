"""Small jobs for tests of the cycle model: from program texts, and random ones."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from cosim import texts as texts_of
from cosim.job import EventKind, Job, Outcome, Window
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from hw.config import PORTS, MachineConfig, load

#: Small, so that buffers and programs are filled with few words; four operations wait at an engine; no grid.
TEST = load("test").replace(scratch_bytes=4096, out_bytes=4096, imem_words=256, queue_depth=4, cgra=None)


#: Cycles from a turn of a warp to its next: at least six, and TEST has no more warps than that.
PERIOD = 6


def turn(number: int, warp: int = 0) -> int:
    """The cycle of a warp's turn; that of its n-th instruction (from 0), if nothing held it before."""
    return warp + PERIOD * number


def job_of(texts: list[str], config: MachineConfig = TEST, **changes: Any) -> Job:
    """A job of one program text per warp, with all of the first MiB open."""
    changes.setdefault("settings", MemorySettings.of(config, **changes.pop("memory", {})))
    changes.setdefault("windows", (Window(0, (1 << 20) - 1),))
    return texts_of.job(config, dict(enumerate(texts)), **changes)


def run(*texts: str, config: MachineConfig = TEST, **changes: Any) -> Outcome:
    """What the model predicts for one program text per warp."""
    return predict(config, job_of(list(texts), config, **changes))


def cycles(outcome: Outcome, kind: EventKind, warp: int = 0) -> dict[int, list[int]]:
    """Cycles of the events of a kind in a warp, by pc."""
    found: dict[int, list[int]] = {}
    for event in outcome.events:
        if event.kind is kind and event.warp == warp:
            found.setdefault(event.pc, []).append(event.cycle)
    return found


def issues(outcome: Outcome, warp: int = 0) -> list[tuple[int, int]]:
    """(cycle, pc) of everything that a warp issued."""
    return [(e.cycle, e.pc) for e in outcome.events if e.kind <= EventKind.VOID and e.warp == warp]


def turns(outcome: Outcome, warp: int = 0) -> list[tuple[int, int]]:
    """(number of the turn, pc) of everything that a warp issued; all of it must be in turns of the warp."""
    found = [(*divmod(cycle - warp, PERIOD), pc) for cycle, pc in issues(outcome, warp)]
    assert all(late == 0 for _, late, _ in found)
    return [(number, pc) for number, _, pc in found]


def completions(outcome: Outcome, warp: int = 0) -> list[int]:
    """Cycles in which operations of a warp completed."""
    return [e.cycle for e in outcome.events if e.kind is EventKind.COMPLETE and e.warp == warp]


def fires(outcome: Outcome, warp: int = 0) -> list[int]:
    """Cycles in which signals of a warp fired."""
    return [e.cycle for e in outcome.events if e.kind is EventKind.SIGNAL and e.warp == warp]


def patch_geometry(r: random.Random, width: int, lanes: int) -> dict[str, int]:
    """Random operands and parameters of a small load_b_conv that is right, but for where it reads and writes.

    `width` is that of the port, `lanes` the buffer's. Kernels may be larger than the image, outputs may
    reach beyond what the tile covers, and all of it may be padding.
    """
    most = r.choice([2, 3, 3, 5])
    g = {f"conv_kernel_{edge}": r.choice([1, most, r.randint(1, most)]) for edge in "hw"}
    g |= {f"conv_stride_{edge}": r.choice([1, 1, 2, r.randint(1, 5)]) for edge in "hw"}
    g |= {f"conv_dilation_{edge}": r.choice([1, 1, 1, 2, 3]) for edge in "hw"}
    g |= {"conv_out_rows": r.randint(1, 3), "conv_out_cols": r.randint(1, r.choice([3, 3 * lanes]))}
    exact = [
        (g[f"conv_out_{n}"] - 1) * g[f"conv_stride_{e}"]
        + (g[f"conv_kernel_{e}"] - 1) * g[f"conv_dilation_{e}"]
        + 1
        for n, e in (("rows", "h"), ("cols", "w"))
    ]
    height, across = (n if r.random() < 0.7 else r.randint(1, n + 3) for n in exact)
    top, left = r.choice([0, 0, 1, r.randint(0, height)]), r.choice([0, 0, 1, r.randint(0, across + width)])
    inside = max(1, across - left)
    g |= {"conv_height": height, "conv_width": across, "conv_top": top, "conv_left": left}
    g["conv_rows"] = r.choice([max(0, height - top), max(0, height - top), 0, r.randint(0, height + 2)])
    g["inner"] = r.choice([inside, r.randint(1, inside), inside + r.randint(0, width)])
    g["conv_line"] = width * r.randint(0, 6)
    g["load_stride"] = r.choice([g["conv_line"] * height, width * r.randint(0, 9)])
    g["load_pitch"] = lanes % max(lanes, width) + max(lanes, width) * r.randint(0, 4)
    return g | {"outer": r.randint(1, r.choice([1, 4])), "load_fill": r.choice([0, 7])}


def spoil(r: random.Random, g: dict[str, int]) -> None:
    """Make operands and parameters of a load_b_conv wrong in one way."""
    zeros = [name for name in g if name not in ("conv_top", "conv_left", "conv_rows") and "load" not in name]
    name, value = r.choice(
        [
            (r.choice(zeros), 0),
            (r.choice(["load_stride", "conv_line"]), r.randint(1, 3)),
            ("load_pitch", g["load_pitch"] + r.randint(1, 3)),
            ("conv_out_cols", 8191),
            ("conv_kernel_h", 255),
        ]
    )
    g[name] = value
    if value == 8191:
        g["conv_out_rows"] = r.choice([8, 9])  # up to 2^16 outputs, or more
    if value == 255:
        g |= {"conv_kernel_w": 255, "outer": 2, "conv_height": 1}


class RandomJob:
    """Random memory and programs, for a random or a given configuration.

    Only load_b_conv provokes errors of operands, windows and buffers, and seldom.
    """

    def __init__(self, seed: int, config: MachineConfig | None = None):
        r = self.random = random.Random(seed)
        self.config = config or TEST.replace(
            imem_words=1024,
            queue_depth=r.choice([1, 2, 4]),
            acc_banks=r.choice([1, 2, 4, 16]),
            store_bytes=r.choice([4, 8, 16]),
            load_a_bytes=r.choice([4, 8]),
            load_b_bytes=r.choice([4, 8, 16]),
            **r.choice([{}, {"cols": 8, "acc_bytes": 8192, "buffer_b_bytes": 8192}]),
        )
        memory: dict[str, Any] = {"latency": {p: r.randint(1, 40) for p in PORTS}}
        if r.random() < 0.5:
            memory["bandwidth"] = {p: r.randint(1, self.config.port_bytes(p)) for p in PORTS}
        if r.random() < 0.5:
            memory |= {"stall_seed": r.randrange(1 << 32), "stall_rate": r.choice([20, 64, 150])}
        self.channels = range(r.choice([1, 3, 6]))
        texts = ["\n".join(self._program()) for _ in range(r.randint(1, 5))]
        self.job = job_of(texts, self.config, memory=memory)

    def _program(self) -> list[str]:
        r, lines = self.random, []
        self.patches: dict[str, int] = {}  # parameters of load_b_conv that are set
        focus = r.choice(["load_a", "store", "gemm", "load_b_conv", None, None, None])
        for _ in range(r.randint(1, 24)):
            lines += self._piece(focus)
        return [*lines, "halt"]

    def _piece(self, focus: str | None) -> list[str]:
        r, x = self.random, self.random.random()
        if x < 0.1:
            return [f"signal {r.choice(self.channels)}"]
        if x < 0.14 and len(self.channels) > 1:
            return [f"wait {r.choice(self.channels)}"]
        if x < 0.24:
            choice = ["nop", "muli r7, r7, 3", "@r7 nop", "@!r7 addi r7, r7, 1", "@r7 signal 0", "@r0 wait 0"]
            return [r.choice(choice)]
        if x < 0.3:
            inner = r.choice(["nop", "signal 2" if len(self.channels) > 2 else "nop", "muli r6, r6, 2"])
            return [f"li r8, {r.randint(-1, 3)}", "loop r8, 2", inner, "nop"]
        engines = [
            "load_a",
            "load_a_t",
            "load_b",
            "load_b_t",
            "load_b_conv",
            "load_c",
            "gemm",
            "gemm_acc",
            "store",
            "store",
            "store_scratch",
        ]
        if focus == "load_b_conv":
            focus = r.choice(["load_b_conv", "load_b_conv", "load_b", "load_b_t"])
        lines = self._operation(focus or r.choice(engines))
        return lines + lines[-1:] * (r.randint(1, 6) if r.random() < 0.3 else 0)

    def _operation(self, name: str) -> list[str]:
        r, derived = self.random, self.config.derived
        if name == "load_b_conv":
            return self._patches()
        border = min(derived.acc_bank_words, derived.acc_words // 2)  # of two banks, if there are
        if name.startswith("load"):
            outer, inner, pitch = r.randint(1, 5), r.randint(1, 30), r.randint(0, 40)
            if name.endswith("_t"):
                shape = derived.buffer_a if name == "load_a_t" else derived.buffer_b
                pitch = shape.lanes % shape.banks + shape.banks * r.randint(1, 3)
            params = {
                "load_stride": r.choice([8, 16, inner, r.randint(0, 99)]),
                "load_pitch": pitch,
                "load_pad_inner": r.choice([0, 0, 1, 9]),
                "load_pad_outer": r.choice([0, 0, 1, 3]),
            }
            values = [r.randint(0, 4096), r.randint(0, 100), outer, inner]
        elif name.startswith("gemm"):
            most = r.choice([6, 20])
            sizes = {"gemm_m": r.randint(1, most), "gemm_n": r.randint(1, most)}
            params = sizes | {"gemm_c_pitch": r.randint(0, 5), "gemm_a_pitch": 20}
            word = r.choice([0, r.randint(0, 150), border - 3])
            values = [r.randint(0, 50), r.randint(0, 50), word, r.choice([1, 2, 3, 5, 9, 20])]
        else:
            unit = 1 if name == "store" else self.config.store_bytes
            sources = [0, border - 4, r.randint(0, 120)]
            source = r.choice(sources) if name == "store" else unit * r.randint(0, 9)
            params = {
                "store_pitch": unit * r.randint(0, 5),
                "store_stride": r.choice([8, 16, 32, r.randint(0, 99)]),
            }
            size = r.choice([r.randint(1, 70), 16, 32])
            values = [r.randint(0, 4096), source, r.randint(1, 12), size]
        lines = [f"parami {parameter}, {value}" for parameter, value in params.items()]
        lines += [f"li r{i}, {value}" for i, value in enumerate(values, 1)]
        return [*lines, f"{name} r1, r2, r3, r4"]

    def _patches(self) -> list[str]:
        """A load_b_conv; mostly another one of the same geometry, to keep programs short."""
        r, shape, width = self.random, self.config.derived.buffer_b, self.config.load_b_bytes
        known = self.patches
        if not known or r.random() < 0.5:
            known = patch_geometry(r, width, shape.lanes)
        g = dict(known)
        first = r.choice([width * r.randint(0, 99), r.randint(0, 4096)])
        target = r.randint(0, 100)
        if r.random() < 0.025:
            spoil(r, g)
        elif r.random() < 0.045:
            first = (1 << 20) - r.randint(1, 200)
        elif r.random() < 0.025:
            target = shape.columns - r.randint(0, 60)
        shared = ("load_stride", "load_pitch", "load_fill")  # with other loads
        operands = ("outer", "inner")
        changed = [n for n in g if n not in operands and (n in shared or self.patches.get(n) != g[n])]
        self.patches = g
        lines = [f"parami {name}, {g[name]}" for name in changed]
        lines += [
            f"li r1, {first >> 15}",
            f"lih r1, {(first & 0x7FFF ^ 0x4000) - 0x4000}",
            f"li r2, {target}",
        ]
        return [*lines, f"li r3, {g['outer']}", f"li r4, {g['inner']}", "load_b_conv r1, r2, r3, r4"]


class EdgeJob(RandomJob):
    """A random job some of whose loads, products and stores end at, or beyond, buffers and windows."""

    def __init__(self, seed: int, config: MachineConfig):
        own = random.Random(f"edges {seed}")
        self.often = own.choice([0.05, 0.15, 0.4])
        self.edge = own.choice([None, own.randint(1000, 5000)])  # where the first window ends
        super().__init__(seed, config)
        if self.edge is not None:
            more = own.randint(self.edge + 2, 8000)
            self.job = replace(self.job, windows=(Window(0, self.edge - 1), Window(more, more + 3000)))

    def _operation(self, name: str) -> list[str]:
        r, derived, lines = self.random, self.config.derived, super()._operation(name)
        if name == "load_b_conv" or r.random() > self.often:
            return lines
        values: dict[int, int] = {}
        if self.edge is not None and not name.startswith("gemm") and r.random() < 0.6:
            values[1] = max(0, self.edge - r.randint(-20, 200))
        elif name.startswith("load"):
            shapes = {"load_a": derived.buffer_a, "load_b": derived.buffer_b, "load_c": derived.scratch}
            values[2] = shapes[name[:6]].columns - r.randint(0, 60)
            if r.random() < 0.1:
                values[3] = 0
        elif name.startswith("gemm"):
            values = {
                1: r.choice([0, derived.buffer_a.columns - r.randint(0, 60)]),
                2: r.choice([0, derived.buffer_b.columns - r.randint(0, 60)]),
                3: r.choice([0, derived.acc_words - r.randint(-2, 30)]),
            }
        elif name == "store":
            values[2] = derived.acc_words - r.randint(-1, 20)
        else:
            values[2] = derived.scratch.columns - self.config.store_bytes * r.randint(0, 20)
        # Operands are aimed behind what sets them, right before the operation.
        aimed = [line for i, value in values.items() for line in _constant(i, value)]
        return [*lines[:-1], *aimed, lines[-1]]


def _constant(register: int, value: int) -> list[str]:
    """Instructions that set a register to a number of any size."""
    if value < 1 << 14:
        return [f"li r{register}, {value}"]
    return [f"li r{register}, {value >> 15}", f"lih r{register}, {(value & 0x7FFF ^ 0x4000) - 0x4000}"]


def ring_job(seed: int) -> tuple[MachineConfig, Job]:
    """A random job of loops that hand tokens round a ring of warps, each with an engine or two.

    Some rings stop, or overflow; most have tokens and operations of different warps under way.
    """
    r = random.Random(seed)
    config = TEST.replace(queue_depth=r.choice([1, 2, 4]))
    operations = [f"{name} r0, r0, r3, r4" for name in ("load_a", "load_b", "store")]
    operations += ["gemm r0, r0, r0, r4", "muli r2, r3, 3", "nop"]
    setting = ["li r3, 2", "li r4, 8", "parami gemm_m, 5", "parami gemm_n, 9"]
    setting += [f"parami {name}, {value}" for name, value in (("gemm_c_pitch", 3), ("store_pitch", 3))]
    warps, texts = r.randint(1, 4), []
    for warp in range(warps):
        own = r.choice(operations)
        body = [f"wait {(warp - 1) % warps}", own, r.choice([own, *operations]), f"signal {warp}"]
        body += [f"signal {warp}"] * (r.random() < 0.1) + ["wait 5", "signal 5"] * (r.random() < 0.2)
        if r.random() < 0.4:
            r.shuffle(body)
        first = [f"signal {warp}"] * r.choice([0, 1, 2, 2, 3, config.channel_depth])
        loop = [f"li r1, {r.randint(1, 12)}", f"loop r1, {len(body)}", *body]
        texts.append("\n".join([*setting, *first, *loop, "nop", "halt"]))
    memory: dict[str, Any] = {"latency": {p: r.randint(1, 40) for p in PORTS}}
    if r.random() < 0.4:
        memory |= {"stall_seed": seed, "stall_rate": 90}
    return config, job_of(texts, config, memory=memory)
