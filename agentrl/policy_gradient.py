"""Chapter 6 · Policy Gradients.

How does a reward become a gradient?

Built from chapters/06-policy-gradient.ipynb by scripts/build_library.py.
Do not edit: change the chapter and run `make library`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor

from agentrl.bugfix_gym import (
    EDIT_OPS,
    BugFixTask,
    Transcript,
    episode_outcome,
    parse_call,
    run_episode,
    wilson_interval,
)
from agentrl.notation import DTYPE, generator, masked_sum
from agentrl.repair_mdp import check_positive
from agentrl.tiny_agent import TinyAgent, TinyAgentConfig, TinyTokenizer, snap_, token_logprobs, warm_start
from agentrl.trajectories import Trajectory, TrajectoryBatch, gym_env, labelled_batch

__all__ = [
    "LossCounts",
    "loss_counts",
    "AGGREGATIONS",
    "aggregate_loss",
    "policy_gradient_loss",
    "microbatches",
    "check_limits",
    "check_step",
    "apply_gradient",
    "Update",
    "reinforce_update",
    "random_call",
    "warm_start_episodes",
    "starting_agent",
    "SuccessRate",
    "success_rate",
    "rollout_summary",
    "TrainLog",
]


# chapters/06-policy-gradient.ipynb · cell loss-counts
class LossCounts(NamedTuple):
    """The denominators of a loss: how many policy tokens a batch has, and how many rows with at least one."""

    tokens: float
    sequences: float


def loss_counts(mask: Tensor) -> LossCounts:
    """Return the `LossCounts` of a batch's mask, bool [B, T]. TypeError if it is not bool, ValueError if not [B, T]."""
    if mask.dtype != torch.bool:
        raise TypeError(f"the mask is {mask.dtype}; it must be torch.bool")
    if mask.dim() != 2:
        raise ValueError(f"the mask is {list(mask.shape)}; it must be [B, T]")
    return LossCounts(int(mask.sum()), int(mask.any(-1).sum()))


# chapters/06-policy-gradient.ipynb · cell check-aggregation
AGGREGATIONS = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")


def _check_aggregation(mode: str, norm_length: float | None, whole: LossCounts) -> None:
    """Raise ValueError for an unknown mode, a norm_length that is missing, wrong or unused, a count that is not > 0."""
    if mode not in AGGREGATIONS:
        raise ValueError(f"the aggregation is {mode!r}; it must be one of {', '.join(AGGREGATIONS)}")
    if (norm_length is not None) != (mode == "seq-mean-token-sum-norm"):
        rule = "needs one" if norm_length is None else "takes none"
        raise ValueError(f"norm_length is {norm_length}; the aggregation {mode!r} {rule}")
    for name, number in [("norm_length", norm_length), *whole._asdict().items()]:
        if number is not None and not 0 < number < math.inf:
            raise ValueError(f"{name} is {number}; it must be a positive number: a loss divides by it")


# chapters/06-policy-gradient.ipynb · cell aggregate-loss
def aggregate_loss(
    values: Tensor, mask: Tensor, mode: str = "token-mean",
    norm_length: float | None = None, whole: LossCounts | None = None,
) -> Tensor:  # fmt: skip
    """Return one number, a scalar tensor, from the values of policy tokens, [B, T]. The modes have verl's names:

    "token-mean": the sum of the values / the number of policy tokens;
    "token-sum": the sum, divided by nothing;
    "seq-mean-token-sum": the sum / the number of sequences, rows with at least one policy token;
    "seq-mean-token-mean": the sum of the sequences' means / the number of sequences;
    "seq-mean-token-sum-norm": the sum / (the number of sequences * norm_length), which no other mode takes.
    `whole` holds these numbers for the batch that the rows are a part of (default: of the rows): results then add up.
    Masked values are never read; other types than float32 are summed in float64. Raises TypeError or ValueError for
    wrong types, shapes, modes and counts. The default mode is not that of `policy_gradient_loss`.
    """
    if values.is_complex():
        raise TypeError(f"the values are {values.dtype}; they must be real numbers")
    counts = loss_counts(mask)
    whole = counts if whole is None else LossCounts(*whole)
    _check_aggregation(mode, norm_length, whole)
    sums = masked_sum(values if values.dtype == torch.float32 else values.to(DTYPE), mask, dim=-1)
    if mode == "seq-mean-token-mean":
        sums = sums / mask.sum(-1).clamp(min=1)
    divisor = {"token-sum": 1, "token-mean": whole.tokens}.get(mode, whole.sequences)
    return sums.sum() / (divisor * (norm_length or 1))


# chapters/06-policy-gradient.ipynb · cell token-advantages
def _token_advantages(advantages: Tensor, mask: Tensor) -> Tensor:
    """Return the advantages as [B, T], 0 where the mask is false; errors as in `policy_gradient_loss`."""
    if advantages.requires_grad:
        raise ValueError("the advantages require a gradient; they are weights: detach them")
    if advantages.is_complex():
        raise TypeError(f"the advantages are {advantages.dtype}; they must be real numbers")
    if advantages.dim() == 1 and len(advantages) == len(mask):
        advantages = advantages[:, None].expand(mask.shape)
    if advantages.shape != mask.shape:
        raise ValueError(f"advantages {list(advantages.shape)}, mask {list(mask.shape)}: they must be [B, T], or [B]")
    advantages = advantages if advantages.is_floating_point() else advantages.to(DTYPE)
    kept = torch.where(mask, advantages, torch.zeros_like(advantages))
    if not kept.isfinite().all():
        row, position = (~kept.isfinite()).nonzero()[0].tolist()
        raise ValueError(f"the advantage of row {row}, position {position}, is {float(kept[row, position])}")
    return kept


# chapters/06-policy-gradient.ipynb · cell policy-gradient-loss
def policy_gradient_loss(
    logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    aggregation: str = "seq-mean-token-sum",
    norm_length: float | None = None,
    whole: LossCounts | None = None,
) -> Tensor:
    """Return the loss, a scalar to minimise, whose gradient is minus the policy-gradient estimate.

    `logprobs` [B, T], with gradient, are those of the tokens at their own places; `advantages` are [B, T], or [B] for
    one an episode. The loss's value means nothing. The default aggregation is the gradient of the expected return;
    `norm_length` and `whole` are those of `aggregate_loss`. Masked positions are never read. Raises ValueError if
    advantages require a gradient or are not finite at an action, and what `aggregate_loss` raises.
    """
    loss_counts(mask)  # refuses a mask that is none
    if logprobs.is_complex():
        raise TypeError(f"logprobs are {logprobs.dtype}; they must be real numbers")
    weights = _token_advantages(advantages, mask)
    if logprobs.shape != mask.shape:
        raise ValueError(f"logprobs {list(logprobs.shape)} and mask {list(mask.shape)} must have the same shape")
    kept = torch.where(mask, logprobs, 0.0)  # as the weights, before the product: 0 times nan is nan
    return aggregate_loss(-(weights * kept), mask, aggregation, norm_length, whole)


# chapters/06-policy-gradient.ipynb · cell saved-take-rows
def _take_rows(batch: TrajectoryBatch, rows: Tensor) -> TrajectoryBatch:
    """Return these rows as a batch of their own, no wider than the longest of them."""
    width = int(batch.lengths[rows].max())

    def taken(column: Any) -> Any:
        if not isinstance(column, Tensor):
            return tuple(column[row] for row in rows.tolist())
        return column[rows][:, :width] if column.dim() == 2 else column[rows]

    return TrajectoryBatch(**{name: taken(column) for name, column in vars(batch).items()})


# chapters/06-policy-gradient.ipynb · cell saved-microbatches
def _check_parts(batch: TrajectoryBatch, size: int | None, rows: Tensor) -> None:
    """Raise ValueError for a size below 1, or rows that are not numbers of rows of the batch."""
    if size is not None and (type(size) is not int or size < 1):
        raise ValueError(f"microbatch is {size!r}; it must be a whole number, at least 1, or None for one part")
    if rows.dtype != torch.int64 or (len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(batch)):
        raise ValueError(f"rows are {rows.dtype}, {rows.tolist()}; they must be int64, from 0 to {len(batch) - 1}")


def microbatches(
    batch: TrajectoryBatch, size: int | None = None, rows: Tensor | None = None
) -> Iterator[tuple[Tensor, TrajectoryBatch]]:
    """Yield parts of at most `size` rows (None: one part), shorter rows first: their numbers in the batch, and they.

    Together they are the `rows` with these numbers, or all. A part is as wide as its longest row. ValueError, when the
    first part is asked for, for a size below 1 and for numbers that are no rows.
    """
    rows = torch.arange(len(batch)) if rows is None else rows
    _check_parts(batch, size, rows)
    ordered = rows[batch.lengths[rows].argsort(stable=True)]
    for part in ordered.split(size or len(ordered) or 1):
        if len(part):
            yield part, _take_rows(batch, part)


# chapters/06-policy-gradient.ipynb · cell saved-check-step
def _trained(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return all tensors that the optimiser trains."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def check_limits(max_grad_norm: float | None, grid: int | None) -> None:
    """Raise ValueError for a limit that is not above 0 and a grid that is no power of two; None is neither."""
    if max_grad_norm is not None and not max_grad_norm > 0:
        raise ValueError(f"max_grad_norm is {max_grad_norm}; it must be above 0, or None for no limit")
    if grid is not None and (type(grid) is not int or not 1 <= grid <= 2**62 or grid & (grid - 1)):
        raise ValueError(f"grid is {grid!r}; it must be a power of two, a whole number from 1 to 2**62, or None")


def check_step(optimizer: torch.optim.Optimizer, max_grad_norm: float | None, grid: int | None) -> None:
    """Raise ValueError for limits that cannot be, and for weights of 16 bits on a grid."""
    check_limits(max_grad_norm, grid)
    for weights in _trained(optimizer):
        if grid is not None and weights.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"grid is {grid}, a weight {weights.dtype}; only float32 and float64 can be snapped")


# chapters/06-policy-gradient.ipynb · cell saved-apply-gradient
def apply_gradient(
    optimizer: torch.optim.Optimizer, max_grad_norm: float | None = 1.0, grid: int | None = 2**16
) -> float:
    """Return the norm of the gradient over all that the optimiser trains, after one step along it.

    A gradient longer than `max_grad_norm` is scaled down to it first (None: never). Then the weights are snapped to the
    multiples of 1 / grid (None: not): a step below half of that, 2**-17 by default, vanishes, as Adam's at a learning
    rate of 1e-6 does; give None there. ValueError, before anything is changed, if no parameter has a gradient or the
    norm is not finite, for a limit not above 0, and for a grid that is no power of two or given weights of 16 bits.
    """
    check_step(optimizer, max_grad_norm, grid)
    parameters = _trained(optimizer)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        why = "no backward pass reached them, as with an empty batch or the weights of another model"
        raise ValueError(f"0 tensors of the optimiser's {len(parameters)} have a gradient: {why}; no step was made")
    norm = float(torch.nn.utils.get_total_norm(gradients, foreach=False))
    if not math.isfinite(norm):
        raise ValueError(f"the gradient's norm is {norm}, over {len(gradients)} tensors; no step was made")
    if max_grad_norm is not None:
        torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm, foreach=False)
    optimizer.step()
    if grid is not None:
        snap_(parameters, grid)
    return norm


# chapters/06-policy-gradient.ipynb · cell saved-reinforce-gradient
class Update(NamedTuple):
    """What an update did: the loss before it, whose value means nothing, and the gradient's norm before clipping."""

    loss: float
    grad_norm: float


def _reinforce_gradient(
    model: TinyAgent, batch: TrajectoryBatch, advantages: Tensor, microbatch: int | None, **settings: Any
) -> float:
    """Add the gradient of the batch's loss to the weights', microbatch by microbatch, and return the loss."""
    whole, temperature, total = loss_counts(batch.action_mask), settings.pop("temperature"), 0.0
    weights = _token_advantages(advantages, batch.action_mask)  # all of them are checked before the first backward
    for rows, part in microbatches(batch, microbatch):
        logprobs = token_logprobs(model, part.ids, part.attention_mask, part.action_mask, temperature)
        chosen = weights[rows, : logprobs.shape[1]]
        loss = policy_gradient_loss(logprobs, chosen, part.action_mask, whole=whole, **settings)
        loss.backward()
        total += loss.item()
    return total


# chapters/06-policy-gradient.ipynb · cell saved-reinforce-update
def reinforce_update(
    model: TinyAgent,
    optimizer: torch.optim.Optimizer,
    batch: TrajectoryBatch,
    advantages: Tensor,
    microbatch: int | None = None,
    max_grad_norm: float | None = 1.0,
    grid: int | None = 2**16,
    **settings: Any,
) -> Update:
    """Return the record of one REINFORCE step: the gradient of `policy_gradient_loss`, then `apply_gradient`.

    `advantages` are [B], or [B, T]; an episode whose environment broke has none: leave it out. `microbatch` rows are
    worked on at a time; the gradient is the same for any number. `settings`: `temperature` if the sampling had another
    than 1, and those of `policy_gradient_loss` (aggregation, norm_length).
    """
    check_step(optimizer, max_grad_norm, grid)
    optimizer.zero_grad()
    loss = _reinforce_gradient(model, batch, advantages, microbatch, **{"temperature": 1.0, **settings})
    return Update(loss, apply_gradient(optimizer, max_grad_norm, grid))


# chapters/06-policy-gradient.ipynb · cell saved-random-call
_CALL_ODDS = (("test", 0.15), ("edit", 0.70), ("submit", 1.0))  # with cumulative probabilities


def _check_odds(family: str, **odds: float) -> None:
    """Raise ValueError for a family that no edit of the menu repairs, or odds that are no probability."""
    if family not in EDIT_OPS:
        raise ValueError(f"no edit repairs the family {family!r}; there are {', '.join(EDIT_OPS)}")
    if wrong := [f"{name} is {value}" for name, value in odds.items() if not 0 <= value <= 1]:
        raise ValueError(f"{wrong[0]}; it must be a probability, from 0 to 1")


# chapters/06-policy-gradient.ipynb · cell saved-random-call-text
def random_call(generator: torch.Generator, turn: int, family: str, right: float = 0.4, read_first: float = 0.9) -> str:
    """Return a random well-formed call, as text: what the starting agent imitates.

    In turn 0 it is `read` with probability `read_first`. Else: test 0.15, edit 0.55, submit 0.3. An edit is the one
    that repairs tasks of `family` with probability `right`, else any of the menu's, each equally likely. ValueError for
    an unknown family, and for what is no probability.
    """
    _check_odds(family, right=right, read_first=read_first)
    draws = torch.rand(4, generator=generator, dtype=DTYPE).tolist()
    if turn == 0 and draws[0] < read_first:
        return "<call> read </call>"
    tool = next(tool for tool, below in _CALL_ODDS if draws[1] < below)
    menu = list(EDIT_OPS)
    edit = family if draws[2] < right else menu[int(draws[3] * len(menu))]
    return f"<call> edit {edit} </call>" if tool == "edit" else f"<call> {tool} </call>"


# chapters/06-policy-gradient.ipynb · cell saved-warm-start-episodes
def _random_policy(family: str, generator: torch.Generator, odds: dict[str, float]) -> Callable[[Transcript], str]:
    """Return a policy for `run_episode` that plays random calls on a task of this family."""
    return lambda transcript: random_call(generator, len(transcript) // 2, family, **odds)


def warm_start_episodes(
    tasks: Sequence[BugFixTask], count: int, generator: torch.Generator, **odds: float
) -> list[Transcript]:
    """Return transcripts of `count` episodes of random calls, each on a task drawn from `tasks`.

    `odds` go to `random_call`. ValueError if there is no task to draw, or the count is below 1.
    """
    check_positive(count=count)
    if not tasks:
        raise ValueError("tasks is empty; there must be at least one to play")
    draws = (torch.rand((), generator=generator, dtype=DTYPE).item() for _ in range(count))
    played = (tasks[int(draw * len(tasks))] for draw in draws)  # one after the other: they share the generator
    return [run_episode(gym_env(t), _random_policy(t.family, generator, odds)).transcript for t in played]


# chapters/06-policy-gradient.ipynb · cell saved-starting-agent
def starting_agent(
    tokenizer: TinyTokenizer,
    tasks: Sequence[BugFixTask],
    seed: int,
    batches: int = 100,
    episodes: int = 32,
    **sizes: int,
) -> TinyAgent:
    """Return the book's base model: a `TinyAgent` that has learnt to imitate random calls, and repairs little.

    `batches` Adam steps (learning rate 3e-3) on `episodes` transcripts each, with a loss on the policy's tokens only;
    with 0 batches the weights are as drawn. The same arguments give the same weights. `sizes` go to `TinyAgentConfig`.
    """
    check_positive(episodes=episodes, **({"batches": batches} if batches else {}))
    random = generator(seed)
    agent = TinyAgent(TinyAgentConfig(len(tokenizer), **sizes), random)
    played = (warm_start_episodes(tasks, episodes, random) for _ in range(batches))
    warm_start(agent, (labelled_batch(tokenizer, some, agent.config.max_positions) for some in played))
    return agent


# chapters/06-policy-gradient.ipynb · cell saved-success-rate
class SuccessRate(NamedTuple):
    """How many of `episodes` were repaired and hacked; `failures`, ended by a broken environment, are not counted."""

    repaired: int
    hacked: int
    episodes: int
    failures: int

    @property
    def rate(self) -> float:
        """The share repaired, from 0 to 1; nan without an episode."""
        return self.repaired / self.episodes if self.episodes else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of the share, as if episodes were independent; ValueError without an episode."""
        return wilson_interval(self.repaired, self.episodes)


# chapters/06-policy-gradient.ipynb · cell saved-success-rate-of
def _listed(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    """Return the trajectories as a list; TypeError for a batch of them, which is one table."""
    if isinstance(trajectories, TrajectoryBatch):
        raise TypeError("trajectories are a TrajectoryBatch; give its rows, batch.split()")
    return list(trajectories)


def success_rate(trajectories: Iterable[Trajectory]) -> SuccessRate:
    """Return the counts of the episodes by what came of them (`episode_outcome`), whatever their rewards."""
    outcomes = Counter(episode_outcome(one.ended, one.info) for one in _listed(trajectories))
    failures = outcomes["infrastructure"]
    return SuccessRate(outcomes["repaired"], outcomes["hacked"], outcomes.total() - failures, failures)


# chapters/06-policy-gradient.ipynb · cell saved-calls
def _messages(tokenizer: TinyTokenizer, trajectory: Trajectory) -> list[str]:
    """Return what the policy wrote, turn by turn, as text; a turn that was cut off ends with " (cut off)"."""
    cut = trajectory.info.get("cut", ())
    ids, turn = (column[trajectory.action_mask] for column in (trajectory.ids, trajectory.turn))
    written = ((k, tokenizer.decode(ids[turn == k].tolist())) for k in turn.unique().tolist())
    return [text + " (cut off)" * (k in cut) for k, text in written]


def _is_call(text: str) -> bool:
    """Return whether a message is one call that the environment can carry out."""
    call = parse_call(text)
    return not call.problem and (call.tool != "edit" or call.argument in EDIT_OPS)


# chapters/06-policy-gradient.ipynb · cell saved-rollout-summary
def rollout_summary(tokenizer: TinyTokenizer, trajectories: Iterable[Trajectory]) -> dict[str, float]:
    """Return what to log of a batch of episodes, sampled at temperature 1.

    success, hacked: shares of the episodes whose environment held. Of all episodes: calls, the share of the messages
    that are one well-formed call; turns, tokens: the policy's, a mean an episode; entropy: minus the mean
    log-probability of its tokens, in nats, an estimate of the mean entropy of the distributions they were drawn from.
    ValueError where the policy wrote nothing.
    """
    trajectories = _listed(trajectories)
    counts = success_rate(trajectories)
    scores = torch.cat([torch.empty(0), *(one.logprobs[one.action_mask] for one in trajectories)])
    messages = [text for one in trajectories for text in _messages(tokenizer, one)]
    if not messages or not counts.episodes:
        raise ValueError(f"{len(messages)} messages in {counts.episodes} episodes: nothing to summarise")
    return {
        "success": counts.rate,
        "hacked": counts.hacked / counts.episodes,
        "calls": sum(map(_is_call, messages)) / len(messages),
        "turns": len(messages) / len(trajectories),
        "tokens": len(scores) / len(trajectories),
        "entropy": -scores.mean().item(),
    }


# chapters/06-policy-gradient.ipynb · cell saved-train-log
class TrainLog:
    """The history of a training: `rows`, one each time `add` is called, all with numbers of the same names."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def add(self, **numbers: float) -> None:
        """Append a row; TypeError for what is no number, ValueError for other names than those of the first row."""
        _check_row(numbers, self.rows)
        self.rows.append(numbers)

    def column(self, name: str) -> list[float]:
        """Return what the rows have under a name; ValueError for a name that they do not have."""
        return [row[name] for row in _with_names([name], self.rows)]

    def table(self, *names: str, every: int = 1) -> str:
        """Return these columns as text: the first row, every `every`-th after it and the last, to three decimals."""
        return _as_text(names, _with_names(names, self.rows), every)


# chapters/06-policy-gradient.ipynb · cell saved-train-log-checks
def _check_row(numbers: dict[str, float], rows: list[dict[str, float]]) -> None:
    """Raise TypeError or ValueError for a row that is empty or does not go with the others."""
    if not numbers:
        raise ValueError(f"row {len(rows)} is empty; a row has at least one number")
    if wrong := {name: value for name, value in numbers.items() if not isinstance(value, Real)}:
        raise TypeError(f"row {len(rows)}: {wrong} is no number; a tensor's number is its item()")
    if rows and numbers.keys() != rows[0].keys():
        raise ValueError(f"row {len(rows)} has {', '.join(numbers)}; the first has {', '.join(rows[0])}")


def _with_names(names: Sequence[str], rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return the rows; ValueError for a name that they do not have."""
    if unknown := [name for name in names if rows and name not in rows[0]]:
        raise ValueError(f"no column {unknown[0]!r}; there are {', '.join(rows[0])}")
    return rows


# chapters/06-policy-gradient.ipynb · cell saved-train-log-text
def _as_text(names: Sequence[str], rows: list[dict[str, float]], every: int) -> str:
    """Return columns of the rows as aligned text under their names; numbers with a fraction get three decimals."""

    def text(value: float) -> str:
        return str(value) if isinstance(value, int) else f"{round(value, 3) + 0.0:.3f}"  # and no -0.000

    check_positive(every=every)
    shown = [row for place, row in enumerate(rows) if place % every == 0 or place == len(rows) - 1]
    columns = [[name, *(text(row[name]) for row in shown)] for name in names]
    widths = [max(10, 1 + max(map(len, column))) for column in columns]
    return "\n".join("".join(map(str.rjust, line, widths)) for line in zip(*columns, strict=True))
