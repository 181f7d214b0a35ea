"""How the book's figures look and how they are written: one card, one palette, one deterministic form of SVG.

A diagram starts with `card`, is drawn with `text`, `box`, `arrow`, `token_strip`, and ends with `finish`. A chart is
drawn inside `chart_style()` on a figure from `chart`, and ends with `chart_svg`. Both return the whole file: numbers
rounded to two decimals, ids counted from a hash of the title, no dates, so the bytes are the same on any machine.
Coordinates are pixels at a width of about 760; y grows downwards; every text is centred on the y it is given.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import drawsvg

from .notebook import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#1f2328"
MUTED = "#57606a"
CARD = "#fcfcfa"
CARD_BORDER = "#d5d5d0"
GRID = "#e4e4df"
FONT = "DejaVu Sans, Verdana, Arial, sans-serif"
MONO = "DejaVu Sans Mono, Menlo, Consolas, monospace"
MAX_BYTES = 400_000
SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"

Border = Literal["solid", "dashed", "dotted", "double"]
Side = Literal["left", "right", "top", "bottom"]
Point = tuple[float, float]


@dataclass(frozen=True)
class Role:
    """What a shape stands for, as a fill, a line colour and a border style, so that colour is never the only sign."""

    fill: str
    line: str
    border: Border


# The border says who wrote or owns the thing: solid the policy and the learner, dashed the environment, dotted what
# was given (task, prompt, data), double what is verified or kept (reward, library).
ROLES: Mapping[str, Role] = {
    "plain": Role("#ffffff", INK, "solid"),
    "policy": Role("#e1effa", "#0b5394", "solid"),
    "environment": Role("#e3f4e8", "#14693f", "dashed"),
    "task": Role("#f0f0ec", "#57606a", "dotted"),
    "reward": Role("#fff0d1", "#8a5200", "double"),
    "learner": Role("#f2e7fa", "#6a349c", "solid"),
    "library": Role("#e9eefb", "#33459c", "double"),
    "fault": Role("#fde8e4", "#a32a12", "dashed"),
}
DASHES: Mapping[Border, str | None] = {"solid": None, "dashed": "6 4", "dotted": "1.6 3.2", "double": None}

# Line colours that stay apart for the common kinds of colour blindness and have 3:1 contrast on the card; each comes
# with its own dash pattern and marker.
SERIES: tuple[tuple[str, str | tuple[int, tuple[int, ...]], str], ...] = (
    ("#0072b2", "-", "o"),
    ("#c44e00", "--", "s"),
    ("#007a58", "-.", "^"),
    ("#a3407c", ":", "D"),
    ("#1f2328", (0, (5, 1, 1, 1, 1, 1)), "v"),
    ("#8a6d00", (0, (8, 2)), "P"),
    ("#3d6ea8", (0, (3, 1, 1, 1)), "X"),
)

# What each colour of the palette becomes on a dark page: the same hue, so that the caption's words still hold.
DARK: Mapping[str, str] = {
    INK: "#e6e9ed",
    MUTED: "#a9b2bc",
    CARD: "#1b1f24",
    CARD_BORDER: "#3d444d",
    GRID: "#343b43",
    "#ffffff": "#262c33",
    "#f3f3ef": "#2c323a",
    "#777f88": "#9aa4ae",
    # fills of the roles, then their lines
    "#e1effa": "#12314b",
    "#e3f4e8": "#123626",
    "#f0f0ec": "#2b2f34",
    "#fff0d1": "#3f300c",
    "#f2e7fa": "#322245",
    "#e9eefb": "#222b52",
    "#fde8e4": "#47211b",
    "#0b5394": "#83bcee",
    "#14693f": "#74d19c",
    "#8a5200": "#e6b05a",
    "#6a349c": "#c8a2ec",
    "#33459c": "#a0b0f4",
    "#a32a12": "#f49883",
    # lines and markers of charts
    "#0072b2": "#4fade6",
    "#c44e00": "#f29150",
    "#007a58": "#45c49a",
    "#a3407c": "#e592c4",
    "#8a6d00": "#d6b646",
    "#3d6ea8": "#8cb3e4",
    # marks that single figures add
    "#2a8a55": "#5fc78d",
    "#2a7fc4": "#66b0ec",
    "#8f66b8": "#bc98e0",
}
COLOR = re.compile(r"#[0-9a-f]{6}(?![0-9a-zA-Z-])")


@dataclass(frozen=True)
class Box:
    """A rectangle that has been drawn: where arrows can start and end."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> Point:
        """The middle of the left side."""
        return self.at("left")

    @property
    def right(self) -> Point:
        """The middle of the right side."""
        return self.at("right")

    @property
    def top(self) -> Point:
        """The middle of the upper side."""
        return self.at("top")

    @property
    def bottom(self) -> Point:
        """The middle of the lower side."""
        return self.at("bottom")

    @property
    def centre(self) -> Point:
        """The middle of the rectangle."""
        return (self.x + self.width / 2, self.y + self.height / 2)

    def at(self, side: Side, share: float = 0.5) -> Point:
        """Return the point at `share` (0 to 1) of a side, from the left or from the top."""
        if side in ("left", "right"):
            return (self.x + (self.width if side == "right" else 0), self.y + share * self.height)
        return (self.x + share * self.width, self.y + (self.height if side == "bottom" else 0))


def card(width: float = 760, height: float = 400) -> drawsvg.Drawing:
    """Return a drawing of this size whose background is the light card every figure stands on."""
    drawing = drawsvg.Drawing(width, height, origin=(0, 0))
    inside = (0.5, 0.5, width - 1, height - 1)
    drawing.append(drawsvg.Rectangle(*inside, rx=10, fill=CARD, stroke=CARD_BORDER, stroke_width=1))
    return drawing


def text(
    drawing: drawsvg.Drawing,
    x: float,
    y: float,
    content: str,
    size: float = 14,
    anchor: Literal["start", "middle", "end"] = "middle",
    bold: bool = False,
    italic: bool = False,
    mono: bool = False,
    fill: str = INK,
    line_height: float = 1.3,
) -> float:
    """Write text whose block is centred on `y` (one line per newline) and return the width of its widest line."""
    lines = content.split("\n")
    step = size * line_height
    for number, line in enumerate(lines):
        # Baselines are placed by hand: renderers disagree about dominant-baseline.
        baseline = y + (number - (len(lines) - 1) / 2) * step + 0.36 * size
        style: dict[str, Any] = {"font_family": MONO if mono else FONT, "fill": fill, "text_anchor": anchor}
        if bold:
            style["font_weight"] = "bold"
        if italic:
            style["font_style"] = "italic"
        if line.strip():
            # Leading blanks (indented code) would be collapsed; no-break spaces are kept.
            indent = len(line) - len(line.lstrip(" "))
            drawing.append(drawsvg.Text("\u00a0" * indent + line.strip(" "), size, x, baseline, **style))
    return max(text_width(line, size, bold=bold, mono=mono) for line in lines)


@lru_cache(maxsize=4)
def _advances(bold: bool, mono: bool) -> tuple[dict[int, float], float]:
    """Return the advance width of each character in em, and the width to assume for one the font lacks."""
    import matplotlib
    from fontTools.ttLib import TTFont

    name = f"DejaVuSans{'Mono' if mono else ''}{'-Bold' if bold else ''}.ttf"
    font = TTFont(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, lazy=True)
    units = font["head"].unitsPerEm  # pyright: ignore[reportAttributeAccessIssue]
    metrics = font["hmtx"].metrics  # pyright: ignore[reportAttributeAccessIssue]
    return {code: metrics[glyph][0] / units for code, glyph in (font.getBestCmap() or {}).items()}, 1.0


def text_width(content: str, size: float = 14, bold: bool = False, mono: bool = False) -> float:
    """Return the width of one line of text in pixels, by the metrics of DejaVu Sans that matplotlib ships."""
    widths, missing = _advances(bold, mono)
    return size * sum(widths.get(ord(char), missing) for char in content)


def _role(role: str) -> Role:
    if role not in ROLES:
        raise ValueError(f"no role {role!r}; there are {', '.join(ROLES)}")
    return ROLES[role]


def frame(
    drawing: drawsvg.Drawing,
    x: float,
    y: float,
    width: float,
    height: float,
    role: str = "plain",
    border: Border | None = None,
    radius: float = 6,
    fill: str | None = None,
    stroke_width: float = 1.5,
) -> Box:
    """Draw a rectangle in a role's fill and border style, without text, and return its Box."""
    look = _role(role)
    style = border or look.border
    line: dict[str, Any] = {"stroke": look.line, "stroke_width": stroke_width}
    if DASHES[style]:
        line["stroke_dasharray"] = DASHES[style]
    if style == "dotted":
        line["stroke_linecap"] = "round"
    drawing.append(drawsvg.Rectangle(x, y, width, height, rx=radius, fill=fill or look.fill, **line))
    if style == "double":
        inner = (x + 3, y + 3, width - 6, height - 6)
        drawing.append(drawsvg.Rectangle(*inner, rx=max(radius - 2, 0), fill="none", stroke=look.line, stroke_width=1))
    return Box(x, y, width, height)


def box(
    drawing: drawsvg.Drawing,
    x: float,
    y: float,
    width: float,
    height: float,
    content: str = "",
    role: str = "plain",
    border: Border | None = None,
    size: float = 14,
    head: bool = False,
    mono: bool = False,
    radius: float = 6,
) -> Box:
    """Draw a rectangle with centred text and return its Box; `head` sets the first line bold.

    ValueError when a line is wider, or the lines are taller, than the box: text never leaves its frame unnoticed.
    """
    made = frame(drawing, x, y, width, height, role, border, radius)
    if not content:
        return made
    lines = content.split("\n")
    holds = width - (14 if (border or _role(role).border) == "double" else 8)
    _must_fit(lines, size, head, mono, holds, height - 2)
    middle_x, middle_y = made.centre
    step = size * 1.3
    for number, line in enumerate(lines):
        at = middle_y + (number - (len(lines) - 1) / 2) * step
        text(drawing, middle_x, at, line, size, bold=head and number == 0, mono=mono)
    return made


def _must_fit(lines: Sequence[str], size: float, head: bool, mono: bool, width: float, height: float) -> None:
    for number, line in enumerate(lines):
        wide = text_width(line, size, bold=head and number == 0, mono=mono)
        if wide > width:
            raise ValueError(f"{line!r} is {wide:.0f} px wide at size {size:g}; its box holds {width:.0f}")
    tall = len(lines) * size * 1.3
    if tall > height:
        content = "\n".join(lines)
        raise ValueError(f"{content!r} is {tall:.0f} px tall; its box holds {height:.0f}")


def arrow(
    drawing: drawsvg.Drawing,
    start: Point,
    end: Point,
    via: Sequence[Point] = (),
    label: str = "",
    label_at: Point | None = None,
    label_anchor: Literal["start", "middle", "end"] = "middle",
    border: Border = "solid",
    color: str = INK,
    width: float = 1.6,
    size: float = 13,
    head: bool = True,
    gap: float = 3,
) -> None:
    """Draw a line from `start` through the corners `via` to `end` with a head there, `gap` pixels clear of both ends.

    The label stands above the middle of the longest piece unless `label_at` says where.
    """
    points = [start, *via, end]
    for one, two in pairwise(points):
        if one == two:
            raise ValueError(f"an arrow from {start} to {end} stands still at {one}")
    points[0], points[-1] = _towards(points[0], points[1], gap), _towards(points[-1], points[-2], gap)
    tip = points[-1]
    line = [*points[:-1], _towards(tip, points[-2], 7) if head else tip]
    style: dict[str, Any] = {"stroke": color, "stroke_width": width, "fill": "none", "stroke_linejoin": "round"}
    if DASHES[border]:
        style["stroke_dasharray"] = DASHES[border]
    drawing.append(drawsvg.Lines(*(value for point in line for value in point), **style))
    if head:
        _head(drawing, points[-2], tip, color)
    if label:
        at = label_at or _above_longest(points, size * 1.3 * len(label.split("\n")))
        text(drawing, *at, label, size, anchor=label_anchor, fill=color)


def _head(drawing: drawsvg.Drawing, before: Point, tip: Point, color: str) -> None:
    # A drawn triangle instead of a marker: no ids, and every renderer agrees on it.
    back, across = _towards(tip, before, 9), _normal(before, tip)
    wings = [(back[0] + side * 4.2 * across[0], back[1] + side * 4.2 * across[1]) for side in (1, -1)]
    drawing.append(drawsvg.Lines(*tip, *wings[0], *wings[1], close=True, fill=color, stroke="none"))


def _towards(origin: Point, target: Point, distance: float) -> Point:
    length = math.dist(origin, target)
    return tuple(o + (t - o) * distance / length for o, t in zip(origin, target, strict=True))  # pyright: ignore[reportReturnType]


def _normal(one: Point, two: Point) -> Point:
    length = math.dist(one, two)
    return (-(two[1] - one[1]) / length, (two[0] - one[0]) / length)


def _above_longest(points: Sequence[Point], height: float) -> Point:
    one, two = max(pairwise(points), key=lambda pair: math.dist(*pair))
    return ((one[0] + two[0]) / 2, (one[1] + two[1]) / 2 - height / 2 - 3)


def hatch(
    drawing: drawsvg.Drawing, area: Box, step: float = 7, color: str = MUTED, width: float = 0.8, rising: bool = True
) -> None:
    """Fill a rectangle with slanted lines, cut at its edges: a second sign beside colour."""
    total = area.width + area.height
    for number in range(1, math.ceil(total / step)):
        offset = number * step
        low = (max(0.0, offset - area.height), min(offset, area.height))
        high = (min(offset, area.width), max(0.0, offset - area.width))
        ends = [(x if rising else area.width - x, y) for x, y in (low, high)]
        flat = [value for x, y in ends for value in (area.x + x, area.y + y)]
        drawing.append(drawsvg.Lines(*flat, stroke=color, stroke_width=width, fill="none"))


def token(
    drawing: drawsvg.Drawing,
    x: float,
    y: float,
    content: str,
    role: str = "task",
    height: float = 26,
    width: float | None = None,
    size: float = 13,
) -> Box:
    """Draw one token cell (monospace, border style by who wrote it) and return its Box; as wide as its text needs."""
    wide = width if width is not None else text_width(content, size, mono=True) + 12
    made = frame(drawing, x, y, wide, height, role, radius=4)
    if text_width(content, size, mono=True) > wide - 4:
        raise ValueError(f"token {content!r} does not fit into {wide:.0f} px at size {size:g}")
    text(drawing, *made.centre, content, size, mono=True)
    return made


def token_strip(
    drawing: drawsvg.Drawing,
    x: float,
    y: float,
    tokens: Sequence[tuple[str, str]],
    mask: Sequence[int] | None = None,
    gap: float = 4,
    height: float = 26,
    width: float | None = None,
    size: float = 13,
    limit: float | None = None,
) -> list[Box]:
    """Draw (token, role) cells in a row and return their Boxes; `mask` writes 1 or 0 under each.

    ValueError when the row passes the x coordinate `limit`, or the mask has another length than the tokens.
    """
    if mask is not None and len(mask) != len(tokens):
        raise ValueError(f"the mask has {len(mask)} entries for {len(tokens)} tokens")
    made: list[Box] = []
    for number, (content, role) in enumerate(tokens):
        cell = token(drawing, x, y, content, role, height, width, size)
        made.append(cell)
        x = cell.x + cell.width + gap
        if mask is not None:
            on = bool(mask[number])
            text(drawing, cell.centre[0], y + height + 12, str(int(on)), size, bold=on, fill=INK if on else MUTED)
    if limit is not None and x - gap > limit:
        raise ValueError(f"the strip ends at x = {x - gap:.0f}, past {limit:.0f}")
    return made


def legend(
    drawing: drawsvg.Drawing,
    x: float,
    y: float,
    entries: Sequence[tuple[str, str]],
    size: float = 13,
    gap: float = 22,
) -> float:
    """Draw (label, role) samples in a row centred on `y` and return the x where the row ends."""
    for label, role in entries:
        frame(drawing, x, y - 8, 26, 16, role, radius=3)
        wide = text(drawing, x + 33, y, label, size, anchor="start")
        x += 33 + wide + gap
    return x - gap


def finish(drawing: drawsvg.Drawing, title: str, desc: str) -> str:
    """Return the drawing as the text of an SVG file with role, title and description, the same bytes anywhere."""
    return _conform(drawing.as_svg() or "", title, desc)


CHART_STYLE: Mapping[str, Any] = {
    "svg.hashsalt": "book",
    "svg.fonttype": "path",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.facecolor": "none",
    "font.family": ["DejaVu Sans"],
    "mathtext.fontset": "dejavusans",
    "font.size": 13,
    "axes.titlesize": 14,
    "axes.labelsize": 13,
    "xtick.labelsize": 13,
    "ytick.labelsize": 13,
    "legend.fontsize": 13,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "lines.linewidth": 2.0,
    "lines.markersize": 5.5,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "hatch.linewidth": 0.7,
    "path.simplify": False,
}


@contextmanager
def chart_style() -> Iterator[None]:
    """Set matplotlib's defaults to the book's for the block: whatever the reader's own settings are, they are off."""
    import matplotlib
    from cycler import cycler

    matplotlib.use("Agg")
    colors, dashes, markers = zip(*SERIES, strict=True)
    cycle = cycler(color=colors) + cycler(linestyle=dashes) + cycler(marker=markers)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for key, value in {**CHART_STYLE, "axes.prop_cycle": cycle}.items():
            matplotlib.rcParams[key] = value  # pyright: ignore[reportArgumentType]
        yield


def chart(width: float = 760, height: float = 380, **subplots: Any) -> tuple[Figure, Any]:
    """Return a figure of this many pixels and its axes; other arguments go to `plt.subplots`. Use in `chart_style`."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(width / 72, height / 72), layout="constrained", **subplots)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(w_pad=14 / 72, h_pad=14 / 72)  # pyright: ignore[reportCallIssue]
    return figure, axes


def chart_svg(figure: Figure, title: str, desc: str) -> str:
    """Return a matplotlib figure on its card, as the text of an SVG file in the book's form, and close it."""
    import matplotlib.pyplot as plt

    out = StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(out, format="svg", metadata=nothing)
    width, height = (float(72 * inches) for inches in figure.get_size_inches())
    plt.close(figure)
    return _conform(out.getvalue(), title, desc, on_card=(round(width, 2), round(height, 2)))


# What is rounded: coordinates and lengths to 2 decimals. Scales (a font's units to pixels) keep 6.
_GEOMETRY = re.compile(
    "d|points|[xy][12]?|[cdr][xy]|r|width|height|viewBox|font-size|stroke-(?:width|dasharray|dashoffset)|ref[XY]"
    "|marker(?:Width|Height)"
)
_NUMBER = re.compile(r"(?<![\w#.])-?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?(?![\w.])")
_CALL = re.compile(r"(\w+)\(([^()]*)\)")
_REFERENCE = re.compile(r"#([\w:.-]+)")


def _conform(svg: str, title: str, desc: str, on_card: tuple[float, float] | None = None) -> str:
    """Return the SVG with title, description and role, rounded numbers, counted ids, nothing that varies."""
    if not title.strip() or not desc.strip():
        raise ValueError("a figure needs a title and a description")
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    root = ET.fromstring(_without_doctype(svg))
    if on_card:
        # In place of matplotlib's style sheet for everything, which would reach the page around an inlined figure.
        root.set("stroke-linejoin", "round")
        root.attrib.update(
            width=f"{on_card[0]:g}", height=f"{on_card[1]:g}", viewBox=f"0 0 {on_card[0]:g} {on_card[1]:g}"
        )
        root.insert(0, _card_element(*on_card))
    _clean(root)
    for element in root.iter():
        for key, value in element.attrib.items():
            element.attrib[key] = _rounded(key, value)
    prefix = "f" + hashlib.sha256(f"{title}\n{desc}".encode()).hexdigest()[:8]
    _count_ids(root, prefix)
    _describe(root, title, desc, prefix)
    body = ET.tostring(root, encoding="unicode").rstrip("\n")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + body.replace(" />", "/>") + "\n"


def _without_doctype(svg: str) -> str:
    return re.sub(r"<!DOCTYPE[^>]*>", "", svg, count=1).strip()


def _clean(element: ET.Element) -> None:
    """Remove metadata, style sheets and empty definitions below the element; one line end between elements stays."""
    for child in list(element):
        tag = child.tag
        if tag != f"{{{SVG}}}text":  # blanks between the pieces of a line are part of it
            _clean(child)
        if tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}style") or (tag == f"{{{SVG}}}defs" and not len(child)):
            element.remove(child)
        elif not (child.tail or "").strip():
            child.tail = "\n"
    if len(element) and not (element.text or "").strip():
        element.text = "\n"


def _card_element(width: float, height: float) -> ET.Element:
    size = {"x": "0.5", "y": "0.5", "width": f"{width - 1:g}", "height": f"{height - 1:g}", "rx": "10"}
    made = ET.Element(f"{{{SVG}}}rect", {**size, "fill": CARD, "stroke": CARD_BORDER, "stroke-width": "1"})
    made.tail = "\n"
    return made


def _describe(root: ET.Element, title: str, desc: str, prefix: str) -> None:
    named = {"title": " ".join(title.split()), "desc": " ".join(desc.split())}
    for position, (tag, content) in enumerate(named.items()):
        element = ET.Element(f"{{{SVG}}}{tag}", {"id": f"{prefix}-{tag}"})
        element.text, element.tail = content, "\n"
        root.insert(position, element)
    root.text = "\n"
    root.attrib.update({"role": "img", "aria-labelledby": f"{prefix}-title {prefix}-desc"})


def _count_ids(root: ET.Element, prefix: str) -> None:
    """Rename ids to prefix-0, prefix-1, … in order, so that they neither depend on hashes nor clash in one page."""
    names: dict[str, str] = {}
    used = _used_ids(root)
    for element in root.iter():
        old = element.attrib.pop("id", None)
        if old in used:
            element.attrib["id"] = names.setdefault(old, f"{prefix}-{len(names)}")
    for element in root.iter():
        for key, value in element.attrib.items():
            if "#" in value and (key.endswith("href") or "url(" in value):
                element.attrib[key] = _REFERENCE.sub(lambda m: "#" + names.get(m[1], m[1]), value)


def _used_ids(root: ET.Element) -> set[str]:
    values = (v for e in root.iter() for k, v in e.attrib.items() if k.endswith("href") or "url(" in v)
    return {name for value in values for name in _REFERENCE.findall(value)}


def _rounded(key: str, value: str) -> str:
    if _GEOMETRY.fullmatch(key):
        # Path letters touch their numbers ("M0,0"); a space between them changes nothing.
        spaced = re.sub(r"(?<=[A-DF-Za-df-z])(?=[-.\d])", " ", value) if key == "d" else value
        return _NUMBER.sub(lambda m: _short(m[0], 2), " ".join(spaced.split()))
    if key == "transform":
        return _CALL.sub(_rounded_call, value)
    if key == "style":
        return _NUMBER.sub(lambda m: _short(m[0], 4), value)
    return value


def _rounded_call(match: re.Match[str]) -> str:
    digits = 6 if match[1] in ("scale", "matrix") else 2
    return f"{match[1]}({_NUMBER.sub(lambda m: _short(m[0], digits), match[2])})"


def _short(number: str, digits: int) -> str:
    # Six decimals first: x.xx5 with noise in its last bits is then x.xx5 everywhere, and rounds one way.
    short = f"{float(f'{float(number):.6f}'):.{digits}f}"
    short = short.rstrip("0").rstrip(".") if "." in short else short
    return "0" if short == "-0" else short


def svg_problems(svg: str) -> list[str]:
    """Return what is wrong with the text of a figure's SVG file, in words; an empty list when nothing is."""
    try:
        root = ET.fromstring(_without_doctype(svg))
    except ET.ParseError as error:
        return [f"not well-formed XML: {error}"]
    if root.tag != f"{{{SVG}}}svg":
        return [f"the root element is {root.tag!r}, not svg"]
    size = len(svg.encode())
    found = [] if size < MAX_BYTES else [f"{size:,} bytes; the limit is {MAX_BYTES:,}"]
    found += [] if svg.endswith("\n") else ["no newline at the end"]
    found += ["a DOCTYPE"] if "<!DOCTYPE" in svg else []
    found += [] if root.get("viewBox") else ["no viewBox: it would not scale"]
    return found + _naming_problems(root) + _content_problems(root)


def _naming_problems(root: ET.Element) -> list[str]:
    found = [] if root.get("role") == "img" else ['the root has no role="img"']
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    found += [f"id {name!r} is used twice" for name in sorted({name for name in ids if ids.count(name) > 1 and name})]
    labels = (root.get("aria-labelledby") or "").split()
    for tag in ("title", "desc"):
        element = root.find(f"{{{SVG}}}{tag}")
        if element is None or not (element.text or "").strip():
            found.append(f"no <{tag}>")
        elif element.get("id") not in labels:
            found.append(f"aria-labelledby does not name the <{tag}>")
    return found


def _content_problems(root: ET.Element) -> list[str]:
    found: list[str] = []
    for element in root.iter():
        tag = str(element.tag).rsplit("}", 1)[-1]
        if tag in ("script", "foreignObject", "image", "metadata"):
            found.append(f"a <{tag}> element")
        if tag == "style" and re.search(r"@import|url\(\s*['\"]?(?!#)", element.text or ""):
            found.append("a style sheet that refers outside the file")
        for key, value in element.attrib.items():
            name = key.rsplit("}", 1)[-1]
            outside = name == "href" and not value.startswith("#")
            if outside or re.search(r"url\(\s*['\"]?(?!['\"]?#)", value):
                found.append(f"<{tag}> refers outside the file: {value!r}")
            if re.fullmatch(r"on[a-z]+", name):
                found.append(f"<{tag}> has the event handler {name}")
    return found


def dark(svg: str) -> str:
    """Return a figure's SVG in the colours of a dark page; ValueError names a colour that `DARK` does not have."""
    unknown = sorted(set(COLOR.findall(svg)) - DARK.keys())
    if unknown:
        raise ValueError(f"no colour for dark pages for {', '.join(unknown)}; add it to bookkit.figures.DARK")
    return COLOR.sub(lambda match: DARK[match[0]], svg)


def svg_name(script: str | Path) -> str:
    """Return the name of the SVG a script draws: `ch01-training-loop.svg` for `ch01_training_loop.py`."""
    return Path(script).stem.replace("_", "-") + ".svg"


def command(
    script: str | Path,
    about: str | None,
    draw: Callable[[], str],
    record: Callable[[], object],
    what: str,
    argv: Sequence[str] | None = None,
) -> int:
    """Draw a figure as its script's command line says, after `record` with --record, and return 0.

    `about` is the script's docstring, `what` says what --record does and how long it takes.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help=what)
    if parser.parse_args(argv).record:
        record()
    save(script, draw())
    return 0


def save(script: str | Path, svg: str) -> Path:
    """Write the SVG beside the script that drew it and return its path; ValueError lists what is wrong with it."""
    path = Path(script).resolve().with_name(svg_name(script))
    problems = svg_problems(svg)
    if problems:
        raise ValueError(f"{path.name}: {'; '.join(problems)}")
    write_atomic(path, svg)
    return path
