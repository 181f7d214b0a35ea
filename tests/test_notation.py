"""Chapter 0's functions: values against plain loops, masked positions never read, errors that name what is wrong."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrl.notation import DTYPE, generator, masked_mean, masked_sum

finite = st.floats(-1e6, 1e6)
cells = st.tuples(finite, st.booleans())
tables = st.integers(1, 6).flatmap(
    lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=5)
)
junk = st.sampled_from([math.nan, math.inf, -math.inf, 1e300])


def tensors(table: list[list[tuple[float, bool]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values and the mask of a table of (value, selected) cells."""
    values = torch.tensor([[value for value, _ in row] for row in table], dtype=DTYPE)
    return values, torch.tensor([[selected for _, selected in row] for row in table])


@given(tables)
def test_rows_agree_with_a_loop(table: list[list[tuple[float, bool]]]) -> None:
    values, mask = tensors(table)
    kept = [[value for value, selected in row if selected] for row in table]
    sums = masked_sum(values, mask, dim=1).tolist()
    means = masked_mean(values, mask, dim=1).tolist()
    assert sums == pytest.approx([sum(row) for row in kept], abs=1e-6)
    assert means == pytest.approx([sum(row) / len(row) if row else 0.0 for row in kept], abs=1e-6)


@given(tables)
def test_everything_agrees_with_a_loop(table: list[list[tuple[float, bool]]]) -> None:
    values, mask = tensors(table)
    kept = [value for row in table for value, selected in row if selected]
    if not kept:
        for function in (masked_sum, masked_mean):
            with pytest.raises(ValueError, match="selects nothing"):
                function(values, mask)
        return
    assert masked_sum(values, mask).item() == pytest.approx(sum(kept), abs=1e-6)
    assert masked_mean(values, mask).item() == pytest.approx(sum(kept) / len(kept), abs=1e-6)


@given(tables, junk, st.sampled_from([None, 0, 1]))
def test_masked_values_are_never_read(table: list[list[tuple[float, bool]]], filler: float, dim: int | None) -> None:
    values, mask = tensors(table)
    if dim is None and not mask.any():
        return
    spoiled = values.masked_fill(~mask, filler)
    for function in (masked_sum, masked_mean):
        clean, dirty = values.clone().requires_grad_(), spoiled.clone().requires_grad_()
        one, other = function(clean, mask, dim), function(dirty, mask, dim)
        one.sum().backward()
        other.sum().backward()
        assert torch.equal(one, other)
        assert clean.grad is not None
        assert dirty.grad is not None
        assert torch.equal(clean.grad, dirty.grad)
        assert torch.equal(dirty.grad[~mask], torch.zeros_like(dirty.grad[~mask]))


def test_gradient_of_the_mean_is_one_over_the_count() -> None:
    values = torch.tensor([[1.0, 2.0, math.nan], [4.0, math.inf, 6.0]], dtype=DTYPE, requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, False, True]])
    masked_mean(values, mask).backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[0.25, 0.25, 0.0], [0.25, 0.0, 0.25]]


@pytest.mark.parametrize("function", [masked_sum, masked_mean])
def test_a_row_that_selects_nothing_gives_zero_and_no_gradient(function) -> None:
    values = torch.tensor([[math.nan, math.inf], [3.0, 5.0]], dtype=DTYPE, requires_grad=True)
    result = function(values, torch.tensor([[False, False], [True, False]]), dim=1)
    assert result.tolist() == [0.0, 3.0]
    result.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[0.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize("function", [masked_sum, masked_mean])
@pytest.mark.parametrize("shape", [(2, 1), (3,), (3, 2), (1, 2, 3)])
def test_shapes_that_differ_are_an_error_naming_both(function, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="same shape") as caught:
        function(torch.zeros(2, 3), torch.ones(shape, dtype=torch.bool), dim=-1)
    assert "[2, 3]" in str(caught.value)
    assert str(list(shape)) in str(caught.value)


@pytest.mark.parametrize("function", [masked_sum, masked_mean])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.uint8])
def test_a_mask_that_is_not_bool_is_an_error_naming_its_type(function, dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=str(dtype)):
        function(torch.zeros(2), torch.ones(2, dtype=dtype))


@pytest.mark.parametrize("size", [(0,), (2, 0)])
def test_no_values_at_all(size: tuple[int, ...]) -> None:
    values, mask = torch.zeros(size, dtype=DTYPE), torch.zeros(size, dtype=torch.bool)
    with pytest.raises(ValueError, match="selects nothing"):
        masked_mean(values, mask)
    assert torch.equal(masked_mean(values, mask, dim=-1), torch.zeros(size[:-1], dtype=DTYPE))


@pytest.mark.parametrize("function", [masked_sum, masked_mean])
def test_a_single_number_and_dimensions_counted_from_the_end(function) -> None:
    assert function(torch.tensor(3.0), torch.tensor(True)).item() == 3.0
    with pytest.raises(ValueError, match="selects nothing"):
        function(torch.tensor(math.nan), torch.tensor(False))
    values, mask = torch.tensor([[1.0, math.nan], [3.0, 5.0]]), torch.tensor([[True, False], [True, True]])
    for dim in (0, 1):
        assert torch.equal(function(values, mask, dim), function(values, mask, dim - 2))
    with pytest.raises(IndexError, match="out of range"):
        function(values, mask, 2)


def test_selected_nan_is_not_hidden() -> None:
    values, mask = torch.tensor([[1.0, math.nan], [3.0, math.nan]]), torch.tensor([[True, True], [True, False]])
    assert math.isnan(masked_mean(values, mask).item())
    first, second = masked_mean(values, mask, dim=1).tolist()
    assert math.isnan(first)
    assert second == 3.0


def test_types_of_results() -> None:
    mask = torch.tensor([True, True, False])
    assert masked_mean(torch.tensor([1.0, 2.0, 9.0], dtype=torch.float32), mask).dtype == torch.float32
    assert masked_mean(torch.tensor([1, 2, 9]), mask).item() == 1.5
    assert masked_mean(torch.tensor([True, False, True]), mask, dim=0).item() == 0.5
    assert masked_mean(torch.tensor([1, 2, 9]), mask).dtype == DTYPE
    assert masked_sum(torch.tensor([1, 2, 9]), mask).item() == 3


def test_generators_are_independent_and_repeatable() -> None:
    def draw(source: torch.Generator) -> list[float]:
        return torch.rand(4, generator=source, dtype=DTYPE).tolist()

    before = torch.get_rng_state()
    first = draw(generator(7))
    interrupted = generator(7)
    draw(generator(8))
    assert draw(interrupted) == first
    assert draw(generator(8)) != first
    assert torch.equal(torch.get_rng_state(), before), "the global generator was touched"
