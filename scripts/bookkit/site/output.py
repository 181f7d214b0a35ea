"""The folder of the site: written aside as a whole, then renamed, so that nothing of an older build stays."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ..problems import BookError, Problem
from ..scratch import Scratch
from .words import LANGUAGES

MARK = "docs.json"
# What a build writes, and what systems leave in folders that somebody has looked at.
PAGES = rf"(?:{'|'.join(LANGUAGES)})/.+\.mdx"
OURS = re.compile(rf"docs\.json|llms(?:-full)?\.txt|{PAGES}|images/.+\.svg|(?:.*/)?\.DS_Store")


def write(files: Mapping[str, str], out: Path) -> None:
    """Put the files where `out` is; BookError for a folder that holds something else than a site."""
    out = out.resolve()
    refuse_other_folders(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with Scratch("site", out.parent) as scratch:
        new, old = scratch / "new", scratch / "old"
        for name, text in sorted(files.items()):
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
        # Killed between the two renames, a build leaves no folder, and the next one makes it: all of it can be made
        # again, so an exchange in one step, which Linux alone has, would be worth less than its code.
        if out.exists():
            os.rename(out, old)
        try:
            os.rename(new, out)
        except OSError:
            if old.exists() and not out.exists():
                os.rename(old, out)
            raise


def refuse_other_folders(out: Path) -> None:
    """Raise BookError when `out` is a file, or a folder with content that no build of the site has made."""
    if not out.exists():
        return
    if not out.is_dir():
        raise BookError(_refused(out, "is a file, not a folder"))
    names = sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_symlink() or not p.is_dir())
    for name in names:
        if not OURS.fullmatch(name):
            raise BookError(_refused(out / name, "is no file of the site, which is replaced as a whole"))
    if names and MARK not in names:
        raise BookError(_refused(out, f"holds something else than a site (it has no {MARK})"))


def _refused(path: Path, why: str) -> Problem:
    return Problem(path.as_posix(), None, None, f"{why}; nothing was written")
