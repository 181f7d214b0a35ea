"""Arithmetic in mathematics: LaTeX between numbers alone, evaluated, so that `0.97^{20} = 0.544` is checked."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .numbers import Number, Reading, find, fold, reading

_SPACES = re.compile(r"\\[,;:!>]|\\q?quad\b|~|&|\\displaystyle\b|\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])")
_DROPPED = re.compile(r"\\(?:tag|label|text|mathrm|operatorname|texttt|mathbf|mathit)\*?\{[^{}]*\}")
_POWER = re.compile(r"(?:(?P<front>\d+(?:\.\d+)?)\s*(?:\\times|\\cdot)\s*)?\b10\^(?:\{(?P<up>-?\d+)\}|(?P<one>\d))")
_SMALL_POWER = re.compile(r"(?<![\d.])(\d+)\s*\^\s*(?:\{-?\d+\}|\d)")
_SIDES = re.compile(r"(\\approx|\\simeq|=|\\le(?:q)?\b|\\ge(?:q)?\b|\\ne(?:q)?\b|[<>]|\\\\|\\ll\b|\\gg\b)")
_WORDS = (
    (re.compile(r"\\(?:d|t)?frac\{([^{}]*)\}\{([^{}]*)\}"), r"((\1)/(\2))"),
    (re.compile(r"\\sqrt\{([^{}]*)\}"), r"((\1)**0.5)"),
    (re.compile(r"\^\{([^{}]*)\}"), r"**(\1)"),
    (re.compile(r"\^(\d)"), r"**\1"),
    (re.compile(r"\\(?:times|cdot)(?![a-zA-Z])|·|×"), "*"),
    (re.compile(r"\\%|%"), "/100"),
    (re.compile(r"−|–"), "-"),
)
_PLAIN = re.compile(r"[\d\s.()+*/-]+")


@dataclass(frozen=True)
class Step:
    """Two neighbouring sides of an equation, both numbers: what the left is worth and what the right says."""

    left: str
    right: str
    value: float
    result: Reading
    offset: int
    holds: bool


def plain(latex: str) -> str:
    """Return LaTeX with digit groups closed up and tags and words blanked, at unchanged offsets."""
    latex = re.sub(r"(?<=\d)(\{,\}|\\,)(?=\d{3})", lambda m: "," + " " * (len(m[0]) - 1), latex)
    latex = re.sub(r"(?<=\d), +(?=\d{3})", ",", latex)
    return _DROPPED.sub(lambda m: " " * len(m[0]), latex)


def numbers(latex: str) -> Iterator[Number]:
    """Yield the numbers of a formula; powers of ten as one number, powers of small whole numbers not at all."""
    text = plain(latex).replace("\\%", "% ")
    spans = []
    for match in _POWER.finditer(text):
        shift = int(match["up"] or match["one"])
        item = reading(match["front"] or "1", shift)
        yield Number(match[0], match.start(), match.end(), (item,), abs(shift) > 1 or bool(match["front"]))
        spans.append(match.span())
    spans += [m.span() for m in _SMALL_POWER.finditer(text) if int(m[1]) <= 20]
    for start, end in spans:
        text = text[:start] + " " * (end - start) + text[end:]
    text = re.sub(r"[_^{}\\]|(?<=[a-zA-Z])(?=\d)", " ", text)
    yield from find(text)


def steps(latex: str) -> Iterator[Step]:
    """Yield each equality of a formula whose two sides hold numbers only."""
    parts = _SIDES.split(plain(latex))
    offset, before, relation = 0, None, ""
    for index, part in enumerate(parts):
        if index % 2:
            relation = part
        else:
            value = evaluate(part)
            if before is not None and value is not None and relation in ("=", "\\approx", "\\simeq"):
                yield _step(before[0], part, before[1], value, offset)
            before = None if value is None else (part, value)
        offset += len(part)


def _step(left: str, right: str, value: float, result: float, offset: int) -> Step:
    literals = list(find(re.sub(r"\\%", "%", right)))
    item = literals[0].readings[0] if len(literals) == 1 and _is_literal(right) else reading(repr(result))
    slack = 0.5 * 10.0**item.place if _is_literal(right) else 0.0
    holds = abs(value - result) <= slack * (1 + 1e-9) + 1e-9 * max(1e-6, abs(value))
    return Step(left.strip(), right.strip(), value, item, offset, holds)


def _is_literal(text: str) -> bool:
    return re.fullmatch(r"[\s-]*[\d.,]+\s*(?:\\?%)?[\s.,;]*", text) is not None


def evaluate(latex: str) -> float | None:
    """Return the value of LaTeX that holds only numbers and arithmetic, None otherwise."""
    text = _SPACES.sub(" ", latex.strip().rstrip(".,; "))
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    for _ in range(4):
        for pattern, replacement in _WORDS:
            text = pattern.sub(replacement, text)
    text = text.replace("{", "(").replace("}", ")").replace("[", "(").replace("]", ")")
    if not _PLAIN.fullmatch(text) or not re.search(r"\d", text):
        return None
    text = re.sub(r"\)\s*\(", ")*(", text)
    try:
        value = fold(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, RecursionError):
        return None
    return float(value) if value is not None and math.isfinite(value) else None
