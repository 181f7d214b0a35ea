"""A cell and its translation side by side: what has to be the same in both, block by block."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest

from ..lint.context import CITATION, citations
from ..lint.markdown import Block, PieceKind, shape
from ..notebook import Cell
from ..site.crossrefs import spans
from .findings import Finding
from .numbers import differences, in_digits
from .pair import CHINESE, Edition, Pair

WORDS = re.compile(r"\\(?:text|textbf|textit|mathrm)\{[^{}]*\}")
STARS = re.compile("★+")
DIGIT = re.compile(r"[A-Za-z0-9]")


@dataclass(frozen=True)
class Item:
    """Something that both texts have: as compared, as shown, and its line."""

    key: str
    shown: str
    line: int


def compare(edition: Edition, pair: Pair, cell: Cell) -> Iterator[Finding]:
    """Yield every difference between an English markdown cell and its translation."""
    english, chinese = pair.blocks(cell.id)
    shapes = list(_shape(cell.source, pair.cells[cell.id].source))
    yield from shapes
    if shapes:  # blocks do not stand side by side: compare the cell as one
        yield from _blocks(edition, pair, english, chinese)
        return
    for one, other in zip(english, chinese, strict=True):
        yield from _blocks(edition, pair, [one], [other])


_shape_of = lru_cache(maxsize=512)(shape)


def _shape(english: str, chinese: str) -> Iterator[Finding]:
    """Yield the first place where the two texts are not built alike."""
    for one, other in zip_longest(_shape_of(english), _shape_of(chinese)):
        if (one and one[0]) != (other and other[0]):
            line = other[1] if other else chinese.count("\n") + 1
            wanted, found = (part[0] if part else "the end of the cell" for part in (one, other))
            yield Finding(line, "shape", f"{found} where English has {wanted}", found)
            return


def _blocks(edition: Edition, pair: Pair, english: list[Block], chinese: list[Block]) -> Iterator[Finding]:
    """Yield every difference between blocks that say the same in the two languages."""
    line = chinese[0].line if chinese else 1
    for rule, what, items in _kinds(edition, pair):
        wanted, found = (items(blocks, blocks is english) for blocks in (english, chinese))
        yield from _difference(rule, what, wanted, found, line)
    yield from _formulas(english, chinese, line)
    yield from _numbers(english, chinese)
    yield from _bold(english, chinese, line)


def reordered(english: Sequence[Block], chinese: Sequence[Block]) -> Iterator[str]:
    """Yield where numbers, formulas or code stand in another order: right in most sentences, or two were exchanged."""
    kinds: dict[str, Callable[[Block], list[str]]] = {
        "numbers": lambda block: [number.value for number in in_digits(_prose(block.text)) if not number.is_name],
        "formulas": lambda block: [piece.text for piece in block.of("math")],
        "code": lambda block: [piece.text for piece in block.of("code")],
    }
    for one, other in zip(english, chinese, strict=False):
        for kind, items in kinds.items():
            wanted, found = items(one), items(other)
            if wanted != found and sorted(wanted) == sorted(found):
                differ = [at for at, pair in enumerate(zip(wanted, found, strict=True)) if pair[0] != pair[1]]
                was, is_ = (", ".join(texts[differ[0] : differ[-1] + 1]) for texts in (wanted, found))
                yield f"line {other.line} has {kind} in another order, {was} → {is_}"


Items = Callable[[Sequence[Block], bool], list[Item]]


def _kinds(edition: Edition, pair: Pair) -> Iterator[tuple[str, str, Items]]:
    """Yield each kind of thing that is the same on both sides, with the function that finds it."""

    def pieces(kind: PieceKind) -> Items:
        return lambda blocks, _: [Item(p.text, f"`{p.text}`", b.line_at(p.at)) for b in blocks for p in b.of(kind)]

    def targets(kind: PieceKind) -> Items:
        def found(blocks: Sequence[Block], is_english: bool) -> list[Item]:
            return [_target(edition, pair, b, p.at, p.target, is_english) for b in blocks for p in b.of(kind)]

        return found

    yield "code", "inline code", pieces("code")
    yield "html", "HTML", pieces("html")
    yield "html", "HTML block", lambda blocks, _: [_raw(b) for b in blocks if b.kind == "html"]
    yield "code", "fenced block", lambda blocks, _: [_raw(b) for b in blocks if b.kind == "fence"]
    yield "link", "link to", targets("link")
    yield "link", "image", targets("image")
    yield "citation", "citation", _citations
    yield "reference", "reference to", _references
    yield "stars", "grade", _stars


def _target(edition: Edition, pair: Pair, block: Block, at: int, target: str, is_english: bool) -> Item:
    if is_english:
        key = edition.translated_target(pair, target)
    else:
        assert pair.chinese is not None
        key = edition.resolve(pair.chinese, target)
    return Item(key, key, block.line_at(at))


def _raw(block: Block) -> Item:
    text = f"{block.info}\n{block.raw}" if block.info else block.raw
    return Item(text, repr(text if len(text) < 60 else f"{text[:57]}…"), block.line)


def _citations(blocks: Sequence[Block], _: bool) -> list[Item]:
    return [Item(key, f"[@{key}]", b.line_at(at)) for b in blocks for key, at in citations(b.text)]


def _references(blocks: Sequence[Block], is_english: bool) -> list[Item]:
    found = []
    for block in blocks:
        for text, at in _texts(block):
            for span in spans(text, "en" if is_english else "zh"):
                if span.kind not in ("citation", "web"):
                    key = f"{span.kind} {span.target}"
                    found.append(Item(key, key, block.line_at(at + span.start)))
    return found


def _stars(blocks: Sequence[Block], _: bool) -> list[Item]:
    return [Item(m[0], m[0], b.line_at(m.start())) for b in blocks for m in STARS.finditer(b.text)]


def _texts(block: Block) -> Iterator[tuple[str, int]]:
    """Yield the prose of a block and the alternative texts of its images, with their offsets."""
    yield block.text, 0
    for image in block.of("image"):
        yield image.text, image.at


def _difference(rule: str, what: str, wanted: list[Item], found: list[Item], line: int) -> Iterator[Finding]:
    """Yield the items that stand on one side only, one finding for a replaced one."""
    if [item.key for item in wanted] == [item.key for item in found]:
        return
    left = Counter(item.key for item in wanted)
    extra = []
    for item in found:
        if left[item.key] > 0:
            left[item.key] -= 1
        else:
            extra.append(item)
    missing = []
    for item in reversed(wanted):
        if left[item.key] > 0:
            left[item.key] -= 1
            missing.append(item)
    for one, other in zip_longest(reversed(missing), extra):
        if one is None:
            yield Finding(other.line, rule, f"{what} {other.shown} is not in the English text", other.key)
        elif other is None:
            yield Finding(line, rule, f"{what} {one.shown} of the English text is missing", one.key)
        else:
            yield Finding(other.line, rule, f"{what} {other.shown} where English has {one.shown}", other.key)


def _formulas(english: list[Block], chinese: list[Block], line: int) -> Iterator[Finding]:
    """Yield the formulas that differ; words within a formula may be Chinese."""
    wanted, found = ([_formula(b, p.text, p.at) for b in bs for p in b.of("math")] for bs in (english, chinese))
    words = [_without_words(item) if CHINESE.search(item.key) else item for item in found]
    if any(one is not other for one, other in zip(words, found, strict=True)):
        wanted, found = [_without_words(item) for item in wanted], [_without_words(item) for item in found]
    yield from _difference("formula", "the formula", wanted, found, line)


def _formula(block: Block, text: str, at: int) -> Item:
    text = " ".join(text.split())
    return Item(text, f"${text}$", block.line_at(at))


def _without_words(item: Item) -> Item:
    return Item(WORDS.sub(r"\\text{}", item.key), item.shown, item.line)


def _numbers(english: list[Block], chinese: list[Block]) -> Iterator[Finding]:
    """Yield the numbers that differ, in the prose and in the alternative texts."""
    if len(english) == len(chinese) == 1:
        yield from _numbers_of(_prose(english[0].text), chinese[0], _prose(chinese[0].text), 0)
        for one, other in zip(english[0].of("image"), chinese[0].of("image"), strict=False):
            yield from _numbers_of(one.text, chinese[0], other.text, other.at)
        return
    joined = ["\n".join(_prose(text) for b in blocks for text, _ in _texts(b)) for blocks in (english, chinese)]
    for fault in differences(*joined):
        yield Finding(chinese[0].line if chinese else 1, fault.rule, fault.message, fault.item)


def _numbers_of(english: str, block: Block, chinese: str, base: int) -> Iterator[Finding]:
    for fault in differences(english, chinese):
        yield Finding(block.line_at(base + (fault.at or 0)), fault.rule, fault.message, fault.item)


def _prose(text: str) -> str:
    """Return a text without its citations, whose keys may hold digits."""
    return CITATION.sub(lambda match: " " * len(match[0]), text)


def _bold(english: list[Block], chinese: list[Block], line: int) -> Iterator[Finding]:
    """Yield where the two do not have as much in bold, and asterisks that show."""
    wanted, found = (sum(len(b.bold) for b in blocks) for blocks in (english, chinese))
    if wanted != found:
        yield Finding(line, "bold", f"{found} in bold where English has {wanted}", "bold")
    stars = sum(b.text.count("*") for b in english)
    shown = [b.line_at(m.start()) for b in chinese for m in re.finditer(r"\*", b.text)]
    if len(shown) > stars:
        message = "an asterisk shows: bold may not begin or end at punctuation that touches a letter"
        yield Finding(shown[stars], "bold", message, "*")
