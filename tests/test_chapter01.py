"""Chapter 1 prints what the book's readers know it to print, and saves exactly what Chapter 4 builds on."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from bookkit.notebook import Chapter, load_chapter

ROOT = Path(__file__).resolve().parent.parent
EXPECTED = Path(__file__).with_name("expected") / "ch01.txt"
LABEL = "---- "


def expected_blocks() -> list[tuple[str, str]]:
    """Return (label, text) of each block of the file of expected outputs, in order."""
    parts = re.split(rf"^{LABEL}(.+)\n", EXPECTED.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture(scope="module")
def chapter() -> Chapter:
    return load_chapter(ROOT / "chapters" / "01-introduction.ipynb", ROOT)


@pytest.fixture(scope="module")
def saved(chapter: Chapter) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for cell in chapter.saved_cells:
        exec(cell.source, names)
    return {name: value for name, value in names.items() if name != "__builtins__"}


def sections(chapter: Chapter) -> dict[str, str]:
    """Return the section number each code cell stands in."""
    current, found = "", {}
    for cell in chapter.cells:
        for heading in re.finditer(r"^## (\S+)", cell.source if not cell.is_code else "", flags=re.MULTILINE):
            current = heading[1]
        found[cell.id] = current
    return found


def test_the_file_of_expected_outputs_has_every_block():
    assert len(expected_blocks()) == 11
    assert all(text.endswith("\n") and text.strip() for _, text in expected_blocks())


@pytest.mark.parametrize(("label", "text"), expected_blocks(), ids=[label for label, _ in expected_blocks()])
def test_one_cell_of_the_named_section_prints_exactly_this_block(chapter: Chapter, label: str, text: str):
    printing = [cell.id for cell in chapter.code_cells if cell.stdout == text]
    assert len(printing) == 1, f"{label}: printed by {printing or 'no cell'}"
    assert sections(chapter)[printing[0]] == label.split()[0]


def test_the_blocks_come_in_the_order_of_the_chapter(chapter: Chapter):
    at = {cell.stdout: cell.index for cell in chapter.code_cells}
    order = [at[text] for _, text in expected_blocks()]
    assert order == sorted(order)


def test_three_constants_are_saved_and_nothing_else(saved: dict[str, Any]):
    assert list(saved) == ["CLAMP_ISSUE", "CLAMP_SOURCE", "CLAMP_TESTS"]


def test_the_issue_counts_twenty_words(saved: dict[str, Any]):
    assert len(saved["CLAMP_ISSUE"].split()) == 20
    assert "clamp(3, 0, 5) returns 0 instead of 3" in saved["CLAMP_ISSUE"]


def test_the_source_returns_lower_for_every_valid_interval(saved: dict[str, Any]):
    names: dict[str, Any] = {}
    exec(saved["CLAMP_SOURCE"], names)
    for value, lower, upper in product((-3, -0.5, 0, 2, 7), repeat=3):
        if lower <= upper:
            assert names["clamp"](value, lower, upper) == lower


def test_the_tests_are_those_of_the_task_and_a_correct_clamp_passes_them(saved: dict[str, Any]):
    assert saved["CLAMP_TESTS"] == {
        "public": (((3, 0, 5), 3), ((-2, 0, 5), 0), ((9, 0, 5), 5)),
        "hidden": (((0.5, 0, 1), 0.5), ((-7, -5, -1), -5), ((4, 2, 2), 2), ((-3, -5, -1), -3)),
    }
    for args, expected in (*saved["CLAMP_TESTS"]["public"], *saved["CLAMP_TESTS"]["hidden"]):
        assert sorted(args)[1] == expected


def test_the_chapter_has_its_eight_sections_and_fixed_ends(chapter: Chapter):
    headings = [h for c in chapter.cells if not c.is_code for h in re.findall(r"^## (.+)$", c.source, re.MULTILINE)]
    assert [h.split()[0] for h in headings[:8]] == [f"1.{n}" for n in range(1, 9)]
    assert headings[7:] == ["1.8 Design questions in practice", "Summary", "Exercises", "Sources"]
