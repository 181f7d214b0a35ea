"""Measure seconds per chapter, and the checker against `pytest --nbval` and `pytest --nbmake` on the same notebooks.

Every round runs each of them once; the ratios are taken within a round, and their median is what to quote.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bookkit.bench import Report, Synthetic, bench, chapter_table, describe, table, write_synthetic
from bookkit.notebook import write_atomic
from bookkit.problems import BookError

ROOT = Path(__file__).resolve().parents[1]


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    made = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    made.add_argument("prefixes", nargs="*", metavar="PREFIX", help="chapters to measure, all by default")
    made.add_argument("--rounds", type=int, default=3, help="how often each runner is measured (default 3)")
    made.add_argument("--synthetic", metavar="N,CELLS,TORCH", help="measure a made-up book, for example 20,25,3")
    made.add_argument("--json", type=Path, metavar="FILE", help="write every measurement to FILE")
    made.add_argument("--root", type=Path, default=ROOT, help="the book's folder")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; return 0, or 2 when there is nothing to measure."""
    options = parser().parse_args(argv)
    if options.rounds < 1:
        print(f"--rounds {options.rounds}: at least one", file=sys.stderr)
        return 2
    if options.json and not options.json.resolve().parent.is_dir():
        print(f"--json {options.json}: no such folder: {options.json.resolve().parent}", file=sys.stderr)
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="bench-book-") as folder:
            root = options.root.resolve()
            if options.synthetic:
                root = Path(folder)
                write_synthetic(root, Synthetic.parse(options.synthetic))
            report = bench(root, options.prefixes, options.rounds, lambda line: print(line, file=sys.stderr))
    except (BookError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        write_atomic(options.json, json.dumps(report.as_json(), indent=1, sort_keys=True) + "\n")
    show(report)
    return 0


def show(report: Report) -> None:
    """Print the machine and both tables."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(describe(report.machine), highlight=False)
    console.print(table(report))
    console.print(chapter_table(report))


if __name__ == "__main__":
    raise SystemExit(main())
