"""Numbers in prose in two languages, and the mutants of the real translation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bookkit.translation.compare import compare
from bookkit.translation.numbers import chinese_values, differences, in_chinese_words, in_digits, in_english_words
from bookkit.translation.pair import Edition, Pair

ROOT = Path(__file__).resolve().parent.parent
LARGE = 10**12 - 1


def spelled(number: int) -> str:
    """Return a number in Chinese, in full."""
    digits, units = "零一二三四五六七八九", ((10**8, "亿"), (10**4, "万"), (1000, "千"), (100, "百"), (10, "十"))
    if number < 10:
        return digits[number]
    for value, unit in units:
        if number >= value:
            rest = number % value
            gap = "零" if 0 < rest < value // 10 else ""
            return f"{spelled(number // value)}{unit}{gap}{spelled(rest) if rest else ''}"
    raise AssertionError(number)


def english(number: int) -> str:
    """Return a number below a million in English, without `and`."""
    small = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    small += " seventeen eighteen nineteen"
    tens = "twenty thirty forty fifty sixty seventy eighty ninety"
    if number < 20:
        return small.split()[number]
    ten = tens.split()[number // 10 - 2]
    return ten if number % 10 == 0 else f"{ten}-{small.split()[number % 10]}"


@given(st.integers(1, LARGE))
def test_a_numeral_says_the_number_that_it_spells(number):
    assert chinese_values(spelled(number)) == [number]


@given(st.integers(3, 99), st.sampled_from(["", " hundred", " thousand", " hundred thousand", " million"]))
def test_an_english_number_is_read_as_one(number, scale):
    factor = {"": 1, " hundred": 100, " thousand": 1000, " hundred thousand": 10**5, " million": 10**6}[scale]
    assert list(in_english_words(f"Of {english(number)}{scale} words, some.")) == [number * factor]


@given(st.integers(0, LARGE), st.booleans(), st.sampled_from(["", "%", "K"]), st.sampled_from(["", "−"]))
def test_a_number_in_digits_is_the_same_with_and_without_separators(number, separated, end, sign):
    text = f"{number:,}" if separated else str(number)
    (found,) = in_digits(f"It is {sign}{text}{end} here.")
    assert found.value == ("-" if sign else "") + str(number) + end.removesuffix("%")
    assert found.percent == (end == "%")


@given(st.lists(st.integers(0, 9999), max_size=5), st.randoms())
def test_the_same_numbers_in_any_order_do_not_differ(numbers, random):
    shuffled = random.sample(numbers, len(numbers))
    theirs, ours = ("，".join(f"有 {n} 个" for n in each) for each in (numbers, shuffled))
    assert differences(theirs, ours) == ()


@given(st.lists(st.integers(0, 9999), min_size=1, max_size=5), st.integers(0, 4), st.integers(0, 9999))
def test_one_number_that_is_another_makes_a_difference(numbers, at, other):
    at %= len(numbers)
    assume(numbers[at] != other)
    changed = [*numbers[:at], other, *numbers[at + 1 :]]
    theirs, ours = ("，".join(f"有 {n} 个" for n in each) for each in (numbers, changed))
    assert differences(theirs, ours) != ()


@given(st.integers(3, 99), st.integers(3, 99))
def test_a_word_is_a_digit_or_a_numeral_of_the_same_value(number, other):
    text = f"Here are {english(number)} words."
    assert differences(text, f"这里有 {number} 个词。") == ()
    assert differences(text, f"这里有{spelled(number)}个词。") == ()
    if number != other:
        assert differences(text, f"这里有 {other} 个词。") != ()
        assert differences(text, f"这里有{spelled(other)}个词。") != ()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("one hundred-thousandth", [100_000]),
        ("five thousandths of it", [5, 1000]),
        ("three quarters", [3, 4]),
        ("a third, two fifths", [3, 5]),
        ("hundreds of them, many thousands", []),
        ("twenty-one chapters, numbered", [21]),
        ("II. Environments", []),
        ("IV. Rewards", [4]),
        ("one or two, the first and the second", []),
        ("anyone, tenure, often, seventh", [7]),
    ],
)
def test_english_words_are_numbers_where_they_are(text, values):
    assert sorted(in_english_words(text)) == sorted(values)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("十万分之一", [100_000]),
        ("千分之五", [1000, 5]),
        ("四分之三", [4, 3]),
        ("数百个、几千个、成千上万、十几个", []),
        ("二十一章", [21]),
        ("四舍五入，十分好，百分比，万一", []),
        ("十分之九", [10, 9]),
        ("三四个", [3, 4]),
        ("第三、第五", [3, 5]),
        ("两万三千", [23_000]),
        ("一亿零五", [100_000_005]),
    ],
)
def test_chinese_numerals_are_numbers_where_they_are(text, values):
    assert sorted(value for value, _ in in_chinese_words(text)) == sorted(values)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("42 to 43%", "42% 到 43%"),
        ("42% to 43%", "42% 至 43%"),
        ("on 2026-11-29", "2026 年 11 月 29 日"),
        ("a 20-turn task, the 3rd", "20 轮的任务，第 3 个"),
        ("Float32 differs", "float32 不同，float32 的结果"),
        ("both runs", "两次运行"),
        ("two runs", "2 次运行"),
        ("it was zero", "它是 0"),
    ],
)
def test_what_says_the_same_does_not_differ(theirs, ours):
    assert differences(theirs, ours) == ()


@pytest.mark.parametrize(
    ("theirs", "ours", "message"),
    [
        ("1%", "1", "1 is 1% in English"),
        ("1 and 2%", "1 个，再加 2%", "1 is 1% in English"),
        ("1 of 2", "1% 与 2", "1% is no percentage in English"),
        ("−1", "1", "the number 1 is not in the English text"),
        ("8.1K", "8.1", "the number 8.1 is not in the English text"),
        ("1.10", "1.1", "the number 1.1 is not in the English text"),
        ("float32", "float64", "the number float64 is not in the English text"),
        ("2,294 of two", "2,2294 与两", "the number 2,2294 is not in the English text"),
        ("float32", "float32%", "the number float32% is not in the English text"),
        ("a run", "两次运行", "两 here, and English has no two"),
        ("two runs", "一次运行", "English says two or twice here"),
    ],
)
def test_what_says_something_else_differs(theirs, ours, message):
    assert message in [difference.message for difference in differences(theirs, ours)]


# The real translation


MUTATIONS = {
    "number": (r"\d+", lambda text: text[:-1] + str((int(text[-1]) + 1) % 10)),
    "numeral": ("[三四五六七八九十百千万](?!进制|舍|入)", lambda text: "五" if text != "五" else "六"),
    "percent": (r"(?<=\d)%", lambda _: ""),
    "formula": (r"\$\$?[^$]+\$\$?", lambda text: text.replace("$", "$x", 1) if text[:2] != "$$" else "$$x" + text[2:]),
    "formula lost": (r"(?<!\$)\$[^$]+\$(?!\$)", lambda _: ""),
    "code": (r"`[^`\n]+`", lambda text: text[:-1] + "x`"),
    "code lost": (r"(?<!`)`[^`\n]+`(?!`)", lambda _: ""),
    "link": (r"(?<=\]\()[^)]+", lambda text: "x" + text),
    "citation": (r"\[@[^\]]*\]", lambda text: text[:-1] + "x]"),
    "citation lost": (r"\[@[^\]]*\]", lambda _: ""),
    "grade": ("★", lambda _: ""),
    "heading": ("(?m)^#+ ", lambda text: "#" + text),
    "row or item": (r"(?m)^(?:\||- |\d+\. ).*\n", lambda _: ""),
    "code fence": (r"(?m)^```\w*$", lambda text: text + "x"),
}


def mutants(source: str) -> Iterator[tuple[str, int, str]]:
    """Yield every text that differs from this one in one number, formula, piece of code, link, citation or line."""
    for name, (pattern, change) in MUTATIONS.items():
        for match in re.finditer(pattern, source):
            mutant = source[: match.start()] + change(match[0]) + source[match.end() :]
            if mutant != source:
                yield name, match.start(), mutant


def mutated(pair: Pair, cell_id: str, source: str) -> Pair:
    """Return the pair with another text in one cell of the translation."""
    assert pair.chinese is not None
    cells = tuple(replace(cell, source=source) if cell.id == cell_id else cell for cell in pair.chinese.cells)
    return Pair(pair.english, pair.path, replace(pair.chinese, cells=cells), pair.complete)


@pytest.mark.parametrize("label", ["00", "00/solutions", "01", "01/solutions"])
def test_every_mutant_of_the_translation_is_caught(label):
    edition = Edition.load(ROOT)
    pair = edition.pair(label)
    assert pair is not None
    if pair.chinese is None:
        pytest.skip(f"{label} is not translated")
    tried, alive = 0, []
    for cell in pair.english.cells:
        if cell.is_code or not pair.is_translated(cell.id):
            continue
        known = set(compare(edition, pair, cell))
        every = mutants(pair.cells[cell.id].source)
        for name, at, mutant in islice(every, 0, None, 5 if label == "00" else 1):  # its tables are large
            tried += 1
            if not set(compare(edition, mutated(pair, cell.id, mutant), cell)) - known:
                alive.append((name, cell.id, pair.cells[cell.id].source[max(0, at - 10) : at + 10]))
    assert alive == []
    assert tried > 100
