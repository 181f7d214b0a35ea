"""The blocks of a chapter's page: headings, prose and figures with their anchors, code cells with their outputs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from ..notebook import Cell
from . import escape
from .items import Item
from .links import Links
from .mdx import Renderer
from .targets import fragment
from .trees import sole_image, strong_start
from .words import word

CAPTION = re.compile(r"(?P<kind>Figure|图|Table|表)\s*(?P<number>(?:\d+|[A-Z])\.\d+)[\s.。:：]*")
EXERCISE = re.compile(r"(?:Exercise|练习)\s*(?P<number>(?:\d+|[A-Z])\.\d+)\s*(?P<grade>★*)")


@dataclass
class Blocks:
    """Writes the items of one page. `module` is where its saved cells go; `cells` what stands before their ids."""

    links: Links
    module: str = ""
    cells: str = "cell"

    def __post_init__(self) -> None:
        self.renderer = Renderer(self.links)

    def all(self, items: Iterable[Item]) -> str:
        """Return items in a row."""
        found = list(items)
        return "\n\n".join(filter(None, (self.one(item, then) for item, then in zip_longest(found, found[1:]))))

    def one(self, item: Item, after: Item | None = None) -> str:
        """Return one item; `after` is what follows it, where a figure has its number."""
        self.links.move(item.cell, item.path)
        if item.node is None:
            return self.code(item.cell)
        if item.kind == "heading":
            self.links.section = item.ident if item.level == 2 else self.links.section
            written = self.renderer.heading(item.node)
            written = escape.anchored(item.ident, written) if item.ident else written
        else:
            written = self._prose(item, after)
        return f"{self.foreign()}\n\n{written}" if item.is_foreign else written

    def foreign(self) -> str:
        """Return the line that says that what follows is not translated."""
        return note(word("untranslated-cell", self.links.language))

    def _prose(self, item: Item, after: Item | None) -> str:
        assert item.node is not None
        written = self.renderer.block(item.node)
        caption = CAPTION.fullmatch(strong_start(item.node))
        if caption and caption["kind"] in ("Table", "表"):
            return escape.anchored(fragment("table", caption["number"]), written)
        if sole_image(item.node) and after is not None and after.node is not None:
            follows = CAPTION.fullmatch(strong_start(after.node))
            if follows and follows["kind"] in ("Figure", "图"):
                return escape.anchored(fragment("figure", follows["number"]), written)
        return written

    def code(self, cell: Cell) -> str:
        """Return a code cell and what it printed, character for character."""
        for name, content in (("source", cell.source), ("output", cell.stdout)):
            if found := escape.CONTROL.search(content):
                self.links.fault(f"its {name} holds {found[0]!r}, which no page can show")
        parts = [escape.fence(cell.source, "python", f"agentrl.{self.module}" if cell.is_saved else "")]
        if cell.output_class != "exact":
            parts.insert(0, self._needs(cell.output_class))
        if cell.stdout:
            parts.append(escape.fence(cell.stdout, "text", word("output", self.links.language)))
        return escape.anchored(f"{self.cells}-{cell.id}", "\n\n".join(parts))

    def _needs(self, output_class: str) -> str:
        language = self.links.language
        labs = f"[{word('labs', language)}](/{language}/reference/labs)"
        return escape.element("Info", word(f"needs-{output_class}", language, labs=labs))


def note(words: str) -> str:
    """Return a note of one paragraph."""
    return escape.element("Note", words)


def exercise_number(item: Item) -> str | None:
    """Return the number of the exercise that a paragraph begins, or None."""
    match = EXERCISE.match(strong_start(item.node)) if item.node is not None and item.kind == "prose" else None
    return match["number"] if match else None
