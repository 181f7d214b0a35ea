"""Mutations of saved cells, of the built library and of what only the reader or the linter refuses."""

from __future__ import annotations

import copy

from mutantbook import CHAPTERS, cells_of
from mutation import Kind, Mutation, Sheet, one
from synthetic import code

STALE = "stale: run `make library`"
LATER = "is saved in chapter Z (cell saved-late)"  # mutation_runs puts that chapter behind all others


def edited(chapter: str, cell: str, old: str, new: str, title: str, *words: str) -> Mutation:
    """Return the mutation that edits the source of a saved cell and leaves the library as it is."""
    cells = copy.deepcopy(CHAPTERS[chapter])
    target = next(candidate for candidate in cells if candidate["id"] == cell)
    changed = target["source"].replace(old, new, 1)
    if changed == target["source"]:
        raise ValueError(f"{chapter} · cell {cell} holds no {old!r}")
    target["source"] = changed
    return Mutation(title, chapters={chapter: cells}, words=(STALE, *words))


def added(chapter: str, source: str, title: str, *words: str) -> Mutation:
    """Return the mutation that adds a cell to a chapter."""
    cells = [*copy.deepcopy(CHAPTERS[chapter]), code("added", source)]
    return Mutation(title, chapters={chapter: cells}, words=words)


def refused(chapter: str, source: str, title: str, *words: str) -> Mutation:
    """Return the mutation that adds a saved cell which the builder refuses, naming it."""
    return added(chapter, source, title, f"chapters/{chapter}.ipynb · cell added", *words)


def function(name: str, body: str = "return 1", above: str = "") -> str:
    """Return a saved cell with one function."""
    return f'#@save\n{above}def {name}() -> float:\n    """Return a number."""\n    {body}'


def by_hand(title: str, file: str, old: str, new: str) -> Mutation:
    """Return the mutation that changes a file of the library."""
    return Mutation(title, files={f"agentrl/{file}": (old, new)}, words=(STALE, f"agentrl/{file}"))


def ids_twice() -> list[Mutation]:
    """Return the mutations in which a cell has the id of the one before it."""
    found = []
    for chapter in CHAPTERS:
        cells = cells_of(chapter)
        cells[2]["id"] = cells[1]["id"]
        words = (f"cell id {cells[1]['id']!r} is used twice",)
        found.append(Mutation(f"{chapter} · {cells[1]['id']}", [Sheet(cells, {"": words})]))
    return found


def recorded(title: str, source: str, text: str, *words: str) -> Mutation:
    """Return the mutation of a cell whose recorded output the linter refuses, whatever the cell prints."""
    return one(title, source, text, words)


KINDS = [
    Kind(
        "a name of a later chapter",
        "checker",
        "whole-library",
        [
            one("an attribute", "import agentrl as arl\nprint(arl.saved_late(1))", "1\n", LATER),
            one("a from-import", "from agentrl import saved_late\nprint(saved_late(1))", "1\n", LATER),
            one("its module", "import agentrl.shelf_z as later\nprint(later.saved_late(1))", "1\n", LATER),
        ],
    ),
    Kind("a cell id used twice", "reader", "ids-unseen", ids_twice()),
    Kind(
        "a saved cell edited, library not built",
        "library",
        "library-names-only",
        [
            edited("00-choices", "softmax", "that belong", "which belong", "a docstring", "which belong"),
            edited("00-choices", "softmax", "logit - top", "logit + top", "a sign", "logit + top"),
            edited("00-choices", "entropy", "p > 0", "p > 1", "a digit", "p > 1"),
            edited("01-credit", "returns", "0.9", "0.99", "a constant", "0.99"),
            edited("01-credit", "returns", "found[::-1]", "found", "a slice", "found[::-1]"),
            edited("01-credit", "returns", "def returns", "def gains", "a name", "def gains"),
            edited("00-choices", "entropy", "#@save\n", "# not saved\n", "the mark", "def entropy"),
            added("02-data", function("fresh"), "a new function", STALE, "def fresh"),
        ],
    ),
    Kind(
        "the library edited by hand",
        "library",
        "library-names-only",
        [
            by_hand("a digit of a module", "credit.py", "0.9", "0.8"),
            by_hand("a comment of a module", "choices.py", "# ", "#  "),
            by_hand("the list of names", "__init__.py", "entropy", "entrop"),
            Mutation("a module too many", files={"agentrl/extra.py": None}, words=(STALE, "agentrl/extra.py")),
        ],
    ),
    Kind(
        "a saved name duplicated",
        "builder",
        "unresolved-library",
        [
            refused(chapter, function(name), f"{name} in {chapter}", f"'{name}' is saved twice")
            for chapter in ("01-credit", "02-data", "04-together")
            for name in ("softmax", "entropy", "returns")
        ],
    ),
    Kind(
        "a saved cell uses a later name",
        "builder",
        "unresolved-library",
        [
            refused(
                "00-choices", function("ahead", "return arl.DISCOUNT"), "a constant", "arl.DISCOUNT", "comes later"
            ),
            refused("00-choices", function("ahead", "return arl.returns([1])[0]"), "a function", "which comes later"),
            refused("00-choices", function("ahead", "return returns([1])[0]"), "without arl.", "which comes later"),
            refused("03-training", function("ahead", "return step"), "an unsaved variable", "'step' is not defined"),
        ],
    ),
    Kind(
        "a saved name shadows another",
        "builder",
        "unresolved-library",
        [
            refused(
                "00-choices", function("math"), "a function and an import", "'math' is imported here and also saved"
            ),
            refused(
                "02-data",
                function("shade", "softmax = 0\n    return arl.softmax([1.0])[softmax]"),
                "a local variable and a saved name",
                "binds a local `softmax`",
            ),
            refused(
                "02-data",
                function("shade", "return arl.softmax([softmax(1)])[0]", "from math import exp as softmax\n\n\n"),
                "an import and a saved name",
                "another `softmax`",
            ),
        ],
    ),
    Kind(
        "a saved cell runs on import",
        "builder",
        "unresolved-library",
        [
            refused("02-data", "#@save\nprint('hello')", "a print", "runs code on import"),
            refused("02-data", "#@save\nREWARDS = open('data/rewards.txt').read()", "a read", "runs code on import"),
            refused("02-data", "#@save\nfor n in range(3):\n    pass", "a loop", "runs code on import"),
        ],
    ),
    Kind(
        "a magic in a saved cell",
        "builder",
        "unresolved-library",
        [
            refused("02-data", "#@save\n%time x = 1", "a magic", "cannot be saved"),
            refused("02-data", "#@save\n!ls", "a shell line", "cannot be saved"),
        ],
    ),
    Kind(
        "recorded for one machine or day",
        "linter",
        "outputs-unlinted",
        [
            recorded("an address", "print(object())", "<object object at 0x7f0000000000>\n", "L106", "address"),
            recorded("a time of day", "print(now)", "2020-01-01 10:00:00\n", "L106", "time of day"),
            recorded("a path", "print(path)", "/tmp/scratch/x\n", "L106", "path"),
            recorded("a negative zero", "print(-0.0)", "-0.0\n", "L108", "negative zero"),
            recorded("colour codes", "print('\\x1b[1mx\\x1b[0m')", "\x1b[1mx\x1b[0m\n", "L106", "ANSI"),
            recorded("Windows line ends", "print('a')", "a\r\n", "L106", "carriage return"),
            recorded("a tensor", "print(t)", "tensor([1.])\n", "L107", "tensor"),
        ],
    ),
]
