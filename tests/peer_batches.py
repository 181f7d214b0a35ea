"""Random batches on which the library is compared with other trainers, and how those are imported.

A batch has rows of unequal length; within a row some spans are no policy tokens, as a tool's output is none. What
stands there is a large number, not nan: the others multiply it by 0.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from needing import peer
from torch import Tensor

import agentrl as arl

BATCHES = 200
TOLERANCE = 1e-9
GARBAGE = 1e3


def verl(module: str) -> ModuleType:
    """Return a module of verl's. Its losses do not use Ray, but importing any of them imports Ray: 200 MB."""
    if module in sys.modules or importlib.util.find_spec("ray"):
        return peer(module)
    stand_in = ModuleType("ray")
    stand_in.__dict__["ObjectRef"] = object  # named in annotations
    sys.modules["ray"] = stand_in
    try:
        return peer(module)
    finally:
        del sys.modules["ray"]  # others ask whether there is one


def random_mask(draws: torch.Generator, empty_rows: bool) -> Tensor:
    """Return a mask of at least two policy tokens, bool [B, T]: rows of random length with random gaps."""
    rows, width = (int(torch.randint(*bounds, (), generator=draws)) for bounds in ((1, 6), (2, 10)))
    lengths = torch.randint(0 if empty_rows else 1, width + 1, (rows, 1), generator=draws)
    mask = (torch.arange(width) < lengths) & (torch.rand(rows, width, generator=draws) < 0.7)
    if not empty_rows:
        mask[:, 0] = True
    return mask if mask.sum() > 1 else random_mask(draws, empty_rows)


@dataclass(frozen=True)
class Batch:
    """Tables [B, T] in float64; `logprobs` are the new ones."""

    seed: int
    mask: Tensor
    logprobs: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    rewards: Tensor
    values: Tensor
    old_values: Tensor
    returns: Tensor

    def policy(self, table: Tensor) -> Tensor:
        """Return a table's entries at policy tokens, in one row."""
        return table[self.mask]

    def counts(self) -> arl.LossCounts:
        """Return the denominators of the batch."""
        return arl.loss_counts(self.mask)


def random_batch(seed: int, empty_rows: bool) -> Batch:
    """Return a batch whose ratios are exp(-1.5) to exp(1.5), so that clips act on both sides."""
    draws = arl.generator(seed)
    mask = random_mask(draws, empty_rows)
    old, log_ratio, *rest = [3 * torch.rand(mask.shape, generator=draws, dtype=arl.DTYPE) - 1.5 for _ in range(7)]
    tables = (old - 3 + log_ratio, old - 3, *rest)
    tables = [torch.where(mask, table, GARBAGE + place) for place, table in enumerate(tables)]
    return Batch(seed, mask, *tables)


@functools.cache
def batches(empty_rows: bool = True) -> tuple[Batch, ...]:
    """Return 200 batches, the same in every run."""
    return tuple(random_batch(seed, empty_rows) for seed in range(BATCHES))


@dataclass(frozen=True)
class Groups:
    """Rewards [N] of attempts, and the task of each, [N]; groups have two attempts or more."""

    seed: int
    rewards: Tensor
    tasks: Tensor


def reward_groups(equal_sizes: bool = False) -> Iterator[Groups]:
    """Yield 200 batches of groups in random order; without it, one after the other. Some groups have equal rewards."""
    for seed in range(BATCHES):
        draws = arl.generator(seed)
        count, size = (int(torch.randint(low, 6, (), generator=draws)) for low in (1, 2))
        sizes = torch.full((count,), size) if equal_sizes else torch.randint(2, 6, (count,), generator=draws)
        tasks = torch.arange(count).repeat_interleave(sizes)
        if not equal_sizes:
            tasks = tasks[torch.rand(len(tasks), generator=draws).argsort(stable=True)]
        rewards = torch.rand(len(tasks), generator=draws, dtype=arl.DTYPE)
        yield Groups(seed, rewards.round() if seed % 2 else rewards, tasks)


def random_logits() -> Iterator[Tensor]:
    """Yield 200 tables of logits, which require a gradient, [N, V]."""
    for seed in range(BATCHES):
        draws = arl.generator(seed)
        rows, words = (int(torch.randint(1, 8, (), generator=draws)) for _ in range(2))
        yield leaf(8 * torch.rand(rows, words + 1, generator=draws, dtype=arl.DTYPE) - 4)


def source_of(module: str, name: str, names: dict[str, Any]) -> Callable[..., Any]:
    """Return a function of a module that cannot be imported here, run from its source with what it needs of others."""
    found = importlib.util.find_spec(module)
    assert found, module
    tree = ast.parse(Path(str(found.origin)).read_text(encoding="utf-8"))
    chosen = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    exec(compile(ast.Module([*chosen], []), module, "exec", annotations.compiler_flag), space := dict(names))
    return space[name]


RATIOS = (1.1, 1.25, 1.5, 0.7, 0.5, 4.0)


@dataclass(frozen=True)
class Attempts:
    """The batch of chapter 9's table: four attempts of unequal length at each of three tasks, the last never solved.

    `rewards` and `groups` are [12]; the tables [12, 7] have a tool's token at place 1.
    """

    rewards: Tensor
    groups: Tensor
    mask: Tensor
    logprobs: Tensor
    old_logprobs: Tensor

    def row_numbers(self, informative: bool) -> Tensor:
        """Return the numbers of all rows, or of those whose group has something to teach."""
        live = arl.informative_groups(self.rewards, self.groups)
        return (live if informative else torch.ones_like(live)).nonzero()[:, 0]


def attempts(moved: bool) -> Attempts:
    """Return that batch, with the ratios of the table or with all of them 1."""
    rewards = torch.tensor([1.0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0], dtype=arl.DTYPE)
    lengths = torch.tensor([6, 2, 4, 4, 2, 3, 5, 6, 3, 3, 4, 2])
    place = torch.arange(7)
    mask = (place < lengths[:, None] + 1) & (place != 1)
    ratio = torch.tensor([RATIOS[0], 1.0, *RATIOS[1:]], dtype=arl.DTYPE).expand(12, 7)
    old = torch.full((12, 7), -1.0, dtype=arl.DTYPE)
    new = old + ratio.log() if moved else old.clone()
    return Attempts(rewards, torch.arange(3).repeat_interleave(4), mask, new, old)


def preset_advantages(config: arl.TrainConfig, batch: Attempts, eps: float = 1e-6) -> Tensor:
    """Return a preset's advantages, [12]."""
    if config.advantage == "leave-one-out":
        return arl.leave_one_out_advantages(batch.rewards, batch.groups)
    scale = {"group-std": "group", "group": "none"}[config.advantage]
    return arl.group_mean_advantages(batch.rewards, batch.groups, scale, eps)


def preset_loss(config: arl.TrainConfig) -> Callable[..., arl.PolicyLoss]:
    """Return a preset's loss."""
    bounds = {"clip_low": config.clip_low, "clip_high": config.clip_high}
    if config.loss == "gspo":
        return partial(arl.gspo_policy_loss, **bounds)
    shares = {"aggregation": config.aggregation, "norm_length": config.norm_length}
    return partial(arl.cispo_policy_loss if config.loss == "cispo" else arl.ppo_policy_loss, **bounds, **shares)


def coefficients(config: arl.TrainConfig, batch: Attempts, eps: float = 1e-6) -> Tensor:
    """Return minus the derivative of a preset's loss by each token's log-probability, [12, 7]."""
    rows, logprobs = batch.row_numbers(informative=config.refills > 0), leaf(batch.logprobs)
    tables = logprobs[rows], batch.old_logprobs[rows], preset_advantages(config, batch, eps)[rows], batch.mask[rows]
    return -gradient(preset_loss(config)(*tables).loss, logprobs)


def rounding_of_variance(count: int) -> float:
    """Return what an estimated variance is multiplied by where n / (n - 1) is computed from whole numbers: float32."""
    whole = torch.tensor(count)
    return (whole / (whole - 1)).double().item() * (count - 1) / count


def apart(found: Tensor | float, theirs: Tensor | float) -> float:
    """Return the largest difference of two results of the same shape."""
    ours, other = (torch.as_tensor(x, dtype=arl.DTYPE).detach() for x in (found, theirs))
    assert ours.shape == other.shape, (ours.shape, other.shape)
    return (ours - other).abs().max().item() if ours.numel() else 0.0


def leaf(table: Tensor) -> Tensor:
    """Return a copy of the table that requires a gradient."""
    return table.clone().requires_grad_()


def gradient(loss: Tensor, inputs: Tensor) -> Tensor:
    """Return the loss's gradient with respect to the inputs."""
    return torch.autograd.grad(loss, inputs)[0]
