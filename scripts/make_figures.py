"""Draw the book's figures: run each script in figures/ and replace the SVG files that changed.

Exit 0: every figure is fresh. 1: a script failed, drew something invalid, or (with --check) a file is stale.
2: no folder figures/, a name that matches no figure, or a file that cannot be read or written.
130, 143: interrupted, terminated.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from bookkit import entry
from bookkit.figure_scripts import Result, draw_all, find_scripts, orphans, select, write_changed
from bookkit.problems import Problem, relative, tell

ROOT = Path(__file__).resolve().parents[1]


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    made = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    made.add_argument("names", nargs="*", metavar="NAME", help="ch01 (a chapter's figures) or a figure's name")
    made.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is stale")
    made.add_argument("--list", action="store_true", help="print the figures and exit")
    made.add_argument("--root", type=Path, default=ROOT, help="the book's folder")
    return made


def main(argv: list[str] | None = None) -> int:
    """Draw, compare or list the figures; return the exit code."""
    options = parser().parse_args(argv)
    if not (options.root / "figures").is_dir():
        print(f"{options.root}: no folder figures/ here", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # clean up, as after Ctrl-C
    try:
        return _run(options)
    except KeyError as error:
        print(error.args[0], file=sys.stderr)
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"cannot read or write: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 2


def _run(options: argparse.Namespace) -> int:
    chosen = select(find_scripts(options.root), options.names)
    if options.list:
        print("\n".join(script.stem for script in chosen))
        return 0
    results = draw_all(chosen)
    if not options.check:
        write_changed(results)
    problems = [found for result in results if (found := _problem(result, options.root, options.check))]
    if not options.names:
        problems += [_orphan(path, options.root) for path in orphans(options.root)]
    _report(results, problems, options.check)
    return int(bool(problems))


def _orphan(path: Path, root: Path) -> Problem:
    return Problem(relative(path, root), None, None, "no script draws this file; remove it or add its script")


def _problem(result: Result, root: Path, check: bool) -> Problem | None:
    if result.error:
        return Problem(relative(result.script, root), None, None, result.error)
    if check and result.changed:
        state = "stale" if result.target.exists() else "missing"
        return Problem(relative(result.target, root), None, None, f"{state}: `make figures` draws it anew")
    return None


def _report(results: list[Result], problems: list[Problem], check: bool) -> None:
    for result in results:
        if result.changed and not result.error and not check:
            print(f"wrote {result.target.name}")
    tell(problems, sys.stderr)
    failed = sum(bool(result.error) for result in results)
    changed = sum(result.changed and not result.error for result in results)
    same = len(results) - failed - changed
    word = "stale" if check else "written"
    print(f"figures: {same} unchanged, {changed} {word}, {failed} failed")


if __name__ == "__main__":
    raise SystemExit(entry.run(main))
