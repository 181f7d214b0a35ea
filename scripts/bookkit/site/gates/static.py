"""The static edition has to build; it refuses by itself dead links and images, unknown components, bad formulas."""

from __future__ import annotations

import re
from pathlib import Path

from ...problems import Problem
from ...scratch import Scratch
from .. import node
from .website import Website

PLACE = re.compile(r"(?P<path>[^:\s]+\.(?:mdx|json))(?::(?P<line>\d+))?(?::\d+)?: (?P<message>.*)")


def check(website: Website) -> list[Problem]:
    """Build the static edition into the website's `out`, or where nobody keeps it; return why it cannot be built."""
    if website.out is not None:
        website.out.parent.mkdir(parents=True, exist_ok=True)
        return _build(website, website.out)
    with Scratch("static") as folder:
        return _build(website, folder / "site")


def _build(website: Website, out: Path) -> list[Problem]:
    done = node.run("reader", "build.mjs", website.folder, out)
    if done.returncode == 0:
        return []
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return [_problem(website, line) for line in lines] or [website.problem("", None, f"exit code {done.returncode}")]


def _problem(website: Website, line: str) -> Problem:
    match = PLACE.match(line)
    if match is None:
        return website.problem("", None, line.strip())
    path = Path(match["path"])
    inside = path.relative_to(website.folder) if path.is_relative_to(website.folder) else path
    return website.problem(inside.as_posix(), int(match["line"]) if match["line"] else None, match["message"])
