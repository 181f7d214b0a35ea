"""A made-up book of a given size, for the bench: what a notebook costs does not depend on what it is about."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .notebook import KERNEL, as_lines, dump, stdout_output, write_atomic

CHAPTERS = 100  # numbers of two digits
# What the real chapters do with torch: the first step of an optimiser costs about as much as importing it.
TRAINING = """w = torch.zeros(3, dtype=torch.float64, requires_grad=True)
optimiser = torch.optim.Adam([w], lr=0.1)
for _ in range(5):
    optimiser.zero_grad()
    loss = ((w - 1) ** 2).sum()
    loss.backward()
    optimiser.step()
print(f"loss {loss.item():.3f}")"""


@dataclass(frozen=True)
class Synthetic:
    """The shape of a made-up book: how many notebooks, code cells in each, and how many of them import torch.

    A book has at most 100 numbered chapters; the notebooks beyond are solutions of its first chapters.
    """

    notebooks: int
    cells: int
    torch: int

    @classmethod
    def parse(cls, text: str) -> Synthetic:
        """Return the shape written as `20,25,3`; ValueError says what is wrong with it."""
        parts = text.split(",")
        if len(parts) != 3 or not all(part.strip().isdecimal() for part in parts):
            raise ValueError(f"{text!r} is not NOTEBOOKS,CELLS,TORCH, for example 20,25,3")
        made = cls(*map(int, parts))
        if not (1 <= made.notebooks <= 2 * CHAPTERS and made.cells >= 3 and made.torch <= made.notebooks):
            limits = f"1 to {2 * CHAPTERS} notebooks, 3 or more cells, no more with torch than there are notebooks"
            raise ValueError(f"{text!r}: {limits}")
        return made


def write_synthetic(root: Path, shape: Synthetic) -> None:
    """Write a made-up book with recorded outputs: printing, loops of about 10 ms, NumPy, one saved cell a chapter."""
    write_atomic(root / "pyproject.toml", '[project]\nname = "agentrl"\nversion = "0"\n')
    write_atomic(root / "requirements.lock", "")
    with_torch = torch_notebooks(shape)
    for number in range(shape.notebooks):
        solutions = number >= CHAPTERS
        sources = list(_sources(number % CHAPTERS, shape.cells, number in with_torch, saves=not solutions))
        folder = root / "chapters" / "solutions" if solutions else root / "chapters"
        path = folder / f"{number % CHAPTERS:02d}-synthetic.ipynb"
        write_atomic(path, dump(_notebook(number % CHAPTERS, sources, solutions)))


def torch_notebooks(shape: Synthetic) -> set[int]:
    """Return which notebooks import torch: as many as asked, spread over the book."""
    return {number * shape.notebooks // shape.torch for number in range(shape.torch)}


def _sources(chapter: int, cells: int, with_torch: bool, saves: bool) -> Iterable[str]:
    library = "torch" if with_torch else "numpy"
    yield f"import {library}"
    factor = chapter + 2
    saved = f'def scale_{chapter}(x: float) -> float:\n    """Return x times {factor}."""\n    return x * {factor}'
    yield f"#@save\n{saved}" if saves else saved
    for number in range(cells - 2 - with_torch):
        if number % 3 == 0:
            yield f"total = 0\nfor i in range(60_000):\n    total += i % {number + 2}\nprint('total', total)"
        elif number % 3 == 1:
            yield f"print({library}.arange({number + 5}).sum().item())"
        else:
            yield f"for i in range(5):\n    print(i, scale_{chapter}(i))"
    if with_torch:
        yield TRAINING


def _notebook(number: int, sources: Sequence[str], solutions: bool) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "__main__"}
    cells: list[dict[str, Any]] = []
    for count, source in enumerate(sources, start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, f"cell-{count}", "exec"), space)
        cell = {"cell_type": "code", "id": f"cell-{count}", "metadata": {}, "source": as_lines(source)}
        cells.append({**cell, "execution_count": count, "outputs": stdout_output(printed.getvalue())})
    book = {"chapter": f"{number:02d}", "title": "Synthetic"}
    if not solutions:
        book |= {"module": f"synthetic_{number:02d}", "question": "How long?"}
    metadata = {"agentrl": book, "kernelspec": dict(KERNEL), "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
