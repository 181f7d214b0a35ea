"""Figures (L4xx): images in chapters, and the SVG files they show."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from ..problems import Problem, read_text, relative
from .context import CAPTION, Context, Page, Placed
from .markdown import Piece

ALT_LENGTH = 40
SVG = "{http://www.w3.org/2000/svg}"
REFERENCES = ("href", "{http://www.w3.org/1999/xlink}href", "src")
EXTERNAL_STYLE = re.compile(r"@import|url\(\s*['\"]?(?!#)[^)]*\)")


def check(context: Context) -> Iterator[Problem]:
    """Yield every finding about figures."""
    for page in context.chosen():
        for index, placed in enumerate(page.placed):
            for image in placed.block.of("image"):
                yield from _image(context, page, placed, image)
                if page.chapter.kind == "chapter":
                    yield from _caption(page, index)
        if page.chapter.kind == "chapter":
            yield from _numbers(page)
    if context.whole:
        for path in sorted((context.root / "figures").glob("*.svg")):
            yield from _svg(context, path)


def _image(context: Context, page: Page, placed: Placed, image: Piece) -> Iterator[Problem]:
    line = placed.line_at(image.at)
    alt = image.text.strip()
    name = image.target.rsplit("/", 1)[-1]
    stem = name.rsplit(".", 1)[0]
    if len(alt) < ALT_LENGTH or re.sub(r"[\W_]+", " ", alt).lower() == re.sub(r"[\W_]+", " ", stem).lower():
        message = (
            f"alternative text {alt!r} has {len(alt)} characters; say what the figure shows (at least {ALT_LENGTH})"
        )
        yield page.problem("L401", placed.cell, line, message)
    path = (page.chapter.path.parent / unquote(image.target)).resolve()
    if "://" in image.target or path.parent != (context.root / "figures").resolve():
        yield page.problem("L402", placed.cell, line, f"image {image.target!r} is not in figures/")
    elif not path.is_file():
        yield page.problem("L402", placed.cell, line, f"image {image.target!r}: no such file")


def _caption(page: Page, index: int) -> Iterator[Problem]:
    placed = page.placed[index]
    after = page.placed[index + 1] if index + 1 < len(page.placed) else None
    match = CAPTION.match(after.block.strong) if after is not None else None
    if after is None or after.cell is not placed.cell or match is None or match["kind"] != "Figure":
        message = "no caption **Figure k.n.** … follows this image in its cell"
        yield page.problem("L403", placed.cell, placed.block.line, message)


def _numbers(page: Page) -> Iterator[Problem]:
    for count, mark in enumerate(page.captions["Figure"], start=1):
        if mark.number != f"{page.prefix}.{count}":
            message = f"figure {mark.number} stands where {page.prefix}.{count} is due"
            yield page.problem("L404", mark.cell, mark.line, message)


def _svg(context: Context, path: Path) -> Iterator[Problem]:
    name = relative(path, context.root)
    if not _is_shown(context, path.name):
        yield Problem(name, None, None, "no chapter and no document shows this figure", code="L405")
    try:
        root = ElementTree.fromstring(path.read_bytes())
    except ElementTree.ParseError as error:
        yield Problem(name, None, error.position[0], f"not well-formed XML: {error}", code="L406")
        return
    if root.tag != f"{SVG}svg":
        yield Problem(name, None, 1, f"the root element is {root.tag!r}, not svg", code="L406")
        return
    if root.get("role") != "img":
        yield Problem(name, None, 1, f"role is {root.get('role')!r}; a figure carries role='img'", code="L407")
    for tag in ("title", "desc"):
        element = root.find(f"{SVG}{tag}")
        if element is None or not "".join(element.itertext()).strip():
            yield Problem(name, None, 1, f"no <{tag}> with text directly inside <svg>", code="L407")
    yield from _active(name, root)


def _is_shown(context: Context, name: str) -> bool:
    images = (i for page in context.pages.values() for p in page.placed for i in p.block.of("image"))
    if any(image.target.endswith(f"/{name}") for image in images):
        return True
    documents = ("README.md", "editorial-guide.md")
    paths = (context.root / document for document in documents)
    return any(f"figures/{name}" in read_text(path, context.root) for path in paths if path.is_file())


def _active(name: str, root: ElementTree.Element) -> Iterator[Problem]:
    for element in root.iter():
        tag = element.tag.rsplit("}", 1)[-1] if isinstance(element.tag, str) else ""
        if tag in ("script", "foreignObject"):
            yield Problem(name, None, None, f"holds a <{tag}>", code="L408")
        for key, value in element.attrib.items():
            inline = value.startswith(("#", "data:"))
            if (key in REFERENCES and not inline) or EXTERNAL_STYLE.search(value) or key.lower().startswith("on"):
                yield Problem(name, None, None, f"<{tag} {key}={value[:60]!r}> reaches outside the file", code="L408")
        if tag == "style" and EXTERNAL_STYLE.search(element.text or ""):
            yield Problem(name, None, None, "a <style> reaches outside the file", code="L408")
