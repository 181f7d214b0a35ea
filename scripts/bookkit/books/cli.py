"""The command line of build_books.py: which books, built aside, put in place when they are valid."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

from bookkit.problems import BookError, Problem, tell
from bookkit.scratch import Scratch

from . import epub, pdf
from .lacking import Lacking
from .reading import Book, read_book
from .words import LANGUAGES

Builder = Callable[[Book, Path], tuple[Path, str]]
BUILDERS: dict[str, Builder] = {"pdf": pdf.build, "epub": epub.build}
FORMATS = tuple(BUILDERS)
FAULTY, CANNOT = 1, 2  # exit codes


def run(options: argparse.Namespace) -> int:
    """Build the books that the options name and return the exit code; a book with a fault keeps none from the rest."""
    code = 0
    for language in LANGUAGES if options.language is None else [options.language]:
        try:
            book = read_book(options.website, options.site, language)
        except BookError as error:
            tell(error.problems)
            return CANNOT
        for name in FORMATS if options.format is None else [options.format]:
            try:
                print(f"agentic-rl-{language}.{name} …", flush=True)
                print(_build(book, BUILDERS[name], options.out), flush=True)
            except BookError as error:
                tell(error.problems)
                code = max(code, CANNOT if isinstance(error, Lacking) else FAULTY)
            except OSError as error:
                tell([Problem(str(error.filename or options.out), None, None, f"cannot be written: {error.strerror}")])
                code = CANNOT
    return code


def _build(book: Book, builder: Builder, out: Path) -> str:
    """Build one book, put it in place when it is valid, and return the line that tells of it."""
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    with Scratch("books", out) as scratch:
        finished, what = builder(book, scratch)
        target = out / finished.name
        os.replace(finished, target)
    size = target.stat().st_size / 1e6
    return f"{target}: {what}, {size:.1f} MB, {time.monotonic() - began:.0f} s"
