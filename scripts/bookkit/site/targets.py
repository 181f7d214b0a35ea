"""Where everything in the chapters stands that prose can refer to: the same places in both languages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..lint.context import Page, key_of
from ..lint.markdown import anchor, parse
from ..notebook import Chapter
from .edition import Edition, Editions
from .trees import nodes_of, plain
from .words import LANGUAGES, Language, short_number

ANCHORS = {"section": "sec", "figure": "fig", "table": "tab", "equation": "eq", "exercise": "ex"}
SECTION_NUMBER = re.compile(r"(?P<number>(?:\d+|[A-Z])\.\d+) ")
DESIGN = "Design questions in practice"


def fragment(kind: str, number: str) -> str:
    """Return the id of a numbered thing: `sec-1-1`, `eq-1-2`, `fig-1-1`, `ex-1-8`."""
    return f"{ANCHORS[kind]}-{number.replace('.', '-')}"


def chapter_page(chapter: Chapter, language: Language) -> str:
    """Return the path of a chapter's page, without its ending."""
    return f"{language}/chapters/{chapter.key}-{chapter.slug}"


def section_of(ident: str) -> str:
    """Return the last number of a section by its id, `2` for `sec-1-2`, "" for the id of anything else."""
    return ident.rpartition("-")[2] if ident.startswith("sec-") else ""


def slug(text: str) -> str:
    """Return text as an id: lower-case words with hyphens between them."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "part"


@dataclass
class HeadingIds:
    """Gives the headings of one page their ids, from English text, each once."""

    taken: set[str] = field(default_factory=set)

    def of(self, english: str, level: int) -> str:
        """Return the id of the next heading."""
        match = SECTION_NUMBER.match(english)
        wanted = fragment("section", match["number"]) if match and level == 2 else slug(english)
        ident, count = wanted, 1
        while ident in self.taken:
            count += 1
            ident = f"{wanted}-{count}"
        self.taken.add(ident)
        return ident


@dataclass(frozen=True)
class Targets:
    """The chapters of this build, what is numbered in each, and the ids of its headings as JupyterLab names them."""

    chapters: dict[str, Chapter]
    numbered: frozenset[tuple[str, str]]
    headings: dict[str, dict[str, str]]

    @classmethod
    def of(cls, chapters: Iterable[Chapter], editions: Editions) -> Targets:
        """Read the targets of these chapters."""
        pages = {chapter.key: Page(chapter) for chapter in chapters}
        numbered = frozenset(pair for page in pages.values() for pair in _numbered(page))
        headings = {key: _headings([editions.chapter(key, language) for language in LANGUAGES]) for key in pages}
        return cls({key: page.chapter for key, page in pages.items()}, numbered, headings)

    def find(self, kind: str, number: str) -> tuple[Chapter, str] | None:
        """Return the chapter and the id that a reference means; None when it is not on the site."""
        chapter = self.chapters.get(key_of(number.split(".")[0]))
        if chapter is None:
            return None
        if kind == "chapter":
            return chapter, ""
        return (chapter, fragment(kind, number)) if (kind, number) in self.numbered else None


def _numbered(page: Page) -> set[tuple[str, str]]:
    marks = {
        "section": page.sections,
        "figure": page.captions["Figure"],
        "table": page.captions["Table"],
        "equation": page.equations,
        "exercise": page.exercises,
    }
    own = short_number(page.chapter.key) + "."
    return {(kind, mark.number) for kind, found in marks.items() for mark in found if mark.number.startswith(own)}


def _headings(editions: Iterable[Edition]) -> dict[str, str]:
    """Return the ids of a chapter's headings by what a link calls them, in any language."""
    found: dict[str, str] = {}
    for edition in editions:
        ids = HeadingIds()
        for shown in edition.prose:
            nodes = [node for node in nodes_of(shown.english.source) if node.type == "heading"]
            blocks = [block for block in parse(shown.text) if block.kind == "heading"] if nodes else []
            for node, block in zip(nodes, blocks, strict=False):
                level = int(node.tag[1:])
                found[anchor(block.prose)] = ids.of(plain(node).strip(), level) if level > 1 else ""
    return found
