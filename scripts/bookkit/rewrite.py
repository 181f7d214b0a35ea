"""Turn `arl.name` into `name` in a cell's text, token by token, so that strings, comments and layout stay as written.

Python 3.11 sees an f-string as one token and 3.12 as many; both are read here by the same small scanner, so that the
library is the same text whichever Python builds it.
"""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from .scopes import LIBRARY

_LAYOUT = (tokenize.NL, tokenize.COMMENT)
_FSTRING_START = getattr(tokenize, "FSTRING_START", None)
_FSTRING_END = getattr(tokenize, "FSTRING_END", None)


@dataclass(frozen=True)
class Rewritten:
    """A cell's text with `count` prefixes taken away; `echoes` are lines of f-strings that print their own source."""

    text: str
    count: int
    echoes: tuple[int, ...]


@dataclass(frozen=True)
class _Token:
    kind: int
    text: str
    start: int


def strip_library(source: str) -> Rewritten:
    """Return valid Python source with every `arl.name` turned into `name`, the ones in f-string fields too."""
    cuts: list[tuple[int, int]] = []
    echoes: list[int] = []
    count = _collect(source, 0, cuts, echoes)
    text = source
    for start, end in sorted(cuts, reverse=True):
        text = text[:start] + text[end:]
    return Rewritten(text, count, tuple(source.count("\n", 0, at) + 1 for at in sorted(echoes)))


def comments(source: str) -> dict[int, str]:
    """Map line numbers to the comment on that line; text that is not Python gives those before the fault."""
    found: dict[int, str] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                found[token.start[0]] = token.string
    except (tokenize.TokenError, SyntaxError):
        pass
    return found


def _collect(source: str, offset: int, cuts: list[tuple[int, int]], echoes: list[int]) -> int:
    """Add the spans to cut from `source`, which starts at `offset` of the cell; return how many prefixes they are."""
    count = 0
    tokens = list(_tokens(source))
    code = [token for token in tokens if token.kind not in _LAYOUT]
    for before, token, dot, name in zip([None, *code], code, code[1:], code[2:], strict=False):
        if token.kind == tokenize.STRING:
            continue
        after_dot = before is not None and before.text == "."
        if token.text == LIBRARY and dot.text == "." and name.kind == tokenize.NAME and not after_dot:
            cuts.append((offset + token.start, offset + token.start + len(token.text)))
            cuts.append((offset + dot.start, offset + dot.start + 1))
            count += 1
    for token in code:
        if token.kind == tokenize.STRING and _is_fstring(token.text):
            count += _collect_fields(token, offset, cuts, echoes)
    return count


def _collect_fields(token: _Token, offset: int, cuts: list[tuple[int, int]], echoes: list[int]) -> int:
    count = 0
    for start, end in _fields(token.text):
        expression = token.text[start:end]
        echo = expression.rstrip().endswith("=")
        if echo:
            expression = expression.rstrip()[:-1]
        at = offset + token.start + start
        # In parentheses an expression may start with blanks and span lines, as it may within a triple-quoted field.
        found = _collect(f"({expression})", at - 1, cuts, echoes)
        if found and echo:
            echoes.append(at)
        count += found
    return count


def _tokens(source: str) -> Iterator[_Token]:
    """Yield the tokens with their offset in the source, each f-string as one STRING."""
    starts = [0]
    for line in source.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    depth, opened = 0, 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        start = starts[token.start[0] - 1] + token.start[1]
        if token.type == _FSTRING_START:
            opened = opened if depth else start
            depth += 1
        elif token.type == _FSTRING_END:
            depth -= 1
            if not depth:
                yield _Token(tokenize.STRING, source[opened : starts[token.end[0] - 1] + token.end[1]], opened)
        elif not depth:
            yield _Token(token.type, token.string, start)


def _is_fstring(text: str) -> bool:
    return "f" in text[: min(text.index(quote) for quote in "\"'" if quote in text)].lower()


def _fields(text: str) -> list[tuple[int, int]]:
    """Return the spans of the expressions in an f-string's text, those in format specifications included."""
    opening = min(text.index(quote) for quote in "\"'" if quote in text)
    quote = text[opening] * (3 if text.startswith(text[opening] * 3, opening) else 1)
    found: list[tuple[int, int]] = []
    raw = "r" in text[:opening].lower()
    _scan_literal(text, opening + len(quote), len(text) - len(quote), raw, False, found)
    return found


def _scan_literal(text: str, at: int, end: int, raw: bool, in_spec: bool, found: list[tuple[int, int]]) -> int:
    while at < end:
        if text[at] == "{" and text[at + 1] == "{" and not in_spec:
            at += 2
        elif text[at] == "{":
            at = _scan_field(text, at + 1, end, raw, found)
        elif text[at] == "}" and in_spec:
            return at
        elif text.startswith("\\N{", at) and not raw:
            at = text.index("}", at) + 1
        elif text[at] == "\\" and not raw and text[at + 1] not in "{}":
            at += 2
        else:
            at += 1
    return at


def _scan_field(text: str, at: int, end: int, raw: bool, found: list[tuple[int, int]]) -> int:
    start, depth = at, 0
    while depth or not (text[at] in "}:" or (text[at] == "!" and text[at + 1] != "=")):
        if text[at] in "\"'":
            at = _skip_string(text, at)
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        at += 1
    found.append((start, at))
    while text[at] not in ":}":
        at += 1
    if text[at] == ":":
        at = _scan_literal(text, at + 1, end, raw, True, found)
    return at + 1


def _skip_string(text: str, at: int) -> int:
    quote = text[at] * (3 if text.startswith(text[at] * 3, at) else 1)
    return text.index(quote, at + len(quote)) + len(quote)
