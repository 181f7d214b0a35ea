"""Lets a process import one copy of the book's library and no other. Stands alone: kernels load it by its path."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

LIBRARY = "agentrl"


class OnlyStaged(MetaPathFinder):
    """Finds `agentrl` in the staged folder alone: an installed copy would leak what later chapters save."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the staged package's spec; None for any other module; ModuleNotFoundError when none is staged."""
        if fullname != LIBRARY:
            return None
        spec = PathFinder.find_spec(fullname, [self.folder], target)
        if spec is None or spec.origin is None:
            message = f"No module named {LIBRARY!r}: no chapter before this one saves anything to the library"
            raise ModuleNotFoundError(message, name=LIBRARY)
        return spec


def install(folder: str) -> None:
    """Make `folder` the only place that `agentrl` can come from; forget any copy already imported."""
    for name in [n for n in sys.modules if n == LIBRARY or n.startswith(LIBRARY + ".")]:
        del sys.modules[name]
    sys.meta_path.insert(0, OnlyStaged(folder))
