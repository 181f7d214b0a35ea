"""Figure 9.2: one setting changed at a time, from chapters/recorded/09-ablations.json and 09-variants.json.

`python figures/ch09_ablations.py` draws the figure. With `--record` it first trains what 09-ablations.json and
09-group-size.json lack (all of it takes about 20 minutes of CPU): GRPO and Dr. GRPO with one of their two
normalisations exchanged, GRPO with a higher upper clip and with none, DAPO without refills, GSPO with its paper's
bounds, CISPO with narrow ones, and groups of other sizes.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import torch

import agentrl as arl
from bookkit import trainings
from bookkit.figures import chart, chart_style, chart_svg, command
from figures.ch09_variants import SEEDS, about, jobs, of_preset

RECORD = "09-ablations.json"
GROUP_RECORD = "09-group-size.json"
GRPO, DR_GRPO, DAPO, GSPO, CISPO = (arl.PRESETS[name] for name in ("grpo", "dr_grpo", "dapo", "gspo", "cispo"))
ARMS = {
    "dapo-no-refills": replace(DAPO, refills=0),
    "clip-higher-0.28": replace(GRPO, clip_high=0.28),
    "grpo-no-std": replace(GRPO, advantage="group"),
    "dr_grpo-with-std": replace(DR_GRPO, advantage="group-std"),
    "clip-higher-1": replace(GRPO, clip_high=1.0),
    "gspo-paper-clip": replace(GSPO, clip_low=3e-4, clip_high=4e-4),
}
LATER = {  # why CISPO is slow here: its band of 0 to 5 removes nothing
    "grpo-no-clip": replace(GRPO, clip_low=math.inf, clip_high=math.inf),
    "cispo-0.2": replace(CISPO, clip_low=0.2, clip_high=0.2),
}
GROUPS = {  # about as many episodes an iteration, more of each task; half as many, and twice as often
    "17-tasks-of-16": replace(GRPO, tasks_per_iteration=17, attempts=16),
    "9-tasks-of-31": replace(GRPO, tasks_per_iteration=9, attempts=31),
    "35-tasks-of-4": replace(GRPO, attempts=4, iterations=40),
}

PANELS = {
    "tokens_failed": (
        "length of an episode that fails",
        "policy tokens",
        {
            "grpo": "÷ length, ÷ deviation (grpo)",
            "grpo-no-std": "÷ length",
            "dr_grpo-with-std": "÷ deviation",
            "dr_grpo": "neither (dr_grpo)",
        },
    ),
    "entropy": (
        "entropy, from the sampled tokens",
        "nats a token",
        {"grpo": "upper clip 1.2 (grpo)", "clip-higher-0.28": "upper clip 1.28", "clip-higher-1": "upper clip 2"},
    ),
}


def record() -> None:
    """Train every run that the record lacks."""
    torch.set_num_threads(1)
    told = about(ARMS | LATER) | {
        "what": "presets of chapter 9 with settings changed, from the same starting agents as in 09-variants.json"
    }
    trainings.keep(RECORD, told, [*jobs("arm", ARMS), *jobs("arm", LATER)])
    trainings.keep(GROUP_RECORD, told | {"settings": about(GROUPS)["settings"]}, jobs("arm", GROUPS))


def of_arm(name: str) -> list[dict[str, Any]]:
    """Return the runs of an arm, or of a preset."""
    return of_preset(name) or [run for run in trainings.read(RECORD)["runs"] if run["arm"] == name]


def draw() -> str:
    """Return the figure's SVG."""
    with chart_style():
        figure, panels = chart(760, 480, ncols=2)
        for axes, (column, (title, unit, names)) in zip(panels, PANELS.items(), strict=True):
            for number, (name, label) in enumerate(names.items()):
                trainings.band(axes, trainings.together(of_arm(name), column), 280, number, label, first=0)
            axes.set_title(title, fontsize=12)
            axes.set_ylabel(unit)
            axes.set_ylim(0)
            axes.set_xlabel("episodes sampled")
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14))
        return chart_svg(figure, "Two normalisations and the upper clip", in_words())


def in_words() -> str:
    """Return the description."""
    told = []
    for column, (title, _, names) in PANELS.items():
        ends = []
        for name, label in names.items():
            curves = trainings.together(of_arm(name), column)
            first, middle, last = (trainings.mean_at(curves, place) for place in (0, len(curves[0]) // 2, -1))
            ends.append(f"{label} {first:.2f}, {middle:.2f}, {last:.2f}")
        told.append(f"{title}: {'; '.join(ends)}")
    return (
        f"Two charts over episodes sampled, means of {len(SEEDS)} seeds with their range as a band; the numbers are "
        f"means at the start, half way and at the end. Left, {told[0]}. Right, {told[1]}."
    )


if __name__ == "__main__":
    raise SystemExit(command(__file__, __doc__, draw, record, "train what the record lacks (up to 20 minutes of CPU)"))
