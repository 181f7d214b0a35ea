"""Code and outputs: one element a line, so that a line which is too long wraps visibly and loses nothing."""

from __future__ import annotations

from collections.abc import Iterator

from .tree import E, Element

KINDS = ("code", "output")
SHORT = 16  # lines that stay together on a page
Run = tuple[str, str]  # text and the class of its token


def listings(body: Element) -> None:
    """Give each block of code its title, the class `code` or `output`, and one element a line."""
    for pre in list(body.iter("pre")):
        frame = pre.getparent() if pre.getparent().tag == "figure" else pre
        kind = next((name for name in frame.get("class", "").split() if name in KINDS), "code")
        lines = [_line(runs) for runs in _lines(pre)]
        block = E.div({"class": f"{kind} short" if len(lines) <= SHORT else kind})
        if (caption := frame.find("figcaption")) is not None:
            block.append(E.p(" ".join(caption.text_content().split()), {"class": "listing-title"}))
        block.append(E.pre(E.code(*lines)))
        _replace(frame, block)


def source(block: Element) -> list[str]:
    """Return the lines of a listing as they were written."""
    return [line.text_content().rstrip("\n") for line in block.find_class("line")]


def _lines(pre: Element) -> list[list[Run]]:
    """Return the runs of each line; the newline that ends the last one ends no further line."""
    lines: list[list[Run]] = [[]]
    for text, name in _runs(pre, ""):
        first, *others = text.split("\n")
        lines[-1].append((first, name))
        lines += [[(other, name)] for other in others]
    while len(lines) > 1 and not "".join(text for text, _ in lines[-1]).strip():
        lines.pop()
    return lines


def _runs(element: Element, name: str) -> Iterator[Run]:
    """Yield the text below an element with the class of the innermost token that it belongs to."""
    if element.text:
        yield element.text, name
    for child in element:
        yield from _runs(child, child.get("class", name))
        if child.tail:
            yield child.tail, name


def _line(runs: list[Run]) -> Element:
    line = E.span({"class": "line"})
    line.extend(E.span(text, {"class": name} if name.startswith("t-") else {}) for text, name in runs if text)
    line.append(E.span("\n"))
    return line


def _replace(old: Element, new: Element) -> None:
    """Put a new element where an old one stood, keeping its id and the text after it."""
    new.tail, old.tail = old.tail, None
    if identity := old.get("id"):
        new.set("id", identity)
    old.getparent().replace(old, new)
