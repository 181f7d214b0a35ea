"""Figure 8.3: PPO on the gym with 1 to 8 epochs a batch, from chapters/recorded/08-epochs.json.

`python figures/ch08_epochs.py` draws the figure. With `--record` it first trains what that file lacks (all of it takes
about 12 minutes of CPU): PPO with 1, 2, 4 and 8 epochs, with 16 clipped and not, and with a critic.
"""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import torch

import agentrl as arl
from bookkit import trainings
from bookkit.figures import chart, chart_style, chart_svg, command

RECORD = "08-epochs.json"
SEEDS = (2, 3, 4)
EPOCHS = (1, 2, 4, 8)
ITERATIONS = 12
LEARNING_RATE = 1e-3
NO_CLIP = {"clip_low": math.inf, "clip_high": math.inf}


def last(epochs: list[arl.PPOEpoch]) -> dict[str, float]:
    """Return what the log keeps of an update: its last epoch, after which the policy is farthest from the old one."""
    return {name: getattr(epochs[-1], name) for name in ("clip_fraction", "approx_kl", "ratio_max", "grad_norm")}


def without_critic(agent: arl.TinyAgent, seed: int, **settings: Any) -> trainings.Learn:
    """Return PPO's update with the mean reward of the batch's other episodes as the baseline."""
    optimizer, draw = trainings.adam(agent.parameters(), LEARNING_RATE), arl.generator(seed)

    def learn(agent: arl.TinyAgent, batch: arl.TrajectoryBatch, iteration: int) -> dict[str, float]:
        advantages = trainings.leave_one_out(batch.rewards)
        return last(arl.ppo_update(agent, optimizer, batch, advantages, draw, microbatch=32, **settings))

    return learn


def with_critic(agent: arl.TinyAgent, seed: int, **settings: Any) -> trainings.Learn:
    """Return PPO's update with GAE, λ 0.95, from a critic that starts as a copy of the agent's trunk."""
    optimizer, draw = trainings.adam(agent.parameters(), LEARNING_RATE), arl.generator(seed)
    critic = trainings.new_critic(seed, LEARNING_RATE, draw)

    def learn(agent: arl.TinyAgent, batch: arl.TrajectoryBatch, iteration: int) -> dict[str, float]:
        with torch.no_grad():
            values = critic.values(batch)
        found = arl.gae(trainings.last_token_rewards(batch), values, batch.action_mask, lam=0.95)
        targets = {"critic": critic, "returns": found.returns}
        epochs = arl.ppo_update(agent, optimizer, batch, found.advantages, draw, **targets, microbatch=32, **settings)
        outcome = arl.discounted_returns(trainings.last_token_rewards(batch), batch.action_mask)
        explained = arl.explained_variance(values, outcome, batch.action_mask)
        return last(epochs) | {"value_loss": epochs[-1].value_loss, "explained_variance": explained}

    return learn


def trained(
    seed: int, epochs: int, clip: bool = True, critic: bool = False, iterations: int = ITERATIONS
) -> dict[str, Any]:
    """Return the numbers of one training."""
    agent, settings = trainings.starting(seed), {} if clip else NO_CLIP
    learn = (with_critic if critic else without_critic)(agent, seed, epochs=epochs, **settings)
    return trainings.run(agent, learn, seed, iterations)


def record() -> None:
    """Train every run that the record lacks."""
    torch.set_num_threads(1)
    about = {
        "what": "PPO on the gym from the starting agent; the settings were chosen on seed 0",
        "batch": "an iteration: 4 episodes of each of the 35 training tasks",
        "update": "epochs of 2 minibatches, clipped at 0.8 and 1.2 or not at all, token mean",
        "advantages": "reward minus the mean of the batch's other episodes; with a critic GAE, gamma 1, lambda 0.95",
        "optimiser": f"Adam (0.9, 0.95), {LEARNING_RATE}, gradient norm at most 1, weights snapped to 2**-16",
        "counts": "[repaired, hacked, episodes], 16 attempts a task",
        "columns": "one number an iteration: of its 140 episodes, and of the last epoch of its update",
    }
    trainings.keep(RECORD, about, [job for seed in SEEDS for job in jobs(seed)])


def jobs(seed: int) -> list[tuple[dict[str, Any], Any]]:
    """Return what is trained with a seed, and how."""
    kinds = [(epochs, True, False, ITERATIONS) for epochs in EPOCHS]
    kinds += [(16, False, False, 8), (4, True, True, ITERATIONS), (16, True, False, 8)]
    names = ("epochs", "clip", "critic", "iterations")
    described = [dict(zip(names, kind, strict=True)) for kind in kinds]
    return [({"seed": seed, **what}, partial(trained, seed, **what)) for what in described]


def curves() -> dict[str, list[dict[str, Any]]]:
    """Return the runs to draw by the name of their curve, REINFORCE's from chapter 6 cut to as many iterations."""
    runs = [run for run in trainings.read(RECORD)["runs"] if not run["critic"]]
    reinforce = [run for run in trainings.read("06-reinforce.json")["runs"] if run.get("learning_rate") == 2e-3]
    made = {"REINFORCE, 1 step": [run | {"success": run["success"][:ITERATIONS]} for run in reinforce]}
    for run in runs:
        name = f"{run['epochs']} epoch{'s' * (run['epochs'] > 1)}{', not clipped' * (not run['clip'])}"
        made.setdefault(name, []).append(run)
    return made


def draw() -> str:
    """Return the figure's SVG."""
    with chart_style():
        figure, (left, right) = chart(760, 430, ncols=2)
        for number, (name, runs) in enumerate(curves().items()):
            trainings.band(left, [run["success"] for run in runs], 140, number, name, first=0)
            if "approx_kl" in runs[0]:
                trainings.band(right, [run["approx_kl"] for run in runs], 140, number, name)
        left.set_ylim(-0.03, 1.03)
        left.set_title("repairs of training tasks", fontsize=12)
        left.set_ylabel("share of the episodes of an iteration")
        right.set_yscale("log")
        right.set_ylim(1e-4, 10)
        right.set_title("approximate KL, last epoch of an update", fontsize=12)
        right.set_ylabel("nats a token")
        for axes in (left, right):
            axes.set_xlabel("episodes sampled")
        figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3)
        return chart_svg(figure, "Epochs on one batch", in_words())


def in_words() -> str:
    """Return the description."""
    ends = []
    for name, runs in curves().items():
        first, last = (trainings.mean_at([run["success"] for run in runs], place) for place in (0, -1))
        ends.append(f"{name} from {first:.2f} to {last:.2f} after {140 * (len(runs[0]['success']) - 1):,} episodes")
    return (
        f"Two charts over episodes sampled; a line is the mean of {len(SEEDS)} seeds, the band around it their range. "
        f"Left, the share of training tasks repaired: {'; '.join(ends)}. Right, on a logarithmic scale, the "
        "approximate KL divergence between the policy that sampled a batch and the one in the last epoch on it: it "
        "grows with the number of epochs. Without clipping it is above 0.1 at first and then leaves the chart: nothing "
        "is repaired, and the policy stands still."
    )


if __name__ == "__main__":
    raise SystemExit(command(__file__, __doc__, draw, record, "train what the record lacks (up to 12 minutes of CPU)"))
