"""Figure 10.2: reward against divergence from the reference on the bandit of §10.4. Every number is exact."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import torch

import agentrl as arl
from bookkit.figures import INK, SERIES, chart, chart_style, chart_svg, save

R = torch.tensor([1.0, 0.8, 0.5, 0.2, 0.0, -1.0], dtype=arl.DTYPE)
REFERENCE = torch.tensor([0.02, 0.08, 0.2, 0.3, 0.3, 0.1], dtype=arl.DTYPE)
BETAS = (1.0, 0.5, 0.2, 0.1, 0.05)
TRIES = (2, 4, 16, 64)
STEPS = 400
DESC = (
    "Reward against KL divergence from the reference, in nats. The frontier starts at 0.14 and 0 nats, passes the "
    "points for beta 1, 0.5, 0.2, 0.1 and 0.05 with an ever smaller slope, and flattens below 1 near 3.9 nats. Best of "
    "2, 4, 16 and 64 samples lies just beneath it. Policy gradient without a KL term leaves the frontier at once, and "
    "stops rising at 0.8 and 2.5 nats, a tenth below."
)


def point(probabilities: torch.Tensor) -> tuple[float, float]:
    """Return divergence and reward of a policy."""
    return arl.exact_kl(probabilities.log(), REFERENCE.log()).item(), (probabilities @ R).item()


def optimum(beta: float) -> torch.Tensor:
    """Return the regularised optimum."""
    return (REFERENCE.log() + R / beta).softmax(0)


def best_of(n: int) -> torch.Tensor:
    """Return the distribution of the best of n samples of the reference."""
    not_better = REFERENCE.flip(0).cumsum(0).flip(0)
    worse = torch.cat([not_better[1:], torch.zeros(1, dtype=arl.DTYPE)])
    return not_better**n - worse**n


def path() -> list[tuple[float, float]]:
    """Return the points of policy gradient without a KL term, step by step."""
    logits, points = REFERENCE.log(), [point(REFERENCE)]
    for _ in range(STEPS):
        chance = logits.softmax(0)
        logits = logits + 2.0 * chance * (R - chance @ R)
        points.append(point(logits.softmax(0)))
    return points


def draw() -> str:
    """Return the figure's SVG."""
    with chart_style():
        figure, axes = chart(760, 420)
        (first, second, third) = SERIES[:3]
        smooth = [point(optimum(10 ** (1.5 - step / 20))) for step in range(67)]
        axes.plot(*zip(*smooth, strict=True), color=first[0], linestyle=first[1], marker="", label="optimum for each β")
        axes.plot(*zip(*path(), strict=True), color=second[0], linestyle=second[1], marker="", label="no KL term")
        for beta in BETAS:
            kl, reward = point(optimum(beta))
            axes.plot(kl, reward, color=first[0], linestyle="none", marker=first[2])
            axes.annotate(f"β {beta:g}", (kl, reward), (-8, 8), textcoords="offset points", color=INK, ha="right")
        tried = [point(best_of(n)) for n in TRIES]
        axes.plot(*zip(*tried, strict=True), color=third[0], linestyle="none", marker=third[2], label="best of n")
        for n, place in zip(TRIES, tried, strict=True):
            offset, side = ((-9, 7), "right") if n == 16 else ((9, -15), "left")  # clear of the dashed line
            axes.annotate(f"n = {n}", place, offset, textcoords="offset points", color=INK, ha=side)
        axes.set_xlim(-0.1, 4.1)
        axes.set_xlabel("KL from the reference, nats")
        axes.set_ylabel("expected reward")
        axes.legend(loc="lower right")
        return chart_svg(figure, "What a nat buys", DESC)


if __name__ == "__main__":
    save(__file__, draw())
