"""One way to say what is wrong, where: used by the library builder, the checker and the linter."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

Level = Literal["error", "warning"]


@dataclass(frozen=True, order=True)
class Problem:
    """A finding with its place: file, cell, line within the cell, and line of the file on disk."""

    path: str
    cell: str | None
    line: int | None
    message: str
    level: Level = "error"
    code: str = ""
    file_line: int | None = None

    def __str__(self) -> str:
        place = [self.path]
        if self.cell is not None:
            place.append(f"cell {self.cell}")
        if self.line is not None:
            place.append(f"line {self.line}")
        mark = f" [{self.code}]" if self.code else ""
        return f"{' · '.join(place)}: {self.level}: {self.message}{mark}"

    def github(self) -> str:
        """Return the problem as a GitHub Actions workflow command, escaped as GitHub asks."""
        fields = [f"file={_escape(self.path, field=True)}"]
        if self.file_line is not None:
            fields.append(f"line={self.file_line}")
        where = f"cell {self.cell}: " if self.cell is not None else ""
        return f"::{self.level} {','.join(fields)}::{_escape(where + self.message)}"


def _escape(text: str, field: bool = False) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if field else text


def on_github() -> bool:
    """Return whether this runs in GitHub Actions, which turns `Problem.github` lines into annotations."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def tell(problems: Iterable[Problem], stream: TextIO | None = None) -> None:
    """Print problems to a stream (stdout when None), and to stdout their annotations where GitHub listens."""
    for problem in problems:
        print(problem, file=stream)
        if on_github():
            print(problem.github())


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 error`, `2 errors`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


class BookError(Exception):
    """Raised when the book cannot be read or built; carries every problem found, not only the first."""

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems = [problems] if isinstance(problems, Problem) else sorted(problems, key=_sort_key)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def _sort_key(problem: Problem) -> tuple[str, int, str]:
    return (problem.path, problem.file_line or 0, problem.message)


def relative(path: Path, root: Path) -> str:
    """Return `path` relative to the book's root with forward slashes, for messages that read the same anywhere."""
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return path.as_posix()


def read_text(path: Path, root: Path) -> str:
    """Return a file's text; BookError names the file when it cannot be read or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        message = f"not UTF-8: byte {error.start} is {error.reason}"
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    raise BookError(Problem(relative(path, root), None, None, message))
