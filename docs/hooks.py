"""What MkDocs needs beside docs/: pages from elsewhere in the tree, their links, the help of all commands."""

from __future__ import annotations

import inspect
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File

from heald.cli import cli

ROOT = Path(__file__).resolve().parents[1]
#: Pages outside of docs/, by their place in the site.
OUTSIDE = {
    "index.md": "README.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "bench/README.md": "bench/README.md",
    **{
        path: path
        for path in sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("examples/**/README.md"))
    },
}
#: The target of a link or picture: no address, no anchor of the same page.
LINK = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)")
#: Where the help of all commands goes.
COMMANDS = "<!-- commands -->"
#: Where a screenshot goes, with what it shows; docs/screenshots.py made it, light and dark.
SCREENSHOT = re.compile(r"<!-- screenshot (\w+): (.+) -->")
SCREENSHOTS = ROOT / "build/screenshots"


def in_site(path: str) -> str:
    """Where a file of the tree is in the site."""
    places = {source: place for place, source in OUTSIDE.items()}
    return places.get(path, path.removeprefix("docs/"))


def relinked(text: str, page: str) -> str:
    """A page whose links, which are those of the tree, lead to places of the site."""
    source = OUTSIDE.get(page, f"docs/{page}")

    def moved(link: re.Match[str]) -> str:
        path, sign, anchor = link[2].partition("#")
        target = in_site(posixpath.normpath(posixpath.join(posixpath.dirname(source), path)))
        return link[1] + posixpath.relpath(target, posixpath.dirname(page) or ".") + sign + anchor

    return LINK.sub(moved, text)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages outside of docs/, the notebooks, and the screenshots."""
    pictures = {f"screenshots/{p.name}": p for p in sorted(SCREENSHOTS.glob("*.png"))}
    notebooks = {p.relative_to(ROOT).as_posix(): p for p in ROOT.glob("examples/**/*.ipynb")}
    outside = {place: ROOT / source for place, source in OUTSIDE.items()}
    for place, path in (outside | notebooks | pictures).items():
        files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    """Mend the links of a page, and fill in the commands and screenshots."""
    text = pictured(relinked(text, page.file.src_uri), page.file.src_uri)
    return text.replace(COMMANDS, "\n".join(described(cli, None, "heald"))) if COMMANDS in text else text


def pictured(text: str, page: str) -> str:
    """A page with its screenshots, of which the theme shows the one that is like its colours."""

    def shown(mark: re.Match[str]) -> str:
        names = {scheme: f"{mark[1]}-{scheme}.png" for scheme in ("light", "dark")}
        if not all((SCREENSHOTS / name).exists() for name in names.values()):
            return ""
        folder = posixpath.relpath("screenshots", posixpath.dirname(page) or ".")
        return "".join(f"![{mark[2]}]({folder}/{name}#only-{scheme})" for scheme, name in names.items())

    return SCREENSHOT.sub(shown, text)


def plain(text: str) -> str:
    """A text in which Markdown finds no links, tables or HTML."""
    return re.sub(r"([\[*|])", r"\\\1", text).replace("<", "&lt;")


def described(command: click.Command, parent: click.Context | None, name: str) -> Iterator[str]:
    """The help of a command and of those in it as Markdown: usage, text, a table of options."""
    context = click.Context(command, info_name=name, parent=parent)
    if parent is not None:
        yield f"## {context.command_path}\n"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"    {context.command_path} {usage}\n"
    yield plain(inspect.cleandoc(command.help or "")) + "\n"
    yield "| option | meaning |\n| --- | --- |"
    for option in (p for p in command.get_params(context) if isinstance(p, click.Option)):
        names, meaning = (" ".join(part.split()) for part in option.get_help_record(context) or ("", ""))
        yield f"| `{names}` | {plain(meaning)} |"
    yield ""
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        yield from described(inner, context, inner.name or "")
