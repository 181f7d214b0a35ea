"""The library against TRL 1.16 on 200 random batches a function; where TRL does otherwise, both numbers.

TRL's computations are methods of trainers: they are called with a stand-in for the trainer that holds what they read.
TRL ships no PPO with a critic any more, so there is no GAE and no value loss to compare with.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from needing import peer
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
    preset_advantages,
    random_logits,
    reward_groups,
    rounding_of_variance,
)
from torch import Tensor

import agentrl as arl

EPS = 1e-4  # what TRL adds to a standard deviation
LENGTH = 7  # of a completion at most, for dr_grpo
# TRL's loss types, and the aggregation that each is.
TYPES: dict[str, dict[str, Any]] = {
    "grpo": {"aggregation": "seq-mean-token-mean"},
    "bnpo": {"aggregation": "token-mean"},
    "dapo": {"aggregation": "token-mean"},
    "dr_grpo": {"aggregation": "seq-mean-token-sum-norm", "norm_length": LENGTH},
}


@pytest.fixture(scope="module")
def trl() -> Any:
    """Return TRL."""
    found = peer("trl")
    return SimpleNamespace(GRPOTrainer=found.GRPOTrainer, RLOOTrainer=found.RLOOTrainer)  # imported here, once


def trainer(**fields: Any) -> SimpleNamespace:
    """Return a stand-in for a trainer on one process."""
    accelerator = SimpleNamespace(
        device=torch.device("cpu"), process_index=0, num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x
    )
    model = SimpleNamespace(training=True, is_gradient_checkpointing=False)
    recorded = defaultdict(lambda: defaultdict(list))
    defaults = {"use_vllm": False, "beta": 0.0}
    return SimpleNamespace(accelerator=accelerator, model=model, _metrics=recorded, **{**defaults, **fields})


def estimated(kind: Any, rewards: Tensor, size: int, **options: Any) -> tuple[Tensor, dict[str, float]]:
    """Return TRL's advantages [N] of attempts in groups of one size, one after the other, and its metrics."""
    count = len(rewards)
    nothing = torch.zeros(count, 1)
    step = {"per_device_train_batch_size": count, "steps_per_generation": 1, "gradient_accumulation_steps": 1}
    defaults = {
        "environment_factories": None,
        "environments": None,
        "tools": None,
        "pad_to_multiple_of": None,
        "mask_truncated_completions": False,
        "_tokenizer": SimpleNamespace(pad_token_id=0),
        "_get_per_token_logps_and_entropies": lambda *_, **__: (nothing, None, None),
        "args": SimpleNamespace(gradient_checkpointing_kwargs=None, **step),
        "num_iterations": 1,
        "num_generations": size,
        "_calculate_rewards": lambda *_: rewards[:, None],
        "reward_weights": torch.ones(1, dtype=arl.DTYPE),
        "reward_func_names": ["reward"],
        "_logs": defaultdict(list, rewards=defaultdict(list)),
        "_pending_extra_logs": {},
        "_pending_metrics": {},
    }
    fake = trainer(**{**defaults, **options})
    found = kind._generate_and_score_completions(fake, [{"prompt": "x"}] * count)["advantages"]
    return found, {name: numbers[-1] for name, numbers in fake._metrics["train"].items()}


def grpo_advantages(trl: Any, rewards: Tensor, size: int, scale: str = "group") -> Tensor:
    """Return the advantages [N] of TRL's GRPO."""
    texts = [""] * len(rewards)
    generated = [[1]] * len(rewards), [[2]] * len(rewards), None, texts, None, None, None, None
    options = {"multi_objective_aggregation": "sum_then_normalize", "scale_rewards": scale}
    return estimated(trl.GRPOTrainer, rewards, size, _generate=lambda _: generated, **options)[0]


def rloo_advantages(trl: Any, rewards: Tensor, size: int, normalized: bool = False) -> Tensor:
    """Return the advantages [N] of TRL's RLOO."""
    generated = [[1]] * len(rewards), [[2]] * len(rewards), [""] * len(rewards)
    options = {"normalize_advantages": normalized, "reward_clip_range": None}
    return estimated(trl.RLOOTrainer, rewards, size, _generate=lambda _: generated, **options)[0]


def size_of(groups: Any) -> int:
    """Return the number of attempts at each task."""
    return int((groups.tasks == groups.tasks[0]).sum())


def rounded(deviation: Tensor, count: int) -> Tensor:
    """Return what turns our quotient by the deviation + 1e-4 into TRL's, whose deviation is rounded to float32."""
    return (deviation + EPS) / (deviation * rounding_of_variance(count) ** 0.5 + EPS)


class TestGroups:
    def test_unscaled_group_advantages_are_those_of_grpo(self, trl):
        for groups in reward_groups(equal_sizes=True):
            ours = arl.group_mean_advantages(groups.rewards, groups.tasks)
            theirs = grpo_advantages(trl, groups.rewards, size_of(groups), "none")
            assert apart(ours, theirs) < TOLERANCE, groups.seed

    def test_group_advantages_scaled_by_the_group_are_those_of_grpo_with_its_1e_4(self, trl):
        for groups in reward_groups(equal_sizes=True):
            size = size_of(groups)
            ours = arl.group_mean_advantages(groups.rewards, groups.tasks, "group", EPS)
            deviations = groups.rewards.view(-1, size).std(-1).repeat_interleave(size)
            theirs = grpo_advantages(trl, groups.rewards, size)
            assert apart(ours * rounded(deviations, size), theirs) < TOLERANCE, groups.seed

    def test_group_advantages_scaled_by_the_batch_are_those_of_grpo_with_its_1e_4(self, trl):
        for groups in reward_groups(equal_sizes=True):
            ours = arl.group_mean_advantages(groups.rewards, groups.tasks, "batch", EPS)
            factor = rounded(groups.rewards.std(), len(groups.rewards))
            theirs = grpo_advantages(trl, groups.rewards, size_of(groups), "batch")
            assert apart(ours * factor, theirs) < TOLERANCE, groups.seed

    def test_leave_one_out_advantages_are_those_of_rloo(self, trl):
        for groups in reward_groups(equal_sizes=True):
            ours = arl.leave_one_out_advantages(groups.rewards, groups.tasks)
            theirs = rloo_advantages(trl, groups.rewards, size_of(groups))
            assert apart(ours, theirs) < TOLERANCE, groups.seed

    def test_rloo_whitens_them_with_1e_4(self, trl):
        for groups in reward_groups(equal_sizes=True):
            raw = arl.leave_one_out_advantages(groups.rewards, groups.tasks)
            ours = arl.normalize_advantages(raw, eps=EPS) * rounded(raw.std(), len(raw))
            theirs = rloo_advantages(trl, groups.rewards, size_of(groups), normalized=True)
            assert apart(ours, theirs) < TOLERANCE, groups.seed

    def test_close_rewards_show_what_is_added_to_the_deviation(self, trl):
        close = torch.tensor([0.50, 0.51, 0.50, 0.51], dtype=arl.DTYPE)
        theirs = grpo_advantages(trl, close, 4)[1].item()
        ours = arl.group_mean_advantages(close, torch.zeros(4).long(), "group")[1].item()
        assert (theirs, ours) == (pytest.approx(0.851281, abs=1e-6), pytest.approx(0.865875, abs=1e-6))

    def test_a_group_of_one_is_zero_in_trl_and_refused_here(self, trl):
        alone = torch.tensor([2.0], dtype=arl.DTYPE)
        assert (grpo_advantages(trl, alone, 1).item(), rloo_advantages(trl, alone, 1).item()) == (0, 0)
        with pytest.raises(ValueError, match="7"):
            arl.group_mean_advantages(alone, torch.tensor([7]), "group")

    def test_trl_leaves_out_a_failed_attempt_here_the_caller_does(self, trl):
        rewards = torch.tensor([1.0, torch.nan, 0.0, 0.0], dtype=arl.DTYPE)
        theirs, kept = grpo_advantages(trl, rewards, 4, "none"), torch.tensor([0, 2, 3])
        assert theirs[1] == 0
        assert apart(arl.group_mean_advantages(rewards[kept], torch.zeros(3).long()), theirs[kept]) < TOLERANCE
        with pytest.raises(ValueError, match="nan"):
            arl.group_mean_advantages(rewards, torch.zeros(4).long())


def policy_loss(trl: Any, batch: Batch, kind: str, low: float, high: float, **options: Any) -> tuple[Tensor, Any]:
    """Return TRL's loss of a batch and the metrics it records; everything after the prompt is completion.

    `options` may hold the accumulated steps and their tokens, `length` (of a completion at most), `reference`
    log-probabilities, and settings of GRPOConfig.
    """
    defaults = {"delta": None, "use_bias_correction_kl": False, "beta": 0.0, "importance_sampling_level": "token"}
    chosen = {"accumulated": 1, "tokens": batch.counts().tokens, "length": LENGTH, **defaults, **options}
    fake = trainer(
        aux_loss_enabled=False,
        _get_per_token_logps_and_entropies=lambda *_, **__: (batch.logprobs, torch.zeros_like(batch.logprobs), None),
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level=chosen["importance_sampling_level"],
        beta=chosen["beta"],
        loss_type=kind,
        epsilon_low=low,
        epsilon_high=high,
        args=SimpleNamespace(**{name: chosen[name] for name in defaults}, steps_per_generation=chosen["accumulated"]),
        current_gradient_accumulation_steps=chosen["accumulated"],
        max_completion_length=chosen["length"],
        _entropy_bonus_enabled=False,
    )
    ids, prompt = torch.zeros_like(batch.mask, dtype=torch.long), torch.zeros(len(batch.mask), 1).long()
    inputs = {
        "prompt_ids": prompt,
        "prompt_mask": torch.ones_like(prompt),
        "completion_ids": ids,
        "completion_mask": torch.ones_like(ids),
        "tool_mask": batch.mask.long(),
        "advantages": batch.advantages,
        "old_per_token_logps": batch.old_logprobs,
        "ref_per_token_logps": chosen.get("reference"),
        "num_items_in_batch": torch.tensor(chosen["tokens"]),
    }
    loss = trl.GRPOTrainer._compute_loss(fake, None, inputs)
    return loss, {name: numbers[-1] for name, numbers in fake._metrics["train"].items()}


def all_rows(batch: Batch) -> arl.LossCounts:
    """Return the batch's counts with every row as a sequence, as TRL counts."""
    return arl.LossCounts(batch.counts().tokens, len(batch.mask))


class TestPolicyLoss:
    @pytest.mark.parametrize(
        ("kind", "low", "high", "dual"),
        [*((kind, 0.2, 0.28, 3.0) for kind in TYPES), ("dapo", 0.2, 0.2, None), ("dapo", 0.3, 0.5, 1.6)],
    )
    def test_loss_gradient_and_clip_fraction_are_trls_and_delta_is_the_dual_clip(self, trl, kind, low, high, dual):
        for batch in batches():
            batch = replace(batch, logprobs=(logprobs := leaf(batch.logprobs)))
            inputs = logprobs, batch.old_logprobs, batch.advantages, batch.mask
            ours = arl.ppo_policy_loss(*inputs, low, high, dual, **TYPES[kind], whole=all_rows(batch))
            theirs, seen = policy_loss(trl, batch, kind, low, high, delta=dual)
            assert apart(ours.loss, theirs) < TOLERANCE, batch.seed
            assert apart(gradient(ours.loss, logprobs), gradient(theirs, logprobs)) < TOLERANCE, batch.seed
            assert ours.clip_fraction == pytest.approx(seen["clip_ratio/region_mean"], abs=1e-6), "TRL's is float32"

    @pytest.mark.parametrize("kind", list(TYPES))
    def test_an_advantage_an_episode_gives_trls_loss(self, trl, kind):
        for batch in batches(empty_rows=False):
            batch = replace(batch, advantages=batch.advantages[:, 0])
            ours = arl.ppo_policy_loss(*taken(batch), **TYPES[kind])
            assert apart(ours.loss, policy_loss(trl, batch, kind, 0.2, 0.2)[0]) < TOLERANCE, batch.seed

    @pytest.mark.parametrize("kind", list(TYPES))
    def test_the_first_step_has_the_gradient_of_reinforce(self, trl, kind):
        for batch in batches():
            logprobs = leaf(batch.logprobs)
            batch = replace(batch, logprobs=logprobs, old_logprobs=logprobs.detach())
            inputs = logprobs, batch.advantages, batch.mask
            ours = arl.policy_gradient_loss(*inputs, **TYPES[kind], whole=all_rows(batch))
            theirs, _ = policy_loss(trl, batch, kind, 0.2, 0.2)
            assert apart(gradient(ours, logprobs), gradient(theirs, logprobs)) < TOLERANCE, batch.seed

    def test_trl_counts_rows_without_policy_tokens(self, trl):
        zero, advantages = torch.zeros(2, 4, dtype=arl.DTYPE), torch.full((2, 4), -4.5, dtype=arl.DTYPE)
        mask = torch.tensor([[0, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
        batch = Batch(0, mask, zero, zero, advantages, zero, zero, zero, zero)
        theirs, _ = policy_loss(trl, batch, "grpo", 0.2, 0.2)
        ours = arl.ppo_policy_loss(*taken(batch), aggregation="seq-mean-token-mean").loss
        assert (theirs.item(), ours.item()) == (2.25, 4.5)

    @pytest.mark.parametrize(("kind", "whole"), [("bnpo", 3.0), ("dapo", 3.5)])
    def test_two_parts_of_one_row_add_up_to_the_batch_for_dapo_and_not_for_bnpo(self, trl, kind, whole):
        losses = torch.tensor([[1.0, 2, 0, 0], [3, 4, 5, 6]], dtype=arl.DTYPE)
        mask, zero = losses > 0, torch.zeros(1, 4, dtype=arl.DTYPE)
        theirs = ours = 0.0
        for row in (0, 1):
            part = Batch(0, mask[row : row + 1], zero, zero, -losses[row : row + 1], zero, zero, zero, zero)
            theirs += policy_loss(trl, part, kind, 0.2, 0.2, accumulated=2, tokens=6)[0].item()
            ours += arl.ppo_policy_loss(*taken(part), whole=arl.LossCounts(6, 2)).loss.item()
        assert theirs == pytest.approx(whole)
        assert ours == pytest.approx(3.5)

    def test_rloo_is_the_clipped_loss_of_whole_sequences(self, trl):
        for batch in batches(empty_rows=False):
            new, old = leaf(batch.logprobs), arl.masked_sum(batch.old_logprobs, batch.mask, -1)
            advantages, every = batch.advantages[:, 0], torch.ones(len(batch.mask), 1, dtype=torch.bool)
            total = arl.masked_sum(new, batch.mask, -1)
            ours = arl.ppo_policy_loss(total[:, None], old[:, None], advantages, every)
            theirs = rloo_loss(trl, new, old, advantages, batch.mask)
            assert apart(ours.loss, theirs) < TOLERANCE, batch.seed
            assert apart(gradient(ours.loss, new), gradient(theirs, new)) < TOLERANCE, batch.seed


def taken(batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what `ppo_policy_loss` takes first."""
    return batch.logprobs, batch.old_logprobs, batch.advantages, batch.mask


def rloo_loss(trl: Any, new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Return TRL's RLOO loss; `old` and `advantages` are [B]."""
    fake = trainer(
        aux_loss_enabled=False,
        _get_per_token_logps_and_entropies=lambda *_, **__: (new, torch.zeros_like(new), None),
        epsilon_low=0.2,
        epsilon_high=0.2,
    )
    ids = torch.zeros_like(mask, dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1],
        "completion_ids": ids,
        "completion_mask": mask.long(),
        "advantages": advantages,
        "old_logps": old,
    }
    return trl.RLOOTrainer._compute_loss(fake, None, inputs)


SEQUENCE = {"importance_sampling_level": "sequence"}


def episode_advantages(batch: Batch) -> Batch:
    """Return the batch with an advantage an episode, [B], and log-probabilities that require a gradient."""
    return replace(batch, advantages=batch.advantages[:, 0], logprobs=leaf(batch.logprobs))


class TestSequences:
    """GSPO: the ratio of a sequence."""

    @pytest.mark.parametrize(("low", "high"), [(3e-4, 4e-4), (0.1, 0.1), (0.3, 0.5)])
    def test_loss_and_gradient_are_trls_at_the_level_of_sequences(self, trl, low, high):
        clipped = 0.0
        for batch in map(episode_advantages, batches()):
            ours = arl.gspo_policy_loss(*taken(batch), low, high, all_rows(batch))
            theirs, seen = policy_loss(trl, batch, "grpo", low, high, **SEQUENCE)
            assert apart(ours.loss, theirs) < TOLERANCE, batch.seed
            assert apart(gradient(ours.loss, batch.logprobs), gradient(theirs, batch.logprobs)) < TOLERANCE, batch.seed
            clipped += seen["clip_ratio/region_mean"]
        assert clipped > 0

    def test_trls_clip_ratio_counts_sequences_ours_tokens(self, trl):
        log_ratios = torch.tensor([[0.5, 0.5, 0.5], [0.0, 0, 0]], dtype=arl.DTYPE)
        mask, zero = torch.tensor([[1, 1, 1], [1, 0, 0]], dtype=torch.bool), torch.zeros_like(log_ratios)
        batch = Batch(0, mask, log_ratios, zero, torch.ones(2, dtype=arl.DTYPE), zero, zero, zero, zero)
        _, seen = policy_loss(trl, batch, "grpo", 0.1, 0.1, **SEQUENCE)
        assert seen["clip_ratio/region_mean"] == pytest.approx(1 / 2)
        assert arl.gspo_policy_loss(*taken(batch), 0.1, 0.1).clip_fraction == pytest.approx(3 / 4)

    def test_advantages_that_differ_within_a_sequence_are_averaged_in_trl_and_each_tokens_own_here(self, trl):
        mask, zero = torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2, dtype=arl.DTYPE)
        new, advantages = leaf(zero), torch.tensor([[2.0, 0.0]], dtype=arl.DTYPE)
        batch = Batch(0, mask, new, zero, advantages, zero, zero, zero, zero)
        theirs, _ = policy_loss(trl, batch, "grpo", 0.1, 0.1, **SEQUENCE)
        ours = arl.gspo_policy_loss(*taken(batch), 0.1, 0.1).loss
        assert (theirs.item(), ours.item()) == (-1.0, -1.0)
        assert gradient(theirs, new).tolist() == [[-0.5, -0.5]]
        assert gradient(ours, new).tolist() == [[-1.0, 0.0]]

    def test_g8_in_numbers(self, trl):
        old = torch.tensor([[-1.0, -2, -1, 0], [-1] * 4], dtype=arl.DTYPE)
        new = leaf(torch.tensor([[-0.9, -1.9, -1.2, 5], [-1, -0.7, -1.1, -1.05]], dtype=arl.DTYPE))
        mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)
        batch = Batch(0, mask, new, old, torch.tensor([1.0, -1.0], dtype=arl.DTYPE), old, old, old, old)
        theirs, _ = policy_loss(trl, batch, "grpo", 3e-4, 4e-4, **SEQUENCE)
        right = torch.tensor([[-0.166667] * 3 + [0], [0.129777] * 4])
        for loss in (theirs, arl.gspo_policy_loss(*taken(batch)).loss):
            assert loss.item() == pytest.approx(0.019106, abs=1e-6)
            assert apart(gradient(loss, new), right) < 1e-6


class TestWeights:
    """CISPO: the ratio as a weight."""

    @pytest.mark.parametrize("bound", [1.28, 5.0])
    def test_loss_and_gradient_are_trls_whose_epsilon_high_is_the_bound_itself(self, trl, bound):
        for batch in map(episode_advantages, batches()):
            ours = arl.cispo_policy_loss(*taken(batch), 1.0, bound - 1, whole=all_rows(batch))
            theirs, _ = policy_loss(trl, batch, "cispo", 0.2, bound)
            assert apart(ours.loss, theirs) < TOLERANCE, batch.seed
            assert apart(gradient(ours.loss, batch.logprobs), gradient(theirs, batch.logprobs)) < TOLERANCE, batch.seed

    def test_g7_in_numbers_and_trl_counts_held_weights_of_successes_ours_all(self, trl):
        ratios = torch.tensor([[1.2, 1.3, 1.5, 0.7, 0.5, 4.0]], dtype=arl.DTYPE).expand(2, 6)
        new, zero = leaf(ratios.log()), torch.zeros_like(ratios)
        batch = Batch(0, zero == 0, new, zero, torch.tensor([1.0, -1.0], dtype=arl.DTYPE), zero, zero, zero, zero)
        for bound, right in [
            (5.0, [-1.2, -1.3, -1.5, -0.7, -0.5, -4]),
            (1.28, [-1.2, -1.28, -1.28, -0.7, -0.5, -1.28]),
        ]:
            theirs, seen = policy_loss(trl, batch, "cispo", 0.2, bound)
            ours = arl.cispo_policy_loss(*taken(batch), 1.0, bound - 1)
            for loss in (theirs, ours.loss):
                assert apart(12 * gradient(loss, new), torch.tensor([right, [-slope for slope in right]])) < 1e-6
        assert seen["cispo_clip_ratio"] == pytest.approx(3 / 12)
        assert ours.clip_fraction == pytest.approx(6 / 12)


# Each preset of ours as TRL is told it: settings of GRPOConfig. RLOO has a trainer of its own.
IN_TRL: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo"},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none", "max_completion_length": 30},
    "dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.1, "epsilon_high": 0.1},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
}


def trls_coefficients(trl: Any, name: str, batch: Attempts) -> Tensor:
    """Return minus the derivative of TRL's loss by each token's log-probability, [12, 7]."""
    told = {"epsilon": 0.2, "epsilon_high": 0.2, "importance_sampling_level": "token", "scale_rewards": "group"}
    told |= {"max_completion_length": LENGTH} | IN_TRL[name]
    advantages = grpo_advantages(trl, batch.rewards, 4, told["scale_rewards"])
    rows, logprobs = batch.row_numbers(informative=name == "dapo"), leaf(batch.logprobs)
    tables = batch.mask[rows], logprobs[rows], batch.old_logprobs[rows], advantages[rows]
    given = Batch(0, *tables, *[batch.logprobs] * 4)
    settings = {"length": told["max_completion_length"], "importance_sampling_level": told["importance_sampling_level"]}
    loss, _ = policy_loss(trl, given, told["loss_type"], told["epsilon"], told["epsilon_high"], **settings)
    return -gradient(loss, logprobs)


class TestVariants:
    @pytest.mark.parametrize("moved", [False, True])
    @pytest.mark.parametrize("name", list(IN_TRL))
    def test_each_preset_gives_every_token_the_coefficient_that_trl_gives_it(self, trl, name, moved):
        batch, config = attempts(moved), arl.PRESETS[name]
        ours, theirs = coefficients(config, batch, EPS), trls_coefficients(trl, name, batch)
        if config.advantage == "group-std":
            deviations = batch.rewards.view(3, 4).std(-1).repeat_interleave(4)
            ours = ours * rounded(deviations, 4)[:, None]
        assert apart(ours, theirs) < TOLERANCE
        assert (theirs[:8][batch.mask[:8]] != 0).any()
        far = (coefficients(config, batch) - theirs).abs().max() / theirs.abs().max()
        assert far < 3e-4, "with our 1e-6 in place of TRL's 1e-4"

    def test_there_is_one_for_each_preset(self):
        assert [*IN_TRL, "rloo"] == [name for name in arl.PRESETS if name != "rloo"] + ["rloo"]

    @pytest.mark.parametrize(("moved", "same"), [(False, True), (True, False)])
    def test_rloo_is_trls_until_the_policy_moves_then_trl_clips_the_product(self, trl, moved, same):
        batch, config = attempts(moved), arl.PRESETS["rloo"]
        new = leaf(batch.logprobs)
        old = arl.masked_sum(batch.old_logprobs, batch.mask, -1)
        loss = rloo_loss(trl, new, old, rloo_advantages(trl, batch.rewards, 4), batch.mask)
        ours, theirs = coefficients(config, batch), -gradient(loss, new)
        assert (apart(ours, theirs) < TOLERANCE) == same
        assert apart(preset_advantages(config, batch), rloo_advantages(trl, batch.rewards, 4)) < TOLERANCE
        if moved:  # the first attempt: the product of its ratios is 2.8875, above 1.2
            assert (theirs[0] == 0).all()
            assert [round(c, 6) for c in (12 * ours[0, batch.mask[0]]).tolist()] == [1.1, 0, 0, 0.7, 0.5, 0]

    def test_g9_in_numbers(self, trl):
        mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
        new = leaf(torch.zeros(2, 4, dtype=arl.DTYPE))
        zero = new.detach()
        batch = Batch(0, mask, new, zero, torch.tensor([1.0, -1.0], dtype=arl.DTYPE), zero, zero, zero, zero)
        for kind, mode, length, right, slopes in [
            ("grpo", "seq-mean-token-mean", None, 0.0, (-0.25, 0.125)),
            ("bnpo", "token-mean", None, 1 / 3, (-1 / 6, 1 / 6)),
            ("dapo", "token-mean", None, 1 / 3, (-1 / 6, 1 / 6)),
            ("dr_grpo", "seq-mean-token-sum-norm", 8, 0.125, (-0.0625, 0.0625)),
            ("luspo", "seq-mean-token-sum", None, 1.0, (-0.5, 0.5)),
        ]:
            theirs, _ = policy_loss(trl, batch, kind, 0.2, 0.2, length=length)
            ours = arl.ppo_policy_loss(*taken(batch), aggregation=mode, norm_length=length).loss
            table = torch.where(mask, torch.tensor(slopes, dtype=arl.DTYPE)[:, None], 0.0)
            for loss in (theirs, ours):
                assert loss.item() == pytest.approx(right)
                assert apart(gradient(loss, new), table) < TOLERANCE

    def test_g3_in_numbers(self, trl):
        rewards = torch.tensor([1.0, 0, 0, 0], dtype=arl.DTYPE)
        assert apart(grpo_advantages(trl, rewards, 4), torch.tensor([1.4997] + [-0.4999] * 3)) < 1e-4
        assert apart(arl.grpo_advantages(rewards[None])[0], torch.tensor([1.499997] + [-0.499999] * 3)) < 1e-6

    def test_trls_share_of_groups_with_equal_rewards_is_what_is_not_informative(self, trl):
        for groups in reward_groups(equal_sizes=True):
            texts, count = [""] * len(groups.rewards), len(groups.rewards)
            generated = [[1]] * count, [[2]] * count, None, texts, None, None, None, None
            options = {"multi_objective_aggregation": "sum_then_normalize", "scale_rewards": "group"}
            size = size_of(groups)
            _, seen = estimated(trl.GRPOTrainer, groups.rewards, size, _generate=lambda _, g=generated: g, **options)
            live = arl.informative_groups(groups.rewards, groups.tasks)
            assert seen["frac_reward_zero_std"] == pytest.approx(1 - live.double().mean().item(), abs=1e-6)


class TestKL:
    @pytest.mark.parametrize("kind", list(TYPES))
    @pytest.mark.parametrize("weighted", [False, True])
    def test_beta_adds_k3_with_its_gradient_and_the_ratio_where_asked_for(self, trl, kind, weighted):
        for batch in batches():
            batch = replace(batch, logprobs=(new := leaf(batch.logprobs)))
            reference = torch.where(batch.mask, batch.returns - 3, batch.returns)
            told = {"beta": 0.1, "reference": reference, "use_bias_correction_kl": weighted}
            theirs, seen = policy_loss(trl, batch, kind, 0.2, 0.2, **told)
            old, shares = batch.old_logprobs if weighted else None, {**TYPES[kind], "whole": all_rows(batch)}
            ours = arl.ppo_policy_loss(*taken(batch), **shares).loss
            ours = ours + 0.1 * arl.kl_loss(new, reference, batch.mask, "k3", old, **shares)
            assert apart(ours, theirs) < TOLERANCE, batch.seed
            assert apart(gradient(ours, new), gradient(theirs, new)) < TOLERANCE, batch.seed
            logged = arl.kl_loss(new.detach(), reference, batch.mask, "k3", old)
            assert seen["kl"] == pytest.approx(logged.item(), rel=1e-6), "TRL's count is float32"

    def test_a_sequences_ratio_weights_it_in_trl_where_that_is_the_level(self, trl):
        log_ratios = torch.tensor([[1.0, 0.0]], dtype=arl.DTYPE)
        zero, mask = torch.zeros_like(log_ratios), torch.ones(1, 2, dtype=torch.bool)
        batch = Batch(0, mask, log_ratios, zero, torch.zeros(1, dtype=arl.DTYPE), zero, zero, zero, zero)
        told = {"beta": 1.0, "reference": log_ratios - 1, "use_bias_correction_kl": True}
        by_token, _ = policy_loss(trl, batch, "grpo", 0.2, 0.2, **told)
        by_sequence, _ = policy_loss(trl, batch, "grpo", 0.2, 0.2, **told, **SEQUENCE)
        k3 = math.exp(-1)  # exp(-1) - 1 + 1
        assert by_token.item() == pytest.approx(k3 * (math.exp(1) + 1) / 2)
        assert by_sequence.item() == pytest.approx(k3 * math.exp(0.5))
        ours = arl.kl_loss(log_ratios, log_ratios - 1, mask, "k3", zero)
        assert ours.item() == pytest.approx(by_token.item())

    def test_rloo_takes_the_sum_of_k1_off_the_reward(self, trl):
        for groups in reward_groups(equal_sizes=True):
            draws, count = arl.generator(groups.seed), len(groups.rewards)
            lengths = torch.randint(1, 5, (count,), generator=draws)
            mask = torch.arange(int(lengths.max())) < lengths[:, None]
            own, reference = (torch.rand(mask.shape, generator=draws, dtype=arl.DTYPE) for _ in range(2))
            tables = iter([(own, None, None), (reference, None, None)])
            generated = [[1]] * count, [[2] * int(length) for length in lengths], [""] * count
            options = {"normalize_advantages": False, "reward_clip_range": None, "beta": 0.1, "ref_model": object()}
            options["_get_per_token_logps_and_entropies"] = lambda *_, t=tables, **__: next(t)
            options["_generate"] = lambda _, g=generated: g
            theirs, seen = estimated(trl.RLOOTrainer, groups.rewards, size_of(groups), **options)
            paid = arl.kl_penalized_rewards(groups.rewards, own, reference, mask, 0.1)
            ours = arl.leave_one_out_advantages(paid.sum(-1), groups.tasks)
            assert apart(ours, theirs) < TOLERANCE, groups.seed
            assert seen["kl"] == pytest.approx(arl.kl_loss(own, reference, mask, "k1").item(), abs=1e-6)


class TestEntropy:
    @pytest.mark.parametrize("temperature", [1.0, 0.7])
    def test_entropies_log_probabilities_and_their_gradients_are_those_of_trls_head_in_float32(self, temperature):
        head = peer("trl.kernels.chunked_logprob").ChunkedLogProbFunction
        for logits in random_logits():
            rows, words = logits.shape
            labels = torch.arange(rows) % words
            given = None, labels, temperature, 1024, None, 1.0, ("log_probs", "entropy")
            logprobs, entropies, *_ = head.apply(logits, torch.eye(words, dtype=arl.DTYPE), *given)
            tempered = logits / temperature
            ours = tempered.log_softmax(-1)[torch.arange(rows), labels], arl.entropy_from_logits(tempered)
            assert logprobs.dtype == torch.float32, "whatever comes in"
            for mine, theirs in zip(ours, (logprobs, entropies), strict=True):
                assert apart(mine, theirs) < 1e-5
                kept = torch.autograd.grad(theirs.sum(), logits, retain_graph=True)[0]
                assert apart(torch.autograd.grad(mine.sum(), logits, retain_graph=True)[0], kept) < 1e-5
