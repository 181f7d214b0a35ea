"""Markdown's tokens written as MDX: one method a kind of token, everything a reader sees escaped on the way."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markdown_it.tree import SyntaxTreeNode

from ..lint.context import TAG
from . import escape
from .crossrefs import Span, spans
from .links import Links
from .trees import TEXT, inline_of, plain, sole_image

ALIGNMENT = {"text-align:left": ":--", "text-align:center": ":-:", "text-align:right": "--:", "": "---"}
OBJECT = "\ufffc"  # stands for mathematics between words
KEPT_HTML = re.compile(r"<(?:br\s*/?|/?su[bp])>", re.IGNORECASE)


@dataclass
class Renderer:
    """Writes the blocks of one page; `links` says where everything leads and hears of what is wrong."""

    links: Links

    def blocks(self, nodes: Iterable[SyntaxTreeNode]) -> str:
        """Return blocks with a blank line between them."""
        return "\n\n".join(filter(None, (self.block(node) for node in nodes)))

    def block(self, node: SyntaxTreeNode) -> str:
        """Return one block."""
        method: Callable[[SyntaxTreeNode], str] | None = getattr(self, f"_{node.type}", None)
        if method is None:
            self.links.fault(f"a block of the kind {node.type!r} has no form on the site")
            return ""
        return method(node)

    def heading(self, node: SyntaxTreeNode) -> str:
        """Return a heading without its anchor; the marks at its end are words."""
        inner = self.inline(inline_of(node), flat=True, link=False)
        return f"{node.markup if node.markup.startswith('#') else '##'} {re.sub(r'(#+)$', self._escaped_marks, inner)}"

    @staticmethod
    def _escaped_marks(match: re.Match[str]) -> str:
        return "".join("\\" + mark for mark in match[0])

    _heading = heading

    def _paragraph(self, node: SyntaxTreeNode) -> str:
        image = sole_image(node)
        if image is not None:
            return self.figure(image)
        return self.paragraph(inline_of(node))

    def paragraph(self, nodes: Sequence[SyntaxTreeNode]) -> str:
        """Return the inline content of a paragraph as one."""
        return escape.lines(self.inline(nodes))

    def figure(self, image: SyntaxTreeNode) -> str:
        """Return a frame with the light and the dark drawing."""
        name = self.links.figure(str(image.attrs.get("src", "")))
        alt = escape.attribute(plain(image))
        shown = [("block dark:hidden", "light"), ("hidden dark:block", "dark")]
        images = [
            f'<img className="{look}" src="/images/figures/{name}-{tone}.svg" alt={alt} />' for look, tone in shown
        ]
        return "\n".join(["<Frame>", *images, "</Frame>"])

    def _math_block(self, node: SyntaxTreeNode) -> str:
        content = node.content.strip("\n")
        fence = "$$" if "$$" not in content else "$$$"
        body = f"{fence}\n{content}\n{fence}"
        numbers = [match["number"].replace(".", "-") for match in TAG.finditer(content)]
        if not numbers:
            return body
        others = [escape.anchor_only(f"eq-{number}") for number in numbers[1:]]
        return "\n\n".join([*others, escape.anchored(f"eq-{numbers[0]}", body)])

    def _fence(self, node: SyntaxTreeNode) -> str:
        info = node.info.strip()
        return escape.fence(node.content, info.replace("`", ""))

    def _code_block(self, node: SyntaxTreeNode) -> str:
        return escape.fence(node.content)

    def _hr(self, node: SyntaxTreeNode) -> str:
        return "---"

    def _html_block(self, node: SyntaxTreeNode) -> str:
        return self.html(node.content)

    def html(self, content: str) -> str:
        """Return HTML that the site keeps: line breaks, sub and superscripts. A comment is left out."""
        bare = re.sub(r"<!--.*?-->", "", content, flags=re.DOTALL).strip()
        if bare and not KEPT_HTML.fullmatch(bare):
            self.links.fault(f"HTML has no form on the site: {bare[:60]!r}")
        return re.sub(r"<br\s*/?>", "<br />", bare.lower()) if KEPT_HTML.fullmatch(bare) else ""

    def _blockquote(self, node: SyntaxTreeNode) -> str:
        return "\n".join(f"> {line}" if line else ">" for line in self.blocks(node.children).split("\n"))

    def _bullet_list(self, node: SyntaxTreeNode) -> str:
        return self._items(node, [f"{node.markup or '-'} "] * len(node.children))

    def _ordered_list(self, node: SyntaxTreeNode) -> str:
        first = int(node.attrs.get("start", 1))
        mark = node.markup or "."
        return self._items(node, [f"{first + at}{mark} " for at in range(len(node.children))])

    def _items(self, node: SyntaxTreeNode, marks: Sequence[str]) -> str:
        tight = all(child.hidden for item in node.children for child in item.children if child.type == "paragraph")
        items = []
        for mark, item in zip(marks, node.children, strict=True):
            bodies = [body for body in map(self.block, item.children) if body]
            loose = not tight or any("\n\n" in body for body in bodies)
            body = ("\n\n" if loose else "\n").join(bodies)
            indented = "\n".join(" " * len(mark) + line if line else "" for line in body.split("\n"))
            items.append((mark + indented[len(mark) :]).rstrip(" "))
        return ("\n" if tight else "\n\n").join(items)

    def _table(self, node: SyntaxTreeNode) -> str:
        rows = [row for part in node.children for row in part.children]
        head = rows[0].children
        rule = [ALIGNMENT[str(cell.attrs.get("style", ""))] for cell in head]
        written = [[self._cell(cell) for cell in row.children] for row in rows]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (written[0], rule, *written[1:]))

    def _cell(self, cell: SyntaxTreeNode) -> str:
        return self.inline(inline_of(cell), table=True, flat=True)

    def inline(
        self, nodes: Sequence[SyntaxTreeNode], table: bool = False, flat: bool = False, link: bool = True
    ) -> str:
        """Return inline content; `table` keeps bars out, `flat` line breaks, `link` says whether text may be linked."""
        parts: list[tuple[str, str]] = []  # a mark of emphasis, and what stands within
        run: list[str] = []
        for index, node in enumerate(nodes):
            if node.type in TEXT:
                run.append("\n" if node.type == "softbreak" else node.content)
                if index + 1 < len(nodes) and nodes[index + 1].type in TEXT:
                    continue
                value = self._spaced("".join(run), nodes[: index + 1 - len(run)], nodes[index + 1 :])
                parts.append(("", self._text(value, flat, link)))
                run.clear()
            elif node.type in ("strong", "em"):
                inner = self.inline(node.children, table, flat, link and not self._names_itself(index, node))
                parts.append(("**" if node.type == "strong" else "*", inner))
            else:
                parts.append(("", self._leaf(node, table, flat, link)))
        return _joined(parts)

    def _spaced(self, value: str, before: Sequence[SyntaxTreeNode], after: Sequence[SyntaxTreeNode]) -> str:
        """Return a text, in Chinese without blanks beside its punctuation, whatever stands around it."""
        if not self.links.is_chinese:
            return value
        first, last = (plain(nodes[at]) or OBJECT if nodes else "" for nodes, at in ((before, -1), (after, 0)))
        return escape.chinese(value, first[-1:], last[:1])

    @staticmethod
    def _names_itself(index: int, node: SyntaxTreeNode) -> bool:
        """Whether these are the bold words at the start of a caption or an exercise: no link to where one is."""
        return index == 0 and node.type == "strong"

    def _leaf(self, node: SyntaxTreeNode, table: bool, flat: bool, link: bool) -> str:
        if node.type in ("code_inline", "math_inline", "math_inline_double"):
            return self._verbatim(node, table, link)
        if node.type == "link":
            return self._link(node, table, flat)
        if node.type == "hardbreak":
            return "<br />" if flat else "<br />\n"
        if node.type == "html_inline":
            return self.html(node.content)
        self.links.fault(f"{node.type} has no form within a line; an image stands in a paragraph of its own")
        return ""

    def _verbatim(self, node: SyntaxTreeNode, table: bool, link: bool) -> str:
        is_code, content = node.type == "code_inline", node.content
        try:
            written = (escape.code if is_code else escape.inline_math)(content, table)
        except ValueError as error:
            self.links.fault(str(error))
            return ""
        link = link and is_code
        target = (self.links.library(content) or self.links.document(content)) if link else None
        return f"[{written}]({target})" if target else written

    def _link(self, node: SyntaxTreeNode, table: bool, flat: bool) -> str:
        inner = self.inline(node.children, table, flat, link=False)
        if self._is_reference(only := only_text(node)):
            inner = escape.unbroken(only)
        target = self.links.page_of(str(node.attrs.get("href", "")))
        return f"[{inner}]({escape.href(target)})" if target else inner

    def _is_reference(self, words: str) -> bool:
        """Whether words are a reference and nothing else, as in `[Chapter 4](04-….ipynb)`."""
        return [(span.start, span.end) for span in spans(words, self.links.language)] == [(0, len(words))]

    def _text(self, value: str, flat: bool, link: bool) -> str:
        parts, at = [], 0
        for span in spans(value, self.links.language) if link else []:
            parts += [self._words(value[at : span.start], flat), self._span(span, value[span.start : span.end])]
            at = span.end
        return "".join([*parts, self._words(value[at:], flat)])

    @staticmethod
    def _words(value: str, flat: bool) -> str:
        return (" " if flat else "\n").join(map(escape.text, value.split("\n")))

    def _span(self, span: Span, shown: str) -> str:
        if span.kind == "citation":
            return self.links.citation(span.target)
        if span.kind == "web":
            return f"[{escape.text(shown)}]({escape.href(span.target)})"
        target = self.links.reference(span.kind, span.target, shown)
        words = escape.unbroken(shown)
        return f"[{words}]({target})" if target else words


def only_text(node: SyntaxTreeNode) -> str:
    """Return the text of a node that holds text alone, else nothing."""
    return node.children[0].content if [child.type for child in node.children] == ["text"] else ""


def strong(inner: str) -> str:
    """Return rendered words in bold, "" for none."""
    return _joined([("**", inner)]) if inner else ""


def _joined(parts: Sequence[tuple[str, str]]) -> str:
    """Return parts in a row, each emphasis by its marks or, where marks would not be read as such, as an element."""
    written: list[str] = []
    parts = [part for part in parts if part[1]]
    for index, (mark, inner) in enumerate(parts):
        if not mark:
            blank = written and written[-1].endswith("$") and inner.startswith("$")
            written.append(f" {inner}" if blank else inner)
            continue
        before = written[-1][-1:] if written else ""
        after = parts[index + 1][1][:1] if index + 1 < len(parts) and not parts[index + 1][0] else ""
        edge = index + 1 < len(parts) and bool(parts[index + 1][0])
        if edge or not _flanks(before, inner, after):
            name = "strong" if mark == "**" else "em"
            written.append(f"<{name}>{inner}</{name}>")
        else:
            written.append(f"{mark}{inner}{mark}")
    return "".join(written)


def _flanks(before: str, inner: str, after: str) -> bool:
    """Return whether marks around `inner` open and close emphasis, whatever stands around them."""
    if "*" in (before, after, inner[0], inner[-1]) or inner != inner.strip() or "\\" in (before, inner[-1]):
        return False
    opens = not _maybe_mark(inner[0]) or _surely_apart(before)
    return opens and (not _maybe_mark(inner[-1]) or _surely_apart(after))


def _maybe_mark(char: str) -> bool:
    return unicodedata.category(char)[0] in "PS"


def _surely_apart(char: str) -> bool:
    return not char or char.isspace() or unicodedata.category(char)[0] == "P"
