"""Figure 10.1: bias and standard deviation of three estimators of a KL divergence, between two TinyAgents.

`python figures/ch10_kl_estimators.py` draws from figures/data/ch10-kl-estimators.json. With `--record` it first writes
that file from what a cell of §10.2 has printed in the chapter; nothing is run.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from bookkit.figures import SERIES, chart, chart_style, chart_svg, command
from bookkit.notebook import write_atomic

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "figures" / "data" / "ch10-kl-estimators.json"
CHAPTER = ROOT / "chapters" / "10-kl-entropy-regularization.ipynb"
KINDS = ("k1", "k2", "k3")
COLUMNS = ("exact", *(f"{kind} bias" for kind in KINDS), *(f"{kind} deviation" for kind in KINDS), "k1 below 0")


def rows() -> list[dict[str, float]]:
    """Return the lines of numbers that the chapter printed, by column."""
    cells = json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]
    (cell,) = (cell for cell in cells if cell["id"] == "estimator-print")
    text = "".join("".join(output["text"]) for output in cell["outputs"])
    lines = [re.findall(r"[-+]?\d+\.\d+", line) for line in text.splitlines()]
    found = [dict(zip(COLUMNS, map(float, line), strict=True)) for line in lines if len(line) == len(COLUMNS)]
    if not found:
        raise ValueError("cell estimator-print of chapter 10 prints no table")
    return found


def record() -> None:
    """Write the data file."""
    write_atomic(DATA, json.dumps({"rows": rows()}, indent=1) + "\n")


def draw() -> str:
    """Return the text of the SVG."""
    table = json.loads(DATA.read_text(encoding="utf-8"))["rows"]
    exact = [row["exact"] for row in table]
    with chart_style():
        figure, (left, right) = chart(760, 400, ncols=2)
        for kind, (color, dash, marker) in zip(KINDS, SERIES, strict=False):
            look = {"color": color, "linestyle": dash, "marker": marker, "label": kind}
            left.plot(exact, [row[f"{kind} bias"] for row in table], **look)
            right.plot(exact, [row[f"{kind} deviation"] / row["exact"] for row in table], **look)
        left.set_title("bias, as a share of the KL", fontsize=12)
        right.set_title("standard deviation of one sample, over the KL", fontsize=12)
        right.set_yscale("log")
        right.set_yticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
        right.minorticks_off()
        for axes in (left, right):
            axes.set_xscale("log")
            axes.set_xlabel("exact KL, nats a token")
        figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3)
        return chart_svg(figure, "Estimators of a KL divergence", in_words(table))


def in_words(table: list[dict[str, float]]) -> str:
    """Return the description."""
    first, last = table[0], table[-1]
    spread = "; ".join(
        f"{kind} from {first[f'{kind} deviation'] / first['exact']:.0f} to "
        f"{last[f'{kind} deviation'] / last['exact']:.1f}"
        for kind in KINDS
    )
    return (
        f"Two charts over the exact divergence a token, logarithmic, from {first['exact']:.4f} to {last['exact']:.2f} "
        "nats. Left, the bias as a share of the divergence: that of k1 and k3 is zero throughout, that of k2 is near "
        f"zero at first and {last['k2 bias']:.1f} in the end. Right, the standard deviation of one sample as a "
        f"multiple of the divergence, logarithmic: {spread}."
    )


if __name__ == "__main__":
    raise SystemExit(command(__file__, __doc__, draw, record, "copy the chapter's printed table into the data file"))
