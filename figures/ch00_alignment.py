"""Figure 0.2: ids, logits, logprobs and action mask of one short trajectory, and the shift between them."""

import math
import sys
from pathlib import Path

from drawsvg import Drawing

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from bookkit.figures import INK, MUTED, Box, arrow, card, finish, hatch, legend, save, text, token, token_strip

TOKENS = ["<task>", "fix", "clamp", "<call>", "read", "</call>", "def", "clamp", "<call>", "submit", "</call>"]
ROLES = ["task"] * 3 + ["policy"] * 3 + ["environment"] * 2 + ["policy"] * 3
LEFT, CELL, GAP = 19, 62, 4
DESC = (
    "Eleven tokens in a row with positions 0 to 10. Under each token, a cell for the logits at its position, and an "
    "arrow from that cell down to the log-probability of the next token. Position 0 has no log-probability; the last "
    "logits have no token to score. The action mask is 1 under the six tokens the policy wrote and 0 under the others."
)


def draw() -> str:
    """Return the figure's SVG."""
    drawing = card(760, 388)
    _label(drawing, 24, "position t")
    _label(drawing, 72, "ids[t]")
    cells = token_strip(drawing, LEFT, 84, list(zip(TOKENS, ROLES, strict=True)), gap=GAP, width=CELL, limit=745)
    for t, cell in enumerate(cells):
        text(drawing, cell.centre[0], 46, str(t), 13, fill=MUTED)
    _label(drawing, 138, "logits[t]: scores for the token at t + 1")
    scores = _row(drawing, 150, ["z"] * len(TOKENS))
    hatch(drawing, scores[-1])
    values = ["none", *(f"{math.log((50 + 5 * t) / 100):.2f}".replace("-", "−") for t in range(len(TOKENS) - 1))]
    logprobs = _row(drawing, 216, values)
    for before, after in zip(scores[:-1], logprobs[1:], strict=True):
        arrow(drawing, before.at("bottom", 0.75), after.at("top", 0.5), color=INK, width=1.3, gap=1)
    _label(drawing, 256, "logprobs[t]: the token at t, given those before it")
    _mask(drawing, cells)
    legend(drawing, LEFT, 362, [("given", "task"), ("written by the policy", "policy"), ("by a tool", "environment")])
    return finish(drawing, "Alignment of ids, logits, logprobs and action mask", DESC)


def _label(drawing: Drawing, y: float, content: str) -> None:
    text(drawing, LEFT, y, content, 13, anchor="start", bold=True)


def _row(drawing: Drawing, y: float, contents: list[str]) -> list[Box]:
    return [token(drawing, LEFT + t * (CELL + GAP), y, c, "plain", width=CELL) for t, c in enumerate(contents)]


def _mask(drawing: Drawing, cells: list[Box]) -> None:
    _label(drawing, 320, "action_mask[t]: whether the policy wrote the token at t")
    for cell, role in zip(cells, ROLES, strict=True):
        on = role == "policy"
        text(drawing, cell.centre[0], 296, str(int(on)), 14, bold=on, fill=INK if on else MUTED)


if __name__ == "__main__":
    save(__file__, draw())
