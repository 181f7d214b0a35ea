"""The book for language models: llms.txt, a list of its pages, and llms-full.txt, the English text as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..lint.markdown import HOLE, Block, parse
from ..notebook import Cell, Chapter
from ..plan import load_plan
from ..problems import read_text
from . import escape
from .chapter import answered, title_of
from .links import Links, Site
from .targets import chapter_page
from .words import LANGUAGES, Language, chapter_label, planned_title, word

FULL = "llms-full.txt"
LINK = re.compile(r"(?<!\\)\[(?P<words>(?:[^\[\]\\]|\\.)*)\]\((?P<target>[^()\s]*)\)")


def llms_txt(site: Site) -> str:
    """Return the list: the title, a summary, and for each part its chapters with their questions."""
    lines = [f"# {word('book', 'en')}: {word('subtitle', 'en')}", "", f"> {word('welcome', 'en')}"]
    lines += ["", word("whole-text", "en", file=f"/{FULL}")]
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
            yield f"## {planned_title(part, language)}"
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
    """Return the English text as Markdown: each chapter followed by its solutions, then the documents of the book."""
    texts = [f"# {word('book', 'en')}: {word('subtitle', 'en')}", word("welcome", "en")]
    for chapter in site.chapters:
        solved = site.editions.solutions(chapter.key, "en")
        for notebook in (chapter, *([solved.notebook] if solved else [])):
            text = FullText(Links(site, "en", notebook.name), notebook.module)
            texts += [text.cell(cell) for cell in notebook.cells]
    for file in site.documents:
        texts.append(FullText(Links(site, "en", file)).prose(read_text(site.root / file, site.root)).strip("\n"))
    return "\n\n".join(filter(None, texts)) + "\n"


@dataclass
class FullText:
    """Writes cells of one notebook, or one document, for llms-full.txt; `module` is where its saved cells go."""

    links: Links
    module: str = ""

    def cell(self, cell: Cell) -> str:
        """Return a cell: prose, or code after a line on what it needs, and what it printed."""
        if not cell.is_code:
            return self.prose(cell.source) if cell.kind == "markdown" else ""
        parts = [escape.fence(cell.source, "python", f"agentrl.{self.module}" if cell.is_saved else "")]
        if cell.output_class != "exact":
            parts.insert(0, word(f"needs-{cell.output_class}", "en", labs=word("labs", "en")))
        parts += [escape.fence(cell.stdout, "text", word("output", "en"))] if cell.stdout else []
        return "\n\n".join(parts)

    def prose(self, source: str) -> str:
        """Return prose in which links lead to pages of the site and a figure is the text that describes it."""
        lines = source.split("\n")
        for block in parse(source):
            start, end = block.line - 1, block.line + block.raw.count("\n")
            images = block.of("image")
            if len(images) == 1 and block.text.strip() == HOLE:
                lines[start:end] = [f"(Figure: {images[0].text.strip()})", *[""] * (end - start - 1)]
            elif block.of("link"):
                lines[start:end] = self._linked(block, "\n".join(lines[start:end])).split("\n")
        return "\n".join(lines)

    def _linked(self, block: Block, text: str) -> str:
        targets = {piece.target for piece in block.of("link")}

        def written(match: re.Match[str]) -> str:
            if match["target"] not in targets:
                return match[0]
            there = self.links.page_of(match["target"])
            return f"[{match['words']}]({there})" if there else match["words"]

        return LINK.sub(written, text)
