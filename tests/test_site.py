"""The site: what of a notebook stands on its pages, character for character, and what a build refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checking import environment
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from needing import missing
from synthetic import code, md, write_book, write_chapter

from bookkit.figures import dark
from bookkit.lint.context import Page
from bookkit.notebook import Book, Chapter, dump, load_book, write_atomic
from bookkit.problems import BookError
from bookkit.site import cli, crossrefs, escape, node, output
from bookkit.site.build import build
from bookkit.site.edition import Edition, Editions
from bookkit.site.trees import nodes_of
from bookkit.site.words import LANGUAGES, WORDS, Language, word
from bookkit.translation.pair import digest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "build_tutorial_site.py"
FIGURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" role="img"><title>t</title><desc>d</desc><path fill="#1f2328"/></svg>\n'
)
LEDGER = """# Sources

## one-paper

Somebody: A Paper. 2026. https://example.org/a_paper

| claim | where in it | read | checked |
|---|---|---|---|
| 5 of 7 | section 1.1, derived in §1.1 | primary | 2026-01-01 |
"""
ALT = "A square, and beside it a circle that is smaller."
START = "See Equation (1.1), §1.2 and Exercise 1.1; Chapter 7 [@one-paper]."
CELLS = [
    md("title", "# Chapter 1 · Beginning\n\n**Question.** What is this about?\n\n**You need.** Nothing.\n\nWords."),
    md(
        "start",
        "## 1.1 A start\n\nSee Equation (1.1), §1.2 and Exercise 1.1; Chapter 7 [@one-paper].\n\n$$\nx \\tag{1.1}\n$$",
    ),
    code("saved", '#@save\ndef double(x):\n    """Return 2 x."""\n    return 2 * x  # {a} <b> ```', ""),
    code("prints", "print('$x {a} <b> ```')", "$x {a} <b> ```\n\n   \n"),
    md("inner", "### The point\n\n![" + ALT + "](../figures/shape.svg)\n\n**Figure 1.1.** A shape, and `arl.double`."),
    md(
        "design",
        "## 1.2 Design questions in practice\n\n### Which?\n\n**Symptom.** a\n\n**Cause.** b\n\n**Options.** c",
    ),
    code("shown", "print(1)", "1\n"),
    md("advice", "**Recommendation.** Take the first."),
    md("exercises", "## Exercises\n\nThey stand in [solutions](solutions/01-beginning.ipynb)."),
    md("exercise-1", "**Exercise 1.1 ★** Do it.\n\n```python\nx = 1\n```"),
    md("sources", "## Sources\n\n- [@one-paper] a paper."),
]
SOLVED = [
    md("title", "# Solutions to Chapter 1 · Beginning"),
    code("setup", "import agentrl as arl"),
    md("solve-1", "## Exercise 1.1 ★ The `first` one\n\nLike this:"),
    code("answer", "print(2)", "2\n"),
]


def made_book(root: Path, cells: list[dict[str, Any]] = CELLS, solved: list[dict[str, Any]] = SOLVED) -> Path:
    """Write a small book with a chapter that has one of everything, and return its folder."""
    write_book(root, {"01-beginning": cells})
    write_chapter(root, "01-beginning", solved, kind="solutions")
    write_atomic(root / "sources.md", LEDGER)
    write_atomic(root / "figures" / "shape.svg", FIGURE)
    return root


def translate(root: Path, texts: dict[str, str]) -> None:
    """Write a translation of the chapter in which these cells are translated, from what they now say in English."""
    raw = json.loads((root / "chapters" / "01-beginning.ipynb").read_text(encoding="utf-8"))
    for cell in raw["cells"]:
        if cell["id"] in texts:
            marks = {"source": digest("".join(cell["source"])), "accepted": digest(texts[cell["id"]])}
            cell["metadata"]["agentrl"] = marks
            cell["source"] = [texts[cell["id"]]]
    raw["metadata"]["agentrl"] |= {"title": "开端", "question": "这是关于什么的？", "language": "zh"}
    write_atomic(root / "chapters" / "zh" / "01-beginning.ipynb", dump(raw))


def changed(**sources: str) -> list[dict[str, Any]]:
    """Return the chapter's cells with other texts in some, by id with `_` for `-`."""
    return [{**cell, "source": sources.get(cell["id"].replace("-", "_"), cell["source"])} for cell in CELLS]


def refused(root: Path) -> list[str]:
    """Return what a build of this book complains about, one line a finding."""
    with pytest.raises(BookError) as caught:
        build(root)
    return [str(problem) for problem in caught.value.problems]


def fences(page: str) -> list[tuple[str, str]]:
    """Return the code blocks of a page as CommonMark reads them: what stands after the marks, and the content."""
    found = (token for token in MarkdownIt("commonmark").parse(page) if token.type == "fence")
    return [(token.info, token.content) for token in found]


def ids(page: str) -> list[str]:
    """Return the ids of a page, in order, those that stand in code blocks left out."""
    return re.findall(r'^\s*<div id="([^"]*)">', page, re.MULTILINE)


@pytest.fixture(scope="module")
def book() -> Book:
    """Return the real book."""
    return load_book(ROOT)


@pytest.fixture(scope="module")
def site() -> dict[str, str]:
    """Return the site of the real book."""
    return build(ROOT)


@pytest.fixture
def small(tmp_path: Path) -> dict[str, str]:
    """Return the site of the small book."""
    return build(made_book(tmp_path))


def page_of(site: dict[str, str], chapter: Chapter, language: Language) -> str:
    """Return a chapter's page."""
    return site[f"{language}/chapters/{chapter.key}-{chapter.slug}.mdx"]


# Text goes in and comes out


ANY = st.characters(exclude_categories=("Cc", "Cs"))
TEXTS = st.text(
    st.sampled_from("ab1.)#>+-=:|$`~*_{}<>[]()!&\\/'\" \t中。é\u00a0^@;") | ANY,
    min_size=1,
    max_size=30,
)
PIECES = ["import x", "export x", "1. ", "&amp;", "![a](b)", "<b>", "{x}", "$$", "www.a", "https://a_b", "---", "~~~"]
LINES = st.lists(TEXTS | st.sampled_from(PIECES), min_size=1, max_size=3).filter(
    lambda lines: all(line.strip() for line in lines)
)


def as_paragraph(lines: list[str]) -> str:
    """Return lines of text as the site writes them."""
    return escape.lines("\n".join(map(escape.text, lines)))


def read_commonmark(text: str) -> str:
    """Return the words of a text that has to be one paragraph of plain words, read by a parser of Markdown."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    (paragraph,) = SyntaxTreeNode(parser.parse(text)).children
    assert paragraph.type == "paragraph"
    inline = paragraph.children[0].children
    assert {part.type for part in inline} <= {"text", "text_special", "softbreak"}
    return "".join("\n" if part.type == "softbreak" else part.content for part in inline)


@given(LINES)
@example(["import x", "export y"])
@example([" a ", "\tb\t"])
@example(["a", ":-"])
def test_any_text_comes_back_from_a_parser_of_markdown(lines: list[str]) -> None:
    assert read_commonmark(as_paragraph(lines)) == "\n".join(lines)


def test_any_text_comes_back_from_a_parser_of_mdx(tmp_path: Path) -> None:
    texts: list[list[str]] = []

    @given(LINES)
    def collect(lines: list[str]) -> None:
        texts.append(lines)

    collect()
    texts += [[piece, piece] for piece in PIECES] + [["a", ":-"], ["a", "-"], ["a", "="]]
    for text, read in zip(texts, read_mdx(tmp_path, [as_paragraph(lines) for lines in texts]), strict=True):
        assert read.get("words") == "\n".join(text), read
        assert set(read["kinds"]) <= {"root", "paragraph", "text", "link"}, read  # a bare address becomes a link


def read_mdx(tmp_path: Path, texts: list[str]) -> list[dict[str, Any]]:
    """Return what the parser that compiles MDX makes of each text; it is in the packages of the static edition."""
    if why := node.missing("reader"):
        missing(why)
    write_atomic(tmp_path / "texts.json", json.dumps(texts))
    done = node.run("reader", "tests/words.mjs", tmp_path / "texts.json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@given(st.text(st.sampled_from("`ab |\\{<$") | ANY, min_size=1, max_size=20))
def test_inline_code_comes_back_whole(content: str) -> None:
    (token,) = MarkdownIt("commonmark").parseInline(f"a {escape.code(content)} b")
    (found,) = [child for child in token.children or [] if child.type == "code_inline"]
    assert found.content == content


@given(st.text(st.sampled_from("`~ab \n") | ANY, min_size=1, max_size=40))
@example("```\n")
@example("a\n`````\nb")
def test_a_code_block_holds_its_content_and_nothing_else(content: str) -> None:
    ends = content if content.endswith("\n") else content + "\n"
    assert fences(f"before\n\n{escape.fence(content, 'python', 'a.b')}\n\nafter") == [("python a.b", ends)]


def test_a_bar_stays_in_its_cell_of_a_table(tmp_path: Path) -> None:
    table = "| a | b |\n|---|---|\n| `x\\|y` $p(x\\vert y)$ | z\\|z |"
    site = build(made_book(tmp_path, changed(start=f"## 1.1 A start\n\n{table}")))
    assert "| `x\\|y` $p(x\\vert y)$ | z\\|z |" in site["en/chapters/01-beginning.mdx"]


# What stands on a chapter's page


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_code_cell_and_output_is_on_its_page(book: Book, site: dict[str, str], language: Language) -> None:
    for notebook in book.notebooks():
        chapter = book.chapter(notebook.key)
        on_page = iter(fences(page_of(site, chapter, language)))
        for cell in notebook.code_cells:
            assert any(content == cell.source.rstrip("\n") + "\n" for _, content in on_page), cell.id
            if cell.stdout:
                assert next(on_page)[1] == cell.stdout, cell.id


def words(node: SyntaxTreeNode) -> str:
    """Return the words of a block of Markdown, blanks left out, its citations as the pages write them."""
    if node.type in ("text", "text_special", "code_inline", "math_inline", "math_block", "fence"):
        return "".join(node.content.split())
    return "" if node.type == "image" else "".join(map(words, node.children))


def as_cited(text: str) -> str:
    """Return text with `[@a; @b]` as the two links that it becomes."""
    return re.sub(r"\[@([^\]]*)\]", lambda match: f"[{match[1].replace(';@', '][')}]", text)


def prose(edition: Edition) -> Iterator[str]:
    """Yield the words of each block of prose but titles, which the frontmatter and folded parts have."""
    titles = ("h1",) if edition.notebook.kind == "chapter" else ("h1", "h2")
    for shown in edition.prose:
        yield from (as_cited(words(node)) for node in nodes_of(shown.text) if node.tag not in titles)


def test_every_word_of_prose_is_on_its_page_in_order(book: Book, site: dict[str, str], tmp_path: Path) -> None:
    editions = Editions.of(book.notebooks())
    places: list[tuple[Chapter, Language]] = [
        (chapter, language) for chapter in book.chapters for language in LANGUAGES
    ]
    texts = [page_of(site, *place).split("\n---\n", 1)[1] for place in places]
    for (chapter, language), read in zip(places, read_mdx(tmp_path, texts), strict=True):
        page = "".join(read["words"].split())
        for edition in (editions.chapter(chapter.key, language), editions.solutions(chapter.key, language)):
            at = 0
            for block in prose(edition) if edition else ():
                assert block in page[at:], f"{chapter.name}, {language}: {block}"
                at = page.index(block, at)


def test_a_saved_cell_is_titled_with_its_module_and_an_output_as_such(small: dict[str, str]) -> None:
    titles = {language: dict(fences(small[f"{language}/chapters/01-beginning.mdx"])) for language in LANGUAGES}
    assert "python agentrl.beginning" in titles["en"]
    assert "text Output" in titles["en"]
    assert "text 输出" in titles["zh"]


def test_both_languages_have_the_same_ids_and_each_once(book: Book, site: dict[str, str]) -> None:
    for chapter in book.chapters:
        english, chinese = (ids(page_of(site, chapter, language)) for language in LANGUAGES)
        assert english == chinese
        assert len(set(english)) == len(english)


def test_numbered_things_have_the_ids_of_their_numbers(small: dict[str, str]) -> None:
    found = ids(small["en/chapters/01-beginning.mdx"])
    wanted = ["sec-1-1", "eq-1-1", "cell-saved", "cell-prints", "the-point", "fig-1-1", "sec-1-2", "design-questions"]
    assert found == [*wanted, "which", "cell-shown", "exercises", "sol-setup", "ex-1-1", "sol-answer", "sources"]


def test_every_exercise_is_followed_by_its_folded_solution(book: Book, site: dict[str, str]) -> None:
    for chapter in book.chapters:
        for language in LANGUAGES:
            page = page_of(site, chapter, language)
            for mark in Page(chapter).exercises:
                ident = f'<div id="ex-{mark.number.replace(".", "-")}">'
                block = page.split(ident)[1].split('\n<div id="ex-')[0]
                assert block.count("<Accordion ") == 1
                title = word("solution", language, number=mark.number)
                assert re.search(rf'</div>\n\n<Accordion title="{title}(?: · [^"]+)?">', block)


def test_a_solution_keeps_the_words_of_its_heading(small: dict[str, str]) -> None:
    title = 'title="Solution to Exercise 1.1 · The first one">'
    folded = small["en/chapters/01-beginning.mdx"].split(f"<Accordion {title}")[1]
    assert folded.startswith("\n\nLike this:")
    assert "print(2)" in folded.split("</Accordion>")[0]


def test_a_solution_whose_heading_has_a_formula_shows_it_below_its_title(tmp_path: Path) -> None:
    solved = [*SOLVED[:2], md("solve-1", "## Exercise 1.1 ★ How $x$ grows\n\nSo."), SOLVED[3]]
    page = build(made_book(tmp_path, solved=solved))["en/chapters/01-beginning.mdx"]
    assert '<Accordion title="Solution to Exercise 1.1">\n\n**How $x$ grows**\n\nSo.' in page


def test_a_design_question_is_a_note_and_its_recommendation_a_tip(small: dict[str, str]) -> None:
    page = small["en/chapters/01-beginning.mdx"].split("### Which?")[1]
    note, tip = page.split("</Note>")[0], page.split("<Tip>")[1].split("</Tip>")[0]
    assert note.index("**Symptom.**") < note.index("**Options.**") < note.index("print(1)")
    assert "**Recommendation.** Take the first." in tip


def test_the_title_cell_becomes_frontmatter_and_a_box(small: dict[str, str]) -> None:
    page = small["en/chapters/01-beginning.mdx"]
    assert 'title: "Chapter 1 · Beginning"\nsidebarTitle: "1 · Beginning"\ndescription: "What is this about?"' in page
    box = page.split("<Info>")[1].split("</Info>")[0]
    assert "**Question.**" in box
    assert "**You need.**" in box
    assert "# Chapter 1" not in page
    assert "Words." not in box


def test_a_figure_has_a_light_and_a_dark_drawing_with_one_text(small: dict[str, str]) -> None:
    page = small["en/chapters/01-beginning.mdx"]
    for look, tone in (("block dark:hidden", "light"), ("hidden dark:block", "dark")):
        name = f"images/figures/shape-{tone}.svg"
        assert f'<img className="{look}" src="/{name}" alt="{ALT}" />' in page
        assert small[name] == (FIGURE if tone == "light" else dark(FIGURE))
    assert dark(FIGURE) != FIGURE


def test_a_cell_that_needs_the_model_says_so_before_its_code(tmp_path: Path) -> None:
    cells = [*CELLS[:3], code("lab", "print(3)", "3\n", output="lab"), *CELLS[3:]]
    page = build(made_book(tmp_path, cells))["en/chapters/01-beginning.mdx"]
    assert re.search(r'<div id="cell-lab">\s*<Info>\s*.*model.*\s*</Info>\s*```python\nprint\(3\)', page)


def test_the_foot_of_a_page_says_version_and_day_of_record(site: dict[str, str], book: Book) -> None:
    for chapter in book.chapters:
        foot = page_of(site, chapter, "en").splitlines()[-1]
        assert f"recorded {chapter.metadata['recorded']} with torch" in foot
        assert f"notebook `chapters/{chapter.path.name}`, solutions `chapters/solutions/{chapter.path.name}`" in foot


# Links


def test_every_link_within_the_site_leads_to_a_page_and_a_place(site: dict[str, str]) -> None:
    pages = {f"/{name.removesuffix('.mdx')}": set(ids(text)) for name, text in site.items() if name.endswith(".mdx")}
    seen = 0
    for name, text in site.items():
        prose = "".join(part for at, part in enumerate(re.split(r"^`{3,}.*$", text, flags=re.MULTILINE)) if at % 2 == 0)
        for target in re.findall(r"\]\((/[^)\s]*)\)", prose):
            page, _, place = target.partition("#")
            assert page in pages, f"{name}: {target}"
            assert not place or place in pages[page], f"{name}: {target}"
            seen += 1
    assert seen > 1000


def test_references_become_links_where_their_target_exists(small: dict[str, str]) -> None:
    page, here = small["en/chapters/01-beginning.mdx"], "/en/chapters/01-beginning"
    assert (
        f"See [Equation&nbsp;(1.1)]({here}#eq-1-1), [§1.2]({here}#sec-1-2) and "
        f"[Exercise&nbsp;1.1]({here}#ex-1-1); Chapter&nbsp;7 "
        r"[\[one-paper\]](/en/reference/sources#src-one-paper)."
    ) in page
    assert f"[`arl.double`]({here}#cell-saved)" in page
    assert "They stand in solutions." in page  # a link to them would lead to where it stands


def test_a_link_to_the_solutions_of_another_chapter_leads_to_its_exercises(tmp_path: Path) -> None:
    made_book(tmp_path)
    text = "# Chapter 2 · Second\n\nAs in [these](solutions/01-beginning.ipynb)."
    write_chapter(tmp_path, "02-second", [md("title", text)])
    page = build(tmp_path)["en/chapters/02-second.mdx"]
    assert "As in [these](/en/chapters/01-beginning#exercises)." in page


def test_a_link_within_a_notebook_leads_to_its_heading_or_exercise(tmp_path: Path) -> None:
    cells = changed(start="## 1.1 A start\n\n[a](#The-point), [b](solutions/01-beginning.ipynb#Exercise-1.1-★-It).")
    solved = [*SOLVED[:2], md("solve-1", "## Exercise 1.1 ★\n\nAs [above](#Exercise-1.1-★)."), SOLVED[3]]
    page, here = build(made_book(tmp_path, cells, solved))["en/chapters/01-beginning.mdx"], "/en/chapters/01-beginning"
    assert f"[a]({here}#the-point), [b]({here}#ex-1-1)." in page
    assert f"As [above]({here}#ex-1-1)." in page


@pytest.mark.parametrize(
    ("unsaved", "text", "linked"),
    [
        ("x = 1", "`twice_it`, `twice_it(3)`", ["twice_it", "twice_it(3)"]),
        ("x = 1", "`twice`, `twice_itself`, `a.twice_it`, `twice_it + 1`", []),
        ("def twice_it(x):\n    return x", "`twice_it`", []),
        ("for twice_it in ():\n    pass", "`twice_it`", []),
    ],
)
def test_a_saved_name_alone_leads_to_its_cell_unless_it_may_be_another(
    tmp_path: Path, unsaved: str, text: str, linked: list[str]
) -> None:
    saved = "#@save\ndef twice(x):\n    return 2 * x\n\n\ndef twice_it(x):\n    return twice(x)"
    cells = changed(start=f"## 1.1 A\n\n{text}", saved=saved, inner="**Figure 1.1.** Words.")
    root = made_book(tmp_path, [*cells[:4], code("unsaved", unsaved), *cells[4:]])
    page = build(root)["en/chapters/01-beginning.mdx"]
    assert re.findall(r"\[`([^`]+)`\]\(/en/chapters/01-beginning#cell-saved\)", page) == linked


@pytest.mark.parametrize("call", ["arl.double", "arl.double()", "arl.double(3, f(x))", "arl.double.size"])
def test_a_name_of_the_library_leads_to_its_cell_also_where_it_is_called(tmp_path: Path, call: str) -> None:
    text = f"## 1.1 A start\n\nBy `{call}`, not `arl.doubled`, `harl.double` or `arl.double + 1`."
    page = build(made_book(tmp_path, changed(start=text)))["en/chapters/01-beginning.mdx"]
    rest = "not `arl.doubled`, `harl.double` or `arl.double + 1`."
    assert f"By [`{call}`](/en/chapters/01-beginning#cell-saved), {rest}" in page


@pytest.mark.parametrize(
    ("language", "text", "found"),
    [
        ("en", "Chapters 7 and 9, Figure 6.1", ["7", "9", "Figure 6.1"]),
        ("en", "by (6.11), not 1.5 nor (0.95 of it)", ["(6.11)"]),
        ("en", "f(1.2), g[0](1.2)", []),
        ("en", "Equations (2.2) and (2.3)", ["(2.2)", "(2.3)"]),
        ("en", "[@a; @b], https://a.org/x_(y).", ["[@a; @b]", "https://a.org/x_(y)"]),
        ("zh", "见第 4 章和第7章", ["第 4 章", "第7章"]),
        ("zh", "第 13 和 14 章，附录 A", ["13", "14", "附录 A"]),
        ("zh", "由式 (1.2) 与式（1.3）得", ["式 (1.2)", "式（1.3）"]),
        ("zh", "图 6.1、练习 1.8、§4.5", ["图 6.1", "练习 1.8", "§4.5"]),
        ("zh", "Figure 6.1", ["Figure 6.1"]),
    ],
)
def test_a_reference_is_found_in_prose(language: Language, text: str, found: list[str]) -> None:
    assert [text[span.start : span.end] for span in crossrefs.spans(text, language)] == found


def test_code_that_names_a_document_of_the_book_leads_to_its_page(tmp_path: Path) -> None:
    made_book(tmp_path, changed(start="## 1.1 A start\n\nSee `sources.md`, `CHANGELOG.md`, `a.md`."))
    write_atomic(tmp_path / "sources.md", LEDGER.replace("A Paper", "A `sources.md`"))
    site = build(tmp_path)
    page = site["en/chapters/01-beginning.mdx"]
    assert "See [`sources.md`](/en/reference/sources), `CHANGELOG.md`, `a.md`." in page
    assert "A `sources.md`." in site["en/reference/sources.mdx"]  # not from the page to itself


def test_nothing_in_code_mathematics_headings_or_links_is_linked(tmp_path: Path) -> None:
    text = "## 1.1 On §1.2\n\n`§1.2` $§1.2$ [§1.2 there](01-beginning.ipynb)\n\n```\n§1.2\n```"
    page = build(made_book(tmp_path, changed(start=text)))["en/chapters/01-beginning.mdx"]
    assert "#sec-1-2)" not in page


def test_an_entry_of_the_ledger_says_which_sections_cite_it(tmp_path: Path) -> None:
    made_book(tmp_path)
    title = "# Chapter 2 · Second\n\nAs [@one-paper]."
    write_chapter(tmp_path, "02-second", [md("title", title), md("a", "## 2.1 A\n\nWords.")])
    site = build(tmp_path)
    entry = '<div id="src-one-paper">\n\n## one-paper\n\n</div>\n\n'
    first, second = "/chapters/01-beginning#sec-1-1", "/chapters/02-second"
    for language, line in (
        ("en", "Cited in [§1.1](/en{}), [Chapter&nbsp;2](/en{})."),
        ("zh", "引用处：[§1.1](/zh{})、[第&nbsp;2&nbsp;章](/zh{})。"),
    ):
        assert entry + line.format(first, second) + "\n\n" in site[f"{language}/reference/sources.mdx"]


def test_the_numbers_of_a_source_are_not_those_of_the_book(small: dict[str, str]) -> None:
    assert (
        "| section&nbsp;1.1, derived in [§1.1](/en/chapters/01-beginning#sec-1-1) |"
        in small["en/reference/sources.mdx"]
    )


# The Chinese edition


CHINESE = {
    "title": "# 第 1 章 · 开端\n\n**问题。** 这是关于什么的？\n\n**预备知识。** 无。",
    "start": "## 1.1 开始\n\n见**式 (1.1)**、§1.2 与练习 1.1。\n换行 [@one-paper]\n\n$$\nx \\tag{1.1}\n$$",
}


def test_an_untranslated_chapter_is_shown_in_english_with_a_note(small: dict[str, str]) -> None:
    page = small["zh/chapters/01-beginning.mdx"]
    assert 'translated: "false"' in page
    assert page.count("<Note>") == 2  # the chapter's, and that of the design question
    assert WORDS["untranslated-chapter"]["zh"] in page
    assert 'sidebarTitle: "1 · Beginning（英文）"' in page
    assert "/zh/chapters/01-beginning#sec-1-2" in page
    assert "](/en/" not in page


def test_a_translated_cell_is_shown_and_the_next_one_says_that_it_is_not(tmp_path: Path) -> None:
    made_book(tmp_path)
    translate(tmp_path, CHINESE)
    site = build(tmp_path)
    page, here = site["zh/chapters/01-beginning.mdx"], "/zh/chapters/01-beginning"
    assert 'title: "第 1 章 · 开端"' in page
    assert 'translated: "partly"' in page
    assert 'sidebarTitle: "1 · 开端"' in page
    assert 'source: "chapters/zh/01-beginning.ipynb"' in page
    assert f"、[§1.2]({here}#sec-1-2) 与[练习&nbsp;1.1]({here}#ex-1-1)。换行 " in page
    assert WORDS["untranslated-chapter"]["zh"] not in page
    assert page.index("eq-1-1") < page.index(WORDS["untranslated-cell"]["zh"]) < page.index("### The point")
    assert ids(page) == ids(site["en/chapters/01-beginning.mdx"])


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("**问题。** 什么变了？", "<strong>问题。</strong>什么变了？"),
        ("**图 1.1。** $x$ 与 `y` 。", "<strong>图 1.1。</strong>$x$ 与 `y`。"),
        ("**选择。** *隐藏*的测试", "<strong>选择。</strong>*隐藏*的测试"),
        ("**现象。**\nSFT （监督）， *软*。", "<strong>现象。</strong>SFT（监督），*软*。"),
        ("一个 agent 与\n`x`，\n然后", "一个 agent 与\n`x`，然后"),
        ("全角　“引号” 和 ３ 个", "全角　“引号” 和 ３ 个"),
    ],
)
def test_chinese_has_no_blank_beside_punctuation_of_full_width(tmp_path: Path, source: str, written: str) -> None:
    made_book(tmp_path)
    translate(tmp_path, {**CHINESE, "start": f"## 1.1 开始\n\n{source}"})
    page = build(tmp_path)["zh/chapters/01-beginning.mdx"]
    assert page.split("## 1.1 开始\n\n</div>\n\n")[1].split("\n\n")[0] == written


def test_english_keeps_its_blanks_beside_punctuation_of_full_width(tmp_path: Path) -> None:
    text = "The marks ，。 （ and ） here."
    site = build(made_book(tmp_path, changed(start=f"## 1.1 A start\n\n{text}")))
    assert all(text in site[f"{language}/chapters/01-beginning.mdx"] for language in LANGUAGES)


def test_a_translation_of_what_was_edited_since_is_not_shown(tmp_path: Path) -> None:
    made_book(tmp_path)
    translate(tmp_path, CHINESE)
    write_chapter(tmp_path, "01-beginning", changed(start=CELLS[1]["source"].replace("See", "Compare")))
    page = build(tmp_path)["zh/chapters/01-beginning.mdx"]
    assert "Compare" in page
    assert "开始" not in page


def test_a_translation_that_was_edited_since_it_was_accepted_is_not_shown(tmp_path: Path) -> None:
    made_book(tmp_path)
    translate(tmp_path, CHINESE)
    path = tmp_path / "chapters" / "zh" / "01-beginning.ipynb"
    write_atomic(path, path.read_text(encoding="utf-8").replace("## 1.1 开始", "## 1.1 新的开始"))
    assert "开始" not in build(tmp_path)["zh/chapters/01-beginning.mdx"]


def test_a_translation_with_other_headings_is_refused(tmp_path: Path) -> None:
    made_book(tmp_path)
    translate(tmp_path, {**CHINESE, "inner": "标题没有了"})
    (line,) = refused(tmp_path)
    assert "chapters/zh/01-beginning.ipynb · cell inner" in line
    assert "headings" in line


def test_every_word_of_the_interface_is_there_in_chinese() -> None:
    for name, words in WORDS.items():
        assert words["zh"], name
        assert set(re.findall(r"\{\w+\}", words["en"])) in (set(), set(re.findall(r"\{\w+\}", words["zh"]))), name


# All files together


def test_the_first_page_has_each_chapter_with_its_question_below(tmp_path: Path, small: dict[str, str]) -> None:
    there = "/chapters/01-beginning"
    assert f"- [1 · Beginning](/en{there})<br />What is this about?\n- 2 · " in small["en/index.mdx"]
    assert f"](/zh{there})<br />正文暂为英文\n" in small["zh/index.mdx"]
    assert f"](/zh{there}): 正文暂为英文\n" in small["llms.txt"]
    translate(tmp_path, CHINESE)
    assert f"- [1 · 开端](/zh{there})<br />这是关于什么的？（部分正文暂为英文）\n" in build(tmp_path)["zh/index.mdx"]


def test_the_first_page_has_the_same_ids_in_both_languages(small: dict[str, str]) -> None:
    assert ids(small["en/index.mdx"]) == ids(small["zh/index.mdx"])
    assert ids(small["en/index.mdx"])[0] == "foundations"


def test_the_first_page_says_under_which_licences_the_book_is_and_how_to_cite_it(site: dict[str, str]) -> None:
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License")
    assert "Creative Commons Attribution 4.0" in (ROOT / "LICENSE-text").read_text(encoding="utf-8")
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    title, version, date = re.findall(r'^(?:title|version|date-released): "?(.*?)"?$', cited, re.MULTILINE)
    for language in LANGUAGES:
        foot = site[f"{language}/index.mdx"].split("\n---\n")[-1]
        assert all(name in foot for name in ("MIT", "CC BY 4.0"))
        assert f"*{title}.* Version {version}, {date[:4]}." in foot


def test_docs_json_names_every_page_once_in_the_order_of_the_plan(site: dict[str, str]) -> None:
    config = json.loads(site["docs.json"])
    assert config["styling"] == {"latex": True}
    languages = config["navigation"]["languages"]
    named = [f"{page}.mdx" for language in languages for group in language["groups"] for page in group["pages"]]
    assert sorted(named) == sorted(name for name in site if name.endswith(".mdx"))
    assert [language["language"] for language in languages] == list(LANGUAGES)
    assert named[0] == "en/index.mdx"
    assert named[1:3] == ["en/chapters/00-notation.mdx", "en/chapters/01-introduction.mdx"]


def test_llms_files_list_every_page_and_hold_every_cell(book: Book, site: dict[str, str]) -> None:
    for chapter in book.chapters:
        for language in LANGUAGES:
            assert f"](/{language}/chapters/{chapter.key}-{chapter.slug}): " in site["llms.txt"]
    for notebook in book.notebooks():
        for cell in notebook.code_cells:
            assert cell.source in site["llms-full.txt"]
            assert cell.stdout in site["llms-full.txt"]


def test_a_figure_is_its_description_in_the_full_text(small: dict[str, str]) -> None:
    assert f"(Figure: {ALT})" in small["llms-full.txt"]
    assert "shape.svg" not in small["llms-full.txt"]


def test_the_full_text_has_links_that_lead_somewhere_and_the_ledger_they_name(tmp_path: Path) -> None:
    start = "## 1.1 A start\n\nAs [§1.2 of it](01-beginning.ipynb#The-point), [solved](solutions/01-beginning.ipynb),\n"
    start += "[web](https://a.org), `[x](y.md)` and [`none`](../pyproject.toml) [@one-paper]."
    text = build(made_book(tmp_path, changed(start=start)))["llms-full.txt"]
    assert "As [§1.2 of it](/en/chapters/01-beginning#the-point), solved,\n" in text
    assert "[web](https://a.org), `[x](y.md)` and `none` [@one-paper]." in text
    assert text.index("print(2)") < text.index("\n\n# Sources\n") < text.index("## one-paper")


def test_no_link_of_the_full_text_leads_to_a_file_of_the_book(site: dict[str, str]) -> None:
    text = re.sub(r"^(`{3,})[^`\n]*\n.*?^\1$|`[^`\n]*`", "", site["llms-full.txt"], flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^()\s]*\w)\)", text)
    assert len(targets) > 20
    assert {target for target in targets if not target.startswith(("/en/", "https://"))} == set()


def test_the_full_text_says_where_saved_code_goes_and_what_a_cell_needs(tmp_path: Path) -> None:
    cells = [*CELLS[:3], code("lab", "print(3)", "3\n", output="lab"), *CELLS[3:]]
    text = build(made_book(tmp_path, cells))["llms-full.txt"]
    assert "````python agentrl.beginning\n#@save" in text
    assert word("needs-lab", "en", labs="Labs") + "\n\n```python\nprint(3)" in text


def test_llms_txt_names_the_full_text(small: dict[str, str]) -> None:
    assert ": /llms-full.txt\n" in small["llms.txt"]


def run(root: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run the script as a person would."""
    command = [sys.executable, str(SCRIPT), "--root", str(root), *arguments]
    return subprocess.run(command, env=environment(**extra), capture_output=True, encoding="utf-8", timeout=120)


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_two_builds_are_the_same_to_the_byte_and_leave_no_older_file(tmp_path: Path) -> None:
    root = made_book(tmp_path / "book")
    first = run(root, PYTHONHASHSEED="1", TZ="UTC")
    assert (first.returncode, first.stderr) == (0, "")
    built = contents(root / "website")
    (root / "website" / "en" / "old.mdx").write_text("gone?", encoding="utf-8")
    second = run(root, PYTHONHASHSEED="2", TZ="Asia/Tokyo", LC_ALL="C")
    assert (second.returncode, second.stderr) == (0, "")
    assert contents(root / "website") == built
    assert {path.name for path in root.iterdir()} == {"chapters", "figures", "pyproject.toml", "sources.md", "website"}


def test_some_chapters_alone_link_only_to_each_other(tmp_path: Path) -> None:
    made_book(tmp_path)
    write_chapter(tmp_path, "02-second", [md("title", "# Chapter 2 · Second\n\nAs in Chapter 1, §1.1, Chapter 2.")])
    site = build(tmp_path, ["02"])
    assert "en/chapters/01-beginning.mdx" not in site
    assert "As in Chapter&nbsp;1, §1.1, [Chapter&nbsp;2](/en/chapters/02-second)." in site["en/chapters/02-second.mdx"]


def test_a_link_whose_words_are_a_reference_stays_on_one_line_and_others_keep_their_words(tmp_path: Path) -> None:
    made_book(tmp_path)
    words = "[Chapter 1](01-beginning.ipynb), [**Chapter 1**](01-beginning.ipynb), [the chapter](01-beginning.ipynb)"
    write_chapter(tmp_path, "02-second", [md("title", f"# Chapter 2 · Second\n\nSee {words}.")])
    page, target = build(tmp_path)["en/chapters/02-second.mdx"], "(/en/chapters/01-beginning)"
    assert f"See [Chapter&nbsp;1]{target}, [**Chapter 1**]{target}, [the chapter]{target}." in page


# What a build refuses


@pytest.mark.parametrize(
    ("cell", "text", "says"),
    [
        ("start", "## 1.1 A start\n\nSee [@no-paper].", "[@no-paper] does not stand in sources.md"),
        ("start", "## 1.1 A start\n\nSee [it](02-none.ipynb).", "link '02-none.ipynb': no such file"),
        ("start", "## 1.1 A start\n\nSee [it](01-beginning.ipynb#None).", "no such heading"),
        ("start", "## 1.1 A start\n\nSee [it](../../outside.md).", "link '../../outside.md': no such file"),
        ("start", "## 1.1 A start\n\nSee [it](a%00b).", "link 'a%00b': "),
        ("inner", "![What it shows](../figures/a%00.svg)", "figure '../figures/a%00.svg': no such file"),
        ("inner", "![What it shows](../figures/none.svg)", "figure '../figures/none.svg': no such file"),
        ("inner", "Words ![What it shows](../figures/shape.svg)", "a paragraph of its own"),
        ("inner", "<div>x</div>", "HTML has no form on the site"),
        ("start", "| a |\n|---|\n| $p(x\\|y)$ |", r"\| in a table's cell is one bar or two"),
        (
            "start",
            "## 1.1 A start\n\nSee [it](#None).",
            "link '#None': chapters/01-beginning.ipynb has no such",
        ),
        ("start", "## 1.1 A start\n\nSee [it](solutions/01-beginning.ipynb#Setup).", "#Setup': no such exercise"),
        ("advice", "**Advice.** None.", "design question 'Which?' has no paragraph **Recommendation…**"),
        ("exercise_1", "**Exercise 1.2 ★** Another.", "exercise 1.2 has no solution"),
    ],
)
def test_a_fault_is_refused_with_its_file_and_cell(tmp_path: Path, cell: str, text: str, says: str) -> None:
    lines = refused(made_book(tmp_path, changed(**{cell: text})))
    place = "design" if cell == "advice" else cell.replace("_", "-")
    assert any(f"chapters/01-beginning.ipynb · cell {place}" in line and says in line for line in lines), lines


def test_a_solution_without_an_exercise_is_refused(tmp_path: Path) -> None:
    (line,) = refused(made_book(tmp_path, solved=[*SOLVED, md("solve-9", "## Exercise 1.9 ★")]))
    assert "chapters/solutions/01-beginning.ipynb · cell solve-9" in line
    assert "exercise 1.9" in line


def test_a_notebook_that_is_no_json_is_refused(tmp_path: Path) -> None:
    path = made_book(tmp_path) / "chapters" / "zh" / "01-beginning.ipynb"
    write_atomic(path, "{")
    assert refused(tmp_path)[0].startswith("chapters/zh/01-beginning.ipynb: error: not JSON")


def test_an_output_that_no_page_can_show_is_refused(tmp_path: Path) -> None:
    lines = refused(made_book(tmp_path, [*CELLS[:3], code("red", "print(1)", "\x1b[31m1\n"), *CELLS[3:]]))
    assert all("cell red" in line and r"'\x1b'" in line for line in lines)


@pytest.mark.parametrize("prefix", ["7", "1", "", "x"])
def test_the_command_line_refuses_an_unknown_chapter(tmp_path: Path, prefix: str, capsys: Any) -> None:
    root = made_book(tmp_path)
    expected = 0 if prefix == "" else 2
    assert cli.main(["--root", str(root), prefix]) == expected
    if expected:
        assert f"no chapter starts with {prefix!r}; there are 01" in capsys.readouterr().err
        assert not (root / "website").exists()


def test_a_fault_leaves_the_older_site_as_it_was(tmp_path: Path) -> None:
    root = made_book(tmp_path)
    assert cli.main(["--root", str(root)]) == 0
    before = contents(root / "website")
    write_chapter(root, "01-beginning", changed(start="## 1.1 A start\n\n[@no-paper]"))
    assert cli.main(["--root", str(root)]) == 2
    assert contents(root / "website") == before


def test_a_new_site_that_cannot_be_moved_into_place_leaves_the_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output.write({"docs.json": "old"}, tmp_path / "website")
    rename = os.rename

    def fails(source: Path, target: Path) -> None:
        if source.name == "new":
            raise OSError(28, "no space left")
        rename(source, target)

    monkeypatch.setattr(output.os, "rename", fails)
    with pytest.raises(OSError, match="no space left"):
        output.write({"docs.json": "new"}, tmp_path / "website")
    assert contents(tmp_path) == {"website/docs.json": b"old"}


@pytest.mark.parametrize(
    ("there", "out", "named"),
    [
        (["letter"], "", "letter"),
        (["letter"], "letter", "letter"),
        (["docs.json", "thesis.txt"], "", "thesis.txt"),
        (["docs.json", "en/index.mdx", "en/notes.txt"], "", "en/notes.txt"),
        (["docs.json", ".git/HEAD"], "", ".git/HEAD"),
        (["docs.json", "quickstart.mdx"], "", "quickstart.mdx"),
        (["en/index.mdx"], "", "docs.json"),
    ],
)
def test_a_folder_that_holds_more_than_a_site_is_never_replaced(
    tmp_path: Path, capsys: Any, there: list[str], out: str, named: str
) -> None:
    root = made_book(tmp_path / "book")
    for name in there:
        write_atomic(tmp_path / "mine" / name, "dear")
    assert cli.main(["--root", str(root), "--out", str(tmp_path / "mine" / out)]) == 2
    said = capsys.readouterr().err
    assert "nothing was written" in said
    assert named in said
    assert contents(tmp_path / "mine") == dict.fromkeys(there, b"dear")


def test_a_link_in_a_folder_is_not_taken_for_a_file_of_the_site(tmp_path: Path) -> None:
    root = made_book(tmp_path / "book")
    assert cli.main(["--root", str(root)]) == 0
    (root / "website" / "en" / "mine").symlink_to(root / "chapters", target_is_directory=True)
    assert cli.main(["--root", str(root)]) == 2
    assert (root / "website" / "en" / "mine" / "01-beginning.ipynb").is_file()


EMPHASIS = ("a**b**c", "**`x`**，", "*a***b**", "**a *b***", "a **§1.2**x", "***a***", "a*b***c**d")


def test_emphasis_is_read_as_it_was_meant(tmp_path: Path) -> None:
    page = build(made_book(tmp_path, changed(start="## 1.1 A start\n\n" + "\n\n".join(EMPHASIS))))
    shown = page["en/chapters/01-beginning.mdx"].split("## 1.1 A start\n\n</div>\n\n")[1].split("\n\n")
    for text, read in zip(EMPHASIS, read_mdx(tmp_path, shown[: len(EMPHASIS)]), strict=True):
        assert read["words"] == text.replace("*", "").replace("`", "")
