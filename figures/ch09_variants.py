"""Figure 9.5: the six variants at one budget of episodes, from chapters/recorded/09-variants.json.

`python figures/ch09_variants.py` draws the figure. With `--record` it first trains what that file lacks (all of it
takes about 15 minutes of CPU): each of `arl.PRESETS` from five starting agents.
"""

from __future__ import annotations

import math
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import torch
from matplotlib.lines import Line2D

import agentrl as arl
from bookkit import trainings
from bookkit.figures import MUTED, chart, chart_style, chart_svg, command

RECORD = "09-variants.json"
SEEDS = (5, 6, 7, 8, 9)


def changed(config: arl.TrainConfig) -> dict[str, Any]:
    """Return the settings that are not the default; no bound is "inf"."""
    usual, own = asdict(arl.TrainConfig()), asdict(config)
    return {name: "inf" if value == math.inf else value for name, value in own.items() if value != usual[name]}


def about(configs: dict[str, arl.TrainConfig]) -> dict[str, Any]:
    """Return what a record says of all its runs."""
    return {
        "what": "the presets of chapter 9 on the gym from the starting agent; settings were looked at on seed 0",
        "budget": f"{trainings.BUDGET} episodes; refills count, and an iteration that would go beyond is undone",
        "usual": asdict(arl.TrainConfig()),
        "settings": {name: changed(config) for name, config in configs.items()},
        "counts": f"[repaired, hacked, episodes], {trainings.EVALUATED} attempts a task",
        "solved": f"when the mean success of three iterations first passed {trainings.SOLVED}, or null",
        "columns": "one number an iteration: of its first round of episodes, before the update, and of the update",
        "cpu_seconds": "of one thread of the machine that recorded, shared with other programs: a note, no comparison",
    }


def jobs(kind: str, configs: dict[str, arl.TrainConfig]) -> list[tuple[dict[str, Any], Any]]:
    """Return what is trained, seed by seed, and how; `kind` is what a record calls the name of a configuration."""
    return [
        ({kind: name, "seed": seed}, partial(trainings.gym_run, **asdict(config) | {"seed": seed}))
        for seed in SEEDS
        for name, config in configs.items()
    ]


def record() -> None:
    """Train every run that the record lacks."""
    torch.set_num_threads(1)
    trainings.keep(RECORD, about(arl.PRESETS), jobs("preset", arl.PRESETS))


def of_preset(name: str) -> list[dict[str, Any]]:
    """Return the runs of a preset."""
    return [run for run in trainings.read(RECORD)["runs"] if run["preset"] == name]


def draw() -> str:
    """Return the figure's SVG."""
    with chart_style():
        figure, panels = chart(760, 460, nrows=2, ncols=3, sharex=True, sharey=True)
        for number, (name, axes) in enumerate(zip(arl.PRESETS, panels.flat, strict=True)):
            if number:
                means = [sum(values) / len(values) for values in zip(*together("grpo"), strict=True)]
                xs = [280 * at for at in range(len(means))]
                axes.plot(xs, means, color=MUTED, linewidth=1.2, linestyle=":", marker="none", label="mean of grpo")
            trainings.band(axes, together(name), 280, number, name, first=0)
            axes.set_title(name, fontsize=12)
            axes.set_ylim(-0.03, 1.03)
        figure.supxlabel("episodes sampled", fontsize=12)
        figure.supylabel("repairs of training tasks, share", fontsize=12)
        figure.legend(handles=[Line2D([], [], color=MUTED, linestyle=":", marker="none", label="mean of grpo")],
                      loc="outside upper right")  # fmt: skip
        return chart_svg(figure, "Six variants at one budget of episodes", in_words())


def together(name: str) -> list[list[float]]:
    """Return the curves of success of a preset's runs."""
    return trainings.together(of_preset(name), "success")


def in_words() -> str:
    """Return the description."""
    told = []
    for name in arl.PRESETS:
        curves = together(name)
        means = [trainings.mean_at(curves, place) for place in (0, len(curves[0]) // 2, -1)]
        told.append(f"{name} {means[0]:.2f}, {means[1]:.2f} and {means[2]:.2f}")
    return (
        f"Six charts, one a preset: the share of training tasks repaired over episodes sampled, as the mean of "
        f"{len(SEEDS)} seeds, the band around it their range, and in all but the first the mean of grpo as a dotted "
        f"line. Means at the start, half way and at the end: {'; '.join(told)}."
    )


if __name__ == "__main__":
    raise SystemExit(command(__file__, __doc__, draw, record, "train what the record lacks (up to 15 minutes of CPU)"))
