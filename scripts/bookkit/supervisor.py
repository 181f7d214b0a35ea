"""Watches one worker from outside: reads its output, keeps it within limits, and leaves no process behind.

One supervisor per notebook. Its events go to the checker as JSON lines over a socket; when that socket closes, because
the checker ended in whatever way, it kills all that the notebook started and ends too.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
STACKS = signal.SIGUSR2
TICK = 0.05
WATCH_EVERY = 0.25
HEARTBEAT_EVERY = 2.0
START_LIMIT = 60.0
FINISH_LIMIT = 30.0
STDERR_KEPT = 16 * 1024
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "multiprocessing.semaphore_tracker")

LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # at once: a cell may replace ctypes.CDLL
StartWorker = Callable[[dict[str, Any], "dict[str, int]"], int]


class Supervisor:
    """The state of one watch: the worker, the cell it is in, what has been read, what the limits are."""

    def __init__(self, job: dict[str, Any], parent: socket.socket) -> None:
        self.job = job
        self.parent = parent
        self.limits = job["limits"]
        self.out, self.err, self.stacks = (_unlinked_file(job["scratch"]) for _ in range(3))
        self.events, self.events_in = os.pipe()
        self.acks_out, self.acks = os.pipe()
        self.buffer = b""
        self.worker = 0
        self.status: int | None = None
        self.current: int | None = None
        self.finished = False
        self.ends = {"out": 0, "err": 0}
        self.begins = {"out": 0, "err": 0}
        self.last_run: int | None = None
        self.deadline = time.monotonic() + START_LIMIT
        self.seen: dict[int, int] = {}
        self.watched = self.beaten = 0.0
        self.probing = False

    def run(self, start: StartWorker) -> None:
        """Start the worker, relay until it has ended or must be ended, then clean up."""
        fds = {"out": self.out, "err": self.err, "stacks": self.stacks, "events": self.events_in, "acks": self.acks_out}
        self.worker = start(self.job, fds)
        os.close(self.events_in)
        os.close(self.acks_out)
        try:
            while not self.step():
                pass
        except (ConnectionError, Abandoned):
            return  # nobody listens any more
        except Exception:
            self.send(event="crash", message=traceback.format_exc())
        finally:
            kill_everything(self.worker)
            shutil.rmtree(self.job["scratch"], ignore_errors=True)

    def send(self, **event: Any) -> None:
        """Send one event to the checker."""
        self.parent.sendall((json.dumps(event) + "\n").encode("ascii"))

    def step(self) -> bool:
        """Wait a moment for something to happen and handle it; return whether the watch is over."""
        ready, _, _ = select.select([self.parent, self.events], [], [], TICK)
        if self.parent in ready and not self.parent.recv(4096):
            raise Abandoned
        if self.events in ready:
            self.read_events()
        if self.status is None:
            self.status = reap(self.worker)
        if self.status is not None:
            self.read_events()
            self.worker_ended()
            return True
        return self.check_limits()

    def read_events(self) -> None:
        """Read what the worker has written to the pipe and handle every complete line."""
        while select.select([self.events], [], [], 0)[0]:
            data = os.read(self.events, 65536)
            if not data:
                break
            self.buffer += data
        *lines, self.buffer = self.buffer.split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # a cell wrote to the pipe
                self.handle(json.loads(line))

    def handle(self, event: dict[str, Any]) -> None:
        """Act on one event of the worker."""
        kind = event.pop("event")
        now = time.monotonic()
        if kind == "begin":
            self.note_late(event)
            self.current, self.begins = event["index"], {k: event[k] for k in ("out", "err")}
            self.deadline = now + self.limits["timeout"]
            self.send(event="begin", index=self.current)
        elif kind == "end":
            self.end_cell(event)
            self.deadline = now + FINISH_LIMIT
        elif kind == "probe":
            self.current, self.probing, self.deadline = event["index"], True, now + self.limits["timeout"]
        elif kind == "probed":
            self.probing, self.current = False, None
            self.ends = {k: event[k] for k in ("out", "err")}
            self.send(event="probed", index=event["index"], status=event["status"])
            self.deadline = now + FINISH_LIMIT
        elif kind == "finish":
            self.finish(event)
        else:
            self.send(event=kind, **event)

    def end_cell(self, event: dict[str, Any]) -> None:
        """Cut the cell's output from the files and pass it on; remember the children it started."""
        index = event["index"]
        self.note_children(index)
        with contextlib.suppress(BrokenPipeError):
            os.write(self.acks, b".")
        output, size = self.cut("out", self.begins["out"], event["out"])
        stderr, _ = self.cut("err", self.begins["err"], event["err"])
        self.ends = {k: event.pop(k) for k in ("out", "err")}
        self.current, self.last_run = None, index
        self.send(event="end", stdout=output, stderr=stderr, size=size, **event)

    def cut(self, name: str, start: int, end: int) -> tuple[str, int]:
        """Return a stretch of an output file as text, cut to its limit, and its whole size."""
        fd = self.out if name == "out" else self.err
        size = max(0, end - start)
        if name == "out":
            data = os.pread(fd, min(size, self.limits["output"]), start)
        else:
            kept = min(size, STDERR_KEPT)
            data = os.pread(fd, kept, end - kept)
        return data.decode("utf-8", errors="replace"), size

    def note_late(self, event: dict[str, Any]) -> None:
        """Report bytes that arrived after the last cell had ended."""
        if self.last_run is not None and event["out"] > self.ends["out"]:
            text, _ = self.cut("out", self.ends["out"], event["out"])
            self.send(event="late", index=self.last_run, text=text)

    def note_children(self, index: int) -> None:
        """Remember which cell was the first to leave which child process alive."""
        for pid in child_pids(self.worker) | (child_pids(os.getpid()) - {self.worker}):
            self.seen.setdefault(pid, index)

    def finish(self, event: dict[str, Any]) -> None:
        """Report what outlived the last cell: late output, threads, child processes."""
        self.finished = True
        self.deadline = time.monotonic() + FINISH_LIMIT
        if event["stopped"]:
            return
        if not event["late"]:  # else the cells whose threads print late are known, and the last cell is not to blame
            self.note_late(event)
        for index in event["late"]:
            self.send(event="late", index=index, text="")
        for thread in event["threads"]:
            self.send(event="thread", **thread)
        for pid, name in leftover(self.worker, 0.5).items():
            self.send(event="child", index=self.seen.get(pid, self.last_run or 0), name=name)

    def worker_ended(self) -> None:
        """Say how the worker ended, and in which cell when it was not at the end of the notebook."""
        if not self.finished:
            self.fail("died", status=self.status, stacks=self.read_stacks())
        self.send(event="done")

    def check_limits(self) -> bool:
        """End the worker when it is over time, memory or output; return whether it was."""
        now = time.monotonic()
        if now > self.deadline:
            self.fail("timeout", stacks=self.ask_stacks(), seconds=self.limits["timeout"], probe=self.probing)
        elif max(os.fstat(self.out).st_size, os.fstat(self.err).st_size) > self.limits["output_hard"]:
            self.fail("output", limit=self.limits["output_hard"])
        elif now - self.watched > WATCH_EVERY and (used := self.memory()) > self.limits["memory"]:
            self.fail("memory", used=used, limit=self.limits["memory"])
        else:
            if now - self.beaten > HEARTBEAT_EVERY:
                self.beaten = now
                self.send(event="alive")
            return False
        self.send(event="done")
        return True

    def memory(self) -> int:
        """Return the resident memory of the worker and all it started, in bytes."""
        self.watched = time.monotonic()
        total = 0
        for process in _tree(os.getpid()):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
        return total

    def fail(self, kind: str, **details: Any) -> None:
        """Stop the worker and send why, with what the running cell had printed."""
        if self.status is None:
            kill(self.worker)
            if kind in ("output", "memory"):
                self.status = _wait(self.worker, 5.0)
        running = {} if self.current is None else self.begins
        texts = {}
        for name, fd in (("out", self.out), ("err", self.err)):
            begin = running.get(name, self.ends[name])
            texts[name], texts[name + "_size"] = self.cut(name, begin, os.fstat(fd).st_size)
        self.send(
            event="fail", kind=kind, index=self.current, last=self.last_run, **details,
            stdout=texts["out"], size=texts["out_size"], stderr=texts["err"],
        )  # fmt: skip

    def ask_stacks(self) -> str:
        """Have the worker write its Python stacks and return them."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.worker, STACKS)
        size = -1
        for _ in range(20):
            time.sleep(TICK)
            now = os.fstat(self.stacks).st_size
            if now and now == size:
                break
            size = now
        return self.read_stacks()

    def read_stacks(self) -> str:
        """Return what faulthandler has written so far."""
        return os.pread(self.stacks, 32768, 0).decode("utf-8", errors="replace")


class Abandoned(Exception):
    """The checker has gone."""


def _unlinked_file(folder: str) -> int:
    """Return a descriptor of a file that has no name any more; writers append, whoever they are."""
    name = os.path.join(folder, f"stream-{time.monotonic_ns()}")
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    os.unlink(name)
    return fd


def reap(pid: int) -> int | None:
    """Return the exit code of a child (negative: its signal) when it has ended, else None."""
    with contextlib.suppress(ChildProcessError):
        done, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if done else None
    return 255


def _wait(pid: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while (status := reap(pid)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return status


def kill(pid: int) -> None:
    """Send SIGKILL, if the process is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _tree(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def child_pids(pid: int) -> set[int]:
    """Return the direct children of a process, cheaply where Linux lists them."""
    found: set[int] = set()
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found.update(int(word) for word in file.read().split())
    except OSError:
        with contextlib.suppress(psutil.Error):
            found.update(child.pid for child in psutil.Process(pid).children())
    return found


def leftover(worker: int, grace: float) -> dict[int, str]:
    """Return the live processes a notebook started, by command, after giving them `grace` seconds to end."""
    deadline = time.monotonic() + grace
    while True:
        alive = {p.pid: name for p in _tree(os.getpid()) if p.pid != worker and (name := _name(p))}
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(TICK)


def _name(process: psutil.Process) -> str:
    """Return a process's command, or "" when it does not count: it has ended, or serves multiprocessing."""
    with contextlib.suppress(psutil.Error):
        if process.status() == psutil.STATUS_ZOMBIE:
            return ""
        command = " ".join(process.cmdline()) or process.name()
        return "" if any(helper in command for helper in HELPERS) else command[:120]
    return ""


def kill_everything(worker: int) -> None:
    """Kill the worker and every descendant of this process, also those that left its session, and reap them."""
    kill(worker)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker, signal.SIGKILL)
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline:
        for process in _tree(os.getpid()):
            kill(process.pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def adopt_orphans() -> None:
    """On Linux, become the parent of every descendant whose own parent ends."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def hear_of_parents_death(number: int = signal.SIGTERM) -> None:
    """On Linux, get this signal when the process that forked this one ends (which must have one thread only)."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def _abandon(*_: Any) -> NoReturn:
    raise Abandoned


def supervise(job_path: str, parent: socket.socket, start: StartWorker) -> None:
    """Run the job described in `job_path` to its end, telling `parent`."""
    signal.signal(signal.SIGTERM, _abandon)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it cannot learn how a child has ended
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    with open(job_path, encoding="utf-8") as file:
        job = json.load(file)
    with contextlib.suppress(Abandoned):
        Supervisor(job, parent).run(start)


def spawn_worker(job: dict[str, Any], fds: dict[str, int]) -> int:
    """Start the worker as a fresh Python process, for platforms where forking is not safe."""
    import subprocess

    numbers = [fds[name] for name in ("out", "err", "stacks", "events", "acks")]
    command = [sys.executable, "-m", "bookkit.worker", job["path"], *map(str, numbers)]
    return subprocess.Popen(command, pass_fds=numbers, stdin=subprocess.DEVNULL).pid


def main() -> int:
    """Supervise one spawned notebook: `python -m bookkit.supervisor JOB SOCKET_FD`."""
    adopt_orphans()
    supervise(sys.argv[1], socket.socket(fileno=int(sys.argv[2])), spawn_worker)
    return 0


if __name__ == "__main__":
    sys.exit(main())
