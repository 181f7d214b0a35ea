"""Markdown cells as blocks: prose, code, mathematics, images and links told apart by the parser's tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

HOLE = "\ufffc"  # stands in a block's text for code, mathematics and HTML
BlockKind = Literal["heading", "paragraph", "cell", "fence", "math", "html"]
PieceKind = Literal["code", "math", "image", "link", "html"]


@dataclass(frozen=True)
class Piece:
    """Something inside a block that is not plain text; `at` is its offset in the block's text."""

    kind: PieceKind
    text: str
    at: int
    target: str = ""


@dataclass
class Block:
    """One block of a markdown cell. `line` counts from 1 in the cell; `text` has newlines where the source has."""

    kind: BlockKind
    line: int
    text: str = ""
    pieces: list[Piece] = field(default_factory=list)
    level: int = 0
    strong: str = ""
    bold: list[tuple[int, int]] = field(default_factory=list)  # where in the text what is strong begins and ends
    ends: list[int] = field(default_factory=list)  # offsets where emphasis, strong or not, ends
    info: str = ""
    group: int | None = None  # which list or table of the cell it belongs to
    row: int | None = None
    column: int = 0
    header: str = ""  # of its table column
    raw: str = ""
    dollars: list[int] = field(default_factory=list)  # offsets of dollar signs that open or close nothing

    def line_at(self, offset: int) -> int:
        """Return the line in the cell at this offset of the text."""
        return self.line + self.text.count("\n", 0, offset)

    def of(self, kind: PieceKind) -> list[Piece]:
        """Return the pieces of this kind."""
        return [piece for piece in self.pieces if piece.kind == kind]

    @property
    def prose(self) -> str:
        """The text with nothing in place of code and mathematics."""
        return self.text.replace(HOLE, " ")


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table").disable("text_join")
    return parser.use(dollarmath_plugin, allow_labels=False, allow_space=True, allow_digits=True, double_inline=True)


def tokens(source: str) -> list[Token]:
    """Return the parser's tokens of a markdown text."""
    return _parser().parse(source)


def parse(source: str) -> list[Block]:
    """Return the blocks of a markdown text in order."""
    return list(_Blocks(source).walk())


def shape(source: str) -> list[tuple[str, int]]:
    """Return what a markdown text is made of, headings, lists, tables and so on, each with its line from 1."""
    found: list[tuple[str, int]] = []
    line = 1
    for token in tokens(source):
        line = token.map[0] + 1 if token.map else line
        if token.nesting >= 0 and token.type != "inline":
            name = token.type.removesuffix("_open").replace("_", " ")
            name += {"heading": f" of level {token.tag[1:]}", "list item": f" {token.info}{token.markup}"}.get(name, "")
            found.append((name, line))
        elif token.nesting < 0 and token.type in ("bullet_list_close", "ordered_list_close", "blockquote_close"):
            found.append((f"end of a {token.type.removesuffix('_close').replace('_', ' ')}", line))
    return found


@dataclass
class _Table:
    headers: list[str] = field(default_factory=list)
    row: int = -1
    column: int = -1
    in_head: bool = False


class _Blocks:
    """Walks the parser's tokens once."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines = source.split("\n")
        self.groups = 0
        self.depth = 0
        self.table: _Table | None = None

    def walk(self) -> Iterator[Block]:
        """Yield the blocks."""
        level = 0
        for token in tokens(self.source):
            self._enter(token)
            if token.type == "heading_open":
                level = int(token.tag[1:])
            elif token.type == "heading_close":
                level = 0
            elif token.type == "inline":
                yield self._inline(token, level)
            elif token.type in ("fence", "code_block", "math_block", "html_block"):
                yield self._leaf(token)

    def _enter(self, token: Token) -> None:
        if token.type in ("bullet_list_open", "ordered_list_open"):
            self.groups += self.depth == 0
            self.depth += 1
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            self.depth -= 1
        elif token.type == "table_open":
            self.groups += 1
            self.table = _Table()
        elif token.type == "table_close":
            self.table = None
        elif self.table is not None:
            if token.type in ("thead_open", "thead_close"):
                self.table.in_head = token.type == "thead_open"
            elif token.type == "tr_open":
                self.table.row, self.table.column = self.table.row + 1, -1
            elif token.type in ("th_open", "td_open"):
                self.table.column += 1

    def _place(self, token: Token) -> int:
        return (token.map[0] if token.map else 0) + 1

    def _leaf(self, token: Token) -> Block:
        kind: dict[str, BlockKind] = {"math_block": "math", "html_block": "html"}
        block = Block(kind.get(token.type, "fence"), self._place(token), info=token.info.strip(), raw=token.content)
        block.group = self.groups if self.depth else None
        if block.kind == "math":
            block.text = HOLE
            block.pieces.append(Piece("math", token.content, 0))
        return block

    def _inline(self, token: Token, level: int) -> Block:
        block = Block("heading" if level else "paragraph", self._place(token), level=level, raw=token.content)
        if self.depth:
            block.group = self.groups
        _fill(block, token)
        if self.table is not None:
            table = self.table
            block.kind, block.group, block.row, block.column = "cell", self.groups, table.row, table.column
            block.raw = self.lines[block.line - 1]
            if table.in_head:
                table.headers.append(block.prose)
            elif table.column < len(table.headers):
                block.header = table.headers[table.column]
        return block


def _fill(block: Block, token: Token) -> None:
    parts: list[str] = []
    size, strong, link, cursor = 0, -1, None, 0
    opened: list[int] = []
    for index, child in enumerate(token.children or []):
        text, piece, lines = _child(child, token.content, cursor)
        cursor = _advance(child, token.content, cursor)
        if child.type == "strong_open":
            opened.append(size)
        elif child.type == "strong_close":
            block.bold.append((opened.pop(), size))
        if child.type in ("strong_close", "em_close"):
            block.ends.append(size)
        if child.type == "strong_open" and size == 0:
            strong = index
        elif child.type == "strong_close" and strong >= 0 and not block.strong:
            block.strong = "".join(parts).strip()
        elif child.type == "link_open":
            link = (size, str(child.attrGet("href") or ""))
        elif child.type == "link_close" and link is not None:
            block.pieces.append(Piece("link", "".join(parts)[link[0] :], link[0], link[1]))
        if piece is not None:
            block.pieces.append(Piece(piece, child.content, size, str(child.attrGet("src") or "")))
        if child.type == "text":
            block.dollars += [size + match.start() for match in re.finditer(r"\$", text)]
        parts.append(text + "\n" * lines)
        size += len(parts[-1])
    block.text = "".join(parts)


def _child(child: Token, raw: str, cursor: int) -> tuple[str, PieceKind | None, int]:
    """Return what a child adds to the text, what piece it is, and how many newlines of the source it hides."""
    if child.type in ("text", "text_special"):
        return child.content, None, 0
    if child.type in ("softbreak", "hardbreak"):
        return "\n", None, 0
    if child.type == "code_inline":
        start = raw.find(child.markup, cursor)
        end = raw.find(child.markup, start + len(child.markup))
        return HOLE, "code", raw.count("\n", start, max(start, end))
    if child.type in ("math_inline", "math_inline_double"):
        return HOLE, "math", child.content.count("\n")
    if child.type == "image":
        return HOLE, "image", child.content.count("\n")
    return (HOLE, "html", child.content.count("\n")) if child.type == "html_inline" else ("", None, 0)


def _advance(child: Token, raw: str, cursor: int) -> int:
    if child.type == "code_inline":
        start = raw.find(child.markup, cursor)
        end = raw.find(child.markup, start + len(child.markup))
        return end + len(child.markup) if start >= 0 and end >= 0 else cursor
    if child.type == "text" and child.content:
        at = raw.find(child.content, cursor)
        return at + len(child.content) if at >= 0 else cursor
    return cursor


def words(blocks: Sequence[Block]) -> int:
    """Return how many words of prose the blocks hold; code, mathematics and web addresses do not count."""
    texts = (block.prose for block in blocks if block.kind in ("heading", "paragraph", "cell"))
    return sum(len(re.findall(r"[^\W_][\w’'-]*", text)) for text in texts)


def anchor(heading: str) -> str:
    """Return the heading's id as JupyterLab makes it: its text with hyphens for spaces."""
    return heading.strip().replace(" ", "-")
