"""A checker that is killed leaves no process, no changed notebook and no broken cache; the next run clears the rest.

Twenty random moments, from the start of the process to its end, in every engine and while recording. Half of them are
picked among the requests the checker makes to the system, which finds the short phases (staging, starting the server,
writing the cache), half among the seconds it takes, which finds the long ones (imports, cells).
"""

from __future__ import annotations

import random
import re
import shutil
import signal
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from checking import Checked, check, command, wait_until
from killing import Ended, end, files, none_left
from synthetic import code, write_book, write_chapter

SEED = 20240607
SAVE = '#@save\ndef double(x: int) -> int:\n    """Return twice x."""\n    return 2 * x'
CHILDREN = """import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    daemon = os.fork()
    if daemon == 0:
        os.execvp("sleep", ["sleep", "600"])
    os.write(writing, str(daemon).encode())
    os._exit(0)
os.wait()
daemon = int(os.read(reading, 99))
time.sleep(0.2)
print("two children")"""
REAP = "child.kill()\nn = child.wait()\nos.kill(daemon, 9)\nprint('none')"
THREADS = """import threading, time
threads = [threading.Thread(target=time.sleep, args=(0.2,)) for _ in range(3)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(len(threads))"""
CHAPTERS = {
    "01-base": [code("save", SAVE), code("use", "print(double(2))", "4\n")],
    "02-children": [code("start", CHILDREN, "two children\n"), code("stop", REAP, "none\n")],
    "03-threads": [code("threads", THREADS, "3\n"), code("more", "print(sum(range(9)))", "36\n")],
    "04-big": [code("big", "for i in range(4000):\n    print(i, 'x' * 60)")],
    "05-sleeps": [
        code("library", "import agentrl as arl\nimport time\nprint(arl.double(3))", "6\n"),
        *(code(f"nap-{i}", f"time.sleep(0.1)\nprint({i})", f"{i}\n") for i in range(3)),
    ],
}
SETUP = code("setup", "%%capture\n%run ../01-base.ipynb")


@dataclass(frozen=True)
class Way:
    """A way to run the checker, and how often it is killed by moment and by time. Recording starts from old outputs."""

    name: str
    options: tuple[str, ...]
    by_moment: int
    by_time: int
    records: bool = False


WAYS = (
    Way("kernel", ("--kernel", "02"), 2, 2),
    Way("update", ("--update", "-j", "2"), 3, 2, records=True),
    Way("spawn", ("--spawn", "-j", "2"), 2, 1),
    Way("fork", ("-j", "2"), 5, 3),
)


@dataclass
class Trial:
    """One killed run: where, how it ended, what it left, and the run after it."""

    way: Way
    ended: Ended
    left: list[str] = field(default_factory=list)
    before: dict[str, bytes] = field(default_factory=dict)
    after: dict[str, bytes] = field(default_factory=dict)
    root: list[str] = field(default_factory=list)
    again: Checked | None = None
    scratch: dict[str, bytes] = field(default_factory=dict)
    cache: list[str] = field(default_factory=list)


def write(root: Path) -> Path:
    """Write the book, whose outputs are recorded but for those of chapter 04."""
    write_book(root, CHAPTERS)
    solution = code("use", "print(double(21))", "42\n")
    write_chapter(root, "01-base", [SETUP, solution], kind="solutions")
    return root


def forget(root: Path) -> None:
    """Change a recorded output of each notebook, so that an update has something to record."""
    for path in (root / "chapters").rglob("*.ipynb"):
        path.write_bytes(path.read_bytes().replace(b'\\n"\n    ]', b' old\\n"\n    ]'))


class Lane:
    """A book with a folder for temporary files of its own, in which one run is made after another."""

    def __init__(self, folder: Path) -> None:
        self.root, self.scratch = folder / "book", folder / "scratch"
        shutil.copytree(folder.parent / "recorded", self.root)
        self.recorded = files(self.root / "chapters")

    def command(self, way: Way) -> list[str]:
        """Return the command line of a way to run."""
        return command(self.root, *way.options)

    def trials(self, way: Way, seed: int) -> list[Trial]:
        """Run to the end once, to know how long it takes; then kill as often as the way says."""
        draw = random.Random(f"{seed} {way.name}")
        self.start_over(way, draw, warm=False)
        whole = end(self.command(way), self.scratch)
        assert whole.code == 0, whole.out + whole.err
        done = []
        for n in range(way.by_moment):
            self.start_over(way, draw, warm=n % 2 == 1)
            moment = 1 + int((n + draw.random()) / way.by_moment * whole.moments * (0.5 if n % 2 else 0.95))
            done.append(self.trial(way, moment=moment))
        for n in range(way.by_time):
            self.start_over(way, draw, warm=False)
            done.append(self.trial(way, after=(n + draw.random()) / way.by_time * whole.seconds))
        return done

    def start_over(self, way: Way, draw: random.Random, warm: bool) -> None:
        """Put the recorded book in place, or one with old outputs to record; with half of the cache or none."""
        self.restore()
        if way.records:
            forget(self.root)
        for entry in (self.root / ".cache").glob("checker/*"):
            if not warm or draw.random() < 0.5:
                entry.unlink()

    def restore(self) -> None:
        """Write every notebook as recorded."""
        for name, data in self.recorded.items():
            (self.root / "chapters" / name).write_bytes(data)

    def trial(self, way: Way, moment: int = 0, after: float | None = None) -> Trial:
        """Kill a run, look at what it left, run again on its cache, look again."""
        before = files(self.root / "chapters")
        ended = end(self.command(way), self.scratch, moment=moment, after=after)
        trial = Trial(way, ended, none_left(ended.mark), before, files(self.root / "chapters"))
        trial.root = sorted(path.name for path in self.root.iterdir())
        self.restore()
        trial.again = check(self.root, "-j", "2", TMPDIR=str(self.scratch))
        trial.scratch = files(self.scratch)
        trial.cache = sorted(path.name for path in (self.root / ".cache").iterdir())
        return trial


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> list[Trial]:
    """Make all trials, on two copies of the book at once."""
    folder = tmp_path_factory.mktemp("kill")
    root = write(folder / "recorded")
    assert check(root, "--update", "-j", "2").code == 0
    shutil.rmtree(root / ".cache", ignore_errors=True)
    for way in WAYS:
        (folder / way.name).mkdir()
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda way: Lane(folder / way.name).trials(way, SEED), WAYS)
        return [trial for trials in found for trial in trials]


def is_probe(name: str, data: bytes) -> bool:
    """Return whether a file is the one by which Python's tempfile tries a folder, and removes a moment later.

    A kill in that moment leaves it, under a random name that says nothing: no run may clear it away as its own.
    """
    return re.fullmatch("[a-z0-9_]{8}", name) is not None and data in (b"", b"blat")


NUMBERS = range(sum(way.by_moment + way.by_time for way in WAYS))


def test_twenty_kills_are_made_and_most_hit_a_running_checker(trials: list[Trial]) -> None:
    assert len(trials) == len(NUMBERS) == 20
    killed = [trial for trial in trials if trial.ended.code == -signal.SIGKILL]
    assert len(killed) >= 10
    assert {trial.way.name for trial in killed} == {way.name for way in WAYS}
    assert any("check_chapters.py" in line for trial in killed for line in trial.ended.seen)
    assert {trial.ended.code for trial in trials} <= {-signal.SIGKILL, 0}


@pytest.mark.parametrize("number", NUMBERS)
def test_a_killed_checker_leaves_no_process(trials: list[Trial], number: int) -> None:
    assert trials[number].left == []


@pytest.mark.parametrize("number", NUMBERS)
def test_a_killed_checker_leaves_notebooks_old_or_new_and_no_other_file(trials: list[Trial], number: int) -> None:
    trial = trials[number]
    recorded = {name: data for t in trials if not t.way.records for name, data in t.before.items()}
    assert trial.after.keys() == recorded.keys()
    for name, data in trial.after.items():
        assert data in ((trial.before[name], recorded[name]) if trial.way.records else (recorded[name],)), name
    assert set(trial.root) <= {".cache", "chapters", "pyproject.toml"}


@pytest.mark.parametrize("number", NUMBERS)
def test_the_run_after_a_kill_is_right_and_clears_up(trials: list[Trial], number: int) -> None:
    trial = trials[number]
    assert trial.again is not None
    assert trial.again.code == 0, trial.again.out + trial.again.err
    assert (trial.again.last, trial.again.err) == ("13 passed, 0 failed", "")
    assert "damaged" not in trial.again.out
    assert {name for name, data in trial.scratch.items() if not is_probe(name, data)} <= {"./"}
    assert trial.cache == ["checker"]


def test_only_the_probe_of_tempfile_may_be_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, bytes] = {}
    monkeypatch.setattr("os.unlink", lambda path: kept.update({Path(path).name: Path(path).read_bytes()}))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert tempfile.gettempdir() == str(tmp_path)
    assert [is_probe(name, data) for name, data in kept.items()] == [True]
    assert not is_probe("agentrl-check-70zt54vw.scratch", b"")
    assert not is_probe("70zt54vw", b"{}")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda how: how.name.lower())
def test_kernels_and_what_their_cells_started_end_with_the_checker(tmp_path: Path, how: signal.Signals) -> None:
    stuck = [code("start", CHILDREN, "two children\n"), code("stuck", "while True:\n    pass")]
    root = write_book(tmp_path / "book", {"01-stuck": stuck})
    scratch = tmp_path / "scratch"
    ended = end(command(root, "--kernel"), scratch, how, when=lambda seen: seen.count("sleep 600") == 2)
    assert any("ipykernel_launcher" in line for line in ended.seen)
    assert ended.code == (-how if how == signal.SIGKILL else 128 + how)
    assert none_left(ended.mark) == []
    assert "Traceback" not in ended.err
    assert wait_until(lambda: not list(scratch.iterdir()))
