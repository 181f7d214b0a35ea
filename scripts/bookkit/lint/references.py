"""References (L5xx): links, cross-references and mathematics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from ..problems import Problem, read_text
from .context import Context, Mark, Page, Placed, key_of
from .markdown import Block, Piece, anchor, parse

NUMBER = r"(?:\d{1,2}|[A-Z])\.\d+"
CHAPTER = r"(?:\d{1,2}|[A-Z])(?![\w.]*\w)"
ITEMS = {"chapter": CHAPTER, "equation": rf"\({NUMBER}\)"}
# The names that one number follows, and those that a list of numbers follows ("Sections 1.2 and 1.3").
NAMES = {
    "section": (r"(?:§\s*|\b[Ss]ection\s+)", r"(?:§§\s*|\b[Ss]ections\s+)"),
    "figure": (r"\b[Ff]ig(?:ure|\.)\s+", r"\b[Ff]ig(?:ures|s\.)\s+"),
    "table": (r"\b[Tt]able\s+", r"\b[Tt]ables\s+"),
    "exercise": (r"\b[Ee]xercise\s+", r"\b[Ee]xercises\s+"),
    "equation": (r"\b[Ee]q(?:uation|\.)\s+", r"\b[Ee]q(?:uations|s\.)\s+"),
    "chapter": (r"\b(?:[Cc]hapter|[Cc]h\.|[Aa]ppendix)\s+", r"\b(?:[Cc]hapters|[Aa]ppendices)\s+"),
}


def _patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    for kind, (one, many) in NAMES.items():
        item = ITEMS.get(kind, NUMBER)
        more = rf"(?:(?:,?\s+(?:and|or|to)\s+|,\s*|\s*[–-]\s*)§?{item})*"
        yield kind, re.compile(rf"{one}(?P<list>{item})|{many}(?P<many>{item}{more})")


PATTERNS = tuple(_patterns())
CODES = {"section": "L504", "figure": "L505", "equation": "L506", "table": "L507", "exercise": "L508"}
BAD_COMMANDS = re.compile(r"\\(?:eqref|label|ref|cite|newcommand|def|require|mbox|hspace|vspace|intertext|nonumber)\b")
ENVIRONMENT = re.compile(r"\\(begin|end)\{([^}]*)\}")
WEB = ("http", "https")


def check(context: Context) -> Iterator[Problem]:
    """Yield every finding about links, cross-references and mathematics."""
    for page in context.chosen():
        yield from _numbering(page)
        yield from _rows(page)
        for placed in page.placed:
            yield from _links(context, page, placed)
            yield from _mentions(context, page, placed)
            yield from _mathematics(page, placed)
    for name in ("README.md", "editorial-guide.md", "CHANGELOG.md"):
        yield from _document_links(context, name)


def _numbering(page: Page) -> Iterator[Problem]:
    if page.chapter.kind != "chapter":
        return
    for what, marks in (("equation", page.equations), ("table", page.captions["Table"])):
        for count, mark in enumerate(marks, start=1):
            if mark.number != f"{page.prefix}.{count}":
                message = f"{what} {mark.number} stands where {page.prefix}.{count} is due"
                yield page.problem("L509", mark.cell, mark.line, message)


def _rows(page: Page) -> Iterator[Problem]:
    """Yield the table rows that have more or fewer cells than their header: what stands in excess is not shown."""
    header = 0
    for placed in page.placed:
        block = placed.block
        if block.kind == "cell" and block.column == 0:
            count = len(re.findall(r"(?<!\\)\|", block.raw.strip().strip("|"))) + 1
            header = count if block.row == 0 else header
            if count != header and _bare_bar(block) is None:
                message = f"a row of {count} cells under a header of {header}; a | inside a cell is written \\|"
                yield page.problem("L515", placed.cell, block.line, message)


def mentions(text: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield each cross-reference in a text: its kind, its number, and where the number starts and ends."""
    for kind, pattern in PATTERNS:
        for match in pattern.finditer(text):
            group = "list" if match["list"] else "many"
            for part in re.finditer(CHAPTER if kind == "chapter" else NUMBER, match[group]):
                start = match.start(group) + part.start()
                yield kind, part[0], start, start + len(part[0])


def _mentions(context: Context, page: Page, placed: Placed) -> Iterator[Problem]:
    if placed.block.kind in ("fence", "math", "html"):
        return
    for kind, number, start, _ in mentions(placed.block.text):
        fault = _unresolved(context, page, kind, number)
        if fault:
            yield page.problem(fault[0], placed.cell, placed.line_at(start), fault[1])
    for image in placed.block.of("image"):
        for kind, number, _, _ in mentions(image.text):
            fault = _unresolved(context, page, kind, number)
            if fault:
                yield page.problem(fault[0], placed.cell, placed.line_at(image.at), f"alternative text: {fault[1]}")


def _unresolved(context: Context, page: Page, kind: str, number: str) -> tuple[str, str] | None:
    prefix = number.split(".")[0]
    if key_of(prefix) not in context.plan:
        return "L503", f"{kind} {number}: the plan (scripts/bookkit/plan.toml) has no chapter {prefix}"
    target = context.by_prefix(prefix)
    if kind == "chapter" or target is None:
        return None  # a chapter that is planned and not yet written resolves
    marks: dict[str, list[Mark]] = {
        "section": target.sections,
        "figure": target.captions["Figure"],
        "table": target.captions["Table"],
        "equation": target.equations,
        "exercise": target.exercises,
    }
    if any(mark.number == number for mark in marks[kind]):
        return None
    return CODES[kind], f"{target.chapter.name} has no {kind} {number}"


def _links(context: Context, page: Page, placed: Placed) -> Iterator[Problem]:
    for link in placed.block.of("link"):
        line = placed.line_at(link.at)
        if urlsplit(link.target).scheme in WEB:
            if placed.section != "Sources":
                message = f"web link {link.target} in the text: cite a source, or put it under Sources"
                yield page.problem("L514", placed.cell, line, message)
            continue
        fault = _broken(context, page, link)
        if fault:
            yield page.problem(fault[0], placed.cell, line, fault[1])


def _broken(context: Context, page: Page, link: Piece) -> tuple[str, str] | None:
    parts = urlsplit(link.target)
    if parts.scheme == "mailto":
        return None
    folder = page.chapter.path.parent
    target = (folder / unquote(parts.path)).resolve() if parts.path else page.chapter.path.resolve()
    if not target.exists():
        return "L501", f"link {link.target!r}: no such file"
    if not target.is_relative_to(context.root.resolve()):
        return "L501", f"link {link.target!r} leaves the book"
    if parts.fragment:
        headings = _anchors(context, target)
        if headings is not None and unquote(parts.fragment) not in headings:
            return "L502", f"link {link.target!r}: no such heading (JupyterLab writes hyphens for spaces)"
    return None


def _anchors(context: Context, target: object) -> set[str] | None:
    for page in context.pages.values():
        if page.chapter.path.resolve() == target:
            return {anchor(p.block.prose) for p in page.placed if p.block.kind == "heading"}
    return None


def _document_links(context: Context, name: str) -> Iterator[Problem]:
    path = context.root / name
    if not path.is_file() or not context.whole:
        return
    for block in parse(read_text(path, context.root)):
        for piece in [*block.of("link"), *block.of("image")]:
            parts = urlsplit(piece.target)
            if parts.scheme or not parts.path:
                continue
            if not (context.root / unquote(parts.path)).exists():
                line = block.line_at(piece.at)
                yield Problem(name, None, line, f"link {piece.target!r}: no such file", code="L501", file_line=line)


def _mathematics(page: Page, placed: Placed) -> Iterator[Problem]:
    block = placed.block
    table = _bare_bar(block)
    if table:
        if block.column == 0:
            yield page.problem("L512", placed.cell, block.line, f"write \\mid, \\vert or \\Vert for | in {table!r}")
    elif block.dollars:
        line = placed.line_at(block.dollars[0])
        message = "a dollar sign that opens or closes nothing; write \\$ for the currency"
        yield page.problem("L510", placed.cell, line, message)
    for piece in block.of("math"):
        line = placed.line_at(piece.at)
        for code, offset, message in _math_faults(piece.text):
            yield page.problem(code, placed.cell, line + piece.text.count("\n", 0, offset), message)


def _math_faults(math: str) -> Iterator[tuple[str, int, str]]:
    depth = 0
    for match in re.finditer(r"\\.|[{}]", math, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth < 0:
            yield "L510", match.start(), f"a brace closes nothing in {_short(math)}"
            break
    if depth > 0:
        yield "L510", 0, f"a brace stays open in {_short(math)}"
    for match in BAD_COMMANDS.finditer(math):
        yield "L511", match.start(), f"{match[0]} is not set by both KaTeX and MathJax here"
    stack: list[str] = []
    for match in ENVIRONMENT.finditer(math):
        if match[1] == "begin":
            stack.append(match[2])
        elif not stack or stack.pop() != match[2]:
            yield "L513", match.start(), f"\\end{{{match[2]}}} closes nothing that is open"
            return
    if stack:
        yield "L513", 0, f"\\begin{{{stack[-1]}}} is never closed"


def _short(math: str) -> str:
    text = " ".join(math.split())
    return repr(text if len(text) <= 60 else text[:57] + "…")


def _bare_bar(block: Block) -> str | None:
    """Return the mathematics of a table row that a bare bar cuts in two, or None.

    Nor may it be an escaped one: JupyterLab reads \\| as a double bar, and other readers of Markdown as a single one.
    """
    if block.kind != "cell":
        return None
    start: int | None = None
    for match in re.finditer(r"\\.|`[^`]*`|\$\$?|\|", block.raw):
        if match[0].startswith("$"):
            start = match.end() if start is None else None
        elif match[0] in ("|", "\\|") and start is not None:
            end = block.raw.find("$", match.end())
            return block.raw[start:end] if end >= 0 else None
    return None
