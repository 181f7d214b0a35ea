"""The library against TRL 1.16 on 200 random batches a function; where TRL does otherwise, both numbers.

TRL's computations are methods of trainers: they are called with a stand-in for the trainer that holds what they read.
TRL ships no PPO with a critic any more, so there is no GAE and no value loss to compare with.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from needing import peer
from peer_batches import TOLERANCE, Batch, apart, batches, gradient, leaf, reward_groups, rounding_of_variance
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
    return SimpleNamespace(accelerator=accelerator, model=model, _metrics=recorded, use_vllm=False, beta=0.0, **fields)


def estimated(kind: Any, rewards: Tensor, size: int, **options: Any) -> Tensor:
    """Return TRL's advantages [N] of attempts that stand in groups of one size, one after the other."""
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
    fake = trainer(**defaults, **options)
    return kind._generate_and_score_completions(fake, [{"prompt": "x"}] * count)["advantages"]


def grpo_advantages(trl: Any, rewards: Tensor, size: int, scale: str = "group") -> Tensor:
    """Return the advantages [N] of TRL's GRPO."""
    texts = [""] * len(rewards)
    generated = [[1]] * len(rewards), [[2]] * len(rewards), None, texts, None, None, None, None
    options = {"multi_objective_aggregation": "sum_then_normalize", "scale_rewards": scale}
    return estimated(trl.GRPOTrainer, rewards, size, _generate=lambda _: generated, **options)


def rloo_advantages(trl: Any, rewards: Tensor, size: int, normalized: bool = False) -> Tensor:
    """Return the advantages [N] of TRL's RLOO."""
    generated = [[1]] * len(rewards), [[2]] * len(rewards), [""] * len(rewards)
    options = {"normalize_advantages": normalized, "reward_clip_range": None}
    return estimated(trl.RLOOTrainer, rewards, size, _generate=lambda _: generated, **options)


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
    """Return TRL's loss of a batch and the metrics it records; everything after the prompt is completion."""
    fields = {"delta": None, "accumulated": 1, "tokens": batch.counts().tokens, **options}
    fake = trainer(
        aux_loss_enabled=False,
        _get_per_token_logps_and_entropies=lambda *_, **__: (batch.logprobs, torch.zeros_like(batch.logprobs), None),
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level="token",
        loss_type=kind,
        epsilon_low=low,
        epsilon_high=high,
        args=SimpleNamespace(delta=fields["delta"], steps_per_generation=fields["accumulated"]),
        current_gradient_accumulation_steps=fields["accumulated"],
        max_completion_length=LENGTH,
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
        "num_items_in_batch": torch.tensor(fields["tokens"]),
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
