"""The library builder: what it builds from saved cells, and everything it refuses, with the place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import build_library
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import code, md, write_book, write_chapter

from bookkit.library import build, diff_package, names, write_package
from bookkit.notebook import load_book
from bookkit.package import SETTINGS
from bookkit.problems import BookError, Problem
from bookkit.rewrite import strip_library

ROOT = Path(__file__).resolve().parents[1]
CELL = dict[str, Any]

BASE = '''#@save
DTYPE = float  # the element type


def mean(values):
    """Return the mean."""
    return sum(values) / len(values)


def _hidden():
    return 1


class Point:
    """A point."""

    def __init__(self, x=0):
        self.x = x
'''
LATE = '#@save\ndef late():\n    """Return 3."""\n    return 3'


def book(root: Path, *first: CELL, more: dict[str, list[CELL]] | None = None) -> Path:
    """Write a book whose chapter 01 has the cells `first`; 00 saves DTYPE, mean, Point and 02 saves `late`."""
    chapters = {"00-base": [md("title", "# Base"), code("base", BASE)], "01-subject": list(first)}
    return write_book(root, chapters | {"02-after": [code("late", LATE)]} | (more or {}))


def problems(root: Path, **kw: str) -> list[Problem]:
    """Return the problems of building the book, [] when there are none."""
    try:
        build(load_book(root), **kw)
    except BookError as error:
        return error.problems
    return []


def module(root: Path, name: str = "subject", **kw: str) -> str:
    """Return the text of one built module."""
    return build(load_book(root), **kw)[f"{name}.py"]


def body(text: str) -> str:
    """Return what stands below a module's docstring."""
    return text.split('"""', 2)[2].strip("\n")


def doc(name: str, rest: str = "return 1") -> str:
    """Return a documented function."""
    return f'def {name}():\n    """Return 1."""\n    {rest}'


# What is refused. (cells of chapter 01, cell id, line in cell, words of the message)

FREE = "def f(x):\n    '''Return x.'''\n    return {}"
ARL = code("arl", "import agentrl as arl")
ERRORS: dict[str, tuple[list[CELL], str, int | None, str]] = {
    # The mark
    "mark after a def": ([code("a", "def f(): #@save\n    pass")], "a", 1, "must be the first line"),
    "mark on line 2": ([code("a", "x = 1\n#@save\ny = 2")], "a", 2, "must be the first line"),
    "second mark": ([code("a", "#@save\nX = 1\n#@save\nY = 2")], "a", 3, "must be the first line"),
    "indented mark": ([code("a", "  #@save\nX = 1")], "a", 1, "must be the first line"),
    "misspelt mark": ([code("a", "#@saved\nX = 1")], "a", 1, "is not the mark"),
    "unknown option": ([code("a", "#@save quietly\nX = 1")], "a", 1, "unknown option 'quietly'"),
    "bad replaces": ([code("a", "#@save replaces=\nX = 1")], "a", 1, "unknown option 'replaces='"),
    "empty cell": ([code("a", "#@save\n# nothing")], "a", 1, "nothing to save"),
    # Not plain Python
    "syntax error": ([code("a", "#@save\nX = 1\ndef f(:\n    pass")], "a", 3, "syntax error"),
    "late future import": ([code("a", "#@save\nX = 1\nfrom __future__ import annotations")], "a", 3, "syntax error"),
    "return outside": ([code("a", "#@save\nreturn 1")], "a", 2, "syntax error"),
    "line magic": ([code("a", "#@save\nX = 1\n%time f()")], "a", 3, "magic or shell line"),
    "shell line": ([code("a", "#@save\n!pip install x")], "a", 2, "magic or shell line"),
    "assigned shell": ([code("a", "#@save\nX = !ls")], "a", 2, "magic or shell line"),
    "help line": ([code("a", "#@save\nprint?")], "a", 2, "magic or shell line"),
    "null byte": ([code("a", "#@save\nX = '\0'")], "a", 2, "a null character"),
    "shared line": ([code("a", "#@save\nX = 1; Y = 2")], "a", 2, "two statements share a line"),
    # Imports
    "star import": ([code("a", "#@save\nfrom math import *")], "a", 2, "star import from math"),
    "library import": ([code("a", "#@save\nimport agentrl as arl")], "a", 2, "a saved cell imports agentrl"),
    "library from": ([code("a", "#@save\nfrom agentrl.base import mean")], "a", 2, "a saved cell imports agentrl"),
    "inner library": ([code("a", f"#@save\n{doc('f', 'from agentrl import mean')}")], "a", 4, "imports agentrl"),
    "relative import": ([code("a", "#@save\nfrom .base import mean")], "a", 2, "relative import"),
    "inner relative": ([code("a", f"#@save\n{doc('f', 'from . import base')}")], "a", 4, "relative import"),
    "alias conflict": (
        [code("a", "#@save\nimport math as m"), code("b", "#@save\nimport re as m\nX = m.pi")],
        "b",
        2,
        "imported as re, but as math in cell a line 2",
    ),
    "import and save": ([code("a", "#@save\nfrom math import pi\npi = 3")], "a", 2, "also saved in"),
    "typing block": (
        [code("a", "#@save\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    X = 1")],
        "a",
        4,
        "only imports may stand under",
    ),
    "typing else": (
        [code("a", "#@save\nif TYPE_CHECKING:\n    import re\nelse:\n    re = None")],
        "a",
        5,
        "may have no `else`",
    ),
    "typing name used": (
        [code("a", "#@save\nif TYPE_CHECKING:\n    import re\nX = re.A")],
        "a",
        4,
        "under `if TYPE_CHECKING:` only",
    ),
    # Side effects
    "print": ([code("a", "#@save\nX = 1\nprint(X)")], "a", 3, "`print(…)` runs code on import"),
    "expression": ([code("a", "#@save\nX = 1\nX")], "a", 3, "an expression runs code on import"),
    "loose string": ([code("a", "#@save\nX = 1\n'about X'")], "a", 3, "a string on its own"),
    "loop": ([code("a", "#@save\nfor i in range(3):\n    X = i")], "a", 2, "`for` runs code on import"),
    "condition": ([code("a", "#@save\nif True:\n    X = 1")], "a", 2, "`if` runs code on import"),
    "with": ([code("a", "#@save\nwith open('x') as f:\n    X = 1")], "a", 2, "`with` runs code on import"),
    "augmented": ([code("a", "#@save\nX = 1\nX += 1")], "a", 3, "changing a variable runs code on import"),
    "delete": ([code("a", "#@save\nX = 1\ndel X")], "a", 3, "del runs code on import"),
    "attribute set": ([code("a", f"#@save\n{doc('f')}\nf.x = 1")], "a", 5, "changes an object on import"),
    "item set": ([code("a", "#@save\nD = {}\nD[1] = 2")], "a", 3, "changes an object on import"),
    "declaration": ([code("a", "#@save\nX: int")], "a", 2, "a declaration without a value"),
    "call": ([code("a", "#@save\nX = 1\nY = open('x')")], "a", 3, "`open(…)` runs code on import"),
    "own function": ([code("a", f"#@save\n{doc('f')}\nY = f()")], "a", 5, "`f(…)` runs code on import"),
    "library call": ([ARL, code("a", "#@save\nY = arl.mean([1])")], "a", 2, "`arl.mean(…)` runs code on import"),
    "call in list": ([code("a", "#@save\nY = [\n    1,\n    input(),\n]")], "a", 4, "`input(…)` runs code on import"),
    "random tensor": ([code("a", "#@save\nimport torch\nY = torch.rand(3)")], "a", 3, "`torch.rand(…)` runs code"),
    "tensor of call": ([code("a", "#@save\nimport torch\nY = torch.tensor(len('a'))")], "a", 3, "`torch.tensor(…)`"),
    "shadowed builtin call": ([code("a", "#@save\nfrom os import listdir as dict\nY = dict()")], "a", 3, "`dict(…)`"),
    "default": ([code("a", "#@save\ndef f(x=open('x')):\n    '''Return x.'''")], "a", 2, "`open(…)` runs code"),
    "keyword default": ([code("a", "#@save\ndef f(*, x=input()):\n    '''Return x.'''")], "a", 2, "`input(…)`"),
    "lambda default": ([code("a", "#@save\nF = lambda x=input(): x")], "a", 2, "`input(…)` runs code"),
    "decorator argument": (
        [code("a", f"#@save\nimport functools\n@functools.lru_cache(maxsize=input())\n{doc('f')}")],
        "a",
        3,
        "`input(…)` runs code",
    ),
    "odd decorator": ([code("a", f"#@save\n@[len][0]\n{doc('f')}")], "a", 2, "decorator `[len][0]` runs code"),
    "class body": (
        [code("a", "#@save\nclass A:\n    '''An A.'''\n    print(1)")],
        "a",
        4,
        "a statement in the body of class A runs code",
    ),
    "class call": ([code("a", "#@save\nclass A:\n    '''An A.'''\n    x = input()")], "a", 4, "`input(…)` runs code"),
    "method default": (
        [code("a", "#@save\nclass A:\n    '''An A.'''\n    def f(self, x=input()):\n        pass")],
        "a",
        4,
        "`input(…)` runs code",
    ),
    "walrus": ([code("a", "#@save\nX = [(y := 1), 2]")], "a", 2, "`y := …` binds a module name"),
    "walrus in list": ([code("a", "#@save\nX = [(y := i) for i in (1, 2)]")], "a", 2, "`y := …` binds a module name"),
    # Free names
    "unsaved import": (
        [code("u", "import math"), code("a", "#@save\n" + FREE.format("math.pi"))],
        "a",
        4,
        "`import math` stands in an unsaved cell; put it in a saved cell",
    ),
    "earlier chapter": ([code("a", "#@save\n" + FREE.format("mean(x)"))], "a", 4, "saves it: write arl.mean"),
    "later chapter": (
        [code("a", "#@save\n" + FREE.format("late()"))],
        "a",
        4,
        "02 saves it (cell late), which comes l",
    ),
    "unsaved cell": (
        [code("u", "def g():\n    return 1"), code("a", "#@save\n" + FREE.format("g()"))],
        "a",
        4,
        "defined in the unsaved cell u",
    ),
    "unsaved variable": (
        [code("u", "%matplotlib inline\nfor i in range(3):\n    n = i"), code("a", "#@save\n" + FREE.format("n"))],
        "a",
        4,
        "defined in the unsaved cell u",
    ),
    "nothing": ([code("a", "#@save\n" + FREE.format("nope"))], "a", 4, "nothing defines it"),
    "prompt name": ([code("a", "#@save\n" + FREE.format("display(x)"))], "a", 4, "nothing defines it"),
    "file name": ([code("a", "#@save\n" + FREE.format("__file__"))], "a", 4, "nothing defines it"),
    "class scope": (
        [code("a", "#@save\nclass A:\n    '''An A.'''\n    n = 1\n\n    def f(self):\n        return n")],
        "a",
        7,
        "'n' is not defined",
    ),
    "comprehension in class": (
        [code("a", "#@save\nclass A:\n    '''An A.'''\n    n = 1\n    m = [n for _ in (1, 2)]")],
        "a",
        5,
        "'n' is not defined",
    ),
    "mangled": (
        [code("a", "#@save\n__n = 1\nclass A:\n    '''An A.'''\n    def f(self):\n        return __n")],
        "a",
        6,
        "'_A__n' is not defined",
    ),
    "global": ([code("a", f"#@save\n{doc('f', 'global count; count = 1')}")], "a", 4, "'count' is not defined"),
    "quoted annotation": ([code("a", "#@save\nX: 'Nope' = 1")], "a", 2, "'Nope' is not defined"),
    "broken annotation": ([code("a", "#@save\nX: 'No pe' = 1")], "a", 2, "is not Python"),
    "base below": (
        [code("a", "#@save\nclass A(B):\n    '''An A.'''"), code("b", "#@save\nclass B:\n    '''A B.'''")],
        "a",
        2,
        "needed while the module is imported",
    ),
    "constant below": ([code("a", "#@save\nX = Y\nY = 1")], "a", 2, "needed while the module is imported"),
    "default below": ([code("a", "#@save\ndef f(x=Y):\n    '''Return x.'''\nY = 1")], "a", 2, "needed while the"),
    "annotation below": (
        [code("a", "#@save\ndef f(x: A):\n    '''Return x.'''\nclass A:\n    '''An A.'''")],
        "a",
        2,
        "needed while the module is imported",
    ),
    "own class": ([code("a", "#@save\nclass A:\n    '''An A.'''\n    x = A")], "a", 4, "needed while the module"),
    # arl.name
    "later by arl": (
        [ARL, code("a", "#@save\n" + FREE.format("arl.late()"))],
        "a",
        4,
        "(cell late), which comes later",
    ),
    "own by arl": (
        [ARL, code("a", f"#@save\n{doc('f')}\n\n{doc('g', 'arl.f()')}")],
        "a",
        8,
        "this chapter saves it (c",
    ),
    "unknown by arl": ([ARL, code("a", "#@save\n" + FREE.format("arl.nope"))], "a", 4, "no cell of the book saves it"),
    "private by arl": ([ARL, code("a", "#@save\n" + FREE.format("arl._hidden()"))], "a", 4, "private to chapters/00"),
    "module by arl": ([ARL, code("a", "#@save\n" + FREE.format("arl.base.mean(x)"))], "a", 4, "it is a module"),
    "unsaved by arl": (
        [ARL, code("u", "def g(): pass"), code("a", "#@save\n" + FREE.format("arl.g()"))],
        "a",
        4,
        "the unsaved cell u defines g",
    ),
    "shadow parameter": (
        [ARL, code("a", "#@save\ndef f(mean):\n    '''Return it.'''\n    return arl.mean(mean)")],
        "a",
        4,
        "line 2 binds a local `mean`",
    ),
    "shadow local": (
        [ARL, code("a", "#@save\ndef f(x):\n    '''Return it.'''\n    mean = arl.mean(x)\n    return mean")],
        "a",
        4,
        "line 4 binds a local `mean`",
    ),
    "shadow outer": (
        [ARL, code("a", "#@save\ndef f(mean):\n    '''Return it.'''\n    return lambda x: arl.mean(x)")],
        "a",
        4,
        "line 2 binds a local `mean`",
    ),
    "shadow comprehension": (
        [ARL, code("a", "#@save\ndef f(x):\n    '''Return it.'''\n    return [arl.mean(x) for mean in x]")],
        "a",
        4,
        "line 4 binds a local `mean`",
    ),
    "shadow class": (
        [ARL, code("a", "#@save\nclass A:\n    '''An A.'''\n    mean = arl.mean")],
        "a",
        4,
        "line 4 binds a local `mean`",
    ),
    "shadow import": (
        [ARL, code("a", "#@save\nfrom statistics import mean\n" + FREE.format("arl.mean(x)"))],
        "a",
        5,
        "a saved cell imports another `mean`",
    ),
    "arl as a value": ([ARL, code("a", "#@save\n" + FREE.format("getattr(arl, x)"))], "a", 4, "used as a value"),
    "arl assigned": ([code("a", "#@save\narl = 1")], "a", 2, "`arl` is"),
    "arl parameter": (
        [code("a", "#@save\ndef f(arl):\n    '''Return it.'''\n    return arl.x")],
        "a",
        2,
        "`arl` is bound",
    ),
    "arl attribute set": (
        [ARL, code("a", f"#@save\n{doc('f', 'arl.mean = 1')}")],
        "a",
        4,
        "`arl.mean` is changed here",
    ),
    "arl attribute deleted": ([ARL, code("a", f"#@save\n{doc('f', 'del arl.mean')}")], "a", 4, "`arl.mean` is changed"),
    "arl echoed": ([ARL, code("a", "#@save\n" + doc("f", 'return f"{arl.DTYPE=}"'))], "a", 4, "prints its own source"),
    "arl quoted": (
        [ARL, code("a", "#@save\ndef f(x: 'arl.Point'):\n    '''Return x.'''")],
        "a",
        2,
        "take the quotes away",
    ),
    # Saved names
    "twice in a cell": ([code("a", f"#@save\n{doc('f')}\n\n{doc('f')}")], "a", 6, "cell a · line 2; rename it, or"),
    "twice in a chapter": (
        [code("a", "#@save\nX = 1"), code("b", "#@save\n\nX = 2")],
        "b",
        3,
        "saved twice: already in chapters/01-subject.ipynb · cell a · line 2",
    ),
    "twice in the book": (
        [code("a", f"#@save\n{doc('mean')}")],
        "a",
        2,
        "saved twice: already in chapters/00-base.ipynb · cell base · line 5",
    ),
    "private twice": ([code("a", "#@save\n_X = 1"), code("b", "#@save\n_X = 2")], "b", 2, "saved twice"),
    "builtin": ([code("a", f"#@save\n{doc('sum')}")], "a", 2, "'sum' is a builtin"),
    "module name": ([code("a", f"#@save\n{doc('late_')}\n\n{doc('base')}")], "a", 6, "is also the module of"),
    "dunder": ([code("a", "#@save\n__all__ = []")], "a", 2, "Python's own kind of name"),
    "function without docstring": (
        [code("a", "#@save\ndef f():\n    return 1")],
        "a",
        2,
        "function 'f' has no docstring",
    ),
    "class without docstring": ([code("a", "#@save\nclass A:\n    pass")], "a", 2, "class 'A' has no docstring"),
    "blank docstring": ([code("a", "#@save\ndef f():\n    '''  '''\n    return 1")], "a", 2, "has no docstring"),
    # replaces
    "replaces nothing": ([code("a", "#@save replaces=gone\nX = 1")], "a", 1, "no earlier saved cell defines 'gone'"),
    "replaces a later": ([code("a", "#@save replaces=late\nX = 1")], "a", 1, "(chapter 02 does, in cell late, later)"),
    "replaces a part": (
        [code("a", "#@save\nX, Y = 1, 2"), code("b", "#@save replaces=X\nX = 3")],
        "b",
        1,
        "defined together with Y",
    ),
    "replaced still used": (
        [ARL, code("a", f"#@save replaces=mean\n{doc('mean', 'return arl.mean([1])')}")],
        "a",
        4,
        "cell a of this chapter replaces it",
    ),
    # What the linter of the result says
    "ruff": ([code("a", f"#@save\n{doc('f', 'unused = 1')}")], "a", 4, "ruff F841"),
    "long line": ([code("a", f"#@save\nX = 1\n# {'long ' * 30}\nY = 2")], "a", 3, "ruff E501"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_is_reported_at_its_place_and_nothing_is_written(case: str, tmp_path: Path, capsys: Any) -> None:
    cells, cell, line, words = ERRORS[case]
    book(tmp_path, *cells)
    package = tmp_path / "agentrl"
    package.mkdir()
    (package / "old.py").write_text('"""Do not edit: change the chapter and run `make library`."""\n')
    before = {path: path.read_bytes() for path in package.iterdir()}

    found = problems(tmp_path)
    hits = [p for p in found if p.cell == cell and p.line == line and words in p.message]
    assert hits, "\n".join(map(str, found))
    assert hits[0].path == "chapters/01-subject.ipynb"

    assert build_library.main(["--root", str(tmp_path)]) == 2
    assert str(hits[0]) in capsys.readouterr().err
    assert {path: path.read_bytes() for path in package.iterdir()} == before


def test_the_line_of_the_file_is_the_line_of_the_cell(tmp_path: Path) -> None:
    book(tmp_path, md("title", "# T"), code("a", "#@save\nX = 1\nY = nope"))
    (problem,) = problems(tmp_path)
    assert problem.file_line is not None
    assert "Y = nope" in (tmp_path / problem.path).read_text().split("\n")[problem.file_line - 1]


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    book(tmp_path, code("a", "#@save\nX = nope"), code("b", "#@save\nprint(1)"), code("c", "#@save\nY = ("))
    assert [p.cell for p in problems(tmp_path)] == ["a", "b", "c"]


def test_an_error_in_a_later_chapter_leaves_the_part_before_it_alone(tmp_path: Path) -> None:
    book(tmp_path, code("a", "#@save\nX = nope"))
    assert problems(tmp_path, before="01") == []
    assert [p.cell for p in problems(tmp_path, through="01")] == ["a"]


def test_solutions_save_nothing(tmp_path: Path) -> None:
    book(tmp_path)
    write_chapter(tmp_path, "01-subject", [code("s", "#@save\nX = 1")], kind="solutions")
    (problem,) = problems(tmp_path)
    assert (problem.path, problem.cell, problem.line) == ("chapters/solutions/01-subject.ipynb", "s", 1)


def test_a_keyword_cannot_be_a_module(tmp_path: Path) -> None:
    write_chapter(book(tmp_path), "03-more", [], module="import")
    (problem,) = problems(tmp_path)
    assert (problem.path, problem.message) == ("chapters/03-more.ipynb", "module 'import' is a Python keyword")


# What is built


def test_a_module_reads_as_if_written_by_hand(tmp_path: Path) -> None:
    first = code("imports", "#@save\nfrom __future__ import annotations\nimport re\nimport math  # circles")
    area = code(
        "area",
        '#@save\ndef area(r: float) -> float:\n    """Return the area."""\n    return arl.mean([r, r]) * math.pi',
    )
    rounded = code("rounded", "#@save\n# Digits kept.\nDIGITS = 3")
    book(tmp_path, md("title", "# T"), ARL, first, area, rounded)
    assert (
        module(tmp_path)
        == '''"""Chapter 1 · Subject.

What is this about?

Built from chapters/01-subject.ipynb by scripts/build_library.py.
Do not edit: change the chapter and run `make library`.
"""

from __future__ import annotations

import math  # circles

from agentrl.base import mean

__all__ = ["area", "DIGITS"]


# chapters/01-subject.ipynb · cell area
def area(r: float) -> float:
    """Return the area."""
    return mean([r, r]) * math.pi


# chapters/01-subject.ipynb · cell rounded

# Digits kept.
DIGITS = 3
'''
    )


def test_the_package_lists_its_names_by_chapter(tmp_path: Path) -> None:
    book(tmp_path, code("a", "#@save\nWIDTH = 64  # tokens in a line\n\nSIZE = 2\n_X = 3"))
    text = build(load_book(tmp_path))["__init__.py"]
    assert (
        """Chapter 0 · Base (agentrl.base)
    DTYPE  the element type
    mean   Return the mean.
    Point  A point.

Chapter 1 · Subject (agentrl.subject)
    WIDTH  tokens in a line
    SIZE   = 2
"""
        in text
    )
    assert text.endswith("""
from agentrl.base import DTYPE, mean, Point
from agentrl.subject import WIDTH, SIZE
from agentrl.after import late

__version__ = "0.0.1"

__all__ = ["DTYPE", "mean", "Point", "WIDTH", "SIZE", "late"]
""")


CELLS = {
    "two definitions": "def f():\n    '''Return 1.'''\n    return 1\ndef g():\n    '''Return f.'''\n    return f()",
    "parenthesis at column 0": "X = max(\n    1,\n    2,\n)\nY = (\n    2\n)",
    "string at column 0": "TEXT = '''\nzero\n    four\n#@save\nX = 0\n'''\nY = 1",
    "docstring at column 0": "def f():\n    '''Return 1.\n\nat column 0\n'''\n    return 1\nX = f.__name__",
    "comments": "# above\nX = 1  # beside\n\n\ndef f():\n    '''Return X.'''\n    # inside\n    return X\n# below",
    "the mark in a string": "X = '#@save'\nY = '''\n#@save\n'''",
    "decorators": """import functools
@functools.cache
@functools.wraps(len)
def f():
    '''Return 1.'''
    return 1""",
    "recursion": """def f(n):
    '''Return 0.'''
    return g(n) if n else 0
def g(n):
    '''Return f.'''
    return f(n - 1)""",
    "scopes": """def f(xs, *args, key=None, **kw):
    '''Return a sum.'''
    total = [y for x in xs if (y := x)]
    def inner():
        nonlocal total
        total = [*total, kw, args, key]
        del xs[0]
        return total
    try:
        import math as m
        with open("x") as handle:
            return m.pi, handle, inner
    except OSError as error:
        return error
    match xs:
        case [first, *rest]:
            return first, rest
        case {"a": a, **others}:
            return a, others
        case str() as text:
            return text
    for i, (j, k) in enumerate(xs):
        total += i, j, k
    return lambda z=total: z""",
    "class scopes": """class A:
    '''An A.'''
    n = 1
    m = n + 1
    sizes = tuple(i * i for i in range(3))
    def f(self):
        return __class__, self.n
    name = __qualname__""",
    "constants": """import math, re, torch
from dataclasses import dataclass, field
from types import MappingProxyType
import typing as t
WORDS = ("a", "b", "c")
INDEX = {w: i for i, w in enumerate(WORDS)}
BACK = {i: w for w, i in INDEX.items()}
PATTERN = re.compile("a|b")
ROOT = math.sqrt(2)
GRID = torch.tensor([[1.0, -2.0]], dtype=torch.float64)
FROZEN = MappingProxyType(INDEX)
_T = t.TypeVar("_T")
A, (B, *C) = 1, (2, 3, 4)
D: t.Final = frozenset(range(3))
@dataclass(frozen=True)
class P:
    '''A P.'''
    xs: list[int] = field(default_factory=list)
ORIGIN = P()
TEXT = " ".join(WORDS).strip().upper()""",
    "overloads": """from typing import overload
@overload
def f(x: int) -> int: ...
@overload
def f(x: str) -> str: ...
def f(x):
    '''Return x.'''
    return x""",
    "quoted annotations": """from typing import Literal
def f(x: 'A', y: Literal["no such"] = "no such") -> list['A']:
    '''Return a list.'''
    return [x]
class A:
    '''An A.'''""",
}


@pytest.mark.parametrize("case", CELLS)
def test_a_saved_cell_means_in_the_library_what_it_means_in_the_notebook(case: str, tmp_path: Path) -> None:
    source = CELLS[case]
    book(tmp_path, code("a", "#@save\n" + source))
    text = module(tmp_path)
    notebook: dict[str, Any] = {}
    library: dict[str, Any] = {}
    exec(compile(source, "notebook", "exec", dont_inherit=True), notebook)
    exec(compile(text, "library", "exec", dont_inherit=True), library)
    public = library.pop("__all__")
    assert public == [n for n in notebook if n in public]
    for name, value in notebook.items():
        if isinstance(value, str | int | list | tuple | dict):
            assert library[name] == value or name == "__builtins__"
        elif not name.startswith("__"):
            assert type(library[name]) is type(value) or name in ("A", "P", "ORIGIN")
    for comment in ("# above", "# beside", "# inside", "# below"):
        assert (comment in source) == (comment in text)


def test_a_mark_in_a_string_of_an_unsaved_cell_saves_nothing(tmp_path: Path) -> None:
    book(tmp_path, code("a", "text = '''\n#@save\n'''"), code("b", "'#@save'"))
    assert "subject.py" not in build(load_book(tmp_path))


def test_future_imports_come_first_and_once(tmp_path: Path) -> None:
    cells = [
        code("a", "#@save\nimport re\nX = re.A"),
        code("b", "#@save\nfrom __future__ import annotations\n\nclass A:\n    '''An A.'''\n    x: B"),
        code("c", "#@save\nfrom __future__ import annotations\nclass B:\n    '''A B.'''"),
    ]
    book(tmp_path, *cells)
    assert body(module(tmp_path)).startswith("from __future__ import annotations\n\nimport re\n\n__all__ = ")


def test_imports_are_kept_once_sorted_and_only_when_used(tmp_path: Path) -> None:
    cells = [
        code("a", "#@save\nimport torch\nimport os\nfrom math import (\n    tau,  # twice pi\n    pi,\n)"),
        code(
            "b", "#@save\n# the circle\nfrom math import pi\nimport torch.nn.functional as F\nimport torch\nX = pi, tau"
        ),
        code("c", "#@save\nY = F.relu, torch.float64"),
    ]
    book(tmp_path, *cells)
    assert body(module(tmp_path)).startswith(
        """# the circle
from math import (
    pi,
    tau,  # twice pi
)

import torch
import torch.nn.functional as F

__all__ = ["X", "Y"]
"""
    )


def test_typing_imports_stay_under_their_condition(tmp_path: Path) -> None:
    imports = (
        "from __future__ import annotations\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"
    )
    book(tmp_path, code("a", f"#@save\n{imports}"), code("b", "#@save\ndef f(x: torch.Tensor):\n    '''Return x.'''"))
    assert "\n\nif TYPE_CHECKING:\n    import torch\n\n__all__" in module(tmp_path)


REWRITES = {
    "arl.mean(x)": "mean(x)",
    "arl . mean": "  mean",
    "(arl  # why\n .mean)": "(  # why\n mean)",
    "f'{arl.mean(x)}'": "f'{mean(x)}'",
    "f'{{arl.mean}} {arl.mean(x):>{arl.W}} {y!r}'": "f'{{arl.mean}} {mean(x):>{W}} {y!r}'",
    "f'{arl.a != arl.b} {d[\"arl.x\"]} {(lambda: arl.c)()}'": "f'{a != b} {d[\"arl.x\"]} {(lambda: c)()}'",
    "rf'\\{arl.mean}'": "rf'\\{mean}'",
    "f'\\N{DIGIT ONE}{arl.mean}\\{arl.a}'": "f'\\N{DIGIT ONE}{mean}\\{a}'",
    "f'''{\n  arl.mean\n}''' 'arl.mean' f'{arl.a}'": "f'''{\n  mean\n}''' 'arl.mean' f'{a}'",
    "f'{f\"{arl.mean}\"}'": "f'{f\"{mean}\"}'",
    "f'{ {1: arl.a}[1] }{x:%H:%M}'": "f'{ {1: a}[1] }{x:%H:%M}'",
    "'arl.mean' + x.arl.mean + y(arl=arl.z)": "'arl.mean' + x.arl.mean + y(arl=z)",
    "é.ü + arl.é": "é.ü + é",
    "x  # arl.mean\n": "x  # arl.mean\n",
    "[arl.a,\n arl.b]": "[a,\n b]",
}


@pytest.mark.parametrize("source", REWRITES)
def test_arl_dot_name_becomes_name_and_nothing_else_changes(source: str) -> None:
    assert strip_library(source).text == REWRITES[source]


def test_names_of_earlier_chapters_are_imported_wherever_they_are_used(tmp_path: Path) -> None:
    source = """#@save
class Sub(arl.Point):
    '''A sub. arl.mean stays.'''

    kind = arl.DTYPE

    def f(self, x=arl.DTYPE(1)):
        def g(y: arl.Point = arl.DTYPE):
            return [arl.mean([z]) for z in (x, y)]
        return f"{arl.mean([1.0]):.{2}f} {g}"
"""
    book(tmp_path, ARL, code("a", source.replace("x=arl.DTYPE(1)", "x=arl.DTYPE")))
    text = module(tmp_path)
    assert "from agentrl.base import DTYPE, Point, mean\n" in text
    assert text.count("arl.") == 1
    assert "A sub. arl.mean stays." in text


# replaces


def test_a_definition_is_replaced_within_its_chapter(tmp_path: Path) -> None:
    new = code("b", "#@save replaces=f\n" + doc("f", "return X + 1"))
    book(tmp_path, code("a", "#@save\n# One.\n" + doc("f") + "\n\n\nX = 1  # kept"), new)
    text = module(tmp_path)
    assert text.count("def f") == 1
    assert "return X + 1" in text
    assert "# One." not in text
    assert "X = 1  # kept" in text


def test_a_later_chapter_replaces_a_definition_and_takes_the_name(tmp_path: Path) -> None:
    cell = code("a", "#@save replaces=mean\ndef mean(values):\n    '''Return the mean, or 0.'''\n    return 0")
    user = code("u", f"#@save\n{doc('use', 'return arl.mean([1])')}")
    book(tmp_path, cell, more={"03-more": [ARL, user]})
    files = build(load_book(tmp_path))
    assert "def mean" not in files["base.py"]
    assert "def mean" in files["subject.py"]
    assert "from agentrl.subject import mean" in files["more.py"]
    assert "def mean" in build(load_book(tmp_path), before="01")["base.py"]
    assert names(load_book(tmp_path))["mean"].chapter_key == "01"


def test_several_names_are_replaced_by_one_and_their_block_goes(tmp_path: Path) -> None:
    book(tmp_path, code("a", "#@save\nimport re\nX, Y = 1, re.A"), code("b", "#@save replaces=X, Y\nZ = 3"))
    text = module(tmp_path)
    assert '__all__ = ["Z"]' in text
    assert "cell a" not in text
    assert "import re" not in text


def test_a_chapter_whose_names_are_all_replaced_leaves_no_module(tmp_path: Path) -> None:
    book(tmp_path, code("a", "#@save\nX = 1"), more={"03-more": [code("b", "#@save replaces=X\nX = 2")]})
    files = build(load_book(tmp_path))
    assert "subject.py" not in files
    assert "subject" not in files["__init__.py"]


@pytest.mark.parametrize("user", ["01", "02"])
def test_what_a_chapter_between_uses_cannot_be_replaced(user: str, tmp_path: Path) -> None:
    own = code("own", f"#@save\n{doc('g', 'return f()')}") if user == "01" else md("m", "none")
    more = {"03-user": [ARL, code("use", f"#@save\n{doc('h', 'return arl.f()')}")]} if user == "02" else {}
    book(
        tmp_path,
        code("a", f"#@save\n{doc('f')}"),
        own,
        more=more | {"04-new": [code("b", f"#@save replaces=f\n{doc('f')}")]},
    )
    (problem,) = problems(tmp_path)
    assert (problem.path, problem.cell, problem.line) == ("chapters/04-new.ipynb", "b", 1)
    assert ("cell own · line 4" if user == "01" else "cell use · line 4") in problem.message


def test_a_replaced_name_without_a_new_one_is_gone(tmp_path: Path) -> None:
    user = [ARL, code("u", "#@save\nX = arl.mean")]
    book(tmp_path, code("a", "#@save replaces=mean\nY = 1"), more={"03-more": user})
    (problem,) = problems(tmp_path)
    assert problem.path == "chapters/03-more.ipynb"
    assert "chapters/01-subject.ipynb (cell a) replaced it" in problem.message


# Prefixes


def test_a_chapter_sees_what_comes_before_it(tmp_path: Path) -> None:
    loaded = load_book(book(tmp_path, code("a", "#@save\nX = 1")))
    assert sorted(build(loaded, before="00")) == ["__init__.py", "py.typed"]
    assert sorted(build(loaded, before="01")) == ["__init__.py", "base.py", "py.typed"]
    assert build(loaded, through="01") == build(loaded, before="02")
    assert build(loaded, through="02") == build(loaded)


def test_an_unknown_chapter_is_an_error_that_names_those_there_are(tmp_path: Path) -> None:
    book(tmp_path)
    (problem,) = problems(tmp_path, before="07")
    assert problem.message == "no chapter '07'; there are 00, 01, 02"


def test_the_version_is_0_without_a_project_file(tmp_path: Path) -> None:
    write_chapter(tmp_path, "00-base", [code("base", BASE)])
    assert '__version__ = "0"' in build(load_book(tmp_path))["__init__.py"]


def test_a_broken_project_file_is_named(tmp_path: Path) -> None:
    (book(tmp_path) / "pyproject.toml").write_text("[project")
    assert problems(tmp_path)[0].path == "pyproject.toml"


# The same bytes everywhere


def test_line_ends_of_the_source_do_not_matter(tmp_path: Path) -> None:
    book(tmp_path / "a", ARL, code("a", "#@save\nX = 1\n\nY = arl.DTYPE"))
    book(tmp_path / "b", ARL, code("a", "#@save\nX = 1\n\nY = arl.DTYPE"))
    path = tmp_path / "b" / "chapters" / "01-subject.ipynb"
    raw = json.loads(path.read_text())
    raw["cells"][1]["source"] = ["#@save\r\n", "X = 1\r\n", "\r\n", "Y = arl.DTYPE"]
    path.write_text(json.dumps(raw))
    assert build(load_book(tmp_path / "a")) == build(load_book(tmp_path / "b"))


def test_the_bytes_depend_on_the_chapters_alone(tmp_path: Path) -> None:
    cells = [
        ARL,
        code("a", "#@save\nimport re, math, json, os\nX = re.A, math.pi, json, os\nY = arl.DTYPE, arl.mean, arl.Point"),
    ]
    seen = set()
    for seed, zone, where in (("0", "UTC", "one"), ("77", "Asia/Tokyo", "two/three")):
        root = book(tmp_path / where, *cells)
        env = os.environ | {"PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": "C", "PYTHONUTF8": "0"}
        command = [sys.executable, str(ROOT / "scripts" / "build_library.py"), "--root", str(root)]
        subprocess.run(command, cwd=root, env=env, check=True, capture_output=True)
        seen.add(tuple((p.name, p.read_bytes()) for p in sorted((root / "agentrl").iterdir())))
    assert len(seen) == 1


# The package at work


def rich_book(root: Path) -> Path:
    """Write a book that uses most of what the builder does."""
    imports = "#@save\nfrom __future__ import annotations\n\nimport math\nfrom dataclasses import dataclass"
    circle = """#@save
@dataclass(frozen=True)
class Circle(arl.Point):
    '''A circle.'''

    radius: float = 1.0

    def area(self) -> float:
        return scale * self.radius**2 * math.pi


scale = 1.0  # of areas


def average(circles: list[Circle]) -> float:
    '''Return the mean area of the circles, which may be any number but zero of them.'''
    return arl.mean([circle.area() for circle in circles])
"""
    return book(root, ARL, code("imports", imports), code("circle", circle))


def test_the_built_package_imports_and_explains_itself(tmp_path: Path) -> None:
    root = rich_book(tmp_path)
    assert build_library.main(["--root", str(root)]) == 0
    script = "import agentrl as arl; print(arl.average([arl.Circle(radius=2.0)])); print(arl.__version__); help(arl)"
    env = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", script], cwd=root, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("12.566370614359172\n0.0.1\nHelp on package agentrl:")
    assert "Chapter 1 · Subject (agentrl.subject)" in done.stdout
    assert "average  Return the mean area of the circles" in done.stdout


def test_a_function_may_carry_the_name_of_its_own_module(tmp_path: Path) -> None:
    root = book(tmp_path, code("a", f"#@save\n{doc('subject')}\n\n\n{doc('other')}"))
    assert build_library.main(["--root", str(root)]) == 0
    script = (
        "import agentrl as arl; from agentrl.subject import other, subject; print(arl.subject(), subject(), other())"
    )
    env = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", script], cwd=root, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "1 1 1\n"


def test_an_empty_package_imports(tmp_path: Path) -> None:
    write_package(build(load_book(book(tmp_path)), before="00"), tmp_path / "out" / "agentrl")
    script = "import agentrl; print(agentrl.__all__)"
    env = os.environ | {"PYTHONPATH": str(tmp_path / "out")}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("arguments", [["check"], ["format", "--check"]])
def test_the_built_package_is_clean(arguments: list[str], tmp_path: Path) -> None:
    root = rich_book(tmp_path)
    shutil.copy(SETTINGS, root / "pyproject.toml")
    assert build_library.main(["--root", str(root)]) == 0
    command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", "agentrl"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_missing_formatter_is_said_clearly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book(tmp_path, code("a", f"#@save\nX = {os.getpid()}"))
    monkeypatch.setattr("bookkit.package.SETTINGS", tmp_path / "missing.toml")
    (problem,) = problems(tmp_path)
    assert "the formatter failed (ruff check, exit code" in problem.message
    assert "missing.toml" in problem.message


# Small books of pure functions: the library computes what the notebook computes

NUMBERS = st.integers(-9, 9)
# K stands for a saved constant and CALL for a saved function, which chapter 00 and chapter 01 reach differently.
EXPRESSIONS = st.recursive(
    st.sampled_from(["x", "y", "K"]) | NUMBERS.map(lambda n: f"({n})"),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda e: f"sum([{e} + 0 for x in (1, 2)])"),
        inner.map(lambda e: f"(lambda y=1: {e})()"),
        inner.filter(lambda e: "'" not in e and len(e) < 20).map(
            lambda e: f"len(f'{{0 + {e}}} {{{{arl.k}}}} {{1:>{{abs(0 + {e}) % 9}}}}')"
        ),
        inner.map(lambda e: f"CALL(0 + {e})"),
    ),
    max_leaves=6,
)
FUNCTION = "#@save\ndef {}(x, y=1):\n    '''Return a number.'''\n    return {}"


@settings(max_examples=12, deadline=None)
@given(first=EXPRESSIONS, rest=st.lists(EXPRESSIONS, min_size=1, max_size=3), k=NUMBERS)
def test_the_library_computes_what_the_notebook_computes(
    tmp_path_factory: pytest.TempPathFactory, first: str, rest: list[str], k: int
) -> None:
    root = tmp_path_factory.mktemp("book")
    base = FUNCTION.format("base", first).replace("CALL", "abs").replace("K", "K_0")
    later = [expression.replace("CALL", "arl.base").replace("K", "arl.K_0") for expression in rest]
    sources = [FUNCTION.format(f"f{i}", expression) for i, expression in enumerate(later)]
    first_cells = [code("constant", f"#@save\nK_0 = {k}"), code("base", base)]
    cells = [code(f"f{i}", source) for i, source in enumerate(sources)]
    write_book(root, {"00-start": first_cells, "01-next": [ARL, *cells]})
    write_package(build(load_book(root)), root / "agentrl")

    notebook: dict[str, Any] = {}
    exec(f"K_0 = {k}\n{base}", notebook)
    notebook["arl"] = SimpleNamespace(**notebook)
    for source in sources:
        exec(source, notebook)
    calls = [f"f{i}({x}, {y})" for i in range(len(rest)) for x, y in ((0, 1), (-3, 5))]
    script = f"from agentrl import *; print([{', '.join(calls)}])"
    env = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", script], cwd=root, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == f"{[eval(call, notebook) for call in calls]}\n"


# names


def test_names_says_who_saves_what(tmp_path: Path) -> None:
    book(tmp_path, code("broken", "#@save\nX = ("), code("a", "#@save\n_P = 1\nclass A:\n    '''An A.\n\n    More.'''"))
    found = names(load_book(tmp_path))
    assert list(found) == ["DTYPE", "mean", "Point", "A", "late"]
    a = found["A"]
    assert (a.chapter_key, a.module, a.cell_id, a.line, a.kind, a.summary) == (
        "01",
        "subject",
        "a",
        3,
        "class",
        "An A.",
    )
    assert [found[n].kind for n in ("DTYPE", "mean")] == ["constant", "function"]


# The command line


def snapshot(root: Path) -> dict[str, bytes]:
    """Return the files of the built package."""
    return {p.name: p.read_bytes() for p in sorted((root / "agentrl").iterdir())}


def run(root: Path, *arguments: str) -> int:
    """Call the command line on a book."""
    return build_library.main(["--root", str(root), *arguments])


def test_build_then_check_then_build_again(tmp_path: Path, capsys: Any) -> None:
    root = book(tmp_path, code("a", "#@save\nX = 1"))
    assert run(root, "--check") == 1
    assert run(root) == 0
    assert run(root, "--check") == 0
    out = capsys.readouterr().out.split("\n")
    assert "agentrl: 3 modules, 5 names, stale: run `make library`" in out
    added = ", ".join(f"added {name}" for name in ("__init__.py", "after.py", "base.py", "py.typed", "subject.py"))
    assert f"agentrl: 3 modules, 5 names, {added}" in out
    assert "agentrl: 3 modules, 5 names, up to date" in out
    before = {p.name: p.stat().st_mtime_ns for p in (root / "agentrl").iterdir()}
    assert run(root) == 0
    assert capsys.readouterr().out == "agentrl: 3 modules, 5 names, unchanged\n"
    assert {p.name: p.stat().st_mtime_ns for p in (root / "agentrl").iterdir()} == before


def test_check_shows_a_hand_edit_and_build_takes_it_back(tmp_path: Path, capsys: Any) -> None:
    root = book(tmp_path, code("a", "#@save\nX = 1"))
    run(root)
    built = snapshot(root)
    path = root / "agentrl" / "subject.py"
    path.write_text(path.read_text().replace("X = 1", "X = 2"))
    capsys.readouterr()
    assert run(root, "--check") == 1
    out = capsys.readouterr().out
    assert "--- a/agentrl/subject.py\n+++ b/agentrl/subject.py\n" in out
    assert "\n-X = 2\n+X = 1\n" in out
    assert run(root) == 0
    assert capsys.readouterr().out == "agentrl: 3 modules, 5 names, rewrote subject.py (+1 -1 lines)\n"
    assert snapshot(root) == built


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("py.typed", "--- /dev/null\n+++ b/agentrl/py.typed\n"),
        ("base.py", "--- /dev/null\n+++ b/agentrl/base.py\n"),
    ],
)
def test_check_names_a_missing_file(name: str, words: str, tmp_path: Path, capsys: Any) -> None:
    root = book(tmp_path)
    run(root)
    (root / "agentrl" / name).unlink()
    assert run(root, "--check") == 1
    assert words in capsys.readouterr().out


def test_check_sees_line_ends_and_ignores_caches(tmp_path: Path, capsys: Any) -> None:
    root = book(tmp_path)
    run(root)
    (root / "agentrl" / "__pycache__").mkdir()
    (root / "agentrl" / "__pycache__" / "base.cpython-311.pyc").write_bytes(b"x")
    assert run(root, "--check") == 0
    path = root / "agentrl" / "base.py"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert run(root, "--check") == 1
    assert "\\r\n" in capsys.readouterr().out


def test_a_module_whose_chapter_is_gone_is_removed(tmp_path: Path, capsys: Any) -> None:
    root = book(tmp_path, code("a", "#@save\nX = 1"))
    run(root)
    (root / "chapters" / "02-after.ipynb").unlink()
    assert run(root, "--check") == 1
    assert "+++ /dev/null" in capsys.readouterr().out
    assert run(root) == 0
    assert "removed after.py" in capsys.readouterr().out
    assert not (root / "agentrl" / "after.py").exists()


@pytest.mark.parametrize("name", ["base.py", "notes.txt", "sub/x.py"])
def test_a_file_that_was_not_built_is_never_touched(name: str, tmp_path: Path, capsys: Any) -> None:
    root = book(tmp_path, code("a", "#@save\nX = 1"))
    path = root / "agentrl" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine = 1\n")
    assert run(root, "--check") == 1
    assert run(root) == 2
    assert f"agentrl/{name}: error: this file was not built from the book" in capsys.readouterr().err
    assert [p for p in (root / "agentrl").rglob("*") if p.is_file()] == [path]
    assert path.read_text() == "mine = 1\n"


def test_a_failure_while_writing_leaves_the_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    root = book(tmp_path, code("a", "#@save\nX = 1"))
    run(root)
    built = snapshot(root)
    write_chapter(root, "01-subject", [code("a", "#@save\nY = 1")])
    write_chapter(root, "02-after", [code("a", "#@save\nZ = 1")])
    synced: list[int] = []

    def full(handle: int) -> None:
        synced.append(handle)
        if len(synced) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert run(root) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert snapshot(root) == built


def test_a_prefix_goes_to_another_folder_only(tmp_path: Path, capsys: Any) -> None:
    root = book(tmp_path, code("a", "#@save\nX = 1"))
    assert run(root, "--before", "01") == 2
    assert "would overwrite the whole one" in capsys.readouterr().err
    assert not (root / "agentrl").exists()
    assert run(root, "--before", "01", "--out", str(tmp_path / "out")) == 0
    assert sorted(p.name for p in (tmp_path / "out" / "agentrl").iterdir()) == ["__init__.py", "base.py", "py.typed"]
    assert run(root, "--before", "01", "--out", str(tmp_path / "out"), "--check") == 0
    assert run(root, "--before", "09", "--out", str(tmp_path / "out")) == 2
    assert "no chapter '09'; there are 00, 01, 02" in capsys.readouterr().err


def test_list_prints_every_name(tmp_path: Path, capsys: Any) -> None:
    root = book(tmp_path)
    assert run(root, "--list") == 0
    out = capsys.readouterr().out
    assert [word for word in ("DTYPE", "mean", "Point", "late") if word not in out] == []
    assert "Return the mean." in out
    assert not (root / "agentrl").exists()


def test_github_gets_annotations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    root = book(tmp_path, code("a", "#@save\nX = 1"))
    assert run(root, "--check") == 1
    assert "::error file=agentrl/subject.py::stale" in capsys.readouterr().out
    write_chapter(root, "01-subject", [code("a", "#@save\nX = nope")])
    assert run(root) == 2
    out = capsys.readouterr().out
    assert out.startswith("::error file=chapters/01-subject.ipynb,line=")
    assert "::cell a: 'nope' is not defined" in out


def test_usage_errors_exit_with_2(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        run(book(tmp_path), "--before", "01", "--through", "01")
    assert caught.value.code == 2


def test_a_folder_without_chapters_is_an_error(tmp_path: Path, capsys: Any) -> None:
    assert run(tmp_path) == 2
    assert "a book has chapters/" in capsys.readouterr().err


def test_diff_is_empty_only_for_equal_packages(tmp_path: Path) -> None:
    files = build(load_book(book(tmp_path)))
    write_package(files, tmp_path / "agentrl")
    assert diff_package(files, tmp_path / "agentrl") == ""
    assert diff_package(files | {"py.typed": "x"}, tmp_path / "agentrl") != ""
