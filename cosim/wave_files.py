"""Files that accompany waves: the input of `view` (cosim/harness/waves/view.sv), and save files for viewers.

The GTKWave save file and the Surfer command file show the same signals: instructions as text, and for each
warp and engine the RTL's signals above the cycle model's.
"""

from __future__ import annotations

import gzip
import io
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from vcd.gtkw import GTKWSave

from cosim import images
from cosim.job import EventKind, Job, Outcome
from cosim.lanes import table
from cosim.waves import Waves
from hw.assembly import decode, disassemble_words
from hw.config import ENGINES, MachineConfig

#: Bytes of an instruction's text, and the engine number of an instruction without engine, as in view.sv.
TEXT, NO_ENGINE = 32, 0xFF
#: First line of a save file that may be overwritten.
MADE_HERE = "Made by heald run"
#: Type of the FST block that holds a whole compressed file.
WRAPPER = 254
#: A window of the whole run, including the host's accesses.
EVERYTHING = 0, (1 << 64) - 1
#: Scopes of `view` with the same signals: of the machine, and of the cycle model.
SIDES = ("rtl", "model")
#: GTKWave's and Surfer's names for our signal formats.
GTKW_FORMATS = {"text": "ascii", "number": "dec", "bit": "bin"}
SURFER_FORMATS = {"text": "ASCII", "number": "Unsigned"}


def write_inputs(directory: Path, config: MachineConfig, job: Job, waves: Waves) -> None:
    """Write the input of `view` for a job with a prediction into the directory of the job's files."""
    assert job.predicted is not None
    window = np.array(waves.window if waves.windowed else EVERYTHING, np.uint64)
    (directory / "window.hex").write_bytes(images.hex_lines(window))
    (directory / "text.hex").write_text("".join(_text_lines(config, job)), encoding="ascii")
    (directory / "predicted.bin").write_bytes(_records(config, job.predicted))


def _text_lines(config: MachineConfig, job: Job) -> Iterator[str]:
    """The instructions of all warps with their engines, as `$readmemh` text."""
    for warp, words in sorted(job.programs.items()):
        yield f"@{warp * config.imem_words:x}\n"
        for word, text in zip(words, disassemble_words(words), strict=True):
            code = decode(word)
            engine = code.spec.engine if code is not None else None
            number = NO_ENGINE if engine is None else ENGINES.index(engine)
            yield f"{number:02x}{text[:TEXT].ljust(TEXT).encode('ascii', 'replace').hex()}\n"


def _records(config: MachineConfig, predicted: Outcome) -> bytes:
    """Events as the recorder writes them: a row of words per cycle that has events, last word first."""
    cycle, warp, kind, pc = table(predicted.events).T
    cycles, row = np.unique(cycle, return_inverse=True)
    words = np.zeros((len(cycles), 4 + (config.warps + 1) // 2), np.uint32)
    words[:, 0], words[:, 1] = cycles & 0xFFFFFFFF, cycles >> 32
    places = {
        EventKind.ISSUE: (2, 0),
        EventKind.VOID: (2, 16),
        EventKind.COMPLETE: (3, 0),
        EventKind.SIGNAL: (3, 16),
    }
    for event, (word, low) in places.items():
        own = kind == event
        np.bitwise_or.at(words[:, word], row[own], (1 << (low + warp[own])).astype(np.uint32))
    issued = (kind == EventKind.ISSUE) | (kind == EventKind.VOID)
    shifted = (pc[issued] << 16 * (warp[issued] % 2)).astype(np.uint32)
    np.bitwise_or.at(words, (row[issued], 4 + warp[issued] // 2), shifted)
    return words[:, ::-1].astype(">u4").tobytes()


def shrink(file: Path) -> None:
    """Compress a whole FST file once more, in a form that FST readers support.

    FST compresses its blocks one by one, and for speed, so what blocks have in common is stored in each.
    """
    packed = file.with_name(f"{file.name}.gz")
    try:
        with file.open("rb") as plain, packed.open("wb") as out:
            out.write(bytes(17))
            with gzip.GzipFile("", "wb", 4, out, mtime=0) as inner:
                shutil.copyfileobj(plain, inner, 1 << 20)
            size = out.seek(0, io.SEEK_END)
            out.seek(0)
            # Block type, length from here on, and length of the content.
            out.write(struct.pack(">BQQ", WRAPPER, size - 1, plain.tell()))
        packed.replace(file)
    finally:
        packed.unlink(missing_ok=True)


class Signal(NamedTuple):
    """A signal for viewers: its path in the waves, width, format, and label."""

    path: str
    width: int
    form: str
    label: str


def groups(job: Job) -> dict[str, list[Signal]]:
    """The signals that explain a run, grouped by part of the machine."""
    view = "harness.view"
    found = {
        "run": [
            Signal(f"{view}.cycle", 48, "number", "cycle"),
            Signal(f"{view}.differs", 1, "bit", "model and RTL differ"),
            Signal(f"{view}.diverged", 1, "bit", "have differed"),
        ]
    }
    for warp in sorted(job.programs):
        at, signals = f"warp[{warp}]", found.setdefault(f"warp {warp}", [])
        for name, width, form in (
            *(("instruction", 8 * TEXT, "text"), ("pc", 16, "number")),
            *((name, 1, "bit") for name in ("issue", "void_issue", "complete", "signal")),
        ):
            signals += [Signal(f"{view}.{side}.{at}.{name}", width, form, f"{side} {name}") for side in SIDES]
    codes = [decode(word) for words in job.programs.values() for word in words]
    used = {code.spec.engine for code in codes if code is not None}
    for engine in (engine for engine in ENGINES if engine in used):
        signals = found.setdefault(engine, [])
        for name, width, form in (
            *(("operation", 8 * TEXT, "text"), ("operations", 16, "number")),
            *((name, 1, "bit") for name in ("issue", "complete")),
        ):
            signals += [
                Signal(f"{view}.{side}.{engine}.{name}", width, form, f"{side} {name}") for side in SIDES
            ]
    return found


def is_users(file: Path) -> bool:
    """Whether a save file exists that was not written here: GTKWave saves a user's arrangement to it."""
    if not file.is_file() or file.suffix != ".gtkw":
        return False
    with file.open(encoding="utf-8", errors="replace") as text:
        return MADE_HERE not in text.readline()


def gtkwave_save(file: Path, job: Job) -> str:
    """The text of a GTKWave save file."""
    out = io.StringIO()
    save = GTKWSave(out)
    save.comment(MADE_HERE)
    save.dumpfile(str(file), abspath=False)
    save.treeopen("harness.")
    save.signals_width(240)
    for name, signals in groups(job).items():
        with save.group(name, closed=False):
            for signal in signals:
                range_ = f"[{signal.width - 1}:0]" if signal.width > 1 else ""
                save.trace(signal.path + range_, alias=signal.label, datafmt=GTKW_FORMATS[signal.form])
    return out.getvalue()


def surfer_commands(file: Path, job: Job) -> str:
    """The text of a Surfer command file (`surfer --command-file`)."""
    lines, items = [f"load_file {file}"], 0
    for name, signals in groups(job).items():
        lines.append(f"divider_add {name}")
        items += 1
        for signal in signals:
            lines.append(f"variable_add {signal.path}")
            if signal.form in SURFER_FORMATS:
                lines += [
                    f"item_focus {_surfer_item(items)}",
                    f"item_set_format {SURFER_FORMATS[signal.form]}",
                ]
            items += 1
    return "\n".join([*lines, "item_unfocus", "zoom_fit", ""])


def _surfer_item(number: int) -> str:
    """Surfer's name for an item: its number in base 16, with a to p as digits."""
    return "".join(chr(ord("a") + int(digit, 16)) for digit in f"{number:x}")
