"""Every check of the translation, and what the notes say of what is not translated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..notebook import Cell, as_lines, dump
from ..problems import Problem
from .compare import compare
from .findings import Exemption, Finding
from .glossary import Glossary, load_glossary
from .history import changes
from .pair import Edition, Pair
from .sync import leftover, synced
from .terms import check_terms, first_uses
from .typography import check_typography

CODE_PARTS = ("source", "outputs", "execution_count", "metadata", "cell_type")


@dataclass
class Report:
    """What the check found, and how much is translated."""

    problems: list[Problem] = field(default_factory=list)
    untranslated: list[str] = field(default_factory=list)  # chapters without a notebook in the translation
    partly: list[str] = field(default_factory=list)
    notebooks: int = 0
    cells: int = 0
    done: int = 0


class Checker:
    """The checks of some pairs, with the exceptions that were used."""

    def __init__(self, edition: Edition) -> None:
        """Read the glossary; BookError says what is wrong with it."""
        self.edition = edition
        self.glossary: Glossary = load_glossary(edition.root)
        self.used: set[Exemption] = set()

    def check(self, pairs: Sequence[Pair]) -> Report:
        """Return everything that is wrong with the translation of these notebooks."""
        report = Report()
        for pair in pairs:
            if pair.chinese is None and not pair.complete:
                report.untranslated.append(pair.label)
                continue
            report.problems += self._notebook(pair)
            _count(report, pair)
        if {pair.label for pair in pairs} == {pair.label for pair in self.edition.pairs}:
            report.problems += self._book()
        return report

    def cell(self, pair: Pair, cell: Cell) -> list[Finding]:
        """Return what is wrong with one translated cell, beside its mark."""
        english, chinese = pair.blocks(cell.id)
        found = [*compare(self.edition, pair, cell), *check_terms(self.glossary, pair, cell)]
        found += check_typography(english, chinese)
        if cell.index == 0:
            found += self._title(pair, cell)
        return self._without_exemptions(pair, cell, found)

    def _without_exemptions(self, pair: Pair, cell: Cell, found: list[Finding]) -> list[Finding]:
        """Return the findings that no exception covers, in order."""
        left = []
        for finding in dict.fromkeys(found):
            covers = [e for e in self.glossary.exemptions if e.covers(f"{pair.label}:{cell.id}", finding)]
            self.used.update(covers)
            if not covers:
                left.append(finding)
        return sorted(left)

    def _title(self, pair: Pair, cell: Cell) -> Iterator[Finding]:
        wanted = self.edition.heading(pair)
        said = next((b.prose.strip() for b in pair.blocks(cell.id)[1] if b.kind == "heading"), "")
        if wanted is not None and said != wanted:
            yield Finding(1, "title", f"the title is {said!r}; the plan (scripts/bookkit/plan.toml) says {wanted!r}")

    def _notebook(self, pair: Pair) -> Iterator[Problem]:
        """Yield what is wrong with one notebook of the translation."""
        if pair.chinese is None:
            name = self.edition.name(pair.path)
            message = f"no such file, and pyproject.toml lists {pair.english.key} as translated; {_run(pair)} starts it"
            yield Problem(name, None, None, message, code="missing")
            return
        yield from _form(self.edition, pair)
        late: dict[str, list[Finding]] = {}
        for cell, finding in first_uses(self.glossary, pair):
            late.setdefault(cell.id, []).append(finding)
        for cell in pair.english.cells:
            if cell.is_code:
                continue
            yield from _mark(pair, cell)
            if pair.is_translated(cell.id):
                findings = self.cell(pair, cell) + self._without_exemptions(pair, cell, late.get(cell.id, []))
                yield from (problem(pair, cell.id, finding) for finding in findings)

    def _book(self) -> Iterator[Problem]:
        """Yield notebooks that translate nothing, and exceptions that no cell needs."""
        for chapter in self.edition.orphans:
            yield chapter.problem(None, None, "there is no English notebook of this name", code="form")
        for exemption in self.glossary.exemptions:
            if exemption not in self.used:
                said = (
                    f"[[exception]] {exemption.cell}, {exemption.rule} {exemption.item!r}: nothing needs it; remove it"
                )
                yield Problem(self.glossary.name, None, None, said, code=exemption.rule)


def problem(pair: Pair, cell_id: str, finding: Finding) -> Problem:
    """Return a finding with its place in the translation's file."""
    assert pair.chinese is not None
    return pair.chinese.problem(pair.cells[cell_id], finding.line, finding.message, code=finding.rule)


def _run(pair: Pair) -> str:
    return f"`sync_translation.py {pair.english.key}`"


def _count(report: Report, pair: Pair) -> None:
    report.notebooks += 1
    report.cells += len(pair.states)
    done = sum(state not in ("missing", "untranslated") for state in pair.states.values())
    report.done += done
    if done < len(pair.states):
        report.partly.append(f"{pair.label} ({done} of {len(pair.states)})")


def _mark(pair: Pair, cell: Cell) -> Iterator[Problem]:
    """Yield what the state of a cell calls for; what is not translated is a fault only in a complete chapter."""
    chinese = pair.cells.get(cell.id)
    name = f"{pair.label}:{cell.id}"
    match pair.states[cell.id]:
        case "untranslated" if pair.complete:
            yield _problem(pair, chinese, "still in English", "english")
        case "unaccepted" if pair.complete:
            said = f"not accepted: compare it with the English, then `sync_translation.py --accept {name}`"
            yield _problem(pair, chinese, said, "unaccepted")
        case "stale":
            said = f"the English cell has changed since it was translated: {changes(pair, cell.id)}"
            yield _problem(pair, chinese, f"{said}. Mend it, then `sync_translation.py --accept {name}`", "stale")


def _problem(pair: Pair, cell: Cell | None, message: str, code: str) -> Problem:
    assert pair.chinese is not None
    return pair.chinese.problem(cell, None, message, code=code)


def _form(edition: Edition, pair: Pair) -> Iterator[Problem]:
    """Yield what is not as it is written from English, each cell by its id."""
    assert pair.chinese is not None
    wanted, found = synced(edition, pair), pair.chinese.raw
    for cell in leftover(pair):
        said = f"English has no such cell: move its text, then `sync_translation.py --drop {pair.label}:{cell.id}`"
        yield _problem(pair, cell, said, "form")
    faults = [*_cells(edition, pair, wanted)]
    said = {
        key: (found["metadata"].get("agentrl", {}).get(key), value)
        for key, value in wanted["metadata"]["agentrl"].items()
    }
    for key, (is_, should) in said.items():
        if is_ != should:
            faults.append(
                _problem(
                    pair, None, f"notebook metadata agentrl.{key} is {is_!r}, not {should!r}; {_run(pair)}", "form"
                )
            )
    if not faults and not leftover(pair) and dump(wanted) != pair.path.read_text(encoding="utf-8"):
        faults.append(_problem(pair, None, f"not as it is written from English; {_run(pair)} writes it", "form"))
    yield from faults


def _cells(edition: Edition, pair: Pair, wanted: dict[str, Any]) -> Iterator[Problem]:
    """Yield the cells that are missing, out of order, in excess, or not a copy of the English ones."""
    assert pair.chinese is not None
    raw = {cell["id"]: cell for cell in pair.chinese.raw["cells"]}
    ours = [cell["id"] for cell in wanted["cells"]]
    for cell in wanted["cells"]:
        if cell["id"] not in raw:
            said = f"the English cell {cell['id']} is missing; {_run(pair)} adds it"
            yield _problem(pair, None, said, "missing")
            continue
        for part in CODE_PARTS:
            if _value(raw[cell["id"]], part) != _value(cell, part) and (part != "source" or _copied(pair, cell)):
                said = f"its {part.replace('_', ' ')} is not that of the English cell; {_run(pair)} writes it"
                yield _problem(pair, pair.cells[cell["id"]], said, "form")
    for name in raw.keys() - set(ours) - {cell.id for cell in leftover(pair)}:
        yield _problem(pair, pair.cells[name], f"English has no such cell; {_run(pair)} removes it", "form")
    common = [name for name in ours if name in raw]
    there = [name for name in raw if name in set(ours)]
    at = next((i for i, (a, b) in enumerate(zip(common, there, strict=True)) if a != b), None)
    if at is not None:
        said = f"stands where English has {common[at]}; {_run(pair)} puts it in order"
        yield _problem(pair, pair.cells[there[at]], said, "form")


def _value(cell: dict[str, Any], part: str) -> Any:
    value = cell.get(part)
    return as_lines(value) if part == "source" and isinstance(value, str) else value


def _copied(pair: Pair, cell: dict[str, Any]) -> bool:
    """Return whether a cell's text comes from English as it is: code, and what is not translated yet."""
    return pair.states.get(cell["id"], "missing") in ("missing", "untranslated") and cell["id"] not in {
        other.id for other in leftover(pair)
    }
