"""Figure 8.1: the effective share of weighted samples against the length of a sequence.

`python figures/ch08_effective_sample_size.py` draws from figures/data/ch08-effective-sample-size.json. With `--record`
it first writes that file from what cells of §8.1 have printed in the chapter; nothing is run.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from bookkit.figures import INK, SERIES, chart, chart_style, chart_svg, command
from bookkit.notebook import write_atomic

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "figures" / "data" / "ch08-effective-sample-size.json"
CHAPTER = ROOT / "chapters" / "08-ppo.ipynb"
CHI2 = 0.01  # of the two policies of §8.1
DESC = (
    "The share of 10,000 sampled sequences that counts, from 0 to 1, against their length, 1 to 1,024 tokens on a "
    "logarithmic axis. The weights of single tokens stay at 0.99. The weights of whole sequences fall along the curve "
    "of Equation (8.5): {}."
)


def rows() -> list[dict[str, float]]:
    """Return length, share of tokens and share of sequences of each line that the chapter printed."""
    cells = json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]
    (cell,) = (cell for cell in cells if cell["id"] == "ess-length-print")
    text = "".join("".join(output["text"]) for output in cell["outputs"])
    found = re.findall(r"^ +(\d+) +([\d.]+) +([\d.]+) +[\d.]+ +[\d.]+$", text, re.MULTILINE)
    if not found:
        raise ValueError("cell ess-length-print of chapter 8 prints no table")
    return [{"length": int(n), "tokens": float(one), "sequences": float(whole)} for n, one, whole in found]


def record() -> None:
    """Write the data file."""
    write_atomic(DATA, json.dumps({"rows": rows()}, indent=1) + "\n")


def draw() -> str:
    """Return the text of the SVG."""
    table = json.loads(DATA.read_text(encoding="utf-8"))["rows"]
    lengths = [row["length"] for row in table]
    fine = [2 ** (step / 8) for step in range(81)]
    with chart_style():
        figure, axes = chart(760, 380)
        curves = [("tokens", "single tokens", 1.0, (60, 0.94)), ("sequences", "whole sequences", 0.0, (90, 0.46))]
        for (name, label, flat, place), (color, dash, marker) in zip(curves, SERIES, strict=False):
            exact = [(1 + CHI2) ** -(1.0 if flat else length) for length in fine]
            axes.plot(fine, exact, color=color, linestyle=dash, marker="")
            axes.plot(lengths, [row[name] for row in table], color=color, linestyle="none", marker=marker)
            axes.text(*place, label, color=INK, va="center", ha="left")
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
        axes.minorticks_off()
        axes.set_ylim(-0.03, 1.05)
        axes.set_xlabel("tokens of a sequence")
        axes.set_ylabel("effective share of the samples")
        told = ", ".join(f"{row['sequences']:.2f} at {row['length']:,}" for row in table)
        return chart_svg(figure, "Effective sample size against length", DESC.format(told))


if __name__ == "__main__":
    raise SystemExit(command(__file__, __doc__, draw, record, "write the data file from the chapter's output first"))
