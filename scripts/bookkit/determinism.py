"""Run the book under settings that may change a number or a text, and say which cells then print something else.

The checker compares every run with the recorded outputs. Beside the book runs a planted one (bookkit/planted): its
cells show that a setting has arrived, its training that the book's rules hold, its controls that a difference would
be seen. What this machine lacks is named as skipped, never passed over.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from rich import box
from rich.table import Table

from .planted import CONTROLS, MAIN_LOOP, NAMES, TIMEOUT
from .scratch import Scratch
from .settings import Machine, Setting, prepare, this_machine

SCRIPTS = Path(__file__).resolve().parents[1]
ARRIVAL = "arrival"
# The cells of the planted training that tell when two runs part, and what each tells.
PARTING = {"weights": "a weight", "tokens": "a sampled token", "returns": "a printed line"}
LEGEND = (
    "printed text against the recorded one: = equal, ≠2 two cells differ, – skipped, ! did not run; "
    "arrived: what the setting was seen to change in the cells"
)


@dataclass(frozen=True)
class Difference:
    """A cell that printed something else, or failed, under a setting."""

    chapter: str
    cell: str
    first_line: str


@dataclass(frozen=True)
class Outcome:
    """What one setting did: the notebooks that ran, the differences, or the error that kept it from running.

    `arrived` are the arrival chapter's cells that changed, None where that chapter did not run. Differences in the
    controls are kept apart: they are wanted.
    """

    setting: Setting
    notebooks: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    error: str | None = None
    skipped: str | None = None
    arrived: frozenset[str] | None = None
    controls: tuple[Difference, ...] = ()

    @property
    def good(self) -> bool:
        """Whether nothing differed (a skipped setting has shown nothing, and is not counted as good or bad)."""
        return self.skipped is not None or (self.error is None and not self.differences)


@dataclass(frozen=True)
class Books:
    """What is run under each setting: the book and chapters of it, and the planted book, each None to leave it out.

    The controls of the planted book, if it has them, run under the settings that can change a digit. The chapters run
    under each setting, their solutions under those that `solutions` names, under each for None; `lab` cells, whose
    output is compared loosely, only if wanted. `main_loop` is the book whose last chapter trains with the library.
    """

    root: Path | None
    prefixes: tuple[str, ...] = ()
    planted: Path | None = None
    controls: bool = False
    solutions: frozenset[str] | None = None
    lab: bool = True
    main_loop: Path | None = None

    def has_solutions(self, setting: Setting) -> bool:
        """Return whether the solutions run under a setting, not the chapters alone."""
        return self.solutions is None or setting.name in self.solutions


def command(env: Mapping[str, str], root: Path, wanted: Sequence[str], junit: Path) -> list[str]:
    """Return the checker's command with these variables laid over those it pins, and what notebooks are wanted."""
    check = [sys.executable, str(SCRIPTS / "check_chapters.py"), "--root", str(root), "--no-cache"]
    laid_over = [part for name, value in env.items() for part in ("--env", f"{name}={value}")]
    return [*check, "--timeout", f"{TIMEOUT:g}", "--junit", str(junit), *laid_over, *wanted]


def run_setting(setting: Setting, books: Books, machine: Machine | None = None) -> Outcome:
    """Check the books under one setting and return what differed and whether the setting arrived."""
    there = machine or this_machine()
    why = setting.missing(there)
    if why:
        return Outcome(setting, skipped=why)
    outcome = Outcome(setting)
    with Scratch("determinism") as folder:
        try:
            env, place = prepare(setting, folder, there)
        except (OSError, subprocess.CalledProcessError) as error:
            return Outcome(setting, error=f"it could not be prepared: {error}")
        if books.root is not None:
            wanted = [*books.prefixes, *([] if books.has_solutions(setting) else ["--no-solutions"])]
            outcome = joined(outcome, _check(setting, env, books.root, wanted, folder, place, books.lab))
        if books.planted is not None and outcome.error is None:
            found = _check(setting, env, books.planted, _planted_prefixes(setting, books), folder, place)
            outcome = joined(outcome, sort_planted(found, there))
        if books.main_loop is not None and outcome.error is None:
            found = _check(setting, env, books.main_loop, [MAIN_LOOP[0], "--no-solutions"], folder, place)
            outcome = joined(named_loop(found), outcome)
    return outcome


def _planted_prefixes(setting: Setting, books: Books) -> list[str]:
    """Return the planted chapters to run: the controls only where a digit can change."""
    controls = books.controls and setting.numeric
    return [key for key, name in NAMES.items() if controls or name not in CONTROLS]


def joined(one: Outcome, other: Outcome) -> Outcome:
    """Return the outcome of two books under the same setting."""
    return replace(
        other,
        notebooks=one.notebooks + other.notebooks,
        differences=one.differences + other.differences,
        error=one.error or other.error,
    )


def named_loop(outcome: Outcome) -> Outcome:
    """Return the outcome of the chapter that trains with the library, under its name."""
    key, name, _ = MAIN_LOOP
    found = tuple(replace(d, chapter=name if d.chapter == key else d.chapter) for d in outcome.differences)
    return replace(outcome, notebooks=tuple(name if n == key else n for n in outcome.notebooks), differences=found)


def sort_planted(outcome: Outcome, machine: Machine) -> Outcome:
    """Return the planted book's outcome with names for keys, its differences told apart by what they mean."""
    if outcome.error is not None:
        return outcome
    found = [replace(d, chapter=NAMES.get(d.chapter, d.chapter)) for d in outcome.differences]
    arrived = frozenset(d.cell for d in found if d.chapter == ARRIVAL)
    missing = outcome.setting.effect(machine) - arrived
    return replace(
        outcome,
        notebooks=tuple(NAMES.get(key, key) for key in outcome.notebooks if NAMES.get(key) != ARRIVAL),
        differences=tuple(d for d in found if d.chapter not in (ARRIVAL, *CONTROLS)),
        controls=tuple(d for d in found if d.chapter in CONTROLS),
        arrived=arrived,
        error=f"it did not reach the cells: {', '.join(sorted(missing))} as without it" if missing else None,
    )


def _check(
    setting: Setting,
    env: Mapping[str, str],
    root: Path,
    wanted: Sequence[str],
    folder: Path,
    place: Path | None,
    lab: bool = True,
) -> Outcome:
    """Run the checker on one book and return what its report says."""
    junit = folder / "report.xml"
    junit.unlink(missing_ok=True)
    # A difference here is this tool's to report, not the checker's to annotate.
    around = {name: value for name, value in os.environ.items() if name != "GITHUB_ACTIONS"}
    if place is not None:
        around["TMPDIR"] = str(place)
    if not lab:
        around["AGENTRL_MODEL_DIR"] = str(folder / "no-model")
    done = subprocess.run(
        command(env, root.resolve(), wanted, junit),
        env=around,
        cwd=place or root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    report = junit.read_text(encoding="utf-8") if junit.exists() else ""
    if done.returncode not in (0, 1) or not report:
        last = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()][-1:]
        return Outcome(setting, error=f"the checker ended with {done.returncode}: {''.join(last) or 'no word'}")
    notebooks, differences = read_junit(report)
    if done.returncode == 1 and not differences:
        return Outcome(setting, notebooks, error="the checker found differences that its report does not name")
    return Outcome(setting, notebooks, differences)


def read_junit(report: str) -> tuple[tuple[str, ...], tuple[Difference, ...]]:
    """Return the notebooks of the checker's JUnit report, in order, and the failing cells with the first difference."""
    notebooks: list[str] = []
    found: list[Difference] = []
    for suite in ET.fromstring(report).iter("testsuite"):
        name = suite.get("name") or "?"
        notebooks.append(name)
        for case in suite.iter("testcase"):
            for failure in [*case.findall("failure"), *case.findall("error")]:
                found.append(Difference(name, case.get("name") or "?", _first_line(failure)))
    return tuple(notebooks), tuple(found)


def _first_line(failure: ET.Element) -> str:
    """Return what was recorded and what came instead, in the first line that differs; else the failure's message."""
    lines = [line.strip() for line in (failure.text or "").splitlines()]
    pair = [next((line for line in lines if line.startswith(start)), "") for start in ("recorded:", "now:")]
    if all(pair):
        return " | ".join(" ".join(line.split()) for line in pair)
    return failure.get("message") or next((line for line in lines if line), "no message")


def run_all(
    settings: Sequence[Setting],
    books: Books,
    jobs: int,
    say: Callable[[str], None],
    machine: Machine | None = None,
) -> list[Outcome]:
    """Run the settings, `jobs` of them side by side, say how each went, and return the outcomes in order."""
    there = machine or this_machine()
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(jobs) as pool:
        for outcome in pool.map(lambda setting: run_setting(setting, books, there), settings):
            outcomes.append(outcome)
            say(f"{outcome.setting.name}: {verdict(outcome)}")
    return outcomes


def verdict(outcome: Outcome) -> str:
    """Return how a setting went, in a few words."""
    if outcome.skipped:
        return f"skipped: {outcome.skipped}"
    if outcome.error:
        return f"did not run: {outcome.error}"
    cells = len(outcome.differences)
    notebooks = [name for name in outcome.notebooks if name not in CONTROLS]
    equal = f"equal in {len(notebooks)} notebook{'s' * (len(notebooks) != 1)}"
    return f"{cells} cell{'s' * (cells != 1)} differ" + "s" * (cells == 1) if cells else equal


def table(outcomes: Sequence[Outcome]) -> Table:
    """Return a table of settings down and chapters across; a chapter's solutions count with it."""
    names = dict.fromkeys(key_of(name) for outcome in outcomes for name in outcome.notebooks)
    keys = [name for name in names if name not in CONTROLS]
    made = Table(box=box.SIMPLE_HEAD)
    made.add_column("setting", no_wrap=True)
    for key in keys:
        made.add_column(key, justify="center", no_wrap=True)
    with_arrival = any(outcome.arrived is not None for outcome in outcomes)
    if with_arrival:
        made.add_column("arrived", no_wrap=True)
    for outcome in outcomes:
        cells = [_state(outcome, key) for key in keys]
        made.add_row(outcome.setting.name, *cells, *([_arrival(outcome)] if with_arrival else []))
    return made


def key_of(notebook: str) -> str:
    """Return the chapter that a notebook belongs to: `06` for `06` and for `06/solutions`."""
    return notebook.split("/", 1)[0]


def _state(outcome: Outcome, key: str) -> str:
    """Return how a chapter went under a setting, in one sign."""
    if outcome.skipped:
        return "–"
    if key not in map(key_of, outcome.notebooks):
        return "!"
    cells = sum(key_of(difference.chapter) == key for difference in outcome.differences)
    return f"≠{cells}" if cells else "="


def _arrival(outcome: Outcome) -> str:
    """Return what a setting was seen to change in the cells."""
    if outcome.skipped or outcome.arrived is None:
        return "–" if outcome.skipped else "!"
    return ", ".join(sorted(outcome.arrived)) or "as checked"


def partings(outcome: Outcome, control: str) -> dict[str, str]:
    """Return for each cell of PARTING where a control first printed something else: its iteration, `=` for nowhere."""
    found = dict.fromkeys(PARTING, "=")
    for difference in outcome.controls:
        if difference.chapter == control and difference.cell in PARTING:
            number = re.search(r"iteration (\d+):", difference.first_line)
            found[difference.cell] = number[1] if number else "?"
    return found


def control_table(outcomes: Sequence[Outcome]) -> Table:
    """Return a table of the iterations at which the controls part from their recorded run, by setting."""
    made = Table(box=box.SIMPLE_HEAD, title="controls: the first iteration with another …", title_justify="left")
    made.add_column("setting", no_wrap=True)
    for control in CONTROLS:
        for what in ("weight", "token", "printed line"):
            made.add_column(f"{control}\n{what}", justify="right", no_wrap=True)
    for outcome in outcomes:
        if set(CONTROLS) <= set(outcome.notebooks):
            made.add_row(outcome.setting.name, *(v for c in CONTROLS for v in partings(outcome, c).values()))
    return made


def blind(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the controls that ran and printed the same under every setting: nothing was shown about them."""
    ran = {name for outcome in outcomes for name in outcome.notebooks}
    seen = {difference.chapter for outcome in outcomes for difference in outcome.controls}
    return [control for control in CONTROLS if control in ran and control not in seen]


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return the last line: how many settings ran and agreed, differed, failed, were skipped and by which name."""
    skipped = [outcome.setting.name for outcome in outcomes if outcome.skipped]
    failed = [outcome.setting.name for outcome in outcomes if outcome.error]
    differ = [outcome.setting.name for outcome in outcomes if outcome.differences]
    equal = len(outcomes) - len(skipped) - len({*failed, *differ})
    parts = [f"{equal} setting{'s' * (equal != 1)} equal"]
    for word, names in (("differ", differ), ("did not run", failed), ("skipped", skipped)):
        if names:
            parts.append(f"{len(names)} {word} ({', '.join(names)})")
    return ", ".join(parts)
