"""Chapter 7 · Advantages and Credit Assignment.

Which actions deserve the credit?

Built from chapters/07-advantages-and-credit.ipynb by scripts/build_library.py.
Do not edit: change the chapter and run `make library`.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from agentrl.notation import DTYPE, masked_sum
from agentrl.tiny_agent import TinyTrunk, has_past, uniform_parameter, unit_rms

__all__ = [
    "recorded_values",
    "discounted_returns",
    "group_mean_advantages",
    "leave_one_out_advantages",
    "ValueHead",
    "token_values",
    "explained_variance",
    "AdvantageEstimate",
    "gae",
    "broadcast_to_tokens",
    "turn_advantages",
    "normalize_advantages",
]


# chapters/07-advantages-and-credit.ipynb · cell saved-place
def _first_place(found: Tensor) -> str:
    """Return where a table of bool is true for the first time, in words: "row 1, position 3" of [B, T]."""
    index = found.nonzero()[0].tolist()
    names = {1: ("position",), 2: ("row", "position")}.get(len(index))
    return ", ".join(f"{name} {at}" for name, at in zip(names, index, strict=True)) if names else f"index {index}"


# chapters/07-advantages-and-credit.ipynb · cell saved-recorded
def _wide(array: Tensor) -> Tensor:
    """Return the numbers as floats of at least 32 bits: float16 and bfloat16 as float32, whole ones as float64."""
    return array.to(torch.promote_types(array.dtype, torch.float32 if array.is_floating_point() else DTYPE))


def recorded_values(mask: Tensor, **arrays: Tensor) -> list[Tensor]:
    """Return the arrays with 0 where the mask is false: numbers that were recorded, one for each policy token.

    Mask (bool) and arrays have the same shape, as a rule [B, T]. What stands at masked positions is never read.
    Numbers of 16 bits come back as float32: their sums would round away what is added. Raises TypeError if the mask is
    not bool or an array not of real numbers; ValueError, with the array's name and the place, if a shape differs, a
    value at a policy token is nan or infinite, or an array requires a gradient.
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(f"the mask is {getattr(mask, 'dtype', type(mask).__name__)}; it must be torch.bool")
    for name, array in arrays.items():
        if not isinstance(array, Tensor) or array.is_complex():
            kind = getattr(array, "dtype", type(array).__name__)
            raise TypeError(f"{name} is {kind}; it must be a tensor of real numbers")
        if array.shape != mask.shape:
            raise ValueError(f"{name} {list(array.shape)} and mask {list(mask.shape)} must have the same shape")
        if array.requires_grad:
            raise ValueError(f"{name} require a gradient; they are a record, no function of weights: detach them")
        if (wrong := mask & ~array.isfinite()).any():
            raise ValueError(f"{name} at {_first_place(wrong)}: {array[wrong][0].item()}; they must be finite")
    found = [_wide(array) for array in arrays.values()]
    return [torch.where(mask, array, torch.zeros_like(array)) for array in found]


# chapters/07-advantages-and-credit.ipynb · cell saved-share
def _check_shares(**shares: float) -> None:
    """Raise ValueError unless every number is between 0 and 1."""
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ValueError(f"{name} is {share}; it must be between 0 and 1")


def _check_eps(eps: float) -> None:
    """Raise ValueError unless the number that is added to a divisor is finite and at least 0."""
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps is {eps}; it must be at least 0, and finite")


def _finite(name: str, found: Tensor) -> Tensor:
    """Return what was computed; ValueError if it is not finite, though what it came from is."""
    if not found.isfinite().all():
        wrong = found[~found.isfinite()][0].item()
        raise ValueError(f"{name} came out as {wrong}: the numbers are too large, or too small, for {found.dtype}")
    return found


# chapters/07-advantages-and-credit.ipynb · cell saved-after
_Value = Tensor | float | None  # of what follows a row's last policy token: one number a row [B], or one for all


def _after(bootstrap: _Value, like: Tensor) -> Tensor:
    """Return the value of what follows each row's last policy token, for rows `like` [..., T]: 0 if none is given."""
    rows = torch.zeros_like(like[..., 0] if like.shape[-1] else like.sum(-1))
    if bootstrap is None:
        return rows
    if isinstance(bootstrap, complex) or (isinstance(bootstrap, Tensor) and bootstrap.is_complex()):
        raise TypeError(f"bootstrap is {getattr(bootstrap, 'dtype', 'complex')}; it must be of real numbers")
    after = torch.as_tensor(bootstrap, dtype=rows.dtype)
    if after.requires_grad:
        raise ValueError("bootstrap requires a gradient; it is a record: detach it")
    if after.dim() and after.shape != rows.shape:
        raise ValueError(f"bootstrap {list(after.shape)} for rows {list(rows.shape)}; it must be one number a row")
    if not after.isfinite().all():
        raise ValueError(f"bootstrap has {after[~after.isfinite()][0].item()}; it must be finite, 0 where terminated")
    return rows + after


# chapters/07-advantages-and-credit.ipynb · cell saved-returns
def discounted_returns(rewards: Tensor, mask: Tensor, gamma: float = 1.0, bootstrap: _Value = None) -> Tensor:
    """Return at each policy token its reward plus gamma times the return at the next policy token, [B, T]; 0 elsewhere.

    `rewards` and `mask` (bool) are [B, T]; other leading axes will do. `bootstrap` [B] is the value of what follows the
    last policy token: 0, the default, for an episode that terminated, V of its last state for one that was truncated.
    gamma counts policy tokens; rewards at masked positions are never read (verl's REINFORCE++ does the same since
    August 2026; before, an observation cut the return off). Errors as in `recorded_values`; ValueError for a gamma
    outside [0, 1].
    """
    _check_shares(gamma=gamma)
    (rewards,) = recorded_values(mask, rewards=rewards)
    returns, following = torch.zeros_like(rewards), _after(bootstrap, rewards)
    for t in reversed(range(mask.shape[-1])):
        following = torch.where(mask[..., t], rewards[..., t] + gamma * following, following)
        returns[..., t] = torch.where(mask[..., t], following, 0.0)
    return _finite("returns", returns)


# chapters/07-advantages-and-credit.ipynb · cell saved-group-rows
def _group_rows(rewards: Tensor, groups: Tensor) -> list[Tensor]:
    """Return which rewards [N] belong to each group, bool [N], given the number of each one's group, int64 [N]."""
    if not (isinstance(rewards, Tensor) and isinstance(groups, Tensor)):
        raise TypeError(f"rewards {type(rewards).__name__}, groups {type(groups).__name__}; both must be tensors")
    if groups.is_floating_point() or groups.dtype == torch.bool or groups.dim() != 1 or rewards.shape != groups.shape:
        shape = f"{groups.dtype} {list(groups.shape)}"
        raise ValueError(f"rewards {list(rewards.shape)}, groups {shape}; they must be [N] and [N] whole numbers")
    if rewards.isnan().any():
        at = int(rewards.isnan().nonzero()[0])
        raise ValueError(f"rewards at position {at}: nan, no verdict in group {int(groups[at])}; leave the attempt out")
    recorded_values(torch.ones_like(rewards, dtype=torch.bool), rewards=rewards)  # refuses what is infinite
    rows = [groups == name for name in groups.unique().tolist()]
    for own in rows:
        if own.sum() < 2:
            raise ValueError(f"group {int(groups[own][0])} has one attempt: there is nothing to compare it with")
    return rows


# chapters/07-advantages-and-credit.ipynb · cell saved-group-mean
def _over_deviation(advantages: Tensor, rewards: Tensor, eps: float) -> Tensor:
    """Return the advantages over the rewards' standard deviation + eps; 0 stays exactly 0, also over 0."""
    if not advantages.any():
        return advantages
    return advantages / (_finite("the standard deviation", rewards.std()) + eps)


def group_mean_advantages(rewards: Tensor, groups: Tensor, scale: str = "none", eps: float = 1e-6) -> Tensor:
    """Return each reward minus the mean of its group, [N]; exactly 0 where all rewards of a group are equal.

    `rewards` [N] are one an episode, `groups` [N] int64 say of which task (`TrajectoryBatch.rewards` and `.task_ids`).
    scale "group" divides by the group's standard deviation + eps (GRPO), "batch" by that of all rewards + eps, "none"
    by nothing (Dr. GRPO). Standard deviations are those of a sample, n - 1, as in verl, TRL and OpenRLHF; rLLM divides
    by n. eps: 1e-6 in verl and rLLM, 1e-4 in TRL, 1e-9 in OpenRLHF. Raises ValueError for a group of one (verl keeps
    the raw reward, others give 0 or nan) and for a reward of nan: leave infrastructure failures out of the batch.
    """
    if scale not in ("none", "group", "batch"):
        raise ValueError(f"scale is {scale!r}; it must be 'none', 'group' or 'batch'")
    _check_eps(eps)
    rows = _group_rows(rewards, groups)
    rewards = _wide(rewards)
    advantages = torch.zeros_like(rewards)
    for own in rows:
        if (rewards[own] != rewards[own][0]).any():  # of equal ones the mean can be off in its last bit: noise / eps
            centred = rewards[own] - rewards[own].mean()
            advantages[own] = _over_deviation(centred, rewards[own], eps) if scale == "group" else centred
    return _finite("advantages", _over_deviation(advantages, rewards, eps) if scale == "batch" else advantages)


# chapters/07-advantages-and-credit.ipynb · cell saved-leave-one-out
def leave_one_out_advantages(rewards: Tensor, groups: Tensor) -> Tensor:
    """Return each reward minus the mean of the others of its group, [N]: RLOO; 0 where all of a group are equal.

    `rewards` [N] are one an episode, `groups` [N] int64 say of which task (`TrajectoryBatch.rewards` and `.task_ids`).
    It is n / (n - 1) times what `group_mean_advantages` returns, in a group of n. Raises ValueError for a group of one
    and for a reward of nan: leave infrastructure failures out of the batch.
    """
    rows = _group_rows(rewards, groups)
    rewards = _wide(rewards)
    advantages = torch.zeros_like(rewards)
    for own in rows:
        if (rewards[own] != rewards[own][0]).any():
            others = (rewards[own].sum() - rewards[own]) / (own.sum() - 1)
            advantages[own] = rewards[own] - others
    return _finite("advantages", advantages)


# chapters/07-advantages-and-credit.ipynb · cell saved-value-head
class ValueHead(torch.nn.Module):
    """Turns features [..., D] into values [...]: one number, linear in the features at unit root mean square.

    The weights are drawn from `generator`, with a standard deviation of 1 / width; the bias starts at 0.
    """

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = uniform_parameter((width,), math.sqrt(3) / width, generator)
        self.bias = torch.nn.Parameter(torch.zeros((), dtype=DTYPE))

    def forward(self, features: Tensor) -> Tensor:
        """Return the value of each state, [...], of the trunk's features there, [..., D]."""
        return unit_rms(features) @ self.weight + self.bias


# chapters/07-advantages-and-credit.ipynb · cell saved-token-values
def token_values(trunk: TinyTrunk, head: ValueHead, ids: Tensor, attention_mask: Tensor, mask: Tensor) -> Tensor:
    """Return the value of the state in which each token was chosen, [B, T], 0.0 where `mask` is false.

    Entry t is read from the features at t - 1, which have seen the tokens before t and not token t itself: the same
    shift as in `token_logprobs`. All tables are [B, T]. TypeError for a mask that is not bool, ValueError where it
    selects the first token of a sequence: no state comes before it.
    """
    if mask.dtype != torch.bool or mask.shape != ids.shape:
        raise TypeError(f"mask must be bool of shape {list(ids.shape)}; it is {mask.dtype} of {list(mask.shape)}")
    stateless = (mask & ~has_past(attention_mask)).nonzero().tolist()
    if stateless:
        raise ValueError(f"row {stateless[0][0]}, position {stateless[0][1]}: no token before it, so no state")
    features = trunk.features(ids, segments=attention_mask)[:, :-1][mask[:, 1:]]
    values = head(features)
    return torch.zeros(ids.shape, dtype=values.dtype).masked_scatter(mask, values)


# chapters/07-advantages-and-credit.ipynb · cell saved-explained-variance
def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> float:
    """Return 1 - Var(returns - values) / Var(returns) over the policy tokens; nan where the returns do not vary.

    All are [B, T]. 1: the values are right up to a constant; 0: no better than a constant; below 0: worse than one.
    nan too where a variance is too small or too large for the type. Errors as in `recorded_values`.
    """
    values, returns = (kept[mask] for kept in recorded_values(mask, values=values, returns=returns))
    if not len(returns) or bool((returns == returns[0]).all()):
        return math.nan
    explained = 1 - ((returns - values).var(correction=0) / returns.var(correction=0)).item()
    return explained if math.isfinite(explained) else math.nan


# chapters/07-advantages-and-credit.ipynb · cell saved-estimate
class AdvantageEstimate(NamedTuple):
    """What `gae` returns, both [B, T] and 0 where the mask is false."""

    advantages: Tensor
    returns: Tensor  # advantages + values: what a critic is trained towards


# chapters/07-advantages-and-credit.ipynb · cell saved-gae
def gae(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float = 1.0, lam: float = 0.95, bootstrap: _Value = None
) -> AdvantageEstimate:
    """Return generalised advantage estimates over policy tokens, as if no other tokens were there.

    Shapes, `bootstrap` and masked positions as in `discounted_returns`; `values` [B, T] are of the states in which the
    tokens were chosen, without gradient. So in verl, NeMo-RL and AReaL. SkyRL and slime take the critic's values at
    tool tokens into account, OpenRLHF lets lambda decay over them, open-instruct ends the estimate there.
    Raises ValueError for gamma or lam outside [0, 1], and as `recorded_values` does.
    """
    _check_shares(gamma=gamma, lam=lam)
    rewards, values = recorded_values(mask, rewards=rewards, values=values)
    advantages = torch.zeros(mask.shape, dtype=torch.promote_types(rewards.dtype, values.dtype))
    following, running = _after(bootstrap, advantages), _after(None, advantages)
    for t in reversed(range(mask.shape[-1])):
        delta = rewards[..., t] + gamma * following - values[..., t]
        running = torch.where(mask[..., t], delta + gamma * lam * running, running)
        following = torch.where(mask[..., t], values[..., t], following)
        advantages[..., t] = torch.where(mask[..., t], running, 0.0)
    returns = torch.where(mask, _finite("advantages", advantages) + values, 0.0)
    return AdvantageEstimate(advantages, _finite("returns", returns))


# chapters/07-advantages-and-credit.ipynb · cell saved-turn-numbers
def _turn_numbers(turn: Tensor, mask: Tensor, turns: float = math.inf) -> Tensor:
    """Return each token's turn, int64 [B, T], 0 where the mask is false; an error for one outside [0, turns)."""
    if isinstance(turn, Tensor) and (turn.is_floating_point() or turn.dtype == torch.bool):
        raise TypeError(f"turn is {turn.dtype}; it must be torch.int64")
    number = recorded_values(mask, turn=turn)[0].long()
    if (wrong := (number < 0) | (number >= turns)).any():
        raise ValueError(f"{_first_place(wrong)}: turn {int(number[wrong][0])}, of {turns} counted from 0")
    return number


# chapters/07-advantages-and-credit.ipynb · cell saved-broadcast
def broadcast_to_tokens(advantages: Tensor, mask: Tensor, turn: Tensor | None = None) -> Tensor:
    """Return each policy token's advantage, [B, T] in memory of its own; 0 where the mask is false.

    `advantages` are [B], one an episode, or [B, K], one a turn, with the number of each token's turn, `turn` [B, T]
    int64, as in `TrajectoryBatch`. Raises ValueError for other shapes, a turn outside [0, K), and as `recorded_values`;
    TypeError for turns that are not whole numbers.
    """
    if turn is None:
        if advantages.shape != mask.shape[:1]:
            raise ValueError(f"advantages {list(advantages.shape)} for a mask {list(mask.shape)}; they must be [B]")
        return recorded_values(mask, advantages=advantages[:, None].expand(mask.shape))[0]
    if advantages.dim() != 2 or len(advantages) != len(mask):
        raise ValueError(f"advantages {list(advantages.shape)} with turns; they must be [B, K]")
    index = _turn_numbers(turn, mask, advantages.shape[1])
    return recorded_values(mask, advantages=advantages.gather(1, index))[0]


# chapters/07-advantages-and-credit.ipynb · cell saved-turn-advantages
def turn_advantages(
    rewards: Tensor, values: Tensor | None, turn: Tensor, mask: Tensor,
    gamma: float = 1.0, lam: float = 1.0, bootstrap: _Value = None,
) -> Tensor:  # fmt: skip
    """Return each policy token's turn's advantage, [B, T]: `gae` with turns as the steps, then broadcast.

    A turn's reward is the sum over its policy tokens, its value that of its first one; `values` None: 0. `gamma` and
    `lam` count turns. `turn` [B, T] int64 numbers them from 0; a turn without policy tokens is no step.
    """
    (rewards,) = recorded_values(mask, rewards=rewards)
    values = torch.zeros_like(rewards) if values is None else recorded_values(mask, values=values)[0]
    T = mask.shape[-1]
    index = _turn_numbers(turn, mask).unique(return_inverse=True)[1]  # without the turns that no row has
    shape = (len(mask), int(index.max()) + 1 if index.numel() else 0)
    place = torch.where(mask, torch.arange(T).expand(mask.shape), T)
    first = torch.full(shape, T).scatter_reduce(1, index, place, "amin")
    paid = torch.zeros(shape, dtype=rewards.dtype).scatter_add(1, index, rewards)
    known = values.gather(1, first.clamp(max=max(T - 1, 0)))
    return broadcast_to_tokens(gae(paid, known, first < T, gamma, lam, bootstrap).advantages, mask, index)


# chapters/07-advantages-and-credit.ipynb · cell saved-normalize
def normalize_advantages(
    advantages: Tensor, mask: Tensor | None = None, eps: float = 1e-6, dim: int | None = None
) -> Tensor:
    """Return (advantage - mean) / (standard deviation + eps) over the policy tokens, 0 elsewhere: whitening.

    `advantages` and `mask` have the same shape, [B, T] or [N]; without a mask all count. Mean and deviation (n - 1) are
    those of everything, or along `dim`: -1 for each row. Where all are equal the result is exactly 0.
    Errors as in `recorded_values`; ValueError if the mask selects nothing.
    """
    _check_eps(eps)
    mask = torch.ones(torch.as_tensor(advantages).shape, dtype=torch.bool) if mask is None else mask
    (kept,) = recorded_values(mask, advantages=advantages)
    if dim is None:
        masked_sum(kept, mask)  # refuses a mask that selects nothing
        return normalize_advantages(kept.flatten(), mask.flatten(), eps, 0).view(mask.shape)
    count = mask.sum(dim, keepdim=True).clamp(min=1)
    centred = torch.where(mask, kept - kept.sum(dim, keepdim=True) / count, 0.0)
    deviation = (centred.square().sum(dim, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    highest = kept.masked_fill(~mask, -math.inf).amax(dim, keepdim=True)
    differ = highest > kept.masked_fill(~mask, math.inf).amin(dim, keepdim=True)
    _finite("the standard deviation", deviation[differ])
    return _finite("advantages", torch.where(mask & differ, centred / (deviation + eps), 0.0))
