"""Figure 2.1: the repair MDP as a graph, without the count of turns."""

from __future__ import annotations

import sys
from pathlib import Path

import drawsvg

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from bookkit.figures import MUTED, Box, arrow, box, card, finish, save, text

TITLE = "The repair MDP"
DESC = (
    "States as boxes, actions as arrows. From the start, unread with m bugs possible and a buggy source, read leads "
    "with probability q to the bug being known and with probability 1 - q to read with m bugs possible. From both "
    "states with open bugs, edit j leads to an untested edit. Testing it leads to a fixed source with probability "
    "1 / m, otherwise back to read or unread with m - 1 bugs. From the known bug, its edit leads to fixed. Any "
    "state leads to hacked by hardcode. Submit leads from fixed to the end repaired, from the untested edit to "
    "repaired with probability 1 / m and otherwise to failed, from hacked to the end hacked."
)


def state(drawing: drawsvg.Drawing, x: float, y: float, content: str, role: str = "policy") -> Box:
    """Draw a state in which the agent acts."""
    return box(drawing, x, y, 148, 66, content, role, head=True)


def end(drawing: drawsvg.Drawing, y: float, content: str, role: str) -> Box:
    """Draw a terminal state."""
    return box(drawing, 632, y, 106, 50, content, role, head=True)


def knowledge(drawing: drawsvg.Drawing, start: Box, read: Box, known: Box, edited: Box, fixed: Box) -> None:
    """Draw what reading, editing and testing do."""
    arrow(drawing, start.top, known.left, [(start.top[0], 61)], label="read: q", label_at=(174, 46), size=14)
    arrow(drawing, start.bottom, read.top, label="read: 1 − q", label_at=(104, 270), label_anchor="start", size=14)
    corner = [(edited.at("top", 0.3)[0], start.at("right", 0.6)[1])]
    arrow(drawing, start.at("right", 0.6), edited.at("top", 0.3), corner, label="edit j", label_at=(234, 176), size=14)
    corner = [(214, read.at("right", 0.25)[1]), (214, edited.at("left", 0.6)[1])]
    arrow(drawing, read.at("right", 0.25), edited.at("left", 0.6), corner)
    text(drawing, 208, 308, "edit j", 14, anchor="end")
    arrow(drawing, known.right, fixed.left, label="edit", size=14)
    corner = [(fixed.at("bottom", 0.25)[0], edited.at("right", 0.15)[1])]
    arrow(drawing, edited.at("right", 0.15), fixed.at("bottom", 0.25), corner, border="dashed")
    text(drawing, 480, 160, "test passes: 1/m", 14, anchor="end")
    corner = [(edited.at("bottom", 0.3)[0], read.at("right", 0.75)[1])]
    arrow(drawing, edited.at("bottom", 0.3), read.at("right", 0.75), corner, border="dashed")
    text(drawing, 304, 340, "test fails:\nm − 1 are left", 14, anchor="start")


def verdicts(drawing: drawsvg.Drawing, edited: Box, fixed: Box, hacked: Box) -> None:
    """Draw the ends, and how submitting leads there."""
    repaired = end(drawing, 36, "repaired\nreward 1", "reward")
    failed = end(drawing, 268, "failed\nreward 0", "plain")
    over = end(drawing, 356, "hacked\nreward 0", "fault")
    arrow(drawing, fixed.right, repaired.left)
    text(drawing, 616, 106, "submit", 14)
    turn = edited.at("right", 0.45)[1]
    arrow(drawing, edited.at("right", 0.45), repaired.bottom, [(repaired.bottom[0], turn)])
    text(drawing, 676, 160, "submit: 1/m", 14, anchor="end")
    arrow(drawing, edited.at("right", 0.8), failed.at("left", 0.6))
    text(drawing, 516, 308, "submit: 1 − 1/m", 14)
    arrow(drawing, hacked.right, over.left)
    text(drawing, 622, 333, "submit", 14)
    text(drawing, 444, 392, "hardcode,\nfrom any state", 14, anchor="end", italic=True, fill=MUTED)


def draw() -> str:
    """Return the text of the SVG."""
    drawing = card(760, 430)
    start = state(drawing, 22, 150, "start: unread\nm bugs possible\nsource buggy")
    known = state(drawing, 252, 28, "bug known\nsource buggy")
    read = state(drawing, 22, 324, "read\nm bugs possible\nsource buggy")
    edited = state(drawing, 252, 220, "edit j, untested\nm bugs possible")
    fixed = state(drawing, 452, 28, "bug known\nsource fixed")
    hacked = state(drawing, 452, 348, "hacked\npublic tests pass", "fault")
    knowledge(drawing, start, read, known, edited, fixed)
    verdicts(drawing, edited, fixed, hacked)
    return finish(drawing, TITLE, DESC)


if __name__ == "__main__":
    save(__file__, draw())
