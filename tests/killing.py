"""Ends a program at a chosen or random moment, and finds what it left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from checking import environment, hearing, wait_until

MARK = "AGENTRL_TEST_RUN"
# Counts what the program asks of the operating system and, when the chosen request is made, sends itself the signal.
# Only the program itself does: what it starts does not find the variable any more.
HOOK = """
import atexit, os, sys
at, number, report = os.environ.pop("AGENTRL_TEST_MOMENT", "0 0 ").split(" ", 2)
at, number, count = int(at), int(number), 0
groups = ("os.", "shutil.", "socket.", "subprocess.", "fcntl.", "tempfile.")
def strike(event, args):
    global count
    if event.startswith(groups) or (event == "open" and not str(args[0]).endswith((".pyc", ".py"))):
        count += 1
        if count == at:
            os.kill(os.getpid(), number)
if report:
    sys.addaudithook(strike)
    atexit.register(lambda: open(report, "w").write(str(count)))
"""


@dataclass
class Ended:
    """How a program ended: exit code (negative: the signal), what it printed, how long it took, its moments.

    `seen` are the processes of the run just before the signal, where that was sent after some time.
    """

    code: int
    out: str
    err: str
    seconds: float
    moments: int
    mark: str
    seen: list[str]


def end(
    command: list[str],
    scratch: Path,
    how: signal.Signals = signal.SIGKILL,
    moment: int = 0,
    after: float | None = None,
    when: Callable[[list[str]], bool] | None = None,
) -> Ended:
    """Run a program and send it a signal: at a moment (the number of a request to the system), or after some seconds,
    or when that can be said of the processes of the run.

    With none of these it runs to its end, and says how many moments it has. Its temporary files go to `scratch`.
    """
    hooks = scratch.with_name(scratch.name + "-hooks")
    for folder in (scratch, hooks):
        folder.mkdir(exist_ok=True)
    (hooks / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    report, mark = hooks / "moments", uuid.uuid4().hex
    report.unlink(missing_ok=True)
    told = {"AGENTRL_TEST_MOMENT": f"{moment} {int(how)} {report}", MARK: mark}
    env = environment(PYTHONPATH=str(hooks), TMPDIR=str(scratch), **told)
    started, seen = time.monotonic(), []
    process = subprocess.Popen(
        command, env=env, preexec_fn=hearing, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )
    try:
        if when is not None:
            assert wait_until(lambda: when(left(mark)), 60), left(mark)
            after = 0
        out, err = process.communicate(timeout=120 if after is None else after)
    except subprocess.TimeoutExpired:
        seen = left(mark)
        process.send_signal(how if after is not None else signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
    moments = int(report.read_text()) if report.exists() else 0
    return Ended(process.returncode, out, err, time.monotonic() - started, moments, mark, seen)


def of_run(mark: str) -> list[psutil.Process]:
    """Return the processes of a run that still live."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def left(mark: str) -> list[str]:
    """Return the processes of a run that still live, by command."""
    found = []
    for process in of_run(mark):
        with contextlib.suppress(psutil.Error):
            found.append(" ".join(process.cmdline()))
    return found


def none_left(mark: str, seconds: float = 90.0) -> list[str]:
    """Wait until no process of a run lives; return those that outlast the time, which are ended then."""
    wait_until(lambda: not left(mark), seconds)
    outlasting = left(mark)
    for process in of_run(mark):
        with contextlib.suppress(psutil.Error):
            process.kill()
    return outlasting


def files(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, by its path there, hidden ones too, and empty folders as such."""
    found = {}
    for here, folders, names in os.walk(folder):
        for name in names:
            path = Path(here, name)
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
        if not folders and not names:
            found[Path(here).relative_to(folder).as_posix() + "/"] = b""
    return found
