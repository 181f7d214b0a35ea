"""The linter of the book: every rule over every selected notebook, and what `--fix` may mend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..notebook import as_text, dump, normalise, write_atomic
from ..problems import BookError, Problem
from . import citations, code, figures, hygiene, language, references, structure
from .codes import CODES, Code
from .context import Context
from .provenance import Provenance, Tally

__all__ = ["CODES", "Code", "Report", "Tally", "fix", "lint", "select"]

RULES = (hygiene, structure, code, figures, references, citations, language)


@dataclass(frozen=True)
class Report:
    """What the linter found, the count of notebooks, and what became of the numbers in the prose."""

    problems: tuple[Problem, ...]
    notebooks: int
    tally: Tally

    @property
    def errors(self) -> int:
        """How many findings are errors."""
        return sum(problem.level == "error" for problem in self.problems)

    @property
    def warnings(self) -> int:
        """How many findings are warnings."""
        return len(self.problems) - self.errors


def select(root: Path, prefixes: Iterable[str]) -> frozenset[str]:
    """Return the chapter keys that start with one of the prefixes; BookError names a prefix that selects nothing."""
    keys = [chapter.key for chapter in Context.load(root).book.chapters]
    chosen: set[str] = set()
    for prefix in prefixes:
        matching = {key for key in keys if key.startswith(prefix)}
        if not matching:
            message = f"no chapter starts with {prefix!r}; there are {', '.join(keys)}"
            raise BookError(Problem("chapters", None, None, message))
        chosen |= matching
    return frozenset(chosen)


def lint(root: Path, keys: Iterable[str] = ()) -> Report:
    """Return every finding about the chapters with these keys (all when empty); BookError when it cannot be read."""
    context = Context.load(root, keys)
    problems = [problem for rule in RULES for problem in rule.check(context)]
    provenance = Provenance(context)
    problems += provenance.check()
    pages = [*context.pages.values(), *context.translations]
    places = {(page.chapter.name, c.id): c.index for page in pages for c in page.chapter.cells}
    ordered = sorted(set(problems), key=lambda p: _place(places, p))
    return Report(tuple(ordered), len(context.chosen()) + len(context.translations), provenance.tally)


def _place(places: dict[tuple[str, str], int], problem: Problem) -> tuple[str, int, int, str, str]:
    index = places.get((problem.path, problem.cell or ""), -1)
    return (problem.path, index, problem.line or 0, problem.code, problem.message)


def fix(root: Path, keys: Iterable[str] = ()) -> list[str]:
    """Mend what is mechanical and return the names of the files rewritten; a second run rewrites none.

    Formatting changes no cell's meaning (its syntax tree stays), so recorded outputs stay valid.
    """
    context = Context.load(root, keys)
    sources: dict[str, dict[str, str]] = {}
    for page, cell, text in code.unformatted(context):
        sources.setdefault(page.chapter.label, {})[cell.id] = text
    for page in context.chapters():
        synced = citations.synced(context, page)
        if synced is not None:
            sources.setdefault(page.chapter.label, {})[synced[0].id] = synced[1]
    changed = []
    for page in [*context.chosen(), *context.translations]:
        text = dump(
            normalise(
                _with_sources(page.chapter.raw, {} if page.is_translation else sources.get(page.chapter.label, {}))
            )
        )
        if page.chapter.path.read_bytes() != text.encode("utf-8"):
            write_atomic(page.chapter.path, text)
            changed.append(page.chapter.name)
    return changed


def _with_sources(raw: dict[str, Any], sources: dict[str, str]) -> dict[str, Any]:
    cells = [{**cell, "source": sources.get(cell["id"], as_text(cell["source"]))} for cell in raw["cells"]]
    return {**raw, "cells": cells}
