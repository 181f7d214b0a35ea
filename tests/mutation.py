"""What a mutation of the book is, and how to make one: used by the mutants_*.py, which hold the mutations by kind."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from mutantbook import CHAPTERS, cells_of
from synthetic import CellDict, code

Tool = Literal["checker", "reader", "update", "linter", "library", "builder"]
Words = tuple[str, ...]
SAMPLE = 10
DIFFERS = ("output differs",)


@dataclass(frozen=True)
class Sheet:
    """One notebook of a mutation: its cells and, by cell, the words of the failure it must have; none: it passes."""

    cells: list[CellDict]
    fails: dict[str, Words] = field(default_factory=dict)
    solutions: bool = False


@dataclass(frozen=True)
class Mutation:
    """One change: what it is and the notebooks it makes.

    `copied` names the chapter that the one notebook is a copy of and `changed` the cells changed in it: mutations of a
    kind that change different cells of one chapter share a notebook. With `others_may_fail` nothing is said of the
    other cells. For the library's tools a mutation is whole `chapters`, or `files` of the library in which a text is
    replaced by another (None: the file is new), and the `words` the tool must say.
    """

    title: str
    sheets: list[Sheet] = field(default_factory=list)
    copied: str = ""
    changed: tuple[str, ...] = ()
    others_may_fail: bool = False
    chapters: dict[str, list[CellDict]] = field(default_factory=dict)
    files: dict[str, tuple[str, str] | None] = field(default_factory=dict)
    words: Words = ()


@dataclass(frozen=True)
class Kind:
    """A kind of mutation, the tool that judges it, and the weakness under which at least one of it is missed.

    Tools: the checker, its reader (a notebook it refuses to read), its --update, the linter, the library's --check and
    its builder.
    """

    name: str
    tool: Tool
    weakness: str
    mutations: list[Mutation]


def sampled(kind: str, mutations: list[Mutation], count: int = SAMPLE) -> list[Mutation]:
    """Return so many of the mutations, drawn with the kind's name as seed."""
    return random.Random(kind).sample(mutations, min(count, len(mutations)))


def code_cells(chapter: str) -> list[CellDict]:
    """Return the code cells of a chapter."""
    return [cell for cell in CHAPTERS[chapter] if cell["cell_type"] == "code"]


def every_code_cell() -> Iterator[tuple[str, int, CellDict]]:
    """Yield every code cell of the book's chapters with its chapter and its number there."""
    for chapter in CHAPTERS:
        for number, cell in enumerate(code_cells(chapter), start=1):
            yield chapter, number, cell


def changed_copy(chapter: str, changes: dict[str, dict[str, Any]], words: Words, title: str, **more: Any) -> Mutation:
    """Return the mutation that changes some fields of some cells of a copied chapter; those cells must fail."""
    cells = cells_of(chapter)
    for cell in cells:
        cell.update(changes.get(cell["id"], {}))
    sheets = [Sheet(cells, dict.fromkeys(changes, words))]
    return Mutation(f"{chapter} · {title}", sheets, chapter, tuple(changes), **more)


def words_of(fails: Words | str) -> Words:
    """Return one word as a tuple of words."""
    return (fails,) if isinstance(fails, str) else fails


def one(title: str, source: str, recorded: str = "", fails: Words | str = (), **meta: Any) -> Mutation:
    """Return the mutation of one cell between two ordinary ones; without `fails` it has to pass."""
    first, last = code("before", "x = 1\nprint('before', x)", "before 1\n"), code("after", "y = x")
    words = words_of(fails)
    cells = [first, code("cell", source, recorded, **meta), last]
    return Mutation(title, [Sheet(cells, {"cell": words} if words else {})])


def pair(title: str, source: str, recorded: str, wrong: str = "") -> list[Mutation]:
    """Return a cell that has to pass with what it prints recorded, and has to fail with something else recorded."""
    return [one(title, source, recorded), one(f"{title}, recorded otherwise", source, wrong, DIFFERS)]


def sheet(*cells: tuple[str, ...], **fails: Words | str) -> Sheet:
    """Return a notebook of cells given as (id, source, recorded) and the failures expected, by cell."""
    made = [code(cell_id, source, "".join(recorded)) for cell_id, source, *recorded in cells]
    return Sheet(made, {cell: words_of(words) for cell, words in fails.items()})
