"""Chromium for tests of pages, where it is installed with its driver."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
#: Seconds within which a page is complete, or a file saved, however busy the machine.
LIMIT = 60
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
needed = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="no Chromium with its driver (chromedriver) is installed"
)


def started(profile: Path) -> Any:
    """A browser of its own; skips the test where selenium is not installed."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options, webdriver.ChromeService(DRIVER))


def show(browser: Any, file: Path, width: int = 1400) -> Any:
    """The browser with a page, all drawn."""
    from selenium.webdriver.support.ui import WebDriverWait

    browser.set_window_size(width, 1000)
    browser.get(file.as_uri())
    complete = "return document.documentElement.dataset.complete || null"
    WebDriverWait(browser, LIMIT).until(lambda b: b.execute_script(complete))
    return browser


def quiet(browser: Any) -> bool:
    """Whether the browser had nothing to complain about."""
    found = browser.get_log("browser")
    return bool(found == [])


def saved(browser: Any, button: Any, folder: Path, name: str) -> bytes:
    """What a button of the page saves under a name.

    The name is reserved by an empty file, which the whole one takes the place of.
    """
    behaviour = {"behavior": "allow", "downloadPath": str(folder)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
    button.click()
    end = time.monotonic() + LIMIT
    while not ((folder / name).is_file() and (folder / name).stat().st_size):
        assert time.monotonic() < end, f"{name} was not saved"
        time.sleep(0.05)
    return (folder / name).read_bytes()
