"""Figure 5.2: how many texts change when they are decoded and encoded again, by the kind of drift.

`python figures/ch05_drift.py` draws from figures/data/ch05-drift.json. With `--record` it first writes that file from
what the cells of §5.4 have printed in the chapter; nothing is run.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from bookkit.figures import GRID, INK, SERIES, chart, chart_style, chart_svg, command
from bookkit.notebook import write_atomic

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "figures" / "data" / "ch05-drift.json"
CHAPTER = ROOT / "chapters" / "05-trajectories-and-templates.ipynb"
DESC = (
    "Horizontal bars in five groups: the share of texts whose ids change when they are decoded and encoded again with "
    "Qwen3's tokenizer. {}"
)
HATCHES = ("", "///", "---", "xxx", "\\\\\\")


def printed(cell_id: str) -> str:
    """Return what a cell of the chapter has printed."""
    cells = json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]
    (cell,) = (cell for cell in cells if cell["id"] == cell_id)
    return "".join("".join(output["text"]) for output in cell["outputs"])


def counts(pattern: str, cell_id: str) -> Iterator[tuple[str, int, int]]:
    """Yield (name, changed, all) of each line that a cell printed and that matches; ValueError if none does."""
    found = re.findall(pattern, printed(cell_id), re.MULTILINE)
    if not found:
        raise ValueError(f"cell {cell_id} of chapter 5 prints no line like {pattern!r}")
    yield from ((name, int(changed), int(total)) for name, changed, total in found)


def rows() -> list[dict[str, Any]]:
    """Return the rows of the figure, from what the chapter printed."""
    made: list[dict[str, Any]] = []
    dropout: dict[str, list[int]] = {}
    for name, changed, total in counts(r"^(p = [\d.]+).*? (\d+) of (\d+) texts changed", "drift-dropout"):
        so_far = dropout.setdefault(name, [0, 0])
        dropout[name] = [so_far[0] + changed, so_far[1] + total]
    made += [{"kind": "merge, space", "name": f"dropout {name}", "counts": both} for name, both in dropout.items()]
    kinds = {"prompt ends in a space": "space"}
    for name, *both in counts(r"^(\w[\w ]*?) +(\d+) of (\d+)", "drift-borders"):
        made.append({"kind": kinds.get(name, "border"), "name": name, "counts": both})
    for name, *both in counts(r"(spelled|cut off).*?, (\d+) of (\d+) (?:added|lines)", "drift-controls-and-bytes"):
        kind, says = ("control", "an added token spelled out") if name == "spelled" else ("bytes", "cut off at any id")
        made.append({"kind": kind, "name": says, "counts": both})
    return sorted(made, key=lambda row: ["merge, space", "space", "border", "control", "bytes"].index(row["kind"]))


def record() -> None:
    """Write the data file."""
    about = {"what": "texts whose ids change, and all, as printed in §5.4", "tokenizer": "Qwen3"}
    write_atomic(DATA, json.dumps({"about": about, "rows": rows()}, indent=1) + "\n")


def draw() -> str:
    """Return the figure's SVG."""
    data = json.loads(DATA.read_text(encoding="utf-8"))["rows"]
    kinds = list(dict.fromkeys(row["kind"] for row in data))
    with chart_style():
        figure, axes = chart(760, 420)
        for place, row in enumerate(data):
            changed, total = row["counts"]
            number = kinds.index(row["kind"])
            look = {"facecolor": "white", "edgecolor": SERIES[number][0], "hatch": HATCHES[number], "linewidth": 1.6}
            axes.barh(place, changed / total, height=0.62, **(look if number else {"color": SERIES[0][0]}))
            axes.text(changed / total + 0.012, place, f"{changed} of {total}", va="center", ha="left", color=INK)
        _groups(axes, data)
        axes.set_yticks(range(len(data)), [row["name"] for row in data])
        axes.set_ylim(len(data) - 0.4, -0.6)
        axes.set_xlim(0, 1.42)
        axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
        axes.set_xlabel("share of texts whose ids change")
        axes.grid(axis="y", visible=False)
        said = "; ".join(f"{row['kind']}, {row['name']}: {row['counts'][0]} of {row['counts'][1]}" for row in data)
        return chart_svg(figure, "Retokenisation drift by kind", DESC.format(f"From the top: {said}."))


def _groups(axes: Any, data: Sequence[dict[str, Any]]) -> None:
    """Write each kind at the right of its rows, with a line between two kinds."""
    for kind in dict.fromkeys(row["kind"] for row in data):
        places = [place for place, row in enumerate(data) if row["kind"] == kind]
        axes.text(1.41, sum(places) / len(places), kind, va="center", ha="right", color=INK, style="italic")
        if places[0]:
            axes.axhline(places[0] - 0.5, color=GRID, linewidth=0.8)


if __name__ == "__main__":
    raise SystemExit(command(__file__, __doc__, draw, record, "rewrite the data from the chapter's recorded outputs"))
