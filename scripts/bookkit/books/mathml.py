"""KaTeX's MathML, mended for reading systems.

KaTeX writes full MathML 3. Reading systems that draw MathML know its core: no `mathvariant` but "normal", no column
alignment, no numbered rows; and they space operators by a table of their own. Each function here mends one of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .tree import E, Element

TAG = re.compile(r"\s*\\tag\{([^{}]*)\}")
APPLY = "\u2061"  # the invisible operator after a function's name
PRIME = "\u2032"
SIGNS = set("−-+±")
SCRIPTS = {"msub", "msup", "msubsup", "munder", "mover", "munderover"}
ROWS = {"math", "mrow", "mstyle", "mtd", "mpadded", "msqrt"}  # may hold any number of elements
LATIN = {"double-struck": 0x1D538, "script": 0x1D49C, "bold": 0x1D400, "fraktur": 0x1D504, "bold-italic": 0x1D468}
DIGITS = {"double-struck": 0x1D7D8, "bold": 0x1D7CE}
GREEK = {"bold": 0x1D6A8, "bold-italic": 0x1D71C}
# Letters that had a place before the alphabets they belong to got theirs.
EARLIER = {
    **dict(zip((0x1D53A, 0x1D53F, 0x1D545, 0x1D547, 0x1D548, 0x1D549, 0x1D551), "ℂℍℕℙℚℝℤ", strict=True)),
    **dict(zip((0x1D49D, 0x1D4A0, 0x1D4A1, 0x1D4A3, 0x1D4A4, 0x1D4A7, 0x1D4A8, 0x1D4AD), "ℬℰℱℋℐℒℳℛ", strict=True)),
    **dict(zip((0x1D4BA, 0x1D4BC, 0x1D4C4), "ℯℊℴ", strict=True)),
}


def set_formulas(body: Element) -> None:
    """Replace each formula of a page by its MathML; a formula of its own gets its number beside it."""
    for display in list(body.find_class("katex-display")):
        math, number = mend(_math(display))
        inside_text = any(ancestor.tag == "p" for ancestor in display.iterancestors())
        block = (E.span if inside_text else E.div)({"class": "equation"}, math)
        if number:
            block.append(E.span(number, {"class": "number"}))
        _replace(display, block)
    for inline in list(body.find_class("katex")):
        _replace(inline, mend(_math(inline))[0])


def _math(formula: Element) -> Element:
    math = formula.find(".//math")
    assert math is not None, "KaTeX writes MathML into each formula"
    return math


def _replace(old: Element, new: Element) -> None:
    new.tail, old.tail = old.tail, None
    old.getparent().replace(old, new)


def mend(math: Element) -> tuple[Element, str]:
    """Return a formula's MathML in the core that reading systems draw, with its LaTeX as `alttext`, and its number."""
    annotation = math.find("semantics/annotation")
    latex = annotation.text_content() if annotation is not None else ""
    number = TAG.search(latex)
    content = _content(math)
    mended = E.math({"xmlns": "http://www.w3.org/1998/Math/MathML"}, *content)
    if math.get("display"):
        mended.set("display", "block")
    mended.set("alttext", " ".join(TAG.sub("", latex).split()))
    for step in (_typewriter, _letters, _columns, _fences, _accents, _primes, _scripts, _signs, _functions):
        step(mended)
    return mended, f"({number[1]})" if number else ""


def _content(math: Element) -> list[Element]:
    """Return what a formula consists of, without its annotation and without the row that KaTeX numbers."""
    inside = math.find("semantics")
    children = [child for child in (math if inside is None else inside) if child.tag != "annotation"]
    if len(children) == 1 and children[0].tag == "mtable" and children[0].get("width") == "100%":
        children = list(children[0].findall("mtr/mtd")[1])
    return children


def _typewriter(math: Element) -> None:
    """Make letters in typewriter style one word of text, for which the style sheet has a font."""
    for row in [math, *math.iter("mrow")]:
        letters = [child for child in row if child.get("mathvariant") == "monospace"]
        if letters and len(letters) == len(row) and row.tag == "mrow":
            text = "".join(letter.text_content() for letter in letters)
            row.tag, row.text = "mtext", text
            row.set("class", "typewriter")
            for letter in letters:
                row.remove(letter)
    for element in math.iter():
        if element.get("mathvariant") == "monospace":
            element.tag = "mtext"
            element.attrib.pop("mathvariant")
            element.set("class", "typewriter")


def _letters(math: Element) -> None:
    """Write letters of other alphabets as characters of their own."""
    for element in math.iter():
        variant = element.get("mathvariant")
        if variant is None or (variant == "normal" and element.tag == "mi" and len(element.text or "") == 1):
            continue
        element.attrib.pop("mathvariant")
        element.text = "".join(_letter(character, variant) for character in element.text or "")


def _letter(character: str, variant: str) -> str:
    """Return a letter, Greek letter or digit of another alphabet; what an alphabet lacks stays as it is."""
    code = ord(character)
    if character.isascii() and character.isalpha() and variant in LATIN:
        code = LATIN[variant] + (code - 65 if code < 91 else code - 71)
    elif character.isascii() and character.isdigit() and variant in DIGITS:
        code = DIGITS[variant] + code - 48
    elif 0x391 <= code <= 0x3C9 and variant in GREEK:
        code = GREEK[variant] + code - 0x391
    return EARLIER.get(code, chr(code))


def _columns(math: Element) -> None:
    """Align the columns of a table by style: its attributes are not in the core."""
    for table in math.iter("mtable"):
        sides = table.attrib.pop("columnalign", "").split()
        gaps = table.attrib.pop("columnspacing", "").split()
        for row in table.findall("mtr"):
            for column, cell in enumerate(row.findall("mtd")):
                side = sides[column] if column < len(sides) else "center"
                gap = gaps[column] if column < len(gaps) else "0em"
                cell.set("style", f"text-align: {side}; padding: 0.25em {gap} 0.25em 0em")


def _fences(math: Element) -> None:
    """Set brackets of a given size without the space of an operator, which they are in the middle of a row."""
    for bracket in math.iter("mo"):
        if bracket.get("fence") == "true":
            bracket.set("lspace", "0em")
            bracket.set("rspace", "0em")


def _accents(math: Element) -> None:
    """Keep an accent as wide as its letter."""
    for accented in math.iter("mover"):
        if accented.get("accent") == "true" and len(accented[0].text_content()) == 1:
            accented[1].set("stretchy", "false")


def _primes(math: Element) -> None:
    """Write a prime beside its letter: most fonts draw it high and small already, as an exponent it is a speck."""
    for script in math.iter("msup"):
        if script[1].tag == "mo" and script[1].text == PRIME:
            script.tag = "mrow"
            script[1].set("lspace", "0em")
            script[1].set("rspace", "0em")


def _scripts(math: Element) -> None:
    """Set operators in indices and exponents without the space around them."""
    for script in math.iter(*SCRIPTS):
        for part in list(script)[1:]:
            for operator in part.iter("mo"):
                operator.set("lspace", "0em")
                operator.set("rspace", "0em")


def _signs(math: Element) -> None:
    """Mark a sign that follows another operator as a sign."""
    for operator in math.iter("mo"):
        before = operator.getprevious()
        if operator.text in SIGNS and before is not None and _opens(before):
            operator.set("form", "prefix")
            operator.set("lspace", "0em")
            operator.set("rspace", "0em")


def _opens(element: Element) -> bool:
    """Return whether an element is an operator after which something new begins."""
    return element.tag == "mo" and element.text not in {")", "]", "}", "⟩", "!", "⌉", "⌋", "′"}


def _functions(math: Element) -> None:
    """Put a thin space around the name of a function, but for the side where a bracket or an operator stands."""
    for operator in [operator for operator in math.iter("mo") if operator.text == APPLY]:
        if operator.getparent().tag in SCRIPTS:  # KaTeX writes it there too, as one part too many
            operator.drop_tree()
            continue
        name, after = _around(operator)
        if name.getparent().tag not in ROWS:
            continue
        before = name.getprevious()
        if before is not None and (before.tag not in {"mo", "mspace"} or not _opens(before)):
            name.addprevious(_thin())
        if after is not None and not (after.tag in {"mo", "mspace"} and (after.text or " ")[0] not in "−∇"):
            after.addprevious(_thin())


def _around(operator: Element) -> tuple[Element, Element | None]:
    """Return the function's name, with limits where it has some, and what it is applied to."""
    parent = operator.getparent()
    name, after = operator.getprevious(), operator.getnext()
    outer = next(_scripted(parent), None) if after is None else None
    if outer is not None:
        return outer, outer.getnext()
    return (operator if name is None else name), after


def _scripted(row: Element) -> Iterator[Element]:
    """Yield the scripted element whose base this row is."""
    parent = row.getparent()
    if parent is not None and parent.tag in SCRIPTS and parent[0] is row:
        yield parent


def _thin() -> Element:
    return E.mspace(width="0.1667em")
