"""The glossary `chapters/zh/glossary.toml`: the terms, the renderings it forbids, the exceptions it grants."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..notebook import TRANSLATION
from ..problems import BookError, Problem, read_text, relative
from .findings import EXEMPT, STRICT, Exemption
from .pair import GLOSSARY

TEXT, TEXTS, FLAG = "text", "a list of texts", "true or false"
NEEDED = {
    "term": {"english": TEXTS},
    "forbidden": {"chinese": TEXT, "instead": TEXT},
    "exception": {"cell": TEXT, "rule": TEXT, "item": TEXT, "reason": TEXT},
}
OPTIONAL = {
    "term": {"chinese": TEXTS, "pattern": TEXT, "unless": TEXTS, "first": FLAG, "keep": FLAG},
    "forbidden": {"when": TEXT, "unless": TEXT},
    "exception": {},
}


@dataclass(frozen=True)
class Term:
    """A term: its English forms or a pattern of them, phrases that are not it, and its Chinese forms."""

    english: tuple[str, ...]
    chinese: tuple[str, ...] = ()
    pattern: str = ""
    unless: tuple[str, ...] = ()
    first: bool = True  # its first use in a chapter gives the English in brackets
    keep: bool = False  # stays English

    @property
    def name(self) -> str:
        """How messages and exceptions call it."""
        return self.english[0]

    @cached_property
    def bracketed(self) -> re.Pattern[str]:
        """The pattern of a Chinese form with the English behind it: 智能体（agent）."""
        chinese, english = ("|".join(map(re.escape, forms)) for forms in (self.chinese, self.english))
        return re.compile(rf"(?:{chinese})[”’]?（[^（）]*(?:{english})[^（）]*）", re.IGNORECASE)

    def rendered(self, text: str) -> bool:
        """Return whether a Chinese text has one of the term's forms."""
        if any(form in text for form in self.chinese):
            return True
        return self.keep and any(form.lower() in text.lower() for form in self.english)


@dataclass(frozen=True)
class Forbidden:
    """A rendering that may not stand, what to write, and the English that makes it wrong or right."""

    chinese: str
    instead: str
    when: str = ""
    unless: str = ""

    def applies(self, english: str) -> bool:
        """Return whether it is wrong as a translation of this text."""
        wrong = not self.when or re.search(self.when, english, re.IGNORECASE)
        return bool(wrong) and not (self.unless and re.search(self.unless, english, re.IGNORECASE))


@dataclass(frozen=True)
class Glossary:
    """What the glossary says."""

    name: str
    terms: tuple[Term, ...] = ()
    forbidden: tuple[Forbidden, ...] = ()
    exemptions: tuple[Exemption, ...] = ()

    @cached_property
    def _matcher(self) -> re.Pattern[str]:
        """One pattern for every form, the longest first, so that `policy gradient` is not `policy`."""
        forms = []
        for number, term in enumerate(self.terms):
            patterns = [term.pattern] if term.pattern else [_form(form) for form in term.english]
            forms += [(pattern, f"t{number}_{i}") for i, pattern in enumerate(patterns)]
        ranked = sorted(forms, key=lambda form: -len(form[0]))
        others = [f"(?i:{phrase})" for term in self.terms for phrase in term.unless]
        return re.compile(rf"(?<![A-Za-z])(?:{'|'.join([*others, *(f'(?P<{n}>{p})' for p, n in ranked)])})(?![A-Za-z])")

    def used(self, text: str) -> dict[Term, int]:
        """Return the terms that an English text uses, with where each first stands."""
        found: dict[Term, int] = {}
        for match in self._matcher.finditer(text) if self.terms else ():
            if match.lastgroup is not None:
                found.setdefault(self.terms[int(match.lastgroup[1:].split("_")[0])], match.start())
        return found


def _form(form: str) -> str:
    """Return the pattern of a form: singular or plural, hyphens for spaces, any case unless it has capitals."""
    words = r"[\s-]+".join(re.escape(word) for word in re.split(r"[\s-]", form))
    plural = words[:-1] + "(?:y|ies)" if re.search(r"[^aeiou]y$", form) else words + "(?:s|es)?"
    return plural if re.search("[A-Z]", form) else f"(?i:{plural})"


def load_glossary(root: Path) -> Glossary:
    """Read the glossary below `root`; BookError names each entry that is wrong. Without a file it is empty."""
    path = root / "chapters" / TRANSLATION / GLOSSARY
    name = relative(path, root)
    if not path.exists() and not path.is_symlink():
        return Glossary(name)
    try:
        data = tomllib.loads(read_text(path, root))
    except tomllib.TOMLDecodeError as error:
        raise BookError(Problem(name, None, None, f"not TOML: {error}")) from error
    problems = [Problem(name, None, None, message) for message in _faults(data)]
    if problems:
        raise BookError(problems)
    terms = (_frozen(entry) for entry in data.get("term", ()))
    return Glossary(
        name,
        tuple(Term(**entry) for entry in terms),
        tuple(Forbidden(**entry) for entry in data.get("forbidden", ())),
        tuple(Exemption(**entry) for entry in data.get("exception", ())),
    )


def _frozen(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}


def _faults(data: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the entries of the file."""
    for kind in data.keys() - NEEDED.keys():
        yield f"{kind!r} is not known; there are [[term]], [[forbidden]] and [[exception]]"
    for kind, needed in NEEDED.items():
        entries = data.get(kind, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            yield f"{kind!r} is {entries!r}; entries are written [[{kind}]]"
            continue
        yield from _repeated(kind, entries)
        for number, entry in enumerate(entries, start=1):
            known = needed | OPTIONAL[kind]
            said = next((entry[key] for key in needed if key in entry), "?")
            place = f"[[{kind}]] {number} ({said if isinstance(said, str) else ', '.join(map(str, said))})"
            yield from (f"{place}: {key!r} is missing" for key in needed.keys() - entry.keys())
            yield from (f"{place}: {key!r} is not known" for key in entry.keys() - known.keys())
            for key in known.keys() & entry.keys():
                if not _is(entry[key], known[key]):
                    yield f"{place}: {key!r} is {entry[key]!r}, not {known[key]}"
                elif key in ("pattern", "when", "unless"):
                    yield from (f"{place}: {fault}" for fault in _patterns(entry[key], joined=kind == "term"))
            yield from (f"{place}: {fault}" for fault in _sense(kind, entry))


def _is(value: Any, wanted: str) -> bool:
    """Return whether a value is of the kind that an entry needs; no text may be empty."""
    if wanted == FLAG:
        return isinstance(value, bool)
    if wanted == TEXT:
        return isinstance(value, str) and bool(value.strip())
    return isinstance(value, list) and bool(value) and all(_is(part, TEXT) for part in value)


def _repeated(kind: str, entries: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the English forms that two terms have: only the first of them would be found."""
    lists = [entry["english"] for entry in entries if kind == "term" and isinstance(entry.get("english"), list)]
    forms = Counter(form for forms in lists for form in forms if isinstance(form, str))
    yield from (f"[[term]]: {form!r} stands in {count} terms" for form, count in forms.items() if count > 1)


def _patterns(value: str | list[str], joined: bool) -> Iterator[str]:
    """Yield what is wrong with regular expressions; those of terms are joined to one, and have to bear it."""
    for pattern in [value] if isinstance(value, str) else value:
        try:
            found = re.compile(f"(?:{pattern})" if joined else pattern)
        except re.error as error:
            yield f"{pattern!r} is no regular expression: {error}"
            continue
        if joined and found.groups:
            yield f"{pattern!r} has a group that captures; write (?:…)"
        if found.search(""):
            yield f"{pattern!r} is found in an empty text"


def _sense(kind: str, entry: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with an entry whose fields are right."""
    if kind == "term" and not entry.get("keep") and "chinese" not in entry:
        yield "it has no Chinese form, and does not say keep = true"
    rule = entry.get("rule")
    if kind == "exception" and rule in STRICT:
        yield f"the rule {rule!r} has no exceptions: {STRICT[rule]}"
    elif kind == "exception" and rule not in EXEMPT:
        yield f"the rule {rule!r} is not known; there are {', '.join(EXEMPT)}"
