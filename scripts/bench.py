"""Measure seconds per chapter, and the checker against `pytest --nbval` and `pytest --nbmake` on the same notebooks.

Every round runs each of them once; the ratios are taken within a round, and their median is what to quote. `--policy`
measures TinyAgent against models of transformers in the same way, `--train` the main loop against TRL's GRPOTrainer.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bookkit import entry
from bookkit.bench import Growth, Report, bench, chapter_table, describe, growth, growth_table, machine, table
from bookkit.benchbook import Synthetic, write_synthetic
from bookkit.notebook import write_atomic
from bookkit.problems import BookError
from bookkit.scratch import Scratch

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS_LISTED = 60
MODELS = ("policy", "train")  # what is measured without a book


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
    made.add_argument(
        "--policy",
        action="store_true",
        help="measure TinyAgent beside models of transformers of the same shape",
    )
    made.add_argument(
        "--train",
        action="store_true",
        help="measure arl.train beside TRL's GRPOTrainer: the same policy, tasks and budget",
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="write every measurement to FILE")
    made.add_argument("--root", type=Path, default=ROOT, help="the book's folder")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; return 0, or 2 when there is nothing to measure."""
    options = parser().parse_args(argv)
    if options.rounds < 1:
        print(f"--rounds {options.rounds}: at least one", file=sys.stderr)
        return 2
    if options.json and (why := unwritable(options.json)):
        print(f"--json {options.json}: {why}", file=sys.stderr)
        return 2
    if models := [name for name in MODELS if getattr(options, name)]:
        if models[1:] or options.prefixes or options.synthetic or options.growth:
            print(f"--{models[0]} measures models and no books: give it alone", file=sys.stderr)
            return 2
        return measure_models(models[0], options.rounds, options.json)
    try:
        shapes = [Synthetic.parse(text) for text in options.synthetic]
        sizes = _sizes(options.growth)
        reports = measured(options, shapes)
        grown = growth(sizes, options.rounds, _say)
    except (BookError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    _write(options.json, [report.as_json() for report in [*reports, *(report for _, report in grown)]])
    show(reports, grown)
    return 0


def unwritable(path: Path) -> str:
    """Return why a file cannot be written there, "" when it can: asked before half an hour of measuring."""
    folder = path.resolve().parent
    if path.is_dir():
        return "that is a folder"
    if not folder.is_dir():
        return f"no such folder: {folder}"
    return "" if os.access(folder, os.W_OK) else f"no right to write in {folder}"


def measured(options: argparse.Namespace, shapes: Sequence[Synthetic]) -> list[Report]:
    """Return a report on each made-up book, on the book itself when nothing else is asked for."""
    if not shapes and not options.growth:
        return [bench(options.root.resolve(), options.prefixes, options.rounds, _say)]
    reports = []
    for shape in shapes:
        with Scratch("bench") as folder:
            write_synthetic(folder, shape)
            reports.append(bench(folder, options.prefixes, options.rounds, _say))
    return reports


def _sizes(text: str | None) -> list[Synthetic]:
    """Return the shapes of the books for `5,50,200`: ten cells a notebook, three in twenty with torch."""
    counts = text.split(",") if text else []
    wrong = [count for count in counts if not count.strip().isdecimal()]
    if wrong:
        raise ValueError(f"--growth {text}: {wrong[0]!r} is not a number of notebooks")
    return [Synthetic.parse(f"{count},10,{int(count) * 3 // 20}") for count in counts]


def _write(path: Path | None, found: list[dict[str, Any]]) -> None:
    """Write the measurements to the file, where one was asked for."""
    if path:
        write_atomic(path, json.dumps(found, indent=1, sort_keys=True) + "\n")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def show(reports: Sequence[Report], grown: Growth) -> None:
    """Print the machine and the tables."""
    console = _console()
    console.print(describe([*reports, *(report for _, report in grown)][0].machine), highlight=False)
    for report in reports:
        console.print(table(report))
        if report.notebooks <= NOTEBOOKS_LISTED:
            console.print(chapter_table(report))
    if grown:
        console.print(growth_table(grown))


def measure_models(what: str, rounds: int, path: Path | None) -> int:
    """Measure models, or trainers of one, and print the machine and their table; return 0."""
    from bookkit import benchpolicy, benchtrain  # import torch, which measuring books has no need of

    if what == "policy":
        found = benchpolicy.bench_policy(machine(), benchpolicy.Shape(), rounds, _say)
        table = benchpolicy.policy_table(found)
    else:
        found = benchtrain.bench_training(machine(), benchtrain.Budget(), rounds, _say)
        table = benchtrain.training_table(found)
    _write(path, [found.as_json()])
    console = _console()
    console.print(describe(found.machine), highlight=False)
    console.print(table)
    return 0


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 110)


if __name__ == "__main__":
    raise SystemExit(entry.run(main))
