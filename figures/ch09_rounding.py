"""Figure 9.4: how a rounding difference grows in the main loop, from chapters/recorded/09-rounding.json.

`python figures/ch09_rounding.py` draws the figure. With `--record` it first trains what that file lacks (all of it
takes about 4 minutes of CPU): GRPO with weights snapped and not, each twice; after the first iteration of the second
training every weight is moved to the float64 next to it, above or below.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import torch

import agentrl as arl
from bookkit import trainings
from bookkit.figures import SERIES, chart, chart_style, chart_svg, command

RECORD = "09-rounding.json"
SEEDS = (5, 6)
GRIDS = (None, 2**16)
LABELS = {None: "weights as they come", 2**16: "weights snapped to $2^{-16}$"}
ZERO = 1e-17  # where exact zeros are drawn


def to_neighbours(model: torch.nn.Module, random: torch.Generator) -> None:
    """Move every weight to the next float above or below, as chance decides; an exact 0 stays."""
    with torch.no_grad():
        for weight in model.parameters():
            up = torch.rand(weight.shape, generator=random, dtype=arl.DTYPE) < 0.5
            towards = torch.where(up, torch.inf, -torch.inf).to(weight.dtype)
            weight.copy_(torch.where(weight == 0, weight, weight.nextafter(towards)))


class Watch:
    """The weights after each iteration and the tokens sampled in it, of a training moved after its first iteration."""

    def __init__(self, moved: bool) -> None:
        self.moved, self.weights, self.ids = moved, [], []

    def rewards(self, batch: arl.TrajectoryBatch) -> torch.Tensor:
        """Return what the environment said; keep the tokens."""
        self.ids.append(batch.ids)
        return batch.rewards

    def callback(self, state: arl.TrainState) -> None:
        """Keep the weights, moved where that is to be."""
        if self.moved and state.iteration == 1:
            to_neighbours(state.model, arl.generator(state.config.seed))
        self.weights.append(torch.cat([weight.detach().flatten().clone() for weight in state.model.parameters()]))


def watched(seed: int, grid: int | None, moved: bool, iterations: int = 20) -> tuple[Watch, list[float]]:
    """Return what was seen of a training, and its success."""
    watch, agent = Watch(moved), trainings.starting(seed)
    config = arl.TrainConfig(seed=seed, grid=grid, iterations=iterations)
    hooks = {"rewards": watch.rewards, "callback": watch.callback, "progress": False}
    history = arl.train(agent, trainings.tokenizer(), trainings.SPLIT.train, config, **hooks)
    return watch, history.column("success")


def compared(seed: int, grid: int | None, iterations: int = 20) -> dict[str, Any]:
    """Return how far two trainings part: the largest difference of weights, and the first other token's iteration."""
    (one, success), (other, also) = (watched(seed, grid, moved, iterations) for moved in (False, True))
    gaps = [(a - b).abs().max().item() for a, b in zip(one.weights, other.weights, strict=True)]
    parted = [at for at, (a, b) in enumerate(zip(one.ids, other.ids, strict=True), 1) if not torch.equal(a, b)]
    print(gaps, parted[:1], flush=True)
    return {
        "difference": [float(f"{gap:.2e}") for gap in gaps],
        "first_other_token": parted[0] if parted else None,
        "success": [trainings.digits(success[-1]), trainings.digits(also[-1])],
    }


def record() -> None:
    """Train every pair that the record lacks."""
    torch.set_num_threads(1)
    about = {
        "what": "GRPO on the gym twice, the weights moved by a last bit after the first iteration of the second time",
        "difference": "largest absolute difference of two weights, after each iteration",
        "first_other_token": "the iteration in which an episode first differs, or null",
        "success": "of the last iteration, in both",
    }
    jobs = [({"seed": seed, "grid": grid}, partial(compared, seed, grid)) for seed in SEEDS for grid in GRIDS]
    trainings.keep(RECORD, about, jobs)


def draw() -> str:
    """Return the figure's SVG."""
    with chart_style():
        figure, axes = chart(760, 320)
        for run in trainings.read(RECORD)["runs"]:
            color, dash, _ = SERIES[GRIDS.index(run["grid"])]
            heights = [gap or ZERO for gap in run["difference"]]
            label = LABELS[run["grid"]] if run["seed"] == SEEDS[0] else None
            axes.plot(range(1, len(heights) + 1), heights, color=color, linestyle=dash, marker="none", label=label)
        powers = range(-15, -5, 3)
        axes.set_yscale("log")
        axes.set_ylim(ZERO / 10, 1e-5)
        axes.set_yticks([ZERO, *(10.0**power for power in powers)], ["0", *(f"$10^{{{power}}}$" for power in powers)])
        axes.set_yticks([], minor=True)
        axes.set_ylabel("largest difference of two weights")
        axes.set_xlabel("iteration (4 updates each)")
        axes.set_xticks(range(0, 21, 5))
        axes.legend(loc="upper left")
        return chart_svg(figure, "A last bit, grown by training", in_words())


def in_words() -> str:
    """Return the description."""
    told = []
    for run in trainings.read(RECORD)["runs"]:
        gaps, token = run["difference"], run["first_other_token"]
        name = "snapped" if run["grid"] else "as they come"
        parted = f"an episode first differs in iteration {token}" if token else "no episode differs"
        told.append(f"weights {name}, seed {run['seed']}: {gaps[1]:.0e} after the second iteration, "
                    f"{gaps[-1]:.0e} after the last, {parted}")  # fmt: skip
    return (
        "Largest difference between the weights of two trainings, on a logarithmic scale, over 20 iterations. After "
        f"the first the weights of one were moved by a last bit. {'. '.join(told)}."
    )


if __name__ == "__main__":
    raise SystemExit(command(__file__, __doc__, draw, record, "train what the record lacks (about 4 minutes of CPU)"))
