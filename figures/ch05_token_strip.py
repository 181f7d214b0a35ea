"""Figure 5.1: one episode as a token strip, drawn by the library's own function.

`python figures/ch05_token_strip.py` draws the episode in figures/data/ch05-token-strip.json. With `--record` it first
runs chapter 5 up to the cell that prints the episode's strip and writes that file (about a minute).
"""

from __future__ import annotations

import json
import math
import sys
import types
import xml.etree.ElementTree as ET
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import drawsvg

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from bookkit.figures import MONO, SVG, card, command, finish
from bookkit.notebook import write_atomic

if TYPE_CHECKING:
    from agentrl import Trajectory

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "figures" / "data" / "ch05-token-strip.json"
CHAPTER = ROOT / "chapters" / "05-trajectories-and-templates.ipynb"
CELL = "strip-solved"  # the cell that makes `solved` and `baseline`
WIDTH = 620
WHOLE = ("reward", "ended", "task_id", "attempt")
COLUMNS = ("ids", "action_mask", "logprobs", "writer", "turn")


def record() -> None:
    """Run the chapter up to the strip and write the episode and the mean reward of its task's attempts."""
    chapter = types.ModuleType("chapter05")
    sys.modules[chapter.__name__] = chapter  # dataclasses look their module up
    for cell in json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code" and "output" not in cell["metadata"].get("agentrl", {}):
            code = compile("".join(cell["source"]), f"<{cell['id']}>", "exec")
            with redirect_stdout(StringIO()):  # what the cells print is in the chapter
                exec(code, vars(chapter))
        if cell["id"] == CELL:
            break
    solved = chapter.__dict__["solved"]
    values = {name: getattr(solved, name).tolist() for name in COLUMNS}
    values["logprobs"] = [None if math.isnan(value) else round(value, 6) for value in values["logprobs"]]
    whole = {name: getattr(solved, name) for name in WHOLE}
    about = {"what": "the solved attempt of §5.8", "baseline": chapter.__dict__["baseline"]}
    write_atomic(DATA, json.dumps({"about": about, **whole, **values}, ensure_ascii=False) + "\n")


def episode() -> tuple[Trajectory, float]:
    """Return the recorded episode and its advantage: its reward minus the mean of the attempts."""
    import torch

    import agentrl as arl

    data = json.loads(DATA.read_text(encoding="utf-8"))
    values = {name: torch.tensor(data[name]) for name in COLUMNS if name != "logprobs"}
    logprobs = torch.tensor([math.nan if p is None else p for p in data["logprobs"]], dtype=arl.DTYPE)
    whole = {name: data[name] for name in WHOLE}
    return arl.Trajectory(**values, logprobs=logprobs, **whole), data["reward"] - data["about"]["baseline"]


def on_card(svg: str, title: str, desc: str) -> str:
    """Return the strip's SVG on the card of all figures."""
    root = ET.fromstring(svg)
    drawing = card(float(root.get("width") or 0), float(root.get("height") or 0))
    inside = [element for element in root if element.tag not in (f"{{{SVG}}}title", f"{{{SVG}}}desc")]
    ET.register_namespace("", SVG)
    shapes = "".join(ET.tostring(element, encoding="unicode") for element in inside[1:])  # without its own card
    drawing.append(drawsvg.Raw(f'<g font-family="{MONO}" fill="none">{shapes}</g>'))
    return finish(drawing, title, desc)


def draw() -> str:
    """Return the figure's SVG."""
    import agentrl as arl

    trajectory, advantage = episode()
    strip = arl.token_strip(trajectory, arl.gym_tokenizer(), [advantage] * len(trajectory))
    svg = strip.svg(WIDTH)
    words = ET.fromstring(svg).findtext(f"{{{SVG}}}desc") or ""
    desc = f"{strip.caption}. {words} The policy's tokens have mask 1 and advantage {advantage:+g}, the others mask 0."
    return on_card(svg, "One episode as a token strip", desc)


if __name__ == "__main__":
    raise SystemExit(command(__file__, __doc__, draw, record, "run the chapter and rewrite the data (about a minute)"))
