"""What Mintlify itself refuses, by the functions that its commands call."""

from __future__ import annotations

from ...problems import Problem
from .website import Website, found, told_by


def validates(website: Website) -> list[Problem]:
    """Refuse what `mint validate` refuses: pages that do not parse, docs.json that its schema refuses."""
    return found(_told("validate", website), website.root, website.folder)


def accessible(website: Website) -> list[Problem]:
    """Refuse what `mint a11y` refuses: images without alternative text, colours without contrast."""
    return found(_told("a11y", website), website.root, website.folder)


def compiles(website: Website) -> list[Problem]:
    """Refuse pages that Mintlify's compiler refuses, and formulas that KaTeX cannot set."""
    return found(_told("compile", website), website.root, website.folder)


def links(website: Website) -> list[Problem]:
    """Refuse what `mint broken-links --check-anchors` refuses."""
    told = _told("links", website)
    for each in told["problems"]:
        if "link" in each:
            each["message"] = f"leads nowhere: {each['link']}"
            each["line"] = _line(website, each["page"], each["link"])
    return found(told, website.root, website.folder)


def _line(website: Website, page: str, link: str) -> int | None:
    """Return the line of a page on which a link stands, which Mintlify does not tell."""
    there = website.pages.get(page)
    for item in there.items if there else ():
        if link in (item.url, item.attributes.get("src"), item.attributes.get("href")):
            return item.line
    return None


def _told(script: str, website: Website) -> dict:
    told = told_by(script, website.root, website.folder)
    if told["pages"] != len(website.pages):
        said = f"looked at {told['pages']} of {len(website.pages)} pages"
        told["problems"].append({"page": "", "line": None, "message": f"{script}.mjs {said}"})
    return told
