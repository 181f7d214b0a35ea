"""How every script starts and ends, whatever it was started with: `raise SystemExit(entry.run(main))`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

CTRL_C, NOBODY_READS = 130, 141  # what a shell says of a program that SIGINT or SIGPIPE ended


def run(main: Callable[[], int]) -> int:
    """Return the exit code of `main`; quietly 141 when nobody reads what it prints, as in `… | head -1`, or 130."""
    open_streams()
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered is written at the very end
        return NOBODY_READS
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return CTRL_C
    return code


def open_streams() -> None:
    """Open what the caller has closed of stdin, stdout and stderr: else the next file opened would take its number."""
    opened = os.open(os.devnull, os.O_RDWR)
    while opened <= 2:
        opened = os.dup(opened)
    os.close(opened)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
