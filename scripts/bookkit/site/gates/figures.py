"""Pictures: from the website itself, for light and for dark, and none that nobody uses."""

from __future__ import annotations

from collections.abc import Iterator

from ...problems import Problem
from .website import Item, Website

LIGHT, DARK = "-light.svg", "-dark.svg"
CLASSES = {LIGHT: "block dark:hidden", DARK: "hidden dark:block"}


def check(website: Website) -> list[Problem]:
    """Refuse pictures from elsewhere, a light one without its dark one or with other words, and files nobody uses."""
    problems = []
    used = {_favicon(website)}
    for page in website.pages.values():
        pictures = [item for item in page.of("element", "image") if item.kind == "image" or item.name == "img"]
        used |= {source(item).lstrip("/") for item in pictures}
        for line, message in [*_from_elsewhere(pictures), *_unpaired(pictures)]:
            problems.append(website.problem(page.path, line, message))
    folder = website.folder / "images"
    files = sorted(p.relative_to(website.folder).as_posix() for p in folder.rglob("*") if p.is_file())
    return problems + [website.problem(name, None, "no page shows this picture") for name in files if name not in used]


def source(item: Item) -> str:
    """Return the address of a picture."""
    return str(item.url if item.kind == "image" else item.attributes.get("src", ""))


def _favicon(website: Website) -> str:
    found = website.docs.get("favicon") if isinstance(website.docs, dict) else None
    return found.lstrip("/") if isinstance(found, str) else ""


def _from_elsewhere(pictures: list[Item]) -> Iterator[tuple[int | None, str]]:
    for item in pictures:
        if not source(item).startswith("/images/"):
            yield item.line, f"the picture {source(item)!r} is not in /images/ of this website"


def _unpaired(pictures: list[Item]) -> Iterator[tuple[int | None, str]]:
    """Yield pictures for light that are not followed by theirs for dark, and pictures for dark that follow none."""
    following = [*pictures, None][1:]
    paired: set[int] = set()
    for index, (item, then) in enumerate(zip(pictures, following, strict=True)):
        address = source(item)
        if address.endswith(LIGHT):
            wanted = address.removesuffix(LIGHT) + DARK
            if then is None or source(then) != wanted:
                yield item.line, f"{address} is not followed by {wanted}"
                continue
            paired.add(index + 1)
            if item.attributes.get("alt") != then.attributes.get("alt"):
                yield then.line, f"{wanted} has another alternative text than {address}"
            if (item.attributes.get("className"), then.attributes.get("className")) != (CLASSES[LIGHT], CLASSES[DARK]):
                yield item.line, f"{address} and {wanted} would both be seen, or neither: className says when each is"
        elif address.endswith(DARK) and index not in paired:
            yield item.line, f"{address} follows no {address.removesuffix(DARK) + LIGHT}"
