"""What the recorded outputs of every chapter and its solutions must show."""

import re
from pathlib import Path

import pytest

from bookkit.notebook import Chapter, load_book

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = {notebook.label: notebook for notebook in load_book(ROOT).notebooks()}
# Cells whose True or False is a finding about what they look at, and no check.
FINDINGS = {"03": {"qwen-joints", "qwen-spelled"}, "05": {"chat-continue-print"}, "08": {"ratio-gradients"}}
# Cells that check something, each with a line at least that says so.
CHECKING = {
    "05": ["split-check", "alone-check", "flaky-alone", "drift-corpus", "chat-mask"],
    "07": ["loo-identity", "gae-check-print", "lambda-linear"],
    "08": ["enumerate-check", "surrogate-check", "kl-check", "by-cases-check", "value-check-print"],
}
# How many checks a chapter has at least, so that this test cannot pass for want of anything to look at.
AT_LEAST = {"02": 12, "03": 8, "06": 30, "07": 8, "08": 12}


def checks(notebook: Chapter) -> list[tuple[str, str]]:
    """Return (cell, line) of every recorded line that ends in `: True` or `: False`."""
    lines = [(cell.id, line) for cell in notebook.code_cells for line in cell.stdout.splitlines()]
    findings = FINDINGS.get(notebook.label, set())
    return [(cell, line) for cell, line in lines if re.search(r": (True|False)$", line) and cell not in findings]


@pytest.mark.parametrize("label", NOTEBOOKS)
def test_every_check_line_came_out_true(label: str) -> None:
    found = checks(NOTEBOOKS[label])
    assert len(found) >= AT_LEAST.get(label, 0)
    assert [(cell, line) for cell, line in found if line.endswith("False")] == []


@pytest.mark.parametrize("label", FINDINGS)
def test_cells_named_as_findings_are_there_and_find_something(label: str) -> None:
    found = {cell.id: cell.stdout for cell in NOTEBOOKS[label].code_cells if cell.id in FINDINGS[label]}
    assert found.keys() == FINDINGS[label]
    assert all(re.search(r": (True|False)$", text, re.MULTILINE) for text in found.values())


@pytest.mark.parametrize(("label", "cell"), [(label, cell) for label, cells in CHECKING.items() for cell in cells])
def test_cells_named_as_checks_say_true_and_nothing_else(label: str, cell: str) -> None:
    stdout = next(found.stdout for found in NOTEBOOKS[label].code_cells if found.id == cell)
    assert {*re.findall(r": (True|False)\b", stdout)} == {"True"}
