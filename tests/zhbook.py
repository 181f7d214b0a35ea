"""A small made-up book with its Chinese translation, and the translation's tool run on it."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import sync_translation
from synthetic import CellDict, code, md, write_chapter

from bookkit.notebook import as_lines, as_text, dump, write_atomic

PYPROJECT = '[project]\nname = "agentrl"\nversion = "0.0.1"\n\n[tool.bookkit]\ntranslated = ["01"]\n'
GLOSSARY = """
[[term]]
english = ["agent"]
chinese = ["智能体"]

[[term]]
english = ["policy gradient"]
chinese = ["策略梯度"]

[[term]]
english = ["policy"]
chinese = ["策略"]

[[term]]
english = ["token"]
keep = true

[[term]]
english = ["turn"]
chinese = ["轮"]
pattern = "(?i:(?:per|each) turns?)"
first = false

[[forbidden]]
chinese = "代理"
instead = "智能体"
unless = "proxy"
"""
ENGLISH = {
    "title": "# Chapter 1 · What Is Agentic Reinforcement Learning?\n\n**Question.** What changes?\n\n"
    "**You need.** [Chapter 0](00-notation.ipynb).",
    "agents": "## 1.1 Agents\n\nAn agent takes 12 steps in `step`, and $p^H$ falls to 35.8% [@paper-a]. Three of them "
    "fail, two succeed; see Chapter 4 and Equation (1.1).\n\n$$\nP = p^H \\text{ always}. \\tag{1.1}\n$$\n\n"
    "![A loop of 3 boxes.](../figures/loop.svg)\n\n**Figure 1.1.** The loop.",
    "table": "| name | count |\n|---|---|\n| of an agent | 7 |\n| of a token | 2,000 |",
    "fence": "1. Call `a`.\n2. Then stop.\n\n```python\nx = 1  # why\n```",
    "formula": "$$\nx = 2.\n$$",
    "exercise": "**Exercise 1.1 ★★** Show that $x = 2$ for the agent [@paper-a].",
}
CHINESE = {
    "title": "# 第 1 章 · 什么是智能体强化学习？\n\n**问题。** 什么变了？\n\n"
    "**预备知识。** [第 0 章](../00-notation.ipynb)。",
    "agents": "## 1.1 智能体\n\n智能体（agent）在 `step` 中走 12 步，$p^H$ 降到 35.8% [@paper-a]。"
    "其中三步失败，两步成功；见第 4 章和式 (1.1)。\n\n$$\nP = p^H \\text{ 总是}. \\tag{1.1}\n$$\n\n"
    "![由 3 个方框组成的循环。](../../figures/loop.svg)\n\n**图 1.1** 循环。",
    "table": "| 名称 | 数量 |\n|---|---|\n| 属于智能体 | 7 |\n| 属于 token | 2,000 |",
    "fence": "1. 调用 `a`。\n2. 然后停下。\n\n```python\nx = 1  # why\n```",
    "exercise": "**练习 1.1 ★★** 对智能体证明 $x = 2$ [@paper-a]。",
}
SOLUTIONS = {"title": "# Solutions to Chapter 1", "one": "## Exercise 1.1 ★★\n\nIt is 2."}
CHINESE_SOLUTIONS = {"title": "# 第 1 章习题解答 · 什么是智能体强化学习？", "one": "## 练习 1.1 ★★\n\n答案是 2。"}
NAME = "01-introduction"


class ZhBook:
    """The book on disk; `check`, `sync` and the like run the tool and return its exit code with what it printed."""

    def __init__(self, root: Path) -> None:
        """Take the book that `made` wrote."""
        self.root = root
        self.english = dict(ENGLISH)

    @classmethod
    def made(cls, root: Path) -> ZhBook:
        """Write the book, its translation, and accept every cell."""
        book = cls(root)
        write_atomic(root / "pyproject.toml", PYPROJECT)
        write_atomic(root / "chapters" / "zh" / "glossary.toml", GLOSSARY)
        write_chapter(root, "00-notation", [md("title", "# Chapter 0 · Notation")])
        write_chapter(root, "02-later", [md("title", "# Chapter 2 · Later")])
        book.write(SOLUTIONS, solutions=True)
        book.write(book.english)
        assert book.sync("01")[0] == 0
        book.put(CHINESE)
        book.put(CHINESE_SOLUTIONS, solutions=True)
        assert book.sync()[0] == 0
        code, out = book.accept(*(f"01:{name}" for name in ENGLISH), *(f"01/solutions:{n}" for n in SOLUTIONS))
        assert code == 0, out
        return book

    def copy(self, root: Path) -> ZhBook:
        """Return the same book in another folder."""
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        return ZhBook(root)

    def write(self, cells: dict[str, str], solutions: bool = False) -> None:
        """Write an English notebook: these markdown cells, and a code cell after the second."""
        made: list[CellDict] = [md(name, text) for name, text in cells.items()]
        made.insert(2, code("run", "print(1)", "1\n"))
        kind = "solutions" if solutions else "chapter"
        write_chapter(self.root, NAME, made, kind=kind, recorded="2025-03-01")

    def edit_english(self, cell: str, old: str, new: str) -> None:
        """Replace text of an English cell of the chapter."""
        assert old in self.english[cell]
        self.english[cell] = self.english[cell].replace(old, new)
        self.write(self.english)

    def path(self, solutions: bool = False) -> Path:
        """Return where the translation stands."""
        folder = self.root / "chapters" / "zh"
        return (folder / "solutions" if solutions else folder) / f"{NAME}.ipynb"

    def raw(self, solutions: bool = False) -> dict[str, Any]:
        """Return the translated notebook as it is on disk."""
        return json.loads(self.path(solutions).read_text(encoding="utf-8"))

    def save(self, raw: dict[str, Any], solutions: bool = False) -> None:
        """Write the translated notebook."""
        write_atomic(self.path(solutions), dump(raw))

    def put(self, texts: dict[str, str], solutions: bool = False) -> None:
        """Set the text of cells of the translation, as a translator does."""
        raw = self.raw(solutions)
        for cell in raw["cells"]:
            if cell["id"] in texts:
                cell["source"] = as_lines(texts[cell["id"]])
        self.save(raw, solutions)

    def edit(self, cell: str, old: str, new: str) -> None:
        """Replace text of a Chinese cell of the chapter, which must hold it."""
        assert old in self.text(cell), f"{old!r} is not in {cell}"
        self.put({cell: self.text(cell).replace(old, new, 1)})

    def cell(self, name: str) -> dict[str, Any]:
        """Return a cell of the translated chapter."""
        return next(cell for cell in self.raw()["cells"] if cell["id"] == name)

    def text(self, name: str) -> str:
        """Return the text of a cell of the translated chapter."""
        return as_text(self.cell(name)["source"])

    def glossary(self, entry: str) -> None:
        """Add to the glossary."""
        path = self.root / "chapters" / "zh" / "glossary.toml"
        write_atomic(path, path.read_text(encoding="utf-8") + entry)

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run the tool in this process."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = sync_translation.main(["--root", str(self.root), *arguments])
        return code, out.getvalue()

    def sync(self, *prefixes: str) -> tuple[int, str]:
        """Write the translation."""
        return self.run(*prefixes)

    def check(self, *prefixes: str) -> tuple[int, str]:
        """Check the translation."""
        return self.run(*prefixes, "--check")

    def accept(self, *cells: str) -> tuple[int, str]:
        """Accept cells."""
        return self.run("--accept", *cells)

    def faults(self) -> list[str]:
        """Return the check's findings, but that a cell was edited; the exit code must agree with them."""
        status, out = self.check()
        found = out.splitlines()[:-1]
        assert status == bool(found)
        return [line for line in found if not line.endswith("[edited]")]
