"""A book as EPUB 3: one archive, the same bytes whenever it is built from the same pages."""

from __future__ import annotations

import zipfile
from pathlib import Path

from bookkit.problems import BookError, Problem

from . import epubcheck, package
from .reading import Book

CONTAINER = (
    '<?xml version="1.0"?>\n<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
    '<rootfiles><rootfile full-path="book/package.opf" media-type="application/oebps-package+xml"/></rootfiles>'
    "</container>\n"
)
DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can hold


def build(book: Book, scratch: Path) -> tuple[Path, str]:
    """Return a valid EPUB in the scratch folder and what there is to say of it; BookError tells every fault."""
    epubcheck.require()
    finished = scratch / f"agentic-rl-{book.language}.epub"
    made = package.make(book)
    write(made.files, finished)
    if faults := epubcheck.faults(finished):
        raise BookError([Problem(finished.name, None, None, fault) for fault in faults])
    return finished, f"{len(made.spine)} files of text"


def write(files: dict[str, bytes], target: Path) -> None:
    """Write the archive. What it is comes first and not compressed, as reading systems look for it there."""
    with zipfile.ZipFile(target, "w") as archive:
        _put(archive, "mimetype", b"application/epub+zip", zipfile.ZIP_STORED)
        _put(archive, "META-INF/container.xml", CONTAINER.encode())
        for path in sorted(files):
            _put(archive, f"book/{path}", files[path])


def _put(archive: zipfile.ZipFile, path: str, content: bytes, how: int = zipfile.ZIP_DEFLATED) -> None:
    info = zipfile.ZipInfo(path, DATE)
    info.external_attr = 0o644 << 16
    archive.writestr(info, content, how, 9)
