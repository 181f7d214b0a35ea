"""Whether a translated block says as much as its English: how long it is, and that no sentence stands there twice.

A Chinese text has between one and two characters for a word of English, the more evenly the longer the block is. So a
sentence that was left out of a short paragraph shows in its length; one of a long paragraph does not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ..lint.markdown import HOLE, Block
from .findings import Finding
from .pair import CHINESE

LATIN = re.compile(rf"[A-Za-z][\w’'-]*|\d[\d.,]*|{HOLE}")  # a word, a number, a formula or a piece of code
SENTENCE = re.compile(r"[^。！？\n]+[。！？]")
LONG_ENOUGH = 10  # characters of a sentence that nobody writes twice
BOUNDS = ((40, 1.15, 2.3), (20, 1.0, 2.5))  # from so many words on, the least and the most characters a word


def check_length(english: Sequence[Block], chinese: Sequence[Block]) -> Iterator[Finding]:
    """Yield the blocks that are too short or too long for their English, and sentences that stand twice."""
    for block in chinese:
        yield from _repeated(block)
    if len(english) == len(chinese):
        for one, other in zip(english, chinese, strict=True):
            yield from _out_of_bounds(one, other)


def _out_of_bounds(english: Block, chinese: Block) -> Iterator[Finding]:
    words = len(LATIN.findall(english.text))
    characters = len(CHINESE.findall(chinese.text)) + len(LATIN.findall(chinese.text))
    least, most = next(((low, high) for start, low, high in BOUNDS if words >= start), (0.0, float("inf")))
    if CHINESE.search(chinese.text) and not least <= characters / max(words, 1) <= most:
        short = characters < least * words
        said = (
            f"{characters} characters for {words} words of English: something {'is missing' if short else 'was added'}"
        )
        yield Finding(chinese.line, "length", said, "short" if short else "long")


def _repeated(block: Block) -> Iterator[Finding]:
    said = Counter(match[0].strip() for match in SENTENCE.finditer(block.text))
    for sentence, count in said.items():
        if count > 1 and len(CHINESE.findall(sentence)) >= LONG_ENOUGH:
            shown = sentence.replace(HOLE, "▯")
            yield Finding(block.line, "length", f"stands there {count} times: {shown[:40]}", shown)
