"""Figure 2.2: the best probability of repair against the number of possible bugs, by the tools the agent may use.

The four curves are the closed forms derived in §2.7; tests/test_repair_mdp.py holds them to value iteration.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from bookkit.figures import INK, chart, chart_style, chart_svg, save

TITLE = "The value of information"
DESC = (
    "Best probability of repair with five turns and clarity 0.8, against 1 to 8 possible bugs. Blind falls as one over "
    "k. Test only is 1 up to two bugs and then falls as two over k. Read only falls slowly from 1 to about 0.83, read "
    "and test to 0.85. The distance from blind to read and test at eight bugs is marked as the value of information."
)
BUGS = range(1, 9)
CLARITY = 0.8


def success(reads: bool, tests: bool, bugs: int) -> float:
    """Return the best probability of repair with five turns: reading, if allowed, and one or two attempts."""
    attempts = min(bugs, 2 if tests else 1) / bugs
    return CLARITY + (1 - CLARITY) * attempts if reads else attempts


def draw() -> str:
    """Return the text of the SVG."""
    curves = {
        "read and test": (True, True),
        "read only": (True, False),
        "test only": (False, True),
        "blind": (False, False),
    }
    with chart_style():
        figure, axes = chart(760, 400)
        for name, (reads, tests) in curves.items():
            heights = [success(reads, tests, bugs) for bugs in BUGS]
            axes.plot(list(BUGS), heights, label=name)
        low, high = success(False, False, 8), success(True, True, 8)
        axes.annotate(
            "", xy=(8.25, high), xytext=(8.25, low), arrowprops={"arrowstyle": "<->", "color": INK, "lw": 1.4}
        )
        axes.text(8.35, (low + high) / 2, "value of\ninformation", va="center", ha="left")
        axes.set_xlim(0.8, 9.6)
        axes.set_ylim(0, 1.05)
        axes.set_xticks(list(BUGS))
        axes.set_xlabel("number of possible bugs k")
        axes.set_ylabel("best probability of repair")
        axes.legend(loc="center", bbox_to_anchor=(0.62, 0.56))
        return chart_svg(figure, TITLE, DESC)


if __name__ == "__main__":
    save(__file__, draw())
