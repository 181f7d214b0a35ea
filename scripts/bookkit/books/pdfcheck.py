"""What a finished PDF must be: contents, outline and links that agree, fonts inside, all code legible to a program."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pypdf import PdfReader
from pypdf.generic import Destination

from . import listings
from .paper import Paper, full_title

SPAN = 60  # pages that are read at a time
RIGHT_TO_LEFT = {"R", "AL", "AN"}  # the classes of letters and digits


def pages_of(reader: PdfReader) -> dict[str, int]:
    """Return the page, from 1, of each id that something in the document links to."""
    return {
        name.lstrip("/"): (reader.get_destination_page_number(destination) or 0) + 1
        for name, destination in reader.named_destinations.items()
    }


def faults(file: Path, paper: Paper, numbers: dict[str, int]) -> list[str]:
    """Return what is wrong with a PDF, given the page numbers that its contents show."""
    reader = PdfReader(file)
    found = pages_of(reader)
    texts = _texts(file, len(reader.pages))
    return [
        *_metadata(reader, paper),
        *_contents(paper, numbers, found, texts),
        *_outline(reader, paper, found),
        *_links(reader, found),
        *_fonts(reader),
        *_code(paper, found, texts),
    ]


def _texts(file: Path, pages: int) -> list[str]:
    """Return the text of each page, without spaces; of a long book two processes read it."""
    spans = [(file, start, min(start + SPAN, pages)) for start in range(0, pages, SPAN)]
    if len(spans) == 1:
        return _read(spans[0])
    with ProcessPoolExecutor(2) as pool:
        return [text for texts in pool.map(_read, spans) for text in texts]


def _read(span: tuple[Path, int, int]) -> list[str]:
    file, start, end = span
    return [_squeezed(page.extract_text()) for page in PdfReader(file).pages[start:end]]


def _squeezed(text: str) -> str:
    """Return a text without spaces, which PDFs do not keep, and with ligatures as the letters that they are."""
    plain = unicodedata.normalize("NFKC", text)
    return "".join(one for one in plain if not one.isspace() and unicodedata.category(one) != "Cf")


def _metadata(reader: PdfReader, paper: Paper) -> Iterator[str]:
    root = reader.root_object
    if (reader.metadata or {}).get("/Title") != full_title(paper.book):
        yield "its title is not the book's"
    if root.get("/Lang") != paper.book.words.tag:
        yield f"its language is {root.get('/Lang')}, not {paper.book.words.tag}"
    if not root.get("/MarkInfo", {}).get("/Marked"):
        yield "it is not tagged"


def _contents(paper: Paper, shown: dict[str, int], found: dict[str, int], texts: list[str]) -> Iterator[str]:
    """Yield the lines of the contents that show another page than the one where their title stands."""
    for entry in paper.entries:
        page = found.get(entry.anchor)
        if page is None or shown.get(entry.anchor) != page:
            yield f"the contents show page {shown.get(entry.anchor)} for “{entry.title}”, which is on page {page}"
        elif _squeezed(entry.title) not in texts[page - 1]:
            yield f"“{entry.title}” does not stand on page {page}, where the contents send the reader"


def _outline(reader: PdfReader, paper: Paper, found: dict[str, int]) -> Iterator[str]:
    """Yield the first difference between the outline and the contents."""
    outline = [(level, title, page + 1) for level, title, page in _flat(reader, reader.outline, 1)]
    wanted = [(entry.level, entry.title, found.get(entry.anchor)) for entry in paper.entries]
    for has, should in zip_longest(outline, wanted):
        if has != should:
            yield f"the outline has {has} where the contents have {should}"
            return


def _flat(reader: PdfReader, outline: list[Any], level: int) -> Iterator[tuple[int, str, int]]:
    """Yield level, title and page of each entry."""
    for item in outline:
        if isinstance(item, Destination):
            yield level, str(item.title), reader.get_destination_page_number(item) or 0
        else:
            yield from _flat(reader, item, level + 1)


def _links(reader: PdfReader, found: dict[str, int]) -> Iterator[str]:
    """Yield links to ids that no page has, and links to files, which is what Chromium makes of the others."""
    for number, page in enumerate(reader.pages, 1):
        for annotation in page.get("/Annots") or ():
            link = annotation.get_object()
            action = link.get("/A", {})
            uri, name = str(action.get("/URI", "")), link.get("/Dest", action.get("/D"))
            if uri.startswith("file:"):
                yield f"page {number}: a link leads to {uri.rsplit('/', 1)[-1]}, outside the book"
            elif isinstance(name, str) and name.lstrip("/") not in found:
                yield f"page {number}: a link leads to {name}, which does not exist"


def _fonts(reader: PdfReader) -> Iterator[str]:
    """Yield the fonts that are named and not inside the file."""
    seen: set[str] = set()
    for page in reader.pages:
        for font in page.get("/Resources", {}).get("/Font", {}).values():
            described = font.get_object()
            described = described.get("/DescendantFonts", [described])[0].get_object()
            name = str(described.get("/BaseFont", ""))
            descriptor = described.get("/FontDescriptor", {})
            inside = described.get("/Subtype") == "/Type3" or any(f"/FontFile{n}" in descriptor for n in ("", "2", "3"))
            if not inside and name not in seen:
                seen.add(name)
                yield f"the font {name} is not embedded"


def _code(paper: Paper, found: dict[str, int], texts: list[str]) -> Iterator[str]:
    """Yield the lines of code and output whose text cannot be read out of their chapter's pages."""
    starts = [(page.key, found[page.key]) for page in paper.book.pages if page.key in found]
    ends = [start for _, start in starts[1:]] + [len(texts)]
    for (key, start), end in zip(starts, ends, strict=True):
        text = "".join(texts[start - 1 : end])
        for line in listings.source(paper.bodies[key]):
            if any(part not in text for part in _readable(line)):
                yield f"page {start} ff.: this line of {key} cannot be read out of the PDF: {line.strip()[:80]}"


def _readable(line: str) -> list[str]:
    """Return what a line is looked for by: all of it, or its words where some run from right to left."""
    if not any(unicodedata.bidirectional(one) in RIGHT_TO_LEFT for one in line):
        return [_squeezed(line)]
    return [_squeezed(word) for word in line.split() if word.isascii()]
