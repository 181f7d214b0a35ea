"""A notebook as a row of items, one a block of prose or a code cell, each with what the page must know of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from markdown_it.tree import SyntaxTreeNode

from ..notebook import Cell
from .edition import Edition, Shown
from .links import Links
from .targets import HeadingIds
from .trees import nodes_of, plain

Kind = Literal["heading", "prose", "code"]


@dataclass(frozen=True)
class Item:
    """A block of prose or a code cell. `english` is a heading's English text, whatever language is shown."""

    kind: Kind
    cell: Cell
    path: str
    node: SyntaxTreeNode | None = None
    level: int = 0
    english: str = ""
    ident: str = ""
    is_foreign: bool = False  # the first block of a run of cells that are not translated, in a page that is


def items(edition: Edition, ids: HeadingIds, links: Links, prefix: str = "") -> list[Item]:
    """Return the items of a notebook; `prefix` stands before the ids of headings without a number."""
    return list(_walk(edition, ids, links, prefix))


def _walk(edition: Edition, ids: HeadingIds, links: Links, prefix: str) -> Iterator[Item]:
    english, translated = edition.path(False), edition.path(True)
    foreign = False
    for shown in edition.cells:
        if shown.english.is_code:
            yield Item("code", shown.english, english)
        elif shown.english.kind == "markdown":
            was, foreign = foreign, edition.language != "en" and shown.translated is None
            first = edition.is_started and foreign and not was
            yield from _prose(shown, translated if shown.translated else english, ids, links, prefix, first)


def _prose(shown: Shown, path: str, ids: HeadingIds, links: Links, prefix: str, first: bool) -> Iterator[Item]:
    cell, nodes = shown.translated or shown.english, nodes_of(shown.text)
    original = nodes if shown.translated is None else nodes_of(shown.english.source)
    headings = [node for node in original if node.type == "heading"]
    if (there := [n.tag for n in nodes if n.type == "heading"]) != [n.tag for n in headings]:
        links.move(cell, path)
        links.fault(f"its headings are {there}, those of the English cell {[n.tag for n in headings]}")
        return
    pending = iter(headings)
    for node in nodes:
        if node.type != "heading":
            yield Item("prose", cell, path, node, is_foreign=first)
        else:
            level, english = int(node.tag[1:]), plain(next(pending)).strip()
            ident = "" if level == 1 else ids.of(prefix + english, level)
            yield Item("heading", cell, path, node, level, english, ident, first)
        first = False


def sections(found: Sequence[Item], level: int = 2) -> Iterator[tuple[Item | None, list[Item]]]:
    """Yield each heading of this level with the items below it; first, under None, what stands before them."""
    starts = [index for index, item in enumerate(found) if item.kind == "heading" and item.level == level]
    yield None, list(found[: starts[0] if starts else len(found)])
    for start, end in zip_longest(starts, starts[1:], fillvalue=len(found)):
        yield found[start], list(found[start + 1 : end])
