"""Read the saved cells of a chapter: what each imports, defines and needs, and what of it may not stand in a library.

A cell whose first line is `#@save` is read as a whole, with `ast`; `#@save replaces=name` takes the place of an earlier
definition. Nothing here looks at other chapters: `library` resolves names across the book.
"""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from .importtime import Callees, import_time_faults
from .notebook import SAVE_LINE, Cell, Chapter
from .problems import Problem
from .rewrite import comments, strip_library
from .scopes import BUILTINS, LIBRARY, Names, bound_by, read_statement

PACKAGE = "agentrl"
REPLACES = re.compile(r"replaces\s*=\s*(?P<names>[^\W\d]\w*(?:\s*,\s*[^\W\d]\w*)*)")
ALMOST_MARK = re.compile(r"#+\s*@\s*saved?\b.*", re.IGNORECASE)
# The cell magics whose body is Python of this chapter; the bodies of others are not.
PYTHON_MAGICS = ("%%capture", "%%time", "%%timeit", "%%prun")

NameKind = Literal["function", "class", "constant"]
Report = Callable[[int | None, str], None]


@dataclass(frozen=True)
class Import:
    """One imported name, with the comments that stood at its statement."""

    module: str | None
    name: str
    alias: str | None
    line: int
    typing_only: bool
    above: tuple[str, ...] = ()
    trailing: str = ""

    @property
    def binds(self) -> str:
        """The name it binds in the module."""
        return self.alias or (self.name if self.module is not None else self.name.split(".")[0])

    @property
    def target(self) -> str:
        """What the bound name stands for, as a dotted path."""
        if self.module is not None:
            return f"{self.module}.{self.name}"
        return self.name if self.alias else self.name.split(".")[0]

    @property
    def text(self) -> str:
        """The import statement for this name alone."""
        renamed = f" as {self.alias}" if self.alias else ""
        return f"{'' if self.module is None else f'from {self.module} '}import {self.name}{renamed}"


@dataclass(frozen=True)
class Definition:
    """One top-level statement that the library keeps; `first` to `last` are its lines, comments directly above too."""

    node: ast.stmt
    names: dict[str, int]
    kind: NameKind
    summary: str
    first: int
    last: int
    needs: Names
    is_overload: bool = False

    @property
    def line(self) -> int:
        """The line of its `def`, `class` or first target."""
        return self.node.lineno


@dataclass
class SavedCell:
    """A saved cell: its text by lines with `arl.` taken away, and its statements."""

    cell: Cell
    replaces: tuple[str, ...]
    lines: list[str] = field(default_factory=list)
    tree: ast.Module = field(default_factory=lambda: ast.Module([], []))
    future: list[str] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    import_lines: set[int] = field(default_factory=set)
    definitions: list[Definition] = field(default_factory=list)


@dataclass
class ChapterSaves:
    """What one chapter saves, what its other cells define, and the problems found while reading it."""

    chapter: Chapter
    cells: list[SavedCell]
    problems: list[Problem]
    unsaved_imports: dict[str, str]
    unsaved_names: dict[str, str]

    @property
    def future(self) -> tuple[str, ...]:
        """The `from __future__` features of the module."""
        return tuple(sorted({name for cell in self.cells for name in cell.future}))


def read_chapter(chapter: Chapter) -> ChapterSaves:
    """Return what a chapter saves; faulty cells are left out and reported."""
    problems: list[Problem] = []
    cells: list[SavedCell] = []
    imports: dict[str, str] = {}
    names: dict[str, str] = {}
    if chapter.kind == "chapter" and keyword.iskeyword(chapter.module):
        problems.append(chapter.problem(None, None, f"module {chapter.module!r} is a Python keyword"))
    for cell in chapter.code_cells:
        report = _reporter(chapter, cell, problems)
        source = unix(cell.source)
        _check_marks(source, report)
        if cell.is_saved:
            saved = _read_cell(cell, source, report)
            if saved is not None:
                cells.append(saved)
        else:
            _read_unsaved(cell, source, imports, names)
    saves = ChapterSaves(chapter, cells, problems, imports, names)
    for saved in cells:
        _read_definitions(saved, saves)
    return saves


def callees(saves: ChapterSaves, library_classes: frozenset[str]) -> Callees:
    """Return what calls at import time may name: the module's imports and the classes the book has saved."""
    imports = {i.binds: i.target for cell in saves.cells for i in cell.imports}
    definitions = [d for cell in saves.cells for d in cell.definitions]
    own = {name for d in definitions for name in d.names}
    classes = {name for d in definitions if d.kind == "class" for name in d.names}
    return Callees(imports, frozenset(own), frozenset(classes), library_classes)


def import_time_problems(saves: ChapterSaves, library_classes: frozenset[str]) -> list[Problem]:
    """Return what would run when the module is imported."""
    problems: list[Problem] = []
    allowed = callees(saves, library_classes)
    for saved in saves.cells:
        report = _reporter(saves.chapter, saved.cell, problems)
        for definition in saved.definitions:
            for line, message in import_time_faults(definition.node, allowed):
                report(line, message)
    return problems


def unix(text: str) -> str:
    """Return text with Unix line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _reporter(chapter: Chapter, cell: Cell, problems: list[Problem]) -> Report:
    def report(line: int | None, message: str) -> None:
        problems.append(chapter.problem(cell, line, message))

    return report


def _check_marks(source: str, report: Report) -> None:
    for line, comment in comments(_without_magics(source)).items():
        first = source.split("\n", 1)[0].rstrip()
        if SAVE_LINE.fullmatch(comment.rstrip()):
            if line != 1 or comment.rstrip() != first:
                report(line, "#@save must be the first line of its cell, alone: it saves the whole cell")
        elif ALMOST_MARK.fullmatch(comment.rstrip()):
            report(line, f"{comment.rstrip()!r} is not the mark: write #@save as the cell's first line")


# Cells that are not saved: only what messages need


def _without_magics(source: str) -> str:
    """Return the source with magic and shell lines turned into `pass`, so that the rest can be read as Python."""
    if source.startswith("%%") and not source.startswith(PYTHON_MAGICS):
        return ""
    return "\n".join(re.sub(r"^(\s*)[%!].*$", r"\1pass", line) for line in source.split("\n"))


def _read_unsaved(cell: Cell, source: str, imports: dict[str, str], names: dict[str, str]) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(_without_magics(source))
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in tree.body:
        for child in ast.walk(node) if not isinstance(node, _SCOPED) else [node]:
            if isinstance(child, ast.Import | ast.ImportFrom):
                _note_imports(child, imports, names, cell.id)
            elif isinstance(child, _SCOPED):
                names.setdefault(child.name, cell.id)
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                names.setdefault(child.id, cell.id)


def _note_imports(
    node: ast.Import | ast.ImportFrom, imports: dict[str, str], names: dict[str, str], cell_id: str
) -> None:
    prefix = f"from {'.' * node.level}{node.module or ''} " if isinstance(node, ast.ImportFrom) else ""
    ours = isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE
    for alias in node.names:
        renamed = f" as {alias.asname}" if alias.asname else ""
        if ours or alias.name.split(".")[0] == PACKAGE:
            names.setdefault(bound_by(alias), cell_id)
        else:
            imports.setdefault(bound_by(alias), f"{prefix}import {alias.name}{renamed}")


_SCOPED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


# Saved cells


def _read_cell(cell: Cell, source: str, report: Report) -> SavedCell | None:
    options = cell.save_options or ""
    match = REPLACES.fullmatch(options)
    if options and match is None:
        report(1, f"unknown option {options!r}: #@save stands alone or as #@save replaces=name")
        return None
    replaces = tuple(name.strip() for name in match["names"].split(",")) if match else ()
    tree = _parse(source, report)
    if tree is None:
        return None
    saved = SavedCell(cell, replaces, source.split("\n"), tree)
    notes = comments(source)
    _check_shared_lines(tree, report)
    if not tree.body:
        report(1, "a saved cell with nothing to save")
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            _read_import(saved, node, notes, report)
        elif _is_typing_block(node):
            _read_typing_block(saved, node, notes, report)
    if all(_is_import(node) for node in tree.body):
        _keep_comments(saved, notes)
    _check_inner_imports(tree, report)
    _rewrite(saved, source, report)
    return saved


def _parse(source: str, report: Report) -> ast.Module | None:
    if "\0" in source:
        report(source[: source.index("\0")].count("\n") + 1, "a null character: no Python source holds one")
        return None
    try:
        source.encode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "<cell>", "exec", dont_inherit=True)
            return ast.parse(source)
    except SyntaxError as error:
        line = error.lineno or 1
        text = source.split("\n")[min(line, source.count("\n") + 1) - 1]
        if re.match(r"\s*([%!?]|[\w\s,.]*=\s*[%!])", text) or re.search(r"\w\s*\?\s*$", text):
            report(line, f"a magic or shell line ({text.strip()!r}) cannot be saved: the library is plain Python")
        else:
            report(line, f"syntax error: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        report(None, f"not readable as Python: {error}")
    return None


def _check_shared_lines(tree: ast.Module, report: Report) -> None:
    for before, node in zip(tree.body, tree.body[1:], strict=False):
        if first_line(node) <= (before.end_lineno or before.lineno):
            report(node.lineno, "two statements share a line: write each on its own in a saved cell")


def first_line(node: ast.stmt) -> int:
    """Return the first line of a statement, decorators included."""
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])


def _comments_above(lines: list[str], line: int) -> list[int]:
    """Return the numbers of the comment lines directly above `line` (the mark is none)."""
    above: list[int] = []
    while line - 1 > 1 and lines[line - 2].startswith("#"):
        line -= 1
        above.insert(0, line)
    return above


def _read_import(
    saved: SavedCell,
    node: ast.Import | ast.ImportFrom,
    notes: dict[int, str],
    report: Report,
    typing_only: bool = False,
) -> None:
    end = node.end_lineno or node.lineno
    above = [] if typing_only else _comments_above(saved.lines, node.lineno)
    saved.import_lines.update(above, range(node.lineno, end + 1))
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        saved.future += [alias.name for alias in node.names]
        return
    kept = [saved.lines[n - 1].strip() for n in above]
    own = {alias.lineno: alias for alias in node.names}
    kept += [notes[n] for n in range(node.lineno, end + 1) if n in notes and n not in own]
    module = node.module if isinstance(node, ast.ImportFrom) else None
    for index, alias in enumerate(node.names):
        if alias.name == "*":
            report(node.lineno, f"star import from {module}: name what the library needs")
            continue
        renamed = alias.asname if alias.asname != alias.name else None
        trailing = notes.get(alias.lineno, "") if own[alias.lineno] is alias else ""
        above_it = tuple(kept) if index == 0 else ()
        saved.imports.append(Import(module, alias.name, renamed, alias.lineno, typing_only, above_it, trailing))


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom) or _is_typing_block(node)


def _keep_comments(saved: SavedCell, notes: dict[int, str]) -> None:
    """Give the loose comments of a cell that only imports to the next import, or the last one: it leaves no block."""
    for number in sorted(n for n in notes if n > 1 and n not in saved.import_lines):
        later = [i for i, imported in enumerate(saved.imports) if imported.line > number]
        if saved.imports:
            at = later[0] if later else len(saved.imports) - 1
            old = saved.imports[at]
            saved.imports[at] = replace(old, above=(*old.above, notes[number]))


def _is_typing_block(node: ast.stmt) -> bool:
    if not isinstance(node, ast.If):
        return False
    test = node.test
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _read_typing_block(saved: SavedCell, node: ast.stmt, notes: dict[int, str], report: Report) -> None:
    assert isinstance(node, ast.If)
    saved.import_lines.update(_comments_above(saved.lines, node.lineno), range(node.lineno, _end(node) + 1))
    for child in node.body:
        if isinstance(child, ast.Import | ast.ImportFrom):
            _read_import(saved, child, notes, report, typing_only=True)
        else:
            report(child.lineno, "only imports may stand under `if TYPE_CHECKING:`")
    if node.orelse:
        report(node.orelse[0].lineno, "`if TYPE_CHECKING:` may have no `else` in a saved cell")


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _check_inner_imports(tree: ast.Module, report: Report) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            report(node.lineno, "relative import: a notebook has no package")
        elif isinstance(node, ast.ImportFrom | ast.Import):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            if any(module.split(".")[0] == PACKAGE for module in modules):
                report(
                    node.lineno,
                    f"a saved cell imports {PACKAGE}: write `import {PACKAGE} as {LIBRARY}` in a cell that is not "
                    f"saved and use `{LIBRARY}.name`; the builder writes the import",
                )


def _rewrite(saved: SavedCell, source: str, report: Report) -> None:
    done = strip_library(source)
    for line in done.echoes:
        report(line, f"an f-string field with `=` prints its own source, `{LIBRARY}.` included: write the text out")
    expected = sum(
        isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == LIBRARY
        for n in ast.walk(saved.tree)
    )
    if done.count != expected:
        report(None, f"{expected} uses of `{LIBRARY}.name`, but {done.count} found in the text: simplify the f-strings")
    saved.lines = done.text.split("\n")


def _read_definitions(saved: SavedCell, saves: ChapterSaves) -> None:
    report = _reporter(saves.chapter, saved.cell, saves.problems)
    notes = comments(unix(saved.cell.source))
    lazy = "annotations" in saves.future
    for node in saved.tree.body:
        if _is_import(node):
            continue
        names = _defined(node, report)
        if not names:
            continue
        above = _comments_above(saved.lines, first_line(node))
        needs = read_statement(node, lazy)
        definition = Definition(
            node,
            names,
            _kind(node),
            _summary(node, saved, above, notes),
            above[0] if above else first_line(node),
            _end(node),
            needs,
            _is_overload(node),
        )
        saved.definitions.append(definition)
        _check_definition(definition, report)


def _defined(node: ast.stmt, report: Report) -> dict[str, int]:
    """Return the names a statement defines, with lines; reports a statement that a module must not hold."""
    if isinstance(node, _SCOPED):
        return {node.name: node.lineno}
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is None:
        report(node.lineno, "a declaration without a value: give the constant its value")
        return {}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return _targets(node, report)
    if type(node).__name__ == "TypeAlias":
        return {node.name.id: node.lineno}  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        report(node.lineno, "a string on its own: describe a constant in a comment on its line, or above it")
        return {}
    report(node.lineno, f"{_describe(node)} runs code on import: wrap it in a function or leave it in an unsaved cell")
    return {}


def _describe(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr):
        call = node.value.func if isinstance(node.value, ast.Call) else None
        return f"the expression `{ast.unparse(call)}(…)`" if call is not None else "an expression"
    words = {"AugAssign": "changing a variable", "Delete": "del"}
    return words.get(type(node).__name__, f"`{type(node).__name__.lower().removeprefix('async')}`")


def _targets(node: ast.Assign | ast.AnnAssign, report: Report) -> dict[str, int]:
    names: dict[str, int] = {}
    todo: list[ast.expr] = list(node.targets) if isinstance(node, ast.Assign) else [node.target]
    while todo:
        target = todo.pop(0)
        if isinstance(target, ast.Tuple | ast.List):
            todo = [*target.elts, *todo]
        elif isinstance(target, ast.Starred):
            todo.insert(0, target.value)
        elif isinstance(target, ast.Name):
            names.setdefault(target.id, target.lineno)
        else:
            report(target.lineno, f"`{ast.unparse(target)} = …` changes an object on import: wrap it in a function")
            return {}
    return names


def _kind(node: ast.stmt) -> NameKind:
    if isinstance(node, ast.ClassDef):
        return "class"
    return "function" if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else "constant"


def _is_overload(node: ast.stmt) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(ast.unparse(d) in ("overload", "typing.overload") for d in decorators)


def _summary(node: ast.stmt, saved: SavedCell, above: list[int], notes: dict[int, str]) -> str:
    """Return one line about a definition: its docstring's first, or a constant's comment, or its value."""
    if isinstance(node, _SCOPED):
        text = (ast.get_docstring(node) or "").strip()
        return text.split("\n")[0].strip()
    if _end(node) in notes:
        return notes[_end(node)].lstrip("#").strip()
    if above:
        return " ".join(saved.lines[n - 1].lstrip("#").strip() for n in above).strip()
    value = getattr(node, "value", None)
    text = ast.unparse(value) if isinstance(value, ast.expr) else ""
    return "" if not text else f"= {text}" if len(text) <= 60 else f"= {text[:57]}…"


def _check_definition(definition: Definition, report: Report) -> None:
    for name, line in definition.names.items():
        if name in BUILTINS:
            report(line, f"{name!r} is a builtin: a library that saves it changes Python's own name")
        elif name.startswith("__") and name.endswith("__"):
            report(line, f"{name!r} is Python's own kind of name: the builder writes the module's")
        elif name == LIBRARY:
            report(line, f"`{LIBRARY}` is the library's name in the notebooks")
    for name, line in definition.needs.leaks.items():
        report(line, f"`{name} := …` binds a module name inside an expression: assign it on its own")
    for line, message in definition.needs.misuses:
        report(line, message)
    node = definition.node
    if isinstance(node, _SCOPED) and not (node.name.startswith("_") or definition.is_overload):
        documented = (ast.get_docstring(node) or "").strip()
        if not documented:
            report(node.lineno, f"{definition.kind} {node.name!r} has no docstring: say first what it returns or is")


def saved_lines(saved: SavedCell, without: set[int]) -> Iterator[str]:
    """Yield the lines of the cell that stay in its block: not the mark, not imports, not the lines `without`."""
    for number, line in enumerate(saved.lines, start=1):
        if number > 1 and number not in saved.import_lines and number not in without:
            yield line
