"""Random tables of tokens, and what every loss over policy tokens owes: the same properties for chapters 6 to 10.

A loss takes columns, tables [B, T] or a number for each row [B]; the first one has the gradient. What stands at masked
positions is arbitrary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

import agentrl as arl

AGGREGATIONS = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
NORM = 7.0
FILLERS = (math.nan, math.inf, -math.inf)
Columns = dict[str, Tensor]
few = settings(max_examples=20, deadline=None)
each_mode = pytest.mark.parametrize("mode", AGGREGATIONS)


def table(*rows: Sequence[float], dtype: torch.dtype = arl.DTYPE) -> Tensor:
    """Return the rows as a tensor [B, T]."""
    return torch.tensor(rows, dtype=dtype)


def column(*numbers: float) -> Tensor:
    """Return one number a row, [B]."""
    return torch.tensor(numbers, dtype=arl.DTYPE)


def mask_of(*rows: Sequence[int]) -> Tensor:
    """Return the rows of 0 and 1 as a mask, bool [B, T]."""
    return torch.tensor(rows, dtype=torch.bool)


def lengths_mask(*lengths: int) -> Tensor:
    """Return the mask of rows of these lengths, padded at the right."""
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def close(found: Tensor, right: Any, tolerance: float = 1e-12) -> bool:
    """Return whether all entries agree to the tolerance."""
    right = torch.as_tensor(right, dtype=arl.DTYPE)
    assert found.shape == right.shape, (found.shape, right.shape)
    return bool((found.to(arl.DTYPE) - right).abs().amax() <= tolerance) if right.numel() else True


def drawn(shape: Sequence[int], seed: int, low: float = -1.0, high: float = 1.0) -> Tensor:
    """Return uniform numbers between the bounds."""
    return low + (high - low) * torch.rand(*shape, generator=arl.generator(seed), dtype=arl.DTYPE)


@st.composite
def masks(draw: st.DrawFn, rows: int = 5, width: int = 6, empty_rows: bool = True) -> Tensor:
    """Return any mask with at least one policy token; without `empty_rows` at least one a row."""
    shape = draw(st.integers(1, rows)), draw(st.integers(1, width))
    bits = [draw(st.integers(0 if empty_rows else 1, 2 ** shape[1] - 1)) for _ in range(shape[0])]
    if not any(bits):
        bits[draw(st.integers(0, shape[0] - 1))] = 1
    return mask_of(*([number >> place & 1 for place in range(shape[1])] for number in bits))


seeds = st.integers(0, 2**31)


def options(mode: str) -> dict[str, Any]:
    """Return the arguments after the mask that a mode takes."""
    return {"norm_length": NORM} if mode.endswith("norm") else {}


def aggregate_in_loops(values: Tensor, mask: Tensor, mode: str, norm_length: float = NORM) -> float:
    """Return the aggregate by the definition, over lists of what is not masked."""
    pairs = zip(values.tolist(), mask.tolist(), strict=True)
    rows = [[value for value, kept in zip(row, keep, strict=True) if kept] for row, keep in pairs]
    rows = [row for row in rows if row]
    everything = [value for row in rows for value in row]
    if mode == "token-sum":
        return math.fsum(everything)
    if mode == "token-mean":
        return math.fsum(everything) / len(everything)
    divisor = {"seq-mean-token-sum": lambda row: 1, "seq-mean-token-mean": len}
    by = divisor.get(mode, lambda row: norm_length)
    return math.fsum(math.fsum(row) / by(row) for row in rows) / len(rows)


@dataclass(frozen=True)
class TokenLoss:
    """A loss: the names of its columns, the one with the gradient first, and the call (columns, mask, whole).

    Where a part of it is detached, its gradient is not the slope of its value.
    """

    name: str
    columns: tuple[str, ...]
    compute: Callable[[Columns, Tensor, Any], Tensor]
    by_row: tuple[str, ...] = ()
    detached: bool = False

    def __str__(self) -> str:
        return self.name

    def draw(self, mask: Tensor, seed: int) -> Columns:
        """Return random columns for the mask: log-probabilities from -2 to 0, the rest from -1 to 1."""
        shapes = {name: mask.shape[:1] if name in self.by_row else mask.shape for name in self.columns}
        found = {name: drawn(shapes[name], seed + place) for place, name in enumerate(self.columns)}
        return {name: values - 1 if "logprobs" in name else values for name, values in found.items()}

    def tables(self) -> list[str]:
        """Return the names of the columns that are tables [B, T]."""
        return [name for name in self.columns if name not in self.by_row]


def value_and_gradient(loss: TokenLoss, columns: Columns, mask: Tensor, whole: Any = None) -> tuple[Tensor, Tensor]:
    """Return a loss and its gradient with respect to the first column."""
    leaf = columns[loss.columns[0]].clone().requires_grad_()
    value = loss.compute({**columns, loss.columns[0]: leaf}, mask, whole)
    assert value.shape == (), "a loss is a scalar"
    return value.detach(), torch.autograd.grad(value, leaf)[0]


def filled(columns: Columns, name: str, mask: Tensor, filler: float) -> Columns:
    """Return the columns with one table holding the filler at masked positions."""
    return {**columns, name: torch.where(mask, columns[name], filler)}


def check_parts_add_up(loss: TokenLoss, mask: Tensor, seed: int, order: Sequence[int], cuts: Sequence[int]) -> None:
    """Check that parts of the batch, of any rows, add up to its loss and have its gradient, to 1e-12."""
    columns, whole = loss.draw(mask, seed), arl.loss_counts(mask)
    value, gradient = value_and_gradient(loss, columns, mask)
    total, found = torch.zeros((), dtype=arl.DTYPE), torch.zeros_like(gradient)
    for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True):
        rows = list(order[start:end])
        if rows:
            part = {name: values[rows] for name, values in columns.items()}
            piece, found[rows] = value_and_gradient(loss, part, mask[rows], whole)
            total += piece
    assert close(total, value)
    assert close(found, gradient)


def check_masked_positions_are_never_read(loss: TokenLoss, mask: Tensor, seed: int) -> None:
    """Check that nan and inf at masked positions of any table change nothing, in value and in gradient."""
    columns = loss.draw(mask, seed)
    value, gradient = value_and_gradient(loss, columns, mask)
    assert (gradient[~mask] == 0).all()
    for name in loss.tables():
        for filler in FILLERS:
            again, same = value_and_gradient(loss, filled(columns, name, mask, filler), mask)
            assert torch.equal(value, again), (name, filler)
            assert torch.equal(gradient, same), (name, filler)


def check_rows_may_be_permuted(loss: TokenLoss, mask: Tensor, seed: int, order: Sequence[int]) -> None:
    """Check that other rows first leave the loss as it is and permute the gradient."""
    columns, rows = loss.draw(mask, seed), list(order)
    value, gradient = value_and_gradient(loss, columns, mask)
    again, moved = value_and_gradient(loss, {name: values[rows] for name, values in columns.items()}, mask[rows])
    assert close(again, value)
    assert close(moved, gradient[rows])


def widened(values: Tensor, extra: int, filler: float) -> Tensor:
    """Return the table with `extra` further columns that hold the filler."""
    return torch.cat([values, values.new_full((len(values), extra), filler)], 1)


def check_padding_changes_nothing(loss: TokenLoss, mask: Tensor, seed: int, extra: int) -> None:
    """Check that masked columns at the end change neither loss nor gradient."""
    columns = loss.draw(mask, seed)
    value, gradient = value_and_gradient(loss, columns, mask)
    longer = {name: widened(columns[name], extra, math.nan) for name in loss.tables()}
    again, wide = value_and_gradient(loss, {**columns, **longer}, widened(mask, extra, False))
    assert close(again, value)
    assert close(wide[:, : mask.shape[1]], gradient)
    assert (wide[:, mask.shape[1] :] == 0).all()


def check_gradient_is_the_slope(loss: TokenLoss, mask: Tensor, seed: int, step: float = 1e-6) -> None:
    """Check the gradient against central differences, one position after the other."""
    columns, first = loss.draw(mask, seed), loss.columns[0]
    _, gradient = value_and_gradient(loss, columns, mask)
    slopes = torch.zeros_like(gradient)
    for place in torch.ones_like(mask).nonzero().tolist():
        sides = []
        for sign in (1, -1):
            moved = columns[first].clone()
            moved[tuple(place)] += sign * step
            sides.append(loss.compute({**columns, first: moved}, mask, None).item())
        slopes[tuple(place)] = (sides[0] - sides[1]) / (2 * step)
    assert close(gradient, slopes, 1e-8)


def check_inputs_are_left_alone(loss: TokenLoss, mask: Tensor, seed: int) -> None:
    """Check that no input is written to."""
    columns = loss.draw(mask, seed)
    before = {name: values.clone() for name, values in columns.items()}
    value_and_gradient(loss, columns, mask)
    assert all(torch.equal(columns[name], before[name]) for name in columns)


def check_recorded_columns_have_no_gradient(loss: TokenLoss, mask: Tensor, seed: int) -> None:
    """Check that each column but the first is refused by name where it requires a gradient."""
    columns = loss.draw(mask, seed)
    for name in loss.columns[1:]:
        with pytest.raises(ValueError, match=rf"(?s){name}.*(gradient|detach)"):
            loss.compute({**columns, name: columns[name].clone().requires_grad_()}, mask, None)


def check_recorded_columns_are_finite(loss: TokenLoss, mask: Tensor, seed: int) -> None:
    """Check that nan or inf at a policy token of a recorded table is refused with its name, row and position."""
    columns, (row, position) = loss.draw(mask, seed), mask.nonzero()[-1].tolist()
    for name in loss.columns[1:]:
        for filler in FILLERS:
            bad = columns[name].clone()
            bad[row if name in loss.by_row else (row, position)] = filler
            place = rf"row {row}" if name in loss.by_row else rf"row {row}\D*{position}"
            with pytest.raises(ValueError, match=place) as refused:
                loss.compute({**columns, name: bad}, mask, None)
            assert name.rstrip("s") in str(refused.value)


def tiny_model(seed: int = 0) -> arl.TinyAgent:
    """Return a model of 11 tokens with random weights."""
    return arl.TinyAgent(arl.TinyAgentConfig(11, width=8, layers=1, heads=2, max_positions=32), arl.generator(seed))


def episodes(model: arl.TinyAgent, seed: int, count: int = 5) -> arl.TrajectoryBatch:
    """Return episodes of random tokens, the longest of 13, with the model's log-probabilities at their actions."""
    return arl.collate([_episode(model, arl.generator(seed + row), row) for row in range(count)])


def _episode(model: arl.TinyAgent, random: torch.Generator, row: int) -> arl.Trajectory:
    """Return an episode: a prompt, a message, an answer of a tool, and a message that grows with the row."""
    writer = torch.tensor([0, 0, 2, 2, 3, 3, *[2] * row, *[3] * (row % 2), *[2] * (row and 3)])
    turn = torch.tensor([-1, -1, *[0] * 4, *[1] * (len(writer) - 6)])
    ids, mask = torch.randint(11, writer.shape, generator=random), writer == 2
    with torch.no_grad():
        scored = arl.token_logprobs(model, ids[None], torch.ones_like(mask)[None])[0]
    logprobs = torch.where(mask, scored, math.nan)
    return arl.Trajectory(ids, mask, logprobs, writer, turn, 1.0, "out_of_turns", row, 0, {})


def stepped_by(model: torch.nn.Module, update: Callable[[torch.optim.Optimizer], Any]) -> tuple[list[Tensor], Any]:
    """Return by how much plain descent at rate 1 moved the weights down, and what the update returned."""
    before = [parameter.detach().clone() for parameter in model.parameters()]
    found = update(torch.optim.SGD(model.parameters(), 1.0))
    return [one - other.detach() for one, other in zip(before, model.parameters(), strict=True)], found


def aggregation_of(mode: str) -> TokenLoss:
    return TokenLoss(
        mode,
        ("values",),
        lambda c, mask, whole: arl.aggregate_loss(c["values"], mask, mode, **options(mode), whole=whole),
    )


def loss_of(mode: str, by_row: tuple[str, ...] = ()) -> TokenLoss:
    name = f"policy gradient, {mode}" + ", one advantage an episode" * bool(by_row)
    return TokenLoss(
        name,
        ("logprobs", "advantages"),
        lambda c, mask, whole: arl.policy_gradient_loss(
            c["logprobs"], c["advantages"], mask, mode, **options(mode), whole=whole
        ),
        by_row,
    )


CLIPS: dict[str, dict[str, float]] = {
    "clipped": {},
    "clip higher": {"clip_low": 0.2, "clip_high": 0.28},
    "dual clip": {"clip_low": 0.3, "clip_high": 0.1, "dual_clip": 1.5},
    "no clip": {"clip_low": math.inf, "clip_high": math.inf},
    "no room": {"clip_low": 0.0, "clip_high": 0.0},
}


def policy_loss(columns: dict[str, Tensor], mask: Tensor, **arguments: Any) -> Any:
    return arl.ppo_policy_loss(columns["logprobs"], columns["old_logprobs"], columns["advantages"], mask, **arguments)


def ppo_of(mode: str, clip: str, by_row: tuple[str, ...] = ()) -> TokenLoss:
    name = f"{clip}, {mode}" + ", one advantage an episode" * bool(by_row)
    arguments = {"aggregation": mode, **options(mode), **CLIPS[clip]}
    return TokenLoss(
        name,
        ("logprobs", "old_logprobs", "advantages"),
        lambda c, mask, whole: policy_loss(c, mask, whole=whole, **arguments).loss,
        by_row,
    )


def critic_of(mode: str, clip: float | None) -> TokenLoss:
    columns = ("values", "returns", *["old_values"] * (clip is not None))
    arguments = {"aggregation": mode, "clip": clip, **options(mode)}

    def compute(c: dict[str, Tensor], mask: Tensor, whole: Any) -> Tensor:
        return arl.ppo_value_loss(
            c["values"], c["returns"], mask, old_values=c.get("old_values"), whole=whole, **arguments
        ).loss

    return TokenLoss(f"critic, clip {clip}, {mode}", columns, compute)


def gspo_loss(columns: dict[str, Tensor], mask: Tensor, **arguments: Any) -> Any:
    return arl.gspo_policy_loss(columns["logprobs"], columns["old_logprobs"], columns["advantages"], mask, **arguments)


def cispo_loss(columns: dict[str, Tensor], mask: Tensor, **arguments: Any) -> Any:
    return arl.cispo_policy_loss(columns["logprobs"], columns["old_logprobs"], columns["advantages"], mask, **arguments)


GSPO_CLIPS: dict[str, dict[str, float]] = {
    "a wide band": {"clip_low": 0.3, "clip_high": 0.5},
    "the paper's band": {},
    "no clip": {"clip_low": math.inf, "clip_high": math.inf},
}
CISPO_CLIPS: dict[str, dict[str, float]] = {
    "both bounds": {"clip_low": 0.2, "clip_high": 0.28},
    "one bound": {"clip_low": 1.0, "clip_high": 0.5},
    "no bound": {"clip_low": math.inf, "clip_high": math.inf},
}
KINDS = ("k1", "k2", "k3", "k1+", "k3+")


def gspo_of(clip: str, by_row: tuple[str, ...] = ("advantages",)) -> TokenLoss:
    """Return GSPO's loss; with an advantage a token it is GSPO-token, which is detached in part."""
    name = f"GSPO, {clip}" + ", one advantage an episode" * bool(by_row)
    columns = ("logprobs", "old_logprobs", "advantages")
    clips = GSPO_CLIPS[clip]
    return TokenLoss(
        name, columns, lambda c, mask, whole: gspo_loss(c, mask, whole=whole, **clips).loss, by_row, not by_row
    )


def cispo_of(mode: str, clip: str, by_row: tuple[str, ...] = ()) -> TokenLoss:
    name = f"CISPO, {clip}, {mode}" + ", one advantage an episode" * bool(by_row)
    arguments = {"aggregation": mode, **options(mode), **CISPO_CLIPS[clip]}
    columns = ("logprobs", "old_logprobs", "advantages")
    return TokenLoss(
        name, columns, lambda c, mask, whole: cispo_loss(c, mask, whole=whole, **arguments).loss, by_row, True
    )


def kl_of(kind: str, mode: str, off_policy: bool) -> TokenLoss:
    columns = ("logprobs", "ref_logprobs", *["old_logprobs"] * off_policy)
    arguments = {"kind": kind, "aggregation": mode, **options(mode)}

    def compute(c: dict[str, Tensor], mask: Tensor, whole: Any) -> Tensor:
        old = c.get("old_logprobs")
        return arl.kl_loss(c["logprobs"], c["ref_logprobs"], mask, old_logprobs=old, whole=whole, **arguments)

    name = f"KL, {kind}, {mode}" + ", weighted" * off_policy
    return TokenLoss(name, columns, compute, detached=kind.endswith("+"))


POLICY_GRADIENT_LOSSES = [
    *map(aggregation_of, AGGREGATIONS),
    *map(loss_of, AGGREGATIONS),
    *(loss_of(mode, ("advantages",)) for mode in AGGREGATIONS),
]
PPO_LOSSES = [
    *(ppo_of(mode, clip) for mode in AGGREGATIONS for clip in ("clip higher", "dual clip")),
    *(ppo_of("token-mean", clip) for clip in ("clipped", "no clip", "no room")),
    ppo_of("seq-mean-token-mean", "clipped", ("advantages",)),
    *(critic_of(mode, clip) for mode in AGGREGATIONS for clip in (None, 0.3)),
]
GRPO_LOSSES = [
    *(gspo_of(clip) for clip in GSPO_CLIPS),
    gspo_of("a wide band", ()),
    *(cispo_of(mode, "both bounds") for mode in AGGREGATIONS),
    *(cispo_of("token-mean", clip) for clip in ("one bound", "no bound")),
    cispo_of("seq-mean-token-sum", "both bounds", ("advantages",)),
]
KL_LOSSES = [
    *(kl_of("k2", mode, False) for mode in AGGREGATIONS),
    *(kl_of(kind, "token-mean", False) for kind in KINDS if kind != "k2"),
    *(kl_of(kind, "token-mean", True) for kind in KINDS),
]
