"""Files of the project: CONTRIBUTING.md, workflows, issue forms, citation, and the wheel's contents."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner

import heald
from heald.cli import cli
from tests.test_architecture import mentions, missing

ROOT = Path(__file__).resolve().parents[1]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
GITHUB = ROOT / ".github"
#: Folders that commands make.
MADE = (".venv/", "build/")
#: The schema of each kind of file, in check-jsonschema.
SCHEMAS = {
    "citation-file-format": [ROOT / "CITATION.cff"],
    "github-workflows": sorted((GITHUB / "workflows").iterdir()),
    "github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "github-issue-forms": sorted((GITHUB / "ISSUE_TEMPLATE").glob("[!c]*.yml")),
}


def fits(schema: str, files: Sequence[Path]) -> bool:
    """Whether files follow a schema."""
    ended = CliRunner().invoke(check_jsonschema, ["--builtin-schema", f"vendor.{schema}", *map(str, files)])
    print(ended.output)
    assert ended.exit_code in (0, 1)
    return ended.exit_code == 0


def read(path: Path) -> Any:
    """A file of YAML, without its types: `on` stays a word, and 3.10 a text."""
    return yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_for_github_follow_their_schemas(schema: str) -> None:
    assert SCHEMAS[schema]
    assert fits(schema, SCHEMAS[schema])


def test_a_file_that_does_not_follow_its_schema_is_found(tmp_path: Path) -> None:
    path = tmp_path / "CITATION.cff"
    path.write_text("cff-version: 1.2.0\ntitle: Heald\nmessage: x\n")
    assert not fits("citation-file-format", [path])


def test_the_citation_names_this_version_and_the_authors() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == heald.__version__
    assert citation["authors"] == [{"name": "The Heald authors"}]
    assert citation["license"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]


def test_the_workflow_of_tests_calls_ci_run_with_python_3_11() -> None:
    workflow = read(GITHUB / "workflows" / "ci.yml")
    assert {"push", "pull_request"} <= workflow["on"].keys()
    for job in workflow["jobs"].values():
        assert job["steps"][-1] == {"run": ".ci/run"}
        versions = [s["with"]["python-version"] for s in job["steps"] if "setup-python" in s.get("uses", "")]
        assert versions == ["3.11"] or job["container"] == "debian:12"
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_the_workflow_of_releases_runs_make_release_before_it_publishes() -> None:
    runs = [s.get("run", "") for s in read(GITHUB / "workflows" / "release.yml")["jobs"]["release"]["steps"]]
    published = next(n for n, run in enumerate(runs) if run.startswith("gh release create"))
    assert "make release" in runs[:published]
    assert "release" in targets()


@pytest.mark.parametrize("form", ["bug", "divergence"])
def test_forms_ask_for_what_repeats_a_run(form: str) -> None:
    body = read(GITHUB / "ISSUE_TEMPLATE" / f"{form}.yml")["body"]
    fields = {part["id"]: part for part in body if "id" in part}
    assert "`heald --version`" in fields["version"]["attributes"]["description"]
    for name in ("version", "machine", "command"):
        assert fields[name]["validations"] == {"required": "true"}


def targets() -> set[str]:
    """What `make` makes by name."""
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands(text: str) -> Iterator[list[str]]:
    """The command lines of a page, of its blocks and inside of sentences, without comments."""
    for block, inside in re.findall(r"^    (.+)$|`([^`\n]+)`", text, re.MULTILINE):
        for command in (block or inside).partition("#")[0].split("&&"):
            yield command.split()


def wrong(text: str) -> list[str]:
    """Commands and paths that a page names and the tree does not have."""
    found = missing(text)
    for words in commands(text):
        match words:
            case ["make", target]:
                right = target in targets()
            case ["python", "-m", "pytest", path]:
                right = (ROOT / path).exists()
            case ["python", "-m", module, *_]:
                right = (ROOT / module.replace(".", "/")).with_suffix(".py").exists()
            case ["heald", name, *_]:
                right = name in cli.commands or name in _options(cli)
            case [path] if re.search(r"/|\.[a-z]+$", path):
                right = path.startswith(MADE) or (ROOT / path.partition(":")[0]).exists()
            case _:
                right = True
        if not right:
            found.append(" ".join(words))
    return found


def _options(command: click.Command) -> set[str]:
    return {name for p in command.get_params(click.Context(command)) for name in p.opts}


def test_everything_that_contributing_names_exists() -> None:
    text = CONTRIBUTING.read_text(encoding="utf-8")
    assert len(mentions(text)) >= 10
    assert sum(words[0] in ("make", "python", "heald") for words in commands(text)) >= 10
    assert wrong(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "`make nothing`",
        "`python -m bench.nothing`",
        "`heald nothing`",
        "`.ci/nothing`",
        "`nothing.toml`",
        "    make demo && make nothing",
        "`sw/passes.py:NOTHING`",
    ],
)
def test_what_does_not_exist_is_found(text: str) -> None:
    assert len(wrong(text)) >= 1


def test_sentences_of_contributing_are_short() -> None:
    text = re.sub(r"^(    |#|\|).*$", "", CONTRIBUTING.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    sentences = re.split(r"(?<=[.:?])\s|\n\n|^- |^\d\. ", text, flags=re.MULTILINE)
    assert max(len(sentence.split()) for sentence in sentences) <= 35


def undeclared(files: Sequence[Path], package_data: Mapping[str, Sequence[str]]) -> list[Path]:
    """The files that setuptools would leave out of the wheel: neither Python nor in `package-data`."""
    declared = {
        path
        for package, globs in package_data.items()
        for glob in globs
        for path in (ROOT / package.replace(".", "/")).glob(glob)
    }
    return [path for path in files if path.suffix not in (".py", ".pyi") and path not in declared]


def code() -> list[Path]:
    """The files of the code, those left out that Python and editors leave there."""
    found = [path for top in ("hw", "sw", "cosim", "heald") for path in (ROOT / top).rglob("*")]
    return [p for p in found if p.is_file() and p.parent.name != "__pycache__" and not p.name.startswith(".")]


def test_the_wheel_contains_every_file_that_is_not_python() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    files = code()
    assert len(files) > 500
    assert undeclared(files, data) == []
    for package in data:
        rest = {name: globs for name, globs in data.items() if name != package}
        assert undeclared(files, rest), f"{package} declares nothing that another package does not"
