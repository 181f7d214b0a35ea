"""The static edition in a real Chromium, over file://: what a reader sees, searches, folds out, copies and prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote

import browsing
import pytest
from browsing import (
    ROOT,
    Look,
    Theme,
    address,
    first_theme,
    look,
    opened,
    pages,
    planted,
    shown_theme,
    tab_stops,
    violations,
)
from playwright.sync_api import Browser, Page, expect, sync_playwright
from pypdf import PdfReader

from bookkit.notebook import Kind, load_chapter

pytestmark = pytest.mark.slow

LANGUAGES = ("en", "zh")
CHAPTER = "chapters/01-introduction"
EXAMPLES = {
    "index": "en/index",
    "index in Chinese": "zh/index",
    "chapter": f"en/{CHAPTER}",
    "chapter translated": f"zh/{CHAPTER}",
    "chapter with tables and figures, not translated": "zh/chapters/09-grpo-and-variants",
    "sources": "en/reference/sources",
    "editorial guide": "en/reference/editorial-guide",
}
A4 = 658  # the pixels between margins of 18 mm
THEMES: tuple[Theme, ...] = ("light", "dark")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    browsing.site()
    with sync_playwright() as playwright, browsing.chromium(playwright) as started:
        yield started


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """The page that most tests use one after another: a wide window with light colours."""
    with browsing.window(browser) as empty:
        yield empty


@pytest.fixture(scope="module")
def survey(tab: Page) -> dict[str, Look]:
    """Every page of the site, looked at once."""
    return {name: look(tab, address(name)) for language in LANGUAGES for name in pages(language)}


@pytest.fixture
def page(tab: Page) -> Iterator[Page]:
    """A wide window with light colours in which nothing may go wrong."""
    with browsing.cleared(tab), browsing.listening(tab) as heard:
        yield tab
        assert not heard, heard


# Every page


@pytest.mark.parametrize("kind", browsing.KINDS)
def test_no_page_has_a_fault_of_this_kind(survey: dict[str, Look], kind: str) -> None:
    found = {name: seen.faults[kind] for name, seen in survey.items() if seen.faults[kind]}
    assert found == {}


def test_every_link_on_disk_leads_to_a_file_and_to_an_id_in_it(survey: dict[str, Look]) -> None:
    ids = {address(name): {"", "text", *seen.facts["ids"]} for name, seen in survey.items()}
    dead = {
        f"{name}: {link}"
        for name, seen in survey.items()
        for link, _, anchor in (link.partition("#") for link in seen.facts["links"])
        if link.startswith("file:") and anchor not in ids.get(link, set())
    }
    assert dead == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_previous_and_next_go_through_every_page_in_the_order_of_the_book(
    survey: dict[str, Look], language: str
) -> None:
    order = [None, *map(address, pages(language)), None]
    for before, here, after in zip(order, pages(language), order[2:], strict=False):
        assert (survey[here].facts["previous"], survey[here].facts["next"]) == (before, after), here


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_sidebar_lists_every_page_and_marks_the_one_that_is_open(survey: dict[str, Look], language: str) -> None:
    for name in pages(language):
        facts = survey[name].facts
        assert facts["chapters"] == [address(other) for other in pages(language)], name
        assert facts["current"] == [address(name)], name


def test_ids_are_the_same_in_both_languages(survey: dict[str, Look]) -> None:
    for name in pages("en"):
        assert survey[name].facts["ids"] == survey[name.replace("en/", "zh/", 1)].facts["ids"], name


def test_the_contents_of_a_page_are_its_headings(survey: dict[str, Look]) -> None:
    for name, seen in survey.items():
        assert seen.facts["contents"] == seen.facts["headings"], name


def test_each_page_says_in_which_language_it_is(survey: dict[str, Look]) -> None:
    assert {seen.facts["language"] for name, seen in survey.items() if name.startswith("en/")} == {"en"}
    assert {seen.facts["language"] for name, seen in survey.items() if name.startswith("zh/")} == {"zh-Hans"}


# Getting about


@pytest.mark.parametrize(("locale", "language"), [("en-GB", "en"), ("zh-CN", "zh"), ("zh-TW", "zh"), ("fr-FR", "en")])
def test_the_first_page_leads_to_the_book_in_the_readers_language(browser: Browser, locale: str, language: str) -> None:
    with opened(browser, locale=locale) as page:
        page.goto((browsing.SITE / "index.html").as_uri())
        page.wait_for_url(address(f"{language}/index"))


def test_a_reader_gets_to_a_chapter_by_the_sidebar_and_on_by_next(page: Page) -> None:
    page.goto(address("en/index"))
    page.locator("#chapters").get_by_role("link", name="What Is Agentic").click()
    expect(page).to_have_url(address(f"en/{CHAPTER}"))
    page.get_by_role("link", name="Next").click()
    assert page.url == address(pages("en")[pages("en").index(f"en/{CHAPTER}") + 1])
    page.get_by_role("link", name="Previous").click()
    expect(page).to_have_url(address(f"en/{CHAPTER}"))


def test_the_contents_lead_to_a_section(page: Page) -> None:
    page.goto(address(f"en/{CHAPTER}"))
    page.locator("#contents").get_by_role("link", name="1.4").first.click()
    expect(page).to_have_url(address(f"en/{CHAPTER}") + "#sec-1-4")
    expect(page.locator("#sec-1-4")).to_be_in_viewport()


def test_the_other_language_is_one_click_away_at_the_same_section_and_so_is_the_way_back(page: Page) -> None:
    page.goto(address(f"en/{CHAPTER}") + "#sec-1-3")
    for language, other in (("zh", "中文"), ("en", "English")):
        page.locator(".languages").get_by_role("link", name=other).click()
        expect(page).to_have_url(address(f"{language}/{CHAPTER}") + "#sec-1-3")
        expect(page.locator("#sec-1-3")).to_be_in_viewport()


def test_the_first_page_remembers_the_language_that_was_chosen(page: Page) -> None:
    page.goto(address("en/index"))
    page.locator(".languages").get_by_role("link", name="中文").click()
    page.wait_for_url(address("zh/index"))
    page.goto((browsing.SITE / "index.html").as_uri())
    page.wait_for_url(address("zh/index"))


def test_on_a_phone_the_chapters_and_the_contents_are_behind_buttons(browser: Browser) -> None:
    with opened(browser, width=390) as page:
        page.goto(address(f"en/{CHAPTER}"))
        for button, menu in (("Chapters", "#chapters"), ("On this page", "#contents")):
            expect(page.locator(menu)).to_be_hidden()
            page.get_by_role("button", name=button).click()
            expect(page.locator(menu)).to_be_visible()
            page.keyboard.press("Escape")
            expect(page.locator(menu)).to_be_hidden()
        page.get_by_role("button", name="On this page").click()
        page.locator("#contents").get_by_role("link", name="1.3").first.click()
        expect(page.locator("#sec-1-3")).to_be_in_viewport()
        expect(page.locator("#contents")).to_be_hidden()


# Search


def search(page: Page, language: str, query: str) -> list[str]:
    """Return the hits that a page of this language shows for a query."""
    page.goto(address(f"{language}/index"))
    page.locator("#search").fill(query)
    expect(page.locator("#hits, [role=status]").filter(has_text=re.compile(r"\S")).first).to_be_visible()
    return page.locator("#hits [role=option]").all_inner_texts()


@pytest.mark.parametrize(
    ("language", "query"),
    [
        *[("en", query) for query in ("mean baseline", "BASELINE Mean", "retokenisation", "run_tests")],
        *[("zh", query) for query in ("奖励投机", "基线", "奖", "均值 基线", "token 掩码", "run_tests")],
    ],
)
def test_a_hit_leads_to_a_section_in_which_all_the_words_stand(page: Page, language: str, query: str) -> None:
    assert search(page, language, query)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"\.html#."))
    anchor = unquote(page.url.partition("#")[2])
    expect(page.locator(f"[id='{anchor}']")).to_be_in_viewport()
    text = page.evaluate("(id) => inPage.section(id)", anchor).casefold()
    assert all(word in text for word in query.casefold().split())


def test_a_search_for_what_is_not_there_says_so(page: Page) -> None:
    assert search(page, "en", "xyzzy baseline") == []
    expect(page.locator(".search")).to_contain_text("Nothing found for")
    assert search(page, "zh", "没有这样的词语") == []
    expect(page.locator(".search")).to_contain_text("没有找到")


def test_a_query_is_text_and_never_markup(page: Page) -> None:
    for query in ("<img src=x onerror=alert(1)>", "</p><script>alert(1)</script>", "&lt;b&gt;", "[", "\\", "(.*"):
        search(page, "en", query)
        assert page.locator(".search img, .search script").count() == 0
        assert page.locator("#search").input_value() == query


def test_search_goes_by_the_keyboard_alone(page: Page) -> None:
    page.goto(address(f"en/{CHAPTER}"))
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("baseline")
    options = page.locator("#hits [role=option]")
    expect(options.nth(2)).to_be_visible()
    marked = page.locator("#hits [role=option][aria-selected=true]")
    for key, place in (("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1)):
        page.keyboard.press(key)
        expect(marked).to_have_text(options.nth(place).inner_text(), use_inner_text=True)
    page.keyboard.press("Escape")
    expect(page.locator("#hits")).to_be_hidden()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") != "search"


# Light and dark


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_colours_are_those_that_the_system_asks_for(browser: Browser, theme: Theme) -> None:
    with opened(browser, theme=theme) as page:
        page.goto(address("en/index"))
        assert shown_theme(page) == theme


@pytest.mark.parametrize(("system", "chosen"), [("light", "dark"), ("dark", "light")])
def test_a_chosen_theme_holds_on_all_pages_and_no_frame_has_the_other(
    browser: Browser, system: Theme, chosen: Theme
) -> None:
    with opened(browser, theme=system) as page:
        page.goto(address("en/index"))
        button = page.get_by_role("button", name="Dark mode")
        button.click()
        assert shown_theme(page) == chosen
        assert button.get_attribute("aria-pressed") == str(chosen == "dark").lower()
        for name in (f"en/{CHAPTER}", f"zh/{CHAPTER}"):
            page.goto(address(name))
            assert first_theme(page) == shown_theme(page) == chosen
            assert page.evaluate(f"inPage.figures('{chosen}')") == []


# Code and solutions


@pytest.mark.parametrize("language", LANGUAGES)
def test_copy_gives_the_code_of_each_cell_as_the_notebook_has_it(page: Page, language: str) -> None:
    page.goto(address(f"{language}/{CHAPTER}"))
    assert page.evaluate("inPage.copies()") == code_cells()


def code_cells() -> dict[str, str]:
    """Return the code of the chapter and of its solutions by the ids that it has on the page."""
    kinds: list[tuple[str, str, Kind]] = [("cell", "chapters", "chapter"), ("sol", "chapters/solutions", "solutions")]
    found = {}
    for where, folder, kind in kinds:
        notebook = load_chapter(ROOT / folder / f"{Path(CHAPTER).name}.ipynb", ROOT, kind)
        found |= {f"{where}-{cell.id}": cell.source for cell in notebook.cells if cell.is_code}
    return found


def test_the_copy_button_writes_to_the_clipboard_and_says_so(browser: Browser) -> None:
    with opened(browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto(address(f"en/{CHAPTER}"))
        block = page.locator("#cell-clamp-tests figure.code")
        block.hover()
        block.get_by_role("button").click()
        expect(block).to_contain_text("Copied")
        assert "CLAMP_TESTS = {" in page.evaluate("navigator.clipboard.readText()")


def test_an_output_has_no_copy_button(page: Page) -> None:
    page.goto(address(f"en/{CHAPTER}"))
    assert page.locator("main figure.output").count() > 5
    assert page.locator("main figure.output button").count() == 0


def test_a_solution_is_folded_until_it_is_clicked(page: Page) -> None:
    page.goto(address(f"en/{CHAPTER}"))
    assert page.locator("details.accordion[open]").count() == 0
    first = page.locator("details.accordion").first
    expect(first.locator(".inside")).to_be_hidden()
    first.locator("summary").click()
    expect(first.locator(".inside")).to_be_visible()


@pytest.mark.parametrize("by", ["address", "link"])
def test_a_link_to_something_in_a_solution_opens_it(page: Page, by: str) -> None:
    ident = [*code_cells()][-1]
    page.goto(address(f"en/{CHAPTER}") + (f"#{ident}" if by == "address" else ""))
    if by == "link":
        page.evaluate("(id) => { location.hash = id; }", ident)
    target = page.locator(f"[id='{ident}']")
    expect(target).to_be_visible()
    expect(target).to_be_in_viewport()
    assert page.locator("details.accordion[open]").count() == 1


# Paper


WIDE_TEXT_AND_CUT_FORMULAS = """async () => {
  document.querySelectorAll('details').forEach((each) => { each.open = true; });
  await document.fonts.ready;
  const formulas = [...document.querySelectorAll('.katex-display')];
  const text = [...document.querySelectorAll('.prose p:not(:has(img))')];
  return {
    formulas: formulas.length,
    cut: formulas.filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.textContent),
    wide: text.filter((box) => box.clientWidth > 44 * 16).map((box) => box.textContent),
  };
}"""


def test_in_a_wide_window_no_formula_is_cut_and_no_line_of_text_too_long(browser: Browser) -> None:
    formulas = 0
    with opened(browser, width=1680) as page:
        for name in pages("en"):
            page.goto(address(name))
            found = page.evaluate(WIDE_TEXT_AND_CUT_FORMULAS)
            assert (found["cut"], found["wide"]) == ([], []), name
            formulas += found["formulas"]
    assert formulas


def test_on_paper_the_solutions_are_open_the_colours_light_and_the_menus_gone(browser: Browser) -> None:
    with opened(browser, theme="dark") as page:
        page.goto(address(f"en/{CHAPTER}"))
        assert shown_theme(page) == "dark"
        page.emulate_media(media="print", color_scheme="dark")
        assert shown_theme(page) == "light"
        assert page.evaluate("inPage.figures('light')") == []
        for part in ("#chapters", "#contents", "header.bar", ".previous-next"):
            expect(page.locator(part)).to_be_hidden()
        sheets = PdfReader(BytesIO(page.pdf(format="A4"))).pages
        printed = "".join("".join(sheet.extract_text() for sheet in sheets).split())
        # Longer lines are broken, and the text of a PDF does not always join their parts.
        lines = [line for source in code_cells().values() for line in source.splitlines() if len(line) <= 60]
        assert [line for line in lines if "".join(line.split()) not in printed] == []


def test_on_paper_nothing_is_cut(browser: Browser) -> None:
    with opened(browser, width=A4) as page:
        page.emulate_media(media="print")
        page.goto(address("zh/chapters/09-grpo-and-variants"))
        assert page.evaluate("inPage.overflow()") == []
        assert page.evaluate("inPage.scrollers()") == []


# Keyboard and screen readers


def test_the_first_stop_leads_past_the_menus_to_the_text(page: Page) -> None:
    page.goto(address(f"en/{CHAPTER}"))
    page.keyboard.press("Tab")
    expect(page.locator("a.skip")).to_be_focused()
    assert page.evaluate("inPage.focus()")["faults"] == []
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


@pytest.mark.parametrize(("name", "width"), [("en/index", 1360), ("zh/reference/editorial-guide", 390)])
def test_tab_goes_through_the_whole_page_in_its_order_and_the_focus_is_seen(
    browser: Browser, name: str, width: int
) -> None:
    with opened(browser, width=width) as page:
        page.goto(address(name))
        stops = list(tab_stops(page))
        assert [stop["faults"] for stop in stops if stop["faults"]] == []
        places = [stop["place"] for stop in stops]
        assert places == sorted(set(places))
        assert set(page.evaluate("inPage.tabbable()")) <= set(places)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_axe_finds_no_violation_of_wcag_a_and_aa(browser: Browser, kind: str) -> None:
    found = {}
    with opened(browser) as page:
        page.goto(address(EXAMPLES[kind]))
        page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        for width in (1360, 390):
            page.set_viewport_size({"width": width, "height": browsing.HEIGHT})
            for theme in THEMES:
                found[width, theme] = violations(page, theme)
    assert {case: faults for case, faults in found.items() if faults} == {}


def test_without_scripts_the_book_reads_and_leads_on(browser: Browser) -> None:
    with opened(browser, java_script_enabled=False) as page:
        page.goto((browsing.SITE / "index.html").as_uri())
        page.get_by_role("link", name="English").click()
        page.locator("#chapters").get_by_role("link", name="What Is Agentic").click()
        expect(page.locator("h1")).to_contain_text("What Is Agentic Reinforcement Learning?")
        expect(page.locator("main .katex").first).to_be_visible()
        expect(page.locator("main img[src$='-light.svg']").first).to_be_visible()
        expect(page.locator("main img[src$='-dark.svg']").first).to_be_hidden()
        for unusable in ("#search", "button.theme", "main figure.code button"):
            expect(page.locator(unusable).first).to_be_hidden()
        page.locator("details.accordion summary").first.click()
        expect(page.locator("details.accordion .inside").first).to_be_visible()
        page.locator(".languages a").click()
        expect(page.locator("h1")).to_contain_text("智能体强化学习")


# Each of these checks can fail

IN_HEAD, IN_TEXT = "</head>", "</article>"
PLANTED = {
    "an image that is not there": ("images", "-light.svg", "-lost.svg"),
    "an image from elsewhere": ("heard", IN_TEXT, '<img src="https://example.org/x.png" alt="x">'),
    "a script that fails": ("heard", IN_TEXT, "<script>nothing.here()</script>"),
    "a style sheet that is not there": ("heard", "/print.css", "/lost.css"),
    "a font that is not there": (
        "fonts",
        IN_HEAD,
        "<style>@font-face { font-family: KaTeX_Math; font-style: italic; src: url(lost.woff2) }</style>",
    ),
    "formulas without their style sheet": ("fonts", "katex/katex.css", "assets/print.css"),
    "a formula that is red": ("formulaColours", 'class="katex"', 'class="katex" style="color: red"'),
    "a table that is too wide": ("overflow", IN_TEXT, "<table style='width: 1700px'><tr><td>wide</table>"),
    "text that is cut": (
        "overflow",
        IN_TEXT,
        "<p style='overflow: hidden; white-space: nowrap; width: 4em'>much of this is cut</p>",
    ),
    "text left of the window": ("overflow", IN_TEXT, "<p style='position: relative; left: -2000px'>left</p>"),
    "equation numbers out of sight": (
        "equationNumbers",
        IN_HEAD,
        "<style>.katex-html > .tag { transform: translateX(900px) }</style>",
    ),
    "a line that begins with a comma": (
        "punctuation",
        IN_HEAD,
        "<style>.prose .together, .prose .together .katex { white-space: normal !important }</style>",
    ),
    "a formula that falls apart": (
        "baselines",
        IN_HEAD,
        "<style>.base:first-of-type { position: relative; top: 4px }</style>",
    ),
    "code that is pale": ("theme", IN_HEAD, "<style>pre span { color: #888 !important }</style>"),
    "an id that stands twice": ("doubleIds", IN_TEXT, '<i id="sec-1-1"></i><i id="sec-1-1"></i>'),
    "a light figure in dark mode": ("theme", IN_HEAD, "<style>main img { display: block !important }</style>"),
    "paper that stays white": ("theme", IN_HEAD, "<style>html, body { background: white !important }</style>"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_by_its_check(tab: Page, survey: dict[str, Look], fault: str) -> None:
    kind, before, after = PLANTED[fault]
    name = f"en/{CHAPTER}"
    with browsing.cleared(tab):
        planted(tab, address(name), before, after + before if before in (IN_HEAD, IN_TEXT) else after)
        found = look(tab, address(name), [kind]).faults[kind]
    assert set(found) - set(survey[name].faults[kind])


@pytest.mark.parametrize(
    ("markup", "rule"),
    [("<p style='color: #aaa; background: #fff'>pale</p>", "color-contrast"), ("<button></button>", "button-name")],
)
def test_axe_finds_a_planted_violation(page: Page, markup: str, rule: str) -> None:
    planted(page, address("en/index"), IN_TEXT, markup + IN_TEXT)
    page.goto(address("en/index"))
    assert any(fault.startswith(rule) for fault in violations(page, "light"))


def test_a_focus_without_a_mark_is_found(page: Page) -> None:
    style = "<style>* { outline: none !important; box-shadow: none !important }</style>"
    planted(page, address("en/index"), IN_HEAD, style + IN_HEAD)
    page.goto(address("en/index"))
    assert "no mark of its focus" in next(tab_stops(page))["faults"][0]


def test_a_trap_for_the_keyboard_is_found(page: Page) -> None:
    trap = "<button onkeydown='event.preventDefault()'>trap</button>"
    planted(page, address("en/index"), IN_TEXT, trap + IN_TEXT)
    page.goto(address("en/index"))
    with pytest.raises(AssertionError, match="does not come to the end"):
        list(tab_stops(page, most=300))


def test_a_theme_that_comes_after_the_first_frame_is_found(page: Page) -> None:
    page.goto(address("en/index"))
    page.get_by_role("button", name="Dark mode").click()
    later = f"en/{CHAPTER}"
    planted(
        page,
        address(later),
        IN_HEAD,
        "<style>@keyframes late { 0%, 99% { background: white } } body { animation: late 1s }</style>" + IN_HEAD,
    )
    page.goto(address(later))
    assert first_theme(page) == "light"


def test_code_that_is_copied_with_a_change_is_found(page: Page) -> None:
    planted(page, address(f"en/{CHAPTER}"), "CLAMP_ISSUE", "CLAMP_OTHER")
    page.goto(address(f"en/{CHAPTER}"))
    assert page.evaluate("inPage.copies()") != code_cells()
