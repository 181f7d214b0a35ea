"""Where a link on a page leads: to a page of the site, the ledger, the repository, or nowhere, which is a fault."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..notebook import CHAPTER_FILE, Cell, Chapter
from ..problems import Problem, relative
from ..sources import FILE as LEDGER
from . import escape
from .crossrefs import citation_keys
from .edition import Editions
from .targets import Targets, chapter_page
from .words import Language

LIBRARY_NAME = re.compile(r"arl\.(?P<name>\w+)(?:[.(].*)?$", re.DOTALL)
EXERCISE_LINK = re.compile(r"(?:Exercise|练习)-(?P<number>(?:\d+|[A-Z])\.\d+)(?!\d)")
SAVED_NAME = re.compile(r"(?P<name>[a-z0-9]+_\w+|[A-Z]+[a-z]\w*)(?:\(.*\))?", re.DOTALL)
WEB = ("http", "https", "mailto")
REFERENCE_FILES = {
    "labs/README.md": "labs",
    "editorial-guide.md": "editorial-guide",
    LEDGER: "sources",
    "CHANGELOG.md": "changelog",
}


@dataclass(frozen=True)
class Facts:
    """What the book's own files say of this edition: its version, the torch of its lock, its repository's address."""

    version: str
    torch: str
    repository: str = ""
    year: str = ""


@dataclass
class Site:
    """What every page of one build shares; `figures`, `cited` and `problems` fill up as pages are written."""

    root: Path
    editions: Editions
    targets: Targets
    facts: Facts
    keys: frozenset[str]  # of the ledger of sources
    library: Mapping[str, tuple[str, str]]  # a saved name, and the key of its chapter and the id of its cell
    figures: dict[str, Path] = field(default_factory=dict)
    cited: dict[str, set[tuple[str, str]]] = field(default_factory=dict)  # a source, and the chapters and sections
    problems: list[Problem] = field(default_factory=list)

    @property
    def chapters(self) -> list[Chapter]:
        """The chapters of this build, in reading order."""
        return list(self.targets.chapters.values())

    @property
    def documents(self) -> dict[str, str]:
        """The book's documents that have a page in the last group: the file, and the page's name."""
        return {file: name for file, name in REFERENCE_FILES.items() if (self.root / file).is_file()}


@dataclass
class Links:
    """The links of one page; `path` and `at` are the file and the cell being written from, for links and findings."""

    site: Site
    language: Language
    path: str
    at: Cell | None = None
    section: str = ""  # the id of its heading

    def move(self, cell: Cell, path: str) -> None:
        """Go on with this cell of this file."""
        self.at, self.path = cell, path

    @property
    def _chapter_key(self) -> str:
        """The chapter on whose page this stands, "" for another page."""
        match = CHAPTER_FILE.fullmatch(Path(self.path).name)
        return match["key"] if match else ""

    @property
    def is_chinese(self) -> bool:
        """Whether the file being written from is a translation."""
        return self.path.startswith("chapters/zh/")

    @property
    def folder(self) -> Path:
        """Where relative links start: the folder of the file being written from."""
        return (self.site.root / self.path).parent

    def fault(self, message: str) -> None:
        """Note a finding at the cell being written."""
        line = self.at.file_line if self.at else None
        self.site.problems.append(Problem(self.path, self.at.id if self.at else None, None, message, file_line=line))

    def chapter(self, key: str, fragment: str = "") -> str:
        """Return the address of a chapter's page."""
        page = chapter_page(self.site.targets.chapters[key], self.language)
        return f"/{page}{'#' * bool(fragment)}{fragment}"

    def reference(self, kind: str, number: str, shown: str) -> str | None:
        """Return the address of a numbered thing, or None when the site has no such thing."""
        if self.path == LEDGER and not shown.startswith("§"):  # in the ledger these are the source's own numbers
            return None
        found = self.site.targets.find(kind, number)
        return self.chapter(found[0].key, found[1]) if found else None

    def citation(self, keys: str) -> str:
        """Return the links of `@one; @two` to the ledger."""
        written = []
        for key in citation_keys(keys):
            if key not in self.site.keys:
                self.fault(f"[@{key}] does not stand in sources.md")
            if chapter := self._chapter_key:
                self.site.cited.setdefault(key, set()).add((chapter, self.section))
            written.append(f"[\\[{escape.text(key)}\\]](/{self.language}/reference/sources#{source_id(key)})")
        return " ".join(written)

    def library(self, code: str) -> str | None:
        """Return the address of the cell that saves `arl.name`, also where it is called or asked for more, or None.

        The name alone will do when it is no plain word and the notebook binds no such name itself.
        """
        named = LIBRARY_NAME.match(code) or SAVED_NAME.fullmatch(code)
        if named and not code.startswith("arl.") and not self._means_library(named["name"]):
            return None
        place = self.site.library.get(named["name"]) if named else None
        return self.chapter(place[0], f"cell-{place[1]}") if place and place[0] in self.site.targets.chapters else None

    def _means_library(self, name: str) -> bool:
        key, saved = self._chapter_key, self.site.library.get(name)
        if not key or saved is None:
            return False
        of = self.site.editions.solutions if "solutions" in Path(self.path).parts else self.site.editions.chapter
        notebook, order = of(key, "en"), list(self.site.targets.chapters)
        return notebook is not None and name not in notebook.own_names and saved[0] in order[: order.index(key) + 1]

    def document(self, code: str) -> str | None:
        """Return the address of the page of a document of the book that inline code names, or None."""
        name = self.site.documents.get(code) if code != self.path else None
        return f"/{self.language}/reference/{name}" if name else None

    def page_of(self, target: str) -> str | None:
        """Return where a link of the source leads on the site; None where it has become plain text."""
        parts = urlsplit(target)
        if parts.scheme in WEB:
            return target
        if not parts.path and self.path in REFERENCE_FILES:
            return f"#{parts.fragment}" if parts.fragment else None
        root = self.site.root.resolve()
        file = self._file(parts.path) if parts.path else (root / self.path).resolve()
        if not file.exists() or not file.is_relative_to(root):
            self.fault(f"link {target!r}: no such file in the book")
            return None
        return self._of_file(file.relative_to(root), unquote(parts.fragment), target)

    def _of_file(self, file: Path, fragment: str, target: str) -> str | None:
        name = file.as_posix()
        if name in REFERENCE_FILES:
            return f"/{self.language}/reference/{REFERENCE_FILES[name]}"
        match = CHAPTER_FILE.fullmatch(file.name)
        if match is None or file.parts[0] != "chapters":
            return f"{self.site.facts.repository}/blob/main/{name}" if self.site.facts.repository else None
        if match["key"] not in self.site.targets.chapters:
            return None
        if "solutions" in file.parts:
            return self._solutions(match["key"], fragment, target)
        if not fragment:
            return self.chapter(match["key"])
        ident = self.site.targets.headings[match["key"]].get(fragment)
        if ident is None:
            self.fault(f"link {target!r}: {name} has no such heading")
        return self.chapter(match["key"], ident or "")

    def _solutions(self, key: str, fragment: str, target: str) -> str | None:
        """Return where the solutions of a chapter stand, or one of them: None from their own page, for all of them."""
        if not fragment:
            return None if self._chapter_key == key else self.chapter(key, "exercises")
        match = EXERCISE_LINK.match(fragment)
        found = self.site.targets.find("exercise", match["number"]) if match else None
        if found is None:
            self.fault(f"link {target!r}: no such exercise")
        return self.chapter(found[0].key, found[1]) if found else None

    def _file(self, target: str) -> Path:
        """Return the file that a relative link means; no name has the character that ends names for the system."""
        return (self.folder / unquote(target).replace("\0", "\ufffd")).resolve()

    def figure(self, source: str) -> str:
        """Return the name of a figure and have it copied."""
        file = self._file(source)
        if file.suffix != ".svg" or not file.is_file():
            what = "no such file" if not file.is_file() else "a figure is an SVG"
            self.fault(f"figure {source!r}: {what}")
            return "missing"
        other = self.site.figures.setdefault(file.stem, file)
        if other != file:
            self.fault(f"figure {source!r} has the name of {relative(other, self.site.root)}")
        return file.stem


def source_id(key: str) -> str:
    """Return the id of an entry of the ledger on its page."""
    return f"src-{key}"
