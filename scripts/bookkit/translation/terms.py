"""Whether a translation keeps to the glossary: terms, their first use in a chapter, forbidden renderings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..lint.context import CITATION
from ..lint.markdown import Block
from ..notebook import Cell
from .findings import Finding
from .glossary import Glossary, Term
from .pair import Pair


def check_terms(glossary: Glossary, pair: Pair, cell: Cell) -> Iterator[Finding]:
    """Yield the terms of an English cell that its translation does not render, and what it may not say."""
    english, chinese = pair.blocks(cell.id)
    said, text = prose(english), prose(chinese)
    line = chinese[0].line if chinese else 1
    for term in glossary.used(said):
        if not term.rendered(text):
            yield Finding(line, "term", f"{term.name!r} of the English text is {_forms(term)}", term.name)
    for entry in glossary.forbidden:
        if entry.chinese in text and entry.applies(said):
            at = next(b.line_at(b.text.find(entry.chinese)) for b in chinese if entry.chinese in prose([b]))
            yield Finding(at, "forbidden", f"{entry.chinese}: write {entry.instead}", entry.chinese)


def _forms(term: Term) -> str:
    """Return what a text without the term lacks."""
    if len(term.chinese) > 1:
        return f"one of {'、'.join(term.chinese)}, and none of them is there"
    return f"{term.chinese[0] if term.chinese else f'{term.name}, which stays English'}, which is missing"


def first_uses(glossary: Glossary, pair: Pair) -> Iterator[tuple[Cell, Finding]]:
    """Yield the first cell of a chapter that uses a term, where the English has not been given until then."""
    if pair.english.kind != "chapter":
        return
    seen: set[Term] = set()
    before = ""
    for cell in pair.english.cells:
        if not pair.is_translated(cell.id):
            continue
        english, chinese = pair.blocks(cell.id)
        before += prose(chinese)
        for term in glossary.used(prose([block for block in english if _counts(block)])):
            if term in seen or term.keep or not term.first:
                continue
            seen.add(term)
            if not term.bracketed.search(before):
                wanted = f"{term.chinese[0]}（{term.name}）"
                line = next((b.line for b in chinese if term.rendered(prose([b]))), 1)
                yield cell, Finding(line, "first-use", f"first use in this chapter: write {wanted}", term.name)


def _counts(block: Block) -> bool:
    """Return whether a term in this block is used in running text: no heading, table, caption, question."""
    return block.kind == "paragraph" and not block.strong.startswith(("Figure", "Table", "Question", "You need"))


def prose(blocks: Sequence[Block]) -> str:
    """Return the text of blocks and of the alternative texts in them, without code, mathematics and citations."""
    parts = []
    for block in blocks:
        parts.append(CITATION.sub(" ", block.prose))
        parts += [image.text for image in block.of("image")]
    return "\n".join(parts) + "\n"
