"""The book for language models: llms.txt, a list of its pages, and llms-full.txt, the English text as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from ..lint.markdown import HOLE, parse
from ..notebook import Cell, Chapter
from ..plan import load_plan
from . import escape
from .chapter import answered, title_of
from .links import Site
from .navigation import chapter_page
from .words import LANGUAGES, Language, chapter_label, word


def llms_txt(site: Site) -> str:
    """Return the list: the title, a summary, and for each part its chapters with their questions."""
    lines = [f"# {word('book', 'en')}: {word('subtitle', 'en')}", "", f"> {word('welcome', 'en')}"]
    for language in LANGUAGES:
        lines += ["", *_language(site, language)]
    return "\n".join(lines) + "\n"


def _language(site: Site, language: Language) -> Iterator[str]:
    by_key = {chapter.key: chapter for chapter in site.chapters}
    yield f"## {word('start', language)}"
    yield ""
    yield f"- [{word('book', language)}](/{language}/index): {word('subtitle', language)}"
    yield ""
    for part in load_plan():
        written = [by_key[planned.key] for planned in part.chapters if planned.key in by_key]
        if written:
            yield f"## {part.title if language == 'en' else part.zh}"
            yield ""
            yield from (_line(site, chapter, language) for chapter in written)
            yield ""
    yield f"## {word('reference', language)}"
    yield ""
    for name in site.documents.values():
        yield f"- [{word(name, language)}](/{language}/reference/{name}): {word(f'about-{name}', language)}"


def _line(site: Site, chapter: Chapter, language: Language) -> str:
    shown = site.editions.chapter(chapter.key, language)
    title = f"{chapter_label(chapter.key, language)} · {title_of(shown)}"
    return f"- [{title}](/{chapter_page(chapter, language)}): {answered(shown)}"


def llms_full_txt(site: Site) -> str:
    """Return the English chapters, each followed by its solutions, as one Markdown text."""
    texts = [f"# {word('book', 'en')}: {word('subtitle', 'en')}", word("welcome", "en")]
    for chapter in site.chapters:
        texts += map(_cell, chapter.cells)
        solutions = site.editions.solutions(chapter.key, "en")
        texts += map(_cell, solutions.notebook.cells) if solutions else ()
    return "\n\n".join(filter(None, texts)) + "\n"


def _cell(cell: Cell) -> str:
    if not cell.is_code:
        return _without_images(cell.source) if cell.kind == "markdown" else ""
    parts = [escape.fence(cell.source, "python")]
    parts += [escape.fence(cell.stdout, "text", word("output", "en"))] if cell.stdout else []
    return "\n\n".join(parts)


def _without_images(source: str) -> str:
    """Return prose in which a figure is the text that describes it."""
    lines = source.split("\n")
    for block in parse(source):
        images = block.of("image")
        if len(images) == 1 and block.text.strip() == HOLE:
            height = block.raw.count("\n") + 1
            lines[block.line - 1 : block.line - 1 + height] = [f"(Figure: {images[0].text.strip()})"] + [""] * (
                height - 1
            )
    return "\n".join(lines)
