"""The copy of chapters/ in which one notebook runs: what stands in it, and a digest of that.

A notebook may see every file below chapters/ that is no notebook, and of the notebooks its own (solutions also their
chapter). Other notebooks come along only where its cells could look at them (`looks`): copying each for each would take
time that grows with the square of the book.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .notebook import as_text
from .problems import BookError, Problem
from .runner import Job, Limits
from .scratch import Scratch

ABSENT = (FileNotFoundError, NotADirectoryError)
TRANSLATION, COMPILED = "chapters/zh", "__pycache__"


@dataclass(frozen=True)
class Entry:
    """A file or folder that cells may see; its name is relative to the book's root."""

    name: str
    path: Path
    folder: bool
    executable: bool


def entries(root: Path) -> list[Entry]:
    """Return all below chapters/ that cells may see, a folder before what is in it.

    Links are followed; BookError names one that would have no end. What is neither file nor folder is left out and
    never opened: reading a pipe could wait for ever.
    """
    top = root / "chapters"
    return list(_below(Entry("chapters", top, True, True), (top.resolve(),)))


def _below(folder: Entry, above: tuple[Path, ...]) -> Iterator[Entry]:
    yield folder
    with suppress(*ABSENT):
        for child in sorted(os.listdir(folder.path)):
            name, path = f"{folder.name}/{child}", folder.path / child
            if child.startswith(".") or child == COMPILED or name == TRANSLATION:
                continue
            mode = _mode(path)
            entry = Entry(name, path, stat.S_ISDIR(mode), bool(mode & 0o111))
            if stat.S_ISREG(mode):
                yield entry
            elif entry.folder:
                yield from _below(entry, (*above, _inner(entry, above)))


def _mode(path: Path) -> int:
    """Return the mode of what a path leads to, 0 when it leads nowhere."""
    try:
        return path.stat().st_mode
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return 0
        raise


def _inner(entry: Entry, above: tuple[Path, ...]) -> Path:
    """Return where a folder really is; BookError when it holds one of those that lead to it."""
    real = entry.path.resolve()
    if any(real == outer or real in outer.parents for outer in above):
        said = f"a link to {real}, a folder that the link itself stands in: its copy would have no end"
        raise BookError(Problem(entry.name, None, None, said))
    return real


def sees(job: Job, entry: Entry) -> bool:
    """Return whether a notebook gets a copy of a file or folder."""
    if job.looks_around or entry.folder or not entry.name.endswith(".ipynb"):
        return True
    own = [f"chapters/{job.chapter.path.name}"]
    own += [f"chapters/solutions/{job.chapter.path.name}"] if job.chapter.kind == "solutions" else []
    return entry.name in own


def digest(data: Any) -> str:
    """Return the SHA-256 of bytes, or of any plain data as canonical JSON."""
    raw = data if isinstance(data, bytes) else json.dumps(data, sort_keys=True).encode()
    return hashlib.sha256(raw).hexdigest()


class Tree:
    """Digests of what stands below a folder's chapters/, each taken once: when first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.known: dict[tuple[str, bool], str] = {}

    @cached_property
    def entries(self) -> list[Entry]:
        """What stood there when first asked for."""
        return entries(self.root)

    def seen_by(self, job: Job) -> str:
        """Return a digest of all that a notebook may see.

        A notebook counts by its code alone, unless the cells could look at the rest of it.
        """
        seen = [entry for entry in self.entries if sees(job, entry)]
        return digest([[entry.name, entry.executable, self._digest(entry, job.looks_around)] for entry in seen])

    def _digest(self, entry: Entry, whole: bool) -> str:
        key = (entry.name, whole)
        if key not in self.known:
            self.known[key] = _content(entry, whole)
        return self.known[key]


def _content(entry: Entry, whole: bool) -> str:
    if entry.folder:
        return "folder"
    try:
        data = entry.path.read_bytes()
    except ABSENT:
        return "absent"
    return digest(data if whole or not entry.name.endswith(".ipynb") else _code_of(data))


def _code_of(data: bytes) -> Any:
    try:
        cells = json.loads(data)["cells"]
        return [as_text(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return data


class Stage:
    """A scratch folder with the library and a copy of the chapters, in which one notebook runs.

    `seen` is the digest of that copy: what the cells find may differ from what stood in the book a moment before.
    """

    def __init__(self, job: Job) -> None:
        self.folder = Scratch("check")
        self.scratch = self.folder.path
        self.library = self.scratch / "lib"
        self.book = self.scratch / "book"
        self.cwd = self.book / job.chapter.path.parent.relative_to(job.chapter.root)
        try:
            self._fill(job)
            self.seen = Tree(self.book).seen_by(job)
        except BaseException:
            self.remove()
            raise

    def _fill(self, job: Job) -> None:
        for folder in (self.library, self.scratch / "tmp", self.scratch / "ipython"):
            folder.mkdir()
        for name, text in job.library.items():
            path = self.library / "agentrl" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
        self.book.mkdir()
        for entry in entries(job.chapter.root):
            if sees(job, entry):
                _copy(entry, self.book / entry.name)

    def environment(self, job: Job) -> dict[str, str]:
        """Return the variables that differ from notebook to notebook."""
        own = {
            "PYTHONPATH": str(self.library),
            "TMPDIR": str(self.scratch / "tmp"),
            "IPYTHONDIR": str(self.scratch / "ipython"),
        }
        return {**own, "AGENTRL_MODEL_DIR": job.model} if job.model else own

    def write_job(self, job: Job, limits: Limits) -> Path:
        """Write the job for supervisor and worker to read, and return its path."""
        path = self.scratch / "job.json"
        data = {
            "name": job.chapter.name, "path": str(path), "scratch": str(self.scratch), "lib": str(self.library),
            "book": str(self.book), "cwd": str(self.cwd), "env": self.environment(job), "cells": job.cells(),
            "limits": asdict(limits),
        }  # fmt: skip
        path.write_text(json.dumps(data), encoding="utf-8")
        return path

    def remove(self) -> None:
        """Remove the folder."""
        self.folder.remove()


def _copy(entry: Entry, target: Path) -> None:
    """Copy a file or folder for cells, which may write to it; that a file has just gone is no error."""
    if entry.folder:
        target.mkdir()
        return
    with suppress(*ABSENT):
        shutil.copyfile(entry.path, target)
        if entry.executable:
            target.chmod(0o755)
