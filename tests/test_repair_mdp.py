"""Chapter 2's MDPs: values against other solvers, the repair MDP against a world with a hidden bug, clear errors."""

import math
import runpy
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentrl.notation import DTYPE, generator
from agentrl.repair_mdp import (
    ENDS,
    RepairState,
    TabularMDP,
    action_values,
    advantages_tabular,
    best_actions,
    cumulative,
    draw_index,
    expected_return,
    greedy_policy,
    policy_evaluation,
    repair_actions,
    repair_mdp,
    repair_outcomes,
    repair_states,
    rule_policy,
    sample_episode,
    sample_episodes,
    state_visits,
    value_iteration,
)

FIGURE = runpy.run_path(str(Path(__file__).resolve().parent.parent / "figures" / "ch02_value_of_information.py"))
quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def random_mdp(seed: int, states: int = 4, actions: int = 3, gamma: float = 0.9, ends: bool = True) -> TabularMDP:
    """Return an MDP with random tables; with `ends` its last state is terminal."""
    gen = generator(seed)
    transition = torch.rand(states, actions, states, generator=gen, dtype=DTYPE) ** 3
    transition[torch.rand(transition.shape, generator=gen, dtype=DTYPE) < 0.3] = 0
    transition[..., -1] += 0.05
    reward = 2 * torch.rand(states, actions, generator=gen, dtype=DTYPE) - 1
    if ends:
        transition[-1] = torch.eye(states, dtype=DTYPE)[-1]
        reward[-1] = 0
    start = torch.rand(states, generator=gen, dtype=DTYPE)
    return TabularMDP(transition / transition.sum(-1, keepdim=True), reward, start / start.sum(), gamma)


def random_policy(mdp: TabularMDP, seed: int) -> torch.Tensor:
    """Return a policy with random probabilities, some close to 0."""
    return (4 * torch.rand(mdp.reward.shape, generator=generator(seed), dtype=DTYPE)).softmax(-1)


def plain_values(mdp: TabularMDP, policy: list[list[float]], sweeps: int) -> list[float]:
    """Return the values after many sweeps of the Bellman equations, in plain Python."""
    P, r = mdp.transition.tolist(), mdp.reward.tolist()
    S, A = len(r), len(r[0])
    values = [0.0] * S

    def q(s: int, a: int) -> float:
        return r[s][a] + mdp.gamma * math.fsum(p * v for p, v in zip(P[s][a], values, strict=True))

    for _ in range(sweeps):
        values = [math.fsum(policy[s][a] * q(s, a) for a in range(A)) for s in range(S)]
    return values


def hidden_world_value(k: int, turns: int, cost: float, clarity: float, policy: Callable[[RepairState], dict]) -> float:
    """Return a policy's value by playing it in every hidden world; what the agent knows is kept by this function."""

    def play(bug: int, shows: bool, known: frozenset, read: bool, source: str, left: int) -> float:
        if left == 0:
            return 0.0
        label = "buggy"
        if source == "hardcode":
            label = "hacked"
        elif source and int(source[5:]) in known:
            label = "fixed" if len(known) == 1 else source
        state = RepairState(tuple(sorted(known)), read or len(known) == 1, label, left)
        total = 0.0
        for action, chance in policy(state).items():
            if action == "submit":
                total += chance * (float(source == f"edit {bug}") - cost)
                continue
            now, seen, kept = source, read, known
            if action == "read":
                seen, kept = True, frozenset([bug]) if shows else known
            elif action == "test" and source.startswith("edit"):
                tried = int(source[5:])
                kept = frozenset([bug]) if tried == bug else known - {tried}
            elif action != "test":
                now = action
            total += chance * (play(bug, shows, kept, seen, now, left - 1) - cost)
        return total

    everything = frozenset(range(1, k + 1))
    return sum(
        (clarity if shows else 1 - clarity) / k * play(bug, shows, everything, False, "", turns)
        for bug in everything
        for shows in (True, False)
    )


@quick
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_policy_evaluation_agrees_with_plain_sweeps(seed: int, gamma: float) -> None:
    mdp = random_mdp(seed, gamma=gamma)
    policy = random_policy(mdp, seed + 1)
    swept = plain_values(mdp, policy.tolist(), 2000 if gamma == 1 else 400)
    assert policy_evaluation(mdp, policy).tolist() == pytest.approx(swept, abs=1e-8)


@quick
@given(st.integers(0, 10**6), st.sampled_from([0.5, 0.9, 1.0]))
def test_values_satisfy_the_bellman_equations_and_advantages_average_to_zero(seed: int, gamma: float) -> None:
    mdp = random_mdp(seed, states=6, gamma=gamma)
    policy = random_policy(mdp, seed + 1)
    values = policy_evaluation(mdp, policy)
    assert torch.allclose((policy * action_values(mdp, values)).sum(1), values, atol=1e-10)
    assert (policy * advantages_tabular(mdp, policy)).sum(1).abs().max() < 1e-10


@settings(quick, max_examples=200)
@given(st.integers(0, 10**6))
def test_value_iteration_agrees_with_every_deterministic_policy(seed: int) -> None:
    mdp = random_mdp(seed, states=4, actions=2, gamma=0.8, ends=seed % 2 == 0)
    P, r, S = mdp.transition.numpy(), mdp.reward.numpy(), 4
    best = np.full(S, -np.inf)
    for choice in product(range(2), repeat=S):
        rows = list(choice)
        solved = np.linalg.solve(np.eye(S) - mdp.gamma * P[range(S), rows], r[range(S), rows])
        best = np.maximum(best, solved)
    values, policy = value_iteration(mdp)
    assert values.tolist() == pytest.approx(best.tolist(), abs=1e-9)
    assert policy_evaluation(mdp, policy).tolist() == pytest.approx(best.tolist(), abs=1e-9)


@quick
@given(st.integers(0, 10**6))
def test_value_iteration_obeys_the_allowed_actions(seed: int) -> None:
    mdp = random_mdp(seed, states=4, actions=3)
    allowed = torch.rand(4, 3, generator=generator(seed + 1), dtype=DTYPE) < 0.6
    allowed[:, seed % 3] = True
    values, policy = value_iteration(mdp, allowed)
    assert not policy[~allowed].any()
    best = max(
        expected_return(mdp, torch.eye(3, dtype=DTYPE)[list(choice)]).item()
        for choice in product(range(3), repeat=4)
        if all(allowed[s, a] for s, a in enumerate(choice))
    )
    assert (mdp.start @ values).item() == pytest.approx(best, abs=1e-9)


@quick
@given(st.integers(0, 10**6), st.sampled_from([0.7, 1.0]))
def test_the_performance_difference_identity_holds(seed: int, gamma: float) -> None:
    mdp = random_mdp(seed, states=5, gamma=gamma)
    old, new = random_policy(mdp, seed + 1), random_policy(mdp, seed + 2)
    gain = state_visits(mdp, new) @ (new * advantages_tabular(mdp, old)).sum(1)
    assert gain.item() == pytest.approx((expected_return(mdp, new) - expected_return(mdp, old)).item(), abs=1e-10)


def test_visits_count_the_steps_of_sampled_episodes() -> None:
    mdp = random_mdp(3, states=5, gamma=1.0)
    policy = random_policy(mdp, 4)
    episodes = sample_episodes(mdp, policy, 20_000, generator(5), max_steps=400)
    assert episodes.terminated.all()
    counted = torch.bincount(episodes.states[episodes.mask], minlength=5) / 20_000
    exact = state_visits(mdp, policy)
    assert exact[-1] == 0
    assert torch.allclose(counted.to(DTYPE), exact, atol=0.1)
    assert (exact.sum() * 20_000).item() == pytest.approx(episodes.mask.sum().item(), rel=0.02)


def test_gradients_pass_through_the_linear_solve() -> None:
    mdp = repair_mdp(bugs=2, turns=3, turn_cost=0.05)
    logits = (2 * torch.rand(mdp.reward.shape, generator=generator(0), dtype=DTYPE)).requires_grad_()
    expected_return(mdp, logits.softmax(-1)).backward()
    assert logits.grad is not None
    for s, a in [(0, 0), (0, 2), (1, 3), (5, 1)]:
        bump = torch.zeros_like(logits)
        bump[s, a] = 1e-6
        ends = [expected_return(mdp, (logits.detach() + sign * bump).softmax(-1)).item() for sign in (1, -1)]
        assert logits.grad[s, a].item() == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-8)


# The repair MDP


@pytest.mark.parametrize(("bugs", "turns"), [(1, 3), (2, 4), (3, 3)])
@pytest.mark.parametrize("clarity", [0.0, 0.8, 1.0])
def test_the_repair_mdp_is_the_hidden_world_seen_by_the_agent(bugs: int, turns: int, clarity: float) -> None:
    mdp = repair_mdp(bugs, turns, turn_cost=0.03, clarity=clarity)
    policy = random_policy(mdp, bugs)
    rows = dict(zip(mdp.states, policy.tolist(), strict=True))

    def act(state: RepairState) -> dict[str, float]:
        return dict(zip(mdp.actions, rows[state], strict=True))

    played = hidden_world_value(bugs, turns, 0.03, clarity, act)
    assert expected_return(mdp, policy).item() == pytest.approx(played, abs=1e-12)


@quick
@given(st.integers(1, 4), st.integers(1, 4), st.fractions(0, 1, max_denominator=10))
def test_outcomes_are_exact_distributions_that_use_up_a_turn(bugs: int, turns: int, clarity: Fraction) -> None:
    mdp = repair_mdp(bugs, turns, clarity=float(clarity))
    for state in mdp.states[: -len(ENDS)]:
        for action in mdp.actions:
            results = repair_outcomes(state, action, clarity)
            assert sum(p for p, _ in results) == 1
            assert all(p > 0 for p, _ in results)
            assert all(after.turns == state.turns - 1 or after.turns == 0 for _, after in results)
            assert all(set(after.candidates) <= set(state.candidates) for _, after in results)


def test_the_default_has_113_states_with_the_start_first_and_the_ends_last() -> None:
    mdp = repair_mdp()
    assert len(mdp.states) == len(set(mdp.states)) == 113
    assert mdp.actions == ("read", "test", "edit 1", "edit 2", "edit 3", "hardcode", "submit")
    assert mdp.states[0] == RepairState((1, 2, 3), False, "buggy", 5)
    assert [str(state) for state in mdp.states[-4:]] == list(ENDS)
    assert mdp.terminal.nonzero()[:, 0].tolist() == [109, 110, 111, 112]
    assert mdp.start[0] == 1


@pytest.mark.parametrize("cost", [0.0, 0.01])
def test_the_terminal_states_stay_terminal_whatever_the_turn_costs(cost: float) -> None:
    mdp = repair_mdp(bugs=2, turns=2, turn_cost=cost, hacked_reward=1.0)
    assert [str(s) for s, ended in zip(mdp.states, mdp.terminal, strict=True) if ended] == list(ENDS)


def test_a_reward_from_public_tests_makes_the_exploit_optimal_and_hidden_tests_pay_nothing_for_it() -> None:
    public, hidden = (repair_mdp(turn_cost=0.01, hacked_reward=pay) for pay in (1.0, 0.0))
    values, policy = value_iteration(public)
    assert public.actions[int(policy[0].argmax())] == "hardcode"
    assert values[0].item() == pytest.approx(0.98)
    assert expected_return(hidden, policy).item() == pytest.approx(-0.02)


def best_success(k: int, tools: tuple[str, ...], clarity: Fraction) -> Fraction:
    """Return the exact success of the best policy with edits, submit and these tools in five turns."""
    actions = [*tools, *(a for a in repair_actions(k) if a[0] in "es")]

    @cache
    def value(state: RepairState) -> Fraction:
        if not state.candidates:
            return Fraction(state.source == "repaired")
        q = [sum((p * value(after) for p, after in repair_outcomes(state, a, clarity)), Fraction(0)) for a in actions]
        return max(q)

    return value(RepairState(tuple(range(1, k + 1)), k == 1, "buggy", 5))


@pytest.mark.parametrize(("reads", "tests"), [(False, False), (False, True), (True, False), (True, True)])
def test_the_figure_of_the_value_of_information_is_exact(reads: bool, tests: bool) -> None:
    tools = ("read",) * reads + ("test",) * tests
    for k in FIGURE["BUGS"]:
        exact = best_success(k, tools, Fraction(4, 5))
        assert FIGURE["success"](reads, tests, k) == pytest.approx(float(exact), abs=1e-12)
    mdp = repair_mdp(bugs=3)
    allowed = torch.tensor([a in tools or a[0] in "es" for a in mdp.actions])
    found = value_iteration(mdp, allowed)[0][0].item()
    assert found == pytest.approx(FIGURE["success"](reads, tests, 3), abs=1e-12)


# Sampling


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any), st.floats(0, 1, exclude_max=True))
def test_a_drawn_index_never_has_probability_zero(weights: list[int], uniform: float) -> None:
    probabilities = torch.tensor(weights, dtype=DTYPE) / sum(weights)
    drawn = int(draw_index(cumulative(probabilities), torch.tensor(uniform, dtype=DTYPE)))
    assert weights[drawn] > 0
    below = math.fsum(w / sum(weights) for w in weights[:drawn])
    assert below <= uniform + 1e-12
    assert uniform < below + weights[drawn] / sum(weights) + 1e-12


def test_sampled_frequencies_are_those_of_the_tables() -> None:
    mdp = repair_mdp()
    policy = random_policy(mdp, 0)
    episodes = sample_episodes(mdp, policy, 20_000, generator(1), max_steps=5)
    counts = torch.bincount(episodes.actions[:, 0], minlength=7).to(DTYPE)
    expected = 20_000 * policy[0]
    assert ((counts - expected) ** 2 / expected).sum() < 22.5  # chi-square, 6 degrees of freedom, p = 0.001
    told = episodes.states[episodes.mask[:, 1] & (episodes.actions[:, 0] == 0), 1]
    share = (told < 4).to(DTYPE).mean().item()
    assert [mdp.states[row].candidates for row in (1, 2, 3, 4)] == [(1,), (2,), (3,), (1, 2, 3)]
    assert share == pytest.approx(0.8, abs=0.03)  # the clarity


def test_the_steps_of_an_episode_follow_one_another() -> None:
    mdp = repair_mdp()
    policy = torch.full(mdp.reward.shape, 1 / 7, dtype=DTYPE)
    episodes = sample_episodes(mdp, policy, 500, generator(2), max_steps=5)
    following = torch.cat([episodes.states[:, 1:], episodes.last[:, None]], dim=1)
    chances = mdp.transition[episodes.states, episodes.actions, following]
    assert (chances > 0).all()
    assert torch.equal(episodes.mask, ~mdp.terminal[episodes.states])
    assert (episodes.rewards[~episodes.mask] == 0).all()
    assert torch.equal(episodes.rewards[episodes.mask], mdp.reward[episodes.states, episodes.actions][episodes.mask])
    assert episodes.terminated.all()


def test_one_episode_is_the_first_of_a_batch_of_one_without_padding() -> None:
    mdp, seed = repair_mdp(), 7
    policy = torch.full(mdp.reward.shape, 1 / 7, dtype=DTYPE)
    alone = sample_episode(mdp, policy, generator(seed), 5)
    batch = sample_episodes(mdp, policy, 1, generator(seed), 5)
    assert alone.mask.all()
    assert all(torch.equal(one, many[0]) for one, many in zip(alone, batch, strict=True))


def test_an_episode_that_is_cut_off_is_not_terminated() -> None:
    mdp = repair_mdp()
    reader = rule_policy(mdp, lambda state: "read")
    cut = sample_episode(mdp, reader, generator(0), max_steps=3)
    assert not cut.terminated
    assert cut.states.shape == (3,)
    whole = sample_episode(mdp, reader, generator(0), max_steps=9)
    assert whole.terminated
    assert whole.states.shape == (5,)
    assert str(mdp.states[whole.last]) == "out of turns"


# Errors

TABLES = random_mdp(0)


def broken_row() -> torch.Tensor:
    """Return the transition with one row that sums to 0.9."""
    table = TABLES.transition.clone()
    table[2, 1] *= 0.9
    return table


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"transition": broken_row()}, r"transition\[2, 1\] sums to 0.9"),
        ({"transition": TABLES.transition[:3]}, r"transition is torch.float64 \[3, 3, 4\]"),
        ({"reward": TABLES.reward.float()}, r"reward is torch.float32 \[4, 3\]"),
        ({"reward": TABLES.reward / 0}, r"reward\[0, 0\] is -?inf; every entry must be finite"),
        ({"reward": TABLES.reward[0]}, r"reward is \[3\]; it must be a tensor \[S, A\]"),
        ({"reward": TABLES.reward[:, :0]}, r"reward is \[4, 0\]; it must be .* at least one state and one action"),
        ({"reward": TABLES.reward[:0]}, r"reward is \[0, 3\]"),
        ({"start": TABLES.start * 2}, "start sums to 2"),
        ({"start": torch.tensor([1.5, -0.5, 0, 0], dtype=DTYPE)}, "smallest entry -0.5"),
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"gamma": math.nan}, "gamma is nan"),
        ({"gamma": "1"}, "gamma is '1'"),
        ({"gamma": True}, "gamma is True"),
        ({"actions": ("a", "b")}, "2 names for 3 actions"),
    ],
)
def test_a_table_that_is_not_what_it_claims_is_refused(changes: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(TABLES, **changes)


def test_a_policy_that_never_ends_has_no_undiscounted_value() -> None:
    transition = torch.eye(2, dtype=DTYPE)[:, None].repeat(1, 2, 1)
    transition[0, 1] = torch.tensor([0, 1], dtype=DTYPE)
    mdp = TabularMDP(transition, torch.tensor([[1.0, 0], [0, 0]], dtype=DTYPE), torch.eye(2, dtype=DTYPE)[0])
    stay = torch.tensor([[1.0, 0], [1, 0]], dtype=DTYPE)
    with pytest.raises(ValueError, match="never ends an episode from state 0"):
        policy_evaluation(mdp, stay)
    assert policy_evaluation(replace(mdp, gamma=0.5), stay).tolist() == pytest.approx([2, 0])
    with pytest.raises(ValueError, match="still change after 50 sweeps"):
        value_iteration(mdp, max_sweeps=50)


def test_wrong_arguments_are_named() -> None:
    mdp = repair_mdp(bugs=2, turns=2)
    uniform = torch.full(mdp.reward.shape, 1 / 6, dtype=DTYPE)
    with pytest.raises(ValueError, match=r"policy is torch.float64 \[3, 6\]; it must be"):
        policy_evaluation(mdp, uniform[:3])
    with pytest.raises(ValueError, match=r"policy\[0\] sums to 0.5"):
        sample_episode(mdp, uniform / 2, generator(0), 3)
    with pytest.raises(ValueError, match="max_steps=0"):
        sample_episode(mdp, uniform, generator(0), 0)
    with pytest.raises(ValueError, match="the rule names 'fix'"):
        rule_policy(mdp, lambda state: "fix")
    with pytest.raises(ValueError, match="no allowed action"):
        value_iteration(mdp, torch.zeros(6, dtype=torch.bool))
    for bugs, turns, clarity, words in [(0, 5, 0.8, "bugs=0"), (3, 0, 0.8, "turns=0"), (3, 5, 1.5, "clarity=1.5")]:
        with pytest.raises(ValueError, match=words):
            repair_mdp(bugs, turns, clarity=clarity)
    for bugs, turns in [(0, 2), (2, 0), (2, -1)]:
        with pytest.raises(ValueError, match="must be at least 1"):
            repair_states(bugs, turns)
    with pytest.raises(ValueError, match="no outcomes of 'tset' in the state 'bug 1, buggy, 2 left'"):
        repair_outcomes(RepairState((1,), True, "buggy", 2), "tset", 0.5)
    with pytest.raises(ValueError, match="no outcomes of 'read' in the state 'repaired'"):
        repair_outcomes(RepairState((), True, "repaired", 0), "read", 0.5)


def test_equally_good_actions_are_settled_by_order_not_by_rounding() -> None:
    q = torch.tensor([[0.3, 0.1 + 0.2, 0.0], [0.1 + 0.2, 0.3, 0.4]], dtype=DTYPE)
    assert greedy_policy(q).argmax(1).tolist() == [0, 2]
    assert greedy_policy(q.flip(1)).argmax(1).tolist() == [1, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_tables_of_another_type_are_refused_by_name(dtype: torch.dtype) -> None:
    mdp = repair_mdp(bugs=1, turns=2)
    policy = torch.eye(5)[[0] * len(mdp.states)].to(dtype)
    for use in (policy_evaluation, state_visits, lambda m, p: sample_episode(m, p, generator(0), 2)):
        with pytest.raises(ValueError, match=f"policy is {dtype}"):
            use(mdp, policy)
    with pytest.raises(ValueError, match=f"values is {dtype}"):
        action_values(mdp, torch.zeros(len(mdp.states)).to(dtype))
    with pytest.raises(ValueError, match=f"action values is {dtype}"):
        greedy_policy(policy)


@pytest.mark.parametrize("size", [(7,), (9,), (8, 1)])
def test_values_of_another_shape_are_refused(size: tuple[int, ...]) -> None:
    mdp = repair_mdp(bugs=1, turns=2)
    assert len(mdp.states) == 8
    with pytest.raises(ValueError, match=r"values is torch\.float64"):
        action_values(mdp, torch.zeros(size, dtype=DTYPE))


def test_entries_that_are_not_finite_are_located() -> None:
    q = torch.zeros(3, 2, dtype=DTYPE)
    q[1, 1] = math.nan
    with pytest.raises(ValueError, match=r"action values\[1, 1\] is nan"):
        greedy_policy(q)
    policy = random_policy(TABLES, 0)
    policy[1, 1] = math.nan
    with pytest.raises(ValueError, match=r"policy\[1, 1\] is nan"):
        policy_evaluation(TABLES, policy)


def test_counts_must_be_integers_and_a_generator_must_be_given() -> None:
    mdp = repair_mdp(bugs=1, turns=2)
    uniform = torch.full(mdp.reward.shape, 1 / 5, dtype=DTYPE)
    for steps in (2.5, True, "2"):
        with pytest.raises(TypeError, match=f"max_steps={steps!r} must be an integer"):
            sample_episode(mdp, uniform, generator(0), steps)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="generator is None"):
        sample_episode(mdp, uniform, None, 2)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"bugs=2\.5"):
        repair_mdp(bugs=2.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="policy is a list"):
        policy_evaluation(mdp, uniform.tolist())  # pyright: ignore[reportArgumentType]


def test_an_episode_from_a_terminal_state_has_one_masked_step() -> None:
    ended = replace(TABLES, start=torch.tensor([0, 0, 0, 1], dtype=DTYPE))
    episode = sample_episode(ended, random_policy(ended, 0), generator(0), 5)
    assert episode.mask.tolist() == [False]
    assert episode.rewards.tolist() == [0.0]
    assert episode.terminated


def test_a_rule_needs_names() -> None:
    with pytest.raises(ValueError, match="does not name"):
        rule_policy(TABLES, lambda state: "read")


@pytest.mark.parametrize(
    ("allowed", "error", "words"),
    [
        (torch.ones(3, dtype=torch.int64), TypeError, "allowed is torch.int64"),
        ([True] * 3, TypeError, "allowed is list"),
        (torch.ones(2, dtype=torch.bool), ValueError, r"allowed is \[2\]"),
        (torch.ones(4, dtype=torch.bool), ValueError, r"allowed is \[4\]"),
        (torch.tensor([[True] * 3, [True] * 3, [False] * 3, [True] * 3]), ValueError, "state 2 has no allowed action"),
    ],
)
def test_allowed_actions_of_a_wrong_type_or_shape_are_refused(
    allowed: torch.Tensor, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        value_iteration(TABLES, allowed)


def test_value_iteration_refuses_a_tolerance_or_a_number_of_sweeps_that_means_nothing() -> None:
    for tolerance in (-1.0, math.nan):
        with pytest.raises(ValueError, match=f"tolerance is {tolerance}"):
            value_iteration(TABLES, tolerance=tolerance)
    with pytest.raises(ValueError, match="max_sweeps=0"):
        value_iteration(TABLES, max_sweeps=0)


@pytest.mark.parametrize("action", ["edit", "edit x", "edit 0", "edit -1", "read twice", "submit now", "EDIT 1", ""])
def test_an_unknown_action_has_no_outcomes(action: str) -> None:
    with pytest.raises(ValueError, match="no outcomes of"):
        repair_outcomes(repair_mdp().states[0], action, 0.5)


def test_outcomes_need_a_turn_and_a_probability() -> None:
    start = RepairState((1, 2), False, "buggy", 2)
    with pytest.raises(ValueError, match="no outcomes of 'read'"):
        repair_outcomes(start._replace(turns=0), "read", 0.5)
    for clarity in (1.5, -0.1, math.nan):
        with pytest.raises(ValueError, match=f"clarity={clarity}"):
            repair_outcomes(start, "read", clarity)
    assert repair_outcomes(start, "edit 9", 0.5) == [(1, start._replace(turns=1))]


# Ties with gamma 1


def waiting(stay: float, leave: float) -> TabularMDP:
    """Return an MDP in which state 1 can move to state 0, and state 0 can stay, earning `stay`, or end with `leave`."""
    transition = torch.zeros(3, 2, 3, dtype=DTYPE)
    transition[0, 0, 0] = transition[0, 1, 2] = transition[1, 0, 1] = transition[1, 1, 0] = 1
    transition[2, :, 2] = 1
    reward = torch.tensor([[stay, leave], [stay, 0], [0, 0]], dtype=DTYPE)
    return TabularMDP(transition, reward, torch.tensor([0, 1, 0], dtype=DTYPE))


def test_among_equally_good_actions_value_iteration_takes_one_that_ends() -> None:
    mdp = waiting(stay=0.0, leave=1.0)
    values, policy = value_iteration(mdp)
    assert best_actions(action_values(mdp, values)).tolist() == [[True, True], [True, True], [True, True]]
    assert policy.argmax(1).tolist() == [1, 1, 0]
    assert torch.equal(policy_evaluation(mdp, policy), values)
    assert value_iteration(replace(mdp, gamma=0.5))[1].argmax(1).tolist() == [1, 1, 0]


def test_where_waiting_for_ever_is_best_the_policy_waits_and_has_no_undiscounted_value() -> None:
    mdp = waiting(stay=0.0, leave=-1.0)
    values, policy = value_iteration(mdp)
    assert values.tolist() == [0, 0, 0]
    assert policy.argmax(1).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="the return need not be finite"):
        policy_evaluation(mdp, policy)


@quick
@given(st.integers(0, 10**6), st.integers(0, 2))
def test_an_optimal_policy_earns_the_values_promised_whatever_the_ties(seed: int, column: int) -> None:
    after = torch.randint(0, 5, (5, 3), generator=generator(seed))
    after[:4, column] = torch.arange(1, 5)  # in each state a way towards the end, state 4
    after[4] = 4
    reward = ((after == 4) & (torch.arange(5) < 4)[:, None]).to(DTYPE)  # only arriving there pays
    mdp = TabularMDP(torch.eye(5, dtype=DTYPE)[after], reward, torch.eye(5, dtype=DTYPE)[0])
    values, policy = value_iteration(mdp)
    assert values.tolist() == [1, 1, 1, 1, 0]
    assert policy_evaluation(mdp, policy).tolist() == pytest.approx([1, 1, 1, 1, 0])
