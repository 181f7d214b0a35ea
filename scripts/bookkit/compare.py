"""Compares recorded with captured text: byte for byte, once both are rendered as a terminal shows them."""

from __future__ import annotations

import difflib
import re

NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|[-+]?\.\d+(?:[eE][-+]?\d+)?")
DIFF_LINES = 40
LONG = 2000
CONTEXT = 3


def render(text: str) -> str:
    """Return text as a terminal shows it: a carriage return starts the line over, a backspace steps back."""
    if "\r" not in text and "\b" not in text:
        return text
    return "\n".join(_render_line(line) for line in text.split("\n"))


def _render_line(line: str) -> str:
    if "\r" not in line and "\b" not in line:
        return line
    shown: list[str] = []
    column = 0
    for char in line:
        if char == "\r":
            column = 0
        elif char == "\b":
            column = max(0, column - 1)
        else:
            shown[column : column + 1] = [char]
            column += 1
    return "".join(shown)


def differences(recorded: str, now: str, names: tuple[str, str] = ("recorded", "now")) -> list[str]:
    """Return the lines of a report on how two texts differ, which `names` calls them; none when they are equal.

    A unified diff first, then the first differing line of each with the first differing character marked.
    """
    recorded, now = render(recorded), render(now)
    if recorded == now:
        return []
    old, new = recorded.splitlines(keepends=True), now.splitlines(keepends=True)
    at = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    blanks = _only_blanks(recorded, now)
    lines = _unified(old, new, at, blanks, names)
    lines += ["", f"first difference, line {at + 1} of {len(old)} ({names[0]}) and {len(new)} ({names[1]}):"]
    lines += _marked(_at(old, at), _at(new, at), names)
    if blanks:
        lines.append("only blanks differ (· is a blank, → a tab, ␊ the end of a line)")
    elif numbers_only(recorded, now):
        lines.append("only numbers differ")
    return lines


def numbers_only(recorded: str, now: str) -> bool:
    """Return whether two texts have the same shape and differ in numbers alone."""
    return NUMBER.sub("0", recorded) == NUMBER.sub("0", now)


def _only_blanks(recorded: str, now: str) -> bool:
    return re.sub(r"\s", "", recorded) == re.sub(r"\s", "", now)


def _at(lines: list[str], index: int) -> str:
    return lines[index] if index < len(lines) else ""


def _visible(line: str) -> str:
    return line.replace(" ", "·").replace("\t", "→").replace("\n", "␊")


def _unified(old: list[str], new: list[str], at: int, blanks: bool, names: tuple[str, str]) -> list[str]:
    """Return a unified diff; of very long texts only the part around the first difference."""
    start = max(0, at - CONTEXT)
    note = []
    if max(len(old), len(new)) > LONG:
        sizes = f"{len(old)} lines {names[0]}, {len(new)} {names[1]}"
        note = [f"({sizes}; only the part from line {start + 1} is compared here)"]
        old, new = old[start : start + LONG // 10], new[start : start + LONG // 10]
    else:
        start = 0
    lines = list(difflib.unified_diff(old, new, *names, n=CONTEXT))
    shown = [_visible(line) if blanks and i > 2 else line.rstrip("\n") for i, line in enumerate(lines)]
    if len(shown) > DIFF_LINES:
        shown = [*shown[:DIFF_LINES], f"({len(shown) - DIFF_LINES} more lines of diff)"]
    return [clipped(line) for line in note + shown]


def clipped(line: str, width: int = 400) -> str:
    """Return a line cut to a length that a report can show."""
    return line if len(line) <= width else f"{line[:width]}… ({len(line):,} characters)"


def _marked(old: str, new: str, names: tuple[str, str]) -> list[str]:
    """Return both lines and a ^ under the first character in which they differ, where it can be seen."""
    column = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, column - 60)
    dots = "…" if start else ""
    shown = [dots + _escaped(text[start : column + 40]) for text in (old, new)]
    before = len(dots + _escaped(old[start:column]))
    width = max(map(len, names)) + 2
    labels = [f"{name}:".ljust(width) for name in names]
    if not old or not new:
        shown = [text if whole else "(nothing)" for text, whole in zip(shown, (old, new), strict=True)]
    return [labels[0] + shown[0], labels[1] + shown[1], " " * (len(labels[0]) + before) + "^"]


def _escaped(text: str) -> str:
    """Return text with line ends, tabs and control characters visible, and trailing blanks too."""
    body = text.rstrip("\n")
    kept = body.rstrip(" ")
    tail = "·" * (len(body) - len(kept)) + "␊" * (len(text) - len(body))
    return "".join(c if c.isprintable() else "→" if c == "\t" else ascii(c)[1:-1] for c in kept) + tail
