"""The slow engine: a real Jupyter kernel per notebook, through nbclient. It must print what the fast one prints."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import drain, kernelguard, libguard
from .notebook import as_text
from .runner import (
    CellRun,
    Engine,
    Failure,
    Job,
    Limits,
    NotebookRun,
    OnCell,
    display_failures,
    environment,
    exception_failure,
)
from .stage import Stage


class KernelEngine(Engine):
    """Runs each notebook in an ipykernel of this interpreter, with the same library and environment."""

    def __init__(self, pins: Mapping[str, str], limits: Limits) -> None:
        self.pins, self.timeout = pins, math.ceil(limits.timeout)  # nbclient counts whole seconds; 0 means for ever
        self.lock = threading.Lock()
        self.guards: set[int] = set()
        self.closed = False

    def run(self, job: Job, on_cell: OnCell | None = None) -> NotebookRun:
        """Run the job's cells through nbclient."""
        stage = Stage(job)
        started = time.monotonic()
        try:
            result = self._execute(job, stage, on_cell)
        finally:
            stage.remove()
        result.seconds = time.monotonic() - started
        return result

    def _execute(self, job: Job, stage: Stage, on_cell: OnCell | None) -> NotebookRun:
        import nbformat
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

        result = NotebookRun([CellRun() for _ in job.chapter.code_cells])
        wanted = [i for i, run in enumerate(job.run) if run]
        cells = [job.chapter.raw["cells"][job.chapter.code_cells[i].index] for i in wanted]
        fresh = [{**c, "source": as_text(c["source"]), "outputs": [], "execution_count": None} for c in cells]
        data = {"cells": fresh, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        notebook: Any = nbformat.from_dict(data)
        current = [-1]

        def begin(cell: Any, cell_index: int) -> None:
            current[0] = wanted[cell_index]
            result.cells[current[0]].ran = True
            if on_cell is not None:
                on_cell(current[0])

        client = self._client(notebook, stage, begin)
        failure: Failure | None = None
        held, ours = self._open_guard()
        try:
            env = {**environment(self.pins), **stage.environment(job)}
            quiet = subprocess.DEVNULL  # a kernel repeats what it captures on the stdout it was started with
            client.execute(env=env, cwd=str(stage.cwd), stdin=held, stdout=quiet, stderr=quiet)
            result.complete = True
        except CellTimeoutError:
            failure = Failure("timeout", f"timeout: not finished after {self.timeout} s")
        except DeadKernelError:
            failure = Failure("died", "the kernel died inside this cell")
        except CellExecutionError as error:
            failure = exception_failure({"ename": error.ename, "evalue": error.evalue, "frames": []})
            if error.ename == "SystemExit":
                failure = Failure("exit", "the cell calls exit: in Jupyter that ends the kernel")
        finally:
            os.close(held)
            self._close_guard(ours)
        for place, cell in zip(wanted, notebook.cells, strict=True):
            _fill(result.cells[place], cell)
        if failure is not None:
            result.stopped = max(0, current[0])
            result.cells[result.stopped].failures.append(failure)
        return result

    def _client(self, notebook: Any, stage: Stage, begin: Any) -> Any:
        """Return a client whose kernel is this interpreter's and lets in the staged library alone."""
        from jupyter_client.kernelspec import KernelSpec
        from jupyter_client.manager import AsyncKernelManager
        from nbclient import NotebookClient

        start_up = stage.scratch / "start_up.py"
        start_up.write_text(_start_up_source(stage.library), encoding="utf-8")
        argv = [
            sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}",
            "--HistoryManager.enabled=False", "--log-level=ERROR", f"--IPKernelApp.exec_files={start_up}",
        ]  # fmt: skip
        manager = AsyncKernelManager(connection_file=str(stage.scratch / "kernel.json"))
        guarded = kernelguard.command(str(stage.scratch), argv)
        manager._kernel_spec = KernelSpec(argv=guarded, language="python", display_name="Python 3")
        client = NotebookClient(
            notebook, km=manager, timeout=self.timeout, store_widget_state=False, on_cell_start=begin,
            startup_timeout=120, resources={"metadata": {"path": str(stage.cwd)}},
        )  # fmt: skip
        client.owns_km = True  # so that it ends the kernel that it is given
        return client

    def _open_guard(self) -> tuple[int, int]:
        """Return a pipe: the end for a kernel's guard, and the one that keeps the kernel alive while it is open."""
        held, ours = os.pipe()
        with self.lock:
            if self.closed:
                os.close(ours)  # the guard ends at once
            else:
                self.guards.add(ours)
        return held, ours

    def _close_guard(self, ours: int) -> None:
        """Tell the guard to end, unless it has been told."""
        with self.lock:
            if ours in self.guards:
                self.guards.remove(ours)
                os.close(ours)

    def close(self) -> None:
        """End the kernels that still run."""
        self.closed = True
        for ours in list(self.guards):
            self._close_guard(ours)


def _fill(run: CellRun, cell: Any) -> None:
    """Fill a result from the outputs nbclient collected."""
    streams = {"stdout": "", "stderr": ""}
    shown: dict[str, list[str]] = {"execute_result": [], "display_data": []}
    for output in cell.outputs:
        kind = output.output_type
        if kind == "stream":
            streams[output.name] += output.text
        elif kind == "error":
            run.error = {"ename": output.ename, "evalue": output.evalue, "frames": []}
        elif kind in shown:
            shown[kind].append(str(output.data.get("text/plain", ", ".join(output.data)))[:200])
    run.stdout, run.stderr = streams["stdout"], streams["stderr"]
    if run.ran:
        run.failures += display_failures(shown["execute_result"], shown["display_data"])


def _start_up_source(folder: Path) -> str:
    """Return what the kernel runs first: load the guard and the drain by path, and leave no name behind."""
    return (
        "import importlib.util as _util\n"
        "def _load(path):\n"
        "    spec = _util.spec_from_file_location('_book', path)\n"
        "    module = _util.module_from_spec(spec)\n"
        "    spec.loader.exec_module(module)\n"
        "    return module\n"
        f"_load({libguard.__file__!r}).install({str(folder)!r})\n"
        f"_load({drain.__file__!r}).install(get_ipython())\n"
        "del _util, _load\n"
    )
