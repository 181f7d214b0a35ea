"""Figure 3.1: TinyAgent, its parts and the sizes of its matrices."""

from __future__ import annotations

import sys
from pathlib import Path

import drawsvg

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from bookkit.figures import Box, arrow, box, card, finish, frame, save, text

DESC = (
    "On the left, read upwards: token ids and positions are looked up in two tables and added; two equal blocks "
    "follow; a norm and the head, a matrix to the vocabulary, give the logits. On the right one block: norm and causal "
    "attention, added to what came in; then norm, a matrix up, ReLU and a matrix down, added again. A dashed box is "
    "the cache, which hands the keys and values of earlier tokens to attention. Beside each matrix stands its size."
)
COLUMN, BLOCK = 120, 470  # the middles of the two columns


def part(drawing: drawsvg.Drawing, x: float, y: float, content: str, role: str = "policy", width: float = 170) -> Box:
    """Draw one part, its middle at x."""
    return box(drawing, x - width / 2, y, width, 36, content, role, size=14)


def plus(drawing: drawsvg.Drawing, x: float, y: float) -> Box:
    """Draw an addition, its middle at x, y."""
    drawing.append(drawsvg.Circle(x, y, 12, fill="#ffffff", stroke="#1f2328", stroke_width=1.5))
    text(drawing, x, y, "+", 16, bold=True)
    return Box(x - 12, y - 12, 24, 24)


def whole(drawing: drawsvg.Drawing) -> None:
    """Draw the left column, from the ids at the foot to the logits."""
    text(drawing, COLUMN, 26, "logits, V numbers a position", 14)
    head = part(drawing, COLUMN, 56, "head  D × V")
    norm = part(drawing, COLUMN, 116, "norm", "plain")
    blocks = [part(drawing, COLUMN, y, f"block {number}", "learner") for number, y in ((2, 186), (1, 246))]
    added = plus(drawing, COLUMN, 322)
    tokens = part(drawing, COLUMN - 48, 366, "tokens\u00a0V×D", width=92)
    places = part(drawing, COLUMN + 60, 366, "positions\u00a0P×D", width=116)
    text(drawing, COLUMN - 48, 436, "ids", 14)
    text(drawing, COLUMN + 60, 436, "positions", 14)
    for lower, upper in [(added, blocks[1]), (blocks[1], blocks[0]), (blocks[0], norm), (norm, head)]:
        arrow(drawing, lower.top, upper.bottom)
    arrow(drawing, head.top, (COLUMN, 36))
    for table in (tokens, places):
        arrow(drawing, (table.centre[0], 424), table.bottom)
        arrow(drawing, table.top, added.at("bottom", 0.5), gap=4)


def block(drawing: drawsvg.Drawing) -> None:
    """Draw the right column: one block, read upwards, with its two additions and the cache."""
    frame(drawing, 268, 46, 478, 404, "learner", fill="none", stroke_width=1)
    text(drawing, 282, 66, "one block", 15, anchor="start", bold=True)
    last = plus(drawing, BLOCK, 92)
    down = part(drawing, BLOCK, 120, "down  rD × D")
    up = part(drawing, BLOCK, 174, "up  D × rD, ReLU")
    norm_2 = part(drawing, BLOCK, 228, "norm", "plain")
    first = plus(drawing, BLOCK, 296)
    attention = part(drawing, BLOCK, 324, "attention  D × 3D, D × D", width=210)
    norm_1 = part(drawing, BLOCK, 378, "norm", "plain")
    chain = [(norm_1, attention), (attention, first), (norm_2, up), (up, down), (down, last)]
    for lower, upper in chain:
        arrow(drawing, lower.top, upper.bottom, gap=2)
    arrow(drawing, (BLOCK, 446), norm_1.bottom, gap=2)
    arrow(drawing, first.top, norm_2.bottom, gap=2)
    arrow(drawing, last.top, (BLOCK, 52), gap=2)
    for foot, upper in [(432, first), (274, last)]:
        arrow(drawing, (BLOCK, foot), upper.left, via=[(330, foot), (330, upper.centre[1])], gap=2)
    cache = box(drawing, 626, 318, 110, 48, "cache: earlier\nkeys, values", "environment", size=13)
    arrow(drawing, cache.left, attention.right, border="dashed", gap=2)


def draw() -> str:
    """Return the figure's SVG."""
    drawing = card(760, 466)
    whole(drawing)
    block(drawing)
    return finish(drawing, "TinyAgent", DESC)


if __name__ == "__main__":
    save(__file__, draw())
