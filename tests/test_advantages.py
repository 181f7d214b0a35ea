"""Chapter 7's estimators: returns, GAE over policy tokens, baselines of groups, turns, and normalisation."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from token_losses import (
    FILLERS,
    close,
    column,
    drawn,
    episodes,
    few,
    lengths_mask,
    mask_of,
    masks,
    seeds,
    table,
    tiny_model,
    widened,
)
from torch import Tensor

import agentrl as arl

G1_REWARDS, G1_MASK = table([0, 0, 0, 0, 1]), mask_of([1, 1, 0, 0, 1])
G1_VALUES = table([0.5, 0.6, 9, 9, 0.8])
MIXED = mask_of([0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0])
shares = st.floats(0, 1)


def groups_of(*names: int) -> Tensor:
    """Return the task of each attempt."""
    return torch.tensor(names, dtype=torch.int64)


def policy_steps(mask: Tensor) -> list[list[int]]:
    """Return the positions of each row's policy tokens."""
    return [[place for place, kept in enumerate(row) if kept] for row in mask.tolist()]


def returns_in_loops(rewards: Tensor, mask: Tensor, gamma: float, bootstrap: Tensor) -> Tensor:
    """Return the discounted sums of what follows, each added up on its own."""
    found = torch.zeros_like(rewards)
    for row, steps in enumerate(policy_steps(mask)):
        for number, place in enumerate(steps):
            later = [gamma**ahead * float(rewards[row, at]) for ahead, at in enumerate(steps[number:])]
            found[row, place] = math.fsum(later) + gamma ** (len(steps) - number) * float(bootstrap[row])
    return found


def gae_in_loops(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float, bootstrap: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the weighted sums of the TD errors that follow, each added up on its own, and those plus the values."""
    advantages, returns = torch.zeros_like(rewards), torch.zeros_like(rewards)
    for row, steps in enumerate(policy_steps(mask)):
        known = [*(float(values[row, at]) for at in steps), float(bootstrap[row])]
        errors = [float(rewards[row, at]) + gamma * known[n + 1] - known[n] for n, at in enumerate(steps)]
        for number, place in enumerate(steps):
            weighted = [(gamma * lam) ** ahead * error for ahead, error in enumerate(errors[number:])]
            advantages[row, place] = math.fsum(weighted)
            returns[row, place] = advantages[row, place] + known[number]
    return advantages, returns


def members(groups: Sequence[int], row: int) -> list[int]:
    """Return the attempts at the same task."""
    return [other for other, name in enumerate(groups) if name == groups[row]]


def deviation(numbers: Sequence[float]) -> float:
    """Return the standard deviation of a sample, n - 1."""
    mean = math.fsum(numbers) / len(numbers)
    return math.sqrt(math.fsum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1))


def group_in_loops(rewards: Sequence[float], groups: Sequence[int], scale: str, eps: float) -> list[float]:
    """Return each reward minus the mean of its group, over the deviation that `scale` names."""
    found = []
    for row, reward in enumerate(rewards):
        own = [rewards[other] for other in members(groups, row)]
        over = {"none": 1.0, "group": deviation(own) + eps, "batch": deviation(rewards) + eps}[scale]
        found.append((reward - math.fsum(own) / len(own)) / over if len({*own}) > 1 else 0.0)
    return found


def leave_one_out_in_loops(rewards: Sequence[float], groups: Sequence[int]) -> list[float]:
    """Return each reward minus the mean of the other attempts at its task."""
    others = [[rewards[o] for o in members(groups, row) if o != row] for row in range(len(rewards))]
    return [reward - math.fsum(rest) / len(rest) for reward, rest in zip(rewards, others, strict=True)]


def whitened_in_loops(values: Tensor, mask: Tensor, eps: float) -> Tensor:
    """Return what is not masked, minus its mean, over its deviation."""
    kept = values[mask].tolist()
    found = torch.zeros_like(values)
    if len({*kept}) > 1:
        found[mask] = column(*((value - math.fsum(kept) / len(kept)) / (deviation(kept) + eps) for value in kept))
    return found


def turns_in_loops(
    rewards: Tensor, values: Tensor, turn: Tensor, mask: Tensor, gamma: float, lam: float, bootstrap: Tensor
) -> Tensor:
    """Return GAE over turns: a row is turned into one of its turns, and back."""
    found = torch.zeros_like(rewards)
    for row, steps in enumerate(policy_steps(mask)):
        by_turn: dict[int, list[int]] = {}
        for place in steps:
            by_turn.setdefault(int(turn[row, place]), []).append(place)
        paid = [[math.fsum(float(rewards[row, at]) for at in places) for places in by_turn.values()]]
        known = [[float(values[row, places[0]]) for places in by_turn.values()]]
        all_of = mask_of([1] * len(by_turn))
        advantages, _ = gae_in_loops(table(*paid), table(*known), all_of, gamma, lam, bootstrap[[row]])
        for number, places in enumerate(by_turn.values()):
            found[row, places] = advantages[0, number]
    return found


@st.composite
def grouped(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Return rewards and groups of at least two, mixed, some of them all equal."""
    sizes = draw(st.lists(st.integers(2, 5), min_size=1, max_size=4))
    names = [name for name, size in zip((7, 0, 3, 12), sizes, strict=False) for _ in range(size)]
    rewards = draw(st.lists(st.sampled_from([0.0, 1.0, 0.1, -0.7, 0.3]), min_size=len(names), max_size=len(names)))
    return column(*rewards), groups_of(*draw(st.permutations(names)))


def turns_for(mask: Tensor, seed: int) -> Tensor:
    """Return turn numbers from 0 that never fall along a row."""
    return (drawn(mask.shape, seed, 0, 1) < 0.4).long().cumsum(1)


class TestReturns:
    @given(mask=masks(), seed=seeds, gamma=shares)
    @few
    def test_they_are_the_definition_in_loops(self, mask: Tensor, seed: int, gamma: float) -> None:
        rewards, bootstrap = drawn(mask.shape, seed), drawn(mask.shape[:1], seed + 1)
        found = arl.discounted_returns(rewards, mask, gamma, bootstrap)
        assert close(found, returns_in_loops(rewards, mask, gamma, bootstrap), 1e-10)
        assert close(arl.discounted_returns(rewards, mask), returns_in_loops(rewards, mask, 1.0, bootstrap * 0), 1e-10)

    def test_g2_reinforce_plus_plus_over_a_tool_span(self) -> None:
        """G2, and V07 (verl#7278, #7300): the reward reaches the tokens before the observation."""
        assert arl.discounted_returns(G1_REWARDS, G1_MASK).tolist() == [[1, 1, 0, 0, 1]]
        assert close(arl.discounted_returns(G1_REWARDS, G1_MASK, 0.9), [[0.81, 0.9, 0, 0, 1]])
        shipped, running = [], 0.0
        for reward, kept in reversed([*zip(G1_REWARDS[0].tolist(), G1_MASK[0].tolist(), strict=True)]):
            running = (reward + running) * kept  # as shipped: an observation sets it back to 0
            shipped.insert(0, running)
        assert shipped == [0, 0, 0, 0, 1]

    def test_a_truncated_episode_counts_the_value_of_what_was_cut_off(self) -> None:
        found = arl.discounted_returns(table([0, 0], [0, 0]), lengths_mask(2, 2), 0.5, column(0, 8))
        assert found.tolist() == [[0, 0], [2, 4]]

    def test_leading_axes_are_free(self) -> None:
        mask, rewards = mask_of([1, 0, 1], [0, 1, 1]), drawn([2, 3], 0)
        rows = arl.discounted_returns(rewards, mask, 0.9, column(0.5, 0.5))
        for row in range(2):
            assert torch.equal(arl.discounted_returns(rewards[row], mask[row], 0.9, 0.5), rows[row])
        assert torch.equal(arl.discounted_returns(rewards[None], mask[None], 0.9, column(0.5, 0.5)[None])[0], rows)


class TestGae:
    @given(mask=masks(), seed=seeds, gamma=shares, lam=shares)
    @few
    def test_it_is_the_definition_in_loops(self, mask: Tensor, seed: int, gamma: float, lam: float) -> None:
        rewards, values = drawn(mask.shape, seed), drawn(mask.shape, seed + 1)
        bootstrap = drawn(mask.shape[:1], seed + 2)
        found = arl.gae(rewards, values, mask, gamma, lam, bootstrap)
        advantages, returns = gae_in_loops(rewards, values, mask, gamma, lam, bootstrap)
        assert close(found.advantages, advantages, 1e-10)
        assert close(found.returns, returns, 1e-10)

    @given(mask=masks(), seed=seeds, gamma=shares)
    @few
    def test_lambda_0_is_the_td_error_and_lambda_1_the_return_minus_the_value(
        self, mask: Tensor, seed: int, gamma: float
    ) -> None:
        rewards, values = drawn(mask.shape, seed), drawn(mask.shape, seed + 1)
        bootstrap = drawn(mask.shape[:1], seed + 2)
        td, mc = (arl.gae(rewards, values, mask, gamma, lam, bootstrap) for lam in (0.0, 1.0))
        returns = arl.discounted_returns(rewards, mask, gamma, bootstrap)
        assert close(mc.advantages, torch.where(mask, returns - values, 0.0))
        assert close(mc.returns, returns)
        for row, steps in enumerate(policy_steps(mask)):
            following = [*values[row, steps[1:]].tolist(), float(bootstrap[row])][: len(steps)]
            targets = rewards[row, steps] + gamma * column(*following)
            assert close(td.returns[row, steps], targets)
            assert close(td.advantages[row, steps], targets - values[row, steps])

    def test_g1_golden_numbers_over_a_tool_span(self) -> None:
        """G1, V06 (verl#2337): tool tokens are no steps, neither for the value nor for the decay."""
        found = arl.gae(G1_REWARDS, G1_VALUES, G1_MASK, lam=0.95)
        assert close(found.advantages, [[0.4705, 0.39, 0, 0, 0.2]])
        assert close(found.returns, [[0.9705, 0.99, 0, 0, 1]])
        everywhere = torch.ones_like(G1_MASK)
        through_critic = arl.gae(G1_REWARDS, G1_VALUES, everywhere, lam=0.95).advantages
        assert close(through_critic[G1_MASK], [1.212426, 1.170975, 0.2], 1e-4), "as in SkyRL and slime"
        zeroed = torch.where(G1_MASK, G1_VALUES, 0.0)
        decayed = arl.gae(G1_REWARDS, zeroed, everywhere, lam=0.95).advantages
        assert close(decayed[G1_MASK], [0.378801, 0.293475, 0.2], 1e-4), "as in OpenRLHF"

    def test_the_default_lambda_is_that_of_g1(self) -> None:
        assert torch.equal(
            arl.gae(G1_REWARDS, G1_VALUES, G1_MASK)[0], arl.gae(G1_REWARDS, G1_VALUES, G1_MASK, 1, 0.95)[0]
        )

    def test_g12_only_truncation_bootstraps(self) -> None:
        """G12: r = 0, gamma = lambda = 1; the value after the last step is 0.9."""
        values, mask = table([0.5, 0.6, 0.8], [0.5, 0.6, 0.8]), lengths_mask(3, 3)
        found = arl.gae(torch.zeros_like(values), values, mask, 1.0, 1.0, column(0.0, 0.9)).advantages
        assert close(found, [[-0.5, -0.6, -0.8], [0.4, 0.3, 0.1]])

    def test_v15_a_truncated_episode_takes_its_own_last_value(self) -> None:
        """V15 (torchrl b28e4a462): read in the concatenated episodes, the next value is that of another episode."""
        values, mask = table([0.5, 0.6], [0.1, 0.2]), lengths_mask(2, 2)
        zero = torch.zeros_like(values)
        right = arl.gae(zero, values, mask, 1.0, 1.0, column(0.9, 0.0)).advantages
        assert close(right, [[0.4, 0.3], [-0.1, -0.2]])
        shipped = arl.gae(zero[:1], values[:1], mask[:1], 1.0, 1.0, values[1:, 0]).advantages
        assert close(shipped, [[-0.4, -0.5]])


def returns_call(mask: Tensor, **columns: Tensor) -> list[Tensor]:
    return [arl.discounted_returns(columns["rewards"], mask, 0.9, columns["bootstrap"])]


def gae_call(mask: Tensor, **columns: Tensor) -> list[Tensor]:
    return [*arl.gae(columns["rewards"], columns["values"], mask, 0.9, 0.8, columns["bootstrap"])]


def turn_call(mask: Tensor, **columns: Tensor) -> list[Tensor]:
    turn = torch.where(mask, mask.long().cumsum(1) // 2, columns["turn"].nan_to_num(-9, 99, -99).long())
    return [arl.turn_advantages(columns["rewards"], columns["values"], turn, mask, 0.9, 0.8, columns["bootstrap"])]


def normalize_call(mask: Tensor, **columns: Tensor) -> list[Tensor]:
    return [
        arl.normalize_advantages(columns["advantages"], mask),
        arl.normalize_advantages(columns["advantages"], mask, dim=-1),
    ]


def variance_call(mask: Tensor, **columns: Tensor) -> list[Tensor]:
    return [torch.tensor([arl.explained_variance(columns["values"], columns["returns"], mask)], dtype=arl.DTYPE)]


ESTIMATORS: dict[Callable[..., list[Tensor]], tuple[str, ...]] = {
    returns_call: ("rewards",),
    gae_call: ("rewards", "values"),
    turn_call: ("rewards", "values", "turn"),
    normalize_call: ("advantages",),
    variance_call: ("values", "returns"),
}
each_estimator = pytest.mark.parametrize("call", ESTIMATORS, ids=lambda call: call.__name__)


def columns_for(call: Callable[..., list[Tensor]], mask: Tensor, seed: int) -> dict[str, Tensor]:
    """Return random tables for an estimator, and a bootstrap value for each row."""
    tables = {name: drawn(mask.shape, seed + number) for number, name in enumerate(ESTIMATORS[call])}
    return {**tables, "bootstrap": drawn(mask.shape[:1], seed + 9)}


def same(found: Sequence[Tensor], right: Sequence[Tensor], tolerance: float = 0.0) -> bool:
    """Return whether all tensors agree, nan with nan, to the tolerance."""
    pairs = zip(found, right, strict=True)
    return all(torch.allclose(one, other, rtol=0, atol=tolerance, equal_nan=True) for one, other in pairs)


class TestEveryEstimator:
    @each_estimator
    @given(mask=masks(), seed=seeds)
    @few
    def test_nan_and_inf_at_masked_positions_change_nothing(self, call: Any, mask: Tensor, seed: int) -> None:
        columns = columns_for(call, mask, seed)
        right = call(mask, **columns)
        for name in ESTIMATORS[call]:
            for filler in FILLERS:
                found = call(mask, **{**columns, name: torch.where(mask, columns[name], filler)})
                assert same(found, right), (name, filler)

    @each_estimator
    @given(mask=masks(), seed=seeds)
    @few
    def test_nothing_stands_at_masked_positions(self, call: Any, mask: Tensor, seed: int) -> None:
        for found in call(mask, **columns_for(call, mask, seed)):
            assert found.shape != mask.shape or (found[~mask] == 0).all()

    @each_estimator
    @given(mask=masks(), seed=seeds, extra=st.integers(1, 3))
    @few
    def test_padding_changes_nothing(self, call: Any, mask: Tensor, seed: int, extra: int) -> None:
        columns = columns_for(call, mask, seed)
        longer = {name: widened(columns[name], extra, math.nan) for name in ESTIMATORS[call]}
        found = call(widened(mask, extra, False), **{**columns, **longer})
        narrow = [one[:, : mask.shape[1]] if one.dim() == 2 else one for one in found]
        assert same(narrow, call(mask, **columns), 1e-12)

    @each_estimator
    @given(mask=masks(), seed=seeds, data=st.data())
    @few
    def test_the_order_of_the_rows_does_not_matter(
        self, call: Any, mask: Tensor, seed: int, data: st.DataObject
    ) -> None:
        columns, order = columns_for(call, mask, seed), data.draw(st.permutations(range(len(mask))))
        found = call(mask[order], **{name: values[order] for name, values in columns.items()})
        right = [one[order] if one.dim() == 2 else one for one in call(mask, **columns)]
        assert same(found, right, 1e-12)

    @each_estimator
    def test_a_recorded_nan_or_infinity_is_refused_with_its_place(self, call: Any) -> None:
        columns = columns_for(call, MIXED, 0)
        for name in [name for name in ESTIMATORS[call] if name != "turn"]:
            for filler in FILLERS:
                bad = columns[name].clone()
                bad[0, 3] = filler
                with pytest.raises(ValueError, match=rf"^{name} .*row 0, position 3: {filler}"):
                    call(MIXED, **{**columns, name: bad})

    @each_estimator
    def test_what_requires_a_gradient_is_refused(self, call: Any) -> None:
        columns = columns_for(call, MIXED, 0)
        used = [name for name in (*ESTIMATORS[call], "bootstrap") if name != "turn"]
        for name in used if call in (returns_call, gae_call, turn_call) else used[:-1]:
            with pytest.raises(ValueError, match=rf"^{name} .*detach"):
                call(MIXED, **{**columns, name: columns[name].clone().requires_grad_()})

    @each_estimator
    def test_another_shape_or_a_mask_that_is_none_is_refused(self, call: Any) -> None:
        columns = columns_for(call, MIXED, 0)
        for name in [name for name in ESTIMATORS[call] if name != "turn"]:
            for wrong in (columns[name][:1], columns[name][:, :1], columns[name][:, :3]):
                with pytest.raises(ValueError, match=rf"^{name} \[.*\[3, 4\]"):
                    call(MIXED, **{**columns, name: wrong})
        if call is not turn_call:
            with pytest.raises(TypeError, match=r"int64.*bool"):
                call(MIXED.long(), **columns)

    @each_estimator
    def test_no_input_is_written_to(self, call: Any) -> None:
        columns = columns_for(call, MIXED, 0)
        before = {name: values.clone() for name, values in columns.items()}
        call(MIXED, **columns)
        assert all(torch.equal(columns[name], before[name]) for name in columns)

    @pytest.mark.parametrize("call", [returns_call, gae_call, turn_call], ids=lambda call: call.__name__)
    def test_a_bootstrap_that_cannot_be_is_refused(self, call: Any) -> None:
        columns = columns_for(call, MIXED, 0)
        for wrong in (torch.zeros(2), torch.zeros(3, 1), torch.zeros(1), torch.zeros(4)):
            with pytest.raises(ValueError, match=r"^bootstrap \[.*\[3\]"):
                call(MIXED, **{**columns, "bootstrap": wrong})
        for filler in FILLERS:
            with pytest.raises(ValueError, match=rf"^bootstrap .*{filler}"):
                call(MIXED, **{**columns, "bootstrap": column(0, filler, 0)})

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_numbers_of_16_bits_are_added_up_in_32(self, dtype: torch.dtype) -> None:
        """In bfloat16 a thousand ones add up to 256."""
        mask, ones = lengths_mask(1000), torch.ones(1, 1000, dtype=dtype)
        turn = torch.zeros_like(mask, dtype=torch.int64)
        assert arl.discounted_returns(ones, mask)[0, 0] == 1000
        assert arl.gae(ones, ones * 0, mask, lam=1.0).returns[0, 0] == 1000
        assert arl.turn_advantages(ones, None, turn, mask)[0, 0] == 1000
        assert arl.recorded_values(mask, ones=ones)[0].dtype == torch.float32

    @pytest.mark.parametrize("call", [returns_call, gae_call, turn_call], ids=lambda call: call.__name__)
    def test_complex_numbers_are_refused_by_name(self, call: Any) -> None:
        columns = columns_for(call, MIXED, 0)
        for name in ("rewards", "bootstrap"):
            with pytest.raises(TypeError, match=rf"^{name} is torch.complex128; it must be .*real numbers"):
                call(MIXED, **{**columns, name: columns[name] + 2j})
        with pytest.raises(TypeError, match=r"^bootstrap is complex"):
            call(MIXED, **{**columns, "bootstrap": 1 + 2j})

    def test_a_result_too_large_for_its_type_is_refused(self) -> None:
        large, mask = torch.full((1, 4), 3e38), lengths_mask(4)
        for name, call in [
            ("returns", lambda: arl.discounted_returns(large, mask)),
            ("advantages", lambda: arl.gae(large, large * 0, mask, lam=1.0)),
        ]:
            with pytest.raises(ValueError, match=rf"^{name} came out as inf: .*torch.float32"):
                call()

    @pytest.mark.parametrize("share", [-0.1, 1.1, math.nan, math.inf])
    def test_gamma_and_lambda_are_between_0_and_1(self, share: float) -> None:
        rewards, mask = G1_REWARDS, G1_MASK
        turn = torch.zeros_like(mask, dtype=torch.int64)
        calls: list[tuple[str, Callable[[], Any]]] = [
            ("gamma", lambda: arl.discounted_returns(rewards, mask, share)),
            ("gamma", lambda: arl.gae(rewards, rewards, mask, share)),
            ("lam", lambda: arl.gae(rewards, rewards, mask, 1.0, share)),
            ("gamma", lambda: arl.turn_advantages(rewards, None, turn, mask, share)),
            ("lam", lambda: arl.turn_advantages(rewards, None, turn, mask, 1.0, share)),
        ]
        for name, call in calls:
            with pytest.raises(ValueError, match=rf"^{name} is {share}"):
                call()


class TestGroups:
    @pytest.mark.parametrize("scale", ["none", "group", "batch"])
    @given(case=grouped(), eps=st.sampled_from([1e-6, 1e-4, 0.1]))
    @few
    def test_group_means_are_the_definition_in_loops(self, scale: str, case: tuple[Tensor, Tensor], eps: float) -> None:
        rewards, groups = case
        found = arl.group_mean_advantages(rewards, groups, scale, eps)
        assert close(found, group_in_loops(rewards.tolist(), groups.tolist(), scale, eps), 1e-10)
        for row in range(len(rewards)):
            own = rewards[members(groups.tolist(), row)]
            if own.unique().numel() == 1:
                assert found[row] == 0, "exactly"

    @given(case=grouped())
    @few
    def test_leaving_one_out_is_the_definition_in_loops_and_n_over_n_minus_1_times_the_mean(
        self, case: tuple[Tensor, Tensor]
    ) -> None:
        rewards, groups = case
        found = arl.leave_one_out_advantages(rewards, groups)
        assert close(found, leave_one_out_in_loops(rewards.tolist(), groups.tolist()), 1e-10)
        sizes = column(*(len(members(groups.tolist(), row)) for row in range(len(rewards))))
        assert close(found, sizes / (sizes - 1) * arl.group_mean_advantages(rewards, groups))

    @given(case=grouped(), data=st.data())
    @few
    def test_the_order_of_the_attempts_and_the_names_of_the_tasks_do_not_matter(
        self, case: tuple[Tensor, Tensor], data: st.DataObject
    ) -> None:
        rewards, groups = case
        order = data.draw(st.permutations(range(len(rewards))))
        for call in (arl.group_mean_advantages, arl.leave_one_out_advantages):
            assert close(call(rewards[order], groups[order] * 31 - 5), call(rewards, groups)[order])

    @pytest.mark.parametrize(
        ("who", "found", "right"),
        [
            ("GRPO", lambda r, g: arl.group_mean_advantages(r, g, "group"), [1.499997, -0.499999]),
            ("without the deviation", lambda r, g: arl.group_mean_advantages(r, g), [0.75, -0.25]),
            ("RLOO", lambda r, g: arl.leave_one_out_advantages(r, g), [1, -1 / 3]),
            ("TRL's eps", lambda r, g: arl.group_mean_advantages(r, g, "group", 1e-4), [1.4997, -0.4999]),
            ("OpenRLHF's eps", lambda r, g: arl.group_mean_advantages(r, g, "group", 1e-9), [1.5, -0.5]),
        ],
    )
    def test_g3_golden_numbers(self, who: str, found: Callable[..., Tensor], right: list[float]) -> None:
        """G3: rewards 1, 0, 0, 0; frameworks without a mechanism here: the table of the chapter, test_chapter07.py."""
        assert close(found(column(1, 0, 0, 0), groups_of(4, 4, 4, 4)), [right[0], *[right[1]] * 3], 1e-4), who

    def test_g3_a_group_mean_whitened_over_tokens(self) -> None:
        """G3, REINFORCE++ with a baseline: equal lengths, and lengths 2, 4, 4, 6."""
        centred = arl.group_mean_advantages(column(1, 0, 0, 0), groups_of(0, 0, 0, 0))
        for lengths, right in ([1, 1, 1, 1], [1.5, -0.5]), ([2, 4, 4, 6], [2.561738, -0.365963]):
            mask = lengths_mask(*lengths)
            found = arl.normalize_advantages(arl.broadcast_to_tokens(centred, mask), mask)
            assert close(found, torch.where(mask, column(right[0], *[right[1]] * 3)[:, None], 0.0), 1e-4)

    @pytest.mark.parametrize(("eps", "right"), [(1e-6, 0.865875), (1e-4, 0.851281), (1e-9, 0.866025)])
    def test_g3_close_rewards(self, eps: float, right: float) -> None:
        """G3: rewards .50, .51, .50, .51, as in verl, TRL and OpenRLHF."""
        found = arl.group_mean_advantages(column(0.5, 0.51, 0.5, 0.51), groups_of(0, 0, 0, 0), "group", eps)
        assert close(found, [-right, right, -right, right], 1e-4)

    @pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1 / 3, 1e-30, 1e300])
    @pytest.mark.parametrize("attempts", [2, 3, 7])
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_g3_an_all_equal_group_is_exactly_0(self, reward: float, attempts: int, dtype: torch.dtype) -> None:
        reward = min(reward, torch.finfo(dtype).max / 10)
        rewards, groups = torch.full((attempts,), reward, dtype=dtype), groups_of(*[5] * attempts)
        for found in (
            *(arl.group_mean_advantages(rewards, groups, scale) for scale in ("none", "group", "batch")),
            *(arl.group_mean_advantages(rewards, groups, scale, eps=0.0) for scale in ("none", "group")),
            arl.leave_one_out_advantages(rewards, groups),
            arl.normalize_advantages(rewards),
        ):
            assert (found == 0).all()

    def test_v01_a_group_of_small_variance_keeps_its_scale(self) -> None:
        """V01 (verl#6348): eps is added to the deviation and is no floor of the variance."""
        groups = groups_of(0, 0, 0, 0)
        found = arl.group_mean_advantages(column(0.5, 0.5001, 0.5, 0.5001), groups, "group")
        assert close(found, [-0.851281, 0.851281] * 2, 1e-4)
        assert 0.00005 / math.sqrt(0.00005**2 * 4 / 3 + 1e-6) == pytest.approx(0.04995, abs=1e-4), "as shipped"
        large = torch.tensor([1000, 1000.01, 1000, 1000.01], dtype=torch.float32)
        assert close(arl.group_mean_advantages(large, groups, "group"), [-0.866, 0.866] * 2, 1e-3)
        assert ((large**2).sum() - large.sum() ** 2 / 4) / 3 != pytest.approx(3.3e-5, rel=0.5), "as shipped"

    def test_v02_group_and_batch_are_two_scales(self) -> None:
        """V02 (TRL#3992), with TRL's eps."""
        rewards, groups = column(0, 1, 0, 10), groups_of(0, 0, 1, 1)
        own = arl.group_mean_advantages(rewards, groups, "group", 1e-4)
        assert close(own, [-0.7070, 0.7070, -0.7071, 0.7071], 1e-4)
        batch = arl.group_mean_advantages(rewards, groups, "batch", 1e-4)
        assert close(batch, [-0.10296, 0.10296, -1.02958, 1.02958], 1e-4)

    def test_v03_without_the_scale_it_is_the_plain_difference(self) -> None:
        """V03 (rllm#447, #471): the default does not divide, "group" does."""
        rewards, groups = column(1, 0, 0, 0), groups_of(2, 2, 2, 2)
        assert arl.group_mean_advantages(rewards, groups).tolist() == [0.75, -0.25, -0.25, -0.25]
        assert close(arl.group_mean_advantages(rewards, groups, "group"), [1.5, -0.5, -0.5, -0.5], 1e-4)

    @pytest.mark.parametrize("call", [arl.group_mean_advantages, arl.leave_one_out_advantages])
    def test_v04_a_group_of_one_has_no_baseline(self, call: Callable[..., Tensor]) -> None:
        """V04 (OpenRLHF#1250): refused with the task's name; as shipped, a silent 0."""
        with pytest.raises(ValueError, match=r"group 17 has one attempt"):
            call(column(1, 0, 1), groups_of(3, 3, 17))

    def test_v05_the_second_group_is_scored_too(self) -> None:
        """V05 (AReaL#225): slices of 4 of 8; as shipped the second one began at 16 and held nothing."""
        rewards, groups = column(1, 0, 0, 0, 1, 1, 0, 0), groups_of(*[0] * 4, *[1] * 4)
        found = arl.group_mean_advantages(rewards, groups)
        assert found.tolist() == [0.75, -0.25, -0.25, -0.25, 0.5, 0.5, -0.5, -0.5]
        size, slices = 4, [(0, 4), (4, 8)]
        assert [(i, i + size) for i in range(0, 8, size)] == slices
        assert [len(rewards[i * size : (i + 1) * size]) for i in range(0, 8, size)] == [4, 0], "as shipped"
        for start, end in slices:
            assert close(found[start:end], rewards[start:end] - rewards[start:end].mean())

    def test_v10_attempts_are_grouped_by_their_task(self) -> None:
        """V10 (NeMo-RL#2176): two tasks whose prompts begin alike are two groups."""
        prompts = ["system user | first", "system user | first", "system user | second", "system user | second"]
        rewards, tasks = column(1, 0, 0, 0), groups_of(0, 0, 1, 1)
        assert arl.group_mean_advantages(rewards, tasks).tolist() == [0.5, -0.5, 0, 0]
        cut = groups_of(*(0 for prompt in prompts if prompt.split(" | ")[0] == "system user"))
        assert arl.group_mean_advantages(rewards, cut).tolist() == [0.75, -0.25, -0.25, -0.25], "as shipped"

    @pytest.mark.parametrize("call", [arl.group_mean_advantages, arl.leave_one_out_advantages])
    def test_v18_an_episode_without_a_score_is_refused_not_dropped(self, call: Callable[..., Tensor]) -> None:
        """V18 (prime-rl#3182): the mean over what scored is .5, over all 1/3; here the caller leaves the row out."""
        scores, groups = column(1, math.nan, 0), groups_of(0, 0, 0)
        with pytest.raises(ValueError, match=r"^rewards .*1: nan"):
            call(scores, groups)
        kept = scores.isfinite()
        assert scores[kept].mean() == 0.5
        assert scores.nansum() / len(scores) == pytest.approx(1 / 3)
        assert call(scores[kept], groups[kept]).isfinite().all()

    @pytest.mark.parametrize(("attempts", "right"), [(2, 0.702), (4, 0.449), (8, 0.201), (16, 0.040)])
    def test_v21_the_share_of_groups_without_a_gradient(self, attempts: int, right: float) -> None:
        """V21: with a pass rate of .1819, by enumeration over how many of the attempts pass."""
        rate, share = 0.1819, 0.0
        for passed in range(attempts + 1):
            rewards = column(*[1] * passed, *[0] * (attempts - passed))
            if not arl.group_mean_advantages(rewards, groups_of(*[0] * attempts), "group").any():
                share += math.comb(attempts, passed) * rate**passed * (1 - rate) ** (attempts - passed)
        assert share == pytest.approx(right, abs=5e-4)

    def test_whole_numbers_and_booleans_are_rewards(self) -> None:
        groups = groups_of(0, 0)
        for rewards in (torch.tensor([1, 0]), torch.tensor([True, False])):
            assert arl.group_mean_advantages(rewards, groups).tolist() == [0.5, -0.5]
            assert arl.leave_one_out_advantages(rewards, groups).tolist() == [1, -1]

    @pytest.mark.parametrize("call", [arl.group_mean_advantages, arl.leave_one_out_advantages])
    def test_what_are_no_groups_is_refused(self, call: Callable[..., Tensor]) -> None:
        rewards = column(1, 0, 1, 0)
        for wrong in (column(0, 0, 1, 1), groups_of(0, 0, 1), groups_of(0, 0, 1, 1)[:, None], rewards > 0):
            with pytest.raises(ValueError, match=r"rewards.*groups"):
                call(rewards, wrong)
        with pytest.raises(ValueError, match=r"rewards.*groups"):
            call(rewards[:, None], groups_of(0, 0, 1, 1)[:, None])
        with pytest.raises(ValueError, match=r"^rewards .*detach"):
            call(rewards.clone().requires_grad_(), groups_of(0, 0, 1, 1))

    @pytest.mark.parametrize("scale", ["none", "group", "batch"])
    def test_equal_rewards_are_exactly_0_without_an_eps(self, scale: str) -> None:
        for rewards in (torch.ones(4), torch.zeros(4), column(1, 1, 5, 5)):
            assert arl.group_mean_advantages(rewards, groups_of(0, 0, 1, 1), scale, eps=0.0).tolist() == [0] * 4
        assert arl.group_mean_advantages(torch.ones(0), groups_of(), scale, eps=0.0).tolist() == []

    def test_rewards_of_16_bits_have_the_advantages_of_the_same_numbers(self) -> None:
        rewards, groups = torch.tensor([60000, 60000, 0, 1], dtype=torch.float16), groups_of(0, 0, 0, 0)
        for call in (arl.group_mean_advantages, arl.leave_one_out_advantages):
            assert torch.equal(call(rewards, groups), call(rewards.float(), groups))

    def test_rewards_whose_mean_or_deviation_overflows_are_refused(self) -> None:
        groups, large, huge = groups_of(0, 0, 0, 0), torch.tensor([3e38, 3e38, 0, 1]), column(1e200, 0, 0, 1)
        for call in (arl.group_mean_advantages, arl.leave_one_out_advantages):
            with pytest.raises(ValueError, match=r"^advantages came out as -?inf: .*torch.float32"):
                call(large, groups)
        for scale in ("group", "batch"):
            with pytest.raises(ValueError, match=r"^the standard deviation came out as inf"):
                arl.group_mean_advantages(huge, groups, scale)

    @pytest.mark.parametrize("scale", ["std", "", None, True])
    def test_an_unknown_scale_is_answered_with_those_there_are(self, scale: Any) -> None:
        with pytest.raises(ValueError, match=rf"{scale!r}.*none.*group.*batch"):
            arl.group_mean_advantages(column(1, 0), groups_of(0, 0), scale)


class TestNormalize:
    @given(mask=masks(), seed=seeds)
    @few
    def test_it_is_the_definition_in_loops(self, mask: Tensor, seed: int) -> None:
        values = drawn(mask.shape, seed, -3, 5)
        found = arl.normalize_advantages(values, mask)
        assert close(found, whitened_in_loops(values, mask, 1e-6), 1e-10)
        by_row = arl.normalize_advantages(values, mask, 0.1, dim=-1)
        for row in range(len(mask)):
            assert close(by_row[row], whitened_in_loops(values[row], mask[row], 0.1), 1e-10)
        assert close(arl.normalize_advantages(values), whitened_in_loops(values, torch.ones_like(mask), 1e-6), 1e-10)

    @given(mask=masks(rows=3, width=4), seed=seeds)
    @few
    def test_each_column_on_its_own(self, mask: Tensor, seed: int) -> None:
        values = drawn(mask.shape, seed)
        by_column = arl.normalize_advantages(values, mask, dim=0)
        assert close(by_column, arl.normalize_advantages(values.T, mask.T, dim=-1).T)

    def test_v04_each_row_has_mean_0_and_deviation_1(self) -> None:
        """V04 (OpenRLHF#1250): a masked normalisation along the wrong axis."""
        values, mask = table([1, 2, 9], [5, 9, 3]), mask_of([1, 1, 0], [1, 1, 1])
        found = arl.normalize_advantages(values, mask, dim=-1)
        for row in range(2):
            kept = found[row][mask[row]]
            assert kept.mean().abs() < 1e-12
            assert kept.std().item() == pytest.approx(1, abs=1e-5)
        assert found[0, 2] == 0

    def test_v12_padding_is_outside_mean_and_deviation(self) -> None:
        """V12 (AReaL#1346): advantages 1, 1 and 9 at padding; as shipped their mean was 3.67."""
        values, mask = table([1, 1, 9]), mask_of([1, 1, 0])
        assert arl.masked_mean(values, mask) == 1
        assert values.mean().item() == pytest.approx(3.67, abs=0.01)
        assert arl.normalize_advantages(values, mask).tolist() == [[0, 0, 0]]
        assert arl.normalize_advantages(values)[0, 0] < -0.5

    def test_v13_the_statistics_are_those_of_the_whole_batch(self) -> None:
        """V13 (slime#2235): whitened shard by shard, 1, 1 and 3, 3 are all 0."""
        values, mask = table([1, 1], [3, 3]), mask_of([1, 1], [1, 1])
        assert close(arl.normalize_advantages(values, mask), [[-0.866025] * 2, [0.866025] * 2], 1e-4)
        shards = torch.cat([arl.normalize_advantages(values[[row]], mask[[row]]) for row in range(2)])
        assert (shards == 0).all()

    @pytest.mark.parametrize("number", [0.1, 1 / 3, 1e300, -7.0])
    @pytest.mark.parametrize("dim", [None, -1])
    def test_all_equal_is_exactly_0_whatever_eps(self, number: float, dim: int | None) -> None:
        values = torch.full((2, 3), number, dtype=arl.DTYPE)
        for eps in (1e-6, 0.0):
            assert (arl.normalize_advantages(values, mask_of([1, 1, 0], [1, 1, 1]), eps, dim) == 0).all()

    def test_numbers_of_16_bits_are_squared_in_32(self) -> None:
        """300 squared is infinite in float16."""
        values = torch.tensor([300, -300, 500, 2], dtype=torch.float16)
        assert torch.equal(arl.normalize_advantages(values), arl.normalize_advantages(values.float()))
        assert arl.normalize_advantages(values).std().item() == pytest.approx(1, abs=1e-5)

    @pytest.mark.parametrize("dim", [None, -1])
    def test_what_is_too_large_or_too_small_to_square_is_refused(self, dim: int | None) -> None:
        signs = torch.tensor([[1.0, -1.0, 0.0, 0.0]])
        with pytest.raises(ValueError, match=r"^the standard deviation came out as inf: .*torch.float32"):
            arl.normalize_advantages(signs * 1e25, dim=dim)
        with pytest.raises(ValueError, match=r"^advantages came out as"):
            arl.normalize_advantages(signs * 1e-25, eps=0.0, dim=dim)

    def test_nothing_to_normalise_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"\[1, 2\].*nothing"):
            arl.normalize_advantages(table([1, 2]), mask_of([0, 0]))


class TestTurnsAndTokens:
    @given(mask=masks(), seed=seeds, gamma=shares, lam=shares)
    @few
    def test_turn_advantages_are_gae_with_turns_as_steps(
        self, mask: Tensor, seed: int, gamma: float, lam: float
    ) -> None:
        rewards, values, turn = drawn(mask.shape, seed), drawn(mask.shape, seed + 1), turns_for(mask, seed + 2)
        bootstrap = drawn(mask.shape[:1], seed + 3)
        found = arl.turn_advantages(rewards, values, turn, mask, gamma, lam, bootstrap)
        assert close(found, turns_in_loops(rewards, values, turn, mask, gamma, lam, bootstrap), 1e-10)
        without = arl.turn_advantages(rewards, None, turn, mask, gamma, lam)
        assert close(without, turns_in_loops(rewards, values * 0, turn, mask, gamma, lam, bootstrap * 0), 1e-10)

    @given(mask=masks(), seed=seeds, gamma=shares, lam=shares)
    @few
    def test_with_a_turn_for_each_token_they_are_gae(self, mask: Tensor, seed: int, gamma: float, lam: float) -> None:
        rewards, values = drawn(mask.shape, seed), drawn(mask.shape, seed + 1)
        turn = torch.arange(mask.shape[1]).expand(mask.shape)
        found = arl.turn_advantages(rewards, values, turn, mask, gamma, lam)
        assert close(found, arl.gae(rewards, values, mask, gamma, lam).advantages)

    @given(mask=masks(), seed=seeds)
    @few
    def test_an_episode_of_one_turn_has_one_advantage(self, mask: Tensor, seed: int) -> None:
        rewards, turn = drawn(mask.shape, seed), torch.zeros(mask.shape, dtype=torch.int64)
        total = arl.masked_sum(rewards, mask, dim=-1)
        assert close(arl.turn_advantages(rewards, None, turn, mask, 0.5), arl.broadcast_to_tokens(total, mask))

    def test_each_policy_token_gets_the_advantage_of_its_turn(self) -> None:
        mask, turn = mask_of([0, 1, 1, 0, 1], [1, 0, 0, 1, 0]), torch.tensor([[-1, 0, 0, 0, 1], [0, 0, 0, 1, -9]])
        found = arl.broadcast_to_tokens(table([5, 7, math.nan], [1, 2, math.inf]), mask, turn)
        assert found.tolist() == [[0, 5, 5, 0, 7], [1, 0, 0, 2, 0]]
        assert arl.broadcast_to_tokens(column(5, 7), mask).tolist() == [[0, 5, 5, 0, 5], [7, 0, 0, 7, 0]]

    def test_v09_each_token_has_memory_of_its_own(self) -> None:
        """V09 (NeMo-RL#2787): a penalty at one token, written into an expanded table, hits its whole row."""
        one = column(1, 2)
        found = arl.broadcast_to_tokens(one, lengths_mask(3, 3))
        found[0, 1] -= 1
        assert found.tolist() == [[1, 0, 1], [2, 2, 2]]
        assert one.tolist() == [1, 2]
        shipped = column(1, 2)[:, None].expand(2, 3)
        shipped[:, 1][0] -= 1
        assert shipped.tolist() == [[0, 0, 0], [2, 2, 2]]

    @pytest.mark.parametrize(
        ("advantages", "turn", "reason"),
        [
            (column(1), None, r"advantages \[1\].*\[2, 2\]"),
            (table([1, 2], [3, 4]), None, r"advantages \[2, 2\]"),
            (column(1, 2), groups_of(0, 0).expand(2, 2), r"advantages \[2\]"),
            (table([1, 2]), groups_of(0, 0).expand(2, 2), r"advantages \[1, 2\]"),
            (table([1], [2]), torch.tensor([[0, 0], [0, 1]]), r"row 1, position 1: turn 1, of 1"),
            (table([1], [2]), torch.tensor([[0, -1], [0, 0]]), r"row 0, position 1: turn -1"),
            (table([1], [math.nan]), torch.tensor([[0, 0], [0, 0]]), r"row 1, position 0: nan"),
            (column(math.inf, 0), None, r"row 0, position 0: inf"),
            (column(1, 2).requires_grad_(), None, r"detach"),
            (table([1], [2]), torch.tensor([0, 0]), r"turn \[2\]"),
        ],
    )
    def test_what_cannot_be_broadcast_is_refused(self, advantages: Tensor, turn: Tensor | None, reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            arl.broadcast_to_tokens(advantages, lengths_mask(2, 2), turn)

    def test_a_policy_token_before_the_first_turn_is_refused(self) -> None:
        turn = torch.tensor([[-1, 0, -1]])
        assert arl.turn_advantages(table([0, 1, 0]), None, turn, mask_of([0, 1, 0])).tolist() == [[0, 1, 0]]
        with pytest.raises(ValueError, match=r"row 0, position 2: .*turn -1"):
            arl.turn_advantages(table([0, 1, 0]), None, turn, mask_of([0, 1, 1]))


class TestExplainedVariance:
    @given(mask=masks(), seed=seeds)
    @few
    def test_it_is_the_definition_in_loops(self, mask: Tensor, seed: int) -> None:
        values, returns = drawn(mask.shape, seed), drawn(mask.shape, seed + 1)
        found = arl.explained_variance(values, returns, mask)
        kept, right = values[mask].tolist(), returns[mask].tolist()
        if len(kept) < 2:
            assert math.isnan(found)
        else:
            errors = [one - other for one, other in zip(right, kept, strict=True)]
            assert found == pytest.approx(1 - deviation(errors) ** 2 / deviation(right) ** 2, rel=1e-9, abs=1e-9)

    def test_a_critic_right_up_to_a_constant_explains_all_and_a_constant_nothing(self) -> None:
        returns, mask = table([1, 2, 4]), lengths_mask(3)
        assert arl.explained_variance(returns + 5, returns, mask) == pytest.approx(1)
        assert arl.explained_variance(returns * 0 + 5, returns, mask) == pytest.approx(0)
        assert arl.explained_variance(-returns, returns, mask) == pytest.approx(-3)

    def test_a_variance_too_small_or_too_large_for_the_type_is_nan(self) -> None:
        values, mask = table([1, 2, 4]), lengths_mask(3)
        assert math.isnan(arl.explained_variance(values, values * 1e-200, mask))
        assert math.isnan(arl.explained_variance(values * 1e200, values, mask))
        assert math.isnan(arl.explained_variance(values, values * 1e200, mask))

    @pytest.mark.parametrize("number", [0.1, 0.0, 1 / 3])
    def test_returns_that_do_not_vary_leave_nothing_to_explain(self, number: float) -> None:
        mask = lengths_mask(3)
        assert math.isnan(arl.explained_variance(table([1, 2, 3]), table([number] * 3), mask))
        assert math.isnan(arl.explained_variance(table([1, 2, 3]), table([1, 2, 3]), mask_of([0, 1, 0])))
        assert math.isnan(arl.explained_variance(table([1, 2, 3]), table([1, 2, 3]), mask_of([0, 0, 0])))


class TestValues:
    """The head, its gradient and the temperature; which state a value is of: test_training.py."""

    @pytest.fixture
    def head(self) -> arl.ValueHead:
        head = arl.ValueHead(8, arl.generator(5))
        with torch.no_grad():
            head.bias.fill_(2.0)
        return head

    def test_v20_the_temperature_of_the_sampling_is_not_in_the_values(self, head: arl.ValueHead) -> None:
        """V20 (slime#1928): log-probabilities at T = .5 differ, the value 2.0 stays 2.0 and is not 4.0."""
        model = tiny_model()
        batch = episodes(model, 3)
        tables = batch.ids, batch.attention_mask, batch.action_mask
        with torch.no_grad():
            head.weight.zero_()
        values = arl.token_values(model, head, *tables)
        assert (values[batch.action_mask] == 2.0).all()
        warm, cold = (arl.token_logprobs(model, *tables, temperature) for temperature in (1.0, 0.5))
        assert not close(cold, warm, 1e-3)
        assert "temperature" not in inspect.signature(arl.token_values).parameters
        assert (values[batch.action_mask] / 0.5 == 4.0).all(), "as shipped"

    def test_the_gradient_reaches_head_and_trunk(self, head: arl.ValueHead) -> None:
        model = tiny_model()
        batch = episodes(model, 3)
        values = arl.token_values(model, head, batch.ids, batch.attention_mask, batch.action_mask)
        values.sum().backward()
        assert head.bias.grad == batch.action_mask.sum()
        assert head.weight.grad is not None
        assert head.weight.grad.any()
        assert any(one.grad is not None and one.grad.any() for one in model.parameters())

    def test_the_head_is_linear_in_features_whose_root_mean_square_is_1(self, head: arl.ValueHead) -> None:
        features = drawn([2, 3, 8], 1)
        right = (head.weight * features / features.square().mean(-1, keepdim=True).sqrt()).sum(-1) + 2.0
        assert close(head(features), right, 1e-4)
        assert close(head(features * 7), head(features), 1e-4)
        assert not close((features @ head.weight) + 2.0, right, 1e-2)

    def test_the_head_is_drawn_from_its_generator(self) -> None:
        one, same, other = (arl.ValueHead(8, arl.generator(seed)) for seed in (0, 0, 1))
        assert torch.equal(one.weight, same.weight)
        assert not torch.equal(one.weight, other.weight)
        assert one.bias == 0
