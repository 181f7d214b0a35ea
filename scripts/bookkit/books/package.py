"""The files of an EPUB: chapters, contents, cover, package document."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from bookkit.problems import BookError, Problem

from . import cover, fonts, listings, mathml
from .cleaning import clean, headings, images, relink
from .reading import Book, Page
from .tree import Element, as_xml, xml_fault
from .words import AUTHORS, LICENCE, LICENCE_URL

STYLE = Path(__file__).with_name("epub.css").read_text(encoding="utf-8")
NAMESPACES = 'xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"'
NAME = uuid.UUID("5a3f1c9e-2f0e-5d0b-9f5b-6b1f0f3a7c21")  # of which every book's identifier is made
# What the book offers to readers who cannot see it, in the terms of schema.org.
ACCESS = [
    ("schema:accessMode", "textual"),
    ("schema:accessMode", "visual"),
    ("schema:accessModeSufficient", "textual"),
    ("schema:accessibilityFeature", "structuralNavigation"),
    ("schema:accessibilityFeature", "tableOfContents"),
    ("schema:accessibilityFeature", "alternativeText"),
    ("schema:accessibilityFeature", "MathML"),
    ("schema:accessibilityHazard", "none"),
    ("schema:accessibilitySummary", "Formulas are MathML with their LaTeX as text; figures have descriptions."),
]


@dataclass
class Package:
    """The files of an EPUB by their path, and the reading order."""

    book: Book
    files: dict[str, bytes] = field(default_factory=dict)
    spine: list[str] = field(default_factory=list)
    with_math: set[str] = field(default_factory=set)


def file_of(page: Page) -> str:
    """Return the file of a page in the EPUB."""
    return f"{page.key}.xhtml"


def make(book: Book) -> Package:
    """Return all files of the book; BookError names dead links, missing figures and pages that are no XHTML."""
    package = Package(book)
    bodies = {page.key: clean(page) for page in book.pages}
    problems = relink(book, bodies, _address)
    figures, missing = images(book, bodies)
    if problems := problems + missing:
        raise BookError(problems)
    names = _add_figures(package, figures)
    _add_front(package)
    for page in book.pages:
        _add_page(package, page, bodies[page.key], names)
    package.files[f"fonts/{fonts.MATHS.name}"] = fonts.maths()
    package.files["book.css"] = STYLE.encode()
    package.files["nav.xhtml"] = _navigation(book, bodies)
    package.files["toc.ncx"] = _ncx(book, bodies)
    package.files["package.opf"] = _opf(package)
    return package


def _address(key: str, fragment: str) -> str:
    return f"{key}.xhtml#{fragment}" if fragment else f"{key}.xhtml"


def _add_figures(package: Package, figures: dict[str, Path]) -> dict[str, str]:
    """Add the figures and return their place in the EPUB by the address that pages give."""
    names = {url: f"images/{file.name}" for url, file in figures.items()}
    package.files |= {names[url]: file.read_bytes() for url, file in figures.items()}
    return names


def _add_front(package: Package) -> None:
    """Add the cover and the title page."""
    words = package.book.words
    package.files["images/cover.svg"] = cover.svg(package.book).encode()
    picture = f'<img src="images/cover.svg" alt={quoteattr(words.title)}/>'
    _add(package, "cover.xhtml", words.cover, f'<section class="cover" epub:type="cover">{picture}</section>')
    book = (words.version.format(package.book.version), words.recorded.format(package.book.recorded))
    facts = (*book, words.authors, words.licence)
    rows = "".join(f"<p>{escape(fact)}</p>" for fact in facts)
    head = f'<h1>{escape(words.title)}</h1><p class="subtitle">{escape(words.subtitle)}</p>'
    _add(package, "title.xhtml", words.title, f'<section class="title" epub:type="titlepage">{head}{rows}</section>')
    package.spine.append("nav.xhtml")


def _add_page(package: Package, page: Page, body: Element, names: dict[str, str]) -> None:
    """Add a page of the site as a chapter."""
    for image in body.iter("img"):
        image.set("src", names[image.get("src")])
    listings.listings(body)
    mathml.set_formulas(body)
    for cell in body.iter("td", "th"):
        if side := cell.attrib.pop("align", None):
            cell.set("style", f"text-align: {side}")
    if body.find(".//math") is not None:
        package.with_math.add(file_of(page))
    text = as_xml(body)
    section = f'<section epub:type="chapter"><h1>{escape(page.title)}</h1>{text}</section>'
    _add(package, file_of(page), page.title, section)


def _add(package: Package, name: str, title: str, section: str) -> None:
    """Add a file of text; BookError where it is not well-formed."""
    package.files[name] = _xhtml(package.book, name, title, section)
    package.spine.append(name)


def _xhtml(book: Book, name: str, title: str, body: str) -> bytes:
    """Return an XHTML file; BookError names the place where it is not well-formed."""
    tag = book.words.tag
    text = (
        f'<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n<html {NAMESPACES} lang="{tag}" xml:lang="{tag}">'
        f'<head><meta charset="utf-8"/><title>{escape(title)}</title><link rel="stylesheet" href="book.css"/></head>'
        f"<body>{body}</body></html>\n"
    ).encode()
    if fault := xml_fault(text):
        raise BookError(Problem(name, None, fault[0], f"is not well-formed: {fault[1]}"))
    return text


@dataclass(frozen=True)
class Node:
    """An entry of the contents with those below it."""

    title: str
    target: str
    below: tuple[Node, ...] = ()


def _contents(book: Book, bodies: dict[str, Element]) -> list[Node]:
    """Return the contents: parts, chapters, sections."""
    parts = []
    for group in book.groups:
        chapters = tuple(
            Node(page.title, file_of(page), tuple(_sections(file_of(page), bodies[page.key]))) for page in group.pages
        )
        parts.append(Node(group.title, chapters[0].target, chapters))
    return parts


def _sections(file: str, body: Element) -> Iterable[Node]:
    return (Node(title, f"{file}#{owner}") for owner, title in headings(body) if owner)


def _navigation(book: Book, bodies: dict[str, Element]) -> bytes:
    """Return the contents as EPUB 3 has them."""
    words = book.words

    def rows(nodes: Iterable[Node]) -> str:
        return f"<ol>{''.join(row(node) for node in nodes)}</ol>"

    def row(node: Node) -> str:
        link = f"<a href={quoteattr(node.target)}>{escape(node.title)}</a>"
        return f"<li>{link}{rows(node.below) if node.below else ''}</li>"

    toc = f'<nav epub:type="toc" id="toc"><h1>{words.contents}</h1>{rows(_contents(book, bodies))}</nav>'
    first = file_of(book.pages[0])
    marks = (
        ("cover", "cover.xhtml", words.cover),
        ("toc", "nav.xhtml", words.contents),
        ("bodymatter", first, words.title),
    )
    places = "".join(f'<li><a epub:type="{kind}" href="{file}">{escape(name)}</a></li>' for kind, file, name in marks)
    landmarks = f'<nav epub:type="landmarks" id="landmarks" hidden="hidden"><ol>{places}</ol></nav>'
    return _xhtml(book, "nav.xhtml", words.contents, toc + landmarks)


def _ncx(book: Book, bodies: dict[str, Element]) -> bytes:
    """Return the contents as older reading systems have them."""
    order: dict[str, int] = {}  # a part and its first chapter are one place
    names = itertools.count(1)

    def point(node: Node) -> str:
        place = order.setdefault(node.target, len(order) + 1)
        label = f"<navLabel><text>{escape(node.title)}</text></navLabel><content src={quoteattr(node.target)}/>"
        head = f'<navPoint id="n{next(names)}" playOrder="{place}">{label}'
        return f"{head}{''.join(map(point, node.below))}</navPoint>"

    points = "".join(map(point, _contents(book, bodies)))
    head = f'<head><meta name="dtb:uid" content="{identifier(book)}"/></head>'
    title = f"<docTitle><text>{escape(book.words.title)}</text></docTitle>"
    return (
        f'<?xml version="1.0" encoding="utf-8"?>\n<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/" version="2005-1">'
        f"{head}{title}<navMap>{points}</navMap></ncx>\n"
    ).encode()


def identifier(book: Book) -> str:
    """Return what names the book, the same in each edition of it."""
    return f"urn:uuid:{uuid.uuid5(NAME, book.language)}"


def _opf(package: Package) -> bytes:
    """Return the package document."""
    items = [_item(package, path) for path in sorted(package.files)]
    order = "".join(f'<itemref idref="{_id(name)}"/>' for name in package.spine)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<package xmlns="http://www.idpf.org/2007/opf" version="3.0" '
        f'unique-identifier="book" xml:lang="{package.book.words.tag}">{_metadata(package.book)}'
        f'<manifest>{"".join(items)}<item id="{_id("toc.ncx")}" href="toc.ncx" '
        f'media-type="application/x-dtbncx+xml"/></manifest><spine toc="{_id("toc.ncx")}">{order}</spine></package>\n'
    ).encode()


def _metadata(book: Book) -> str:
    """Return the metadata; the date is that of the recorded outputs, so that equal text gives equal bytes."""
    words = book.words
    core = {
        "title": f"{words.title}{words.separator}{words.subtitle}",
        "creator": AUTHORS,
        "language": words.tag,
        "rights": f"{LICENCE} {LICENCE_URL}",
        "date": book.recorded,
        "description": words.version.format(book.version),
    }
    rows = [f"<dc:{name}>{escape(value)}</dc:{name}>" for name, value in core.items()]
    facts = [("dcterms:modified", f"{book.recorded}T00:00:00Z"), *ACCESS]
    rows += [f'<meta property="{name}">{value}</meta>' for name, value in facts]
    rows += ['<meta name="cover" content="images-cover.svg"/>']
    first = f'<dc:identifier id="book">{identifier(book)}</dc:identifier>'
    return f'<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">{first}{"".join(rows)}</metadata>'


def _item(package: Package, path: str) -> str:
    """Return the manifest's line for a file."""
    if path == "toc.ncx":
        return ""
    kinds = {"xhtml": "application/xhtml+xml", "css": "text/css", "svg": "image/svg+xml", "woff2": "font/woff2"}
    properties = {"nav.xhtml": "nav", "images/cover.svg": "cover-image"}.get(path, "")
    if path in package.with_math:
        properties = "mathml"
    mark = f' properties="{properties}"' if properties else ""
    return f'<item id="{_id(path)}" href="{path}" media-type="{kinds[path.rsplit(".", 1)[-1]]}"{mark}/>'


def _id(path: str) -> str:
    """Return a name for the manifest, which may not begin with a digit."""
    name = path.replace("/", "-")
    return name if name[0].isalpha() else f"p-{name}"
