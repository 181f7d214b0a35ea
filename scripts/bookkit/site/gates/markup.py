"""What may stand on a page, beyond what an MDX parser refuses: elements, attributes, anchors, tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ...problems import Problem
from .website import LANGUAGES, Item, Page, Website

CALLOUTS = dict.fromkeys(("Note", "Info", "Tip", "Warning", "Check", "AccordionGroup"), frozenset[str]())
ELEMENTS = {
    **CALLOUTS,
    "Frame": frozenset({"caption"}),
    "Accordion": frozenset({"title", "id"}),
    "div": frozenset({"id"}),
    "img": frozenset({"src", "alt", "className"}),
    "br": frozenset[str](),
    "sup": frozenset[str](),
    "sub": frozenset[str](),
    "strong": frozenset[str](),  # where marks would not be read as emphasis: before Chinese without a blank
    "em": frozenset[str](),
}

LINKS = ("/", "#", "https://", "http://", "mailto:")
TAG = re.compile(r"\\tag\{(\d+|[A-Z])\.(\d+)\}")


def check(website: Website) -> list[Problem]:
    """Refuse pages that do not parse, expressions, which are evaluated as JavaScript, and elements not in ELEMENTS."""
    problems = [p for p in website.unreadable if not p.path.endswith("docs.json")]
    for page in website.pages.values():
        for item in page.items:
            problems += [website.problem(page.path, item.line, message) for message in _messages(item)]
    return problems


def _messages(item: Item) -> Iterator[str]:
    if item.kind == "link" and not item.url.startswith(LINKS):
        yield f"a link to {item.url!r}, which is neither a page of the website, nor a place on this one, nor on the web"
    if item.kind == "expression":
        yield f"{{{item.text}}} would be evaluated as JavaScript: write \\{{ and \\}} in prose"
    if item.kind != "element":
        return
    if item.name not in ELEMENTS:
        kind = "component" if item.name[:1].isupper() else "HTML element"
        yield f"unknown {kind} <{item.name}>; pages use {', '.join(ELEMENTS)}"
        return
    for name, value in item.attributes.items():
        if name not in ELEMENTS[item.name]:
            yield f"<{item.name}> has the attribute {name}, which pages do not use"
        elif not isinstance(value, str):
            yield f"<{item.name}> has an attribute {name} without a text in quotes"


def anchors(website: Website) -> list[Problem]:
    """Refuse ids that stand twice, what a chapter lets others refer to without an id, ids of one language only."""
    problems = []
    for page in website.pages.values():
        problems += _without(website, page) if "/chapters/" in page.path else ()
        for ident, times in Counter(ident for ident, _ in _ids(page)).items():
            if times > 1:
                lines = [line for name, line in _ids(page) if name == ident]
                problems.append(
                    website.problem(page.path, lines[1], f"the id {ident} stands {times} times on this page")
                )
    first, second = LANGUAGES
    for page in website.pages.values():
        other = website.pages.get(page.path.replace(f"{first}/", f"{second}/", 1))
        if page.path.startswith(f"{first}/") and other is not None:
            problems += _differences(website, page, other)
    return problems


def _without(website: Website, page: Page) -> Iterator[Problem]:
    """Yield the headings and the numbered equations of a chapter that have no id of their own."""
    taken: set[str] = set()
    for heading in page.of("heading"):
        if not heading.within or heading.within[-1] in taken:
            yield website.problem(page.path, heading.line, f"the heading {heading.text!r} has no id of its own")
        taken |= set(heading.within[-1:])
    for math in page.of("math"):
        for numbers in TAG.findall(math.text):
            if (wanted := f"eq-{'-'.join(numbers)}") not in math.within:
                yield website.problem(page.path, math.line, f"the equation ({'.'.join(numbers)}) has no id {wanted}")


def _differences(website: Website, page: Page, other: Page) -> Iterator[Problem]:
    here, there = dict(_ids(page)), dict(_ids(other))
    for ident in [ident for ident in here if ident not in there]:
        yield website.problem(other.path, None, f"the id {ident} of {page.path}, line {here[ident]}, is missing")
    for ident in [ident for ident in there if ident not in here]:
        yield website.problem(other.path, there[ident], f"{page.path} has no id {ident}")
    if here.keys() == there.keys() and list(here) != list(there):
        swapped = next(b for a, b in zip(here, there, strict=True) if a != b)
        yield website.problem(
            other.path, there[swapped], f"the id {swapped} stands in another place than in {page.path}"
        )


def _ids(page: Page) -> list[tuple[str, int | None]]:
    pairs = ((item.attributes.get("id"), item.line) for item in page.of("element"))
    return [(ident, line) for ident, line in pairs if isinstance(ident, str)]


def tables(website: Website) -> list[Problem]:
    """Refuse rows whose number of cells is not that of the table's head: a bare | in a cell splits it."""
    return [
        website.problem(
            page.path, line, f"{cells} cells, the table's head has {table.rows[0][1]}: a bare | splits a cell"
        )
        for page in website.pages.values()
        for table in page.of("table")
        for line, cells in table.rows
        if cells != table.rows[0][1]
    ]
