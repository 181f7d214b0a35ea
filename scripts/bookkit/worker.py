"""Runs the cells of one notebook in the process it is called in, and says what happened, cell by cell.

The supervisor made this process, watches it from outside and cuts the output files at the offsets told here. Whatever
a cell does to this process (exit, crash, monkeypatch, chdir) ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import io
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from os import _exit
from typing import Any, NoReturn

from . import libguard
from .shell import Compiler, Shown, describe, make_shell, own
from .supervisor import hear_of_parents_death

asyncio, contextlib, json, os, signal = own(asyncio), own(contextlib), own(json), own(os), own(signal)
threading, time, traceback = own(threading), own(time), own(traceback)

STACKS = signal.SIGUSR2
THREAD_GRACE = 2.0
RAISED, PASSED = 10, 0
UMASK = 0o022
# Python ignores these itself: a write to what nobody reads raises an exception.
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)


@dataclass(frozen=True)
class Channels:
    """File descriptors the supervisor gives: the two output files, one for stacks, the pipes for events and acks."""

    out: int
    err: int
    stacks: int
    events: int
    acks: int


class Stdout(io.TextIOWrapper):
    """Unbuffered text to a descriptor that notes threads which print after their cell has ended."""

    note: Callable[[int], None] | None = None
    main = 0

    def write(self, text: str, /) -> int:
        """Write text; tell the worker when another thread than the main one does."""
        ident = threading.get_ident()
        if ident != self.main and self.note is not None:
            self.note(ident)
        return super().write(text)


class Worker:
    """The state of a run: the job, the channels, the shell, and which cell started which thread."""

    def __init__(self, job: dict[str, Any], channels: Channels) -> None:
        self.job = job
        self.channels = channels
        self.pid = os.getpid()
        self.current = -1
        self.born: dict[int, int] = {}
        self.late: set[int] = set()

    def send(self, **event: Any) -> None:
        """Send one event to the supervisor."""
        data = (json.dumps(event) + "\n").encode("ascii")
        while data:
            data = data[os.write(self.channels.events, data) :]

    def wait_for_ack(self) -> None:
        """Wait until the supervisor has taken stock: what runs then was left by the cell that has just ended."""
        os.read(self.channels.acks, 1)

    def offsets(self) -> dict[str, int]:
        """Flush everything this process buffers and return the sizes of the output files."""
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            with contextlib.suppress(Exception):
                stream.flush()  # type: ignore[union-attr]
        _flush_c()
        return {"out": os.fstat(self.channels.out).st_size, "err": os.fstat(self.channels.err).st_size}

    def note_write(self, ident: int) -> None:
        """Remember that the thread `ident` printed although the cell that started it has ended."""
        if self.born.get(ident, self.current) < self.current:
            self.late.add(self.born[ident])

    def note_threads(self, index: int) -> None:
        """Remember the threads that are alive at the end of cell `index` as started by it, unless known."""
        for thread in threading.enumerate():
            if thread.ident is not None:
                self.born.setdefault(thread.ident, index)

    async def run(self) -> None:
        """Run every cell of the job in order, up to the first that raises or leaves."""
        self.shell = make_shell()
        self.note_threads(-1)
        for index, cell in enumerate(self.job["cells"]):
            if cell["run"] and not await self.run_cell(index, cell):
                self.send(event="finish", stopped=True, late=[], threads=[], **self.offsets())
                return
            await asyncio.sleep(0)
        threads = self.join_threads()
        self.send(event="finish", stopped=False, late=sorted(self.late), threads=threads, **self.offsets())

    async def run_cell(self, index: int, cell: dict[str, Any]) -> bool:
        """Run one cell and send what came of it; return whether the next one may run."""
        self.current = index
        self.send(event="begin", index=index, **self.offsets())
        place = Compiler.place = f"{self.job['name']}:{cell['id']}"
        shown = self.shell.shown = Shown()
        started = time.perf_counter()
        error = await self.execute(cell["source"])
        self.end_if_forked(index)
        error = error or shown.error
        seconds = time.perf_counter() - started
        self.note_threads(index)
        said = {"echoes": shown.echoes, "displays": shown.displays, "exits": shown.exits}
        described = describe(error, place, self.job["scratch"]) if error is not None else None
        leaves = isinstance(error, SystemExit) or shown.exits
        if leaves:
            said["exits"] = True
        self.send(event="end", index=index, seconds=seconds, error=described, **said, **self.offsets())
        self.wait_for_ack()
        going_on = not leaves and (error is None or "raises-exception" in cell["tags"])
        if going_on and cell.get("probe") is not None:
            self.probe(index, cell["probe"])
        return going_on

    def end_if_forked(self, index: int) -> None:
        """End a fork that came back from the cell: it would run the rest of the notebook a second time."""
        if os.getpid() != self.pid:
            self.send(event="forked", index=index)
            _exit(0)

    async def execute(self, source: str) -> BaseException | None:
        """Run a cell's source inside the live event loop, as a kernel does; return what it raised."""
        shell, failed = self.shell, None
        try:
            transformed = shell.transform_cell(source)
        except Exception:
            transformed, failed = source, sys.exc_info()
        try:
            result = await shell.run_cell_async(
                source, store_history=True, transformed_cell=transformed, preprocessing_exc_tuple=failed
            )
        except BaseException as error:
            return error
        finally:
            shell.events.trigger("post_execute")
        shell.events.trigger("post_run_cell", result)
        return result.error_before_exec or result.error_in_exec

    def probe(self, index: int, source: str) -> None:
        """Run an exercise's test against its stub in a fork of this process, its output discarded."""
        self.send(event="probe", index=index)
        self.offsets()
        pid = os.fork()
        if pid == 0:
            self.probe_child(source)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.send(event="probed", index=index, status=status, **self.offsets())

    def probe_child(self, source: str) -> NoReturn:
        """Run the test in this fork, as a cell; the exit status says whether it raised."""
        status = 1
        try:
            hear_of_parents_death(signal.SIGKILL)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            torch = sys.modules.get("torch")
            if torch is not None and torch.get_num_threads() > 1:
                torch.set_num_threads(1)  # a pool of threads does not survive a fork
            shown = self.shell.shown = Shown()
            loop = asyncio.new_event_loop()  # nor does the event loop of the notebook
            asyncio.set_event_loop(loop)
            error = loop.run_until_complete(self.execute(source)) or shown.error
            status = PASSED if error is None else RAISED
        finally:
            _exit(status)

    def join_threads(self) -> list[dict[str, Any]]:
        """Give threads that are not daemons a moment to end; return those that do not."""
        deadline = time.perf_counter() + THREAD_GRACE
        mine = [t for t in threading.enumerate() if t is not threading.current_thread() and not t.daemon]
        # Idle workers of a thread pool end when the interpreter says it is shutting down, as at a normal exit.
        pools = sys.modules.get("concurrent.futures.thread")
        if pools is not None and mine:
            with contextlib.suppress(Exception):
                threading.Thread(target=pools._python_exit, daemon=True).start()
        for thread in mine:
            thread.join(max(0.0, deadline - time.perf_counter()))
        last = len(self.job["cells"]) - 1
        return [{"name": t.name, "index": self.born.get(t.ident or 0, last)} for t in mine if t.is_alive()]


def _flush_c() -> None:
    """Flush the C library's buffers: extensions print through them."""
    if _libc is not None:
        _libc.fflush(None)


def _load_libc() -> Any:
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):
        return None


_libc = _load_libc()


def main(job: dict[str, Any], channels: Channels) -> NoReturn:
    """Run the job in this process and end it."""
    status = 0
    worker = Worker(job, channels)
    try:
        _prepare(job, channels, worker)
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(worker.run())
    except BaseException as error:
        status = 70
        with contextlib.suppress(BaseException):
            worker.send(event="crash", message="".join(traceback.format_exception(error)))
    _exit(status)


def _forget_callers_ways() -> None:
    """Have signals and the rights of new files as usual, whatever the checker was started with (nohup, a shell's &)."""
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN and number not in IGNORED:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(UMASK)


def _prepare(job: dict[str, Any], channels: Channels, worker: Worker) -> None:
    """Make this process look like a kernel's: streams, paths, arguments, environment, working directory."""
    os.setsid()
    hear_of_parents_death(signal.SIGKILL)
    _forget_callers_ways()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (channels.out, 1), (channels.err, 2)):
        os.dup2(source, target)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    out = Stdout(io.FileIO(1, "w", closefd=False), encoding="utf-8", errors="replace", write_through=True)  # type: ignore[arg-type]
    out.main, out.note = threading.get_ident(), worker.note_write
    err_file = io.FileIO(2, "w", closefd=False)
    err = io.TextIOWrapper(err_file, encoding="utf-8", errors="backslashreplace", write_through=True)  # type: ignore[arg-type]
    sys.stdout = sys.__stdout__ = out
    sys.stderr = sys.__stderr__ = err
    faulthandler.enable(file=channels.stacks, all_threads=True)
    faulthandler.register(STACKS, file=channels.stacks, all_threads=True, chain=False)
    os.environ.update(job["env"])
    os.chdir(job["cwd"])
    sys.argv = [""]
    warnings.filterwarnings("ignore", message="To exit: use")  # IPython's advice for terminals
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    kept = [p for p in sys.path if p and os.path.abspath(p) != here]
    site = next((i for i, p in enumerate(kept) if "-packages" in p), len(kept))
    sys.path[:] = [job["lib"], *kept[:site], "", *kept[site:]]  # the working directory where IPython puts it
    libguard.install(job["lib"])
    for name in [n for n in sys.modules if n == "bookkit" or n.startswith("bookkit.")]:
        if name not in ("bookkit", "bookkit.shell", "bookkit.worker", "bookkit.libguard"):
            del sys.modules[name]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()  # a fork starts with its parent's state: nobody may come to rely on that


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        JOB = json.load(file)
    main(JOB, Channels(*(int(n) for n in sys.argv[2:7])))
