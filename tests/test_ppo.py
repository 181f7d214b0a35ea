"""Chapter 8's ratios and losses: the clip and what it removes, the critic's loss, and samples that count for few."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from token_losses import (
    AGGREGATIONS,
    CLIPS,
    FILLERS,
    TokenLoss,
    aggregate_in_loops,
    check_masked_positions_are_never_read,
    close,
    column,
    critic_of,
    drawn,
    each_mode,
    episodes,
    few,
    filled,
    lengths_mask,
    mask_of,
    masks,
    options,
    policy_loss,
    ppo_of,
    seeds,
    table,
    tiny_model,
    value_and_gradient,
)
from torch import Tensor

import agentrl as arl

G6_RATIOS = table([1.2, 1.3, 1.5, 0.7, 0.5, 4])


def clipped_in_loops(ratio: float, advantage: float, low: float, high: float, dual: float | None) -> tuple[float, str]:
    """Return the loss of a token by the definition and which clip, if any, took its gradient."""
    band = min(max(ratio, 1 - low), 1 + high)
    surrogate = min(ratio * advantage, band * advantage)
    why = "clip" if surrogate < ratio * advantage else ""
    if dual is not None and advantage < 0 and surrogate < dual * advantage:
        return -dual * advantage, "dual"
    return -surrogate, why


def g6(advantage: float, **arguments: Any) -> tuple[Any, list[float]]:
    """Return the loss on G6's ratios for one advantage, and 6 times its gradient."""
    leaf = G6_RATIOS.log().requires_grad_()
    every = torch.full_like(G6_RATIOS, advantage)
    arguments = {"clip_low": 0.2, "clip_high": 0.28, **arguments}
    found = arl.ppo_policy_loss(leaf, torch.zeros_like(leaf), every, every != 0, **arguments)
    return found, (6 * torch.autograd.grad(found.loss, leaf)[0])[0].tolist()


class TestRatio:
    @given(mask=masks(), seed=seeds)
    @few
    def test_it_is_the_definition_in_loops(self, mask: Tensor, seed: int) -> None:
        new, old = drawn(mask.shape, seed, -2, 0), drawn(mask.shape, seed + 1, -2, 0)
        tokens = arl.importance_ratio(new, old, mask)
        product = arl.importance_ratio(new, old, mask, "sequence")
        for row, keep in enumerate(mask.tolist()):
            right = [math.exp(float(new[row, t]) - float(old[row, t])) if kept else 1.0 for t, kept in enumerate(keep)]
            assert close(tokens[row], right, 1e-10)
            assert float(product[row]) == pytest.approx(math.prod(right), rel=1e-10)

    @pytest.mark.parametrize("level", ["token", "sequence"])
    @given(mask=masks(), seed=seeds)
    @few
    def test_masked_positions_are_never_read(self, level: str, mask: Tensor, seed: int) -> None:
        def compute(columns: dict[str, Tensor], mask: Tensor, whole: Any) -> Tensor:
            return arl.importance_ratio(columns["logprobs"], columns["old_logprobs"], mask, level).sum()

        check_masked_positions_are_never_read(TokenLoss(level, ("logprobs", "old_logprobs"), compute), mask, seed)

    def test_of_equal_log_probabilities_it_is_exactly_1(self) -> None:
        logprobs = table([-0.1, -7.3, math.nan, -30])
        mask = mask_of([1, 1, 0, 1])
        assert (arl.importance_ratio(logprobs, logprobs, mask) == 1).all()
        assert (arl.importance_ratio(logprobs, logprobs, mask, "sequence") == 1).all()

    def test_its_gradient_is_the_ratio(self) -> None:
        leaf, old = table([-1.0, -2, -3]).requires_grad_(), table([-1.5, -1, -2])
        mask = mask_of([1, 1, 0])
        ratio = arl.importance_ratio(leaf, old, mask)
        assert close(torch.autograd.grad(ratio.sum(), leaf)[0], torch.where(mask, ratio.detach(), 0.0))
        product = arl.importance_ratio(leaf, old, mask, "sequence")
        assert close(torch.autograd.grad(product.sum(), leaf)[0], mask * product.detach()[:, None])

    @pytest.mark.parametrize("level", ["product", "episode", "", None])
    def test_an_unknown_level_is_answered_with_those_there_are(self, level: Any) -> None:
        with pytest.raises(ValueError, match=rf"{level!r}.*token.*sequence"):
            arl.importance_ratio(G6_RATIOS, G6_RATIOS, G6_RATIOS > 0, level)

    def test_an_old_log_probability_that_cannot_be_is_refused_with_its_place(self) -> None:
        mask = mask_of([0, 1], [1, 1])
        for filler in FILLERS:
            with pytest.raises(ValueError, match=rf"^old_logprobs .*row 1, position 1: {filler}"):
                arl.importance_ratio(table([0, 0], [0, 0]), table([filler, 0], [0, filler]), mask)
        with pytest.raises(ValueError, match=r"old_logprobs .*detach"):
            arl.importance_ratio(table([0, 0]), table([0, 0]).requires_grad_(), mask_of([1, 1]))

    @pytest.mark.parametrize(("level", "place"), [("token", "row 1, position 0"), ("sequence", "position 1")])
    def test_a_ratio_beyond_the_range_of_floats_is_refused(self, level: str, place: str) -> None:
        with pytest.raises(ValueError, match=rf"^ratios .*{place}: inf"):
            arl.importance_ratio(table([0], [0]), table([-1], [-800]), mask_of([1], [1]), level)


class TestLogRatio:
    @given(mask=masks(), seed=seeds)
    @few
    def test_it_is_the_log_of_the_ratio_and_its_slope_is_1(self, mask: Tensor, seed: int) -> None:
        new, old = drawn(mask.shape, seed, -2, 0).requires_grad_(), drawn(mask.shape, seed + 1, -2, 0)
        found = arl.log_ratio(new, old, mask)
        assert close(found.detach(), torch.where(mask, new.detach() - old, 0.0))
        assert torch.equal(found.exp(), arl.importance_ratio(new, old, mask))
        assert torch.equal(torch.autograd.grad(found.sum(), new)[0], mask.to(arl.DTYPE))
        for filler in FILLERS:
            one, other = (torch.where(mask, values.detach(), filler) for values in (new, old))
            assert torch.equal(arl.log_ratio(one, other, mask), found.detach())

    def test_it_is_finite_where_the_ratio_is_not(self) -> None:
        assert arl.log_ratio(table([0]), table([-800]), mask_of([1])).item() == 800

    def test_what_was_recorded_has_no_gradient_and_is_finite(self) -> None:
        with pytest.raises(ValueError, match=r"old_logprobs .*detach"):
            arl.log_ratio(table([0, 0]), table([0, 0]).requires_grad_(), mask_of([1, 1]))
        for filler in FILLERS:
            bad, good = table([0, filler]), table([0, 0])
            for name, columns in {"old_logprobs": (good, bad), "logprobs": (bad, good)}.items():
                with pytest.raises(ValueError, match=rf"^{name} .*row 0, position 1: {filler}"):
                    arl.log_ratio(*columns, mask_of([1, 1]))


class TestEffectiveSampleSize:
    def test_g11_golden_number(self) -> None:
        """G11: token ratios cut at 2; one position is padding."""
        weights = table([1, 1.5, 2, 0.3], [1.01, 0.99, 1, math.nan])
        assert arl.effective_sample_size(weights, lengths_mask(4, 3)) == pytest.approx(0.8405, abs=1e-4)

    @given(weights=st.lists(st.floats(0, 10), min_size=1, max_size=9).filter(any))
    @few
    def test_it_is_the_definition_in_loops_between_1_over_n_and_1(self, weights: list[float]) -> None:
        found = arl.effective_sample_size(column(*weights))
        largest = max(weights)
        scaled = [weight / largest for weight in weights]
        right = math.fsum(scaled) ** 2 / len(scaled) / math.fsum(weight**2 for weight in scaled)
        assert found == pytest.approx(right, rel=1e-10)
        assert 1 / len(weights) - 1e-12 <= found <= 1 + 1e-12

    def test_all_alike_count_all_and_one_alone_counts_one(self) -> None:
        assert arl.effective_sample_size(column(*[0.3] * 7)) == pytest.approx(1)
        assert arl.effective_sample_size(column(0, 0, 5, 0)) == pytest.approx(1 / 4)

    @pytest.mark.parametrize("scale", [1e-200, 1e-5, 1e5, 1e200])
    def test_the_scale_of_the_weights_does_not_matter(self, scale: float) -> None:
        weights = column(0.2, 1, 3)
        right = arl.effective_sample_size(weights)
        assert arl.effective_sample_size(weights * scale) == pytest.approx(right, rel=1e-12)

    @pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -0.1], [1.0, math.nan], [math.inf, 1.0]])
    def test_weights_that_cannot_be_are_refused(self, weights: list[float]) -> None:
        with pytest.raises(ValueError, match=r"weights"):
            arl.effective_sample_size(column(*weights))

    def test_a_mask_that_selects_nothing_or_does_not_fit_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"no weights"):
            arl.effective_sample_size(column(1, 2), torch.zeros(2, dtype=torch.bool))
        with pytest.raises(TypeError, match=r"int64.*bool"):
            arl.effective_sample_size(column(1, 2, 3), torch.tensor([1, 0, 1]))
        with pytest.raises(ValueError, match=r"\[2, 2\].*\[2\]"):
            arl.effective_sample_size(table([1, 2], [3, 4]), torch.tensor([True, False]))


class TestPolicyLoss:
    @each_mode
    @pytest.mark.parametrize("clip", CLIPS)
    @given(mask=masks(), seed=seeds)
    @few
    def test_it_is_the_definition_in_loops(self, mode: str, clip: str, mask: Tensor, seed: int) -> None:
        columns = ppo_of(mode, clip).draw(mask, seed)
        found = policy_loss(columns, mask, aggregation=mode, **options(mode), **CLIPS[clip])
        bounds = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None, **CLIPS[clip]}
        losses, whys, ratios = torch.zeros_like(columns["logprobs"]), [], []
        for row, place in mask.nonzero().tolist():
            new, old, advantage = (float(columns[name][row, place]) for name in columns)
            loss, why = clipped_in_loops(math.exp(new - old), advantage, *bounds.values())
            losses[row, place] = loss
            whys, ratios = [*whys, why], [*ratios, math.exp(new - old)]
        assert found.loss.item() == pytest.approx(aggregate_in_loops(losses, mask, mode), abs=1e-10)
        assert found.clip_fraction == pytest.approx(whys.count("clip") / len(whys))
        assert found.dual_clip_fraction == pytest.approx(whys.count("dual") / len(whys))
        assert found.ratio_mean == pytest.approx(math.fsum(ratios) / len(ratios), rel=1e-10)
        assert found.ratio_max == pytest.approx(max(ratios), rel=1e-10)
        divergence = math.fsum(ratio - 1 - math.log(ratio) for ratio in ratios) / len(ratios)
        assert found.approx_kl == pytest.approx(divergence, abs=1e-10)

    def test_g6_golden_numbers_for_a_good_token(self) -> None:
        """G6: clip .2 and .28, advantage 1."""
        found, gradient = g6(1.0)
        assert found.loss.item() == pytest.approx(-1.04, abs=1e-12)
        assert gradient == pytest.approx([-1.2, 0, 0, -0.7, -0.5, 0], abs=1e-12)
        assert found.clip_fraction == 0.5
        assert found.dual_clip_fraction == 0

    def test_g6_golden_numbers_for_a_bad_token(self) -> None:
        """G6, L03: advantage -1, without the dual clip and with c = 3; as shipped its fraction was always 0."""
        found, gradient = g6(-1.0)
        assert found.loss.item() == pytest.approx(1.6, abs=1e-12)
        assert gradient == pytest.approx([1.2, 1.3, 1.5, 0, 0, 4], abs=1e-12)
        assert (found.clip_fraction, found.dual_clip_fraction) == (pytest.approx(1 / 3), 0)
        found, gradient = g6(-1.0, dual_clip=3.0)
        assert found.loss.item() == pytest.approx(1.433333, abs=1e-6)
        assert gradient == pytest.approx([1.2, 1.3, 1.5, 0, 0, 0], abs=1e-12)
        assert (found.clip_fraction, found.dual_clip_fraction) == (pytest.approx(1 / 3), pytest.approx(1 / 6))

    def test_the_dual_clip_leaves_good_tokens_alone(self) -> None:
        one, other = g6(1.0, dual_clip=3.0), g6(1.0)
        assert one[0].loss == other[0].loss
        assert one[1] == other[1]

    @pytest.mark.parametrize(
        ("ratio", "advantage", "right", "slope"),
        [
            (1.25, 1, -1.25, -1.25),
            (1.3, 1, -1.28, 0),
            (0.75, 1, -0.75, -0.75),
            (0.75, -1, 0.8, 0),
            (1.3, -1, 1.3, 1.3),
            (0.9, -1, 0.9, 0.9),
        ],
    )
    def test_l04_the_clip_is_asymmetric(self, ratio: float, advantage: float, right: float, slope: float) -> None:
        """L04: as shipped, a symmetric .2 on both sides."""
        leaf = table([math.log(ratio)]).requires_grad_()
        arguments = leaf, table([0]), table([advantage]), mask_of([1])
        found = arl.ppo_policy_loss(*arguments, clip_low=0.2, clip_high=0.28)
        assert found.loss.item() == pytest.approx(right, abs=1e-12)
        assert torch.autograd.grad(found.loss, leaf)[0].item() == pytest.approx(slope, abs=1e-12)
        if ratio == 1.25:
            assert arl.ppo_policy_loss(*arguments).loss.item() == pytest.approx(-1.2)

    def test_the_clip_fraction_counts_gradients_removed_not_ratios_outside(self) -> None:
        found, gradient = g6(1.0)
        outside = ((G6_RATIOS < 0.8) | (G6_RATIOS > 1.28)).double().mean().item()
        assert outside == pytest.approx(5 / 6)
        assert found.clip_fraction == gradient.count(0) / 6 == 0.5

    @given(mask=masks(), seed=seeds)
    @few
    def test_on_the_policy_that_sampled_it_is_the_policy_gradient(self, mask: Tensor, seed: int) -> None:
        """E10: ratio 1, nothing clipped, divergence 0, and REINFORCE's gradient, with any clip."""
        columns = ppo_of("token-mean", "clipped").draw(mask, seed)
        for mode, clip in zip(AGGREGATIONS, CLIPS, strict=True):
            arguments = {"aggregation": mode, **options(mode)}
            leaf = columns["logprobs"].clone().requires_grad_()
            same = {**columns, "logprobs": leaf, "old_logprobs": columns["logprobs"]}
            found = policy_loss(same, mask, **arguments, **CLIPS[clip])
            plain = arl.policy_gradient_loss(leaf, columns["advantages"], mask, **arguments)
            assert (found.ratio_mean, found.ratio_max) == (pytest.approx(1, abs=1e-12), 1)
            assert (found.approx_kl, found.clip_fraction, found.dual_clip_fraction) == (0, 0, 0)
            right = torch.autograd.grad(plain, leaf)[0]
            assert close(torch.autograd.grad(found.loss, leaf)[0], right)

    @given(mask=masks(), seed=seeds, data=st.data())
    @few
    def test_the_diagnostics_of_parts_add_up(self, mask: Tensor, seed: int, data: st.DataObject) -> None:
        columns, cut = ppo_of("token-mean", "dual clip").draw(mask, seed), data.draw(st.integers(0, len(mask)))
        arguments = {"whole": arl.loss_counts(mask), **CLIPS["dual clip"]}
        parts = [
            policy_loss({name: values[rows] for name, values in columns.items()}, mask[rows], **arguments)
            for rows in (slice(0, cut), slice(cut, None))
        ]
        right = policy_loss(columns, mask, **CLIPS["dual clip"])
        for name in ("clip_fraction", "approx_kl", "ratio_mean", "dual_clip_fraction"):
            assert sum(getattr(part, name) for part in parts) == pytest.approx(getattr(right, name), abs=1e-12), name
        assert max(part.ratio_max for part in parts) == right.ratio_max

    @given(mask=masks(), seed=seeds)
    @few
    def test_masked_positions_are_in_no_diagnostic(self, mask: Tensor, seed: int) -> None:
        loss = ppo_of("token-mean", "dual clip")
        columns = loss.draw(mask, seed)
        right = policy_loss(columns, mask, **CLIPS["dual clip"])
        for name in loss.tables():
            for filler in (*FILLERS, 99.0):
                found = policy_loss(filled(columns, name, mask, filler), mask, **CLIPS["dual clip"])
                assert found[1:] == right[1:], (name, filler)

    @pytest.mark.parametrize(
        "moved", [{"logprobs": -800.0, "old_logprobs": -1.0}, {"logprobs": -1.0, "old_logprobs": -1.0 - 1e-9}]
    )
    def test_the_divergence_is_finite_and_never_negative(self, moved: dict[str, float]) -> None:
        columns = {name: table([value]) for name, value in {**moved, "advantages": 1.0}.items()}
        found = policy_loss(columns, mask_of([1]))
        log_ratio = moved["logprobs"] - moved["old_logprobs"]
        assert found.approx_kl == pytest.approx(math.exp(log_ratio) - 1 - log_ratio, abs=1e-12)
        assert found.approx_kl >= 0

    def test_the_defaults_are_a_band_of_a_fifth_and_the_mean_over_tokens(self) -> None:
        columns = ppo_of("token-mean", "clipped").draw(mask := lengths_mask(2, 4), 5)
        right = policy_loss(columns, mask, clip_low=0.2, clip_high=0.2, dual_clip=None, aggregation="token-mean")
        assert policy_loss(columns, mask) == right

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *(("clip_low", value) for value in (-0.1, 1.5, math.nan, -math.inf)),
            *(("clip_high", value) for value in (-0.1, math.nan, -math.inf)),
            *(("dual_clip", value) for value in (1.0, 0.5, 0.0, -3.0, math.nan)),
        ],
    )
    def test_a_bound_that_cannot_be_is_refused(self, name: str, value: float) -> None:
        with pytest.raises(ValueError, match=rf"^{name} is {value}"):
            g6(1.0, **{name: value})

    def test_an_unknown_aggregation_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"'mean'.*token-mean"):
            g6(1.0, aggregation="mean")
        with pytest.raises(ValueError, match=r"norm_length is None"):
            g6(1.0, aggregation="seq-mean-token-sum-norm")


class TestReportedLoss:
    def test_what_it_reports_is_per_policy_token_of_the_whole(self) -> None:
        """Ratios 2, 1 and 1/2; two gradients removed by the clip, one by the dual clip; ten tokens in all."""
        logs, mask = table([math.log(2), 0, 0], [0, -math.log(2), 0]), mask_of([1, 1, 0], [0, 1, 0])
        clipped, dual = mask_of([1, 0, 1], [0, 1, 0]), mask_of([0, 1, 0], [1, 0, 0])
        for whole, tokens in ((None, 3), (arl.LossCounts(10, 4), 10)):
            found = arl.reported_loss(loss := column(3).sum(), logs, (clipped, dual), mask, whole)
            assert found.loss is loss
            assert found.clip_fraction == pytest.approx(2 / tokens)
            assert found.dual_clip_fraction == pytest.approx(1 / tokens)
            assert found.ratio_mean == pytest.approx(3.5 / tokens)
            assert found.approx_kl == pytest.approx((1 - math.log(2) - 0.5 + math.log(2)) / tokens)
            assert found.ratio_max == pytest.approx(2)

    def test_of_no_policy_token_the_largest_ratio_is_0(self) -> None:
        nothing = mask_of([0, 0])
        found = arl.reported_loss(column(0)[0], table([0, 0]), (nothing, nothing), nothing, arl.LossCounts(3, 1))
        assert found[1:] == (0, 0, 0, 0, 0)


class TestValueLoss:
    @each_mode
    @pytest.mark.parametrize("clip", [None, 0.3])
    @given(mask=masks(), seed=seeds)
    @few
    def test_it_is_the_definition_in_loops(self, mode: str, clip: float | None, mask: Tensor, seed: int) -> None:
        names = ("values", "returns", "old_values")
        values, returns, old = (drawn(mask.shape, seed + number) for number in range(len(names)))
        given_old = {} if clip is None else {"old_values": old, "clip": clip}
        found = arl.ppo_value_loss(values, returns, mask, aggregation=mode, **options(mode), **given_old)
        losses, removed = torch.zeros_like(values), 0
        for row, place in mask.nonzero().tolist():
            value, target, before = (float(one[row, place]) for one in (values, returns, old))
            errors = [(value - target) ** 2]
            if clip is not None:
                errors.append((min(max(value, before - clip), before + clip) - target) ** 2)
            losses[row, place] = max(errors) / 2
            removed += errors[-1] > errors[0]
        assert found.loss.item() == pytest.approx(aggregate_in_loops(losses, mask, mode), abs=1e-10)
        assert found.clip_fraction == pytest.approx(removed / int(mask.sum()))

    def test_g10_golden_numbers(self) -> None:
        """G10: clip .5; one value of three has moved too far."""
        values, returns, old = table([1, 2, 3]), table([1.5, 1, 3]), table([0, 1, 3])
        found = arl.ppo_value_loss(values, returns, lengths_mask(3), old, 0.5)
        assert found.loss.item() == pytest.approx(0.333333, abs=1e-6)
        assert found.clip_fraction == pytest.approx(1 / 3)

    def test_a18_it_is_half_the_squared_error(self) -> None:
        """A18 (verl#2016): errors 1 and 2; as shipped, without the half, 2.5."""
        values, returns = table([1, 2]), table([0, 0])
        assert arl.ppo_value_loss(values, returns, lengths_mask(2)).loss == 1.25
        assert (values - returns).square().mean() == 2.5

    def test_values_within_the_clip_are_not_counted_as_clipped(self) -> None:
        """Not one of 3,000: old + (value - old) is often the value's neighbour, whose error can be larger."""
        shape, mask = [50, 60], torch.ones(50, 60, dtype=torch.bool)
        old, returns, values = drawn(shape, 0, -0.25, 0.25), drawn(shape, 1), drawn(shape, 2, -0.01, 0.01)
        found = arl.ppo_value_loss(values, returns, mask, old, 0.3)
        assert found.clip_fraction == 0
        assert found.loss == arl.ppo_value_loss(values, returns, mask).loss
        moved = old + (values - old).clamp(-0.3, 0.3)
        assert ((moved - returns).square() > (values - returns).square()).any(), "what it would count"

    @given(mask=masks(), seed=seeds)
    @few
    def test_the_clip_never_makes_the_loss_smaller_and_a_wide_one_does_nothing(self, mask: Tensor, seed: int) -> None:
        values, returns, old = (drawn(mask.shape, seed + number) for number in range(3))
        plain = arl.ppo_value_loss(values, returns, mask)
        assert arl.ppo_value_loss(values, returns, mask, old, 0.1).loss >= plain.loss
        assert arl.ppo_value_loss(values, returns, mask, old, 9.0) == plain

    @pytest.mark.parametrize(
        ("old", "clip", "reason"),
        [
            (None, 0.2, r"clip is 0\.2 .*old_values"),
            (table([0, 0]), None, r"clip is None .*old_values"),
            *((table([0, 0]), clip, rf"clip is {clip}") for clip in (0, -0.2, math.nan)),
        ],
    )
    def test_a_clip_goes_with_old_values(self, old: Tensor | None, clip: float | None, reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            arl.ppo_value_loss(table([1, 2]), table([0, 0]), lengths_mask(2), old, clip)


@pytest.mark.parametrize("loss", [ppo_of("token-mean", "no clip"), critic_of("token-mean", None)], ids=str)
def test_an_unclipped_loss_has_the_gradient_of_its_formula(loss: TokenLoss) -> None:
    mask = lengths_mask(3, 4)
    columns = loss.draw(mask, 11)
    _, gradient = value_and_gradient(loss, columns, mask)
    if "values" in columns:
        right = columns["values"] - columns["returns"]
    else:
        right = -columns["advantages"] * (columns["logprobs"] - columns["old_logprobs"]).exp()
    assert close(gradient, torch.where(mask, right, 0.0) / 7)


@pytest.mark.parametrize("wrong", [math.nan, -math.inf])
def test_new_log_probabilities_and_values_are_finite_at_policy_tokens(wrong: float) -> None:
    mask, table = lengths_mask(3, 4), torch.zeros(2, 4, dtype=arl.DTYPE)
    new = table.clone()
    new[1, 2] = wrong
    with pytest.raises(ValueError, match="row 1, position 2"):
        arl.ppo_policy_loss(new, table, table, mask)
    with pytest.raises(ValueError, match="row 1, position 2"):
        arl.ppo_value_loss(new, table, mask)


def with_critic(model: arl.TinyAgent, shared: bool = False, clip: float | None = None) -> arl.Critic:
    """Return a critic with the model's trunk, or with one of its own and plain descent at rate 1."""
    trunk, head = model if shared else tiny_model(1), arl.ValueHead(8, arl.generator(2))
    optimizer = None if shared else torch.optim.SGD([*trunk.parameters(), *head.parameters()], 1.0)
    return arl.Critic(trunk, head, optimizer, clip=clip)


def updated(
    batch: arl.TrajectoryBatch, advantages: Tensor, model: Any = None, rate: float = 1.0, **arguments: Any
) -> tuple[list[Tensor], list[arl.PPOEpoch]]:
    """Return the weights after an update with plain descent, and what its epochs did."""
    model = tiny_model() if model is None else model
    arguments = {"max_grad_norm": None, "grid": None, **arguments}
    seed = arguments.pop("seed", 0)
    critic = arguments.get("critic")
    head = [*critic.head.parameters()] if critic is not None and critic.optimizer is None else []
    optimizer = torch.optim.SGD([*model.parameters(), *head], rate)
    found = arl.ppo_update(model, optimizer, batch, advantages, arl.generator(seed), **arguments)
    return [parameter.detach() for parameter in model.parameters()], found


ONE_STEP: dict[str, Any] = {"epochs": 1, "minibatches": 1}


class TestUpdate:
    """Who shares a step, how much a token weighs in it, and what is refused; the rest: test_training.py."""

    @pytest.fixture
    def batch(self) -> arl.TrajectoryBatch:
        return episodes(tiny_model(), 3)

    @pytest.fixture
    def advantages(self, batch: arl.TrajectoryBatch) -> Tensor:
        return drawn(batch.ids.shape, 4)

    @pytest.mark.parametrize("minibatches", [1, 2, 3, 5])
    @pytest.mark.parametrize("mode", AGGREGATIONS)
    def test_a_token_weighs_the_same_in_any_minibatch(
        self, batch: arl.TrajectoryBatch, advantages: Tensor, mode: str, minibatches: int
    ) -> None:
        """At rate 0 the mean over the minibatches is the loss of the whole batch, also of unequal ones."""
        arguments = {"aggregation": mode, **options(mode)}
        _, (epoch,) = updated(batch, advantages, rate=0.0, epochs=1, minibatches=minibatches, **arguments)
        whole = arl.ppo_policy_loss(batch.logprobs, batch.logprobs, advantages, batch.action_mask, **arguments)
        share = minibatches if mode == "token-sum" else 1  # a sum has no denominator to share out
        assert epoch.loss * share == pytest.approx(whole.loss.item(), abs=1e-10)
        assert epoch.steps == minibatches

    def test_the_generator_alone_says_who_shares_a_minibatch(
        self, batch: arl.TrajectoryBatch, advantages: Tensor
    ) -> None:
        first, again, other = (updated(batch, advantages, seed=seed)[0] for seed in (0, 0, 1))
        assert all(map(torch.equal, first, again))
        assert not all(map(torch.equal, first, other))

    def test_o01_the_ratios_are_taken_at_the_temperature_that_sampled(
        self, batch: arl.TrajectoryBatch, advantages: Tensor
    ) -> None:
        """O01, O02: recorded at T = .5; scored at 1, as shipped, no first ratio is 1."""
        with torch.no_grad():
            tables = batch.ids, batch.attention_mask, batch.action_mask
            cold = dataclasses.replace(batch, logprobs=arl.token_logprobs(tiny_model(), *tables, temperature=0.5))
        _, (right,) = updated(cold, advantages, temperature=0.5, **ONE_STEP)
        assert (right.ratio_max, right.approx_kl) == (pytest.approx(1, abs=1e-10), pytest.approx(0, abs=1e-10))
        _, (shipped,) = updated(cold, advantages, **ONE_STEP)
        assert shipped.ratio_max > 1.1
        assert shipped.approx_kl > 1e-3

    def test_a_step_forgets_the_gradient_of_the_one_before(
        self, batch: arl.TrajectoryBatch, advantages: Tensor
    ) -> None:
        arguments = {"returns": advantages, "minibatches": 1}
        model, again = tiny_model(), tiny_model()
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 7)
        critic = with_critic(model)
        twice, _ = updated(batch, advantages, model, critic=critic, epochs=2, **arguments)
        own = with_critic(again)
        for _ in range(2):
            once, _ = updated(batch, advantages, again, critic=own, epochs=1, **arguments)
            for parameter in (*again.parameters(), *own.trunk.parameters(), *own.head.parameters()):
                parameter.grad = None
        assert all(map(close, twice, once))
        for part, same in ((critic.trunk, own.trunk), (critic.head, own.head)):
            pairs = zip(part.parameters(), same.parameters(), strict=True)
            assert all(close(one.detach(), two.detach()) for one, two in pairs)

    def test_one_advantage_an_episode_and_one_an_action_are_the_same_steps(self, batch: arl.TrajectoryBatch) -> None:
        one = drawn(batch.ids.shape[:1], 4)
        wide = arl.broadcast_to_tokens(one, batch.action_mask)
        assert all(map(torch.equal, updated(batch, one)[0], updated(batch, wide)[0]))

    def test_the_update_ends_before_the_step_that_would_go_further_than_max_kl(
        self, batch: arl.TrajectoryBatch, advantages: Tensor
    ) -> None:
        weights, records = updated(batch, advantages, epochs=4, minibatches=1, max_kl=1e-6)
        assert [record.steps for record in records] == [1, 0]
        assert records[1].approx_kl > 1e-6
        assert records[1].grad_norm == 0
        assert all(map(torch.equal, weights, updated(batch, advantages, **ONE_STEP)[0]))
        _, records = updated(batch, advantages, epochs=4, minibatches=1, max_kl=1e6)
        assert [record.steps for record in records] == [1] * 4

    def test_the_critic_is_clipped_around_its_values_before_the_update(
        self, batch: arl.TrajectoryBatch, advantages: Tensor
    ) -> None:
        critic, returns = with_critic(tiny_model(), clip=0.01), torch.full_like(advantages, 0.7)
        before = critic.values(batch).detach()
        _, records = updated(batch, advantages, critic=critic, returns=returns, epochs=2, minibatches=1)
        assert [record.value_clip_fraction > 0 for record in records] == [False, True]
        once = with_critic(tiny_model(), clip=0.01)
        updated(batch, advantages, critic=once, returns=returns, **ONE_STEP)
        right = arl.ppo_value_loss(once.values(batch), returns, batch.action_mask, before, 0.01)
        assert records[1].value_loss == pytest.approx(right.loss.item(), abs=1e-10)
        assert records[1].value_clip_fraction == pytest.approx(right.clip_fraction)

    def test_a_shared_trunk_gets_both_gradients(self, batch: arl.TrajectoryBatch, advantages: Tensor) -> None:
        model, returns = tiny_model(), torch.full_like(advantages, 0.7)
        critic = with_critic(model, shared=True)
        moved, _ = updated(batch, advantages, model, critic=critic, returns=returns, **ONE_STEP)
        fresh = tiny_model()
        own = with_critic(fresh, shared=True)
        mask = batch.action_mask
        scored = arl.token_logprobs(fresh, batch.ids, batch.attention_mask, mask)
        loss = arl.ppo_policy_loss(scored, batch.logprobs, advantages, mask).loss
        loss = loss + 0.5 * arl.ppo_value_loss(own.values(batch), returns, mask).loss
        right = torch.autograd.grad(loss, [*fresh.parameters()])
        for weight, before, slope in zip(moved, fresh.parameters(), right, strict=True):
            assert close(before.detach() - weight, slope)

    @pytest.mark.parametrize("shared", [True, False])
    def test_a_critic_that_no_optimiser_holds_is_refused(
        self, batch: arl.TrajectoryBatch, advantages: Tensor, shared: bool
    ) -> None:
        model = tiny_model()
        critic = arl.Critic(model if shared else tiny_model(1), arl.ValueHead(8, arl.generator(2)))
        optimizer = torch.optim.SGD(model.parameters(), 1.0)
        with pytest.raises(ValueError, match="head.weight is in 0" if shared else "trunk.tokens is in 0"):
            arl.ppo_update(model, optimizer, batch, advantages, arl.generator(0), critic, advantages)

    def test_a_record_of_nan_is_named_by_its_row_in_the_batch_and_no_step_is_made(
        self, batch: arl.TrajectoryBatch, advantages: Tensor
    ) -> None:
        row, place = batch.action_mask.nonzero()[-1].tolist()
        logprobs = batch.logprobs.clone()
        logprobs[row, place] = math.nan
        for seed in range(4):
            model = tiny_model()
            with pytest.raises(ValueError, match=f"row {row}, position {place}"):
                updated(dataclasses.replace(batch, logprobs=logprobs), advantages, model, seed=seed)
            assert all(
                one.equal(other) for one, other in zip(model.parameters(), tiny_model().parameters(), strict=True)
            )

    def test_statistics_and_the_limit_on_the_kl_are_means_over_the_tokens_seen(
        self, batch: arl.TrajectoryBatch
    ) -> None:
        moved = dataclasses.replace(batch, logprobs=torch.where(batch.action_mask, batch.logprobs - math.log(1.5), 0.0))
        for seed in range(6):
            good = torch.ones(len(batch), dtype=arl.DTYPE)
            _, (epoch,) = updated(moved, good, seed=seed, minibatches=len(batch), epochs=3, max_kl=0.05)
            assert epoch.steps == 0
            assert epoch.clip_fraction == pytest.approx(1)
            assert epoch.approx_kl == pytest.approx(0.5 - math.log(1.5))

    def test_without_a_generator_nothing_is_drawn(self, batch: arl.TrajectoryBatch, advantages: Tensor) -> None:
        model = tiny_model()
        optimizer, nothing = torch.optim.SGD(model.parameters(), 1.0), None
        with pytest.raises(TypeError, match="generator is None"):
            arl.ppo_update(model, optimizer, batch, advantages, nothing)  # pyright: ignore[reportArgumentType]

    @pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
    def test_a_critic_that_would_climb_its_loss_is_refused(self, weight: float) -> None:
        with pytest.raises(ValueError, match="weight is"):
            arl.Critic(tiny_model(), arl.ValueHead(8, arl.generator(0)), weight=weight)

    @pytest.mark.parametrize(
        "setting",
        [
            *({"epochs": 0}, {"minibatches": 0}, {"microbatch": 0}, {"max_grad_norm": -1.0}, {"grid": 3}),
            *({"clip_low": 2.0}, {"temperature": 0.0}, {"aggregation": "x"}),
        ],
    )
    def test_settings_are_refused_before_anything_is_drawn(
        self, batch: arl.TrajectoryBatch, advantages: Tensor, setting: dict[str, Any]
    ) -> None:
        model, generator = tiny_model(), arl.generator(0)
        before = generator.get_state()
        with pytest.raises(ValueError, match=next(iter(setting))):
            arl.ppo_update(model, torch.optim.SGD(model.parameters()), batch, advantages, generator, **setting)
        assert generator.get_state().equal(before)

    @pytest.mark.parametrize("max_kl", [0.0, -1.0, math.nan])
    def test_a_limit_that_no_kl_can_keep_is_refused(
        self, batch: arl.TrajectoryBatch, advantages: Tensor, max_kl: float
    ) -> None:
        with pytest.raises(ValueError, match="max_kl"):
            updated(batch, advantages, max_kl=max_kl)

    @pytest.mark.parametrize("name", ["advantages", "returns"])
    @pytest.mark.parametrize("minibatches", [1, 5])
    def test_a_record_that_cannot_be_changes_no_weight(
        self, batch: arl.TrajectoryBatch, advantages: Tensor, name: str, minibatches: int
    ) -> None:
        row, place = batch.action_mask.nonzero()[-1].tolist()
        given, model = {"advantages": advantages, "returns": advantages.clone()}, tiny_model()
        wrong = [given[name].clone() for _ in FILLERS]
        for bad, filler in zip(wrong, FILLERS, strict=True):
            bad[row, place] = filler
        shapes = [given[name][:4], given[name][:, :-1], torch.zeros(5, 99), torch.zeros(6, 13), torch.zeros(5, 1)]
        for bad in (*wrong, *shapes, given[name].clone().requires_grad_()):
            arguments = {**given, name: bad, "critic": with_critic(model), "minibatches": minibatches}
            with pytest.raises(ValueError, match=rf"^{name} "):
                updated(batch, model=model, **arguments)
        assert all(map(torch.equal, model.parameters(), tiny_model().parameters()))

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *(("epochs", value) for value in (0, -1, 1.5, True)),
            *(("minibatches", value) for value in (0, 6, 1.5)),
            ("microbatch", 0),
            ("clip_low", -1),
            ("dual_clip", 1.0),
            ("max_grad_norm", -1.0),
            ("grid", 3),
        ],
    )
    def test_a_setting_that_cannot_be_changes_no_weight(
        self, batch: arl.TrajectoryBatch, advantages: Tensor, name: str, value: Any
    ) -> None:
        model = tiny_model()
        with pytest.raises(ValueError, match=rf"{name} is {value}"):
            updated(batch, advantages, model, **{name: value})
        with pytest.raises(TypeError, match=r"epoch\b"):
            updated(batch, advantages, model, epoch=3)
        assert all(map(torch.equal, model.parameters(), tiny_model().parameters()))

    def test_critic_and_returns_go_together(self, batch: arl.TrajectoryBatch, advantages: Tensor) -> None:
        alone: list[dict[str, Any]] = [{"critic": with_critic(tiny_model())}, {"returns": advantages}]
        for arguments in alone:
            with pytest.raises(ValueError, match=r"critic.*returns.*both"):
                updated(batch, advantages, **arguments)

    @pytest.mark.parametrize("mode", AGGREGATIONS)
    @pytest.mark.parametrize("microbatch", [None, 1, 2])
    def test_a_loss_that_is_given_takes_the_place_of_the_settings(
        self, batch: arl.TrajectoryBatch, advantages: Tensor, mode: str, microbatch: int | None
    ) -> None:
        clip = {"clip_low": 0.01, "clip_high": 0.02, "dual_clip": 1.01, "aggregation": mode, **options(mode)}
        given = {"epochs": 2, "minibatches": 2, "microbatch": microbatch}
        right, records = updated(batch, advantages, **given, **clip)
        loss = partial(arl.ppo_policy_loss, **clip)
        found, again = updated(batch, advantages, loss=loss, **given)
        assert all(map(torch.equal, found, right))
        assert again == records
        assert not all(map(torch.equal, found, updated(batch, advantages, **given)[0]))

    def test_a_loss_gets_the_tables_of_its_part_and_the_counts_of_a_minibatch(
        self, batch: arl.TrajectoryBatch, advantages: Tensor
    ) -> None:
        calls = []

        def loss(*tables: Any, whole: arl.LossCounts) -> arl.PolicyLoss:
            calls.append((tables, whole))
            return arl.ppo_policy_loss(*tables, whole=whole)

        updated(batch, advantages, loss=loss, epochs=1, minibatches=2, microbatch=1)
        assert len(calls) == len(batch)
        counts, tokens = arl.loss_counts(batch.action_mask), 0
        for (logprobs, old, weights, mask), whole in calls:
            assert whole == arl.LossCounts(counts.tokens / 2, counts.sequences / 2)
            assert logprobs.requires_grad
            assert logprobs.shape == old.shape == weights.shape == mask.shape
            tokens += int(mask.sum())
            row = [r for r in range(len(batch)) if torch.equal(batch.action_mask[r, : mask.shape[1]], mask[0])]
            assert any(torch.equal(advantages[r][batch.action_mask[r]], weights[mask]) for r in row)
        assert tokens == counts.tokens

    @pytest.mark.parametrize("loss", [None, arl.gspo_policy_loss, arl.cispo_policy_loss])
    @pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
    def test_rows_without_an_advantage_may_be_left_out_if_the_whole_is_counted(
        self, batch: arl.TrajectoryBatch, mode: str, loss: Any
    ) -> None:
        advantages, kept = column(0.3, 0, -1, 0, 0.7), torch.tensor([0, 2, 4])
        given = {"aggregation": mode, "loss": loss, **ONE_STEP}
        (order, part), whole = next(arl.microbatches(batch, rows=kept)), arl.loss_counts(batch.action_mask)
        right, (record,) = updated(batch, advantages, **given)
        found, (epoch,) = updated(part, advantages[order], whole=whole, **given)
        assert all(map(close, found, right))
        assert epoch.loss == pytest.approx(record.loss, abs=1e-12)
        without, _ = updated(part, advantages[order], **given)
        assert not all(close(one, other, 1e-6) for one, other in zip(without, right, strict=True))

    def test_statistics_are_per_token_of_the_rows_given_whatever_the_whole(self, batch: arl.TrajectoryBatch) -> None:
        """Every ratio is exp(0.5): beyond the band, and a KL of exp(0.5) - 1.5 a token."""
        scores = torch.where(batch.action_mask, batch.logprobs - 0.5, batch.logprobs)
        shifted, counts = dataclasses.replace(batch, logprobs=scores), arl.loss_counts(batch.action_mask)
        whole = arl.LossCounts(3 * counts.tokens, 3 * counts.sequences)
        _, (epoch,) = updated(shifted, column(1, 1, 1, 1, 1), whole=whole, **ONE_STEP)
        assert (epoch.approx_kl, epoch.clip_fraction) == pytest.approx((math.exp(0.5) - 1.5, 1.0), abs=1e-12)
        assert epoch.loss == pytest.approx(-1.2 / 3, abs=1e-12)

    @pytest.mark.parametrize("microbatch", [None, 1, 3])
    @pytest.mark.parametrize("minibatches", [1, 2])
    def test_a_penalty_is_added_part_by_part(
        self, batch: arl.TrajectoryBatch, advantages: Tensor, microbatch: int | None, minibatches: int
    ) -> None:
        """At rate 0 the mean over minibatches is the penalty of the whole batch."""
        calls = []

        def penalty(part: arl.TrajectoryBatch, logprobs: Tensor, logits: Tensor, whole: arl.LossCounts) -> Tensor:
            calls.append((len(part), whole))
            chosen = logits.log_softmax(-1).gather(-1, part.ids[part.action_mask][:, None])[:, 0]
            assert close(logprobs[part.action_mask].detach(), chosen.detach())
            assert not logprobs[~part.action_mask].any()
            return (logprobs.square().sum() + logits.sum(-1).square().sum()) / whole.tokens

        given = {"minibatches": minibatches, "microbatch": microbatch, "epochs": 1}
        _, (epoch,) = updated(batch, advantages, rate=0.0, penalty=penalty, **given)
        _, (plain,) = updated(batch, advantages, rate=0.0, **given)
        tables = batch.ids, batch.attention_mask, batch.action_mask
        logits = arl.scored_logits(tiny_model(), *tables)
        right = arl.masked_mean(arl.token_logprobs(tiny_model(), *tables).square(), batch.action_mask)
        assert epoch.penalty == pytest.approx((right + logits.sum(-1).square().mean()).item(), abs=1e-10)
        assert epoch.loss == pytest.approx(plain.loss, abs=1e-12)
        assert plain.penalty == 0
        counts = arl.loss_counts(batch.action_mask)
        assert {whole for _, whole in calls} == {arl.LossCounts(*(count / minibatches for count in counts))}
        assert sum(rows for rows, _ in calls) == len(batch)

    def test_the_gradient_of_a_penalty_is_added(self, batch: arl.TrajectoryBatch, advantages: Tensor) -> None:
        def penalty(part: arl.TrajectoryBatch, logprobs: Tensor, logits: Tensor, whole: arl.LossCounts) -> Tensor:
            return (logits.square().sum() + logprobs.square().sum()) / whole.tokens

        moved, _ = updated(batch, advantages, penalty=penalty, **ONE_STEP)
        model, tables = tiny_model(), (batch.ids, batch.attention_mask, batch.action_mask)
        scored = arl.token_logprobs(model, *tables)
        loss = arl.ppo_policy_loss(scored, batch.logprobs, advantages, batch.action_mask).loss
        more = arl.scored_logits(model, *tables).square().sum() + scored.square().sum()
        loss = loss + more / batch.action_mask.sum()
        slopes = torch.autograd.grad(loss, [*model.parameters()])
        for weight, before, slope in zip(moved, model.parameters(), slopes, strict=True):
            assert close(before.detach() - weight, slope)

    @pytest.mark.parametrize("wrong", [0.5, None, torch.zeros(2, dtype=arl.DTYPE)])
    def test_a_penalty_that_is_no_scalar_is_refused_and_changes_no_weight(
        self, batch: arl.TrajectoryBatch, advantages: Tensor, wrong: Any
    ) -> None:
        model = tiny_model()
        with pytest.raises(ValueError, match=r"penalty gave .*scalar tensor"):
            updated(batch, advantages, model, penalty=lambda *given: wrong)
        assert all(map(torch.equal, model.parameters(), tiny_model().parameters()))

    def test_l10_a_penalty_that_lost_its_gradient_is_refused_and_changes_no_weight(
        self, batch: arl.TrajectoryBatch, advantages: Tensor
    ) -> None:
        def penalty(part: arl.TrajectoryBatch, logprobs: Tensor, logits: Tensor, whole: arl.LossCounts) -> Tensor:
            with torch.no_grad():
                return logprobs.square().sum() / whole.tokens

        model = tiny_model()
        with pytest.raises(ValueError, match=r"penalty gave .* without a gradient"):
            updated(batch, advantages, model, penalty=penalty)
        assert all(map(torch.equal, model.parameters(), tiny_model().parameters()))
