"""Whether code could look at other notebooks than its own: it names one, lists a folder, or starts a program.

Such a notebook gets a copy of them all and runs again when any changes; for the others that would be waste. The ways
that people write are found, not every trick. A program that the library starts does not count: it runs what it is
given, in a folder of its own.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from functools import cache

NOTEBOOK = "ipynb"
# What these lines do is known: the one hides output, the other runs a file, whose code is looked at too.
KNOWN_MAGIC = re.compile(r"^([ \t]*)%(?:%?capture\b.*|run\b(?P<file>.*))$", re.MULTILINE)
OTHER_MAGIC = re.compile(r"^\s*(?:[^'\"#=\n]*=\s*)?[!%]", re.MULTILINE)
LISTS = r"listdir|iterdir|scandir|f?walk|[ir]?glob|copytree|make_archive|tarfile|zipfile|filecmp"
STARTS = r"system|fork(?:pty)?|exec[lv]p?e?|\w*(?:popen|spawn|subprocess)\w*|getoutput|run_(?:cell|line)\w*"
LOOKS = re.compile(rf"{LISTS}|{STARTS}", re.IGNORECASE)
LOOKS_IN_LIBRARY = re.compile(LISTS, re.IGNORECASE)


def looks_around(own: str, sources: Iterable[str], library: Iterable[str] = ()) -> bool:
    """Return whether these sources, or the library's, could look at another notebook than those of the name `own`."""
    if any(_names_other(own, source) or _looks(source, LOOKS) for source in sources):
        return True
    return any(_looks(text, LOOKS_IN_LIBRARY) for text in library)


def _names_other(own: str, source: str) -> bool:
    files = [found["file"] or "" for found in KNOWN_MAGIC.finditer(source)]
    return any(NOTEBOOK in file.replace(own, "") for file in files)


@cache
def _looks(source: str, ways: re.Pattern[str]) -> bool:
    """Return whether a source, but for what it runs by `%run`, could look around. One that cannot be read could."""
    text = KNOWN_MAGIC.sub(r"\1pass", source)
    if OTHER_MAGIC.search(text):
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = compile(text, "cell", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError, RecursionError):
        return True
    return any(NOTEBOOK in name or ways.fullmatch(name) for name in _names(tree))


def _names(tree: ast.AST) -> Iterator[str]:
    """Yield what code takes from modules and objects, and its texts but for docstrings.

    Plain names do not count: `system` may be any variable, and is imported before it is a function.
    """
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name):
                yield name
            case ast.alias(name=name):
                yield from name.split(".")
            case ast.ImportFrom(module=str(name)):
                yield from name.split(".")
            case ast.Constant(value=str(text)) if id(node) not in docs and NOTEBOOK in text:
                yield NOTEBOOK
