"""Figure 9.1: what each of the six variants does to each token of one batch, once its ratios have left 1.

The batch is that of §9.2; the coefficients come from the library's losses, and the chapter's table holds them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import drawsvg
import torch

import agentrl as arl
from bookkit.figures import GRID, INK, MUTED, SERIES, card, finish, save, text

REWARDS = torch.tensor([[1.0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]], dtype=arl.DTYPE)
LENGTHS = (6, 2, 4, 4, 2, 3, 5, 6, 3, 3, 4, 2)
RATIOS = (1.1, 1.25, 1.5, 0.7, 0.5, 4.0)
NAMES = {"grpo": "GRPO", "dr_grpo": "Dr. GRPO", "dapo": "DAPO", "rloo": "RLOO", "gspo": "GSPO", "cispo": "CISPO"}
CELL, ROW, LEFT, TOP, GAP_X, GAP_Y = 31.0, 17.0, 64.0, 74.0, 40.0, 46.0
UP, DOWN = SERIES[0][0], SERIES[1][0]
DESC = (
    "Six panels, one a variant; a row is one of twelve attempts at three tasks, a column one of up to six policy "
    "tokens, whose ratios are 1.1, 1.25, 1.5, 0.7, 0.5 and 4. The area of a square is the size of the token's "
    "coefficient relative to the largest of its panel: filled where the token is pushed up, hollow where it is pushed "
    "down. A cross is a token whose gradient the clip removed. In GRPO, Dr. GRPO and RLOO successes lose the tokens "
    "at 1.25, 1.5 and 4, failures those at 0.7 and 0.5; DAPO keeps the one at 1.25. In GSPO the three successes have "
    "lost all their tokens, and the squares of an attempt are equal. CISPO has no cross; its squares grow with the "
    "ratio. The four attempts at the third task, which nobody solves, are empty everywhere."
)


def advantages(estimator: str) -> torch.Tensor:
    """Return the advantages of the twelve attempts by the name of an estimator, [12]."""
    if estimator == "leave-one-out":
        return arl.leave_one_out_advantages(REWARDS.flatten(), torch.arange(3).repeat_interleave(4))
    return arl.grpo_advantages(REWARDS, normalize_std=estimator == "group-std").flatten()


def loss_of(config: arl.TrainConfig) -> Callable[..., arl.PolicyLoss]:
    """Return the loss of a configuration."""
    if config.loss == "gspo":
        return partial(arl.gspo_policy_loss, clip_low=config.clip_low, clip_high=config.clip_high)
    length = 6 if config.norm_length else None
    settings = {"aggregation": config.aggregation, "norm_length": length}
    loss = arl.cispo_policy_loss if config.loss == "cispo" else arl.ppo_policy_loss
    return partial(loss, clip_low=config.clip_low, clip_high=config.clip_high, **settings)


def coefficients(config: arl.TrainConfig) -> torch.Tensor:
    """Return minus the derivative of the loss by each token's log-probability, [12, 6], 0 beyond an attempt's end."""
    mask = torch.arange(6) < torch.tensor(LENGTHS)[:, None]
    old = torch.full((12, 6), -1.0, dtype=arl.DTYPE)
    logprobs = (old + torch.tensor(RATIOS, dtype=arl.DTYPE).log()).requires_grad_()
    rows = torch.arange(8 if config.refills else 12)  # dynamic sampling leaves the third task out
    found = loss_of(config)(logprobs[rows], old[rows], advantages(config.advantage)[rows], mask[rows])
    return -torch.autograd.grad(found.loss, logprobs)[0]


def square(drawing: drawsvg.Drawing, x: float, y: float, value: float, largest: float) -> None:
    """Draw a token's coefficient around (x, y): area by size, filled if positive, hollow if negative."""
    side = max(15.5 * (abs(value) / largest) ** 0.5, 2.5)
    look = {"fill": UP, "stroke": UP} if value > 0 else {"fill": "none", "stroke": DOWN}
    drawing.append(drawsvg.Rectangle(x - side / 2, y - side / 2, side, side, stroke_width=1.6, **look))


def cross(drawing: drawsvg.Drawing, x: float, y: float) -> None:
    """Draw the sign of a removed gradient around (x, y)."""
    for sign in (1, -1):
        drawing.append(drawsvg.Line(x - 3.5, y - 3.5 * sign, x + 3.5, y + 3.5 * sign, stroke=INK, stroke_width=1.3))


def panel(drawing: drawsvg.Drawing, left: float, top: float, name: str) -> None:
    """Draw the panel of a variant, its upper left corner at (left, top)."""
    config = arl.PRESETS[name]
    table, credit = coefficients(config), advantages(config.advantage)
    text(drawing, left + 3 * CELL, top - 30, NAMES[name], size=14, bold=True)
    for column, ratio in enumerate(RATIOS):
        text(drawing, left + (column + 0.5) * CELL, top - 10, f"{ratio:g}", size=11, fill=MUTED)
    for row, length in enumerate(LENGTHS):
        y = top + (row + 0.5) * ROW + 6 * (row // 4)
        for column in range(length):
            x = left + (column + 0.5) * CELL
            drawing.append(drawsvg.Rectangle(x - CELL / 2, y - ROW / 2, CELL, ROW, fill="none", stroke=GRID))
            value = table[row, column].item()
            if value:
                square(drawing, x, y, value, table.abs().max().item())
            elif credit[row]:
                cross(drawing, x, y)


def draw() -> str:
    """Return the text of the SVG."""
    height = 12 * ROW + 12
    drawing = card(760, TOP + 2 * height + GAP_Y + 62)
    for number, name in enumerate(NAMES):
        left = LEFT + (number % 3) * (6 * CELL + GAP_X)
        panel(drawing, left, TOP + (number // 3) * (height + GAP_Y + 10), name)
    for line in range(2):
        top = TOP + line * (height + GAP_Y + 10)
        text(drawing, LEFT - 8, top - 10, "ratio", size=11, anchor="end", fill=MUTED)
        for task in range(3):
            text(drawing, LEFT - 8, top + (4 * task + 2) * ROW + 6 * task, f"task {task + 1}", size=12, anchor="end")
    legend(drawing, TOP + 2 * height + GAP_Y + 36)
    return finish(drawing, "One batch, six algorithms", DESC)


def legend(drawing: drawsvg.Drawing, y: float) -> None:
    """Draw what the marks mean, in a line at this height."""
    square(drawing, 70, y, 1, 2)
    text(drawing, 84, y, "pushed up", size=12, anchor="start")
    square(drawing, 190, y, -1, 2)
    text(drawing, 204, y, "pushed down", size=12, anchor="start")
    cross(drawing, 328, y)
    text(drawing, 340, y, "gradient removed by the clip", size=12, anchor="start")
    text(drawing, 558, y, "empty: advantage 0", size=12, anchor="start")


if __name__ == "__main__":
    save(__file__, draw())
