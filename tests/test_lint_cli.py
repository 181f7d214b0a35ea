"""The linter's command line, and the linter on the book itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lint_book
import nbformat
import pytest
from lintbook import CleanBook

from bookkit.lint import CODES, lint

ROOT = Path(__file__).resolve().parent.parent


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = lint_book.main(list(arguments))
    return status, capsys.readouterr().out


def test_a_clean_book_exits_with_0_and_counts_its_numbers(tmp_path, capsys):
    status, output = run(capsys, "--root", str(CleanBook(tmp_path).write()))
    assert status == 0
    assert output.startswith("4 notebooks: 0 errors, 0 warnings. ")
    assert "0 unexplained, 0 by a note in the cell." in output


def test_errors_exit_with_1_and_name_file_cell_and_line(tmp_path, capsys):
    book = CleanBook(tmp_path)
    book.prose("One.\nThen the the end [@paper-a].")
    status, output = run(capsys, "--root", str(book.write()))
    assert status == 1
    assert "chapters/01-intro-1.ipynb · cell reading · line 2: error: doubled word: 'the the' [L802]\n" in output


def test_warnings_exit_with_0_unless_strict(tmp_path, capsys):
    book = CleanBook(tmp_path)
    book.prose("This is simply so [@paper-a].")
    root = str(book.write())
    assert run(capsys, "--root", root)[0] == 0
    assert run(capsys, "--root", root, "--strict")[0] == 1


def test_a_book_that_cannot_be_read_exits_with_2(tmp_path, capsys):
    status, output = run(capsys, "--root", str(tmp_path))
    assert status == 2
    assert "no such folder" in output


@pytest.mark.parametrize("name", ["sources.md", "README.md", "pyproject.toml"])
def test_a_file_that_is_not_utf8_exits_with_2_and_is_named(tmp_path, capsys, name):
    root = CleanBook(tmp_path).write()
    (root / name).write_bytes(b"caf\xe9\n")
    status, output = run(capsys, "--root", str(root))
    assert status == 2
    assert f"{name}: error: not UTF-8: byte 3" in output


def test_settings_that_are_not_toml_exit_with_2(tmp_path, capsys):
    root = CleanBook(tmp_path).write()
    (root / "pyproject.toml").write_text("[[[\n")
    status, output = run(capsys, "--root", str(root))
    assert (status, "pyproject.toml: error: not TOML" in output) == (2, True)


def test_a_chapter_that_cannot_be_opened_exits_with_2(tmp_path, capsys):
    root = CleanBook(tmp_path).write()
    (root / "chapters" / "09-folder.ipynb").mkdir()
    assert lint_book.main(["--root", str(root)]) == 2
    captured = capsys.readouterr()
    assert "09-folder.ipynb" in captured.out + captured.err


def test_an_unknown_prefix_exits_with_2_and_known_ones_select(tmp_path, capsys):
    root = str(CleanBook(tmp_path).write())
    status, output = run(capsys, "--root", root, "07")
    assert status == 2
    assert "'07'" in output
    assert run(capsys, "--root", root, "01")[1].startswith("2 notebooks: ")
    assert run(capsys, "--root", root, "0")[1].startswith("4 notebooks: ")


def test_fix_says_what_it_rewrote(tmp_path, capsys):
    book = CleanBook(tmp_path)
    book.replace("area", "r**2", "r ** 2")
    root = str(book.write())
    assert run(capsys, "--root", root)[0] == 1
    assert run(capsys, "--root", root, "--fix") == (0, "chapters/01-intro-1.ipynb: rewritten\n" + SUMMARY)
    assert run(capsys, "--root", root, "--fix") == (0, SUMMARY)


SUMMARY = "4 notebooks: 0 errors, 0 warnings. 14 numbers in prose: 0 unexplained, 0 by a note in the cell.\n"


def test_annotations_are_printed_for_github_only(tmp_path, capsys, monkeypatch):
    book = CleanBook(tmp_path)
    book.prose("The the end [@paper-a].")
    root = str(book.write())
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert "::error" not in run(capsys, "--root", root)[1]
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    line = next(line for line in run(capsys, "--root", root)[1].splitlines() if line.startswith("::error"))
    number = int(line.split("line=")[1].split(":")[0])
    assert "The the end" in (tmp_path / "chapters/01-intro-1.ipynb").read_text().split("\n")[number - 1]


def test_every_code_is_listed(capsys):
    status, output = run(capsys, "--list-codes")
    assert status == 0
    assert [code for code in CODES if code not in output] == []


def test_the_linter_imports_neither_torch_nor_nbformat():
    program = "import sys, lint_book; print(sorted({'torch', 'nbformat', 'IPython'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT / "scripts", capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_the_books_notebooks_are_valid_by_nbformats_schema():
    paths = sorted(ROOT.glob("chapters/**/[0-9A-Z]*.ipynb"))
    assert paths
    for path in paths:
        nbformat.validate(nbformat.read(path, as_version=4))


def test_the_book_has_no_error():
    assert [str(problem) for problem in lint(ROOT).problems if problem.level == "error"] == []


def test_a_reader_that_has_seen_enough_is_no_traceback(tmp_path):
    book = CleanBook(tmp_path)
    for number in range(400):
        book.prose(f"This is the the reward of step {number % 10}, and it is is large.")
    root = book.write()
    command = f"{sys.executable} {ROOT / 'scripts' / 'lint_book.py'} --root {root} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert "L802" in done.stdout
    assert done.stderr == ""
