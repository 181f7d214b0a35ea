"""How many notebooks run at once changes nothing but the time: same report, same JUnit, same exit code on any book."""

from __future__ import annotations

import random
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from checking import Checked, check
from synthetic import CellDict, code, write_book, write_chapter

SEED = 20240607
BOOKS = range(8)
GOOD = code("good", "print('good')", "good\n")
# What may befall a chapter. Names that are saved carry the chapter's key, so that no two chapters save the same one.
KINDS: dict[str, list[CellDict]] = {
    "passes": [GOOD, code("more", "print(sum(range(5)))", "10\n")],
    "saves": [code("save", '#@save\ndef name_KEY(x: int) -> int:\n    """Return x."""\n    return x'), GOOD],
    "is slow": [code("nap", "import time\ntime.sleep(RANDOM)\nprint('late')", "late\n"), GOOD],
    "differs": [GOOD, code("differs", "print('now')", "before\n"), code("again", "print(2)", "3\n")],
    "raises": [GOOD, code("raises", "def f():\n    return 1 / 0\nf()"), code("unseen", "print(1)", "1\n")],
    "shows": [code("echo", "x = 3\nx"), GOOD],
    "leaves": [code("leaves", "import os\nprint('x', flush=True)\nos._exit(3)"), GOOD],
    "is killed": [GOOD, code("killed", "import os\nos.kill(os.getpid(), 9)")],
    "never ends": [code("endless", "import time\ntime.sleep(600)"), GOOD],
    "was never run": [code("never", "print(1)", count="never")],
    "uses a name nobody saves": [code("uses", "import agentrl as arl\narl.nothing(1)")],
    "cannot be built": [code("broken", "#@save\ndef name_KEY(:\n    pass")],
    "saves what nobody defines": [code("broken", "#@save\ndef name_KEY():\n    return undefined_name")],
}
UNREADABLE = "cannot be read"
PREFIXES: list[list[str]] = [[], ["01"], [], ["7"], [], ["00", "02"], [], []]


@dataclass(frozen=True)
class Told:
    """All that a run says, but for the seconds."""

    code: int
    out: str
    err: str
    junit: str


def book(root: Path, number: int) -> None:
    """Write one of the random books: among them every kind of chapter occurs."""
    kinds = [*KINDS, UNREADABLE]
    random.Random(SEED).shuffle(kinds)
    draw = random.Random(SEED + number)
    dealt = kinds[number :: len(BOOKS)] + draw.choices(["passes", "saves", "is slow", "differs"], k=draw.randint(1, 3))
    draw.shuffle(dealt)
    chapters = {f"{place:02}-chapter-{place:02}": kind for place, kind in enumerate(dealt)}
    write_book(root, {name: cells(name, kind, draw) for name, kind in chapters.items() if kind in KINDS})
    for name, kind in chapters.items():
        if kind == UNREADABLE:
            (root / "chapters" / f"{name}.ipynb").write_text("{", encoding="utf-8")
        elif draw.random() < 0.4:
            write_chapter(root, name, cells(name, draw.choice(["passes", "differs", "raises"]), draw), kind="solutions")


def cells(name: str, kind: str, draw: random.Random) -> list[CellDict]:
    """Return the cells of a chapter of this kind."""
    nap = str(round(draw.uniform(0.05, 0.4), 2))
    return [{**c, "source": c["source"].replace("KEY", name[:2]).replace("RANDOM", nap)} for c in KINDS[kind]]


def told(root: Path, prefixes: list[str], jobs: int) -> Told:
    """Check the book with so many notebooks at once and return what is said."""
    junit = root / f"junit-{jobs}.xml"
    options = ("--no-cache", "--timeout", "4", "--junit", str(junit), "-j", str(jobs))
    checked: Checked = check(root, *prefixes, *options)
    report = junit.read_text(encoding="utf-8") if junit.exists() else "none"
    return Told(
        checked.code,
        re.sub(r" +\d+\.\d s  ", " S ", checked.out),
        checked.err,
        re.sub(r' (time|timestamp)="[^"]*"', "", report),
    )


@pytest.mark.parametrize("number", BOOKS)
def test_the_number_of_notebooks_at_once_changes_nothing_that_is_said(tmp_path: Path, number: int) -> None:
    book(tmp_path, number)
    at_once = (1, 2, 4) if number % 4 == 0 else (1, 2)
    with ThreadPoolExecutor(2) as pool:
        one, *others = pool.map(lambda jobs: told(tmp_path, PREFIXES[number], jobs), at_once)
    assert one.code in (0, 1, 2)
    assert "Traceback" not in one.err
    for other in others:
        assert other == one
