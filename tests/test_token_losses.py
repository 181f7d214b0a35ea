"""What every loss over policy tokens owes, of chapters 6 to 10: it adds up, and reads nothing that it should not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_losses import (
    GRPO_LOSSES,
    KL_LOSSES,
    POLICY_GRADIENT_LOSSES,
    PPO_LOSSES,
    TokenLoss,
    check_gradient_is_the_slope,
    check_inputs_are_left_alone,
    check_masked_positions_are_never_read,
    check_padding_changes_nothing,
    check_parts_add_up,
    check_recorded_columns_are_finite,
    check_recorded_columns_have_no_gradient,
    check_rows_may_be_permuted,
    few,
    lengths_mask,
    mask_of,
    masks,
    seeds,
    value_and_gradient,
)
from torch import Tensor

import agentrl as arl

LOSSES = [*POLICY_GRADIENT_LOSSES, *PPO_LOSSES, *GRPO_LOSSES, *KL_LOSSES]
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)


class TestEveryLoss:
    """What holds for each aggregation, alone, under the policy gradient, with each clip, for the critic and the KL."""

    @each_loss
    @given(mask=masks(), seed=seeds, data=st.data())
    @few
    def test_parts_of_any_rows_add_up_to_the_batch_in_value_and_gradient(
        self, loss: TokenLoss, mask: Tensor, seed: int, data: st.DataObject
    ) -> None:
        order = data.draw(st.permutations(range(len(mask))))
        cuts = sorted(data.draw(st.sets(st.integers(0, len(mask)))))
        check_parts_add_up(loss, mask, seed, order, cuts)

    @each_loss
    @given(mask=masks(), seed=seeds)
    @few
    def test_nan_and_inf_at_masked_positions_change_nothing(self, loss: TokenLoss, mask: Tensor, seed: int) -> None:
        check_masked_positions_are_never_read(loss, mask, seed)

    @each_loss
    @given(mask=masks(), seed=seeds, data=st.data())
    @few
    def test_the_order_of_the_rows_does_not_matter(
        self, loss: TokenLoss, mask: Tensor, seed: int, data: st.DataObject
    ) -> None:
        check_rows_may_be_permuted(loss, mask, seed, data.draw(st.permutations(range(len(mask)))))

    @each_loss
    @given(mask=masks(), seed=seeds, extra=st.integers(1, 3))
    @few
    def test_padding_changes_nothing(self, loss: TokenLoss, mask: Tensor, seed: int, extra: int) -> None:
        check_padding_changes_nothing(loss, mask, seed, extra)

    @pytest.mark.parametrize("loss", [loss for loss in LOSSES if not loss.detached], ids=str)
    @pytest.mark.parametrize("seed", range(3))
    def test_the_gradient_is_the_slope(self, loss: TokenLoss, seed: int) -> None:
        check_gradient_is_the_slope(loss, mask_of([1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1]), seed)

    @each_loss
    def test_no_input_is_written_to(self, loss: TokenLoss) -> None:
        check_inputs_are_left_alone(loss, lengths_mask(2, 4), 0)

    @each_loss
    def test_what_was_recorded_carries_no_gradient_and_is_finite(self, loss: TokenLoss) -> None:
        mask = mask_of([0, 0, 0], [1, 0, 1], [0, 0, 0])
        check_recorded_columns_have_no_gradient(loss, mask, 0)
        check_recorded_columns_are_finite(loss, mask, 0)

    @each_loss
    def test_a_part_without_policy_tokens_adds_nothing_and_can_be_differentiated(self, loss: TokenLoss) -> None:
        nothing = mask_of([0, 0], [0, 0])
        value, gradient = value_and_gradient(loss, loss.draw(nothing, 0), nothing, arl.LossCounts(3, 2))
        assert value == 0
        assert (gradient == 0).all()

    @each_loss
    def test_a_mask_that_is_not_bool_and_another_shape_are_refused(self, loss: TokenLoss) -> None:
        mask = lengths_mask(2, 4)
        columns = loss.draw(mask, 0)
        with pytest.raises(TypeError, match=r"int64.*bool"):
            loss.compute(columns, mask.long(), None)
        for name in loss.tables():
            for wrong in (columns[name][:1], columns[name][:, :1], columns[name][:, :3], columns[name][0]):
                with pytest.raises(ValueError, match=rf"{name} \[.*\[2, 4\]"):
                    loss.compute({**columns, name: wrong}, mask, None)

    @each_loss
    def test_nothing_to_divide_by_is_refused(self, loss: TokenLoss) -> None:
        nothing = mask_of([0, 0], [0, 0])
        with pytest.raises(ValueError, match=r"0.*positive"):
            loss.compute(loss.draw(nothing, 0), nothing, None)
