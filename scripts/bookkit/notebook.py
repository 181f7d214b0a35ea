"""The model of a chapter: read a notebook, know its cells, write it back in one canonical form.

A chapter is an nbformat 4.5 notebook. On disk it has sorted keys, one-space indent, sources and outputs as lists of
lines, and a newline at the end, which is also how Jupyter saves it; `normalise` removes what Jupyter adds besides.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from .problems import BookError, Problem, relative
from .scratch import CACHE, Scratch

TRANSLATION = "zh"  # the folder of the Chinese edition in chapters/
CHAPTER_FILE = re.compile(r"(?P<key>\d\d|[A-Z])-(?P<slug>[a-z0-9]+(?:-[a-z0-9]+)*)\.ipynb")
CELL_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
SAVE_LINE = re.compile(r"#\s*@save\b(?P<options>.*)")
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
DEEPEST = 100  # levels of JSON; a notebook has ten, and recursion in Python ends at about a thousand
SURROGATE = re.compile("[\ud800-\udfff]")
OUTPUT_CLASSES = ("exact", "lab", "sandbox")
ROLES = ("stub", "solution", "test")

Kind = Literal["chapter", "solutions"]


@dataclass(frozen=True)
class Cell:
    """One cell. `number` counts code cells from 1; `file_line` is where its source starts in the file on disk."""

    id: str
    kind: str
    source: str
    metadata: dict[str, Any]
    outputs: list[dict[str, Any]]
    execution_count: int | None
    index: int
    number: int | None
    file_line: int | None

    @property
    def is_code(self) -> bool:
        """Whether this is a code cell."""
        return self.kind == "code"

    @property
    def stdout(self) -> str:
        """The recorded standard output, streams merged; other outputs are the linter's to refuse."""
        streams = (o for o in self.outputs if o.get("output_type") == "stream" and o.get("name") == "stdout")
        return "".join(as_text(o.get("text", "")) for o in streams)

    @property
    def save_options(self) -> str | None:
        """The text after `#@save` when the first line is that mark, else None."""
        if not self.is_code:
            return None
        match = SAVE_LINE.fullmatch(self.source.split("\n", 1)[0].rstrip())
        return match["options"].strip() if match else None

    @property
    def is_saved(self) -> bool:
        """Whether the cell goes into the library."""
        return self.save_options is not None

    @property
    def tags(self) -> list[str]:
        """The cell's Jupyter tags."""
        return list(self.metadata.get("tags", []))

    @property
    def book(self) -> dict[str, Any]:
        """The book's own cell metadata (`agentrl`): `output` class, `role` and `exercise` of a solution cell."""
        return dict(self.metadata.get("agentrl", {}))

    @property
    def output_class(self) -> str:
        """`exact` unless the metadata says that the cell needs what may be missing: `lab`, `sandbox` (see `needs`)."""
        return str(self.book.get("output", "exact"))


@dataclass(frozen=True)
class Chapter:
    """A notebook of the book: a chapter, or the solutions of one."""

    path: Path
    root: Path
    key: str
    slug: str
    kind: Kind
    cells: tuple[Cell, ...]
    metadata: dict[str, Any] = field(repr=False)
    raw: dict[str, Any] = field(repr=False)

    @cached_property
    def name(self) -> str:
        """The path from the book's root, as messages show it."""
        return relative(self.path, self.root)

    @property
    def label(self) -> str:
        """What the checker's command line calls it: `06`, or `06/solutions`."""
        return self.key if self.kind == "chapter" else f"{self.key}/solutions"

    @property
    def module(self) -> str:
        """The module its saved cells go to, without the package."""
        return str(self.metadata.get("module", ""))

    @property
    def title(self) -> str:
        """The chapter's title."""
        return str(self.metadata.get("title", ""))

    @property
    def question(self) -> str:
        """The one question the chapter answers."""
        return str(self.metadata.get("question", ""))

    @cached_property
    def code_cells(self) -> tuple[Cell, ...]:
        """The code cells, in order."""
        return tuple(cell for cell in self.cells if cell.is_code)

    @cached_property
    def saved_cells(self) -> tuple[Cell, ...]:
        """The cells that go into the library, in order."""
        return tuple(cell for cell in self.code_cells if cell.is_saved)

    def cell(self, cell_id: str) -> Cell:
        """Return the cell with this id; KeyError names the chapter when there is none."""
        for cell in self.cells:
            if cell.id == cell_id:
                return cell
        raise KeyError(f"{self.name} has no cell {cell_id!r}")

    def problem(self, cell: Cell | None, line: int | None, message: str, **kw: Any) -> Problem:
        """Return a Problem placed in this chapter; `line` counts from 1 within the cell."""
        at = None
        if cell is not None and cell.file_line is not None:
            at = cell.file_line + (line or 1) - 1
        return Problem(self.name, cell.id if cell else None, line, message, file_line=at, **kw)


@dataclass(frozen=True)
class Book:
    """Every notebook of the book: chapters in reading order, and the solutions by chapter key."""

    root: Path
    chapters: tuple[Chapter, ...]
    solutions: tuple[Chapter, ...]

    def chapter(self, key: str) -> Chapter:
        """Return the chapter with this key (`06`, `A`); KeyError lists the keys there are."""
        for chapter in self.chapters:
            if chapter.key == key:
                return chapter
        raise KeyError(f"no chapter {key!r}; there are {', '.join(c.key for c in self.chapters)}")

    def before(self, key: str) -> tuple[Chapter, ...]:
        """Return the chapters that come before `key` in reading order."""
        return tuple(c for c in self.chapters if order(c.key) < order(key))

    def solutions_of(self, key: str) -> Chapter | None:
        """Return the solutions notebook of chapter `key`, or None."""
        return next((s for s in self.solutions if s.key == key), None)

    def notebooks(self) -> Iterator[Chapter]:
        """Yield every notebook, each chapter followed by its solutions."""
        for chapter in self.chapters:
            yield chapter
            solutions = self.solutions_of(chapter.key)
            if solutions is not None:
                yield solutions

    def code_of(self, notebook: Chapter) -> list[str]:
        """Return the code that a notebook runs: its own cells, for solutions also their chapter's."""
        run = [c for c in self.chapters if c.key == notebook.key] if notebook.kind == "solutions" else []
        return [cell.source for each in [*run, notebook] for cell in each.code_cells]


def order(key: str) -> tuple[bool, str]:
    """Return a sort key: numbered chapters first, then the appendices."""
    return (not key.isdigit(), key)


def as_text(value: str | list[str]) -> str:
    """Return a notebook's multiline value as one string."""
    return value if isinstance(value, str) else "".join(value)


def as_lines(text: str) -> list[str]:
    """Return text as the list of lines, ends kept, that a notebook stores."""
    lines = [part + "\n" for part in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return [line for line in lines if line]


def translation_path(notebook: Chapter) -> Path:
    """Return where the translation of a notebook stands, whether or not there is one."""
    chapters = notebook.root / "chapters"
    return chapters / TRANSLATION / notebook.path.relative_to(chapters)


def is_day(value: Any) -> bool:
    """Return whether a value is a day of the calendar as metadata write it, 2026-11-30."""
    try:
        return isinstance(value, str) and date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


def load_book(root: Path) -> Book:
    """Read every notebook under `root/chapters`; BookError lists all that cannot be read or placed."""
    problems: list[Problem] = []
    found: dict[Kind, list[Chapter]] = {"chapter": [], "solutions": []}
    folders: tuple[tuple[Kind, Path], ...] = (
        ("chapter", root / "chapters"),
        ("solutions", root / "chapters" / "solutions"),
    )
    if not folders[0][1].is_dir():
        message = f"no such folder: {folders[0][1]}; a book has chapters/"
        raise BookError(Problem(relative(folders[0][1], root), None, None, message))
    for kind, folder in folders:
        for path in sorted(folder.glob("*.ipynb")):
            try:
                found[kind].append(load_chapter(path, root, kind))
            except BookError as error:
                problems += error.problems
    problems += _misplaced(found["chapter"], found["solutions"])
    if problems:
        raise BookError(problems)
    ordered = (tuple(sorted(found[kind], key=lambda c: order(c.key))) for kind in ("chapter", "solutions"))
    chapters, solutions = ordered
    return Book(root, chapters, solutions)


def load_translation(root: Path) -> tuple[Chapter, ...]:
    """Read every notebook under `root/chapters/zh`, chapters first; BookError lists all that cannot be read."""
    folder = root / "chapters" / TRANSLATION
    problems: list[Problem] = []
    found: list[Chapter] = []
    kinds: tuple[tuple[Kind, Path], ...] = (("chapter", folder), ("solutions", folder / "solutions"))
    for kind, place in kinds:
        for path in sorted(place.glob("*.ipynb")):
            try:
                found.append(load_chapter(path, root, kind))
            except BookError as error:
                problems += error.problems
    if problems:
        raise BookError(problems)
    return tuple(found)


def _misplaced(chapters: list[Chapter], solutions: list[Chapter]) -> Iterator[Problem]:
    for group in (chapters, solutions):
        first: dict[str, Chapter] = {}
        for chapter in group:
            other = first.setdefault(chapter.key, chapter)
            if other is not chapter:
                yield chapter.problem(None, None, f"chapter {chapter.key} is already {other.name}")
    modules: dict[str, Chapter] = {}
    for chapter in chapters:
        other = modules.setdefault(chapter.module, chapter)
        if chapter.module and other is not chapter:
            yield chapter.problem(None, None, f"module {chapter.module!r} is already that of {other.name}")
    for chapter in solutions:
        if not (chapter.root / "chapters" / chapter.path.name).exists():
            yield chapter.problem(None, None, f"no chapter file {chapter.path.name} in chapters/ for these solutions")


def load_chapter(path: Path, root: Path, kind: Kind = "chapter") -> Chapter:
    """Read one notebook; BookError says what makes it unreadable as a chapter, with the place."""
    name = relative(path, root)
    match = CHAPTER_FILE.fullmatch(path.name)
    if match is None:
        raise BookError(Problem(name, None, None, f"file name {path.name!r} is not NN-slug.ipynb (or A-slug.ipynb)"))
    raw, text = _read(path, name)
    chapter = Chapter(path, root, match["key"], match["slug"], kind, (), _book_metadata(raw), raw)
    problems = list(_structure_problems(chapter))
    if problems:
        raise BookError(problems)
    cells = tuple(_cells(raw, _source_lines(text)))
    return Chapter(path, root, chapter.key, chapter.slug, kind, cells, chapter.metadata, raw)


def _read(path: Path, name: str) -> tuple[dict[str, Any], str]:
    try:
        text = path.read_bytes().decode("utf-8")
        raw = json.loads(text)
    except OSError as error:
        raise BookError(Problem(name, None, None, f"cannot be read: {error.strerror}")) from error
    except RecursionError as error:
        raise BookError(Problem(name, None, None, "not a notebook: its JSON is nested too deeply")) from error
    except UnicodeDecodeError as error:
        raise BookError(Problem(name, None, None, f"not UTF-8: byte {error.start} is {error.reason}")) from error
    except json.JSONDecodeError as error:
        message = f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise BookError(Problem(name, None, None, message, file_line=error.lineno)) from error
    except ValueError as error:  # a whole number of thousands of digits
        raise BookError(Problem(name, None, None, f"not a notebook: a number cannot be read: {error}")) from error
    problems = [Problem(name, None, None, message) for message in _unwritable(raw)]
    if problems:
        raise BookError(problems)
    if not isinstance(raw, dict) or not isinstance(raw.get("cells"), list):
        raise BookError(Problem(name, None, None, "not a notebook: there is no list of cells"))
    return raw, text


def _unwritable(raw: Any) -> Iterator[str]:
    """Yield what could be read and not written again: half a surrogate pair, JSON nested too deeply."""
    pending: list[tuple[str, int, Any]] = [("", 1, raw)]
    while pending:
        place, depth, value = pending.pop()
        if depth > DEEPEST:
            yield f"not a notebook: its JSON is nested too deeply, in {place[:60]}"
            return
        if isinstance(value, str):
            found = SURROGATE.search(value)
            if found:
                yield f"{place[:200]} holds {found[0]!r}, half a character, which no file in UTF-8 can hold"
        elif isinstance(value, list):
            pending += [(f"{place}[{index}]", depth + 1, item) for index, item in enumerate(value)]
        elif isinstance(value, dict):
            names = {key: f"{place}.{ascii(key)[1:-1]}".lstrip(".") for key in value}
            pending += [(f"the key {names[key]}", depth, key) for key in value]
            pending += [(names[key], depth + 1, item) for key, item in value.items()]


def _book_metadata(raw: dict[str, Any]) -> dict[str, Any]:
    metadata = raw.get("metadata")
    book = metadata.get("agentrl") if isinstance(metadata, dict) else None
    return dict(book) if isinstance(book, dict) else {}


def _structure_problems(chapter: Chapter) -> Iterator[Problem]:
    raw = chapter.raw
    if (raw.get("nbformat"), raw.get("nbformat_minor")) != (4, 5):
        version = f"{raw.get('nbformat')}.{raw.get('nbformat_minor')}"
        yield chapter.problem(None, None, f"nbformat is {version}; the book uses 4.5, whose cells have ids")
    needed = ("chapter", "module", "title", "question") if chapter.kind == "chapter" else ("chapter", "title")
    for key in needed:
        if not isinstance(chapter.metadata.get(key), str) or not chapter.metadata[key]:
            yield chapter.problem(None, None, f"notebook metadata agentrl.{key} is missing or not text")
    if isinstance(chapter.metadata.get("chapter"), str) and chapter.metadata["chapter"] != chapter.key:
        said = chapter.metadata["chapter"]
        yield chapter.problem(None, None, f"metadata says chapter {said!r}, the file name {chapter.key!r}")
    module = chapter.metadata.get("module")
    if isinstance(module, str) and module and not re.fullmatch(r"[a-z][a-z0-9_]*", module):
        yield chapter.problem(None, None, f"module {module!r} is not a lower-case Python name")
    seen: set[str] = set()
    for index, cell in enumerate(raw["cells"]):
        yield from _cell_problems(chapter, index, cell, seen)


def _cell_problems(chapter: Chapter, index: int, cell: Any, seen: set[str]) -> Iterator[Problem]:
    if not isinstance(cell, dict) or cell.get("cell_type") not in ("code", "markdown", "raw"):
        yield chapter.problem(None, None, f"cell {index} is not a code, markdown or raw cell")
        return
    cell_id = cell.get("id")
    if not isinstance(cell_id, str) or not cell_id:
        yield chapter.problem(None, None, f"cell {index} has no id")
        return
    if cell_id in seen:
        yield chapter.problem(None, None, f"cell id {cell_id!r} is used twice")
    seen.add(cell_id)
    if not _is_text(cell.get("source")):
        yield chapter.problem(None, None, f"cell {cell_id!r} has no source text")
    yield from _metadata_problems(chapter, cell_id, cell.get("metadata"))
    if cell["cell_type"] == "code":
        yield from _output_problems(chapter, cell_id, cell)


def _metadata_problems(chapter: Chapter, cell_id: str, metadata: Any) -> Iterator[Problem]:
    if not isinstance(metadata, dict):
        yield chapter.problem(None, None, f"cell {cell_id!r} has no metadata")
        return
    tags = metadata.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        yield chapter.problem(None, None, f"cell {cell_id!r} has tags that are not a list of texts: {tags!r}")
    if not isinstance(metadata.get("agentrl", {}), dict):
        yield chapter.problem(None, None, f"cell {cell_id!r} has metadata agentrl that is not an object")


def _output_problems(chapter: Chapter, cell_id: str, cell: dict[str, Any]) -> Iterator[Problem]:
    count = cell.get("execution_count")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool)):
        yield chapter.problem(None, None, f"code cell {cell_id!r} has execution count {count!r}, not a whole number")
    outputs = cell.get("outputs")
    if not isinstance(outputs, list):
        yield chapter.problem(None, None, f"code cell {cell_id!r} has no list of outputs")
        return
    for output in outputs:
        if not isinstance(output, dict) or not isinstance(output.get("output_type"), str):
            yield chapter.problem(None, None, f"code cell {cell_id!r} has an output without a type: {output!r:.60}")
        elif output["output_type"] == "stream" and not (_is_text(output.get("text")) and _is_text(output.get("name"))):
            yield chapter.problem(None, None, f"code cell {cell_id!r} has a stream output without name or text")


def _is_text(value: Any) -> bool:
    """Whether a value is what a notebook stores as text: one string, or a list of them."""
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(part, str) for part in value))


def _cells(raw: dict[str, Any], lines: dict[str, int]) -> Iterator[Cell]:
    number = 0
    for index, cell in enumerate(raw["cells"]):
        is_code = cell["cell_type"] == "code"
        number += is_code
        yield Cell(
            id=cell["id"],
            kind=cell["cell_type"],
            source=as_text(cell["source"]),
            metadata=cell["metadata"],
            outputs=cell.get("outputs", []) if is_code else [],
            execution_count=cell.get("execution_count") if is_code else None,
            index=index,
            number=number if is_code else None,
            file_line=lines.get(cell["id"]),
        )


def _source_lines(text: str) -> dict[str, int]:
    """Map cell ids to the line of the file where their source starts (canonical files only; others get no lines)."""
    lines: dict[str, int] = {}
    current: str | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith('   "id": "'):
            current = json.loads(line.strip().removesuffix(",").removeprefix('"id": '))
        elif line.startswith('   "source": [') and current is not None:
            lines.setdefault(current, number + 1)
            current = None
    return lines


def normalise(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a notebook without what running or saving it in Jupyter adds, stdout merged into one output.

    Kept: ids, sources, stdout, execution counts, tags, the book's own metadata. Other outputs are kept as they are,
    so that the linter can name them instead of losing them.
    """
    raw = copy.deepcopy(raw)
    metadata = raw.get("metadata", {})
    raw["metadata"] = {"agentrl": metadata.get("agentrl", {}), "kernelspec": dict(KERNEL)}
    raw["metadata"]["language_info"] = {"name": "python"}
    raw["nbformat"], raw["nbformat_minor"] = 4, 5
    for cell in raw["cells"]:
        cell["metadata"] = {k: v for k, v in cell["metadata"].items() if k in ("agentrl", "tags") and v}
        cell["source"] = as_lines(_tidy(as_text(cell["source"]), blanks=cell["cell_type"] != "code"))
        if cell["cell_type"] == "code":
            cell["outputs"] = _merge_streams(cell["outputs"])
            cell.setdefault("execution_count", None)
        else:
            cell.pop("outputs", None)
            cell.pop("execution_count", None)
            if not cell.get("attachments"):
                cell.pop("attachments", None)
    return raw


def _tidy(source: str, blanks: bool) -> str:
    """Return the source with Unix line ends and no blank lines around it; `blanks` drops those at line ends too."""
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    if blanks:
        source = "\n".join(line.rstrip(" \t") for line in source.split("\n"))
    return source.strip("\n")


def _merge_streams(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    merged: list[dict[str, Any]] = []
    by_name: dict[str, dict[str, Any]] = {}
    for output in outputs:
        if output.get("output_type") == "stream":
            name = output.get("name", "stdout")
            if name in by_name:
                by_name[name]["text"] += as_text(output["text"])
                continue
            output = {"name": name, "output_type": "stream", "text": as_text(output["text"])}
            by_name[name] = output
        elif "execution_count" in output:
            output = {**output, "execution_count": None}
        merged.append(output)
    for output in by_name.values():
        output["text"] = as_lines(output["text"])
    return [o for o in merged if o.get("output_type") != "stream" or o["text"]]


def stdout_output(text: str) -> list[dict[str, Any]]:
    """Return the outputs a cell records for this stdout: one stream, or none when it printed nothing."""
    return [{"name": "stdout", "output_type": "stream", "text": as_lines(text)}] if text else []


def dump(raw: dict[str, Any]) -> str:
    """Return the notebook's text in the one canonical form."""
    return json.dumps(raw, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def write_atomic(path: Path, text: str) -> None:
    """Write text aside, then move it into place: a reader sees the old file or the new one."""
    write_all_atomic({path: text})


def write_all_atomic(files: Mapping[Path, str]) -> None:
    """Write every file aside, then move all into place, in order: a failure while writing leaves the old ones.

    A process that is killed meanwhile leaves each file old or new, and nothing beside it but a scratch folder, which
    the next write removes.
    """
    with contextlib.ExitStack() as stack:
        folders: dict[Path, Path] = {}
        staged: list[tuple[Path, Path]] = []
        for path, text in files.items():
            with _naming(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                temporary = _folder_aside(path, folders, stack) / str(len(staged))
                _write_aside(temporary, path, text)
                staged.append((temporary, path))
        for temporary, path in staged:
            with _naming(path):
                _move(temporary, path)


def _folder_aside(path: Path, folders: dict[Path, Path], stack: contextlib.ExitStack) -> Path:
    """Return the scratch folder for a file: in the book's .cache, out of everybody's sight, or else beside the file."""
    for root in path.absolute().parents:
        if (root / "chapters").is_dir():
            with contextlib.suppress(OSError):
                return _scratch_in(root / CACHE, folders, stack)
            break
    return _scratch_in(path.parent, folders, stack)


def _scratch_in(place: Path, folders: dict[Path, Path], stack: contextlib.ExitStack) -> Path:
    """Return the scratch folder of this write in a place, made when first asked for."""
    if place not in folders:
        if not place.exists():
            place.mkdir(exist_ok=True)
            stack.callback(_remove_if_empty, place)
        folders[place] = stack.enter_context(Scratch("write", place))
    return folders[place]


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _write_aside(temporary: Path, path: Path, text: str) -> None:
    """Write the text with the permissions that the file has or shall have."""
    with open(temporary, "w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o644)


def _move(temporary: Path, path: Path) -> None:
    """Move a file into place; from another volume by way of the same one, so that it appears whole."""
    try:
        os.replace(temporary, path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with Scratch("write", path.parent) as beside:
            shutil.copy2(temporary, beside / "0")
            os.replace(beside / "0", path)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Make an error of the file system name the file that was to be written."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
