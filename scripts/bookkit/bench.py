"""Measure the checker beside nbval and nbmake on the same notebooks, interleaved in one run.

What is compared is ratios within one round, so that a busy machine slows both sides; the table shows their medians.
"""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
from rich.table import Table

from .benchbook import Synthetic, write_synthetic
from .notebook import Book, load_book
from .runner import usable_cores
from .scratch import Scratch

SCRIPTS = Path(__file__).resolve().parents[1]
BASE = "checker, no cache"
POLL = 0.1
# One thread for everybody, as the checker pins it; no plugin but the one that is measured.
PINNED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MPLBACKEND": "Agg",
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "HF_HUB_OFFLINE": "1",
    "PYTHONHASHSEED": "0",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}


@dataclass(frozen=True)
class Runner:
    """One way to check notebooks: its name, its command, and whether a cache must be warm before it is measured."""

    name: str
    command: tuple[str, ...]
    warm: bool = False


@dataclass(frozen=True)
class Run:
    """One measured run: wall and CPU seconds, peak memory of the process tree in MB, exit code."""

    seconds: float
    cpu: float
    peak_mb: float
    exit: int


@dataclass
class Report:
    """Everything a bench found: what it ran on, the runs by runner, seconds by chapter."""

    machine: dict[str, Any]
    notebooks: int
    cells: int
    runs: dict[str, list[Run]] = field(default_factory=dict)
    chapters: dict[str, list[float]] = field(default_factory=dict)

    def ratios(self, name: str, what: Callable[[Run], float] = lambda run: run.seconds) -> list[float]:
        """Return, round by round, how many times the checker's measure this runner needed."""
        pairs = zip(self.runs[name], self.runs[BASE], strict=True)
        return [what(run) / max(what(base), 1e-9) for run, base in pairs]

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values, ready for JSON."""
        return asdict(self)


def machine() -> dict[str, Any]:
    """Return what the run stood on, in general words: kind of system, cores, memory, versions; no names."""
    packages = ("torch", "ipython", "ipykernel", "pytest", "nbval", "nbmake", "transformers", "trl")
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": usable_cores(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "load_at_start": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        **{name: _version(name) for name in packages},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def runners(root: Path, prefixes: Sequence[str], notebooks: Sequence[Path]) -> list[Runner]:
    """Return the runners to measure; nbval and nbmake only where they are installed."""
    check = (sys.executable, str(SCRIPTS / "check_chapters.py"), "--root", str(root))
    pytest = (sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(root), "-p", "no:cacheprovider")
    paths = tuple(str(path) for path in notebooks)
    made = [
        Runner(BASE, (*check, "--no-cache", "-j", "1", *prefixes)),
        Runner(f"checker, no cache, -j {usable_cores()}", (*check, "--no-cache", "-j", str(usable_cores()), *prefixes)),
        Runner("checker, cached", (*check, "-j", "1", *prefixes), warm=True),
        Runner("nbval", (*pytest, "-p", "nbval.plugin", "--nbval", *paths)),
        Runner("nbmake, comparing nothing", (*pytest, "-p", "nbmake.pytest_plugin", "--nbmake", *paths)),
    ]
    return [runner for runner in made if runner.name.startswith("checker") or _installed(runner.name.split(",")[0])]


def _installed(package: str) -> bool:
    return _version(package) != "not installed"


def measure(command: Sequence[str], root: Path) -> Run:
    """Run a command and return its wall time, CPU time and the peak memory of all its processes together."""
    env = {**os.environ, **PINNED, "PYTHONPATH": str(root)}
    env.pop("GITHUB_ACTIONS", None)
    before = os.times()
    started = time.perf_counter()
    process = subprocess.Popen(
        command, env=env, cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    peak = _Peak(process.pid)
    peak.start()
    code = process.wait()
    seconds = time.perf_counter() - started
    peak.finish()
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Run(round(seconds, 3), round(cpu, 3), round(peak.highest / 2**20, 1), code)


class _Peak(threading.Thread):
    """Watches a process and all below it, and keeps the highest sum of their memory.

    The sum is of proportional set sizes where the system tells them (Linux): forks share pages, and a sum of resident
    sizes would count what they share once for each.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.process = psutil.Process(pid)
        self.highest = 0
        self.ended = threading.Event()

    def run(self) -> None:
        """Look every tenth of a second until told to stop."""
        while not self.ended.wait(POLL):
            with contextlib.suppress(psutil.Error):
                family = [self.process, *self.process.children(recursive=True)]
                self.highest = max(self.highest, sum(_memory(process) for process in family))

    def finish(self) -> None:
        """Stop looking."""
        self.ended.set()
        self.join()


def _memory(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        full = process.memory_full_info() if psutil.LINUX else process.memory_info()
        return int(getattr(full, "pss", full.rss))
    return 0


def bench(root: Path, prefixes: Sequence[str], rounds: int, say: Callable[[str], None]) -> Report:
    """Measure every runner on the chosen notebooks, `rounds` times, starting each round with another runner."""
    chosen = _chosen(load_book(root), prefixes)
    if not chosen:
        raise ValueError(f"no notebook of this book starts with {' or '.join(prefixes) or 'anything'}")
    report = Report(machine(), len(chosen), sum(len(chapter.code_cells) for chapter in chosen))
    todo = runners(root, prefixes, [chapter.path for chapter in chosen])
    with Scratch("bench") as folder:
        for number in range(rounds):
            shift = number % len(todo)
            for runner in (*todo[shift:], *todo[:shift]):
                junit = folder / f"{number}.xml"
                extra = ("--junit", str(junit)) if runner.name == BASE else ()
                if runner.warm:
                    measure(runner.command, root)
                run = measure((*runner.command, *extra), root)
                report.runs.setdefault(runner.name, []).append(run)
                say(f"round {number + 1} of {rounds}: {runner.name}: {run.seconds:.1f} s, exit {run.exit}")
                if extra and junit.exists():
                    _add_chapters(report.chapters, junit.read_text(encoding="utf-8"))
    report.runs = {runner.name: report.runs[runner.name] for runner in todo}
    return report


def _chosen(book: Book, prefixes: Sequence[str]) -> list[Any]:
    """Return the notebooks that the checker runs for these prefixes: chapters and their solutions."""
    return [n for n in book.notebooks() if not prefixes or any(n.label.startswith(prefix) for prefix in prefixes)]


def _add_chapters(chapters: dict[str, list[float]], junit: str) -> None:
    """Add the seconds that each notebook took in one run, from the checker's JUnit report."""
    for suite in ET.fromstring(junit).iter("testsuite"):
        chapters.setdefault(suite.get("name") or "?", []).append(float(suite.get("time") or 0))


def table(report: Report) -> Table:
    """Return the runners side by side: medians, and the median and range of the ratios to the checker."""
    made = Table(
        title=f"{report.notebooks} notebooks, {report.cells} code cells, {_rounds(report)} round(s), one thread",
        caption=f"×: median over the rounds of the ratio to “{BASE}” in the same round",
    )
    made.add_column("runner", no_wrap=True)
    for column in ("wall s", "×", "range of ×", "CPU s", "×", "peak MB", "×"):
        made.add_column(column, justify="right")
    made.add_column("result")
    for name, runs in report.runs.items():
        wall = report.ratios(name)
        cpu, memory = (report.ratios(name, what) for what in (lambda r: r.cpu, lambda r: r.peak_mb))
        seconds, used, peak = (statistics.median(values) for values in zip(*map(_numbers, runs), strict=True))
        made.add_row(
            name,
            f"{seconds:.1f}",
            _times(statistics.median(wall)),
            f"{_times(min(wall))}–{_times(max(wall))}",
            f"{used:.1f}",
            _times(statistics.median(cpu)),
            f"{peak:.0f}",
            _times(statistics.median(memory)),
            _result(runs),
        )
    return made


def _times(ratio: float) -> str:
    """Return a ratio with one decimal, below 1 with two."""
    return f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2f}"


def _numbers(run: Run) -> tuple[float, float, float]:
    return (run.seconds, run.cpu, run.peak_mb)


def _rounds(report: Report) -> int:
    return max((len(runs) for runs in report.runs.values()), default=0)


def _result(runs: Iterable[Run]) -> str:
    codes = sorted({run.exit for run in runs})
    return "passed" if codes == [0] else f"exit {', '.join(map(str, codes))}"


def chapter_table(report: Report) -> Table:
    """Return the seconds of each notebook under the checker without its cache: median and range."""
    made = Table(title="seconds by notebook, no cache", caption="not in these: starting and importing, once a run")
    made.add_column("notebook")
    made.add_column("median", justify="right")
    made.add_column("range", justify="right")
    for name, seconds in report.chapters.items():
        made.add_row(name, f"{statistics.median(seconds):.2f}", f"{min(seconds):.2f}–{max(seconds):.2f}")
    total = sum(statistics.median(seconds) for seconds in report.chapters.values())
    made.add_section()
    made.add_row("all", f"{total:.2f}", "")
    return made


def describe(found: Mapping[str, Any]) -> str:
    """Return the machine in one line."""
    shown = ("torch", "ipython", "pytest", "nbval", "nbmake", "transformers", "trl")
    versions = ", ".join(f"{name} {found[name]}" for name in shown)
    place = (
        f"{found['system']}, {found['cores']} cores, {found['memory_gb']} GB, load {found['load_at_start']} at start"
    )
    return f"{place}; Python {found['python']}, {versions}"


Growth = list[tuple[Synthetic, Report]]


def growth(shapes: Sequence[Synthetic], rounds: int, say: Callable[[str], None]) -> Growth:
    """Measure every runner on made-up books of these shapes, one after another."""
    found: Growth = []
    for shape in shapes:
        with Scratch("bench") as folder:
            write_synthetic(folder, shape)
            say(f"{shape.notebooks} notebooks")
            found.append((shape, bench(folder, (), rounds, say)))
    return found


def growth_table(found: Growth) -> Table:
    """Return, for each runner, seconds in all, milliseconds a notebook and peak memory as the book grows."""
    made = Table(
        title=f"{found[0][0].cells} code cells a notebook, {_rounds(found[0][1])} round(s): medians",
        caption="in each column: seconds in all, milliseconds a notebook, peak MB",
    )
    made.add_column("runner", no_wrap=True)
    for shape, _ in found:
        made.add_column(f"{shape.notebooks} notebooks", justify="right")
    for name in found[0][1].runs:
        cells = []
        for shape, report in found:
            seconds, _, peak = (statistics.median(v) for v in zip(*map(_numbers, report.runs[name]), strict=True))
            cells.append(f"{seconds:.1f}  {1000 * seconds / shape.notebooks:.0f}  {peak:.0f}")
        made.add_row(name, *cells)
    return made
