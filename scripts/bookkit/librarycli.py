"""What `build_library.py` does with its arguments."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .library import SavedName, build, diff_package, names, write_package
from .notebook import load_book
from .problems import BookError, Problem, count, on_github, tell
from .saves import PACKAGE


@dataclass(frozen=True)
class Request:
    """A call of the command line."""

    root: Path
    out: Path | None = None
    before: str | None = None
    through: str | None = None
    check: bool = False
    list_names: bool = False


def run(request: Request) -> int:
    """Do what was asked; return 0 when done, 1 when the library is stale, 2 when the book or the call is wrong."""
    try:
        return _run(request)
    except BookError as error:
        tell(error.problems, sys.stderr)
    except OSError as error:
        print(f"cannot read or write: {error}", file=sys.stderr)
    return 2


def _run(request: Request) -> int:
    partial = request.before is not None or request.through is not None
    folder = (request.out or request.root) / PACKAGE
    writes = not (request.check or request.list_names)
    if partial and writes and folder.resolve() == (request.root / PACKAGE).resolve():
        message = "a part of the book's library would overwrite the whole one: give --out another folder"
        raise BookError(Problem(PACKAGE, None, None, message))
    book = load_book(request.root)
    files = build(book, request.before, request.through)
    found = [name for name in names(book).values() if f"{name.module}.py" in files]
    if request.list_names:
        _print_names(found)
        return 0
    size = f"{PACKAGE}: {count(len(files) - 2, 'module')}, {count(len(found), 'name')}"
    if request.check:
        return _check(files, folder, size)
    changes = write_package(files, folder)
    print(f"{size}, {', '.join(changes) if changes else 'unchanged'}")
    return 0


def _check(files: dict[str, str], folder: Path, size: str) -> int:
    diff = diff_package(files, folder)
    print(diff, end="")
    print(f"{size}, {'stale: run `make library`' if diff else 'up to date'}")
    if diff and on_github():
        paths = sorted({line[6:] for line in diff.split("\n") if line.startswith(("--- a/", "+++ b/"))})
        for path in paths:
            print(Problem(path, None, None, "stale: run `make library` and commit the result").github())
    return 1 if diff else 0


def _print_names(found: list[SavedName]) -> None:
    table = Table("chapter", "name", "kind", "module", "cell", box=box.SIMPLE)
    table.add_column("what it is", ratio=1)
    for name in found:
        row = (name.chapter_key, name.name, name.kind, name.module, name.cell_id, name.summary)
        table.add_row(*(Text(text, overflow="fold") for text in row))
    # Elsewhere than in a terminal the width would be 80, too narrow for six columns.
    Console(width=None if sys.stdout.isatty() else 160).print(table)
