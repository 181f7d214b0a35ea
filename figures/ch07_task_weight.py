"""Figure 7.2: by what each normalisation multiplies the gradient of a task, against the task's pass rate.

The curves are Equation (7.8), written out for each divisor; tests/test_chapter07.py holds them to the chapter's table.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from bookkit.figures import INK, chart, chart_style, chart_svg, save

GROUP = 8
DIVISORS: dict[str, Callable[[float], float]] = {  # of the share of successes in a group
    "leave-one-out": lambda share: (GROUP - 1) / GROUP,
    "group mean": lambda share: 1.0,
    "divided by the group's deviation": lambda share: math.sqrt(share * (1 - share) * GROUP / (GROUP - 1)),
    "divided by the group's mean": lambda share: share,
}
TITLE = "What normalisation does to the weight of a task"
DESC = (
    "The weight w of a task against its pass rate p from 0.02 to 0.98, for groups of eight. Leave-one-out is constant "
    "at 1 and the group mean at 0.875. Division by the group's standard deviation is a shallow U, 1.74 in the middle "
    "and 2.41 at both ends; its limit for large groups, one over the root of p times 1 minus p, leaves the picture at "
    "both ends. Division by the group's mean falls from 6.6 to 1."
)


def weight(p: float, divisor: Callable[[float], float]) -> float:
    """Return w(p) by Equation (7.8): groups without a difference have no gradient."""
    total = 0.0
    for successes in range(1, GROUP):
        share = successes / GROUP
        chance = math.comb(GROUP, successes) * p**successes * (1 - p) ** (GROUP - successes)
        total += chance * share * (1 - share) / divisor(share)
    return total / (p * (1 - p))


def draw() -> str:
    """Return the text of the SVG."""
    rates = [rate / 100 for rate in range(2, 99, 2)]
    with chart_style():
        figure, axes = chart(760, 400)
        for name, divisor in DIVISORS.items():
            axes.plot(rates, [weight(p, divisor) for p in rates], label=name, markevery=6)
        limit = [(p * (1 - p)) ** -0.5 for p in rates]
        axes.plot(rates, limit, color=INK, linewidth=1, linestyle=":", marker="", label="deviation, large groups")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 7)
        axes.set_xlabel("pass rate p of the task")
        axes.set_ylabel("weight of its gradient")
        axes.legend(loc="upper center")
        return chart_svg(figure, TITLE, DESC)


if __name__ == "__main__":
    save(__file__, draw())
