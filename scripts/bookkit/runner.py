"""What a run of a notebook is: the job, the environment, and the events of an engine, read into a result.

Nothing here judges an output; that is `checker`'s. Nothing heavy is imported here: a run served from the cache needs
neither IPython nor torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .notebook import Chapter

CHECK_SEED, UPDATE_SEEDS = "0", ("1", "2")
UPDATE_ZONES = ("UTC", "LATER-24")  # a day apart, so that a date is another in the second run
PINNED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "COLUMNS": "80",
    "NO_COLOR": "1",
    "MPLBACKEND": "Agg",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# What the caller may have set and cells do not see: it would change what Python does (PYTHON…), which digits the
# numeric libraries compute or how (ATEN… to VECLIB…), what memory holds (MALLOC…), what a program prints (LANG…).
DROPPED = re.compile(
    r"(?:PYTHON|ATEN_|TORCH_|PYTORCH_|NPY_|NUMEXPR_|MKL_|OPENBLAS_|GOTO_|BLIS_|OMP_|KMP_|GOMP_|ONEDNN_|DNNL_|CUBLAS_"
    r"|CUDNN_|NVIDIA_TF32_|VECLIB_|MALLOC_|LC_|CLICOLOR).*"
    r"|GLIBC_TUNABLES|LANG|LANGUAGE|LINES|FORCE_COLOR|PYTEST_CURRENT_TEST|AGENTRL_MODEL_DIR"
)
SILENCE_LIMIT = 60.0
MIB = 1024 * 1024

OnCell = Callable[[int], None]


@dataclass(frozen=True)
class Limits:
    """What a notebook may use: seconds per cell, bytes of memory and output. `output` fails a cell, `_hard` ends it."""

    timeout: float = 300.0  # solutions run their whole chapter in one cell
    memory: int = 8 * 1024 * MIB
    output: int = MIB
    output_hard: int = 64 * MIB


@dataclass
class Failure:
    """Something wrong with a cell, in one line and some more below it; `line` counts within the cell."""

    kind: str
    message: str
    details: list[str] = field(default_factory=list)
    line: int | None = None


@dataclass
class CellRun:
    """What one code cell did. `error` is what it raised where its tags allow that; `probe` how its stub was tested."""

    ran: bool = False
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    error: dict[str, Any] | None = None
    failures: list[Failure] = field(default_factory=list)


@dataclass
class NotebookRun:
    """What one notebook did: its cells in order, where it stopped (index of a cell).

    `seen` is a digest of its copy of the book, taken before the first cell ran.
    """

    cells: list[CellRun]
    seconds: float = 0.0
    seen: str = ""
    stopped: int | None = None
    complete: bool = False

    @property
    def clean(self) -> bool:
        """Whether it ran to its end without a failure."""
        return self.complete and not any(cell.failures for cell in self.cells)


@dataclass(frozen=True)
class Job:
    """A notebook to run: its library, which cells to run, and for stubs the test that must fail on them.

    `model` is the folder of the real model, `missing` says for classes of cells that cannot run here why not.
    `looks_around` says whether its cells could look at the other notebooks of the book, `texts` are all the code that
    they may run.
    """

    chapter: Chapter
    library: Mapping[str, str]
    run: tuple[bool, ...]
    probes: Mapping[int, str]
    model: str | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    looks_around: bool = True
    texts: tuple[str, ...] = ()

    def cells(self) -> list[dict[str, Any]]:
        """Return the cells as plain data, for the worker and for the cache's key."""
        return [
            {"id": c.id, "source": c.source, "tags": c.tags, "run": run, "probe": self.probes.get(i)}
            for i, (c, run) in enumerate(zip(self.chapter.code_cells, self.run, strict=True))
        ]


class Engine(ABC):
    """A way to run a notebook."""

    def prepare(self, jobs: Sequence[Job]) -> list[Job]:
        """Hear which jobs are coming, start what takes long, and return the jobs in the best order to run them."""
        return list(jobs)

    @abstractmethod
    def run(self, job: Job, on_cell: OnCell | None = None) -> NotebookRun:
        """Run the job's cells and return what they did; may be called from several threads."""

    @abstractmethod
    def close(self) -> None:
        """End every process the engine has started."""


class EngineError(Exception):
    """The engine itself cannot run; says why."""


def pinned(seed: str = CHECK_SEED, override: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment variables that every cell sees with fixed values."""
    return {**PINNED, "PYTHONHASHSEED": seed, **(override or {})}


def environment(pins: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment for a process that runs cells: what is left of the caller's, `pins` over it."""
    kept = {name: value for name, value in os.environ.items() if not DROPPED.fullmatch(name)}
    return {**kept, **pins}


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_memory() -> int:
    """Return the bytes a notebook may use: 8 GiB, or three quarters of a smaller machine's memory."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 8 * 1024 * MIB
    return min(8 * 1024 * MIB, whole * 3 // 4)


class Reader:
    """Turns the events of one run into a NotebookRun."""

    def __init__(self, job: Job, limits: Limits, on_cell: OnCell | None = None, seen: str = "") -> None:
        self.job, self.limits, self.on_cell = job, limits, on_cell
        self.result = NotebookRun([CellRun() for _ in job.chapter.code_cells], seen=seen)
        self.done = self.cut = False

    def read(self, sock: socket.socket) -> NotebookRun:
        """Read events until the run is over. Silence is an end too: a supervisor says that it lives."""
        started = time.monotonic()
        sock.settimeout(SILENCE_LIMIT)
        buffer = b""
        while not self.done:
            try:
                data = sock.recv(MIB)
            except OSError:
                data = b""
            if not data:
                self.cut = True
                self.stop_at(None, Failure("died", "the run ended without a word: its supervisor is gone"))
                break
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                event = json.loads(line)
                getattr(self, "on_" + event.pop("event"))(**event)
        self.result.seconds = time.monotonic() - started
        return self.result

    def on_alive(self) -> None:
        """Nothing has happened; the supervisor is there."""

    def on_done(self) -> None:
        """The run is over."""
        self.done = True
        self.result.complete = self.result.stopped is None

    def on_begin(self, index: int) -> None:
        """A cell starts."""
        self.result.cells[index].ran = True
        if self.on_cell is not None:
            self.on_cell(index)

    def on_end(self, index: int, stdout: str, stderr: str, size: int, seconds: float, error: Any, **said: Any) -> None:
        """A cell has ended, well or with an exception."""
        run = self.result.cells[index]
        run.stdout, run.stderr, run.seconds, run.error = stdout, stderr, seconds, error
        if size > self.limits.output:
            over = f"{size:,} bytes of output; the limit is {self.limits.output:,}"
            run.failures.append(Failure("output", over))
        run.failures += display_failures(said["echoes"], said["displays"])
        if said["exits"]:
            code = f" ({error['evalue']})" if error and error["evalue"] else ""
            message = f"the cell calls exit{code}: in Jupyter that ends the kernel"
            self.stop_at(index, Failure("exit", message, _frame_lines(error), (error or {}).get("line")))
        elif error is not None and "raises-exception" not in self.job.chapter.code_cells[index].tags:
            self.stop_at(index, exception_failure(error))

    def on_probed(self, index: int, status: int) -> None:
        """An exercise's test has run against its stub."""
        if status == 10:
            return
        exercise = self.job.chapter.code_cells[index].book.get("exercise", "?")
        how = "passes its test" if status == 0 else f"ends the process of its test ({_ending(status)})"
        self.add(index, Failure("stub", f"exercise {exercise}: the stub {how}; the test must raise on it"))

    def on_late(self, index: int, text: str) -> None:
        """Something was printed after its cell had ended."""
        message = "output after the cell had ended: a thread or child process prints late"
        self.add(index, Failure("late", message, [f"it printed {text[:200]!r}"] if text else []))

    def on_thread(self, index: int, name: str) -> None:
        """A thread outlived the notebook."""
        self.add(index, Failure("thread", f"thread {name!r} is still running after the last cell"))

    def on_child(self, index: int, name: str) -> None:
        """A process outlived the notebook; the supervisor kills it."""
        self.add(index, Failure("child", f"process still running after the last cell (now killed): {name}"))

    def on_forked(self, index: int) -> None:
        """A fork of the process came back from the cell that made it; the worker ended it there."""
        message = "a forked process came back from the cell: end it inside, with os._exit(0)"
        self.add(index, Failure("fork", message))

    def on_crash(self, message: str) -> None:
        """The worker itself failed."""
        self.stop_at(None, Failure("died", "the checker's worker failed", message.splitlines()[-8:]))

    def on_fail(self, kind: str, index: int | None, last: int | None, **d: Any) -> None:
        """The run was ended, by a limit or by the cell."""
        at = index if index is not None else last
        if index is not None:
            run = self.result.cells[index]
            run.ran = True
            if not d.get("probe"):
                run.stdout, run.stderr = d["stdout"], d["stderr"]
        self.stop_at(at, _ending_failure(kind, index is not None, d))

    def add(self, index: int, failure: Failure) -> None:
        """Record a failure once."""
        if failure.message not in [f.message for f in self.result.cells[index].failures]:
            self.result.cells[index].failures.append(failure)

    def stop_at(self, index: int | None, failure: Failure) -> None:
        """Record the failure that ended the run: at a cell, or at the last one that began."""
        if self.result.stopped is not None or not self.result.cells:
            return
        ran = [i for i, cell in enumerate(self.result.cells) if cell.ran]
        at = index if index is not None else (ran[-1] if ran else 0)
        self.result.stopped = at
        self.add(at, failure)


def display_failures(echoes: list[str], displays: list[str]) -> list[Failure]:
    """Return the failures of a cell that shows values instead of printing."""
    found = []
    if echoes:
        found.append(Failure("echo", "the cell displays a value; print it or end the line with ;", [echoes[0]]))
    if displays:
        found.append(Failure("display", "the cell calls display(); print instead", [displays[0]]))
    return found


def exception_failure(error: Mapping[str, Any]) -> Failure:
    """Return the failure of a cell that raised."""
    message = f"{error['ename']}: {error['evalue']}" if error["evalue"] else error["ename"]
    head, *rest = message.splitlines() or [error["ename"]]
    details = rest + _frame_lines(error)
    if error["ename"] in ("EOFError", "StdinNotImplementedError"):
        details.append("a cell cannot ask: there is nobody to answer input()")
    return Failure("exception", head, details, error.get("line"))


def _frame_lines(error: Mapping[str, Any] | None) -> list[str]:
    if not error:
        return []
    lines = []
    for place, number, function, source in error["frames"]:
        where = f" in {function}" if function and function != "<module>" else ""
        lines.append(f"{place}:{number}{where}")
        if source:
            lines.append(f"    {source}")
    return [*lines, f"caused by {error['cause']}"] if error.get("cause") else lines


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-status).name}"
    return f"killed by signal {-status}"


def _ending_failure(kind: str, inside: bool, d: Mapping[str, Any]) -> Failure:
    """Return the failure of a run that was ended."""
    stacks = _stack_lines(d.get("stacks", ""))
    if kind == "died":
        how = _ending(d["status"])
        hint = "; perhaps by os._exit" if d["status"] >= 0 else ""
        return Failure(
            kind, f"the process ended inside this cell: {how}{hint}" if inside else f"the process ended: {how}", stacks
        )
    if kind == "timeout":
        if d.get("probe"):
            return Failure(kind, f"the exercise's test did not end on the stub within {d['seconds']:g} s", stacks)
        where = "not finished" if inside else "the process did not start or end"
        return Failure(kind, f"timeout: {where} after {d['seconds']:g} s", stacks)
    if kind == "memory":
        return Failure(
            kind, f"out of memory: {d['used'] / MIB:,.0f} MiB in use, the limit is {d['limit'] / MIB:,.0f} MiB"
        )
    return Failure(kind, f"endless output: more than {d['limit']:,} bytes; the cell was stopped")


def _stack_lines(stacks: str) -> list[str]:
    """Return faulthandler's text without addresses and the frames of the checker and of IPython below the cell's."""
    kept = []
    for line in stacks.splitlines():
        if re.search(r'File ".*(/IPython/|/bookkit/|/asyncio/|<frozen )', line) or line.strip() == "":
            continue
        line = re.sub(r"hread 0x[0-9a-f]+", "hread", line)
        line = re.sub(r'"[^"]*/site-packages/', '"', line)
        kept.append(re.sub(r'"[^"]*/lib/agentrl/', '"agentrl/', line))
    return kept[:30]
