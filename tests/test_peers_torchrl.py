"""The library against torchrl 0.14.1 on 200 random batches a function; where torchrl does otherwise, both numbers.

torchrl has steps, not tokens: it is given the policy tokens alone, row by row or in one row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from needing import peer
from peer_batches import TOLERANCE, Batch, apart, batches, gradient, leaf
from torch import Tensor

import agentrl as arl

KINDS = [(1.0, 0.95), (0.9, 1.0), (0.97, 0.0)]
LOW, HIGH = 0.25, 0.5  # torchrl holds bounds in float32; these are the same there
CLIP = 0.5


@pytest.fixture(scope="module")
def functional() -> Any:
    """Return torchrl's returns and advantage estimates."""
    return peer("torchrl.objectives.value.functional")


def rows(batch: Batch) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield each row: its policy tokens' rewards, values and next values, [T, 1], and the number of the row.

    The value after the last one is the first entry of the row's `returns`: any number would do.
    """
    for row, mask in enumerate(batch.mask):
        rewards, values = (table[row][mask][:, None] for table in (batch.rewards, batch.values))
        yield rewards, values, torch.cat([values[1:], batch.returns[row, :1, None]]), torch.tensor(row)


def double(number: float) -> Tensor:
    """Return the number as a tensor: torchrl multiplies a plain one by whole numbers, which gives float32."""
    return torch.tensor(number, dtype=arl.DTYPE)


def ends(like: Tensor, at_end: bool = True) -> Tensor:
    """Return flags [T, 1], false but for the last."""
    flags = torch.zeros_like(like, dtype=torch.bool)
    flags[-1] = at_end
    return flags


class TestReturnsAndAdvantages:
    @pytest.mark.parametrize("truncated", [False, True])
    @pytest.mark.parametrize(
        ("estimate", "gamma", "lam"),
        [("generalized_advantage_estimate", *kind) for kind in KINDS]
        + [("vec_generalized_advantage_estimate", *kind) for kind in KINDS if kind[1] > 0],  # at 0: IndexError
    )
    def test_gae_is_that_of_the_policy_tokens_alone(self, functional, estimate, gamma, lam, truncated):
        for batch in batches(empty_rows=False):
            bootstrap = batch.returns[:, 0] if truncated else None
            ours = arl.gae(batch.rewards, batch.values, batch.mask, gamma, lam, bootstrap)
            for rewards, values, following, row in rows(batch):
                flags = ends(values), ends(values, not truncated)
                found = getattr(functional, estimate)(double(gamma), double(lam), values, following, rewards, *flags)
                for mine, theirs in zip(ours, found, strict=True):
                    assert apart(mine[row][batch.mask[row]], theirs[:, 0]) < TOLERANCE, batch.seed

    @pytest.mark.parametrize("truncated", [False, True])
    @pytest.mark.parametrize("gamma", [1.0, 0.9])
    def test_discounted_returns_are_those_of_td_1(self, functional, gamma, truncated):
        for batch in batches(empty_rows=False):
            bootstrap = batch.returns[:, 0] if truncated else None
            ours = arl.discounted_returns(batch.rewards, batch.mask, gamma, bootstrap)
            for rewards, values, following, row in rows(batch):
                flags = ends(values), ends(values, not truncated)
                theirs = functional.td1_return_estimate(gamma, following, rewards, *flags)
                assert apart(ours[row][batch.mask[row]], theirs[:, 0]) < TOLERANCE, batch.seed

    @pytest.mark.parametrize("gamma", [1.0, 0.9])
    def test_discounted_returns_are_the_rewards_to_go(self, functional, gamma):
        for batch in batches(empty_rows=False):
            ours = arl.discounted_returns(batch.rewards, batch.mask, gamma)
            for rewards, values, _, row in rows(batch):
                theirs = functional.reward2go(rewards, ends(values), gamma)
                assert apart(ours[row][batch.mask[row]], theirs[:, 0]) < TOLERANCE, batch.seed

    def test_torchrls_rewards_to_go_leave_out_what_is_discounted_below_1e_7(self, functional):
        rewards = torch.zeros(10, 1, dtype=arl.DTYPE)
        rewards[9] = 1e9
        theirs = functional.reward2go(rewards, ends(rewards), 0.1)
        ours = arl.discounted_returns(rewards.T, torch.ones(1, 10, dtype=torch.bool), 0.1)
        assert theirs[0].item() == 0
        assert ours[0, 0].item() == pytest.approx(1)

    def test_torchrl_discounts_in_float32_where_gamma_is_a_plain_number(self, functional):
        rewards, zero = torch.ones(3, 1, dtype=arl.DTYPE), torch.zeros(3, 1, dtype=arl.DTYPE)
        inputs = zero, zero, rewards, ends(zero)
        plain, _ = functional.generalized_advantage_estimate(0.9, 1.0, *inputs)
        exact, _ = functional.generalized_advantage_estimate(double(0.9), double(1.0), *inputs)
        ours = arl.gae(rewards.T, zero.T, torch.ones(1, 3, dtype=torch.bool), 0.9, 1.0).advantages
        assert plain[0].item() == pytest.approx(2.7099999332, abs=1e-10)
        assert exact[0].item() == pytest.approx(2.71, abs=1e-12)
        assert ours[0, 0].item() == pytest.approx(2.71, abs=1e-12)

    def test_truncation_and_termination_in_numbers(self, functional):
        values = torch.tensor([[0.5], [0.6], [0.8]], dtype=arl.DTYPE)
        following = torch.cat([values[1:], torch.tensor([[0.9]], dtype=arl.DTYPE)])
        inputs = 1.0, 1.0, values, following, torch.zeros_like(values), ends(values)
        mask = torch.ones(1, 3, dtype=torch.bool)
        for terminated, bootstrap, right in [(True, None, [-0.5, -0.6, -0.8]), (False, 0.9, [0.4, 0.3, 0.1])]:
            theirs = functional.generalized_advantage_estimate(*inputs, ends(values, terminated))[0][:, 0]
            mine = arl.gae(torch.zeros(1, 3, dtype=arl.DTYPE), values.T, mask, 1.0, 1.0, bootstrap).advantages[0]
            assert theirs.tolist() == pytest.approx(right, abs=1e-7)
            assert mine.tolist() == pytest.approx(right, abs=1e-7)

    def test_whitening_is_torchrls_but_for_1e_6_added_to_the_deviation(self):
        utils = peer("torchrl._utils")
        for batch in batches():
            ours = batch.policy(arl.normalize_advantages(batch.advantages, batch.mask))
            tokens = batch.policy(batch.advantages)
            as_torchrl = ours * (tokens.std() + 1e-6) / tokens.std()
            assert apart(as_torchrl, utils._standardize(tokens)) < TOLERANCE, batch.seed


@pytest.fixture(scope="module")
def ppo() -> Callable[..., Any]:
    """Return a function that gives torchrl's PPO loss of N steps, from logits [N, 3] and a critic's values [N]."""
    objectives, nn = peer("torchrl.objectives"), peer("tensordict.nn")
    tensordict = peer("tensordict").TensorDict
    logits = nn.TensorDictModule(torch.nn.Identity(), ["scores"], ["logits"])
    chosen = nn.ProbabilisticTensorDictModule(
        ["logits"], ["action"], distribution_class=torch.distributions.Categorical, return_log_prob=True
    )
    actor = nn.ProbabilisticTensorDictSequential(logits, chosen)
    critic = nn.TensorDictModule(torch.nn.Identity(), ["predicted"], ["state_value"])

    def loss(bounds: Any, columns: dict[str, Tensor], **options: Any) -> Any:
        module = objectives.ClipPPOLoss(actor, critic, clip_epsilon=bounds, entropy_bonus=False, **options).double()
        table = tensordict(columns, [len(columns["action"])])
        return module(table)

    return loss


def steps(batch: Batch) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Return what torchrl reads of the batch's policy tokens, the scores behind it, and the log-probs, each of [N]."""
    draws, count = arl.generator(batch.seed), int(batch.mask.sum())
    scores = leaf(2 * torch.rand(count, 3, generator=draws, dtype=arl.DTYPE))
    action = torch.randint(0, 3, (count,), generator=draws)
    logprobs = scores.log_softmax(-1).gather(-1, action[:, None])[:, 0]
    old = logprobs.detach() - batch.policy(batch.logprobs - batch.old_logprobs)
    columns = {
        "scores": scores,
        "action": action,
        "action_log_prob": old,
        "advantage": batch.policy(batch.advantages)[:, None],
        "predicted": leaf(batch.policy(batch.values))[:, None],
        "state_value": batch.policy(batch.old_values)[:, None],
        "value_target": batch.policy(batch.returns)[:, None],
    }
    return columns, scores, logprobs


def one_row(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Return the numbers as a table of one row, with its mask."""
    return numbers.reshape(1, -1), torch.ones(1, numbers.numel(), dtype=torch.bool)


def outside_the_band(logprobs: Tensor, old: Tensor, mask: Tensor) -> float:
    """Return the share of ratios outside the bounds: those clipped at a positive advantage, and at a negative one."""
    one = torch.ones_like(old)
    return sum(arl.ppo_policy_loss(logprobs, old, sign * one, mask, LOW, HIGH).clip_fraction for sign in (1, -1))


class TestLosses:
    def test_ppo_has_the_same_loss_gradient_ratios_and_effective_sample_size(self, ppo):
        for batch in batches():
            columns, scores, logprobs = steps(batch)
            found = ppo((LOW, HIGH), columns, critic_coeff=1.0)
            (new, mask), (old, _) = one_row(logprobs), one_row(columns["action_log_prob"])
            ours = arl.ppo_policy_loss(new, old, columns["advantage"].T, mask, LOW, HIGH)
            theirs = found["loss_objective"]
            assert apart(ours.loss, theirs) < TOLERANCE, batch.seed
            kept = torch.autograd.grad(ours.loss, scores, retain_graph=True)[0]
            assert apart(kept, gradient(theirs, scores)) < TOLERANCE, batch.seed
            assert apart(ours.ratio_mean, found["mean_ratio"]) < TOLERANCE, batch.seed
            assert apart(ours.ratio_max, found["max_ratio"]) < TOLERANCE, batch.seed
            ratio = arl.importance_ratio(new, old, mask)
            assert apart(arl.effective_sample_size(ratio), found["ESS"].squeeze()) < TOLERANCE, batch.seed
            assert apart(ours.approx_kl, found["kl_approx"] + ours.ratio_mean - 1) < TOLERANCE, "k3 and k1"
            assert apart(outside_the_band(new.detach(), old, mask), found["clip_fraction"]) < TOLERANCE, batch.seed

    def test_torchrl_counts_ratios_outside_the_band_we_gradients_that_were_removed(self, ppo):
        ratios = torch.tensor([1.2, 1.3, 1.5, 0.7, 0.5, 4.0], dtype=arl.DTYPE)
        batch = next(b for b in batches() if b.mask.sum() >= 6)
        columns, _, logprobs = steps(batch)
        columns = {name: column[:6] for name, column in columns.items()}
        old = (logprobs.detach()[:6] - ratios.log())[None]
        columns |= {"action_log_prob": old[0], "advantage": torch.ones(6, 1, dtype=arl.DTYPE)}
        found = ppo((0.2, 0.28), columns, critic_coeff=1.0)
        ours = arl.ppo_policy_loss(logprobs[None, :6].detach(), old, columns["advantage"].T, old < 9, 0.2, 0.28)
        assert found["clip_fraction"].item() == pytest.approx(5 / 6)
        assert ours.clip_fraction == pytest.approx(1 / 2)
        assert (found["loss_objective"].item(), ours.loss.item()) == (pytest.approx(-1.04), pytest.approx(-1.04))

    @pytest.mark.parametrize("clip", [CLIP, None])
    def test_torchrls_squared_error_has_no_half(self, ppo, clip):
        for batch in batches():
            columns, _, _ = steps(batch)
            predicted = columns["predicted"]
            found = ppo((LOW, HIGH), columns, critic_coeff=1.0, loss_critic_type="l2", clip_value=clip)
            values, mask = one_row(predicted)
            old = columns["state_value"].T if clip else None
            ours = arl.ppo_value_loss(values, columns["value_target"].T, mask, old, clip)
            theirs = found["loss_critic"]
            assert apart(2 * ours.loss, theirs) < TOLERANCE, batch.seed
            slopes = torch.autograd.grad(ours.loss, predicted, retain_graph=True)[0]
            assert apart(2 * slopes, gradient(theirs, predicted)) < TOLERANCE, batch.seed
            unexplained = 1 - arl.explained_variance(values.detach(), columns["value_target"].T, mask)
            variance = columns["value_target"].var(correction=0).item()
            explained = 1 - unexplained * variance / (variance + torch.finfo(arl.DTYPE).eps)
            assert apart(explained, found["explained_variance"].squeeze()) < TOLERANCE, batch.seed

    def test_the_critic_in_numbers(self, ppo):
        batch = next(b for b in batches() if b.mask.sum() >= 3)
        columns = {name: column[:3] for name, column in steps(batch)[0].items()}
        new, target, old = (torch.tensor(x, dtype=arl.DTYPE) for x in ([1.0, 2, 3], [1.5, 1, 3], [0.0, 1, 3]))
        columns |= {"predicted": new[:, None], "value_target": target[:, None], "state_value": old[:, None]}
        ours = arl.ppo_value_loss(new[None], target[None], old[None] < 9, old[None], CLIP)
        squared = ppo((LOW, HIGH), columns, critic_coeff=1.0, loss_critic_type="l2", clip_value=CLIP)
        default = ppo((LOW, HIGH), columns, critic_coeff=1.0)
        assert ours.loss.item() == pytest.approx(1 / 3)
        assert squared["loss_critic"].item() == pytest.approx(2 / 3)
        assert default["loss_critic"].item() == pytest.approx(0.625 / 3), "smooth L1 where nothing is said"
        assert ours.clip_fraction == pytest.approx(1 / 3)
        assert squared["value_clip_fraction"].item() == pytest.approx(2 / 3), "values that moved by more than the clip"

    def test_explained_variance_of_equal_returns_is_nan_here_and_a_huge_number_in_torchrl(self, ppo):
        batch = next(b for b in batches() if b.mask.sum() >= 3)
        columns = {name: column[:3] for name, column in steps(batch)[0].items()}
        columns["value_target"] = torch.ones(3, 1, dtype=arl.DTYPE)
        theirs = ppo((LOW, HIGH), columns, critic_coeff=1.0)["explained_variance"].item()
        assert theirs < -1e12
        values, mask = one_row(columns["predicted"].detach())
        assert math.isnan(arl.explained_variance(values, columns["value_target"].T, mask))


@pytest.fixture(scope="module")
def objective() -> Callable[..., Tensor]:
    """Return a function that gives the loss of each token of a torchrl class for language models."""
    losses = peer("torchrl.objectives.llm")

    def loss(kind: str, log_ratios: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
        fake = SimpleNamespace(_clip_bounds=(math.log(1 - low), math.log(1 + high)))
        return getattr(losses, kind)._compute_policy_objective(fake, log_ratios, advantages)[0]

    return loss


class TestLanguageModelLosses:
    @pytest.mark.parametrize("kind", ["GRPOLoss", "DAPO"])
    def test_grpo_and_dapo_have_ppos_loss_and_gradient(self, objective, kind):
        for batch in batches():
            new = leaf(batch.logprobs)
            ours = arl.ppo_policy_loss(new, batch.old_logprobs, batch.advantages, batch.mask, LOW, HIGH).loss
            each = objective(kind, batch.policy(new - batch.old_logprobs), batch.policy(batch.advantages), LOW, HIGH)
            assert apart(ours, each.mean()) < TOLERANCE, batch.seed
            assert apart(gradient(ours, new), gradient(each.mean(), new)) < TOLERANCE, batch.seed

    def test_cispo_loses_the_gradient_of_every_token_outside_the_band_there_and_of_none_here(self, objective):
        new = leaf(torch.tensor([1.2, 1.3, 1.5, 0.7, 0.5, 4.0], dtype=arl.DTYPE).log())
        one, every = torch.ones(1, 6, dtype=arl.DTYPE), torch.ones(1, 6, dtype=torch.bool)
        theirs = gradient(objective("CISPOLoss", new, one[0], 0.2, 0.28).sum(), new)
        ours = gradient(6 * arl.cispo_policy_loss(new[None], 0 * one, one, every, 0.2, 0.28).loss, new)
        assert apart(theirs, torch.tensor([-1.2, 0, 0, 0, 0, 0])) < 1e-6
        assert apart(ours, torch.tensor([-1.2, -1.28, -1.28, -0.8, -0.8, -1.28])) < 1e-6

    def test_its_kl_to_a_reference_is_k3_over_all_positions_padding_too_ours_over_tokens(self):
        losses = peer("torchrl.objectives.llm")
        for batch in batches():
            new = leaf(batch.logprobs)
            held = {"_cur_log_prob": new}
            fake = SimpleNamespace(kl_to_ref_coeff=1.0)
            given = {"ref_log_prob": batch.old_logprobs, "mask": batch.mask}
            theirs, _ = losses.GRPOLoss._kl_to_ref(fake, held, **given)
            ours = arl.kl_loss(new, batch.old_logprobs, batch.mask, "k3")
            share = batch.mask.double().mean()
            assert apart(ours * share, theirs) < TOLERANCE, batch.seed
            assert apart(share * gradient(ours, new), gradient(theirs, new)) < TOLERANCE, batch.seed
