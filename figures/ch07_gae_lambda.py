"""Figure 7.1: bias of GAE, and the error of a batch's gradient estimate, against lambda for five critics.

`python figures/ch07_gae_lambda.py` draws from figures/data/ch07-gae-lambda.json. With `--record` it first writes that
file from what cell lambda-exact of §7.5 has printed in the chapter; nothing is computed anew but the error of a batch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from bookkit.figures import chart, chart_style, chart_svg, command
from bookkit.notebook import load_chapter, write_atomic

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "figures" / "data" / "ch07-gae-lambda.json"
CHAPTER = ROOT / "chapters" / "07-advantages-and-credit.ipynb"
EPISODES = 100  # of the batch on the right
DESC = (
    "Two panels against lambda from 0 to 1, for five critics of the repair MDP. Left, the bias as a share of the "
    "gradient's length: zero everywhere for exact values; {}; zero for all at lambda 1. Right, the root of squared "
    "bias plus variance for a batch of 100 episodes: {}."
)


def rows() -> dict[str, Any]:
    """Return the lambdas, and of each critic bias and noise, as the chapter printed them."""
    chapter = load_chapter(CHAPTER, ROOT)
    head, *lines = next(cell.stdout for cell in chapter.code_cells if cell.id == "lambda-exact").splitlines()
    lambdas = [float(number) for number in head.split()[1:]]
    critics: dict[str, dict[str, list[float]]] = {}
    for line in lines:
        words = line[15:].split()
        critics.setdefault(line[:15].strip(), {})[words[0]] = [float(number) for number in words[1:]]
    return {"lambda": lambdas, "critics": critics}


def batch_error(bias: float, noise: float) -> float:
    """Return the root of the mean square error of the mean over a batch, in units of the gradient's length."""
    return (bias**2 + noise**2 / EPISODES) ** 0.5


def record() -> None:
    """Write the data file."""
    write_atomic(DATA, json.dumps(rows(), indent=1) + "\n")


def draw() -> str:
    """Return the text of the SVG."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    lambdas, biases, lowest = data["lambda"], [], []
    with chart_style():
        figure, (left, right) = chart(760, 400, ncols=2)
        for name, critic in data["critics"].items():
            errors = [batch_error(*pair) for pair in zip(critic["bias"], critic["noise"], strict=True)]
            left.plot(lambdas, critic["bias"], label=name)
            right.plot(lambdas, errors, label=name)
            biases.append(f"{name} {critic['bias'][0]:.2f} at lambda 0")
            lowest.append(f"{name} lowest at {lambdas[errors.index(min(errors))]:g}")
        left.set_ylabel("bias / length of the gradient")
        right.set_ylabel(f"error of a batch of {EPISODES} episodes")
        for axes in (left, right):
            axes.set_xlabel("lambda")
            axes.set_ylim(bottom=0)
        right.legend(loc="lower right")
        return chart_svg(figure, "What lambda trades", DESC.format(", ".join(biases[1:]), ", ".join(lowest)))


if __name__ == "__main__":
    raise SystemExit(command(__file__, __doc__, draw, record, "write the data file from the chapter's output first"))
