"""Text as MDX: what must be escaped so that a reader of MDX sees exactly the text that went in.

MDX reads `{…}` as code and `<…>` as an element, its mathematics `$…$`; the rest is CommonMark with GitHub's tables,
strikethrough and bare web addresses.
"""

from __future__ import annotations

import re

ALWAYS = re.compile(r"[\\`*_{}\[\]<$~|&]")
BARE_ADDRESS = re.compile(r"(?<=www)(?=\.)|(?<=http)(?=://)|(?<=https)(?=://)", re.IGNORECASE)  # would take in escapes
EDGE_BANG = re.compile(r"!(?=\[|\\\[|$)")
# What begins a block at the start of a line: heading, quotation, list, rule, table, a JavaScript import or export.
BLOCK_START = re.compile(
    r"^(?:(?P<mark>[#>+=:-])|(?P<number>\d{1,9})(?P<dot>[.)])(?=\s|$)|(?P<esm>[ie])(?=mport\s|xport\s))"
)
ELEMENT_START = re.compile(r"\n<")  # an element alone on its line would be a block
EDGE_BLANK = re.compile(r"^[ \t]+|[ \t]+$")
LINE_END = {"\r": "&#xD;", "\n": "&#xA;"}
UNSAFE_HREF = re.compile(r"[^A-Za-z0-9\-._~:/?#\[\]@!&'*+,;=%]")
# 、。「」（），：；？！ and their kin, but no digits and letters of full width
FULL_WIDTH = r"\u3001-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
CHINESE = r"\u2e80-\u303f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef"
# Punctuation of full width has its blank within; a line break between two Chinese characters is none.
NO_BLANK = re.compile(
    rf"(?<=[{FULL_WIDTH}])[ \t\n]+(?=\S)|(?<=\S)[ \t\n]+(?=[{FULL_WIDTH}])|(?<=[{CHINESE}])\n(?=[{CHINESE}])"
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def text(value: str) -> str:
    """Return text without line breaks, escaped for any place in a paragraph but the start of a line."""
    escaped = BARE_ADDRESS.sub(r"\\", ALWAYS.sub(lambda match: "\\" + match[0], value))
    return EDGE_BANG.sub(r"\\!", escaped).replace("\r", LINE_END["\r"])


def lines(rendered: str) -> str:
    """Return a rendered paragraph in which no line begins a block of another kind or loses blanks at its ends."""
    return "\n".join(_line(line) for line in ELEMENT_START.sub(" <", rendered).split("\n"))


def _line(line: str) -> str:
    line = EDGE_BLANK.sub(lambda match: "".join(f"&#x{ord(char):X};" for char in match[0]), line)
    match = BLOCK_START.match(line)
    if match is None:
        return line
    if match["mark"]:
        return "\\" + line
    if match["esm"]:
        return f"&#{ord(line[0])};{line[1:]}"
    at = len(match["number"])
    return f"{line[:at]}\\{line[at:]}"


def attribute(value: str) -> str:
    """Return a quoted attribute of an element."""
    flat = " ".join(value.split())
    return '"' + flat.replace("&", "&amp;").replace('"', "&quot;") + '"'


def quoted(value: str) -> str:
    """Return a value of the frontmatter: YAML between double quotes."""
    return '"' + " ".join(value.split()).replace("\\", "\\\\").replace('"', '\\"') + '"'


def href(value: str) -> str:
    """Return the target of a link with everything percent-encoded that would end it or open an expression."""
    return UNSAFE_HREF.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), value)


def fence(content: str, info: str = "", title: str = "") -> str:
    """Return a code block with this content, character for character; its fence is longer than any within it."""
    longest = max((len(run) for run in re.findall(r"`+", content)), default=0)
    marks = "`" * max(3, longest + 1)
    body = content if content.endswith("\n") or not content else content + "\n"
    return f"{marks}{' '.join(part for part in (info or 'text', title) if part)}\n{body}{marks}"


def code(content: str, table: bool = False) -> str:
    """Return inline code; ValueError for what a table's cell cannot show."""
    flat = content.replace("\n", " ")
    if table:
        if "\\|" in flat:
            raise ValueError(f"`{flat}`: code in a table's cell cannot hold a backslash before a bar")
        flat = flat.replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", flat)), default=0)
    marks = "`" * (longest + 1)
    padded = flat.startswith("`") or flat.endswith("`") or (flat[:1] == flat[-1:] == " " and flat.strip() != "")
    return f"{marks} {flat} {marks}" if padded else f"{marks}{flat}{marks}"


def inline_math(content: str, table: bool = False) -> str:
    """Return mathematics within a line; ValueError for what a table's cell cannot show."""
    flat = content.replace("\n", " ")
    if table and "|" in flat:
        raise ValueError(f"${flat}$: \\| in a table's cell is one bar or two, as who reads it: \\vert or \\Vert")
    marks = "$$" if "$" in flat else "$"
    return f"{marks}{flat}{marks}"


def anchored(ident: str, body: str) -> str:
    """Return a block that links can name."""
    return f"<div id={attribute(ident)}>\n\n{body}\n\n</div>"


def anchor_only(ident: str) -> str:
    """Return a place without content that links can name."""
    return f"<div id={attribute(ident)}></div>"


def element(name: str, body: str, **attributes: str) -> str:
    """Return a component around blocks."""
    given = "".join(f" {key}={attribute(value)}" for key, value in attributes.items())
    return f"<{name}{given}>\n\n{body}\n\n</{name}>"


def unbroken(value: str) -> str:
    """Return words, escaped, that stay on one line."""
    return "&nbsp;".join(map(text, value.split()))


def chinese(value: str, before: str, after: str) -> str:
    """Return Chinese text between two characters ("" for none) without blanks that only the source's markup needs."""
    whole = f"{before}{value}{after}"
    return NO_BLANK.sub("", whole)[len(before) :].removesuffix(after)
