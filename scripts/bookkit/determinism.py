"""Run the book under settings that may change a number or a text, and say which cells then print something else.

The checker compares every run with the recorded outputs; a setting is a set of environment variables laid over those
it pins. What this machine lacks is named as skipped, never passed over.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rich import box
from rich.table import Table

SCRIPTS = Path(__file__).resolve().parents[1]
TIMEOUT = 900  # seconds a cell may take: some settings are several times slower, and slowness is no difference
LEGEND = "printed text against the recorded one: = equal, ≠2 two cells differ, – skipped, ! did not run"
LEVELS = ("AVX2", "AVX512")


@dataclass(frozen=True)
class Machine:
    """What decides which settings this machine has: torch's vector level, whether it has MKL, the locales installed."""

    capability: str
    mkl: bool
    locales: frozenset[str]


@dataclass(frozen=True)
class Setting:
    """One way to run the book: variables laid over the checker's own, and what the machine must have for it."""

    name: str
    what: str
    env: Mapping[str, str] = field(default_factory=dict)
    level: str | None = None
    mkl: bool = False
    locale: str | None = None
    elsewhere: bool = False

    def missing(self, machine: Machine) -> str | None:
        """Return why this machine cannot run the setting, or None."""
        if self.level and machine.capability not in LEVELS[LEVELS.index(self.level) :]:
            return f"this CPU's level is {machine.capability}, not {self.level}"
        if self.mkl and not machine.mkl:
            return "this torch has no MKL"
        if self.locale and _plain(self.locale) not in machine.locales:
            return f"the locale {self.locale} is not installed"
        return None


def _threads(count: int) -> Setting:
    # OpenBLAS would start its threads when NumPy is imported, and a process with threads must not be forked.
    # Without MKL_DYNAMIC=FALSE torch takes no more threads than there are cores, whatever it is told.
    env = {"OMP_NUM_THREADS": str(count), "MKL_NUM_THREADS": str(count), "MKL_DYNAMIC": "FALSE"}
    return Setting(f"threads-{count}", f"{count} thread{'s' * (count > 1)} in torch's operations", env)


LOWEST = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}
SETTINGS: tuple[Setting, ...] = (
    Setting("as-checked", "what the checker pins, nothing changed"),
    Setting("aten-default", "torch without vector instructions", {"ATEN_CPU_CAPABILITY": "default"}),
    Setting("aten-avx2", "torch limited to AVX2", {"ATEN_CPU_CAPABILITY": "avx2"}, level="AVX2"),
    Setting("aten-avx512", "torch with AVX-512", {"ATEN_CPU_CAPABILITY": "avx512"}, level="AVX512"),
    _threads(1),
    _threads(2),
    _threads(4),
    Setting("mkl-compatible", "MKL's oldest code path", {"MKL_CBWR": "COMPATIBLE"}, mkl=True),
    Setting("lowest", "torch, MKL and oneDNN all at their lowest", LOWEST, mkl=True),
    Setting("hash-0", "PYTHONHASHSEED=0", {"PYTHONHASHSEED": "0"}),
    Setting("hash-random", "a random order of sets", {"PYTHONHASHSEED": "random"}),
    Setting("locale-posix", "the POSIX locale", {"LC_ALL": "POSIX"}),
    Setting("locale-german", "a comma for a point", {"LC_ALL": "de_DE.UTF-8"}, locale="de_DE.UTF-8"),
    Setting("locale-turkish", "another upper case of i", {"LC_ALL": "tr_TR.UTF-8"}, locale="tr_TR.UTF-8"),
    # Written out, so that no time zone database is needed.
    Setting("time-zone", "45 minutes off the hour, east", {"TZ": "XYZ-05:45"}),
    Setting("folder", "another working and temporary folder, a blank and an ü in its name", elsewhere=True),
)


@dataclass(frozen=True)
class Difference:
    """A cell that printed something else, or failed, under a setting."""

    chapter: str
    cell: str
    first_line: str


@dataclass(frozen=True)
class Outcome:
    """What one setting did: the notebooks that ran, the differences, or the error that kept it from running."""

    setting: Setting
    notebooks: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    error: str | None = None
    skipped: str | None = None

    @property
    def good(self) -> bool:
        """Whether nothing differed (a skipped setting has shown nothing, and is not counted as good or bad)."""
        return self.skipped is not None or (self.error is None and not self.differences)


def choose(names: Sequence[str]) -> list[Setting]:
    """Return the settings of these names in their own order, all for none; KeyError lists those there are."""
    known = {setting.name: setting for setting in SETTINGS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise KeyError(f"no setting is called {unknown[0]!r}; there are: {', '.join(known)}")
    return [setting for setting in SETTINGS if not names or setting.name in names]


def _plain(locale: str) -> str:
    """Return a locale's name as `locale -a` may or may not write it, made alike: `de_DE.UTF-8` is `de_de.utf8`."""
    return locale.strip().lower().replace("-", "")


@cache
def probe() -> Machine:
    """Ask torch, in a process of its own, what the CPU offers, and the system which locales it has."""
    code = "import json, torch.backends as b; print(json.dumps([b.cpu.get_cpu_capability(), b.mkl.is_available()]))"
    env = {k: v for k, v in os.environ.items() if k != "ATEN_CPU_CAPABILITY"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    capability, mkl = json.loads(done.stdout.splitlines()[-1])
    try:
        listed = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        listed = ""
    return Machine(str(capability), bool(mkl), frozenset(map(_plain, listed.splitlines())))


def command(setting: Setting, root: Path, prefixes: Sequence[str], junit: Path, jobs: int) -> list[str]:
    """Return the checker's command for one setting."""
    check = [sys.executable, str(SCRIPTS / "check_chapters.py"), "--root", str(root), "--no-cache"]
    laid_over = [part for name, value in setting.env.items() for part in ("--env", f"{name}={value}")]
    return [*check, "--timeout", str(TIMEOUT), "-j", str(jobs), "--junit", str(junit), *laid_over, *prefixes]


def run_setting(setting: Setting, root: Path, prefixes: Sequence[str], jobs: int = 1) -> Outcome:
    """Check the notebooks under one setting and return what differed."""
    with tempfile.TemporaryDirectory(prefix="determinism-") as folder:
        junit = Path(folder) / "report.xml"
        # A difference here is this tool's to report, not the checker's to annotate.
        env = {name: value for name, value in os.environ.items() if name != "GITHUB_ACTIONS"}
        place = root
        if setting.elsewhere:
            place = Path(folder) / "elsewhere, für alle"
            place.mkdir()
            env["TMPDIR"] = str(place)
        done = subprocess.run(
            command(setting, root.resolve(), prefixes, junit, jobs),
            env=env,
            cwd=place,
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
    root: Path,
    prefixes: Sequence[str],
    jobs: int,
    say: Callable[[str], None],
    machine: Machine | None = None,
) -> list[Outcome]:
    """Run the settings one after another, say how each went, and return the outcomes in order."""
    there = machine or probe()
    outcomes: list[Outcome] = []
    for setting in settings:
        why = setting.missing(there)
        outcome = Outcome(setting, skipped=why) if why else run_setting(setting, root, prefixes, jobs)
        outcomes.append(outcome)
        say(f"{setting.name}: {verdict(outcome)}")
    return outcomes


def verdict(outcome: Outcome) -> str:
    """Return how a setting went, in a few words."""
    if outcome.skipped:
        return f"skipped: {outcome.skipped}"
    if outcome.error:
        return f"did not run: {outcome.error}"
    cells = len(outcome.differences)
    equal = f"equal in {len(outcome.notebooks)} notebook{'s' * (len(outcome.notebooks) != 1)}"
    return f"{cells} cell{'s' * (cells != 1)} differ" + "s" * (cells == 1) if cells else equal


def table(outcomes: Sequence[Outcome]) -> Table:
    """Return a table of settings down and chapters across; a chapter's solutions count with it."""
    keys = list(dict.fromkeys(key_of(name) for outcome in outcomes for name in outcome.notebooks))
    made = Table(box=box.SIMPLE_HEAD)
    made.add_column("setting", no_wrap=True)
    for key in keys:
        made.add_column(key, justify="center", no_wrap=True)
    for outcome in outcomes:
        made.add_row(outcome.setting.name, *(_state(outcome, key) for key in keys))
    return made


def key_of(notebook: str) -> str:
    """Return the chapter that a notebook belongs to: `06` for `06` and for `06/solutions`."""
    return notebook.split("/", 1)[0]


def _state(outcome: Outcome, key: str) -> str:
    if outcome.skipped:
        return "–"
    if key not in map(key_of, outcome.notebooks):
        return "!"
    cells = sum(key_of(difference.chapter) == key for difference in outcome.differences)
    return f"≠{cells}" if cells else "="


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
