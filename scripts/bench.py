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

from bookkit.bench import Growth, Report, bench, chapter_table, describe, growth, growth_table, table
from bookkit.benchbook import Synthetic, write_synthetic
from bookkit.notebook import write_atomic
from bookkit.problems import BookError

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS_LISTED = 60


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    made = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    made.add_argument("prefixes", nargs="*", metavar="PREFIX", help="chapters to measure, all by default")
    made.add_argument("--rounds", type=int, default=3, help="how often each runner is measured (default 3)")
    made.add_argument(
        "--synthetic",
        metavar="N,CELLS,TORCH",
        action="append",
        default=[],
        help="measure a made-up book instead, for example 20,25,3; may be given several times",
    )
    made.add_argument("--growth", metavar="N,N,...", help="measure made-up books of these sizes, for example 5,50,200")
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
        shapes = [Synthetic.parse(text) for text in options.synthetic]
        sizes = _sizes(options.growth)
        reports = measured(options, shapes)
        grown = growth(sizes, options.rounds, _say)
    except (BookError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        found = [report.as_json() for report in [*reports, *(report for _, report in grown)]]
        write_atomic(options.json, json.dumps(found, indent=1, sort_keys=True) + "\n")
    show(reports, grown)
    return 0


def measured(options: argparse.Namespace, shapes: Sequence[Synthetic]) -> list[Report]:
    """Return a report on each made-up book, on the book itself when nothing else is asked for."""
    if not shapes and not options.growth:
        return [bench(options.root.resolve(), options.prefixes, options.rounds, _say)]
    reports = []
    for shape in shapes:
        with tempfile.TemporaryDirectory(prefix="bench-book-") as folder:
            write_synthetic(Path(folder), shape)
            reports.append(bench(Path(folder), options.prefixes, options.rounds, _say))
    return reports


def _sizes(text: str | None) -> list[Synthetic]:
    """Return the shapes of the books for `5,50,200`: ten cells a notebook, three in twenty with torch."""
    counts = text.split(",") if text else []
    wrong = [count for count in counts if not count.strip().isdigit()]
    if wrong:
        raise ValueError(f"--growth {text}: {wrong[0]!r} is not a number of notebooks")
    return [Synthetic.parse(f"{count},10,{int(count) * 3 // 20}") for count in counts]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def show(reports: Sequence[Report], grown: Growth) -> None:
    """Print the machine and the tables."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(describe([*reports, *(report for _, report in grown)][0].machine), highlight=False)
    for report in reports:
        console.print(table(report))
        if report.notebooks <= NOTEBOOKS_LISTED:
            console.print(chapter_table(report))
    if grown:
        console.print(growth_table(grown))


if __name__ == "__main__":
    raise SystemExit(main())
