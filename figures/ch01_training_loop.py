"""Figure 1.1: the training loop of an agent, and one trajectory as the learner receives it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import drawsvg

from bookkit.figures import MUTED, Box, arrow, box, card, finish, frame, legend, text, token_strip
from bookkit.notebook import write_atomic

TITLE = "The training loop of an agent"
DESC = (
    "On the left, the rollout: the policy sends a message to the parser, the parser an action to the environment, the "
    "environment an observation to the context, and the context is the next prefix of the policy. On the right, "
    "learning, read upwards: trajectory, reward, advantage, masked update; the update gives the policy new weights. "
    "Below, the tokens of one trajectory: those of the prompt have a dotted border, those of the policy a solid one, "
    "those of the environment a dashed one; the action mask is 1 under the policy's tokens and 0 under the others; "
    "the reward 1 stands at the end."
)
FIRST_ROW = [
    ("clamp(value,", "task"),
    ("…", "task"),
    ("<call>", "policy"),
    ("read", "policy"),
    ("</call>", "policy"),
    ("def", "environment"),
    ("clamp(value,", "environment"),
    ("…", "environment"),
]
LAST_ROW = [
    ("<call>", "policy"),
    ("submit", "policy"),
    ("</call>", "policy"),
    ("submitted", "environment"),
]


def panel(drawing: drawsvg.Drawing, x: float, width: float, title: str) -> None:
    """Draw the frame of one half of the loop with its title."""
    frame(drawing, x, 14, width, 346, fill="none", stroke_width=1)
    text(drawing, x + width / 2, 36, title, 16, bold=True)


def part(drawing: drawsvg.Drawing, x: float, y: float, width: float, content: str, role: str) -> Box:
    """Draw one part of the loop: its name, and below it the chapters that treat it."""
    return box(drawing, x, y, width, 52, content, role, size=15, head=True)


def rollout(drawing: drawsvg.Drawing) -> tuple[Box, Box]:
    """Draw the left half and return the boxes of the policy and of the context."""
    panel(drawing, 14, 410, "Rollout")
    parser = part(drawing, 30, 58, 134, "parser\nChapter 4", "environment")
    environment = part(drawing, 30, 292, 134, "environment\nChapter 4", "environment")
    policy = part(drawing, 274, 58, 134, "policy\nChapter 3", "policy")
    context = part(drawing, 274, 292, 134, "context\nChapter 5", "plain")
    arrow(drawing, policy.left, parser.right, label="message", size=15)
    arrow(drawing, parser.bottom, environment.top, label="action", label_at=(108, 201), label_anchor="start", size=15)
    arrow(drawing, environment.right, context.left, label="observation", size=15)
    where = (330, 201)
    arrow(drawing, context.top, policy.bottom, label="next\nprefix", label_at=where, label_anchor="end", size=15)
    text(drawing, 219, 201, "once around\nis one turn", 14, italic=True, fill=MUTED)
    return policy, context


def learning(drawing: drawsvg.Drawing) -> tuple[Box, Box]:
    """Draw the right half, read upwards, and return the boxes of the update and of the trajectory."""
    panel(drawing, 520, 226, "Learning")
    contents = [
        ("trajectory\nChapter 5", "plain"),
        ("reward\nChapters 4, 11", "reward"),
        ("advantage\nChapters 7, 9", "learner"),
        ("masked update\nChapters 6, 8, 9, 10", "learner"),
    ]
    boxes = [part(drawing, 536, 292 - 78 * row, 194, content, role) for row, (content, role) in enumerate(contents)]
    for lower, upper in pairwise(boxes):
        arrow(drawing, lower.top, upper.bottom)
    return boxes[-1], boxes[0]


def trajectory(drawing: drawsvg.Drawing) -> None:
    """Draw the token strip in two rows: its beginning, and its last turn with the reward."""
    text(drawing, 16, 390, "One trajectory", 16, anchor="start", bold=True)
    entries = [("prompt", "task"), ("policy", "policy"), ("environment", "environment")]
    legend(drawing, 408, 390, entries, size=15)
    for y, tokens in [(410, FIRST_ROW), (480, LAST_ROW)]:
        mask = [int(role == "policy") for _, role in tokens]
        text(drawing, 16, y + 42, "mask", 15, anchor="start", fill=MUTED)
        x = 70 if y == 410 else 98
        cells = token_strip(drawing, x, y, tokens, mask, height=30, size=15, limit=740)
    text(drawing, 82, 495, "…", 15)
    reward = box(drawing, cells[-1].right[0] + 52, 476, 104, 38, "reward 1", "reward", size=15)
    arrow(drawing, cells[-1].right, reward.left)


def draw() -> str:
    """Return the text of the SVG."""
    drawing = card(760, 546)
    policy, context = rollout(drawing)
    update, whole = learning(drawing)
    arrow(drawing, update.left, policy.right, label="new\nweights", label_at=(472, 58), size=15)
    arrow(drawing, context.right, whole.left, label="end of\nepisode", label_at=(472, 292), size=15)
    trajectory(drawing)
    return finish(drawing, TITLE, DESC)


if __name__ == "__main__":
    write_atomic(Path(__file__).with_name("ch01-training-loop.svg"), draw())
