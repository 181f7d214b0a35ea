"""What a test needs that may not be installed: without it the test is skipped by name, in CI it fails."""

from __future__ import annotations

import importlib
import os
import shutil
from types import ModuleType
from typing import NoReturn

import pytest

from bookkit.needs import SANDBOX, in_ci, may_be_missing, missing_layers
from bookkit.site import node

SBIN = ":/usr/sbin:/usr/local/sbin:/sbin"


def missing(reason: str) -> NoReturn:
    """Skip the test, or all tests of the module that calls this, for a reason; fail in CI: nothing is missing there."""
    if not in_ci():
        pytest.skip(reason, allow_module_level=True)
    pytest.fail(reason)


def program(name: str) -> str:
    """Return where a program is that `.ci/install` installs."""
    found = shutil.which(name, path=os.environ.get("PATH", os.defpath) + SBIN)
    return found or missing(f"{name} is not installed here (bash .ci/install does it)")


def packages(project: str) -> None:
    """Return where a project in `site/` has its packages, which `make site` installs."""
    if why := node.missing(project):
        missing(why)


def peer(name: str) -> ModuleType:
    """Return a module of the extra `peers`: another trainer, to compare with."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing(f"{error.name} is not installed here (make peers does it)")


def isolation() -> None:
    """Return where every layer that isolates a process is there, as it must be in CI on Linux."""
    if not (why := missing_layers()):
        return
    if may_be_missing(SANDBOX):
        pytest.skip(why, allow_module_level=True)
    pytest.fail(why)
