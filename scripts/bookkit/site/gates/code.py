"""Every code cell and what it printed, on the pages of both languages as in the notebooks, character for character.

Shares no code with what writes the pages: the cells come from the notebooks, the blocks from an MDX parser.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...notebook import Book, Cell, Chapter, load_book
from ...problems import Problem
from .website import LANGUAGES, Page, Website

OUTPUT = {"en": "Output", "zh": "输出"}
PREFIX = {"chapter": "cell-", "solutions": "sol-"}


def check(website: Website) -> list[Problem]:
    """Refuse a website on which a code cell or an output is missing, changed, or in another place."""
    book = load_book(website.root)
    problems = [
        p for chapter in book.chapters for language in LANGUAGES for p in _chapter(website, book, chapter, language)
    ]
    return problems + list(_whole_text(website, book))


def _chapter(website: Website, book: Book, chapter: Chapter, language: str) -> Iterator[Problem]:
    path = f"{language}/chapters/{chapter.path.stem}.mdx"
    page = website.pages.get(path)
    if page is None:
        yield website.problem(path, None, f"there is no page of {chapter.name}")
        return
    solutions = book.solutions_of(chapter.key)
    for notebook in [chapter, *([solutions] if solutions else [])]:
        for cell in notebook.code_cells:
            yield from _cell(website, page, notebook, cell, language)
    wanted = [PREFIX["chapter"] + cell.id for cell in chapter.code_cells]
    wanted += [PREFIX["solutions"] + cell.id for cell in solutions.code_cells] if solutions else []
    yield from _places(website, page, wanted, chapter)


def _cell(website: Website, page: Page, notebook: Chapter, cell: Cell, language: str) -> Iterator[Problem]:
    anchor = PREFIX[notebook.kind] + cell.id
    blocks = [item for item in page.of("code") if item.within[-1:] == (anchor,)]
    title = f"agentrl.{notebook.module}" if cell.is_saved else ""
    wanted = [("python", title, cell.source)]
    if cell.stdout:
        wanted.append(("text", OUTPUT[language], cell.stdout.removesuffix("\n")))
    there = [(item.language, item.title, item.text) for item in blocks]
    if there != wanted:
        line = blocks[0].line if blocks else None
        yield website.problem(page.path, line, f"{anchor}: {_difference(wanted, there)} ({notebook.name})")


def _difference(wanted: list[tuple[str, str, str]], there: list[tuple[str, str, str]]) -> str:
    if len(wanted) != len(there):
        return f"{len(there)} blocks of code and output where the notebook has {len(wanted)}"
    for (language, title, text), (other, heading, shown) in zip(wanted, there, strict=True):
        if (language, title) != (other, heading):
            return f"the block is marked {other} {heading!r}, not {language} {title!r}"
        for line, (a, b) in enumerate(zip(text.split("\n"), shown.split("\n"), strict=False), start=1):
            if a != b:
                return f"line {line} of the {'code' if language == 'python' else 'output'} is {b!r}, not {a!r}"
        if text != shown:
            return f"{shown.count(chr(10)) + 1} lines where the notebook has {text.count(chr(10)) + 1}"
    raise AssertionError("called with equal blocks")


def _places(website: Website, page: Page, wanted: list[str], chapter: Chapter) -> Iterator[Problem]:
    """Yield anchors of cells that the notebooks do not have, and cells of the chapter in another order."""
    anchors = [(item.attributes.get("id"), item) for item in page.of("element")]
    ours = [(str(name), item) for name, item in anchors if str(name).startswith(tuple(PREFIX.values()))]
    for name, item in ours:
        if name not in wanted and _has_code(page, name):
            yield website.problem(page.path, item.line, f"{name}: the notebooks have no such cell")
    order = [name for name, _ in ours if name.startswith("cell-") and name in wanted]
    if order != sorted(order, key=wanted.index):
        yield website.problem(page.path, None, f"the code cells stand in another order than in {chapter.name}")


def _has_code(page: Page, anchor: str) -> bool:
    return any(item.within[-1:] == (anchor,) for item in page.of("code"))


def _whole_text(website: Website, book: Book) -> Iterator[Problem]:
    """Yield the cells that llms-full.txt, the English book as one text, does not hold."""
    try:
        text = (website.folder / "llms-full.txt").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        yield website.problem("llms-full.txt", None, f"cannot be read: {error}")
        return
    for notebook in book.notebooks():
        for cell in notebook.code_cells:
            for what, content in (("code", cell.source), ("output", cell.stdout)):
                if content not in text:
                    yield website.problem(
                        "llms-full.txt", None, f"does not hold the {what} of {cell.id}, {notebook.name}"
                    )
