"""Figure 8.2: the clipped objective of a token and its derivative, for either sign of the advantage.

The curves are Equation (8.10) and its derivative, case by case; tests/test_chapter08.py holds them to the library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from bookkit.figures import MUTED, SERIES, chart, chart_style, chart_svg, save

LOW, HIGH, DUAL = 0.8, 1.2, 3.0
DESC = (
    "Two panels with the ratio from 0 to 4 on the horizontal axis. For an advantage of 1 the objective rises with the "
    "ratio to 1.2 and is flat beyond; its derivative by the log-probability rises along the ratio and drops to 0 at "
    "1.2. For an advantage of minus 1 the objective is flat at minus 0.8 up to a ratio of 0.8 and falls beyond; dual "
    "clip holds it at minus 3 from a ratio of 3 on. Its derivative is 0 up to 0.8 and minus the ratio beyond, and with "
    "dual clip 0 from 3 on."
)


def objective(ratio: float, advantage: int, dual: bool = False) -> float:
    """Return the clipped objective of a token with an advantage of 1 or -1, by cases."""
    if advantage > 0:
        return min(ratio, HIGH)
    return -min(max(ratio, LOW), DUAL) if dual else -max(ratio, LOW)


def derivative(ratio: float, advantage: int, dual: bool = False) -> float:
    """Return its derivative by the token's log-probability: the ratio times the advantage, or 0 where clipped."""
    clipped = ratio > HIGH if advantage > 0 else ratio < LOW or (dual and ratio > DUAL)
    return 0.0 if clipped else ratio * advantage


def panel(axes: Any, function: Callable[..., float], advantage: int) -> None:
    """Draw the objective or its derivative for one sign of the advantage, with dual clip where that differs."""
    ratios = [step / 400 * 4 for step in range(401)]
    for dual, (color, dash, _) in zip((False, True) if advantage < 0 else (False,), SERIES, strict=False):
        shown = [(ratio, function(ratio, advantage, dual)) for ratio in ratios if not dual or ratio > DUAL - 0.005]
        axes.plot(
            *zip(*shown, strict=True), color=color, linestyle=dash, marker="", label="dual clip" if dual else None
        )
    for edge in (HIGH,) if advantage > 0 else (LOW, DUAL):
        axes.axvline(edge, color=MUTED, linewidth=0.9, linestyle=(0, (1, 3)), marker="")
    axes.set_xticks([0, LOW, HIGH, 2, DUAL, 4])


def draw() -> str:
    """Return the text of the SVG."""
    with chart_style():
        figure, grid = chart(760, 480, nrows=2, ncols=2, sharex=True)
        for column, advantage in enumerate((1, -1)):
            panel(grid[0][column], objective, advantage)
            panel(grid[1][column], derivative, advantage)
            grid[0][column].set_title(f"A = {advantage}")
            grid[1][column].set_xlabel("ratio")
        grid[0][0].set_ylabel("objective")
        grid[1][0].set_ylabel("derivative")
        grid[0][1].legend(loc="lower left")
        return chart_svg(figure, "The clipped objective and its derivative", DESC)


if __name__ == "__main__":
    save(__file__, draw())
