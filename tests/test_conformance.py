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
