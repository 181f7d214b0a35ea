"""Whether a notebook of the translation is English's but for the Chinese of its markdown cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..notebook import Cell, dump, normalise
from ..problems import Problem
from .pair import Edition, Pair
from .sync import leftover, synced

PARTS = {
    "cell_type": "is of another type than",
    "source": "has another source than",
    "outputs": "has other outputs than",
    "execution_count": "has another execution count than",
    "metadata": "has other metadata than",
}


def command(pair: Pair) -> str:
    """Return the command that writes this notebook, as messages show it."""
    return f"`sync_translation.py {pair.english.key}`"


def check_form(edition: Edition, pair: Pair) -> Iterator[Problem]:
    """Yield what is not as it is written from English, each cell by its id."""
    assert pair.chinese is not None
    wanted, found = synced(edition, pair), normalise(pair.chinese.raw)
    kept = leftover(pair)
    for cell in kept:
        said = f"English has no such cell: move its text, then `sync_translation.py --drop {pair.label}:{cell.id}`"
        yield _problem(pair, cell, said)
    faults = [
        *_copies(pair, wanted, found),
        *_order(pair, wanted, found),
        *_metadata(pair, wanted["metadata"]["agentrl"]),
    ]
    yield from faults
    if not faults and not kept and dump(wanted) != dump(found):
        yield _problem(pair, None, f"not as it is written from English; {command(pair)} writes it")


def _problem(pair: Pair, cell: Cell | None, message: str, rule: str = "form") -> Problem:
    assert pair.chinese is not None
    return pair.chinese.problem(cell, None, message, code=rule)


def _copies(pair: Pair, wanted: dict[str, Any], found: dict[str, Any]) -> Iterator[Problem]:
    """Yield the cells that are missing, in excess, or not as they come from English."""
    ours = {cell["id"]: cell for cell in found["cells"]}
    for cell in wanted["cells"]:
        if cell["id"] not in ours:
            yield _problem(pair, None, f"the English cell {cell['id']} is missing; {command(pair)} adds it", "missing")
            continue
        for part, differs in PARTS.items():
            if ours[cell["id"]].get(part) != cell.get(part):
                said = f"{differs} the English cell; {command(pair)} writes it"
                yield _problem(pair, pair.cells[cell["id"]], said)
    known = {cell["id"] for cell in wanted["cells"]} | {cell.id for cell in leftover(pair)}
    for name in ours.keys() - known:
        yield _problem(pair, pair.cells[name], f"English has no such cell; {command(pair)} removes it")


def _order(pair: Pair, wanted: dict[str, Any], found: dict[str, Any]) -> Iterator[Problem]:
    """Yield the first cell that stands where English has another."""
    theirs, ours = ([cell["id"] for cell in raw["cells"]] for raw in (wanted, found))
    common = [[name for name in one if name in other] for one, other in ((theirs, ours), (ours, theirs))]
    for should, is_ in zip(*common, strict=True):
        if should != is_:
            said = f"stands where English has {should}; {command(pair)} puts it in order"
            yield _problem(pair, pair.cells[is_], said)
            return


def _metadata(pair: Pair, wanted: dict[str, Any]) -> Iterator[Problem]:
    """Yield the notebook metadata that are not English's with the Chinese title and question."""
    assert pair.chinese is not None
    found = pair.chinese.metadata
    for key in sorted(wanted.keys() | found.keys()):
        is_, should = found.get(key), wanted.get(key)
        if is_ != should:
            yield _problem(
                pair, None, f"notebook metadata agentrl.{key} is {is_!r}, not {should!r}; {command(pair)} sets it"
            )
