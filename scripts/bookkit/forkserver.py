"""A process that only imports, then forks one supervisor (and that one worker) per notebook.

Importing torch costs seconds; a fork of a process that has imported it costs milliseconds. The fork is safe as long as
the server has one thread and has computed nothing, which is checked before every fork.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from . import supervisor

READY = {"ready": True}


class UnsafeFork(Exception):
    """The server may not fork; says why."""


def preload(names: list[str]) -> None:
    """Import what cells will import, and the worker itself. A module that is not installed is left to the cells.

    The garbage collector has nothing to find among modules: left on, it is a sixth of the time. What is imported is
    then put out of its sight, so that a fork does not copy every page that it would otherwise touch.
    """
    gc.disable()
    from . import worker  # noqa: F401

    for name in names:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()


def assert_fork_safe() -> None:
    """Raise UnsafeFork if this process has a second thread, has started CUDA, or has imported the library."""
    with suppress(FileNotFoundError):
        threads = len(os.listdir("/proc/self/task"))
        if threads != 1:
            raise UnsafeFork(f"the fork server has {threads} threads after importing; a fork of it could hang")
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise UnsafeFork("CUDA is initialised in the fork server; its forks could not use it")
    if "agentrl" in sys.modules:
        raise UnsafeFork("the fork server has imported agentrl: chapters would see later chapters' code")


def serve(control: socket.socket) -> None:
    """Fork a supervisor for each job that arrives, until the checker closes the socket."""
    children: set[int] = set()
    while True:
        ready, _, _ = select.select([control], [], [], 0.5)
        children = {pid for pid in children if supervisor.reap(pid) is None}
        _kill_strays(children)
        if not ready:
            continue
        data, fds, _, _ = socket.recv_fds(control, 65536, 1)
        if not data:
            break
        assert_fork_safe()
        pid = os.fork()
        if pid == 0:
            _become_supervisor(control, data.decode(), fds[0])
        os.close(fds[0])
        children.add(pid)
    _wait_for(children)


def _kill_strays(supervisors: set[int]) -> None:
    """Kill what was left to this process by a supervisor that was itself killed."""
    if sys.platform == "linux":
        for pid in supervisor.child_pids(os.getpid()) - supervisors:
            supervisor.kill(pid)
            supervisor.reap(pid)


def _wait_for(children: set[int], patience: float = 15.0) -> None:
    """Let the supervisors clean up: they have lost the checker too. One that does not, as it is stopped, is killed."""
    deadline = time.monotonic() + patience
    while children and time.monotonic() < deadline:
        children = {pid for pid in children if supervisor.reap(pid) is None}
        time.sleep(0.01)
    for pid in children:
        supervisor.kill_everything(pid)


def _become_supervisor(control: socket.socket, job_path: str, fd: int) -> None:
    """Supervise one job in this fork, then end it."""
    status = 1
    try:
        control.close()
        os.setsid()
        supervisor.adopt_orphans()
        supervisor.hear_of_parents_death()
        parent = socket.socket(fileno=fd)
        supervisor.supervise(job_path, parent, lambda job, fds: _fork_worker(job, fds, parent))
        status = 0
    finally:
        os._exit(status)


def _fork_worker(job: dict[str, Any], fds: dict[str, int], parent: socket.socket) -> int:
    """Fork the worker; return its process id in the supervisor, never in the worker."""
    from . import worker

    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        gc.enable()
        parent.close()
        worker.main(job, worker.Channels(**fds))
    finally:
        os._exit(70)


def main() -> int:
    """Serve on the socket given by number: `python -m bookkit.forkserver FD [MODULE ...]`."""
    control = socket.socket(fileno=int(sys.argv[1]))
    supervisor.adopt_orphans()
    try:
        preload(sys.argv[2:])
        assert_fork_safe()
        control.sendall(json.dumps(READY).encode())
        serve(control)
    except UnsafeFork as error:
        with suppress(OSError):
            control.sendall(json.dumps({"ready": False, "message": str(error)}).encode())
        return 3
    return 0


if __name__ == "__main__":
    os._exit(main())  # at once: to take torch apart in an orderly way lasts most of a second
