"""Stands between the checker and a Jupyter kernel: when either ends, so does all that the kernel started.

Jupyter can be told which command starts a kernel, not what becomes of it when the checker is killed. This process
starts the kernel and waits. Its standard input is a pipe whose other end the checker alone holds, and never writes to:
when the pipe closes, the checker wants an end or is dead, and the kernel's scratch folder goes too.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from functools import partial

from . import supervisor

# -P: not even a file of the working directory may be imported in place of a module.
LAUNCH = "import sys; sys.path.insert(0, sys.argv.pop(1)); from bookkit.kernelguard import main; sys.exit(main())"
TICK = 0.1
UMASK = 0o022  # as in the checker's worker, whatever the checker was started with


def command(scratch: str, kernel: list[str]) -> list[str]:
    """Return the command that starts a kernel under this guard."""
    scripts = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return [sys.executable, "-P", "-c", LAUNCH, scripts, scratch, *kernel]


def main() -> int:
    """Start the kernel, wait until it or the checker ends, and clean up: `… SCRATCH KERNEL_COMMAND …`."""
    scratch, *kernel = sys.argv[1:]
    told: list[int] = []
    supervisor.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    signal.signal(signal.SIGINT, lambda *_: None)  # an interrupt is for the kernel, which gets it too
    worker, status = _start(kernel), None
    while (status := supervisor.reap(worker)) is None and not told:
        if select.select([0], [], [], TICK)[0]:
            break
    supervisor.kill_everything(worker)
    if status is None:
        shutil.rmtree(scratch, ignore_errors=True)
        return 1
    return status if status >= 0 else 128 - status


def _start(kernel: list[str]) -> int:
    """Start the kernel, which dies with this process where Linux sees to that and notices its death elsewhere."""
    environment = {**os.environ, "JPY_PARENT_PID": str(os.getpid())}
    die = partial(supervisor.hear_of_parents_death, signal.SIGKILL)
    # This process has one thread, so that running code between fork and exec is safe.
    return subprocess.Popen(kernel, env=environment, stdin=subprocess.DEVNULL, preexec_fn=die, umask=UMASK).pid


if __name__ == "__main__":
    sys.exit(main())
