"""Build the books: PDF and EPUB of the whole text, in English and in Chinese, into build/books/.

    python scripts/build_books.py                               all four
    python scripts/build_books.py --language zh --format epub   one of them

Reads website/ and the static edition in build/site, which `make site` builds. Needs beside the environment: Chromium
(PDF), Java (epubcheck, which checks the EPUB) and the fonts of site/books: `npm ci` there.
`make books` is: make site, `npm ci` in site/books where node_modules is missing, then this script. A book that fails
its checks is not written.

Exit code: 0 all built, 1 a book is not as it must be, 2 it cannot be built here, 130 interrupted.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from bookkit import entry
from bookkit.books import cli
from bookkit.books.words import LANGUAGES

ROOT = Path(__file__).resolve().parents[1]


def make_parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--language", choices=LANGUAGES, help="one language (default: both)")
    add("--format", choices=cli.FORMATS, help="one format (default: both)")
    add("--website", type=Path, default=ROOT / "website", metavar="DIR", help="the pages' source (default: website/)")
    add("--site", type=Path, default=ROOT / "build" / "site", metavar="DIR", help="the static edition (build/site/)")
    add("--out", type=Path, default=ROOT / "build" / "books", metavar="DIR", help="where to (build/books/)")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    options = make_parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # clean up, as after Ctrl-C
    return cli.run(options)


if __name__ == "__main__":
    sys.exit(entry.run(main))
