"""The plan of the book, `plan.toml`: its parts, and every chapter with its title and file slug, written or not."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).resolve().parent / "plan.toml"


@dataclass(frozen=True)
class Planned:
    """A chapter of the plan; `label` is how prose names it."""

    key: str
    title: str
    slug: str

    @property
    def label(self) -> str:
        """`Chapter 6` or `Appendix A`."""
        return f"Chapter {int(self.key)}" if self.key.isdigit() else f"Appendix {self.key}"

    @property
    def file(self) -> str:
        """The notebook's file name."""
        return f"{self.key}-{self.slug}.ipynb"


@dataclass(frozen=True)
class Part:
    """A part of the book and its chapters, in order."""

    title: str
    chapters: tuple[Planned, ...]


def load_plan(path: Path = FILE) -> tuple[Part, ...]:
    """Return the parts of the book; KeyError names a chapter that a part lists and the plan does not describe."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    chapters = {entry["key"]: Planned(entry["key"], entry["title"], entry["slug"]) for entry in data["chapter"]}
    return tuple(Part(part["title"], tuple(chapters[key] for key in part["chapters"])) for part in data["part"])


def planned(path: Path = FILE) -> dict[str, Planned]:
    """Return every planned chapter by its key, in reading order."""
    return {chapter.key: chapter for part in load_plan(path) for chapter in part.chapters}
