"""Structure (L2xx): what a chapter consists of, and that exercises and solutions belong together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from ..notebook import ROLES, Cell
from ..problems import Problem
from .context import EXERCISE, Context, Mark, Page, Placed
from .markdown import words

DESIGN = "Design questions in practice"
DESIGN_PARTS = ("Symptom.", "Cause.", "Options.", "Recommendation.")
PLANTED = re.compile(r"\b(?:silent|planted) faults?\b", re.IGNORECASE)
LIBRARY = "import agentrl as arl"  # how solutions begin that take what they need from the library


class Obligations(NamedTuple):
    """What a kind of chapter must have."""

    design_questions: int
    exercises: int
    planted: int
    words: tuple[int, int]


# Front matter (chapter 0, metadata "kind": "front") is short and has no design questions; all else is the same.
OBLIGATIONS = {
    "chapter": Obligations(design_questions=3, exercises=7, planted=2, words=(4000, 7000)),
    "front": Obligations(design_questions=0, exercises=3, planted=0, words=(1500, 5000)),
}


def check(context: Context) -> Iterator[Problem]:
    """Yield every finding about the parts of chapters and solutions."""
    for page in context.chapters():
        needs = OBLIGATIONS["front" if page.is_front else "chapter"]
        yield from _title(page)
        yield from _opening(page)
        yield from _sections(page, needs)
        yield from _design_questions(page, needs)
        yield from _exercises(page, needs)
        yield from _length(page, needs)
        yield from _runs(page)
        yield from _solutions(page, context.pages.get(f"{page.chapter.key}/solutions"))


def _title(page: Page) -> Iterator[Problem]:
    kind = "Appendix" if page.chapter.key.isalpha() else "Chapter"
    wanted = f"{kind} {page.prefix} · {page.chapter.title}"
    titles = [p for p in page.placed if p.block.kind == "heading" and p.block.level == 1]
    if not titles or titles[0].cell is not page.chapter.cells[0] or titles[0].block.line != 1:
        first = page.chapter.cells[0] if page.chapter.cells else None
        yield page.problem("L201", first, 1, f"the first cell does not start with '# {wanted}'")
    elif titles[0].block.prose.strip() != wanted:
        place = titles[0]
        message = f"the title is {place.block.prose.strip()!r}; by the metadata it is {wanted!r}"
        yield page.problem("L201", place.cell, place.block.line, message)
    for extra in titles[1:]:
        yield page.problem("L201", extra.cell, extra.block.line, "a second title: a chapter has one '# ' heading")


def _opening(page: Page) -> Iterator[Problem]:
    opening = [p for p in page.placed if not _numbered(p)]
    first = page.chapter.cells[0] if page.chapter.cells else None
    question = [p for p in opening if p.block.strong == "Question."]
    if not question:
        yield page.problem("L202", first, 1, "no paragraph starts with **Question.** before the first section")
    elif (said := _rest(question[0])) != page.chapter.question:
        place = question[0]
        message = f"the question is {said!r}; the metadata says {page.chapter.question!r}"
        yield page.problem("L202", place.cell, place.block.line, message)
    if not any(p.block.strong == "You need." for p in opening):
        yield page.problem("L202", first, 1, "no paragraph starts with **You need.** before the first section")


def _numbered(placed: Placed) -> bool:
    return re.match(r"(?:\d+|[A-Z])\.\d+ ", placed.section) is not None


def _rest(placed: Placed) -> str:
    text = placed.block.prose.strip().removeprefix(placed.block.strong)
    return " ".join(text.split())


def _sections(page: Page, needs: Obligations) -> Iterator[Problem]:
    for count, mark in enumerate(page.sections, start=1):
        wanted = f"{page.prefix}.{count}"
        if mark.number != wanted:
            yield page.problem("L203", mark.cell, mark.line, f"section {mark.number} stands where {wanted} is due")
    headings = [p for p in page.placed if p.block.kind == "heading" and p.block.level == 2]
    names = [_section_name(page, p) for p in headings]
    wanted_last = ["Summary", "Exercises", "Sources"]
    if needs.design_questions:
        wanted_last.insert(0, DESIGN)
    if names[-len(wanted_last) :] != wanted_last:
        cell = headings[-1].cell if headings else None
        line = headings[-1].block.line if headings else None
        message = f"the last sections are {names[-len(wanted_last) :]}; they are {wanted_last}"
        yield page.problem("L204", cell, line, message)
    for place, name in zip(headings, names, strict=True):
        if name == place.block.prose.strip() and name not in ("Summary", "Exercises", "Sources"):
            yield page.problem("L203", place.cell, place.block.line, f"section {name!r} has no number")


def _section_name(page: Page, placed: Placed) -> str:
    text = placed.block.prose.strip()
    return re.sub(rf"^{re.escape(page.prefix)}\.\d+ ", "", text)


def _design_questions(page: Page, needs: Obligations) -> Iterator[Problem]:
    inside = [p for p in page.placed if p.section.endswith(DESIGN)]
    questions = [p for p in inside if p.block.kind == "heading" and p.block.level == 3]
    if not inside or not needs.design_questions:
        return
    if len(questions) < needs.design_questions:
        place = inside[0]
        message = f"{len(questions)} design questions; a chapter has at least {needs.design_questions}"
        yield page.problem("L205", place.cell, place.block.line, message)
    for question in questions:
        name = question.subsection
        parts = tuple(p.block.strong for p in inside if p.subsection == name and p.block.strong in DESIGN_PARTS)
        if parts != DESIGN_PARTS:
            message = f"design question {name!r} has the parts {list(parts)}; in order they are {list(DESIGN_PARTS)}"
            yield page.problem("L205", question.cell, question.block.line, message)


def _exercises(page: Page, needs: Obligations) -> Iterator[Problem]:
    for count, mark in enumerate(page.exercises, start=1):
        if mark.number != f"{page.prefix}.{count}":
            message = f"exercise {mark.number} stands where {page.prefix}.{count} is due"
            yield page.problem("L206", mark.cell, mark.line, message)
        if mark.text not in ("★", "★★", "★★★"):
            message = f"exercise {mark.number} is graded {mark.text!r}; write ★, ★★ or ★★★ inside the bold"
            yield page.problem("L206", mark.cell, mark.line, message)
    heading = next((p for p in page.placed if p.section == "Exercises"), None)
    if heading is None:
        return
    place = (heading.cell, heading.block.line)
    if len(page.exercises) < needs.exercises:
        yield page.problem("L207", *place, f"{len(page.exercises)} exercises; there are at least {needs.exercises}")
    planted = [number for number, text in exercise_texts(page).items() if PLANTED.search(text)]
    if len(planted) < needs.planted:
        message = f"{len(planted)} exercises ask for a silent fault (in these words); at least {needs.planted} do"
        yield page.problem("L207", *place, message)


def exercise_blocks(page: Page) -> dict[str, list[Placed]]:
    """Return the blocks of each exercise of a chapter by its number."""
    found: dict[str, list[Placed]] = {}
    current: list[Placed] | None = None
    for p in page.placed:
        if p.section != "Exercises":
            continue
        if match := EXERCISE.match(p.block.strong):
            current = found.setdefault(match["number"], [])
        if current is not None:
            current.append(p)
    return found


def exercise_texts(page: Page) -> dict[str, str]:
    """Return the prose of each exercise by its number."""
    return {n: " ".join(p.block.prose for p in blocks) for n, blocks in exercise_blocks(page).items()}


def _length(page: Page, needs: Obligations) -> Iterator[Problem]:
    count = words([p.block for p in page.placed])
    low, high = needs.words
    if not low <= count <= high:
        yield page.problem("L212", None, None, f"{count} words of prose; a chapter of this kind has {low} to {high}")


def _runs(page: Page) -> Iterator[Problem]:
    for is_code, group in groupby(page.chapter.cells, key=lambda cell: cell.is_code):
        run = list(group)
        if is_code and len(run) >= 3 and any(cell.stdout for cell in run):
            message = f"{len(run)} code cells in a row; what a cell prints is followed by prose that reads it"
            yield page.problem("L211", run[2], None, message)


def _solutions(page: Page, solutions: Page | None) -> Iterator[Problem]:
    if solutions is None:
        if page.exercises:
            message = f"no chapters/solutions/{page.chapter.path.name} for {len(page.exercises)} exercises"
            yield page.problem("L208", page.exercises[0].cell, page.exercises[0].line, message)
        return
    yield from _setup(solutions)
    yield from _pairs(page, solutions)
    yield from _roles(page, solutions)


def _setup(solutions: Page) -> Iterator[Problem]:
    wanted = f"%%capture\n%run ../{solutions.chapter.path.name}"
    first = next(iter(solutions.chapter.code_cells), None)
    starts = first is not None and (first.source.strip() == wanted or LIBRARY in first.source.splitlines())
    if first is None or first.id != "setup" or not starts:
        message = f"the first code cell is not 'setup' with the two lines {wanted.splitlines()}, or with {LIBRARY!r}"
        yield solutions.problem("L213", first, None, message)


def solution_heads(solutions: Page) -> list[Mark]:
    """Return the headings `## Exercise k.n ★★` of a solutions notebook; `text` is the grade."""
    return [
        Mark(match["number"], p.cell, p.block.line, match["grade"])
        for p in solutions.placed
        if p.block.kind == "heading" and p.block.level == 2 and (match := EXERCISE.match(p.block.prose))
    ]


def _pairs(page: Page, solutions: Page) -> Iterator[Problem]:
    asked = {mark.number: mark for mark in page.exercises}
    solved = {mark.number: mark for mark in solution_heads(solutions)}
    for number, mark in asked.items():
        if number not in solved:
            message = f"exercise {number} has no heading '## Exercise {number} {mark.text}' in {solutions.chapter.name}"
            yield page.problem("L208", mark.cell, mark.line, message)
    for number, mark in solved.items():
        if number not in asked:
            message = f"exercise {number} does not stand in {page.chapter.name}"
            yield solutions.problem("L208", mark.cell, mark.line, message)
        elif mark.text != asked[number].text:
            message = f"exercise {number} is graded {mark.text!r} here and {asked[number].text!r} in the chapter"
            yield solutions.problem("L208", mark.cell, mark.line, message)
    order = [mark.number for mark in solution_heads(solutions)]
    wanted = [number for number in asked if number in solved]
    if [number for number in order if number in asked] != wanted:
        yield solutions.problem("L208", None, None, f"solutions stand in the order {order}, the exercises in {wanted}")


def _roles(page: Page, solutions: Page) -> Iterator[Problem]:
    by_exercise: dict[str, list[Cell]] = {}
    for cell in solutions.chapter.code_cells:
        role, exercise = cell.book.get("role"), cell.book.get("exercise")
        if (role is None) != (exercise is None):
            yield solutions.problem("L210", cell, None, f"role is {role!r} and exercise {exercise!r}: both or neither")
        elif exercise is not None:
            by_exercise.setdefault(str(exercise), []).append(cell)
    for exercise, cells in by_exercise.items():
        roles = tuple(cell.book["role"] for cell in cells)
        if roles != ROLES:
            message = f"exercise {exercise} has cells with the roles {list(roles)}; in order they are {list(ROLES)}"
            yield solutions.problem("L210", cells[0], None, message)
        for cell in cells:
            if (here := _exercise_at(solutions, cell)) != exercise:
                message = f"says exercise {exercise} but stands under the heading of {here}"
                yield solutions.problem("L210", cell, None, message)
    yield from _stubs(page, solutions, by_exercise)


def _exercise_at(solutions: Page, cell: Cell) -> str | None:
    before = [mark for mark in solution_heads(solutions) if mark.cell.index < cell.index]
    return before[-1].number if before else None


def _stubs(page: Page, solutions: Page, by_exercise: dict[str, list[Cell]]) -> Iterator[Problem]:
    texts = exercise_blocks(page)
    for number, cells in by_exercise.items():
        stub = next((cell for cell in cells if cell.book["role"] == "stub"), None)
        if number not in texts:
            yield solutions.problem("L210", cells[0], None, f"exercise {number} does not stand in {page.chapter.name}")
        elif stub is not None:
            fences = [p for p in texts[number] if p.block.kind == "fence" and p.block.info == "python"]
            shown = [p.block.raw.strip("\n") for p in fences]
            if stub.source.strip("\n") not in shown:
                place = fences[0] if fences else texts[number][0]
                what = "differs from" if fences else "shows no ```python block with"
                message = f"exercise {number} {what} its stub, cell {stub.id!r} of {solutions.chapter.name}"
                yield page.problem("L209", place.cell, place.block.line, message)
    for number, blocks in texts.items():
        fences = [p for p in blocks if p.block.kind == "fence" and p.block.info == "python"]
        if fences and number not in by_exercise:
            message = f"exercise {number} shows a ```python stub, but {solutions.chapter.name} has no cells for it"
            yield page.problem("L209", fences[0].cell, fences[0].block.line, message)
