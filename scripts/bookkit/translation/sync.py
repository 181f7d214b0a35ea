"""Writes the notebooks of the translation: everything from English but the Chinese of the markdown cells.

A translator's text is never lost. A markdown cell that English no longer has, and a cell that was added by hand, stay
at the end of the notebook, marked `removed`, until they are dropped by name. A cell that waits for its translation has
a digest of the English text that was written there, `english`: what differs from it was written by somebody. A cell
that was accepted has the digests of both texts as they were then, `source` (English) and `accepted` (Chinese).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..notebook import Cell, as_lines, as_text, dump, normalise, write_all_atomic
from ..problems import BookError, Problem, relative
from .pair import CHINESE, Edition, Pair, digest, has_words, is_as_written

LANGUAGE = "zh"
QUESTION = re.compile(r"\*\*问题[。：:]?\*\*[：:]?\s*(?P<question>.+)")


def synced(edition: Edition, pair: Pair, accept: Collection[str] = (), drop: Collection[str] = ()) -> dict[str, Any]:
    """Return the translation as it has to be: cells in `accept` are marked as translating English as it is now."""
    raw = pair.english.raw
    cells = [_cell(edition, pair, cell, accept) for cell in raw["cells"]]
    cells += _kept(pair, [cell for cell in leftover(pair) if cell.id not in drop])
    book = {**pair.english.metadata, "language": LANGUAGE, "title": edition.title(pair)}
    if "question" in book:
        book["question"] = _question(pair) or book["question"]
    wanted = normalise({**raw, "cells": cells, "metadata": {**raw["metadata"], "agentrl": book}})
    for cell in wanted["cells"]:
        if cell["id"] in accept:  # as it is written, without blanks at the ends of lines
            cell["metadata"]["agentrl"]["accepted"] = digest(as_text(cell["source"]))
    return wanted


def _cell(edition: Edition, pair: Pair, english: dict[str, Any], accept: Collection[str]) -> dict[str, Any]:
    """Return the translation of one cell of the file."""
    if english["cell_type"] == "code":
        return english
    tags = {"tags": english["metadata"]["tags"]} if "tags" in english["metadata"] else {}
    chinese = pair.cells.get(english["id"])
    if pair.states[english["id"]] in ("missing", "untranslated") and english["id"] not in accept:
        text = edition.relinked(pair, as_text(english["source"]))
        return {**english, "metadata": {**tags, "agentrl": {"english": digest(text)}}, "source": as_lines(text)}
    assert chinese is not None
    if english["id"] in accept:
        marks = {"source": digest(as_text(english["source"]))}
    else:
        marks = {key: value for key in ("source", "accepted", "english") if (value := chinese.book.get(key))}
    metadata = {**tags, "agentrl": marks} if marks else tags
    attached = {"attachments": a} if (a := _raw_cell(pair, chinese).get("attachments")) else {}
    return {**english, **attached, "metadata": metadata, "source": as_lines(chinese.source)}


def _raw_cell(pair: Pair, cell: Cell) -> dict[str, Any]:
    assert pair.chinese is not None
    return pair.chinese.raw["cells"][cell.index]


def leftover(pair: Pair) -> list[Cell]:
    """Return the cells of the translation that hold a translator's text and translate no cell of English."""
    kinds = {cell.id: cell.is_code for cell in pair.english.cells}
    found = []
    for cell in pair.cells.values():
        ours = cell.id in kinds and not (kinds[cell.id] and not cell.is_code)
        if not ours and (cell.book.get("removed") or _is_own(cell)):
            found.append(cell)
    return found


def _is_own(cell: Cell) -> bool:
    """Return whether somebody wrote this cell of the translation."""
    return bool(CHINESE.search(cell.source)) or (
        not cell.is_code and not is_as_written(cell) and has_words(cell.source)
    )


def _kept(pair: Pair, cells: list[Cell]) -> list[dict[str, Any]]:
    """Return leftover cells as they stay at the end; one whose id a code cell of English has gets another."""
    taken = {cell.id for cell in (*pair.english.cells, *cells)}
    kept = []
    for cell in cells:
        name = cell.id
        while any(name == other.id for other in pair.english.cells) or (name != cell.id and name in taken):
            name += "-text"
        taken.add(name)
        marked = {"removed": True} | {key: cell.book[key] for key in ("source", "accepted") if key in cell.book}
        cell_type = {"cell_type": "markdown", "id": name, "metadata": {"agentrl": marked}}
        kept.append({**cell_type, "source": as_lines(cell.source)})
    return kept


def _question(pair: Pair) -> str | None:
    """Return the question as the translation's title cell asks it."""
    title = pair.english.cells[0].id if pair.english.cells else ""
    match = QUESTION.search(pair.cells[title].source) if title in pair.cells else None
    return match["question"].strip() if match else None


def write(wanted: Mapping[Path, tuple[Pair, dict[str, Any]]]) -> list[Pair]:
    """Write the translations that differ from what they have to be, all or none; return their pairs."""
    with contextlib.ExitStack() as stack:
        for root in {pair.english.root for pair, _ in wanted.values()}:
            stack.enter_context(_alone(root / "chapters"))
        texts = {path: text for path, (pair, raw) in wanted.items() if (text := dump(raw)) != _unchanged(path, pair)}
        write_all_atomic(texts)
    return [pair for path, (pair, _) in wanted.items() if path in texts]


def _unchanged(path: Path, pair: Pair) -> str | None:
    """Return a translation's file, None where there is none; BookError when it is not the one that was read."""
    now = path.read_text(encoding="utf-8") if path.is_file() else None
    if (now is None) != (pair.chinese is None) or (pair.chinese and json.loads(now or "") != pair.chinese.raw):
        message = "was saved by somebody else meanwhile; nothing is written, run the command again"
        raise BookError(Problem(relative(path, pair.english.root), None, None, message))
    return now


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait for another writer of the translation: each has to find what the one before it wrote."""
    held = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
