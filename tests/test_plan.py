"""The plan of the book, and starting a chapter from it."""

import json
import re
from pathlib import Path

import new_chapter
import pytest
from synthetic import code, write_chapter

from bookkit.notebook import load_book
from bookkit.plan import load_plan, planned

ROOT = Path(__file__).resolve().parent.parent


def test_the_plan_has_chapters_0_to_20_and_two_appendices_in_order_each_in_one_part():
    keys = [chapter.key for part in load_plan() for chapter in part.chapters]
    assert keys == [f"{number:02d}" for number in range(21)] + ["A", "B"]


def test_written_chapters_have_the_plans_titles_and_file_names():
    plan = planned()
    book = load_book(ROOT)
    assert book.chapters
    for chapter in book.chapters:
        assert (chapter.title, chapter.path.name) == (plan[chapter.key].title, plan[chapter.key].file)


def test_the_readme_lists_every_planned_chapter_and_links_those_that_are_written():
    rows = dict(re.findall(r"^\| (\d+|[AB]) \| (.+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE))
    written = {chapter.path.name for chapter in load_book(ROOT).chapters}
    expected = {
        chapter.key if not chapter.key.isdigit() else str(int(chapter.key)): (
            f"[{chapter.title}](chapters/{chapter.file})" if chapter.file in written else chapter.title
        )
        for chapter in planned().values()
    }
    assert rows == expected


def test_a_started_chapter_can_be_read_and_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments = ["02", "--module", "repair_mdp", "--question", "What is a policy?", "--root", str(tmp_path)]
    (tmp_path / "chapters").mkdir()
    assert new_chapter.main(arguments) == 0
    book = load_book(tmp_path)
    chapter, solutions = book.chapter("02"), book.solutions_of("02")
    assert (chapter.module, chapter.question, chapter.title) == (
        "repair_mdp",
        "What is a policy?",
        planned()["02"].title,
    )
    assert chapter.cells[0].source.startswith(f"# Chapter 2 · {chapter.title}\n\n**Question.** What is a policy?")
    assert solutions is not None
    assert solutions.cell("setup").source == f"%%capture\n%run ../{chapter.path.name}"
    chapter.path.write_text(json.dumps(chapter.raw))
    before = chapter.path.read_bytes()
    assert new_chapter.main(arguments) == 2
    assert "exists already; nothing was written" in capsys.readouterr().out
    assert chapter.path.read_bytes() == before


def test_a_chapter_outside_the_plan_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments = ["21", "--module", "more", "--question", "Why?", "--root", str(tmp_path)]
    assert new_chapter.main(arguments) == 2
    assert "no chapter '21' in scripts/bookkit/plan.toml; it has 00, 01, 02" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "question", "words"),
    [
        ("repair-mdp", "Why?", "'repair-mdp' is no name of a module"),
        ("class", "Why?", "'class' is no name of a module"),
        ("first", "Why?", "'first' is taken by chapters/01-first.ipynb"),
        ("second", " ", "--question is empty"),
    ],
)
def test_a_module_or_question_that_cannot_be_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], module: str, question: str, words: str
):
    write_chapter(tmp_path, "01-first", [code("a", "x = 1")])
    assert new_chapter.main(["02", "--module", module, "--question", question, "--root", str(tmp_path)]) == 2
    assert words in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "chapters").iterdir()] == ["01-first.ipynb"]
