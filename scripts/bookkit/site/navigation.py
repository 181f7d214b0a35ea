"""docs.json: the groups and pages of both languages, in the order of the plan, and how Mintlify shows them."""

from __future__ import annotations

import json
from typing import Any

from ..plan import load_plan
from .links import Site
from .targets import chapter_page
from .words import LANGUAGES, Language, planned_title, word

COLORS = {"primary": "#0F766E", "light": "#2DD4BF", "dark": "#0F766E"}


def groups(site: Site, language: Language) -> list[dict[str, Any]]:
    """Return the groups of a language's sidebar: the start, each part that has chapters, the reference pages."""
    by_key = {chapter.key: chapter for chapter in site.chapters}
    found = [{"group": word("start", language), "pages": [f"{language}/index"]}]
    for part in load_plan():
        pages = [chapter_page(by_key[p.key], language) for p in part.chapters if p.key in by_key]
        found += [{"group": planned_title(part, language), "pages": pages}] if pages else []
    pages = [f"{language}/reference/{name}" for name in site.documents.values()]
    return [*found, *([{"group": word("reference", language), "pages": pages}] if pages else [])]


def docs_json(site: Site) -> str:
    """Return the file that Mintlify and the static edition read."""
    languages = [{"language": language, "groups": groups(site, language)} for language in LANGUAGES]
    config = {
        "$schema": "https://mintlify.com/docs.json",
        "theme": "mint",
        "name": word("book", "en"),
        "colors": COLORS,
        "favicon": "/images/favicon.svg",
        "styling": {"latex": True},
        "navigation": {"languages": languages},
    }
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"
