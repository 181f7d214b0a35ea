"""Every check of the translation, and what the notes say of what is not translated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..notebook import Cell
from ..problems import Problem
from .compare import compare
from .findings import Exemption, Finding
from .form import check_form, command
from .glossary import Glossary, load_glossary
from .history import changes, edits
from .length import check_length
from .pair import Edition, Pair
from .terms import check_terms, first_uses
from .typography import check_typography


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
        found += [*check_typography(english, chinese), *check_length(english, chinese)]
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
            older = self.edition.renamed(pair)
            way = f"rename {older.name}" if older else f"{command(pair)} starts it"
            message = f"no such file, and pyproject.toml lists {pair.english.key} as translated; {way}"
            yield Problem(name, None, None, message, code="missing")
            return
        yield from check_form(self.edition, pair)
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


def _count(report: Report, pair: Pair) -> None:
    report.notebooks += 1
    report.cells += len(pair.states)
    done = sum(state not in ("missing", "untranslated") for state in pair.states.values())
    report.done += done
    if done < len(pair.states):
        report.partly.append(f"{pair.label} ({done} of {len(pair.states)})")


def _mark(pair: Pair, cell: Cell) -> Iterator[Problem]:
    """Yield what the state of a cell calls for; what is not translated is a fault only in a complete chapter."""
    assert pair.chinese is not None
    chinese = pair.cells.get(cell.id)
    name = f"{pair.label}:{cell.id}"
    match pair.states[cell.id]:
        case "untranslated" if pair.complete:
            yield pair.chinese.problem(chinese, None, "still in English", code="english")
        case "unaccepted" if pair.complete:
            said = f"not accepted: compare it with the English, then `sync_translation.py --accept {name}`"
            yield pair.chinese.problem(chinese, None, said, code="unaccepted")
        case "stale":
            said = f"the English cell has changed since it was translated: {changes(pair, cell.id)}"
            yield pair.chinese.problem(
                chinese, None, f"{said}. Mend it, then `sync_translation.py --accept {name}`", code="stale"
            )
        case "edited":
            said = f"edited since it was accepted{edits(pair, cell.id)}: compare it with the English"
            yield pair.chinese.problem(
                chinese, None, f"{said}, then `sync_translation.py --accept {name}`", code="edited"
            )
