"""Check that every code cell of the book prints what its notebook records, or record it anew.

    python scripts/check_chapters.py              the whole book
    python scripts/check_chapters.py 06 A         chapters 06 and A with their solutions
    python scripts/check_chapters.py 06 --update  run chapter 06 twice and record what it prints

Exit code: 0 all equal, 1 something differs or fails, 2 the check cannot run or not to its end, 130 interrupted,
143 terminated, 141 nobody reads what it prints (`| head -1`).
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from bookkit import check_cli, entry
from bookkit.runner import usable_cores


def make_parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("prefixes", nargs="*", metavar="PREFIX", help="start of a chapter's key: 06, A, 06/solutions (default: all)")
    add("-j", "--jobs", type=_positive, default=_cores(), metavar="N", help="notebooks at once (default: %(default)s)")
    add("--update", action="store_true", help="record outputs: run twice, keep what agrees, show what changed")
    add("--kernel", action="store_true", help="run in Jupyter kernels (slow; must give the same)")
    add("--no-cache", action="store_true", help="run everything, remember nothing")
    add("--junit", type=Path, metavar="FILE", help="also write the results as JUnit XML")
    add("--timeout", type=_seconds, default=300.0, metavar="S", help="seconds a cell may take (default: %(default)g)")
    add("--no-solutions", action="store_true", help="leave out the solutions of the exercises")
    add("--list", action="store_true", help="list the notebooks and stop")
    add("--root", type=Path, default=Path(__file__).resolve().parents[1], metavar="DIR", help="the book's folder")
    add("--spawn", action="store_true", default=sys.platform != "linux", help=argparse.SUPPRESS)
    add("--memory", type=int, help=argparse.SUPPRESS)  # bytes a notebook may use
    add("--env", action="append", default=[], metavar="NAME=VALUE", help=argparse.SUPPRESS)  # over the pinned ones
    return parser


def _positive(text: str) -> int:
    value = int(text) if text.removeprefix("-").isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of notebooks")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def _cores() -> int:
    return min(4, usable_cores())


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    options = make_parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # clean up, as after Ctrl-C
    return check_cli.run(options)


if __name__ == "__main__":
    sys.exit(entry.run(main))
