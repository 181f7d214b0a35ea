"""The pages of the last group: labs, editorial guide, the ledger of sources, changelog, from the book's own files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markdown_it.tree import SyntaxTreeNode

from ..problems import read_text
from ..sources import FILE as LEDGER
from . import escape
from .blocks import note
from .chapter import frontmatter
from .links import REFERENCE_FILES, Links, Site, source_id
from .mdx import Renderer
from .targets import HeadingIds
from .trees import nodes_of, plain
from .words import Language, word


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
        return escape.anchored(ident, renderer.heading(node))
