"""The command line of build_tutorial_site.py."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..problems import BookError, count, tell
from .build import build
from .output import refuse_other_folders, write

ROOT = Path(__file__).resolve().parents[3]


def main(argv: Sequence[str] | None = None) -> int:
    """Build the site; return 0, or 2 when the book or the folder is not fit for it: nothing is written then."""
    arguments = _parser().parse_args(argv)
    root = arguments.root.resolve()
    out = (arguments.out or root / "website").absolute()
    try:
        refuse_other_folders(out)
        files = build(root, arguments.prefix)
        write(files, out)
    except BookError as error:
        tell(error.problems, sys.stderr)
        return 2
    except OSError as error:
        print(f"cannot read or write: {error}", file=sys.stderr)
        return 2
    pages = sum(name.endswith(".mdx") for name in files)
    print(f"{arguments.out or 'website'}: {count(pages, 'page')}, {count(len(files), 'file')}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Write the book as a site: Mintlify MDX in both languages.")
    parser.add_argument(
        "prefix", nargs="*", help="chapters whose key starts with this (00, 1 for 10 to 19, A); all when absent"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the book's folder")
    parser.add_argument("--out", type=Path, help="the folder to write, replaced as a whole (website in the book)")
    return parser
