"""Chromium: where it is, what fits a page, printing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .lacking import Lacking

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
FIT = Path(__file__).with_name("fit.js").read_text(encoding="utf-8")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--font-render-hinting=none", "--allow-file-access-from-files"]
TIMEOUT = 600_000  # milliseconds; a whole book is one document
WIDTH = 643  # of a line in pixels: A4 less its margins, as in paper.css


def find_browser() -> str | None:
    """Return the path of an installed Chromium or Chrome."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    return found or (str(MAC) if os.access(MAC, os.X_OK) else None)


@contextmanager
def opened(document: Path) -> Iterator[Tab]:
    """Open a document as it will be printed; Lacking says which browser to install."""
    from playwright.sync_api import sync_playwright

    if (browser := find_browser()) is None:
        hint = "sudo apt install chromium, or Chrome on a Mac"
        raise Lacking("PDF", f"is printed by Chromium, and none is installed: {hint}")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=browser, args=ARGUMENTS)
        try:
            tab = running.new_page(viewport={"width": WIDTH, "height": 900})
            tab.set_default_timeout(TIMEOUT)
            tab.emulate_media(media="print", color_scheme="light")
            tab.goto(document.as_uri(), wait_until="load", timeout=TIMEOUT)
            tab.evaluate("document.fonts.ready")
            yield tab
        finally:
            running.close()


def fit(tab: Tab) -> list[str]:
    """Make wide formulas, tables and outputs fit the line; return what still does not."""
    return tab.evaluate(FIT)


def number_contents(tab: Tab, numbers: dict[str, int]) -> None:
    """Write page numbers into the contents of the open document; they are as wide as what they replace."""
    tab.evaluate(
        """numbers => { for (const row of document.querySelectorAll(".contents a.row"))
            row.lastElementChild.textContent = numbers[row.hash.slice(1)] ?? "?"; }""",
        numbers,
    )


def print_to(tab: Tab, file: Path, *, tagged: bool = True) -> None:
    """Print the open document, with or without tags, which tell programs what is a heading and what a table."""
    tab.pdf(path=file, prefer_css_page_size=True, print_background=True, tagged=tagged)
