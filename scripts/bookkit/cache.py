"""Keeps what notebooks printed, so that an unchanged one need not run again. It keeps results, never verdicts.

An entry is found by a key of all that decides what the cells print, and holds only if the files that the cells read
are still the same. An entry that is damaged in any way counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from .notebook import Book, as_text, write_atomic
from .runner import CellRun, Job, NotebookRun, is_staged

FORMAT = 1
ENGINE_FILES = tuple(
    f"{name}.py"
    for name in ("cache", "engines", "forkserver", "libguard", "notebook", "runner", "shell", "supervisor", "worker")
)
VERSIONS_OF = ("torch", "numpy", "ipython", "matplotlib")
KEPT_PER_NOTEBOOK = 4
EVERYTHING = "*"
ABSENT = (FileNotFoundError, NotADirectoryError)
# What reading an entry of any content can raise; JSON nested too deeply is a RecursionError.
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


def digest(data: Any) -> str:
    """Return the SHA-256 of bytes, or of any plain data as canonical JSON."""
    raw = data if isinstance(data, bytes) else json.dumps(data, sort_keys=True).encode()
    return hashlib.sha256(raw).hexdigest()


@cache
def engine_digest() -> str:
    """Return a digest of the code that runs cells."""
    here = Path(__file__).parent
    return digest([digest((here / name).read_bytes()) for name in ENGINE_FILES])


@cache
def versions() -> dict[str, str]:
    """Return the versions of what runs the cells."""
    found = {"python": sys.version, "machine": platform.machine(), "system": platform.system()}
    for name in VERSIONS_OF:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "none"
    return found


class Tree:
    """Digests of the files below a book's chapters folder, each taken once: when first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.known: dict[str, str] = {}

    def digest(self, name: str) -> str:
        """Return the digest of a file or folder below the root; notebooks count by their code cells alone."""
        if name not in self.known:
            self.known[name] = self._everything() if name == EVERYTHING else self._digest(self.root / name)
        return self.known[name]

    def snapshot(self) -> None:
        """Take every digest now, before a run that may depend on any of them."""
        for name in self._names():
            self.digest(name)
        self.digest(EVERYTHING)

    def _names(self) -> list[str]:
        names = []
        for folder, folders, files in os.walk(self.root / "chapters"):
            folders[:] = sorted(filter(is_staged, folders))
            here = Path(folder).relative_to(self.root).as_posix()
            names += [here, *(f"{here}/{name}" for name in sorted(filter(is_staged, files)))]
        return names

    def _everything(self) -> str:
        return digest([[name, self.digest(name)] for name in self._names()])

    def _digest(self, path: Path) -> str:
        try:
            if path.is_dir():
                return digest(sorted(filter(is_staged, os.listdir(path))))
            data = path.read_bytes()
        except OSError:
            return "absent"
        return digest(_code_of(data) if path.suffix == ".ipynb" else data)


def _code_of(data: bytes) -> Any:
    try:
        cells = json.loads(data)["cells"]
        return [as_text(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError):
        return data


def key_of(job: Job, pins: Mapping[str, str], lock: str) -> str:
    """Return the key of a job: a digest of all that decides what it prints, but for the files it reads."""
    parts = {
        "format": FORMAT,
        "engine": engine_digest(),
        "notebook": job.chapter.name,
        "cells": job.cells(),
        "library": dict(job.library),
        "lock": lock,
        "versions": versions(),
        "environment": dict(pins),
        "model": job.model,
    }
    return digest(parts)


class LibraryCache:
    """Keeps the libraries that notebooks may see, for one state of the book: building takes longer than reading."""

    def __init__(self, folder: Path, book: Book) -> None:
        self.folder = folder
        here = Path(__file__).parent
        project = book.root / "pyproject.toml"
        parts = {
            "builder": [digest(path.read_bytes()) for path in sorted(here.glob("*.py"))],
            "python": sys.version,
            "project": digest(project.read_bytes()) if project.exists() else "",
            "book": [[c.name, c.metadata, [[x.id, x.source] for x in c.code_cells]] for c in book.notebooks()],
        }
        self.key = digest(parts)
        self.path = folder / f"library.{self.key[:32]}.json"
        self.changed = False
        self.damaged: list[str] = []
        self.files: dict[str, dict[str, str]] = self._load()

    def _load(self) -> dict[str, dict[str, str]]:
        """Return the libraries kept for this state of the book; none when there are none that can be trusted."""
        try:
            entry = json.loads(self.path.read_bytes())
            if entry["checksum"] != digest([self.key, entry["files"]]):
                raise ValueError("checksum")
            return entry["files"]
        except ABSENT:
            return {}
        except UNREADABLE:
            self.damaged.append(self.path.name)
            return {}

    def get(self, label: str, build: Callable[[], dict[str, str]]) -> dict[str, str]:
        """Return the library kept under a label, or else what `build` returns, which is kept from now on."""
        if label not in self.files:
            self.files[label] = build()
            self.changed = True
        return self.files[label]

    def save(self) -> None:
        """Write what was built; older states of the book are forgotten."""
        if not self.changed:
            return
        entry = {"files": self.files, "checksum": digest([self.key, self.files])}
        with suppress(OSError):
            write_atomic(self.path, json.dumps(entry))
            others = sorted(self.folder.glob("library.*.json"), key=_age, reverse=True)
            _unlink(path for path in others[KEPT_PER_NOTEBOOK:] if path != self.path)


class Cache:
    """The entries of one book, in a folder; two checkers may use it at once."""

    def __init__(self, folder: Path, tree: Tree) -> None:
        self.folder, self.tree = folder, tree
        self.damaged: list[str] = []

    def path(self, job: Job, key: str) -> Path:
        """Return where the entry of a key stands."""
        return self.folder / f"{job.chapter.label.replace('/', '-')}.{key[:32]}.json"

    def load(self, job: Job, key: str) -> NotebookRun | None:
        """Return the results of an earlier run, or None when there is none that still holds."""
        path = self.path(job, key)
        try:
            entry = json.loads(path.read_bytes())
            checksum = entry.pop("checksum")
            if checksum != digest(entry) or entry["key"] != key:
                raise ValueError("checksum")
            run = NotebookRun([CellRun(**cell) for cell in entry["cells"]], complete=True)
            files = dict(entry["files"])
        except ABSENT:
            return None
        except UNREADABLE:
            self.damaged.append(path.name)
            return None
        if any(self.tree.digest(name) != value for name, value in files.items()):
            return None
        return run if len(run.cells) == len(job.run) else None

    def store(self, job: Job, key: str, run: NotebookRun) -> None:
        """Keep the results of a run that was complete and without failure; a folder that can't be written is fine."""
        if not run.clean:
            return
        names = [name for name in run.files if name.split("/")[0] == "chapters"]
        names += [EVERYTHING] if run.everything else []
        entry: dict[str, Any] = {
            "key": key,
            "cells": [asdict(cell) for cell in run.cells],
            "files": {name: self.tree.digest(name) for name in names},
        }
        entry["checksum"] = digest(entry)
        try:
            path = self.path(job, key)
            write_atomic(path, json.dumps(entry))
            self._prune(path)
        except OSError:
            return

    def _prune(self, path: Path) -> None:
        """Remove all but the newest entries of a notebook."""
        label = path.name.split(".", 1)[0]
        entries = sorted(self.folder.glob(f"{label}.*.json"), key=_age, reverse=True)
        _unlink(entry for entry in entries[KEPT_PER_NOTEBOOK:] if entry != path)


def _age(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
