"""Chinese typography: punctuation, spaces, quotes, simplified characters, nothing left in English."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..lint.context import CITATION
from ..lint.markdown import HOLE, Block
from ..lint.references import NUMBER
from .findings import Finding
from .pair import CHINESE, WORD

HAN = "[\u3400-\u9fff]"
FULL = "，。；：？！、（）【】《》「」“”‘’"
OPENING, CLOSING = "（【《「“‘", "，。；：？！、）】》」”’"
EQUATION = re.compile(rf"\((?:{NUMBER}|[a-z])\)")
BREAK = rf"(?<=[{HAN[1:-1]}{FULL}])\n|\n(?=[{HAN[1:-1]}{FULL}])"
LATIN = rf"[A-Za-z0-9{HOLE}§★−%\[\]+]"
RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(rf"{HAN} ?[,;:?!]|[,;:?!] ?{HAN}"), "half-width punctuation next to Chinese: use ，；：？！"),
    (re.compile(rf"[A-Za-z{HOLE}][,;](?=[A-Za-z{HOLE}])"), "no space after half-width punctuation"),
    (re.compile(rf"{HAN}\.|\.{HAN}|{HAN} \.(?![A-Za-z0-9_])|[{HOLE}）”]\.(?=\s|$)"), "a half-width full stop: use 。"),
    (re.compile(rf"{HAN}\(|\({HAN}|{HAN}\)|\){HAN}"), "half-width brackets next to Chinese: use （）"),
    (re.compile(rf"{HAN} \([^()]*\)|\([^()]*\) {HAN}"), "half-width brackets in a Chinese sentence: use （）"),
    (re.compile(rf"{HAN}(?={LATIN})(?!\])|(?<!\[){LATIN}(?={HAN})"), "a space is missing between Chinese and Latin"),
    (re.compile(rf" [{CLOSING}]|[{OPENING}] "), "a space before closing or after opening full-width punctuation"),
    (re.compile(rf"[{CLOSING}] (?!·)|(?<!·) [{OPENING}]"), "a space beside full-width punctuation"),
    (re.compile(rf"{HAN} {HAN}"), "a space between Chinese characters"),
    (re.compile(r"(?<=\S)  +(?=\S)"), "two spaces"),
    (re.compile(r'"'), "a straight quotation mark: use “ ”"),
    (re.compile(rf"{HAN}'|'{HAN}"), "a straight quotation mark: use ‘ ’"),
    (re.compile(rf"{HAN}\.{{2,}}|(?<!…){HAN}…(?!…)|(?<!…)…{HAN}"), "an ellipsis is ……"),
    (re.compile(rf"--|{HAN} ?[–—](?!—)|(?<!—)[–—] ?{HAN}"), "a dash is ——"),
    (re.compile(BREAK), "a line break within a paragraph, which shows as a space"),
)
FULL_FORMS = re.compile("[＂-＇＊＋－-９＜-＞＠-Ｚ＼＾-｝]")  # all but the punctuation of Chinese
SENTENCE = re.compile(r"[A-Za-z][A-Za-z’'-]*(?:,? [A-Za-z][A-Za-z’'-]*){4,}")


def check_typography(english: list[Block], chinese: list[Block]) -> Iterator[Finding]:
    """Yield every fault of form in a translated cell."""
    for block in chinese:
        if block.kind in ("fence", "math", "html"):
            continue
        yield from _text(block, block.text, 0)
        for image in block.of("image"):
            yield from _text(block, image.text, image.at)
    if len(english) == len(chinese):
        for one, other in zip(english, chinese, strict=True):
            yield from _left_in_english(one, other)


def _text(block: Block, text: str, base: int) -> Iterator[Finding]:
    """Yield the faults of a block's text or of an alternative text in it."""
    plain = CITATION.sub(_as_code, EQUATION.sub(_as_code, text))
    for pattern, message in RULES:
        for match in pattern.finditer(plain):
            if not _after_emphasis(block, text, match):
                yield _finding(block, text, match, base, "typography", message)
    for match in FULL_FORMS.finditer(plain):
        yield _finding(block, text, match, base, "typography", f"a full-width {match[0]}: use the half-width form")
    for match in CHINESE.finditer(plain):
        if not _is_simplified(match[0]):
            yield _finding(block, text, match, base, "script", f"{match[0]} is no simplified character", match[0])
    for match in SENTENCE.finditer(plain):
        if sum(word.islower() for word in re.findall(r"[A-Za-z’'-]+", match[0])) >= 4:
            yield _finding(block, text, match, base, "english", f"left in English: {match[0][:60]!r}", match[0])


def _as_code(match: re.Match[str]) -> str:
    """Return as many characters that count as Latin: (1.2) and [@key] keep their half-width brackets."""
    return HOLE * len(match[0])


def _finding(
    block: Block, text: str, match: re.Match[str], base: int, rule: str, message: str, item: str | None = None
) -> Finding:
    start, end = max(0, match.start() - 6), match.end() + 6
    around = text[start:end].replace(HOLE, "▯").replace("\n", "⏎")
    shown = message if item is not None else f"{message}, at “{around}”"
    return Finding(block.line_at(base + match.start()), rule, shown, item or match[0])


def _after_emphasis(block: Block, text: str, match: re.Match[str]) -> bool:
    """Return whether this is the space that markdown needs behind `**词。**`."""
    return text is block.text and match[0].endswith(" ") and match.end() - 1 in block.ends


def _is_simplified(character: str) -> bool:
    """Return whether GB 2312 has the character: it has the simplified forms and none of what they replaced."""
    try:
        character.encode("gb2312")
    except UnicodeEncodeError:
        return False
    return True


def _left_in_english(english: Block, chinese: Block) -> Iterator[Finding]:
    """Yield a block, or an alternative text in it, whose words were all left in English."""
    pairs = [(english.prose, chinese.prose)]
    pairs += [(one.text, other.text) for one, other in zip(english.of("image"), chinese.of("image"), strict=False)]
    for one, other in pairs:
        words = WORD.findall(CITATION.sub(" ", one))
        if len(words) >= 3 and not CHINESE.search(other) and WORD.search(CITATION.sub(" ", other)):
            text = " ".join(other.split())
            yield Finding(chinese.line, "english", f"left in English: {text[:60]!r}", text)
