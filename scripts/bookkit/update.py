"""Records what the cells print: runs twice, with other hash seeds and a date a day apart, writes only what agreed."""

from __future__ import annotations

import copy
import datetime
import json
from dataclasses import dataclass
from typing import Any

from .checker import CellVerdict, Names, NotebookVerdict, explain, last_lines, verdict_on_run
from .compare import differences, render
from .needs import LAB
from .notebook import Cell, Chapter, dump, normalise, stdout_output, write_atomic
from .roles import role_failures
from .runner import CellRun, Engine, Failure, Job, NotebookRun


@dataclass
class Outcome:
    """What an update did to one notebook: `recorded`, `unchanged` or `refused`, and the verdict that goes with it."""

    verdict: NotebookVerdict
    word: str
    changes: list[tuple[Cell, list[str]]]


def update(job: Job, engines: tuple[Engine, Engine], names: Names, progress: Any) -> Outcome:
    """Run the job in both engines and record what it printed, if nothing failed and both agree."""
    first = engines[0].run(job, lambda index: progress(job, index))
    second = engines[1].run(job, lambda index: progress(job, index)) if first.clean else None
    verdict = agreement(job, first, second, names)
    if verdict.count("failed"):
        return Outcome(verdict, "refused", [])
    changes = _changes(job, first)
    raw = recorded(job, first)
    text, path = dump(raw), job.chapter.path
    on_disk = path.read_bytes()
    if on_disk == text.encode():
        return Outcome(verdict, "unchanged", changes)
    if not _holds(on_disk, job.chapter.raw):
        cell = verdict.cells[0]
        cell.status, said = "failed", "the notebook was edited while it ran; nothing recorded, run it again"
        cell.failures.append(Failure("edited", said))
        return Outcome(verdict, "refused", [])
    write_atomic(path.resolve(), text)  # of a link, what it leads to
    return Outcome(verdict, "recorded", changes)


def _holds(data: bytes, raw: dict[str, Any]) -> bool:
    """Return whether a file's bytes still are the notebook that was run."""
    try:
        return json.loads(data) == raw
    except (ValueError, RecursionError):
        return False


def agreement(job: Job, first: NotebookRun, second: NotebookRun | None, names: Names) -> NotebookVerdict:
    """Return a verdict on two runs: what failed in either, and every cell in which they differ."""
    chapter = job.chapter
    runs = [run for run in (first, second) if run is not None]
    cells = []
    for index, cell in enumerate(chapter.code_cells):
        verdict = _cell_verdict(job, cell, index, runs)
        for failure in verdict.failures:
            failure.details += explain(failure.message, names(), chapter)
        cells.append(verdict)
    for index, failure in role_failures(chapter):
        cells[index].failures.append(failure)
        cells[index].status = "failed"
    return NotebookVerdict(chapter, cells, sum(run.seconds for run in runs))


def _cell_verdict(job: Job, cell: Cell, index: int, runs: list[NotebookRun]) -> CellVerdict:
    each = [run.cells[index] for run in runs]
    failing = next((run for run in each if run.failures), None)
    telling = failing or next((run for run in each if not run.ran), each[0])
    verdict = verdict_on_run(job, cell, telling, "an earlier cell")
    verdict.seconds = sum(run.seconds for run in each)
    if failing is not None:
        verdict.stderr = last_lines(failing.stderr)
    elif verdict.status == "passed" and not verdict.failures:
        verdict.failures = _flaws(cell, each)
    if verdict.failures:
        verdict.status = "failed"
    return verdict


def _flaws(cell: Cell, runs: list[CellRun]) -> list[Failure]:
    """Return what keeps a cell that ran from being recorded: it should raise and did not, or runs disagree."""
    if "raises-exception" in cell.tags and runs[0].error is None:
        return [Failure("exception", "the cell is tagged raises-exception and raised nothing")]
    if cell.output_class == LAB or len(runs) < 2:
        return []
    lines = differences(runs[0].stdout, runs[1].stdout, ("one run", "another run"))
    if _error(runs[0]) != _error(runs[1]):
        lines += [f"one run raised {_error(runs[0])}, another {_error(runs[1])}"]
    return (
        [Failure("flaky", "two runs print different text: it depends on time, hashing or chance", lines)]
        if lines
        else []
    )


def _error(run: CellRun) -> tuple[str, str] | None:
    return (run.error["ename"], run.error["evalue"]) if run.error else None


def _changes(job: Job, run: NotebookRun) -> list[tuple[Cell, list[str]]]:
    """Return the cells whose recorded output changes, with the diff."""
    pairs = zip(job.chapter.code_cells, run.cells, job.run, strict=True)
    found = [(cell, differences(cell.stdout, _text(cell_run))) for cell, cell_run, wanted in pairs if wanted]
    return [(cell, lines) for cell, lines in found if lines]


def _text(run: CellRun) -> str:
    """Return the text to record: as a terminal would show it, so that no control characters are kept."""
    return render(run.stdout)


def recorded(job: Job, run: NotebookRun) -> dict[str, Any]:
    """Return the notebook with these results: outputs of the cells that ran, execution counts 1 to n, and the date.

    The date, in UTC, is that of the last run that changed an output; the reading edition shows it on each page.
    """
    raw = copy.deepcopy(job.chapter.raw)
    if _changes(job, run) or all(cell.execution_count is None for cell in job.chapter.code_cells):
        raw["metadata"]["agentrl"]["recorded"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    for cell, cell_run, wanted in zip(job.chapter.code_cells, run.cells, job.run, strict=True):
        target = raw["cells"][cell.index]
        if wanted:
            target["outputs"] = stdout_output(_text(cell_run)) + _error_output(cell_run)
            target["execution_count"] = cell.number
        elif target.get("execution_count") is not None:
            target["execution_count"] = cell.number
    return normalise(raw)


def _error_output(run: CellRun) -> list[dict[str, Any]]:
    if run.error is None:
        return []
    name, value = run.error["ename"], run.error["evalue"]
    line = f"{name}: {value}" if value else name
    return [{"output_type": "error", "ename": name, "evalue": value, "traceback": [line]}]


def label(chapter: Chapter, cell: Cell) -> str:
    """Return the place of a cell as the report of an update names it."""
    return f"{chapter.name} · cell {cell.id} (code cell {cell.number})"
