"""`heald disasm`: disassemble instruction words."""

from __future__ import annotations

import re
from pathlib import Path

import click
import numpy as np

from heald.cli.options import PATH, as_json, print_json
from hw.assembly import decode, disassemble_words
from hw.errors import InputError

_TOKEN = re.compile(r"(0[xX])?[0-9a-fA-F]{1,8}")


@click.command("disasm")
@click.argument("file", type=PATH)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["auto", "bin", "hex"]),
    default="auto",
    show_default=True,
    help="Little-endian binary, or hexadecimal text in which `#` and `//` start comments.",
)
@as_json
def command(file: Path, kind: str, json_: bool) -> None:
    """Disassemble a file of instruction words."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    words = _words(data, kind, str(file))
    entries = [
        {"pc": pc, "word": f"{word:08x}", "text": text, "instruction": decode(word) is not None}
        for pc, (word, text) in enumerate(zip(words, disassemble_words(words), strict=True))
    ]
    if json_:
        print_json({"words": len(words), "instructions": entries})
        return
    for entry in entries:
        click.echo("{pc:5}  {word}  {text}".format(**entry))


def _words(data: bytes, kind: str, place: str) -> list[int]:
    if not data:
        raise InputError(f"{place}: must hold at least one instruction word, it is empty")
    if kind != "bin":
        words = _hex_words(data, place, strict=kind == "hex")
        if words is not None:
            return words
    if len(data) % 4:
        raise InputError(f"{place}: must hold words of 4 bytes or hexadecimal text, not {len(data)} bytes")
    return [int(word) for word in np.frombuffer(data, "<u4")]


def _hex_words(data: bytes, place: str, *, strict: bool) -> list[int] | None:
    """The words of a text; None if it has another form, or with `strict` an error."""
    words = []
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        text = "?"
    for number, line in enumerate(text.splitlines(), 1):
        for token in re.split(r"#|//", line)[0].split():
            if not _TOKEN.fullmatch(token):
                if strict:
                    raise InputError(
                        f"{place}:{number}: must be hexadecimal words of 32 bits, not {token[:40]!r}"
                    )
                return None
            words.append(int(token, 16))
    if not words and strict:
        raise InputError(f"{place}: must hold at least one instruction word, there is none")
    return words or None
