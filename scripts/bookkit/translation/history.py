"""What a cell said when its translation was accepted, from git, and what changed since."""

from __future__ import annotations

import difflib
import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ..notebook import as_text
from .pair import Pair, digest

DEPTH = 200  # versions of a notebook that are looked at
LIMIT = 160  # characters of a change that a message shows


def changes(pair: Pair, cell_id: str) -> str:
    """Return what changed in an English cell since its translation, or why that cannot be told."""
    marked = str(pair.cells[cell_id].book.get("source"))
    now = pair.english.cell(cell_id).source
    for version in _versions(pair.english.root, pair.english.path):
        before = version.get(cell_id)
        if before is not None and digest(before) == marked:
            old, new = (re.findall(r"\S+|\n", text) for text in (before, now))
            return "; ".join(_changed(old, new, " ", 1))
    return "git has no version of the English cell that it translates"


def edits(pair: Pair, cell_id: str) -> str:
    """Return what changed in a Chinese cell since it was accepted, in brackets; nothing where git cannot tell."""
    cell = pair.cells[cell_id]
    for version in _versions(pair.english.root, pair.path):
        before = version.get(cell_id)
        if before is not None and digest(before) == cell.book.get("accepted"):
            old, new = (re.findall(r"[A-Za-z0-9.,%]+|.|\n", text) for text in (before, cell.source))
            return f" ({'; '.join(_changed(old, new, '', 4))})"
    return ""


def _changed(old: list[str], new: list[str], between: str, around: int) -> Iterator[str]:
    """Yield each changed stretch of words or characters with some on either side."""
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            stretches = (old[max(0, a - around) : b + around], new[max(0, c - around) : d + around])
            was, is_ = (_short(between.join(stretch)) for stretch in stretches)
            yield f"{was} → {is_}"


def _short(text: str) -> str:
    text = text.replace("\n", "⏎")
    return f"“{text if len(text) <= LIMIT else text[: LIMIT - 1] + '…'}”"


@cache
def _versions(root: Path, path: Path) -> list[dict[str, str]]:
    """Return the markdown cells of a notebook's versions in git, the newest first; none without git."""
    log = _git(root, "log", f"-{DEPTH}", "--format=%H", "--", str(path))
    return [
        cells for commit in log.split() if (cells := _cells(_git(root, "show", f"{commit}:./{path.relative_to(root)}")))
    ]


def _git(root: Path, *arguments: str) -> str:
    try:
        run = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, encoding="utf-8", timeout=60
        )
    except (OSError, UnicodeDecodeError, subprocess.TimeoutExpired):
        return ""
    return run.stdout if run.returncode == 0 else ""


def _cells(text: str) -> dict[str, str]:
    """Return the markdown cells of a notebook's text by id; none of what is no notebook."""
    try:
        cells = json.loads(text)["cells"]
        return {cell["id"]: as_text(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"}
    except (ValueError, KeyError, TypeError):
        return {}
