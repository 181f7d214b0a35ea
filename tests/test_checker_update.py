"""What --update records, and when it refuses and leaves every byte as it was."""

from __future__ import annotations

import datetime
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from checking import check, command
from killing import end, files, none_left
from synthetic import CellDict, code, md, write_book, write_chapter

from bookkit.notebook import as_text, load_chapter

CELLS = [
    md("title", "# One"),
    code("never", "print('never run')", count="never"),
    code("other", "print('now')", "before\n", count=9),
    code("silent", "x = 1", "ghost\n"),
    code("progress", "print('1 %\\r2 %')"),
    code("result", "y = 2", outputs=[{"output_type": "display_data", "data": {"text/plain": ["2"]}, "metadata": {}}]),
]


def cells_of(path: Path) -> list[dict[str, Any]]:
    """Return the code cells of a notebook on disk."""
    return [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]


def snapshot(root: Path) -> dict[str, tuple[bytes, int]]:
    """Return the bytes and the time of change of every notebook."""
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in (root / "chapters").rglob("*.ipynb")}


def test_update_records_outputs_and_counts(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-one": CELLS})
    path = tmp_path / "chapters" / "01-one.ipynb"
    updated = check(tmp_path, "--update")
    assert (updated.code, updated.status("01")) == (0, "recorded"), updated.out
    cells = cells_of(path)
    assert [c["execution_count"] for c in cells] == [1, 2, 3, 4, 5]
    texts = ["".join(as_text(o["text"]) for o in c["outputs"]) for c in cells]
    assert texts == ["never run\n", "now\n", "", "2 %\n", ""]
    assert {(o["output_type"], o["name"]) for c in cells for o in c["outputs"]} == {("stream", "stdout")}
    for words in ("new chapters/01-one.ipynb · cell other", "-before", "+now", "-ghost", "notebooks: 1 recorded"):
        assert words in updated.out
    assert check(tmp_path, "--no-cache").code == 0
    assert load_chapter(path, tmp_path).cell("title").source == "# One"


def test_update_writes_windows_line_ends_as_unix_ones_and_says_so(tmp_path: Path) -> None:
    path = write_chapter(tmp_path, "01-one", [code("a", "print(1)", "1\n")])
    canonical = path.read_bytes()
    path.write_bytes(canonical.replace(b"\n", b"\r\n"))
    assert check(tmp_path, "--update").status("01") == "recorded"
    assert path.read_bytes() == canonical


def test_update_changes_nothing_the_second_time(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-one": CELLS, "02-two": [code("a", "print(2)", "2\n")]})
    write_chapter(tmp_path, "01-one", [code("b", "print(3)")], kind="solutions")
    before = snapshot(tmp_path)
    assert check(tmp_path, "--update", "01").code == 0
    first = snapshot(tmp_path)
    assert first["02-two.ipynb"] == before["02-two.ipynb"]
    again = check(tmp_path, "--update")
    assert again.code == 0
    assert snapshot(tmp_path) == first
    assert "notebooks: 0 recorded, 3 unchanged, 0 refused" in again.out


REFUSED: dict[str, tuple[list[CellDict], str]] = {
    "raises": ([code("a", "print('new')"), code("bad", "1 / 0"), code("c", "print(3)")], "ZeroDivisionError"),
    "dies": ([code("bad", "import os\nos._exit(0)")], "ended inside this cell"),
    "echo": ([code("bad", "x = 3\nx")], "displays a value"),
    "display": ([code("bad", "display(3)")], "calls display()"),
    "time": ([code("bad", "import time\nprint(time.time_ns())")], "two runs print different text"),
    "date": ([code("bad", "import datetime\nprint(datetime.date.today())")], "two runs print different text"),
    "set order": ([code("bad", "print({f'key {i}' for i in range(20)})")], "two runs print different text"),
    "random": ([code("bad", "import random\nprint(random.random())")], "two runs print different text"),
    "address": ([code("bad", "print(object())")], "two runs print different text"),
    "process": ([code("bad", "import os\nprint(os.getpid())")], "two runs print different text"),
    "late": (
        [code("bad", "import threading\nt = threading.Timer(0.2, print, ['late'])\nt.start()")],
        "after the cell had ended",
    ),
    "no raise": ([code("bad", "x = 1", tags=["raises-exception"])], "raised nothing"),
    "stub": (
        [
            code("bad", "half = lambda x: x / 2", role="stub", exercise="1.1"),
            code("solution", "half = lambda x: x * 0.5", role="solution", exercise="1.1"),
            code("test", "assert half(4) == 2", role="test", exercise="1.1"),
        ],
        "the stub passes its test",
    ),
    "role": ([code("bad", "x = 1", role="stub", exercise="1.1")], "exercise 1.1 has no solution and no test cell"),
    "empty": ([code("bad", "")], "the code cell is empty"),
}  # fmt: skip


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int, dict[str, str], bool]:
    """Update a book in which all but one notebook must be refused; return what came of it."""
    root = tmp_path_factory.mktemp("refused")
    chapters = {f"{i:02}-{name.replace(' ', '-')}": cells for i, (name, (cells, _)) in enumerate(REFUSED.items())}
    write_book(root, chapters)
    before = snapshot(root)
    write_chapter(root, "Z-good", [code("good", "print('good')")])
    updated = check(root, "--update", "-j", "2")
    after = snapshot(root)
    statuses = {name: updated.status(f"{i:02}") for i, name in enumerate(REFUSED)} | {"good": updated.status("Z")}
    return updated.out, updated.code, statuses, {k: v for k, v in after.items() if k != "Z-good.ipynb"} == before


@pytest.mark.parametrize("name", REFUSED, ids=lambda name: name.replace(" ", "-"))
def test_update_refuses(refused: tuple[str, int, dict[str, str], bool], name: str) -> None:
    out, code_, statuses, _ = refused
    number = list(REFUSED).index(name)
    block = out[out.index(f"\n{number:02} " if number else f"{number:02} ") :].split("\nZ ")[0]
    block = block.split(f"\n{number + 1:02} ")[0]
    assert code_ == 1
    assert statuses[name] == "refused"
    assert "· cell bad " in block
    assert REFUSED[name][1] in block


def test_a_refused_notebook_keeps_its_bytes_and_others_are_recorded(
    refused: tuple[str, int, dict[str, str], bool],
) -> None:
    out, _, statuses, unchanged = refused
    assert unchanged
    assert statuses["good"] == "recorded"
    assert f"notebooks: 1 recorded, 0 unchanged, {len(REFUSED)} refused" in out


def test_update_refuses_in_ci(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-one": CELLS})
    before = snapshot(tmp_path)
    updated = check(tmp_path, "--update", CI="true")
    assert updated.code == 2
    assert "in CI" in updated.err
    assert snapshot(tmp_path) == before
    assert check(tmp_path, "--update", CI="").code == 0


def test_update_refuses_a_notebook_edited_meanwhile(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-one": [code("a", "print(1)")]})
    path = tmp_path / "chapters" / "01-one.ipynb"
    edit = f"import pathlib\np = pathlib.Path({str(path)!r})\np.write_text(p.read_text().replace('CHANGE', 'EDITED'))"
    write_chapter(tmp_path, "01-one", [md("prose", "CHANGE"), code("edit", edit + "\nprint(1);")])
    updated = check(tmp_path, "--update")
    assert (updated.code, updated.status("01")) == (1, "refused"), updated.out
    assert "edited while it ran" in updated.out
    assert all(not c["outputs"] for c in cells_of(path))


def test_update_records_an_announced_exception(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-one": [code("a", "print(1)\nraise KeyError('x')", tags=["raises-exception"])]})
    assert check(tmp_path, "--update").code == 0
    (cell,) = cells_of(tmp_path / "chapters" / "01-one.ipynb")
    assert [o["output_type"] for o in cell["outputs"]] == ["stream", "error"]
    assert cell["outputs"][1]["ename"] == "KeyError"
    assert check(tmp_path).code == 0


def test_update_keeps_what_lab_cells_recorded_with_a_model(tmp_path: Path) -> None:
    lab = code("lab", "print('real')", "recorded with the model\n", output="lab")
    write_book(tmp_path, {"01-one": [code("a", "print(1)"), lab, code("b", "print(2)")]})
    assert check(tmp_path, "--update").code == 0
    cells = cells_of(tmp_path / "chapters" / "01-one.ipynb")
    assert [as_text(c["outputs"][0]["text"]) for c in cells] == ["1\n", "recorded with the model\n", "2\n"]
    assert [c["execution_count"] for c in cells] == [1, 2, 3]


def test_update_of_many_chapters_at_once(tmp_path: Path) -> None:
    chapters = {f"{i:02}-c{i}": [code("a", f"print({i})")] for i in range(12)}
    write_book(tmp_path, chapters)
    updated = check(tmp_path, "--update", "-j", "4")
    assert updated.code == 0, updated.out + updated.err
    assert "notebooks: 12 recorded" in updated.out
    assert check(tmp_path).last == "12 passed, 0 failed"


NAP = "import time\ntime.sleep(0.05)\nprint('new')"
PARTS = (0.4, 0.75, 0.95)


@pytest.fixture(scope="module")
def whole_update(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Return a book with old outputs, and how many moments its update has."""
    root = tmp_path_factory.mktemp("interrupted")
    book, copy = root / "book", root / "copy"
    write_book(book, {f"0{n}-c{n}": [code("a", NAP, "old\n"), code("b", "print(1)", "old\n")] for n in range(4)})
    shutil.copytree(book, copy)
    ended = end(command(copy, "--update", "-j", "2"), root / "scratch")
    assert ended.code == 0, ended.err
    return book, ended.moments


def recorded_on(path: Path) -> str | None:
    """Return the day that a notebook on disk says its outputs are of."""
    return json.loads(path.read_text(encoding="utf-8"))["metadata"]["agentrl"].get("recorded")


@pytest.mark.parametrize(
    ("cells", "today"),
    [
        ([code("a", "print(1)", "1\n")], False),
        ([code("a", "print(1)", "2\n")], True),
        ([code("a", "x = 1", count="never")], True),
        ([code("a", "print(1)", "1\n"), code("new", "x = 1", count="never")], False),
    ],
    ids=["unchanged", "changed", "first run", "a silent cell more"],
)
def test_the_day_of_the_record_is_that_of_the_last_run_that_changed_an_output(
    tmp_path: Path, cells: list[CellDict], today: bool
) -> None:
    path = write_chapter(tmp_path, "01-one", cells, recorded="2020-02-29")
    days = {datetime.datetime.now(datetime.UTC).date().isoformat()}
    assert check(tmp_path, "--update").code == 0
    days.add(datetime.datetime.now(datetime.UTC).date().isoformat())  # the update may have run past midnight
    assert recorded_on(path) in (days if today else {"2020-02-29"})


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupted_update_leaves_notebooks_old_or_new_and_nothing_else(
    whole_update: tuple[Path, int], tmp_path: Path, how: signal.Signals, part: float
) -> None:
    book, moments = whole_update
    root = shutil.copytree(book, tmp_path / "book")
    old = files(root)
    ended = end(command(root, "--update", "-j", "2"), tmp_path / "scratch", how, moment=int(part * moments))
    assert none_left(ended.mark) == []
    assert ended.code in (0, 128 + how, -how)
    assert "Traceback" not in ended.err
    assert files(tmp_path / "scratch").keys() <= {"./"}
    after = {name: data for name, data in files(root).items() if not name.startswith(".cache/checker/")}
    assert after.keys() == old.keys()
    new = [name for name, data in after.items() if data != old[name]]
    for name in new:
        assert [as_text(c["outputs"][0]["text"]) for c in cells_of(root / name)] == ["new\n", "1\n"]
    again = check(root, "--update")
    assert f"notebooks: {4 - len(new)} recorded, {len(new)} unchanged, 0 refused" in again.out


def test_an_update_shows_every_change_and_records_nothing_of_a_notebook_with_a_failed_cell(tmp_path: Path) -> None:
    good = [code("first", "print(1)", "0\n"), code("same", "print(2)", "2\n"), code("last", "print(3)")]
    bad = [code("first", "print(1)", "0\n"), code("fails", "1 / 0")]
    write_book(tmp_path, {"01-good": good, "02-bad": bad})
    before = snapshot(tmp_path)
    updated = check(tmp_path, "--update")
    assert (updated.code, updated.status("01"), updated.status("02")) == (1, "recorded", "refused")
    assert [line.split()[4] for line in updated.out.splitlines() if line.startswith("  new ")] == ["first", "last"]
    assert [line.strip() for line in updated.out.splitlines() if line.strip() in ("-0", "+1", "+3")] == [
        "-0",
        "+1",
        "+3",
    ]
    assert snapshot(tmp_path)["02-bad.ipynb"] == before["02-bad.ipynb"]
