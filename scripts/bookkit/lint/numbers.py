"""Numbers in text: found, read as values with a precision, compared up to rounding.

A number has one or more readings: `8.1K` reads as 8100, to the hundred; `16.4 %` as 0.164 and as the figure 16.4.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal

from .references import mentions

COUNT_FROM = 21  # smaller whole numbers are not taken for measurements
YEARS = range(1950, 2040)
_PRECISE = Context(prec=60)
_NUMBER = re.compile(r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?")
_POWER_OF_TEN = re.compile(r"\s?[×·]\s?10(?P<up>[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
_SUPERSCRIPT = re.compile(r"[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_SUPERSCRIPTS = str.maketrans("⁻⁺⁰¹²³⁴⁵⁶⁷⁸⁹", "-+0123456789")
_SCALES = {"K": 3, "k": 3, "M": 6, "B": 9, "thousand": 3, "million": 6, "billion": 9}
_UNIT = re.compile(r"[munµ]?s|min|[hdxXWV]|kW|[KMGTk]i?B|px|pt|[kM]?Hz|bits?|bytes?")
_GLUED = re.compile(r"[^\W\d_]+")
_SCALE_WORD = re.compile(r"[\s-](thousand|million|billion)\b")
_PERCENT = re.compile(r"[\s   ]?(?:%|\\%)|[\s -](?:per ?cent|percentage[\s-]points?|points?|pp)\b")
_HEDGE = re.compile(
    r"(?:\b(?:about|roughly|nearly|almost|around|approximately|some|close to)\s|[≈~]\s?)\s*[-−]?$", re.IGNORECASE
)
_PART_OF = re.compile(r"\d (?:of|in|out of) (?:every )?$")
_SHARE = re.compile(r" (?:of|in|out of) (?:every )?(100|1,?000)\b")
_YEAR_BEFORE = re.compile(r"(?:\b(?:in|since|until|year|early|late|mid|from|©)[\s-]|\(|, )$", re.IGNORECASE)
_YEAR_AFTER = re.compile(r"[),;.]|\s*$")
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_SOFTWARE = (
    "Python|PyTorch|torch|CUDA|NumPy|numpy|nbformat|JupyterLab|Jupyter|IPython|[Vv]ersions?|CC BY(?:-[A-Z]+)*|HTTP|RFC"
    "|IEEE(?: Std)?|ISO|PEP|Unicode|MKL|oneDNN|transformers|ruff|macOS|Linux"
)
_MODELS = "Qwen|Llama|GPT|Claude|Gemini|Gemma|DeepSeek|OLMo"
_NOT_MEASURED = tuple(
    re.compile(pattern)
    for pattern in (
        r"\[@[^\]]*\]",
        r"https?://\S+",
        r"\b(?:doi:\s*)?10\.\d{4,}/\S+",
        r"(?i:arxiv)[:\s]*\d{4}\.\d{4,5}(?:v\d+)?",
        r"\b(?:19|20)\d\d-\d\d(?:-\d\d)?\b",
        rf"\b\d{{1,2}}(?:st|nd|rd|th)? (?:{_MONTHS})(?:,? \d{{4}})?\b",
        rf"\b(?:{_MONTHS}) (?:\d{{1,2}}(?:st|nd|rd|th)?,? )?\d{{4}}\b",
        rf"\b(?:{_SOFTWARE})\s*(?:[≥>=<~]+\s*)?v?\d+(?:\.\d+)*(?:(?:,| and| or| to|–)\s*\d+\.\d+)*(?![\d.]*\s?%)",
        rf"\b(?:{_MODELS})[\s-]?\d+(?:\.\d+)?(?:-[\w.]+)*(?![\d.]*\s?%)",
        r"\b\d+(?:\.\d+){2,}\b",
        r"\bv\d+(?:\.\d+)*\b",
    )
)


@dataclass(frozen=True)
class Reading:
    """One value a number may stand for; its last digit counts units of ten to the `place`."""

    value: Decimal
    place: int
    percent: bool = False  # the bare figure of a percentage, which only another percentage's figure may equal
    literal: bool = False  # stands in code, so prose quotes it as it is and does not round it


@dataclass(frozen=True)
class Number:
    """A number in a text, what it may mean, and whether it looks measured."""

    text: str
    start: int
    end: int
    readings: tuple[Reading, ...]
    measured: bool


def reading(digits: str, shift: int = 0) -> Reading:
    """Return the reading of plain digits, shifted by a power of ten."""
    value = Decimal(digits.replace(",", ""))
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return Reading(value.scaleb(shift, _PRECISE), exponent + shift)


def mask(text: str) -> str:
    """Return the text with what looks like a number but counts nothing blanked: references, dates, versions, ids."""
    spans = [(start, end) for _, _, start, end in mentions(text)]
    for pattern in _NOT_MEASURED:
        spans += [match.span() for match in pattern.finditer(text)]
    characters = list(text)
    for start, end in spans:
        characters[start:end] = ["\n" if c == "\n" else " " for c in characters[start:end]]
    return "".join(characters)


def find(text: str, percent_column: bool = False) -> Iterator[Number]:
    """Yield the numbers of a text. `percent_column` says that plain ones stand under a % heading."""
    done = 0
    for match in _NUMBER.finditer(text):
        number = _number(text, match, percent_column) if match.start() >= done else None
        if number is not None:
            done = number.end
            yield number


def _number(text: str, match: re.Match[str], percent_column: bool) -> Number | None:
    start, end = match.span()
    if _in_identifier(text, start):
        return None
    negative = _signed(text, start)
    shift, known, end = _suffix(text, end)
    if not known:
        return None
    percent = _PERCENT.match(text, end) if shift == 0 else None
    base = reading(match[0], shift)
    if negative:
        base = Reading(-base.value, base.place)
    end = percent.end() if percent else end
    readings = _readings(base, percent is not None or percent_column, _SHARE.match(text, end))
    if _HEDGE.search(text[:start]):
        readings += list(_rounded_off(readings))
    is_whole = match[0] in ("100", "1,000", "1000") and _PART_OF.search(text[:start]) is not None
    measured = bool(percent) or percent_column or (_looks_measured(text, match, base) and not is_whole)
    return Number(text[start - negative : end].strip(), start - negative, end, tuple(readings), measured)


def _readings(base: Reading, is_percent: bool, share: re.Match[str] | None) -> list[Reading]:
    """Return what a number may mean: itself or, with a % sign, a fraction and a figure; `95 of 100` also 0.95."""
    readings = [base]
    if is_percent:
        fraction = Reading(base.value.scaleb(-2, _PRECISE), base.place - 2)
        readings = [fraction, Reading(base.value, base.place, percent=True)]
    if share and base.place == 0:
        digits = 2 if share[1] == "100" else 3
        readings.append(Reading(base.value.scaleb(-digits, _PRECISE), -digits))
    return readings


def _in_identifier(text: str, start: int) -> bool:
    """Whether the digits belong to a name (`H100`, `GPT-4`, `pass@16`) or a longer number."""
    before = text[:start]
    if before[-1:].isalnum() or before[-1:] in ("_", "@", "#"):
        return True
    if before[-1:] == "." and before[-2:-1].isalnum():
        return True
    if before[-1:] in ("-", "/"):
        word = re.search(r"[\w.]*$", before[:-1])
        return word is not None and any(c.isalpha() for c in word[0])
    return False


def _signed(text: str, start: int) -> bool:
    return text[start - 1 : start] in ("-", "−") and not re.match(r"[\w)\]}.%]", text[max(start - 2, 0) : start - 1])


def _suffix(text: str, end: int) -> tuple[int, bool, int]:
    """Return the power of ten a suffix stands for, whether the suffix is a known one, and where it ends."""
    if power := _POWER_OF_TEN.match(text, end):
        return int(power["up"].translate(_SUPERSCRIPTS)), True, power.end()
    if word := _SCALE_WORD.match(text, end):
        return _SCALES[word[1]], True, word.end()
    if power := _SUPERSCRIPT.match(text, end):
        return _power(text[:end], power)
    if re.match(r"\.\d|-bits?\b", text[end:]):
        return 0, False, end
    glued = _GLUED.match(text, end)
    if glued is None:
        return 0, text[end : end + 1] != "_", end
    if glued[0] in _SCALES and glued[0] not in ("thousand", "million", "billion"):
        return _SCALES[glued[0]], True, glued.end()
    return 0, _UNIT.fullmatch(glued[0]) is not None, end


def _power(before: str, power: re.Match[str]) -> tuple[int, bool, int]:
    """Read a raised exponent: `10⁻⁵` is a number, `2⁻¹⁶` is notation, and of `0.97²⁰` the base counts."""
    if re.search(r"(?<![\d.,])10$", before):
        return int(power[0].translate(_SUPERSCRIPTS)) - 1, True, power.end()
    return 0, re.search(r"\.\d+$", before) is not None, power.end()


def _rounded_off(readings: Iterable[Reading]) -> Iterator[Reading]:
    """Yield whole readings with their trailing zeros taken for rounding, as "about 2,000" means them."""
    for item in readings:
        if item.place == 0 and item.value:
            exponent = item.value.normalize(_PRECISE).as_tuple().exponent
            if isinstance(exponent, int) and exponent > 0:
                yield Reading(item.value, exponent, item.percent)


def _looks_measured(text: str, match: re.Match[str], base: Reading) -> bool:
    if base.place < 0 or "." in match[0]:
        return True
    if base.value == base.value.to_integral_value() and int(abs(base.value)) in YEARS and match[0].isdigit():
        before = _YEAR_BEFORE.search(text[: match.start()])
        in_brackets = before is not None and before[0] in ("(", ", ")
        return before is None or (in_brackets and not _YEAR_AFTER.match(text, match.end()))
    return abs(base.value) >= COUNT_FROM


class Origins:
    """Values that something printed, wrote in code or recorded, to be compared with up to rounding."""

    def __init__(self, readings: Iterable[Reading]) -> None:
        self.readings = tuple(set(readings))
        self._rounded: dict[tuple[int, bool], frozenset[Decimal]] = {}

    def explain(self, number: Number) -> bool:
        """Whether a reading of the number equals one of the values, rounded to the digits the number shows."""
        return any(self._holds(item) for item in number.readings)

    def _holds(self, item: Reading) -> bool:
        values = self._at(item.place, item.percent)
        return item.value in values or (item.value > 0 and -item.value in values)

    def _at(self, place: int, percent: bool) -> frozenset[Decimal]:
        known = self._rounded.get((place, percent))
        if known is None:
            unit = Decimal(1).scaleb(place)
            alike = [r for r in self.readings if r.percent == percent]
            finer = [r.value for r in alike if r.place <= place and not r.literal]
            known = frozenset(
                value.quantize(unit, mode, _PRECISE)
                for value in finer
                if abs(value.adjusted() - place) < 50
                for mode in (ROUND_HALF_UP, ROUND_HALF_EVEN)
            )
            # Equal values, however many zeros each shows; but a bare 1 in the code is no origin of "100 %".
            known |= {r.value for r in alike if r.place < 0 or place >= 0}
            self._rounded[place, percent] = known
        return known


def in_text(text: str) -> Iterator[Reading]:
    """Yield the readings of every number in an output or a ledger line; near a % sign, figures read as percentages."""
    near_percent = re.search(r"%|per ?cent", text) is not None
    for number in find(text):
        yield from number.readings
        for item in number.readings:
            yield Reading(item.value, item.place)
            if near_percent:
                yield Reading(item.value, item.place, percent=True)


def in_code(nodes: Sequence[ast.AST]) -> Iterator[Reading]:
    """Yield the readings of literals, of arithmetic between literals and of numbers in strings, from a cell's nodes."""
    skipped = _format_specs(nodes) | _docstrings(nodes)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in skipped:
                yield from (replace(item, literal=True) for item in in_text(node.value))
            continue
        if isinstance(node, ast.Call):
            yield from _last_of_range(node)
        value = fold(node) if isinstance(node, ast.expr) else None
        if value is not None and math.isfinite(value) and abs(value) < 1e300:
            yield replace(reading(repr(value)), literal=isinstance(node, ast.Constant))


def _last_of_range(call: ast.Call) -> Iterator[Reading]:
    """Yield the last number that `range(1, 10_001)` or `torch.arange(1, 10_001)` counts to, as prose names it."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in ("range", "arange") and len(call.args) == 2:
        start, stop = (fold(argument) for argument in call.args)
        if start == 1 and isinstance(stop, int):
            yield replace(reading(str(stop - 1)), literal=True)


def _format_specs(nodes: Sequence[ast.AST]) -> set[int]:
    specs = (n.format_spec for n in nodes if isinstance(n, ast.FormattedValue) and n.format_spec)
    return {id(part) for spec in specs for part in ast.walk(spec)}


def _docstrings(nodes: Sequence[ast.AST]) -> set[int]:
    owners = (n for n in nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)))
    firsts = (owner.body[0] for owner in owners)
    return {id(first.value) for first in firsts if isinstance(first, ast.Expr)}


def fold(node: ast.AST) -> int | float | None:
    """Return the value of an expression of number literals, None when it holds anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (int, float)) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = fold(node.operand)
        return None if value is None else -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = fold(node.left), fold(node.right)
        if left is None or right is None:
            return None
        return _apply(node.op, left, right)
    return None


def _apply(op: ast.operator, left: float, right: float) -> int | float | None:
    try:
        match op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():
                return left / right
            case ast.FloorDiv():
                return left // right
            case ast.Mod():
                return left % right
            case ast.Pow():
                value = left**right if abs(right) <= 1024 and abs(left) <= 1e6 else None
                return None if isinstance(value, complex) else value
    except (ZeroDivisionError, OverflowError):
        return None
    return None
