"""Thirty-six mutants that tell notebook runners apart are all judged right, by each of the checker's three engines.

Six runners were tried on these rows when the checker was designed; each was wrong on five to seventeen of them. Rows
that leave the rest of their notebook alone share one. One rule is the book's own and not every runner's: stderr is
shown and never compared, so a row in which only stderr differs passes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from checking import Case, check, junit_cases
from synthetic import CellDict, code, write_book, write_chapter

ENGINES = {"fork": "-j3", "spawn": "--spawn", "kernel": "--kernel"}
PASSES, FAILS = "passes", "fails"
# Where engines differ by nature: a kernel does not know which thread prints, and gives the text to the cell that runs.
DIFFERENT = {("kernel", "late thread"): PASSES}
KEY_ERROR = [{"output_type": "error", "ename": "KeyError", "evalue": "'x'", "traceback": ["KeyError: 'x'"]}]
VALUE = [{"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": {"text/plain": ["3"]}}]
STDERR = [{"output_type": "stream", "name": "stderr", "text": ["a warning\n"]}]
RAISES: dict[str, Any] = {"tags": ["raises-exception"]}
FORK = "import os\nif os.fork() == 0:\n    print('fork', flush=True)\n    os._exit(0)\nended = os.wait()"
BOTH = "import sys\nfor n in range(3):\n    print('out', n)\n    print('err', n, file=sys.stderr)"
FLUSHED = "for n in range(10_000):\n    print(n, flush=True)"
BAR = "for n in range(0, 101, 20):\n    print(f'\\r{n:3d} %', end='')\nprint()"
START_LATE = (
    "import threading\ngo = threading.Event()\n"
    "late = threading.Thread(target=lambda: (go.wait(), print('late')))\nlate.start()"
)
NAMES = ["read", "edit", "test", "submit", "reward", "policy", "mask", "state"]


@dataclass(frozen=True)
class Row:
    """One mutant: the cells of which one or none may fail, and whether the notebook passes."""

    name: str
    verdict: str
    cells: list[CellDict]
    alone: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)


def row(name: str, verdict: str, source: str, recorded: str = "", alone: bool = False, **meta: Any) -> Row:
    """Return the row of one cell."""
    return Row(name, verdict, [code(name.replace(" ", "-"), source, recorded, **meta)], alone)


ROWS = [
    row("the notebook as recorded", PASSES, "print('loss', 0.5)", "loss 0.5\n"),
    row("one digit changed", FAILS, "print('loss', 0.5)", "loss 0.4\n"),
    row("output dropped", FAILS, "print('loss', 0.5)"),
    row("cell never run", FAILS, "print('loss', 0.5)", "loss 0.5\n", count="never"),
    row("output that nothing prints", FAILS, "loss = 0.5", "loss 0.5\n"),
    Row("counts out of order", FAILS, [code("first", "x = 1", count=2), code("second", "y = 2", count=1)], True),
    row("trailing blank", FAILS, "print('loss', 0.5)", "loss 0.5 \n"),
    row("value displayed", FAILS, "1 + 2", outputs=VALUE),
    row("stderr differs", PASSES, "import sys\nprint('another warning', file=sys.stderr)"),
    row("stderr recorded", FAILS, "import sys\nprint('a warning', file=sys.stderr)", outputs=STDERR),
    row("expected exception", PASSES, "raise KeyError('x')", outputs=KEY_ERROR, **RAISES),
    row("exception that does not come", FAILS, "x = 1", outputs=KEY_ERROR, **RAISES),
    row("exception of another type", FAILS, "1 / 0", outputs=KEY_ERROR, **RAISES),
    row("unexpected exception", FAILS, "1 / 0", alone=True),
    row("time printed", FAILS, "import time\nprint(time.time())", "1700000000.25\n"),
    row("endless loop", FAILS, "while True:\n    pass", alone=True),
    row("os exit", FAILS, "import os\nos._exit(3)", alone=True),
    row("segmentation fault", FAILS, "import ctypes\nctypes.string_at(0)", alone=True),
    row("sys exit", FAILS, "import sys\nsys.exit(0)", alone=True),
    row("input", FAILS, "name = input('who? ')", alone=True),
    row("ten megabytes printed", FAILS, "print('x' * 10_000_000)"),
    row("endless print", FAILS, "import time\nwhile True:\n    print('x' * 1000)", alone=True),
    row("asyncio run", FAILS, "import asyncio\nasyncio.run(asyncio.sleep(0))", alone=True),
    row("top level await", PASSES, "import asyncio\nawait asyncio.sleep(0)\nprint('awaited')", "awaited\n"),
    row("capture magic", PASSES, "%%capture seen\nprint('hidden')"),
    row("child process prints", PASSES, "import subprocess\nr = subprocess.run(['echo', 'child'])", "child\n"),
    row("value and semicolon", PASSES, "1 + 2;"),
    row("progress bar", PASSES, BAR, "100 %\n"),
    row("fork prints", PASSES, FORK, "fork\n"),
    row("ten thousand flushes", PASSES, FLUSHED, "".join(f"{n}\n" for n in range(10_000))),
    row("stdout and stderr in turn", PASSES, BOTH, "out 0\nout 1\nout 2\n"),
    row("source emptied", FAILS, "", "loss 0.5\n"),
    row("random without seed", FAILS, "import random\nprint(random.random())", "0.5\n"),
    row("order of a set", FAILS, f"print(*{{*{NAMES}}})", " ".join(NAMES) + "\n"),
    Row(
        "unknown kernel name", PASSES, [code("fine", "print(1)", "1\n")], True,
        {"kernelspec": {"name": "conda-env-old", "language": "python", "display_name": "Python 3.7"}},
    ),
    Row("late thread", FAILS, [code("start", START_LATE), code("go-on", "go.set()\nlate.join()", "late\n")], True),
    row("carriage return and newline", PASSES, "print('a\\r\\nb')", "a\r\nb\n"),
]  # fmt: skip


def write_rows(root: Path) -> dict[str, tuple[str, list[str]]]:
    """Write the book of all rows and return, for each, its chapter's key and its cells."""
    shared = [row for row in ROWS if not row.alone]
    places = {row.name: ("00", [cell["id"] for cell in row.cells]) for row in shared}
    write_book(root, {"00-shared": [cell for row in shared for cell in row.cells]})
    for number, alone in enumerate((row for row in ROWS if row.alone), start=10):
        path = write_chapter(root, f"{number}-{alone.name.replace(' ', '-')}", alone.cells)
        if alone.metadata:
            raw = json.loads(path.read_text(encoding="utf-8"))
            raw["metadata"].update(alone.metadata)
            path.write_text(json.dumps(raw), encoding="utf-8")
        places[alone.name] = (str(number), [cell["id"] for cell in alone.cells])
    return places


@dataclass
class Run:
    """What one engine made of all rows."""

    places: dict[str, tuple[str, list[str]]]
    cases: dict[str, dict[str, Case]]
    text: str
    engine: str


@pytest.fixture(scope="module", params=list(ENGINES))
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp(request.param)
    places = write_rows(root)
    options = ("--no-cache", "--timeout", "5", "--junit", str(root / "junit.xml"), ENGINES[request.param])
    checked = check(root, *options, limit=300)
    assert checked.code == 1, checked.out + checked.err
    return Run(places, junit_cases(root / "junit.xml"), checked.out, request.param)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name.replace(" ", "-"))
def test_each_mutant_is_judged_right(judged: Run, row: Row) -> None:
    key, cells = judged.places[row.name]
    failed = [cell for cell in cells if judged.cases[key][cell].status == "failed"]
    verdict = DIFFERENT.get((judged.engine, row.name), row.verdict)
    assert bool(failed) == (verdict == FAILS), judged.text


def test_there_are_the_thirty_six_mutants_and_one_on_recorded_stderr() -> None:
    assert len(ROWS) == 37
    assert len({row.name for row in ROWS}) == 37
