"""The library's files on disk, and the formatter they pass through on the way there."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .notebook import Book, write_all_atomic
from .problems import BookError, Problem
from .render import block_heading, is_generated
from .saves import PACKAGE, unix
from .scopes import LIBRARY
from .scratch import Scratch, is_scratch, sweep

SETTINGS = Path(__file__).resolve().parents[2] / "pyproject.toml"
IGNORED = ("__pycache__",)


@dataclass(frozen=True)
class _Finding:
    """What the linter says about a formatted text."""

    code: str
    message: str
    line: int


@dataclass(frozen=True)
class _Polished:
    text: str
    findings: tuple[_Finding, ...]


_polished: dict[tuple[bool, str], _Polished] = {}


def polish(files: dict[str, str], book: Book, others: Iterable[dict[str, str]] = ()) -> dict[str, str]:
    """Return the files formatted, imports sorted; BookError says what the linter refuses and which cell it is in.

    `others` are formatted in the same run when one is needed, for calls that follow.
    """
    wanted = [_key(name, text) for name, text in files.items() if name.endswith(".py")]
    if any(key not in _polished for key in wanted):
        more = [_key(name, text) for package in others for name, text in package.items() if name.endswith(".py")]
        _run([key for key in dict.fromkeys([*wanted, *more]) if key not in _polished])
    done: dict[str, str] = {}
    problems: list[Problem] = []
    for name, text in files.items():
        if not name.endswith(".py"):
            done[name] = text
            continue
        polished = _polished[_key(name, text)]
        done[name] = polished.text
        problems += [_place(book, name, polished.text, finding) for finding in polished.findings]
    if problems:
        raise BookError(problems)
    for name, text in done.items():
        if name.endswith(".py"):
            compile(text, f"{PACKAGE}/{name}", "exec", dont_inherit=True)
    return done


def _key(name: str, text: str) -> tuple[bool, str]:
    return (name == "__init__.py", text)


def _run(keys: list[tuple[bool, str]]) -> None:
    """Sort the imports of these texts, format them, lint them, and remember the results."""
    with Scratch("library") as folder:
        paths = [f"{number}/__init__.py" if key[0] else f"{number}/module.py" for number, key in enumerate(keys)]
        for path, (_, text) in zip(paths, keys, strict=True):
            (folder / path).parent.mkdir()
            (folder / path).write_bytes(text.encode())
        _ruff(folder, ["check", "--select", "I", "--fix", "--exit-zero", "--quiet"], paths)
        _ruff(folder, ["format", "--quiet"], paths)
        report = _ruff(folder, ["check", "--output-format", "json", "--exit-zero"], paths)
        findings = _findings(report, folder)
        for path, key in zip(paths, keys, strict=True):
            text = (folder / path).read_bytes().decode()
            _polished[key] = _Polished(unix(text), tuple(findings.get(path, ())))


def _ruff(folder: Path, arguments: list[str], paths: list[str]) -> str:
    first_party = f'lint.isort.known-first-party = ["{PACKAGE}"]'
    settings = ["--no-cache", "--config", str(SETTINGS), "--config", first_party]
    command = [sys.executable, "-m", "ruff", *arguments, *settings, *paths]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RUFF_")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        message = f"the formatter failed (ruff {arguments[0]}, exit code {done.returncode}): {said}"
        raise BookError(Problem(PACKAGE, None, None, message))
    return done.stdout.decode()


def _findings(report: str, folder: Path) -> dict[str, list[_Finding]]:
    found: dict[str, list[_Finding]] = {}
    entries: list[dict[str, Any]] = json.loads(report)
    for entry in entries:
        path = Path(entry["filename"]).resolve().relative_to(folder.resolve()).as_posix()
        code = str(entry.get("code") or "syntax")
        found.setdefault(path, []).append(_Finding(code, entry["message"], entry["location"]["row"]))
    return found


def _place(book: Book, name: str, text: str, finding: _Finding) -> Problem:
    """Return the finding at the saved cell its line comes from; at the chapter when no cell has such a line."""
    message = f"ruff {finding.code}: {finding.message}"
    chapter = next((c for c in book.chapters if f"{c.module}.py" == name), None)
    if chapter is None:
        return Problem(f"{PACKAGE}/{name}", None, finding.line, message)
    lines = text.split("\n")
    headings = {block_heading(chapter.name, cell.id): cell for cell in chapter.saved_cells}
    above = [headings[line] for line in lines[: finding.line] if line in headings]
    wanted = lines[finding.line - 1].strip()
    for cell in above[-1:] or chapter.saved_cells:
        own = [line.replace(f"{LIBRARY}.", "").strip() for line in unix(cell.source).split("\n")]
        if wanted.replace(f"{LIBRARY}.", "") in own:
            return chapter.problem(cell, own.index(wanted.replace(f"{LIBRARY}.", "")) + 1, message)
    return chapter.problem(above[-1] if above else None, None, f"{message} (`{wanted}`)")


# On disk


def read_package(folder: Path) -> dict[str, bytes]:
    """Return every file under the package folder but caches and what is half written, as relative name -> bytes."""
    if not folder.is_dir():
        return {}
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() or path.is_symlink()]
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    return {name: _bytes(path) for name, path in names.items() if not any(map(_is_ignored, name.split("/")))}


def _is_ignored(part: str) -> bool:
    return part in IGNORED or is_scratch(part)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def diff_package(files: dict[str, str], folder: Path) -> str:
    """Return a unified diff from the package on disk to these files, '' when they are equal byte for byte."""
    present = read_package(folder)
    parts: list[str] = []
    for name in sorted({*files, *present}):
        old = present.get(name)
        new = files.get(name)
        if old is None or new is None or old != new.encode():
            parts.append(_diff(f"{folder.name}/{name}", old, new))
    return "".join(parts)


def _diff(path: str, old: bytes | None, new: str | None) -> str:
    before = None if old is None else old.decode("utf-8", errors="backslashreplace")
    heads = ("/dev/null" if before is None else f"a/{path}", "/dev/null" if new is None else f"b/{path}")
    lines = list(difflib.unified_diff(_lines(before), _lines(new), *heads, lineterm=""))
    if not lines:
        lines = [f"--- {heads[0]}", f"+++ {heads[1]}"]
    return "".join(f"{line}\n" for line in lines)


def _lines(text: str | None) -> list[str]:
    """Return the lines of a text for a diff, carriage returns made visible and a missing last line end told."""
    if not text:
        return []
    lines = text.replace("\r", "\\r").split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], lines[-1] + "\\ (no newline at the end)"]


def foreign_files(files: dict[str, str], folder: Path) -> list[str]:
    """Return the files in the package folder that the builder did not write, and so neither overwrites nor deletes."""
    foreign = []
    for name, content in read_package(folder).items():
        path = folder / name
        ours = not path.is_symlink() and "/" not in name and is_generated(content.decode("utf-8", errors="replace"))
        if not ours:
            foreign.append(name)
    return foreign


def write_package(files: dict[str, str], folder: Path) -> list[str]:
    """Make `folder` (the package's own, `root/agentrl`) hold exactly these files; return what changed, a phrase a file.

    BookError, with nothing touched, when the folder holds a file that was not built from the book.
    """
    sweep(folder)
    foreign = foreign_files(files, folder)
    if foreign:
        message = "this file was not built from the book: move it away, the builder owns this folder"
        raise BookError([Problem(f"{folder.name}/{name}", None, None, message) for name in foreign])
    present = read_package(folder)
    new = {name: text for name, text in files.items() if present.get(name) != text.encode()}
    gone = sorted(present.keys() - files.keys())
    write_all_atomic({folder / name: new[name] for name in sorted(new, key=lambda n: (n == "__init__.py", n))})
    for name in gone:
        (folder / name).unlink()
    added = [
        f"added {name}" if name not in present else _rewrote(name, present[name], new[name]) for name in sorted(new)
    ]
    return added + [f"removed {name}" for name in gone]


def _rewrote(name: str, old: bytes, new: str) -> str:
    """Say how much of a file changed: a person who edited it by hand sees that the lines are gone."""
    lines = difflib.ndiff(_lines(old.decode("utf-8", errors="backslashreplace")), _lines(new))
    marks = [line[0] for line in lines]
    return f"rewrote {name} (+{marks.count('+')} -{marks.count('-')} lines)"
