"""Faults that public projects have shipped, each with the value a correct implementation gives and the wrong one.

A case stands here once the library has the mechanism it is about. Those of advantages are in test_advantages.py, those
of PPO's losses in test_ppo.py, of groups, their losses and the training loop in test_grpo.py, of divergences in
test_regularization.py; the names of all begin with the case's code, or the docstring gives it.
"""

import dataclasses
import math
from collections.abc import Sequence

import pytest
import torch
from token_losses import (
    cispo_loss,
    close,
    column,
    episodes,
    gspo_loss,
    lengths_mask,
    mask_of,
    options,
    policy_loss,
    table,
    tiny_model,
)
from torch import Tensor

import agentrl as arl

MASKED_MEANS = [
    # where it was reported, values, mask, right, as shipped
    ("SkyRL#462: the mean divided by all positions", [2.0, 2.0, 0.0, 0.0], [1, 1, 0, 0], 2.0, 1.0),
    ("AReaL#1346: advantages at padding leaked into the mean", [1.0, 1.0, 9.0], [1, 1, 0], 1.0, 11 / 3),
    ("slime#365: tool tokens counted in the denominator", [1.0] * 3 + [0.0] * 5, [1] * 3 + [0] * 5, 1.0, 0.375),
    ("rllm#503: a metric read tool tokens", [0.1, 0.3, 7.0], [1, 1, 0], 0.2, 7.4 / 3),
]


@pytest.mark.parametrize(
    ("where", "values", "mask", "right", "shipped"), MASKED_MEANS, ids=[c[0] for c in MASKED_MEANS]
)
@pytest.mark.parametrize("dim", [None, 0])
def test_means_are_over_the_selected_positions(where, values, mask, right, shipped, dim):
    tensor, selected = torch.tensor(values, dtype=arl.DTYPE), torch.tensor(mask, dtype=torch.bool)
    assert tensor.mean().item() == pytest.approx(shipped), where
    assert arl.masked_mean(tensor, selected, dim).item() == pytest.approx(right, abs=1e-12), where


@pytest.mark.parametrize("filler", [float("nan"), float("inf"), -float("inf")])
def test_a_masked_position_reaches_neither_value_nor_gradient(filler):
    values = torch.tensor([1.0, filler, 3.0], dtype=arl.DTYPE, requires_grad=True)
    mean = arl.masked_mean(values, torch.tensor([True, False, True]))
    mean.backward()
    assert mean.item() == 2.0
    assert values.grad is not None
    assert values.grad.tolist() == [0.5, 0.0, 0.5]
    assert (torch.tensor(0.0) * filler).isnan(), "why a product with the mask will not do"


@pytest.fixture(scope="module")
def model() -> arl.TinyAgent:
    """Return a small model with random weights."""
    return arl.TinyAgent(arl.TinyAgentConfig(vocab_size=11, width=16, heads=2), arl.generator(0))


@torch.no_grad()
def test_m17_a_padded_prompt_has_the_next_token_of_the_prompt_alone_read_at_its_last_token(model):
    alone = model(torch.tensor([[5, 6]]))[0, -1]
    for side, end in {"left": -1, "right": 1}.items():
        ids, real = arl.pad_rows([[5, 6], [1, 2, 3]], side=side)
        padded = model(ids, segments=real.long())[0]
        assert (padded[end] - alone).abs().max() < 1e-12, side
    ids, _ = arl.pad_rows([[5, 6], [1, 2, 3]])
    assert (model(ids)[0, -1] - alone).abs().max() > 1e-3, "as shipped: padding on the right read as the last token"


@torch.no_grad()
def test_m29_a_packed_sequence_has_the_logits_it_has_alone(model):
    first, second = [1, 2, 3], [5, 6, 7, 8]
    packed, alone = torch.tensor([first + second]), model(torch.tensor([second]))[0]
    segments = torch.tensor([[1] * 3 + [2] * 4])
    assert (model(packed, segments=segments)[0, 3:] - alone).abs().max() < 1e-12
    assert (model(packed)[0, 3:] - alone).abs().max() > 1e-3, "as shipped: the second attends to the first"


def test_r22_what_stands_before_a_message_counts_once_against_the_limit():
    tokenizer = arl.TinyTokenizer.build(["a"], arl.GYM_CONTROLS)
    transcript = [("prompt", "aa"), ("policy", "<call>aaa </call>"), ("tool", "a")]
    ids, _, _ = arl.encode_transcript(tokenizer, [*transcript, ("policy", "a")], limit=8)
    assert len(ids) == 8, "3 tokens, then a message of 5; counted twice, the 3 leave it no room"
    ids, _, _ = arl.encode_transcript(tokenizer, transcript, limit=7)
    assert len(ids) == 3


def weights_of(
    mask: Tensor, parts: Sequence[Sequence[int]], whole: arl.LossCounts | None, mode: str = "token-mean"
) -> Tensor:
    """Return what each token weighs in the sum of the losses of the parts, given the counts of the whole or not."""
    values = torch.zeros(mask.shape, dtype=arl.DTYPE, requires_grad=True)
    for rows in parts:
        rows = list(rows)
        arl.aggregate_loss(values[rows], mask[rows], mode, whole=whole).backward()
    assert values.grad is not None
    return values.grad


def losses_of(values: Tensor, mask: Tensor, whole: arl.LossCounts | None) -> list[float]:
    """Return the mean over tokens of each row, taken as a part of the whole or alone."""
    rows = range(len(mask))
    return [arl.aggregate_loss(values[[row]], mask[[row]], whole=whole).item() for row in rows]


SCALES = [
    # where it was reported, lengths of the rows, each a microbatch, a pack or a rank of its own
    ("A01 (TRL#2647, TRL#2881): accumulation", [1, 2, 3, 6]),
    ("A03 (verl#7225): no global counts", [3, 1, 4, 1, 5, 2, 6, 5]),
    ("A04 (verl#3994): mean of each rank", [1, 3]),
    ("A09 (prime-rl#2562): a scale a rank", [2, 6]),
    ("A14 (open-instruct#1161): a denominator a pack", [6, 2]),
]


@pytest.mark.parametrize(("where", "lengths"), SCALES, ids=[where.split()[0].lower() for where, _ in SCALES])
def test_a_token_weighs_the_same_wherever_it_falls(where, lengths):
    mask, rows = lengths_mask(*lengths), [[row] for row in range(len(lengths))]
    whole = arl.loss_counts(mask)
    right = mask.to(arl.DTYPE) / sum(lengths)
    assert close(weights_of(mask, rows, whole), right), where
    assert close(weights_of(mask, [range(len(lengths))], None), right), where
    alone = weights_of(mask, rows, None) / len(lengths)
    assert close(alone, mask / column(*lengths)[:, None] / len(lengths)), "as shipped: a mean of means"
    assert not close(alone, right, 1e-3), where


def test_a03_without_the_counts_of_the_whole_eight_parts_weigh_eightfold():
    """A03 (verl#7225, #7200)."""
    mask, rows = lengths_mask(*[3] * 8), [[row] for row in range(8)]
    whole = weights_of(mask, [range(8)], None)
    assert close(weights_of(mask, rows, arl.loss_counts(mask)), whole)
    assert close(weights_of(mask, rows, None), 8 * whole), "as shipped"


LOSSES_OF_PARTS = [
    # where it was reported, values of the rows, lengths, right, as shipped: the mean of the rows' means
    ("A04 (verl#3994): ranks", [[4, 0, 0], [0, 0, 0]], [1, 3], 1.0, 2.0),
    ("A10 (SkyRL#1296): microbatches", [[1, 2, 9, 9], [3, 4, 5, 6]], [2, 4], 3.5, 3.0),
    ("A11 (TRL#6380): across ranks", [[1, 1, 0, 0, 0, 0], [5, 5, 5, 5, 5, 5]], [2, 6], 4.0, 3.0),
]


@pytest.mark.parametrize(
    ("where", "values", "lengths", "right", "shipped"),
    LOSSES_OF_PARTS,
    ids=[where.split()[0].lower() for where, *_ in LOSSES_OF_PARTS],
)
def test_the_losses_of_parts_add_up_to_the_mean_over_all_tokens(where, values, lengths, right, shipped):
    mask = lengths_mask(*lengths)
    parts = losses_of(table(*values), mask, arl.loss_counts(mask))
    assert sum(parts) == pytest.approx(right, abs=1e-12), where
    alone = losses_of(table(*values), mask, None)
    assert sum(alone) / len(alone) == pytest.approx(shipped), where


@pytest.mark.parametrize(
    ("where", "losses", "right", "shipped"),
    [
        ("A07 (verl#4711): a metric scaled twice", [1, 3], 2.0, 1.0),
        ("A12 (TRL#4852): an evaluation divided by the accumulation steps", [0.8] * 4, 0.8, 0.2),
    ],
    ids=["a07", "a12"],
)
def test_what_parts_add_up_to_is_not_divided_again(where, losses, right, shipped):
    mask = lengths_mask(*[1] * len(losses))
    reported = sum(losses_of(column(*losses)[:, None], mask, arl.loss_counts(mask)))
    assert reported == pytest.approx(right, abs=1e-12), where
    assert reported / len(losses) == pytest.approx(shipped), where


def test_a05_a_sum_over_a_row_is_not_divided_by_its_length():
    """A05 (verl#931)."""
    values, mask = table([1, 2, 0, 0], [3, 4, 5, 6]), lengths_mask(2, 4)
    assert arl.aggregate_loss(values, mask, "seq-mean-token-sum") == 10.5
    assert arl.aggregate_loss(values, mask, "seq-mean-token-mean") == 3.0, "as shipped"


@pytest.mark.parametrize(
    ("where", "advantages", "whole", "right", "shipped"),
    [
        ("A08 (AReaL#1273): divided by the number of parts again", [1, 1, 1, 1], 4, 1.0, 0.25),
        ("A15 (SkyRL#2008, open-instruct#1498): earlier parts lost", [3, 5], 1, 8.0, 5.0),
    ],
    ids=["a08", "a15"],
)
def test_the_gradients_of_parts_add_up(where, advantages, whole, right, shipped):
    weight = torch.zeros((), dtype=arl.DTYPE, requires_grad=True)
    for advantage in column(*advantages):
        part = arl.policy_gradient_loss(
            -weight.reshape(1, 1), advantage.reshape(1), mask_of([1]), whole=arl.LossCounts(whole, whole)
        )
        last = torch.autograd.grad(part, weight, retain_graph=True)[0]
        part.backward()
    assert weight.grad == right, where
    assert shipped in (right / len(advantages), last.item()), where


def test_a16_an_example_counts_once_whatever_its_length():
    """A16 (tinker#334): lengths 1 and 9; where a sequence's log-probability is needed, it is the sum."""
    mask = lengths_mask(1, 9)
    by_example = weights_of(mask, [[0, 1]], None, "seq-mean-token-mean") * 2
    assert close(by_example.sum(1), [1, 1])
    by_token = weights_of(mask, [[0, 1]], None, "token-sum")
    assert close(by_token.sum(1), [1, 9]), "as shipped"
    assert close(arl.masked_sum(table([-1] * 9, [-1] * 9), mask, dim=-1), [-1, -9])


def test_a17_a_mean_is_over_tokens_not_rows():
    """A17 (TRL#4105, #4719, #6478)."""
    divergence, mask = table([0.5] * 3, [0.5] * 3), lengths_mask(3, 3)
    assert arl.aggregate_loss(divergence, mask) == 0.5
    assert arl.aggregate_loss(divergence, mask, "seq-mean-token-sum") == 1.5, "as shipped"


def test_m15_tool_tokens_are_in_no_denominator_of_a_loss():
    """M15 (slime#365)."""
    values, mask = table([1] * 3 + [0] * 5), lengths_mask(3, 8)[:1]
    for mode in ("token-mean", "seq-mean-token-mean"):
        assert arl.aggregate_loss(values, mask, mode) == 1.0
    assert arl.aggregate_loss(values, torch.ones_like(mask)) == 0.375, "as shipped"


def test_m26_a_penalty_in_the_reward_is_paid_by_policy_tokens_alone():
    """M26 (slime#1372); L12 (slime#2114): and the penalties are as they were, to be logged."""
    divergence, mask = table([0.1, 0.1, 2, 2, 0.1]), mask_of([1, 1, 0, 0, 1])
    logged = divergence.clone()
    rewards = table([0, 0, 0, 0, 1]) - divergence
    assert close(arl.discounted_returns(rewards, mask), [[0.7, 0.8, 0, 0, 0.9]])
    shipped = arl.discounted_returns(rewards, torch.ones_like(mask))
    assert close(shipped[mask], [-3.3, -3.2, 0.9])
    assert torch.equal(divergence, logged)


def test_v17_a_score_of_0_is_a_score():
    """V17 (OpenRLHF#1219)."""
    one = episodes(tiny_model(), 0, 1).split()[0]
    batch = arl.collate(
        [dataclasses.replace(one, reward=0.0), dataclasses.replace(one, reward=None, ended="infrastructure")]
    )
    assert batch.rewards[0] == 0
    assert batch.rewards[1].isnan()
    assert (0.0 or -1.0) == -1.0, "as shipped: `score or reward`"
    advantages = arl.group_mean_advantages(torch.stack([batch.rewards[0], column(-1)[0]]), torch.tensor([3, 3]))
    assert advantages.tolist() == [0.5, -0.5]


def test_l03_the_dual_clip_bounds_the_loss_of_a_bad_token():
    """L03 (slime#2247); verl#972: and its tokens are counted."""
    arguments = table([math.log(4)]), table([0]), table([-1]), mask_of([1])
    bounded = arl.ppo_policy_loss(*arguments, dual_clip=3.0)
    assert bounded.loss.item() == pytest.approx(3, abs=1e-12)
    assert bounded.dual_clip_fraction == 1
    assert arl.ppo_policy_loss(*arguments).loss.item() == pytest.approx(4, abs=1e-12), "as shipped"


def test_o01_log_probabilities_are_those_of_the_temperature_that_sampled():
    """O01 (TRL#3029, OpenRLHF#857, slime#557, AReaL#581, tinker#103, NeMo#935)."""
    logits = table([2, 0, 0])
    right, shipped = (arl.tempered(logits, temperature).log_softmax(-1)[0, 0] for temperature in (0.5, 1.0))
    assert right.item() == pytest.approx(-0.035976, abs=1e-6)
    assert shipped.item() == pytest.approx(-0.239545, abs=1e-6)


def test_o02_the_first_ratio_is_1_with_the_temperature_in_both():
    """O02 (TRL#4163, open-instruct#1678, NeMo#3392, prime-rl#697); O03: the logits are left as they were."""
    logits = table([2, 1, 0])
    recorded = arl.sampling_distribution(logits, temperature=0.6).log()[:, 1:2]
    now = arl.tempered(logits, 0.6).log_softmax(-1)[:, 1:2]
    assert arl.importance_ratio(now, recorded, mask_of([1])).item() == pytest.approx(1, abs=1e-12)
    raw = logits.log_softmax(-1)[:, 1:2]
    assert arl.importance_ratio(recorded, raw, mask_of([1])).item() == pytest.approx(0.630253, abs=1e-6), "as shipped"
    assert logits.tolist() == [[2, 1, 0]]


class DroppingAgent(arl.TinyAgent):
    """A model whose features pass through dropout while it trains."""

    def features(self, *arguments, **named):
        return torch.nn.functional.dropout(super().features(*arguments, **named), 0.5, self.training)


def test_o04_sampled_without_dropout_the_first_ratio_is_1_and_the_mode_is_as_before():
    """O04 (TRL#3234, verl#4708, TRL#3337)."""
    tokenizer = arl.gym_tokenizer()
    config = arl.TinyAgentConfig(len(tokenizer), width=8, layers=1, heads=2, max_positions=128)
    model = DroppingAgent(config, arl.generator(0))
    assert model.training
    batch = arl.collate(arl.rollout(model, tokenizer, arl.bugfix_tasks()[:2], 2, 0))
    assert model.training
    tables, mask = (batch.ids, batch.attention_mask, batch.action_mask), batch.action_mask
    advantages = torch.ones(len(batch), dtype=arl.DTYPE)
    dropping = arl.ppo_policy_loss(arl.token_logprobs(model, *tables), batch.logprobs, advantages, mask)
    assert dropping.approx_kl > 1e-4, "as shipped: dropout on while scoring"
    scored = arl.token_logprobs(model.eval(), *tables)
    assert (arl.importance_ratio(scored, batch.logprobs, mask) - 1).abs().max() < 1e-10
    found = arl.ppo_policy_loss(scored, batch.logprobs, advantages, mask)
    assert (found.clip_fraction, found.dual_clip_fraction) == (0, 0)
    assert found.approx_kl == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("logprob", [-0.1, -2.0])
def test_o05_a_weight_carries_no_gradient(logprob):
    """O05 (verl#4105): w = 1.5, A = 1."""
    leaf = table([logprob]).requires_grad_()
    ratio = arl.importance_ratio(leaf, table([logprob - math.log(1.5)]), mask_of([1]))
    loss = arl.policy_gradient_loss(leaf, ratio.detach() * 1.0, mask_of([1]))
    assert torch.autograd.grad(loss, leaf)[0].item() == pytest.approx(-1.5, abs=1e-12)
    with pytest.raises(ValueError, match=r"advantages.*detach"):
        arl.policy_gradient_loss(leaf, ratio * 1.0, mask_of([1]))
    shipped = torch.autograd.grad(-(ratio * leaf).sum(), leaf)[0].item()
    assert shipped == pytest.approx(-1.5 * (1 + logprob)), "as shipped: it depends on the log-probability"


ON_POLICY = {  # aggregation: loss, gradients at A = 1 and -1 of rows of 2 and 4 tokens, norm_length 8
    "seq-mean-token-mean": ("grpo", 0.0, (-0.25, 0.125)),
    "token-mean": ("dapo and bnpo", 1 / 3, (-1 / 6, 1 / 6)),
    "seq-mean-token-sum-norm": ("dr_grpo", 0.125, (-0.0625, 0.0625)),
    "seq-mean-token-sum": ("luspo", 1.0, (-0.5, 0.5)),
}


@pytest.mark.parametrize("mode", ON_POLICY)
def test_g9_loss_types(mode):
    """G9: TRL's loss types are aggregations; E10: on the policy that sampled."""
    name, right, slopes = ON_POLICY[mode]
    mask = lengths_mask(2, 4)
    leaf = torch.full(mask.shape, -1.0, dtype=arl.DTYPE).requires_grad_()
    columns = {"logprobs": leaf, "old_logprobs": leaf.detach(), "advantages": column(1, -1)}
    given = {"aggregation": mode, **({"norm_length": 8.0} if mode.endswith("norm") else {})}
    wanted = torch.where(mask, column(*slopes)[:, None], 0.0)
    found = policy_loss(columns, mask, **given)
    assert found.loss.item() == pytest.approx(right, abs=1e-12), name
    assert close(torch.autograd.grad(found.loss, leaf)[0], wanted)
    assert close(torch.autograd.grad(cispo_loss(columns, mask, **given).loss, leaf)[0], wanted)


def test_g9_the_sequences_of_gspo_count_alike():
    """G9: as TRL's grpo, also in the gradient."""
    mask = lengths_mask(2, 4)
    leaf = torch.full(mask.shape, -1.0, dtype=arl.DTYPE).requires_grad_()
    loss = gspo_loss({"logprobs": leaf, "old_logprobs": leaf.detach(), "advantages": column(1, -1)}, mask).loss
    assert loss.item() == 0
    assert close(torch.autograd.grad(loss, leaf)[0], [[-0.25, -0.25, 0, 0], [0.125] * 4])


@pytest.mark.parametrize("mode", arl.AGGREGATIONS)
def test_o17_weights_of_0_leave_no_gradient(mode):
    """O17 (verl#3274): in every loss that takes weights."""
    mask, zero = lengths_mask(2, 4), torch.zeros(2, 4, dtype=arl.DTYPE)
    leaf = (zero - 1).requires_grad_()
    columns = {"logprobs": leaf, "old_logprobs": zero - 2, "advantages": zero}
    given = {"aggregation": mode, **options(mode)}
    for loss in (
        arl.policy_gradient_loss(leaf, zero, mask, **given),
        policy_loss(columns, mask, **given).loss,
        cispo_loss(columns, mask, **given).loss,
        gspo_loss(columns, mask).loss,
    ):
        assert not torch.autograd.grad(loss, leaf)[0].any()


def test_e10_a_loss_of_0_on_the_policy_that_sampled_is_no_gradient_of_0():
    """E10 (Search-R1#65, tinker#579, open-r1#239, TRL#2703)."""
    leaf = table([-1.0], [-2.0]).requires_grad_()
    found = arl.ppo_policy_loss(leaf, leaf.detach(), table([1], [-1]), mask_of([1], [1]))
    assert found.loss == 0
    assert torch.autograd.grad(found.loss, leaf)[0].tolist() == [[-0.5], [0.5]]
