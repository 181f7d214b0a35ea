"""Runs the checker on synthetic books, as a person would: a process of its own, its output read back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "check_chapters.py"
UNSET = ("CI", "GITHUB_ACTIONS", "AGENTRL_MODEL_DIR")


@dataclass
class Checked:
    """A finished run: exit code, what it printed, and per notebook the line of its status."""

    code: int
    out: str
    err: str

    def status(self, label: str) -> str:
        """Return the last word of a notebook's line: ok, cached, differs, failed, recorded, unchanged, refused."""
        for line in self.out.splitlines():
            if line.split(" ", 1)[0] == label:
                return line.split()[-1]
        raise AssertionError(f"no line for {label} in:\n{self.out}\n{self.err}")

    @property
    def last(self) -> str:
        """Return the last line."""
        return self.out.splitlines()[-1]


def environment(**extra: str) -> dict[str, str]:
    """Return this process's environment without what would change how the checker behaves."""
    return {**{k: v for k, v in os.environ.items() if k not in UNSET}, **extra}


def command(root: Path, *arguments: str) -> list[str]:
    """Return the command line that checks the book in `root`."""
    return [sys.executable, str(SCRIPT), "--root", str(root), *arguments]


def hearing() -> None:
    """Let a process that is being started hear signals, also when a runner in the background has them ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def check(root: Path, *arguments: str, limit: float = 120, **extra: str) -> Checked:
    """Run the checker on the book in `root` and return what it said."""
    done = subprocess.run(
        command(root, *arguments), env=environment(**extra), capture_output=True, encoding="utf-8", timeout=limit
    )
    return Checked(done.returncode, done.stdout, done.stderr)


@dataclass
class Case:
    """A cell's result as JUnit tells it."""

    status: str
    message: str
    text: str


def junit_cases(path: Path) -> dict[str, dict[str, Case]]:
    """Return the results in a JUnit file by suite and cell."""
    suites: dict[str, dict[str, Case]] = {}
    for suite in ElementTree.parse(path).getroot():
        cases = suites.setdefault(suite.get("name", ""), {})
        for case in suite:
            result = case[0] if len(case) else None
            status = {None: "passed", "failure": "failed"}.get(
                None if result is None else result.tag, "" if result is None else result.tag
            )
            message = "" if result is None else result.get("message", "")
            cases[case.get("name", "")] = Case(status, message, "" if result is None else result.text or "")
    return suites


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Return whether the condition becomes true within the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()
