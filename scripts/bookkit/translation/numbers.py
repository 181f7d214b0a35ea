"""Numbers in prose, in digits or in words, in English and in Chinese, and where the two differ.

Digits stay digits. A number that English writes as a word, from three up, stands in the Chinese text as a digit or a
numeral, as often as in English; one and two are used too freely in both languages for counting them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

SIGNED = r"(?P<sign>(?<![\w)\]\ufffc.%])[−-])?"
DIGITS = re.compile(
    r"[A-Za-z]+\d[A-Za-z0-9]*%?"  # a name with digits in it: float32, H100
    rf"|{SIGNED}(?P<number>\d+(?:,\d{{3,}})+|\d+)(?P<rest>(?:\.\d+)*)(?P<unit>[A-Za-z]*)(?P<percent>%)?",
    re.ASCII,
)
THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+", re.ASCII)
UNITS = frozenset("KMBTk")
RANGE = re.compile(r" ?(?:to|and|or|到|至|和|或|[-–~～]) ?")

ONES = {"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9}
TEENS = {"ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16}
TEENS |= {"seventeen": 17, "eighteen": 18, "nineteen": 19}
TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
ORDINALS = {"third": 3, "fifth": 5, "eighth": 8, "ninth": 9, "twelfth": 12, "twentieth": 20, "thirtieth": 30}
ORDINALS |= {f"{word}th": value for word, value in (ONES | TEENS).items() if value > 3 and value != 8}
SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
OTHER = {"quarter": 4, "quarters": 4, "dozen": 12, "triple": 3, "threefold": 3, "tenfold": 10}
LAST = ORDINALS | {f"{word}s": value for word, value in ORDINALS.items()} | OTHER
VALUES = ONES | TEENS | TENS | LAST


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


SCALE = rf"(?:{_any(SCALES)})(?:ths?)?"
ENGLISH = re.compile(  # ninety-five, ten thousand, one hundred-thousandth, a third; not hundreds
    rf"(?<![A-Za-z])(?:(?P<tens>{_any(TENS)})(?:[\s-](?P<unit>{_any(ONES | ORDINALS)}))?(?![A-Za-z])"
    rf"|(?P<small>{_any(ONES | TEENS)})(?![A-Za-z])|(?P<last>{_any(LAST)})(?![A-Za-z])|(?={SCALE}(?![A-Za-z])))"
    rf"(?P<scales>(?:[\s-]?{SCALE}(?![A-Za-z]))*)",
    re.IGNORECASE,
)
ROMAN = re.compile(r"(?<![A-Za-z])(?:II|III|IV|V|VI|VII|VIII|IX|X)(?=\. )")
ROMANS = {"II": 2, "III": 3, "IV": 4, "V": 5, "VI": 6, "VII": 7, "VIII": 8, "IX": 9, "X": 10}

NUMERAL = re.compile("[零〇一二两三四五六七八九十百千万亿]+")
VAGUE = re.compile("[数几上成好][十百千万亿]+|[十百千万亿]+[几数]")
# Words that hold a numeral and count nothing.
IDIOMS = re.compile(
    "四舍五入|十分(?!之)|百分[比点数位]|成千上万|千万(?=别|不)|万[一能]|再三|三角|四[周处]|五花八门|千差万别|接二连三"
    "|[二十]+[六八]?进制|八进制|二[元叉]|七七八八"
)
CHINESE_DIGITS = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
CHINESE_UNITS = {"十": 10, "百": 100, "千": 1000}
CHINESE_SCALES = {"万": 10**4, "亿": 10**8}
TWO_ENGLISH = re.compile(
    r"\b(?:two|twos|twice|second|seconds|secondly|both|hal(?:f|ves|ved?)|halfway|pairs?|double[sd]?|either|neither|others?|"
    r"another|couple|twin|between|binary|each)\b|\bii\b",
    re.IGNORECASE,
)
TWO_WANTED = re.compile(r"(?<!-)\b(?:two|twice)\b(?![ -](?:hundred|thousand|million|billion))", re.IGNORECASE)
TWO_CHINESE = re.compile("[二两双俩倍]")
SMALL_WORDS = {
    "0": re.compile(r"\b(?:zeros?|zeroes|no|nothing)\b", re.IGNORECASE),
    "1": re.compile(r"\b(?:one|ones|once|first|single)\b", re.IGNORECASE),
    "2": TWO_ENGLISH,
}


@dataclass(frozen=True)
class Number:
    """A number in digits: as compared, as written, and where."""

    value: str
    at: int
    percent: bool = False
    is_name: bool = False  # of something with digits in it: float32, H100


@dataclass(frozen=True)
class Difference:
    """A number that one text has and the other lacks; `at` is its place in the Chinese text, None when missing."""

    rule: Literal["digits", "words"]
    message: str
    item: str
    at: int | None = None


def in_digits(text: str) -> list[Number]:
    """Return the numbers that a text writes in digits; `2,000` is 2000, `42 to 43%` two percentages."""
    found: list[Number] = []
    matches = list(DIGITS.finditer(text))
    percent, follows = False, ""
    for match in reversed(matches):
        percent = match["percent"] is not None or (percent and RANGE.fullmatch(follows.rstrip("-−")) is not None)
        found.append(_number(match, percent))
        before = matches[matches.index(match) - 1] if match is not matches[0] else None
        follows = text[before.end() : match.start()] if before else ""
    return found[::-1]


def _number(match: re.Match[str], percent: bool) -> Number:
    if match["number"] is None:
        return Number(match[0].lower(), match.start(), is_name=True)
    unit = match["unit"] if match["unit"] in UNITS else ""
    sign = "-" if match["sign"] else ""
    digits = match["number"]
    if THOUSANDS.fullmatch(digits):  # another comma is a slip, and compared as it stands
        digits = digits.replace(",", "")
    return Number(sign + digits + match["rest"] + unit, match.start(), percent)


def in_english_words(text: str) -> Iterator[int]:
    """Yield the numbers from three up that an English text writes as words; `hundreds` is none."""
    for match in ENGLISH.finditer(text):
        yield from (value for value in _english_values(match) if value > 2)
    yield from _romans(text)


def _english_values(match: re.Match[str]) -> list[int]:
    """Return what a phrase says: one number, or two for a fraction as five thousandths."""
    words = [match[name].lower() for name in ("tens", "unit", "small", "last") if match[name]]
    value = sum(VALUES[word] for word in words)
    scales = [scale.lower() for scale in re.findall(SCALE, match["scales"], re.IGNORECASE)]
    factor = math.prod(SCALES[re.sub("ths?$", "", scale)] for scale in scales)
    is_part = bool(scales) and scales[-1].endswith(("th", "ths"))
    return [value, factor] if is_part and value > 1 else [(value if words else 1) * factor]


def _romans(text: str) -> Iterator[int]:
    """Yield the Roman numerals before a full stop, as in `II. Environments`."""
    yield from (value for match in ROMAN.finditer(text) if (value := ROMANS[match[0]]) > 2)


def in_chinese_words(text: str) -> Iterator[tuple[int, int]]:
    """Yield the numbers from three up that a Chinese text writes as numerals, each with its place."""
    plain = VAGUE.sub(_blank, IDIOMS.sub(_blank, text))
    for match in NUMERAL.finditer(plain):
        for value in chinese_values(match[0]):
            if value > 2:
                yield value, match.start()
    yield from ((ROMANS[match[0]], match.start()) for match in ROMAN.finditer(text) if ROMANS[match[0]] > 2)


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def chinese_values(numeral: str) -> list[int]:
    """Return what a run of numerals says: 一万五千 is one number, 两三 are two."""
    if not any(char in CHINESE_UNITS or char in CHINESE_SCALES for char in numeral):
        return [CHINESE_DIGITS[char] for char in numeral]
    total = section = digit = 0
    for char in numeral:
        if char in CHINESE_DIGITS:
            digit = CHINESE_DIGITS[char]
        elif char in CHINESE_UNITS:
            section, digit = section + (digit or 1) * CHINESE_UNITS[char], 0
        else:
            scale, part = CHINESE_SCALES[char], section + digit
            total = (total + part or 1) * scale if total < scale else total + (part or 1) * scale
            section = digit = 0
    return [total + section + digit]


@lru_cache(maxsize=4096)
def differences(english: str, chinese: str) -> tuple[Difference, ...]:
    """Return each number of two texts that the other does not have."""
    return tuple(_differences(english, chinese))


def _differences(english: str, chinese: str) -> Iterator[Difference]:
    theirs, ours = in_digits(english), in_digits(chinese)
    yield from _digits(english, theirs, ours)
    yield from _percents(theirs, ours)
    yield from _words(english, chinese, theirs, ours)
    if TWO_WANTED.search(english) and not TWO_CHINESE.search(chinese) and all(n.value != "2" for n in ours):
        yield Difference("words", "English says two or twice here", "two")
    if not TWO_ENGLISH.search(english) and not any(n.value == "2" for n in theirs):
        plain = VAGUE.sub(_blank, IDIOMS.sub(_blank, chinese))
        for match in NUMERAL.finditer(plain):
            if match[0] in ("二", "两"):
                yield Difference("words", f"{match[0]} here, and English has no two", match[0], match.start())


def _digits(english: str, theirs: list[Number], ours: list[Number]) -> Iterator[Difference]:
    """Yield digits of English that are missing; digits in excess that are no word of English."""
    left = Counter(number.value for number in theirs)
    spelled = Counter(str(value) for value in in_english_words(english))
    for value, pattern in SMALL_WORDS.items():
        spelled[value] += len(pattern.findall(english))
    for number in ours:
        if left[number.value] > 0:
            left[number.value] -= 1
        elif number.is_name and number.value in left:
            continue  # a name may be repeated
        elif spelled[number.value] > 0:
            spelled[number.value] -= 1
        else:
            yield Difference("digits", f"the number {number.value} is not in the English text", number.value, number.at)
    for value, count in left.items():
        for _ in range(count):
            yield Difference("digits", f"the number {value} of the English text is missing", value)


def _percents(theirs: list[Number], ours: list[Number]) -> Iterator[Difference]:
    """Yield numbers that are a percentage on one side only."""
    wanted = Counter(number.value for number in theirs if number.percent)
    have = Counter(number.value for number in ours if number.percent)
    every = Counter(number.value for number in ours)
    for value in (wanted - have).keys() & every.keys():
        yield Difference(
            "digits", f"{value} is {value}% in English", value, next(n.at for n in ours if n.value == value)
        )
    for value in have - wanted:
        if any(number.value == value for number in theirs):
            at = next(n.at for n in ours if n.value == value and n.percent)
            yield Difference("digits", f"{value}% is no percentage in English", value, at)


def _words(english: str, chinese: str, theirs: list[Number], ours: list[Number]) -> Iterator[Difference]:
    """Yield numbers written as words on either side, from three up, that the other side has less often."""
    wanted = Counter(in_english_words(english))
    places = list(in_chinese_words(chinese))
    have = Counter(value for value, _ in places)
    for value in sorted(wanted.keys() | have.keys()):
        digits = [sum(number.value == str(value) for number in numbers) for numbers in (theirs, ours)]
        spare = max(0, digits[1] - digits[0])  # digits that stand for a word of English
        missing = wanted[value] - spare - have[value]
        if missing > 0:
            yield Difference("words", f"the number {value}, a word in English, is missing", str(value))
        elif missing < 0 and have[value] > 0:
            at = [place for number, place in places if number == value][-1]
            yield Difference("words", f"the numeral for {value} is not in the English text", str(value), at)
