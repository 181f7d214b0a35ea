"""Every way a cell can go wrong is caught and named with its cell, and the next chapter still runs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from checking import Case, Checked, check, command, environment, hearing, junit_cases, wait_until
from synthetic import CellDict, code, write_book, write_chapter

MARK = f"86399.{os.getpid()}"  # seconds that leftover processes sleep: another run of these tests has another number


@dataclass(frozen=True)
class Fault:
    """A chapter with one fault: its cells, the cell that must fail, and words that its report must hold."""

    name: str
    cells: list[CellDict]
    cell: str
    words: tuple[str, ...]
    also: tuple[str, ...] = ()


def one(name: str, source: str, *words: str, stdout: str = "", **meta: object) -> Fault:
    """Return a fault of a single cell between two good ones."""
    bad = code("bad", source, stdout, **meta)  # type: ignore[arg-type]
    return Fault(name, [code("first", "print('first')", "first\n"), bad], "bad", words)


DAEMON = f"""import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "{MARK}"])
    os._exit(0)
os.wait()
print("started")"""
LATE = """import threading, time
def late():
    time.sleep(0.3)
    print("late")
threading.Thread(target=late).start()"""
ERROR_OUTPUT = [{"output_type": "error", "ename": "KeyError", "evalue": "1", "traceback": []}]
STDERR_OUTPUT = [{"output_type": "stream", "name": "stderr", "text": ["warn\n"]}]
RESULT_OUTPUT = [
    {"output_type": "execute_result", "execution_count": None, "data": {"text/plain": ["3"]}, "metadata": {}}
]

FAULTS = [
    one(
        "exception", "def f(x):\n    return 1 / x\nf(0)", "ZeroDivisionError", "12-exception.ipynb:bad:3", "bad:2 in f"
    ),
    one("syntax", "print(1)\nx = = 2", "SyntaxError", "syntax.ipynb:bad:2"),
    one("sys-exit", "import sys\nsys.exit(3)", "calls exit", "3"),
    one("sys-exit-zero", "raise SystemExit", "calls exit"),
    one("exit", "exit()", "calls exit"),
    one("os-exit-zero", "import os\nprint('x', flush=True)\nos._exit(0)", "ended inside this cell: exit status 0"),
    one("os-exit-three", "import os\nos._exit(3)", "ended inside this cell: exit status 3"),
    one("kill-self", "import os\nos.kill(os.getpid(), 9)", "ended inside this cell: killed by SIGKILL"),
    one("kill-group", "import os\nos.killpg(0, 9)", "ended inside this cell: killed by SIGKILL"),
    one(
        "kill-supervisor",
        "import os, time\ntime.sleep(0.3)\nos.kill(os.getppid(), 9)\ntime.sleep(60)",
        "supervisor is gone",
    ),
    one("segfault", "import ctypes\nctypes.string_at(0)", "killed by SIGSEGV", "segfault.ipynb:bad"),
    one(
        "endless-loop",
        "def spin():\n    while True:\n        pass\nspin()",
        "timeout",
        "endless-loop.ipynb:bad",
        "spin",
    ),
    one(
        "deaf-loop",
        "import time\nwhile True:\n    try:\n        time.sleep(9)\n    except BaseException:\n        pass",
        "timeout",
    ),
    one("endless-print", "while True:\n    print('x' * 5000)", "endless output"),
    one("big-print", "print('x' * 50_000_000)", "50,000,001 bytes of output; the limit is 1,048,576"),
    one("input", "name = input('who? ')", "nobody to answer input()"),
    one("echo", "x = 3\nx", "displays a value"),
    one("display", "display('x')", "calls display()"),
    one("missing-output", "print('now')", "output differs", "recorded: (nothing)", "+now"),
    one("ghost-output", "x = 1", "output differs", "now:      (nothing)", stdout="ghost\n"),
    one("one-character", "print('alpha beta')", "output differs", "-alpha bete", "+alpha beta", stdout="alpha bete\n"),
    one("blank-at-end", "print('a ')", "output differs", "+a·␊", "only blanks differ", stdout="a\n"),
    one("no-newline", "print('a', end='')", "output differs", stdout="a\n"),
    one("never-run", "x = 1", "never run", count="never"),
    one("gap", "x = 1", "execution count 5 where 2 should stand", count=5),
    one("recorded-result", "x = 3", "output of type execute_result", outputs=RESULT_OUTPUT),
    one("recorded-stderr", "x = 3", "stderr stream", outputs=STDERR_OUTPUT),
    one("no-raise", "x = 1", "raised nothing", tags=["raises-exception"]),
    one(
        "other-raise",
        "1 / 0",
        "KeyError is recorded",
        "ZeroDivisionError",
        tags=["raises-exception"],
        outputs=ERROR_OUTPUT,
    ),
    one("empty", "", "the code cell is empty"),
    one("child", f"import subprocess\np = subprocess.Popen(['sleep', '{MARK}'])", "still running", f"sleep {MARK}"),
    one("daemon", DAEMON, "still running", f"sleep {MARK}", stdout="started\n"),
    one("late-thread", LATE, "output after the cell had ended"),
    one(
        "endless-thread",
        "import threading\nthreading.Thread(target=threading.Event().wait, name='idle').start()",
        "'idle'",
    ),
    one("memory", "hog = [bytearray(40_000_000) for _ in range(100)]", "out of memory"),
    one("later-name", "import agentrl as arl\narl.late_name(1)", "late_name is saved in chapter Z (cell keep)"),
    one("later-import", "from agentrl import late_name", "late_name is saved in chapter Z (cell keep)"),
    one("later-module", "import agentrl.later", "is saved in chapter Z"),
    Fault(
        "late-in-next",
        [
            code("bad", LATE),
            code("wait", "import time\nx = 1\ntime.sleep(0.6)", "late\n"),
            code("end", "print(1)", "1\n"),
        ],
        "bad",
        ("output after the cell had ended",),
    ),
    Fault(
        "disorder", [code("a", "x = 1", count=2), code("b", "y = 2", count=1)], "a", ("not run top to bottom",), ("b",)
    ),
]
HOG_LIMIT = 400_000_000


def build(root: Path) -> dict[str, str]:
    """Write a book with every fault, each followed by a good chapter; return the faults' keys by name."""
    keys = {}
    keep = '#@save\ndef early_name(x: int) -> int:\n    """Return x."""\n    return x'
    write_book(root, {"00-base": [code("keep-early", keep)]})
    for number, fault in enumerate(FAULTS):
        keys[fault.name] = f"{2 * number + 10:02}"
    assert len(FAULTS) <= 45
    for number, fault in enumerate(FAULTS):
        write_chapter(root, f"{2 * number + 10:02}-{fault.name}", fault.cells)
        alive = code("alive", "import builtins\nprint('alive', hasattr(builtins, 'leak'))", "alive False\n")
        write_chapter(root, f"{2 * number + 11:02}-after-{fault.name}", [alive])
    late = '#@save\ndef late_name(x: int) -> int:\n    """Return x."""\n    return x'
    write_chapter(root, "Z-later", [code("keep", late)], module="later")
    return keys


@dataclass
class Run:
    """The one run that all faults are judged by."""

    checked: Checked
    cases: dict[str, dict[str, Case]]
    keys: dict[str, str]
    scratch: Path


@pytest.fixture(scope="session")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("faults")
    scratch = tmp_path_factory.mktemp("scratch")
    keys = build(root)
    options = ("-j", "2", "--timeout", "5", "--memory", str(HOG_LIMIT), "--junit", str(root / "out" / "junit.xml"))
    checked = check(root, *options, limit=300, TMPDIR=str(scratch))
    return Run(checked, junit_cases(root / "out" / "junit.xml"), keys, scratch)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_fault_is_named_with_its_cell(faults: Run, fault: Fault) -> None:
    cases = faults.cases[faults.keys[fault.name]]
    failed = cases[fault.cell]
    assert failed.status == "failed", faults.checked.out
    words = [w.replace("12-exception", f"{faults.keys['exception']}-exception") for w in fault.words]
    missing = [word for word in words if word not in f"{failed.message}\n{failed.text}"]
    assert not missing, f"{missing} not in:\n{failed.message}\n{failed.text}"
    others = {
        name: case for name, case in cases.items() if name not in (fault.cell, *fault.also) and case.status == "failed"
    }
    assert not others
    assert faults.checked.status(faults.keys[fault.name]) in ("differs", "failed")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_the_next_chapter_still_runs(faults: Run, fault: Fault) -> None:
    after = f"{int(faults.keys[fault.name]) + 1:02}"
    assert faults.cases[after]["alive"].status == "passed"
    assert faults.checked.status(after) == "ok"


def test_faults_make_exit_code_one_and_a_count(faults: Run) -> None:
    assert faults.checked.code == 1
    statuses = [case.status for cases in faults.cases.values() for case in cases.values()]
    passed, failed, skipped = (statuses.count(s) for s in ("passed", "failed", "skipped"))
    tail = f", {skipped} skipped" if skipped else ""
    assert faults.checked.last == f"{passed} passed, {failed} failed{tail}"
    assert failed == sum(1 + len(fault.also) for fault in FAULTS)
    assert "Traceback" not in faults.checked.err


def test_no_process_and_no_file_is_left(faults: Run) -> None:
    assert not marked_processes()
    assert list(faults.scratch.iterdir()) == []


def test_cells_after_a_failed_one_are_reported_as_not_run(tmp_path: Path) -> None:
    cells = [code("ok", "print(1)", "1\n"), code("boom", "1 / 0"), code("after", "print(2)", "2\n")]
    write_book(tmp_path, {"01-stops": cells, "02-goes-on": [code("on", "print(3)", "3\n")]})
    checked = check(tmp_path)
    assert checked.code == 1
    assert "  1 cell not run: cell boom failed (after)\n" in checked.out
    assert checked.status("02") == "ok"
    assert checked.last == "2 passed, 1 failed, 1 skipped"


def test_a_file_that_is_no_notebook_stops_itself_alone(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-fine": [code("a", "print(1)", "1\n")], "03-fine-too": [code("a", "print(3)", "3\n")]})
    (tmp_path / "chapters" / "02-broken.ipynb").write_text("{not json", encoding="utf-8")
    checked = check(tmp_path)
    assert checked.code == 2
    assert "chapters/02-broken.ipynb: error: not JSON" in checked.out
    assert (checked.status("01"), checked.status("03")) == ("ok", "ok")
    earlier = check(tmp_path, "01")
    assert earlier.code == 0
    assert "warning: not JSON" in earlier.out
    assert check(tmp_path, "02").code == 2


def test_stderr_is_shown_on_failure_and_never_compared(tmp_path: Path) -> None:
    noisy = "import sys\nprint('quiet')\nprint('noise 1', file=sys.stderr)"
    write_book(tmp_path, {"01-a": [code("fine", noisy, "quiet\n")], "02-b": [code("bad", noisy, "loud\n")]})
    checked = check(tmp_path)
    assert (checked.status("01"), checked.status("02")) == ("ok", "differs")
    assert checked.out.count("noise 1") == 1


def marked_processes() -> list[int]:
    """Return the processes that leftover tests started and that still live."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if MARK in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


STUBBORN = [
    code("child", f"import subprocess\nchild = subprocess.Popen(['sleep', '{MARK}'])"),
    code("daemon", DAEMON, "started\n"),
    code("forever", "while True:\n    pass"),
]


@pytest.fixture
def stubborn(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return write_book(tmp_path, {"01-stubborn": STUBBORN, "02-too": [code("forever", "while True:\n    pass")]})


@pytest.mark.parametrize("how", ["--spawn", "-j"], ids=["spawn", "fork"])
@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=["sigkill", "ctrl-c", "sigterm"]
)
def test_nothing_survives_the_checker(stubborn: Path, number: signal.Signals, how: str) -> None:
    options = [how] if how == "--spawn" else [how, "2"]
    scratch = stubborn / "scratch"
    process = subprocess.Popen(
        command(stubborn, *options), env=environment(TMPDIR=str(scratch)), preexec_fn=hearing,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert wait_until(lambda: len(marked_processes()) == 2)
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) >= 3
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()  # else a failure would leave endless cells to the tests that follow
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert b"Traceback" not in errors
    assert wait_until(lambda: not marked_processes() and not any(alive(p) for p in family))
    assert wait_until(lambda: list(scratch.iterdir()) == [])


def test_termination_while_the_server_imports_leaves_no_folder(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    write_book(tmp_path, {"01-a": [code("a", "import torch\nprint(1)", "1\n")]})
    process = subprocess.Popen(
        command(tmp_path, "--no-cache"),
        env=environment(TMPDIR=str(scratch)),
        preexec_fn=hearing,
        stdout=subprocess.PIPE,
    )
    assert wait_until(lambda: any(scratch.glob("agentrl-check-*")))
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert wait_until(lambda: not any(scratch.glob("agentrl-check-*")))


def alive(process: psutil.Process) -> bool:
    """Return whether the process still runs."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
