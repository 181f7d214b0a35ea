"""Where numbers in prose may come from, and that near misses do not pass."""

from __future__ import annotations

import ast
import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lintbook import CleanBook
from synthetic import code, md

from bookkit.lint import arithmetic, lint
from bookkit.lint.context import parse_code
from bookkit.lint.numbers import Origins, find, in_code, in_text, mask


def explained(prose: str, output: str) -> bool:
    """Whether every measured number of the prose comes from the output."""
    origins = Origins(in_text(output))
    numbers = [number for number in find(mask(prose)) if number.measured]
    assert numbers, f"no measured number in {prose!r}"
    return all(origins.explain(number) for number in numbers)


SAME = [
    ("0.16", "rate 0.164"),
    ("0.164", "rate 0.164"),
    ("0.2", "rate 0.164"),
    ("0.165", "rate 0.1645"),
    ("16 %", "rate 0.164"),
    ("16%", "rate 0.164"),
    ("16.4 %", "rate 0.164"),
    ("16.4 percent", "rate 0.164"),
    ("16.4 percentage points", "rate 0.164"),
    ("24%", "share 24%"),
    ("24 %", "share 0.24"),
    ("0.24", "share 24%"),
    ("24 %", "share (%)\n  24"),
    ("50 %", "0.5"),
    ("100 %", "1.00"),
    ("70-billion", "70B"),
    ("0.50", "0.5"),
    ("2,000", "2000"),
    ("2000", "2,000"),
    ("8.1K", "8134 tasks"),
    ("8.1K", "8.1K tasks"),
    ("8,100", "8.1K"),
    ("1.5 million", "1500000"),
    ("1.5M", "1,523,000"),
    ("64 GB", "64"),
    ("about 2,000", "1983"),
    ("roughly 1,500", "1,523"),
    ("−0.5", "-0.5"),
    ("0.5", "change -0.5"),
    ("1e-5", "0.00001"),
    ("10⁻⁵", "1e-05"),
    ("1.5 × 10⁻⁵", "1.52e-05"),
    ("95 of 100", "0.95"),
    ("22 turns", "21.7"),
    ("0.3–0.5", "0.3 0.5"),
    ("19 s, 2.4x and 30s", "19 2.4 30"),
]
DIFFERENT = [
    ("0.165", "rate 0.164"),
    ("0.17", "rate 0.164"),
    ("0.1640001", "rate 0.164"),
    ("0.1643", "rate 0.164"),
    ("17 %", "rate 0.164"),
    ("16.5 %", "rate 0.164"),
    ("16.4", "rate 0.164"),
    ("5 %", "5 turns"),
    ("100 %", "1 turn"),
    ("8.0K", "8 turns"),
    ("5 %", "rate 0.5"),
    ("25%", "share 24%"),
    ("2,001", "2000"),
    ("2,000", "1983"),
    ("about 2,000", "1,483"),
    ("8.1K", "8.1 seconds"),
    ("8.2K", "8134"),
    ("1.5M", "1,423,000"),
    ("−0.5", "0.5"),
    ("10⁻⁵", "1e-06"),
    ("10⁻⁵", "10 5"),
    ("96 of 100", "0.95"),
    ("22 turns", "22.7"),
    ("0.3–0.6", "0.3 0.5"),
    ("64 GB", "640"),
]
MEASURED = ["0.5", "1.0", "5 %", "21", "2,000", "2000 episodes", "2048 tokens", "run 2000 times"]
MEASURED += ["of 2016 tasks", "(2016 tasks)", "Claude 2, 41.0", "Llama 41.0%"]
NOT_MEASURED = [
    "See Chapter 12, §12.34, Figure 12.34, Table 12.34, Equation (12.34), Exercise 12.34 and chapters 17 and 19.",
    "Checked on 2026-11-29, on 29 November 2026, in November 2026 and in 2017.",
    "Williams (1992) and others since 2015; Sutton, 1984; from 1999 on.",
    "Python 3.11, Python ≥ 3.11, torch 2.13 and 2.14, nbformat 4.5, version 1.23.4, v2.5 and CC BY 4.0.",
    "arXiv:2310.06770v2 and arXiv 2402.03300, doi:10.1000/182.5",
    "Qwen3-32B, GPT-4.1, SWE-RL-70B, H100, float64, AVX-512, pass@128, #123, the 21st and a 64-bit float.",
    "two of 20 turns, 3 × 4 tools, a grid of 2⁻¹⁶",
    "[@sutton2018] and https://example.org/1234/5.678",
]


@pytest.mark.parametrize(("prose", "output"), SAME)
def test_a_number_comes_from_an_output_up_to_rounding_and_form(prose, output):
    assert explained(prose, output)


@pytest.mark.parametrize(("prose", "output"), DIFFERENT)
def test_a_near_miss_has_no_origin(prose, output):
    assert not explained(prose, output)


@pytest.mark.parametrize("text", NOT_MEASURED)
def test_references_dates_versions_and_names_are_no_measurements(text):
    assert [number.text for number in find(mask(text)) if number.measured] == []


@pytest.mark.parametrize("text", MEASURED)
def test_decimals_percentages_and_counts_are_measurements(text):
    assert [number.measured for number in find(mask(text)) if number.text != "2"] == [True]


@given(st.decimals(min_value=0, max_value=1000, places=6), st.integers(0, 6))
def test_any_rounding_of_an_output_is_explained_and_the_next_value_is_not(value, places):
    shown = f"{value:.{places}f}"
    other = f"{value + 2 * Decimal(10) ** -places:.{places}f}"
    origins = Origins(in_text(f"x {value}"))
    explain = [origins.explain(number) for text in (shown, other) for number in find(text)]
    assert explain == [True, False]


def test_code_counts_by_literals_arithmetic_and_strings_but_not_comments_docstrings_or_formats():
    source = '''
def f(x: float = 0.97) -> str:
    """Return 0.11."""
    rate, grid = 0.135, 2**16 + sum(range(1, 10_001))  # 0.12
    text = "limit 3.75"
    return f"{x:.13f} {grid:0.14}" + text + str(-0.25)
'''
    tree = parse_code(source)
    assert not isinstance(tree, SyntaxError)
    origins = Origins(in_code(list(ast.walk(tree))))
    known = {
        text: origins.explain(next(find(text)))
        for text in ["0.97", "65,536", "3.75", "0.25", "10,000", "0.14", "9,999", "0.11", "0.12", "0.13", "0.14"]
    }
    assert [text for text, explain in known.items() if explain] == ["0.97", "65,536", "3.75", "0.25", "10,000"]


@pytest.mark.parametrize(
    ("latex", "holds"),
    [
        (r"0.97^{20} = 0.544", [True]),
        (r"0.97^{20} \approx 0.54", [True]),
        (r"0.97^{20} = 0.545", [False]),
        (r"\frac{3}{8} = 0.375", [True]),
        (r"\frac{3}{8} = 37.5\%", [True]),
        (r"2^{16} = 65{,}536", [True]),
        (r"p^H = 0.5 \times 0.5 = 0.25 = 0.26", [True, False]),
        (r"1 - 0.95^{2} = 0.0975 \tag{1.1}", [True]),
        (r"x = 3, y = 4", []),
        (r"p = 0.5", []),
        (r"\left(1 - \tfrac{1}{4}\right)^2 = 0.5625", [True]),
        (r"\sqrt{2} \approx 1.414", [True]),
        (r"0.5 \le 0.6", []),
    ],
)
def test_equations_between_numbers_are_computed(latex, holds):
    assert [step.holds for step in arithmetic.steps(latex)] == holds


def test_numbers_in_formulas_are_found():
    def texts(latex: str) -> list[str]:
        return [n.text.strip() for n in arithmetic.numbers(latex) if n.measured]

    assert texts(r"\varepsilon = 0.2, x_{12} < 2^{-16}, n = 2{,}000") == ["0.2", "2,000"]
    assert texts(r"10^{-5} < 1.5 \times 10^{-3}") == [r"10^{-5}", r"1.5 \times 10^{-3}"]
    assert texts(r"\tag{1.23} \text{see 0.5}") == []


def unexplained(book: CleanBook) -> list[str]:
    return [message.split(" has no origin")[0] for message in book.messages("L701")]


def one_with(book: CleanBook, text: str, **metadata) -> list[str]:
    book.prose(text, **metadata)
    return unexplained(book)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("It has 2,294 instances [@paper-a].", []),
        ("It has 2,294 instances.", ["2,294"]),
        ("It has 2,294 instances.\n\nAnd then [@paper-a].", ["2,294"]),
        ("It has 2,293 instances [@paper-a].", ["2,293"]),
        ("| what | n |\n|---|---|\n| tasks [@paper-a] | 2,294 |\n| more | 2,294 |", ["2,294"]),
        ("From [@paper-a]:\n\n| what | n |\n|---|---|\n| tasks | 2,294 |", []),
        ("| what | n |\n|---|---|\n| tasks | 2,294 |\n\nSource: [@paper-a].", []),
        ("As reported [@paper-a]:\n\n- 2,294 instances\n- 1.96%", []),
        ("**Reported** [@paper-a]: 1.96% and 16.4%.", ["16.4%"]),
        ("All of this section is **Reported**.\n\nIt is 16.4% [@paper-a].\n\nOurs is 16.4%.", ["16.4%"]),
        ("| rate (%) |\n|---|\n| 16.4 |\n| 16.5 |", ["16.5"]),
        ("The rate is `0.164`, not `0.165`, by `f(0.999)`.", ["0.165"]),
        ("```\n0.999\n```", []),
        ("The rate is $p = 0.164$ and not $p = 0.165$.", ["0.165"]),
        ("So $0.9 \\cdot 0.9 = 0.81$, and 0.81 it is.", ["0.9", "0.9"]),
        ("Figure 1.1 ends at 0.73.", []),
        ("Figure 1.1 ends at 0.74.", ["0.74"]),
        ("It ends at 0.731.", ["0.731"]),
        ("## 1.2 The 37 steps", ["37"]),
        ("![A loop whose accuracy rises to 0.99 at the end](../figures/ch01-loop.svg)", ["0.99"]),
        ("By Equation (1.1), that is (1.1), and not (1.7).", ["1.7"]),
    ],
)
def test_origins_depend_on_the_paragraph(text, missing, tmp_path):
    assert one_with(CleanBook(tmp_path), text) == missing


def test_a_caption_and_alternative_text_draw_on_the_figures_data_and_citations(tmp_path):
    book = CleanBook(tmp_path)
    image = "![A curve that rises from 0.1 to 0.73 and a bar for 2,294 instances](../figures/ch01-loop.svg)"
    book.cell("figure")["source"] = image + "\n\n**Figure 1.1.** It ends at 0.731, of 2,294 [@paper-a]."
    assert unexplained(book) == []
    book.files["figures/data/loop-1.json"] = json.dumps({"curve": [0.1, 0.7412]})
    assert sorted(unexplained(book)) == ["0.73", "0.731"]


def test_a_paragraph_that_names_a_chapter_may_quote_it(tmp_path):
    book = CleanBook(tmp_path)
    book.insert("use", [code("more", "print(0.333)", "0.333\n"), md("so", "It prints.")])
    book.prose("Chapter 1 found 0.333.\n\nIt found 0.333.", "02-intro-2")
    assert book.found("L701") == [("reading", 3)]


def test_exercises_and_solutions_share_their_numbers(tmp_path):
    book = CleanBook(tmp_path)
    book.replace("exercise-7", "0.75", "0.35")
    assert unexplained(book) == ["0.35"]
    book.replace("answer-1", "2 * x", "0.35 * x", "solutions/01-intro-1")
    assert unexplained(book) == []
    book.prose("In the text it is 0.35.")
    assert book.found("L701") == [("reading", 1)]
    book.prose("Nothing.")
    book.replace("solution-3", "It is", "It is 0.164 and 0.35 and 0.77,", "solutions/01-intro-1")
    assert unexplained(book) == ["0.77"]


def test_a_note_in_the_cell_explains_a_derived_number_and_is_counted(tmp_path):
    book = CleanBook(tmp_path)
    book.prose(
        "It is 0.328, and 10,000 in all.", numbers={"0.328": "twice the 0.164 above", "10,000": "a made-up count"}
    )
    assert book.problems("7") == []
    tally = lint(book.write()).tally
    assert (tally.noted, tally.unexplained) == (2, 0)


def test_comments_in_code_and_other_code_spans_are_no_origin(tmp_path):
    book = CleanBook(tmp_path)
    book.cell("measure")["source"] += "  # 0.777"
    assert one_with(book, "It is 0.777, as `x = 0.777` says.\n\n```\n0.777\n```") == ["0.777"]


def test_the_sources_section_draws_on_the_references(tmp_path):
    book = CleanBook(tmp_path)
    book.files["sources.md"] = book.files["sources.md"].replace("A paper. 2024.", "A paper. 2024. Pages 229 to 256.")
    book.replace("sources", "2024.", "2024. Pages 229 to 256.")
    assert unexplained(book) == []
    assert one_with(book, "It has 229 pages [@paper-a].") == ["229"]


def test_the_finding_names_the_sentence(tmp_path):
    book = CleanBook(tmp_path)
    book.prose("First. Then 0.777 came\nof it. Last.")
    assert book.messages("L701") == ["0.777 has no origin: “Then 0.777 came of it.”"]
