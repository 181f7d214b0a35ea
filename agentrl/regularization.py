"""Chapter 10 · KL, Entropy and Regularisation.

How do you keep a policy from drifting or collapsing?

Built from chapters/10-kl-entropy-regularization.ipynb by scripts/build_library.py.
Do not edit: change the chapter and run `make library`.
"""

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from agentrl.advantages import recorded_values
from agentrl.bugfix_gym import episode_outcome
from agentrl.notation import DTYPE, masked_mean
from agentrl.policy_gradient import LossCounts, aggregate_loss, loss_counts
from agentrl.ppo import importance_ratio
from agentrl.tiny_agent import LabelledBatch, TinyAgent, tempered, token_logprobs
from agentrl.trajectories import Trajectory, TrajectoryBatch

__all__ = [
    "exact_kl",
    "kl_estimate",
    "kl_loss",
    "kl_penalized_rewards",
    "AdaptiveKL",
    "entropy_from_logits",
    "entropy_bonus",
    "KLPenalty",
    "EntropyBonus",
    "PenaltySum",
    "SFTPenalty",
    "distinct_correct",
]


# chapters/10-kl-entropy-regularization.ipynb · cell exact-kl
def _log_softmax(logits: Tensor, name: str) -> Tensor:
    """Return log-probabilities [..., V]; ValueError, with the name, where no softmax is defined."""
    try:
        return tempered(logits, 1.0).log_softmax(-1)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def exact_kl(logits: Tensor, ref_logits: Tensor) -> Tensor:
    """Return KL(policy || reference) of distributions over the last axis, [...], in nats: both are [..., V].

    Gradients pass to both, so that `exact_kl(ref_logits, logits)` is the forward KL of a policy. A token that the
    policy never samples (logit -inf) adds 0; one that only the reference never samples makes the KL infinite. Divide
    the logits by the temperature of the sampling first. ValueError for other shapes and where no softmax is defined.
    """
    if logits.shape != ref_logits.shape:
        raise ValueError(f"logits {list(logits.shape)} and ref_logits {list(ref_logits.shape)} must have one shape")
    own, ref = _log_softmax(logits, "logits"), _log_softmax(ref_logits, "ref_logits")
    never = own.exp() == 0  # 0 times the log of anything counts as 0, in value and in gradient
    gaps = own.masked_fill(never, 0.0) - ref.masked_fill(never, 0.0)
    return (own.exp() * gaps).sum(-1)


# chapters/10-kl-entropy-regularization.ipynb · cell kl-estimate
_KINDS = ("k1", "k2", "k3", "k1+", "k3+")


def kl_estimate(logprobs: Tensor, ref_logprobs: Tensor, kind: str = "k1") -> Tensor:
    """Return an estimate of KL(policy || reference) from each sampled token, of the shape given (elementwise).

    Tokens sampled from the policy, their log-probabilities under policy and reference, d their difference: k1 is d, k2
    d^2 / 2, k3 exp(-d) - 1 + d (the names are Schulman's). k1 and k3 are unbiased; k3 and k2 are never negative; k3 is
    huge where the reference likes a token that the policy hardly ever samples, 22015.5 at d = -10 (verl bounds it to
    10, here nothing is cut). The gradient is the formula's, which is not that of the KL; "k1+" and "k3+" (verl's names)
    have the value of k1 and k3 and the gradient of k2, which is. ValueError for unknown kinds, other shapes, and a
    reference that requires a gradient; nan passes through (`kl_loss` refuses it).
    """
    if kind not in _KINDS:
        raise ValueError(f"kind is {kind!r}; it must be one of {', '.join(_KINDS)}")
    if logprobs.shape != ref_logprobs.shape:
        raise ValueError(f"logprobs {list(logprobs.shape)}, ref_logprobs {list(ref_logprobs.shape)}: not one shape")
    if ref_logprobs.requires_grad:
        raise ValueError("ref_logprobs require a gradient; the reference does not learn: detach them")
    d = logprobs - ref_logprobs
    if kind == "k1":
        return d
    if kind == "k2":
        return d.square() / 2
    value = d.detach() if kind == "k1+" else (-d).expm1() + d
    return value if kind == "k3" else value.detach() + (d.square() - d.detach().square()) / 2


# chapters/10-kl-entropy-regularization.ipynb · cell kl-loss
def kl_loss(
    logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor, kind: str = "k3+", old_logprobs: Tensor | None = None,
    aggregation: str = "token-mean", norm_length: float | None = None, whole: LossCounts | None = None,
) -> Tensor:  # fmt: skip
    """Return the KL estimates of the policy tokens, aggregated: a scalar; add it, times beta, to a loss.

    All are [B, T]; only `logprobs` carry a gradient. By default its expectation is the gradient of the reverse KL of
    each token's distribution, in the states that were met, as with "k2" and "k1+". Alone, "k1" has an expected gradient
    of 0, and "k3", GRPO's, that of the *forward* KL. With `old_logprobs`, those of the policy that sampled, tokens are
    weighted by the ratio: needed as soon as the policy has moved. In k1, k2 and k3 the gradient then passes through the
    ratio too, and is that of the estimate's expectation (for k3, DeepSeek-V3.2's form, that of "k3+", token by token).
    The rest is as in `aggregate_loss`; errors as in `ppo_policy_loss`.
    """
    ref, _ = recorded_values(mask, ref_logprobs=ref_logprobs, logprobs=logprobs.detach())
    kept = torch.where(mask, logprobs, torch.zeros_like(logprobs))
    values = kl_estimate(kept, ref, kind)  # at least in float32, as the reference is
    if old_logprobs is not None:
        ratio = importance_ratio(logprobs, old_logprobs, mask)
        values = values * (ratio.detach() if kind.endswith("+") else ratio)
    recorded_values(mask, **{f"values of {kind}": values.detach()})  # refuses one too large for a float
    return aggregate_loss(values, mask, aggregation, norm_length, whole)


# chapters/10-kl-entropy-regularization.ipynb · cell check-weights
def _check_weights(above_0: bool = False, **weights: float) -> None:
    """Raise ValueError unless the numbers are finite and at least 0, or above it."""
    for name, weight in weights.items():
        if not 0 <= weight < math.inf or (above_0 and weight == 0):
            raise ValueError(f"{name} is {weight}; it must be finite and {'above' if above_0 else 'at least'} 0")


# chapters/10-kl-entropy-regularization.ipynb · cell kl-penalized-rewards
def kl_penalized_rewards(
    rewards: Tensor, logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor, beta: float, kind: str = "k1"
) -> Tensor:
    """Return each policy token's reward, [B, T]: minus beta times the KL estimate, plus, at a row's last one, its own.

    `rewards` [B] are one an episode; `logprobs` and `ref_logprobs` [B, T] were recorded at sampling: no gradient passes
    here, and no table given is changed. Tokens that the policy did not write get 0 and are never read (slime once
    charged them, too); a row without policy tokens gets nothing. Sum with `discounted_returns`: an action pays for the
    KL of all that follows it. Keep to k1, whose gradient is then that of the KL. Errors as in `recorded_values`.
    """
    _check_weights(beta=beta)
    own, ref = recorded_values(mask, logprobs=logprobs, ref_logprobs=ref_logprobs)
    (paid,) = recorded_values(mask.any(-1), rewards=rewards)
    if kind not in ("k1", "k2", "k3"):
        raise ValueError(f"kind is {kind!r}; in a reward it must be k1, k2 or k3: there is no gradient to choose")
    last = mask & (mask.flip(-1).cumsum(-1).flip(-1) == 1)
    estimates = kl_estimate(own, ref, kind)  # 0 at tokens that are not the policy's
    recorded_values(mask, **{f"values of {kind}": estimates})  # refuses one too large for a float
    return torch.where(last, paid[..., None], 0.0) - beta * estimates


# chapters/10-kl-entropy-regularization.ipynb · cell adaptive-kl
@dataclass
class AdaptiveKL:
    """A controller that keeps a KL near `target` by moving its weight `beta`: proportional, in log space, bounded.

    Ziegler and others (2019): a batch whose KL is above the target multiplies beta by up to 1 + gain * bound, one below
    by down to 1 - gain * bound. `kl` and `target` must be of one kind: per episode in that paper, not per token. Where
    a program takes a horizon (verl), gain is the episodes of a batch over it. A checkpoint of `train` keeps
    `KLPenalty.beta` and no controller. So, with the last row of `state.history.rows`, a callback says
    `controller.beta = penalty.beta; penalty.beta = controller.update(row["penalty"] / penalty.beta)`: this KL is
    a mean over an episode's tokens, as the penalty's aggregation has it, and so must the target be. (In a
    `PenaltySum` the row has the sum.)
    """

    beta: float
    target: float
    gain: float = 0.1
    bound: float = 0.2

    def __post_init__(self) -> None:
        _check_weights(above_0=True, **vars(self))
        if self.gain * self.bound >= 1:
            raise ValueError(f"gain {self.gain} times bound {self.bound} is 1 or more: beta could reach 0 and stay")

    def update(self, kl: float) -> float:
        """Return the new beta after a batch with this KL, an estimate may be below 0; ValueError if not finite."""
        if not math.isfinite(kl):
            raise ValueError(f"the KL is {kl}; it must be finite")
        self.beta *= 1 + self.gain * min(max(kl / self.target - 1, -self.bound), self.bound)
        return self.beta


# chapters/10-kl-entropy-regularization.ipynb · cell entropy
def entropy_from_logits(logits: Tensor) -> Tensor:
    """Return the entropy, in nats, of distributions over the last axis: [...] of [..., V], with its gradient.

    A logit of -inf adds 0. Divide the logits by the temperature of the sampling first: the entropy is then that of what
    sampled. ValueError, naming the place, where no softmax is defined.
    """
    logprobs = _log_softmax(logits, "logits")
    never = logprobs.exp() == 0
    return 0.0 - (logprobs.exp() * logprobs.masked_fill(never, 0.0)).sum(-1)  # and not -0.0


# chapters/10-kl-entropy-regularization.ipynb · cell entropy-bonus
def entropy_bonus(
    logits: Tensor,
    mask: Tensor,
    aggregation: str = "token-mean",
    norm_length: float | None = None,
    whole: LossCounts | None = None,
) -> Tensor:
    """Return the entropy of the policy tokens' distributions, aggregated: a scalar; subtract it, times a weight.

    `logits` [N, V] are those of the N tokens where `mask` [B, T] is true, as `scored_logits` gives them, over the
    temperature of the sampling. Padding and tool tokens cannot enter. ValueError for another number of rows; the rest
    is as in `aggregate_loss`.
    """
    tokens = int(loss_counts(mask).tokens)
    if logits.dim() != 2 or len(logits) != tokens:
        raise ValueError(f"logits {list(logits.shape)} for a mask with {tokens} tokens; they must be [{tokens}, V]")
    entropies = entropy_from_logits(logits)
    table = torch.zeros(mask.shape, dtype=entropies.dtype).masked_scatter(mask, entropies)
    return aggregate_loss(table, mask, aggregation, norm_length, whole)


# chapters/10-kl-entropy-regularization.ipynb · cell reference
class _Reference:
    """The part of a penalty that remembers: a weight `beta` and a `reference`, a model that does not learn."""

    beta: float
    reference: TinyAgent

    def _begin(self, temperature: float, *settings: Any) -> None:
        """Refuse what cannot be, before any training; keep a copy of the reference."""
        _check_weights(beta=self.beta)
        one = tempered(torch.ones(1, 1, dtype=DTYPE), temperature)
        kl_loss(one, one, one > 0, *settings)
        self.reset(self.reference)

    def reset(self, model: TinyAgent) -> None:
        """Make a copy of the model the reference: it does not move when the model does."""
        self.reference = copy.deepcopy(model).eval().requires_grad_(False)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint of a training has to keep."""
        return {"beta": self.beta, "reference": self.reference.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.beta = state["beta"]
        self.reference.load_state_dict(state["reference"])


# chapters/10-kl-entropy-regularization.ipynb · cell kl-penalty
@dataclass
class KLPenalty(_Reference):
    """A `penalty` of `train`: `beta` times `kl_loss` to a copy of `reference`, taken now, weighted by the ratio.

    `beta` may be changed while training goes on (`AdaptiveKL`). `temperature` is the sampling's; the rest is as in
    `kl_loss`: let aggregation and norm_length be those of the policy's loss. A checkpoint keeps weight and reference.
    With another temperature than the sampling's it is not 0 at the reference, and pulls away from it. Groups without
    information have no other gradient than this.
    """

    reference: TinyAgent
    beta: float
    kind: str = "k3+"
    temperature: float = 1.0
    aggregation: str = "seq-mean-token-mean"
    norm_length: float | None = None

    def __post_init__(self) -> None:
        self._begin(self.temperature, self.kind, None, self.aggregation, self.norm_length)

    def __call__(self, batch: TrajectoryBatch, logprobs: Tensor, logits: Tensor, whole: LossCounts) -> Tensor:
        mask, old = batch.action_mask, batch.logprobs
        ref = token_logprobs(self.reference, batch.ids, batch.attention_mask, mask, self.temperature)
        return self.beta * kl_loss(logprobs, ref, mask, self.kind, old, self.aggregation, self.norm_length, whole)


# chapters/10-kl-entropy-regularization.ipynb · cell other-penalties
@dataclass
class EntropyBonus:
    """A `penalty` of `train`: minus `weight` times the `entropy_bonus` of the policy's tokens."""

    weight: float
    aggregation: str = "seq-mean-token-mean"
    norm_length: float | None = None

    def __post_init__(self) -> None:
        _check_weights(weight=self.weight)
        one = torch.ones(1, 1)
        entropy_bonus(one, one > 0, self.aggregation, self.norm_length)  # refuses what is no aggregation

    def __call__(self, batch: TrajectoryBatch, logprobs: Tensor, logits: Tensor, whole: LossCounts) -> Tensor:
        return -self.weight * entropy_bonus(logits, batch.action_mask, self.aggregation, self.norm_length, whole)


# chapters/10-kl-entropy-regularization.ipynb · cell penalty-sum
class PenaltySum:
    """A `penalty` of `train` that adds up several: `PenaltySum(KLPenalty(agent, 0.1), EntropyBonus(0.01))`."""

    def __init__(self, *terms: Callable[..., Tensor]) -> None:
        if not terms or not all(callable(term) for term in terms):
            raise TypeError(f"terms are {terms!r}; give at least one penalty, each an argument of its own")
        self.terms = terms

    def __call__(self, batch: TrajectoryBatch, logprobs: Tensor, logits: Tensor, whole: LossCounts) -> Tensor:
        return torch.stack([term(batch, logprobs, logits, whole) for term in self.terms]).sum()

    def state_dict(self) -> dict[str, Any]:
        """Return, by place, what the terms have for a checkpoint to keep."""
        return {str(n): term.state_dict() for n, term in enumerate(self.terms) if hasattr(term, "state_dict")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        for place, kept in state.items():
            self.terms[int(place)].load_state_dict(kept)


# chapters/10-kl-entropy-regularization.ipynb · cell sft-penalty
@dataclass
class SFTPenalty:
    """A `penalty` of `train`: `weight` times the loss of `warm_start` on labelled examples, mixed in.

    `model` is the one that is trained; each call of `draw` returns some examples, a `LabelledBatch`: one call for each
    microbatch, which counts by its share of the policy tokens of the whole. With a random draw a run depends on the
    size of microbatches, and one that is resumed draws the first examples again: its stream is in no checkpoint.
    """

    model: TinyAgent
    draw: Callable[[], LabelledBatch]
    weight: float

    def __post_init__(self) -> None:
        _check_weights(weight=self.weight)

    def __call__(self, batch: TrajectoryBatch, logprobs: Tensor, logits: Tensor, whole: LossCounts) -> Tensor:
        ids, attention_mask, mask = self.draw()
        share = loss_counts(batch.action_mask).tokens / whole.tokens
        return -self.weight * share * masked_mean(token_logprobs(self.model, ids, attention_mask, mask), mask)


# chapters/10-kl-entropy-regularization.ipynb · cell distinct-correct
def distinct_correct(trajectories: Iterable[Trajectory]) -> int:
    """Return how many different successes there are: pairs of a task and the tokens that the policy wrote in it.

    Detours and failed calls on the way make a difference. The count grows with the number of episodes: compare equal
    numbers of attempts at the same tasks. TypeError for a `TrajectoryBatch`.
    """
    if isinstance(trajectories, TrajectoryBatch):
        raise TypeError("trajectories are a TrajectoryBatch; give its rows, batch.split()")
    repaired = (one for one in trajectories if episode_outcome(one.ended, one.info) == "repaired")
    return len({(one.task_id, tuple(one.ids[one.action_mask].tolist())) for one in repaired})
