"""What `scripts/check_chapters.py` does with its arguments."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import cache

from .cache import Cache
from .checker import NotebookVerdict, Plan, Refused, book_names, check, in_order, make_plan, open_cache
from .engines import ForkEngine, SpawnEngine
from .needs import in_ci
from .problems import BookError
from .report import Report, make_report, write_junit
from .runner import (
    UPDATE_SEEDS,
    UPDATE_ZONES,
    Engine,
    EngineError,
    Limits,
    pinned,
    usable_memory,
)
from .scratch import sweep_leftovers

Options = argparse.Namespace


def run(options: Options) -> int:
    """Check or update the book as the options say; return the exit code."""
    report = make_report()
    try:
        if options.update and in_ci():
            raise Refused("--update is for people: in CI (the variable CI is set) outputs are only checked")
        if options.junit is not None and options.junit.is_dir():
            raise Refused(f"--junit {options.junit}: a folder; name a file")
        sweep_leftovers(options.root.resolve())
        remember, solutions = not options.no_cache, not options.no_solutions
        plan = make_plan(options.root.resolve(), options.prefixes, remember, solutions)
        return _list(plan, report) if options.list else _run_plan(plan, options, report)
    except BookError as error:
        for problem in error.problems:
            report.problem(problem)
    except (Refused, EngineError) as error:
        report.stop()
        print(f"check_chapters: {error}", file=sys.stderr)
    except BrokenPipeError:
        report.stop()
        raise  # nobody reads the report: `entry` knows what to do
    except OSError as error:
        report.stop()
        print(f"check_chapters: cannot read or write: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        report.stop()
        print("interrupted", file=sys.stderr)
        return 130
    return 2


def _list(plan: Plan, report: Report) -> int:
    for job in plan.jobs:
        chapter = job.chapter
        saved = f", {len(chapter.saved_cells)} saved" if chapter.saved_cells else ""
        report.line(f"{chapter.label:<13} {chapter.title} ({len(chapter.code_cells)} cells{saved}) {chapter.name}")
    for problem in plan.problems:
        report.problem(problem)
    return 2 if plan.problems else 0


def _run_plan(plan: Plan, options: Options, report: Report) -> int:
    """Run what can be run, report everything, and return the exit code."""
    for problem in [*plan.warnings, *plan.problems]:
        report.problem(problem)
    engines: list[Engine] = []
    report.start(plan.jobs)
    try:
        work = _update if options.update else _check
        verdicts, damaged = work(plan, options, report, engines)
    finally:
        for engine in engines:
            engine.close()
        report.stop()
    report.summary(verdicts, plan, damaged)
    if options.junit is not None:
        write_junit(options.junit, verdicts, plan.problems)
    for verdict in verdicts:
        if verdict.engine_error:
            raise EngineError(verdict.engine_error)
    if plan.problems:
        return 2
    return 1 if any(v.count("failed") for v in verdicts) else 0


def _check(
    plan: Plan, options: Options, report: Report, engines: list[Engine]
) -> tuple[list[NotebookVerdict], list[str]]:
    pins = pinned(override=overrides(options.env))
    engines.append(make_engine(plan, options, pins))
    store: Cache | None = None if options.no_cache or options.kernel else open_cache(plan.book.root)
    verdicts = check(plan, engines[0], store, pins, options.jobs, report.notebook, report.progress)
    return verdicts, [*plan.damaged, *(store.damaged if store else [])]


def _update(
    plan: Plan, options: Options, report: Report, engines: list[Engine]
) -> tuple[list[NotebookVerdict], list[str]]:
    from .update import Outcome, label, update

    for seed, zone in zip(UPDATE_SEEDS, UPDATE_ZONES, strict=True):
        engines.append(make_engine(plan, options, pinned(seed, {"TZ": zone, **overrides(options.env)})))
    names = cache(lambda: book_names(plan.book))
    both = (engines[0], engines[1])

    def ready(outcome: Outcome) -> None:
        report.notebook(outcome.verdict, outcome.word)
        for cell, lines in outcome.changes:
            report.line(f"  new {label(outcome.verdict.chapter, cell)}:")
            for line in lines:
                report.line(f"      {line}".rstrip(), style={"-": "red", "+": "green"}.get(line[:1], ""))

    queue = both[0].prepare(plan.jobs)
    both[1].prepare(plan.jobs)
    outcomes = in_order(plan.jobs, lambda job: update(job, both, names, report.progress), options.jobs, ready, queue)
    words = [o.word for o in outcomes]
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("recorded", "unchanged", "refused"))
    report.line(f"notebooks: {counts}")
    return [o.verdict for o in outcomes], list(plan.damaged)


def make_engine(plan: Plan, options: Options, pins: Mapping[str, str]) -> Engine:
    """Return the engine the options ask for; it starts nothing before the first notebook runs."""
    limits = Limits(timeout=options.timeout, memory=options.memory or usable_memory())
    if options.kernel:
        from .kernel import KernelEngine

        return KernelEngine(pins, limits)
    if options.spawn:
        return SpawnEngine(pins, limits)
    return ForkEngine(pins, limits)


def overrides(pairs: list[str]) -> dict[str, str]:
    """Return `NAME=VALUE` arguments as a dictionary; Refused when one has no name or no `=`."""
    wrong = [pair for pair in pairs if not pair.partition("=")[0] or "=" not in pair]
    if wrong:
        raise Refused(f"--env wants NAME=VALUE, not {wrong[0]!r}")
    return dict(pair.split("=", 1) for pair in pairs)
