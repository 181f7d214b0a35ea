"""Runs the checker, the library builder or the linter with one named weakness: `weakened.py WEAKNESS TOOL ARGUMENT…`.

The mutation suite (mutants.py) shows that the tools catch every kind of mutation. A suite that cannot fail shows
nothing, so each kind is also tried against a tool weakened in one way, most of them the ways of real tools, and has to
be missed by it. The tools have no switch for this: the weakness is put over their functions here, in this process.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import build_library  # noqa: E402
import check_chapters  # noqa: E402
import lint_book  # noqa: E402

from bookkit import check_cli, checker, library, librarycli, notebook, runner, update  # noqa: E402
from bookkit.compare import NUMBER  # noqa: E402
from bookkit.lint import hygiene  # noqa: E402

NONE = "none"
TOOLS = {"check": check_chapters.main, "library": build_library.main, "lint": lint_book.main}
AFTER_THE_CELL = ("late", "thread", "child", "forked")


@dataclass(frozen=True)
class Weakness:
    """A way to be weak: its name, who is weak like that, and the function that makes the tools so."""

    name: str
    sentence: str
    apply: Callable[[], None]


# Outputs that count as equal though they are not


def _equal_if(same: Callable[[str, str], bool]) -> None:
    """Let two outputs count as equal also when `same` says so."""
    strict = checker.differences

    def lenient(recorded: str, now: str) -> list[str]:
        return [] if same(recorded, now) else strict(recorded, now)

    checker.differences = lenient


def _equal_after(change: Callable[[str], Any]) -> None:
    """Let two outputs count as equal when they are after a change to both."""
    _equal_if(lambda recorded, now: change(recorded) == change(now))


NUMBER_OR_NAN = re.compile(rf"{NUMBER.pattern}|nan")


def _within_tolerance(recorded: str, now: str) -> bool:
    """Whether the texts agree but for numbers that lie close together, tested the wrong way round for nan."""
    pairs = zip(NUMBER_OR_NAN.findall(recorded), NUMBER_OR_NAN.findall(now), strict=False)
    far = any(abs(float(a) - float(b)) > 0.1 for a, b in pairs)
    return NUMBER_OR_NAN.sub("#", recorded) == NUMBER_OR_NAN.sub("#", now) and not far


def _found_somewhere(recorded: str, now: str) -> bool:
    return bool(recorded) and set(recorded.splitlines()) <= set(now.splitlines())


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _as_printed() -> None:
    """Compare raw characters, so that what a terminal overwrites counts."""
    checker.differences = lambda recorded, now: [] if recorded == now else ["the characters differ"]


def _sorted_notebook() -> None:
    """Compare all that a notebook printed with all that it records, in any order."""
    judge = checker.judge

    def lenient(job: runner.Job, run: runner.NotebookRun, *others: Any) -> checker.NotebookVerdict:
        verdict = judge(job, run, *others)
        recorded = sorted("".join(cell.stdout for cell in job.chapter.code_cells).splitlines())
        if recorded == sorted("".join(cell.stdout for cell in run.cells).splitlines()):
            _drop(verdict, lambda failure: failure.kind == "differs")
        return verdict

    checker.judge = lenient


def _drop(verdict: checker.NotebookVerdict, unwanted: Callable[[runner.Failure], bool]) -> None:
    for cell in verdict.cells:
        cell.failures = [failure for failure in cell.failures if not unwanted(failure)]
        cell.status = "failed" if cell.failures else "passed" if cell.status == "failed" else cell.status


# Records that are not looked at


def _counts_unseen() -> None:
    static = checker._static_failures

    def lenient(chapter: notebook.Chapter) -> list[list[runner.Failure]]:
        words = ("execution count", "never run")
        return [[f for f in found if not any(word in f.message for word in words)] for found in static(chapter)]

    checker._static_failures = lenient


def _ids_unseen() -> None:
    structure = notebook._structure_problems
    notebook._structure_problems = lambda chapter: [p for p in structure(chapter) if "is used twice" not in p.message]


def _streams_only() -> None:
    checker._record_failures = lambda cell: []


def _any_exception() -> None:
    checker._expected_exception = lambda cell, run: iter(())


# Endings that count as ends


def _ends_at(kinds: Iterable[str]) -> None:
    """Let a run that stops in one of these ways count as a run that has ended."""
    stop = runner.Reader.stop_at

    def lenient(self: runner.Reader, index: int | None, failure: runner.Failure) -> None:
        if failure.kind not in kinds:
            stop(self, index, failure)

    runner.Reader.stop_at = lenient


def _deaf_to(events: Iterable[str]) -> None:
    """Let these events of a run go unheard."""
    for event in events:
        setattr(runner.Reader, f"on_{event}", lambda self, **said: None)


def _errors_are_output() -> None:
    _ends_at(("exception",))
    _equal_if(lambda recorded, now: True)


def _output_cut_silently() -> None:
    end = runner.Reader.on_end
    runner.Reader.on_end = lambda self, *given, **said: end(self, *given, **{**said, "size": 0})  # type: ignore[method-assign]


def _echo_ignored() -> None:
    runner.display_failures = lambda echoes, displays: []


# Recording


def _one_run() -> None:
    agreement = update.agreement
    update.agreement = lambda job, first, second, names: agreement(job, first, None, names)


def _one_seed() -> None:
    check_cli.UPDATE_SEEDS = ("0", "0")


# Other ways to run


class PlainExec(runner.Engine):
    """Runs every cell of every notebook by exec() in this one process, catching what Python's print writes."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.started = False
        builtins.input = lambda prompt="": ""

    def run(self, job: runner.Job, on_cell: runner.OnCell | None = None) -> runner.NotebookRun:
        """Run the cells up to the first that raises; the first notebook says in which folder."""
        if not self.started:
            os.chdir(job.chapter.path.parent)
            self.started = True
        result = runner.NotebookRun([runner.CellRun() for _ in job.chapter.code_cells], complete=True)
        for index, cell in enumerate(job.chapter.code_cells):
            run, printed = result.cells[index], io.StringIO()
            run.ran = True
            try:
                with contextlib.redirect_stdout(printed):
                    exec(compile(cell.source, cell.id, "exec"), self.names)
            except BaseException as error:
                run.failures.append(runner.Failure("exception", f"{type(error).__name__}: {error}"))
                result.stopped = index
            run.stdout = printed.getvalue()
            if result.stopped is not None:
                break
        return result

    def close(self) -> None:
        """Nothing was started."""


def _plain_exec() -> None:
    check_cli.make_engine = lambda *given: PlainExec()


def _whole_library() -> None:
    def whole(book: notebook.Book, chapter: notebook.Chapter, libraries: Any) -> dict[str, str]:
        return checker.whole_library(book, libraries)

    checker.visible_library = whole


def _unresolved() -> None:
    resolve = library._resolve

    def lenient(book: notebook.Book, chapters: Sequence[notebook.Chapter]) -> Any:
        found = resolve(book, chapters)
        found.problems.clear()
        return found

    library._resolve = lenient
    library.polish = lambda files, book, others=(): files


def _names_only() -> None:
    def names_of(text: str) -> list[str]:
        return sorted(re.findall(r"^(?:def|class) (\w+)|^(\w+) = ", text, re.MULTILINE))

    def lenient(files: dict[str, str], folder: Path) -> str:
        on_disk = {name: (folder / name).read_text(encoding="utf-8") for name in files if (folder / name).exists()}
        stale = [name for name, text in files.items() if names_of(text) != names_of(on_disk.get(name, "x = 1"))]
        return "".join(f"--- a/agentrl/{name}\n" for name in stale)

    librarycli.diff_package = lenient


def _outputs_unlinted() -> None:
    hygiene._outputs = lambda page, cell: iter(())
    hygiene._file = lambda page: iter(())


WEAKNESSES = {
    weakness.name: weakness
    for weakness in [
        Weakness(NONE, "The tools as they are.", lambda: None),
        Weakness(
            "numbers-within-tolerance",
            "Numbers are equal when they lie close together, as sybil's NUMBER and pytest.approx have it.",
            lambda: _equal_if(_within_tolerance),
        ),
        Weakness(
            "numbers-masked",
            "A pattern replaces every number before texts are compared, as in many an nbval sanitising file.",
            lambda: _equal_after(lambda text: NUMBER.sub("#", text)),
        ),
        Weakness(
            "blanks-ignored",
            "Runs of blanks and line ends are all one, doctest's NORMALIZE_WHITESPACE.",
            lambda: _equal_after(str.split),
        ),
        Weakness(
            "ends-stripped",
            "Blanks and line ends around the text do not count: Go's Examples, testbook's asserts on `.strip()`.",
            lambda: _equal_after(str.strip),
        ),
        Weakness(
            "lines-in-any-order",
            "The lines of an output are compared sorted, Go's `Unordered output:`.",
            lambda: _equal_after(lambda text: sorted(text.splitlines())),
        ),
        Weakness(
            "found-somewhere",
            "It is enough that every recorded line occurs, as in asserts that look for a text in an output.",
            lambda: _equal_if(_found_somewhere),
        ),
        Weakness(
            "letters-folded",
            "Case and look-alike characters are folded, as tools do that compare texts made for search.",
            lambda: _equal_after(_folded),
        ),
        Weakness(
            "colours-stripped",
            "Colour codes are taken out before comparing, a common sanitiser.",
            lambda: _equal_after(_without_colours),
        ),
        Weakness(
            "addresses-masked",
            "Addresses of objects are taken out, as nbdev's clean does.",
            lambda: _equal_after(lambda text: re.sub(r" at 0x[0-9a-fA-F]+", "", text)),
        ),
        Weakness(
            "bad-bytes-dropped",
            "Bytes that are not UTF-8 are dropped, decode's errors='ignore'.",
            lambda: _equal_after(lambda text: text.replace("\ufffd", "")),
        ),
        Weakness(
            "raw-carriage-returns",
            "A carriage return is a character like another, as pytest-notebook has it.",
            _as_printed,
        ),
        Weakness(
            "one-sorted-text",
            "All outputs of a notebook are compared as one sorted text: nobody asks which cell printed what.",
            _sorted_notebook,
        ),
        Weakness(
            "outputs-uncompared",
            "The notebook has to run, its outputs are not compared: nbmake, papermill, treon.",
            lambda: _equal_if(lambda recorded, now: True),
        ),
        Weakness(
            "recorded-only",
            "Only cells that record an output are compared, as doctest-like tools do that look for expectations.",
            lambda: _equal_if(lambda recorded, now: not recorded),
        ),
        Weakness("counts-unseen", "Execution counts are not looked at: nbval, nbmake and most others.", _counts_unseen),
        Weakness("ids-unseen", "Cell ids may repeat: readers older than nbformat 4.5 know none.", _ids_unseen),
        Weakness("streams-only", "Recorded outputs other than stdout are passed over.", _streams_only),
        Weakness(
            "any-exception",
            "A cell tagged raises-exception may raise anything or nothing: nbmake, treon.",
            _any_exception,
        ),
        Weakness(
            "stopped-is-ended",
            "A run that dies or is stopped has ended, and what had run by then was fine: a driver that reads the "
            "outputs and not the exit status.",
            lambda: _ends_at(("died", "timeout", "memory", "output")),
        ),
        Weakness(
            "exit-is-success", "A cell that exits ends the run well: papermill, execnb.", lambda: _ends_at(("exit",))
        ),
        Weakness(
            "errors-are-output",
            "An exception is one more output, and the run is well: knitr's `error=TRUE`, Jupyter's `allow_errors`.",
            _errors_are_output,
        ),
        Weakness("echo-ignored", "Values that cells display are not looked at: nbmake, papermill.", _echo_ignored),
        Weakness(
            "nothing-after-the-cell",
            "What happens after a cell has ended is not looked at: late output, threads, processes. All peers.",
            lambda: _deaf_to(AFTER_THE_CELL),
        ),
        Weakness(
            "output-cut-silently",
            "Output beyond a limit is cut and what is left compared, as front ends cut long outputs.",
            _output_cut_silently,
        ),
        Weakness("stubs-untested", "Tests of exercises run against the solutions only.", lambda: _deaf_to(("probed",))),
        Weakness("recorded-at-first-run", "What one run prints is recorded: nbmake's and papermill's way.", _one_run),
        Weakness("one-hash-seed", "Both runs before a recording have the same hash seed.", _one_seed),
        Weakness(
            "plain-exec",
            "Every cell is given to exec() in one process, and print is caught in Python: scripts that run notebooks.",
            _plain_exec,
        ),
        Weakness(
            "whole-library", "Chapters import the finished library, also what later ones save: nbdev.", _whole_library
        ),
        Weakness(
            "unresolved-library",
            "Saved cells are copied to the library as they are and no name is looked up: d2lbook, nbdev.",
            _unresolved,
        ),
        Weakness("library-names-only", "The library is up to date when its names are.", _names_only),
        Weakness(
            "outputs-unlinted", "The linter reads the code and not what it printed: nbqa, black.", _outputs_unlinted
        ),
    ]
}


def several(tool: str, calls: list[list[str]]) -> list[dict[str, Any]]:
    """Return exit code and text of several calls of one tool, made in this process."""
    results = []
    for arguments in calls:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = TOOLS[tool](arguments)
        results.append({"code": code, "text": said.getvalue()})
    return results


def main(argv: list[str]) -> int:
    """Run one tool; or, with `--calls` and a JSON list of argument lists, print as JSON what several calls said."""
    name, tool, *arguments = argv
    if name not in WEAKNESSES or tool not in TOOLS:
        known = f"{', '.join(WEAKNESSES)} and {', '.join(TOOLS)}"
        print(f"weakened: {name!r} and {tool!r} should be of {known}", file=sys.stderr)
        return 2
    WEAKNESSES[name].apply()
    if arguments[:1] == ["--calls"]:
        print(json.dumps(several(tool, json.loads(arguments[1]))))
        return 0
    return TOOLS[tool](arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
