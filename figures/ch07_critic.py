"""Figure 7.3: what a young critic does to the policy gradient, from chapters/recorded/07-critic.json.

`python figures/ch07_critic.py` draws the figure. With `--record` it trains again first and rewrites what that file
lacks (about 2 minutes of CPU): critics of the starting agent, which is not trained itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import torch

import agentrl as arl
from bookkit import trainings
from bookkit.figures import INK, SERIES, chart, chart_style, chart_svg, command

RECORD = "07-critic.json"
SEEDS = (2, 3, 4)
UPDATES = (0, 4, 12)  # of the critic, one a batch, when it is looked at
MEASURED = 6  # batches whose gradients are compared
LEARNING_RATE = 1e-3
CRITIC_KINDS = ("lambda 1", "lambda 0.95")


def sampled(agent: arl.TinyAgent, seed: int, count: int) -> Iterator[arl.TrajectoryBatch]:
    """Yield batches of 4 episodes of each training task."""
    for number in range(count):
        yield arl.collate(arl.rollout(agent, trainings.tokenizer(), trainings.SPLIT.train, 4, 1_000 * seed + number))


def gradient(agent: arl.TinyAgent, batch: arl.TrajectoryBatch, advantages: torch.Tensor) -> torch.Tensor:
    """Return the batch's estimate of the policy gradient, flat, with these advantages, [B, T]."""
    agent.zero_grad()
    whole = arl.loss_counts(batch.action_mask)
    for rows, part in arl.microbatches(batch, 32):
        logprobs = arl.token_logprobs(agent, part.ids, part.attention_mask, part.action_mask)
        chosen = advantages[rows][:, : logprobs.shape[1]]
        arl.policy_gradient_loss(logprobs, chosen, part.action_mask, whole=whole).backward()
    return torch.cat([-parameter.grad.flatten() for parameter in agent.parameters() if parameter.grad is not None])


def spread(gradients: torch.Tensor, reference: torch.Tensor) -> dict[str, float]:
    """Return variance and agreement of estimates [N, P]: of a batch's with the others' mean of an unbiased `reference`.

    The variance is the mean squared distance from the estimates' mean (n - 1), the agreement a mean cosine.
    """
    others = (reference.sum(0) - reference) / (len(reference) - 1)
    cosines = torch.nn.functional.cosine_similarity(gradients, others, dim=1)
    return {"variance": gradients.var(0).sum().item(), "cosine": cosines.mean().item()}


def advantages_of(batch: arl.TrajectoryBatch, kind: str, critic: arl.Critic | None = None) -> torch.Tensor:
    """Return the advantages [B, T] of a kind: "reward", "leave-one-out"; of a critic "lambda 1", "lambda 0.95"."""
    mask, rewards = batch.action_mask, batch.rewards
    if critic is None:
        return arl.broadcast_to_tokens(rewards if kind == "reward" else trainings.leave_one_out(rewards), mask)
    with torch.no_grad():
        values = critic.values(batch)
    return arl.gae(trainings.last_token_rewards(batch), values, mask, lam=float(kind.split()[1])).advantages


def teach(critic: arl.Critic, batch: arl.TrajectoryBatch) -> None:
    """Make one step of the critic towards the returns of a batch."""
    returns = arl.discounted_returns(trainings.last_token_rewards(batch), batch.action_mask)
    assert critic.optimizer is not None
    critic.optimizer.zero_grad()
    whole = arl.loss_counts(batch.action_mask)
    for rows, part in arl.microbatches(batch, 32):
        values, targets = critic.values(part), returns[rows][:, : part.ids.shape[1]]
        arl.ppo_value_loss(values, targets, part.action_mask, whole=whole).loss.backward()
    arl.apply_gradient(critic.optimizer)


def explained(critic: arl.Critic, batches: list[arl.TrajectoryBatch]) -> float:
    """Return the share of the variance of the returns that the critic's values explain, over the tokens of batches."""
    found = []
    for batch in batches:
        with torch.no_grad():
            values = critic.values(batch)[batch.action_mask]
        returns = arl.discounted_returns(trainings.last_token_rewards(batch), batch.action_mask)[batch.action_mask]
        found.append((values, returns))
    values, returns = (torch.cat(column) for column in zip(*found, strict=True))
    return arl.explained_variance(values, returns, torch.ones_like(values, dtype=torch.bool))


def study(seed: int) -> dict[str, Any]:
    """Return the numbers of a seed: spread of the estimates without a critic, and with one after some updates."""
    agent = trainings.starting(seed)
    critic = trainings.new_critic(seed, LEARNING_RATE, arl.generator(seed))
    batches, lessons = list(sampled(agent, seed, MEASURED)), sampled(agent, 500 + seed, max(UPDATES))
    plain = {
        kind: torch.stack([gradient(agent, batch, advantages_of(batch, kind)) for batch in batches])
        for kind in ("reward", "leave-one-out")
    }
    reference = plain["leave-one-out"]
    found: dict[str, Any] = {kind: spread(each, reference) for kind, each in plain.items()}
    for updates in range(max(UPDATES) + 1):
        if updates in UPDATES:
            row: dict[str, Any] = {"explained_variance": explained(critic, batches)}
            for kind in CRITIC_KINDS:
                each = [gradient(agent, batch, advantages_of(batch, kind, critic)) for batch in batches]
                row[kind] = spread(torch.stack(each), reference)
            print(seed, updates, row, flush=True)
            found[f"after {updates}"] = row
        if updates < max(UPDATES):
            teach(critic, next(lessons))
    return found


def record() -> None:
    """Study every seed that the record lacks."""
    torch.set_num_threads(1)
    about = {
        "what": "estimates of the policy gradient at the starting agent, from batches of 140 episodes",
        "critic": f"its own trunk, at first the agent's; one Adam step ({LEARNING_RATE}) a batch on returns, gamma 1",
        "columns": "variance: squared distance from the mean; cosine: with the mean leave-one-out estimate of the rest",
        "after n": "with a critic that has learnt from n batches; the policy stays as it is",
    }
    trainings.keep(RECORD, about, [({"seed": seed}, partial(study, seed)) for seed in SEEDS])


def draw() -> str:
    """Return the figure's SVG."""
    runs = trainings.read(RECORD)["runs"]
    kinds = {"reward": "no baseline", "leave-one-out": "leave-one-out"}
    kinds |= {f"{kind}, after {n}": f"critic, {kind}\nafter {n} batches" for n in UPDATES for kind in CRITIC_KINDS}
    with chart_style():
        figure, axes = chart(760, 430, ncols=2, sharey=True)
        for place, kind in enumerate(kinds):
            for column, (panel, name) in enumerate(zip(axes, ("variance", "cosine"), strict=True)):
                numbers = [_of(run, kind, name) for run in runs]
                color, _, marker = SERIES[column]
                look = {"color": color, "marker": marker, "linestyle": "none", "fillstyle": "none", "markersize": 8}
                panel.plot(numbers, [place] * len(runs), **look)
                mean = sum(numbers) / len(numbers)
                panel.plot([mean] * 2, [place - 0.3, place + 0.3], color=INK, linestyle="-", marker="", linewidth=2.2)
        axes[0].set_yticks(range(len(kinds)), list(kinds.values()))
        axes[0].set_ylim(len(kinds) - 0.5, -0.5)
        axes[0].set_xlabel("variance, in units of leave-one-out's")
        axes[1].set_xlabel("cosine with the other batches' mean")
        for panel in axes:
            panel.grid(axis="y", visible=False)
        return chart_svg(figure, "A young critic and the policy gradient", in_words(runs, list(kinds)))


def _of(run: dict[str, Any], kind: str, name: str) -> float:
    """Return a number of an estimate; its variance as a multiple of the leave-one-out estimate's."""
    kind, _, when = kind.partition(", ")
    found = (run[when] if when else run)[kind][name]
    return found / run["leave-one-out"]["variance"] if name == "variance" else found


def in_words(runs: list[dict[str, Any]], kinds: list[str]) -> str:
    """Return the description."""
    rows = []
    for kind in kinds:
        variance, cosine = (sum(_of(run, kind, name) for run in runs) / len(runs) for name in ("variance", "cosine"))
        rows.append(f"{kind}: {variance:.2f} and {cosine:.2f}")
    return (
        f"Two charts with a row for each estimate of the policy gradient; hollow marks are {len(runs)} seeds, the bar "
        "their mean. Left the variance in units of the leave-one-out estimate's, right the cosine with the mean "
        f"leave-one-out estimate of the other batches. Means: {'; '.join(rows)}."
    )


if __name__ == "__main__":
    raise SystemExit(command(__file__, __doc__, draw, record, "study the seeds the record lacks (2 minutes of CPU)"))
