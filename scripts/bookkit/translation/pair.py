"""A notebook and its translation: where the two stand, what state each cell is in, where links lead."""

from __future__ import annotations

import hashlib
import posixpath
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from ..lint.context import load_settings
from ..lint.markdown import Block, anchor, parse
from ..notebook import Book, Cell, Chapter, load_book, load_translation, translation_path
from ..plan import Planned, planned
from ..problems import BookError, Problem, relative

GLOSSARY = "glossary.toml"
CHINESE = re.compile("[\u3400-\u9fff]")
WORD = re.compile(r"[A-Za-z]*[a-z]{2,}[A-Za-z]*")
TARGET = re.compile(r"(?<=\]\()[^()\s]+(?=[)\s])")

State = Literal["missing", "untranslated", "unaccepted", "stale", "edited", "current"]


def digest(source: str) -> str:
    """Return the mark of a text: a translated cell carries that of its English and that of its accepted Chinese."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Pair:
    """An English notebook and where its translation stands; `chinese` is None while there is none."""

    english: Chapter
    path: Path
    chinese: Chapter | None
    complete: bool  # whether pyproject.toml says that every cell is translated

    @property
    def label(self) -> str:
        """What the command line calls both: `01` or `01/solutions`."""
        return self.english.label

    @cached_property
    def cells(self) -> dict[str, Cell]:
        """The translation's cells by id."""
        return {cell.id: cell for cell in self.chinese.cells} if self.chinese else {}

    @cached_property
    def states(self) -> dict[str, State]:
        """What is known of the translation of each English markdown cell, by id."""
        return {cell.id: state(cell, self.cells.get(cell.id)) for cell in self.english.cells if not cell.is_code}

    def is_translated(self, cell_id: str) -> bool:
        """Return whether an English cell has a translation, accepted or not."""
        return self.states.get(cell_id) in ("unaccepted", "stale", "edited", "current")

    def blocks(self, cell_id: str) -> tuple[list[Block], list[Block]]:
        """Return the blocks of a markdown cell in both languages."""
        return _parsed(self.english.cell(cell_id).source), _parsed(self.cells[cell_id].source)


@lru_cache(maxsize=512)
def _parsed(source: str) -> list[Block]:
    return parse(source)


def state(english: Cell, chinese: Cell | None) -> State:
    """Return how far a cell's translation is; what has no words to translate counts as translated once it is marked.

    `current` is a Chinese text that was accepted as it stands, for the English as it stands: only that is published.
    """
    if chinese is None:
        return "missing"
    marked = chinese.book.get("source")
    if is_copied(english, chinese) and (marked is None or has_words(english.source)):
        return "untranslated"
    accepted = chinese.book.get("accepted")
    if marked is None or accepted is None:
        return "unaccepted"
    if marked != digest(english.source):
        return "stale"
    return "current" if accepted == digest(chinese.source) else "edited"


def is_copied(english: Cell, chinese: Cell) -> bool:
    """Return whether a cell holds no text of a translator: nothing, code, or the English that was written there."""
    if CHINESE.search(chinese.source):
        return False
    return chinese.is_code or not chinese.source.strip() or chinese.source == english.source or is_as_written(chinese)


def is_as_written(chinese: Cell) -> bool:
    """Return whether a cell of the translation still holds the English text that sync_translation.py wrote there."""
    return chinese.book.get("english") == digest(chinese.source)


def has_words(source: str) -> bool:
    """Return whether a markdown text has anything that a translation would change."""
    blocks = parse(source)
    return any(WORD.search(block.prose) or any(WORD.search(p.text) for p in block.of("image")) for block in blocks)


@dataclass(frozen=True)
class Edition:
    """The book with its translation."""

    book: Book
    pairs: tuple[Pair, ...]
    orphans: tuple[Chapter, ...]
    plan: dict[str, Planned]

    @property
    def root(self) -> Path:
        """The book's folder."""
        return self.book.root

    @classmethod
    def load(cls, root: Path) -> Edition:
        """Read the book and every notebook of the translation; BookError lists all that cannot be read."""
        root = root.resolve()
        book = load_book(root)
        complete = _complete(root, book)
        found = {notebook.path: notebook for notebook in load_translation(root)}
        pairs = []
        for english in book.notebooks():
            path = translation_path(english)
            pairs.append(Pair(english, path, found.pop(path, None), english.key in complete))
        return cls(book, tuple(pairs), tuple(found.values()), planned())

    def name(self, path: Path) -> str:
        """Return a path as messages show it."""
        return relative(path, self.root)

    def renamed(self, pair: Pair) -> Chapter | None:
        """Return the translation that stands under an older name of an English notebook, which has none now."""
        same = (chapter for chapter in self.orphans if chapter.label == pair.label)
        return next(same, None) if pair.chinese is None else None

    def pair(self, label: str) -> Pair | None:
        """Return the pair that the command line calls `01` or `01/solutions`."""
        return next((pair for pair in self.pairs if pair.label == label), None)

    def to_write(self, prefixes: list[str]) -> list[Pair]:
        """Return what a sync writes: what has been started or is listed as complete, and chapters named in full."""
        pairs = [p for p in self.selected(prefixes) if p.chinese or p.complete or p.english.key in prefixes]
        for prefix in prefixes:
            if not any(pair.english.key.startswith(prefix) for pair in pairs):
                fits = ", ".join(c.key for c in self.book.chapters if c.key.startswith(prefix))
                said = f"a chapter is started by its whole key; {prefix!r} fits {fits}, which has not been started"
                raise BookError(Problem("chapters", None, None, said + self._meant(prefix)))
        return pairs

    def _meant(self, prefix: str) -> str:
        """Return the question whether a chapter's number was meant, written without its zero."""
        key = prefix.zfill(2)
        return f"; is {key} meant?" if key != prefix and any(c.key == key for c in self.book.chapters) else ""

    def selected(self, prefixes: list[str]) -> list[Pair]:
        """Return the pairs whose chapter starts with one of the prefixes, all when there are none; or BookError."""
        for prefix in prefixes:
            if not prefix or not any(pair.english.key.startswith(prefix) for pair in self.pairs):
                keys = ", ".join(chapter.key for chapter in self.book.chapters)
                said = f"no chapter starts with {prefix!r}; there are {keys}"
                raise BookError(Problem("chapters", None, None, said + (self._meant(prefix) if prefix else "")))
        chosen = tuple(prefixes) or ("",)
        return [pair for pair in self.pairs if pair.english.key.startswith(chosen)]

    def title(self, pair: Pair) -> str:
        """Return the translation's title, from the plan."""
        entry = self.plan.get(pair.english.key)
        if entry is None:
            return pair.english.title
        space = "" if entry.label_zh.endswith("章") else " "
        return entry.zh if pair.english.kind == "chapter" else f"{entry.label_zh}{space}习题解答 · {entry.zh}"

    def heading(self, pair: Pair) -> str | None:
        """Return what the heading of the translation's first cell has to be; None for a chapter out of the plan."""
        entry = self.plan.get(pair.english.key)
        if entry is None:
            return None
        return f"{entry.label_zh} · {entry.zh}" if pair.english.kind == "chapter" else self.title(pair)

    def resolve(self, chapter: Chapter, target: str) -> str:
        """Return a link's target from the book's root, web addresses as they are."""
        parts = urlsplit(target)
        if parts.scheme or not parts.path:
            return target
        folder = relative(chapter.path.parent, self.root)
        path = posixpath.normpath(posixpath.join(folder, unquote(parts.path)))
        return f"{path}#{unquote(parts.fragment)}" if parts.fragment else path

    def translated_target(self, pair: Pair, target: str) -> str:
        """Return where the translation has to link, from the root, when English links to `target`."""
        full = self.resolve(pair.english, target)
        path, _, fragment = (
            full if not full.startswith("#") else relative(pair.english.path, self.root) + full
        ).partition("#")
        other = next((p for p in self.pairs if relative(p.english.path, self.root) == path), None)
        if other is None or other.chinese is None:
            return full
        if fragment:
            fragment = _translated_anchor(other, fragment)
        there = "" if other is pair and full.startswith("#") else relative(other.path, self.root)
        return f"{there}#{fragment}" if fragment else there

    def relinked(self, pair: Pair, source: str) -> str:
        """Return an English text with its links as they have to be in the translation's folder."""

        def moved(match: re.Match[str]) -> str:
            full = self.translated_target(pair, match[0])
            path, _, fragment = full.partition("#")
            if urlsplit(full).scheme or not path:
                return full
            near = posixpath.relpath(path, relative(pair.path.parent, self.root))
            return f"{near}#{fragment}" if fragment else near

        return TARGET.sub(moved, source)


def _complete(root: Path, book: Book) -> frozenset[str]:
    """Return the chapters that pyproject.toml, `[tool.bookkit] translated`, says are translated."""
    listed: Any = load_settings(root)
    for name in ("tool", "bookkit", "translated"):
        listed = listed.get(name, [] if name == "translated" else {}) if isinstance(listed, dict) else listed
    keys = [chapter.key for chapter in book.chapters]
    if not isinstance(listed, list) or not all(isinstance(key, str) for key in listed):
        message = f'[tool.bookkit] translated is {listed!r}; it is a list of chapter keys as ["00", "01"]'
        raise BookError(Problem("pyproject.toml", None, None, message))
    for key in listed:
        if key not in keys:
            message = f"[tool.bookkit] translated lists {key!r}, which is no chapter; there are {', '.join(keys)}"
            raise BookError(Problem("pyproject.toml", None, None, message))
    return frozenset(listed)


def _translated_anchor(pair: Pair, fragment: str) -> str:
    """Return the anchor of the translated heading; the English one where the heading is not translated."""
    for cell in pair.english.cells:
        if not pair.is_translated(cell.id):
            continue
        english, chinese = ([b for b in blocks if b.kind == "heading"] for blocks in pair.blocks(cell.id))
        for one, other in zip(english, chinese, strict=False):
            if anchor(one.prose) == fragment:
                return anchor(other.prose)
    return fragment
