"""The frontmatter of a page: what a reader, the navigation and the foot of the page need."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from ...notebook import Chapter, is_day, load_book
from ...problems import Problem
from .website import Page, Website

EVERY = ("title", "description", "version")
CHAPTER = ("sidebarTitle", "chapter", "recorded", "torch", "source")
TRANSLATED = ("true", "partly", "false")
LINE = re.compile(r"(?P<key>[A-Za-z]\w*): (?P<value>\".*\")")


def check(website: Website) -> list[Problem]:
    """Refuse pages whose frontmatter lacks a key, or says something else than the book does."""
    project = tomllib.loads((website.root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chapters = {chapter.path.stem: chapter for chapter in load_book(website.root).chapters}
    problems = []
    for page in website.pages.values():
        keys, faults = _read(page)
        slug = page.name.partition("/chapters/")[2]
        messages = [*faults, *_missing(page, keys, bool(slug)), *_wrong(website, keys, project["version"])]
        messages += _of_chapter(keys, chapters[slug]) if slug in chapters else []
        problems += [website.problem(page.path, line, message) for line, message in messages]
    return problems


def _read(page: Page) -> tuple[dict[str, str], list[tuple[int, str]]]:
    keys: dict[str, str] = {}
    faults = []
    if page.frontmatter is None:
        return {}, [(1, "no frontmatter between two lines of ---")]
    for number, line in enumerate(page.frontmatter.split("\n"), start=2):
        match = LINE.fullmatch(line)
        try:
            value: Any = json.loads(match["value"]) if match else None
        except json.JSONDecodeError:
            value = None
        if match is None or not isinstance(value, str):
            faults.append((number, f"not a key and a text in double quotes: {line}"))
        elif match["key"] in keys:
            faults.append((number, f"{match['key']} stands twice"))
        else:
            keys[match["key"]] = value
    return keys, faults


def _missing(page: Page, keys: dict[str, str], is_chapter: bool) -> Iterator[tuple[int, str]]:
    wanted = [
        *EVERY,
        *(CHAPTER if is_chapter else ()),
        *(["translated"] if is_chapter and page.name.startswith("zh/") else ()),
    ]
    for key in wanted:
        if not keys.get(key, "").strip():
            yield 1, f"the frontmatter has no {key}"


def _wrong(website: Website, keys: dict[str, str], version: str) -> Iterator[tuple[int, str]]:
    if keys.get("version", version) != version:
        yield 1, f"version {keys['version']!r}, the book's is {version!r}"
    if "translated" in keys and keys["translated"] not in TRANSLATED:
        yield 1, f"translated {keys['translated']!r} is none of {', '.join(TRANSLATED)}"
    if keys.get("source") and not (website.root / keys["source"]).is_file():
        yield 1, f"source {keys['source']!r} is no file of the book"
    if keys.get("recorded") and not is_day(keys["recorded"]):
        yield 1, f"recorded {keys['recorded']!r} is no date like 2026-01-31"


def _of_chapter(keys: dict[str, str], chapter: Chapter) -> Iterator[tuple[int, str]]:
    recorded = chapter.metadata.get("recorded", keys.get("recorded"))
    for key, value in (("chapter", chapter.key), ("recorded", recorded)):
        if keys.get(key, value) != value:
            yield 1, f"{key} {keys[key]!r}, {chapter.name} says {value!r}"
