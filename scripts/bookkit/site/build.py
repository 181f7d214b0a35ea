"""All files of the site, from the notebooks and documents of a book; nothing is written here."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .. import library
from ..figures import dark
from ..lint import select
from ..notebook import Book, load_book
from ..problems import BookError, Problem, read_text, relative
from ..sources import load_ledger
from .chapter import ChapterPage
from .edition import Editions
from .front import front_page
from .links import Facts, Site
from .llms import llms_full_txt, llms_txt
from .navigation import docs_json
from .reference import ReferencePage
from .targets import Targets, chapter_page
from .words import LANGUAGES

FAVICON = Path(__file__).resolve().parent / "favicon.svg"


def build(root: Path, prefixes: Iterable[str] = ()) -> dict[str, str]:
    """Return every file of the site by its path; BookError lists all that is wrong with what it is made from."""
    site = _site(root, list(prefixes))
    files = {**_pages(site), **_images(site)}
    if site.problems:
        raise BookError(set(site.problems))
    lists = {"docs.json": docs_json(site), "llms.txt": llms_txt(site), "llms-full.txt": llms_full_txt(site)}
    return {**files, **lists}


def _site(root: Path, prefixes: list[str]) -> Site:
    book, ledger = load_book(root), load_ledger(root)
    if ledger.problems:
        raise BookError(ledger.problems)
    chosen = select(root, prefixes) if prefixes else frozenset(chapter.key for chapter in book.chapters)
    chapters = [chapter for chapter in book.chapters if chapter.key in chosen]
    editions = Editions.of(notebook for notebook in book.notebooks() if notebook.key in chosen)
    targets = Targets.of(chapters, editions)
    return Site(root, editions, targets, _facts(root), frozenset(ledger.entries), _saved(book))


def _pages(site: Site) -> dict[str, str]:
    files = {}
    for language in LANGUAGES:
        files[f"{language}/index.mdx"] = front_page(site, language)
        for chapter in site.chapters:
            files[f"{chapter_page(chapter, language)}.mdx"] = ChapterPage(site, chapter, language).text()
        for file, name in site.documents.items():
            files[f"{language}/reference/{name}.mdx"] = ReferencePage(site, file, language).text()
    return files


def _images(site: Site) -> dict[str, str]:
    files = {"images/favicon.svg": FAVICON.read_text(encoding="utf-8")}
    for name, path in sorted(site.figures.items()):
        light = read_text(path, site.root)
        try:
            files[f"images/figures/{name}-dark.svg"] = dark(light)
        except ValueError as error:
            site.problems.append(Problem(relative(path, site.root), None, None, str(error)))
        files[f"images/figures/{name}-light.svg"] = light
    return files


def _saved(book: Book) -> dict[str, tuple[str, str]]:
    """Return where each public name of the library is saved: the chapter's key and the cell's id."""
    return {name: (saved.chapter_key, saved.cell_id) for name, saved in library.names(book).items()}


def _settings(root: Path) -> dict[str, Any]:
    path = root / "pyproject.toml"
    try:
        return tomllib.loads(read_text(path, root)).get("project", {}) if path.is_file() else {}
    except tomllib.TOMLDecodeError as error:
        raise BookError(Problem(path.name, None, None, f"not TOML: {error}")) from error


def _facts(root: Path) -> Facts:
    """Return the book's version, and torch's from the lock, both as the outputs were recorded with."""
    lock = root / "requirements.lock"
    found = re.search(r"^torch==([^\s;+]+)", read_text(lock, root), re.MULTILINE) if lock.is_file() else None
    return Facts(str(_settings(root).get("version", "0")), found[1] if found else "?", _repository(root), _year(root))


def _repository(root: Path) -> str:
    """Return the address of the repository where pyproject.toml or CITATION.cff gives one."""
    urls = {name.lower(): str(url) for name, url in _settings(root).get("urls", {}).items()}
    return (urls.get("repository") or _cited(root, "repository-code")).rstrip("/")


def _year(root: Path) -> str:
    """Return the year in which this version came out, as CITATION.cff says."""
    return _cited(root, "date-released")[:4]


def _cited(root: Path, key: str) -> str:
    """Return a value of CITATION.cff, "" where there is none."""
    path = root / "CITATION.cff"
    text = read_text(path, root) if path.is_file() else ""
    found = re.search(rf"^{key}:\s*['\"]?(\S+?)['\"]?\s*$", text, re.MULTILINE)
    return found[1] if found else ""
