"""A small book in which the linter finds nothing, as data that a test changes before it is written.

book = CleanBook(tmp_path)
book.replace("reading", "16%", "17%")
assert book.found("L701") == [("reading", 1)]
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from synthetic import CellDict, md, notebook
from synthetic import code as code_cell

from bookkit.lint import citations, code, figures, hygiene, language, references, structure
from bookkit.lint.context import Context
from bookkit.lint.provenance import Provenance
from bookkit.notebook import dump, write_atomic
from bookkit.problems import Problem

MODULES = {"1": hygiene, "2": structure, "3": code, "4": figures, "5": references, "6": citations, "8": language}
FILLER = "The agent reads the file, runs the tests and writes a patch that the tests accept.\n" * 300
ALT = "A loop of four boxes: policy, parser, environment and context, with an arrow back to the policy."
SVG = """<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 10 10">
<title>The loop</title>
<desc>Four boxes in a ring.</desc>
<rect width="10" height="10" fill="#fcfcfa"/>
</svg>
"""
SOURCES = """# Sources

## paper-a

A. Author. A paper. 2024. arXiv:2401.01234.

| claim | where in it | read | checked |
|---|---|---|---|
| 2,294 instances, the best model solves 1.96% | abstract | primary | 2025-01-31 |
| more than 8.1K tasks | section 2 | secondary | 2025-02-01 |
"""
PYPROJECT = (
    '[project]\nname = "agentrl"\nversion = "0"\n\n[tool.ruff]\nline-length = 120\n\n[tool.bookkit]\nlab_cells = []\n'
)
STUB = 'def double(x: float) -> float:\n    """Return twice x."""\n    raise NotImplementedError'


def design(number: int) -> str:
    """Return a design question with its four parts."""
    parts = ("Symptom", "Cause", "Options", "Recommendation")
    return f"### Question number {number}\n\n" + "\n\n".join(f"**{part}.** Some text." for part in parts)


def chapter_cells(k: str, saved: str, key: str) -> list[CellDict]:
    """Return the cells of chapter `k`, which saves the function `saved` and cites `key`."""
    exercises = [
        md(f"exercise-{n}", f"**Exercise {k}.{n} ★★** Find the silent fault in this step." if n < 7 else "")
        for n in range(2, 8)
    ]
    exercises[-1]["source"] = f"**Exercise {k}.7 ★** Run it again with the rate 0.75."
    return [
        md("title", f"# Chapter {k} · Intro {k}\n\n**Question.** What is this about?\n\n**You need.** Nothing."),
        code_cell("imports", "#@save\nimport math"),
        md("first", f"## {k}.1 First section\n\n{FILLER}"),
        code_cell(
            "area", f'#@save\ndef {saved}(r: float) -> float:\n    """Return an area."""\n    return math.pi * r**2'
        ),
        md("use", "The function is used once."),
        code_cell(
            "measure",
            'print("success", 328 / 2000, "of", 2000)\nprint("share 24%")',
            "success 0.164 of 2000\nshare 24%\n",
        ),
        md(
            "reading",
            f"It succeeds in 16.4% of 2,000 episodes; the benchmark has 2,294 instances [@{key}]. See §{k}.1.",
        ),
        md("equation", f"The sum is\n\n$$\n1 + 1 = 2 \\tag{{{k}.1}}\n$$\n\nand Equation ({k}.1) holds."),
        md("table", f"**Table {k}.1.** Rates.\n\n| rate | share |\n|---|---|\n| $p$ | 24% |"),
        md("figure", f"![{ALT}](../figures/ch0{k}-loop.svg)\n\n**Figure {k}.1.** The loop. The curve ends at 0.731."),
        md("design", f"## {k}.2 Design questions in practice\n\n" + "\n\n".join(design(n) for n in (1, 2, 3))),
        md("summary", "## Summary\n\nOne point."),
        md("exercises", "## Exercises"),
        md("exercise-1", f"**Exercise {k}.1 ★** Double a number.\n\n```python\n{STUB}\n```"),
        *exercises,
        md("sources", f"## Sources\n\n- [@{key}] A. Author. A paper. 2024. arXiv:2401.01234."),
    ]


def solution_cells(k: str, name: str) -> list[CellDict]:
    """Return the cells of the solutions of chapter `k`."""
    prose = [
        md(f"solution-{n}", f"## Exercise {k}.{n} {'★' if n == 7 else '★★'}\n\nIt is in the text.") for n in range(2, 8)
    ]
    extra: dict[str, Any] = {"exercise": f"{k}.1"}
    return [
        md("title", f"# Solutions to chapter {k}"),
        code_cell("setup", f"%%capture\n%run ../{name}.ipynb"),
        md("solution-1", f"## Exercise {k}.1 ★"),
        code_cell("stub-1", STUB, role="stub", **extra),
        md("then", "The sum of a number with itself."),
        code_cell("answer-1", STUB.replace("raise NotImplementedError", "return 2 * x"), role="solution", **extra),
        md("and", "It passes."),
        code_cell("test-1", 'assert double(0.75) == 1.5\nprint("passed")', "passed\n", role="test", **extra),
        *prose,
    ]


class CleanBook:
    """Two chapters with solutions, a figure each, and a ledger: cells and files as data until written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cells: dict[str, list[CellDict]] = {}
        self.metadata: dict[str, dict[str, str]] = {}
        self.files = {"pyproject.toml": PYPROJECT, "sources.md": SOURCES, "README.md": "# The book\n"}
        for k, saved in (("1", "disc_area"), ("2", "ball_area")):
            name = f"0{k}-intro-{k}"
            self.cells[name] = chapter_cells(k, saved, "paper-a")
            self.cells[f"solutions/{name}"] = solution_cells(k, name)
            self.metadata[name] = {
                "chapter": f"0{k}",
                "module": f"intro_{k}",
                "title": f"Intro {k}",
                "question": "What is this about?",
                "recorded": "2025-03-01",
            }
            self.metadata[f"solutions/{name}"] = {
                "chapter": f"0{k}",
                "title": f"Solutions {k}",
                "recorded": "2025-03-01",
            }
            self.files[f"figures/ch0{k}-loop.svg"] = SVG
            self.files[f"figures/ch0{k}_loop.py"] = f'DATA = "data/loop-{k}.json"\n'
            self.files[f"figures/data/loop-{k}.json"] = json.dumps({"curve": [0.1, 0.7312]})

    def cell(self, cell_id: str, name: str = "01-intro-1") -> CellDict:
        """Return the cell with this id."""
        return next(cell for cell in self.cells[name] if cell["id"] == cell_id)

    def replace(self, cell_id: str, old: str, new: str, name: str = "01-intro-1") -> None:
        """Replace text in a cell's source, which must hold it."""
        cell = self.cell(cell_id, name)
        assert old in cell["source"], f"{old!r} is not in {cell_id}"
        cell["source"] = cell["source"].replace(old, new, 1)

    def prose(self, text: str, name: str = "01-intro-1", **metadata: Any) -> None:
        """Put text in place of the cell `reading`, keeping its citation out unless the text has one."""
        self.cell("reading", name)["source"] = text
        if metadata:
            self.cell("reading", name)["metadata"] = {"agentrl": metadata}

    def insert(self, after: str, cells: Sequence[CellDict], name: str = "01-intro-1") -> None:
        """Insert cells after the one with this id."""
        at = self.cells[name].index(self.cell(after, name))
        self.cells[name][at + 1 : at + 1] = cells

    def remove(self, cell_id: str, name: str = "01-intro-1") -> None:
        """Remove a cell."""
        self.cells[name].remove(self.cell(cell_id, name))

    def write(self) -> Path:
        """Write the book and return its root."""
        for name, cells in self.cells.items():
            write_atomic(self.root / "chapters" / f"{name}.ipynb", dump(notebook(cells, **self.metadata[name])))
        for name, text in self.files.items():
            write_atomic(self.root / name, text)
        return self.root

    def problems(self, digit: str) -> list[Problem]:
        """Write the book and return what the rules of one group of codes find."""
        context = Context.load(self.write())
        if digit == "7":
            return list(Provenance(context).check())
        return list(MODULES[digit].check(context))

    def found(self, code: str) -> list[tuple[str | None, int | None]]:
        """Write the book and return cell and line of each finding with this code."""
        return [(p.cell, p.line) for p in self.problems(code[1]) if p.code == code]

    def messages(self, code: str) -> list[str]:
        """Write the book and return the message of each finding with this code."""
        return [p.message for p in self.problems(code[1]) if p.code == code]
