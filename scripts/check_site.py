"""Check the website folder that build_tutorial_site.py writes: run every gate, or those named, and say what is wrong.

    python scripts/check_site.py                          every gate
    python scripts/check_site.py --gate links --gate code some of them
    python scripts/check_site.py --list                   what each refuses

Exit code: 0 the website passes, 1 a gate found something, 2 a gate cannot run here, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from bookkit import entry
from bookkit.problems import BookError, count, tell
from bookkit.site import gates

ROOT = Path(__file__).resolve().parents[1]
NAMES = [gate.name for gate in gates.GATES]


def make_parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--gate", action="append", choices=NAMES, metavar="NAME", help="run this gate, and no other that is not named")
    add("--list", action="store_true", help="print the gates and what each refuses, and stop")
    add("--website", type=Path, metavar="DIR", help="the folder to check (default: website/ of the book)")
    add("--site", type=Path, metavar="DIR", help="leave the static edition here (default: build it, keep nothing)")
    add("--root", type=Path, default=ROOT, metavar="DIR", help="the book's folder")
    add("-j", "--jobs", type=int, default=min(2, os.cpu_count() or 1), metavar="N", help="gates at a time (default: 2)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the gates and return the exit code."""
    options = make_parser().parse_args(argv)
    if options.list:
        print("\n".join(f"{gate.name:<12} refuses {gate.refuses}" for gate in gates.GATES))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # clean up, as after Ctrl-C
    try:
        return check(options)
    except BookError as error:
        tell(error.problems, sys.stderr)
    except OSError as error:
        print(f"cannot read or write: {error}", file=sys.stderr)
    return 2


def check(options: argparse.Namespace) -> int:
    """Run the chosen gates, print a line for each and what it found, and return the exit code."""
    root = options.root.resolve()
    folder = (options.website or root / "website").resolve()
    website = gates.Website.load(root, folder, options.site.resolve() if options.site else None)
    chosen = [gate for gate in gates.GATES if gate.name in (options.gate or NAMES)]
    found = 0
    if options.gate and website.unreadable:  # of all gates, two say this
        print("what no gate could read:")
        tell(website.unreadable)
        found = len(website.unreadable)
    for result in gates.run(website, chosen, max(1, options.jobs)):
        verdict = count(len(result.problems), "problem") if result.problems else "ok"
        print(f"{result.gate.name:<12} {result.seconds:6.1f} s  {verdict}", flush=True)
        tell(result.problems)
        found += len(result.problems)
    print(f"{count(len(website.pages), 'page')}, {count(len(chosen), 'gate')}: {count(found, 'problem')}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(entry.run(main))
