"""The plan of the book, `plan.toml`: its parts, and every chapter with its titles and file slug, written or not."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

FIELDS = ("key", "title", "slug", "zh")
FILE = Path(__file__).resolve().parent / "plan.toml"


@dataclass(frozen=True)
class Planned:
    """A chapter of the plan; `label` is how prose names it, `zh` its title in the Chinese edition."""

    key: str
    title: str
    slug: str
    zh: str

    @property
    def label(self) -> str:
        """`Chapter 6` or `Appendix A`."""
        return f"Chapter {int(self.key)}" if self.key.isdigit() else f"Appendix {self.key}"

    @property
    def label_zh(self) -> str:
        """`第 6 章` or `附录 A`."""
        return f"第 {int(self.key)} 章" if self.key.isdigit() else f"附录 {self.key}"

    @property
    def file(self) -> str:
        """The notebook's file name."""
        return f"{self.key}-{self.slug}.ipynb"


@dataclass(frozen=True)
class Part:
    """A part of the book and its chapters, in order."""

    title: str
    chapters: tuple[Planned, ...]
    zh: str


def load_plan(path: Path = FILE) -> tuple[Part, ...]:
    """Return the parts of the book; KeyError names a chapter that a part lists and the plan does not describe."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    chapters = {entry["key"]: Planned(**{name: entry[name] for name in FIELDS}) for entry in data["chapter"]}
    return tuple(
        Part(part["title"], tuple(chapters[key] for key in part["chapters"]), part["zh"]) for part in data["part"]
    )


def planned(path: Path = FILE) -> dict[str, Planned]:
    """Return every planned chapter by its key, in reading order."""
    return {chapter.key: chapter for part in load_plan(path) for chapter in part.chapters}
