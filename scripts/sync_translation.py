"""Write the Chinese edition's notebooks from the English ones, check them, and accept cells that were translated."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bookkit import entry
from bookkit.problems import BookError, count, tell
from bookkit.translation.accept import accept, drop
from bookkit.translation.check import Checker, Report
from bookkit.translation.pair import Edition, Pair
from bookkit.translation.sync import leftover, synced, write


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 when all is well, 1 when the check or `--accept` found faults, 2 when something cannot be read."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.prefix and (arguments.accept or arguments.drop):
        parser.error(f"--accept and --drop take cells by name and no chapters: {' '.join(arguments.prefix)}")
    try:
        edition = Edition.load(arguments.root)
        if arguments.accept:
            return _accept(edition, arguments.accept)
        if arguments.drop:
            print("\n".join(drop(edition, arguments.drop)))
            return 0
        return (_check if arguments.check else _sync)(edition, arguments.prefix)
    except BookError as error:
        tell(error.problems)
        return 2
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"cannot read or write: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prefix", nargs="*", help="chapters whose key starts with this; 02, a whole key, starts one")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="the book's folder")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--check", action="store_true", help="write nothing; say what is wrong, and return 1 for it")
    choice.add_argument(
        "--accept", nargs="+", metavar="CELL", help="01:cell or 01/solutions:cell: it translates English as it is now"
    )
    choice.add_argument("--drop", nargs="+", metavar="CELL", help="remove a cell that English no longer has")
    return parser


def _sync(edition: Edition, prefixes: list[str]) -> int:
    """Write the chapters that a prefix names, or all that have been started or have to be complete."""
    pairs = _chosen(edition, prefixes)
    changed = write({pair.path: (pair, synced(edition, pair)) for pair in pairs})
    if any(pair.chinese is None for pair in changed):  # links of the whole edition lead to what is there only now
        edition = Edition.load(edition.root)
        pairs = _chosen(edition, prefixes)
        again = write({pair.path: (pair, synced(edition, pair)) for pair in edition.pairs if pair.chinese})
        changed, pairs = _joined(changed, again), _joined(pairs, again)
    for pair in changed:
        print(f"{edition.name(pair.path)}: written")
    for pair in pairs:
        for cell in leftover(pair):
            print(f"{edition.name(pair.path)}: {cell.id} is not in English; its text stands at the end of the notebook")
    print(f"{count(len(pairs), 'notebook')}: {len(changed)} written, {len(pairs) - len(changed)} as they have to be")
    return 0


def _joined(pairs: list[Pair], more: list[Pair]) -> list[Pair]:
    """Return the pairs and those of `more` that are not among them."""
    known = {pair.label for pair in pairs}
    return [*pairs, *(pair for pair in more if pair.label not in known)]


def _chosen(edition: Edition, prefixes: list[str]) -> list[Pair]:
    """Return what is to be written; BookError for a notebook whose translation stands under an older name."""
    pairs = edition.to_write(prefixes)
    older = [(pair, chapter) for pair in pairs if (chapter := edition.renamed(pair))]
    if older:
        said = "its English notebook is {} now: rename this one, too"
        raise BookError([chapter.problem(None, None, said.format(pair.english.path.name)) for pair, chapter in older])
    return pairs


def _accept(edition: Edition, names: list[str]) -> int:
    result = accept(edition, names)
    tell(result.problems)
    print("\n".join([*result.lines, f"{count(len(result.lines), 'cell')} accepted"]))
    return 1 if result.problems else 0


def _check(edition: Edition, prefixes: list[str]) -> int:
    report = Checker(edition).check(edition.selected(prefixes))
    tell(report.problems)
    print(_summary(report))
    return 1 if report.problems else 0


def _summary(report: Report) -> str:
    parts = [f"{count(report.notebooks, 'translated notebook')}: {count(len(report.problems), 'error')}"]
    parts.append(f"{report.done} of {count(report.cells, 'cell')} in Chinese")
    if report.partly:
        parts.append(f"in part: {', '.join(report.partly)}")
    if report.untranslated:
        chapters = [label for label in report.untranslated if "/" not in label]
        parts.append(f"not translated: {count(len(chapters), 'chapter')} ({', '.join(chapters)})")
    return ". ".join(parts) + "."


if __name__ == "__main__":
    raise SystemExit(entry.run(main))
