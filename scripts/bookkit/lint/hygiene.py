"""Hygiene (L1xx): what a notebook may hold, so that reading, running and diffing it never surprises."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from ..notebook import CELL_ID, KERNEL, OUTPUT_CLASSES, ROLES, Cell, as_text, dump, is_day, normalise
from ..problems import Problem
from .context import Context, Page

OUTPUT_LIMIT = 64 * 1024
TAGS: frozenset[str] = frozenset({"raises-exception"})
CELL_KEYS = {
    "chapter": frozenset({"output", "numbers"}),
    "solutions": frozenset({"output", "numbers", "role", "exercise"}),
}
BOOK_KEYS = {
    "chapter": frozenset({"chapter", "module", "title", "question", "kind", "recorded"}),
    "solutions": frozenset({"chapter", "title", "recorded"}),
}
TRANSLATION_KEYS = frozenset({"language"})
TRANSLATED_CELL_KEYS = frozenset({"source", "accepted", "removed", "english"})
MAGIC = re.compile(r"\s*(?:%{1,2}[a-zA-Z]|!)|.*[^=<>]=\s*[%!]|.*\w\?{1,2}\s*$|\s*\?{1,2}\w")
SETUP_MAGIC = re.compile(r"%%capture|%run \.\./[\w-]+\.ipynb")
MONTH = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
VOLATILE = (
    (re.compile(r"\x1b"), "an ANSI escape code"),
    (re.compile(r"\r"), "a carriage return"),
    (re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"), "a control character"),
    (re.compile(r"\b(?:at )?0x[0-9a-fA-F]{6,}"), "an object address"),
    (
        re.compile(r"(?<![\w/.])(?:/(?:tmp|home|root|Users|var|usr|opt|private|mnt)/[\w.-]|[A-Z]:\\\w)"),
        "an absolute path",
    ),
    (re.compile(r"(?<![\w/])~/[\w.-]"), "a path in the home folder"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\b\d\d:\d\d:\d\d\b"), "a time of day"),
    (re.compile(rf"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\w* (?:{MONTH})\w* +\d"), "a date"),
)
REPR = re.compile(r"\btensor\(|\barray\(\[|\bnp\.(?:float|int|bool|str)_?\d*\(|grad_fn=|\bParameter containing:")
NEGATIVE_ZERO = re.compile(r"(?<![\w.])-0(?:\.0+)?(?:e[+-]?\d+)?(?![\w.%])|(?<![\w.])-0(?:\.0+)?%")
GLOBAL_STATE = {
    "torch.manual_seed": "it seeds global state; pass a torch.Generator",
    "manual_seed": "it seeds global state; pass a torch.Generator",
    "torch.cuda.manual_seed": "it seeds global state; pass a torch.Generator",
    "torch.cuda.manual_seed_all": "it seeds global state; pass a torch.Generator",
    "torch.random.manual_seed": "it seeds global state; pass a torch.Generator",
    "np.random.seed": "it seeds global state; pass a generator",
    "numpy.random.seed": "it seeds global state; pass a generator",
    "random.seed": "it seeds global state; pass a generator",
    "torch.multinomial": "its stream has changed between releases; sample by inverse CDF on a float64 uniform",
    "torch.bernoulli": "its stream has changed between releases; compare a float64 uniform",
    "torch.dropout": "its stream has changed between releases, and the book's models use none",
    "F.dropout": "its stream has changed between releases, and the book's models use none",
    "torch.nn.functional.dropout": "its stream has changed between releases, and the book's models use none",
    "nn.Dropout": "its stream has changed between releases, and the book's models use none",
    "torch.nn.Dropout": "its stream has changed between releases, and the book's models use none",
}
UNSTABLE_METHODS = {
    "multinomial": "torch.multinomial",
    "bernoulli": "torch.bernoulli",
    "bernoulli_": "torch.bernoulli",
    "exponential_": "torch.multinomial",
}


def check(context: Context) -> Iterator[Problem]:
    """Yield every finding about the form of the notebooks."""
    for page in context.chosen():
        yield from _file(page)
        yield from _counts(page)
        for cell in page.chapter.cells:
            yield from _cell(page, cell)
            if cell.is_code:
                yield from _outputs(page, cell)
                yield from _code(page, cell)
    for page in context.translations:  # code and outputs are those of English: sync_translation.py --check
        yield from _file(page)
        for cell in page.chapter.cells:
            yield from _cell(page, cell)
    yield from _listed_cells(context)


def _file(page: Page) -> Iterator[Problem]:
    chapter = page.chapter
    disk = chapter.path.read_bytes().decode("utf-8")
    wanted = dump(normalise(chapter.raw))
    if disk != wanted:
        lines = zip(disk.split("\n"), wanted.split("\n"), strict=False)
        at = next((n for n, (a, b) in enumerate(lines, start=1) if a != b), 1)
        message = f"not in canonical form, first at line {at} of the file; `lint_book.py --fix` rewrites it"
        yield Problem(chapter.name, None, None, message, code="L101", file_line=at)
    metadata = chapter.raw.get("metadata", {})
    if metadata.get("kernelspec") != KERNEL:
        said = f"kernelspec is {metadata.get('kernelspec')}; the book's is {KERNEL}; `lint_book.py --fix` sets it"
        yield page.problem("L101", None, None, said)
    known = BOOK_KEYS[chapter.kind] | (TRANSLATION_KEYS if page.is_translation else frozenset())
    for key in sorted(chapter.metadata.keys() - known):
        yield page.problem("L117", None, None, f"notebook metadata agentrl.{key} is not known")
    kind = chapter.metadata.get("kind", "chapter")
    if kind not in ("chapter", "front"):
        yield page.problem("L117", None, None, f"notebook metadata agentrl.kind is {kind!r}; it is 'front' or absent")
    recorded = chapter.metadata.get("recorded")
    if any(cell.execution_count is not None for cell in chapter.code_cells) and not is_day(recorded):
        said = (
            f"notebook metadata agentrl.recorded is {recorded!r}; it is the day of the last run that changed an output"
        )
        yield page.problem("L117", None, None, f"{said}, as 2026-11-30; `check_chapters.py --update` writes it")


def _counts(page: Page) -> Iterator[Problem]:
    record = f"`check_chapters.py --update {page.chapter.label}` runs and records it"
    numbered = list(enumerate(page.chapter.code_cells, start=1))
    for _, cell in numbered:
        if cell.execution_count is None:
            yield page.problem("L103", cell, None, f"never run: its execution count is null; {record}")
    wrong = [(number, cell) for number, cell in numbered if cell.execution_count not in (None, number)]
    if wrong:  # one finding a notebook: the first says it all
        number, cell = wrong[0]
        more = f" (and {len(wrong) - 1} more)" if wrong[1:] else ""
        said = f"execution count is {cell.execution_count}, but this is code cell {number}{more}: not run top to bottom"
        yield page.problem("L104", cell, None, f"{said}; {record}")


def _cell(page: Page, cell: Cell) -> Iterator[Problem]:
    if not CELL_ID.fullmatch(cell.id):
        yield page.problem("L102", cell, None, f"cell id {cell.id!r} is not lower-case words joined by hyphens")
    if cell.kind == "raw" or not cell.source.strip():
        yield page.problem("L110", cell, None, f"an empty or raw cell ({cell.kind})")
    for key in sorted(cell.metadata.keys() - {"agentrl", "tags"}):
        yield page.problem("L111", cell, None, f"cell metadata {key!r} is not known; `lint_book.py --fix` drops it")
    for tag in cell.tags:
        if tag not in TAGS:
            yield page.problem("L111", cell, None, f"tag {tag!r} is not known")
    for key, message in _book_metadata(page, cell, cell.book):
        yield page.problem("L111", cell, None, f"cell metadata agentrl.{key} {message}")


def _book_metadata(page: Page, cell: Cell, book: dict[str, Any]) -> Iterator[tuple[str, str]]:
    known = CELL_KEYS[page.chapter.kind] | (TRANSLATED_CELL_KEYS if page.is_translation and not cell.is_code else set())
    for key in sorted(book.keys() - known):
        yield key, f"is not known in {page.chapter.kind}"
    if "output" in book and book["output"] not in OUTPUT_CLASSES:
        yield "output", f"is {book['output']!r}; it is one of {', '.join(OUTPUT_CLASSES)}"
    if "role" in book and book["role"] not in ROLES:
        yield "role", f"is {book['role']!r}; it is one of {', '.join(ROLES)}"
    if not cell.is_code:
        for key in sorted(book.keys() & {"output", "role", "exercise"}):
            yield key, "is for code cells"
    if cell.is_code and "numbers" in book:
        yield "numbers", "is for markdown cells"


def _outputs(page: Page, cell: Cell) -> Iterator[Problem]:
    for output in cell.outputs:
        kind, name = output.get("output_type"), output.get("name")
        if kind != "stream" or name != "stdout":
            data = output.get("data")
            types = ", ".join(sorted(data)) if isinstance(data, dict) else ""
            what = f"{kind} {name}" if kind == "stream" else f"{kind} ({types})"
            yield page.problem("L105", cell, None, f"recorded output is {what}; only text printed to stdout is kept")
    if sum(o.get("output_type") == "stream" and o.get("name") == "stdout" for o in cell.outputs) > 1:
        yield page.problem("L105", cell, None, "stdout is recorded in several outputs; it is one")
    text = "".join(as_text(o.get("text", "")) for o in cell.outputs if o.get("output_type") == "stream")
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > OUTPUT_LIMIT:
        yield page.problem("L109", cell, None, f"recorded output has {size} bytes; the limit is {OUTPUT_LIMIT}")
    for number, line in enumerate(text.split("\n"), start=1):
        yield from _output_line(page, cell, number, line)


def _output_line(page: Page, cell: Cell, number: int, line: str) -> Iterator[Problem]:
    place = f"recorded output, line {number},"
    for pattern, what in VOLATILE:
        if match := pattern.search(line):
            yield page.problem("L106", cell, None, f"{place} holds {what}: {match[0]!r}")
    if match := REPR.search(line):
        yield page.problem("L107", cell, None, f"{place} holds a repr ({match[0]!r}); print rounded numbers")
    if match := NEGATIVE_ZERO.search(line):
        yield page.problem("L108", cell, None, f"{place} holds a negative zero ({match[0]}); print round(x, n) + 0.0")


def _code(page: Page, cell: Cell) -> Iterator[Problem]:
    if cell.id not in page.nodes:
        yield from _magics(page, cell)
        return
    for node in page.nodes[cell.id]:
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            yield page.problem("L114", cell, node.lineno, f"from {node.module} import *: name what is used")
        elif isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            name = ast.unparse(node.func)
            if name == "input":
                yield page.problem("L113", cell, node.lineno, "input() waits for a person; nothing here may")
            reason = _unstable(name, node.func)
            if reason:
                yield page.problem("L116", cell, node.lineno, f"{name}: {reason} (the book's numbers are reproducible)")


def _unstable(name: str, function: ast.expr) -> str | None:
    if name in GLOBAL_STATE:
        return GLOBAL_STATE[name]
    if isinstance(function, ast.Attribute) and function.attr in UNSTABLE_METHODS:
        return GLOBAL_STATE[UNSTABLE_METHODS[function.attr]]
    if name in ("Dropout", "dropout"):
        return GLOBAL_STATE["torch.dropout"]
    return None


def _magics(page: Page, cell: Cell) -> Iterator[Problem]:
    lines = [(n, line) for n, line in enumerate(cell.source.split("\n"), start=1) if MAGIC.match(line)]
    allowed = page.chapter.kind == "solutions" and cell.id == "setup"
    for number, line in lines:
        if not (allowed and SETUP_MAGIC.fullmatch(line.strip())):
            yield page.problem("L112", cell, number, f"{line.strip()!r} is for IPython; a chapter holds plain Python")


def _listed_cells(context: Context) -> Iterator[Problem]:
    """Yield where the cells that are not of the class `exact` and pyproject's lists of them disagree."""
    for output_class in OUTPUT_CLASSES[1:]:
        setting = f"{output_class}_cells"
        listed = set(context.section_of("bookkit", setting) or [])
        found = {
            f"{page.chapter.label}:{cell.id}": (page, cell)
            for page in context.pages.values()
            for cell in page.chapter.code_cells
            if cell.output_class == output_class
        }
        for name, (page, cell) in found.items():
            if name not in listed and page.chapter.key in context.selected:
                message = f"output class {output_class!r}, but {name!r} is not in [tool.bookkit] {setting}"
                yield page.problem("L115", cell, None, message)
        for name in sorted(listed - found.keys()):
            message = f"{setting} names {name!r}, which is no {output_class} cell"
            yield Problem("pyproject.toml", None, None, message, code="L115")
