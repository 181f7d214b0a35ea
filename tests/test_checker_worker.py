"""What cells do to the process they run in, and what that process owes to whoever started the checker: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from checking import Checked, check, command, environment, junit_cases, wait_until
from synthetic import CellDict, code, write_book, write_chapter

CAUGHT = """import contextlib, io
text = io.StringIO()
with contextlib.redirect_stdout(text):
    get_ipython().system("printf 'a\\\\303'; printf '\\\\251 b' >&2; exit 3")
print(repr(text.getvalue()), _exit_code)"""
TEE = """import sys
class Tee:
    def __init__(self, stream):
        self.stream, self.seen = stream, []
    def write(self, text):
        self.seen.append(text)
        return self.stream.write(text)
    def flush(self):
        self.stream.flush()
tee = sys.stdout = Tee(sys.stdout)
get_ipython().system('echo both')
sys.stdout = tee.stream
print(tee.seen)"""
IN_JUPYTER = """from transformers.utils import generic
import rich.console, tqdm.autonotebook
print(rich.console._is_jupyter(), get_ipython().__class__.__name__, "IPKernelApp" in get_ipython().config)"""
# What a worker, its shell and a kernel's drain use between cells.
PATCHES = {
    "asyncio": ("sleep", "new_event_loop", "set_event_loop", "get_running_loop"),
    "contextlib": ("suppress",),
    "ctypes": ("CDLL",),
    "json": ("dumps", "loads"),
    "os": ("write", "read", "fstat", "fork", "waitpid", "dup2", "open", "getpid", "fsdecode", "_exit"),
    "signal": ("signal", "getsignal", "Signals"),
    "threading": ("enumerate", "current_thread", "Thread"),
    "time": ("time", "perf_counter", "sleep"),
    "traceback": ("extract_tb", "format_exc", "print_exc"),
}
RAISES = "def gone(*args, **kwargs):\n    raise NotImplementedError('gone')"
PATCHED = f"{RAISES}\nimport {', '.join(PATCHES)}\n" + "\n".join(
    f"{module}.{name} = gone" for module, names in PATCHES.items() for name in names
)
PATCHED += "\ntime.monotonic = lambda: 0.0"  # which asyncio itself reads
# A kernel reads the time and its messages with what it finds in the modules; so only what the checker adds to it.
PATCHED_IN_KERNEL = f"{RAISES}\nimport os\nos.write = gone"
SIGNALS = """import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print('interrupted')
ignored = [s.name for s in signal.Signals if signal.getsignal(s) == signal.SIG_IGN]
print(ignored, signal.pthread_sigmask(signal.SIG_BLOCK, ()))
open('new', 'w').close()
print(oct(os.stat('new').st_mode), subprocess.run(['false']).returncode if 'subprocess' in globals() else 1)"""
SIGNALS_SHOWN = "interrupted\n['SIGPIPE', 'SIGXFSZ'] set()\n0o100644 1\n"
CHAPTERS = {
    "01-caught": [
        code("capture", "%%capture seen\n!echo hidden; echo too >&2", ""),
        code("captured", "print(repr(seen.stdout))", "'hidden\\ntoo\\n'\n"),
        code("redirect", CAUGHT, "'aé b' 3\n"),
        code("tee", TEE, "both\n['both\\n']\n"),
        code("not-caught", "!echo plain", "plain\n"),
    ],
    "02-jupyter": [
        code("names", IN_JUPYTER, "True ZMQInteractiveShell True\n"),
        code("rich", "import rich\nrich.print('hello')"),
    ],
    "03-daemon": [
        code("daemon", "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"),
        code("next", "print(1)", "1\n"),
    ],
    "04-surrogate": [code("raises", "raise ValueError('half \\ud800')", tags=["raises-exception"])],
}  # fmt: skip
PATCHING = [
    code("patch-programs", f"{RAISES}\nimport subprocess\nsubprocess.run = subprocess.Popen = gone"),
    code("shell", "!echo still", "still\n"),
    code("patch", PATCHED),
    code("raises", "1 / 0", tags=["raises-exception"]),
    code("waits", "async def one():\n    return 1\nprint(await one())", "1\n"),
    code("stub", "def half(x):\n    raise ValueError", role="stub", exercise="1.1"),
    code("solution", "def half(x):\n    return x / 2", role="solution", exercise="1.1"),
    code("test", "print(half(4))", "2.0\n", role="test", exercise="1.1"),
    code("wrong", "print('one')", "two\n"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Checked]:
    """Return the book of these chapters, checked once."""
    root = write_book(tmp_path_factory.mktemp("worker"), CHAPTERS)
    write_chapter(root, "05-patched", [code("a", "x = 1")])
    write_chapter(root, "05-patched", PATCHING, kind="solutions")
    return root, check(root, "-j", "2", "--no-cache", "--timeout", "30", "--junit", str(root / "junit.xml"))


def test_shell_output_goes_where_the_cell_sends_it(run: tuple[Path, Checked]) -> None:
    assert run[1].status("01") == "ok", run[1].out


def test_libraries_take_the_shell_for_jupyters(run: tuple[Path, Checked]) -> None:
    cases = junit_cases(run[0] / "junit.xml")["02"]
    assert cases["names"].status == "passed", cases["names"].text
    assert cases["rich"].message == "the cell calls display(); print instead"


def test_a_daemon_thread_is_nobodys_fault(run: tuple[Path, Checked]) -> None:
    assert run[1].status("03") == "ok", run[1].out


def test_a_cell_that_patches_what_the_worker_uses_breaks_itself_alone(run: tuple[Path, Checked]) -> None:
    cases = junit_cases(run[0] / "junit.xml")["05/solutions"]
    failed = [name for name, case in cases.items() if case.status != "passed"]
    assert failed == ["wrong"], run[1].out
    assert cases["wrong"].message == "output differs"


def test_half_a_character_in_a_message_can_be_recorded(run: tuple[Path, Checked], tmp_path: Path) -> None:
    write_book(tmp_path, {"04-surrogate": CHAPTERS["04-surrogate"]})
    checked = check(tmp_path, "--update")
    assert (checked.code, checked.status("04")) == (0, "recorded"), checked.out + checked.err
    assert "half \\\\ud800" in (tmp_path / "chapters" / "04-surrogate.ipynb").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_kernels_drain_survives_patches_too(tmp_path: Path) -> None:
    cells = [code("patch", PATCHED_IN_KERNEL), code("shell", "!echo still", "still\n"), code("p", "print(1)", "1\n")]
    checked = check(write_book(tmp_path, {"01-a": cells}), "--kernel", "--timeout", "30")
    assert checked.code == 0, checked.out


def ignore_and_block() -> None:
    """Leave to the program that starts what `nohup`, a shell's `&` and worse leave to theirs."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGQUIT, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTERM, signal.SIGINT])
    os.umask(0o077)


def checked_by(caller: Callable[[], None], root: Path, *options: str) -> Checked:
    """Run the checker as a process that has done `caller` would."""
    done = subprocess.run(
        command(root, *options), env=environment(), capture_output=True, encoding="utf-8", timeout=120,
        preexec_fn=caller,
    )  # fmt: skip
    return Checked(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("engine", ["-j1", "--spawn"])
def test_cells_do_not_inherit_signals_and_rights_from_the_caller(tmp_path: Path, engine: str) -> None:
    root = write_book(tmp_path, {"01-a": [code("signals", SIGNALS, SIGNALS_SHOWN)]})
    checked = checked_by(ignore_and_block, root, "--no-cache", engine)
    assert checked.code == 0, checked.out + checked.err


def solutions(root: Path, stub: str, test: str) -> Checked:
    """Check an exercise with this stub and this test."""
    cells: list[CellDict] = [
        code("earlier", "import asyncio\nawait asyncio.sleep(0)"),
        code("stub", stub, role="stub", exercise="1.1"),
        code("solution", "async def f():\n    return 1", role="solution", exercise="1.1"),
        code("test", test, role="test", exercise="1.1"),
    ]
    write_book(root, {"01-a": [code("a", "x = 1")]})
    write_chapter(root, "01-a", cells, kind="solutions")
    return check(root, "01/solutions", "--no-cache", "--timeout", "20")


AWAITING = "import asyncio\nawait asyncio.sleep(0.01)\nassert await asyncio.wait_for(f(), 9) == 1"


def test_a_stub_is_tested_with_await_as_a_cell_is(tmp_path: Path) -> None:
    good = solutions(tmp_path / "good", "async def f():\n    raise NotImplementedError", AWAITING)
    assert good.code == 0, good.out
    vacuous = solutions(tmp_path / "vacuous", "async def f():\n    return 1", AWAITING)
    assert vacuous.code == 1
    assert "exercise 1.1: the stub passes its test" in vacuous.out


@pytest.mark.slow
def test_a_kernels_timeout_below_a_second_is_a_second(tmp_path: Path) -> None:
    root = write_book(tmp_path, {"01-a": [code("forever", "while True:\n    pass")]})
    checked = check(root, "--kernel", "--timeout", "0.4", limit=60)
    assert checked.code == 1
    assert "timeout: not finished after 1 s" in checked.out


def test_when_the_fork_server_dies_every_notebook_has_a_line_and_none_a_verdict(tmp_path: Path) -> None:
    slow = f"import pathlib, time\npathlib.Path({str(tmp_path / 'begun')!r}).touch()\ntime.sleep(600)"
    one = [code("one", "print(1)", "1\n")]
    root = write_book(tmp_path / "book", {"01-first": one, "02-slow": [code("slow", slow)], "03-never": one})
    process = subprocess.Popen(
        command(root, "--no-cache", "-j", "1"), env=environment(), encoding="utf-8",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert wait_until((tmp_path / "begun").exists, 60)
    servers = [p for p in psutil.Process(process.pid).children() if "bookkit.forkserver" in p.cmdline()]
    for server in servers:
        server.kill()
    out, err = process.communicate(timeout=60)
    found = Checked(process.returncode, out, err)
    assert found.code == 2
    assert [found.status(label) for label in ("01", "02", "03")] == ["ok", "run", "run"]
    assert out.count("  not run\n") == 2
    assert found.last == "1 passed, 0 failed, 2 skipped"
    assert "the fork server has ended" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("engine", ["-j1", "--spawn", "--kernel"])
def test_the_commonest_magic_works(tmp_path: Path, engine: str) -> None:
    source = "%matplotlib inline\nimport matplotlib\nprint(matplotlib.get_backend())"
    write_book(tmp_path, {"01-a": [code("inline", source, "inline\n")]})
    checked = check(tmp_path, engine)
    assert checked.code == 0, checked.out
