"""The books: what build_books.py makes of a small made-up site, and what it refuses."""

from __future__ import annotations

import dataclasses
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import booksite
import build_books
import pytest
from needing import missing, program
from pypdf import PdfReader

from bookkit.books import browser, epub, epubcheck, fonts, mathml, package, paper, pdfcheck, tree
from bookkit.books.cleaning import clean
from bookkit.books.reading import Book, read_book
from bookkit.problems import BookError

program("java")
if browser.find_browser() is None:
    missing("Chromium is not installed here (bash .ci/install does it)")
if not fonts.MATHS.is_file():
    missing("the fonts of the books are not installed here (npm ci in site/books does it)")

SITE_NOT_BUILT = 2


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with website/, site/ and the four books in out/."""
    root = tmp_path_factory.mktemp("books")
    booksite.write_site(root)
    assert build(root) == 0
    return root


@pytest.fixture(scope="module")
def english(built: Path) -> Book:
    """Return the English book."""
    return read_book(built / "website", built / "site", "en")


def build(root: Path, *arguments: str) -> int:
    """Build the books of the made-up site in a folder and return the exit code."""
    places = ["--website", str(root / "website"), "--site", str(root / "site"), "--out", str(root / "out")]
    return build_books.main([*places, *arguments])


def chapter(built: Path, language: str) -> str:
    """Return the first chapter in an EPUB."""
    with zipfile.ZipFile(built / "out" / f"agentic-rl-{language}.epub") as archive:
        return archive.read("book/01-first.xhtml").decode()


def test_all_four_books_are_built_and_nothing_else_stays(built: Path) -> None:
    names = sorted(path.name for path in (built / "out").iterdir())
    assert names == [f"agentic-rl-{language}.{form}" for language in ("en", "zh") for form in ("epub", "pdf")]


@pytest.mark.parametrize(("language", "title"), [("en", "Chapter 1 · The First"), ("zh", "第 1 章 · 开端")])
def test_the_pdf_has_its_language_and_an_outline_that_leads_to_the_chapter(
    built: Path, language: str, title: str
) -> None:
    reader = PdfReader(built / "out" / f"agentic-rl-{language}.pdf")
    outline: Any = reader.outline
    part, (first, sections, *_) = outline[:2]
    page = reader.pages[reader.get_destination_page_number(first) or 0]
    assert reader.root_object["/Lang"] == {"en": "en", "zh": "zh-Hans"}[language]
    assert first.title == title
    assert [section.title[:3] for section in sections] == ["1.1"]
    assert "".join(title.split()) in "".join(page.extract_text().split())
    assert part.title in "".join(reader.pages[2].extract_text().split())


def test_chinese_in_the_pdf_is_written_with_characters_not_with_radicals(built: Path) -> None:
    pages = PdfReader(built / "out/agentic-rl-zh.pdf").pages
    text = "".join("".join(page.extract_text().split()) for page in pages)
    assert "从哪里开始" in text
    assert not [one for one in text if 0x2E80 <= ord(one) <= 0x2FDF]


def test_a_line_of_code_wider_than_the_page_loses_nothing(built: Path) -> None:
    text = "".join(PdfReader(built / "out/agentic-rl-en.pdf").pages[3].extract_text().split())
    assert "+".join(f"number_{i:02d}" for i in range(30)) in text


def test_the_epub_shows_solutions_and_has_no_controls(built: Path) -> None:
    text = chapter(built, "zh")
    assert '<p class="fold-title">解答</p>' in text
    assert not [tag for tag in ("<details", "<button", "<script", 'class="anchor"') if tag in text]


def test_the_epub_links_across_its_files(built: Path) -> None:
    text = chapter(built, "en")
    assert '<a href="02-second.xhtml#sec-2-1">§2.1</a>' in text
    assert '<a href="01-first.xhtml#eq-1-1">Equation (1.1)</a>' in text
    assert '<a href="https://example.org/">elsewhere</a>' in text


def test_a_figure_is_the_light_one_and_keeps_its_caption(built: Path) -> None:
    text = chapter(built, "en")
    figure = text[text.index("<figure") : text.index("</figure>")]
    assert 'src="images/made-light.svg"' in figure
    assert "<figcaption><strong>Figure 1.1.</strong> A box and its text.</figcaption>" in figure
    assert "made-dark" not in text


def test_a_formula_is_mathml_with_its_number_beside_it(built: Path) -> None:
    text = chapter(built, "en")
    assert r'alttext="\mathbb E = 1"' in text
    assert '<span class="number">(1.1)</span>' in text
    assert "<mi>𝔼</mi>" in text


def test_code_keeps_its_empty_lines_and_its_indentation(english: Book) -> None:
    body = clean(english.pages[0])
    paper.listings.listings(body)
    lines = paper.listings.source(body)
    assert lines[:5] == ["def made():", "    '''Return", "", "    a text with an empty line.'''", booksite.LONG]
    assert lines[-2:] == ["a  b < c", "1  2"]


def test_the_same_pages_give_the_same_bytes(english: Book, built: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.epub"
    epub.write(package.make(english).files, again)
    assert again.read_bytes() == (built / "out/agentic-rl-en.epub").read_bytes()


WIDE = '<b style="display: inline-block; width: 900px">x</b>'
FAULTS = {
    "a dead link": ("epub", {"extra": '<a href="02-second.html#sec-9-9">gone</a>'}, "sec-9-9 leads nowhere"),
    "a dead page": ("pdf", {"extra": '<a href="03-third.html">gone</a>'}, "03-third.html leads nowhere"),
    "a missing figure": ("pdf", {"image": False}, "made-light.svg does not exist"),
    "a table that is too wide": (
        "pdf",
        {"cell": '<b style="display:inline-block;width:900px">x</b>'},
        "beyond the line",
    ),
    "an attribute that XML lacks": ("epub", {"extra": '<p @click="x">y</p>'}, "is not well-formed"),
    "an id that stands twice": ("epub", {"extra": '<p id="eq-1-1">again</p>'}, "eq-1-1"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named_and_the_old_book_stays(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    form, change, message = FAULTS[fault]
    booksite.write_site(tmp_path, **change)
    old = tmp_path / "out" / f"agentic-rl-en.{form}"
    old.parent.mkdir()
    old.write_bytes(b"old")
    assert build(tmp_path, "--language", "en", "--format", form) == 1
    assert message in capsys.readouterr().out
    assert [path.read_bytes() for path in old.parent.iterdir()] == [b"old"]


def laid_out(book: Book, built: Path) -> tuple[Path, paper.Paper, dict[str, int]]:
    """Return a finished PDF, what it was printed from and the page numbers that it shows."""
    file = built / "out/agentic-rl-en.pdf"
    return file, paper.lay_out(book), pdfcheck.pages_of(PdfReader(file))


def test_a_finished_pdf_has_no_fault(english: Book, built: Path) -> None:
    assert pdfcheck.faults(*laid_out(english, built)) == []


def test_a_wrong_page_number_in_the_contents_is_named(english: Book, built: Path) -> None:
    file, laid, numbers = laid_out(english, built)
    faults = pdfcheck.faults(file, laid, {**numbers, "02-second": 4})
    assert faults == ["the contents show page 4 for “Chapter 2 · The Second”, which is on page 5"]


def test_an_outline_that_is_not_the_contents_is_named(english: Book, built: Path) -> None:
    file, laid, numbers = laid_out(english, built)
    entries = [dataclasses.replace(entry, level=2) if entry.level == 3 else entry for entry in laid.entries]
    (fault,) = pdfcheck.faults(file, dataclasses.replace(laid, entries=entries), numbers)
    assert fault.startswith("the outline has (3, '1.1 Where it begins', 4)")


def test_a_line_of_code_that_cannot_be_read_out_is_named(english: Book, built: Path) -> None:
    file, laid, numbers = laid_out(english, built)
    laid.bodies["01-first"].append(tree.E.span("lost = True\n", {"class": "line"}))
    (fault,) = pdfcheck.faults(file, laid, numbers)
    assert fault.endswith("cannot be read out of the PDF: lost = True")


def remove_page(root: Path) -> None:
    """Leave a page of the site out."""
    (root / "site/en/chapters/02-second.html").unlink()


def make_stale(root: Path) -> None:
    """Make a page's source newer than the page."""
    os.utime(root / "site/en/chapters/02-second.html", (0, 0))


def remove_site(root: Path) -> None:
    """Leave website/ without its list of pages."""
    (root / "website/docs.json").unlink()


@pytest.mark.parametrize("change", [remove_page, make_stale, remove_site])
def test_a_site_that_is_missing_or_stale_is_to_be_built(
    change: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    booksite.write_site(tmp_path)
    change(tmp_path)
    assert build(tmp_path) == SITE_NOT_BUILT
    assert "run make site" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def list_a_number(root: Path) -> str:
    """Put a number among the pages of docs.json; return what is to be said of it."""
    docs = root / "website/docs.json"
    docs.write_text(docs.read_text(encoding="utf-8").replace('"en/chapters/02-second"', "1"), encoding="utf-8")
    return "lists 1 as a page"


def empty_a_page(root: Path) -> str:
    """Leave nothing of a page of the static edition."""
    (root / "site/en/chapters/02-second.html").write_text("\n", encoding="utf-8")
    return "has no <article>"


def put_a_file_at_out(root: Path) -> str:
    """Put a file where the folder of books is to be."""
    (root / "out").touch()
    return "cannot be written: File exists"


def take_java_away(root: Path) -> str:
    """Hide what the EPUB's check needs; the fixture gives it back."""
    return "apt install default-jre-headless"


@pytest.mark.parametrize("change", [list_a_number, empty_a_page, put_a_file_at_out, take_java_away])
def test_what_keeps_a_book_from_being_built_here_is_one_line_and_exit_code_2(
    change: Callable[[Path], str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    booksite.write_site(tmp_path)
    said = change(tmp_path)
    if change is take_java_away:
        monkeypatch.setattr(epubcheck.shutil, "which", lambda _: None)
    assert build(tmp_path, "--format", "epub", "--language", "en") == SITE_NOT_BUILT
    assert said in capsys.readouterr().out


def test_without_a_browser_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(browser, "find_browser", lambda: None)
    with pytest.raises(BookError, match="apt install chromium"), browser.opened(tmp_path / "book.html"):
        pass


def test_without_java_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epubcheck.shutil, "which", lambda _: None)
    with pytest.raises(BookError, match="apt install default-jre-headless"):
        epubcheck.require()


def test_without_its_fonts_the_message_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fonts, "MATHS", tmp_path / "maths.woff2")
    with pytest.raises(BookError, match="npm ci in site/books"):
        fonts.maths()


def mended(inside: str) -> str:
    """Return MathML mended, without the element around it."""
    math = mathml.mend(tree.parse(f"<math><semantics><mrow>{inside}</mrow></semantics></math>"))[0]
    text = tree.as_xml(math)
    return text[text.index(">") + 1 : -len("</math>")].removeprefix("<mrow>").removesuffix("</mrow>")


MENDED = {
    "letters of other alphabets are characters": (
        '<mi mathvariant="script">L</mi><mn mathvariant="bold">1</mn><mi mathvariant="double-struck">R</mi>',
        "<mi>ℒ</mi><mn>𝟏</mn><mi>ℝ</mi>",
    ),
    "typewriter letters are a word": (
        '<mrow><mi mathvariant="monospace">i</mi><mi mathvariant="monospace">d</mi></mrow>',
        '<mtext class="typewriter">id</mtext>',
    ),
    "a prime stands beside its letter": (
        "<msup><mi>s</mi><mo>′</mo></msup>",
        '<mrow><mi>s</mi><mo lspace="0em" rspace="0em">′</mo></mrow>',
    ),
    "a minus after an operator is a sign": (
        "<mi>a</mi><mo>=</mo><mo>−</mo><mi>b</mi>",
        '<mi>a</mi><mo>=</mo><mo form="prefix" lspace="0em" rspace="0em">−</mo><mi>b</mi>',
    ),
    "a function has space before its argument": (
        "<mi>log</mi><mo>\u2061</mo><mi>x</mi>",
        '<mi>log</mi><mo>\u2061</mo><mspace width="0.1667em"/><mi>x</mi>',
    ),
    "a function in an index is one part of it": (
        "<msub><mi>r</mi><mi>max</mi><mo>\u2061</mo></msub>",
        "<msub><mi>r</mi><mi>max</mi></msub>",
    ),
}


@pytest.mark.parametrize("case", MENDED)
def test_mathml_is_mended(case: str) -> None:
    before, after = MENDED[case]
    assert mended(before) == after
