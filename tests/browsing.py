"""Opens the static edition in a real Chromium, from the disk, and tells what is wrong with a page."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from needing import missing
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Playwright, Request, TimeoutError

from bookkit.books.browser import find_browser

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "site"
NAVIGATION = ROOT / "website" / "docs.json"
IN_PAGE = Path(__file__).with_name("in_page.js")
AXE = ROOT / "site" / "reader" / "node_modules" / "axe-core" / "axe.min.js"
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", MAC)
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
WIDTHS = (1360, 768, 390)
HEIGHT = 900
AT_ONE_WIDTH = ("images", "fonts", "baselines", "formulaColours", "doubleIds")
AT_EVERY_WIDTH = ("overflow", "equationNumbers", "punctuation")
KINDS = (*AT_ONE_WIDTH, *AT_EVERY_WIDTH, "theme", "heard")
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]

Theme = Literal["light", "dark"]


def program() -> str:
    """Return the Chromium to test with: AGENTRL_BROWSER, or the one that prints the books."""
    named = os.environ.get("AGENTRL_BROWSER")
    found = shutil.which(named) if named else find_browser()
    why = f"AGENTRL_BROWSER={named} is no program" if named else "none is on PATH (bash .ci/install installs one)"
    return found or missing(f"no Chromium to test the site with: {why}")


def site() -> Path:
    """Return the folder of the built static edition."""
    for path in (SITE / "index.html", NAVIGATION, AXE):
        if not path.is_file():
            missing(f"{path.relative_to(ROOT)} is not there: make site builds the static edition")
    return SITE


def pages(language: str) -> list[str]:
    """Return a language's pages in reading order, as docs.json has them: `en/chapters/06-policy-gradients`."""
    languages = json.loads(NAVIGATION.read_text(encoding="utf-8"))["navigation"]["languages"]
    groups = next(each["groups"] for each in languages if each["language"] == language)
    return [page for group in groups for page in group["pages"]]


def address(page: str) -> str:
    """Return the file:// address of a page of docs.json."""
    return (SITE / f"{page}.html").as_uri()


@contextmanager
def chromium(playwright: Playwright) -> Iterator[Browser]:
    """Give a running headless browser."""
    browser = playwright.chromium.launch(executable_path=program(), args=ARGUMENTS)
    try:
        yield browser
    finally:
        browser.close()


@dataclass
class Heard:
    """What went wrong while a page was open, as the browser told it."""

    faults: list[str] = field(default_factory=list)

    def failed(self, request: Request) -> None:
        """Note a request that failed, but for one that was given up because the page was left."""
        if request.failure != "net::ERR_ABORTED":
            self.faults.append(f"request failed: {request.url} ({request.failure})")

    def raised(self, error: Error) -> None:
        """Note what a script raised and did not catch."""
        self.faults.append(f"script error: {error}")

    def said(self, message: ConsoleMessage) -> None:
        """Note an error or a warning on the console."""
        if message.type in ("error", "warning"):
            self.faults.append(f"console: {message.text}")

    def asked(self, request: Request) -> None:
        """Note a request that leaves the disk."""
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.faults.append(f"request elsewhere: {request.url}")


@contextmanager
def listening(page: Page) -> Iterator[list[str]]:
    """Give the growing list of errors of scripts, requests that fail and requests to anywhere but the disk."""
    heard = Heard()
    ears = {"console": heard.said, "pageerror": heard.raised, "request": heard.asked, "requestfailed": heard.failed}
    for event, ear in ears.items():
        page.on(event, ear)  # type: ignore[call-overload]
    try:
        yield heard.faults
    finally:
        for event, ear in ears.items():
            page.remove_listener(event, ear)


@contextmanager
def window(browser: Browser, width: int = WIDTHS[0], theme: Theme = "light", **options: Any) -> Iterator[Page]:
    """Give an empty page in a context of its own."""
    size = {"width": width, "height": HEIGHT}
    context = browser.new_context(viewport=size, color_scheme=theme, **options)  # type: ignore[arg-type]
    context.add_init_script(path=IN_PAGE)
    try:
        yield context.new_page()
    finally:
        context.close()


@contextmanager
def opened(browser: Browser, width: int = WIDTHS[0], theme: Theme = "light", **options: Any) -> Iterator[Page]:
    """Give an empty page, which fails the test if anything goes wrong in it."""
    with window(browser, width, theme, **options) as page, listening(page) as heard:
        yield page
        assert not heard, heard


@contextmanager
def cleared(page: Page) -> Iterator[Page]:
    """Give a page that others had before, and leave no trace in it."""
    page.set_viewport_size({"width": WIDTHS[0], "height": HEIGHT})
    page.emulate_media(color_scheme="light")
    try:
        yield page
    finally:
        page.unroute_all()
        page.goto((SITE / "images" / "favicon.svg").as_uri())
        page.evaluate("localStorage.clear()")


@dataclass
class Look:
    """What stands on a page, and what is wrong with it, by kind."""

    facts: dict[str, Any]
    faults: dict[str, list[str]]


def look(page: Page, where: str, kinds: Collection[str] = KINDS) -> Look:
    """Return what the page at an address holds and what is wrong with it, of these kinds, at each width and theme."""
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": WIDTHS[0], "height": HEIGHT})
    with listening(page) as heard:
        page.goto(where)
        return Look(page.evaluate("inPage.facts()"), {**faults_of(page, kinds), "heard": heard})


def faults_of(page: Page, kinds: Collection[str]) -> dict[str, list[str]]:
    """Return what is wrong with the page that is open, of these kinds, at each width and theme."""
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    faults = ask(page, [kind for kind in AT_ONE_WIDTH if kind in kinds])
    by_width = [kind for kind in AT_EVERY_WIDTH if kind in kinds]
    faults |= {kind: [] for kind in by_width}
    for width in WIDTHS if by_width else ():
        page.set_viewport_size({"width": width, "height": HEIGHT})
        for kind, found in ask(page, by_width).items():
            faults[kind] += [f"at {width} px: {fault}" for fault in found]
    if "theme" in kinds:
        faults["theme"] = theme_faults(page, "light") + theme_faults(page, "dark")
    return faults


def ask(page: Page, kinds: list[str]) -> dict[str, list[str]]:
    """Return what the functions of in_page.js find."""
    return page.evaluate("(kinds) => inPage.faults(kinds)", kinds)


def theme_faults(page: Page, theme: Theme) -> list[str]:
    """Return what is wrong with a page when the system asks for a theme."""
    page.emulate_media(color_scheme=theme)
    wrong = [] if turns(page, theme) else [f"the paper is not {theme}"]
    return wrong + page.evaluate(f"[...inPage.figures('{theme}'), ...inPage.codeContrast()]")


def turns(page: Page, theme: Theme) -> bool:
    """Return whether a page takes on a theme, within two seconds."""
    try:
        page.wait_for_function(f"(inPage.brightness() < 0.5) === {str(theme == 'dark').lower()}", timeout=2000)
    except TimeoutError:
        return False
    return True


def shown_theme(page: Page) -> Theme:
    """Return the theme that a page is painted in."""
    return "dark" if page.evaluate("inPage.brightness()") < 0.5 else "light"


def violations(page: Page, theme: Theme) -> list[str]:
    """Return what axe-core finds in a theme, of what WCAG 2.1 asks at A and AA; in dark mode only colours differ."""
    page.emulate_media(color_scheme=theme)
    assert turns(page, theme)
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    only = WCAG if theme == "light" else {"type": "rule", "values": ["color-contrast"]}
    return page.evaluate("(only) => inPage.accessibility(only)", only)


def planted(page: Page, where: str, before: str, after: str) -> None:
    """Make a page have a fault: the first `before` in the file at an address reads `after`."""
    text = Path(unquote(urlsplit(where).path)).read_text(encoding="utf-8")
    assert before in text, f"{where} has no {before!r} to plant a fault in"
    page.route(where, lambda route: route.fulfill(body=text.replace(before, after, 1), content_type="text/html"))


def tab_stops(page: Page, most: int = 1000) -> Iterator[dict[str, Any]]:
    """Yield each stop of the Tab key until the page is through."""
    for _ in range(most):
        page.keyboard.press("Tab")
        stop = page.evaluate("inPage.focus()")
        if stop is None:
            return
        yield stop
    raise AssertionError(f"the Tab key does not come to the end of the page in {most} stops")


def first_theme(page: Page) -> Theme:
    """Return the theme of the first frame that a page painted."""
    page.wait_for_function("inPage.firstPaper() !== null")
    return "dark" if page.evaluate("inPage.firstPaper()") < 0.5 else "light"
