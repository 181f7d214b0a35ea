"""The library against verl 0.9.1 on 200 random batches a function; where verl does otherwise, both numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peer_batches import (
    TOLERANCE,
    Attempts,
    Batch,
    apart,
    attempts,
    batches,
    coefficients,
    gradient,
    leaf,
    random_logits,
    reward_groups,
    rounding_of_variance,
    source_of,
    verl,
)
from torch import Tensor

import agentrl as arl

MODES = arl.AGGREGATIONS
NEVER = 1e9  # a bound that is never reached
KINDS = [(1.0, 0.95), (0.9, 1.0), (0.97, 0.0)]


@pytest.fixture(scope="module")
def core() -> Any:
    """Return verl's advantage estimators and losses."""
    return verl("verl.trainer.ppo.core_algos")


@pytest.fixture(scope="module")
def correction() -> Any:
    """Return verl's weights for samples of another policy."""
    return verl("verl.trainer.ppo.rollout_corr_helper")


@pytest.fixture(scope="module")
def metrics() -> Any:
    """Return what verl logs."""
    return verl("verl.trainer.ppo.metric_utils")


@pytest.fixture(scope="module")
def loss_of(core: Any) -> Callable[..., tuple[Tensor, dict[str, float]]]:
    """Return a function that gives verl's loss of a name, with its metrics; bounds as ours."""
    config_of = verl("verl.workers.config").ActorConfig
    shape = {"strategy": "fsdp", "rollout_n": 1, "ppo_micro_batch_size_per_gpu": 1}

    def loss(name: str, tables: Tables, low: float, high: float, mode: str, dual: float = NEVER, **whole: Any) -> Any:
        config = config_of(**shape, clip_ratio_low=low, clip_ratio_high=high, clip_ratio_c=dual)
        config.global_batch_info.update(whole)
        logprobs, old, advantages, mask = tables
        found, seen = core.get_policy_loss_fn(name)(old, logprobs, advantages, mask.long(), mode, config)
        return found, {name.removeprefix("actor/"): number for name, number in seen.items()}

    return loss


@pytest.fixture(scope="module")
def policy_loss(loss_of: Any) -> Callable[..., tuple[Tensor, dict[str, float]]]:
    """Return verl's PPO loss of a batch, with its metrics."""

    def loss(batch: Batch, low: float, high: float, dual: float = NEVER, mode: str = "token-mean", **whole: Any) -> Any:
        return loss_of("vanilla", tables_of(batch), low, high, mode, dual, **whole)

    return loss


Tables = tuple[Tensor, Tensor, Tensor, Tensor]


def tables_of(batch: Batch) -> Tables:
    """Return what a loss takes first."""
    return batch.logprobs, batch.old_logprobs, batch.advantages, batch.mask


def norm_length(mode: str) -> float | None:
    return 7.0 if mode == "seq-mean-token-sum-norm" else None


class TestAggregation:
    @pytest.mark.parametrize("mode", MODES)
    def test_a_batch_has_the_same_loss(self, core, mode):
        for batch in batches():
            ours = arl.aggregate_loss(batch.values, batch.mask, mode, norm_length(mode))
            theirs = core.agg_loss(batch.values, batch.mask.long(), mode, loss_scale_factor=norm_length(mode))
            assert apart(ours, theirs) < TOLERANCE, batch.seed

    @pytest.mark.parametrize("mode", MODES)
    def test_a_part_has_the_same_share_of_the_whole_batch(self, core, mode):
        for batch in batches():
            whole = batch.counts()
            numbers = {"batch_num_tokens": whole.tokens, "global_batch_size": whole.sequences}
            for row, mask in zip(batch.values, batch.mask, strict=True):
                part = row[None], mask[None]
                ours = arl.aggregate_loss(*part, mode, norm_length(mode), whole)
                theirs = core.agg_loss(
                    part[0], part[1].long(), mode, loss_scale_factor=norm_length(mode), dp_size=1, **numbers
                )
                assert apart(ours, theirs) < TOLERANCE, batch.seed

    def test_verl_divides_by_the_width_of_the_table_where_no_length_is_given(self, core):
        losses, mask = torch.tensor([[1.0, 2, 9, 9], [3, 4, 5, 6]]), torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
        assert core.agg_loss(losses, mask, "seq-mean-token-sum-norm").item() == 2.625
        wider = [torch.nn.functional.pad(table, (0, 4)) for table in (losses, mask)]
        assert core.agg_loss(*wider, "seq-mean-token-sum-norm").item() == 1.3125, "padding halves verl's loss"
        with pytest.raises(ValueError, match="needs one"):
            arl.aggregate_loss(losses, mask.bool(), "seq-mean-token-sum-norm")
        assert arl.aggregate_loss(losses, mask.bool(), "seq-mean-token-sum-norm", 4).item() == 2.625

    @pytest.mark.parametrize("mode", MODES)
    def test_reinforce_has_the_same_loss_and_gradient(self, core, mode):
        config = SimpleNamespace(global_batch_info={"loss_scale_factor": norm_length(mode)})
        for batch in batches():
            logprobs = leaf(batch.logprobs)
            ours = arl.policy_gradient_loss(logprobs, batch.advantages, batch.mask, mode, norm_length(mode))
            inputs = batch.old_logprobs, logprobs, batch.advantages, batch.mask.long()
            theirs, _ = core.compute_policy_loss_gpg(*inputs, mode, config)
            assert apart(ours, theirs) < TOLERANCE, batch.seed
            assert apart(gradient(ours, logprobs), gradient(theirs, logprobs)) < TOLERANCE, batch.seed


class TestReturnsAndAdvantages:
    @pytest.mark.parametrize(("gamma", "lam"), KINDS)
    def test_gae_skips_tool_spans_as_verl_does(self, core, gamma, lam):
        for batch in batches():
            ours = arl.gae(batch.rewards, batch.values, batch.mask, gamma, lam)
            _, returns = core.compute_gae_advantage_return(batch.rewards, batch.values, batch.mask.long(), gamma, lam)
            assert apart(batch.policy(ours.returns), batch.policy(returns)) < TOLERANCE, batch.seed
            raw = returns - batch.values
            assert apart(batch.policy(ours.advantages), batch.policy(raw)) < TOLERANCE, batch.seed

    def test_verl_whitens_gae_with_the_root_of_variance_plus_1e_8_we_on_request_with_deviation_plus_1e_6(self, core):
        for batch in batches():
            raw = arl.gae(batch.rewards, batch.values, batch.mask).advantages
            ours = batch.policy(arl.normalize_advantages(raw, batch.mask))
            inputs = batch.rewards, batch.values, batch.mask.long(), 1.0, 0.95
            theirs = batch.policy(core.compute_gae_advantage_return(*inputs)[0])
            tokens = batch.policy(raw)
            variance = tokens.var() * rounding_of_variance(len(tokens))
            as_verl = ours * (tokens.std() + 1e-6) / (variance + 1e-8).sqrt()
            assert apart(as_verl, theirs) < TOLERANCE, batch.seed

    def test_whitening_differs_in_the_sixth_digit(self, core):
        functions, row = verl("verl.utils.torch_functional"), torch.tensor([[0.0, 0.1, 0.2]], dtype=arl.DTYPE)
        theirs = functions.masked_whiten(row, torch.ones(1, 3, dtype=torch.long))[0, 2].item()
        ours = arl.normalize_advantages(row)[0, 2].item()
        assert (round(theirs, 7), round(ours, 7)) == (0.9999995, 0.99999)
        assert theirs == pytest.approx(0.1 / math.sqrt(0.01 + 1e-8), abs=1e-12)
        assert ours == pytest.approx(0.1 / (0.1 + 1e-6), abs=1e-12)

    @pytest.mark.parametrize(("gamma", "lam"), KINDS)
    def test_verl_has_no_bootstrap_but_a_last_reward_that_holds_it_does_the_same(self, core, gamma, lam):
        for batch in batches(empty_rows=False):
            bootstrap = batch.returns[:, 0]
            ours = arl.gae(batch.rewards, batch.values, batch.mask, gamma, lam, bootstrap)
            rewards, rows = batch.rewards.clone(), torch.arange(len(batch.mask))
            last = torch.where(batch.mask, torch.arange(batch.mask.shape[1]), -1).amax(-1)
            rewards[rows, last] += gamma * bootstrap
            _, theirs = core.compute_gae_advantage_return(rewards, batch.values, batch.mask.long(), gamma, lam)
            assert apart(batch.policy(ours.returns), batch.policy(theirs)) < TOLERANCE, batch.seed

    def test_a_truncated_episode_in_numbers(self, core):
        rewards, values = torch.zeros(1, 3, dtype=arl.DTYPE), torch.tensor([[0.5, 0.6, 0.8]], dtype=arl.DTYPE)
        mask, next_value = torch.ones(1, 3, dtype=torch.bool), torch.tensor([0.9], dtype=arl.DTYPE)
        _, theirs = core.compute_gae_advantage_return(rewards, values, mask.long(), 1.0, 1.0)
        assert apart(theirs - values, torch.tensor([[-0.5, -0.6, -0.8]])) < 1e-7, "as if it had terminated"
        ours = arl.gae(rewards, values, mask, 1.0, 1.0, next_value).advantages
        assert apart(ours, torch.tensor([[0.4, 0.3, 0.1]])) < 1e-7

    @pytest.mark.parametrize("gamma", [1.0, 0.9])
    def test_discounted_returns_are_those_of_reinforce_plus_plus(self, core, gamma):
        for batch in batches():
            ours = arl.discounted_returns(batch.rewards, batch.mask, gamma)
            inputs = batch.rewards, batch.mask.long(), SimpleNamespace(gamma=gamma)
            theirs = core.compute_reinforce_plus_plus_outcome_advantage(*inputs)[1]
            assert apart(ours, theirs) < TOLERANCE, batch.seed


def outcome(core: Any, name: str, rewards: Tensor, tasks: Tensor, **options: Any) -> Tensor:
    """Return verl's advantage of each attempt, [N], from episodes of one token."""
    estimate = getattr(core, f"compute_{name}_outcome_advantage")
    return estimate(rewards[:, None].clone(), torch.ones(len(rewards), 1).long(), tasks.numpy(), **options)[0][:, 0]


class TestGroups:
    @pytest.mark.parametrize(("scale", "by_std"), [("none", False), ("group", True)])
    def test_group_advantages_are_those_of_grpo(self, core, scale, by_std):
        for batch in reward_groups():
            ours = arl.group_mean_advantages(batch.rewards, batch.tasks, scale)
            theirs = outcome(core, "grpo", batch.rewards, batch.tasks, norm_adv_by_std_in_grpo=by_std)
            assert apart(ours, theirs) < TOLERANCE, batch.seed

    @pytest.mark.parametrize(("scale", "by_std"), [("none", False), ("group", True)])
    def test_verls_vectorised_grpo_is_float32_inside_and_the_same_on_rewards_of_0_and_1(self, core, scale, by_std):
        for batch in reward_groups():
            rewards = batch.rewards.round()
            ours = arl.group_mean_advantages(rewards, batch.tasks, scale)
            theirs = outcome(core, "grpo_vectorized", rewards, batch.tasks, norm_adv_by_std_in_grpo=by_std)
            assert apart(ours, theirs) < 1e-6, batch.seed

    @pytest.mark.parametrize("name", ["rloo", "rloo_vectorized"])
    def test_leave_one_out_advantages_are_those_of_rloo(self, core, name):
        for batch in reward_groups():
            ours = arl.leave_one_out_advantages(batch.rewards, batch.tasks)
            assert apart(ours, outcome(core, name, batch.rewards, batch.tasks)) < TOLERANCE, batch.seed

    def test_a_group_of_one_keeps_its_reward_in_verl_and_is_refused_here(self, core):
        alone, task = torch.tensor([2.0], dtype=arl.DTYPE), torch.tensor([5])
        assert outcome(core, "grpo", alone, task, norm_adv_by_std_in_grpo=False).item() == 2.0
        assert outcome(core, "rloo", alone, task).item() == 2.0
        assert outcome(core, "rloo_vectorized", alone, task).item() == 0.0
        for estimate in (arl.group_mean_advantages, arl.leave_one_out_advantages):
            with pytest.raises(ValueError, match="5"):
                estimate(alone, task)

    def test_equal_rewards_in_float32_are_not_exactly_zero_in_verl(self, core):
        equal, task = torch.full((6,), 0.9), torch.zeros(6, dtype=torch.long)
        assert equal.dtype == torch.float32
        theirs = outcome(core, "grpo", equal, task).abs().max().item()
        assert theirs > 0.01, "rounding of the mean over rounding of the deviation plus 1e-6"
        assert (arl.group_mean_advantages(equal, task, "group") == 0).all()


class TestPolicyLoss:
    @pytest.mark.parametrize(
        ("mode", "low", "high", "dual"),
        [*((mode, 0.2, 0.28, 3.0) for mode in MODES), ("token-mean", 0.2, 0.2, None), ("token-mean", 0.3, 0.5, 1.6)],
    )
    def test_loss_gradient_and_fractions_are_verls(self, policy_loss, mode, low, high, dual):
        dualed = 0.0
        for batch in batches():
            batch = replace(batch, logprobs=(logprobs := leaf(batch.logprobs)))
            ours = arl.ppo_policy_loss(
                logprobs, batch.old_logprobs, batch.advantages, batch.mask, low, high, dual, mode, norm_length(mode)
            )
            factor = {"loss_scale_factor": norm_length(mode)}
            theirs, seen = policy_loss(batch, low, high, dual or NEVER, mode, **factor)
            assert apart(ours.loss, theirs) < TOLERANCE, batch.seed
            assert apart(gradient(ours.loss, logprobs), gradient(theirs, logprobs)) < TOLERANCE, batch.seed
            assert ours.clip_fraction == pytest.approx(seen["pg_clipfrac"], abs=1e-6), "verl's is float32"
            assert ours.dual_clip_fraction == pytest.approx(seen["pg_clipfrac_lower"], abs=1e-6)
            dualed += ours.dual_clip_fraction
        assert (dualed > 0) == (dual is not None), "the dual clip has acted"

    @pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
    def test_a_row_has_the_same_share_of_the_whole_batch(self, policy_loss, mode):
        for batch in batches():
            whole = batch.counts()
            numbers = {"batch_num_tokens": whole.tokens, "global_batch_size": whole.sequences, "dp_size": 1}
            for row in range(len(batch.mask)):
                tables = {n: v[row : row + 1] for n, v in vars(batch).items() if isinstance(v, Tensor)}
                part = Batch(batch.seed, **tables)
                inputs = part.logprobs, part.old_logprobs, part.advantages, part.mask
                ours = arl.ppo_policy_loss(*inputs, 0.2, 0.28, 3.0, mode, norm_length(mode), whole)
                theirs, _ = policy_loss(part, 0.2, 0.28, 3.0, mode, loss_scale_factor=norm_length(mode), **numbers)
                assert apart(ours.loss, theirs) < TOLERANCE, batch.seed

    def test_verls_kl_is_k1_ours_is_k3_the_difference_is_the_mean_ratio_less_one(self, policy_loss, correction):
        for batch in batches():
            ours = arl.ppo_policy_loss(batch.logprobs, batch.old_logprobs, batch.advantages, batch.mask)
            _, seen = policy_loss(batch, 0.2, 0.2)
            assert apart(ours.approx_kl, seen["ppo_kl"] + ours.ratio_mean - 1) < TOLERANCE, batch.seed
            k3 = correction.compute_offpolicy_metrics(batch.logprobs, batch.old_logprobs, batch.mask.long())["k3_kl"]
            assert apart(ours.approx_kl, k3) < TOLERANCE, batch.seed

    @pytest.mark.parametrize(("advantage", "theirs", "ours"), [(-1.0, math.exp(20), math.exp(25)), (1.0, -1.2, -1.2)])
    def test_verl_bounds_the_log_ratio_to_20_and_loses_its_gradient_there(self, policy_loss, advantage, theirs, ours):
        new = torch.tensor([[-1.0]], dtype=arl.DTYPE, requires_grad=True)
        one = torch.ones(1, 1, dtype=arl.DTYPE)
        batch = Batch(0, one.bool(), new, new.detach() - 25, advantage * one, one, one, one, one)
        found, _ = policy_loss(batch, 0.2, 0.2)
        here = arl.ppo_policy_loss(new, batch.old_logprobs, batch.advantages, batch.mask).loss
        assert (found.item(), here.item()) == (pytest.approx(theirs), pytest.approx(ours))
        assert gradient(found, new).item() == 0
        assert gradient(here, new).item() == pytest.approx(ours if advantage < 0 else 0)

    def test_verls_dual_clip_is_on_at_3_where_nothing_is_said_ours_is_off(self, core):
        config = verl("verl.workers.config").ActorConfig(
            strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio_high=0.28
        )
        ratios = torch.tensor([[1.2, 1.3, 1.5, 0.7, 0.5, 4.0]], dtype=arl.DTYPE)
        mask, old = torch.ones(1, 6, dtype=torch.bool), torch.zeros(1, 6, dtype=arl.DTYPE)
        theirs, seen = core.compute_policy_loss_vanilla(old, ratios.log(), old - 1, mask.long(), config=config)
        assert theirs.item() == pytest.approx(1.433333, abs=1e-6)
        assert seen["actor/pg_clipfrac_lower"] == pytest.approx(1 / 6)
        assert arl.ppo_policy_loss(ratios.log(), old, old - 1, mask, 0.2, 0.28).loss.item() == pytest.approx(1.6)


class TestSequences:
    """GSPO: the ratio of a sequence."""

    @pytest.mark.parametrize(("low", "high"), [(3e-4, 4e-4), (0.1, 0.1), (0.3, 0.5)])
    @pytest.mark.parametrize("one_each", [True, False])
    def test_loss_gradient_and_clip_fraction_are_verls(self, loss_of, low, high, one_each):
        clipped = 0.0
        for batch in batches():
            tables = tables_of(replace(batch, logprobs=(logprobs := leaf(batch.logprobs))))
            whole = tables[2][:, :1].expand(batch.mask.shape) if one_each else tables[2]  # else "GSPO-token"
            ours = arl.gspo_policy_loss(*tables[:2], whole[:, 0] if one_each else whole, batch.mask, low, high)
            theirs, seen = loss_of("gspo", (*tables[:2], whole, batch.mask), low, high, "seq-mean-token-mean")
            assert apart(ours.loss, theirs) < TOLERANCE, batch.seed
            assert apart(gradient(ours.loss, logprobs), gradient(theirs, logprobs)) < TOLERANCE, batch.seed
            assert ours.clip_fraction == pytest.approx(seen["pg_clipfrac"], abs=1e-6), "verl's is float32"
            clipped += ours.clip_fraction
        assert clipped > 0

    def test_a_row_has_the_same_share_of_the_whole_batch(self, loss_of):
        for batch in batches():
            whole = batch.counts()
            numbers = {"batch_num_tokens": whole.tokens, "global_batch_size": whole.sequences, "dp_size": 1}
            for row in range(len(batch.mask)):
                part = tuple(table[row : row + 1] for table in tables_of(batch))
                theirs, _ = loss_of("gspo", part, 0.1, 0.1, "seq-mean-token-mean", **numbers)
                ours = arl.gspo_policy_loss(*part, clip_low=0.1, clip_high=0.1, whole=whole)
                assert apart(ours.loss, theirs) < TOLERANCE, batch.seed

    def test_g8_in_numbers(self, loss_of):
        new, old, signs, mask = g8()
        tables = new, old, signs[:, None].expand(2, 4), mask
        theirs, _ = loss_of("gspo", tables, 3e-4, 4e-4, "seq-mean-token-mean")
        ours = arl.gspo_policy_loss(new, old, signs, mask).loss
        right = torch.tensor([[-0.166667] * 3 + [0], [0.129777] * 4])
        for loss in (theirs, ours):
            assert loss.item() == pytest.approx(0.019106, abs=1e-6)
            assert apart(gradient(loss, new), right) < 1e-6

    def test_verl_bounds_the_mean_log_ratio_to_10_and_loses_its_gradient_there(self, loss_of):
        new = torch.full((1, 2), 12.0, dtype=arl.DTYPE, requires_grad=True)
        tables = new, torch.zeros(1, 2, dtype=arl.DTYPE), -torch.ones(1, 2, dtype=arl.DTYPE), torch.ones(1, 2).bool()
        theirs, _ = loss_of("gspo", tables, 0.1, 0.1, "seq-mean-token-mean")
        ours = arl.gspo_policy_loss(*tables, 0.1, 0.1).loss
        assert (theirs.item(), ours.item()) == (pytest.approx(math.exp(10)), pytest.approx(math.exp(12)))
        assert gradient(theirs, new).tolist() == [[0, 0]]
        assert gradient(ours, new)[0, 0].item() == pytest.approx(math.exp(12) / 2)


def g8() -> Tables:
    """Return G8: new and old log-probabilities, an advantage each, and the mask."""
    old = torch.tensor([[-1.0, -2, -1, 0], [-1] * 4], dtype=arl.DTYPE)
    new = leaf(torch.tensor([[-0.9, -1.9, -1.2, 5], [-1, -0.7, -1.1, -1.05]], dtype=arl.DTYPE))
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)
    return new, old, torch.tensor([1.0, -1.0], dtype=arl.DTYPE), mask


class TestWeights:
    """CISPO: the ratio as a weight."""

    @pytest.mark.parametrize(
        ("mode", "low", "high"), [*((mode, 0.2, 0.28) for mode in MODES), ("token-mean", 1.0, 4.0)]
    )
    def test_loss_gradient_and_clip_fraction_are_verls(self, loss_of, mode, low, high):
        for batch in batches():
            tables = tables_of(replace(batch, logprobs=(logprobs := leaf(batch.logprobs))))
            ours = arl.cispo_policy_loss(*tables, low, high, mode, norm_length(mode))
            theirs, seen = loss_of("cispo", tables, low, high, mode, loss_scale_factor=norm_length(mode))
            assert apart(ours.loss, theirs) < TOLERANCE, batch.seed
            assert apart(gradient(ours.loss, logprobs), gradient(theirs, logprobs)) < TOLERANCE, batch.seed
            assert ours.clip_fraction == pytest.approx(seen["pg_clipfrac"], abs=1e-6), "verl's is float32"

    def test_g7_in_numbers(self, loss_of):
        ratios = torch.tensor([[1.2, 1.3, 1.5, 0.7, 0.5, 4.0]], dtype=arl.DTYPE)
        new, zero = leaf(ratios.log()), torch.zeros_like(ratios)
        tables = new, zero, zero + 1, zero == 0
        theirs, _ = loss_of("cispo", tables, 0.2, 0.28, "token-mean")
        right = torch.tensor([[-1.2, -1.28, -1.28, -0.8, -0.8, -1.28]])
        for loss in (theirs, arl.cispo_policy_loss(*tables, 0.2, 0.28).loss):
            assert apart(6 * gradient(loss, new), right) < 1e-6


# Each preset of ours as verl is told it: the advantage estimator, with its options, and the loss.
IN_VERL: dict[str, tuple[str, dict[str, Any], str]] = {
    "grpo": ("grpo", {}, "vanilla"),
    "dr_grpo": ("grpo", {"norm_adv_by_std_in_grpo": False}, "vanilla"),
    "dapo": ("grpo", {}, "vanilla"),
    "rloo": ("rloo", {}, "vanilla"),
    "gspo": ("grpo", {}, "gspo"),
    "cispo": ("grpo", {}, "cispo"),
}


def verls_coefficients(core: Any, loss_of: Any, name: str, batch: Attempts) -> Tensor:
    """Return minus the derivative of verl's loss by each token's log-probability, [12, 7]."""
    (estimator, options, loss), config = IN_VERL[name], arl.PRESETS[name]
    scores = torch.zeros_like(batch.logprobs)
    scores[:, 0] = batch.rewards
    estimate = core.get_adv_estimator_fn(estimator)
    advantages, _ = estimate(scores, batch.mask.long(), batch.groups.numpy(), **options)
    rows, logprobs = batch.row_numbers(informative=config.refills > 0), leaf(batch.logprobs)
    tables = logprobs[rows], batch.old_logprobs[rows], advantages[rows], batch.mask[rows]
    bounds = config.clip_low, config.clip_high, config.aggregation
    return -gradient(loss_of(loss, tables, *bounds, loss_scale_factor=config.norm_length)[0], logprobs)


class TestVariants:
    @pytest.mark.parametrize("moved", [False, True])
    @pytest.mark.parametrize("name", list(IN_VERL))
    def test_each_preset_gives_every_token_the_coefficient_that_verl_gives_it(self, core, loss_of, name, moved):
        batch = attempts(moved)
        ours, theirs = coefficients(arl.PRESETS[name], batch), verls_coefficients(core, loss_of, name, batch)
        assert apart(ours, theirs) < TOLERANCE
        assert (ours[~batch.mask] == 0).all()
        assert (ours[8:] == 0).all(), "the task that is never solved"
        assert (ours[:8][batch.mask[:8]] != 0).any()

    def test_there_is_one_for_each_preset(self):
        assert list(IN_VERL) == list(arl.PRESETS)

    def test_verl_takes_a_token_mean_for_all_of_them_where_nothing_is_said(self):
        config = verl("verl.workers.config").ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1)
        assert config.loss_agg_mode == "token-mean"
        assert (config.clip_ratio, config.clip_ratio_c) == (0.2, 3.0)

    @pytest.mark.parametrize("normalized", [True, False])
    def test_a_table_of_rewards_has_the_advantages_of_grpo(self, core, normalized):
        for batch in reward_groups(equal_sizes=True):
            table = batch.rewards.view(len(batch.tasks.unique()), -1)
            ours = arl.grpo_advantages(table, normalized).flatten()
            theirs = outcome(core, "grpo", batch.rewards, batch.tasks, norm_adv_by_std_in_grpo=normalized)
            assert apart(ours, theirs) < TOLERANCE, batch.seed

    def test_g3_in_numbers(self, core):
        rewards, task = torch.tensor([1.0, 0, 0, 0], dtype=arl.DTYPE), torch.zeros(4, dtype=torch.long)
        for name, options, ours, right in [
            ("grpo", {}, arl.grpo_advantages(rewards[None])[0], [1.499997] + [-0.499999] * 3),
            (
                "grpo",
                {"norm_adv_by_std_in_grpo": False},
                arl.grpo_advantages(rewards[None], False)[0],
                [0.75] + [-0.25] * 3,
            ),
            ("rloo", {}, arl.leave_one_out_advantages(rewards, task), [1] + [-1 / 3] * 3),
        ]:
            for found in (ours, outcome(core, name, rewards, task, **options)):
                assert apart(found, torch.tensor(right)) < 1e-6


class TestOverlong:
    def test_the_penalty_is_that_of_verls_reward_manager_up_to_the_longest_answer(self):
        lengths = torch.arange(1, 41)
        theirs = overlong_in_verl(lengths, 30, 6)
        ours = arl.overlong_penalty(lengths, 30, 6)
        assert apart(ours[:30], theirs[:30]) < 1e-6, "verl's is float32"
        assert (ours[23].item(), ours[26].item(), ours[29].item()) == (0.0, -0.5, -1.0), "24, 27 and 30 tokens"

    def test_beyond_it_verls_goes_on_falling_ours_stays_at_minus_1(self):
        lengths = torch.tensor([36, 42])
        assert overlong_in_verl(lengths, 30, 6).tolist() == [-2.0, -3.0]
        assert arl.overlong_penalty(lengths, 30, 6).tolist() == [-1.0, -1.0]


def overlong_in_verl(lengths: Tensor, longest: int, buffer: int) -> Tensor:
    """Return what verl's reward manager for DAPO takes off a reward of 0, [N]."""
    manager = verl("verl.workers.reward_manager.dapo")
    settings = SimpleNamespace(enable=True, len=buffer, penalty_factor=1.0, log=False)
    tokenizer = SimpleNamespace(decode=lambda *_, **__: "text", eos_token="<end>")
    graded = manager.DAPORewardManager(tokenizer, 0, lambda **_: 0.0, "source", longest, settings)
    width = int(lengths.max())
    answers = (torch.arange(width) < lengths[:, None]).long()
    tables = {
        "prompts": torch.ones(len(lengths), 1).long(),
        "responses": answers,
        "attention_mask": torch.cat([torch.ones(len(lengths), 1).long(), answers], 1),
    }
    labels = {"source": ["x"] * len(lengths), "reward_model": [{"ground_truth": ""}] * len(lengths)}
    labels["extra_info"] = [{} for _ in lengths]
    return graded(manager.DataProto.from_dict(tables, labels)).sum(-1)


class TestKL:
    @pytest.mark.parametrize("kind", ["k1", "k2", "k3", "k1+", "k3+"])
    def test_estimates_and_their_slopes_are_verls(self, core, kind):
        for batch in batches():
            own, reference = leaf(batch.policy(batch.logprobs)), batch.policy(batch.old_logprobs)
            ours, theirs = arl.kl_estimate(own, reference, kind), core.kl_penalty(own, reference, kind)
            assert apart(ours, theirs) < TOLERANCE, batch.seed
            assert apart(gradient(ours.sum(), own), gradient(theirs.sum(), own)) < TOLERANCE, batch.seed

    @pytest.mark.parametrize(("kind", "slope"), [("k3", 0.0), ("k3+", -10.0)])
    def test_verl_cuts_k3_at_10_and_loses_its_slope_there_ours_keeps_both(self, core, kind, slope):
        own, reference = leaf(torch.tensor([-11.0], dtype=arl.DTYPE)), torch.tensor([-1.0], dtype=arl.DTYPE)
        theirs, ours = core.kl_penalty(own, reference, kind), arl.kl_estimate(own, reference, kind)
        assert (theirs.item(), round(ours.item(), 1)) == (10.0, 22015.5)
        assert gradient(theirs.sum(), own).item() == slope
        assert gradient(ours.sum(), own).item() == pytest.approx(slope or 1 - math.exp(10))

    @pytest.mark.parametrize(
        ("kind", "mode"),
        [*((kind, "token-mean") for kind in ("k1", "k2", "k3", "k1+")), *(("k3+", mode) for mode in MODES)],
    )
    def test_as_a_loss_they_have_verls_value_and_gradient(self, core, kind, mode):
        for batch in batches():
            own, reference, whole = leaf(batch.logprobs), batch.old_logprobs, batch.counts()
            ours = arl.kl_loss(own, reference, batch.mask, kind, None, mode, norm_length(mode))
            kept = torch.where(batch.mask, own, 0.0), torch.where(batch.mask, reference, 0.0)
            each = core.kl_penalty(*kept, kind)
            theirs = core.agg_loss(each, batch.mask.long(), mode, loss_scale_factor=norm_length(mode))
            assert apart(ours, theirs) < TOLERANCE, batch.seed
            assert apart(gradient(ours, own), gradient(theirs, own)) < TOLERANCE, batch.seed
            part = arl.kl_loss(own[:1], reference[:1], batch.mask[:1], kind, None, mode, norm_length(mode), whole)
            counts = {"batch_num_tokens": whole.tokens, "global_batch_size": whole.sequences, "dp_size": 1}
            each = core.kl_penalty(kept[0][:1], kept[1][:1], kind)
            theirs = core.agg_loss(each, batch.mask[:1].long(), mode, loss_scale_factor=norm_length(mode), **counts)
            assert apart(part, theirs) < TOLERANCE, batch.seed

    @pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
    def test_rewards_less_the_penalty_are_verls(self, charge, kind):
        for batch in batches():
            paid, beta = batch.returns[:, 0], 0.1
            paid = torch.where(batch.mask.any(1), paid, 0.0)
            ours = arl.kl_penalized_rewards(paid, batch.logprobs, batch.old_logprobs, batch.mask, beta, kind)
            last = torch.where(batch.mask, torch.arange(batch.mask.shape[1]), 0).amax(-1)
            scores = torch.zeros_like(batch.logprobs).scatter(1, last[:, None], paid[:, None])
            theirs, _ = charge(batch, scores, beta, kind)
            assert apart(ours, theirs) < TOLERANCE, batch.seed

    def test_verl_reports_the_mean_over_rows_of_their_token_means(self, charge):
        for batch in batches(empty_rows=False):
            _, seen = charge(batch, torch.zeros_like(batch.logprobs), 0.1, "k1")
            ours = arl.kl_loss(batch.logprobs, batch.old_logprobs, batch.mask, "k1", None, "seq-mean-token-mean")
            assert seen["actor/reward_kl_penalty"] == pytest.approx(ours.item(), abs=1e-6), "up to 1e-8 in a divisor"

    def test_the_controller_moves_as_verls_does_with_the_episodes_over_the_horizon_as_gain(self, core):
        kls = torch.rand(200, generator=arl.generator(0), dtype=arl.DTYPE).tolist()
        theirs, ours = core.AdaptiveKLController(0.2, 0.4, 10_000), arl.AdaptiveKL(0.2, 0.4, gain=280 / 10_000)
        for kl in kls:
            theirs.update(kl, 280)
            assert ours.update(kl) == pytest.approx(theirs.value, abs=1e-12)


@pytest.fixture(scope="module")
def charge(core: Any) -> Callable[..., tuple[Tensor, dict[str, float]]]:
    """Return verl's `apply_kl_penalty` as a function of a batch, scores, beta and kind."""
    names = {"core_algos": core, "masked_mean": verl("verl.utils.torch_functional").masked_mean, "torch": torch}
    apply = source_of("verl.trainer.ppo.ray_trainer", "apply_kl_penalty", names)

    def charged(batch: Batch, scores: Tensor, beta: float, kind: str) -> tuple[Tensor, dict[str, float]]:
        held = Held(batch.mask.shape[0])
        held |= {"response_mask": batch.mask.long(), "token_level_scores": scores}
        held |= {"old_log_probs": batch.logprobs, "ref_log_prob": batch.old_logprobs}
        data, seen = apply(SimpleNamespace(batch=held), core.FixedKLController(beta), kind)
        return data.batch["token_level_rewards"], seen

    return charged


class Held(dict[str, Tensor]):
    """Tables that know how many rows they have."""

    def __init__(self, rows: int) -> None:
        self.batch_size = (rows,)


class TestEntropy:
    def test_entropies_and_their_gradient_are_verls(self):
        functions = verl("verl.utils.torch_functional")
        for logits in random_logits():
            ours, theirs = arl.entropy_from_logits(logits), functions.entropy_from_logits(logits)
            assert apart(ours, theirs) < TOLERANCE
            assert apart(gradient(ours.sum(), logits), gradient(theirs.sum(), logits)) < TOLERANCE

    @pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"])
    def test_the_bonus_is_verls_entropy_loss(self, core, mode):
        for batch in batches():
            draws = arl.generator(batch.seed)
            logits = 4 * torch.rand(*batch.mask.shape, 5, generator=draws, dtype=arl.DTYPE)
            ours = arl.entropy_bonus(logits[batch.mask], batch.mask, mode)
            assert apart(ours, core.compute_entropy_loss(logits, batch.mask.long(), mode)) < TOLERANCE, batch.seed

    def test_an_action_that_is_never_sampled_makes_verls_entropy_nan_and_adds_0_here(self):
        functions = verl("verl.utils.torch_functional")
        logits = torch.tensor([0.0, 0.0, -math.inf], dtype=arl.DTYPE)
        assert math.isnan(functions.entropy_from_logits(logits).item())
        assert arl.entropy_from_logits(logits).item() == pytest.approx(math.log(2))


class TestCritic:
    @pytest.mark.parametrize(("mode", "clip"), [*((mode, 0.5) for mode in MODES), ("token-mean", None)])
    def test_value_loss_gradient_and_fraction_are_verls(self, core, mode, clip):
        for batch in batches():
            values, mask = leaf(batch.values), batch.mask
            old = batch.old_values if clip else None
            ours = arl.ppo_value_loss(values, batch.returns, mask, old, clip, mode, norm_length(mode))
            inputs = values, batch.returns, batch.old_values, mask.long(), clip or NEVER, mode
            theirs, fraction = core.compute_value_loss(*inputs, loss_scale_factor=norm_length(mode))
            assert apart(ours.loss, theirs) < TOLERANCE, batch.seed
            assert apart(gradient(ours.loss, values), gradient(theirs, values)) < TOLERANCE, batch.seed
            assert ours.clip_fraction == pytest.approx(fraction.item(), abs=1e-6)

    def test_verls_explained_variance_adds_1e_5_to_the_variance_of_the_returns(self, metrics):
        for batch in batches():
            ours = arl.explained_variance(batch.values, batch.returns, batch.mask)
            theirs = metrics.compute_data_metrics(logged(batch))["critic/vf_explained_var"]
            variance = batch.policy(batch.returns).var().item()
            assert apart(1 - (1 - ours) * variance / (variance + 1e-5), theirs) < TOLERANCE, batch.seed

    def test_explained_variance_of_small_returns_in_numbers(self, metrics):
        small = torch.tensor([[0.0, 0.01]], dtype=arl.DTYPE)
        zero, mask = torch.zeros_like(small), torch.ones_like(small, dtype=torch.bool)
        batch = Batch(0, mask, zero, zero, zero, zero, zero, zero, small)
        theirs = metrics.compute_data_metrics(logged(batch))["critic/vf_explained_var"]
        assert theirs == pytest.approx(1 - 5e-5 / 6e-5), "a critic that knows nothing explains a sixth"
        assert arl.explained_variance(zero, small, mask) == 0


def logged(batch: Batch) -> Any:
    """Return the batch as verl's metrics read it: a prompt of one token before each row."""
    whole = torch.nn.functional.pad(batch.mask.long(), (1, 0), value=1)
    tables = {
        "token_level_scores": batch.rewards,
        "token_level_rewards": batch.rewards,
        "advantages": batch.advantages,
        "returns": batch.returns,
        "values": batch.values,
        "prompts": whole[:, :1],
        "responses": batch.mask.long(),
        "response_mask": batch.mask.long(),
        "attention_mask": whole,
    }
    return SimpleNamespace(batch=tables, non_tensor_batch={}, meta_info={})


class TestRatios:
    def test_token_ratios_are_verls_weights_but_1_and_not_0_at_masked_positions(self, correction):
        for batch in batches():
            ours = arl.importance_ratio(batch.logprobs, batch.old_logprobs, batch.mask)
            theirs, _ = weights(correction, batch, "token")
            assert apart(torch.where(batch.mask, ours, 0.0), theirs) < TOLERANCE, batch.seed
            assert (ours[~batch.mask] == 1).all()

    def test_sequence_ratios_are_verls_weights_which_stand_at_every_token(self, correction):
        for batch in batches():
            ours = arl.importance_ratio(batch.logprobs, batch.old_logprobs, batch.mask, "sequence")
            theirs, _ = weights(correction, batch, "sequence")
            assert apart(torch.where(batch.mask, ours[:, None], 0.0), theirs) < TOLERANCE, batch.seed

    @pytest.mark.parametrize("level", ["token", "sequence"])
    def test_verls_effective_sample_size_is_over_tokens_and_adds_1e_8_to_the_mean(self, correction, level):
        for batch in batches():
            ratio = arl.importance_ratio(batch.logprobs, batch.old_logprobs, batch.mask, level)
            at_tokens = ratio if level == "token" else ratio[:, None].expand(batch.mask.shape)
            ours = arl.effective_sample_size(at_tokens, batch.mask)
            mean = batch.policy(at_tokens).mean().item()
            _, seen = weights(correction, batch, level)
            theirs = seen["rollout_is_eff_sample_size"]
            assert apart(ours * ((mean + 1e-8) / mean) ** 2, theirs) < TOLERANCE, batch.seed

    def test_a_sequence_counts_once_here_and_once_a_token_in_verl(self, correction):
        mask = torch.tensor([[1, 1, 1], [1, 0, 0]], dtype=torch.bool)
        new = torch.tensor([[0.0, 0, 0], [math.log(2), 0, 0]], dtype=arl.DTYPE)
        zero = torch.zeros_like(new)
        _, seen = weights(correction, Batch(0, mask, new, zero, zero, zero, zero, zero, zero), "sequence")
        ours = arl.effective_sample_size(arl.importance_ratio(new, zero, mask, "sequence"))
        assert seen["rollout_is_eff_sample_size"] == pytest.approx(25 / 28, abs=1e-6)
        assert ours == pytest.approx(0.9)


def weights(correction: Any, batch: Batch, level: str) -> tuple[Tensor, dict[str, float]]:
    """Return verl's weights [B, T] and its metrics, with a bound that is never reached."""
    log_ratio = torch.where(batch.mask, batch.logprobs - batch.old_logprobs, 0.0)
    return correction.compute_rollout_correction_weights(log_ratio, batch.mask.long(), level, NEVER)
