"""Citations (L6xx): the text and the ledger of sources agree."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..notebook import Cell
from ..problems import Problem, read_text
from ..sources import FILE
from .context import CITATION, Context, Page, Placed, citations
from .markdown import parse
from .provenance import measured

ITEM = re.compile(r"- \[@")


def check(context: Context) -> Iterator[Problem]:
    """Yield every finding about citations."""
    yield from context.ledger.problems
    for page in context.chosen():
        yield from _keys(context, page)
        yield from _reported(page)
        if page.chapter.kind == "chapter":
            yield from _list(page)
    if context.whole:
        yield from _uncited(context)


def _keys(context: Context, page: Page) -> Iterator[Problem]:
    for placed in page.placed:
        for key, offset in citations(placed.block.text):
            if key not in context.ledger.entries:
                message = f"[@{key}] does not stand in {FILE}"
                yield page.problem("L601", placed.cell, placed.line_at(offset), message)
        for match in re.finditer(r"\[@[^\]\n]*\]?", placed.block.text):
            if not CITATION.fullmatch(match[0]):
                message = f"{match[0]!r} is no citation; write [@key] or [@one; @two]"
                yield page.problem("L601", placed.cell, placed.line_at(match.start()), message)


def _reported(page: Page) -> Iterator[Problem]:
    for placed in page.placed:
        reported = re.search(r"\*\*Reported\b", placed.block.raw)
        if reported is None or placed.block.kind in ("fence", "math", "heading"):
            continue
        if _cites_nearby(page, placed) or _labels_others(page, placed):
            continue
        line = placed.block.line + placed.block.raw.count("\n", 0, reported.start())
        message = "**Reported** names no source: cite it in the same paragraph as [@key]"
        yield page.problem("L604", placed.cell, line if placed.block.kind != "cell" else placed.block.line, message)


def _labels_others(page: Page, placed: Placed) -> bool:
    """Whether a paragraph without figures explains the label, or says it of a section whose other paragraphs cite."""
    if any(measured(placed.block)):
        return False
    if "evidence label" in placed.section.lower():
        return True
    return any(next(citations(p.block.text), None) for p in page.placed if p.section == placed.section)


def _cites_nearby(page: Page, placed: Placed) -> bool:
    """Whether the paragraph cites, or the row, or the list or table that a paragraph ending in a colon opens."""
    block = placed.block
    if next(citations(block.text), None):
        return True
    cell = [p.block for p in page.placed if p.cell is placed.cell]
    if block.kind == "cell":
        return any(next(citations(b.text), None) for b in cell if (b.group, b.row) == (block.group, block.row))
    after = cell[cell.index(block) + 1 :] if block in cell else []
    if block.text.rstrip().endswith(":") and after and after[0].group is not None:
        return any(next(citations(b.text), None) for b in after if b.group == after[0].group)
    return False


def _uncited(context: Context) -> Iterator[Problem]:
    cited = {key for page in context.pages.values() for key in page.cited}
    for name in ("README.md", "editorial-guide.md"):
        path = context.root / name
        if path.is_file():
            cited |= {key for block in parse(read_text(path, context.root)) for key, _ in citations(block.text)}
    for key, source in context.ledger.entries.items():
        if key not in cited:
            message = f"source {key!r} is cited nowhere"
            yield Problem(FILE, None, source.line, message, level="warning", code="L602", file_line=source.line)


def sources_block(page: Page) -> list[Placed]:
    """Return the blocks under the chapter's `## Sources`."""
    return [p for p in page.placed if p.section == "Sources"]


def _list(page: Page) -> Iterator[Problem]:
    blocks = sources_block(page)
    if not blocks:
        return
    listed = {key: p for p in blocks for key, _ in citations(p.block.text)}
    for key, mark in page.cited.items():
        if key not in listed:
            yield page.problem("L605", mark.cell, mark.line, f"[@{key}] is cited but not listed under Sources")
    for key, placed in listed.items():
        if key not in page.cited:
            message = f"[@{key}] is listed under Sources but cited nowhere in the chapter"
            yield page.problem("L605", placed.cell, placed.block.line, message)


def synced(context: Context, page: Page) -> tuple[Cell, str] | None:
    """Return the cell with the list of sources and its text with the missing ones added; None when none is missing.

    What somebody wrote there stays: an entry that nothing cites is an error for a person to settle.
    """
    blocks = sources_block(page)
    if page.chapter.kind != "chapter" or not blocks:
        return None
    cell = blocks[-1].cell
    wanted = [key for key in page.cited if key in context.ledger.entries]
    listed = {key for p in blocks if p.cell is not cell for key, _ in citations(p.block.text)}
    kept, present = cell.source.split("\n"), set(listed)
    for line in kept:
        present |= {key for key, _ in citations(line)} if ITEM.match(line) else set()
    new = [f"- [@{key}] {context.ledger.entries[key].reference}" for key in wanted if key not in present]
    if kept and new and not kept[-1].startswith("- "):
        kept.append("")
    text = "\n".join([*kept, *new]).rstrip("\n")
    return None if text == cell.source else (cell, text)
