"""Mutations of what the book's cells record: outputs, execution counts, their order. What they do stays the same."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

from mutantbook import CHAPTERS, cells_of
from mutation import DIFFERS, SAMPLE, Kind, Mutation, Sheet, Words, changed_copy, every_code_cell, sampled
from synthetic import CellDict

from bookkit.notebook import as_text, stdout_output

Change = Callable[[str, random.Random], Iterable[tuple[str, str]]]
Replacement = Callable[[re.Match[str], random.Random], str]
LOOK_ALIKES = {
    " ": "\u00a0",  # no-break space
    "e": "\uff45",  # full width
    "1": "\uff11",  # full width
    "ö": "o\u0308",  # two code points
    "é": "e\u0301",  # two code points
    "a": "\u0430",  # Cyrillic
    "-": "\u2010",  # hyphen
}
NOT_TOP_TO_BOTTOM: Words = ("not run top to bottom",)
OTHER_OUTPUTS: dict[str, dict[str, Any]] = {
    "a value": {
        "output_type": "execute_result",
        "execution_count": None,
        "metadata": {},
        "data": {"text/plain": ["3"]},
    },
    "a picture": {"output_type": "display_data", "metadata": {}, "data": {"image/png": "iVBORw0KGgo="}},
    "a page": {"output_type": "display_data", "metadata": {}, "data": {"text/html": ["<b>3</b>"]}},
    "stderr": {"output_type": "stream", "name": "stderr", "text": ["warning\n"]},
    "an error": {"output_type": "error", "ename": "KeyError", "evalue": "1", "traceback": []},
}


def recorded_texts() -> Iterator[tuple[str, str, str]]:
    """Yield chapter, cell and text of every recorded output of the book."""
    for chapter, _, cell in every_code_cell():
        if cell["outputs"]:
            yield chapter, cell["id"], as_text(cell["outputs"][0]["text"])


def in_outputs(kind: str, change: Change, count: int = SAMPLE) -> list[Mutation]:
    """Return a sample of the mutations that a change makes of recorded outputs, each only once."""
    draw = random.Random(kind)
    found: dict[tuple[str, str, str], Mutation] = {}
    for chapter, cell, text in recorded_texts():
        for title, new in change(text, draw):
            if new != text:
                made = changed_copy(chapter, {cell: {"outputs": stdout_output(new)}}, DIFFERS, f"{cell}: {title}")
                found.setdefault((chapter, cell, new), made)
    return sampled(kind, list(found.values()), count)


def at(pattern: str, new: Replacement) -> Change:
    """Return the change that replaces one match of a pattern, at each of them."""

    def change(text: str, draw: random.Random) -> Iterator[tuple[str, str]]:
        for match in re.finditer(pattern, text):
            put = new(match, draw)
            yield f"{match[0]!r} at {match.start()} becomes {put!r}", text[: match.start()] + put + text[match.end() :]

    return change


def put(text: str) -> Replacement:
    """Return the replacement that is always this text."""
    return lambda match, draw: text


def other_digit(match: re.Match[str], draw: random.Random) -> str:
    """Return another digit."""
    return draw.choice([digit for digit in "0123456789" if digit != match[0]])


def other_sign(match: re.Match[str], draw: random.Random) -> str:
    """Return a minus for a plus, and nothing for a minus."""
    return "-" if match[0] == "+" else ""


def by_lines(new: Callable[[list[str], int], list[str]]) -> Change:
    """Return the change that makes other lines of an output's lines, at each of them."""

    def change(text: str, draw: random.Random) -> Iterator[tuple[str, str]]:
        lines = text.splitlines(keepends=True)
        for number in range(len(lines)) if len(lines) > 1 else ():
            yield f"line {number + 1}", "".join(new(lines, number))

    return change


def without(lines: list[str], number: int) -> list[str]:
    """Return the lines without one."""
    return lines[:number] + lines[number + 1 :]


def doubled(lines: list[str], number: int) -> list[str]:
    """Return the lines with one twice."""
    return lines[: number + 1] + lines[number:]


def swapped(lines: list[str], number: int) -> list[str]:
    """Return the lines with one exchanged for the next."""
    other = (number + 1) % len(lines)
    copied = list(lines)
    copied[number], copied[other] = copied[other], copied[number]
    return copied


def whole(title: str, new: Callable[[str], str]) -> Change:
    """Return the change that makes one other text of a whole output."""
    return lambda text, draw: [(title, new(text))]


def other_end(text: str) -> str:
    """Return a text without its last newline, or with one when it has none."""
    return text[:-1] if text.endswith("\n") else text + "\n"


def outputs_swapped() -> list[Mutation]:
    """Return the mutations that exchange the outputs of two neighbouring cells that print."""
    found = []
    for chapter in CHAPTERS:
        texts = [(cell, text) for place, cell, text in recorded_texts() if place == chapter]
        for (one, first), (two, second) in pairwise(texts):
            changes = {one: {"outputs": stdout_output(second)}, two: {"outputs": stdout_output(first)}}
            found.append(changed_copy(chapter, changes, DIFFERS, f"{one} and {two}"))
    return found


def ghosts() -> list[Mutation]:
    """Return the mutations that record an output of a cell that prints nothing."""
    quiet = [(chapter, cell["id"]) for chapter, _, cell in every_code_cell() if not cell["outputs"]]
    output = {"outputs": stdout_output("0.5\n")}
    return [changed_copy(chapter, {cell: output}, DIFFERS, cell) for chapter, cell in quiet]


def other_outputs() -> list[Mutation]:
    """Return the mutations that record something else than stdout, each of a cell that prints nothing."""
    quiet = [(chapter, cell["id"]) for chapter, _, cell in every_code_cell() if not cell["outputs"]]
    return [
        changed_copy(chapter, {cell: {"outputs": [output]}}, ("records a",), f"{cell}: {what}")
        for (chapter, cell), (what, output) in zip(quiet, OTHER_OUTPUTS.items(), strict=False)
    ]


def counted(value: Callable[[int], int | str], words: Words, **more: Any) -> list[Mutation]:
    """Return the mutations that give one cell another execution count."""
    return [
        changed_copy(chapter, {cell["id"]: {"execution_count": value(number)}}, words, cell["id"], **more)
        for chapter, number, cell in every_code_cell()
    ]


def with_counts(chapter: str) -> list[CellDict]:
    """Return a copy of a chapter whose cells carry their execution counts wherever they are moved."""
    cells = cells_of(chapter)
    for number, cell in enumerate((cell for cell in cells if cell["cell_type"] == "code"), start=1):
        cell["execution_count"] = number
    return cells


def reordered() -> list[Mutation]:
    """Return the mutations that exchange two neighbouring code cells, each with its output and count."""
    found = []
    for chapter in CHAPTERS:
        for place in range(1, len(CHAPTERS[chapter]) - 1):
            cells = with_counts(chapter)
            cells[place], cells[place + 1] = cells[place + 1], cells[place]
            title = f"{chapter} · {cells[place]['id']} before {cells[place + 1]['id']}"
            fails = {cells[place]["id"]: NOT_TOP_TO_BOTTOM}
            found.append(Mutation(title, [Sheet(cells, fails)], others_may_fail=True))
    return found


def dropped() -> list[Mutation]:
    """Return the mutations that take a code cell out of a chapter, not its last one."""
    found = []
    for chapter in CHAPTERS:
        for place in range(1, len(CHAPTERS[chapter]) - 1):
            cells = with_counts(chapter)
            title = f"{chapter} · without {cells.pop(place)['id']}"
            fails = {cells[place]["id"]: NOT_TOP_TO_BOTTOM}
            found.append(Mutation(title, [Sheet(cells, fails)], others_may_fail=True))
    return found


def texts(name: str, weakness: str, change: Change, count: int = SAMPLE) -> Kind:
    """Return the kind of the mutations that a change makes of recorded outputs."""
    return Kind(name, "checker", weakness, in_outputs(name, change, count))


KINDS = [
    texts("a digit", "numbers-within-tolerance", at(r"\d", other_digit), 24),
    texts("a sign", "numbers-masked", at(r"[+-](?=\d)", other_sign)),
    texts("a minus more", "numbers-masked", at(r"(?<= )(?=\d)", put("-"))),
    texts("-0.0 for 0.0", "numbers-within-tolerance", at(r"(?<![\d.-])0\.0+(?!\d)", lambda m, draw: f"-{m[0]}")),
    texts("nan for a number", "numbers-within-tolerance", at(r"-?\d+\.\d+", put("nan")), 8),
    texts("a space more", "blanks-ignored", at(" ", put("  "))),
    texts("a space less", "blanks-ignored", at("  |(?<=,) ", lambda m, draw: m[0][1:]), 14),
    texts("a tab for a space", "blanks-ignored", at(" ", put("\t")), 6),
    texts("a blank at a line's end", "blanks-ignored", at("\n", put(" \n")), 8),
    texts("the last newline", "ends-stripped", whole("gone or added", other_end)),
    texts("an empty line more", "ends-stripped", whole("at the end", lambda text: text + "\n"), 6),
    texts("a letter's case", "letters-folded", at("[a-zA-Z]", lambda m, draw: m[0].swapcase()), 8),
    texts("a look-alike", "letters-folded", at("|".join(LOOK_ALIKES), lambda m, draw: LOOK_ALIKES[m[0]]), 16),
    texts("colour codes recorded", "colours-stripped", at(r"\d+", lambda m, draw: f"\x1b[1m{m[0]}\x1b[0m"), 6),
    texts("a line dropped", "found-somewhere", by_lines(without)),
    texts("a line doubled", "found-somewhere", by_lines(doubled)),
    texts("two lines swapped", "lines-in-any-order", by_lines(swapped)),
    texts("an output emptied", "recorded-only", whole("nothing", lambda text: "")),
    Kind("an output where none was", "checker", "outputs-uncompared", ghosts()),
    Kind("two outputs swapped", "checker", "one-sorted-text", outputs_swapped()),
    Kind("another type of output", "checker", "streams-only", other_outputs()),
    Kind("a cell never run", "checker", "counts-unseen", counted(lambda number: "never", ("never run",))),
    Kind(
        "a gap in the counts",
        "checker",
        "counts-unseen",
        sampled("gap", counted(lambda number: number + 5, ("execution count",), others_may_fail=True)),
    ),
    Kind("two cells reordered", "checker", "counts-unseen", sampled("reordered", reordered(), 12)),
    Kind("a cell dropped", "checker", "counts-unseen", sampled("dropped", dropped())),
]
