"""Run the figures' scripts, each in its own process with a fixed environment, and compare what they draw."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .figures import svg_name, svg_problems
from .notebook import write_atomic
from .scratch import Scratch

TIMEOUT = 120.0
STOPS = (signal.SIGINT, signal.SIGTERM)
# Nothing of the machine or its user may reach the picture.
PINNED = {
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "SOURCE_DATE_EPOCH": "0",
}
# The child prints nothing to the parent: the SVG goes to a file, so a figure's own prints cannot spoil it.
CHILD = """
import importlib.util, sys
from pathlib import Path
script, out, tools = sys.argv[1:4]
sys.path[:0] = [str(Path(script).parent), tools]
spec = importlib.util.spec_from_file_location(Path(script).stem, script)
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
if not callable(getattr(module, "draw", None)):
    raise TypeError("the script has no function draw()")
svg = module.draw()
if not isinstance(svg, str):
    raise TypeError(f"draw() returned {type(svg).__name__}, not the text of an SVG")
Path(out).write_bytes(svg.encode("utf-8"))
"""


@dataclass(frozen=True)
class Result:
    """What one script drew (the text, or the error that stopped it), and whether the file there was another."""

    script: Path
    target: Path
    svg: str | None
    error: str | None
    changed: bool = False


def find_scripts(root: Path) -> list[Path]:
    """Return the figures' scripts in order of name; those whose name starts with _ are helpers, not figures."""
    return sorted(path for path in (root / "figures").glob("*.py") if not path.name.startswith("_"))


def select(scripts: Sequence[Path], names: Sequence[str]) -> list[Path]:
    """Return the scripts that match any name: `01`, `ch01`, a script's or an SVG's name. KeyError: none does."""
    chosen: set[Path] = set()
    for name in names:
        wanted = Path(name).name.removesuffix(".py").removesuffix(".svg").replace("-", "_")
        wanted = f"ch{wanted.lower()}" if re.fullmatch(r"\d\d|[A-Z]", wanted) else wanted
        found = [s for s in scripts if s.stem == wanted or s.stem.startswith(wanted + "_")]
        if not found:
            there = ", ".join(script.stem for script in scripts) or "none"
            raise KeyError(f"no figure is called {name!r}; there are: {there}")
        chosen.update(found)
    return [script for script in scripts if script in chosen or not names]


def orphans(root: Path) -> list[Path]:
    """Return the SVG files in figures/ that no script draws."""
    drawn = {svg_name(script) for script in find_scripts(root)}
    return sorted(path for path in (root / "figures").glob("*.svg") if path.name not in drawn)


def draw_all(scripts: Sequence[Path], timeout: float = TIMEOUT, jobs: int | None = None) -> list[Result]:
    """Run every script and return the results in the same order; a script that fails does not stop the others."""
    workers = jobs or min(4, os.cpu_count() or 1)
    release = partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, STOPS)  # a script is stopped as its caller is
    with Scratch("figures") as folder, ThreadPoolExecutor(workers, initializer=release) as pool:
        # A signal that came while the pool starts a thread would make it forget the thread, and not wait for it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        try:
            drawn = [pool.submit(draw_one, script, folder, timeout) for script in scripts]
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            return [future.result() for future in drawn]
        finally:
            pool.shutdown(cancel_futures=True)  # those that have not begun when a signal ends the run


def draw_one(script: Path, folder: Path, timeout: float = TIMEOUT) -> Result:
    """Run one script's `draw()` in a fresh process and return what it drew or why it could not."""
    target = script.with_name(svg_name(script))
    out = folder / target.name
    home = folder / f"{script.stem}-matplotlib"
    home.mkdir()
    tools = str(Path(__file__).resolve().parents[1])
    command = [sys.executable, "-c", CHILD, str(script), str(out), tools]
    env = {**_kept(), **PINNED, "MPLCONFIGDIR": str(home)}
    try:
        done = subprocess.run(
            command,
            cwd=script.parent,
            env=env,
            capture_output=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return Result(script, target, None, f"still drawing after {timeout:g} s")
    if done.returncode:
        return Result(script, target, None, _last_line(done.stderr, done.returncode))
    if not out.exists():
        return Result(script, target, None, "the script ended without drawing")
    svg = out.read_bytes().decode()
    problems = svg_problems(svg)
    if problems:
        return Result(script, target, None, "; ".join(problems))
    changed = not target.exists() or target.read_bytes() != svg.encode()
    return Result(script, target, svg, None, changed)


def _kept() -> dict[str, str]:
    """Return the parent's environment without what changes Python's or matplotlib's behaviour."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "MPL", "LC_", "LANG"))}


def _last_line(stderr: bytes, code: int) -> str:
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    if code < 0:
        return f"killed by signal {-code}"
    return lines[-1].strip() if lines else f"exit code {code} and no message"


def write_changed(results: Iterable[Result]) -> list[Path]:
    """Write the files that changed, each by rename, and return their paths."""
    written = [(result.target, result.svg) for result in results if result.changed and result.svg is not None]
    for target, svg in written:
        write_atomic(target, svg)
    return [target for target, _ in written]
