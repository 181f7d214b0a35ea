"""Chapter 8 · PPO: Reusing Samples Safely.

How can an expensive rollout serve several updates?

Built from chapters/08-ppo.ipynb by scripts/build_library.py.
Do not edit: change the chapter and run `make library`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from agentrl.advantages import ValueHead, broadcast_to_tokens, recorded_values, token_values
from agentrl.notation import DTYPE, masked_sum
from agentrl.policy_gradient import LossCounts, aggregate_loss, apply_gradient, check_limits, loss_counts, microbatches
from agentrl.repair_mdp import check_draws
from agentrl.tiny_agent import TinyAgent, TinyTrunk, chosen_logprobs, scored_logits, tempered
from agentrl.trajectories import TrajectoryBatch

__all__ = [
    "log_ratio",
    "ratio_from_log",
    "importance_ratio",
    "effective_sample_size",
    "check_clip",
    "PolicyLoss",
    "token_advantages",
    "clipped_losses",
    "reported_loss",
    "ppo_policy_loss",
    "Critic",
    "PPOSettings",
    "PPOEpoch",
    "ppo_update",
    "ValueLoss",
    "ppo_value_loss",
]


# chapters/08-ppo.ipynb · cell importance-ratio
def log_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    """Return log(new probability / old probability) of each policy token, [B, T], 0 where the mask is false.

    Arguments and errors are those of `importance_ratio`.
    """
    old, _ = recorded_values(mask, old_logprobs=old_logprobs, logprobs=logprobs.detach())  # refuses nan and inf
    return torch.where(mask, logprobs, torch.zeros_like(logprobs)) - old


def ratio_from_log(logs: Tensor, mask: Tensor) -> Tensor:
    """Return the ratios, of the mask's shape; ValueError, with the place, for one that is too large for a float."""
    ratio = logs.exp()
    recorded_values(mask, ratios=ratio.detach())
    return ratio


def importance_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor, level: str = "token") -> Tensor:
    """Return new probability / old probability of what was sampled: of each token [B, T], or of each sequence [B].

    `logprobs` [B, T] may carry a gradient; `old_logprobs` [B, T] are those of the distribution that sampled, recorded
    then (temperature and top-p applied). "token" gives 1.0 where the mask is false; "sequence" the product over a row's
    policy tokens (GSPO takes their geometric mean, Chapter 9). Masked positions are never read. Raises as
    `recorded_values` does, for either table; ValueError, with the place, for a ratio that is too large for a float.
    """
    if level not in ("token", "sequence"):
        raise ValueError(f"level is {level!r}; it must be 'token' or 'sequence'")
    logs = log_ratio(logprobs, old_logprobs, mask)
    return ratio_from_log(logs, mask) if level == "token" else ratio_from_log(logs.sum(-1), mask.any(-1))


# chapters/08-ppo.ipynb · cell effective-sample-size
def effective_sample_size(weights: Tensor, mask: Tensor | None = None) -> float:
    """Return (sum of w)^2 / (n times the sum of w^2), a share of n: 1.0 if all count alike, 1/n if one counts alone.

    `weights` of any shape are those of n samples; a `mask` of the same shape selects some, and the rest is not read.
    Times n it is Kish's number of samples. ValueError without weights, for one below 0, where all are 0, and as
    `recorded_values` raises it.
    """
    mask = torch.ones_like(weights, dtype=torch.bool) if mask is None else mask
    kept = recorded_values(mask, weights=weights.detach())[0][mask].to(DTYPE)
    if not len(kept):
        raise ValueError("no weights; there is no effective sample size of nothing")
    largest = kept.max().item()
    if (kept < 0).any() or largest == 0:
        raise ValueError(f"weights between {kept.min().item()} and {largest}; they must be >= 0 and not all 0")
    scaled = kept / largest  # so that no square overflows
    return (scaled.sum() ** 2 / (len(kept) * (scaled**2).sum())).item()


# chapters/08-ppo.ipynb · cell check-clip
def check_clip(clip_low: float, clip_high: float, dual_clip: float | None) -> None:
    """Raise ValueError for bounds that cannot be; infinity means none."""
    if not (0 <= clip_low <= 1 or clip_low == math.inf):
        raise ValueError(f"clip_low is {clip_low}; 1 - clip_low bounds a ratio: give 0 to 1, or math.inf for no bound")
    if not clip_high >= 0:
        raise ValueError(f"clip_high is {clip_high}; 1 + clip_high bounds a ratio: give 0 or more")
    if dual_clip is not None and not dual_clip > 1:
        raise ValueError(f"dual_clip is {dual_clip}; it bounds a ratio from above, so it must be more than 1")


# chapters/08-ppo.ipynb · cell policy-loss-type
class PolicyLoss(NamedTuple):
    """A policy loss to minimise, and what it saw; fractions and means are per policy token of the whole batch."""

    loss: Tensor  # scalar, with the gradient
    clip_fraction: float  # tokens whose gradient the clip removed
    approx_kl: float  # mean of ratio - 1 - log(ratio), never negative: estimates KL(old || new)
    ratio_mean: float
    ratio_max: float  # of these rows; 0.0 if none of their tokens is the policy's
    dual_clip_fraction: float  # tokens whose gradient the dual clip removed


# chapters/08-ppo.ipynb · cell clipped-losses
def token_advantages(advantages: Tensor, mask: Tensor) -> Tensor:
    """Return recorded advantages, [B] or [B, T], as a table [B, T], 0 where the mask is false."""
    if advantages.dim() == 1 and mask.dim() == 2:
        advantages = broadcast_to_tokens(advantages, mask)
    return recorded_values(mask, advantages=advantages)[0]


def clipped_losses(
    ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float, dual_clip: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (loss of each token, where the clip removed its gradient, where the dual clip did), each [B, T]."""
    plain = -advantages * ratio
    bounded = -advantages * ratio.clamp(1 - clip_low, 1 + clip_high)
    losses, clipped = torch.maximum(plain, bounded), bounded > plain
    if dual_clip is None:
        return losses, clipped, torch.zeros_like(clipped)
    ceiling = -advantages * dual_clip
    above = (advantages < 0) & (losses > ceiling)
    return torch.where(above, ceiling, losses), clipped & ~above, above


# chapters/08-ppo.ipynb · cell token-means
def _token_means(columns: Sequence[Tensor], mask: Tensor, whole: LossCounts | None) -> list[float]:
    """Return for each column [B, T] its sum over these rows' policy tokens, per policy token of the whole batch."""
    tokens = (loss_counts(mask) if whole is None else whole).tokens
    return [masked_sum(column.to(DTYPE), mask, dim=-1).sum().item() / tokens for column in columns]


def reported_loss(
    loss: Tensor, logs: Tensor, removed: Sequence[Tensor], mask: Tensor, whole: LossCounts | None
) -> PolicyLoss:
    """Return a loss and what it saw, given log-ratios [B, T] without gradient, 0 where the mask is false.

    `removed` says where the clip and the dual clip took a gradient, bool [B, T]; `whole` is as in `aggregate_loss`.
    """
    ratio, (clipped, dual) = logs.exp(), removed
    shares = _token_means([clipped, logs.expm1() - logs, ratio, dual], mask, whole)
    largest = torch.where(mask, ratio, 0.0).max().item() if mask.any() else 0.0
    return PolicyLoss(loss, shares[0], shares[1], shares[2], largest, shares[3])


# chapters/08-ppo.ipynb · cell ppo-policy-loss
def ppo_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
    aggregation: str = "token-mean",
    norm_length: float | None = None,
    whole: LossCounts | None = None,
) -> PolicyLoss:
    """Return the clipped surrogate as a loss to minimise, with its diagnostics.

    `logprobs` [B, T] carry the gradient; `old_logprobs` [B, T] and `advantages`, [B, T] or [B], are recorded. A ratio
    is bounded to [1 - clip_low, 1 + clip_high] where that makes the loss larger; math.inf is no bound. With
    `dual_clip` c > 1 the loss of a token with A < 0 is at most -c A. `aggregation`, `norm_length` and `whole` are
    those of `aggregate_loss`. `clip_fraction` counts gradients removed, as verl's does; other programs count ratios
    outside the band. Raises ValueError or TypeError as `importance_ratio` and `aggregate_loss` do.
    """
    check_clip(clip_low, clip_high, dual_clip)
    logs = log_ratio(logprobs, old_logprobs, mask)
    weights = token_advantages(advantages, mask)
    losses, *removed = clipped_losses(ratio_from_log(logs, mask), weights, clip_low, clip_high, dual_clip)
    loss = aggregate_loss(losses, mask, aggregation, norm_length, whole)
    return reported_loss(loss, logs.detach(), removed, mask, whole)


# chapters/08-ppo.ipynb · cell saved-critic
@dataclass
class Critic:
    """A value function and how it learns: `head` reads values from the features of `trunk`; `optimizer` moves both.

    The trunk is its own; or it is the policy's, whose optimiser then holds the head too and `optimizer` is None.
    `weight` multiplies the value loss, `clip` goes to `ppo_value_loss`.
    """

    trunk: TinyTrunk
    head: ValueHead
    optimizer: torch.optim.Optimizer | None = None
    weight: float = 0.5
    clip: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.weight < math.inf:
            raise ValueError(f"weight is {self.weight}; a critic's loss counts 0 times or more")

    def values(self, batch: TrajectoryBatch) -> Tensor:
        """Return the values of the states in which the batch's actions were chosen, [B, T], with a gradient."""
        return token_values(self.trunk, self.head, batch.ids, batch.attention_mask, batch.action_mask)


# chapters/08-ppo.ipynb · cell check-held
def _check_held(critic: Critic | None, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Raise ValueError unless each weight of the critic that learns is in exactly one of the optimisers."""
    held = [id(weight) for one in optimizers for group in one.param_groups for weight in group["params"]]
    for part in ("trunk", "head") if critic is not None else ():
        for name, weight in getattr(critic, part).named_parameters():
            if weight.requires_grad and held.count(id(weight)) != 1:
                raise ValueError(f"the critic's {part}.{name} is in {held.count(id(weight))} optimisers; put it in one")


# chapters/08-ppo.ipynb · cell saved-ppo-settings
_LOSS_SETTINGS = ("clip_low", "clip_high", "dual_clip", "aggregation", "norm_length")


_Loss = Callable[..., PolicyLoss]  # (logprobs, old_logprobs, advantages, mask, whole=counts), all tables [B, T]
_Penalty = Callable[[TrajectoryBatch, Tensor, Tensor, LossCounts], Tensor]  # see `ppo_update`


@dataclass(frozen=True)
class PPOSettings:
    """How `ppo_update` goes through a batch, what its loss is (the last five: `ppo_policy_loss`), how it steps."""

    epochs: int = 4
    minibatches: int = 2
    microbatch: int | None = None
    temperature: float = 1.0
    max_kl: float | None = None
    max_grad_norm: float | None = 1.0
    grid: int | None = 2**16
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    aggregation: str = "token-mean"
    norm_length: float | None = None

    def __post_init__(self) -> None:
        one = torch.ones(1, 1, dtype=DTYPE)
        tempered(one, self.temperature)  # each refuses what cannot be, before anything is drawn or moved
        aggregate_loss(one, one > 0, self.aggregation, self.norm_length)
        check_clip(self.clip_low, self.clip_high, self.dual_clip)
        _check_passes(self)


# chapters/08-ppo.ipynb · cell saved-check-passes
def _check_passes(settings: PPOSettings) -> None:
    """Raise ValueError for a count that is no whole number above 0, a limit not above 0, a grid that is none."""
    for name in ("epochs", "minibatches", "microbatch"):
        number = getattr(settings, name)
        if (number is not None or name != "microbatch") and (type(number) is not int or number < 1):
            raise ValueError(f"{name} is {number!r}; it must be a whole number, at least 1")
    if settings.max_kl is not None and not settings.max_kl > 0:
        raise ValueError(f"max_kl is {settings.max_kl}; it must be above 0, or None for no limit")
    check_limits(settings.max_grad_norm, settings.grid)


# chapters/08-ppo.ipynb · cell saved-ppo-epoch
class PPOEpoch(NamedTuple):
    """What an epoch did: `steps` of the optimiser, and means over the tokens it saw, each taken before a step.

    `ratio_max` is the largest ratio; `value_loss` and `value_clip_fraction` are 0 without a critic; `grad_norm` is the
    mean over minibatches of the policy's, before clipping, 0 for one at which `max_kl` ended the update. `loss` is the
    policy's alone; `penalty` is what was added to it.
    """

    loss: float
    clip_fraction: float
    approx_kl: float
    ratio_max: float
    value_loss: float = 0.0
    value_clip_fraction: float = 0.0
    grad_norm: float = 0.0
    dual_clip_fraction: float = 0.0
    penalty: float = 0.0
    steps: int = 0


def _together(parts: Sequence[PPOEpoch], shares: float = 1.0) -> PPOEpoch:
    """Return the sums of the parts' numbers over `shares`; the largest ratio, the mean gradient norm, all steps."""
    means = (sum(column) / shares for column in zip(*(part[:-1] for part in parts), strict=True))
    largest, norm = max(part.ratio_max for part in parts), sum(part.grad_norm for part in parts) / len(parts)
    return PPOEpoch(*means, steps=sum(part.steps for part in parts))._replace(ratio_max=largest, grad_norm=norm)


def _of_rows(found: PPOEpoch, thinned: float) -> PPOEpoch:
    """Return an epoch whose statistics per token are of the tokens that were there, `thinned` times fewer."""
    names = ("clip_fraction", "approx_kl", "dual_clip_fraction", "value_clip_fraction")
    return found._replace(**{name: getattr(found, name) * thinned for name in names})


# chapters/08-ppo.ipynb · cell saved-ppo-minibatches
def _minibatches(tokens: Tensor, parts: int, generator: torch.Generator) -> list[tuple[Tensor, float]]:
    """Return row numbers, permuted and dealt out to `parts` minibatches, each with its share of the `tokens` [B].

    A share of 1 is the mean; no minibatch is empty.
    """
    count = len(tokens)
    if type(parts) is not int or not 1 <= parts <= count:
        raise ValueError(f"minibatches is {parts!r}; it must be a whole number from 1 to the {count} episodes")
    order = torch.rand(count, generator=generator, dtype=DTYPE).argsort(stable=True)
    dealt = [order[part::parts] for part in range(parts)]
    return [(rows, parts * int(tokens[rows].sum()) / max(int(tokens.sum()), 1)) for rows in dealt]


# chapters/08-ppo.ipynb · cell saved-ppo-targets
def _ppo_targets(
    batch: TrajectoryBatch, advantages: Tensor, critic: Critic | None, returns: Tensor | None
) -> dict[str, Tensor]:
    """Return the tables [B, T] that the losses read beside the batch; ValueError for a critic without returns."""
    if (critic is None) != (returns is None):
        raise ValueError("a critic learns returns, and nothing else does: give both or neither")
    recorded_values(batch.action_mask, logprobs=batch.logprobs)
    targets = {"advantages": token_advantages(advantages, batch.action_mask)}  # all are checked before the first step
    if returns is not None:
        (targets["returns"],) = recorded_values(batch.action_mask, returns=returns)
    if critic is not None and critic.clip is not None:
        with torch.no_grad():
            targets["old_values"] = critic.values(batch)
    return targets


# chapters/08-ppo.ipynb · cell saved-ppo-objective
class _Objective(NamedTuple):
    """What an update makes small: the loss of the policy's tokens, what is added to it, a minibatch's denominators.

    `thinned` is how many times more tokens the whole has than the rows that are given.
    """

    loss: _Loss
    penalty: _Penalty | None
    whole: LossCounts
    thinned: float


def _scores(model: TinyAgent, part: TrajectoryBatch, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the policy's log-probabilities, [B, T], 0.0 elsewhere, and the tempered logits of its tokens, [N, V]."""
    scored = scored_logits(model, part.ids, part.attention_mask, part.action_mask)
    logits = tempered(scored, temperature)
    return chosen_logprobs(logits, part.ids, part.action_mask), logits


# chapters/08-ppo.ipynb · cell saved-ppo-loss
def _ppo_loss(
    model: TinyAgent, part: TrajectoryBatch, advantages: Tensor, objective: _Objective, temperature: float
) -> tuple[Tensor, PPOEpoch]:
    """Return the policy's loss on some rows, with a gradient, and their share of the statistics."""
    logprobs, logits = _scores(model, part, temperature)
    policy = objective.loss(logprobs, part.logprobs, advantages, part.action_mask, whole=objective.whole)
    found = PPOEpoch(policy.loss.item(), policy.clip_fraction, policy.approx_kl, policy.ratio_max)
    found = found._replace(dual_clip_fraction=policy.dual_clip_fraction)
    if objective.penalty is None:
        return policy.loss, found
    added = objective.penalty(part, logprobs, logits, objective.whole)
    if not isinstance(added, Tensor) or added.dim():
        raise ValueError(f"penalty gave {getattr(added, 'shape', added)}; it must give a scalar tensor")
    if not added.requires_grad:
        raise ValueError(f"penalty gave {added.item()} without a gradient: it would be logged and move nothing")
    return policy.loss + added, found._replace(penalty=added.item())


# chapters/08-ppo.ipynb · cell saved-ppo-counts
def _minibatch_counts(mask: Tensor, minibatches: int, whole: LossCounts | None) -> LossCounts:
    """Return a minibatch's denominators: the batch's, shared out, so that a token weighs the same in any of them."""
    counts = loss_counts(mask) if whole is None else LossCounts(*whole)
    return LossCounts(*(count / minibatches for count in counts))


def _objective(
    chosen: PPOSettings, mask: Tensor, loss: _Loss | None, penalty: _Penalty | None, whole: LossCounts | None
) -> _Objective:
    """Return the objective of a minibatch of rows with this mask; without a `loss` that of the settings."""
    given = {name: getattr(chosen, name) for name in _LOSS_SETTINGS}
    loss = partial(ppo_policy_loss, **given) if loss is None else loss
    thinned = 1.0 if whole is None else whole[0] / max(loss_counts(mask).tokens, 1)
    return _Objective(loss, penalty, _minibatch_counts(mask, chosen.minibatches, whole), thinned)


# chapters/08-ppo.ipynb · cell saved-critic-loss
def _critic_loss(
    critic: Critic, part: TrajectoryBatch, targets: dict[str, Tensor], whole: LossCounts
) -> tuple[Tensor, dict[str, float]]:
    """Return a critic's weighted loss on some rows, with a gradient, and their share of its statistics."""
    old, values = targets.get("old_values"), critic.values(part)
    value = ppo_value_loss(values, targets["returns"], part.action_mask, old, critic.clip, whole=whole)
    return critic.weight * value.loss, {"value_loss": value.loss.item(), "value_clip_fraction": value.clip_fraction}


# chapters/08-ppo.ipynb · cell saved-ppo-gradient
def _ppo_gradient(
    learners: tuple[TinyAgent, Critic | None],
    batch: TrajectoryBatch,
    targets: dict[str, Tensor],
    chosen: PPOSettings,
    objective: _Objective,
    rows: Tensor,
) -> PPOEpoch:
    """Add the gradients of a minibatch, these rows of the batch, to the weights' and return its statistics."""
    (model, critic), found = learners, []
    for numbers, part in microbatches(batch, chosen.microbatch, rows):
        cut = {name: table[numbers][:, : part.ids.shape[1]] for name, table in targets.items()}
        loss, epoch = _ppo_loss(model, part, cut["advantages"], objective, chosen.temperature)
        if critic is not None:
            more, values = _critic_loss(critic, part, cut, objective.whole)
            loss, epoch = loss + more, epoch._replace(**values)
        loss.backward()
        found.append(epoch)
    return _of_rows(_together(found), objective.thinned)


# chapters/08-ppo.ipynb · cell saved-ppo-epochs
def _ppo_steps(
    gradient: Callable[[Tensor], PPOEpoch],
    optimizers: Sequence[Any],
    dealt: list[tuple[Tensor, float]],
    chosen: PPOSettings,
) -> Iterator[PPOEpoch]:
    """Yield what each minibatch did; the first whose KL a token exceeds `max_kl` makes no step and is the last.

    A minibatch comes with its share: its policy tokens over the mean of all minibatches, by which its numbers count.
    """
    for rows, share in dealt:
        for one in optimizers:
            one.zero_grad()
        found = gradient(rows)
        if chosen.max_kl is not None and found.approx_kl > chosen.max_kl * share:
            yield found
            return
        norms = [apply_gradient(one, chosen.max_grad_norm, chosen.grid) for one in optimizers]
        yield found._replace(grad_norm=norms[0], steps=1)


# chapters/08-ppo.ipynb · cell saved-ppo-passes
def _ppo_epochs(
    gradient: Callable[[Tensor], PPOEpoch],
    optimizers: Sequence[Any],
    deal: Callable[[], list[tuple[Tensor, float]]],
    chosen: PPOSettings,
) -> list[PPOEpoch]:
    """Return what each epoch did; one that ended early is the last."""
    epochs: list[PPOEpoch] = []
    while len(epochs) < chosen.epochs and all(epoch.steps == chosen.minibatches for epoch in epochs):
        dealt = deal()
        seen = list(_ppo_steps(gradient, optimizers, dealt, chosen))
        epochs.append(_together(seen, sum(share for _, share in dealt[: len(seen)])))
    return epochs


# chapters/08-ppo.ipynb · cell saved-ppo-update
def ppo_update(
    model: TinyAgent,
    optimizer: torch.optim.Optimizer,
    batch: TrajectoryBatch,
    advantages: Tensor,
    generator: torch.Generator,
    critic: Critic | None = None,
    returns: Tensor | None = None,
    loss: _Loss | None = None,
    penalty: _Penalty | None = None,
    whole: LossCounts | None = None,
    **settings: Any,
) -> list[PPOEpoch]:
    """Return what each epoch did: a pass over the batch in minibatches of whole episodes, dealt out by `generator`.

    `advantages` are [B] or [B, T]; the old log-probabilities are the batch's, as recorded at sampling, so
    `temperature` must be the sampling's (with top-k or top-p the ratio is not 1 at first: sample without). A `critic`
    learns `returns`, [B, T], with a mean over tokens whatever the policy's aggregation. `settings` are those of
    `PPOSettings`: a token mean by default, where `reinforce_update` takes a sum, so that a learning rate is not the
    same in both. Before a step whose minibatch has an `approx_kl` above `max_kl` the update ends: its last epoch has
    fewer steps than minibatches. ValueError, before the first step, for settings that cannot be, numbers that are not
    finite, and a critic whose weights are not each in one optimiser; later for a gradient that is not finite, and then
    the steps made before it stay, the policy's own in the same minibatch included.

    `loss` takes the place of `ppo_policy_loss` with the settings' clip and aggregation. `penalty(part, logprobs,
    logits, whole)`, a scalar, is added for each microbatch: `logprobs` [B, T] of the policy's tokens and the tempered
    logits [N, V] they are of carry the gradient; its sums are divided by numbers in `whole`, so that parts add up.
    `whole` holds the denominators of a larger batch that this one is a part of: losses are divided by them, statistics
    and `max_kl` are per token of the rows given.
    """
    check_draws(generator)
    chosen, targets = PPOSettings(**settings), _ppo_targets(batch, advantages, critic, returns)
    objective = _objective(chosen, batch.action_mask, loss, penalty, whole)
    gradient = partial(_ppo_gradient, (model, critic), batch, targets, chosen, objective)
    optimizers = [optimizer] if critic is None or critic.optimizer is None else [optimizer, critic.optimizer]
    _check_held(critic, optimizers)
    deal = partial(_minibatches, batch.action_mask.sum(1), chosen.minibatches, generator)
    return _ppo_epochs(gradient, optimizers, deal, chosen)


# chapters/08-ppo.ipynb · cell value-loss-parts
class ValueLoss(NamedTuple):
    """A critic's loss to minimise, a scalar, and the share of policy tokens whose gradient the clip removed."""

    loss: Tensor
    clip_fraction: float


def _bounded_values(values: Tensor, old_values: Tensor | None, mask: Tensor, clip: float | None) -> Tensor:
    """Return the values, at most `clip` away from the old ones; as they are if there is neither. All are [B, T]."""
    if clip is None and old_values is None:
        return values
    if clip is None or old_values is None or not clip > 0:
        given = "without" if old_values is None else "with"
        raise ValueError(f"clip is {clip} {given} old_values; give both, clip above 0, or neither")
    (old,) = recorded_values(mask, old_values=old_values)
    return values.clamp(old - clip, old + clip)


# chapters/08-ppo.ipynb · cell ppo-value-loss
def ppo_value_loss(
    values: Tensor,
    returns: Tensor,
    mask: Tensor,
    old_values: Tensor | None = None,
    clip: float | None = None,
    aggregation: str = "token-mean",
    norm_length: float | None = None,
    whole: LossCounts | None = None,
) -> ValueLoss:
    """Return half the squared error of the critic, aggregated over policy tokens; values and returns are [B, T].

    With `clip` a value counts as moved from `old_values` [B, T], recorded at sampling, by `clip` at most where that
    makes the error larger. The factor 1/2 is verl's; some programs leave it out. The rest is as in `ppo_policy_loss`.
    """
    targets, _ = recorded_values(mask, returns=returns, values=values.detach())  # refuses nan values too
    kept = torch.where(mask, values, torch.zeros_like(values))
    errors = (kept - targets).square()
    bounded = (_bounded_values(kept, old_values, mask, clip) - targets).square()
    loss = aggregate_loss(torch.maximum(errors, bounded) / 2, mask, aggregation, norm_length, whole)
    return ValueLoss(loss, _token_means([bounded > errors], mask, whole)[0])
