"""References in prose, in both languages: `§4.5`, Equation (1.2) or (1.2) alone, 式 (1.2), `[@key]`, web addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..lint.context import CITATION
from ..lint.references import CHAPTER, NUMBER, PATTERNS
from .words import Language

WEB = re.compile(r"https?://[^\s<>\"'`（）【】，。；、]+")
TRAILING = re.compile(r"[.,;:!?)\]]+$")
BARE_EQUATION = re.compile(rf"(?<![A-Za-z0-9_\])])\((?P<list>{NUMBER})\)")
# A Chinese list of numbers: 第 7、9 章, 第 13 和 14 章, 式 (1.2) 和 (1.3).
AND = r"\s*(?:、|，|,|和|与|及|或|至|到|[-–—~～])\s*"
IN_BRACKETS = rf"[(（]{NUMBER}[)）]"


def _chinese() -> Iterator[tuple[str, re.Pattern[str]]]:
    number = r"(?:\d{1,2}|[A-Z])"
    yield "chapter", re.compile(rf"第\s*(?P<many>{number}(?:{AND}{number})*)\s*章|附录\s*(?P<list>[A-Z])(?![A-Za-z])")
    yield "equation", re.compile(rf"(?:公式|方程|式)\s*(?P<many>{IN_BRACKETS}(?:{AND}{IN_BRACKETS})*)")
    yield "section", re.compile(rf"§§?\s*(?P<many>{NUMBER}(?:{AND}§?{NUMBER})*)")
    for kind, name in (("figure", "图"), ("table", "表"), ("exercise", "练习")):
        yield kind, re.compile(rf"{name}\s*(?P<many>{NUMBER}(?:{AND}{NUMBER})*)")


PATTERNS_OF: dict[Language, tuple[tuple[str, re.Pattern[str]], ...]] = {
    "en": (*PATTERNS, ("equation", BARE_EQUATION)),
    "zh": (*_chinese(), *PATTERNS, ("equation", BARE_EQUATION)),
}


@dataclass(frozen=True, order=True)
class Span:
    """A stretch of text that may become a link: what it names, and where it stands."""

    start: int
    end: int
    kind: str
    target: str


def spans(text: str, language: Language) -> list[Span]:
    """Return everything in a text that may become a link, in order, none over another."""
    found: list[Span] = []
    for span in (*_citations(text), *_addresses(text), *_references(text, language)):
        if all(span.end <= other.start or span.start >= other.end for other in found):
            found.append(span)
    return sorted(found)


def _citations(text: str) -> Iterator[Span]:
    for match in CITATION.finditer(text):
        yield Span(match.start(), match.end(), "citation", match["keys"])


def _addresses(text: str) -> Iterator[Span]:
    for match in WEB.finditer(text):
        address = TRAILING.sub("", match[0])
        if address.count("(") > address.count(")") and match[0][len(address) :].startswith(")"):
            address += ")"
        yield Span(match.start(), match.start() + len(address), "web", address)


def _references(text: str, language: Language) -> Iterator[Span]:
    for kind, pattern in PATTERNS_OF[language]:
        for match in pattern.finditer(text):
            yield from _numbers(kind, match)


def _numbers(kind: str, match: re.Match[str]) -> Iterator[Span]:
    """Yield one span for a single reference with its name, and one for each number of a list."""
    group = "many" if match.re.groupindex.get("many") and match["many"] else "list"
    item = {"chapter": CHAPTER, "equation": rf"[(（]?{NUMBER}[)）]?"}.get(kind, rf"§?{NUMBER}")
    parts = list(re.finditer(item, match[group]))
    for part in parts:
        start, end = match.start(group) + part.start(), match.start(group) + part.end()
        if len(parts) == 1:
            start, end = match.span()
        yield Span(start, end, kind, re.sub(r"[^\w.]", "", part[0]))


def citation_keys(keys: str) -> list[str]:
    """Return the keys of `@one; @two`."""
    return [key.strip().removeprefix("@") for key in keys.split(";")]
