"""docs.json beyond what Mintlify's schema refuses, the pages it lists, and llms.txt, which lists them too."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ...problems import Problem
from .website import LANGUAGES, Website

# The keys that the book's docs.json uses. Mintlify takes any other without a word, also a misspelt one.
# A list stands for each of its entries.
KEYS: dict[str, Any] = {
    "$schema": {},
    "theme": {},
    "name": {},
    "description": {},
    "colors": {"primary": {}, "light": {}, "dark": {}},
    "favicon": {},
    "styling": {"latex": {}, "codeblocks": {}},
    "navigation": {"languages": {"language": {}, "groups": {"group": {}, "pages": {}}}},
}
LINK = re.compile(r"\]\(([^)\s]+)\)")


def check(website: Website) -> list[Problem]:
    """Refuse a docs.json that says something else than which pages there are, each once, the same in both languages."""
    faults = [p for p in website.unreadable if p.path.endswith("docs.json")]
    if faults or not isinstance(website.docs, dict):
        return faults or [website.problem("docs.json", None, "not an object")]
    messages = [*_unknown(website.docs, KEYS, ""), *_groups(website), *_pages(website), *_pairs(website)]
    orphans = sorted({page.path for page in website.pages.values() if page.name not in website.names})
    return [
        *(website.problem("docs.json", None, message) for message in messages),
        *(website.problem(path, None, "docs.json does not list this page") for path in orphans),
    ]


def _unknown(value: Any, known: dict[str, Any], place: str) -> Iterator[str]:
    for each in value if isinstance(value, list) else [value]:
        for key, below in each.items() if isinstance(each, dict) else ():
            if key not in known:
                yield f"unknown key {place}{key}; known here: {', '.join(known) or 'none'}"
            else:
                yield from _unknown(below, known[key], f"{place}{key}.")


def _groups(website: Website) -> Iterator[str]:
    if [each.get("language") for each in website.languages] != list(LANGUAGES):
        yield f"navigation.languages is not {' and '.join(LANGUAGES)}"
    for each in website.languages:
        for number, group in enumerate(_listed_groups(each), start=1):
            name, pages = group.get("group"), group.get("pages")
            if not isinstance(name, str) or not name.strip():
                yield f"group {number} of {each.get('language')} has no name"
            if not isinstance(pages, list) or not pages or not all(isinstance(page, str) for page in pages):
                yield f"group {number} of {each.get('language')} has no list of pages"


def _listed_groups(language: dict[str, Any]) -> list[dict[str, Any]]:
    groups = language.get("groups")
    return [each if isinstance(each, dict) else {} for each in groups] if isinstance(groups, list) else []


def _pages(website: Website) -> Iterator[str]:
    for page, times in Counter(website.names).items():
        if times > 1:
            yield f"lists {page} {times} times"
    for language in website.languages:
        for page in website.listed(language):
            if not page.startswith(f"{language.get('language')}/"):
                yield f"lists {page} under {language.get('language')}"


def _pairs(website: Website) -> Iterator[str]:
    """Yield pages that one language has and another has not, and pages that stand in another order."""
    lists = {each.get("language"): [p.partition("/")[2] for p in website.listed(each)] for each in website.languages}
    there = {each: {n.partition("/")[2] for n in _files(website) if n.startswith(f"{each}/")} for each in LANGUAGES}
    first, second = LANGUAGES
    for language, other in ((first, second), (second, first)):
        for page in sorted((set(lists.get(language, ())) | there[language]) - set(lists.get(other, ()))):
            yield f"{language}/{page} has no {other}/{page} beside it in the navigation"
        for page in sorted(there[language] - there[other]):
            yield f"{language}/{page}.mdx has no {other}/{page}.mdx beside it"
    if set(lists.get(first, ())) == set(lists.get(second, ())) and lists.get(first) != lists.get(second):
        yield f"lists the pages of {first} and {second} in another order"


def _files(website: Website) -> list[str]:
    return [page.name for page in website.pages.values()]


def llms(website: Website) -> list[Problem]:
    """Refuse an llms.txt that leaves out a page, names one twice, or links to anything else."""
    try:
        text = (website.folder / "llms.txt").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return [website.problem("llms.txt", None, f"cannot be read: {error}")]
    named: dict[str, int] = {}
    problems = []
    for number, line in enumerate(text.splitlines(), start=1):
        for link in LINK.findall(line):
            page = re.sub(r"\.(md|mdx|html)$", "", link.lstrip("/"))
            if page not in website.names:
                problems.append(
                    website.problem("llms.txt", number, f"links to {link}, which is no page of the website")
                )
            elif page in named:
                problems.append(website.problem("llms.txt", number, f"names {page} again, as line {named[page]} does"))
            named.setdefault(page, number)
    missing = [page for page in website.names if page not in named]
    return problems + [website.problem("llms.txt", None, f"does not name {page}") for page in missing]
