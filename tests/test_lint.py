"""The linter's rules: each finding is provoked by a planted fault and placed at its cell and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from lintbook import ALT, STUB, SVG, CleanBook
from synthetic import code, md

from bookkit.lint import CODES, fix, lint
from bookkit.problems import BookError

Edit = Callable[[CleanBook], Any]
LONG = 'def slow(x: int) -> int:\n    """Return x."""\n' + "    x = x + 1\n" * 30 + "    return x"
SOLUTIONS = "solutions/01-intro-1"


def code_is(cell: str, source: str) -> Edit:
    return lambda book: book.cell(cell).update(source=source)


def prints(text: str) -> Edit:
    return lambda book: book.insert("use", [code("say", "print(1)", text), md("so", "So it is.")])


def replaced(cell: str, old: str, new: str, name: str = "01-intro-1") -> Edit:
    return lambda book: book.replace(cell, old, new, name)


def prose(text: str) -> Edit:
    return lambda book: book.prose(text)


def file(name: str, old: str, new: str) -> Edit:
    def edit(book: CleanBook) -> None:
        assert old in book.files[name]
        book.files[name] = book.files[name].replace(old, new, 1)

    return edit


def metadata(cell: str, value: dict[str, Any], name: str = "01-intro-1") -> Edit:
    return lambda book: book.cell(cell, name).update(metadata=value)


FAULTS: list[tuple[str, Edit, list[tuple[str | None, int | None]]]] = [
    ("L102", lambda b: b.cell("use").update(id="Use_it"), [("Use_it", None)]),
    ("L103", lambda b: b.cell("measure").update(execution_count="never"), [("measure", None)]),
    ("L104", lambda b: b.cell("measure").update(execution_count=7), [("measure", None)]),
    (
        "L105",
        lambda b: b.cell("measure").update(outputs=[{"output_type": "stream", "name": "stderr", "text": "no\n"}]),
        [("measure", None)],
    ),
    ("L106", prints("\x1b[31mred\n"), [("say", None)]),
    ("L106", prints("50%\r100%\n"), [("say", None)]),
    ("L106", prints("9\b8\n"), [("say", None)]),
    ("L106", prints("<object at 0x7f3a5c0d12e0>\n"), [("say", None)]),
    ("L106", prints("saved to /home/someone/out.txt\n"), [("say", None)]),
    ("L106", prints("saved to ~/out.txt\n"), [("say", None)]),
    ("L106", prints("started 2025-01-31 12:30\n"), [("say", None)]),
    ("L106", prints("Fri Jan 31 2025\n"), [("say", None)]),
    ("L107", prints("tensor([1, 2])\n"), [("say", None)]),
    ("L107", prints("np.float64(0.5)\n"), [("say", None)]),
    ("L108", prints("loss -0.00\n"), [("say", None)]),
    ("L109", prints("x" * 70_000), [("say", None)]),
    ("L110", lambda b: b.insert("use", [code("blank", "")]), [("blank", None)]),
    ("L111", metadata("measure", {"tags": ["hide-me"]}), [("measure", None)]),
    ("L111", metadata("measure", {"agentrl": {"output": "sometimes"}}), [("measure", None)]),
    ("L111", metadata("measure", {"agentrl": {"role": "test"}}), [("measure", None)]),
    ("L111", metadata("test-1", {"agentrl": {"role": "exam", "exercise": "1.1"}}, SOLUTIONS), [("test-1", None)]),
    ("L112", code_is("measure", "x = 1\n%time x"), [("measure", 2)]),
    ("L112", code_is("measure", "!ls"), [("measure", 1)]),
    ("L112", code_is("measure", "x = 1\nx?"), [("measure", 2)]),
    ("L112", replaced("answer-1", "def", "%time 1\ndef", SOLUTIONS), [("answer-1", 1)]),
    ("L113", code_is("measure", 'x = 1\nname = input("who? ")'), [("measure", 2)]),
    ("L114", code_is("measure", "from os import *"), [("measure", 1)]),
    ("L115", metadata("measure", {"agentrl": {"output": "lab"}}), [("measure", None)]),
    ("L115", file("pyproject.toml", "lab_cells = []", 'lab_cells = ["01:gone"]'), [(None, None)]),
    ("L115", metadata("measure", {"agentrl": {"output": "sandbox"}}), [("measure", None)]),
    ("L115", file("pyproject.toml", "lab_cells = []", 'sandbox_cells = ["01:measure"]'), [(None, None)]),
    ("L116", code_is("measure", "import torch\n\ntorch.manual_seed(0)"), [("measure", 3)]),
    ("L116", code_is("measure", "np.random.seed(0)"), [("measure", 1)]),
    ("L116", code_is("measure", "x = 1\nrandom.seed(0)"), [("measure", 2)]),
    ("L116", code_is("measure", "torch.multinomial(p, 1)"), [("measure", 1)]),
    ("L116", code_is("measure", "p.multinomial(1)"), [("measure", 1)]),
    ("L116", code_is("measure", "x.exponential_()"), [("measure", 1)]),
    ("L116", code_is("measure", "x.bernoulli_(0.5)"), [("measure", 1)]),
    ("L116", code_is("measure", "layer = nn.Dropout(0.1)"), [("measure", 1)]),
    ("L201", replaced("title", "Intro 1", "Outro"), [("title", 1)]),
    ("L201", lambda b: b.insert("use", [md("again", "Text.\n\n# Again")]), [("again", 3)]),
    ("L202", replaced("title", "**Question.** What is this about?", "Hello."), [("title", 1)]),
    ("L202", replaced("title", "What is this about?", "What else?"), [("title", 3)]),
    ("L202", replaced("title", "**You need.** Nothing.", "Hello."), [("title", 1)]),
    ("L203", replaced("design", "## 1.2", "## 1.3"), [("design", 1)]),
    ("L203", lambda b: b.insert("use", [md("loose", "## A loose section")]), [("loose", 1)]),
    ("L204", lambda b: b.remove("summary"), [("sources", 1)]),
    ("L205", replaced("design", "**Cause.**", "Cause:"), [("design", 3)]),
    ("L205", replaced("design", "### Question number 3", "**Question number 3**"), [("design", 1), ("design", 13)]),
    ("L206", replaced("exercise-3", "1.3", "1.4"), [("exercise-3", 1)]),
    ("L206", replaced("exercise-3", "★★", "★★★★"), [("exercise-3", 1)]),
    ("L207", lambda b: b.remove("exercise-7"), [("exercises", 1)]),
    ("L207", lambda b: [b.replace(f"exercise-{n}", "silent fault", "answer") for n in range(2, 6)], [("exercises", 1)]),
    ("L208", lambda b: b.remove("solution-4", SOLUTIONS), [("exercise-4", 1)]),
    ("L208", replaced("solution-4", "★★", "★", SOLUTIONS), [("solution-4", 1)]),
    ("L208", lambda b: b.insert("solution-7", [md("more", "## Exercise 1.8 ★")], SOLUTIONS), [("more", 1)]),
    ("L209", replaced("exercise-1", "raise NotImplementedError", "return x"), [("exercise-1", 3)]),
    ("L209", replaced("exercise-2", "step.", f"step.\n\n```python\n{STUB}\n```"), [("exercise-2", 3)]),
    ("L210", lambda b: b.remove("test-1", SOLUTIONS), [("stub-1", None)]),
    ("L210", metadata("test-1", {"agentrl": {"role": "test"}}, SOLUTIONS), [("test-1", None), ("stub-1", None)]),
    ("L211", lambda b: b.insert("measure", [code("m-2", "a = 1"), code("m-3", "b = 1")]), [("m-3", None)]),
    ("L212", lambda b: b.cell("first").update(source="## 1.1 First section"), [(None, None)]),
    ("L213", replaced("setup", "../01", "01", SOLUTIONS), [("setup", None)]),
    ("L117", lambda b: b.metadata["01-intro-1"].update(kind="novel"), [(None, None)]),
    ("L117", lambda b: b.metadata["01-intro-1"].update(author="me"), [(None, None)]),
    ("L117", lambda b: b.metadata["01-intro-1"].pop("recorded"), [(None, None)]),
    ("L117", lambda b: b.metadata["solutions/01-intro-1"].update(recorded="2025-02-30"), [(None, None)]),
    ("L301", code_is("measure", "x = 1\n" * 16), [("measure", None)]),
    ("L302", code_is("measure", "x = 1\n" * 31), [("measure", None)]),
    ("L303", code_is("measure", LONG), [("measure", 1)]),
    ("L304", code_is("measure", "a = 1\n" + LONG.replace("    x = x + 1\n", "    x += 1\n" * 2)), [("measure", 2)]),
    ("L305", code_is("measure", "x = 1\nif x\n    y"), [("measure", 2)]),
    ("L306", code_is("measure", "x = 1\ny = {  1: 2 }"), [("measure", 2)]),
    ("L307", code_is("measure", "x = 1\nx = y_is_not_defined"), [("measure", 2)]),
    ("L307", code_is("measure", "import os"), [("measure", 1)]),
    ("L308", code_is("measure", "import agentrl as arl\n\nx = arl.ball_area(1.0)"), [("measure", 3)]),
    ("L308", code_is("measure", "import agentrl as arl\n\nx = arl.disc_area(1.0)"), [("measure", 3)]),
    ("L308", code_is("measure", "import agentrl as arl\n\nx = arl.nowhere"), [("measure", 3)]),
    ("L401", replaced("figure", ALT, "A loop."), [("figure", 1)]),
    ("L402", replaced("figure", "ch01-loop", "ch01-other"), [("figure", 1)]),
    ("L402", replaced("figure", "../figures/ch01-loop.svg", "https://example.org/a.svg"), [("figure", 1)]),
    ("L403", replaced("figure", "**Figure 1.1.**", "Figure:"), [("figure", 1)]),
    ("L404", replaced("figure", "**Figure 1.1.**", "**Figure 1.2.**"), [("figure", 3)]),
    ("L405", lambda b: b.files.update({"figures/idle.svg": SVG}), [(None, None)]),
    ("L406", file("figures/ch01-loop.svg", "</desc>", "<desc>"), [(None, 5)]),
    ("L407", file("figures/ch01-loop.svg", ' role="img"', ""), [(None, 1)]),
    ("L407", file("figures/ch01-loop.svg", "<desc>Four boxes in a ring.</desc>", ""), [(None, 1)]),
    ("L408", file("figures/ch01-loop.svg", "<rect", "<script>alert(1)</script><rect"), [(None, None)]),
    ("L408", file("figures/ch01-loop.svg", "<rect", '<image href="https://example.org/a.png"/><rect'), [(None, None)]),
    ("L501", prose("Text.\nSee [it](nothing.ipynb)."), [("reading", 2)]),
    ("L501", lambda b: b.files.update({"README.md": "# The book\n\nA [link](no.md).\n"}), [(None, 3)]),
    ("L502", prose("See [it](02-intro-2.ipynb#2.1-First-chapter)."), [("reading", 1)]),
    ("L503", prose("See\nChapter 21."), [("reading", 2)]),
    ("L503", prose("See chapters 7 and 33."), [("reading", 1)]),
    ("L503", prose("See Appendix C."), [("reading", 1)]),
    ("L504", prose("See §1.7."), [("reading", 1)]),
    ("L504", prose("See Sections 2.1 and 2.9."), [("reading", 1)]),
    ("L505", prose("As Figure 2.2 shows."), [("reading", 1)]),
    ("L506", prose("By Equation (1.9)."), [("reading", 1)]),
    ("L507", prose("Table 1.2 lists them."), [("reading", 1)]),
    ("L508", prose("Exercise 1.9 asks."), [("reading", 1)]),
    ("L509", replaced("equation", "\\tag{1.1}", "\\tag{1.2}"), [("equation", 4)]),
    ("L509", replaced("table", "**Table 1.1.**", "**Table 1.3.**"), [("table", 1)]),
    ("L510", prose("It costs\n$5 a run."), [("reading", 2)]),
    ("L510", prose("So $x_{1$ is."), [("reading", 1)]),
    ("L511", prose("So $x \\eqref{a}$ is."), [("reading", 1)]),
    ("L512", prose("| a | b |\n|---|---|\n| $p(x|y)$ | 1 |"), [("reading", 3)]),
    ("L512", prose("| a | b |\n|---|---|\n| $\\|x\\|$ | 1 |"), [("reading", 3)]),
    ("L513", prose("$$\n\\begin{aligned} x &= 1 \\end{matrix}\n$$"), [("reading", 2)]),
    ("L514", prose("See [this](https://example.org)."), [("reading", 1)]),
    ("L515", prose("| a | b |\n|---|---|\n| `x | y` | 1 |"), [("reading", 3)]),
    ("L601", prose("As shown\nthere [@paper-z]."), [("reading", 2)]),
    (
        "L602",
        lambda b: b.files.update({"sources.md": b.files["sources.md"].replace("paper-a", "paper-q")}),
        [(None, 3)],
    ),
    ("L603", file("sources.md", "primary", "skimmed"), [(None, 9)]),
    ("L603", file("sources.md", "2025-01-31", "2999-01-31"), [(None, 9)]),
    ("L603", file("sources.md", "2025-01-31", "last week"), [(None, 9)]),
    ("L603", file("sources.md", "A. Author. A paper. 2024. arXiv:2401.01234.", ""), [(None, 3)]),
    ("L603", file("sources.md", "| claim | where in it | read | checked |", "| what | where |"), [(None, 3)]),
    ("L603", file("sources.md", "| abstract ", ""), [(None, 9)]),
    ("L604", prose("One [@paper-a].\n\n**Reported** by them: 0.164."), [("reading", 3)]),
    ("L605", prose("No source."), [("sources", 3)]),
    ("L605", lambda b: b.cell("sources").update(source="## Sources\n\nNone."), [("reading", 1)]),
    ("L701", prose("It succeeds in\n17% of cases."), [("reading", 2)]),
    ("L702", lambda b: b.prose("It is 0.77.", numbers={"0.77": ""}), [("reading", None)]),
    ("L702", lambda b: b.prose("It is so.", numbers={"0.77": "half of the value above"}), [("reading", None)]),
    ("L703", prose("So\n$0.5 \\cdot 0.5 = 0.24$."), [("reading", 2)]),
    ("L801", prose("It was\nrecieved."), [("reading", 2)]),
    ("L801", lambda b: b.files.update({"README.md": "# The book\n\nIt was recieved.\n"}), [(None, 3)]),
    ("L802", prose("This is the\nthe reward."), [("reading", 1)]),
    ("L803", prose("To normalise is\nto be normalized."), [("reading", 2)]),
    ("L804", prose("This is\nsimply a reward."), [("reading", 2)]),
]


@pytest.mark.parametrize(("code", "edit", "places"), FAULTS, ids=[f"{n}-{f[0]}" for n, f in enumerate(FAULTS)])
def test_a_planted_fault_is_found_at_its_place(code, edit, places, tmp_path):
    book = CleanBook(tmp_path)
    edit(book)
    assert book.found(code) == places


def test_a_ledger_without_entries_leaves_every_citation_without_one(tmp_path):
    book = CleanBook(tmp_path)
    book.files["sources.md"] = "# Sources\n"
    found = lint(book.write()).problems
    assert {problem.code for problem in found} == {"L601", "L701"}  # the citation, and the number it should explain


def test_every_code_has_a_planted_fault():
    in_files_on_disk = {"L101"}  # provoked below, since the builder writes canonical files
    assert {code for code, _, _ in FAULTS} | in_files_on_disk == set(CODES)


def test_the_clean_book_has_no_finding(tmp_path):
    report = lint(CleanBook(tmp_path).write())
    assert report.problems == ()
    assert report.notebooks == 4
    assert (report.tally.noted, report.tally.unexplained) == (0, 0)
    assert report.tally.seen > 10


def test_a_file_out_of_form_is_found_with_its_line_and_mended_once(tmp_path):
    book = CleanBook(tmp_path)
    root = book.write()
    path = root / "chapters/01-intro-1.ipynb"
    raw = json.loads(path.read_text())
    raw["metadata"]["kernelspec"]["display_name"] = "venv"
    raw["cells"][5]["metadata"] = {"collapsed": True, "scrolled": False}
    path.write_text(json.dumps(raw, sort_keys=True, indent=1, ensure_ascii=False) + "\n")
    problems = lint(root, ["01"]).problems
    assert {p.code for p in problems} == {"L101", "L111"}
    lines = [p.file_line for p in problems if p.code == "L101" and p.file_line is not None]
    assert [path.read_text().split("\n")[line] for line in lines] == ['    "collapsed": true,']
    assert fix(root) == ["chapters/01-intro-1.ipynb"]
    assert lint(root).problems == ()
    assert fix(root) == []


def test_fix_formats_code_adds_sources_loses_none_and_then_changes_nothing(tmp_path):
    book = CleanBook(tmp_path)
    book.replace("measure", 'print("success", 328 / 2000, "of", 2000)', "print('success',328/2000,'of',2000)")
    book.replace("area", "r**2", "r ** 2")
    book.files["sources.md"] += SECOND_SOURCE
    book.replace("reading", "16.4%", "Over 50 tasks [@paper-b]. 16.4%")
    book.replace("reading", " [@paper-a]", "")
    book.replace("reading", "; the benchmark has 2,294 instances", "")
    root = book.write()
    assert {p.code for p in lint(root).problems} == {"L306", "L605"}
    assert fix(root) == ["chapters/01-intro-1.ipynb"]
    left = lint(root).problems
    assert [p.code for p in left] == ["L605"]
    assert left[0].message == "[@paper-a] is listed under Sources but cited nowhere in the chapter"
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert fix(root) == []
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    text = (root / "chapters/01-intro-1.ipynb").read_text()
    assert "#@save\\n" in text
    assert "- [@paper-b] B. Writer. Another paper. 2025." in text
    assert "- [@paper-a]" in text


SECOND_SOURCE = """
## paper-b

B. Writer. Another paper. 2025.

| claim | where in it | read | checked |
|---|---|---|---|
| 50 tasks | page 3 | primary | 2025-02-01 |
"""


def test_fix_leaves_code_it_cannot_read(tmp_path):
    book = CleanBook(tmp_path)
    book.cell("measure")["source"] = "if  x\n   y"
    root = book.write()
    fix(root)
    assert '"if  x\\n"' in (root / "chapters/01-intro-1.ipynb").read_text()


def test_front_matter_has_its_own_obligations(tmp_path):
    book = CleanBook(tmp_path)
    book.metadata["01-intro-1"]["kind"] = "front"
    book.remove("design")
    for n in (4, 5, 6, 7):
        book.remove(f"exercise-{n}")
        book.remove(f"solution-{n}", SOLUTIONS)
    assert [p for p in book.problems("2") if p.path.endswith("01-intro-1.ipynb")] == []


@pytest.mark.parametrize(
    "text",
    [
        "See Chapter 5, 20 of whose pages matter, chapters 7, 9 and 12, §9.4, Appendix B and Figure 14.3.",
        "See [§2.1](02-intro-2.ipynb#2.1-First-section), [below](#Summary) and [the book](../README.md).",
        "Equation (1.1), that is (1.1), and Sections 1.1 and 1.2; Exercises 1.1 to 1.3.",
        "It costs \\$5 and then `$HOME` and `a | b`, and $p \\mid q$ with $\\{x\\}$.",
        "| a | b |\n|---|---|\n| $p \\mid q$ | `x` |\n| $\\vert x \\vert$ | 1 |",
    ],
)
def test_sound_references_and_mathematics_pass(text, tmp_path):
    book = CleanBook(tmp_path)
    book.prose(text)
    assert [str(p) for p in book.problems("5")] == []


@pytest.mark.parametrize(
    "text",
    [
        'Words such as "simply" are left out.',
        "Each `x` the `x` the reader knows that that is so.",
        "| a | a |\n|---|---|\n| the | the |",
        "The realistic organism is a generalist; summaries of memories.",
    ],
)
def test_sound_language_passes(text, tmp_path):
    book = CleanBook(tmp_path)
    book.prose(text)
    assert [str(p) for p in book.problems("8")] == []


@pytest.mark.parametrize(
    "text",
    [
        "shape (2, 3) 0x1F -0.5 -0.04 10-0 3-0\n",
        "a/b/c and src/home/x, 1/2, http://x/y\n",
        "array of 3, step 12:30\n",
    ],
)
def test_sound_output_passes(text, tmp_path):
    book = CleanBook(tmp_path)
    prints(text)(book)
    assert [str(p) for p in book.problems("1")] == []


def test_a_generators_own_seed_and_a_cells_own_docstring_pass(tmp_path):
    book = CleanBook(tmp_path)
    body = "\n".join(f"    Line {n}." for n in range(30))
    source = (
        f'import torch\n\ngen = torch.Generator().manual_seed(0)\n\n\ndef f():\n    """Return 1.\n\n{body}\n    """'
    )
    book.cell("measure")["source"] = source + "\n    return gen"
    assert [str(p) for p in book.problems("1") + book.problems("3")] == []


def test_a_name_saved_earlier_passes_and_solutions_see_their_own_chapter(tmp_path):
    book = CleanBook(tmp_path)
    book.cell("measure", "02-intro-2")["source"] = "import agentrl as arl\n\nx = arl.disc_area(1.0)"
    own = [code("own", "import agentrl as arl\n\nx = arl.ball_area(1.0)")]
    book.insert("solution-7", own, "solutions/02-intro-2")
    assert book.found("L308") == []


def test_solutions_may_import_the_library_in_place_of_their_chapter(tmp_path):
    book = CleanBook(tmp_path)
    book.cell("setup", SOLUTIONS).update(source="import math\n\nimport agentrl as arl", execution_count=1)
    assert book.found("L213") == []
    book.cell("setup", SOLUTIONS).update(source="from agentrl import area", execution_count=1)
    assert book.found("L213") == [("setup", None)]


@pytest.mark.parametrize("output", ["lab", "sandbox"])
def test_a_cell_of_another_class_that_is_listed_under_it_passes(tmp_path, output):
    book = CleanBook(tmp_path)
    metadata("measure", {"agentrl": {"output": output}})(book)
    file("pyproject.toml", "lab_cells = []", f'{output}_cells = ["01:measure"]')(book)
    assert book.found("L115") == []


def test_codespells_ignore_list_is_read(tmp_path):
    book = CleanBook(tmp_path)
    book.prose("It was recieved.")
    book.files["pyproject.toml"] += '\n[tool.codespell]\nignore-words-list = "recieved"\n'
    assert book.found("L801") == []


def test_a_selection_reports_on_its_chapters_only(tmp_path):
    book = CleanBook(tmp_path)
    book.prose("This is the the reward.", "01-intro-1")
    book.prose("This is the the reward.", "02-intro-2")
    root = book.write()
    found = {p.path for p in lint(root, ["02"]).problems if p.code == "L802"}
    assert found == {"chapters/02-intro-2.ipynb"}


def test_a_book_that_cannot_be_read_says_why(tmp_path):
    root = CleanBook(tmp_path).write()
    (root / "chapters/01-intro-1.ipynb").write_text("{")
    with pytest.raises(BookError, match="not JSON"):
        lint(root)


@pytest.mark.parametrize(
    "output", ["text", {"output_type": 1}, {"output_type": "stream", "name": "stdout", "text": {}}, {"name": "stdout"}]
)
def test_an_output_that_is_none_makes_the_book_unreadable(output, tmp_path):
    root = CleanBook(tmp_path).write()
    path = root / "chapters/01-intro-1.ipynb"
    raw = json.loads(path.read_text())
    raw["cells"][5]["outputs"] = [output]
    path.write_text(json.dumps(raw, sort_keys=True, indent=1, ensure_ascii=False) + "\n")
    with pytest.raises(BookError, match=r"cell 'measure' has .* output"):
        lint(root)


def test_counts_in_disorder_are_one_finding_that_says_what_to_do(tmp_path):
    book = CleanBook(tmp_path)
    root = book.write()
    path = root / "chapters/01-intro-1.ipynb"
    raw = json.loads(path.read_text())
    cells = [cell for cell in raw["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        cell["execution_count"] += 4
    path.write_text(json.dumps(raw, sort_keys=True, indent=1, ensure_ascii=False) + "\n")
    found = [p for p in lint(root).problems if p.code == "L104"]
    assert [p.cell for p in found] == [cells[0]["id"]]
    assert f"this is code cell 1 (and {len(cells) - 1} more)" in found[0].message
    assert "`check_chapters.py --update 01` runs and records it" in found[0].message
