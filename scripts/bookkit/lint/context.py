"""What every rule sees: the book, its pages parsed once, the plan, the ledger, the settings."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..notebook import Book, Cell, Chapter, load_book, load_translation
from ..plan import planned
from ..problems import BookError, Problem, read_text
from ..sources import Ledger, load_ledger
from .codes import CODES
from .markdown import Block, parse

SECTION = re.compile(r"(?P<number>(?:\d+|[A-Z])\.\d+) (?P<title>\S.*)")
CAPTION = re.compile(r"(?P<kind>Figure|Table) (?P<number>(?:\d+|[A-Z])\.\d+)\.")
EXERCISE = re.compile(r"Exercise (?P<number>(?:\d+|[A-Z])\.\d+)\s*(?P<grade>★*)")
TAG = re.compile(r"\\tag\{(?P<number>[^}]*)\}")
CITATION = re.compile(r"\[(?P<keys>@[^\[\]\s;]+(?:;\s*@[^\[\]\s;]+)*)\]")


@dataclass(frozen=True)
class Placed:
    """A block with the cell it stands in and the second-level heading it stands under."""

    cell: Cell
    block: Block
    section: str
    subsection: str

    def line_at(self, offset: int) -> int:
        """Return the line in the cell at this offset of the block's text."""
        return self.block.line_at(offset)


@dataclass(frozen=True)
class Mark:
    """A numbered thing of a chapter (section, figure, …) and where it stands."""

    number: str
    cell: Cell
    line: int
    text: str = ""


@dataclass
class Page:
    """One notebook with its markdown parsed and its code as syntax trees."""

    chapter: Chapter
    placed: list[Placed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.placed = list(_place(self.chapter))

    @property
    def prefix(self) -> str:
        """The chapter's number as references write it: `1` for chapter 01, `A` for an appendix."""
        return self.chapter.key.lstrip("0") or "0"

    @property
    def is_translation(self) -> bool:
        """Whether this is a notebook of the translation."""
        return "language" in self.chapter.metadata

    @property
    def is_front(self) -> bool:
        """Whether the metadata calls this front matter (chapter 0), which has fewer obligations."""
        return self.chapter.metadata.get("kind") == "front"

    @cached_property
    def sections(self) -> list[Mark]:
        """The numbered second-level headings."""
        return [
            Mark(match["number"], p.cell, p.block.line, match["title"])
            for p in self.placed
            if p.block.kind == "heading" and p.block.level == 2 and (match := SECTION.fullmatch(p.block.prose.strip()))
        ]

    @cached_property
    def captions(self) -> dict[str, list[Mark]]:
        """The captions by kind, `Figure` and `Table`."""
        found: dict[str, list[Mark]] = {"Figure": [], "Table": []}
        for p in self.placed:
            if p.block.kind == "paragraph" and (match := CAPTION.match(p.block.strong)):
                found[match["kind"]].append(Mark(match["number"], p.cell, p.block.line))
        return found

    @cached_property
    def equations(self) -> list[Mark]:
        """The tagged equations."""
        found = []
        for p in self.placed:
            for piece in p.block.of("math"):
                for match in TAG.finditer(piece.text):
                    extra = piece.text.count("\n", 0, match.start())
                    found.append(Mark(match["number"], p.cell, p.line_at(piece.at) + extra))
        return found

    @cached_property
    def exercises(self) -> list[Mark]:
        """The exercises of a chapter, from their bold openings under `## Exercises`; `text` is the grade."""
        return [
            Mark(match["number"], p.cell, p.block.line, match["grade"])
            for p in self.placed
            if p.section == "Exercises" and (match := EXERCISE.match(p.block.strong))
        ]

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        """The syntax tree of each code cell that parses, by cell id; magics are not Python and have none."""
        trees = {}
        for cell in self.chapter.code_cells:
            tree = parse_code(cell.source)
            if isinstance(tree, ast.Module):
                trees[cell.id] = tree
        return trees

    @cached_property
    def nodes(self) -> dict[str, list[ast.AST]]:
        """Every node of each tree, by cell id."""
        return {cell_id: list(ast.walk(tree)) for cell_id, tree in self.trees.items()}

    @cached_property
    def cited(self) -> dict[str, Mark]:
        """The keys the text cites outside its Sources section, with their first place."""
        found: dict[str, Mark] = {}
        for p in self.placed:
            if p.section != "Sources":
                for key, offset in citations(p.block.text):
                    found.setdefault(key, Mark(key, p.cell, p.line_at(offset)))
        return found

    def problem(self, code: str, cell: Cell | None, line: int | None, message: str) -> Problem:
        """Return a finding in this notebook with its code's level."""
        return self.chapter.problem(cell, line, message, code=code, level=CODES[code].level)


def _place(chapter: Chapter) -> Iterator[Placed]:
    section = subsection = ""
    for cell in chapter.cells:
        if cell.kind != "markdown":
            continue
        for block in parse(cell.source):
            if block.kind == "heading" and block.level <= 2:
                section, subsection = block.prose.strip(), ""
            elif block.kind == "heading" and block.level == 3:
                subsection = block.prose.strip()
            yield Placed(cell, block, section, subsection)


def citations(text: str) -> Iterator[tuple[str, int]]:
    """Yield each key cited as `[@key]` or `[@one; @two]`, with its offset."""
    for match in CITATION.finditer(text):
        for part in re.finditer(r"@([^\s;]+)", match["keys"]):
            yield part[1], match.start("keys") + part.start()


def parse_code(source: str) -> ast.Module | SyntaxError:
    """Return the syntax tree of a cell (top-level await allowed), or the error."""
    try:
        tree = compile(source, "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        return error
    except ValueError as error:  # a null byte
        return SyntaxError(str(error))
    assert isinstance(tree, ast.Module)
    return tree


@dataclass
class Context:
    """The book as the rules see it."""

    root: Path
    book: Book
    settings: dict[str, Any]
    ledger: Ledger
    plan: dict[str, str]
    selected: frozenset[str]

    @classmethod
    def load(cls, root: Path, keys: Iterable[str] = ()) -> Context:
        """Read everything under `root`; `keys` selects the chapters to report on, all when empty."""
        root = root.resolve()
        book = load_book(root)
        settings = load_settings(root)
        plan = {key: chapter.title for key, chapter in planned().items()}
        selected = frozenset(keys) or frozenset(chapter.key for chapter in book.chapters)
        return cls(root, book, settings, load_ledger(root), plan, selected)

    @cached_property
    def pages(self) -> dict[str, Page]:
        """Every notebook's page, by label (`06`, `06/solutions`)."""
        return {notebook.label: Page(notebook) for notebook in self.book.notebooks()}

    @cached_property
    def translations(self) -> list[Page]:
        """The notebooks of the translation of the selected chapters."""
        return [Page(notebook) for notebook in load_translation(self.root) if notebook.key in self.selected]

    @property
    def whole(self) -> bool:
        """Whether every chapter is selected, so that rules over the whole book can speak."""
        return self.selected >= {chapter.key for chapter in self.book.chapters}

    def chosen(self) -> list[Page]:
        """Return the selected notebooks' pages."""
        return [page for page in self.pages.values() if page.chapter.key in self.selected]

    def chapters(self) -> list[Page]:
        """Return the selected chapters' pages, without the solutions."""
        return [page for page in self.chosen() if page.chapter.kind == "chapter"]

    def by_prefix(self, prefix: str) -> Page | None:
        """Return the page of the chapter that references call `prefix`, or None when it is not written yet."""
        return self.pages.get(key_of(prefix))

    def section_of(self, section: str, name: str) -> Any:
        """Return `[tool.bookkit] name` and the like from pyproject.toml, None when absent."""
        return self.settings.get("tool", {}).get(section, {}).get(name)


def load_settings(root: Path) -> dict[str, Any]:
    """Return pyproject.toml as a mapping, an empty one when there is none."""
    path = root / "pyproject.toml"
    try:
        return tomllib.loads(read_text(path, root)) if path.is_file() else {}
    except tomllib.TOMLDecodeError as error:
        raise BookError(Problem(path.name, None, None, f"not TOML: {error}")) from error


def key_of(prefix: str) -> str:
    """Return the chapter key of a reference's prefix: `1` is chapter `01`."""
    return prefix.zfill(2) if prefix.isdigit() else prefix
