"""Chapter 6's losses over tokens: how they are added up, what they read, and the gradient they have."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from token_losses import (
    AGGREGATIONS,
    FILLERS,
    NORM,
    aggregate_in_loops,
    aggregation_of,
    close,
    column,
    drawn,
    each_mode,
    episodes,
    few,
    lengths_mask,
    loss_of,
    mask_of,
    masks,
    options,
    seeds,
    stepped_by,
    table,
    tiny_model,
    value_and_gradient,
)
from torch import Tensor

import agentrl as arl

G4, G4_MASK = table([1, 2, 9, 9], [3, 4, 5, 6]), lengths_mask(2, 4)


class TestAggregateLoss:
    @each_mode
    @given(mask=masks(), seed=seeds)
    @few
    def test_it_is_the_definition_in_loops(self, mode: str, mask: Tensor, seed: int) -> None:
        values = drawn(mask.shape, seed, -5, 5)
        found = arl.aggregate_loss(values, mask, mode, **options(mode))
        assert found.item() == pytest.approx(aggregate_in_loops(values, mask, mode), abs=1e-10)

    @pytest.mark.parametrize(
        ("mode", "norm_length", "right", "second_alone"),
        [
            ("token-mean", None, 3.5, 4.5),
            ("token-sum", None, 21, 18),
            ("seq-mean-token-sum", None, 10.5, 18),
            ("seq-mean-token-sum-norm", 4, 2.625, 4.5),
            ("seq-mean-token-mean", None, 3.0, 4.5),
        ],
    )
    def test_g4_golden_numbers(self, mode: str, norm_length: float | None, right: float, second_alone: float) -> None:
        """G4: lengths 2 and 4; with nothing of the first row kept only the second one counts as a sequence."""
        assert arl.aggregate_loss(G4, G4_MASK, mode, norm_length).item() == pytest.approx(right, abs=1e-12)
        second = mask_of([0, 0, 0, 0], [1, 1, 1, 1])
        assert arl.aggregate_loss(G4, second, mode, norm_length).item() == pytest.approx(second_alone, abs=1e-12)

    def test_g4_a_mean_of_microbatch_means_is_another_number(self) -> None:
        """G4: two microbatches of a row each."""
        alone = [arl.aggregate_loss(G4[[row]], G4_MASK[[row]]).item() for row in range(2)]
        assert sum(alone) / 2 == pytest.approx(3.0, abs=1e-12)
        parts = [arl.aggregate_loss(G4[[row]], G4_MASK[[row]], whole=arl.LossCounts(6, 2)).item() for row in range(2)]
        assert sum(parts) == pytest.approx(3.5, abs=1e-12)

    def test_the_default_is_the_mean_over_tokens(self) -> None:
        assert arl.aggregate_loss(G4, G4_MASK) == 3.5

    @pytest.mark.parametrize(
        ("mode", "rows"),
        [
            ("token-mean", [1 / 6, 1 / 6]),
            ("token-sum", [1, 1]),
            ("seq-mean-token-sum", [1 / 2, 1 / 2]),
            ("seq-mean-token-mean", [1 / 4, 1 / 8]),
            ("seq-mean-token-sum-norm", [1 / 2 / NORM, 1 / 2 / NORM]),
        ],
    )
    def test_each_mode_gives_the_tokens_its_weights(self, mode: str, rows: list[float]) -> None:
        _, gradient = value_and_gradient(aggregation_of(mode), {"values": G4}, G4_MASK)
        right = torch.where(G4_MASK, column(*rows)[:, None], 0.0)
        assert close(gradient, right)

    @each_mode
    def test_one_row_of_one_token_is_its_value(self, mode: str) -> None:
        norm_length = 1.0 if mode.endswith("norm") else None
        assert arl.aggregate_loss(table([9, 5.0]), mask_of([0, 1]), mode, norm_length) == 5

    @each_mode
    def test_whole_numbers_and_booleans_are_means_too(self, mode: str) -> None:
        found = arl.aggregate_loss(G4.long(), G4_MASK, mode, **options(mode))
        assert found.item() == pytest.approx(arl.aggregate_loss(G4, G4_MASK, mode, **options(mode)).item(), abs=1e-12)
        share = arl.aggregate_loss(G4 > 3, G4_MASK)
        assert share.item() == pytest.approx(3 / 6, abs=1e-12)

    def test_float32_stays_float32(self) -> None:
        assert arl.aggregate_loss(G4.float(), G4_MASK).dtype == torch.float32

    def test_a_sum_of_16_bit_numbers_does_not_overflow(self) -> None:
        ones = torch.ones(1, 100_000, dtype=torch.float16)
        assert arl.aggregate_loss(ones, ones.bool()).item() == 1

    def test_counts_may_be_a_plain_pair(self) -> None:
        assert arl.aggregate_loss(G4, G4_MASK, whole=(6, 2)).item() == 3.5  # pyright: ignore[reportArgumentType]

    def test_the_counts_are_those_of_policy_tokens_and_of_rows_with_any(self) -> None:
        assert arl.loss_counts(mask_of([0, 0, 0], [1, 0, 1], [1, 1, 1])) == arl.LossCounts(tokens=5, sequences=2)

    def test_shares_of_counts_are_counts(self) -> None:
        half = arl.aggregate_loss(G4, G4_MASK, whole=arl.LossCounts(1.5, 0.5))
        assert half == 14


class TestRefusals:
    """Each refusal says what was given."""

    @pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.uint8])
    def test_a_mask_that_is_not_bool(self, dtype: torch.dtype) -> None:
        for call in (
            lambda: arl.aggregate_loss(G4, G4_MASK.to(dtype)),
            lambda: arl.policy_gradient_loss(G4, G4, G4_MASK.to(dtype)),
            lambda: arl.loss_counts(G4_MASK.to(dtype)),
        ):
            with pytest.raises(TypeError, match=rf"{dtype}.*bool"):
                call()

    def test_complex_numbers(self) -> None:
        for name, call in [
            ("values", lambda: arl.aggregate_loss(G4 + 9j, G4_MASK)),
            ("logprobs", lambda: arl.policy_gradient_loss(G4 + 9j, G4, G4_MASK)),
        ]:
            with pytest.raises(TypeError, match=rf"{name} are torch.complex128; they must be real"):
                call()

    @pytest.mark.parametrize("shape", [(2, 3), (3, 4), (2, 4, 1), (4,), (1, 4), (2, 1)])
    def test_values_of_another_shape(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"\[2, 4\]"):
            arl.aggregate_loss(torch.zeros(shape), G4_MASK)
        with pytest.raises(ValueError, match=r"logprobs.*\[2, 4\]"):
            arl.policy_gradient_loss(torch.zeros(shape), G4, G4_MASK)

    @pytest.mark.parametrize("shape", [(2, 3), (3, 4), (4,), (1,), (), (1, 4), (2, 1)])
    def test_advantages_of_another_shape_are_not_broadcast(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"advantages.*\[2, 4\]"):
            arl.policy_gradient_loss(G4, torch.zeros(shape), G4_MASK)

    @pytest.mark.parametrize("shape", [(4,), (2, 2, 2), ()])
    def test_a_mask_that_is_no_table(self, shape: tuple[int, ...]) -> None:
        mask = torch.ones(shape, dtype=torch.bool)
        with pytest.raises(ValueError, match=r"\[B, T\]"):
            arl.aggregate_loss(torch.zeros(shape), mask)

    @pytest.mark.parametrize("mode", ["mean", "token_mean", "seq-mean", "", None])
    def test_an_unknown_mode_is_answered_with_those_there_are(self, mode: Any) -> None:
        with pytest.raises(ValueError, match=rf"{mode!r}.*token-mean.*seq-mean-token-sum-norm"):
            arl.aggregate_loss(G4, G4_MASK, mode)

    @pytest.mark.parametrize("norm_length", [None, 0, -1, math.nan, math.inf])
    def test_a_norm_length_that_is_missing_or_cannot_be(self, norm_length: float | None) -> None:
        with pytest.raises(ValueError, match=rf"norm_length is {norm_length}"):
            arl.aggregate_loss(G4, G4_MASK, "seq-mean-token-sum-norm", norm_length)

    @pytest.mark.parametrize("mode", [mode for mode in AGGREGATIONS if not mode.endswith("norm")])
    def test_a_norm_length_that_the_mode_does_not_use(self, mode: str) -> None:
        with pytest.raises(ValueError, match=rf"norm_length is 4.*{mode}"):
            arl.aggregate_loss(G4, G4_MASK, mode, 4)

    @each_mode
    def test_nothing_to_divide_by(self, mode: str) -> None:
        with pytest.raises(ValueError, match=r"0.*positive"):
            arl.aggregate_loss(G4, torch.zeros_like(G4_MASK), mode, **options(mode))

    @pytest.mark.parametrize("count", [0, -1, math.nan, math.inf])
    @pytest.mark.parametrize("name", ["tokens", "sequences"])
    def test_counts_of_the_whole_that_cannot_be(self, name: str, count: float) -> None:
        whole = arl.LossCounts(6, 2)._replace(**{name: count})
        with pytest.raises(ValueError, match=rf"{name} is {count}"):
            arl.aggregate_loss(G4, G4_MASK, whole=whole)


class TestPolicyGradientLoss:
    @each_mode
    @given(mask=masks(), seed=seeds)
    @few
    def test_it_is_minus_the_aggregate_of_advantage_times_logprob(self, mode: str, mask: Tensor, seed: int) -> None:
        logprobs, advantages = drawn(mask.shape, seed, -3, 0), drawn(mask.shape, seed + 1, -2, 2)
        found = arl.policy_gradient_loss(logprobs, advantages, mask, mode, **options(mode))
        assert found.item() == pytest.approx(-aggregate_in_loops(advantages * logprobs, mask, mode), abs=1e-10)

    @each_mode
    def test_the_gradient_is_minus_the_advantage_times_the_weight_of_the_token(self, mode: str) -> None:
        advantages = drawn(G4.shape, 3)
        _, gradient = value_and_gradient(loss_of(mode), {"logprobs": -G4, "advantages": advantages}, G4_MASK)
        _, weights = value_and_gradient(aggregation_of(mode), {"values": G4}, G4_MASK)
        assert close(gradient, -advantages * weights)
        assert (gradient[G4_MASK & (advantages > 0)] < 0).all(), "descent raises what was better than expected"

    def test_one_advantage_an_episode_is_that_of_each_of_its_actions(self) -> None:
        wide = torch.tensor([[2.0], [-1.0]], dtype=arl.DTYPE).expand(2, 4)
        for mode in AGGREGATIONS:
            one = arl.policy_gradient_loss(-G4, column(2, -1), G4_MASK, mode, **options(mode))
            assert one == arl.policy_gradient_loss(-G4, wide, G4_MASK, mode, **options(mode))

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64, torch.bool])
    def test_whole_numbers_and_booleans_are_advantages_like_others(self, dtype: torch.dtype) -> None:
        whole = torch.tensor([1, 0], dtype=dtype)
        given, floats = (
            value_and_gradient(loss_of("seq-mean-token-sum"), {"logprobs": -G4, "advantages": some}, G4_MASK)
            for some in (whole[:, None].expand(G4.shape), whole.to(arl.DTYPE)[:, None].expand(G4.shape))
        )
        assert given[0] == floats[0]
        assert torch.equal(given[1], floats[1])

    def test_complex_advantages_are_refused(self) -> None:
        with pytest.raises(TypeError, match=r"complex64; they must be real"):
            arl.policy_gradient_loss(-G4, torch.ones(2, dtype=torch.complex64), G4_MASK)

    def test_the_default_is_the_sum_over_the_tokens_of_an_episode(self) -> None:
        found = arl.policy_gradient_loss(-G4, column(1, 1), G4_MASK)
        assert found.item() == pytest.approx(10.5)

    @pytest.mark.parametrize("filler", FILLERS)
    def test_an_episode_without_actions_may_have_any_advantage(self, filler: float) -> None:
        mask = mask_of([0, 0], [1, 1])
        leaf = table([-1, -2], [-3, -4]).requires_grad_()
        loss = arl.policy_gradient_loss(leaf, column(filler, 1), mask)
        loss.backward()
        assert loss.item() == 7
        assert leaf.grad is not None
        assert leaf.grad.tolist() == [[0, 0], [-1, -1]]

    def test_it_estimates_the_gradient_of_the_expected_reward(self) -> None:
        """Summed over every outcome with its probability, the loss's gradient is minus that of the expectation."""
        logits = table([0.3, -0.2, 0.9])[0].requires_grad_()
        rewards = column(1.0, -0.5, 2.0)
        exact = torch.autograd.grad((logits.softmax(0) * rewards).sum(), logits)[0]
        chances, found = logits.detach().softmax(0), torch.zeros(3, dtype=arl.DTYPE)
        for action in range(3):
            loss = arl.policy_gradient_loss(
                logits.log_softmax(0)[action].reshape(1, 1), rewards[[action]], mask_of([1])
            )
            found += chances[action] * torch.autograd.grad(loss, logits)[0]
        assert close(-found, exact)


def stepped(
    batch: arl.TrajectoryBatch, advantages: Tensor, microbatch: int | None = None, model: Any = None, **arguments: Any
) -> tuple[list[Tensor], arl.Update]:
    """Return by how much a step of plain descent at rate 1 moved the weights down, and the update's record."""
    model = tiny_model() if model is None else model
    arguments = {"max_grad_norm": None, "grid": None, **arguments}
    return stepped_by(
        model, lambda optimizer: arl.reinforce_update(model, optimizer, batch, advantages, microbatch, **arguments)
    )


class TestReinforceUpdate:
    """What it refuses, before any weight moves, and what it takes along; the step itself: test_training.py."""

    @pytest.fixture
    def batch(self) -> arl.TrajectoryBatch:
        return episodes(tiny_model(), 3)

    def gradient(
        self, batch: arl.TrajectoryBatch, advantages: Tensor, mode: str, temperature: float = 1.0
    ) -> list[Tensor]:
        model = tiny_model()
        scored = arl.token_logprobs(model, batch.ids, batch.attention_mask, batch.action_mask, temperature)
        loss = arl.policy_gradient_loss(scored, advantages, batch.action_mask, mode, **options(mode))
        return list(torch.autograd.grad(loss, [*model.parameters()]))

    def test_the_temperature_is_that_of_the_sampling(self, batch: arl.TrajectoryBatch) -> None:
        advantages = drawn(batch.ids.shape, 4)
        right = self.gradient(batch, advantages, "seq-mean-token-sum", 0.5)
        assert all(map(close, stepped(batch, advantages, temperature=0.5)[0], right))
        assert not all(map(close, stepped(batch, advantages)[0], right))

    def test_a_gradient_from_before_is_forgotten(self, batch: arl.TrajectoryBatch) -> None:
        advantages, model = drawn(batch.ids.shape, 4), tiny_model()
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 7)
        assert all(map(torch.equal, stepped(batch, advantages, model=model)[0], stepped(batch, advantages)[0]))

    @pytest.mark.parametrize("filler", FILLERS)
    @pytest.mark.parametrize("microbatch", [None, 1])
    def test_an_advantage_that_cannot_be_changes_no_weight(
        self, batch: arl.TrajectoryBatch, filler: float, microbatch: int | None
    ) -> None:
        bad, model = drawn(batch.ids.shape, 4), tiny_model()
        place = batch.action_mask.nonzero()[-1].tolist()
        bad[tuple(place)] = filler
        with pytest.raises(ValueError, match=rf"row {place[0]}, position {place[1]}, is {filler}"):
            stepped(batch, bad, microbatch, model=model)
        assert all(map(torch.equal, model.parameters(), tiny_model().parameters()))

    @pytest.mark.parametrize("shape", [(4,), (6,), (5, 3), (5, 99), (6, 13), (5, 1), (), (1, 13)])
    @pytest.mark.parametrize("microbatch", [None, 1])
    def test_advantages_of_another_shape_are_refused(
        self, batch: arl.TrajectoryBatch, shape: tuple[int, ...], microbatch: int | None
    ) -> None:
        assert list(batch.ids.shape) == [5, 13]
        with pytest.raises(ValueError, match=r"advantages.*\[5, 13\]"):
            stepped(batch, torch.zeros(shape), microbatch)

    @pytest.mark.parametrize("microbatch", [0, -1, 1.5, True])
    def test_a_microbatch_that_cannot_be_is_refused(self, batch: arl.TrajectoryBatch, microbatch: Any) -> None:
        with pytest.raises(ValueError, match=rf"microbatch is {microbatch}"):
            stepped(batch, drawn(batch.ids.shape, 4), microbatch)

    @pytest.mark.parametrize(
        ("name", "value"), [("max_grad_norm", -1.0), ("max_grad_norm", 0.0), ("max_grad_norm", math.nan), ("grid", 3)]
    )
    def test_a_limit_or_grid_that_cannot_be_changes_no_weight(
        self, batch: arl.TrajectoryBatch, name: str, value: Any
    ) -> None:
        model = tiny_model()
        with pytest.raises(ValueError, match=rf"{name} is {value}"):
            stepped(batch, drawn(batch.ids.shape, 4), model=model, **{name: value})
        assert all(map(torch.equal, model.parameters(), tiny_model().parameters()))

    def test_a_batch_of_no_episodes_has_no_gradient_and_is_told_so(self, batch: arl.TrajectoryBatch) -> None:
        nobody = next(arl.microbatches(batch))[1]
        nobody = arl.TrajectoryBatch(**{name: column[:0] for name, column in vars(nobody).items()})
        with pytest.raises(ValueError, match=r"0 tensors .*a gradient: .*an empty batch.*no step was made"):
            stepped(nobody, torch.zeros(0))


def one_weight(dtype: torch.dtype = torch.float32, rate: float = 1.0) -> tuple[Tensor, torch.optim.Optimizer]:
    """Return a weight of 1.5 with a gradient of 0.25, and an optimiser that has it alone."""
    weight = torch.nn.Parameter(torch.tensor([1.5], dtype=dtype))
    weight.grad = torch.tensor([0.25], dtype=dtype)
    return weight, torch.optim.SGD([weight], lr=rate)


class TestApplyGradient:
    """What it refuses before the step; the step itself: test_training.py."""

    @pytest.mark.parametrize(
        "grid", [True, False, 0, -4, 3, 65536.0, 2.0, "4", 2**63, pytest.param(2**2000, id="2**2000")]
    )
    def test_a_grid_that_cannot_be_changes_no_weight(self, grid: Any) -> None:
        weight, optimizer = one_weight()
        with pytest.raises(ValueError, match=rf"^grid is {grid!r}; it must be a power of two"):
            arl.apply_gradient(optimizer, grid=grid)
        assert weight.item() == 1.5

    @pytest.mark.parametrize("grid", [1, 4, 2**16, 2**62, None])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_a_power_of_two_is_a_grid(self, grid: int | None, dtype: torch.dtype) -> None:
        weight, optimizer = one_weight(dtype)
        arl.apply_gradient(optimizer, grid=grid)
        assert weight.item() == (1.0 if grid == 1 else 1.25)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_weights_of_16_bits_are_not_snapped(self, dtype: torch.dtype) -> None:
        """1.5 times 2**16 is infinite in float16."""
        weight, optimizer = one_weight(dtype)
        with pytest.raises(ValueError, match=rf"^grid is 65536, a weight {dtype}"):
            arl.apply_gradient(optimizer)
        assert weight.item() == 1.5
        arl.apply_gradient(optimizer, grid=None)
        assert weight.item() == 1.25

    def test_a_step_below_half_a_grid_cell_vanishes(self) -> None:
        for rate, moved in ((2**-16, 0.0), (2**-14, 2**-16)):
            weight, optimizer = one_weight(rate=rate)
            arl.apply_gradient(optimizer)
            assert 1.5 - weight.item() == moved

    def test_no_gradient_at_all_is_said_in_words(self) -> None:
        weight, optimizer = one_weight()
        weight.grad = None
        with pytest.raises(ValueError, match=r"0 tensors of the optimiser's 1 .*another model; no step was made"):
            arl.apply_gradient(optimizer)


def test_a_batch_is_no_list_of_trajectories() -> None:
    batch: Any = episodes(tiny_model(), 3)
    tokenizer: Any = None  # it is not asked
    assert arl.success_rate(batch.split()) == arl.success_rate(iter(batch.split()))
    for call in (arl.success_rate, lambda given: arl.rollout_summary(tokenizer, given)):
        with pytest.raises(TypeError, match=r"TrajectoryBatch; give .*batch\.split\(\)"):
            call(batch)
