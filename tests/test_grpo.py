"""Chapter 9's advantages and losses, groups, sequences' ratios, weights that are held; and what `train` does."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from token_losses import (
    CISPO_CLIPS,
    FILLERS,
    GSPO_CLIPS,
    aggregate_in_loops,
    cispo_loss,
    cispo_of,
    close,
    column,
    each_mode,
    few,
    filled,
    gspo_loss,
    gspo_of,
    lengths_mask,
    mask_of,
    masks,
    options,
    policy_loss,
    seeds,
    table,
)
from torch import Tensor

import agentrl as arl

G6_RATIOS = table([1.2, 1.3, 1.5, 0.7, 0.5, 4])
ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "group-std": partial(arl.group_mean_advantages, scale="group"),
    "group": partial(arl.group_mean_advantages, scale="none"),
    "batch-std": partial(arl.group_mean_advantages, scale="batch"),
    "leave-one-out": arl.leave_one_out_advantages,
}


def centred(group: Sequence[float], normalize_std: bool = False, eps: float = 1e-6) -> list[float]:
    """Return the advantages of a group by the definition; 0 where all rewards are equal."""
    mean = math.fsum(group) / len(group)
    deviation = math.sqrt(math.fsum((reward - mean) ** 2 for reward in group) / (len(group) - 1))
    if min(group) == max(group):
        return [0.0] * len(group)
    return [(reward - mean) / (deviation + eps if normalize_std else 1) for reward in group]


@st.composite
def rewards_tables(draw: st.DrawFn) -> Tensor:
    """Return rewards [P, G], of few different numbers, so that groups of equal ones are frequent."""
    shape = draw(st.integers(1, 4)), draw(st.integers(2, 5))
    number = st.sampled_from([0.0, 1.0, 0.1, -0.5, 3.25])
    return table(*[[draw(number) for _ in range(shape[1])] for _ in range(shape[0])])


class TestAdvantages:
    @given(rewards=rewards_tables(), normalize_std=st.booleans(), eps=st.sampled_from([1e-6, 1e-4, 0.5]))
    @few
    def test_they_are_the_definition_in_loops(self, rewards: Tensor, normalize_std: bool, eps: float) -> None:
        found = arl.grpo_advantages(rewards, normalize_std, eps)
        right = [centred(group, normalize_std, eps) for group in rewards.tolist()]
        assert close(found, right, 1e-10)
        assert (found[(rewards == rewards[:, :1]).all(1)] == 0).all()

    def test_g3_golden_numbers(self) -> None:
        """G3; V03 (rllm#447): with the flag off it is Dr. GRPO, with it on GRPO."""
        rewards = table([1, 0, 0, 0])
        assert close(arl.grpo_advantages(rewards), [[1.499997, *[-0.499999] * 3]], 1e-6)
        assert close(arl.grpo_advantages(rewards, normalize_std=False), [[0.75, *[-0.25] * 3]])
        assert close(arl.grpo_advantages(rewards, eps=1e-4), [[1.4997, *[-0.4999] * 3]], 1e-4)
        assert close(arl.grpo_advantages(table([0.5, 0.51, 0.5, 0.51])), [[-0.865875, 0.865875] * 2], 1e-4)

    def test_groups_are_rows_and_know_nothing_of_each_other(self) -> None:
        """V02 (TRL#3992): of [0, 1] and [0, 10] each is divided by its own deviation."""
        found = arl.grpo_advantages(table([0, 1], [0, 10]))
        assert close(found, [[-0.7071, 0.7071], [-0.7071, 0.7071]], 1e-4)
        assert torch.equal(found[1:], arl.grpo_advantages(table([0, 10])))

    @pytest.mark.parametrize("reward", [0.1, 1 / 3, 1e6])
    def test_equal_rewards_are_exactly_0(self, reward: float) -> None:
        found = arl.grpo_advantages(torch.full((2, 7), reward, dtype=arl.DTYPE), eps=0.0)
        assert (found == 0).all()

    def test_v04_a_group_of_one_is_refused_and_named(self) -> None:
        """V04 (OpenRLHF#1250)."""
        with pytest.raises(ValueError, match=r"group 0 has one attempt"):
            arl.grpo_advantages(table([1], [0]))

    def test_whole_numbers_and_booleans_are_rewards(self) -> None:
        rewards = torch.tensor([[1, 0, 0], [0, 0, 1]])
        right = arl.grpo_advantages(rewards.to(arl.DTYPE))
        assert torch.equal(arl.grpo_advantages(rewards), right)
        assert torch.equal(arl.grpo_advantages(rewards == 1), right)

    def test_an_attempt_without_a_verdict_is_refused_with_its_group(self) -> None:
        with pytest.raises(ValueError, match=r"nan.*group 1.*leave"):
            arl.grpo_advantages(table([1, 0], [0, math.nan]))
        with pytest.raises(ValueError, match=r"rewards .*inf"):
            arl.grpo_advantages(table([1, 0], [0, math.inf]))

    def test_rewards_that_are_no_table_are_refused(self) -> None:
        for rewards in (column(1, 0), torch.zeros(1, 2, 3)):
            with pytest.raises(ValueError, match=r"rewards \[.*\[P, G\]"):
                arl.grpo_advantages(rewards)

    @pytest.mark.parametrize("attempts", [2, 3, 4])
    def test_over_all_that_can_be_drawn_they_give_the_policy_gradient_up_to_a_factor(self, attempts: int) -> None:
        """Leave-one-out is unbiased; minus the group's mean is (G - 1) / G of it; over the deviation is neither."""
        logits, earns = table([0.3, -0.5, 0.1])[0].requires_grad_(), [1.0, 0.2, -0.4]
        logs = logits.log_softmax(-1)
        exact = torch.autograd.grad((logs.exp() * column(*earns)).sum(), logits, retain_graph=True)[0]
        slopes = [torch.autograd.grad(log, logits, retain_graph=True)[0] for log in logs]
        means = {name: torch.zeros(3, dtype=arl.DTYPE) for name in ESTIMATORS}
        for drawn in itertools.product(range(3), repeat=attempts):
            chance = math.prod(logs[action].exp().item() for action in drawn)
            rewards, group = column(*(earns[action] for action in drawn)), torch.zeros(attempts, dtype=torch.int64)
            for name, estimate in ESTIMATORS.items():
                for advantage, action in zip(estimate(rewards, group).tolist(), drawn, strict=True):
                    means[name] += chance * advantage * slopes[action] / attempts
        assert close(means["leave-one-out"], exact)
        assert close(means["group"], exact * (attempts - 1) / attempts)
        across = means["group-std"] / exact
        assert attempts == 2 or across.max() - across.min() > 1e-3, "of two attempts the sign alone is left"


class TestInformativeGroups:
    @given(
        rewards=st.lists(st.sampled_from([0.0, 1.0, 0.1]), max_size=9),
        names=st.lists(st.sampled_from([0, 7, 10**13, -2]), min_size=9, max_size=9),
    )
    @few
    def test_they_are_those_whose_rewards_are_not_all_equal(self, rewards: list[float], names: list[int]) -> None:
        names = names[: len(rewards)]
        seen = {name: {r for r, other in zip(rewards, names, strict=True) if other == name} for name in names}
        found = arl.informative_groups(column(*rewards), torch.tensor(names, dtype=torch.int64))
        assert found.dtype == torch.bool
        assert found.tolist() == [len(seen[name]) > 1 for name in names]

    def test_they_are_those_that_have_advantages(self) -> None:
        rewards, groups = column(1, 0, 1, 1, 0.1, 0.1, 0.1), torch.tensor([4, 4, 4, 5, 2, 2, 2])
        assert arl.informative_groups(rewards, groups).tolist() == [True] * 3 + [False] * 4
        twice = torch.cat([rewards, rewards]), torch.cat([groups, groups])
        for estimate in ESTIMATORS.values():
            assert torch.equal(estimate(*twice) != 0, arl.informative_groups(*twice))

    @pytest.mark.parametrize(("attempts", "dead"), [(2, 0.702), (4, 0.449), (8, 0.201), (16, 0.040)])
    def test_v21_the_share_of_dead_groups(self, attempts: int, dead: float) -> None:
        """V21: successes at p = .1819; a group of each number of them, with its chance."""
        p = 0.1819
        outcomes = [[1.0] * wins + [0.0] * (attempts - wins) for wins in range(attempts + 1)]
        groups = torch.arange(attempts + 1)[:, None].expand(-1, attempts).flatten()
        lives = arl.informative_groups(table(*outcomes).flatten(), groups).view(-1, attempts)[:, 0]
        chances = [math.comb(attempts, wins) * p**wins * (1 - p) ** (attempts - wins) for wins in range(attempts + 1)]
        assert 1 - float(lives.to(arl.DTYPE) @ column(*chances)) == pytest.approx(dead, abs=5e-4)

    def test_what_are_no_rewards_of_groups_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"position 1: nan"):
            arl.informative_groups(column(0, math.nan), torch.tensor([0, 0]))
        for rewards, groups in (
            (table([0, 1]), torch.tensor([[0, 0]])),
            (column(0, 1), torch.tensor([0, 0, 0])),
            (column(0, 1), column(0, 0)),
        ):
            with pytest.raises(ValueError, match=r"rewards \[.*groups torch"):
                arl.informative_groups(rewards, groups)


class TestOverlongPenalty:
    @given(lengths=st.lists(st.integers(0, 50), max_size=6), max_length=st.integers(1, 40), share=st.floats(0.01, 1))
    @few
    def test_it_is_the_definition_in_loops(self, lengths: list[int], max_length: int, share: float) -> None:
        buffer = max(1, int(share * max_length))
        right = []
        for length in lengths:
            start = max_length - buffer
            right.append(0.0 if length <= start else -1.0 if length > max_length else (start - length) / buffer)
        found = arl.overlong_penalty(torch.tensor(lengths, dtype=torch.int64), max_length, buffer)
        assert close(found, right)

    def test_its_corners(self) -> None:
        lengths = torch.tensor([0, 15, 16, 17, 18, 20, 21, 10**6])
        found = arl.overlong_penalty(lengths, 20, 4)
        assert found.tolist() == [0, 0, 0, -0.25, -0.5, -1, -1, -1]
        assert found.dtype == arl.DTYPE
        assert arl.overlong_penalty(torch.tensor([0, 1, 2]), 2, 2).tolist() == [0, -0.5, -1]
        assert arl.overlong_penalty(torch.tensor([19, 20]), 20, 1).tolist() == [0, -1]
        assert not torch.signbit(found[:3]).any(), "no negative zero"

    @pytest.mark.parametrize(("max_length", "buffer"), [(20, 0), (20, -1), (4, 5), (0, 0)])
    def test_a_buffer_that_cannot_be_is_refused(self, max_length: int, buffer: int) -> None:
        with pytest.raises(ValueError, match=rf"buffer {buffer}, max_length {max_length}"):
            arl.overlong_penalty(torch.tensor([1]), max_length, buffer)


def tokens_of(columns: dict[str, Tensor], mask: Tensor) -> list[list[tuple[float, float, float, int]]]:
    """Return for each row its policy tokens: new and old log-probability, advantage, position."""
    rows = []
    for row, keep in enumerate(mask.tolist()):
        places = [place for place, kept in enumerate(keep) if kept]
        advantages = columns["advantages"][row].expand(mask.shape[1])
        new, old = columns["logprobs"][row], columns["old_logprobs"][row]
        rows.append([(float(new[t]), float(old[t]), float(advantages[t]), t) for t in places])
    return rows


def gspo_in_loops(columns: dict[str, Tensor], mask: Tensor, low: float, high: float) -> tuple[float, Tensor, int]:
    """Return loss, gradient and number of clipped tokens, by the definition: a mean of the means of sequences."""
    gradient, losses, clipped = torch.zeros_like(columns["logprobs"]), [], 0
    rows = tokens_of(columns, mask)
    sequences = sum(1 for tokens in rows if tokens)
    for row, tokens in enumerate(rows):
        if not tokens:
            continue
        ratio = math.exp(math.fsum(new - old for new, old, _, _ in tokens) / len(tokens))
        for _, _, advantage, t in tokens:
            band = min(max(ratio, 1 - low), 1 + high)
            removed = min(ratio * advantage, band * advantage) < ratio * advantage
            losses.append(-min(ratio * advantage, band * advantage) / len(tokens) / sequences)
            gradient[row, t] = 0.0 if removed else -ratio * advantage / len(tokens) / sequences
            clipped += removed
    return math.fsum(losses), gradient, clipped


def cispo_in_loops(columns: dict[str, Tensor], mask: Tensor, low: float, high: float) -> tuple[Tensor, Tensor, int]:
    """Return the tokens' losses and the slopes of their own terms, both [B, T], and how many weights were held."""
    losses, slopes = torch.zeros_like(columns["logprobs"]), torch.zeros_like(columns["logprobs"])
    held = 0
    for row, tokens in enumerate(tokens_of(columns, mask)):
        for new, old, advantage, t in tokens:
            ratio = math.exp(new - old)
            weight = min(max(ratio, 1 - low), 1 + high)
            losses[row, t], slopes[row, t] = -weight * advantage * new, -weight * advantage
            held += weight != ratio
    return losses, slopes, held


def differentiated(call: Callable[..., Any], columns: dict[str, Tensor], mask: Tensor, **given: Any) -> tuple:
    """Return a policy loss and its gradient by the log-probabilities."""
    leaf = columns["logprobs"].clone().requires_grad_()
    found = call({**columns, "logprobs": leaf}, mask, **given)
    return found, torch.autograd.grad(found.loss, leaf)[0]


def on_g6(call: Callable[..., Any], advantage: float, **given: Any) -> tuple[Any, list[float]]:
    """Return a loss on G6's ratios, old log-probabilities -2, and 6 times its gradient."""
    old = torch.full_like(G6_RATIOS, -2)
    columns = {"logprobs": old + G6_RATIOS.log(), "old_logprobs": old, "advantages": column(advantage)}
    found, gradient = differentiated(call, columns, lengths_mask(6), **given)
    return found, (6 * gradient)[0].tolist()


class TestGspo:
    @pytest.mark.parametrize("clip", GSPO_CLIPS)
    @pytest.mark.parametrize("by_row", [("advantages",), ()], ids=["an episode", "a token"])
    @given(mask=masks(), seed=seeds)
    @few
    def test_value_and_gradient_are_the_definition_in_loops(
        self, clip: str, by_row: tuple[str, ...], mask: Tensor, seed: int
    ) -> None:
        columns = gspo_of(clip, by_row).draw(mask, seed)
        found, gradient = differentiated(gspo_loss, columns, mask, **GSPO_CLIPS[clip])
        bounds = {"clip_low": 3e-4, "clip_high": 4e-4, **GSPO_CLIPS[clip]}
        loss, slopes, clipped = gspo_in_loops(columns, mask, *bounds.values())
        assert found.loss.item() == pytest.approx(loss, abs=1e-12)
        assert close(gradient, slopes)
        assert found.clip_fraction == pytest.approx(clipped / int(mask.sum()), abs=1e-12)
        assert found.dual_clip_fraction == 0

    def test_g8_golden_numbers(self) -> None:
        """G8: lengths 3 and 4, advantages 1 and -1; what stands in the padding is not read."""
        columns = {
            "logprobs": table([-0.9, -1.9, -1.2, 5], [-1, -0.7, -1.1, -1.05]),
            "old_logprobs": table([-1, -2, -1, 0], [-1] * 4),
            "advantages": column(1, -1),
        }
        for bounds in GSPO_CLIPS.values():
            found, gradient = differentiated(gspo_loss, columns, lengths_mask(3, 4), **bounds)
            assert found.loss.item() == pytest.approx(0.019106, abs=1e-6)
            assert close(gradient, [[-1 / 6] * 3 + [0], [0.129777] * 4], 1e-6)
            assert found.clip_fraction == 0

    def test_l07_the_ratio_of_a_sequence_is_the_mean_not_the_sum(self) -> None:
        """L07 (OpenRLHF): .1 on each of four tokens; as shipped e^.4."""
        columns = {"logprobs": table([-0.9] * 4), "old_logprobs": table([-1] * 4), "advantages": column(1)}
        found, _ = differentiated(gspo_loss, columns, lengths_mask(4), **GSPO_CLIPS["no clip"])
        assert -found.loss.item() == pytest.approx(1.105171, abs=1e-6)
        assert math.exp(0.4) == pytest.approx(1.491825, abs=1e-6), "as shipped"

    def test_the_ratio_is_that_of_policy_tokens(self) -> None:
        """M15 (slime#365): tool tokens are neither in the sum nor in the length."""
        columns = {"logprobs": table([-0.9, -7, -7, -0.9]), "old_logprobs": table([-1] * 4), "advantages": column(1)}
        found, gradient = differentiated(gspo_loss, columns, mask_of([1, 0, 0, 1]), **GSPO_CLIPS["no clip"])
        assert -found.loss.item() == pytest.approx(math.exp(0.1), abs=1e-12)
        assert close(gradient, [[-math.exp(0.1) / 2, 0, 0, -math.exp(0.1) / 2]])

    def test_all_tokens_of_a_sequence_are_clipped_or_none(self) -> None:
        """One token of ratio 4 among tokens of 1: PPO clips it alone, GSPO all or none of its sequence."""
        columns = {
            "logprobs": table([math.log(4) - 6, -2, -2, -2], [-2, -2, -2, -2.1]),
            "old_logprobs": table([-6, -2, -2, -2], [-2] * 4),
            "advantages": column(1, 1),
        }
        mask = lengths_mask(4, 4)
        found, gradient = differentiated(gspo_loss, columns, mask, clip_low=0.2, clip_high=0.2)
        assert (found.clip_fraction, gradient[0].tolist()) == (0.5, [0] * 4)
        assert gradient[1].any()
        plain, slopes = differentiated(policy_loss, columns, mask)
        assert (plain.clip_fraction, slopes[0, 0].item()) == (1 / 8, 0)

    def test_the_default_bounds_are_the_papers(self) -> None:
        columns = gspo_of("the paper's band").draw(mask := lengths_mask(2, 4), 5)
        assert gspo_loss(columns, mask) == gspo_loss(columns, mask, clip_low=3e-4, clip_high=4e-4)


class TestCispo:
    @each_mode
    @pytest.mark.parametrize("clip", CISPO_CLIPS)
    @given(mask=masks(), seed=seeds)
    @few
    def test_value_and_gradient_are_the_definition_in_loops(
        self, mode: str, clip: str, mask: Tensor, seed: int
    ) -> None:
        columns = cispo_of(mode, clip).draw(mask, seed)
        given = {"aggregation": mode, **options(mode), **CISPO_CLIPS[clip]}
        found, gradient = differentiated(cispo_loss, columns, mask, **given)
        losses, slopes, held = cispo_in_loops(columns, mask, *CISPO_CLIPS[clip].values())
        assert found.loss.item() == pytest.approx(aggregate_in_loops(losses, mask, mode), abs=1e-12)
        leaf = columns["logprobs"].clone().requires_grad_()
        right = torch.autograd.grad(arl.aggregate_loss(leaf * slopes, mask, mode, **options(mode)), leaf)[0]
        assert close(gradient, right)
        assert found.clip_fraction == pytest.approx(held / int(mask.sum()), abs=1e-12)
        assert found.dual_clip_fraction == 0

    @pytest.mark.parametrize(
        ("where", "bounds", "right"),
        [
            ("verl and slime", {"clip_low": 0.2, "clip_high": 0.28}, [-1.2, -1.28, -1.28, -0.8, -0.8, -1.28]),
            ("open-instruct", {"clip_low": 1.0, "clip_high": 0.28}, [-1.2, -1.28, -1.28, -0.7, -0.5, -1.28]),
            ("TRL, bound 5", {"clip_low": 1.0, "clip_high": 4.0}, [-1.2, -1.3, -1.5, -0.7, -0.5, -4]),
            ("the defaults", {}, [-1.2, -1.3, -1.5, -0.7, -0.5, -4]),
        ],
    )
    def test_g7_golden_numbers(self, where: str, bounds: dict[str, float], right: list[float]) -> None:
        """G7: torchrl 0.14.1 loses all gradients but the first."""
        _, gradient = on_g6(cispo_loss, 1.0, **bounds)
        assert gradient == pytest.approx(right, abs=1e-12), where
        _, gradient = on_g6(cispo_loss, -1.0, **bounds)
        assert gradient == pytest.approx([-slope for slope in right], abs=1e-12), where

    def test_l06_bounds_are_offsets_from_1(self) -> None:
        """L06 (SkyRL#1928): bounds 0 and 5; as shipped 1 and 6, and a ratio of .3 weighed 1."""
        columns = {"logprobs": table([math.log(0.3) - 1]), "old_logprobs": table([-1]), "advantages": column(1)}
        _, gradient = differentiated(cispo_loss, columns, lengths_mask(1), clip_low=1.0, clip_high=4.0)
        assert gradient.item() == pytest.approx(-0.3, abs=1e-12)
        _, shipped = differentiated(cispo_loss, columns, lengths_mask(1), clip_low=0.0, clip_high=5.0)
        assert shipped.item() == pytest.approx(-1, abs=1e-12)

    @pytest.mark.parametrize("logprob", [-0.1, -2.0])
    def test_o05_the_weight_carries_no_gradient(self, logprob: float) -> None:
        """O05 (verl#4105): a ratio of 1.5 weighs 1.5, whatever the log-probability."""
        columns = {
            "logprobs": table([logprob]),
            "old_logprobs": table([logprob - math.log(1.5)]),
            "advantages": column(1),
        }
        _, gradient = differentiated(cispo_loss, columns, lengths_mask(1))
        assert gradient.item() == pytest.approx(-1.5, abs=1e-12)

    def test_it_counts_weights_held_not_gradients_removed(self) -> None:
        found, gradient = on_g6(cispo_loss, 1.0, clip_low=0.2, clip_high=0.28)
        assert found.clip_fraction == pytest.approx(5 / 6)
        assert 0 not in gradient

    def test_the_defaults_are_the_upper_bound_alone_and_the_mean_over_tokens(self) -> None:
        columns = cispo_of("token-mean", "one bound").draw(mask := lengths_mask(2, 4), 5)
        right = cispo_loss(columns, mask, clip_low=1.0, clip_high=4.0, aggregation="token-mean")
        assert cispo_loss(columns, mask) == right
        far = {"logprobs": table([0.0]), "old_logprobs": table([-math.log(7)]), "advantages": column(1)}
        assert differentiated(cispo_loss, far, lengths_mask(1))[1].item() == pytest.approx(-5)


BOTH = pytest.mark.parametrize("call", [gspo_loss, cispo_loss], ids=["gspo", "cispo"])


class TestBothLosses:
    """What chapter 8's loss owes, too: its diagnostics, its refusals, and what it is on the policy that sampled."""

    @BOTH
    @given(mask=masks(), seed=seeds)
    @few
    def test_on_the_policy_that_sampled_they_are_the_policy_gradient(
        self, call: Callable[..., Any], mask: Tensor, seed: int
    ) -> None:
        """E10: first ratio 1, KL 0, clip fraction 0, and REINFORCE's gradient."""
        columns = gspo_of("no clip").draw(mask, seed)
        same = {**columns, "old_logprobs": columns["logprobs"]}
        found, gradient = differentiated(call, same, mask)
        assert (found.ratio_mean, found.ratio_max) == (pytest.approx(1, abs=1e-12), 1)
        assert (found.approx_kl, found.clip_fraction, found.dual_clip_fraction) == (0, 0, 0)
        leaf = columns["logprobs"].clone().requires_grad_()
        mode = "seq-mean-token-mean" if call is gspo_loss else "token-mean"
        plain = arl.policy_gradient_loss(leaf, columns["advantages"], mask, mode)
        assert close(gradient, torch.autograd.grad(plain, leaf)[0])

    @BOTH
    @given(mask=masks(), seed=seeds)
    @few
    def test_the_diagnostics_are_those_of_tokens_and_of_policy_tokens_alone(
        self, call: Callable[..., Any], mask: Tensor, seed: int
    ) -> None:
        columns = gspo_of("a wide band").draw(mask, seed)
        found = call(columns, mask, clip_low=0.2, clip_high=0.28)
        right = policy_loss(columns, mask)
        for name in ("approx_kl", "ratio_mean", "ratio_max"):
            assert getattr(found, name) == pytest.approx(getattr(right, name), abs=1e-12), name
        for name in ("logprobs", "old_logprobs"):
            for filler in (*FILLERS, 99.0):
                again = call(filled(columns, name, mask, filler), mask, clip_low=0.2, clip_high=0.28)
                assert again[1:] == found[1:], (name, filler)

    @BOTH
    @given(mask=masks(), seed=seeds, data=st.data())
    @few
    def test_the_diagnostics_of_parts_add_up(
        self, call: Callable[..., Any], mask: Tensor, seed: int, data: st.DataObject
    ) -> None:
        columns, cut = gspo_of("a wide band").draw(mask, seed), data.draw(st.integers(0, len(mask)))
        given = {"clip_low": 0.2, "clip_high": 0.28}
        parts = [
            call(
                {name: values[rows] for name, values in columns.items()},
                mask[rows],
                whole=arl.loss_counts(mask),
                **given,
            )
            for rows in (slice(0, cut), slice(cut, None))
        ]
        right = call(columns, mask, **given)
        for name in ("clip_fraction", "approx_kl", "ratio_mean"):
            assert sum(getattr(part, name) for part in parts) == pytest.approx(getattr(right, name), abs=1e-12), name
        assert max(part.ratio_max for part in parts) == right.ratio_max

    @BOTH
    @pytest.mark.parametrize(
        ("name", "value"),
        [("clip_low", -0.1), ("clip_low", 1.5), ("clip_low", math.nan), ("clip_high", -0.1), ("clip_high", math.nan)],
    )
    def test_a_bound_that_cannot_be_is_refused(self, call: Callable[..., Any], name: str, value: float) -> None:
        with pytest.raises(ValueError, match=rf"^{name} is {value}"):
            on_g6(call, 1.0, **{name: value})

    @BOTH
    def test_a_ratio_beyond_the_range_of_floats_is_refused_with_its_place(self, call: Callable[..., Any]) -> None:
        columns = {"logprobs": table([0, 0], [0, 0]), "old_logprobs": table([0, 0], [-800, -800])}
        with pytest.raises(ValueError, match=r"^ratios .*row 1.*inf"):
            call({**columns, "advantages": column(1, 0)}, lengths_mask(2, 2))

    @BOTH
    def test_o17_advantages_of_0_leave_no_gradient(self, call: Callable[..., Any]) -> None:
        """O17 (verl#3274): whatever the ratios."""
        _, gradient = on_g6(call, 0.0)
        assert not any(gradient)

    @BOTH
    def test_e10_a_loss_of_0_is_no_gradient_of_0(self, call: Callable[..., Any]) -> None:
        columns = {"logprobs": table([-1], [-1]), "old_logprobs": table([-1], [-1]), "advantages": column(1, -1)}
        found, gradient = differentiated(call, columns, lengths_mask(1, 1))
        assert found.loss == 0
        assert gradient.tolist() == [[-0.5], [0.5]]


TOKENIZER = arl.gym_tokenizer()
TASKS = arl.bugfix_tasks()
Rewards = Callable[[arl.TrajectoryBatch], Tensor]


def agent(seed: int = 0) -> arl.TinyAgent:
    """Return a small agent as it is drawn, which repairs nothing."""
    sizes = {"width": 16, "layers": 1, "heads": 2}
    return arl.TinyAgent(arl.TinyAgentConfig(len(TOKENIZER), **sizes), arl.generator(seed))


def short(task: arl.BugFixTask, generator: torch.Generator) -> arl.BugFixEnv:
    """Return an environment whose episodes are short: one turn or two, three of the third task."""
    return arl.BugFixEnv(task, max_turns=1 + task.id % 3, detail="short")


def by_tokens(batch: arl.TrajectoryBatch) -> Tensor:
    """Return rewards of 0 and 1 that depend on what the policy wrote alone."""
    return (torch.where(batch.action_mask, batch.ids, 0).sum(1) % 2).to(arl.DTYPE)


def all_different(batch: arl.TrajectoryBatch) -> Tensor:
    """Return rewards that hardly any two episodes share."""
    return torch.where(batch.action_mask, batch.ids, 0).sum(1).to(arl.DTYPE) / 100


def silent_but(*tasks: int, rewards: Rewards = all_different) -> Rewards:
    """Return rewards that are all 1 but for the attempts of these tasks."""
    return lambda batch: torch.where(torch.isin(batch.task_ids, torch.tensor(tasks)), rewards(batch), 1.0)


class Kept:
    """A hook that keeps what it is given and returns what `then` makes of it."""

    def __init__(self, then: Callable[..., Any] = lambda *given: None) -> None:
        self.calls: list[Any] = []
        self.then = then

    def __call__(self, *given: Any) -> Any:
        self.calls.append(given)
        return self.then(*given)


SETTINGS = {field.name for field in dataclasses.fields(arl.TrainConfig)}
SMALL: dict[str, Any] = {"iterations": 1, "attempts": 4, "max_turn_tokens": 2}


def trained(model: arl.TinyAgent | None = None, tasks: Any = TASKS[:3], **given: Any) -> tuple[Tensor, arl.History]:
    """Return the weights after a training of few short episodes, and its history; settings and hooks together."""
    model = agent() if model is None else model
    config = arl.TrainConfig(**{**SMALL, **{name: given.pop(name) for name in SETTINGS & given.keys()}})
    hooks = {"make_env": short, "rewards": by_tokens, **given}
    return flat(model, arl.train(model, TOKENIZER, tasks, config, **hooks))


def flat(model: arl.TinyAgent, history: Any = None) -> Any:
    """Return all weights as one vector; with a history, both."""
    weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    return weights if history is None else (weights, history)


def first_gradient(**given: Any) -> Tensor:
    """Return the gradient of the first step of a training: what Adam's mean holds, over 1 - .9."""
    found = []

    def read(state: arl.TrainState) -> None:
        held = [state.optimizer.state[weight].get("exp_avg") for weight in state.model.parameters()]
        pairs = zip(held, state.model.parameters(), strict=True)
        found.append(torch.cat([(torch.zeros_like(w) if mean is None else mean).flatten() / 0.1 for mean, w in pairs]))

    trained(**given | {"callback": read, "epochs": 1, "minibatches": 1, "max_grad_norm": None})
    return found[0]


def gradient_of(loss: Tensor, model: arl.TinyAgent) -> Tensor:
    """Return the gradient of a loss by all weights as one vector."""
    found = torch.autograd.grad(loss, [*model.parameters()], materialize_grads=True)
    return torch.cat([slope.flatten() for slope in found])


def scored(model: arl.TinyAgent, batch: arl.TrajectoryBatch, temperature: float = 1.0) -> Tensor:
    return arl.token_logprobs(model, batch.ids, batch.attention_mask, batch.action_mask, temperature)


def losses_by_hand(config: arl.TrainConfig, batch: arl.TrajectoryBatch, rewards: Tensor, logprobs: Tensor) -> Tensor:
    """Return the loss of a configuration on all episodes, silent ones too."""
    advantages = ESTIMATORS[config.advantage](rewards, batch.task_ids)
    given = (logprobs, batch.logprobs, advantages, batch.action_mask, config.clip_low, config.clip_high)
    if config.loss == "gspo":
        return arl.gspo_policy_loss(*given).loss
    more = {"aggregation": config.aggregation, "norm_length": config.norm_length}
    if config.loss == "cispo":
        return arl.cispo_policy_loss(*given, **more).loss
    return arl.ppo_policy_loss(*given, dual_clip=config.dual_clip, **more).loss


class TestConfig:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            *(("iterations", value) for value in (-1, 1.5, True)),
            *(("seed", value) for value in (-1, 0.5)),
            *(("tasks_per_iteration", value) for value in (0, 2.0)),
            *(("attempts", value) for value in (0, 1, 2.0, None)),
            *(("max_turn_tokens", value) for value in (0, 1.5, None)),
            *(("refills", value) for value in (-1, True, 101, 1000)),
            *(("epochs", value) for value in (0, 1.5)),
            *(("minibatches", value) for value in (0, -1, 1.5, None)),
            *(("microbatch", value) for value in (0, 2.5)),
            *(("temperature", value) for value in (0, -1.0, math.nan, math.inf)),
            *(("clip_low", value) for value in (-0.1, 1.5, math.nan)),
            *(("clip_high", value) for value in (-0.1, math.nan)),
            *(("dual_clip", value) for value in (1.0, math.nan)),
            *(("max_kl", value) for value in (0.0, math.nan)),
            *(("max_grad_norm", value) for value in (0.0, -1.0, math.nan)),
            *(("grid", value) for value in (0, 3, 2.0)),
            *(("learning_rate", value) for value in (-1e-3, math.nan, math.inf)),
            *(("weight_decay", value) for value in (-1e-3, math.nan, math.inf)),
            ("advantage", "std"),
            ("loss", "grpo"),
            ("aggregation", "mean"),
            ("norm_length", 30),
        ],
    )
    def test_what_cannot_be_is_refused_with_field_and_value(self, field: str, value: Any) -> None:
        with pytest.raises(ValueError, match=rf"{field}.*{value}|{value}.*{field}"):
            arl.TrainConfig(**{field: value})
        with pytest.raises(ValueError, match=str(value)):
            dataclasses.replace(arl.PRESETS["dapo"], **{field: value})

    @pytest.mark.parametrize("overlong", [(30, 0), (4, 5), (30,), 30, (30, 6, 1), ("a", 1), (30, math.nan)])
    def test_overlong_is_two_numbers_that_go_together(self, overlong: Any) -> None:
        with pytest.raises(ValueError, match=r"overlong|max_length"):
            arl.TrainConfig(overlong=overlong)

    def test_steps_that_the_grid_would_round_away_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"learning_rate is 1e-06.*grid"):
            arl.TrainConfig(learning_rate=1e-6)
        for rate, grid in ((1e-6, None), (1e-6, 2**20), (0.0, 2**16)):
            arl.TrainConfig(learning_rate=rate, grid=grid)
        with pytest.raises(ValueError, match=r"grid is .*bfloat16"):
            trained(agent().to(torch.bfloat16), make_env=lambda *given: pytest.fail("sampled"))

    def test_settings_that_a_loss_does_not_have_are_refused(self) -> None:
        for loss in ("gspo", "cispo"):
            with pytest.raises(ValueError, match=rf"dual_clip is 3\.0.*{loss}"):
                arl.TrainConfig(loss=loss, dual_clip=3.0)
        with pytest.raises(ValueError, match=r"aggregation is 'token-mean'.*GSPO"):
            arl.TrainConfig(loss="gspo", aggregation="token-mean")

    def test_the_default_is_grpo_and_cannot_be_changed_in_place(self) -> None:
        assert arl.TrainConfig() == arl.PRESETS["grpo"]
        with pytest.raises(dataclasses.FrozenInstanceError):
            arl.PRESETS["grpo"].seed = 3  # pyright: ignore[reportAttributeAccessIssue]

    def test_presets_are_what_the_papers_change(self) -> None:
        """In each only what its paper changes differs from GRPO."""
        changed = {
            name: {
                field.name: getattr(preset, field.name)
                for field in dataclasses.fields(preset)
                if getattr(preset, field.name) != getattr(arl.TrainConfig(), field.name)
            }
            for name, preset in arl.PRESETS.items()
        }
        grpo = arl.PRESETS["grpo"]
        assert (grpo.advantage, grpo.loss, grpo.aggregation) == ("group-std", "ppo", "seq-mean-token-mean")
        assert (grpo.clip_low, grpo.clip_high, grpo.refills, grpo.overlong) == (0.2, 0.2, 0, None)
        longest = 5 * grpo.max_turn_tokens
        assert changed == {
            "grpo": {},
            "dr_grpo": {"advantage": "group", "aggregation": "seq-mean-token-sum-norm", "norm_length": longest},
            "dapo": {"clip_high": 0.28, "aggregation": "token-mean", "refills": 2, "overlong": (longest, 6)},
            "rloo": {"advantage": "leave-one-out", "aggregation": "seq-mean-token-sum"},
            "gspo": {"loss": "gspo", "clip_low": 0.1, "clip_high": 0.1},
            "cispo": {"loss": "cispo", "clip_low": 1.0, "clip_high": 4.0, "aggregation": "token-mean"},
        }


class TestTraining:
    @pytest.mark.parametrize("given", [{}, {"grid": None}, {"tasks_per_iteration": 2, "refills": 1, "loss": "cispo"}])
    def test_the_same_arguments_give_the_same_history_and_weights(self, given: dict[str, Any]) -> None:
        given = {"iterations": 2, **given}
        (weights, history), (again, other) = trained(**given), trained(**given)
        assert torch.equal(weights, again)
        assert repr(history.rows) == repr(other.rows), "also its nans"
        assert not torch.equal(weights, trained(seed=1, **given)[0])
        assert not torch.equal(weights, flat(agent())), "the model is moved in place"
        snapped = torch.equal(weights, (weights * 2**16).round() / 2**16)
        assert snapped == (given.get("grid", 0) is not None)

    @pytest.mark.parametrize("name", arl.PRESETS)
    def test_the_first_step_is_along_the_gradient_of_the_loss_of_all_episodes(self, name: str) -> None:
        """Silent episodes are left out of the work and counted in the denominators; microbatches add up."""
        config = dataclasses.replace(arl.PRESETS[name], refills=0)
        rewards = Kept(silent_but(TASKS[0].id, TASKS[2].id))
        if config.overlong is not None:
            config = dataclasses.replace(config, overlong=(7, 7))  # most lengths are within the buffer
        given = dataclasses.asdict(config) | {"iterations": 1, "attempts": 4, "microbatch": 3, "max_turn_tokens": 2}
        found = first_gradient(**given | {"rewards": rewards})
        ((batch,),), model = rewards.calls, agent()
        earned = rewards.then(batch)
        if config.overlong is not None:
            earned = earned + arl.overlong_penalty(batch.action_mask.sum(1), *config.overlong)
        right = gradient_of(losses_by_hand(config, batch, earned, scored(model, batch)), model)
        assert right.norm() > 1e-3
        assert close(found, right)

    @pytest.mark.parametrize("loss", ["ppo", "gspo", "cispo"])
    def test_all_settings_reach_the_update(self, loss: str) -> None:
        """L03 (slime#2247): six epochs of one minibatch, by hand, with settings none of which is idle."""
        settings: dict[str, Any] = {
            "loss": loss, "epochs": 6, "minibatches": 1, "microbatch": 5, "grid": 2**20, "clip_low": 0.04,
            "clip_high": 0.06, "learning_rate": 5e-3, "weight_decay": 0.3, "advantage": "group", "temperature": 0.7,
        }  # fmt: skip
        if loss != "gspo":
            settings |= {"aggregation": "seq-mean-token-sum-norm", "norm_length": 3.0, "max_grad_norm": None}
        if loss == "ppo":
            settings |= {"dual_clip": 1.08, "max_kl": 0.22}
        rewards = Kept(all_different)
        weights, history = trained(rewards=rewards, **settings)
        ((batch,),), model = rewards.calls, agent()
        config = arl.TrainConfig(**{**SMALL, **settings})
        optimizer = torch.optim.AdamW(model.parameters(), 5e-3, (0.9, 0.95), weight_decay=0.3, foreach=False)
        steps, kls = 0, []
        for _ in range(6):
            optimizer.zero_grad()
            logprobs = scored(model, batch, 0.7)
            kls.append(arl.cispo_policy_loss(logprobs, batch.logprobs, batch.rewards, batch.action_mask).approx_kl)
            if config.max_kl is not None and kls[-1] > config.max_kl:
                break
            losses_by_hand(config, batch, all_different(batch), logprobs).backward()
            arl.apply_gradient(optimizer, config.max_grad_norm, 2**20)
            steps += 1
        assert (1 < steps < 6) == (loss == "ppo"), kls
        assert close(weights, flat(model), 2**-19), "but for a weight on the edge of the grid"
        assert history.rows[0]["steps"] == steps
        assert history.rows[0]["approx_kl"] == pytest.approx(sum(kls) / len(kls), abs=1e-8)
        pairs = [{"aggregation", "norm_length"}] * (loss != "gspo")
        for idle in (
            *({name} for name in settings.keys() - {"loss", "microbatch", "aggregation", "norm_length"}),
            *pairs,
        ):
            without = {name: value for name, value in settings.items() if name not in idle}
            other = trained(rewards=all_different, **without)[0]
            assert not close(other, weights, 2**-18), idle

    @pytest.mark.parametrize("advantage", ESTIMATORS)
    def test_the_estimator_is_the_one_that_is_named(self, advantage: str) -> None:
        """V02 (TRL#3992), V03 (rllm#447): group, batch and no deviation are three different things."""
        rewards = silent_but(TASKS[0].id, TASKS[2].id)
        found = trained(advantage=advantage, rewards=rewards)[0]
        for name, estimate in ESTIMATORS.items():
            by_hook = trained(advantages=lambda _, earned, groups, e=estimate: e(earned, groups), rewards=rewards)[0]
            assert torch.equal(found, by_hook) == (name == advantage), name

    @pytest.mark.parametrize("name", ["grpo", "gspo", "cispo"])
    def test_what_is_rewarded_becomes_more_frequent(self, name: str) -> None:
        """A sign that is wrong would make it rarer."""

        def rewards(batch: arl.TrajectoryBatch) -> Tensor:
            return ((batch.ids % 4 == 1) & batch.action_mask).sum(1) / batch.action_mask.sum(1)

        given = dataclasses.asdict(arl.PRESETS[name]) | {"learning_rate": 4e-2, "iterations": 5, "max_turn_tokens": 2}
        _, history = trained(rewards=rewards, **given)
        assert sum(history.column("reward")[-2:]) / 2 > history.column("reward")[0] + 0.1

    @pytest.mark.parametrize("given", [{}, {"temperature": 0.5}, {"loss": "gspo"}, {"loss": "cispo"}])
    def test_as_long_as_the_policy_has_not_moved_every_ratio_is_1(self, given: dict[str, Any]) -> None:
        """O01, O02: at the sampling's temperature; rate 0, all minibatches of all epochs."""
        weights, history = trained(learning_rate=0.0, grid=None, **given)
        assert torch.equal(weights, flat(agent()))
        row = history.rows[0]
        assert row["steps"] == 4
        assert row["ratio_max"] == pytest.approx(1, abs=1e-10)
        assert row["approx_kl"] == pytest.approx(0, abs=1e-10)
        assert row["clip_fraction"] == 0

    def test_o04_dropout_is_off_and_the_mode_is_as_it_was(self) -> None:
        """O04 (TRL#3234, verl#4708, TRL#3337)."""

        class Dropping(arl.TinyAgent):
            def features(self, *arguments: Any, **named: Any) -> Tensor:
                return torch.nn.functional.dropout(super().features(*arguments, **named), 0.5, self.training)

        for training in (True, False):
            model = Dropping(agent().config, arl.generator(0)).train(training)
            _, history = trained(model, learning_rate=0.0, grid=None)
            assert history.rows[0]["ratio_max"] == pytest.approx(1, abs=1e-10)
            assert history.rows[0]["approx_kl"] == pytest.approx(0, abs=1e-10)
            assert model.training == training

    def test_o17_advantages_of_0_make_no_step(self) -> None:
        for loss in ("ppo", "gspo", "cispo"):
            weights, history = trained(advantages=lambda _, earned, __: 0 * earned, loss=loss)
            assert torch.equal(weights, flat(agent()))
            assert (history.rows[0]["steps"], history.rows[0]["loss"], history.rows[0]["ratio_max"]) == (0, 0, 0)

    def test_an_iteration_without_information_is_counted_and_the_next_goes_on(self) -> None:
        rewards = Kept(lambda batch: torch.zeros(len(batch)) if len(rewards.calls) == 1 else by_tokens(batch))
        weights, history = trained(rewards=rewards, iterations=2)
        assert history.column("steps") == [0, 4]
        assert history.column("informative")[0] == 0
        assert not torch.equal(weights, flat(agent()))

    def test_epochs_and_minibatches_are_steps_and_no_minibatch_is_empty(self) -> None:
        assert trained(epochs=3, minibatches=2)[1].column("steps") == [6]
        few_live = trained(rewards=silent_but(TASKS[0].id), minibatches=100, epochs=2)[1]
        assert few_live.column("steps") == [8], "one episode a minibatch, of the four that have an advantage"

    def test_who_shares_a_minibatch_depends_on_seed_and_iteration(self) -> None:
        deals = set()
        for seed in (0, 1):
            penalty = Kept(lambda part, logprobs, logits, whole: 0 * logits.sum())
            trained(penalty=penalty, seed=seed, iterations=2, epochs=1, learning_rate=0.0)
            parts = [tuple(zip(p.task_ids.tolist(), p.attempts.tolist(), strict=True)) for p, *_ in penalty.calls]
            deals |= {(frozenset(one), frozenset(two)) for one, two in zip(parts[::2], parts[1::2], strict=True)}
        assert len(deals) == 4

    def test_the_largest_ratio_is_that_of_all_epochs(self) -> None:
        first, both = (trained(minibatches=1, epochs=epochs)[1].rows[0]["ratio_max"] for epochs in (1, 2))
        assert first == pytest.approx(1, abs=1e-10)
        assert both > 1.001

    def test_the_kl_that_ends_an_update_is_that_of_the_history(self) -> None:
        """Also where silent episodes are left out: a mean over the tokens that were trained."""
        given: dict[str, Any] = {"rewards": silent_but(TASKS[0].id), "minibatches": 1, "epochs": 3}
        given["learning_rate"] = 1e-2
        free = trained(**given, max_kl=1e9)[1].rows[0]
        two = trained(**{**given, "epochs": 2})[1].rows[0]["approx_kl"] * 2
        assert free["steps"] == 3
        assert trained(**given, max_kl=two * 1.001)[1].rows[0]["steps"] > 1
        assert trained(**given, max_kl=two * 0.999)[1].rows[0]["steps"] == 1

    def test_the_optimiser_has_the_books_decay_rates_and_is_kept(self) -> None:
        states = Kept()
        trained(callback=states, iterations=2, learning_rate=3e-3, weight_decay=0.01)
        first, second = (state for (state,) in states.calls)
        (group,) = first.optimizer.param_groups
        assert first.optimizer is second.optimizer
        assert (group["lr"], group["betas"], group["weight_decay"]) == (3e-3, (0.9, 0.95), 0.01)
        assert group["foreach"] is False


class TestSampling:
    def test_e01_no_two_episodes_share_their_random_numbers(self) -> None:
        """E01 (verl#5179, SkyRL#1042): attempts, tasks, iterations, rounds and seeds."""
        seen = Counter()
        for seed in (0, 1):
            rewards = Kept(lambda batch: torch.ones(len(batch)))
            given: dict[str, Any] = {"iterations": 2, "refills": 1, "attempts": 8, "max_turn_tokens": 4}
            trained(rewards=rewards, seed=seed, learning_rate=0.0, **given)
            for (batch,) in rewards.calls:
                assert len(batch) == 24
                seen.update(tuple(ids[mask].tolist()) for ids, mask in zip(batch.ids, batch.action_mask, strict=True))
        assert seen.total() == 2 * 2 * 2 * 24
        assert max(seen.values()) == 1

    def test_each_iteration_draws_some_different_tasks_and_plays_all_attempts(self) -> None:
        rewards = Kept(by_tokens)
        trained(tasks=TASKS[:7], rewards=rewards, tasks_per_iteration=3, iterations=6)
        drawn = [batch.task_ids.unique_consecutive().tolist() for (batch,) in rewards.calls]
        assert all(len(names) == 3 and names == sorted(set(names)) for names in drawn)
        assert len({tuple(names) for names in drawn}) > 2
        assert len({name for names in drawn for name in names}) == 7, "six draws of three leave none of seven out"
        for (batch,) in rewards.calls:
            assert batch.attempts.view(3, 4).tolist() == [[0, 1, 2, 3]] * 3

    def test_another_round_and_another_seed_draw_other_tasks(self) -> None:
        drawn = []
        for seed in (0, 1):
            rewards = Kept(lambda batch: torch.ones(len(batch)))
            trained(tasks=TASKS[:20], rewards=rewards, tasks_per_iteration=3, refills=2, seed=seed)
            drawn += [tuple(batch.task_ids.unique_consecutive().tolist()) for (batch,) in rewards.calls]
        assert len(drawn) == 6
        assert len(set(drawn)) == 6

    @pytest.mark.parametrize("count", [None, 3, 50])
    def test_without_a_number_or_with_more_than_there_are_all_tasks_are_played(self, count: int | None) -> None:
        rewards = Kept(by_tokens)
        trained(rewards=rewards, tasks_per_iteration=count)
        assert rewards.calls[0][0].task_ids.unique_consecutive().tolist() == [task.id for task in TASKS[:3]]

    def test_an_iterator_of_tasks_is_read_once_and_no_task_is_refused(self) -> None:
        assert repr(trained(tasks=iter(TASKS[:3]), iterations=2)[1].rows) == repr(trained(iterations=2)[1].rows)
        with pytest.raises(ValueError, match="no tasks"):
            trained(tasks=[])
        with pytest.raises(ValueError, match=r"task 1 stands 2 times"):
            trained(tasks=[*TASKS[:3], TASKS[1]])

    def test_settings_of_the_sampling_reach_it(self) -> None:
        rewards = Kept(by_tokens)
        trained(rewards=rewards, max_turn_tokens=5, temperature=0.05, learning_rate=0.0)
        ((batch,),) = rewards.calls
        cold = scored(agent(), batch, 0.05)
        assert (cold - torch.where(batch.action_mask, batch.logprobs, 0.0)).abs().max() < 1e-9
        assert batch.action_mask.sum(1).max() == 15
        assert -batch.logprobs.sum() / batch.action_mask.sum() < 1, "near greedy"

    def test_v10_groups_are_tasks_not_texts(self) -> None:
        """V10 (NeMo-RL#2176): the same prompt, two tasks."""
        twin = dataclasses.replace(TASKS[0], id=10**6)
        advantages = Kept(lambda batch, rewards, groups: rewards)
        trained(tasks=[TASKS[0], twin], advantages=advantages)
        ((batch, _, groups),) = advantages.calls
        assert groups.tolist() == [TASKS[0].id] * 4 + [10**6] * 4 == batch.task_ids.tolist()


class TestRefills:
    """Dynamic sampling: groups without information are replaced."""

    def refilled(self, lives: Callable[[int, int], bool], **given: Any) -> tuple[Kept, Kept, arl.History]:
        """Return what both hooks saw and the history; `lives(round, task)` says which groups are informative."""
        rewards = Kept(
            lambda batch: torch.where(
                torch.tensor([lives(len(rewards.calls) - 1, task) for task in batch.task_ids.tolist()]),
                all_different(batch),
                1.0,
            )
        )
        estimate = Kept(lambda _, earned, groups: arl.group_mean_advantages(earned, groups))
        return rewards, estimate, trained(rewards=rewards, advantages=estimate, **given)[1]

    def test_what_is_missing_is_drawn_again_until_there_is_enough(self) -> None:
        rewards, estimate, history = self.refilled(lambda at, task: at == 2 or task == TASKS[1].id, refills=5)
        sizes = [len(batch) // 4 for (batch,) in rewards.calls]
        ((batch, earned, groups),) = estimate.calls
        found = sum(task == TASKS[1].id for (part,) in rewards.calls[:2] for task in part.task_ids.unique().tolist())
        assert sizes == ([3, 2, 2] if found == 1 else [3, 2, 1])
        assert len(batch) == 3 * 4
        assert history.rows[0]["episodes"] == 4 * sum(sizes)
        assert len(groups.unique()) == 3
        assert arl.informative_groups(earned, groups).all()

    def test_the_same_task_in_two_rounds_is_two_groups(self) -> None:
        only = TASKS[:2]
        lives = {(0, only[0].id), *((at, task.id) for at in (1, 2, 3) for task in only)}
        rewards, estimate, _ = self.refilled(lambda at, task: (at, task) in lives, refills=3, tasks=only, seed=0)
        ((batch, earned, groups),) = estimate.calls
        assert [len(part) for (part,) in rewards.calls] == [8, 4]
        assert len(groups.unique()) == 2
        for name in groups.unique():
            own = groups == name
            assert int(own.sum()) == 4
            assert len(batch.task_ids[own].unique()) == 1
            assert batch.attempts[own].tolist() == [0, 1, 2, 3]
        ids = [tuple(row.ids.tolist()) for row in batch.split()]
        assert len(set(ids)) == len(ids), "the second round has random numbers of its own"
        assert torch.equal(earned, all_different(batch)), "rewards travel with their episodes"

    def test_a_task_drawn_twice_is_compared_with_its_own_round(self) -> None:
        """With one task the second round draws it again; its rewards are ten more."""
        rewards = Kept(lambda batch: torch.ones(len(batch)) if len(rewards.calls) == 1 else 10 + all_different(batch))
        estimate = Kept(lambda _, earned, groups: arl.group_mean_advantages(earned, groups))
        trained(tasks=TASKS[:1], rewards=rewards, advantages=estimate, refills=1)
        ((_, earned, groups),) = estimate.calls
        assert (earned >= 10).all()
        assert len(groups) == 4

    @pytest.mark.parametrize("refills", [0, 1, 3])
    def test_it_ends_after_so_many_rounds_with_what_there_is(self, refills: int) -> None:
        rewards, estimate, history = self.refilled(lambda at, task: False, refills=refills)
        assert len(rewards.calls) == refills + 1
        assert history.rows[0]["episodes"] == 12 * (refills + 1)
        assert history.rows[0]["steps"] == 0
        ((batch, _, _),) = estimate.calls
        assert len(batch) == (0 if refills else 12)
        rewards, estimate, history = self.refilled(lambda at, task: task == TASKS[1].id and at == 0, refills=refills)
        ((batch, _, _),) = estimate.calls
        assert len(batch) == (4 if refills else 12)
        assert history.rows[0]["informative"] == 1 / 3, "of the first round"

    def test_enough_at_once_needs_no_second_round(self) -> None:
        rewards, _, history = self.refilled(lambda at, task: True, refills=3)
        assert len(rewards.calls) == 1
        assert history.rows[0]["episodes"] == 12

    def test_a_penalty_for_length_makes_no_group_informative(self) -> None:
        """As in DAPO: dynamic sampling looks at the verdicts."""
        estimate = Kept(lambda _, earned, groups: earned)
        _, history = trained(
            rewards=lambda batch: torch.ones(len(batch)), advantages=estimate, overlong=(4, 4), refills=1
        )
        assert history.rows[0]["informative"] == 0
        assert len(estimate.calls[0][0]) == 0
        rewards, estimate = Kept(by_tokens), Kept(lambda _, earned, groups: earned)
        trained(rewards=rewards, advantages=estimate, overlong=(8, 8), max_turn_tokens=3)
        ((batch, earned, _),) = estimate.calls
        assert close(earned, by_tokens(batch) - (batch.action_mask.sum(1) / 8).clamp(max=1))
        assert len((earned - by_tokens(batch)).unique()) == 3


def breaking(breaks: Callable[[int, int], bool]) -> tuple[Callable[..., Any], Counter]:
    """Return a `make_env` whose environments break where `breaks(task, attempt)` says, and how many it has made."""
    made = Counter()

    class Environment(arl.BugFixEnv):
        broken = False

        def run(self, call: arl.Call) -> Any:
            if self.broken:
                raise arl.InfrastructureError("the machine is gone")
            return super().run(call)

    def make_env(task: arl.BugFixTask, generator: torch.Generator) -> Environment:
        env = Environment(task, max_turns=2, detail="short")
        env.broken, made[task.id] = breaks(task.id, made[task.id]), made[task.id] + 1
        return env

    return make_env, made


class TestFailures:
    """Infrastructure failures are neither a reward of 0 nor trained (R14, R23)."""

    def test_an_episode_whose_environment_broke_is_left_out_and_nothing_is_played_again(self) -> None:
        """R14 (prime-rl#2581), R23 (verifiers#186): all others keep their rewards."""
        make_env, made = breaking(lambda task, attempt: (task, attempt) == (TASKS[1].id, 2))
        estimate, rewards = Kept(lambda _, earned, groups: earned), Kept(all_different)
        _, history = trained(make_env=make_env, advantages=estimate, rewards=rewards)
        assert made == {task.id: 4 for task in TASKS[:3]}
        ((batch, earned, groups),) = estimate.calls
        assert Counter(groups.tolist()) == {TASKS[0].id: 4, TASKS[1].id: 3, TASKS[2].id: 4}
        assert batch.attempts[groups == TASKS[1].id].tolist() == [0, 1, 3]
        assert torch.equal(earned, all_different(batch))
        assert (history.rows[0]["failures"], history.rows[0]["episodes"]) == (1, 12)
        assert history.rows[0]["tokens_failed"] == batch.action_mask.sum() / 11, "without the one that broke off"
        assert history.rows[0]["tokens"] < history.rows[0]["tokens_failed"]

    @pytest.mark.parametrize("given", [{}, {"rewards": None}, {"advantage": "batch-std"}, {"refills": 1}])
    def test_a_reward_that_there_is_not_reaches_no_advantage(self, given: dict[str, Any]) -> None:
        make_env, _ = breaking(lambda task, attempt: attempt % 2 == 1)
        weights, history = trained(make_env=make_env, **given)
        assert weights.isfinite().all()
        assert history.rows[0]["failures"] == 6
        if given != {"refills": 1}:
            assert math.isfinite(history.rows[0]["reward"])

    def test_an_attempt_that_is_then_alone_is_left_out_too(self) -> None:
        make_env, _ = breaking(lambda task, attempt: task == TASKS[1].id and attempt > 0)
        estimate = Kept(lambda _, earned, groups: earned)
        _, history = trained(make_env=make_env, advantages=estimate)
        ((_, _, groups),) = estimate.calls
        assert sorted(set(groups.tolist())) == [TASKS[0].id, TASKS[2].id]
        assert history.rows[0]["failures"] == 3

    @pytest.mark.parametrize("refills", [0, 2])
    def test_where_all_broke_there_is_a_clear_error_and_no_step(self, refills: int) -> None:
        model, (make_env, _) = agent(), breaking(lambda task, attempt: True)

        def strict(batch: arl.TrajectoryBatch) -> Tensor:
            assert len(batch), "asked to grade nothing"
            return by_tokens(batch)

        for rewards in (None, strict):
            with pytest.raises(ValueError, match=r"iteration 0.*12 .*(broke|environment)"):
                trained(model, make_env=make_env, rewards=rewards, refills=refills)
        assert torch.equal(flat(model), flat(agent()))

    def test_where_no_group_is_left_nothing_is_graded_and_nothing_learnt(self) -> None:
        make_env, _ = breaking(lambda task, attempt: attempt > 0)
        refuse = Kept(lambda batch: pytest.fail("asked to grade nothing"))
        weights, history = trained(make_env=make_env, rewards=refuse)
        assert torch.equal(weights, flat(agent()))
        row = history.rows[0]
        assert (row["failures"], row["episodes"], row["informative"], row["steps"]) == (9, 12, 0, 0)
        assert math.isnan(row["reward"])

    def test_what_breaks_otherwise_is_not_swallowed(self) -> None:
        """R14 (verifiers#1197)."""

        def make_env(task: arl.BugFixTask, generator: torch.Generator) -> Any:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            trained(make_env=make_env)


class TestHooks:
    def test_rewards_take_the_place_of_the_environments(self) -> None:
        rewards = Kept(by_tokens)
        estimate = Kept(lambda _, earned, groups: earned)
        _, history = trained(rewards=rewards, advantages=estimate)
        ((batch,),), ((same, earned, groups),) = rewards.calls, estimate.calls
        assert isinstance(batch, arl.TrajectoryBatch)
        assert same is batch
        assert torch.equal(earned, by_tokens(batch))
        assert torch.equal(groups, batch.task_ids)
        assert history.rows[0]["reward"] == by_tokens(batch).mean().item()
        assert history.rows[0]["success"] == 0
        _, history = trained(rewards=None)
        assert history.rows[0]["reward"] == 0

    def test_rewards_may_be_of_any_type_and_carry_a_gradient_which_is_dropped(self) -> None:
        right = trained()[0]
        for made in (torch.Tensor.long, torch.Tensor.bool, torch.Tensor.float):
            assert torch.equal(trained(rewards=lambda batch, made=made: made(by_tokens(batch)))[0], right)
        leaf = torch.ones((), dtype=arl.DTYPE, requires_grad=True)
        assert torch.equal(trained(rewards=lambda batch: by_tokens(batch) * leaf)[0], right)

    @pytest.mark.parametrize(
        ("rewards", "reason"),
        [
            (lambda batch: [1.0] * len(batch), r"rewards gave .*tensor, \[12\]"),
            (lambda batch: torch.ones(3), r"rewards gave .*3.*\[12\]"),
            (lambda batch: torch.full((len(batch),), math.nan), r"rewards .*position 0: nan.*`rewards` must"),
            (lambda batch: torch.full((len(batch),), math.inf), r"rewards at position 0: inf"),
        ],
    )
    def test_rewards_that_are_none_are_refused_before_any_step(self, rewards: Any, reason: str) -> None:
        model = agent()
        with pytest.raises(ValueError, match=reason):
            trained(model, rewards=rewards)
        assert torch.equal(flat(model), flat(agent()))

    def test_advantages_may_be_one_a_token(self) -> None:
        def one(batch: arl.TrajectoryBatch, rewards: Tensor, groups: Tensor) -> Tensor:
            return arl.grpo_advantages(rewards.view(3, 4)).flatten()

        def wide(batch: arl.TrajectoryBatch, rewards: Tensor, groups: Tensor) -> Tensor:
            return torch.where(batch.action_mask, one(batch, rewards, groups)[:, None], math.nan)

        right = trained()[0]
        assert torch.equal(trained(advantages=one)[0], right)
        assert torch.equal(trained(advantages=wide)[0], right)

        def first_turn(batch: arl.TrajectoryBatch, rewards: Tensor, groups: Tensor) -> Tensor:
            return torch.where(batch.turn == 0, rewards[:, None], 0.0)

        rewards = Kept(all_different)
        found = first_gradient(rewards=rewards, advantages=first_turn)
        ((batch,),), model = rewards.calls, agent()
        table = first_turn(batch, all_different(batch), batch.task_ids)
        loss = arl.ppo_policy_loss(
            scored(model, batch), batch.logprobs, table, batch.action_mask, aggregation="seq-mean-token-mean"
        ).loss
        assert close(found, gradient_of(loss, model))

    @pytest.mark.parametrize(
        "wrong", [lambda b, r, g: r[:3], lambda b, r, g: r * math.nan, lambda b, r, g: torch.ones(2, 2)]
    )
    def test_advantages_that_are_none_are_refused_before_any_step(self, wrong: Any) -> None:
        model = agent()
        with pytest.raises(ValueError, match="advantages"):
            trained(model, advantages=wrong)
        assert torch.equal(flat(model), flat(agent()))

    def test_a_penalty_sees_all_episodes_and_is_added_to_the_loss(self) -> None:
        def penalise(part: arl.TrajectoryBatch, logprobs: Tensor, logits: Tensor, whole: arl.LossCounts) -> Tensor:
            return torch.where(part.action_mask, logprobs.square(), 0.0).sum() / whole.tokens

        penalty, rewards = Kept(penalise), Kept(silent_but(TASKS[0].id))
        found = first_gradient(penalty=penalty, rewards=rewards, microbatch=5)
        ((batch,),), model = rewards.calls, agent()
        loss = losses_by_hand(arl.TrainConfig(), batch, rewards.then(batch), scored(model, batch))
        more = arl.masked_mean(scored(model, batch).square(), batch.action_mask)
        assert close(found, gradient_of(loss + more, model))
        assert [len(part) for part, *_ in penalty.calls] == [5, 5, 2]
        for part, logprobs, logits, whole in penalty.calls:
            assert isinstance(part, arl.TrajectoryBatch)
            assert whole == arl.loss_counts(batch.action_mask)
            assert logits.shape == (int(part.action_mask.sum()), len(TOKENIZER))
            chosen = logits.log_softmax(-1).gather(-1, part.ids[part.action_mask][:, None])[:, 0]
            assert close(logprobs[part.action_mask].detach(), chosen.detach())
            assert logprobs.requires_grad
            assert logits.requires_grad

    def test_the_logits_of_a_penalty_are_at_the_temperature_of_the_sampling(self) -> None:
        seen = []

        def penalty(part: arl.TrajectoryBatch, logprobs: Tensor, logits: Tensor, whole: Any) -> Tensor:
            again = arl.scored_logits(agent(), part.ids, part.attention_mask, part.action_mask) / 0.5
            seen.append(bool((again - logits).abs().max() < 1e-9))
            return 0 * logits.sum()

        trained(penalty=penalty, temperature=0.5, learning_rate=0.0, grid=None)
        assert seen
        assert all(seen)

    def test_a_penalty_alone_moves_the_policy(self) -> None:
        def entropy(part: arl.TrajectoryBatch, logprobs: Tensor, logits: Tensor, whole: arl.LossCounts) -> Tensor:
            return arl.entropy_from_logits(logits).sum() / whole.tokens

        _, history = trained(
            rewards=lambda batch: torch.zeros(len(batch)), penalty=entropy, iterations=5, learning_rate=2e-2
        )
        assert history.column("informative") == [0] * 5
        assert history.column("steps") == [4] * 5
        assert history.column("penalty")[-1] < history.column("penalty")[0] - 0.05
        assert history.column("loss") == pytest.approx([0] * 5, abs=1e-12)

    def test_a_callback_comes_after_each_iteration_and_what_is_true_ends_the_training(self) -> None:
        seen, model = [], agent()

        def callback(state: arl.TrainState) -> bool | None:
            seen.append((state.iteration, len(state.history.rows), flat(state.model)))
            assert state.model is model
            assert state.config.iterations == 5
            return state.iteration == 3 or None

        weights, history = trained(model, callback=callback, iterations=5)
        assert [(done, rows) for done, rows, _ in seen] == [(1, 1), (2, 2), (3, 3)]
        assert not torch.equal(seen[0][2], seen[1][2])
        assert torch.equal(seen[-1][2], weights)
        assert len(history.rows) == 3
        assert repr(history.rows) == repr(trained(iterations=3)[1].rows)

    def test_a_callback_may_change_the_learning_rate(self) -> None:
        def stop_learning(state: arl.TrainState) -> None:
            state.optimizer.param_groups[0]["lr"] = 0.0

        weights = trained(callback=stop_learning, iterations=3)[0]
        assert torch.equal(weights, trained(iterations=1)[0])

    def test_an_environment_gets_its_task_and_random_numbers_of_its_own(self) -> None:
        made = []

        def make_env(task: arl.BugFixTask, generator: torch.Generator) -> arl.BugFixEnv:
            made.append((task.id, generator.initial_seed()))
            return short(task, generator)

        trained(make_env=make_env, iterations=2)
        assert [task for task, _ in made] == [task.id for task in TASKS[:3] for _ in range(4)] * 2
        assert len({seed for _, seed in made}) == len(made)

    def test_no_iteration_calls_nothing_and_moves_nothing(self) -> None:
        refuse = Kept(lambda *given: pytest.fail("called"))
        weights, history = trained(iterations=0, rewards=refuse, callback=refuse)
        assert torch.equal(weights, flat(agent()))
        assert history.rows == []


class TestHistory:
    def test_its_rows_are_what_was_played(self) -> None:
        """E09: of the whole first round, before the update; E06: a share of all attempts."""
        rewards = Kept(silent_but(TASKS[0].id))
        played = []

        class Lucky(arl.BugFixEnv):
            """Ends the second task's episodes at the first turn as repaired or hacked."""

            def step(self, text: str) -> arl.StepResult:
                found = super().step(text)
                if self.task.id != TASKS[1].id:
                    return found
                played.append(len(played) % 2)
                verdict = {"public_pass": True, "hidden_pass": bool(played[-1]), "hacked": not played[-1]}
                return found._replace(reward=1.0, terminated=True, info={**found.info, **verdict})

        given = {
            "rewards": rewards,
            "make_env": lambda task, generator: Lucky(task, max_turns=2, detail="short"),
            "iterations": 2,
        }
        _, history = trained(**given, max_turn_tokens=3)
        for at, ((batch,), row) in enumerate(zip(rewards.calls, history.rows, strict=True)):
            repaired = [info["hidden_pass"] and info["public_pass"] for info in batch.info]
            lengths = batch.action_mask.sum(1).tolist()
            by_end = {end: [n for n, own in zip(lengths, repaired, strict=True) if own == end] for end in (True, False)}
            assert sum(repaired) == 2
            assert row["iteration"] == at
            assert row["episodes"] == 12 * (at + 1)
            assert (row["success"], row["hacked"], row["failures"]) == (2 / 12, 2 / 12, 0)
            assert row["tokens"] == sum(lengths) / 12
            assert row["tokens_repaired"] == sum(by_end[True]) / 2
            assert row["tokens_failed"] == sum(by_end[False]) / 10
            assert row["turns"] == (4 * 1 + 8 * 2) / 12
            assert row["entropy"] == pytest.approx(-batch.logprobs.sum().item() / sum(lengths), abs=1e-12)
            assert row["reward"] == pytest.approx(rewards.then(batch).mean().item(), abs=1e-12)
            assert row["informative"] == 1 / 3
            assert row["penalty"] == 0

    def test_a_length_of_no_episode_is_nan(self) -> None:
        row = trained()[1].rows[0]
        assert math.isnan(row["tokens_repaired"])
        assert row["tokens_failed"] == row["tokens"]

    def test_statistics_are_over_the_tokens_that_were_trained(self) -> None:
        """Silent episodes do not thin them out: with and without them the same shares."""
        given = {"epochs": 2, "minibatches": 1, "clip_low": 1e-6, "clip_high": 1e-6, "learning_rate": 5e-3}
        rewards = Kept(silent_but(TASKS[0].id, rewards=lambda batch: 1 + all_different(batch)))
        _, history = trained(rewards=rewards, **given, advantages=lambda _, earned, __: 1 - earned)
        assert history.rows[0]["clip_fraction"] * 2 > 0.4, "of the second epoch: of the tokens of one task in three"
        assert history.rows[0]["approx_kl"] > 0

    def test_it_has_its_configuration_and_shows_columns_and_nothing_is_printed(self, capfd: Any) -> None:
        _, history = trained(iterations=2)
        assert history.config == arl.TrainConfig(**{**SMALL, "iterations": 2})
        assert history.table("iteration", "reward").splitlines()[0].split() == ["iteration", "reward"]
        assert all("seconds" not in name for name in history.rows[0]), "no two runs take the same time"
        assert capfd.readouterr() == ("", "")


class TestEpisodeText:
    def test_it_shows_who_wrote_what_and_the_end(self) -> None:
        played = arl.rollout(
            agent(), TOKENIZER, TASKS[:1], 1, 0, make_env=breaking(lambda task, attempt: False)[0], max_turn_tokens=3
        )[0]
        lines = arl.episode_text(TOKENIZER, played).splitlines()
        for who in ("policy", "tool"):
            tokens = [int(i) for i, w in zip(played.ids, played.writer, strict=True) if arl.WRITERS[w] == who]
            shown = " ".join(line.split(" | ", 1)[1] for line in lines if line.startswith(f"{who:>6} | "))
            assert shown.split() == TOKENIZER.decode(tokens).split(), who
        assert lines[-1].split() == ["=", "out_of_turns,", "reward", "0"]
        writers = [line.split(" | ")[0].strip() for line in lines[:-1]]
        assert [who for who, _ in itertools.groupby(writers)] == ["policy", "tool", "policy"]

    def test_an_episode_without_a_reward_says_so(self) -> None:
        make_env, _ = breaking(lambda task, attempt: True)
        played = arl.rollout(agent(), TOKENIZER, TASKS[:1], 1, 0, make_env=make_env, max_turn_tokens=3)[0]
        assert arl.episode_text(TOKENIZER, played).splitlines()[-1].split() == ["=", "infrastructure,", "no", "reward"]
