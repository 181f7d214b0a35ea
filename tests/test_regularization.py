"""Chapter 10's divergences and entropies: estimates, what they are as losses and in rewards, and penalties."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from token_losses import (
    AGGREGATIONS,
    FILLERS,
    KINDS,
    aggregate_in_loops,
    close,
    column,
    drawn,
    each_mode,
    episodes,
    few,
    kl_of,
    lengths_mask,
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

G5_OWN, G5_REF = table([-1, -2, -0.5]), table([-1.5, -1, -0.5])
G5 = {  # value, gradient, gradient with the ratio's
    "k1": ([0.5, -1, 0], [1, 1, 1], [1.5, 0, 1]),
    "k2": ([0.125, 0.5, 0], [0.5, -1, 0], [0.625, -0.5, 0]),
    "k3": ([0.106531, 0.718282, 0], [0.393469, -1.718282, 0], [0.5, -1, 0]),
    "k1+": ([0.5, -1, 0], [0.5, -1, 0], [0.5, -1, 0]),
    "k3+": ([0.106531, 0.718282, 0], [0.5, -1, 0], [0.5, -1, 0]),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def estimate_in_loops(own: float, ref: float, kind: str) -> tuple[float, float]:
    """Return an estimate from one token and its slope, by the definition."""
    d = own - ref
    value = {"k1": d, "k2": d**2 / 2, "k3": math.exp(-d) - 1 + d}[kind[:2]]
    slope = {"k1": 1.0, "k2": d, "k3": 1 - math.exp(-d)}.get(kind, d)
    return value, slope


def kl_in_loops(own: list[float], ref: list[float]) -> float:
    """Return KL(own || ref) of two lists of probabilities."""
    return math.fsum(p * math.log(p / q) for p, q in zip(own, ref, strict=True) if p > 0)


class TestEstimate:
    @each_kind
    @given(seed=seeds)
    @few
    def test_value_and_slope_are_the_definition_in_loops(self, kind: str, seed: int) -> None:
        own, ref = drawn([2, 3], seed, -3, 0).requires_grad_(), drawn([2, 3], seed + 1, -3, 0)
        found = arl.kl_estimate(own, ref, kind)
        (slopes,) = torch.autograd.grad(found.sum(), own)
        pairs = zip(own.flatten().tolist(), ref.flatten().tolist(), strict=True)
        right = [estimate_in_loops(*pair, kind) for pair in pairs]
        assert close(found.detach().flatten(), [value for value, _ in right])
        assert close(slopes.flatten(), [slope for _, slope in right])

    @each_kind
    def test_g5_golden_numbers(self, kind: str) -> None:
        """G5; L09 (verl#6058): `k3+` has k3's value and k2's gradient; as shipped it crashed."""
        own = G5_OWN.clone().requires_grad_()
        found = arl.kl_estimate(own, G5_REF, kind)
        value, slope, _ = G5[kind]
        assert close(found.detach(), [value], 1e-6)
        assert close(torch.autograd.grad(found.sum(), own)[0], [slope], 1e-6)

    def test_g5_exact_expectations(self) -> None:
        own, ref = column(0.7, 0.2, 0.1), column(0.5, 0.25, 0.25)
        means = {kind: (own @ arl.kl_estimate(own.log(), ref.log(), kind)).item() for kind in KINDS}
        assert arl.exact_kl(own.log(), ref.log()).item() == pytest.approx(0.099273, abs=1e-6)
        for kind in ("k1", "k3", "k1+", "k3+"):
            assert means[kind] == pytest.approx(0.099273, abs=1e-6), kind
        assert means["k2"] == pytest.approx(0.086583, abs=1e-6)

    def test_l21_k3_is_huge_where_the_policy_hardly_samples_what_the_reference_likes(self) -> None:
        """L21 (rlhf-book#489): nothing is cut; verl cuts at 10."""
        own, ref = column(-12), column(-2)
        assert arl.kl_estimate(own, ref, "k3").item() == pytest.approx(22015.5, abs=0.05)
        assert arl.kl_estimate(own, ref, "k1").item() == -10

    @given(own=st.floats(-30, 0), gap=st.one_of(st.floats(-20, 20), st.floats(-1e-6, 1e-6)))
    @few
    def test_k2_and_k3_are_never_negative_and_0_where_nothing_differs(self, own: float, gap: float) -> None:
        for kind in ("k2", "k3"):
            assert arl.kl_estimate(column(own), column(own + gap), kind).item() >= 0
            assert arl.kl_estimate(column(own), column(own), kind).item() == 0

    def test_g11_metrics_between_what_sampled_and_what_trains(self) -> None:
        """G11: of the sampler's tokens; and a sequence's mean k3 above .05 tells row 0 from row 1."""
        old, rollout = column(-1, -1.2), column(-1.1, -1)
        assert arl.kl_estimate(rollout, old, "k1").mean().item() == pytest.approx(0.05, abs=1e-12)
        assert arl.kl_estimate(rollout, old, "k3").mean().item() == pytest.approx(0.011951, abs=1e-6)
        ratios, mask = table([1, 1.5, 2.5, 0.3], [1.01, 0.99, 1, 1]), lengths_mask(4, 3)
        means = arl.masked_mean(arl.kl_estimate(torch.zeros_like(ratios), ratios.log(), "k3"), mask, -1)
        assert (means > 0.05).tolist() == [True, False]

    def test_what_cannot_be_estimated_is_refused(self) -> None:
        for kind in ("k4", "", "K1", None):
            with pytest.raises(ValueError, match=rf"{kind!r}.*k1, k2, k3"):
                arl.kl_estimate(G5_OWN, G5_REF, kind)  # pyright: ignore[reportArgumentType]
        with pytest.raises(ValueError, match=r"\[1, 3\].*\[3\]"):
            arl.kl_estimate(G5_OWN, G5_REF[0])
        with pytest.raises(ValueError, match=r"ref_logprobs .*detach"):
            arl.kl_estimate(G5_OWN, G5_REF.clone().requires_grad_())

    def test_the_default_is_k1_and_no_input_is_written_to(self) -> None:
        own, ref = G5_OWN.clone(), G5_REF.clone()
        assert torch.equal(arl.kl_estimate(own, ref), own - ref)
        for kind in KINDS:
            arl.kl_estimate(own, ref, kind).mul_(7)
        assert torch.equal(own, G5_OWN)
        assert torch.equal(ref, G5_REF)


class TestExact:
    @given(seed=seeds)
    @few
    def test_the_divergence_is_the_definition_in_loops(self, seed: int) -> None:
        own, ref = drawn([2, 3, 4], seed, -3, 3), drawn([2, 3, 4], seed + 1, -3, 3)
        found = arl.exact_kl(own, ref)
        assert found.shape == (2, 3)
        pairs = zip(own.softmax(-1).flatten(0, 1).tolist(), ref.softmax(-1).flatten(0, 1).tolist(), strict=True)
        assert close(found.flatten(), [kl_in_loops(*pair) for pair in pairs], 1e-10)
        assert (found >= 0).all()
        assert (arl.exact_kl(own, own + 5) < 1e-12).all()

    @pytest.mark.parametrize("side", [0, 1])
    def test_its_gradient_is_the_slope_for_both_sides(self, side: int) -> None:
        given = [drawn([4], 1, -2, 2), drawn([4], 2, -2, 2)]
        given[side].requires_grad_()
        (slopes,) = torch.autograd.grad(arl.exact_kl(*given), given[side])
        for place in range(4):
            values = []
            for step in (1e-6, -1e-6):
                moved = [logits.detach().clone() for logits in given]
                moved[side][place] += step
                values.append(arl.exact_kl(*moved).item())
            assert slopes[place].item() == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-8)

    def test_what_is_never_sampled_adds_nothing_and_has_no_gradient(self) -> None:
        own, ref = table([0, 1, -math.inf, -2000]), table([0.5, 0, 3, -math.inf])
        leaf = own.clone().requires_grad_()
        found = arl.exact_kl(leaf, ref)
        right = kl_in_loops(own[0].softmax(-1).tolist(), ref[0].softmax(-1).tolist())
        assert found.item() == pytest.approx(right, abs=1e-12)
        (slopes,) = torch.autograd.grad(found.sum(), leaf)
        assert slopes.isfinite().all()
        assert slopes[0, 2:].tolist() == [0, 0]
        assert arl.exact_kl(table([0, 0]), table([0, -math.inf])).item() == math.inf

    @given(seed=seeds)
    @few
    def test_the_entropy_is_the_definition_in_loops_and_so_is_its_gradient(self, seed: int) -> None:
        logits = drawn([2, 3, 4], seed, -3, 3).requires_grad_()
        found = arl.entropy_from_logits(logits)
        rows = logits.detach().softmax(-1).flatten(0, 1).tolist()
        right = [-math.fsum(p * math.log(p) for p in row) for row in rows]
        assert close(found.detach().flatten(), right, 1e-10)
        (slopes,) = torch.autograd.grad(found.sum(), logits)
        wanted = [[-p * (math.log(p) + entropy) for p in row] for row, entropy in zip(rows, right, strict=True)]
        assert close(slopes.flatten(0, 1), wanted, 1e-10)

    def test_the_entropy_at_its_ends(self) -> None:
        assert arl.entropy_from_logits(torch.full((7,), 3.0, dtype=arl.DTYPE)).item() == pytest.approx(math.log(7))
        leaf = table([0, -math.inf, 0, -2000]).requires_grad_()
        found = arl.entropy_from_logits(leaf)
        assert found.item() == pytest.approx(math.log(2), abs=1e-12)
        assert torch.autograd.grad(found.sum(), leaf)[0].abs().max() < 1e-12
        assert arl.entropy_from_logits(table([500, 0])).item() == pytest.approx(0, abs=1e-12)
        assert not torch.signbit(arl.entropy_from_logits(column(1))), "no negative zero"

    @pytest.mark.parametrize("wrong", [[math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf]])
    def test_where_no_softmax_is_defined_the_place_is_named(self, wrong: list[float]) -> None:
        bad, good = table([0, 0], wrong), table([0, 0], [0, 0])
        for call, name in (
            (lambda: arl.entropy_from_logits(bad), "logits"),
            (lambda: arl.exact_kl(bad, good), "logits"),
            (lambda: arl.exact_kl(good, bad), "ref_logits"),
        ):
            with pytest.raises(ValueError, match=rf"^{name}: row \[1\]"):
                call()
        with pytest.raises(ValueError, match=r"\[2, 2\].*\[1, 2\]"):
            arl.exact_kl(good, good[:1])


def expected_gradient(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, sampler: Tensor) -> Tensor:
    """Return the exact expectation, over the sampler's tokens, of the gradient of a loss of one token by the logits.

    `loss(log-probability [1, 1], token)` is a scalar.
    """
    total = torch.zeros_like(logits)
    for token, chance in enumerate(sampler.softmax(-1).tolist()):
        leaf = logits.clone().requires_grad_()
        logprob = leaf.log_softmax(-1)[token].reshape(1, 1)
        total += chance * torch.autograd.grad(loss(logprob, torch.tensor(token)), leaf)[0]
    return total


class TestLoss:
    OWN, REF, OLD = column(0.4, -1, 0.3, 0.9), column(0, 0.5, -0.7, 0.2), column(0.1, -0.4, 0.8, 0)

    def expectations(self, kind: str, sampler: Tensor, weighted: bool) -> Tensor:
        """Return the expected gradient of a kind as a loss."""

        def loss(logprob: Tensor, token: Tensor) -> Tensor:
            ref = self.REF.log_softmax(-1)[token].reshape(1, 1)
            old = sampler.log_softmax(-1)[token].reshape(1, 1) if weighted else None
            return arl.kl_loss(logprob, ref, mask_of([1]), kind, old)

        return expected_gradient(loss, self.OWN, sampler)

    def exact(self, forward: bool = False) -> Tensor:
        """Return the gradient of the reverse KL, or of the forward one."""
        leaf = self.OWN.clone().requires_grad_()
        divergence = arl.exact_kl(self.REF, leaf) if forward else arl.exact_kl(leaf, self.REF)
        return torch.autograd.grad(divergence, leaf)[0]

    def test_on_policy_k1_teaches_nothing_k2_the_reverse_and_k3_the_forward_divergence(self) -> None:
        assert close(self.expectations("k1", self.OWN, False), torch.zeros(4))
        assert close(self.expectations("k3", self.OWN, False), self.exact(forward=True))
        for kind in ("k2", "k1+", "k3+"):
            assert close(self.expectations(kind, self.OWN, False), self.exact())
        assert not close(self.exact(), self.exact(forward=True), 1e-2)

    def test_weighted_by_the_ratio_all_but_k2_teach_the_reverse_divergence_from_any_sampler(self) -> None:
        """L11 (NeMo-RL#2506): with the score term k1 and k3 are right; k2's estimate is biased."""
        for sampler in (self.OWN, self.OLD):
            for kind in ("k1", "k3", "k1+", "k3+"):
                assert close(self.expectations(kind, sampler, True), self.exact()), kind
        assert not close(self.expectations("k2", self.OLD, True), self.exact(), 1e-2)
        for kind in ("k2", "k1+", "k3+"):
            assert not close(self.expectations(kind, self.OLD, False), self.exact(), 1e-2), "without the ratio"

    def test_weighted_by_the_ratio_its_expectation_is_the_divergence(self) -> None:
        right = arl.exact_kl(self.OWN, self.REF).item()
        own, ref, old = (logits.log_softmax(-1)[:, None] for logits in (self.OWN, self.REF, self.OLD))
        for kind in ("k1", "k3", "k1+", "k3+"):
            values = [arl.kl_loss(own[[t]], ref[[t]], mask_of([1]), kind, old[[t]]).item() for t in range(4)]
            assert math.fsum(p * v for p, v in zip(self.OLD.softmax(-1).tolist(), values, strict=True)) == (
                pytest.approx(right, abs=1e-12)
            )

    @each_kind
    def test_g5_golden_gradients_with_the_score_term(self, kind: str) -> None:
        """G5: k3 with the score term is k2 without it, token by token."""
        own = G5_OWN.clone().requires_grad_()
        loss = arl.kl_loss(own, G5_REF, lengths_mask(3), kind, old_logprobs=G5_OWN, aggregation="token-sum")
        value, _, slope = G5[kind]
        assert loss.item() == pytest.approx(sum(value), abs=1e-5)
        assert close(torch.autograd.grad(loss, own)[0], [slope], 1e-6)

    def test_l10_a_penalty_has_its_gradient(self) -> None:
        """L10 (SkyRL#1353, open-instruct#530): as shipped 0, under no_grad."""
        own = G5_OWN.clone().requires_grad_()
        loss = 0.1 * arl.kl_loss(own, G5_REF, lengths_mask(3), "k3", aggregation="token-sum")
        assert close(torch.autograd.grad(loss, own)[0], [[0.039347, -0.171828, 0]], 1e-6)

    def test_l11_far_from_the_reference_no_gradient_is_lost(self) -> None:
        """L11 (NeMo-RL#2958): a clamp at 10, as shipped, has none beyond it."""
        for gap in (-15.0, 15.0):
            for kind in KINDS:
                own = table([-20.0]).requires_grad_()
                loss = arl.kl_loss(own, table([-20.0 - gap]), lengths_mask(1), kind)
                slope = torch.autograd.grad(loss, own)[0].item()
                assert slope == pytest.approx(estimate_in_loops(gap, 0.0, kind)[1], rel=1e-9)

    def test_a17_it_is_a_mean_over_tokens_not_rows(self) -> None:
        """A17 (TRL#4105, #4719, #6478): two rows of three tokens, each .5; as shipped 1.5."""
        own, mask = torch.full((2, 3), -1.0, dtype=arl.DTYPE), lengths_mask(3, 3)
        assert arl.kl_loss(own, own - 0.5, mask, "k1").item() == pytest.approx(0.5, abs=1e-12)
        shipped = arl.kl_loss(own, own - 0.5, mask, "k1", aggregation="seq-mean-token-sum")
        assert shipped.item() == pytest.approx(1.5, abs=1e-12)

    @each_kind
    @pytest.mark.parametrize("weighted", [False, True])
    @given(mask=masks(), seed=seeds)
    @few
    def test_value_and_gradient_are_the_definition_in_loops(
        self, kind: str, weighted: bool, mask: Tensor, seed: int
    ) -> None:
        loss = kl_of(kind, "token-mean", weighted)
        columns = loss.draw(mask, seed)
        found, gradient = value_and_gradient(loss, columns, mask)
        values, slopes = torch.zeros(mask.shape, dtype=arl.DTYPE), torch.zeros(mask.shape, dtype=arl.DTYPE)
        for row, place in mask.nonzero().tolist():
            own, ref = (float(columns[name][row, place]) for name in ("logprobs", "ref_logprobs"))
            value, slope = estimate_in_loops(own, ref, kind)
            ratio = math.exp(own - float(columns["old_logprobs"][row, place])) if weighted else 1.0
            values[row, place] = ratio * value
            slopes[row, place] = ratio * (slope + value * (weighted and not kind.endswith("+")))
        assert found.item() == pytest.approx(aggregate_in_loops(values, mask, "token-mean"), abs=1e-12)
        assert close(gradient, slopes / int(mask.sum()))

    @each_kind
    def test_numbers_of_16_bits_have_the_divergence_of_the_same_numbers(self, kind: str) -> None:
        own, ref = (drawn([2, 4], seed, -0.1, 0).to(torch.bfloat16) for seed in (1, 2))
        found = arl.kl_loss(own, ref, lengths_mask(3, 4), kind, own)
        right = arl.kl_loss(own.float(), ref.float(), lengths_mask(3, 4), kind, own.float())
        assert found.item() == pytest.approx(right.item(), rel=1e-5)

    def test_the_defaults_are_k3_plus_the_mean_over_tokens_and_no_weights(self) -> None:
        columns = kl_of("k3+", "token-mean", False).draw(mask := lengths_mask(2, 4), 3)
        own, ref = columns["logprobs"].requires_grad_(), columns["ref_logprobs"]
        losses = arl.kl_loss(own, ref, mask), arl.kl_loss(own, ref, mask, "k3+", None, "token-mean")
        slopes = [torch.autograd.grad(loss, own)[0] for loss in losses]
        assert losses[0] == losses[1]
        assert torch.equal(*slopes)

    def test_what_cannot_be_is_refused(self) -> None:
        own, mask = table([-1.0, -800]), lengths_mask(2)
        with pytest.raises(ValueError, match=r"'k4'"):
            arl.kl_loss(own, own, mask, "k4")
        with pytest.raises(ValueError, match=r"k3 at row 0, position 1: inf"):
            arl.kl_loss(own, table([-1.0, 0]), mask, "k3")
        with pytest.raises(ValueError, match=r"ratios at row 0, position 1: inf"):
            arl.kl_loss(table([-1.0, 0]), own, mask, "k1", table([-1.0, -800]))
        with pytest.raises(ValueError, match=r"'mean'"):
            arl.kl_loss(own, own, mask, aggregation="mean")


class TestPenalizedRewards:
    OWN, REF = table([-1, -0.6, -5, -5, -0.7]), table([-1.1, -0.7, -7, -7, -0.8])
    MASK = mask_of([1, 1, 0, 0, 1])

    def test_m26_the_divergence_is_paid_by_policy_tokens_alone(self) -> None:
        """M26 (slime#1372, verl#3916); L12 (slime#2114): and what is logged is as it was."""
        divergence = arl.kl_estimate(self.OWN, self.REF)
        assert close(divergence, [[0.1, 0.1, 2, 2, 0.1]])
        logged, given = divergence.clone(), (self.OWN.clone(), self.REF.clone(), earned := column(1))
        found = arl.kl_penalized_rewards(earned, self.OWN, self.REF, self.MASK, 1.0)
        assert close(found, [[-0.1, -0.1, 0, 0, 0.9]])
        assert close(arl.discounted_returns(found, self.MASK), [[0.7, 0.8, 0, 0, 0.9]])
        every = arl.kl_penalized_rewards(earned, self.OWN, self.REF, self.MASK | True, 1.0)
        assert close(arl.discounted_returns(every, self.MASK | True)[:, :2], [[-3.3, -3.2]]), "as shipped"
        assert torch.equal(divergence, logged)
        assert all(map(torch.equal, given, (self.OWN, self.REF, column(1))))

    @pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
    @given(mask=masks(), seed=seeds, beta=st.sampled_from([0.0, 0.1, 3.0]))
    @few
    def test_they_are_the_definition_in_loops(self, kind: str, mask: Tensor, seed: int, beta: float) -> None:
        own, ref, earned = drawn(mask.shape, seed, -2, 0), drawn(mask.shape, seed + 1, -2, 0), drawn([len(mask)], seed)
        found = arl.kl_penalized_rewards(earned, own, ref, mask, beta, kind)
        right = torch.zeros_like(found)
        for row, keep in enumerate(mask.tolist()):
            places = [place for place, kept in enumerate(keep) if kept]
            for place in places:
                right[row, place] = -beta * estimate_in_loops(float(own[row, place]), float(ref[row, place]), kind)[0]
            if places:
                right[row, places[-1]] += float(earned[row])
        assert close(found, right)
        plain = arl.kl_penalized_rewards(earned, own, ref, mask, beta)
        assert torch.equal(plain, arl.kl_penalized_rewards(earned, own, ref, mask, beta, "k1"))

    @given(mask=masks(), seed=seeds)
    @few
    def test_masked_positions_are_never_read(self, mask: Tensor, seed: int) -> None:
        own, ref, earned = drawn(mask.shape, seed, -2, 0), drawn(mask.shape, seed + 1, -2, 0), drawn([len(mask)], seed)
        right = arl.kl_penalized_rewards(earned, own, ref, mask, 0.5)
        for filler in FILLERS:
            one, other = (torch.where(mask, values, filler) for values in (own, ref))
            nothing = torch.where(mask.any(-1), earned, filler)
            assert torch.equal(arl.kl_penalized_rewards(nothing, one, other, mask, 0.5), right)

    def test_in_the_reward_k1_has_the_gradient_of_the_divergence_of_sequences(self) -> None:
        """Two tokens of three, the second's logits depend on the first: all nine sequences."""
        logits, refs = drawn([4, 3], 1, -1, 1).requires_grad_(), drawn([4, 3], 2, -1, 1)
        own, ref, mask = logits.log_softmax(-1), refs.log_softmax(-1), lengths_mask(2)
        exact = arl.exact_kl(own[0], ref[0]) + (own[0].exp() * arl.exact_kl(own[1:], ref[1:])).sum()
        right = torch.autograd.grad(exact, logits, retain_graph=True)[0]
        found, forward = torch.zeros_like(logits), torch.zeros_like(logits)
        for one, two in itertools.product(range(3), repeat=2):
            scores = torch.stack([own[0, one], own[1 + one, two]])[None]
            recorded = torch.stack([ref[0, one], ref[1 + one, two]])[None]
            chance = scores.detach().sum().exp()
            for kind, into in (("k1", found), ("k3", forward)):
                paid = arl.kl_penalized_rewards(column(0), scores.detach(), recorded, mask, 0.3, kind)
                loss = arl.policy_gradient_loss(scores, arl.discounted_returns(paid, mask), mask)
                into += chance * torch.autograd.grad(loss, logits, retain_graph=True)[0]
        assert close(found, 0.3 * right)
        assert not close(forward, 0.3 * right, 1e-3), "k3's is that of another"

    def test_what_cannot_be_is_refused(self) -> None:
        earned = column(1)
        for beta in (-0.1, math.nan, math.inf):
            with pytest.raises(ValueError, match=rf"beta is {beta}"):
                arl.kl_penalized_rewards(earned, self.OWN, self.REF, self.MASK, beta)
        for kind in ("k1+", "k3+", "k4"):
            with pytest.raises(ValueError, match=rf"'{kind[:2]}.*k1, k2 or k3"):
                arl.kl_penalized_rewards(earned, self.OWN, self.REF, self.MASK, 0.1, kind)
        wrong = torch.where(torch.tensor([0, 1, 0, 0, 0]) == 1, math.nan, self.REF)
        for name, columns in {
            "rewards": (column(math.nan), self.OWN, self.REF),
            "logprobs": (earned, wrong, self.REF),
            "ref_logprobs": (earned, self.OWN, wrong),
        }.items():
            with pytest.raises(ValueError, match=rf"^{name} at "):
                arl.kl_penalized_rewards(*columns, self.MASK, 0.1)
        with pytest.raises(ValueError, match=r"k3 at row 0, position 1: inf"):
            arl.kl_penalized_rewards(earned, table([-1, -1000]), table([-1, -1]), lengths_mask(2), 0.1, "k3")
        with pytest.raises(ValueError, match=r"logprobs .*detach"):
            arl.kl_penalized_rewards(earned, self.OWN.clone().requires_grad_(), self.REF, self.MASK, 0.1)
        with pytest.raises(TypeError, match="bool"):
            arl.kl_penalized_rewards(earned, self.OWN, self.REF, self.MASK.long(), 0.1)


class TestEntropyBonus:
    @each_mode
    @given(mask=masks(), seed=seeds)
    @few
    def test_it_is_the_aggregate_of_the_entropies_of_policy_tokens(self, mode: str, mask: Tensor, seed: int) -> None:
        logits = drawn([int(mask.sum()), 4], seed, -2, 2)
        found = arl.entropy_bonus(logits, mask, mode, **options(mode))
        entropies = torch.zeros(mask.shape, dtype=arl.DTYPE)
        for (row, place), one in zip(mask.nonzero().tolist(), logits.softmax(-1).tolist(), strict=True):
            entropies[row, place] = -math.fsum(p * math.log(p) for p in one)
        assert found.item() == pytest.approx(aggregate_in_loops(entropies, mask, mode), abs=1e-10)

    @each_mode
    @given(mask=masks(), seed=seeds, data=st.data())
    @few
    def test_parts_add_up_in_value_and_gradient(self, mode: str, mask: Tensor, seed: int, data: st.DataObject) -> None:
        cut = data.draw(st.integers(0, len(mask)))
        first = int(mask[:cut].sum())
        leaf = drawn([int(mask.sum()), 4], seed, -2, 2).requires_grad_()
        whole = arl.entropy_bonus(leaf, mask, mode, **options(mode))
        given = {"whole": arl.loss_counts(mask), **options(mode)}
        parts = [
            arl.entropy_bonus(leaf[rows], mask[own], mode, **given)
            for rows, own in ((slice(0, first), slice(0, cut)), (slice(first, None), slice(cut, None)))
        ]
        assert sum(part.item() for part in parts) == pytest.approx(whole.item(), abs=1e-12)
        found, right = (torch.autograd.grad(loss, leaf)[0] for loss in (parts[0] + parts[1], whole))
        assert close(found, right)

    def test_more_of_it_is_more_entropy(self) -> None:
        leaf = table([2, 0, 0]).requires_grad_()
        (slopes,) = torch.autograd.grad(arl.entropy_bonus(leaf, mask_of([0, 1])), leaf)
        assert slopes[0, 0] < 0 < slopes[0, 1]

    def test_other_tokens_than_those_of_the_mask_are_refused(self) -> None:
        for logits in (torch.zeros(3, 4), torch.zeros(2), torch.zeros(1, 2, 4)):
            with pytest.raises(ValueError, match=r"logits \[.*2 tokens.*\[2, V\]"):
                arl.entropy_bonus(logits, mask_of([1, 0, 1]))
        with pytest.raises(ValueError, match=r"row \[1\]"):
            arl.entropy_bonus(table([0, 0], [math.nan, 0]), mask_of([1, 1]))
        with pytest.raises(TypeError, match="bool"):
            arl.entropy_bonus(torch.zeros(2, 4), torch.ones(1, 2))


class TestAdaptive:
    @given(kls=st.lists(st.floats(-0.5, 3), max_size=8), gain=st.floats(0.01, 1), bound=st.floats(0.05, 0.9))
    @few
    def test_the_weight_moves_by_the_bounded_error(self, kls: list[float], gain: float, bound: float) -> None:
        controller, beta = arl.AdaptiveKL(0.2, 0.5, gain, bound), 0.2
        for kl in kls:
            beta *= 1 + gain * min(bound, max(-bound, (kl - 0.5) / 0.5))
            assert controller.update(kl) == pytest.approx(beta, rel=1e-12)
            assert controller.beta == pytest.approx(beta, rel=1e-12)

    def test_above_the_target_it_grows_below_it_falls_and_on_it_stays(self) -> None:
        """Ziegler's numbers: a tenth of an error of a fifth at most."""
        for kl, right in ((9.0, 1.02), (6.1, 1.02), (5.5, 1.01), (5.0, 1.0), (4.5, 0.99), (0.0, 0.98), (-1.0, 0.98)):
            assert arl.AdaptiveKL(1.0, 5.0).update(kl) == pytest.approx(right, abs=1e-12)

    @pytest.mark.parametrize("field", ["beta", "target", "gain", "bound"])
    @pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
    def test_what_cannot_be_is_refused(self, field: str, value: float) -> None:
        with pytest.raises(ValueError, match=rf"^{field} is {value}"):
            arl.AdaptiveKL(**{"beta": 0.1, "target": 1.0, field: value})

    def test_a_step_that_could_reach_0_and_a_divergence_that_is_none_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"gain 5.*bound 0\.2"):
            arl.AdaptiveKL(0.1, 1.0, 5.0, 0.2)
        controller = arl.AdaptiveKL(0.1, 1.0)
        for kl in (math.nan, math.inf):
            with pytest.raises(ValueError, match=str(kl)):
                controller.update(kl)
        assert controller.beta == 0.1


def scored(model: arl.TinyAgent, batch: arl.TrajectoryBatch, temperature: float = 1.0) -> Tensor:
    return arl.token_logprobs(model, batch.ids, batch.attention_mask, batch.action_mask, temperature)


def examples(seed: int = 0) -> arl.LabelledBatch:
    """Return labelled examples of random tokens."""
    ids, real = torch.randint(11, (3, 6), generator=arl.generator(seed)), lengths_mask(6, 4, 5)
    return torch.where(real, ids, 0), real, real & mask_of([0, 0, 1, 1, 1, 1])


class Recipe:
    """Three penalties by name, each with the term that it adds to a loss, computed on the whole batch."""

    def __init__(self, batch: arl.TrajectoryBatch, mode: str = "token-mean", temperature: float = 1.0) -> None:
        self.batch, self.mode, self.temperature = batch, mode, temperature

    def penalty(self, name: str, model: arl.TinyAgent) -> Any:
        if name == "kl":
            return arl.KLPenalty(
                tiny_model(5), 0.3, temperature=self.temperature, aggregation=self.mode, **options(self.mode)
            )
        if name == "entropy":
            return arl.EntropyBonus(0.3, self.mode, **options(self.mode))
        if name == "sum":
            return arl.PenaltySum(self.penalty("kl", model), self.penalty("entropy", model))
        return arl.SFTPenalty(model, examples, 0.3)

    def term(self, name: str, model: arl.TinyAgent) -> Tensor:
        batch, mask = self.batch, self.batch.action_mask
        if name == "kl":
            ref = scored(tiny_model(5), batch, self.temperature).detach()
            own = scored(model, batch, self.temperature)
            return 0.3 * arl.kl_loss(own, ref, mask, "k3+", batch.logprobs, self.mode, **options(self.mode))
        if name == "entropy":
            logits = arl.scored_logits(model, batch.ids, batch.attention_mask, mask) / self.temperature
            return -0.3 * arl.entropy_bonus(logits, mask, self.mode, **options(self.mode))
        if name == "sum":
            return self.term("kl", model) + self.term("entropy", model)
        ids, real, learn = examples()
        return -0.3 * arl.masked_mean(arl.token_logprobs(model, ids, real, learn), learn)


class TestPenalties:
    """What the penalties add to a loss in an update, whole or in parts."""

    @pytest.fixture
    def batch(self) -> arl.TrajectoryBatch:
        return episodes(tiny_model(1), 3)

    @pytest.mark.parametrize("name", ["kl", "entropy", "sft", "sum"])
    @pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum-norm"])
    @pytest.mark.parametrize("microbatch", [None, 1, 2])
    def test_in_microbatches_of_any_size_the_step_is_along_their_gradient(
        self, batch: arl.TrajectoryBatch, name: str, mode: str, microbatch: int | None
    ) -> None:
        model, recipe, advantages = tiny_model(), Recipe(batch, mode), drawn([len(batch)], 4)
        given: dict[str, Any] = {"aggregation": mode, **options(mode), "microbatch": microbatch}
        given |= {
            "penalty": recipe.penalty(name, model),
            "epochs": 1,
            "minibatches": 1,
            "max_grad_norm": None,
            "grid": None,
        }
        moved, (epoch,) = stepped_by(
            model, lambda optimizer: arl.ppo_update(model, optimizer, batch, advantages, arl.generator(0), **given)
        )
        fresh = tiny_model()
        loss = arl.ppo_policy_loss(
            scored(fresh, batch), batch.logprobs, advantages, batch.action_mask, aggregation=mode, **options(mode)
        ).loss
        term = recipe.term(name, fresh)
        right = torch.autograd.grad(loss + term, [*fresh.parameters()])
        assert all(close(step, slope) for step, slope in zip(moved, right, strict=True))
        assert epoch.penalty == pytest.approx(term.item(), abs=1e-12)
        assert epoch.loss == pytest.approx(loss.item(), abs=1e-12)
        assert abs(epoch.penalty) > 1e-3

    @pytest.mark.parametrize("name", ["kl", "entropy"])
    def test_they_are_at_the_temperature_of_the_sampling(self, batch: arl.TrajectoryBatch, name: str) -> None:
        cold = dataclasses.replace(batch, logprobs=scored(tiny_model(1), batch, 0.5).detach())
        model, recipe = tiny_model(), Recipe(cold, temperature=0.5)
        given: dict[str, Any] = {"epochs": 1, "minibatches": 1, "temperature": 0.5, "grid": None}
        _, (epoch,) = stepped_by(
            model,
            lambda optimizer: arl.ppo_update(
                model,
                optimizer,
                cold,
                column(*[0.0] * 5),
                arl.generator(0),
                penalty=recipe.penalty(name, model),
                **given,
            ),
        )
        assert epoch.penalty == pytest.approx(recipe.term(name, tiny_model()).item(), abs=1e-12)

    def test_minibatches_share_a_penalty_out(self, batch: arl.TrajectoryBatch) -> None:
        """At rate 0 the mean over the minibatches is the term of the whole batch."""
        for name in ("kl", "entropy", "sft"):
            model, recipe = tiny_model(), Recipe(batch)
            given: dict[str, Any] = {
                "epochs": 1,
                "minibatches": 3,
                "grid": None,
                "penalty": recipe.penalty(name, model),
            }
            optimizer = torch.optim.SGD(model.parameters(), 0.0)
            (epoch,) = arl.ppo_update(model, optimizer, batch, column(*[0.0] * 5), arl.generator(0), **given)
            assert epoch.penalty == pytest.approx(recipe.term(name, model).item(), abs=1e-12), name

    def test_examples_count_by_a_parts_share_of_the_policy_tokens(self, batch: arl.TrajectoryBatch) -> None:
        """Parts of other sizes draw other examples: a token of the policy's stands for as much of them in any part."""
        model = tiny_model()
        penalty, ids, real, learn = arl.SFTPenalty(model, examples, 2.0), *examples()
        whole = -arl.masked_mean(arl.token_logprobs(model, ids, real, learn), learn)
        for _, part in arl.microbatches(batch, 2):
            found = penalty(part, torch.zeros(0), torch.zeros(0), arl.LossCounts(40, 7))
            assert close(found.detach(), 2 * whole.item() * int(part.action_mask.sum()) / 40)

    def test_the_reference_is_a_copy_that_does_not_move_and_can_be_reset(self, batch: arl.TrajectoryBatch) -> None:
        model = tiny_model(1)
        penalty = arl.KLPenalty(model, 1.0)
        given = batch, scored(model, batch).detach(), torch.zeros(0), arl.loss_counts(batch.action_mask)
        assert penalty(*given).item() == pytest.approx(0, abs=1e-12)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.3 * torch.ones_like(weight).cumsum(-1) % 0.7)
        moved = batch, scored(model, batch).detach(), torch.zeros(0), arl.loss_counts(batch.action_mask)
        before = penalty(*moved).item()
        assert abs(before) > 1e-2
        assert penalty(*given).item() == pytest.approx(0, abs=1e-12), "the copy has not moved"
        assert not any(weight.requires_grad for weight in penalty.reference.parameters())
        assert all(weight.requires_grad for weight in model.parameters())
        penalty.beta = 2.0
        assert penalty(*moved).item() == pytest.approx(2 * before)
        penalty.reset(model)
        assert penalty(*moved).item() == pytest.approx(0, abs=1e-12)

    def test_a_checkpoint_brings_the_reference_and_the_weight_back(self) -> None:
        one, other = arl.KLPenalty(tiny_model(1), 0.7), arl.KLPenalty(tiny_model(2), 0.1)
        kept = copy.deepcopy(one.state_dict())
        other.load_state_dict(kept)
        assert other.beta == 0.7
        for weight, same in zip(one.reference.parameters(), other.reference.parameters(), strict=True):
            assert torch.equal(weight, same)

    def test_dropout_of_the_reference_is_off(self) -> None:
        model = tiny_model().train()
        assert not arl.KLPenalty(model, 0.1).reference.training
        assert model.training

    def test_a_weight_of_0_changes_no_step(self, batch: arl.TrajectoryBatch) -> None:
        def weights(penalty: Any, model: arl.TinyAgent) -> list[Tensor]:
            given: dict[str, Any] = {"epochs": 2, "minibatches": 2, "grid": None, "penalty": penalty}
            advantages = drawn([len(batch)], 4)
            return stepped_by(model, lambda o: arl.ppo_update(model, o, batch, advantages, arl.generator(0), **given))[
                0
            ]

        right = weights(None, tiny_model())
        model = tiny_model()
        for penalty, own in (
            (arl.KLPenalty(tiny_model(5), 0.0), tiny_model()),
            (arl.EntropyBonus(0.0), tiny_model()),
            (arl.SFTPenalty(model, examples, 0.0), model),
        ):
            assert all(map(torch.equal, weights(penalty, own), right))

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_kind_is_the_one_that_is_named(self, batch: arl.TrajectoryBatch, kind: str) -> None:
        own = scored(tiny_model(), batch).detach().requires_grad_()
        counts = arl.loss_counts(batch.action_mask)
        found = arl.KLPenalty(tiny_model(5), 1.0, kind)(batch, own, torch.zeros(0), counts)
        ref = scored(tiny_model(5), batch).detach()
        right = arl.kl_loss(own, ref, batch.action_mask, kind, batch.logprobs, "seq-mean-token-mean")
        assert found == right
        assert torch.equal(*(torch.autograd.grad(loss, own)[0] for loss in (found, right)))

    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            *((lambda w=w: arl.KLPenalty(tiny_model(), w), rf"beta is {w}") for w in (-0.1, math.nan, math.inf)),
            *((lambda w=w: arl.EntropyBonus(w), rf"weight is {w}") for w in (-0.1, math.nan, math.inf)),
            *((lambda w=w: arl.SFTPenalty(tiny_model(), examples, w), rf"weight is {w}") for w in (-0.1, math.nan)),
            (lambda: arl.KLPenalty(tiny_model(), 0.1, "k4"), "'k4'"),
            (lambda: arl.KLPenalty(tiny_model(), 0.1, temperature=0.0), "temperature 0"),
            (lambda: arl.KLPenalty(tiny_model(), 0.1, aggregation="mean"), "'mean'"),
            (lambda: arl.EntropyBonus(0.1, "mean"), "'mean'"),
            (lambda: arl.EntropyBonus(0.1, "seq-mean-token-sum-norm"), "norm_length is None"),
            (lambda: arl.KLPenalty(tiny_model(), 0.1, norm_length=3.0), r"norm_length is 3\.0"),
        ],
    )
    def test_what_cannot_be_is_refused_before_any_training(self, make: Callable[[], Any], reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            make()


class TestTraining:
    """The penalties in `train`."""

    TOKENIZER, TASKS = arl.gym_tokenizer(), arl.bugfix_tasks()[:2]

    def agent(self) -> arl.TinyAgent:
        """Return a small agent as it is drawn."""
        sizes = {"width": 16, "layers": 1, "heads": 2}
        return arl.TinyAgent(arl.TinyAgentConfig(len(self.TOKENIZER), **sizes), arl.generator(0))

    @staticmethod
    def two_turns(task: arl.BugFixTask, generator: torch.Generator) -> arl.BugFixEnv:
        """Return an environment whose episodes are short."""
        return arl.BugFixEnv(task, max_turns=2, detail="short")

    def trained(self, make: Callable[[arl.TinyAgent], Any], **given: Any) -> tuple[arl.TinyAgent, arl.History]:
        """Return an agent and the history of a training in which nothing is rewarded but low numbers of tokens."""
        model = self.agent()
        config = arl.TrainConfig(
            **{"iterations": 3, "attempts": 4, "max_turn_tokens": 2, "learning_rate": 2e-2, **given}
        )
        history = arl.train(
            model, self.TOKENIZER, self.TASKS, config, penalty=make(model),
            make_env=self.two_turns,
            rewards=lambda batch: -torch.where(batch.action_mask, batch.ids, 0).sum(1).to(arl.DTYPE) / 100,
        )  # fmt: skip
        return model, history

    def divergence(self, make: Callable[[arl.TinyAgent], Any]) -> float:
        """Return the exact KL from the trained to the untrained agent, a mean over tokens."""
        model, _ = self.trained(make, iterations=6, learning_rate=5e-2)
        given = {"make_env": self.two_turns, "max_turn_tokens": 2}
        batch = arl.collate(arl.rollout(model, self.TOKENIZER, self.TASKS, 4, 0, **given))
        tables = batch.ids, batch.attention_mask, batch.action_mask
        with torch.no_grad():
            return arl.exact_kl(*(arl.scored_logits(one, *tables) for one in (model, self.agent()))).mean().item()

    def test_a_penalty_holds_the_policy_near_its_start(self) -> None:
        free = self.divergence(lambda model: None)
        held = self.divergence(lambda model: arl.KLPenalty(model, 1.0))
        assert 0 < held < free / 2

    def test_a_sum_keeps_what_its_terms_remember(self) -> None:
        first = arl.PenaltySum(arl.EntropyBonus(0.1), arl.KLPenalty(self.agent(), 0.1))
        other = arl.KLPenalty(self.agent(), 0.7)
        with torch.no_grad():
            for weights in other.reference.parameters():
                weights.add_(1.0)
        arl.PenaltySum(arl.EntropyBonus(0.1), other).load_state_dict(first.state_dict())
        assert other.beta == 0.1
        assert all(map(torch.equal, other.reference.parameters(), self.agent().parameters()))

    @pytest.mark.parametrize("terms", [(), (0.1,), ([arl.EntropyBonus(0.1)],)])
    def test_a_sum_of_what_is_no_penalty_is_refused(self, terms: tuple) -> None:
        with pytest.raises(TypeError, match="terms are"):
            arl.PenaltySum(*terms)

    def test_a_bonus_keeps_the_entropy_up(self) -> None:
        last = [
            self.trained(make, iterations=6, learning_rate=5e-2)[1].column("entropy")[-1]
            for make in (lambda _: None, lambda _: arl.EntropyBonus(1.0))
        ]
        assert last[1] > last[0] + 0.5

    def test_examples_mixed_in_are_learnt(self) -> None:
        told = arl.labelled_batch(self.TOKENIZER, [[("prompt", "fix"), ("policy", "<call> read </call>")]] * 2)
        _, history = self.trained(lambda model: arl.SFTPenalty(model, lambda: told, 5.0), iterations=4)
        assert history.column("penalty")[-1] < history.column("penalty")[0] - 1
        assert history.column("penalty")[0] > 0

    def test_an_adaptive_weight_and_a_reset_reach_the_next_iteration(self) -> None:
        made: list[arl.KLPenalty] = []

        def make(model: arl.TinyAgent) -> arl.KLPenalty:
            made.append(arl.KLPenalty(model, 0.1, "k3"))
            return made[0]

        def callback(state: arl.TrainState) -> None:
            made[0].reset(state.model)

        _, history = self.trained(make, epochs=1, minibatches=1)
        assert history.column("penalty")[0] == pytest.approx(0, abs=1e-12)
        assert history.column("penalty")[1] > 1e-4
        made.clear()
        again = self.agent()
        other = arl.train(
            again, self.TOKENIZER, self.TASKS, history.config, penalty=make(again), callback=callback,
            make_env=self.two_turns,
        )  # fmt: skip
        assert other.column("penalty") == pytest.approx([0] * 3, abs=1e-12)


class TestDistinctCorrect:
    def episode(self, tokens: list[int], task: int = 0, end: str = "submitted", **info: Any) -> arl.Trajectory:
        """Return an episode of these tokens after a start token, repaired if nothing else is said."""
        ids = torch.tensor([1, *tokens])
        mask = torch.arange(len(ids)) > 0
        logprobs = torch.where(mask, torch.tensor(-0.5, dtype=arl.DTYPE), math.nan)
        told = {"public_pass": True, "hidden_pass": True, "hacked": False, **info}
        return arl.Trajectory(ids, mask, logprobs, mask * 2, mask.long() - 1, 1.0, end, task, 0, told)

    def test_it_counts_pairs_of_a_task_and_what_was_written(self) -> None:
        one = self.episode([3, 4])
        assert arl.distinct_correct([]) == 0
        assert arl.distinct_correct([one, self.episode([3, 4]), self.episode([4, 3]), self.episode([3])]) == 3
        assert arl.distinct_correct(iter([one, self.episode([3, 4], task=7)])) == 2
        with pytest.raises(TypeError, match=r"batch\.split"):
            arl.distinct_correct(arl.collate([one]))  # pyright: ignore[reportArgumentType]

    def test_only_what_was_repaired_counts_whatever_the_reward(self) -> None:
        failed = self.episode([5], hidden_pass=False)
        hacked = self.episode([6], hidden_pass=False, hacked=True)
        out = self.episode([7], end="out_of_turns")
        assert arl.distinct_correct([failed, hacked, out, self.episode([8])]) == 1

    def test_what_tools_wrote_does_not_tell_two_apart(self) -> None:
        one, other = self.episode([3, 4, 5]), self.episode([3, 9, 5])
        made = [
            dataclasses.replace(
                each,
                action_mask=mask_of([0, 1, 0, 1])[0],
                writer=torch.tensor([0, 2, 3, 2]),
                logprobs=torch.tensor([math.nan, -0.5, math.nan, -0.5], dtype=arl.DTYPE),
                turn=torch.tensor([-1, 0, 0, 1]),
            )
            for each in (one, other)
        ]
        assert arl.distinct_correct(made) == 1


def test_every_aggregation_is_known_to_the_kl() -> None:
    """The names in `AGGREGATIONS` are the library's."""
    assert AGGREGATIONS == arl.AGGREGATIONS
