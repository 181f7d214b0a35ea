"""The Chinese edition's tool on a made-up book: what it writes, what it keeps, what it finds."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sync_translation
from killing import end, files
from synthetic import md, write_chapter
from zhbook import CHINESE, ENGLISH, NAME, ZhBook

from bookkit.notebook import load_book, load_translation
from bookkit.plan import load_plan, planned
from bookkit.translation.pair import digest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "sync_translation.py"
PLACE = f"chapters/zh/{NAME}.ipynb · cell"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return ZhBook.made(tmp_path_factory.mktemp("made"))


@pytest.fixture
def book(made, tmp_path):
    return made.copy(tmp_path)


def test_a_translated_book_passes_and_says_what_is_not_translated(book):
    status, out = book.check()
    assert (status, out) == (
        0,
        "2 translated notebooks: 0 errors. 8 of 8 cells in Chinese. not translated: 2 chapters (00, 02).\n",
    )


# What is written


def test_code_outputs_counts_and_order_come_from_english(book):
    english = json.loads((book.root / "chapters" / f"{NAME}.ipynb").read_text(encoding="utf-8"))
    chinese = book.raw()
    assert [cell["id"] for cell in chinese["cells"]] == [cell["id"] for cell in english["cells"]]
    assert [c for c in chinese["cells"] if c["cell_type"] == "code"] == [
        c for c in english["cells"] if c["cell_type"] == "code"
    ]
    agentrl = chinese["metadata"]["agentrl"]
    assert agentrl == {
        **english["metadata"]["agentrl"],
        "title": planned()["01"].zh,
        "question": "什么变了？",
        "language": "zh",
    }
    marks = {"source": digest(ENGLISH["agents"]), "accepted": digest(CHINESE["agents"])}
    assert book.cell("agents")["metadata"] == {"agentrl": marks}


def test_a_new_cell_comes_in_english_not_accepted_and_chinese_stays(book):
    book.english = {"title": book.english.pop("title"), "new": "See ![it](../figures/new.svg).", **book.english}
    book.write(book.english)
    assert book.sync()[0] == 0
    new = book.cell("new")
    text = "See ![it](../../figures/new.svg)."
    assert (new["source"], new["metadata"]) == ([text], {"agentrl": {"english": digest(text)}})
    assert book.text("agents") == CHINESE["agents"]
    status, out = book.check()
    assert status == 1
    assert f"{PLACE} new: error: still in English [english]" in out


def test_syncing_again_writes_nothing(book):
    before = files(book.root / "chapters")
    status, out = book.sync()
    assert (status, out) == (0, "2 notebooks: 0 written, 2 as they have to be\n")
    assert files(book.root / "chapters") == before


def test_text_that_was_not_accepted_is_kept_and_never_marked_by_a_sync(book):
    raw = book.raw()
    raw["cells"][1]["metadata"] = {}
    book.save(raw)
    book.edit_english("agents", "An agent", "Any agent")
    book.sync()
    assert book.text("agents") == CHINESE["agents"]
    assert book.cell("agents")["metadata"] == {}
    assert f"{PLACE} agents: error: not accepted" in book.check()[1]


@pytest.mark.parametrize("prefix", ["", "02"])
def test_a_chapter_is_started_only_when_it_is_named(book, prefix):
    book.sync(*([prefix] if prefix else []))
    assert (book.path().parent / "02-later.ipynb").is_file() == bool(prefix)
    assert not (book.path().parent / "00-notation.ipynb").exists()


def test_links_lead_to_a_translation_once_there_is_one(book):
    book.sync("00")
    fault = "link to chapters/00-notation.ipynb where English has chapters/zh/00-notation.ipynb [link]"
    assert [line for line in book.faults() if "still in English" not in line] == [
        f"{PLACE} title · line 5: error: {fault}"
    ]
    book.edit("title", "../00-notation.ipynb", "00-notation.ipynb")
    assert book.accept("01:title")[0] == 0
    assert book.check("01")[0] == 0


def test_english_that_nobody_touched_follows_the_english_cell(book):
    book.put({"fence": ""})
    book.sync()
    book.edit_english("fence", "Then stop", "Then end")
    book.sync()
    assert book.text("fence") == book.english["fence"]
    assert f"{PLACE} fence: error: still in English [english]" in book.check()[1]


def test_an_english_notebook_that_was_renamed_has_its_translation_renamed_and_no_second_one(book):
    for path in (book.root / "chapters").glob(f"*/{NAME}.ipynb"):
        if path.parent.name == "solutions":
            path.rename(path.with_name("01-intro.ipynb"))
    (book.root / "chapters" / f"{NAME}.ipynb").rename(book.root / "chapters" / "01-intro.ipynb")
    before = files(book.root / "chapters")
    said = f"chapters/zh/{NAME}.ipynb: error: its English notebook is 01-intro.ipynb now: rename this one, too"
    status, out = book.sync()
    assert (status, said in out) == (2, True)
    assert files(book.root / "chapters") == before
    assert f"translated; rename chapters/zh/{NAME}.ipynb [missing]" in book.check()[1]


def test_a_chapter_that_was_just_started_is_as_it_has_to_be(book):
    write_chapter(book.root, "02-later", [md("title", "# Later\n\nSee [the solution](solutions/02-later.ipynb).")])
    write_chapter(book.root, "02-later", [md("title", "# Solutions")], kind="solutions")
    assert book.sync("02")[1].endswith("2 notebooks: 2 written, 0 as they have to be\n")
    assert book.sync("02")[1] == "2 notebooks: 0 written, 2 as they have to be\n"
    assert book.check("02")[0] == 0


def test_starting_a_chapter_moves_the_links_of_english_text_in_the_chapters_started_before(book):
    book.english["new"] = "See [the next](02-later.ipynb) one."
    book.write(book.english)
    book.sync()
    assert "](../02-later.ipynb)" in book.text("new")
    assert book.sync("02")[1].endswith("2 notebooks: 2 written, 0 as they have to be\n")
    assert "](02-later.ipynb)" in book.text("new")
    assert "[form]" not in book.check()[1]
    assert book.sync()[1].endswith(": 0 written, 3 as they have to be\n")


def test_a_part_of_a_key_starts_nothing_and_brings_up_to_date_what_was_started(book):
    write_chapter(book.root, "10-end", [md("title", "# Chapter 10 · End")])
    before = files(book.root / "chapters")
    said = "a chapter is started by its whole key; '1' fits 10, which has not been started; is 01 meant?"
    assert book.sync("1") == (2, f"chapters: error: {said}\n")
    assert book.sync("2")[1].endswith("there are 00, 01, 02, 10; is 02 meant?\n")
    book.edit_english("agents", "An agent", "Any agent")
    book.english["new"] = "New."
    book.write(book.english)
    assert book.sync("0")[1].endswith("2 notebooks: 1 written, 1 as they have to be\n")
    assert book.text("new") == "New."
    assert files(book.root / "chapters").keys() == before.keys()
    assert book.sync("10")[0] == 0
    assert (book.path().parent / "10-end.ipynb").is_file()


# What is kept


@pytest.mark.parametrize("text", ["## GRPO、GSPO、CISPO", "A draft: say this with fewer words."])
def test_a_text_without_a_chinese_character_is_kept_and_can_be_accepted(book, text):
    book.english["names"] = "## GRPO, GSPO and CISPO" if text.startswith("#") else "Say this at length, and then end."
    book.write(book.english)
    book.sync()
    book.put({"names": text})
    for _ in range(2):
        book.sync()
        assert book.text("names") == text
    assert f"{PLACE} names: error: not accepted" in book.check()[1]
    assert book.accept("01:names")[0] == (0 if text.startswith("#") else 1)
    assert book.text("names") == text


def test_a_text_that_somebody_wrote_in_the_place_of_the_english_outlives_its_english_cell(book):
    book.english["names"] = "Words that go."
    book.write(book.english)
    book.sync()
    book.put({"names": "My own words."})
    del book.english["names"]
    book.write(book.english)
    book.sync()
    assert "".join(book.raw()["cells"][-1]["source"]) == "My own words."


def test_the_text_of_a_cell_that_english_drops_stays_at_the_end_until_it_is_dropped_by_name(book):
    del book.english["exercise"]
    book.write(book.english)
    out = book.sync()[1]
    assert "exercise is not in English; its text stands at the end of the notebook" in out
    last = book.raw()["cells"][-1]
    assert (last["id"], "".join(last["source"])) == ("exercise", CHINESE["exercise"])
    assert last["metadata"]["agentrl"]["removed"] is True
    assert book.sync()[1] == out.replace("chapters/zh/01-introduction.ipynb: written\n", "").replace(
        "1 written, 1 as", "0 written, 2 as"
    )
    assert f"{PLACE} exercise: error: English has no such cell: move its text" in book.check()[1]
    assert book.run("--drop", "01:agents")[0] == 2
    assert book.run("--drop", "01:exercise") == (0, "01:exercise: dropped\n")
    assert book.check()[0] == 0


def test_a_cell_that_comes_back_has_its_chinese_again(book):
    exercise = book.english.pop("exercise")
    book.write(book.english)
    book.sync()
    book.english["exercise"] = exercise
    book.write(book.english)
    book.sync()
    assert book.check()[0] == 0


@pytest.mark.parametrize("kind", ["markdown", "code"])
def test_chinese_in_a_cell_that_a_translator_added_is_kept(book, kind):
    raw = book.raw()
    made = {"cell_type": kind, "id": "mine", "metadata": {}, "source": "我的话"}
    raw["cells"].insert(1, made | ({"outputs": [], "execution_count": None} if kind == "code" else {}))
    book.save(raw)
    book.sync()
    assert "".join(book.raw()["cells"][-1]["source"]) == "我的话"


def test_chinese_in_the_place_of_a_code_cell_is_kept_under_another_id(book):
    raw = book.raw()
    raw["cells"][2] = {"cell_type": "markdown", "id": "run", "metadata": {}, "source": "我的话"}
    book.save(raw)
    book.sync()
    assert book.cell("run")["cell_type"] == "code"
    assert "".join(book.cell("run-text")["source"]) == "我的话"
    book.sync()
    assert "".join(book.cell("run-text")["source"]) == "我的话"


def test_a_markdown_cell_that_became_code_keeps_its_text(book):
    raw = book.raw()
    raw["cells"][1] |= {"cell_type": "code", "outputs": [], "execution_count": None}
    book.save(raw)
    book.sync()
    assert book.text("agents") == CHINESE["agents"]
    assert book.check()[0] == 0


def test_a_sync_that_is_killed_leaves_each_notebook_old_or_new(book, tmp_path):
    book.english["new"] = "New."
    book.write(book.english)
    command = [sys.executable, str(SCRIPT), "--root", str(book.root)]
    old = files(book.root / "chapters")
    free = end(command, tmp_path.with_name("free"))
    new = files(book.root / "chapters")
    assert (free.code, old == new) == (0, False)
    for moment in range(free.moments - 14, free.moments, 3):
        for name, content in old.items():
            (book.root / "chapters" / name).write_bytes(content)
        killed = end(command, tmp_path.with_name(f"at-{moment}"), moment=moment)
        assert killed.code == -signal.SIGKILL
        now = files(book.root / "chapters")
        assert now in (old, new)
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert files(book.root / "chapters") == new
    assert not list((book.root / ".cache").glob("*.scratch")) if (book.root / ".cache").exists() else True


def test_a_write_that_fails_leaves_the_old_notebook(book, monkeypatch):
    book.english["new"] = "New."
    book.write(book.english)
    before = files(book.root / "chapters")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    status, out = book.sync()
    assert status == 2
    assert "No space left on device" in out
    assert files(book.root / "chapters") == before


def test_a_notebook_that_somebody_saves_meanwhile_is_not_overwritten(book, monkeypatch):
    book.english["new"] = "New."
    book.write(book.english)
    real = sync_translation.synced

    def slow(edition, pair):
        if pair.label == "01":
            book.edit("agents", "循环。", "循环图。")
        return real(edition, pair)

    monkeypatch.setattr(sync_translation, "synced", slow)
    status, out = book.sync()
    assert status == 2
    assert "was saved by somebody else meanwhile" in out
    assert "循环图。" in book.text("agents")


def test_two_that_write_at_once_do_not_undo_each_other(book, monkeypatch):
    book.edit_english("agents", "An agent", "Any agent")
    book.english["new"] = "New."
    book.write(book.english)
    read = threading.Event()
    real = sync_translation.write

    def write(wanted):
        read.set()
        return real(wanted)

    monkeypatch.setattr(sync_translation, "write", write)
    with ThreadPoolExecutor(1) as other:
        folder = os.open(book.root / "chapters", os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)  # as another run does from its last look at the files to their renaming
        try:
            late = other.submit(book.run)
            assert read.wait(60)
            book.edit("agents", "循环。", "循环图。")
        finally:
            os.close(folder)
        assert late.result()[0] == 2
    assert "循环图。" in book.text("agents")


# Accepting


def test_accepting_says_what_stands_in_another_order(book):
    assert book.accept("01:table")[1].startswith("01:table: accepted already\n")
    book.edit_english("fence", "1. Call `a`.", "1. Call `a`, then `b`, 7 times in 9.")
    book.edit("fence", "1. 调用 `a`。", "1. 9 次中有 7 次先调用 `b`，后调用 `a`。")
    status, out = book.accept("01:fence")
    assert status == 0
    assert "line 1 has numbers in another order, 7, 9 → 9, 7; see that this is meant" in out
    assert "line 1 has code in another order, a, b → b, a\n" in out


def test_accepting_marks_the_named_cell_and_no_other(book):
    book.edit_english("agents", "An agent", "Any agent")
    book.edit_english("fence", "Then stop", "Then end")
    assert book.accept("01:agents")[0] == 0
    assert book.cell("agents")["metadata"]["agentrl"]["source"] == digest(book.english["agents"])
    assert book.cell("fence")["metadata"]["agentrl"]["source"] == digest(ENGLISH["fence"])
    assert [line for line in book.faults() if "[stale]" in line] == [
        f"{PLACE} fence: error: the English cell has changed since it was translated: git has no version of the "
        "English cell that it translates. Mend it, then `sync_translation.py --accept 01:fence` [stale]"
    ]


def test_a_cell_that_fails_a_comparison_is_refused_and_keeps_its_mark(book):
    book.edit_english("agents", "12", "13")
    before = book.path().read_bytes()
    status, out = book.accept("01:agents", "01:table")
    assert status == 1
    assert f"{PLACE} agents · line 3: error: the number 12 is not in the English text [digits]" in out
    assert "01:table: accepted already\n1 cell accepted" in out
    book.sync()
    assert book.path().read_bytes() == before
    assert book.cell("agents")["metadata"]["agentrl"]["source"] == digest(ENGLISH["agents"])


@pytest.mark.parametrize("name", ["01", "01:", "agents", "01:nothing", "01:run", "03:title", "01:*", "00:title"])
def test_only_markdown_cells_by_name_are_accepted_and_nothing_is_written_otherwise(book, name):
    book.edit_english("agents", "An agent", "Any agent")
    before = files(book.root / "chapters")
    status, out = book.accept("01:agents", name)
    assert status == 2
    assert repr(name) in out
    assert files(book.root / "chapters") == before


@pytest.mark.parametrize(
    ("old", "new"), [("见第", "不见第"), ("其中三步失败，两步成功", "其中两步成功，三步失败"), ("。", "。又来。")]
)
def test_an_accepted_cell_that_was_edited_is_named_until_it_is_accepted_again(book, old, new):
    book.edit("agents", old, new)
    said = "edited since it was accepted: compare it with the English, then `sync_translation.py --accept 01:agents`"
    for _ in range(2):
        status, out = book.check()
        assert (status, out.splitlines()[:-1]) == (1, [f"{PLACE} agents: error: {said} [edited]"])
        book.sync()
    out = book.accept("01:agents")[1]
    assert out.startswith("01:agents: accepted again; since the last time the Chinese was edited")
    assert book.check()[0] == 0
    book.edit("agents", new, old)
    assert f"{PLACE} agents: error: edited since" in book.check()[1]


def test_an_edited_number_is_named_beside_the_edit(book):
    book.edit("agents", "12", "13")
    out = book.check()[1]
    assert f"{PLACE} agents: error: edited since it was accepted" in out
    assert f"{PLACE} agents · line 3: error: the number 13 is not in the English text [digits]" in out


def test_a_cell_without_the_mark_of_its_chinese_is_not_accepted(book):
    raw = book.raw()
    del raw["cells"][1]["metadata"]["agentrl"]["accepted"]
    book.save(raw)
    assert book.faults()[0].startswith(f"{PLACE} agents: error: not accepted")


def test_an_accepted_text_with_blanks_at_the_ends_of_lines_stays_accepted(book):
    book.put({"agents": CHINESE["agents"].replace("\n", "  \n") + "\n"})
    assert book.accept("01:agents")[0] == 0
    assert book.check()[0] == 0


def test_git_says_what_was_edited_in_chinese(book):
    _commit(book.root)
    book.edit("agents", "见第 4 章", "不见第 4 章")
    told = "edited since it was accepted (“步成功；见第 4” → “步成功；不见第 4”): compare it with the English"
    assert told in book.check()[1]


def test_a_cell_still_in_english_is_refused(book):
    book.put({"fence": ENGLISH["fence"]})
    status, out = book.accept("01:fence")
    assert status == 1
    assert f"{PLACE} fence: error: still in English" in out


# Staleness


def _commit(root: Path) -> None:
    """Commit the book as it is."""
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@y", *arguments], cwd=root, check=True)


def test_one_edited_english_sentence_names_its_cell_and_git_says_what_changed(book):
    _commit(book.root)
    book.edit_english("agents", "Three of them fail", "Three of these fail")
    book.sync()
    faults = book.faults()
    assert len(faults) == 1
    assert f"{PLACE} agents: error: the English cell has changed since it was translated: “of them → of these" in (
        faults[0].replace("“of them fail,”", "“of them").replace("“of these fail,”", "of these")
    )


def test_without_a_sync_changed_code_is_named(book):
    write_chapter(
        book.root,
        NAME,
        [md(n, t) for n, t in book.english.items() if n != "table"],
    )
    out = book.check()[1]
    assert f"{PLACE} run: error: English has no such cell; `sync_translation.py 01` removes it [form]" in out
    assert f"{PLACE} table: error: English has no such cell: move its text" in out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c[2].update(source="print(2)"), "has another source than the English cell"),
        (lambda c: c[2].update(outputs=[]), "has other outputs than the English cell"),
        (lambda c: c[2].update(execution_count=9), "has another execution count than the English cell"),
        (lambda c: c[2]["metadata"].update(tags=["x"]), "has other metadata than the English cell"),
        (lambda c: c[1]["metadata"].update(tags=["x"]), "has other metadata than the English cell"),
        (lambda c: c.insert(0, c.pop(1)), "stands where English has title"),
        (lambda c: c.pop(2), "the English cell run is missing"),
        (lambda c: c.pop(1), "the English cell agents is missing"),
    ],
)
def test_a_copy_that_is_not_one_is_named(book, change, message):
    raw = book.raw()
    change(raw["cells"])
    book.save(raw)
    out = "\n".join(book.faults())
    assert message in out
    assert "`sync_translation.py 01`" in out


def test_other_notebook_metadata_are_named(book):
    raw = book.raw()
    raw["metadata"]["agentrl"]["title"] = "别的"
    book.save(raw)
    assert "notebook metadata agentrl.title is '别的', not '什么是智能体强化学习？'" in book.faults()[0]
    book.sync()
    raw = book.raw()
    raw["metadata"]["agentrl"]["other"] = "x"
    book.save(raw)
    assert "notebook metadata agentrl.other is 'x', not None" in book.faults()[0]


# What differs between a cell and its translation


@pytest.mark.parametrize(
    ("cell", "old", "new", "rule"),
    [
        ("agents", "12", "13", "digits"),
        ("agents", "12 步", "若干步", "digits"),
        ("agents", "35.8%", "35.8", "digits"),
        ("agents", "三", "四", "words"),
        ("agents", "两", "一", "words"),
        ("agents", "3 个", "4 个", "digits"),
        ("agents", "$p^H$", "$p^h$", "formula"),
        ("agents", "P = p^H", "P = p_H", "formula"),
        ("agents", "1.1}", "1.2}", "formula"),
        ("agents", "`step`", "`steps`", "code"),
        ("agents", "[@paper-a]", "[@paper-b]", "citation"),
        ("agents", " [@paper-a]", "", "citation"),
        ("agents", "## 1.1", "## 1.2", "digits"),
        ("agents", "## 1.1", "### 1.1", "shape"),
        ("agents", "第 4 章", "§4.1", "reference"),
        ("agents", "式 (1.1)", "图 1.1", "reference"),
        ("agents", "loop.svg", "other.svg", "link"),
        ("agents", "../../figures", "../figures", "link"),
        ("agents", "![由 3 个方框组成的循环。](../../figures/loop.svg)\n\n", "", "shape"),
        ("title", "../00-notation.ipynb", "../02-later.ipynb", "link"),
        ("table", "| 7 |", "| 8 |", "digits"),
        ("table", "2,000", "200", "digits"),
        ("table", "| 属于智能体 | 7 |\n", "", "shape"),
        ("fence", "x = 1", "x = 2", "code"),
        ("fence", "# why", "# 为何", "code"),
        ("fence", "```python", "```", "code"),
        ("fence", "2. ", "3. ", "shape"),
        ("fence", "1. 调用 `a`。\n2. 然后停下。", "- 调用 `a`。\n- 然后停下。", "shape"),
        ("exercise", "★★", "★", "stars"),
        ("exercise", "1.1", "1.2", "reference"),
        ("exercise", "**练习 1.1 ★★**", "练习 1.1 ★★", "bold"),
        ("title", "# 第 1 章 · 什么是智能体强化学习？", "# 第 1 章 · 别的", "title"),
    ],
)
def test_an_edit_of_what_must_be_the_same_fails_and_names_the_cell(book, cell, old, new, rule):
    book.edit(cell, old, new)
    faults = book.faults()
    assert any(line.startswith(f"{PLACE} {cell} · line ") and line.endswith(f"[{rule}]") for line in faults), faults
    assert book.accept(f"01:{cell}")[0] == 1


@pytest.mark.parametrize(
    ("cell", "old", "new"),
    [
        ("agents", "其中三步失败", "其中 3 步失败"),
        ("agents", "降到 35.8% [@paper-a]。其中三步失败，两步成功", "其中两步成功，三步失败 [@paper-a]，降到 35.8%"),
        ("agents", "\\text{ 总是}", "\\text{ 永远}"),
        ("agents", "2,000", "2,000"),
        ("table", "2,000", "2000"),
        ("agents", "见第 4 章和式 (1.1)", "见式 (1.1) 和第 4 章"),
        ("agents", "P = p^H", "P =  p^H"),
        ("agents", "两步", "另外两步"),
        ("title", "**问题。** 什么变了？", "**问题**：什么变了？"),
    ],
)
def test_what_a_translator_may_choose_passes(book, cell, old, new):
    if old in book.text(cell):
        book.edit(cell, old, new)
    book.sync()
    assert book.faults() == []
    assert book.accept(f"01:{cell}")[0] == 0
    assert book.check()[0] == 0


def test_a_line_of_a_finding_points_into_the_file(book):
    book.edit("agents", "12", "13")
    found = json.loads(json.dumps(book.path().read_text(encoding="utf-8").split("\n")))
    os.environ["GITHUB_ACTIONS"] = "true"
    try:
        out = book.check()[1]
    finally:
        del os.environ["GITHUB_ACTIONS"]
    line = int(re.findall(r"^::error file=chapters/zh/01-introduction.ipynb,line=(\d+)::cell agents", out, re.M)[-1])
    assert "13 步" in found[line - 1]


def test_a_paragraph_much_shorter_than_its_english_is_named(book):
    sentence = "The check counts the words of a block, and it compares them with the Chinese characters beside it. "
    chinese = "检查会数出一段英文有多少个单词，再与旁边的汉字数目比较。"
    book.english["new"] = (sentence + sentence.replace("words", "signs").replace("a block", "a text")).strip()
    book.write(book.english)
    book.sync()
    whole = chinese + chinese.replace("单词", "符号").replace("一段", "一篇")
    for text, fault in (
        (whole, ""),
        (chinese, "[length]"),
        (whole * 2, "[length]"),
        (chinese * 2, "stands there 2 times"),
    ):
        book.put({"new": text})
        found = "\n".join(line for line in book.faults() if "[length]" in line)
        assert (fault in found) if fault else not found, (text, found)


# Terms


def test_a_term_without_its_chinese_is_named(book):
    book.edit("exercise", "智能体", "程序")
    assert book.faults() == [
        f"{PLACE} exercise · line 1: error: 'agent' of the English text is 智能体, which is missing [term]"
    ]


def test_a_term_with_several_forms_is_said_to_need_one_of_them(book):
    book.glossary('\n[[term]]\nenglish = ["then"]\nchinese = ["然后", "接着"]\n')
    book.edit("fence", "然后停下", "停下")
    said = "'then' of the English text is one of 然后、接着, and none of them is there [term]"
    assert any(line.endswith(said) for line in book.faults())
    book.edit("fence", "停下", "接着停下")
    assert not any("[term]" in line for line in book.faults())


def test_a_forbidden_rendering_is_named_but_where_english_makes_it_right(book):
    book.edit("fence", "然后停下", "代理停下")
    assert book.faults() == [f"{PLACE} fence · line 2: error: 代理: write 智能体 [forbidden]"]
    book.edit_english("fence", "Then stop", "The proxy stops")
    assert book.accept("01:fence")[0] == 0
    assert book.faults() == []


def test_the_first_use_of_a_term_gives_the_english(book):
    book.edit("agents", "智能体（agent）", "智能体")
    assert book.faults() == [
        f"{PLACE} agents · line 1: error: first use in this chapter: write 智能体（agent） [first-use]"
    ]
    book.edit("title", "**预备知识。** [", "**预备知识。** 智能体（agent），见[")
    assert book.faults() == []


@pytest.mark.parametrize(
    ("english", "chinese", "missing"),
    [
        ("The policies' gradients.", "各个策略的梯度。", None),
        ("A policy-gradient method.", "策略梯度（policy gradient）方法。", None),
        ("A policy gradient and a policy.", "策略梯度。", None),
        ("A policy gradient.", "策略（policy）的斜率。", "policy gradient"),
        ("TinyAgent and agentrl.", "TinyAgent 与 agentrl。", None),
        ("It turns out per turn.", "每次都如此。", "turn"),
        ("It turns out well.", "结果不错。", None),
        ("Tokens.", "词。", "token"),
        ("Tokens.", "这些 token。", None),
        ("The `agent` and $agent$.", "`agent` 与 $agent$。", None),
    ],
)
def test_words_are_terms_where_they_are_and_nowhere_else(book, english, chinese, missing):
    book.english["new"] = english
    book.write(book.english)
    book.sync()
    book.put({"new": chinese})
    found = re.findall(r"'([^']*)' of the English text", "\n".join(book.faults()))
    assert found == ([missing] if missing else [])


def test_an_exception_holds_for_its_cell_and_one_that_nothing_needs_is_a_fault(book):
    book.edit("exercise", "智能体", "程序")
    book.glossary('\n[[exception]]\ncell = "01:exercise"\nrule = "term"\nitem = "agent"\nreason = "a play on words"\n')
    assert book.faults() == []
    book.edit("exercise", "程序", "智能体")
    assert book.faults() == [
        "chapters/zh/glossary.toml: error: [[exception]] 01:exercise, term 'agent': nothing needs it; remove it [term]"
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("[[term]]\nchinese = ['x']\n", "'english' is missing"),
        ("[[term]]\nenglish = ['x']\n", "it has no Chinese form"),
        ("[[term]]\nenglish = 'x'\nkeep = true\n", "'english' is 'x', not a list of texts"),
        ("[[term]]\nenglish = ['x']\nkeep = true\nwhat = 1\n", "'what' is not known"),
        ("[[term]]\nenglish = ['x']\nkeep = true\npattern = '('\n", "is no regular expression"),
        ("[[forbidden]]\nchinese = 'x'\n", "'instead' is missing"),
        ("[[exception]]\ncell = '01:a'\nrule = 'formula'\nitem = 'x'\nreason = 'y'\n", "'formula' has no exceptions"),
        ("[[exception]]\ncell = '01:a'\nrule = 'nothing'\nitem = 'x'\nreason = 'y'\n", "'nothing' is not known"),
        ("[[exception]]\ncell = '01:a'\nrule = 'term'\nitem = 'x'\nreason = ' '\n", "'reason' is ' ', not text"),
        ("[[word]]\na = 1\n", "'word' is not known"),
        ("[[term]]\nenglish = ['agent']\nchinese = ['x']\n", "'agent' stands in 2 terms"),
        ("[[term]]\nenglish = [['agent']]\nkeep = true\n", "'english' is [['agent']], not a list of texts"),
        ("[[term]]\nenglish = ['x']\nkeep = true\npattern = '(?i)x'\n", "is no regular expression"),
        ("[[term]]\nenglish = ['x']\nkeep = true\npattern = '(?P<t0_0>x)'\n", "has a group that captures"),
        ("[[term]]\nenglish = ['x']\nkeep = true\nunless = ['x?']\n", "is found in an empty text"),
        ("[[term]\n", "not TOML"),
    ],
)
def test_a_wrong_glossary_exits_with_2_and_names_the_entry(book, entry, message):
    book.glossary(entry)
    status, out = book.check()
    assert status == 2
    assert message in out
    assert "chapters/zh/glossary.toml" in out


@pytest.mark.parametrize("text", ["term = 3\n", "term = [1]\n", "[term]\nenglish = ['a']\n", "exception = 'x'\n"])
def test_a_glossary_of_another_form_exits_with_2(book, text):
    (book.root / "chapters" / "zh" / "glossary.toml").write_text(text, encoding="utf-8")
    status, out = book.check()
    assert (status, "entries are written [[" in out) == (2, True)


def test_a_glossary_that_cannot_be_read_is_no_empty_one(book):
    path = book.root / "chapters" / "zh" / "glossary.toml"
    path.unlink()
    for make in (path.mkdir, lambda: (path.rmdir(), path.symlink_to("nowhere"))):
        make()
        status, out = book.check()
        assert (status, "chapters/zh/" in out and "cannot be read" in out) == (2, True)


# Typography


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("停,再来。", "half-width punctuation"),
        ("停,token 再来。", "half-width punctuation"),
        ("用 token,$x$ 再来。", "no space after half-width punctuation"),
        ("停;再来: 对?", "half-width punctuation"),
        ("停.", "half-width full stop"),
        ("停.再来。", "half-width full stop"),
        ("停 .再来。", "half-width full stop"),
        ("用 token.再来。", "half-width full stop"),
        ("用 `a`.再来。", "half-width full stop"),
        ("停.`a` 再来。", "half-width full stop"),
        ("停(再来)。", "half-width brackets"),
        ("停 (abc) 再来。", "half-width brackets in a Chinese sentence"),
        ("用token停。", "a space is missing"),
        ("用3个。", "a space is missing"),
        ("用`a`停。", "a space is missing"),
        ("在$x$处。", "a space is missing"),
        ("停 。", "a space before closing"),
        ("停。 再来。", "a space beside full-width punctuation"),
        ("停 再来。", "a space between Chinese characters"),
        ("停  token。", "two spaces"),
        ('说"停"。', "a straight quotation mark"),
        ("停...", "an ellipsis"),
        ("停…再来。", "an ellipsis"),
        ("停—再来。", "a dash"),
        ("停--再来。", "a dash"),
        ("用 ３ 个。", "a full-width ３"),
        ("停，\n再来。", "a line break within a paragraph"),
        ("策畧。", "畧 is no simplified character"),
        ("動作。", "動 is no simplified character"),
        ("停。And then it goes on in English.", "left in English"),
        ("**停（x）**再来。", "an asterisk shows"),
    ],
)
def test_a_fault_of_typography_is_named(book, text, fault):
    assert fault in typography(book, text)


@pytest.mark.parametrize(
    "text",
    [
        "用 3 个 token（令人满意），在 $x$ 处、`a` 处停；见式 (1.2)。",
        "**停。** 再来，“好”，‘好’——对……",
        "*停。* 再来：95% 的 −1 与 1/1, 2/2, … 1/9。",
        "(a) 停。",
        "文件 .env 与 a.b，1.5 个。",
        "一 · 二（x） · 三",
        "停 [@paper-a]，再来 [@paper-a]。",
        "停：SWE-bench Verified（direct preference optimisation）。",
    ],
)
def test_good_typography_has_no_fault(book, text):
    assert typography(book, text) == ""


def typography(book: ZhBook, text: str) -> str:
    """Return what the check says of the form of a text."""
    book.english["new"] = "Some words in English."
    book.write(book.english)
    book.sync()
    book.put({"new": text})
    rules = ("[typography]", "[script]", "[english]")
    faults = [line for line in book.faults() if f"{PLACE} new" in line]
    return "\n".join(line for line in faults if line.endswith(rules) or "asterisk" in line)


def test_a_paragraph_left_in_english_within_a_translated_cell_is_named(book):
    book.edit("fence", "然后停下。", "Then stop.")
    assert book.faults() == []  # two words may be a name
    book.edit_english("fence", "Then stop.", "Then stop at once.")
    book.edit("fence", "Then stop.", "Then stop at once.")
    assert any("left in English: 'Then stop at once.'" in line for line in book.faults())


# The book around


def test_files_that_cannot_be_read_exit_with_2_and_are_named(book):
    book.path().write_text("{", encoding="utf-8")
    status, out = book.check()
    assert (status, f"chapters/zh/{NAME}.ipynb: error: not JSON" in out) == (2, True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('[tool.bookkit]\ntranslated = "01"\n', "it is a list"),
        ('[tool.bookkit]\ntranslated = ["01", "07"]\n', "lists '07', which is no"),
        ("[tool]\nbookkit = 3\n", "it is a list"),
        ("tool = 3\n", "it is a list"),
    ],
)
def test_a_wrong_list_of_translated_chapters_exits_with_2(book, settings, message):
    (book.root / "pyproject.toml").write_text(settings)
    status, out = book.check()
    assert (status, message in out) == (2, True)


def test_a_chapter_that_must_be_complete_and_has_no_translation_is_a_fault(book):
    (book.root / "pyproject.toml").write_text('[tool.bookkit]\ntranslated = ["01", "02"]\n')
    assert book.faults() == [
        "chapters/zh/02-later.ipynb: error: no such file, and pyproject.toml lists 02 as translated; "
        "`sync_translation.py 02` starts it [missing]"
    ]


def test_a_chapter_translated_in_part_is_a_note_and_what_is_translated_is_checked(book):
    (book.root / "pyproject.toml").write_text("[project]\nname = 'agentrl'\n")
    book.put({"fence": ENGLISH["fence"]})
    book.sync()
    status, out = book.check()
    assert status == 0
    assert "in part: 01 (5 of 6)" in out
    book.edit("agents", "12", "13")
    assert book.check()[0] == 1


def test_a_translation_of_nothing_is_named(book):
    book.path().rename(book.path().with_name("09-nothing.ipynb"))
    (book.path().with_name("09-nothing.ipynb")).write_text(
        book.path()
        .with_name("09-nothing.ipynb")
        .read_text(encoding="utf-8")
        .replace('"chapter": "01"', '"chapter": "09"'),
        encoding="utf-8",
    )
    out = book.check()[1]
    assert "chapters/zh/09-nothing.ipynb: error: there is no English notebook of this name" in out


def test_a_prefix_of_no_chapter_exits_with_2(book):
    assert book.check("7") == (2, "chapters: error: no chapter starts with '7'; there are 00, 01, 02\n")
    assert book.sync("") == (2, "chapters: error: no chapter starts with ''; there are 00, 01, 02\n")


def test_the_linter_holds_translations_to_normal_form_and_mends_it(book, capsys):
    import lint_book

    def lint(*arguments):
        lint_book.main(["--root", str(book.root), *arguments])
        return [line for line in capsys.readouterr().out.splitlines() if "chapters/zh" in line]

    assert lint() == []
    text = book.path().read_text(encoding="utf-8")
    book.path().write_text(json.dumps(json.loads(text)), encoding="utf-8")
    assert any("not in canonical form" in line for line in lint())
    lint("--fix")
    assert book.path().read_text(encoding="utf-8") == text
    assert book.check()[0] == 0
    raw = book.raw()
    raw["cells"][1]["id"] = "Not A Slug"
    raw["cells"][1]["metadata"]["agentrl"]["wrong"] = 1
    book.save(raw)
    assert [line.rsplit("[", 1)[1] for line in lint()] == ["L102]", "L111]"]


def test_translations_are_no_chapters(book):
    assert [c.key for c in load_book(book.root).chapters] == ["00", "01", "02"]
    assert [c.name for c in load_translation(book.root)] == [
        f"chapters/zh/{NAME}.ipynb",
        f"chapters/zh/solutions/{NAME}.ipynb",
    ]


def test_the_checker_runs_no_translation(book):
    from checking import check

    (book.root / "chapters" / "solutions" / f"{NAME}.ipynb").unlink()
    checked = check(book.root, "01")
    assert (checked.code, [line.split()[0] for line in checked.out.splitlines()][:-1]) == (0, ["01"])


def test_the_plan_names_every_part_and_chapter_in_chinese():
    for part in load_plan():
        assert all(re.search("[\u4e00-\u9fff]", title) for title in (part.zh, *(c.zh for c in part.chapters)))
    assert [planned()[key].label_zh for key in ("00", "10", "B")] == ["第 0 章", "第 10 章", "附录 B"]
