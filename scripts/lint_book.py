"""Check the book's notebooks, sources, figures and references, and mend what is mechanical."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bookkit.lint import CODES, Report, fix, lint, select
from bookkit.problems import BookError, count, tell


def main(argv: Sequence[str] | None = None) -> int:
    """Run the linter; return 0 when clean, 1 when it found errors, 2 when the book cannot be read."""
    arguments = _parser().parse_args(argv)
    if arguments.list_codes:
        _list_codes()
        return 0
    root = arguments.root.resolve()
    try:
        keys = select(root, arguments.prefix)
        for name in fix(root, keys) if arguments.fix else ():
            print(f"{name}: rewritten")
        report = lint(root, keys)
        tell(report.problems)
        print(_summary(report), flush=True)
    except BookError as error:
        tell(error.problems)
        return 2
    except BrokenPipeError:  # the reader, `head` for one, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except OSError as error:
        print(f"cannot read or write: {error}", file=sys.stderr)
        return 2
    return 1 if report.errors or (arguments.strict and report.warnings) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "prefix", nargs="*", help="chapters whose key starts with this (00, 1 for 10 to 19, A); all when absent"
    )
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="the book's folder")
    parser.add_argument("--fix", action="store_true", help="rewrite what is mechanical: form, formatting, Sources")
    parser.add_argument("--strict", action="store_true", help="warnings count as errors")
    parser.add_argument("--list-codes", action="store_true", help="print every finding there is, and stop")
    return parser


def _summary(report: Report) -> str:
    tally = report.tally
    numbers = f"{tally.seen} numbers in prose: {tally.unexplained} unexplained, {tally.noted} by a note in the cell"
    found = f"{count(report.errors, 'error')}, {count(report.warnings, 'warning')}"
    return f"{count(report.notebooks, 'notebook')}: {found}. {numbers}."


def _list_codes() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("code", "level", "--fix", "meaning")
    for name, code in CODES.items():
        table.add_row(name, code.level, "yes" if code.fixable else "", code.meaning)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
