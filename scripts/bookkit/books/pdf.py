"""A book as PDF: printed twice, as only the first printing shows on which page everything is."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pypdf import PdfReader, PdfWriter
from pypdf.generic import DictionaryObject, Fit, NameObject, TextStringObject

from bookkit.problems import BookError, Problem

from . import browser, paper, pdfcheck, tags
from .reading import Book
from .words import AUTHORS, LICENCE

RADICAL = re.compile(rb"<(2E[89A-F][0-9A-F]|2F[0-9A-D][0-9A-F])>\n")  # a target in a character map


def build(book: Book, scratch: Path) -> tuple[Path, str]:
    """Return a valid PDF in the scratch folder and what there is to say of it; BookError tells every fault."""
    laid = paper.lay_out(book)
    document, printed = scratch / "book.html", scratch / "printed.pdf"
    document.write_text(paper.document(laid), encoding="utf-8")
    numbers = _print(document, printed)
    finished = scratch / f"agentic-rl-{book.language}.pdf"
    _finish(printed, finished, laid)
    if faults := pdfcheck.faults(finished, laid, numbers):
        raise BookError([Problem(finished.name, None, None, fault) for fault in faults])
    return finished, f"{len(PdfReader(finished).pages)} pages"


def _print(document: Path, printed: Path) -> dict[str, int]:
    """Print a document twice and return the page numbers that its contents show; BookError names what does not fit."""
    with browser.opened(document) as tab:
        if faults := browser.fit(tab):
            raise BookError([Problem(document.name, None, None, fault) for fault in faults])
        browser.print_to(tab, printed, tagged=False)
        numbers = pdfcheck.pages_of(PdfReader(printed))
        browser.number_contents(tab, numbers)
        browser.print_to(tab, printed)
    return numbers


def _finish(printed: Path, finished: Path, laid: paper.Paper) -> None:
    """Write the PDF with its outline and metadata; its dates are those of the outputs."""
    writer = PdfWriter(clone_from=tags.pruned(printed))
    date = "D:" + laid.book.recorded.replace("-", "") + "000000Z"
    writer.metadata = {
        "/Title": paper.full_title(laid.book),
        "/Author": AUTHORS,
        "/Subject": LICENCE,
        "/CreationDate": date,
        "/ModDate": date,
    }
    writer.root_object[NameObject("/Lang")] = TextStringObject(laid.book.words.tag)
    (writer.viewer_preferences or writer.create_viewer_preferences()).display_doctitle = True
    _add_outline(writer, laid.entries)
    _mend_radicals(writer)
    writer.write(finished)


def _add_outline(writer: PdfWriter, entries: list[paper.Entry]) -> None:
    """Give the PDF the contents as its outline; each entry leads to where its title stands on the page."""
    destinations = writer.named_destinations
    parents: list[Any] = []
    for entry in entries:
        target = destinations[f"/{entry.anchor}"]
        page = writer.get_destination_page_number(target) or 0
        del parents[entry.level - 1 :]
        parent = parents[-1] if parents else None
        fit: Any = Fit.xyz(left=0, top=target.top)
        item = writer.add_outline_item(
            title=entry.title, page_number=page, parent=parent, fit=fit, is_open=entry.level < 2
        )
        parents += [item] * (entry.level - len(parents))
    writer.page_mode = "/UseOutlines"


def _mend_radicals(writer: PdfWriter) -> None:
    """Let Chinese text be found and copied.

    A font may have one glyph for a character and for the radical that looks like it; Chromium then notes the radical.
    """
    streams: list[Any] = [font["/ToUnicode"].get_object() for font in _fonts(writer)]
    for stream in streams:
        text = stream.get_data()
        if (mended := RADICAL.sub(_character, text)) != text:
            stream.set_data(mended)


def _fonts(writer: PdfWriter) -> Iterator[DictionaryObject]:
    objects = (writer.get_object(number) for number in range(1, len(writer._objects) + 1))
    return (one for one in objects if isinstance(one, DictionaryObject) and "/ToUnicode" in one)


def _character(radical: re.Match[bytes]) -> bytes:
    """Return the code of the character for the code of a radical, as a character map has it."""
    text = unicodedata.normalize("NFKC", chr(int(radical[1], 16)))
    return b"<%04X>\n" % ord(text)
