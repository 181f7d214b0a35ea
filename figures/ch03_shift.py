"""Figure 3.2: each token of a call is scored by the logits one position earlier; their sum scores the action."""

from __future__ import annotations

import sys
from pathlib import Path

from drawsvg import Drawing, Line

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from bookkit.figures import INK, MUTED, ROLES, arrow, box, card, finish, hatch, legend, save, text, token, token_strip

TOKENS = [
    ("<bos>", "task"),
    ("…", "task"),
    ("3.", "task"),
    ("<call>", "policy"),
    ("edit", "policy"),
    ("swap_minmax", "policy"),
    ("</call>", "policy"),
]
LEFT, CELL, GAP = 20, 97, 6
DESC = (
    "Seven tokens in a row: bos, an ellipsis and the end of the issue, which were given, then begin of call, edit, "
    "swap_minmax and end of call, which the policy wrote. Below each token the logits at its position. From each an "
    "arrow leads down and one place to the right, to the log-probability of the next token. The four log-probabilities "
    "under the call are added up to that of the action. In the last row, crossed out, the unshifted version: each "
    "token's score is read from the logits at the token itself."
)


def draw() -> str:
    """Return the figure's SVG."""
    drawing = card(760, 390)
    text(drawing, LEFT, 22, "ids", 14, anchor="start", bold=True)
    strip = token_strip(drawing, LEFT, 34, TOKENS, gap=GAP, width=CELL, limit=745)
    text(drawing, LEFT, 84, "logits: what the model says after each token", 14, anchor="start", bold=True)
    scores = [token(drawing, cell.x, 96, f"z[{t}]", "plain", width=CELL) for t, cell in enumerate(strip)]
    hatch(drawing, scores[-1])
    _action(drawing, strip, scores)
    _unshifted(drawing, strip)
    legend(drawing, LEFT, 368, [("given", "task"), ("written by the policy", "policy")], size=14)
    return finish(drawing, "The shift between logits and tokens", DESC)


def _action(drawing: Drawing, strip: list, scores: list) -> None:
    """Draw the aligned log-probabilities, and the sum over the tokens of the call."""
    label = "aligned: the score of a token\ncomes from the logits before it"
    text(drawing, LEFT, 226, label, 14, anchor="start", bold=True)
    for t, cell in enumerate(strip):
        mine = TOKENS[t][1] == "policy"
        name = f"from z[{t - 1}]" if t else "none"
        made = token(drawing, cell.x, 168, name, "policy" if mine else "plain", width=CELL)
        if t:
            arrow(drawing, scores[t - 1].at("bottom", 0.7), made.at("top", 0.5), width=1.3, gap=1)
    left, right = strip[3].x, strip[6].x + CELL
    drawing.append(Line(left, 204, right, 204, stroke=INK, stroke_width=1.3))
    box(drawing, (left + right) / 2 - 165, 214, 330, 30, "sum: log-probability of the action", "reward", size=14)


def _unshifted(drawing: Drawing, strip: list) -> None:
    """Draw the version that is off by one, crossed out."""
    text(drawing, LEFT, 276, "off by one: is each token its own successor?", 14, anchor="start", bold=True)
    for t, cell in enumerate(strip):
        made = token(drawing, cell.x, 288, f"from z[{t}]", "fault", width=CELL)
        drawing.append(Line(made.x, made.y + 26, made.x + CELL, made.y, stroke=ROLES["fault"].line, stroke_width=1))
    text(drawing, LEFT, 336, "same shape, valid log-probabilities, another question", 13, anchor="start", fill=MUTED)


if __name__ == "__main__":
    save(__file__, draw())
