"""Screenshots of the two reports, light and dark, in build/screenshots, from where docs/hooks.py takes them.

`make docs` runs this before it builds the site. The model of the first tutorial runs on the RTL of the
smallest machine, and 18 machines are explored. Where there is no browser a line says that the site has none.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build/screenshots"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTH, HEIGHT = 1280, 1400
#: The schemes of colours, as Chromium numbers them in `preferredColorScheme`.
SCHEMES = {"dark": 0, "light": 1}
SPACE = """\
base = "test"

[parameters]
rows = [4, 8, 16]
cols = [4, 8, 16]
load_a_bytes = [4, 16]
cgra = ["none"]
"""
#: What makes the pages, in a folder that has `space.toml`; `examples` stands for that of the tree.
COMMANDS = (
    "examples/09_bert_encoder/make_model.py --sequence 8 --hidden 32 --heads 2 --feed-forward 64"
    " --output encoder.onnx",
    "-m heald run encoder.onnx --hw test --report report.html",
    "examples/01_bert_layer/make_model.py --sequence 8 --hidden 16 --heads 1 --feed-forward 32"
    " --output layer.onnx",
    "-m heald explore space.toml layer.onnx --executor processes:1 --storage sqlite:///study.db"
    " --report exploration.html",
)


def say(text: str) -> None:
    """A line of progress."""
    print(f"screenshots: {text}", file=sys.stderr)


def pages(folder: Path) -> list[Path]:
    """The two reports; the commands say on stderr what they do."""
    (folder / "space.toml").write_text(SPACE, encoding="utf-8")
    (folder / "examples").symlink_to(ROOT / "examples")
    for line in COMMANDS:
        say(line.removeprefix("-m "))
        command = [sys.executable, *line.split()]
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return [folder / "report.html", folder / "exploration.html"]


def shoot(browser: str, page: Path, target: Path, scheme: str) -> str:
    """The upper part of a page as a PNG; empty, or why there is none."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    # Time in the page runs ahead until all is drawn.
    flags += [f"--window-size={WIDTH},{HEIGHT}", "--virtual-time-budget=20000", f"--screenshot={target}"]
    flags += [f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [browser, *flags, f"--user-data-dir={profile}", page.as_uri()]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if ended.returncode or not target.exists():
        return (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
    return ""


def main() -> int:
    """Make all of them, or none."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        say("no Chromium or Chrome is installed: the site is built without them")
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            made = pages(folder)
        except subprocess.CalledProcessError as error:
            say(f"{' '.join(error.cmd[1:])} failed, see above")
            return 1
        shots = folder / "shots"
        shots.mkdir()
        for page in made:
            for scheme in SCHEMES:
                failure = shoot(browser, page, shots / f"{page.stem}-{scheme}.png", scheme)
                if failure:
                    say(f"the site is built without them: {browser}: {failure}")
                    return 0
        shutil.copytree(shots, FOLDER)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
