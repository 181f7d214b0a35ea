"""How all tests run."""

from __future__ import annotations

import os

import hypothesis
import pytest

# Small tensors gain nothing from a second thread, and one that waits for the first spins: a test of 5 ms took 260 ms of
# two cores. Read when torch and numpy are imported, which no test does before this.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# The same examples in every run, in every process and in CI; `--hypothesis-profile default` looks for new ones.
hypothesis.settings.load_profile("ci")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where files are dealt out to several processes, put those with a slow test first: none is to begin last."""
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)
