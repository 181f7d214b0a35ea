"""The gates that a website folder has to pass before anybody reads it: check_site.py runs them.

website     the folder as a gate sees it
mintlify    what Mintlify itself refuses: validate, links, a11y, compile
static      the static edition builds
navigation  docs.json, orphan pages, pairs of languages, llms.txt
markup      components, HTML, expressions, anchors, tables
metadata    the frontmatter
figures     pictures: both of a pair, none from elsewhere, none that nobody uses
code        every code cell and every output, character for character
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ...problems import Problem
from . import code, figures, markup, metadata, mintlify, navigation, static
from .website import Website

__all__ = ["GATES", "Gate", "Result", "Website", "run"]

Check = Callable[[Website], list[Problem]]


@dataclass(frozen=True)
class Gate:
    """A gate: its name, what it refuses, and the check."""

    name: str
    refuses: str
    check: Check


@dataclass(frozen=True)
class Result:
    """What a gate found, and how long it took."""

    gate: Gate
    problems: tuple[Problem, ...]
    seconds: float


# What takes longest begins first.
GATES = (
    Gate("static", "what the static edition cannot be built from", static.check),
    Gate("compile", "pages and formulas that Mintlify's compiler cannot set", mintlify.compiles),
    Gate("validate", "what Mintlify's parser and its schema of docs.json refuse", mintlify.validates),
    Gate("links", "links to pages, anchors and images that are not there", mintlify.links),
    Gate("a11y", "images without alternative text, colours without contrast", mintlify.accessible),
    Gate("navigation", "unknown keys, nameless groups, orphan, repeated and unpaired pages", navigation.check),
    Gate("markup", "expressions, and elements and attributes that the pages may not use", markup.check),
    Gate(
        "anchors", "headings and equations without an id, ids that stand twice or in one language only", markup.anchors
    ),
    Gate("tables", "rows with more or fewer cells than their table's head", markup.tables),
    Gate("metadata", "frontmatter without title, version, date of the outputs, source", metadata.check),
    Gate("figures", "pictures for light alone, from elsewhere, or that nobody uses", figures.check),
    Gate("llms", "an llms.txt that does not name every page and nothing else", navigation.llms),
    Gate("code", "code or output that is not character for character the notebook's", code.check),
)


def run(website: Website, gates: Sequence[Gate], jobs: int) -> Iterator[Result]:
    """Run gates, as many at a time as there are jobs, and yield what each found, in their order."""
    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield from pool.map(lambda gate: _timed(website, gate), gates)
        finally:
            pool.shutdown(cancel_futures=True)


def _timed(website: Website, gate: Gate) -> Result:
    began = time.monotonic()
    problems = tuple(sorted(set(gate.check(website)), key=lambda p: (p.path, p.line or 0, p.message)))
    return Result(gate, problems, time.monotonic() - began)
