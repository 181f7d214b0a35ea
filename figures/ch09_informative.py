"""Figure 9.3: informative groups over a training and what replacing the others costs, from chapters/recorded/.

It reads the runs of grpo and dapo in 09-variants.json, which `figures/ch09_variants.py --record` makes.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from bookkit import trainings
from bookkit.figures import MUTED, chart, chart_style, chart_svg, save
from figures.ch09_variants import SEEDS, of_preset

NAMES = ("grpo", "dapo")
FIRST_ROUND = 280


def costs(run: dict[str, Any]) -> list[float]:
    """Return the episodes of each iteration, those of refills counted."""
    return [after - before for before, after in pairwise([0, *run["episodes"]])]


def draw() -> str:
    """Return the figure's SVG."""
    with chart_style():
        figure, (left, right) = chart(760, 400, ncols=2)
        for number, name in enumerate(NAMES):
            runs = of_preset(name)
            trainings.band(left, trainings.shared([run["informative"] for run in runs]), 1, number, name)
            trainings.band(right, trainings.shared([costs(run) for run in runs]), 1, number, name)
        right.axhline(3 * FIRST_ROUND, color=MUTED, linewidth=1, linestyle=":")
        right.text(1, 3 * FIRST_ROUND - 12, "the most that two refills can ask for", va="top", fontsize=11, color=MUTED)
        left.set_ylim(-0.03, 1.03)
        left.set_title("groups of the first round that are informative", fontsize=12)
        left.set_ylabel("share")
        right.set_ylim(0, 900)
        right.set_title("episodes sampled for one update", fontsize=12)
        for axes in (left, right):
            axes.set_xlabel("iteration")
            axes.set_xticks(range(0, 21, 5))
        figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=2)
        return chart_svg(figure, "Informative groups over a training", in_words())


def in_words() -> str:
    """Return the description."""
    told = []
    for name in NAMES:
        shares = trainings.shared([run["informative"] for run in of_preset(name)])
        spent = trainings.shared([costs(run) for run in of_preset(name)])
        means = [trainings.mean_at(shares, place) for place in range(len(shares[0]))]
        ends = [trainings.mean_at(spent, place) for place in (0, -1)]
        told.append(
            f"{name}: {means[0]:.2f} at first, at most {max(means):.2f}, {means[-1]:.2f} in iteration {len(means)}; "
            f"{ends[0]:.0f} episodes for the first update, {ends[1]:.0f} for the last"
        )
    return (
        f"Two charts over iterations, means of {len(SEEDS)} seeds, their range as a band. Left, the share of groups "
        f"of eight whose rewards are not all equal; right, the episodes that an update cost. {'. '.join(told)}."
    )


if __name__ == "__main__":
    save(__file__, draw())
