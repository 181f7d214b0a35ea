"""Runs mutations: puts many into few books, runs tools and weakened tools over them, judges each mutation."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import mutantbook
import psutil
from checking import environment, junit_cases, wait_until
from mutation import Kind, Mutation, Sheet
from synthetic import CellDict, code, write_chapter
from weakened import NONE

from bookkit.notebook import write_atomic

WEAKENED = Path(__file__).with_name("weakened.py")
LIMIT = 300.0  # seconds one run of a tool may take before it counts as hanging
CHECK_OPTIONS = ("--no-cache", "--timeout", "5", "--memory", "900000000")
PER_BOOK = 25  # every notebook runs in a copy of its book, so that many small books are quicker than a large one
LIBRARY_TOOLS = ("library", "builder")
MARK = "MUTATION_RUN"  # names a variable in the environment of every process that the tools start
SAVED_LATE = '#@save\ndef saved_late(x: int) -> int:\n    """Return x."""\n    return x'
Findings = dict[str, dict[str, str]]  # by notebook, by cell: what a tool says against it


@dataclass
class Placed:
    """A mutation in a book: its notebooks there by name, and the cells that other mutations change in them."""

    mutation: Mutation
    sheets: dict[str, Sheet]
    shared: set[str] = field(default_factory=set)


@dataclass
class Book:
    """A book of mutations that one tool reads in one run (a book each for the library's tools)."""

    tool: str
    placed: dict[str, list[Placed]] = field(default_factory=dict)
    notebooks: list[list[Sheet]] = field(default_factory=list)
    size: int = 0
    root: Path = Path()


@dataclass
class Result:
    """What came of a kind: why a mutation is not caught, by title, and the titles that the weakened tool misses."""

    kind: Kind
    wrong: dict[str, str] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether every mutation is caught, and the weakened tool misses one."""
        return not self.wrong and bool(self.missed)


@dataclass
class Suite:
    """What came of all kinds, and what the runs of the tools as they are left behind: processes, changed files."""

    results: list[Result]
    processes: list[str]
    changed: list[str]
    scratch: list[str]

    @property
    def good(self) -> bool:
        """Whether every kind is good and nothing was left or changed."""
        return all(result.good for result in self.results) and not (self.processes or self.changed or self.scratch)


# Putting mutations into books


def place_all(kinds: Iterable[Kind]) -> list[Book]:
    """Return books that hold every mutation; kinds with one weakness stand together, so that it needs few runs."""
    books: dict[str, list[Book]] = {}
    for kind in sorted(kinds, key=lambda kind: kind.weakness):
        if kind.tool in LIBRARY_TOOLS:
            continue
        shelf = books.setdefault(kind.tool, [Book(kind.tool)])
        groups = list(shared_notebooks(kind.mutations))
        needed = sum(max(len(group[0].sheets), 1) for group, _ in groups)
        if shelf[-1].size + needed > PER_BOOK:
            shelf.append(Book(kind.tool))
        for group, sheets in groups:
            place(shelf[-1], kind.name, group, sheets)
    return [book for shelf in books.values() for book in shelf]


def shared_notebooks(mutations: Iterable[Mutation]) -> Iterator[tuple[list[Mutation], list[Sheet]]]:
    """Yield groups of mutations and the notebooks that each group makes: copies of one chapter are shared."""
    open_groups: dict[str, list[list[Mutation]]] = {}
    groups: list[list[Mutation]] = []
    for mutation in mutations:
        candidates = open_groups.setdefault(mutation.copied, []) if can_share(mutation) else []
        fitting = (g for g in candidates if not any(set(m.changed) & set(mutation.changed) for m in g))
        group = next(fitting, None)
        if group is None:
            group = []
            groups.append(group)
            candidates.append(group)
        group.append(mutation)
    for group in groups:
        yield group, merged(group)


def can_share(mutation: Mutation) -> bool:
    """Return whether a mutation says all about the notebook it stands in."""
    return bool(mutation.copied) and not mutation.others_may_fail


def merged(group: list[Mutation]) -> list[Sheet]:
    """Return the notebooks of a group: of copies of one chapter, one with every change."""
    sheets = copy.deepcopy(group[0].sheets)
    for mutation in group[1:]:
        theirs = {cell["id"]: cell for cell in mutation.sheets[0].cells}
        cells = [theirs[cell["id"]] if cell["id"] in mutation.changed else cell for cell in sheets[0].cells]
        sheets = [Sheet(cells, {**sheets[0].fails, **mutation.sheets[0].fails})]
    return sheets


def place(book: Book, kind: str, group: list[Mutation], sheets: list[Sheet]) -> None:
    """Add the notebooks of a group to a book."""
    names = [f"{10 + book.size + n:02}-mutation" for n in range(len(sheets))]
    book.size += len(sheets)
    book.notebooks.append(sheets)
    everything = {cell for sheet in sheets for cell in sheet.fails}
    for mutation in group:
        own = dict(zip(names, mutation.sheets, strict=True))
        book.placed.setdefault(kind, []).append(Placed(mutation, own, everything))


def write(book: Book, root: Path) -> None:
    """Write a book of mutations behind the true chapters, and behind them one that saves a name too late for all."""
    book.root = mutantbook.write(root, library=False)
    number = 10
    for sheets in book.notebooks:
        for sheet in sheets:
            name = f"{number:02}-mutation"
            number += 1
            cells: list[CellDict] = [code("placeholder", "x = 1")] if sheet.solutions else sheet.cells
            write_chapter(root, name, cells, module=f"shelf_{name[:2]}", title="A mutation")
            if sheet.solutions:
                write_chapter(root, name, sheet.cells, title="A mutation", kind="solutions")
    write_chapter(root, "Z-last", [code("saved-late", SAVED_LATE)], module="shelf_z")


# Running the tools


def run(weakness: str, tool: str, *arguments: str, mark: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a tool, as it is or weakened, in an environment that marks every process it starts.

    It has to come to its end: a weakened tool that breaks down misses nothing.
    """
    command = [sys.executable, str(WEAKENED), weakness, tool, *arguments]
    env = environment(**{MARK: mark, "TMPDIR": str(folder)})
    nobody = subprocess.DEVNULL
    done = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", timeout=LIMIT, stdin=nobody)
    if done.returncode not in (0, 1, 2) or "Traceback" in done.stderr:
        raise RuntimeError(f"{tool} with weakness {weakness} did not come to its end: {done.stdout}{done.stderr}")
    return done


def check_book(book: Book, weakness: str, mark: str, folder: Path) -> Findings:
    """Run the checker over the mutations of a book, and return what it says against them."""
    junit = folder / f"{uuid.uuid4().hex}.xml"
    keys = [f"{10 + number}" for number in range(book.size)]
    options = [*CHECK_OPTIONS, *(["--update"] if book.tool == "update" else [])]
    options += ["-j", "1" if weakness == "plain-exec" else "3", "--junit", str(junit), "--root", str(book.root)]
    done = run(weakness, "check", *keys, *options, mark=mark, folder=folder)
    found: Findings = {}
    for suite, cases in junit_cases(junit).items():
        failed = {cell: f"{case.message}\n{case.text}" for cell, case in cases.items() if case.status == "failed"}
        found.setdefault(f"{suite[:2]}-mutation", {}).update(failed)
    for line in done.stdout.splitlines():
        path, problem, text = line.partition(".ipynb: error: ")
        if problem:
            found[path.removeprefix("chapters/")] = {"": text}
    return found


def lint_book(book: Book, weakness: str, mark: str, folder: Path) -> Findings:
    """Run the linter over a book, and return what it says about what stands in the notebooks' files."""
    found: Findings = {name: {} for each in book.placed.values() for placed in each for name in placed.sheets}
    for line in run(weakness, "lint", "--root", str(book.root), mark=mark, folder=folder).stdout.splitlines():
        place, _, text = line.partition(": error: ")
        path, _, rest = place.partition(".ipynb · cell ")
        name, cell = path.removeprefix("chapters/"), rest.split(" · ")[0]
        if name in found and "[L1" in text:
            found[name][cell] = found[name].get(cell, "") + text + "\n"
    return found


def library_books(kind: Kind, weakness: str, mark: str, folder: Path) -> Findings:
    """Run the builder over one book a mutation: `--check` of the library as it was, or a build of a new one."""
    calls = []
    for number, mutation in enumerate(kind.mutations):
        root = folder / f"{weakness}-{kind.name}-{number}".replace(" ", "-")
        mutantbook.write(root)
        for name, cells in mutation.chapters.items():
            write_chapter(root, name, cells)
        for name, change in mutation.files.items():
            text = "x = 1\n" if change is None else (root / name).read_text(encoding="utf-8").replace(*change, 1)
            write_atomic(root / name, text)
        calls.append(["--root", str(root), *(["--check"] if kind.tool == "library" else ["--out", str(root / "out")])])
    done = run(weakness, "library", "--calls", json.dumps(calls), mark=mark, folder=folder)
    pairs = zip(kind.mutations, json.loads(done.stdout), strict=True)
    return {mutation.title: {"": said["text"]} if said["code"] else {} for mutation, said in pairs}


# Judging


def objection(placed: Placed, found: Findings) -> str:
    """Return how a tool's findings differ from what has to be found of a mutation; "" when they do not."""
    for name, sheet in placed.sheets.items():
        if name not in found:
            return f"{name}: no result"
        failed = found[name]
        for cell, words in sheet.fails.items():
            if cell not in failed:
                return f"{name}: cell {cell!r} passes"
            absent = [word for word in words if word not in failed[cell]]
            if absent:
                return f"{name}: cell {cell!r}: {absent} not in {failed[cell][:400]!r}"
        extra = failed.keys() - sheet.fails.keys() - placed.shared
        if extra and not placed.mutation.others_may_fail:
            return f"{name}: {sorted(extra)} fail too: {failed[min(extra)][:300]!r}"
    return ""


def is_missed(placed: Placed, found: Findings) -> bool:
    """Return whether a tool does not notice a mutation: nothing it should say, or, of one that has to pass, a word."""
    if not placed.sheets.keys() <= found.keys():
        return False
    due = [(name, cell) for name, sheet in placed.sheets.items() for cell in sheet.fails]
    if due:
        return not any(cell in found[name] for name, cell in due)
    return any(found[name] for name in placed.sheets)


def library_placed(kind: Kind) -> list[Placed]:
    """Return the mutations of a kind as notebooks of that name in which nothing but the words is expected."""
    return [Placed(m, {m.title: Sheet([], {"": m.words})}) for m in kind.mutations]


# All together


def run_kinds(kinds: list[Kind]) -> Suite:
    """Run and judge every mutation of these kinds."""
    folder = Path(tempfile.mkdtemp(prefix="mutations-"))
    mark = uuid.uuid4().hex
    try:
        return _run_kinds(kinds, folder, mark)
    finally:
        for process in marked(mark):
            with contextlib.suppress(psutil.Error):
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _run_kinds(kinds: list[Kind], folder: Path, mark: str) -> Suite:
    results = {kind.name: Result(kind) for kind in kinds}
    strict, weak = folder / "strict", folder / "weak"
    with ThreadPoolExecutor(2) as pool:
        books = written(place_all(kinds), strict)
        before = tree(strict)
        runs = pool.map(lambda book: findings(book, NONE, f"{mark}-strict", strict / "scratch"), books)
        for book, found in zip(books, runs, strict=True):
            for name, placed in book.placed.items():
                note_wrong(results[name], placed, found)
        wait_until(lambda: not marked(f"{mark}-strict"))
        processes = [" ".join(process.cmdline()) for process in marked(f"{mark}-strict")]
        changed = sorted({name for name, _ in before.items() ^ tree(strict).items()})
        left = [path.name for path in (strict / "scratch").iterdir() if path.suffix != ".xml"]
        groups = [(weakness, book) for weakness, group in by_weakness(kinds) for book in place_all(group)]
        written([book for _, book in groups], weak)
        runs = pool.map(lambda each: findings(each[1], each[0], f"{mark}-weak", weak / "scratch"), groups)
        for (_, book), found in zip(groups, runs, strict=True):
            for name, placed in book.placed.items():
                note_missed(results[name], placed, found)
        library = [kind for kind in kinds if kind.tool in LIBRARY_TOOLS]
        for weakness in ("", NONE):
            runs = pool.map(lambda kind: library_books(kind, weakness or kind.weakness, mark, weak), library)  # noqa: B023
            for kind, found in zip(library, runs, strict=True):
                note = note_missed if not weakness else note_wrong
                note(results[kind.name], library_placed(kind), found)
    return Suite(list(results.values()), processes, changed, left)


def written(books: list[Book], folder: Path) -> list[Book]:
    """Write the books below a folder that also has room for what their runs need, and return them."""
    (folder / "scratch").mkdir(parents=True)
    for number, book in enumerate(books):
        write(book, folder / f"book-{number}")
    return books


def findings(book: Book, weakness: str, mark: str, folder: Path) -> Findings:
    """Run the tool of a book over it."""
    return (lint_book if book.tool == "linter" else check_book)(book, weakness, mark, folder)


def by_weakness(kinds: Iterable[Kind]) -> Iterator[tuple[str, list[Kind]]]:
    """Yield each weakness with the kinds to try it on; one kind at a time where all cells share a process."""
    together: dict[tuple[str, str], list[Kind]] = {}
    for kind in kinds:
        apart = kind.name if kind.weakness == "plain-exec" else ""
        together.setdefault((kind.weakness, apart), []).append(kind)
    for (weakness, _), group in together.items():
        yield weakness, group


def note_wrong(result: Result, placed: list[Placed], found: Findings) -> None:
    """Note the mutations of a kind that are not caught."""
    for each in placed:
        why = objection(each, found)
        if why:
            result.wrong[each.mutation.title] = why


def note_missed(result: Result, placed: list[Placed], found: Findings) -> None:
    """Note the mutations of a kind that the weakened tool misses."""
    result.missed += [each.mutation.title for each in placed if is_missed(each, found)]


def marked(mark: str) -> list[psutil.Process]:
    """Return the live processes whose environment carries a mark."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK, "").startswith(mark):
                found.append(process)
    return found


def tree(folder: Path) -> dict[str, str]:
    """Return a digest of every file of the books below a folder, caches left out."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("book-*/**/*"))
        if path.is_file() and ".cache" not in path.parts
    }


def print_table(suite: Suite) -> None:
    """Print what came of every kind, and why, where a mutation is not caught."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table("kind", "judged by", box=box.SIMPLE)
    for name in ("mutations", "caught"):
        table.add_column(name, justify="right")
    table.add_column("a tool with the weakness")
    table.add_column("misses", justify="right")
    for result in suite.results:
        every = len(result.kind.mutations)
        row = (result.kind.name, result.kind.tool, str(every), str(every - len(result.wrong)), result.kind.weakness)
        table.add_row(*row, f"{len(result.missed)} of {every}", style=None if result.good else "bold red")
    every = sum(len(result.kind.mutations) for result in suite.results)
    wrong = sum(len(result.wrong) for result in suite.results)
    missed = sum(len(result.missed) for result in suite.results)
    table.add_section()
    table.add_row(f"{len(suite.results)} kinds", "", str(every), str(every - wrong), "", f"{missed} of {every}")
    console = Console(width=None if sys.stdout.isatty() else 130)
    console.print(table)
    for result in suite.results:
        for title, why in result.wrong.items():
            console.print(f"{result.kind.name} · {title}: {why}", style="red", markup=False, highlight=False)
    left = f"left behind: {len(suite.processes)} processes, {len(suite.scratch)} folders"
    names = [*suite.processes, *suite.scratch, *suite.changed]
    console.print(f"{left}; changed: {len(suite.changed)} files", *names, markup=False, highlight=False)
