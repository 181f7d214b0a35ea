"""A small book that the determinism matrix runs beside the real one: it shows that a difference would be seen.

    arrival.py     cells that print what each setting changes: a setting that changes nothing has not arrived
    training.py    cells that train a transformer by policy gradient, sampling in the loop
    main_loop.py   cells that train TinyAgent with the library's own loop, in a book of the real chapters before them

The training is planted three times. `planted` follows the book's rules (float64, weights snapped to a grid) and must
print the same everywhere, to the last bit of every weight. `float64` (not snapped) and `float32` are controls: they
must differ somewhere, or the matrix is blind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..checker import make_plan
from ..engines import ForkEngine
from ..notebook import dump, load_book, normalise, write_atomic
from ..runner import EngineError, Limits, pinned, usable_memory
from ..update import recorded

HERE = Path(__file__).resolve().parent
FULL, SHORT = 80, 12  # iterations of the training, four steps of the optimiser each
MAIN_LOOP = ("99", "main-loop", "grpo")  # its key, its name, and the module without which a book has none
SHORT_LOOP = "ITERATIONS, TASKS, WARM_START = 5, 12, 50"
CONTROLS = ("float64", "float32")
NAMES = {"01": "arrival", "02": "planted", "03": "float64", "04": "float32"}
ARITHMETIC = {"planted": "snapped", "float64": "float64", "float32": "float32"}
TIMEOUT = 900.0  # seconds a cell may take: some settings are several times slower, and slowness is no difference


def write_planted(root: Path, iterations: int, controls: bool, jobs: int = 1) -> Path:
    """Write the planted book to `root`, run it once under what the checker pins, record what it prints.

    EngineError when a cell fails.
    """
    write_atomic(root / "pyproject.toml", '[project]\nname = "agentrl"\nversion = "0"\n')
    for key, name in NAMES.items():
        if controls or name not in CONTROLS:
            cells = cells_of("arrival.py") if name == "arrival" else training_cells(ARITHMETIC[name], iterations)
            write_atomic(root / "chapters" / f"{key}-{name}.ipynb", dump(_notebook(key, name, cells)))
    record(root, jobs)
    return root


def write_main_loop(root: Path, book: Path, short: bool) -> Path | None:
    """Write a book's chapters and, after them, the one that trains with their library; record what that one prints.

    None if the book has no chapter that saves the loop. EngineError when a cell fails.
    """
    key, name, module = MAIN_LOOP
    chapters = load_book(book).chapters
    if module not in {chapter.module for chapter in chapters}:
        return None
    write_atomic(root / "pyproject.toml", (book / "pyproject.toml").read_text(encoding="utf-8"))
    for chapter in chapters:
        write_atomic(root / "chapters" / chapter.path.name, chapter.path.read_text(encoding="utf-8"))
    cells = cells_of("main_loop.py") | ({"settings": SHORT_LOOP} if short else {})
    write_atomic(root / "chapters" / f"{key}-{name}.ipynb", dump(_notebook(key, name.replace("-", "_"), cells)))
    record(root, 1, [key])
    return root


def cells_of(file: str) -> dict[str, str]:
    """Return the cells of one of this folder's modules: what stands under each `# %% id`."""
    text = (HERE / file).read_text(encoding="utf-8")
    parts = re.split(r"^# %% (\S+)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))


def training_cells(arithmetic: str, iterations: int) -> dict[str, str]:
    """Return the cells of the training in one arithmetic: snapped, float64 or float32."""
    return {**cells_of("training.py"), "settings": f"ARITHMETIC, ITERATIONS = {arithmetic!r}, {iterations}"}


def _notebook(key: str, name: str, cells: dict[str, str]) -> dict[str, Any]:
    """Return a chapter with these cells, none of them run yet."""
    code = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    book = {"chapter": key, "module": name, "title": name.capitalize(), "question": "Does it print the same?"}
    made = [{**code, "id": cell_id, "source": source} for cell_id, source in cells.items()]
    return normalise({"cells": made, "metadata": {"agentrl": book}, "nbformat": 4, "nbformat_minor": 5})


def record(root: Path, jobs: int, prefixes: Sequence[str] = ()) -> None:
    """Run the chapters of a planted book, or some, under what the checker pins and write down what they print."""
    plan = make_plan(root, list(prefixes), remember=False)
    limits = Limits(timeout=TIMEOUT, memory=usable_memory())
    engine = ForkEngine(pinned(), limits)
    try:
        engine.prepare(plan.jobs)
        with ThreadPoolExecutor(jobs) as pool:
            runs = list(pool.map(engine.run, plan.jobs))
    finally:
        engine.close()
    for job, run in zip(plan.jobs, runs, strict=True):
        if not run.clean:
            failed = [failure.message for cell in run.cells for failure in cell.failures]
            raise EngineError(f"the planted chapter {job.chapter.name} fails: {'; '.join(failed) or 'no word'}")
        write_atomic(job.chapter.path, dump(recorded(job, run)))
