"""The cover: the loop of an agent's episode, title and version."""

from __future__ import annotations

from xml.sax.saxutils import escape

from .reading import Book

TURNS = 5  # boxes of the episode; the last one is the verified outcome
LIGHT, ACCENT, DARK = "#cfe8e4", "#f2b84b", "#0f3d3e"
FONTS = "Georgia, 'Noto Serif CJK SC', 'Songti SC', serif"


def art() -> str:
    """Return the picture without the `<svg>` around it, 1000 wide and 260 high: turns, their outcome, the way back."""
    boxes = "".join(_turn(number) for number in range(TURNS))
    x = 100 + 200 * (TURNS - 1)
    back = f'<path d="M{x} 150 V215 H100 V152" fill="none" stroke="{ACCENT}" stroke-width="5" stroke-dasharray="2 13" '
    head = (
        f'<path d="M86 170 L100 150 L114 170" fill="none" stroke="{ACCENT}" stroke-width="5" stroke-linecap="round"/>'
    )
    return boxes + back + 'stroke-linecap="round"/>' + head


def _turn(number: int) -> str:
    """Return one turn of the episode and the line to the next."""
    x, last = 100 + 200 * number, number == TURNS - 1
    look = f'fill="{ACCENT}"' if last else f'fill="none" stroke="{LIGHT}" stroke-width="5"'
    box = f'<rect x="{x - 55}" y="50" width="110" height="80" rx="14" {look}/>'
    if last:
        look = f'fill="none" stroke="{DARK}" stroke-width="9" stroke-linecap="round"'
        return f'{box}<path d="M{x - 24} 91 l17 18 l32 -38" {look}/>'
    lines = "".join(
        f'<path d="M{x - 35} {75 + 15 * row} h{70 - 17 * ((row + number) % 3)}" stroke="{LIGHT}" stroke-width="4"/>'
        for row in range(3)
    )
    return box + lines + f'<path d="M{x + 68} 90 h64" stroke="{LIGHT}" stroke-width="5" stroke-linecap="round"/>'


def svg(book: Book) -> str:
    """Return the whole cover as a picture, 1200 by 1800."""
    words = book.words
    lines = [*_wrapped(words.title, 16), *_wrapped(words.subtitle, 28)]
    titles = len(_wrapped(words.title, 16))
    text, y = "", 330
    for number, line in enumerate(lines):
        size, colour, weight = (104, "#ffffff", "bold") if number < titles else (56, LIGHT, "normal")
        y += 46 if number == titles else 0
        text += _text(line, y, size, colour, weight)
        y += round(size * 1.25)
    facts = _text(words.version.format(book.version), 1640, 38, LIGHT) + _text(
        words.recorded.format(book.recorded), 1696, 38, LIGHT
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1200 1800" width="1200" height="1800">'
        f'<title>{escape(words.title)}</title><rect width="1200" height="1800" fill="{DARK}"/>{text}'
        f'<g transform="translate(100 1000)">{art()}</g>{facts}</svg>'
    )


def _text(line: str, y: int, size: int, colour: str, weight: str = "normal") -> str:
    font = "font-family=\"Georgia, 'Noto Serif CJK SC', 'Songti SC', serif\""
    return (
        f'<text x="110" y="{y}" font-size="{size}" font-weight="{weight}" fill="{colour}" {font}>{escape(line)}</text>'
    )


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a title; Chinese, which has no spaces, fits on one."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
