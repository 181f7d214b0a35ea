"""Language (L80x): spelling by codespell, doubled words, one spelling a chapter, no filler."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

from ..problems import BookError, Problem, read_text
from ..scratch import Scratch
from .codes import CODES
from .context import Context, Page
from .markdown import HOLE, Block, parse

DOCUMENTS = ("README.md", "editorial-guide.md", "sources.md", "CHANGELOG.md")
ALLOWED_DOUBLES = frozenset({"that", "had"})
DOUBLED = re.compile(r"\b([A-Za-z]+)\s+\1\b", re.IGNORECASE)
STEMS = (
    "normali",
    "optimi",
    "regulari",
    "initiali",
    "generali",
    "summari",
    "minimi",
    "maximi",
    "tokeni",
    "quanti",
    "parameteri",
    "factori",
    "reali",
    "organi",
    "penali",
    "seriali",
    "memori",
    "speciali",
    "recogni",
    "emphasi",
)
MIXED = re.compile(rf"\b({'|'.join(STEMS)})(s|z)(?:e[drs]?|ing|ation|ations|er|ers|es)\b", re.IGNORECASE)
FILLER = (
    "simply|obviously|clearly|of course|trivially|needless to say|it goes without saying|as everyone knows"
    "|game[- ]chang(?:er|ing)|delve|delves|delving|leverage|leverages|leveraging|cutting[- ]edge"
    "|state[- ]of[- ]the[- ]art|seamless|seamlessly|revolutionary|groundbreaking|unlock|unlocks|unleash"
    "|dive into|deep dive|amazing|exciting|basically|in order to|it is worth noting|it is important to note|note that"
)
FILLERS = re.compile(rf"\b(?:{FILLER})\b", re.IGNORECASE)


QUOTES = ('"', "“", "‘", "«")


class Line(NamedTuple):
    """A line of prose and its place."""

    text: str
    page: Page | None
    cell: str | None
    line: int
    path: str

    def problem(self, code: str, message: str) -> Problem:
        """Return a finding at this line."""
        if self.page is not None and self.cell is not None:
            return self.page.problem(code, self.page.chapter.cell(self.cell), self.line, message)
        level = CODES[code].level
        return Problem(self.path, None, self.line, message, level=level, code=code, file_line=self.line)


def check(context: Context) -> Iterator[Problem]:
    """Yield every finding about the language."""
    lines = [line for page in context.chosen() for line in _page_lines(page)]
    documents = list(_document_lines(context)) if context.whole else []
    yield from _spelling(context, lines + documents)
    for page in context.chosen():
        yield from _mixed(page)
        for placed in page.placed:
            yield from _words(page, placed.cell.id, placed.block)
    for name, block in _documents(context) if context.whole else ():
        yield from _words(None, name, block)


def _prose(block: Block) -> str:
    if block.kind not in ("heading", "paragraph", "cell"):
        return ""
    return re.sub(r"https?://\S+|\[@[^\]]*\]", lambda m: HOLE * len(m[0]), block.text)


def _page_lines(page: Page) -> Iterator[Line]:
    for placed in page.placed:
        for offset, text in enumerate(_prose(placed.block).split("\n")):
            yield Line(text, page, placed.cell.id, placed.block.line + offset, page.chapter.name)
        for image in placed.block.of("image"):
            yield Line(image.text, page, placed.cell.id, placed.line_at(image.at), page.chapter.name)


def _documents(context: Context) -> Iterator[tuple[str, Block]]:
    for name in DOCUMENTS:
        path = context.root / name
        if path.is_file():
            for block in parse(read_text(path, context.root)):
                yield name, block


def _document_lines(context: Context) -> Iterator[Line]:
    for name, block in _documents(context):
        for offset, text in enumerate(_prose(block).split("\n")):
            yield Line(text, None, None, block.line + offset, name)


def _spelling(context: Context, lines: list[Line]) -> Iterator[Problem]:
    """Run codespell once over every line; a line of its input is a line of ours."""
    with Scratch("lint") as folder:
        path = folder / "prose.txt"
        path.write_text(
            "\n".join(line.text.replace("\r", " ").replace(HOLE, " ") for line in lines) + "\n", encoding="utf-8"
        )
        command = [sys.executable, "-m", "codespell_lib", "--quiet-level", "34", str(path)]
        ignored = context.section_of("codespell", "ignore-words-list")
        if ignored:
            command += ["--ignore-words-list", ignored if isinstance(ignored, str) else ",".join(ignored)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8")
    if done.returncode not in (0, 65):
        raise BookError(Problem("codespell", None, None, f"cannot run: {done.stderr.strip()}"))
    for match in re.finditer(r"prose\.txt:(\d+): (.+?) ==> (.+)", done.stdout):
        yield lines[int(match[1]) - 1].problem("L801", f"{match[2]!r}: did you mean {match[3]}?")


def _words(page: Page | None, place: str, block: Block) -> Iterator[Problem]:
    text = _prose(block)
    for code, pattern in (("L802", DOUBLED), ("L804", FILLERS)):
        for match in pattern.finditer(text):
            if code == "L802" and match[1].lower() in ALLOWED_DOUBLES:
                continue
            if code == "L804" and (text[: match.start()].endswith(QUOTES) or place == "sources.md"):
                continue  # a word that is spoken about, or a title
            shown = " ".join(match[0].split())
            what = "doubled word" if code == "L802" else "filler or hype"
            line = Line(text, page, place if page else None, block.line_at(match.start()), place)
            yield line.problem(code, f"{what}: {shown!r}")


def _mixed(page: Page) -> Iterator[Problem]:
    first: dict[str, tuple[str, str]] = {}
    for placed in page.placed:
        for match in MIXED.finditer(_prose(placed.block)):
            stem, letter = match[1].lower(), match[2].lower()
            seen, word = first.setdefault(stem, (letter, match[0]))
            if seen != letter:
                message = f"{match[0]!r} here, {word!r} before: one spelling a chapter (the book writes -ise)"
                yield page.problem("L803", placed.cell, placed.line_at(match.start()), message)
