"""Scratch folders outlive no process for long; files that are written are whole at every moment."""

from __future__ import annotations

import itertools
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from checking import SCRIPT, check, command, environment
from killing import end, files
from synthetic import code, write_book

from bookkit import librarycli, notebook, package, scratch
from bookkit.librarycli import Request
from bookkit.notebook import write_all_atomic, write_atomic
from bookkit.package import diff_package, write_package
from bookkit.scratch import Scratch, is_scratch, sweep

SCRIPTS = SCRIPT.parent
WRITERS = {module.__file__ for module in (notebook, scratch, shutil)}
DRAWING = """def draw():
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9" role="img" aria-labelledby="t d">'
            '<title id="t">T</title><desc id="d">D</desc><text x="1" y="8">WORD</text></svg>\\n')
"""


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what only a loss of power can tell: it is slow."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def killed_before(line: int, work: Callable[[], object]) -> bool:
    """Run `work` in a fork that is killed before the given one of the lines that write; return whether it came to it.

    Lines count in the order they run, in the modules that write files.
    """
    pid = os.fork()
    if pid == 0:
        _work_until(line, work)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


def _work_until(line: int, work: Callable[[], object]) -> None:
    left = itertools.count(line - 1, -1)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace if frame.f_code.co_filename in WRITERS else None

    try:
        sys.settrace(trace)
        work()
        os._exit(0)
    finally:
        os._exit(1)


def fork(work: Callable[[], object]) -> int:
    """Run `work` in a fork that ends without cleaning up, and return its process id when it has."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    return pid


def test_a_folder_is_removed_when_its_maker_is_done(tmp_path: Path) -> None:
    with Scratch("check", tmp_path) as folder:
        (folder / "deep").mkdir()
        assert (folder.parent, is_scratch(folder.name)) == (tmp_path.resolve(), True)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_dead_process_is_swept_by_the_next_one(tmp_path: Path) -> None:
    fork(lambda: (Scratch("check", tmp_path).path / "file").touch())
    (old,) = tmp_path.iterdir()
    with Scratch("write", tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
    assert not old.exists()


def test_the_folder_of_a_living_process_is_kept(tmp_path: Path) -> None:
    mine = Scratch("check", tmp_path)
    fork(lambda: sweep(tmp_path))
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == [mine.path]
    mine.remove()


def test_nothing_else_is_swept(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    place = tmp_path / "place"
    (place / "agentrl-check-mine").mkdir(parents=True)
    (place / "agentrl-check-01234567").mkdir()
    (place / "agentrl-check-abcdefgh.scratch").symlink_to(kept)
    (place / "agentrl-check-ijklmnop.scratch").touch()
    before = files(place)
    sweep(place)
    sweep(tmp_path / "no such folder")
    assert files(place) == before
    assert (kept / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a folder of another user")
def test_another_users_folder_is_kept(tmp_path: Path) -> None:
    fork(lambda: Scratch("check", tmp_path))
    (theirs,) = tmp_path.iterdir()
    os.chown(theirs, 12345, 12345)
    sweep(tmp_path)
    assert theirs.exists()


def test_processes_that_sweep_at_once_keep_their_folders(tmp_path: Path) -> None:
    def work() -> None:
        for _ in range(60):
            with Scratch("check", tmp_path) as folder:
                (folder / "file").touch()

    def run() -> None:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)

    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            run()
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("in_a_book", [True, False], ids=["in-a-book", "elsewhere"])
def test_a_write_killed_before_any_line_leaves_the_old_file_or_the_new(
    tmp_path: Path, no_sync: None, in_a_book: bool
) -> None:
    folder = tmp_path / ("chapters" if in_a_book else "folder")
    path = folder / "01-one.ipynb"
    seen = set()
    for line in itertools.count(1, 2):
        write_atomic(path, "old\n")
        killed = killed_before(line, lambda: write_atomic(path, "new\n"))
        text = path.read_text()
        seen.add((killed, text))
        assert text in ("old\n", "new\n")
        assert all(other == path or (is_scratch(other.name) and not in_a_book) for other in folder.iterdir())
        if not killed:
            break
    assert seen == {(True, "old\n"), (True, "new\n"), (False, "new\n")}
    write_atomic(path, "new\n")
    assert {name for name in files(tmp_path) if name != ".cache/"} == {f"{folder.name}/01-one.ipynb"}


OLD = {name: f"# old {name}\n# Built from the saved cells of chapters/\n" for name in ("a.py", "b.py", "__init__.py")}
NEW = {name: text.replace("old", "new") for name, text in OLD.items()} | {"c.py": "new\n"}


@pytest.mark.parametrize("in_a_book", [True, False], ids=["in-a-book", "elsewhere"])
def test_a_library_killed_before_any_line_is_new_or_said_to_be_stale_and_built_next_time(
    tmp_path: Path, no_sync: None, monkeypatch: pytest.MonkeyPatch, in_a_book: bool
) -> None:
    monkeypatch.setattr(package, "foreign_files", lambda files, folder: [])
    if in_a_book:
        (tmp_path / "chapters").mkdir()
    folder = tmp_path / "agentrl"
    states = set()
    for line in itertools.count(1, 7):
        write_package(OLD, folder)
        killed = killed_before(line, lambda: write_package(NEW, folder))
        found = {p.name: p.read_text() for p in folder.iterdir() if p.is_file()}
        assert found.keys() <= NEW.keys()
        assert all(text in (OLD.get(name), NEW[name]) for name, text in found.items())
        assert (diff_package(NEW, folder) == "") == (found == NEW)
        states.add(tuple(name for name, text in found.items() if text == NEW[name]))
        write_package(NEW, folder)
        assert {name: data.decode() for name, data in files(folder).items()} == NEW
        if not killed:
            break
    assert {len(state) for state in states} >= {0, 4}


def end_where_it_writes(script: str, root: Path, look: Callable[[], None]) -> None:
    """Run a script to its end, then kill it at moments of its second half, where it writes; look after each."""
    program = [sys.executable, str(SCRIPTS / script), "--root", str(root)]
    whole = end(program, root.parent / "scratch")
    assert whole.code == 0, whole.out + whole.err
    look()
    for part in (0.6, 0.8, 0.95):
        ended = end(program, root.parent / "scratch", moment=int(part * whole.moments))
        assert ended.code in (-signal.SIGKILL, 0)
        look()


def edit(path: Path, old: str, new: str) -> None:
    """Replace text in a file."""
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def test_the_builder_killed_at_random_leaves_whole_files_and_a_check_that_tells(tmp_path: Path) -> None:
    chapters = {f"0{n}-c{n}": [code("save", f"#@save\nNAME_{n} = 'WORD'")] for n in (1, 2, 3)}
    root = write_book(tmp_path / "book", chapters)

    def texts() -> dict[str, str]:
        return {name: data.decode() for name, data in files(root / "agentrl").items()}

    assert librarycli.run(Request(root)) == 0
    old = texts()
    for path in (root / "chapters").glob("*.ipynb"):
        edit(path, "WORD", "LONGER_WORD")
    assert librarycli.run(Request(root)) == 0
    new = texts()

    def look() -> None:
        found = texts()
        assert found.keys() == new.keys()
        assert all(text in (old[name], new[name]) for name, text in found.items())
        assert librarycli.run(Request(root, check=True)) == (0 if found == new else 1)
        assert librarycli.run(Request(root)) == 0
        assert texts() == new
        write_all_atomic({root / "agentrl" / name: text for name, text in old.items()})

    look()
    end_where_it_writes("build_library.py", root, look)


def test_figures_killed_at_random_are_whole(tmp_path: Path) -> None:
    root = write_book(tmp_path / "book", {"01-a": [code("a", "x = 1")]})
    for number in (1, 2, 3):
        write_atomic(root / "figures" / f"ch01_{number}.py", DRAWING)
    seen = set()

    def look() -> None:
        svgs = [root / "figures" / f"ch01-{number}.svg" for number in (1, 2, 3)]
        found = {svg.read_text() for svg in svgs}
        assert all(text == "old" or text.endswith("WORD</text></svg>\n") for text in found)
        assert sorted(p.suffix for p in (root / "figures").iterdir() if p.is_file()) == [".py"] * 3 + [".svg"] * 3
        seen.update(found)
        write_all_atomic(dict.fromkeys(svgs, "old"))

    end_where_it_writes("make_figures.py", root, look)
    assert len(seen) == 2


def test_files_on_another_volume_than_the_book_are_whole_too(tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not os.access(other, os.W_OK) or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second volume")
    with tempfile.TemporaryDirectory(dir=other) as folder:
        (tmp_path / "chapters").symlink_to(folder)
        path = tmp_path / "chapters" / "01-one.ipynb"
        for text in ("old\n", "new\n"):
            write_atomic(path, text)
            assert path.read_text() == text
        assert os.listdir(folder) == ["01-one.ipynb"]


def limited(size: int, program: list[str], **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a program in which no file may grow beyond `size` bytes, as on a full disk."""
    return subprocess.run(
        program,
        env=environment(**extra),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_update_that_cannot_be_written_leaves_the_old_notebook_and_says_which(tmp_path: Path) -> None:
    # One byte and a line end, which take twelve bytes in the notebook.
    write_book(tmp_path, {"01-long": [code("long", "for _ in range(4000):\n    print(1)")]})
    before = files(tmp_path / "chapters")
    done = limited(30_000, command(tmp_path, "--update"))
    assert done.returncode == 2
    assert f"cannot read or write: [Errno 27] File too large: '{tmp_path}/chapters/01-long.ipynb'" in done.stderr
    assert "Traceback" not in done.stderr
    assert files(tmp_path / "chapters") == before
    assert not any(map(is_scratch, os.listdir(tmp_path / ".cache")))
    assert check(tmp_path, "--update").status("01") == "recorded"


def test_a_cache_that_cannot_be_written_any_further_is_no_obstacle(tmp_path: Path) -> None:
    # A letter of two bytes in notebook and output, of six in the cache.
    text = "é" * 3000
    write_book(tmp_path, {"01-a": [code("a", f"print('é' * {len(text)})", text + "\n")]})
    for _ in range(2):
        done = limited(12_000, command(tmp_path))
        assert (done.returncode, done.stderr) == (0, "")
        assert "damaged" not in done.stdout
    assert list((tmp_path / ".cache" / "checker").glob("01.*")) == []
    assert check(tmp_path).status("01") == "ok"
    assert check(tmp_path).status("01") == "cached"


def test_no_tool_makes_a_temporary_folder_that_outlasts_a_kill() -> None:
    scripts = Path(__file__).resolve().parents[1] / "scripts"
    makers = {p.name for p in scripts.rglob("*.py") if re.search("TemporaryDirectory|mkdtemp", p.read_text("utf-8"))}
    assert makers == {"scratch.py"}
