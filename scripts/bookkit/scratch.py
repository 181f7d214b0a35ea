"""Folders for what is half done: files on their way into place, a notebook's copy of the book.

A process that is killed cleans nothing up. So whoever makes a scratch folder holds a lock on it for as long as it
lives, and first removes, in the same place, those folders of this user that nobody holds any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

SUFFIX = ".scratch"
NAME = re.compile(r"\.?agentrl-[a-z]+-[a-z0-9_]{8}\.scratch")
CACHE = ".cache"


class Scratch:
    """A folder of this process's own: `with Scratch("check") as path`, or `remove()` when done."""

    def __init__(self, kind: str, parent: Path | None = None) -> None:
        """Make a folder for this `kind` of work where temporary files go, or a hidden one in `parent`."""
        prefix = f"agentrl-{kind}-" if parent is None else f".agentrl-{kind}-"
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        sweep(parent)
        self.path, self._lock = _make(prefix, parent)

    def remove(self) -> None:
        """Remove the folder with all in it; it stays locked until it is gone."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Path:
        """Return the folder."""
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Remove the folder."""
        self.remove()


def is_scratch(name: str) -> bool:
    """Return whether a folder of this name is a scratch folder."""
    return NAME.fullmatch(name) is not None


def sweep(parent: Path) -> None:
    """Remove the scratch folders in `parent` whose makers have gone."""
    try:
        names = [name for name in os.listdir(parent) if is_scratch(name)]
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            lock = _open(parent / name)
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError when it is held, or there are no locks
                    shutil.rmtree(parent / name, ignore_errors=True)
            finally:
                os.close(lock)


def sweep_leftovers(root: Path) -> None:
    """Remove what earlier runs of the book's tools left when they were killed."""
    for parent in (Path(tempfile.gettempdir()), root / CACHE):
        sweep(parent)


def _make(prefix: str, parent: Path) -> tuple[Path, int]:
    """Make a folder and lock it. When a sweep comes between the two, make another."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, suffix=SUFFIX, dir=parent)).resolve()
        with contextlib.suppress(FileNotFoundError):
            lock = _open(path)
            if _lock(lock) and os.path.samestat(os.fstat(lock), os.stat(path)):
                return path, lock
            os.close(lock)


def _lock(folder: int) -> bool:
    """Lock an open folder of our own; return whether no sweep has it."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: nobody can lock, and so nobody sweeps
    return True


def _open(path: Path) -> int:
    """Return a descriptor of a folder, never of what a link points to."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
