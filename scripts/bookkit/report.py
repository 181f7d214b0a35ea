"""Says how a check went: on a terminal, in plain lines, as GitHub annotations, as JUnit XML."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO
from xml.etree import ElementTree

from .checker import CellVerdict, NotebookVerdict, Plan
from .needs import HOW_COMPARED
from .notebook import Chapter, write_atomic
from .problems import Problem, count, on_github
from .runner import Failure, Job

NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
TITLE_WIDTH = 44
ACCEPTABLE = {"differs"}


class Report:
    """Plain lines: one a notebook, what is wrong below it, a summary."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stdout
        self.annotate = on_github()

    def line(self, text: str = "", style: str = "") -> None:
        """Print one line; `style` is for terminals."""
        encoding = self.stream.encoding or "utf-8"
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=self.stream, flush=True)

    def start(self, jobs: Sequence[Job]) -> None:
        """Begin: nothing to say in plain lines."""

    def progress(self, job: Job, index: int) -> None:
        """A cell begins: nothing to say in plain lines."""

    def stop(self) -> None:
        """End the progress display."""

    def problem(self, problem: Problem) -> None:
        """Print a problem that keeps something from running, and annotate it."""
        self.line(str(problem), style="red" if problem.level == "error" else "yellow")
        self.annotation(problem)

    def annotation(self, problem: Problem) -> None:
        """Print a problem as a GitHub annotation when GitHub is listening."""
        if self.annotate:
            self.line(problem.github())

    def notebook(self, verdict: NotebookVerdict, word: str = "") -> None:
        """Print a notebook's line and, below it, everything that is wrong in it."""
        chapter, status = verdict.chapter, word or verdict.status
        title = chapter.title if len(chapter.title) <= TITLE_WIDTH else chapter.title[: TITLE_WIDTH - 1] + "…"
        cells = f"{len(verdict.cells):>3} {'cell ' if len(verdict.cells) == 1 else 'cells'}"
        good = status in ("ok", "cached", "recorded", "unchanged")
        self.line(
            f"{chapter.label:<13} {title:<{TITLE_WIDTH}} {cells} {verdict.seconds:>6.1f} s  {status}",
            style="green" if good else "bold red",
        )
        for cell in verdict.cells:
            for failure in cell.failures:
                self.failure(chapter, cell, failure, "FAIL")
            for note in cell.notes:
                self.failure(chapter, cell, note, "note")
        not_run = [c for c in verdict.cells if c.status == "skipped" and c.skipped.startswith("not run")]
        if not_run:
            ids = ", ".join(c.cell.id for c in not_run[:6]) + (", …" if len(not_run) > 6 else "")
            self.line(f"  {count(len(not_run), 'cell')} {not_run[0].skipped} ({ids})", style="yellow")

    def failure(self, chapter: Chapter, verdict: CellVerdict, failure: Failure, word: str) -> None:
        """Print one failure with its place, details and the end of stderr, and annotate it."""
        cell = verdict.cell
        problem = chapter.problem(cell, failure.line, failure.message, code=failure.kind)
        at = f", line {problem.file_line} of the file" if problem.file_line else ""
        inside = f", line {failure.line} of the cell" if failure.line else ""
        place = f"{chapter.name} · cell {cell.id} (code cell {cell.number}{inside}{at})"
        self.line(f"  {word} {place}: {failure.message}", style="red" if word == "FAIL" else "yellow")
        for line in failure.details:
            style = {"-": "red", "+": "green"}.get(line[:1], "")
            self.line(f"      {line}".rstrip(), style=style)
        if failure.kind in ACCEPTABLE and word == "FAIL":
            self.line(f"      to accept it: python scripts/check_chapters.py {chapter.label} --update")
        if verdict.stderr and failure is verdict.failures[0]:
            self.line("      stderr:")
            for line in verdict.stderr.splitlines():
                self.line(f"        {line}")
        if word == "FAIL":
            self.annotation(problem)

    def summary(self, verdicts: Iterable[NotebookVerdict], plan: Plan, damaged: Sequence[str] = ()) -> None:
        """Print which cells were skipped for what they need and, as the last line, how many passed, failed, skipped."""
        cells = [(v.chapter, c) for v in verdicts for c in v.cells]
        for name, how in HOW_COMPARED.items():
            self._needing(name, how, [(chapter, c) for chapter, c in cells if c.cell.output_class == name])
        if damaged:
            self.line(f"cache: {len(damaged)} damaged {'entry' if len(damaged) == 1 else 'entries'} ignored")
        if plan.problems:
            left_out = f"; left out: {', '.join(plan.left_out)}" if plan.left_out else ""
            stood = f"{count(len(plan.problems), 'problem')} above stood in the way"
            self.line(f"not everything could be checked: {stood}{left_out}")
        passed, failed, skipped = (sum(c.status == s for _, c in cells) for s in ("passed", "failed", "skipped"))
        self.line(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))

    def _needing(self, name: str, how: str, cells: Sequence[tuple[Chapter, CellVerdict]]) -> None:
        """Print how many cells of a class ran, and by name and reason those that were skipped."""
        skipped: dict[str, list[str]] = {}
        for chapter, verdict in cells:
            if verdict.status == "skipped":
                skipped.setdefault(verdict.skipped, []).append(f"{chapter.label} · {verdict.cell.id}")
        number = sum(map(len, skipped.values()))
        which = ", ".join(f"{', '.join(names)} ({why})" for why, names in skipped.items())
        if cells:
            done = f"{len(cells) - number} run, {number} skipped"
            self.line(f"{name} cells, compared {how}: {len(cells)}, {done}" + (f": {which}" if which else ""))


class RichReport(Report):
    """The same lines in colour, above a bar that shows which cells are running."""

    def __init__(self) -> None:
        super().__init__()
        from rich import progress
        from rich.console import Console

        self.console = Console(highlight=False, markup=False, soft_wrap=True)
        columns = (
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
        )
        self.bar = progress.Progress(*columns, console=self.console, transient=True)
        self.running: dict[str, str] = {}
        self.done: dict[str, int] = {}
        self.lock = threading.Lock()
        self.task: Any = None

    def line(self, text: str = "", style: str = "") -> None:
        """Print one line above the bar."""
        self.console.print(text, style=style or None)

    def start(self, jobs: Sequence[Job]) -> None:
        """Show the bar."""
        self.task = self.bar.add_task("", total=sum(len(job.run) for job in jobs))
        self.bar.start()

    def progress(self, job: Job, index: int) -> None:
        """Show which cell runs."""
        with self.lock:
            label = job.chapter.label
            self.running[label] = f"{label} {job.chapter.code_cells[index].id}"
            self.done[label] = index
            self._show()

    def notebook(self, verdict: NotebookVerdict, word: str = "") -> None:
        """Print the notebook's lines and take it off the bar."""
        with self.lock:
            self.running.pop(verdict.chapter.label, None)
            self.done[verdict.chapter.label] = len(verdict.cells)
            self._show()
        super().notebook(verdict, word)

    def _show(self) -> None:
        if self.task is not None:
            self.bar.update(self.task, description=" · ".join(self.running.values()), completed=sum(self.done.values()))

    def stop(self) -> None:
        """Remove the bar."""
        with contextlib.suppress(Exception):
            self.bar.stop()


def make_report() -> Report:
    """Return the report for this stdout: rich on a terminal, plain lines elsewhere."""
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        with contextlib.suppress(ImportError):
            return RichReport()
    return Report()


def junit(verdicts: Sequence[NotebookVerdict], problems: Sequence[Problem]) -> str:
    """Return the verdicts as JUnit XML: a suite per notebook, a case per cell; problems as errors of a last suite."""
    suites = ElementTree.Element("testsuites", name="chapters")
    for verdict in verdicts:
        suite = _suite(suites, verdict.chapter.label, verdict)
        for cell in verdict.cells:
            _case(suite, verdict.chapter, cell)
    if problems:
        all_of_them = str(len(problems))
        suite = _element(suites, "testsuite", name="book", tests=all_of_them, errors=all_of_them)
        for number, problem in enumerate(problems, start=1):
            case = _element(suite, "testcase", classname=problem.path, name=f"problem-{number}")
            _element(case, "error", message=str(problem))
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def write_junit(path: Path, verdicts: Sequence[NotebookVerdict], problems: Sequence[Problem]) -> None:
    """Write the JUnit file, whole or not at all; what is no file, as a pipe, is written to and not replaced."""
    text = junit(verdicts, problems)
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
    else:
        write_atomic(path.resolve(), text)


def _suite(parent: ElementTree.Element, name: str, verdict: NotebookVerdict) -> ElementTree.Element:
    return _element(
        parent, "testsuite", name=name, tests=str(len(verdict.cells)), failures=str(verdict.count("failed")),
        errors="0", skipped=str(verdict.count("skipped")), time=f"{verdict.seconds:.3f}",
    )  # fmt: skip


def _case(suite: ElementTree.Element, chapter: Chapter, verdict: CellVerdict) -> None:
    case = _element(suite, "testcase", classname=chapter.name, name=verdict.cell.id, time=f"{verdict.seconds:.3f}")
    if verdict.failures:
        text = "\n".join("\n".join([f.message, *f.details]) for f in verdict.failures)
        first = verdict.failures[0]
        failure = _element(case, "failure", message=first.message, type=first.kind)
        failure.text = _xml(text + (f"\nstderr:\n{verdict.stderr}" if verdict.stderr else ""))
    elif verdict.status == "skipped":
        _element(case, "skipped", message=verdict.skipped)


def _element(parent: ElementTree.Element, tag: str, **attributes: str) -> ElementTree.Element:
    """Add an element, its attributes escaped."""
    return ElementTree.SubElement(parent, tag, {name: _xml(value) for name, value in attributes.items()})


def _xml(text: str) -> str:
    """Return text with what XML cannot hold shown as escapes."""
    return NOT_XML.sub(lambda match: ascii(match[0])[1:-1], text)
