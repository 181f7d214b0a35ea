"""Figure 10.3: entropy and diversity over a training, from chapters/recorded/10-regularisers.json.

`python figures/ch10_regularisers.py` draws the figure. With `--record` it first trains what that file lacks (all of it
takes about 30 minutes of CPU): chapter 9's loop from five starting agents that also know the call of another tool,
without and with regularisers.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import torch

import agentrl as arl
from bookkit import trainings
from bookkit.figures import chart, chart_style, chart_svg, command

RECORD = "10-regularisers.json"
SEEDS = (5, 6, 7, 8, 9)
TOKENIZER = trainings.tokenizer()
SPLIT = trainings.SPLIT
AT = (0, 5, 10, 15, 20)  # after how many iterations there is an evaluation
PAIRS = [(one, other) for one in range(10) for other in range(10)]


def skill(one: int, other: int) -> list[tuple[str, str]]:
    """Return an example of the auxiliary skill: the call of a tool that the gym does not have."""
    return [("prompt", f"sum {one} {other}"), ("policy", f"<call> sum {one} {other} </call>")]


def examples(count: int, random: torch.Generator) -> list[list[tuple[str, str]]]:
    """Return `count` examples of the skill, drawn at random."""
    return [skill(*PAIRS[int(u * 100)]) for u in torch.rand(count, generator=random, dtype=arl.DTYPE).tolist()]


@lru_cache(maxsize=1)
def all_examples() -> Any:
    """Return all hundred examples as a batch."""
    return arl.labelled_batch(TOKENIZER, [skill(*pair) for pair in PAIRS])


@lru_cache(maxsize=1)
def started(seed: int) -> arl.TinyAgent:
    """Return the starting agent of a seed: the book's, but with an example of the skill for each of its episodes."""
    random = arl.generator(seed)
    agent = arl.TinyAgent(arl.TinyAgentConfig(len(TOKENIZER)), random)

    def batches() -> Iterator[Any]:
        for _ in range(100):
            played = arl.warm_start_episodes(SPLIT.train, 32, random)
            yield arl.labelled_batch(TOKENIZER, [*played, *examples(32, random)], agent.config.max_positions)

    arl.warm_start(agent, batches())
    return agent


def retained(agent: arl.TinyAgent) -> list[float | None]:
    """Return what is left of the skill, exactly: the mean probability of the right call, how many have over 1/2."""
    with torch.no_grad():
        scored = arl.masked_sum(arl.token_logprobs(agent, *all_examples()), all_examples()[2], dim=1).exp()
    return [trainings.digits(scored.mean().item()), int((scored > 0.5).sum())]


def token_sums(agent: arl.TinyAgent, start: arl.TinyAgent, batch: arl.TrajectoryBatch) -> tuple[float, float, int]:
    """Return the exact entropies and KL divergences from the start, summed over a batch's policy tokens, and count."""
    sums = [0.0, 0.0]
    for _, part in arl.microbatches(batch, 64):
        given = (part.ids, part.attention_mask, part.action_mask)
        with torch.no_grad():
            own, ref = (arl.scored_logits(model, *given) for model in (agent, start))
        sums[0] += arl.entropy_from_logits(own).sum().item()
        sums[1] += arl.exact_kl(own, ref).sum().item()
    return sums[0], sums[1], int(batch.action_mask.sum())


def evaluated(agent: arl.TinyAgent, start: arl.TinyAgent, seed: int, at: int) -> dict[str, Any]:
    """Return what fresh episodes show of an agent, and what it has kept of the skill."""
    played = arl.rollout(agent, TOKENIZER, SPLIT.train, 16, 900_000 + 100 * seed + at)
    entropy, kl, tokens = token_sums(agent, start, arl.collate(played))
    repaired = {one.task_id for one in played if arl.episode_outcome(one.ended, one.info) == "repaired"}
    exact = {"entropy": entropy, "kl": kl}
    exact = {
        f"{name}_{unit}": trainings.digits(value / count)
        for name, value in exact.items()
        for unit, count in (("token", tokens), ("episode", len(played)))
    }
    others = {
        name: list(arl.success_rate(arl.rollout(agent, TOKENIZER, tasks, 8, 900_000 + 100 * seed + at))[:3])
        for name, tasks in (("new_functions", SPLIT.new_functions), ("new_family", SPLIT.new_family))
    }
    return {
        "train": list(arl.success_rate(played)[:3]),
        "distinct": arl.distinct_correct(played),
        "covered": len(repaired),
        **exact,
        **others,
        "skill": retained(agent),
    }


@lru_cache(maxsize=1)
def evaluated_start(seed: int) -> dict[str, Any]:
    """Return what is found of a seed's starting agent."""
    return evaluated(started(seed), started(seed), seed, 0)


class Watch:
    """What a training of this record is watched with: hooks of `arl.train`."""

    def __init__(self, seed: int, also: Callable[[arl.TrainState], None] | None = None) -> None:
        self.seed, self.also = seed, also
        self.found, self.cov = [evaluated_start(seed)], []

    def advantages(self, batch: arl.TrajectoryBatch, rewards: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        """Return GRPO's advantages, and keep how they vary with the tokens' log-probabilities."""
        advantages = arl.group_mean_advantages(rewards, groups, "group")
        mask = batch.action_mask
        scores, weights = batch.logprobs[mask], arl.broadcast_to_tokens(advantages, mask)[mask]
        self.cov.append(((scores - scores.mean()) * (weights - weights.mean())).mean().item())
        return advantages

    def callback(self, state: arl.TrainState) -> None:
        """Evaluate after some iterations, and do what else is to be done after each."""
        if state.iteration in AT:
            self.found.append(evaluated(state.model, started(self.seed), self.seed, state.iteration))
        if self.also is not None:
            self.also(state)


def trained(seed: int, arm: str, iterations: int = 20) -> dict[str, Any]:
    """Return the numbers of one training."""
    agent = copy.deepcopy(started(seed))
    settings, penalty, also = ARMS[arm](seed, agent)
    watch = Watch(seed, also)
    hooks = {"penalty": penalty, "advantages": watch.advantages, "callback": watch.callback}
    found = trainings.within_budget(agent, arl.TrainConfig(seed=seed, iterations=iterations, **settings), **hooks)
    print(found["solved"], found["success"][-1], [one["skill"] for one in watch.found], flush=True)
    evaluations = {name: [one[name] for one in watch.found] for name in watch.found[0]}
    cov = [trainings.digits(value) for value in watch.cov]
    return {**found, "cov": cov, "at": list(AT), **evaluations}


Made = tuple[dict[str, Any], Any, Any]  # settings, penalty, what else to do after an iteration


def with_kl(seed: int, agent: arl.TinyAgent, beta: float, every: int | None = None) -> Made:
    """Return a KL penalty to the start, or to the agent of every so many iterations."""
    penalty = arl.KLPenalty(agent, beta)

    def reset(state: arl.TrainState) -> None:
        if every is not None and state.iteration % every == 0:
            penalty.reset(state.model)

    return {}, penalty, reset


def with_sft(seed: int, agent: arl.TinyAgent) -> Made:
    """Return a loss on eight fresh examples of the skill for every microbatch."""
    random = arl.generator(10_000 + seed)
    return {}, arl.SFTPenalty(agent, lambda: arl.labelled_batch(TOKENIZER, examples(8, random)), 0.1), None


def with_entropy(seed: int, agent: arl.TinyAgent) -> Made:
    """Return an entropy bonus."""
    return {}, arl.EntropyBonus(0.01), None


def only(settings: dict[str, Any], seed: int, agent: arl.TinyAgent) -> Made:
    """Return nothing but settings."""
    return settings, None, None


ARMS: dict[str, Callable[[int, arl.TinyAgent], Made]] = {
    "none": partial(only, {}),
    "kl-0.01": partial(with_kl, beta=0.01),
    "kl-0.1": partial(with_kl, beta=0.1),
    "clip-higher": partial(only, {"clip_high": 0.28}),
    "entropy-0.01": with_entropy,
    "sft-0.1": with_sft,
    "kl-0.1-reset": partial(with_kl, beta=0.1, every=5),
    "lr-x4": partial(only, {"learning_rate": 8e-3}),
    "weight-decay": partial(only, {"weight_decay": 0.1}),
}


def record() -> None:
    """Train every run that the record lacks."""
    torch.set_num_threads(1)
    about = {
        "what": "chapter 9's GRPO on the gym, with regularisers, from agents that also know the call of another tool",
        "budget": f"{trainings.BUDGET} episodes: 20 iterations of 8 attempts at each of 35 training tasks",
        "at": "iterations after which it was evaluated: 16 fresh attempts a training task, 8 of the others",
        "counts": "[repaired, hacked, episodes]; skill: [mean probability of the right call, how many of 100 over 1/2]",
        "exact": "entropy and KL from the start are sums over the vocabulary, of the same episodes, in nats",
        "cov": "covariance of log-probability and advantage over the policy tokens of an iteration",
        "columns": "one number an iteration: of its episodes, before the update, and of the update",
        "weight-decay": "0.1 in AdamW, times the learning rate in each of the four steps of an iteration",
    }
    jobs = [({"arm": arm, "seed": seed}, partial(trained, seed, arm)) for seed in SEEDS for arm in ARMS]
    trainings.keep(RECORD, about, jobs)


def of_arm(name: str, what: str) -> list[list[float]]:
    """Return a curve of evaluations for each run of an arm."""
    return [run[what] for run in trainings.read(RECORD)["runs"] if run["arm"] == name]


DRAWN = {
    "none": "none",
    "clip-higher": "upper clip 1.28",
    "entropy-0.01": "entropy bonus, 0.01",
    "kl-0.1": "KL from the start, 0.1",
}
PANELS = {
    "entropy_episode": ("entropy of an episode", "nats"),
    "distinct": ("different successes in 560 episodes", "different token sequences, by task"),
}


def draw() -> str:
    """Return the figure's SVG."""
    with chart_style():
        figure, panels = chart(760, 420, ncols=2)
        for axes, (what, (title, unit)) in zip(panels, PANELS.items(), strict=True):
            for number, (name, label) in enumerate(DRAWN.items()):
                trainings.band(axes, of_arm(name, what), 5 * 280, number, label, first=0)
            axes.set_title(title, fontsize=12)
            axes.set_ylabel(unit)
            axes.set_ylim(0)
            axes.set_xlabel("episodes sampled")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
        return chart_svg(figure, "Entropy and diversity over training", in_words())


def in_words() -> str:
    """Return the description."""
    told = []
    for what, (title, _) in PANELS.items():
        means = {name: [trainings.mean_at(of_arm(name, what), at) for at in range(len(AT))] for name in DRAWN}
        told.append(f"{title}: " + "; ".join(
            f"{label} {', '.join(f'{value:.3g}' for value in means[name])}" for name, label in DRAWN.items()
        ))  # fmt: skip
    return (
        f"Two charts over episodes sampled: means of {len(SEEDS)} seeds, with their range as a band, at the start and "
        f"after each quarter of the training. Left, {told[0]}. Right, {told[1]}."
    )


if __name__ == "__main__":
    raise SystemExit(command(__file__, __doc__, draw, record, "train what the record lacks (about 30 minutes of CPU)"))
