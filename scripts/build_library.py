"""Build agentrl/ from the saved cells of the chapters, or say whether it is up to date."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bookkit import entry
from bookkit.librarycli import Request, run


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 when done, 1 when the library is stale, 2 when the book or the call is wrong."""
    parser = argparse.ArgumentParser(prog="build_library.py", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 and print the diff when it is stale"
    )
    parser.add_argument("--before", metavar="KEY", help="only what chapter KEY may see: the chapters before it")
    parser.add_argument("--through", metavar="KEY", help="only the chapters up to and including KEY")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="the package's parent folder (default: the book's root)"
    )
    parser.add_argument("--list", action="store_true", help="print every saved name and where it comes from")
    parser.add_argument(
        "--root", metavar="DIR", type=Path, default=Path(__file__).resolve().parents[1], help="the book"
    )
    args = parser.parse_args(argv)
    if args.before and args.through:
        parser.error("--before and --through exclude each other")
    return run(Request(args.root, args.out, args.before, args.through, args.check, args.list))


if __name__ == "__main__":
    sys.exit(entry.run(main))
