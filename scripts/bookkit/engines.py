"""The two fast ways to run a notebook: a fork of a server that has imported everything, or a fresh Python process.

A server that has imported torch is ready after seconds, one without it at once. So the fork engine has one for each
kind of notebook: those that use torch, those that use numpy alone, and the rest. A notebook finds nothing imported that
it does not use, whatever else is checked; but for torch's compiler, which comes with torch when any of them may use it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .runner import Engine, EngineError, Job, Limits, NotebookRun, OnCell, Reader, environment
from .stage import Stage

START_LIMIT = 300.0
IMPORTS = {name: re.compile(rf"^\s*(?:import|from)\s+{name}\b", re.MULTILINE) for name in ("numpy", "torch")}
# The first step of an optimiser imports torch._dynamo, which takes about as long as torch itself.
OPTIMISES = re.compile(r"\boptim\b|\btorch\.compile\b")
KINDS = ("torch", "numpy", "none")
# os.environ but where it is only read, and other ways to set a variable. Modules look at some when they are imported.
SETS_VARIABLES = re.compile(
    r"\benviron\b(?!\s*\.get\b|\s*\[[^\]]*\](?!\s*[-+|&]?=(?!=)))|\bdel\b.*\benviron\b|\b(?:un|put|set_)env\b"
    r"|\bunsetenv\b|^\s*%env\b",
    re.MULTILINE,
)


def wanted_modules(texts: Iterable[str]) -> list[str]:
    """Return what the code imports of what takes long, so that nobody waits for what nobody uses."""
    text = "\n".join(texts)
    found = [name for name, pattern in IMPORTS.items() if pattern.search(text)]
    return [*found, "torch._dynamo"] if "torch" in found and OPTIMISES.search(text) else found


def kind_of(texts: Iterable[str]) -> str:
    """Return which server a notebook needs: of two that import the same, both must find the same already imported.

    One that sets variables needs one that has imported nothing, as they may be meant for what it imports next.
    """
    text = "\n".join(texts)
    wanted = [] if SETS_VARIABLES.search(text) else wanted_modules([text])
    return next((kind for kind in KINDS if kind in wanted), "none")


class ForkServer:
    """A process that has imported what its notebooks need and forks itself for each of them."""

    def __init__(self, pins: Mapping[str, str]) -> None:
        self.pins = pins
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.control: socket.socket | None = None
        self.ready = self.closed = False

    def start(self, preload: Collection[str]) -> None:
        """Start the process, which begins to import; nobody waits."""
        with self.lock:
            if self.process is not None or self.closed:
                return
            self.control, theirs = socket.socketpair()
            self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the engine)
            command = [sys.executable, "-m", "bookkit.forkserver", str(theirs.fileno()), *sorted(preload)]
            with theirs:
                self.process = start_process(command, self.pins, (theirs.fileno(),), self.errors)

    def fork(self, path: Path, theirs: socket.socket) -> None:
        """Have the job in `path` run in a fork that tells its events to the other end of `theirs`."""
        with self.lock:
            if self.closed or self.control is None:
                raise EngineError("the checker is ending")
            if not self.ready:
                self._wait(self.control)
            try:
                socket.send_fds(self.control, [str(path).encode()], [theirs.fileno()])
            except OSError as error:
                raise EngineError(self._words(self.control) or "the fork server has ended") from error

    def _wait(self, control: socket.socket) -> None:
        """Wait until everything is imported."""
        control.settimeout(START_LIMIT)
        answer = b""
        with contextlib.suppress(OSError):
            answer = control.recv(65536)
        said = json.loads(answer) if answer else {"ready": False, "message": self._stderr()}
        if not said["ready"]:
            raise EngineError(f"the fork server did not start: {said['message']}")
        control.settimeout(None)
        self.ready = True

    def _words(self, control: socket.socket) -> str:
        """Return why the server has ended: what it said on its socket, else the end of its stderr."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            control.settimeout(1.0)
            return str(json.loads(control.recv(65536))["message"])
        return self._stderr()

    def _stderr(self) -> str:
        """Return the end of what the server wrote to stderr."""
        self.errors.seek(0)
        return self.errors.read().decode("utf-8", errors="replace")[-2000:].strip()

    def has_ended(self) -> bool:
        """Return whether the server has ended, or does so within a second."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process is None or self.process.wait(1.0) is not None
        return False

    def hang_up(self) -> None:
        """Tell the server to end; one that still imports has forked nothing and is killed."""
        self.closed = True
        self._shut()  # whoever waits for the server holds the lock, and hears of the end by this
        with self.lock:
            self._shut()
            if self.process is not None and not self.ready:
                self.process.kill()

    def _shut(self) -> None:
        if self.control is not None:
            with contextlib.suppress(OSError):
                self.control.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        """Wait for the end of the server and of every notebook that still ran."""
        if self.process is not None:
            end_process(self.process)
            self.errors.close()
        if self.control is not None:
            self.control.close()


class ForkEngine(Engine):
    """Runs each notebook in a fork of a server that has imported what the cells will import."""

    def __init__(self, pins: Mapping[str, str], limits: Limits) -> None:
        self.limits = limits
        self.servers = {kind: ForkServer(pins) for kind in KINDS}
        self.open: set[socket.socket] = set()

    def prepare(self, jobs: Sequence[Job]) -> list[Job]:
        """Start the servers that these jobs need; return the jobs with those first that need not wait for torch."""
        wanted: dict[str, set[str]] = {}
        kinds: dict[int, str] = {}
        for job in jobs:
            kinds[id(job)], modules = self._needs(job)
            wanted.setdefault(kinds[id(job)], set()).update(modules)
        for name, server in self.servers.items():
            if name in wanted:
                server.start(wanted[name])
        return sorted(jobs, key=lambda job: kinds[id(job)] == "torch")

    def _needs(self, job: Job) -> tuple[str, list[str]]:
        """Return the kind of server that a job needs and what that is to import."""
        kind = kind_of(job.texts)
        return kind, [] if kind == "none" else wanted_modules(job.texts)

    def run(self, job: Job, on_cell: OnCell | None = None) -> NotebookRun:
        """Run the job in a fork."""
        kind, modules = self._needs(job)
        server = self.servers[kind]
        server.start(modules)
        stage = Stage(job)
        try:
            mine, theirs = socket.socketpair()
            with mine:
                self.open.add(mine)
                try:
                    with theirs:
                        server.fork(stage.write_job(job, self.limits), theirs)
                    reader = Reader(job, self.limits, on_cell, stage.seen)
                    run = reader.read(mine)
                finally:
                    self.open.discard(mine)
                if reader.cut and server.has_ended():
                    raise EngineError("the fork server has ended, and the notebooks that ran with it")
                return run
        finally:
            stage.remove()

    def close(self) -> None:
        """End the servers and, through them, every notebook that still runs."""
        for server in self.servers.values():
            server.closed = True
        for sock in list(self.open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for server in self.servers.values():
            server.hang_up()
        for server in self.servers.values():
            server.join()


class SpawnEngine(Engine):
    """Runs each notebook in a fresh Python process: slower, and safe where forking is not."""

    def __init__(self, pins: Mapping[str, str], limits: Limits) -> None:
        self.pins, self.limits = pins, limits
        self.open: dict[socket.socket, subprocess.Popen[bytes]] = {}

    def run(self, job: Job, on_cell: OnCell | None = None) -> NotebookRun:
        """Run the job under its own supervisor process."""
        stage = Stage(job)
        try:
            mine, theirs = socket.socketpair()
            with mine:
                path = stage.write_job(job, self.limits)
                command = [sys.executable, "-m", "bookkit.supervisor", str(path), str(theirs.fileno())]
                self.open[mine] = start_process(command, self.pins, (theirs.fileno(),), subprocess.DEVNULL)
                theirs.close()
                try:
                    return Reader(job, self.limits, on_cell, stage.seen).read(mine)
                finally:
                    mine.close()
                    end_process(self.open.pop(mine))
        finally:
            stage.remove()

    def close(self) -> None:
        """End every notebook that still runs."""
        for sock, process in list(self.open.items()):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            end_process(process)


def start_process(
    command: list[str], pins: Mapping[str, str], fds: tuple[int, ...], errors: Any
) -> subprocess.Popen[bytes]:
    """Start one of the checker's own processes, in its own session: Ctrl-C is for the checker to handle."""
    env = {**environment(pins), "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    return subprocess.Popen(
        command, env=env, pass_fds=fds, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
        start_new_session=True,
    )  # fmt: skip


def end_process(process: subprocess.Popen[bytes], patience: float = 20.0) -> None:
    """Wait for a process that has been told to end; kill it if it does not."""
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
