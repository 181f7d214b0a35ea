"""Faults that public projects have shipped, each with the value a correct implementation gives and the wrong one.

A case stands here once the library has the mechanism it is about.
"""

import pytest
import torch

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
