"""Keeps what notebooks printed, so that an unchanged one need not run again. It keeps results, never verdicts.

An entry is found by a key of all that decides what the cells print, the files that they may read included. An entry
that is damaged in any way counts as absent.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from .needs import SANDBOX
from .notebook import Book, write_atomic
from .runner import CellRun, Job, NotebookRun
from .stage import ABSENT, digest

FORMAT = 3
ENGINE = (
    "cache", "engines", "forkserver", "libguard", "looks", "notebook", "runner", "shell", "stage", "supervisor",
    "worker",
)  # fmt: skip
VERSIONS_OF = ("torch", "numpy", "ipython", "matplotlib")
KEPT_PER_NOTEBOOK = 4
CPU_LINE = re.compile(r"^(?:model name|flags|Features|CPU (?:implementer|variant|part))\s*:.*$", re.MULTILINE)
# What reading an entry of any content can raise; JSON nested too deeply is a RecursionError.
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@cache
def engine_digest() -> str:
    """Return a digest of the code that runs cells."""
    here = Path(__file__).parent
    return digest([digest((here / f"{name}.py").read_bytes()) for name in ENGINE])


@cache
def versions() -> dict[str, Any]:
    """Return what runs the cells: versions, the processor, and when a package was last installed or removed."""
    found: dict[str, Any] = {"python": sys.version, "machine": platform.machine(), "system": platform.system()}
    for name in VERSIONS_OF:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "none"
    return {**found, "processor": processor(), "packages": [[path, _age(Path(path))] for path in package_folders()]}


def processor(path: Path = Path("/proc/cpuinfo")) -> list[str]:
    """Return the kind of processor and what it can do: digits may depend on either."""
    try:
        return sorted(set(CPU_LINE.findall(path.read_text(encoding="utf-8", errors="replace"))))
    except OSError:
        return [platform.processor()]


def package_folders() -> list[str]:
    """Return the folders that packages are installed in."""
    return [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]


def model_files(folder: str | None) -> list[list[Any]]:
    """Return name, size and time of each file of the real model, which is too large to be read for a key."""
    if folder is None:
        return []
    stats = [(path, path.stat()) for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    return [[path.relative_to(folder).as_posix(), stat.st_size, stat.st_mtime_ns] for path, stat in stats]


def key_of(job: Job, pins: Mapping[str, str], lock: str, seen: str) -> str:
    """Return the key of a job: a digest of all that decides what it prints. `seen` is that of the files it may see."""
    parts = {
        "format": FORMAT,
        "engine": engine_digest(),
        "notebook": job.chapter.name,
        "cells": job.cells(),
        "library": dict(job.library),
        "seen": seen,
        "lock": lock,
        "versions": versions(),
        "environment": dict(pins),
        "model": [job.model, model_files(job.model)],
        "layers": job.missing.get(SANDBOX, ""),  # no notebook's own: solutions run their chapter's cells too
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

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damaged: list[str] = []

    def path(self, job: Job, key: str) -> Path:
        """Return where the entry of a key stands."""
        return self.folder / f"{job.chapter.label.replace('/', '-')}.{key[:32]}.json"

    def load(self, job: Job, key: str) -> NotebookRun | None:
        """Return the results of an earlier run, or None when there is none."""
        path = self.path(job, key)
        try:
            entry = json.loads(path.read_bytes())
            checksum = entry.pop("checksum")
            if checksum != digest(entry) or entry["key"] != key:
                raise ValueError("checksum")
            run = NotebookRun([CellRun(**cell) for cell in entry["cells"]], complete=True)
        except ABSENT:
            return None
        except UNREADABLE:
            self.damaged.append(path.name)
            return None
        return run if len(run.cells) == len(job.run) else None

    def store(self, job: Job, key: str, run: NotebookRun) -> None:
        """Keep the results of a run that was complete and without failure; a folder that can't be written is fine."""
        if not run.clean:
            return
        entry: dict[str, Any] = {"key": key, "cells": [asdict(cell) for cell in run.cells]}
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
