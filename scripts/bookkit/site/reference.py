"""The pages of the last group: labs, editorial guide, the ledger of sources, changelog, from the book's own files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markdown_it.tree import SyntaxTreeNode

from ..problems import read_text
from ..sources import FILE as LEDGER
from . import escape
from .blocks import note
from .chapter import frontmatter
from .links import REFERENCE_FILES, Links, Site, source_id
from .mdx import Renderer
from .targets import HeadingIds, section_of
from .trees import nodes_of, plain
from .words import Language, chapter_label, short_number, word


@dataclass
class ReferencePage:
    """Writes one of the book's documents as a page; the first heading of the document is the page's title."""

    site: Site
    file: str
    language: Language

    def text(self) -> str:
        """Return the whole page."""
        name, path = REFERENCE_FILES[self.file], self.site.root / self.file
        links = Links(self.site, self.language, self.file)
        body = self._body(Renderer(links), nodes_of(read_text(path, self.site.root)))
        about = {"title": word(name, self.language), "description": word(f"about-{name}", self.language)}
        fields = {**about, "version": self.site.facts.version}
        if self.language != "en":
            fields["translated"] = "false"
            body = f"{note(word('untranslated-page', self.language))}\n\n{body}"
        footer = word("footer-page", self.language, version=self.site.facts.version, source=self.file)
        return "\n\n".join([frontmatter({**fields, "source": self.file}), body, f"---\n\n{footer}"]) + "\n"

    def _body(self, renderer: Renderer, nodes: Sequence[SyntaxTreeNode]) -> str:
        ids = HeadingIds()
        return "\n\n".join(filter(None, (self._block(renderer, node, ids) for node in nodes)))

    def _block(self, renderer: Renderer, node: SyntaxTreeNode, ids: HeadingIds) -> str:
        if node.type != "heading":
            return renderer.block(node)
        level, text = int(node.tag[1:]), plain(node).strip()
        if level == 1:
            return ""
        ident = source_id(text) if self.file == LEDGER and level == 2 else ids.of(text, level)
        written = escape.anchored(ident, renderer.heading(node))
        places = list(self._cited(renderer.links, text)) if ident.startswith("src-") else []
        line = word("cited", self.language, places=word("comma", self.language).join(places))
        return f"{written}\n\n{line}" if places else written

    def _cited(self, links: Links, key: str) -> Iterator[str]:
        """Yield links to the sections that cite a source; to a chapter where none of its numbered ones does."""
        cited = self.site.cited.get(key, set())
        for chapter in self.site.chapters:
            idents = {ident for of, ident in cited if of == chapter.key}
            found = sorted((int(n), f"§{short_number(chapter.key)}.{n}", i) for i in idents if (n := section_of(i)))
            whole = [(0, escape.unbroken(chapter_label(chapter.key, self.language)), "")] if idents else []
            for _, name, ident in found or whole:
                yield f"[{name}]({links.chapter(chapter.key, ident)})"
