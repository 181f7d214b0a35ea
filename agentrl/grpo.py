"""Chapter 9 · GRPO and Critic-Free Methods.

What does each of GRPO, Dr. GRPO, DAPO, RLOO, GSPO and CISPO change?

Built from chapters/09-grpo-and-variants.ipynb by scripts/build_library.py.
Do not edit: change the chapter and run `make library`.
"""

import io
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from agentrl.advantages import group_mean_advantages, leave_one_out_advantages
from agentrl.bugfix_gym import episode_outcome
from agentrl.notation import DTYPE
from agentrl.policy_gradient import (
    LossCounts,
    TrainLog,
    aggregate_loss,
    check_step,
    loss_counts,
    microbatches,
    rollout_summary,
)
from agentrl.ppo import (
    PolicyLoss,
    PPOEpoch,
    PPOSettings,
    check_clip,
    clipped_losses,
    log_ratio,
    ppo_update,
    ratio_from_log,
    reported_loss,
    token_advantages,
)
from agentrl.tiny_agent import TinyAgent, TinyTokenizer
from agentrl.trajectories import WRITERS, Trajectory, TrajectoryBatch, collate, episode_stream, gym_env, rollout

__all__ = [
    "grpo_advantages",
    "informative_groups",
    "gspo_policy_loss",
    "cispo_policy_loss",
    "overlong_penalty",
    "TrainConfig",
    "PRESETS",
    "History",
    "TrainState",
    "train",
    "episode_text",
]


# chapters/09-grpo-and-variants.ipynb · cell saved-grpo-advantages
def grpo_advantages(rewards: Tensor, normalize_std: bool = True, eps: float = 1e-6) -> Tensor:
    """Return GRPO's advantages of P groups of G attempts, [P, G]: reward minus the group's mean, over its deviation.

    With `normalize_std` false nothing is divided by (Dr. GRPO). A group of equal rewards is exactly 0. The deviation is
    that of a sample, G - 1, plus `eps`, as in verl; TRL's eps is 1e-4, rLLM divides by G. ValueError for rewards that
    are not [P, G], one attempt (no baseline), and for a nan: an attempt without a verdict is to be left out.
    """
    if rewards.dim() != 2 or not rewards.shape[1]:
        raise ValueError(f"rewards {list(rewards.shape)}; they must be [P, G], a row a task, with attempts in it")
    groups = torch.arange(len(rewards))[:, None].expand(rewards.shape)
    scale = "group" if normalize_std else "none"
    return group_mean_advantages(rewards.flatten(), groups.flatten(), scale, eps).view(rewards.shape)


# chapters/09-grpo-and-variants.ipynb · cell saved-informative
def informative_groups(rewards: Tensor, groups: Tensor) -> Tensor:
    """Return which rewards [N] are of a group whose rewards are not all equal, bool [N]: the only ones that teach.

    `groups` [N] are whole numbers, one a group. ValueError for a nan and for other shapes.
    """
    if rewards.dim() != 1 or rewards.shape != groups.shape or groups.is_floating_point() or groups.dtype == torch.bool:
        shapes = f"rewards {list(rewards.shape)}, groups {groups.dtype} {list(groups.shape)}"
        raise ValueError(f"{shapes}; they must be [N] and [N] whole numbers")
    if rewards.isnan().any():
        raise ValueError(f"rewards at position {int(rewards.isnan().nonzero()[0])}: nan; leave the attempt out")
    informative = torch.zeros_like(groups, dtype=torch.bool)
    for own in (groups == name for name in groups.unique().tolist()):
        informative[own] = bool((rewards[own] != rewards[own][0]).any())
    return informative


# chapters/09-grpo-and-variants.ipynb · cell saved-gspo
def gspo_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
    whole: LossCounts | None = None,
) -> PolicyLoss:
    """Return GSPO's loss: the ratio is that of a sequence, the geometric mean of its tokens' ratios, clipped as PPO's.

    Arguments are those of `ppo_policy_loss`; the bounds are the paper's, for answers of thousands of tokens. Sequences
    count alike (seq-mean-token-mean). Advantages [B, T] that differ within a row give the paper's GSPO-token. Clip
    fraction, ratios and KL in the result are of tokens.
    """
    check_clip(clip_low, clip_high, None)
    weights = token_advantages(advantages, mask)
    logs = log_ratio(logprobs, old_logprobs, mask)
    mean = logs.detach().sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    ratio = ratio_from_log(mean + logs - logs.detach(), mask)  # the sequence's, with the gradient of the token's log
    losses, *removed = clipped_losses(ratio, weights, clip_low, clip_high, None)
    loss = aggregate_loss(losses, mask, "seq-mean-token-mean", whole=whole)
    return reported_loss(loss, logs.detach(), removed, mask, whole)


# chapters/09-grpo-and-variants.ipynb · cell saved-cispo
def cispo_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip_low: float = 1.0,
    clip_high: float = 4.0,
    aggregation: str = "token-mean",
    norm_length: float | None = None,
    whole: LossCounts | None = None,
) -> PolicyLoss:
    """Return CISPO's loss: log-probability times advantage times the ratio, held in the band, as a weight only.

    The weight, clamped to [1 - clip_low, 1 + clip_high], has no gradient, and every token keeps its own. Bounds are
    offsets from 1 (some programs take the bounds themselves); a `clip_low` of 1 is none. `clip_fraction` is here the
    share of tokens whose weight was clamped. The rest is as in `ppo_policy_loss`.
    """
    check_clip(clip_low, clip_high, None)
    weights = token_advantages(advantages, mask)
    logs = log_ratio(logprobs, old_logprobs, mask)
    ratio = ratio_from_log(logs.detach(), mask)
    held = ratio.clamp(1 - clip_low, 1 + clip_high)
    losses = -weights * held * torch.where(mask, logprobs, torch.zeros_like(logprobs))
    loss = aggregate_loss(losses, mask, aggregation, norm_length, whole)
    clipped = held != ratio
    return reported_loss(loss, logs.detach(), (clipped, torch.zeros_like(clipped)), mask, whole)


# chapters/09-grpo-and-variants.ipynb · cell saved-overlong
def overlong_penalty(lengths: Tensor, max_length: int, buffer: int) -> Tensor:
    """Return what DAPO adds to the reward of a long answer, [B]: 0 up to max_length - buffer, then falling to -1.

    `lengths` [B] count policy tokens. From `max_length` on it is -1. ValueError unless 0 < buffer <= max_length.
    """
    if not 0 < buffer <= max_length:
        raise ValueError(f"buffer {buffer}, max_length {max_length}; need 0 < buffer <= max_length")
    over = lengths.to(DTYPE) - (max_length - buffer)
    return 0.0 - (over / buffer).clamp(0.0, 1.0)  # and no -0.0


# chapters/09-grpo-and-variants.ipynb · cell saved-estimators
_ESTIMATORS = {
    "group-std": partial(group_mean_advantages, scale="group"),
    "group": group_mean_advantages,
    "batch-std": partial(group_mean_advantages, scale="batch"),
    "leave-one-out": leave_one_out_advantages,
}
_LOSSES = ("ppo", "gspo", "cispo")


# chapters/09-grpo-and-variants.ipynb · cell saved-config
@dataclass(frozen=True)
class TrainConfig:
    """What `train` does: sampling, credit, loss, steps. The defaults are `PRESETS["grpo"]`.

    `attempts` of each of `tasks_per_iteration` tasks (None: all of them); with `refills` groups without information are
    replaced, in that many further rounds at most (DAPO's dynamic sampling). `overlong` (max_length, buffer) adds
    `overlong_penalty`. `advantage` is "group-std", "group", "batch-std" or "leave-one-out", `loss` "ppo", "gspo" or
    "cispo"; the others are settings of `rollout`, `ppo_policy_loss` and `ppo_update`.
    """

    iterations: int = 20
    seed: int = 0
    tasks_per_iteration: int | None = None
    attempts: int = 8
    temperature: float = 1.0
    max_turn_tokens: int = 6
    refills: int = 0
    overlong: tuple[int, int] | None = None
    advantage: str = "group-std"
    loss: str = "ppo"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    aggregation: str = "seq-mean-token-mean"
    norm_length: float | None = None
    epochs: int = 2
    minibatches: int = 2
    microbatch: int | None = 32
    max_kl: float | None = None
    learning_rate: float = 2e-3
    weight_decay: float = 0.0
    max_grad_norm: float | None = 1.0
    grid: int | None = 2**16

    def __post_init__(self) -> None:
        _check_config(self)


# chapters/09-grpo-and-variants.ipynb · cell saved-check-choices
def _update_settings(config: TrainConfig) -> dict[str, Any]:
    """Return the settings of `ppo_update`."""
    return {field.name: getattr(config, field.name) for field in fields(PPOSettings)}


def _check_choices(config: TrainConfig) -> None:
    """Raise ValueError for an advantage or a loss that there is not, or settings that do not go with the loss."""
    for name, known in (("advantage", _ESTIMATORS), ("loss", _LOSSES)):
        if getattr(config, name) not in known:
            raise ValueError(f"{name} is {getattr(config, name)!r}; it must be one of {', '.join(known)}")
    if config.loss != "ppo" and config.dual_clip is not None:
        raise ValueError(f"dual_clip is {config.dual_clip}; the loss {config.loss!r} has none")
    if config.loss == "gspo" and config.aggregation != "seq-mean-token-mean":
        raise ValueError(f"aggregation is {config.aggregation!r}; GSPO's sequences count alike: seq-mean-token-mean")


# chapters/09-grpo-and-variants.ipynb · cell saved-check-config
_MOST = 10**6
_COUNTS = {  # from which number to which
    "iterations": (0, _MOST),
    "seed": (0, _MOST),
    "tasks_per_iteration": (1, _MOST),
    "attempts": (2, _MOST),
    "max_turn_tokens": (1, _MOST),
    "refills": (0, 100),
}


def _check_overlong(pair: Any) -> None:
    """Raise ValueError unless it is None or two whole numbers that `overlong_penalty` takes."""
    if pair is None:
        return
    if not (isinstance(pair, tuple) and len(pair) == 2 and all(type(number) is int for number in pair)):
        raise ValueError(f"overlong is {pair!r}; it must be (max_length, buffer), two whole numbers, or None")
    overlong_penalty(torch.zeros(1), *pair)


# chapters/09-grpo-and-variants.ipynb · cell saved-check-all
def _check_config(config: TrainConfig) -> None:
    """Raise ValueError for settings that cannot be, before anything is sampled or trained."""
    PPOSettings(**_update_settings(config))
    _check_choices(config)
    for name, (least, most) in _COUNTS.items():
        number = getattr(config, name)
        counts = type(number) is int and least <= number <= most
        if not counts and (name, number) != ("tasks_per_iteration", None):
            raise ValueError(f"{name} is {number!r}; it must be a whole number from {least} to {most:,}")
    for name in ("learning_rate", "weight_decay"):
        number = getattr(config, name)
        if not (type(number) in (int, float) and 0 <= number < math.inf):
            raise ValueError(f"{name} is {number!r}; it must be a number, at least 0 and finite")
    if config.grid is not None and 0 < config.learning_rate < 1 / (2 * config.grid):
        lost = f"steps of Adam are about as long, and the grid of 1/{config.grid} rounds them to nothing"
        raise ValueError(f"learning_rate is {config.learning_rate}; {lost}: give grid=None")
    _check_overlong(config.overlong)


# chapters/09-grpo-and-variants.ipynb · cell saved-presets

# The six variants as the chapter compares them: what their papers change, at TinyAgent's size.
PRESETS = {
    "grpo": TrainConfig(),
    "dr_grpo": TrainConfig(advantage="group", aggregation="seq-mean-token-sum-norm", norm_length=30),
    "dapo": TrainConfig(clip_high=0.28, aggregation="token-mean", refills=2, overlong=(30, 6)),
    "rloo": TrainConfig(advantage="leave-one-out", aggregation="seq-mean-token-sum"),
    "gspo": TrainConfig(loss="gspo", clip_low=0.1, clip_high=0.1),
    "cispo": TrainConfig(loss="cispo", clip_low=1.0, clip_high=4.0, aggregation="token-mean"),
}


# chapters/09-grpo-and-variants.ipynb · cell saved-named-loss
def _named_loss(config: TrainConfig) -> Callable[..., PolicyLoss] | None:
    """Return the loss of a configuration as `ppo_update` takes it; None for its own."""
    if config.loss == "gspo":
        return partial(gspo_policy_loss, clip_low=config.clip_low, clip_high=config.clip_high)
    names = ("clip_low", "clip_high", "aggregation", "norm_length")
    return (
        partial(cispo_policy_loss, **{name: getattr(config, name) for name in names})
        if config.loss == "cispo"
        else None
    )


# chapters/09-grpo-and-variants.ipynb · cell saved-round
@dataclass(frozen=True)
class _Round:
    """Episodes that may be learnt from: their batch, rewards, groups, and whether the group of each is informative."""

    batch: TrajectoryBatch
    rewards: Tensor
    groups: Tensor
    informative: Tensor

    def count(self, informative: bool = False) -> int:
        """Return how many groups there are, or how many that are informative."""
        return len((self.groups[self.informative] if informative else self.groups).unique())


# chapters/09-grpo-and-variants.ipynb · cell saved-graded
_Rewards = Callable[[TrajectoryBatch], Tensor]


def _graded(played: Sequence[Trajectory], config: TrainConfig, rewards: _Rewards | None, first: int) -> _Round:
    """Return the episodes with a verdict, graded; `first` is added to a task's id for the number of its group.

    An episode whose environment broke is left out, and with it one that is then alone: it has nothing to compare with.
    What makes a group informative are the verdicts; a penalty for length comes after them, as in DAPO.
    """
    sizes = Counter(one.task_id for one in played if one.reward is not None)
    batch = collate(one for one in played if one.reward is not None and sizes[one.task_id] > 1)
    earned = batch.rewards if rewards is None or not len(batch) else rewards(batch)
    if not isinstance(earned, Tensor) or earned.shape != batch.rewards.shape:
        given = list(earned.shape) if isinstance(earned, Tensor) else type(earned).__name__
        raise ValueError(f"rewards gave {given}; it must give a tensor, [{len(batch)}]")
    if earned.isnan().any():
        place = int(earned.isnan().nonzero()[0])
        raise ValueError(f"rewards at position {place}: nan; `rewards` must give a number for each attempt")
    earned, groups = earned.detach().to(DTYPE), batch.task_ids + first
    informative = informative_groups(earned, groups)
    if config.overlong is not None and len(batch):
        earned = earned + overlong_penalty(batch.action_mask.sum(1), *config.overlong)
    return _Round(batch, earned, groups, informative)


# chapters/09-grpo-and-variants.ipynb · cell saved-kept
def _kept(rounds: Sequence[_Round], wanted: int) -> _Round:
    """Return the first `wanted` informative groups of several rounds, as one."""
    columns = ("rewards", "groups", "informative")
    rewards, groups, informative = (torch.cat([getattr(one, name) for one in rounds]) for name in columns)
    own = torch.isin(groups, groups[informative].unique()[:wanted])
    played = (trajectory for one in rounds for trajectory in one.batch.split())
    return _Round(collate(compress(played, own.tolist())), rewards[own], groups[own], informative[own])


# chapters/09-grpo-and-variants.ipynb · cell saved-sample
class _Sampled(NamedTuple):
    """What an iteration sampled: its first round as played, how informative that was, what to learn from, the cost."""

    played: list[Trajectory]
    informative: float
    kept: _Round
    episodes: int


def _drawn(tasks: Sequence[Any], count: int, stream: torch.Generator) -> list[Any]:
    """Return `count` different tasks, drawn at random, in their order; all of them if there are no more."""
    if count >= len(tasks):
        return list(tasks)
    chosen = torch.rand(len(tasks), generator=stream, dtype=DTYPE).argsort(stable=True)[:count]
    return [tasks[place] for place in sorted(chosen.tolist())]


def _sample(play: Callable[[list[Any], int], tuple], tasks: Sequence[Any], config: TrainConfig, at: int) -> _Sampled:
    """Return the episodes of iteration `at`; `play(tasks, number of the round)` gives them as played and as a round."""
    wanted = min(config.tasks_per_iteration or len(tasks), len(tasks))
    rounds: list[tuple[list[Trajectory], _Round]] = []
    for number in range(config.refills + 1):
        missing = wanted - sum(one.count(informative=True) for _, one in rounds)
        if missing > 0:
            stream = episode_stream(config.seed, at, number, "tasks")
            rounds.append(play(_drawn(tasks, missing, stream), number))
    (first, graded), episodes = rounds[0], sum(len(played) for played, _ in rounds)
    share = graded.count(informative=True) / max(graded.count(), 1)
    kept = _kept([one for _, one in rounds], wanted) if config.refills else graded
    return _Sampled(first, share, kept, episodes)


# chapters/09-grpo-and-variants.ipynb · cell saved-play
def _play_round(
    model: TinyAgent, tokenizer: TinyTokenizer, config: TrainConfig, at: int, make_env: Any, rewards: Any,
    tasks: list[Any], number: int,
) -> tuple[list[Trajectory], _Round]:  # fmt: skip
    """Return the episodes of a round of iteration `at`, and what may be learnt from."""
    seed = (config.seed * 10**7 + at) * 1_000 + number  # no two rounds of any two trainings share one
    played = rollout(
        model, tokenizer, tasks, config.attempts, seed,
        max_turn_tokens=config.max_turn_tokens, make_env=make_env, temperature=config.temperature,
    )  # fmt: skip
    if number == 0 and all(one.reward is None for one in played):
        raise ValueError(f"iteration {at}: the environments of all {len(played)} episodes broke; nothing can be learnt")
    return played, _graded(played, config, rewards, number * 10**12)


# chapters/09-grpo-and-variants.ipynb · cell saved-learn
def _learn(
    model: TinyAgent, optimizer: Any, kept: _Round, advantages: Tensor, config: TrainConfig, at: int, penalty: Any
) -> list[PPOEpoch]:
    """Return what each epoch of an update did; none if there was nothing to learn.

    Episodes whose advantages are all 0 have no gradient: without a penalty they are left out and go on being counted.
    """
    mask = kept.batch.action_mask
    table = token_advantages(advantages, mask)
    rows = (mask if penalty is not None else table != 0).any(1).nonzero()[:, 0]
    if not len(rows):
        return []
    counts, (order, part) = loss_counts(mask), next(microbatches(kept.batch, rows=rows))
    settings: dict[str, Any] = _update_settings(config) | {"minibatches": min(config.minibatches, len(rows))}
    settings |= {"loss": _named_loss(config), "penalty": penalty, "whole": counts}
    stream = episode_stream(config.seed, at, 0, "minibatches")
    weights = table[order, : part.ids.shape[1]]
    return ppo_update(model, optimizer, part, weights, stream, **settings)


# chapters/09-grpo-and-variants.ipynb · cell saved-row
def _mean_tokens(trajectories: Sequence[Trajectory], repaired: bool) -> float:
    """Return the policy's tokens an episode, over those that were repaired or those that were not; nan if none."""
    lengths = [
        int(one.action_mask.sum())
        for one in trajectories
        if one.reward is not None and (episode_outcome(one.ended, one.info) == "repaired") == repaired
    ]
    return sum(lengths) / len(lengths) if lengths else math.nan


def _update_row(epochs: Sequence[PPOEpoch]) -> dict[str, float]:
    """Return the numbers of an update: means over its epochs, the largest ratio, the steps; 0 where there was none."""
    done = epochs or [PPOEpoch(loss=0.0, clip_fraction=0.0, approx_kl=0.0, ratio_max=0.0)]
    names = ("loss", "penalty", "grad_norm", "clip_fraction", "approx_kl")
    means = {name: sum(getattr(one, name) for one in done) / len(done) for name in names}
    return means | {"ratio_max": max(one.ratio_max for one in done), "steps": sum(one.steps for one in done)}


def _row(tokenizer: TinyTokenizer, sampled: _Sampled, epochs: Sequence[PPOEpoch]) -> dict[str, float]:
    """Return what to log of an iteration: of its first round of episodes, before the update, and of the update.

    `reward` is the mean of the episodes that the update learns from, penalties for length included.
    """
    summary = rollout_summary(tokenizer, sampled.played)
    kept = sampled.kept.rewards
    return summary | {
        "tokens_repaired": _mean_tokens(sampled.played, True),
        "tokens_failed": _mean_tokens(sampled.played, False),
        "reward": kept.mean().item() if len(kept) else math.nan,
        "informative": sampled.informative,
        "failures": sum(one.reward is None for one in sampled.played),
        **_update_row(epochs),
    }


# chapters/09-grpo-and-variants.ipynb · cell saved-history
class History(TrainLog):
    """The history of a training: a row an iteration, the same to the last bit on every run, and its configuration."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__()
        self.config = config


@dataclass
class TrainState:
    """A training as a callback sees it: `iteration` counts those that are done."""

    model: TinyAgent
    optimizer: torch.optim.Optimizer
    config: TrainConfig
    history: History
    ended: bool = False  # by the callback

    @property
    def iteration(self) -> int:
        """How many iterations are done."""
        return len(self.history.rows)


# chapters/09-grpo-and-variants.ipynb · cell saved-write
def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: to a temporary one beside it, which then takes its name."""
    beside = path.with_name(path.name + ".part")
    with open(beside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def _json_line(row: dict[str, float]) -> str:
    """Return a row as a line of JSON, null for a nan."""
    return json.dumps({name: None if math.isnan(value) else value for name, value in row.items()}) + "\n"


# chapters/09-grpo-and-variants.ipynb · cell saved-checkpoint
def _holders(state: TrainState, hooks: dict[str, Any]) -> dict[str, Any]:
    """Return by name all that has a state: the model, the optimiser, and those of the hooks that say they have one."""
    return {"model": state.model, "optimizer": state.optimizer} | {
        name: one for name, one in hooks.items() if hasattr(one, "state_dict")
    }


def _identity(state: TrainState, tasks: Sequence[Any], hooks: dict[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint and the training that goes on from it must have in common, as JSON has it."""
    config = {name: value for name, value in asdict(state.config).items() if name != "iterations"}
    model = {f"model.{name}": size for name, size in asdict(state.model.config).items()}
    model |= {f"weight {name}": [str(one.dtype), *one.shape] for name, one in state.model.state_dict().items()}
    given = [name for name, hook in hooks.items() if hook is not None and name != "callback"]
    found = {"tasks": [int(task.id) for task in tasks], "hooks": given, "states": list(_holders(state, hooks))}
    return json.loads(json.dumps(config | found | model))


def _save_checkpoint(path: Path, state: TrainState, tasks: Sequence[Any], hooks: dict[str, Any]) -> None:
    """Write all that the rest of a training depends on."""
    held = {"identity": _identity(state, tasks, hooks), "rows": state.history.rows, "ended": state.ended}
    held |= {name: one.state_dict() for name, one in _holders(state, hooks).items()}
    data = io.BytesIO()
    torch.save(held, data)
    _write(path, data.getvalue())


# chapters/09-grpo-and-variants.ipynb · cell saved-load-checkpoint
def _read_checkpoint(path: Path, state: TrainState, tasks: Sequence[Any], hooks: dict[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint holds; ValueError for a file that is none, and for another training's."""
    wanted = _identity(state, tasks, hooks)
    try:
        held = torch.load(path, weights_only=True)
        found = dict(held["identity"])
    except Exception as error:
        raise ValueError(f"{path} is no checkpoint of `train`: {type(error).__name__}: {error}") from error
    for name in wanted:
        if found.get(name) != wanted[name]:
            raise ValueError(f"{path} is of another training: {name} is {found.get(name)!r}, not {wanted[name]!r}")
    if missing := [name for name in ("rows", "ended", *_holders(state, hooks)) if name not in held]:
        raise ValueError(f"{path} is no checkpoint of `train`: it has no {missing[0]!r}")
    return held


def _restore(held: dict[str, Any], state: TrainState, hooks: dict[str, Any]) -> None:
    """Put a training into the state that a checkpoint holds."""
    for name, one in _holders(state, hooks).items():
        one.load_state_dict(held[name])
    state.history.rows[:] = held["rows"]
    state.ended = held["ended"] and hooks["callback"] is not None


# chapters/09-grpo-and-variants.ipynb · cell saved-metrics
class _Files(NamedTuple):
    """Where a training keeps itself and its metrics; None for not at all."""

    checkpoint: Path | None
    metrics: Path | None


def _begin_metrics(path: Path, done: int | None) -> None:
    """Make the file of metrics end before iteration `done`, which comes next; None: there is no checkpoint.

    Lines may be missing: they were lost with a machine, or are elsewhere. The last one may be torn, or of the iteration
    that is done again. FileExistsError for metrics without a checkpoint, ValueError for another training's.
    """
    text = path.read_bytes() if path.exists() else b""
    if text and done is None:
        raise FileExistsError(f"{path} has the metrics of a training; give another file, or its checkpoint to go on")
    lines = [line for line in text.splitlines(keepends=True) if line.endswith(b"\n")]
    try:
        found = [int(json.loads(line)["iteration"]) for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no file of metrics: {type(error).__name__}: {error}") from error
    next_one = done or 0
    if found != sorted(set(found)) or found[-1:] > [next_one]:
        raise ValueError(f"{path} has the iterations {found}, the checkpoint {done}; they are of different trainings")
    _write(path, b"".join(line for line, iteration in zip(lines, found, strict=True) if iteration < next_one))


def _add_metrics(path: Path | None, row: dict[str, float]) -> None:
    """Append a row to the file of metrics."""
    if path is not None:
        with open(path, "a", encoding="utf-8") as file:
            file.write(_json_line(row))


# chapters/09-grpo-and-variants.ipynb · cell saved-iteration
def _iteration(state: TrainState, tokenizer: TinyTokenizer, tasks: Sequence[Any], hooks: dict[str, Any]) -> float:
    """Do one iteration, add its row to the history, and return the seconds that sampling took."""
    config, at, began = state.config, state.iteration, time.perf_counter()
    play = partial(_play_round, state.model, tokenizer, config, at, hooks["make_env"], hooks["rewards"])
    sampled = _sample(play, tasks, config, at)
    seconds = time.perf_counter() - began
    kept = sampled.kept
    estimate = hooks["advantages"] or (lambda batch, rewards, groups: _ESTIMATORS[config.advantage](rewards, groups))
    advantages = estimate(kept.batch, kept.rewards, kept.groups)
    if not isinstance(advantages, Tensor):
        raise ValueError(f"advantages gave {type(advantages).__name__}; it must give a tensor, [B] or [B, T]")
    epochs = _learn(state.model, state.optimizer, kept, advantages, config, at, hooks["penalty"])
    before = state.history.rows[-1]["episodes"] if state.history.rows else 0
    counts = {"iteration": at, "episodes": before + sampled.episodes}
    state.history.add(**counts, **_row(tokenizer, sampled, epochs))
    return seconds


# chapters/09-grpo-and-variants.ipynb · cell saved-start
@contextmanager
def _no_dropout(model: torch.nn.Module) -> Iterator[None]:
    """Keep a model in evaluation mode for the block: with dropout the trainer would not score what sampled."""
    was = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was)


def _checked_tasks(tasks: Iterable[Any]) -> list[Any]:
    """Return the tasks as a list; ValueError if there are none, and for one that stands twice."""
    listed = list(tasks)
    if other := [place for place, task in enumerate(listed) if not hasattr(task, "id")]:
        kind = type(listed[other[0]]).__name__
        raise TypeError(f"tasks[{other[0]}] is a {kind} without an id; of a split give one part, such as split.train")
    counts = Counter(task.id for task in listed)
    if not listed:
        raise ValueError("no tasks; there is nothing to sample")
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ValueError(
            f"task {twice[0]} stands {counts[twice[0]]} times; give each once, and more attempts if wanted"
        )
    return listed


# chapters/09-grpo-and-variants.ipynb · cell saved-start-state
def _start(model: TinyAgent, config: TrainConfig) -> TrainState:
    """Return the state before the first iteration, with a new optimiser; ValueError for weights that fit no grid.

    TypeError for a configuration that is none, ValueError for a model of which nothing learns.
    """
    if not isinstance(config, TrainConfig):
        raise TypeError(f"config is {config!r}; it must be a TrainConfig, such as PRESETS['grpo']")
    if not any(weights.requires_grad for weights in model.parameters()):
        raise ValueError("no weight of the model requires a gradient; nothing would learn")
    settings = {"lr": config.learning_rate, "betas": (0.9, 0.95), "weight_decay": config.weight_decay}
    optimizer = torch.optim.AdamW(model.parameters(), **settings, foreach=False)
    check_step(optimizer, config.max_grad_norm, config.grid)
    return TrainState(model, optimizer, config, History(config))


# chapters/09-grpo-and-variants.ipynb · cell saved-checked
def _checked_hooks(make_env: Any, **hooks: Any) -> dict[str, Any]:
    """Return the hooks by name; TypeError, with the name, for one that cannot be called."""
    given = {"make_env": make_env, **hooks}
    for name, hook in given.items():
        if not callable(hook) and (name == "make_env" or hook is not None):
            raise TypeError(f"{name} is {hook!r}; it must be a function, or another object that can be called")
    return given


def _checked_files(checkpoint: str | Path | None, metrics: str | Path | None) -> _Files:
    """Return the paths; ValueError where both are one file."""
    one, other = (None if path is None else Path(path) for path in (checkpoint, metrics))
    if one is not None and other is not None and one.resolve() == other.resolve():
        raise ValueError(f"checkpoint and metrics are both {checkpoint}; each needs a file of its own")
    return _Files(one, other)


# chapters/09-grpo-and-variants.ipynb · cell saved-resume
def _resume(files: _Files, state: TrainState, tasks: Sequence[Any], hooks: dict[str, Any]) -> None:
    """Put a training into the state of its checkpoint, or write the first one; all is checked before anything moves."""
    path = files.checkpoint
    held = None if path is None or not path.exists() else _read_checkpoint(path, state, tasks, hooks)
    if files.metrics is not None:
        _begin_metrics(files.metrics, None if held is None else len(held["rows"]))
    if held is not None:
        _restore(held, state, hooks)
    elif path is not None:
        _save_checkpoint(path, state, tasks, hooks)


# chapters/09-grpo-and-variants.ipynb · cell saved-run
def _run(
    state: TrainState,
    tokenizer: TinyTokenizer,
    tasks: Sequence[Any],
    hooks: dict[str, Any],
    files: _Files,
    bar: Any,
) -> None:
    """Do the iterations that are left; after each the metrics, then the callback, then the checkpoint."""
    while state.iteration < state.config.iterations and not state.ended:
        began = time.perf_counter()
        sampling = _iteration(state, tokenizer, tasks, hooks)
        row = state.history.rows[-1]
        whole = time.perf_counter() - began
        _add_metrics(files.metrics, row | {"seconds_sampling": sampling, "seconds_update": whole - sampling})
        state.ended = bool(hooks["callback"] and hooks["callback"](state))
        if files.checkpoint is not None:
            _save_checkpoint(files.checkpoint, state, tasks, hooks)
        bar.update()
        bar.set_postfix({"success": f"{row['success']:.2f}", "entropy": f"{row['entropy']:.2f}"})


# chapters/09-grpo-and-variants.ipynb · cell saved-train
def train(
    model: TinyAgent, tokenizer: TinyTokenizer, tasks: Iterable[Any], config: TrainConfig | None = None, *,
    make_env: Callable[[Any, torch.Generator], Any] = gym_env,
    rewards: Callable[[TrajectoryBatch], Tensor] | None = None,
    advantages: Callable[[TrajectoryBatch, Tensor, Tensor], Tensor] | None = None,
    penalty: Callable[..., Tensor] | None = None,
    callback: Callable[[TrainState], bool | None] | None = None,
    checkpoint: str | Path | None = None, metrics: str | Path | None = None, progress: bool | None = None,
) -> History:  # fmt: skip
    """Return the history of a training, which moves `model`, in place, towards what earns rewards on the `tasks`.

    An iteration samples attempts of tasks, grades them, and makes an `arl.ppo_update`. `config` is one of `PRESETS`, by
    default "grpo", or a change of it: `dataclasses.replace(PRESETS["dapo"], seed=1)`. The same arguments give the same
    history and weights, to the last bit; to train a model further give another seed, or it meets the same luck again.
    It prints nothing; `history.table(...)` shows columns. What it calls: `make_env` as in `rollout`; `rewards(batch)`
    gives [B] instead of what the environments said; `advantages(batch, rewards, groups)` gives [B] or [B, T] instead of
    `config.advantage`; `penalty` as in `ppo_update`; `callback(state)` comes after each iteration, and what it returns,
    if true, ends the training. `checkpoint` is a file that is written after each iteration and gone on from if it is
    there: the rest is as if there had been no interruption. What a hook remembers is in it if the hook has `state_dict`
    and `load_state_dict`; of the tasks only the ids are compared; a training that its callback ended stays ended.
    `metrics` gets a line of JSON an iteration, with its seconds. `progress` shows a bar on stderr, by default on a
    terminal only. ValueError for settings, tasks or files that cannot be, before the first episode; FileExistsError
    for metrics without their checkpoint.
    """
    tasks, state = _checked_tasks(tasks), _start(model, TrainConfig() if config is None else config)
    named = {"rewards": rewards, "advantages": advantages, "penalty": penalty, "callback": callback}
    hooks, files = _checked_hooks(make_env, **named), _checked_files(checkpoint, metrics)
    _resume(files, state, tasks, hooks)
    bar = {"total": state.config.iterations, "initial": state.iteration, "unit": "iteration"}
    with tqdm(**bar, disable=None if progress is None else not progress) as shown, _no_dropout(model):
        _run(state, tokenizer, tasks, hooks, files, shown)
    return state.history


# chapters/09-grpo-and-variants.ipynb · cell saved-episode-text
def episode_text(tokenizer: TinyTokenizer, trajectory: Trajectory) -> str:
    """Return an episode as text, a message a line: who wrote it, the policy or a tool, and what; then how it ended."""
    lines = []
    for turn in range(int(trajectory.turn.max()) + 1):
        for who in ("policy", "tool"):
            ids = trajectory.ids[(trajectory.turn == turn) & (trajectory.writer == WRITERS.index(who))]
            text = tokenizer.decode(ids.tolist()).strip()
            lines += [f"{who:>6} | {line}" for line in text.splitlines()]
    outcome = episode_outcome(trajectory.ended, trajectory.info)
    reward = "no reward" if trajectory.reward is None else f"reward {trajectory.reward:g}"
    return "\n".join([*lines, f"{'':>6} = {outcome}, {reward}"])
