"""The ledger of sources: `sources.md` read into entries, each with its reference and the claims the book takes from it.

One `## key` heading a source, a reference paragraph, then a table `| claim | where in it | read | checked |`.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from .problems import Problem, read_text

KEY = re.compile(r"[a-z0-9]+(?:[-_.:][a-z0-9]+)*")
HEADER = ("claim", "where in it", "read", "checked")
READ = ("primary", "secondary")
FILE = "sources.md"


@dataclass(frozen=True)
class Claim:
    """One line of a source's table: what the book takes from it, where it stands, what was read, and when."""

    text: str
    where: str
    read: str
    checked: str
    line: int


@dataclass(frozen=True)
class Source:
    """One entry of the ledger."""

    key: str
    reference: str
    claims: tuple[Claim, ...]
    line: int


@dataclass(frozen=True)
class Ledger:
    """Every source by key, and what is wrong with the file."""

    entries: dict[str, Source]
    problems: tuple[Problem, ...]


def load_ledger(root: Path, today: datetime.date | None = None) -> Ledger:
    """Read `root/sources.md`; a book without one has an empty ledger."""
    path = root / FILE
    if not path.is_file():
        return Ledger({}, ())
    return parse_ledger(read_text(path, root), today or datetime.datetime.now(datetime.UTC).date())


def parse_ledger(text: str, today: datetime.date) -> Ledger:
    """Return the ledger this text holds; a malformed entry is a problem (L603), never an exception."""
    entries: dict[str, Source] = {}
    problems: list[Problem] = []
    for line, key, body in _entries(text):
        source, found = _entry(key, body, line, today)
        problems += [_problem(at, f"source {key!r}: {message}") for at, message in found]
        if key in entries:
            problems.append(_problem(line, f"source {key!r} already stands at line {entries[key].line}"))
            continue
        entries[key] = source
    return Ledger(entries, tuple(problems))


def _problem(line: int, message: str) -> Problem:
    return Problem(FILE, None, line, message, code="L603", file_line=line)


def _entries(text: str) -> Iterator[tuple[int, str, list[str]]]:
    lines = text.split("\n")
    starts = [i for i, line in enumerate(lines) if line.startswith("## ")]
    for start, end in pairwise([*starts, len(lines)]):
        yield start + 1, lines[start][3:].strip(), lines[start + 1 : end]


def _entry(key: str, body: list[str], line: int, today: datetime.date) -> tuple[Source, list[tuple[int, str]]]:
    found: list[tuple[int, str]] = []
    if not KEY.fullmatch(key):
        found.append((line, "a key is lower-case letters, digits and hyphens"))
    rows = [(line + i, _row(text)) for i, text in enumerate(body, start=1) if text.lstrip().startswith("|")]
    reference = " ".join(text.strip() for text in body if text.strip() and not text.lstrip().startswith("|"))
    if not reference:
        found.append((line, "no reference (authors, title, year, where) stands below the heading"))
    if not rows or tuple(cell.lower() for cell in rows[0][1]) != HEADER:
        found.append((line, f"no table of claims with the columns {' | '.join(HEADER)}"))
        return Source(key, reference, (), line), found
    claims = [Claim(*cells, line=at) for at, cells in rows[2:] if len(cells) == len(HEADER)]
    found += [(at, f"a claim has {len(HEADER)} columns, this line {len(c)}") for at, c in rows[2:] if len(c) != 4]
    if not rows[2:]:
        found.append((line, "its table holds no claim"))
    for claim in claims:
        found += [(claim.line, message) for message in _claim_faults(claim, today)]
    return Source(key, reference, tuple(claims), line), found


def _row(text: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", text.strip().strip("|"))]


def _claim_faults(claim: Claim, today: datetime.date) -> Iterator[str]:
    if not claim.text or not claim.where:
        yield "a claim and the place where it stands in the source are both needed"
    if claim.read not in READ:
        yield f"read is {claim.read!r}; it is one of {', '.join(READ)}"
    try:
        checked = datetime.date.fromisoformat(claim.checked)
    except ValueError:
        yield f"checked is {claim.checked!r}, not a date like 2026-01-31"
        return
    if checked > today:
        yield f"checked is {claim.checked}, which is in the future"
