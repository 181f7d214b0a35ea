"""The cells of the arrival chapter, each under a line `# %% id`; nothing imports this module.

Each prints one thing that a setting changes. Where a setting should change it and the cell prints the same, the
setting never reached the cells, and their agreement under it would mean nothing.
"""

# ruff: noqa: E402 (each cell imports what it needs, as in a chapter)

# %% hash
print(hash("a"))

# %% locale
import locale

print(locale.setlocale(locale.LC_ALL, ""), f"{1.5:n}")

# %% zone
import time

print(time.tzname, time.localtime(0).tm_gmtoff)

# %% folder
import os

print("elsewhere" in os.getcwd())

# %% account
print(os.environ.get("USER"), os.path.expanduser("~"))

# %% vector
import torch

print(torch.backends.cpu.get_cpu_capability())

# %% threads
print(torch.get_num_threads())

# %% mkl
import re
import sys
import tempfile


def mkl_code_path() -> str:
    """Return the code path that MKL says it takes for a matrix product: OFF where none is chosen."""
    if not torch.backends.mkl.is_available():
        return "no MKL"
    square = torch.ones(8, 8, dtype=torch.float64)
    with tempfile.TemporaryFile() as said:
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(said.fileno(), 1)  # MKL writes to the descriptor itself
        try:
            with torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON):
                square @ square
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        said.seek(0)
        found = re.search(rb"CNR:(\w+)", said.read())
    return found[1].decode() if found else "MKL says nothing"


print(mkl_code_path())
