"""Makes a Jupyter kernel deliver what was written to its descriptors before it says that a cell has ended.

ipykernel reads the output of child processes and C code in a thread; a client stops listening when the cell has ended,
and what that thread delivers later is lost. So at a cell's end a mark goes down the same pipe, and the cell has not
ended before the mark came out. And each flush is a message; a client that is slow to read loses some of a thousand. So
within a cell nothing is flushed but by ipykernel's clock, and at its end everything is. Stands alone: kernels load it
by its path.
"""

from __future__ import annotations

import sys
import threading
from os import getpid, write
from threading import current_thread
from typing import Any

MARK = "\x1e(drained)\x1e"
PATIENCE = 10.0
# getpid, write and current_thread are imported by name: a cell may replace them in their modules.


class Drain:
    """One stream of a kernel, whose writes are watched for the mark."""

    def __init__(self, stream: Any, fd: int) -> None:
        self.deliver, self.watcher, self.fd = stream.write, stream.watch_fd_thread, fd
        self.flush_now, self.pid, self.in_cell = stream.flush, getpid(), False
        self.held = ""
        self.seen = threading.Event()
        stream.write, stream.flush = self.write, self.flush

    def begin(self) -> None:
        """A cell begins."""
        self.in_cell = True

    def flush(self) -> None:
        """Flush at once, but not within a cell; a fork has no clock to flush it later."""
        if not self.in_cell or getpid() != self.pid:
            self.flush_now()

    def write(self, text: str) -> int:
        """Deliver text; from the pipe's thread without the mark, which may come in pieces."""
        if current_thread() is not self.watcher:
            return self.deliver(text)
        before, mark, after = (self.held + text).partition(MARK)
        rest = after if mark else before
        size = next((n for n in range(len(MARK) - 1, 0, -1) if rest.endswith(MARK[:n])), 0)
        self.held = rest[len(rest) - size :]
        ready = (before if mark else "") + rest[: len(rest) - size]
        if ready:
            self.deliver(ready)
        if mark:
            self.seen.set()
        return len(text)

    def wait(self) -> None:
        """Wait until everything written so far, to the stream or to its descriptor, has been delivered."""
        self.in_cell = False
        if self.watcher.is_alive():
            self.seen.clear()
            write(self.fd, MARK.encode())
            self.seen.wait(PATIENCE)
        self.flush_now()


def install(shell: Any) -> None:
    """Drain stdout and stderr of a kernel at the end of each of the shell's cells."""
    streams = ((sys.stdout, 1), (sys.stderr, 2))
    drains = [Drain(stream, fd) for stream, fd in streams if hasattr(stream, "watch_fd_thread")]
    shell.events.register("pre_execute", lambda: [drain.begin() for drain in drains])
    shell.events.register("post_execute", lambda: [drain.wait() for drain in drains])
