"""Every way a book can stop being true that the suite knows, by kind; run as a program, it prints how each is caught.

    python tests/mutants.py            the table of kinds; exit code 1 when a mutation is not caught
    python tests/mutants.py digit      only the kinds whose name holds "digit"

A kind generates its mutations from the small book in mutantbook.py: every place where it applies, or a sample of them
drawn with the kind's name as seed. It says which tool catches them, at which cell and with which words (or that they
have to pass), and under which weakness (weakened.py) at least one of them is missed.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import mutants_library
import mutants_recorded
import mutants_running
from mutation_runs import print_table, run_kinds

KINDS = [*mutants_recorded.KINDS, *mutants_running.KINDS, *mutants_library.KINDS]


def main(words: list[str]) -> int:
    """Run the suite, print its table, and return 1 when a mutation is not caught or a weakened tool misses none."""
    kinds = [kind for kind in KINDS if not words or any(word in kind.name for word in words)]
    if not kinds:
        print(f"mutants: no kind's name holds {' or '.join(map(repr, words))}", file=sys.stderr)
        return 2
    suite = run_kinds(kinds)
    print_table(suite)
    return 0 if suite.good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
