"""What a reader of one language sees of a notebook: every cell of the English one, its prose translated where it is."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ..notebook import Cell, Chapter, load_chapter, translation_path
from ..problems import BookError, Problem
from ..translation.pair import state
from .words import LANGUAGES, Language


@dataclass(frozen=True)
class Shown:
    """A cell of the English notebook and, for prose, the cell whose text is shown; None where it is the English one."""

    english: Cell
    translated: Cell | None = None

    @property
    def text(self) -> str:
        """The source that a reader sees."""
        return (self.translated or self.english).source


@dataclass(frozen=True)
class Edition:
    """A notebook in one language."""

    language: Language
    notebook: Chapter
    translation: Chapter | None
    cells: tuple[Shown, ...]

    @property
    def prose(self) -> tuple[Shown, ...]:
        """The cells that a translator translates."""
        return tuple(shown for shown in self.cells if shown.english.kind == "markdown")

    @property
    def is_started(self) -> bool:
        """Whether anything here is translated."""
        return any(shown.translated for shown in self.prose)

    @property
    def is_complete(self) -> bool:
        """Whether all prose is in the edition's language."""
        return self.language == "en" or all(shown.translated for shown in self.prose)

    @cached_property
    def own_names(self) -> frozenset[str]:
        """Names that cells of the notebook bind and the library does not get: they may hide names of the library."""
        sources = (cell.source for cell in self.notebook.code_cells if not cell.is_saved)
        return frozenset(name for source in sources for name in _bound(source))

    def path(self, translated: bool) -> str:
        """Return the file of the notebook, or of its translation, from the book's root."""
        source = self.translation if translated and self.translation else self.notebook
        return source.name


def _bound(source: str) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except SyntaxError:  # the checker and the linter say so
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


@dataclass(frozen=True)
class Editions:
    """Every notebook of one build in every language."""

    by_label: Mapping[tuple[str, Language], Edition]

    @classmethod
    def of(cls, notebooks: Iterable[Chapter]) -> Editions:
        """Read the translations of these notebooks; BookError lists all that cannot be read."""
        found: dict[tuple[str, Language], Edition] = {}
        problems: list[Problem] = []
        for notebook in notebooks:
            for language in LANGUAGES:
                try:
                    found[notebook.label, language] = edition(notebook, language)
                except BookError as error:
                    problems += error.problems
        if problems:
            raise BookError(problems)
        return cls(found)

    def chapter(self, key: str, language: Language) -> Edition:
        """Return a chapter in a language."""
        return self.by_label[key, language]

    def solutions(self, key: str, language: Language) -> Edition | None:
        """Return a chapter's solutions in a language, or None when it has none."""
        return self.by_label.get((f"{key}/solutions", language))


def edition(notebook: Chapter, language: Language) -> Edition:
    """Return a notebook in a language; BookError when its translation cannot be read.

    A translation counts while both texts are as they were when it was accepted; after an edit of either the English
    text is shown, so that no page states what the book has withdrawn, or what nobody has compared.
    """
    path = translation_path(notebook)
    if language == "en" or not path.is_file():
        return Edition(language, notebook, None, tuple(Shown(cell) for cell in notebook.cells))
    translation = load_chapter(path, notebook.root, notebook.kind)
    there = {cell.id: cell for cell in translation.cells if cell.kind == "markdown"}
    cells = tuple(Shown(cell, _counterpart(cell, there.get(cell.id))) for cell in notebook.cells)
    return Edition(language, notebook, translation, cells)


def _counterpart(cell: Cell, candidate: Cell | None) -> Cell | None:
    if candidate is None or cell.kind != "markdown":
        return None
    return candidate if state(cell, candidate) == "current" else None
