"""Number provenance (L70x): a number in prose that looks measured has an origin.

Looks measured: decimals, percentages, whole numbers above 20, in prose, tables, captions, alternative texts and
mathematics. Origins: what the chapter's cells print, what stands in their code (literals, arithmetic between literals,
strings; not comments or docstrings), an equation between numbers that holds, and a ledger line of a source cited in
the same paragraph or table; where the label **Reported** stands, the ledger alone. A paragraph that names a figure may
also draw on the data the figure was drawn from, one that names another chapter on that chapter, an exercise on its
solution. A derived number that none of these explains is noted in the metadata of its cell, with the reason:
agentrl.numbers = {"0.97": "why"}. Outputs, data and the ledger may be rounded; code is quoted as it stands.

Not checked: code spans and fenced code (but a code span that is only a number is), cross-references, dates, years,
versions, arXiv ids, names with digits, ordinals, powers of small whole numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..notebook import Cell
from ..problems import BookError, Problem, read_text, relative
from . import arithmetic
from .context import CAPTION, Context, Page, Placed, citations, key_of
from .markdown import Block, Piece
from .numbers import Number, Origins, Reading, find, in_code, in_text, mask, reading
from .references import mentions


@dataclass
class Tally:
    """How many numbers the prose holds, by what became of them."""

    seen: int = 0
    noted: int = 0
    unexplained: int = 0


@dataclass
class Provenance:
    """The origins of the book's numbers, each gathered once."""

    context: Context
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self._pages: dict[str, Origins] = {}
        self._keys: dict[tuple[str, bool], Origins] = {}
        self._data: dict[str, Origins] = {}

    def check(self) -> Iterator[Problem]:
        """Yield every number without an origin, every wrong equation, every idle note."""
        for page in self.context.chosen():
            used: dict[str, set[str]] = {}
            for placed in page.placed:
                yield from self._block(page, placed, used.setdefault(placed.cell.id, set()))
            for cell in page.chapter.cells:
                yield from _notes(page, cell, used.get(cell.id, set()))

    def _block(self, page: Page, placed: Placed, used: set[str]) -> Iterator[Problem]:
        block = placed.block
        yield from _wrong_equations(page, placed)
        found = list(measured(block, {mark.number for mark in page.equations}))
        if not found:
            return
        origins = list(self._origins(page, placed))
        for number, line, sentence in found:
            self.tally.seen += 1
            if any(origin.explain(number) for origin in origins):
                continue
            note = _note_for(placed.cell, number)
            if note is not None:
                used.add(note)
                self.tally.noted += 1
                continue
            self.tally.unexplained += 1
            yield page.problem("L701", placed.cell, line, f"{number.text} has no origin: “{sentence}”")

    def _origins(self, page: Page, placed: Placed) -> Iterator[Origins]:
        near = [placed.block, *_neighbours(page, placed)]
        keys = [key for block in near for key, _ in citations(block.text)]
        for key in keys:
            yield self._of_key(key, placed.section == "Sources")
        if keys and _is_reported(page, placed):
            return  # what others report comes from the ledger and from nowhere else
        yield self._of_page(page)
        if page.chapter.kind == "solutions":
            yield from self._named((page.chapter.key,))
        elif placed.section == "Exercises":
            yield from self._named((f"{page.chapter.key}/solutions",))
        yield from self._of_mentions(page, near)

    def _named(self, labels: Iterable[str]) -> Iterator[Origins]:
        for label in labels:
            page = self.context.pages.get(label)
            if page is not None:
                yield self._of_page(page)

    def _of_page(self, page: Page) -> Origins:
        label = page.chapter.label
        if label not in self._pages:
            self._pages[label] = Origins(_page_readings(page))
        return self._pages[label]

    def _of_key(self, key: str, reference: bool) -> Origins:
        if (key, reference) not in self._keys:
            source = self.context.ledger.entries.get(key)
            texts = [f"{claim.text}" for claim in source.claims] if source else []
            texts += [source.reference] if source and reference else []
            self._keys[key, reference] = Origins(item for text in texts for item in in_text(text))
        return self._keys[key, reference]

    def _of_mentions(self, page: Page, near: list[Block]) -> Iterator[Origins]:
        for block in near:
            for kind, number, _, _ in mentions(block.text):
                prefix = number.split(".")[0]
                if kind == "figure":
                    yield from self._of_figure(prefix, number)
                elif key_of(prefix) != page.chapter.key:
                    yield from self._named((key_of(prefix),))

    def _of_figure(self, prefix: str, number: str) -> Iterator[Origins]:
        page = self.context.by_prefix(prefix)
        image = _image_of(page, number) if page else None
        if image is not None:
            stem = image.rsplit("/", 1)[-1].removesuffix(".svg")
            if stem not in self._data:
                self._data[stem] = Origins(self._figure_readings(stem))
            yield self._data[stem]

    def _figure_readings(self, stem: str) -> Iterator[Reading]:
        folder = self.context.root / "figures"
        script = folder / f"{stem.replace('-', '_')}.py"
        names = re.findall(r"[\w.-]+\.json", script.read_text(encoding="utf-8")) if script.is_file() else []
        for name in sorted(set(names)):
            path = folder / "data" / name
            if path.is_file():
                yield from _leaves(_json(path, self.context.root))


def _json(path: Path, root: Path) -> Any:
    """Return a data file's content; BookError names it when it is not JSON."""
    try:
        return json.loads(read_text(path, root))
    except json.JSONDecodeError as error:
        message = f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise BookError(Problem(relative(path, root), None, None, message, file_line=error.lineno)) from error


def _page_readings(page: Page) -> Iterator[Reading]:
    for cell in page.chapter.code_cells:
        yield from in_text(cell.stdout)
        yield from in_code(page.nodes.get(cell.id, []))
    for placed in page.placed:
        for piece in placed.block.of("math"):
            for step in arithmetic.steps(piece.text):
                if step.holds:
                    yield step.result
                    yield reading(f"{step.value:.15g}")


def _leaves(value: Any) -> Iterator[Reading]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:
        yield reading(repr(value))
    elif isinstance(value, str):
        yield from in_text(value)


def measured(block: Block, tags: Set[str] = frozenset()) -> Iterator[tuple[Number, int, str]]:
    """Yield each number of a block that looks measured, its line in the cell and the sentence it stands in.

    `tags` are the chapter's equation numbers: `(1.5)` is a reference when there is such an equation.
    """
    if block.kind in ("fence", "html"):
        return
    text = _without_section_number(block)
    masked = re.sub(r"\(([\dA-Z]+\.\d+)\)", lambda m: " " * len(m[0]) if m[1] in tags else m[0], mask(text))
    in_percent = block.kind == "cell" and re.search(r"%|per ?cent", block.header) is not None
    for number in find(masked, percent_column=in_percent):
        if number.measured:
            yield number, block.line_at(number.start), _sentence(text, number.start)
    for piece in block.pieces:
        for number, offset in _in_piece(piece):
            if number.measured:
                line = block.line_at(piece.at) + offset
                yield number, line, _sentence(piece.text if piece.kind != "code" else text, number.start)


def _in_piece(piece: Piece) -> Iterator[tuple[Number, int]]:
    if piece.kind == "math":
        for number in arithmetic.numbers(piece.text):
            yield number, piece.text.count("\n", 0, number.start)
    elif piece.kind == "image":
        for number in find(mask(piece.text)):
            yield number, 0
    elif piece.kind == "code" and re.fullmatch(r"[-−]?[\d.,]+(?:[eE][-+]?\d+)?\s?%?", piece.text):
        for number in find(piece.text):
            yield number, 0


def _without_section_number(block: Block) -> str:
    if block.kind != "heading":
        return block.text
    return re.sub(r"^(?:\d+|[A-Z])\.\d+(?= )", lambda m: " " * len(m[0]), block.text)


def _sentence(text: str, at: int) -> str:
    start = max((m.end() for m in re.finditer(r"[.!?:]\s", text[:at])), default=0)
    end = re.search(r"[.!?](?:\s|$)", text[at:])
    sentence = " ".join(text[start : at + end.end() if end else len(text)].replace("\ufffc", "…").split())
    return sentence if len(sentence) <= 160 else sentence[:157] + "…"


def _neighbours(page: Page, placed: Placed) -> Iterator[Block]:
    """Yield the blocks whose citations a block may use: its row or item, and the paragraphs around its table or list.

    The caption of an image, and the image of a caption, count as one paragraph.
    """
    cell = [p.block for p in page.placed if p.cell is placed.cell]
    at = next(i for i, block in enumerate(cell) if block is placed.block)
    block = placed.block
    if block.of("image") and at + 1 < len(cell):
        yield cell[at + 1]
    if block.kind == "math" or block.group is not None:
        members = [i for i, b in enumerate(cell) if b.group == block.group] if block.group is not None else [at]
        first, last = members[0], members[-1]
        if block.kind == "cell":
            yield from (b for b in cell if b.group == block.group and b.row == block.row and b is not block)
            yield from cell[last + 1 : last + 2]
        yield from cell[max(first - 1, 0) : first]
        if block.kind == "math":
            yield from cell[at + 1 : at + 2]


def _is_reported(page: Page, placed: Placed) -> bool:
    """Whether the block, or a paragraph that speaks for its whole section, carries the label **Reported**."""
    if "**Reported" in placed.block.raw:
        return True
    section = (p.block.raw for p in page.placed if p.section == placed.section and p.block.kind == "paragraph")
    return any("**Reported" in raw and "this section" in raw for raw in section)


def _image_of(page: Page, number: str) -> str | None:
    """Return the target of the image that the caption of figure `number` follows."""
    image = None
    for placed in page.placed:
        images = placed.block.of("image")
        if images:
            image = images[-1].target
        match = CAPTION.match(placed.block.strong)
        if match and match["kind"] == "Figure" and match["number"] == number:
            return image
    return None


def _wrong_equations(page: Page, placed: Placed) -> Iterator[Problem]:
    for piece in placed.block.of("math"):
        for step in arithmetic.steps(piece.text):
            if not step.holds:
                line = placed.line_at(piece.at) + piece.text.count("\n", 0, step.offset)
                message = f"{step.left} is {step.value:.6g}, not {step.right}"
                yield page.problem("L703", placed.cell, line, message)


def _notes_of(cell: Cell) -> dict[str, Any]:
    notes = cell.book.get("numbers", {})
    return notes if isinstance(notes, dict) else {}


def _compact(text: str) -> str:
    return re.sub(r"\s", "", text).replace("−", "-")


def _note_for(cell: Cell, number: Number) -> str | None:
    return next((key for key in _notes_of(cell) if _compact(key) == _compact(number.text)), None)


def _notes(page: Page, cell: Cell, used: set[str]) -> Iterator[Problem]:
    notes = cell.book.get("numbers", {})
    if not isinstance(notes, dict):
        yield page.problem("L702", cell, None, f"agentrl.numbers is {notes!r}; it maps a number's text to its reason")
        return
    for key, reason in notes.items():
        if not isinstance(reason, str) or len(reason.split()) < 3:
            yield page.problem("L702", cell, None, f"agentrl.numbers[{key!r}] gives no reason: {reason!r}")
        elif key not in used:
            yield page.problem("L702", cell, None, f"agentrl.numbers[{key!r}] explains nothing: remove it")
