"""Checks that every cell of the book prints what is recorded: plan, run or take from the cache, compare, judge."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

from . import library
from .cache import Cache, LibraryCache, key_of
from .compare import differences
from .libguard import LIBRARY
from .looks import looks_around
from .needs import LAB, may_be_missing, missing, model_folder
from .notebook import Book, Cell, Chapter, load_book, load_chapter, order
from .problems import BookError, Problem, count, relative
from .roles import probes, role_failures
from .runner import CellRun, Engine, EngineError, Failure, Job, NotebookRun
from .stage import Entry, Tree, entries

Status = Literal["passed", "failed", "skipped"]
T = TypeVar("T")
Missing = Mapping[str, "library.SavedName"]
Names = Callable[[], Missing]
STDERR_LINES = 20


class Refused(Exception):
    """The check cannot be done as asked; says why."""


@dataclass
class CellVerdict:
    """What the check says about one code cell. `notes` are reported and fail nothing."""

    cell: Cell
    status: Status
    failures: list[Failure] = field(default_factory=list)
    notes: list[Failure] = field(default_factory=list)
    skipped: str = ""
    seconds: float = 0.0
    stderr: str = ""


@dataclass
class NotebookVerdict:
    """What the check says about one notebook. `engine_error` is what kept it from running, when the engine failed."""

    chapter: Chapter
    cells: list[CellVerdict]
    seconds: float = 0.0
    cached: bool = False
    engine_error: str = ""

    @property
    def status(self) -> str:
        """Return `ok`, `cached` (and ok), `differs` (it ran, its output changed), `failed`, or `not run`."""
        if self.engine_error:
            return "not run"
        kinds = {f.kind for c in self.cells for f in c.failures}
        if kinds - {"differs"}:
            return "failed"
        return "differs" if kinds else "cached" if self.cached else "ok"

    def count(self, status: Status) -> int:
        """Return how many of the cells have this status."""
        return sum(cell.status == status for cell in self.cells)


@dataclass(frozen=True)
class Plan:
    """What will be checked: the readable book, the notebooks chosen, what stands in the way (exit code 2).

    `damaged` names the cached libraries that could not be used, `left_out` the notebooks that cannot be checked.
    """

    book: Book
    jobs: tuple[Job, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...] = ()
    damaged: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def make_plan(root: Path, prefixes: Sequence[str], remember: bool = True, solutions: bool = True) -> Plan:
    """Read the book, choose the notebooks, build the library each may see. Refused when a prefix matches nothing.

    With `remember` the built libraries are kept in the cache; without `solutions` chapters alone are chosen.
    """
    _refuse_temporary_files_in(root / "chapters")
    book, unreadable = _load(root)
    if not any(book.notebooks()) and not unreadable:
        raise Refused(f"there is no chapter in {root / 'chapters'}")
    keys = {(_key_of(p.path), p) for p in unreadable}
    chosen = _select(book, prefixes, {key for key, _ in keys if key}, solutions)
    wanted = [key for key, _ in keys if key and any(key.startswith(p.split("/")[0]) for p in prefixes)]
    last = max(map(order, [c.key for c in chosen] + wanted), default=(False, ""))
    blocking, others = [], []
    for key, problem in keys:
        matters = not prefixes or key is None or order(key) <= last
        (blocking if matters else others).append(problem)
    libraries = LibraryCache(cache_folder(root), book) if remember else None
    jobs, failed = _placed_jobs(book, chosen, libraries)
    if not prefixes:
        failed += _build_problems(lambda: whole_library(book, libraries))
    if libraries is not None:
        libraries.save()
    problems = tuple(sorted({*blocking, *failed}, key=lambda p: (p.path, p.file_line or 0, p.message)))
    damaged = tuple(libraries.damaged) if libraries is not None else ()
    placed = [job.chapter for job in jobs]
    left_out = tuple(chapter.label for chapter in chosen if chapter not in placed)
    return Plan(book, tuple(jobs), problems, tuple(replace(p, level="warning") for p in others), damaged, left_out)


def _load(root: Path) -> tuple[Book, list[Problem]]:
    """Return the book, without the notebooks that cannot be read, and what is wrong with those."""
    try:
        return load_book(root), []
    except BookError as error:
        bad = {problem.path for problem in error.problems}
        if not (root / "chapters").is_dir():
            raise
        return Book(root, _readable(root, "chapter", bad), _readable(root, "solutions", bad)), error.problems


def _readable(root: Path, kind: Literal["chapter", "solutions"], bad: set[str]) -> tuple[Chapter, ...]:
    folder = root / "chapters" if kind == "chapter" else root / "chapters" / "solutions"
    paths = [p for p in folder.glob("*.ipynb") if relative(p, root) not in bad]
    return tuple(sorted((load_chapter(p, root, kind) for p in paths), key=lambda c: order(c.key)))


def _key_of(path: str) -> str | None:
    key, dash, _ = Path(path).name.partition("-")
    return key if dash else None


def _select(book: Book, prefixes: Sequence[str], unreadable: set[str], solutions: bool) -> list[Chapter]:
    """Return the notebooks whose label starts with one of the prefixes, all when there is none."""
    notebooks = [chapter for chapter in book.notebooks() if solutions or chapter.kind == "chapter"]
    labels = [c.label for c in notebooks]
    for prefix in prefixes:
        if not any(label.startswith(prefix) for label in [*labels, *unreadable]):
            raise Refused(f"no chapter starts with {prefix!r}; there are {', '.join(labels) or 'none'}")
    return [c for c in notebooks if not prefixes or any(c.label.startswith(p) for p in prefixes)]


def _refuse_temporary_files_in(chapters: Path) -> None:
    """Raise Refused when temporary files go below chapters/: each copy of the chapters would hold all others."""
    folder = Path(tempfile.gettempdir()).resolve()
    if folder.is_relative_to(chapters.resolve()):
        raise Refused(f"temporary files go to {folder}, in the book's chapters: set TMPDIR to another folder")


def _placed_jobs(
    book: Book, chosen: Sequence[Chapter], libraries: LibraryCache | None
) -> tuple[list[Job], list[Problem]]:
    """Return the jobs, and what is wrong with links below chapters/, their library, or the notebooks as files."""
    astray = [
        problem for path in (book.root / "chapters", *(c.path for c in chosen)) for problem in _astray(path, book)
    ]
    if astray:
        return [], astray
    try:
        helpers = _helpers(entries(book.root))
    except BookError as error:
        return [], list(error.problems)
    except OSError as error:
        return [], [Problem("chapters", None, None, f"cannot be read: {error}")]
    return _jobs(book, chosen, helpers, libraries)


def _astray(path: Path, book: Book) -> list[Problem]:
    """Return a problem when a notebook, or chapters/, is a link to what is outside the book's folder."""
    real = path.resolve()
    if real.is_relative_to(book.root.resolve()):
        return []
    name = path.relative_to(book.root).as_posix()
    return [Problem(name, None, None, f"a link to {real}, which is outside the book's folder {book.root}")]


def _jobs(
    book: Book, chosen: Iterable[Chapter], helpers: Sequence[str], libraries: LibraryCache | None
) -> tuple[list[Job], list[Problem]]:
    model = model_folder(book.root)
    lacking = missing({cell.output_class for each in book.notebooks() for cell in each.code_cells}, model)
    jobs: list[Job] = []
    problems: list[Problem] = []
    for chapter in chosen:
        try:
            modules = visible_library(book, chapter, libraries)
        except BookError as error:
            problems += error.problems
            continue
        problems += _must_run(chapter, lacking)
        run = tuple(_runs(cell, lacking) for cell in chapter.code_cells)
        sources = [*book.code_of(chapter), *helpers]
        used = [*modules.values()] if any(LIBRARY in text for text in sources) else []
        around = looks_around(chapter.path.name if chapter.kind == "solutions" else "", sources, used)
        # The model is for lab cells: solutions run their chapter, and would load it for nothing.
        folder = model if any(cell.output_class == LAB for cell in chapter.code_cells) else None
        texts = (*sources, *used)
        jobs.append(Job(chapter, modules, run, probes(chapter), folder, lacking, around, texts))
    return jobs, problems


def _helpers(files: Iterable[Entry]) -> list[str]:
    """Return the text of the Python files below chapters/, which any notebook may import."""
    paths = [entry.path for entry in files if entry.name.endswith(".py") and not entry.folder]
    return [path.read_text(encoding="utf-8", errors="replace") for path in paths if path.exists()]


def visible_library(book: Book, chapter: Chapter, libraries: LibraryCache | None) -> dict[str, str]:
    """Return the library a notebook may import: a chapter what was saved before it, solutions their chapter's too."""

    def build() -> dict[str, str]:
        if chapter.kind == "solutions":
            return library.build(book, through=chapter.key)
        return library.build(book, before=chapter.key)

    return libraries.get(chapter.label, build) if libraries is not None else build()


def whole_library(book: Book, libraries: LibraryCache | None) -> dict[str, str]:
    """Return the library of all chapters: what the last of them saves is in no other."""
    return libraries.get("*", lambda: library.build(book)) if libraries is not None else library.build(book)


def _build_problems(build: Callable[[], object]) -> list[Problem]:
    try:
        build()
    except BookError as error:
        return list(error.problems)
    return []


def _runs(cell: Cell, lacking: Mapping[str, str]) -> bool:
    return bool(cell.source.strip()) and cell.output_class not in lacking


def _must_run(chapter: Chapter, lacking: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a problem for each class of cells that cannot run here and may not be skipped."""
    for output_class, why in lacking.items():
        cells = [cell for cell in chapter.code_cells if cell.output_class == output_class]
        if cells and not may_be_missing(output_class):
            ids = ", ".join(cell.id for cell in cells)
            said = f"{count(len(cells), f'{output_class} cell')} cannot run ({why}), and in CI none is skipped: {ids}"
            yield chapter.problem(cells[0], None, said)


Ready = Callable[["NotebookVerdict"], None]
Progress = Callable[[Job, int], None]


def check(
    plan: Plan,
    engine: Engine,
    store: Cache | None,
    pins: Mapping[str, str],
    jobs: int,
    ready: Ready,
    progress: Progress,
) -> list[NotebookVerdict]:
    """Run every job of the plan, `jobs` at once, and call `ready` with each verdict in the order of the book."""
    lock = _lock_text(plan.book.root)
    names = cache(lambda: book_names(plan.book))
    tree = Tree(plan.book.root)
    seen = {job.chapter.label: tree.seen_by(job) if store is not None else "" for job in plan.jobs}
    keys = {job.chapter.label: key_of(job, pins, lock, seen[job.chapter.label]) for job in plan.jobs}
    known = {label: run for label, run in _from_cache(plan.jobs, keys, store) if run is not None}
    missing = [job for job in plan.jobs if job.chapter.label not in known]

    def one(job: Job) -> NotebookVerdict:
        label = job.chapter.label
        if label in known:
            return judge(job, known[label], names, cached=True)
        try:
            run = engine.run(job, lambda index: progress(job, index))
        except EngineError as error:
            return not_run(job, str(error))
        if store is not None and run.seen == seen[label]:  # else a file was edited after its key had been made
            store.store(job, keys[label], run)
        return judge(job, run, names)

    cached = [job for job in plan.jobs if job.chapter.label in known]
    return in_order(plan.jobs, one, jobs, ready, cached + engine.prepare(missing))


def _from_cache(
    jobs: Iterable[Job], keys: Mapping[str, str], store: Cache | None
) -> Iterator[tuple[str, NotebookRun | None]]:
    """Yield each job's results of an earlier run, or None."""
    for job in jobs:
        label = job.chapter.label
        yield label, store.load(job, keys[label]) if store is not None else None


def in_order(
    jobs: Sequence[Job],
    work: Callable[[Job], T],
    parallel: int,
    ready: Callable[[T], None],
    queue: Sequence[Job],
) -> list[T]:
    """Return the results of `work` for each job, done side by side, each announced once all before it are.

    The jobs are begun as they stand in `queue`, which holds the same jobs.
    """
    results: list[T] = []
    pool = ThreadPoolExecutor(max(1, parallel))
    try:
        begun: dict[int, Future[T]] = {id(job): pool.submit(work, job) for job in queue}
        for job in jobs:
            results.append(begun[id(job)].result())
            ready(results[-1])
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return results


def open_cache(root: Path) -> Cache:
    """Return the book's cache."""
    return Cache(cache_folder(root))


def cache_folder(root: Path) -> Path:
    """Return where a book's cache stands."""
    return root / ".cache" / "checker"


def _lock_text(root: Path) -> str:
    path = root / "requirements.lock"
    return path.read_text(encoding="utf-8", errors="backslashreplace") if path.exists() else ""


def book_names(book: Book) -> Missing:
    """Return every saved name, none when the book's saved cells cannot be read."""
    try:
        return library.names(book)
    except BookError:
        return {}


def judge(job: Job, run: NotebookRun, names: Names, cached: bool = False) -> NotebookVerdict:
    """Return the verdict on a run: each cell's failures, its recorded text against what it printed now."""
    chapter = job.chapter
    static = _static_failures(chapter)
    stopped = chapter.code_cells[run.stopped].id if run.stopped is not None else ""
    cells = []
    for index, (cell, cell_run) in enumerate(zip(chapter.code_cells, run.cells, strict=True)):
        verdict = _judge_cell(job, cell, cell_run, stopped)
        verdict.failures = static[index] + verdict.failures
        if verdict.failures:
            verdict.status = "failed"
        for failure in verdict.failures:
            failure.details += explain(failure.message, names(), chapter)
        cells.append(verdict)
    return NotebookVerdict(chapter, cells, run.seconds, cached)


def not_run(job: Job, why: str) -> NotebookVerdict:
    """Return the verdict on a notebook that could not run, because the engine failed."""
    cells = [CellVerdict(cell, "skipped", skipped="not run: the engine failed") for cell in job.chapter.code_cells]
    return NotebookVerdict(job.chapter, cells, engine_error=why)


def _judge_cell(job: Job, cell: Cell, run: CellRun, stopped: str) -> CellVerdict:
    verdict = verdict_on_run(job, cell, run, f"cell {stopped}")
    if verdict.status == "passed" and not verdict.failures:
        _compare(verdict, cell, run)
    if verdict.failures:
        verdict.stderr = last_lines(run.stderr)
    return verdict


def last_lines(stderr: str) -> str:
    """Return the end of what a cell wrote to stderr, as a report shows it."""
    return "\n".join(stderr.rstrip().splitlines()[-STDERR_LINES:])


def verdict_on_run(job: Job, cell: Cell, run: CellRun, stopper: str) -> CellVerdict:
    """Return what is to be said of a cell before its output is looked at: how it failed, or why it did not run."""
    verdict = CellVerdict(cell, "passed", list(run.failures), seconds=run.seconds)
    if not cell.source.strip():
        verdict.failures.append(Failure("record", "the code cell is empty"))
    elif cell.output_class in job.missing:
        verdict.status, verdict.skipped = "skipped", job.missing[cell.output_class]
    elif not run.ran and not run.failures:
        verdict.status, verdict.skipped = "skipped", f"not run: {stopper} failed"
    return verdict


def _compare(verdict: CellVerdict, cell: Cell, run: CellRun) -> None:
    """Add what differs: the exception a tag announces, and the output; of lab cells only as a note."""
    if "raises-exception" in cell.tags:
        verdict.failures += _expected_exception(cell, run)
    lines = differences(cell.stdout, run.stdout)
    if lines and cell.output_class == LAB:
        verdict.notes.append(Failure("differs", "lab output differs from the recorded one", lines))
    elif lines:
        verdict.failures.append(Failure("differs", "output differs", lines))


def _expected_exception(cell: Cell, run: CellRun) -> Iterator[Failure]:
    recorded = next((o for o in cell.outputs if o.get("output_type") == "error"), None)
    if run.error is None:
        yield Failure("exception", "the cell is tagged raises-exception and raised nothing")
    elif recorded is not None and recorded.get("ename") != run.error["ename"]:
        said = f"{recorded.get('ename')} is recorded, the cell raised {run.error['ename']}: {run.error['evalue']}"
        yield Failure("exception", said)


def _static_failures(chapter: Chapter) -> list[list[Failure]]:
    """Return what is wrong with each code cell as recorded, before anything runs."""
    found = [_record_failures(cell) for cell in chapter.code_cells]
    expected = 1
    for cell, failures in zip(chapter.code_cells, found, strict=True):
        count = cell.execution_count
        if count is None:
            said = "never run: its execution count is null; --update runs it and records what it prints"
            failures.append(Failure("record", said))
        elif count != expected:
            said = f"execution count {count} where {expected} should stand: the notebook was not run top to bottom"
            failures.append(Failure("record", said))
        expected = (count or expected) + 1 if count is None or count >= expected else expected + 1
    for index, failure in role_failures(chapter):
        found[index].append(failure)
    return found


def _record_failures(cell: Cell) -> list[Failure]:
    failures = []
    for output in cell.outputs:
        kind = output.get("output_type")
        if kind == "error" and "raises-exception" in cell.tags:
            continue
        if kind != "stream" or output.get("name") != "stdout":
            what = f"{output.get('name')} stream" if kind == "stream" else f"output of type {kind}"
            failures.append(Failure("record", f"records an {what}".replace("an std", "a std") + ": the book prints"))
    return failures


def explain(message: str, names: Missing, chapter: Chapter) -> list[str]:
    """Return a line that says where a missing library name comes from, when a chapter saves it."""
    patterns = (
        r"AttributeError: .*module 'agentrl(?:\.\w+)?' has no attribute '(\w+)'",
        r"ImportError: cannot import name '(\w+)' from 'agentrl",
        r"ModuleNotFoundError: No module named 'agentrl\.(\w+)'",
    )
    for pattern in patterns:
        match = re.search(pattern, message)
        if match is None:
            continue
        name = match[1]
        saved = names.get(name) or next((n for n in names.values() if n.module == name), None)
        if saved is not None:
            return [_where(name, saved, chapter)]
    match = re.search(r"NameError: name '(\w+)' is not defined", message)
    if match and match[1] in names and order(names[match[1]].chapter_key) < order(chapter.key):
        return [f"chapter {names[match[1]].chapter_key} saves it: write arl.{match[1]}"]
    return []


def _where(name: str, saved: library.SavedName, chapter: Chapter) -> str:
    """Return why a chapter cannot see a saved name."""
    key = saved.chapter_key
    if order(key) > order(chapter.key):
        return f"{name} is saved in chapter {key} (cell {saved.cell_id}), which comes after {chapter.label}"
    if key == chapter.key:
        return f"{name} is saved by this chapter (cell {saved.cell_id}): use it without arl."
    return f"{name} is saved in chapter {key} (cell {saved.cell_id}) as {saved.module}.{saved.name}"
