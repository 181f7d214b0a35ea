"""The solutions of a chapter by exercise, each as a folded part of the chapter's page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from . import escape
from .blocks import EXERCISE, Blocks
from .edition import Edition
from .items import Item, items, sections
from .links import Links
from .mdx import strong
from .targets import HeadingIds
from .trees import inline_of, plain
from .words import word


@dataclass
class Solutions:
    """What stands before the first exercise, and the items of each exercise by its number, with its heading."""

    setup: list[Item] = field(default_factory=list)
    by_exercise: dict[str, tuple[Item, list[Item]]] = field(default_factory=dict)


def solutions_of(edition: Edition | None, ids: HeadingIds, links: Links) -> Solutions:
    """Return the solutions of a chapter; a second-level heading that names no exercise is a fault."""
    if edition is None:
        return Solutions()
    found = Solutions()
    for heading, below in sections(items(edition, ids, links, prefix="sol-")):
        if heading is None:
            found.setup = [item for item in below if item.kind != "heading"]
            continue
        match = EXERCISE.match(heading.english)
        links.move(heading.cell, heading.path)
        if match is None:
            links.fault(f"heading {heading.english!r} names no exercise")
        elif match["number"] in found.by_exercise:
            links.fault(f"exercise {match['number']} is solved twice")
        else:
            found.by_exercise[match["number"]] = (heading, below)
    return found


def folded(blocks: Blocks, title: str, found: Sequence[Item], opening: str = "") -> str:
    """Return items behind a title that a reader opens."""
    return escape.element("Accordion", "\n\n".join(filter(None, (opening, blocks.all(found)))), title=title)


def solution(blocks: Blocks, number: str, heading: Item, found: Sequence[Item]) -> str:
    """Return a solution; its title has the words of its heading, unless they need more than letters: bold, below it."""
    assert heading.node is not None
    blocks.links.move(heading.cell, heading.path)
    title, opening = word("solution", blocks.links.language, number=number), ""
    if any(part.type.startswith("math") for part in heading.node.walk()):
        words = blocks.renderer.inline(inline_of(heading.node), flat=True, link=False)
        opening = strong(EXERCISE.sub("", words, count=1).strip())
    elif words := EXERCISE.sub("", plain(heading.node).strip(), count=1).strip():
        title = f"{title} · {words}"
    if heading.is_foreign:
        opening = f"{blocks.foreign()}\n\n{opening}".rstrip("\n")
    return folded(blocks, title, found, opening)
