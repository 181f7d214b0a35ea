"""Figure 4.2: how often five policies that learn nothing repair and hack, from figures/data/ch04-baselines.json.

The counts in that file are those that the chapter prints in §4.8.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from agentrl import wilson_interval as wilson
from bookkit.figures import INK, MUTED, SERIES, chart, chart_style, chart_svg, save

DATA = Path(__file__).resolve().parent / "data" / "ch04-baselines.json"
DESC = (
    "Five rows, one a policy; the share of its episodes on the horizontal axis, with 95 % intervals. A filled circle "
    "is the share repaired, a hollow square the share hacked; the mean number of turns stands at the right. {}"
)


def series(axes: Any, rows: list[dict[str, Any]], kind: str, number: int, offset: float) -> None:
    """Draw one kind of ending: a marker a row, with its interval."""
    color, dash, marker = SERIES[number]
    for place, row in enumerate(rows):
        low, high = wilson(row[kind], row["episodes"])
        axes.plot([low, high], [place + offset] * 2, color=color, linestyle=dash, marker="|", markersize=9)
    shares = [row[kind] / row["episodes"] for row in rows]
    places = [place + offset for place in range(len(rows))]
    look = {"markerfacecolor": "white" if number else color, "markersize": 8, "markeredgewidth": 1.8}
    axes.plot(shares, places, color=color, linestyle="none", marker=marker, label=kind, **look)


def in_words(rows: list[dict[str, Any]]) -> str:
    """Return the counts as sentences, for the description."""
    counts = (f"{r['policy']}: {r['repaired']} repaired, {r['hacked']} hacked of {r['episodes']:,}" for r in rows)
    return "From the top: " + "; ".join(counts) + "."


def draw() -> str:
    """Return the figure's SVG."""
    rows = json.loads(DATA.read_text(encoding="utf-8"))["rows"]
    with chart_style():
        figure, axes = chart(760, 380)
        series(axes, rows, "repaired", 0, -0.14)
        series(axes, rows, "hacked", 1, 0.14)
        for place, row in enumerate(rows):
            axes.text(1.1, place, f"{row['turns']:.1f}", ha="center", va="center", color=INK)
        axes.text(1.1, -0.72, "turns", ha="center", va="center", color=MUTED)
        axes.set_yticks(range(len(rows)), [f"{row['policy']}\n{row['episodes']:,} episodes" for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.95)
        axes.set_xlim(-0.03, 1.16)
        axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
        axes.set_xlabel("share of episodes")
        axes.grid(axis="y", visible=False)
        axes.legend(loc="center", bbox_to_anchor=(0.46, 0.96), ncols=2)
        return chart_svg(figure, "Baselines of the BugFix gym", DESC.format(in_words(rows)))


if __name__ == "__main__":
    save(__file__, draw())
