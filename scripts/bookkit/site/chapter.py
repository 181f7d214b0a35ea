"""The page of a chapter: frontmatter, what it asks and needs, its sections, and what each kind of section becomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile, zip_longest

from ..notebook import Chapter
from ..plan import planned
from . import escape
from .blocks import Blocks, exercise_number, note
from .edition import Edition
from .items import Item, items, sections
from .links import Links, Site
from .solutions import Solutions, folded, solution, solutions_of
from .targets import DESIGN, HeadingIds, fragment
from .trees import strong_start
from .words import LABELS, Language, chapter_label, short_number, word


@dataclass
class ChapterPage:
    """Writes the page of one chapter in one language."""

    site: Site
    chapter: Chapter
    language: Language

    def __post_init__(self) -> None:
        self.edition = self.site.editions.chapter(self.chapter.key, self.language)
        self.solved = self.site.editions.solutions(self.chapter.key, self.language)
        self.ids = HeadingIds()
        self.links = Links(self.site, self.language, self.source)
        self.blocks = Blocks(self.links, self.chapter.module)
        self.solution_blocks = Blocks(self.links, cells="sol")

    def text(self) -> str:
        """Return the whole page."""
        found = items(self.edition, self.ids, self.links)
        body = list(self._sections(found))
        if self.language != "en" and not self.edition.is_started:
            body.insert(0, note(word("untranslated-chapter", self.language)))
        return "\n\n".join([frontmatter(self._fields()), *filter(None, body), self._footer()]) + "\n"

    @property
    def translated(self) -> str:
        """`true`, `partly` or `false`: how much of the chapter and its solutions is in the page's language."""
        parts = [part for part in (self.edition, self.solved) if part is not None]
        if all(part.is_complete for part in parts):
            return "true"
        return "partly" if self.edition.is_started else "false"

    @property
    def source(self) -> str:
        """The notebook that the page's prose comes from."""
        return self.edition.path(self.edition.is_started)

    @property
    def recorded(self) -> str:
        """The day on which the outputs were recorded, as the notebook says."""
        return str(self.chapter.metadata.get("recorded") or word("unrecorded", self.language))

    def _fields(self) -> dict[str, str]:
        title, number = title_of(self.edition), short_number(self.chapter.key)
        listed = "" if self.edition.is_started else word("listed-in-english", self.language)
        fields = {
            "title": f"{chapter_label(self.chapter.key, self.language)} · {title}",
            "sidebarTitle": f"{number} · {title}{listed}",
            "description": question_of(self.edition),
            "chapter": self.chapter.key,
            "version": self.site.facts.version,
            "recorded": self.recorded,
            "torch": self.site.facts.torch,
        }
        if self.language != "en":
            fields["translated"] = self.translated
        return {**fields, "source": self.source}

    def _footer(self) -> str:
        values = {"version": self.site.facts.version, "recorded": self.recorded, "torch": self.site.facts.torch}
        solved = word("footer-solved", self.language, source=self._solutions) if self.solved else ""
        return "---\n\n" + word("footer", self.language, source=self.source, solved=solved, **values)

    @property
    def _solutions(self) -> str:
        return self.solved.path(self.solved.is_started) if self.solved else ""

    def _sections(self, found: Sequence[Item]) -> Iterator[str]:
        for heading, below in sections(found):
            if heading is None:
                yield self._opening(below)
                continue
            yield self.blocks.one(heading)
            if heading.english.endswith(DESIGN):
                yield escape.anchor_only("design-questions")
                yield from self._design(below)
            elif heading.english == "Exercises":
                yield from self._exercises(heading, below)
            else:
                yield self.blocks.all(below)

    def _opening(self, found: Sequence[Item]) -> str:
        """Return what stands above the first section: the paragraphs below the title that start in bold as one box."""
        rest = [item for item in found if item.level != 1]
        boxed = list(takewhile(lambda item: item.node is not None and strong_start(item.node) != "", rest))
        after = self.blocks.all(rest[len(boxed) :])
        return f"{escape.element('Info', self.blocks.all(boxed))}\n\n{after}" if boxed else after

    def _design(self, found: Sequence[Item]) -> Iterator[str]:
        """Yield each design question: its heading, a note with symptom, cause and options, a tip with the advice."""
        for heading, below in sections(found, level=3):
            if heading is None:
                yield self.blocks.all(below)
                continue
            yield self.blocks.one(heading)
            starts = [at for at, item in enumerate(below) if self._recommends(item)]
            split = starts[0] if starts else len(below)
            if not starts:
                self.links.move(heading.cell, heading.path)
                wanted = f"**{LABELS[self.language]['recommendation']}…**"
                self.links.fault(f"design question {heading.english!r} has no paragraph {wanted}")
            yield escape.element("Note", self.blocks.all(below[:split]))
            yield escape.element("Tip", self.blocks.all(below[split:])) if starts else ""

    @staticmethod
    def _recommends(item: Item) -> bool:
        start = strong_start(item.node).rstrip(".。:：") if item.node is not None else ""
        return start in {label["recommendation"] for label in LABELS.values()}

    def _exercises(self, heading: Item, found: Sequence[Item]) -> Iterator[str]:
        """Yield the exercises, each in its own block and followed by its solution."""
        solved = solutions_of(self.solved, self.ids, self.links)
        starts = [at for at, item in enumerate(found) if exercise_number(item)]
        yield self.blocks.all(found[: starts[0] if starts else len(found)])
        if solved.setup:
            yield folded(self.solution_blocks, word("setup", self.language), solved.setup)
        numbers = []
        for start, end in zip_longest(starts, starts[1:], fillvalue=len(found)):
            number = exercise_number(found[start]) or ""
            numbers.append(number)
            yield escape.anchored(fragment("exercise", number), self.blocks.all(found[start:end]))
            yield self._solution(found[start], number, solved)
        for number, (item, _) in solved.by_exercise.items():
            if number not in numbers:
                self.links.move(item.cell, item.path)
                self.links.fault(f"a solution of exercise {number}, which {self.chapter.name} does not have")

    def _solution(self, item: Item, number: str, solved: Solutions) -> str:
        if number in solved.by_exercise:
            return solution(self.solution_blocks, number, *solved.by_exercise[number])
        self.links.move(item.cell, item.path)
        self.links.fault(f"exercise {number} has no solution in chapters/solutions/{self.chapter.path.name}")
        return ""


def title_of(edition: Edition) -> str:
    """Return a chapter's title in an edition: the translation's, else the plan's, else the English one."""
    if edition.language == "en":
        return edition.notebook.title
    if edition.translation is not None and edition.is_started:
        return edition.translation.title
    known = planned().get(edition.notebook.key)
    return known.zh if known and known.slug == edition.notebook.slug else edition.notebook.title


def question_of(edition: Edition) -> str:
    """Return a chapter's question in an edition."""
    use = edition.translation is not None and edition.is_started
    return edition.translation.question if use and edition.translation else edition.notebook.question


def answered(edition: Edition) -> str:
    """Return what a list of chapters says of one: its question in the list's language, and whether it is in another."""
    if edition.is_complete:
        return question_of(edition)
    if not edition.is_started:
        return word("in-english", edition.language)
    return question_of(edition) + word("partly-in-english", edition.language)


def frontmatter(fields: dict[str, str]) -> str:
    """Return the head of a page, every value quoted."""
    return "\n".join(["---", *(f"{key}: {escape.quoted(value)}" for key, value in fields.items()), "---"])
