"""Marks a cell's Chinese as translating the English, both as they are now; drops what nobody needs: by name only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..problems import BookError, Problem
from .check import Checker, problem
from .compare import reordered
from .history import changes, edits
from .pair import Edition, Pair, has_words
from .sync import leftover, synced, write


@dataclass
class Accepted:
    """What was marked, with what was said of each cell, and what was refused."""

    lines: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def accept(edition: Edition, names: Sequence[str]) -> Accepted:
    """Mark the named cells that pass every comparison; BookError for a name that is no cell, with nothing written."""
    result, checker = Accepted(), Checker(edition)
    chosen: dict[Pair, list[str]] = {}
    for pair, cell_id in named(edition, names):
        findings = _faults(checker, pair, cell_id)
        if findings:
            result.problems += findings
            continue
        chosen.setdefault(pair, []).append(cell_id)
        result.lines.append(_told(pair, cell_id))
    write({pair.path: (pair, synced(edition, pair, accept=cells)) for pair, cells in chosen.items()})
    return result


def named(edition: Edition, names: Sequence[str]) -> list[tuple[Pair, str]]:
    """Return the pair and the English markdown cell of each `01:cell` or `01/solutions:cell`, or BookError for all."""
    found, problems = [], []
    for name in dict.fromkeys(names):
        label, _, cell_id = name.partition(":")
        pair = edition.pair(label)
        if pair is None or not cell_id:
            problems.append(f"{name!r} is no cell; write 01:cell-id or 01/solutions:cell-id, one for each cell")
        elif pair.chinese is None:
            problems.append(f"{name!r}: {label} has no translation; `sync_translation.py {pair.english.key}` starts it")
        elif cell_id not in pair.states:
            problems.append(f"{name!r}: {pair.english.name} has no markdown cell {cell_id!r}")
        else:
            found.append((pair, cell_id))
    if problems:
        raise BookError([Problem("--accept", None, None, message) for message in problems])
    return found


def _faults(checker: Checker, pair: Pair, cell_id: str) -> list[Problem]:
    """Return why a cell cannot be accepted."""
    assert pair.chinese is not None
    cell = pair.english.cell(cell_id)
    if pair.states[cell_id] == "missing":
        return [pair.chinese.problem(None, None, f"the English cell {cell_id} is missing", code="missing")]
    if pair.states[cell_id] == "untranslated" and has_words(cell.source):
        return [pair.chinese.problem(pair.cells[cell_id], None, "still in English", code="english")]
    return [problem(pair, cell_id, finding) for finding in checker.cell(pair, cell)]


def _told(pair: Pair, cell_id: str) -> str:
    """Return what to say of an accepted cell: for one that was stale, what changed in English."""
    name = f"{pair.label}:{cell_id}"
    match pair.states[cell_id]:
        case "current":
            told = f"{name}: accepted already"
        case "edited":
            told = f"{name}: accepted again; since the last time the Chinese was edited{edits(pair, cell_id)}"
        case "stale":
            told = f"{name}: accepted again; since the last time English changed {changes(pair, cell_id)}"
        case _:
            told = f"{name}: accepted"
    return "; see that this is meant: ".join([told, *reordered(*pair.blocks(cell_id))])


def drop(edition: Edition, names: Sequence[str]) -> list[str]:
    """Remove the named cells, which English no longer has; BookError, with nothing written, for any other cell."""
    chosen: dict[Pair, list[str]] = {}
    problems = []
    for name in dict.fromkeys(names):
        label, _, cell_id = name.partition(":")
        pair = edition.pair(label)
        if pair is None or cell_id not in {cell.id for cell in leftover(pair)}:
            problems.append(f"{name!r} is no cell of a translation that English does not have; only those can go")
        else:
            chosen.setdefault(pair, []).append(cell_id)
    if problems:
        raise BookError([Problem("--drop", None, None, message) for message in problems])
    write({pair.path: (pair, synced(edition, pair, drop=cells)) for pair, cells in chosen.items()})
    return [f"{pair.label}:{cell}: dropped" for pair, cells in chosen.items() for cell in cells]
