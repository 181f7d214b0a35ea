"""One document out of all pages of a book, as it will be printed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bookkit.problems import BookError

from . import cover, fonts, listings
from .cleaning import clean, headings, images, relink
from .reading import Book, Group, Page
from .tree import E, Element, as_html, parse

STYLE = Path(__file__).with_name("paper.css").read_text(encoding="utf-8")
KATEX = Path("assets/katex/katex.css")  # the style of formulas, in the static edition
UNKNOWN = "000"  # holds the place of a page number in the first printing


@dataclass(frozen=True)
class Entry:
    """A line of the contents: 1 a part, 2 a page of the site, 3 a section of it."""

    level: int
    anchor: str
    title: str


@dataclass(frozen=True)
class Paper:
    """A book laid out as one document: the text of each page by its key, and the contents."""

    book: Book
    bodies: dict[str, Element]
    entries: list[Entry]


def lay_out(book: Book) -> Paper:
    """Return the book as it will be printed; BookError names dead links and missing figures."""
    bodies = {page.key: clean(page) for page in book.pages}
    problems = relink(book, bodies, lambda key, fragment: f"#{anchor(key, fragment)}")
    problems += images(book, bodies)[1]
    if problems:
        raise BookError(problems)
    for key, body in bodies.items():
        listings.listings(body)
        _for_print(key, body)
    return Paper(book, bodies, _entries(book, bodies))


def anchor(key: str, fragment: str = "") -> str:
    """Return the id that an id of a page has in the one document."""
    return f"{key}--{fragment}" if fragment else key


def _for_print(key: str, body: Element) -> None:
    """Make ids unique in the document, headings one level lower, and formulas what is seen and nothing beside."""
    for element in body.iter():
        if element.get("id"):
            element.set("id", anchor(key, element.get("id")))
    for level in (5, 4, 3, 2):
        for heading in list(body.iter(f"h{level}")):
            heading.tag = f"h{level + 1}"
    for formula in body.find_class("katex-mathml"):
        if (spoken := formula.find(".//annotation")) is not None:
            formula.getparent().set("role", "math")
            formula.getparent().set("aria-label", spoken.text_content())
        formula.drop_tree()


def _entries(book: Book, bodies: dict[str, Element]) -> list[Entry]:
    """Return the contents in reading order. A part that is one page has no line of its own."""
    entries = []
    for number, group in enumerate(book.groups):
        if not _alone(group):
            entries.append(Entry(1, f"part-{number}", group.title))
        for page in group.pages:
            entries.append(Entry(1 if _alone(group) else 2, page.key, page.title))
            sections = headings(bodies[page.key], 3)
            entries += [Entry(3, owner, title) for owner, title in sections if owner and not _alone(group)]
    return entries


def _alone(group: Group) -> bool:
    return len(group.pages) == 1 and group.pages[0].key == "index"


def document(paper: Paper) -> str:
    """Return the document's HTML, in which the contents await the page numbers that the first printing tells."""
    book = paper.book
    main = E.main(_cover(book), _contents(paper))
    for number, group in enumerate(book.groups):
        if not _alone(group):
            main.append(E.section(E.h1(group.title), {"class": "part", "id": f"part-{number}"}))
        main.extend(_chapter(page, paper.bodies[page.key], _alone(group)) for page in group.pages)
    sheet = fonts.paper_css() + STYLE + _headers(book)
    head = E.head(
        E.meta(charset="utf-8"),
        E.title(full_title(book)),
        E.link(rel="stylesheet", href=(book.site / KATEX).resolve().as_uri()),
        E.style(sheet),
    )
    tree = E.html(head, E.body(main), lang=book.words.tag)
    return "<!doctype html>\n" + as_html(tree)


def full_title(book: Book) -> str:
    """Return title and subtitle."""
    return book.words.title + book.words.separator + book.words.subtitle


def _cover(book: Book) -> Element:
    words = book.words
    dated = [words.version.format(book.version), words.recorded.format(book.recorded)]
    facts = [*dated, words.authors, words.licence]
    return E.section(
        {"class": "cover"},
        E.p(words.title, {"class": "cover-title"}),
        E.p(words.subtitle, {"class": "cover-subtitle"}),
        parse(f'<div class="cover-art"><svg viewBox="0 0 1000 260">{cover.art()}</svg></div>'),
        E.div({"class": "cover-facts"}, *(E.p(fact) for fact in facts)),
    )


def _contents(paper: Paper) -> Element:
    """Return the contents; every number has the same width, so that filling them in moves nothing."""
    rows = [
        E.a(
            {"href": f"#{entry.anchor}", "class": f"row level-{entry.level}"},
            E.span(entry.title, {"class": "row-title"}),
            E.span(UNKNOWN, {"class": "row-page"}),
        )
        for entry in paper.entries
    ]
    return E.nav({"class": "contents"}, E.h1(paper.book.words.contents, id="contents"), *rows)


def _chapter(page: Page, body: Element, alone: bool) -> Element:
    """Return a page of the site as a chapter; its name chooses the running header."""
    title = E.h1(page.title) if alone else E.h2(page.title)
    return E.section({"class": "chapter", "id": page.key, "style": f"page: {header_name(page)}"}, title, body)


def header_name(page: Page) -> str:
    """Return the name of the pages that carry a chapter's title on top."""
    return f"p-{page.key}"


def _headers(book: Book) -> str:
    """Return the rules for the running headers."""
    return "".join(
        f'@page {header_name(page)} {{ @top-left {{ content: "{_quoted(page.title)}"; }} '
        f'@top-right {{ content: "{_quoted(book.words.title)}"; }} }}\n'
        for page in book.pages
    )


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
