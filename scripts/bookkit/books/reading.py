"""What a book holds: its order and facts from website/, the text of each page from the static edition."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path

from bookkit.problems import BookError, Problem, read_text, relative

from .tree import Element, parse
from .words import WORDS, Words

FACT = re.compile(r'^(\w+): (".*"|true|false|\d+)$', re.M)
LEAVE_OUT = ("changelog",)  # pages that speak of the repository, not of the subject


@dataclass(frozen=True)
class Page:
    """A page of the site: `id` is its path without the language, `file` where its HTML is, `body` its article."""

    id: str
    file: Path
    facts: dict[str, str]
    body: Element

    @property
    def key(self) -> str:
        """The page's name within a book: `01-introduction`, `index`, `sources`."""
        return self.id.rsplit("/", 1)[-1]

    @property
    def title(self) -> str:
        """The page's title, `Chapter 1 · …`."""
        return self.facts["title"]


@dataclass(frozen=True)
class Group:
    """A part of the book and its pages."""

    title: str
    pages: tuple[Page, ...]


@dataclass(frozen=True)
class Book:
    """The book in one language; `site` is the static edition's folder, in which figures are."""

    language: str
    site: Path
    groups: tuple[Group, ...]

    @property
    def words(self) -> Words:
        """What the book says in its language."""
        return WORDS[self.language]

    @property
    def pages(self) -> list[Page]:
        """All pages in reading order."""
        return [page for group in self.groups for page in group.pages]

    @property
    def version(self) -> str:
        """The book's version, which every page has."""
        return next((page.facts["version"] for page in self.pages if "version" in page.facts), "")

    @property
    def recorded(self) -> str:
        """The newest date on which outputs were recorded."""
        return max((page.facts.get("recorded", "") for page in self.pages), default="")


def read_book(website: Path, site: Path, language: str) -> Book:
    """Return the book in a language; BookError says what to build when pages are missing or older than their source."""
    where = website / "docs.json"
    if not where.is_file():
        raise BookError(Problem(str(website), None, None, "there is no docs.json: run make site"))
    problems: list[Problem] = []
    groups = [Group(title, tuple(_pages(website, site, pages, problems))) for title, pages in _listed(where, language)]
    if problems:
        raise BookError(_first(problems))
    return Book(language, site, tuple(group for group in groups if group.pages))


def _listed(where: Path, language: str) -> list[tuple[str, list[str]]]:
    """Return the groups of a language in docs.json, each with its pages; BookError where it has another form."""
    try:
        navigation = json.loads(read_text(where, where.parent))["navigation"]["languages"]
        entry = next((entry for entry in navigation if entry["language"] == language), None)
        groups = [(str(group["group"]), group["pages"]) for group in entry["groups"]] if entry else []
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BookError(Problem(str(where), None, None, f"is not as make site writes it: {error!r}")) from error
    if not groups:
        raise BookError(Problem(str(where), None, None, f"has no pages of the language {language}"))
    if odd := [page for _, pages in groups for page in pages if not isinstance(page, str)]:
        raise BookError(Problem(str(where), None, None, f"lists {odd[0]!r} as a page"))
    return groups


def _first(problems: list[Problem]) -> Problem:
    """Return the first problem: a site that is not built, or is stale, has the same one for every page."""
    more = f" ({len(problems) - 1} more pages are like it)" if len(problems) > 1 else ""
    return dataclasses.replace(problems[0], message=problems[0].message + more)


def _pages(website: Path, site: Path, paths: list[str], problems: list[Problem]) -> list[Page]:
    """Return the pages of a group, adding to `problems` those that cannot be read."""
    pages = []
    for path in paths:
        if path.rsplit("/", 1)[-1] in LEAVE_OUT:
            continue
        source, file = website / f"{path}.mdx", site / f"{path}.html"
        if fault := _missing_or_stale(source, file):
            problems.append(Problem(f"{path}.html", None, None, fault))
            continue
        text = read_text(file, site)
        article = parse(text).find(".//article") if text.strip() else None
        if article is None:
            problems.append(Problem(relative(file, site), None, None, "has no <article>, which holds a page's text"))
            continue
        pages.append(Page(path.split("/", 1)[1], file, _facts(read_text(source, website)), article))
    return pages


def _missing_or_stale(source: Path, file: Path) -> str:
    """Return what is wrong with a page of the site, if anything."""
    if not source.is_file():
        return f"docs.json lists a page that {source} does not hold: run make site"
    if not file.is_file():
        return "the static edition does not have this page: run make site"
    if file.stat().st_mtime < source.stat().st_mtime:
        return f"the static edition is older than {source}: run make site"
    return ""


def _facts(text: str) -> dict[str, str]:
    """Return the frontmatter of a page as text by key."""
    head = text.split("---", 2)[1] if text.startswith("---") else ""
    return {key: str(json.loads(value)) for key, value in FACT.findall(head)}
