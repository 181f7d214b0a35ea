"""How the scripts start and end: closed streams, a reader that goes, an interrupt."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from checking import command, environment
from synthetic import code, write_book

from bookkit import entry

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
LONG = [code("long", "print('x')", "".join(f"{n}\n" for n in range(30_000)))]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a book of one chapter that passes and one that differs."""
    return write_book(tmp_path_factory.mktemp("entry"), {"01-good": [code("a", "print(1)", "1\n")], "02-long": LONG})


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash."""
    return subprocess.run(
        ["bash", "-c", line], env=environment(), capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


def quoted(*words: str) -> str:
    """Return words as a shell reads them."""
    return " ".join(f"'{word}'" for word in words)


def test_closed_streams_change_no_verdict(book: Path) -> None:
    check = quoted(*command(book, "--no-cache"))
    codes = f"{check} 01 >&-; echo $?; {check} 02 >&- 2>/dev/null; echo $?; {check} 01 <&- >&- 2>&-; echo $?"
    done = shell(codes)
    assert (done.stdout.split(), done.stderr) == (["0", "1", "0"], "")


@pytest.mark.parametrize(
    "script",
    [
        "check_chapters.py --no-cache 02 --root '{book}'",
        "determinism.py --list",
        "make_figures.py --list",
    ],
)
def test_a_reader_that_goes_ends_a_script_quietly(book: Path, script: str) -> None:
    line = f"{quoted(sys.executable)} '{SCRIPTS}'/{script.format(book=book)}"
    done = shell(f"{line} | (exec 0<&-; sleep 0.01); echo ${{PIPESTATUS[0]}}")
    assert (done.stdout, done.stderr) == ("141\n", "")
    closed = shell(f"{line} >&-")
    assert "Traceback" not in closed.stderr


def test_an_interrupt_is_told_in_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    assert entry.run(interrupted) == 130
    assert capsys.readouterr().err == "interrupted\n"
