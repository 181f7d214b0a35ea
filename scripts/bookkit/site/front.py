"""The first page: what the book is, and its parts with every chapter and the question it answers."""

from __future__ import annotations

from collections.abc import Iterator

from ..plan import Part, Planned, load_plan
from . import escape
from .chapter import answered, frontmatter, title_of
from .links import Links, Site
from .targets import slug
from .words import Language, chapter_label, planned_title, short_number, word


def front_page(site: Site, language: Language) -> str:
    """Return the index page of a language."""
    title = word("book", language)
    fields = {"title": title, "sidebarTitle": title, "description": word("subtitle", language)}
    parts = [_part(site, part, language) for part in load_plan()]
    head = frontmatter({**fields, "version": site.facts.version})
    body = [word("welcome", language), *_how(site, language), *parts, *_foot(site, language)]
    return "\n\n".join([head, *body]) + "\n"


def _how(site: Site, language: Language) -> Iterator[str]:
    """Yield where to begin, when the chapters it names are on the site."""
    links = Links(site, language, "")
    if {"00", "01"} <= site.targets.chapters.keys():
        named = {
            name: f"[{escape.unbroken(chapter_label(key, language))}]({links.chapter(key)})"
            for name, key in (("notation", "00"), ("first", "01"))
        }
        yield word("how-to-read", language, **named)


def _foot(site: Site, language: Language) -> Iterator[str]:
    """Yield version and licences, and how to cite the book when CITATION.cff says of which year it is."""
    yield "---"
    yield word("footer-index", language, version=site.facts.version)
    if site.facts.year:
        title = f"{word('book', 'en')}: {word('subtitle', 'en')}"
        yield word("cite", language, title=title, version=site.facts.version, year=site.facts.year)


def _part(site: Site, part: Part, language: Language) -> str:
    links = Links(site, language, "")
    title = planned_title(part, language)
    heading = escape.anchored(slug(part.title), f"## {escape.text(title)}")
    chapters = (_line(site, planned, language, links) for planned in part.chapters)
    return "\n".join([heading, "", *chapters])


def _line(site: Site, planned: Planned, language: Language, links: Links) -> str:
    number, title = short_number(planned.key), planned_title(planned, language)
    if planned.key not in site.targets.chapters:
        return f"- {number} · {escape.text(title)}{word('planned', language)}"
    shown = site.editions.chapter(planned.key, language)
    name = escape.text(f"{number} · {title_of(shown)}")
    return f"- [{name}]({links.chapter(planned.key)})<br />{escape.text(answered(shown))}"
