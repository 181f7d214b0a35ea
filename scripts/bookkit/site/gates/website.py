"""A website folder as the gates see it: docs.json, and what an MDX parser found on each page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ...problems import BookError, Problem, relative
from .. import node

LANGUAGES = ("en", "zh")


@dataclass(frozen=True)
class Item:
    """Something on a page. `kind` says what: element, expression, heading, code, table, link, image or math."""

    kind: str
    line: int | None
    within: tuple[str, ...]  # the ids of the elements it stands in
    text: str = ""
    name: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    language: str = ""
    title: str = ""
    url: str = ""
    rows: tuple[tuple[int, int], ...] = ()  # of a table: line and number of cells


@dataclass(frozen=True)
class Page:
    """A page: its path in the website folder, its frontmatter as text, and what stands on it in its order."""

    path: str
    frontmatter: str | None
    items: tuple[Item, ...]

    @property
    def name(self) -> str:
        """The page as docs.json names it."""
        return self.path.removesuffix(".mdx")

    def of(self, *kinds: str) -> Iterator[Item]:
        """Yield the items of these kinds."""
        return (item for item in self.items if item.kind in kinds)


@dataclass(frozen=True)
class Website:
    """The folder, the book it was made from, and where the static edition is to be left (None: nowhere)."""

    root: Path
    folder: Path
    out: Path | None
    docs: Any
    pages: dict[str, Page]
    unreadable: tuple[Problem, ...]

    @classmethod
    def load(cls, root: Path, folder: Path, out: Path | None = None) -> Website:
        """Read a website; BookError when there is none, or nothing to read it with."""
        if not folder.is_dir():
            message = "no such folder: make site writes it"
            raise BookError(Problem(relative(folder, root), None, None, message))
        if not any(path.is_file() for path in folder.rglob("*.mdx")):
            raise BookError(Problem(relative(folder, root), None, None, "holds no page (.mdx): make site writes it"))
        told = told_by("outline", root, folder)
        unreadable = found(told, root, folder)
        docs, fault = _read_docs(root, folder / "docs.json")
        pages = {path: _page(path, page) for path, page in told["pages"].items()}
        return cls(root, folder, out, docs, pages, (*unreadable, *fault))

    def problem(self, path: str, line: int | None, message: str) -> Problem:
        """Return a finding in a file of the website."""
        return Problem(relative(self.folder / path, self.root), None, line, message, file_line=line)

    @cached_property
    def languages(self) -> list[dict[str, Any]]:
        """What docs.json says of each language, where it has that form; `navigation` tells where it has not."""
        navigation = self.docs.get("navigation") if isinstance(self.docs, dict) else None
        languages = navigation.get("languages") if isinstance(navigation, dict) else None
        return [each for each in languages if isinstance(each, dict)] if isinstance(languages, list) else []

    def listed(self, language: dict[str, Any]) -> list[str]:
        """Return the pages that docs.json lists for a language, in order."""
        groups = language.get("groups")
        lists = [g.get("pages") for g in groups if isinstance(g, dict)] if isinstance(groups, list) else []
        return [page for pages in lists if isinstance(pages, list) for page in pages if isinstance(page, str)]

    @cached_property
    def names(self) -> list[str]:
        """Every page that docs.json lists."""
        return [page for language in self.languages for page in self.listed(language)]


def told_by(script: str, root: Path, folder: Path) -> dict[str, Any]:
    """Return the report of a script of site/mint about a website; BookError when it ends without one."""
    done = node.run("mint", f"{script}.mjs", folder)
    try:
        if done.returncode == 0:
            return json.loads(done.stdout)
    except json.JSONDecodeError:
        pass
    said = (done.stderr.strip() or done.stdout.strip() or "nothing")[-600:]
    message = f"ended with exit code {done.returncode} and no report on {relative(folder, root)}; it said: {said}"
    raise BookError(Problem(f"site/mint/{script}.mjs", None, None, message))


def found(told: dict[str, Any], root: Path, folder: Path) -> list[Problem]:
    """Return the problems of a script's report."""
    return [
        Problem(
            relative(folder / each["page"], root), None, each.get("line"), each["message"], file_line=each.get("line")
        )
        for each in told["problems"]
    ]


def _read_docs(root: Path, path: Path) -> tuple[Any, list[Problem]]:
    name = relative(path, root)
    try:
        return json.loads(path.read_text(encoding="utf-8")), []
    except OSError as error:
        return None, [Problem(name, None, None, f"cannot be read: {error.strerror}")]
    except ValueError as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        return None, [Problem(name, None, line, f"not JSON: {error}", file_line=line)]


def _page(path: str, told: dict[str, Any]) -> Page:
    return Page(path, told["frontmatter"], tuple(_item(each) for each in told["items"]))


def _item(told: dict[str, Any]) -> Item:
    within = tuple(each["id"] for each in told.pop("within") if isinstance(each["id"], str))
    rows = tuple((row["line"], row["cells"]) for row in told.pop("rows", ()))
    told.pop("depth", None)
    return Item(**told, within=within, rows=rows)
