"""Builds small notebooks and books for the tests, in the same canonical form as the real ones.

write_chapter(tmp_path, "01-intro", [md("title", "# Hello"), code("hello", "print(1)", "1\n")], module="intro")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from bookkit.notebook import dump, normalise, stdout_output, write_atomic

CellDict = dict[str, Any]
BOOK_FIELDS = ("role", "exercise", "output")


def md(cell_id: str, source: str) -> CellDict:
    """Return a markdown cell."""
    return {"cell_type": "markdown", "id": cell_id, "metadata": {}, "source": source}


def code(
    cell_id: str,
    source: str,
    stdout: str = "",
    count: int | Literal["never"] | None = None,
    outputs: list[dict[str, Any]] | None = None,
    **meta: Any,
) -> CellDict:
    """Return a code cell that records `stdout`.

    `count` is the execution count: None takes the cell's place in the notebook, "never" leaves it null. `outputs`
    replaces the recorded outputs as a whole. `role`, `exercise` and `output` go to the book's own metadata; other
    keywords (`tags=[...]`) go to the cell's metadata as they are.
    """
    book = {key: meta.pop(key) for key in BOOK_FIELDS if key in meta}
    metadata = {**meta, **({"agentrl": book} if book else {})}
    return {
        "cell_type": "code",
        "id": cell_id,
        "metadata": metadata,
        "source": source,
        "outputs": stdout_output(stdout) if outputs is None else outputs,
        "execution_count": count,
    }


def notebook(cells: list[CellDict], **book: str) -> dict[str, Any]:
    """Return a notebook of these cells with `book` as its `agentrl` metadata, in canonical form."""
    copies = [dict(cell) for cell in cells]
    for number, cell in enumerate((c for c in copies if c["cell_type"] == "code"), start=1):
        given = cell["execution_count"]
        cell["execution_count"] = number if given is None else None if given == "never" else given
    return normalise({"cells": copies, "metadata": {"agentrl": book}, "nbformat": 4, "nbformat_minor": 5})


def write_chapter(
    root: Path,
    name: str,
    cells: list[CellDict],
    module: str | None = None,
    title: str | None = None,
    question: str = "What is this about?",
    kind: Literal["chapter", "solutions"] = "chapter",
    recorded: str | None = None,
) -> Path:
    """Write `chapters/NAME.ipynb` (or `chapters/solutions/NAME.ipynb`) below `root` and return its path.

    `module` and `title` default to the name without its number: `01-big-ideas` gives `big_ideas` and "Big ideas".
    """
    key, _, slug = name.partition("-")
    book = {"chapter": key, "title": title or slug.replace("-", " ").capitalize()}
    if kind == "chapter":
        book |= {"module": module or slug.replace("-", "_"), "question": question}
    if recorded:
        book["recorded"] = recorded
    folder = root / "chapters" / "solutions" if kind == "solutions" else root / "chapters"
    path = folder / f"{name}.ipynb"
    write_atomic(path, dump(notebook(cells, **book)))
    return path


def write_book(root: Path, chapters: dict[str, list[CellDict]], version: str = "0.0.1") -> Path:
    """Write a pyproject.toml and one chapter for each name, and return `root`."""
    write_atomic(root / "pyproject.toml", f'[project]\nname = "agentrl"\nversion = "{version}"\n')
    for name, cells in chapters.items():
        write_chapter(root, name, cells)
    return root
