"""Check the book under other CPU settings, thread counts, hash seeds, locales, time zones, folders and accounts.

A small planted book runs beside it: cells that show whether a setting arrived, and a training run that follows the
book's rules on numbers. With --control the same training also runs without them and must differ somewhere.

Every notebook runs under every setting. With --digits, as in `make test`, every chapter that uses torch runs under
every vector width, thread count and MKL code that can change a digit here, several of them at once to save time, the
solutions of those chapters under the joint setting that changes most, and no `lab` cell under any: its output is
compared loosely. What differs there, `--settings` of single ones tells apart.

Exit 0: every cell printed what is recorded under every setting that ran. 1: a cell differed (named, with the first
line of the difference), or a control never did. 2: an unknown setting or chapter, a setting that did not reach the
cells, or the checker could not run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bookkit import entry
from bookkit.checker import Plan, Refused, make_plan
from bookkit.determinism import (
    LEGEND,
    Books,
    Outcome,
    blind,
    control_table,
    run_all,
    summary,
    table,
)
from bookkit.engines import wanted_modules
from bookkit.libguard import LIBRARY
from bookkit.needs import LAB
from bookkit.planted import CONTROLS, FULL, SHORT, write_main_loop, write_planted
from bookkit.problems import BookError
from bookkit.runner import EngineError, Job
from bookkit.scratch import Scratch
from bookkit.settings import Setting, choose, farthest, fewest, this_machine

ROOT = Path(__file__).resolve().parents[1]
Options = argparse.Namespace


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    made = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    made.add_argument("prefixes", nargs="*", metavar="PREFIX", help="chapters to check, all by default")
    made.add_argument("--settings", default="", metavar="A,B", help="settings to try, all by default")
    made.add_argument("--list", action="store_true", help="print the settings, with what this machine lacks, and exit")
    made.add_argument(
        "--digits",
        action="store_true",
        help="the short form for every change: the settings that can change a digit, the chapters that use torch, "
        "their solutions under one setting, no lab cells",
    )
    made.add_argument("--control", action="store_true", help="also train without the book's rules; must differ")
    made.add_argument(
        "--planted",
        type=int,
        metavar="N",
        help=f"iterations of the planted training, 0 for no planted book (default {FULL}, {SHORT} with --digits)",
    )
    made.add_argument("-j", "--jobs", type=int, default=1, help="settings tried side by side (default 1)")
    made.add_argument("--root", type=Path, default=ROOT, help="the book's folder")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chosen settings and print what differed; return the exit code."""
    options = parser().parse_args(argv)
    if options.planted is None:
        options.planted = SHORT if options.digits else FULL
    try:
        settings = named_settings(options.settings)
        if options.list:
            list_settings(settings)
            return 0
        check_options(options)
        plan = make_plan(options.root.resolve(), options.prefixes, remember=False)
        if plan.problems:
            raise Refused("\n".join(map(str, plan.problems)))
        return try_settings(settings, plan, options)
    except (Refused, BookError, EngineError) as error:
        print(error, file=sys.stderr)
        return 2


def named_settings(names: str) -> list[Setting]:
    """Return the settings that `--settings` names, all without it; Refused for an unknown, doubled or empty name."""
    wanted = [name.strip() for name in names.split(",")] if names else []
    if "" in wanted:
        raise Refused(f"--settings {names!r}: a name is empty")
    doubled = [name for name in dict.fromkeys(wanted) if wanted.count(name) > 1]
    if doubled:
        raise Refused(f"--settings {names}: {doubled[0]} is named twice")
    try:
        return choose(wanted)
    except KeyError as error:
        raise Refused(error.args[0]) from error


def check_options(options: Options) -> None:
    """Raise Refused when a number makes no sense."""
    if options.jobs < 1:
        raise Refused(f"-j {options.jobs}: at least one setting at once")
    if options.planted < 0:
        raise Refused(f"--planted {options.planted}: a number of iterations, or 0 for no planted book")
    if options.control and not options.planted:
        raise Refused("--control trains in the planted book, which --planted 0 leaves out")


def list_settings(settings: Sequence[Setting]) -> None:
    """Print the settings and why some cannot run here."""
    for setting in settings:
        why = setting.missing(this_machine())
        print(f"{setting.name:15} {setting.what}" + (f" [not here: {why}]" if why else ""))


def try_settings(settings: Sequence[Setting], plan: Plan, options: Options) -> int:
    """Run the settings on the book and the planted one, print what came of it; return the exit code."""
    books = Books(options.root, tuple(options.prefixes), controls=options.control)
    if options.digits:
        settings = fewest(settings, this_machine())
        if not settings:
            print("no setting can change a digit on this machine, nothing to do")
            return 0
        books = short_form(settings, plan, books)
    for why, names in skipped_cells(plan, books.lab).items():
        print(f"cells that run under no setting: {', '.join(names)} ({why})")
    with Scratch("planted") as folder:
        if options.planted:
            books = replace(
                books,
                planted=write_planted(folder / "planted", options.planted, options.control, options.jobs),
                main_loop=write_main_loop(folder / "main-loop", options.root, short=options.digits),
            )
        outcomes = run_all(settings, books, options.jobs, lambda line: print(line, flush=True))
    show(outcomes)
    return exit_code(outcomes)


def short_form(settings: Sequence[Setting], plan: Plan, books: Books) -> Books:
    """Return what the short form runs of the books, and say what it leaves out."""
    chapters, most = torch_chapters(plan), farthest(settings, this_machine()).name
    print("chapters that use torch:", ", ".join(chapters) or "none")
    if chapters:
        print(f"their solutions run under {most} alone, of these settings the one that changes most here")
    root = books.root if chapters else None
    return replace(books, root=root, prefixes=chapters, solutions=frozenset([most]), lab=False)


def skipped_cells(plan: Plan, lab: bool) -> dict[str, list[str]]:
    """Return the cells that do not run, by what is missing on this machine; or, without `lab`, that they are of it."""
    found: dict[str, list[str]] = {}
    for job in plan.jobs:
        reasons = dict(job.missing) if lab else {**job.missing, LAB: "output compared loosely"}
        for cell in job.chapter.code_cells:
            if cell.output_class in reasons:
                found.setdefault(reasons[cell.output_class], []).append(f"{job.chapter.label} · {cell.id}")
    return found


def torch_chapters(plan: Plan) -> tuple[str, ...]:
    """Return the chapters that use torch, themselves or through the library: those that train are among them."""
    return tuple(dict.fromkeys(job.chapter.key for job in plan.jobs if uses_torch(job)))


def uses_torch(job: Job) -> bool:
    """Return whether a notebook's cells import torch, or a library that does."""
    cells = [cell.source for cell in job.chapter.code_cells]
    library = job.library.values() if any(LIBRARY in source for source in cells) else ()
    return "torch" in wanted_modules([*cells, *library])


def show(outcomes: Sequence[Outcome]) -> None:
    """Print the table, then each difference with its first line, the controls, then the summary."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    lines = [LEGEND]
    for outcome in outcomes:
        for found in outcome.differences:
            lines.append(f"{outcome.setting.name}: {found.chapter} · cell {found.cell}: {found.first_line}")
    console.print(table(outcomes))
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if any(control in outcome.notebooks for outcome in outcomes for control in CONTROLS):
        console.print(control_table(outcomes))
    for control in blind(outcomes):
        print(f"{control}: printed the same under every setting, so this matrix would not see a difference either")
    console.print(summary(outcomes), markup=False, highlight=False, soft_wrap=True)


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """Return 2 when a setting did not run or none could, 1 when a cell differed or a control never did, else 0."""
    if any(outcome.error for outcome in outcomes) or all(outcome.skipped for outcome in outcomes):
        return 2
    return 0 if all(outcome.good for outcome in outcomes) and not blind(outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(entry.run(main))
