"""A page of the site becomes plain HTML that a book can hold."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bookkit.problems import Problem, relative

from .reading import Book, Page
from .tree import E, Element

# What only a screen with a pointer needs.
SCREEN_ONLY = "button|script|style|nav|source|noscript|template"
CAPTION = re.compile(r"^\s*(Figure|图)\s*[0-9A-Z]+\.\d+")
MATH = "{http://www.w3.org/1998/Math/MathML}"

Address = Callable[[str, str], str]  # how a format writes a link to an id (or "") on a page


def clean(page: Page) -> Element:
    """Return the text of a page as a new tree: solutions open, the light figures with their captions, no controls."""
    body = copy.deepcopy(page.body)
    body.tag, body.tail = "div", None
    body.attrib.clear()
    for element in list(body.iter(*SCREEN_ONLY.split("|"))):
        _drop(element)
    for icon in [svg for svg in body.iter("svg") if not _in_formula(svg)]:
        _drop(icon)
    for link in [link for link in body.iter("a") if _is_permalink(link)]:
        _drop(link)
    for details in list(body.iter("details")):
        _open(details)
    for image in list(body.iter("img")):
        _keep_light(image)
    for image in body.iter("img"):
        _frame(image)
    return body


def _drop(element: Element) -> None:
    """Remove an element, not the text after it."""
    if element.getparent() is not None:
        element.drop_tree()


def _in_formula(svg: Element) -> bool:
    """Return whether a drawing is the sign of a root or a brace, which KaTeX draws."""
    return any("katex" in parent.get("class", "").split() for parent in svg.iterancestors())


def _is_permalink(link: Element) -> bool:
    """Return whether a link is the mark beside a heading that leads to the heading itself."""
    return link.get("href", "").startswith("#") and link.text_content().strip() in {"", "#", "¶", "§"}


def _open(details: Element) -> None:
    """Turn a folded block into a section with its title on top."""
    details.tag = "section"
    details.attrib.pop("open", None)
    details.set("class", "fold")
    summary = details.find("summary")
    if summary is not None:
        title = E.p(" ".join(summary.text_content().split()), {"class": "fold-title"})
        details.replace(summary, title)


def _keep_light(image: Element) -> None:
    """Remove the figure for dark pages; the other one loses what chooses between them."""
    if image.get("src", "").endswith("-dark.svg") or "dark:block" in image.get("class", ""):
        _drop(image)
        return
    for name in ("class", "style", "loading", "decoding", "width", "height"):
        image.attrib.pop(name, None)


def _frame(image: Element) -> None:
    """Make the block that holds a figure a `<figure>` and take the caption, the paragraph after it, inside."""
    block = image
    while (parent := block.getparent()) is not None and len(parent) == 1 and not _own_text(parent):
        block = parent
        if block.tag == "figure" or parent.getparent() is None:
            break
    if block.getparent() is None:
        return
    figure = E.figure(image_copy := copy.copy(image))
    image_copy.tail = None
    if identity := block.get("id"):
        figure.set("id", identity)
    following = block.getnext()
    block.getparent().replace(block, figure)
    if following is not None and following.tag == "p" and CAPTION.match(following.text_content()):
        following.tag, following.tail = "figcaption", None
        figure.append(following)


def _own_text(element: Element) -> str:
    return ((element.text or "") + "".join(child.tail or "" for child in element)).strip()


def relink(book: Book, bodies: dict[str, Element], address: Address) -> list[Problem]:
    """Point every link between pages of the book where the format has them; return those that lead nowhere.

    A link to a page of the site that the book leaves out becomes text.
    """
    ids = {key: {element.get("id") for element in body.iter() if element.get("id")} for key, body in bodies.items()}
    keys = {page.file.resolve(): page.key for page in book.pages}
    problems = []
    for page in book.pages:
        for link in list(bodies[page.key].iter("a")):
            href = link.get("href")
            if href is None or urlsplit(href).scheme:
                continue
            target, fragment = _target(page, href)
            if target not in keys:
                if not target.is_file():
                    problems.append(_dead(book, page, href))
                link.drop_tag()
            elif fragment and fragment not in ids[keys[target]]:
                problems.append(_dead(book, page, href))
            else:
                _point(link, address(keys[target], fragment))
    return problems


def _target(page: Page, href: str) -> tuple[Path, str]:
    """Return the file that a link of a page leads to, and the id in it."""
    parts = urlsplit(href)
    file = (page.file.parent / unquote(parts.path)).resolve() if parts.path else page.file.resolve()
    return file, unquote(parts.fragment)


def _point(link: Element, href: str) -> None:
    for name in ("target", "rel", "class"):
        link.attrib.pop(name, None)
    link.set("href", href)


def _dead(book: Book, page: Page, href: str) -> Problem:
    return Problem(relative(page.file, book.site), None, None, f"the link {href} leads nowhere")


def images(book: Book, bodies: dict[str, Element]) -> tuple[dict[str, Path], list[Problem]]:
    """Return the files of all figures by the `src` that pages give, made absolute, and those that are missing."""
    found: dict[str, Path] = {}
    problems = []
    for page in book.pages:
        for image in bodies[page.key].iter("img"):
            file = (page.file.parent / unquote(image.get("src", ""))).resolve()
            if not file.is_file():
                message = f"the figure {image.get('src')} does not exist"
                problems.append(Problem(relative(page.file, book.site), None, None, message))
            image.set("src", file.as_uri())
            found[file.as_uri()] = file
    return found, problems


def headings(body: Element, level: int = 2) -> Iterable[tuple[str, str]]:
    """Yield the id and the text of each heading of a level; the id may stand on the block around it."""
    for heading in body.iter(f"h{level}"):
        owner = heading.get("id") or heading.getparent().get("id") or ""
        yield owner, " ".join(heading.text_content().split())
