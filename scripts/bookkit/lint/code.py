"""Code (L3xx): length of cells and functions, ruff over every notebook at once, names used before they are saved."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..library import names
from ..notebook import SAVE_LINE, Book, Cell, as_lines, as_text
from ..problems import BookError, Problem
from ..scratch import Scratch
from .context import Context, Page, parse_code

CELL_LINES = (15, 30)
FUNCTION_LINES = (25, 40)
IGNORED = {
    "chapter": "E501,D,I002",
    "solutions": "E501,D,I002,F811,F821,E402",  # a solution redefines its stub, and `%run` brings the chapter's names
}


def check(context: Context) -> Iterator[Problem]:
    """Yield every finding about code cells."""
    for page in context.chosen():
        for cell in page.chapter.code_cells:
            yield from _lengths(page, cell)
            yield from _syntax(page, cell)
    yield from _early(context)
    yield from _ruff(context)
    for page, cell, text in unformatted(context):
        line = _first_difference(cell.source, text)
        yield page.problem("L306", cell, line, "ruff format would change this cell; `lint_book.py --fix` does")


def _syntax(page: Page, cell: Cell) -> Iterator[Problem]:
    if cell.id in page.trees:
        return
    error = parse_code(_without_magics(cell.source))
    if isinstance(error, SyntaxError):
        yield page.problem("L305", cell, error.lineno, f"does not parse: {error.msg}")


def _without_magics(source: str) -> str:
    """Return the cell as the Python that IPython would run."""
    from IPython.core.inputtransformer2 import TransformerManager  # a fifth of a second, and rarely needed

    if source.startswith("%%"):
        source = "\n" + source.split("\n", 1)[1] if "\n" in source else ""
    return TransformerManager().transform_cell(source)


def _lengths(page: Page, cell: Cell) -> Iterator[Problem]:
    quiet = _docstring_lines(page.nodes.get(cell.id, ()))
    count = _code_lines(cell.source, range(1, cell.source.count("\n") + 2), quiet)
    code = _over(count, CELL_LINES, "L301", "L302")
    if code:
        yield page.problem(code, cell, None, f"{count} lines of code in a cell; {_limits(CELL_LINES)}")
    for node in page.nodes.get(cell.id, ()):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            count = _code_lines(cell.source, range(node.lineno, (node.end_lineno or node.lineno) + 1), quiet)
            code = _over(count, FUNCTION_LINES, "L303", "L304")
            if code:
                message = f"{node.name} has {count} lines of code; {_limits(FUNCTION_LINES)}"
                yield page.problem(code, cell, node.lineno, message)


def _limits(limits: tuple[int, int]) -> str:
    return f"{limits[0]} is the aim, {limits[1]} the limit"


def _over(count: int, limits: tuple[int, int], warning: str, error: str) -> str | None:
    return error if count > limits[1] else warning if count > limits[0] else None


def _code_lines(source: str, lines: Iterable[int], quiet: set[int]) -> int:
    text = source.split("\n")
    counted = (n for n in lines if n not in quiet and text[n - 1].strip())
    return sum(not SAVE_LINE.fullmatch(text[n - 1].strip()) for n in counted)


def _docstring_lines(nodes: Iterable[ast.AST]) -> set[int]:
    found: set[int] = set()
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and ast.get_docstring(node):
            first = node.body[0]
            found |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return found


def _early(context: Context) -> Iterator[Problem]:
    """Yield uses of `arl.name` before the chapter that saves it; saved cells are the library builder's to check."""
    anywhere = _saved_names(context.book)
    for page in context.chosen():
        uses = list(_uses(page))
        key = page.chapter.key
        seen = context.book.before(key) if uses else ()
        if uses and page.chapter.kind == "solutions":
            seen = (*seen, context.book.chapter(key))
        known = _saved_names(Book(context.root, seen, ()))
        for cell, node in uses:
            if node.attr not in known and not node.attr.startswith("__"):
                message = _too_early(node.attr, anywhere.get(node.attr), key)
                yield page.problem("L308", cell, node.lineno, message)


def _uses(page: Page) -> Iterator[tuple[Cell, ast.Attribute]]:
    for cell in page.chapter.code_cells:
        for node in page.nodes.get(cell.id, ()) if not cell.is_saved else ():
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "arl":
                yield cell, node


def _too_early(name: str, saved_in: str | None, here: str) -> str:
    if saved_in is None:
        return f"arl.{name}: no cell of the book saves {name!r}"
    if saved_in == here:
        return f"arl.{name} is saved in this chapter: use it without arl. here"
    return f"arl.{name} is saved in chapter {saved_in}, which comes later"


def _saved_names(book: Book) -> dict[str, str]:
    try:
        return {name: saved.chapter_key for name, saved in names(book).items()}
    except BookError:
        return {}  # the builder reports what keeps the names from being known


def _ruff(context: Context) -> Iterator[Problem]:
    pages = {page.chapter.path.resolve(): page for page in context.chosen()}
    for kind, ignored in IGNORED.items():
        paths = [str(path) for path, page in pages.items() if page.chapter.kind == kind]
        if not paths:
            continue
        command = ["check", "--no-cache", "--quiet", "--output-format", "json", *_config(context)]
        done = _run([*command, "--extend-ignore", ignored, *paths], context.root)
        for finding in json.loads(done.stdout or "[]"):
            problem = _finding(pages, finding)
            if problem is not None:
                yield problem


def _finding(pages: dict[Path, Page], finding: dict[str, Any]) -> Problem | None:
    page = pages.get(Path(finding["filename"]).resolve())
    number = finding.get("cell")
    if page is None or not number:
        return None
    cell = page.chapter.cells[number - 1]
    if finding.get("code") in (None, "invalid-syntax"):
        return None  # L305 says it, with the parser's own words
    line = finding["location"]["row"]
    return page.problem("L307", cell, line, f"ruff {finding['code']}: {finding['message']}")


def _config(context: Context) -> list[str]:
    path = context.root / "pyproject.toml"
    if path.is_file() and context.section_of("ruff", "line-length") is not None:
        return ["--config", str(path)]
    return ["--isolated", "--line-length", "120", "--target-version", "py311"]


def _run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ruff", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8")
    if done.returncode not in (0, 1):
        raise BookError(Problem("ruff", None, None, f"cannot run: {done.stderr.strip() or done.stdout.strip()}"))
    return done


def unformatted(context: Context) -> Iterator[tuple[Page, Cell, str]]:
    """Yield each code cell that ruff would format otherwise, with the formatted text; its meaning is the same."""
    pages = context.chosen()
    with Scratch("lint") as folder:
        copies = {page.chapter.label: folder / f"{n}.ipynb" for n, page in enumerate(pages)}
        for page in pages:
            copies[page.chapter.label].write_text(json.dumps(_only_code(page)), encoding="utf-8")
        if not copies:
            return
        command = ["format", "--no-cache", "--quiet", *_config(context)]
        _run([*command, *(str(path) for path in copies.values())], folder)
        for page in pages:
            cells = json.loads(copies[page.chapter.label].read_text(encoding="utf-8"))["cells"]
            formatted = {cell["id"]: as_text(cell["source"]) for cell in cells}
            for cell in page.chapter.code_cells:
                text = _as_saved(cell, formatted.get(cell.id, cell.source))
                if text != cell.source and _same_meaning(cell.source, text):
                    yield page, cell, text


def _only_code(page: Page) -> dict[str, Any]:
    """Return the notebook with the code cells that parse, which is what ruff can format."""
    cells = [
        {"cell_type": "code", "id": cell.id, "metadata": {}, "source": as_lines(cell.source), "outputs": []}
        | {"execution_count": None}
        for cell in page.chapter.code_cells
        if cell.id in page.trees
    ]
    return {"cells": cells, "metadata": page.chapter.raw["metadata"], "nbformat": 4, "nbformat_minor": 5}


def _as_saved(cell: Cell, formatted: str) -> str:
    """Return the formatted text with the save mark as the book writes it: ruff would put a space after the #."""
    first, newline, rest = formatted.partition("\n")
    if SAVE_LINE.fullmatch(first.rstrip()):
        first = "#" + first.rstrip().lstrip("# ")
    return first + newline + rest.lstrip("\n") if cell.is_saved else formatted


def _same_meaning(before: str, after: str) -> bool:
    trees = [parse_code(before), parse_code(after)]
    return all(isinstance(t, ast.Module) for t in trees) and len({ast.dump(t) for t in trees}) == 1  # pyright: ignore


def _first_difference(before: str, after: str) -> int:
    pairs = zip(before.split("\n"), after.split("\n"), strict=False)
    return next((n for n, (a, b) in enumerate(pairs, start=1) if a != b), 1)
