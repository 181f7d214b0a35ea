"""Check the book under other CPU settings, thread counts, hash seeds, locales, time zones and folders.

Exit 0: every cell printed what is recorded under every setting that ran. 1: a cell differed (named, with the first
line of the difference). 2: an unknown setting or chapter, or the checker could not run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bookkit.checker import Refused, make_plan
from bookkit.determinism import LEGEND, Outcome, choose, probe, run_all, summary, table
from bookkit.problems import BookError

ROOT = Path(__file__).resolve().parents[1]


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    made = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    made.add_argument("prefixes", nargs="*", metavar="PREFIX", help="chapters to check, all by default")
    made.add_argument("--settings", default="", metavar="A,B", help="settings to try, all by default")
    made.add_argument("--list", action="store_true", help="print the settings, with what this machine lacks, and exit")
    made.add_argument("-j", "--jobs", type=int, default=1, help="notebooks checked side by side (default 1)")
    made.add_argument("--root", type=Path, default=ROOT, help="the book's folder")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chosen settings and print what differed; return the exit code."""
    options = parser().parse_args(argv)
    try:
        settings = choose([name.strip() for name in options.settings.split(",") if name.strip()])
    except KeyError as error:
        print(error.args[0], file=sys.stderr)
        return 2
    if options.list:
        for setting in settings:
            why = setting.missing(probe())
            print(f"{setting.name:15} {setting.what}" + (f" [not here: {why}]" if why else ""))
        return 0
    try:
        plan = make_plan(options.root.resolve(), options.prefixes, remember=False)
    except (Refused, BookError) as error:
        print(error, file=sys.stderr)
        return 2
    if plan.problems or options.jobs < 1:
        print(*(plan.problems or [f"-j {options.jobs}: at least one notebook at once"]), sep="\n", file=sys.stderr)
        return 2
    outcomes = run_all(settings, options.root, options.prefixes, options.jobs, lambda line: print(line, flush=True))
    show(outcomes)
    return exit_code(outcomes)


def show(outcomes: Sequence[Outcome]) -> None:
    """Print the table, then each difference with its first line, then the summary."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    lines = [LEGEND]
    for outcome in outcomes:
        for found in outcome.differences:
            lines.append(f"{outcome.setting.name}: {found.chapter} · cell {found.cell}: {found.first_line}")
    console.print(table(outcomes))
    for line in (*lines, summary(outcomes)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """Return 2 when a setting did not run or none could, 1 when a cell differed, else 0."""
    if any(outcome.error for outcome in outcomes) or all(outcome.skipped for outcome in outcomes):
        return 2
    return 0 if all(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
