"""Markdown's tokens as trees, and what can be asked of one: its words, its only image, the bold words at its start."""

from __future__ import annotations

from functools import lru_cache

from markdown_it.tree import SyntaxTreeNode

from ..lint.markdown import tokens

TEXT = ("text", "text_special", "softbreak")


@lru_cache(maxsize=10_000)  # both languages show the same text where there is no translation
def nodes_of(source: str) -> tuple[SyntaxTreeNode, ...]:
    """Return the blocks of a markdown text as trees."""
    return tuple(SyntaxTreeNode(tokens(source)).children)


def plain(node: SyntaxTreeNode) -> str:
    """Return the words of a node, code included, markup and mathematics left out."""
    if node.type in ("text", "text_special", "code_inline"):
        return node.content
    if node.type in ("softbreak", "hardbreak"):
        return " "
    return "".join(plain(child) for child in node.children)


def inline_of(node: SyntaxTreeNode) -> list[SyntaxTreeNode]:
    """Return what a paragraph or a heading consists of, without the parser's empty texts."""
    inline = node.children[0].children if node.children else []
    return [child for child in inline if child.type not in TEXT or child.type == "softbreak" or child.content]


def sole_image(node: SyntaxTreeNode) -> SyntaxTreeNode | None:
    """Return the image that is all of a paragraph, or None."""
    inline = inline_of(node) if node.type == "paragraph" else []
    return inline[0] if len(inline) == 1 and inline[0].type == "image" else None


def strong_start(node: SyntaxTreeNode) -> str:
    """Return the bold words that a paragraph starts with, or ""."""
    inline = inline_of(node) if node.type == "paragraph" else []
    return plain(inline[0]).strip() if inline and inline[0].type == "strong" else ""
