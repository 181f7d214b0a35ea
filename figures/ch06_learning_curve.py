"""Figure 6.3: REINFORCE on the gym at three learning rates, from chapters/recorded/06-reinforce.json.

`python figures/ch06_learning_curve.py` draws the figure. With `--record` it first trains what that file lacks (all of
it takes about 4 minutes of CPU): from the starting agent, and with learning rates 5 and 15 times as large.
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import torch

import agentrl as arl
from bookkit import trainings
from bookkit.figures import MUTED, chart, chart_style, chart_svg, command

RECORD = "06-reinforce.json"
SEEDS = (2, 3, 4)
ITERATIONS = 40
RATES = (2e-3, 1e-2, 3e-2)
SHOWN = ("success", "entropy")


def reinforce(agent: arl.TinyAgent, learning_rate: float) -> trainings.Learn:
    """Return the step of REINFORCE with the mean reward of the batch's other episodes as the baseline."""
    optimizer = trainings.adam(agent.parameters(), learning_rate)

    def learn(agent: arl.TinyAgent, batch: arl.TrajectoryBatch, iteration: int) -> dict[str, float]:
        advantages = trainings.leave_one_out(batch.rewards)
        return {"grad_norm": arl.reinforce_update(agent, optimizer, batch, advantages, microbatch=32).grad_norm}

    return learn


def trained(seed: int, learning_rate: float, iterations: int = ITERATIONS) -> dict[str, Any]:
    """Return the numbers of one training."""
    agent = trainings.starting(seed)
    return trainings.run(agent, reinforce(agent, learning_rate), seed, iterations)


def record() -> None:
    """Train every run that the record lacks."""
    torch.set_num_threads(1)
    about = {
        "what": "REINFORCE on the gym from the starting agent; the settings were chosen on seeds 0 and 1",
        "batch": "an iteration: 4 episodes of each of the 35 training tasks, then one step",
        "baseline": "the mean reward of the other episodes of the batch",
        "optimiser": "Adam (0.9, 0.95), gradient norm at most 1, weights snapped to multiples of 2**-16",
        "counts": "[repaired, hacked, episodes]; trained agents play every task 16 times",
        "columns": "one number an iteration, of its 140 episodes before the step; grad_norm before clipping",
    }
    jobs = [({"policy": name}, partial(trainings.baseline, name)) for name in trainings.BASELINES]
    for seed in SEEDS:
        what = {"policy": "REINFORCE", "seed": seed, "learning_rate": RATES[0]}
        jobs.append((what, partial(trained, seed, RATES[0])))
    for rate, seed in product(RATES[1:], SEEDS):
        what = {"policy": "REINFORCE", "seed": seed, "learning_rate": rate}
        jobs.append((what, partial(trained, seed, rate, ITERATIONS // 2)))
    trainings.keep(RECORD, about, jobs)


def draw() -> str:
    """Return the figure's SVG."""
    runs = trainings.read(RECORD)["runs"]
    trained = {rate: [run for run in runs if run.get("learning_rate") == rate] for rate in RATES}
    with chart_style():
        figure, (left, right) = chart(760, 400, ncols=2)
        for number, (rate, some) in enumerate(trained.items()):
            label = f"learning rate {rate:g}"
            trainings.band(left, [run["success"] for run in some], 140, number, label)
            trainings.band(right, [run["entropy"] for run in some], 140, number, label)
        for run, x, side in zip(runs[:2], (5600, 60), ("right", "left"), strict=True):
            share = run["train"][0] / run["train"][2]
            left.axhline(share, color=MUTED, linestyle=":", linewidth=1.2)
            left.text(x, share + 0.012, run["policy"], ha=side, va="bottom", color=MUTED, fontsize=10)
        left.set_ylim(-0.03, 1.03)
        left.set_title("repairs of training tasks, share of an iteration's episodes", fontsize=11)
        right.set_yscale("log")
        right.set_yticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
        right.minorticks_off()
        right.set_title("entropy, nats a token", fontsize=11)
        for axes in (left, right):
            axes.set_xlabel("episodes sampled")
        figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3)
        return chart_svg(figure, "REINFORCE learns, and unlearns", in_words(trained, runs))


def in_words(trained: dict[float, list[Any]], runs: list[Any]) -> str:
    """Return the description."""
    menu, solver = (run["train"][0] / run["train"][2] for run in runs[:2])
    said = []
    for rate, some in trained.items():
        ends = [trainings.mean_at([run[name] for run in some], place) for name, place in product(SHOWN, (0, -1))]
        episodes = 140 * len(some[0]["success"])
        said.append(
            f"learning rate {rate:g}, {episodes:,} episodes: repairs from {ends[0]:.2f} to {ends[1]:.2f}, entropy from "
            f"{ends[2]:.2f} to {ends[3]:.2f}"
        )
    return (
        f"Two charts over episodes sampled; a line is the mean of {len(SEEDS)} seeds, the band around it their range. "
        f"Left the share of training tasks repaired, right the entropy on a logarithmic scale. {'; '.join(said)}. "
        f"Dotted lines: random over the menu {menu:.3f}, scripted solver {solver:.2f}."
    )


if __name__ == "__main__":
    raise SystemExit(command(__file__, __doc__, draw, record, "train what the records lack (up to 4 minutes of CPU)"))
