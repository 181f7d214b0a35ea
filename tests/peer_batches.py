"""Random batches on which the library is compared with other trainers, and how those are imported.

A batch has rows of unequal length; within a row some spans are no policy tokens, as a tool's output is none. What
stands there is a large number, not nan: the others multiply it by 0.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import torch
from needing import peer
from torch import Tensor

import agentrl as arl

BATCHES = 200
TOLERANCE = 1e-9
GARBAGE = 1e3


def verl(module: str) -> ModuleType:
    """Return a module of verl's. Its losses do not use Ray, but importing any of them imports Ray: 200 MB."""
    if "verl" in sys.modules or importlib.util.find_spec("ray"):
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
