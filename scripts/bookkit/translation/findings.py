"""What a check finds in a translated cell: rule, message, place; and the exceptions that the glossary grants."""

from __future__ import annotations

from dataclasses import dataclass

# Every rule by its name, which a message ends with and an exception names. Those that never have an exception guard
# what must be the same in both languages.
STRICT = {
    "form": "code, outputs, metadata and order are those of the English notebook",
    "title": "the first heading is the plan's title",
    "missing": "every English cell has its translation",
    "unaccepted": "a translation was compared with the English and accepted",
    "stale": "a translation is of the English as it is now",
    "edited": "a translation is as it was accepted",
    "shape": "the same headings, paragraphs, lists and tables",
    "formula": "the same mathematics",
    "code": "the same inline code and the same fenced blocks",
    "link": "links and images lead where the English ones lead",
    "citation": "the same citations",
    "reference": "the same chapters, sections, figures, equations and exercises are named",
    "digits": "the same numbers in digits",
    "stars": "the same grades",
    "html": "the same HTML",
}
EXEMPT = {
    "words": "the same numbers in words",
    "bold": "as much in bold, and no asterisk that shows",
    "term": "a term has its Chinese form",
    "first-use": "a term's first use in a chapter gives the English",
    "forbidden": "no rendering that the glossary forbids",
    "typography": "Chinese punctuation and spaces",
    "script": "simplified characters",
    "english": "nothing left in English",
    "length": "as long as its English, and no sentence twice",
}


@dataclass(frozen=True, order=True)
class Finding:
    """A fault of a translated cell; `item` is what an exception has to name, `line` counts from 1 in the cell."""

    line: int
    rule: str
    message: str
    item: str = ""


@dataclass(frozen=True)
class Exemption:
    """A place where a rule does not hold, and why."""

    cell: str  # "01:cell-id"
    rule: str
    item: str
    reason: str

    def covers(self, cell: str, finding: Finding) -> bool:
        """Return whether it is about this finding."""
        return (cell, finding.rule, finding.item) == (self.cell, self.rule, self.item)
