"""Chapter 2 · Reinforcement Learning Fundamentals.

What are a policy, a return and a value, and why is an LLM agent an MDP?

Built from chapters/02-rl-fundamentals.ipynb by scripts/build_library.py.
Do not edit: change the chapter and run `make library`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import NamedTuple

import torch

from agentrl.notation import DTYPE

__all__ = [
    "check_distributions",
    "check_table",
    "check_tables",
    "TabularMDP",
    "RepairState",
    "read_outcomes",
    "tried_outcomes",
    "edit_outcomes",
    "submit_outcomes",
    "check_action",
    "repair_outcomes",
    "check_positive",
    "ENDS",
    "repair_actions",
    "repair_states",
    "repair_mdp",
    "rule_policy",
    "TabularEpisodes",
    "check_policy",
    "check_draws",
    "cumulative",
    "draw_index",
    "sample_episodes",
    "sample_episode",
    "can_end",
    "live_system",
    "policy_evaluation",
    "action_values",
    "expected_return",
    "check_allowed",
    "best_actions",
    "greedy_policy",
    "ending_policy",
    "value_iteration",
    "advantages_tabular",
    "state_visits",
]


# chapters/02-rl-fundamentals.ipynb · cell check-distributions
def check_distributions(name: str, table: torch.Tensor) -> None:
    """Raise ValueError unless every row of `table`, along its last axis, is a probability distribution."""
    bad = ~((table >= 0).all(-1) & ((table.sum(-1) - 1).abs() < 1e-9))
    if bad.any():
        where = bad.nonzero()[0].tolist()
        row = table[tuple(where)]
        raise ValueError(
            f"{name}{where or ''} sums to {row.sum().item():.6g} with smallest entry {row.min().item():.6g}; "
            "a distribution has no negative entry and sums to 1"
        )


# chapters/02-rl-fundamentals.ipynb · cell check-table
def check_table(name: str, table: torch.Tensor, shape: list[int]) -> None:
    """Raise ValueError unless `table` has this shape, the type `DTYPE` and finite entries; TypeError if no tensor."""
    if not isinstance(table, torch.Tensor):
        raise TypeError(f"{name} is a {type(table).__name__}; it must be a tensor")
    if list(table.shape) != shape or table.dtype != DTYPE:
        raise ValueError(f"{name} is {table.dtype} {list(table.shape)}; it must be {DTYPE} {shape}")
    if not table.isfinite().all():
        where = (~table.isfinite()).nonzero()[0].tolist()
        raise ValueError(f"{name}{where} is {table[tuple(where)].item()}; every entry must be finite")


# chapters/02-rl-fundamentals.ipynb · cell check-tables
def check_tables(mdp: "TabularMDP") -> None:
    """Raise ValueError if a table, gamma or the number of names of an MDP is wrong, TypeError if no tensor."""
    S, A = mdp.reward.shape if isinstance(mdp.reward, torch.Tensor) and mdp.reward.dim() == 2 else (0, 0)
    if not S * A:
        found = list(mdp.reward.shape) if isinstance(mdp.reward, torch.Tensor) else type(mdp.reward).__name__
        raise ValueError(f"reward is {found}; it must be a tensor [S, A] with at least one state and one action")
    for name, shape in [("transition", [S, A, S]), ("reward", [S, A]), ("start", [S])]:
        check_table(name, getattr(mdp, name), shape)
    check_distributions("transition", mdp.transition)
    check_distributions("start", mdp.start)
    if isinstance(mdp.gamma, bool) or not isinstance(mdp.gamma, int | float) or not 0 <= mdp.gamma <= 1:
        raise ValueError(f"gamma is {mdp.gamma!r}; it must be a number between 0 and 1")
    for name, found, size in [("states", mdp.states, S), ("actions", mdp.actions, A)]:
        if len(found) not in (0, size):
            raise ValueError(f"{len(found)} names for {size} {name}")


# chapters/02-rl-fundamentals.ipynb · cell tabular-mdp
@dataclass(frozen=True, eq=False)
class TabularMDP:
    """A Markov decision process as tables: `transition` [S, A, S], `reward` [S, A], `start` [S], and `gamma`.

    All tables are of type `DTYPE`. `states` and `actions` may name the rows; both can be left empty.
    Raises ValueError or TypeError if a shape, a type, a distribution, gamma or the number of names is wrong.
    """

    transition: torch.Tensor
    reward: torch.Tensor
    start: torch.Tensor
    gamma: float = 1.0
    states: tuple = ()
    actions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the tables."""
        check_tables(self)

    @property
    def terminal(self) -> torch.Tensor:
        """Which states end an episode, [S] bool: no action leaves them, and all their rewards are 0."""
        stays = self.transition.diagonal(dim1=0, dim2=2) == 1
        return stays.all(0) & (self.reward == 0).all(1)


# chapters/02-rl-fundamentals.ipynb · cell repair-states
class RepairState(NamedTuple):
    """What the agent knows and has done; a state without candidates is an end, and `source` says which."""

    candidates: tuple[int, ...]  # the bugs that are still possible, each as probable as the others
    read: bool  # whether reading can tell nothing more
    source: str  # "buggy", "edit 1", ..., "fixed" or "hacked", as far as the agent knows
    turns: int  # how many are left

    def __str__(self) -> str:
        """Return the state in a line."""
        known = "bug " + "|".join(map(str, self.candidates))
        seen = "" if len(self.candidates) == 1 else " read" if self.read else " unread"
        return f"{known}{seen}, {self.source}, {self.turns} left" if self.candidates else self.source

    def told(self, bug: int) -> "RepairState":
        """Return the state after the agent has learnt which bug it is, one turn later."""
        right = self.source in ("fixed", f"edit {bug}")
        source = self.source if self.source == "hacked" else "fixed" if right else "buggy"
        return RepairState((bug,), True, source, self.turns - 1)


# chapters/02-rl-fundamentals.ipynb · cell single-outcomes
def read_outcomes(state: RepairState, clarity: float | Fraction) -> list[tuple]:
    """Return what reading leads to: told with probability `clarity`, otherwise the source looks innocent."""
    each = clarity * Fraction(1, len(state.candidates))
    later = state._replace(read=True, turns=state.turns - 1)
    return [*((each, state.told(bug)) for bug in state.candidates), (1 - clarity, later)]


def tried_outcomes(state: RepairState, tried: int) -> list[tuple]:
    """Return what testing the untested edit `tried` leads to: it is right, or there is one candidate fewer."""
    each = Fraction(1, len(state.candidates))
    rest = tuple(bug for bug in state.candidates if bug != tried)
    failed = RepairState(rest, state.read or len(rest) == 1, "buggy", state.turns - 1)
    return [(each, state.told(tried)), (1 - each, failed)]


# chapters/02-rl-fundamentals.ipynb · cell changing-outcomes
def edit_outcomes(state: RepairState, action: str) -> list[tuple]:
    """Return what `hardcode` or an edit leads to: it replaces whatever was in place.

    An edit for a bug that is no candidate, which cannot be right, leaves the source buggy.
    """
    source = "hacked"
    if action != "hardcode":
        possible = int(action.removeprefix("edit ")) in state.candidates
        source = "buggy" if not possible else "fixed" if len(state.candidates) == 1 else action
    return [(Fraction(1), state._replace(source=source, turns=state.turns - 1))]


def submit_outcomes(state: RepairState, tried: int) -> list[tuple]:
    """Return how a submission ends; `tried` is the untested edit in place, 0 if there is none."""
    right = Fraction(1, len(state.candidates)) if tried else Fraction(state.source == "fixed")
    wrong = "hacked" if state.source == "hacked" else "failed"
    return [(right, RepairState((), True, "repaired", 0)), (1 - right, RepairState((), True, wrong, 0))]


# chapters/02-rl-fundamentals.ipynb · cell check-action
def check_action(state: RepairState, action: str, clarity: float | Fraction) -> None:
    """Raise ValueError if the action is unknown, the episode has ended, or clarity is no probability."""
    known = re.fullmatch(r"read|test|edit [1-9][0-9]*|hardcode|submit", action)
    if not known or not state.candidates or state.turns < 1:
        raise ValueError(f"no outcomes of {action!r} in the state {str(state)!r}")
    if not 0 <= clarity <= 1:
        raise ValueError(f"clarity={clarity} must lie between 0 and 1")


# chapters/02-rl-fundamentals.ipynb · cell repair-outcomes
def repair_outcomes(state: RepairState, action: str, clarity: float | Fraction) -> list[tuple]:
    """Return the possible results of an action as pairs (probability > 0, next state).

    `clarity` is the probability that reading shows the bug. A state does not say how many bugs were possible at first,
    so every "edit 1", "edit 2", ... is known. Raises ValueError as `check_action` does.
    """
    check_action(state, action, clarity)
    verb, tried = action.split(" ")[0], int(state.source[5:]) if state.source.startswith("edit") else 0
    results = [(Fraction(1), state._replace(turns=state.turns - 1))]
    if verb == "submit":
        return [(p, end) for p, end in submit_outcomes(state, tried) if p]
    if verb in ("edit", "hardcode"):
        results = edit_outcomes(state, action)
    elif verb == "read" and not state.read:
        results = read_outcomes(state, clarity)
    elif verb == "test" and tried:
        results = tried_outcomes(state, tried)
    return [(p, after if after.turns else RepairState((), True, "out of turns", 0)) for p, after in results if p]


# chapters/02-rl-fundamentals.ipynb · cell check-positive
def check_positive(**numbers: int) -> None:
    """Raise ValueError unless every number is at least 1, TypeError unless it is an integer."""
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{name}={number!r} must be an integer")
        if number < 1:
            raise ValueError(f"{name}={number} must be at least 1")


# chapters/02-rl-fundamentals.ipynb · cell reachable-states
ENDS = ("repaired", "failed", "hacked", "out of turns")  # how an episode of the repair MDP can end


def repair_actions(bugs: int) -> tuple[str, ...]:
    """Return the names of the actions when there are this many possible bugs."""
    return ("read", "test", *(f"edit {bug}" for bug in range(1, bugs + 1)), "hardcode", "submit")


def repair_states(bugs: int, turns: int) -> list[RepairState]:
    """Return the states that an episode can reach, in the order of their discovery, and the `ENDS` last.

    Raises ValueError if there is no bug or no turn.
    """
    check_positive(bugs=bugs, turns=turns)
    states = [RepairState(tuple(range(1, bugs + 1)), bugs == 1, "buggy", turns)]
    for state in states:  # the list grows while it is walked
        for action in repair_actions(bugs):
            for _, after in repair_outcomes(state, action, clarity=Fraction(1, 2)):
                if after.candidates and after not in states:
                    states.append(after)
    return states + [RepairState((), True, end, 0) for end in ENDS]


# chapters/02-rl-fundamentals.ipynb · cell repair-mdp
def repair_mdp(
    bugs: int = 3, turns: int = 5, turn_cost: float = 0.0, clarity: float = 0.8, hacked_reward: float = 0.0
) -> TabularMDP:
    """Return the repair MDP: one of `bugs` defects, seen by reading with probability `clarity`, and `turns` turns.

    Each action costs `turn_cost`; a repaired submission earns 1, a hacked one `hacked_reward`. `states` are
    `RepairState`: the first is where episodes start, the last four are the `ENDS`.
    Raises ValueError if there is no bug, no turn, clarity is not a probability, or a reward is not finite.
    """
    states, actions = repair_states(bugs, turns), repair_actions(bugs)
    transition = torch.zeros(len(states), len(actions), len(states), dtype=DTYPE)
    for (s, state), (a, action) in product(enumerate(states), enumerate(actions)):
        for probability, after in repair_outcomes(state, action, clarity) if state.candidates else [(1, state)]:
            transition[s, a, states.index(after)] += float(probability)
    paid = {"repaired": 1.0, "hacked": hacked_reward}
    earned = torch.tensor([0.0 if s.candidates else paid.get(s.source, 0.0) for s in states], dtype=DTYPE)
    live = torch.tensor([bool(s.candidates) for s in states])
    reward = torch.where(live[:, None], transition @ earned - turn_cost, 0.0)
    return TabularMDP(transition, reward, torch.eye(len(states), dtype=DTYPE)[0], 1.0, tuple(states), actions)


# chapters/02-rl-fundamentals.ipynb · cell rule-policy
def rule_policy(mdp: TabularMDP, rule: Callable[[RepairState], str]) -> torch.Tensor:
    """Return the policy [S, A] that takes in each state the action which `rule` names; `mdp` must name both.

    Terminal states, where nothing depends on the action, get the first one. Raises ValueError for an unknown action
    or an MDP without names.
    """
    if not mdp.states or not mdp.actions:
        raise ValueError("this MDP does not name its states and actions, so a rule cannot be asked about them")
    names = [mdp.actions[0] if ended else rule(s) for s, ended in zip(mdp.states, mdp.terminal, strict=True)]
    unknown = [name for name in names if name not in mdp.actions]
    if unknown:
        raise ValueError(f"the rule names {unknown[0]!r}; the actions are {', '.join(mdp.actions)}")
    return torch.eye(len(mdp.actions), dtype=DTYPE)[[mdp.actions.index(name) for name in names]]


# chapters/02-rl-fundamentals.ipynb · cell sampling
class TabularEpisodes(NamedTuple):
    """Sampled episodes of a TabularMDP, padded at the end: `[B, H]`; of one episode `[H]` without padding."""

    states: torch.Tensor  # [B, H] int64: the state in which each action was taken
    actions: torch.Tensor  # [B, H] int64
    rewards: torch.Tensor  # [B, H] of type DTYPE, 0 where the mask is false
    mask: torch.Tensor  # [B, H] bool: the steps that were taken
    last: torch.Tensor  # [B] int64: the state after the last step
    terminated: torch.Tensor  # [B] bool: whether that state is terminal; if not, max_steps cut the episode off


# chapters/02-rl-fundamentals.ipynb · cell inverse-cdf
def check_policy(mdp: TabularMDP, policy: torch.Tensor) -> None:
    """Raise ValueError unless the policy is a table [S, A] of distributions for this MDP; TypeError if no tensor."""
    check_table("policy", policy, list(mdp.reward.shape))
    check_distributions("policy", policy)


def check_draws(generator: torch.Generator, **numbers: int) -> None:
    """Raise TypeError unless there is a generator, and the errors of `check_positive` for the numbers of draws."""
    check_positive(**numbers)
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator is {generator!r}; it must be a torch.Generator")


def cumulative(probabilities: torch.Tensor) -> torch.Tensor:
    """Return the running sums of each row of `probabilities` [..., N], scaled so that every row ends in exactly 1."""
    sums = probabilities.cumsum(-1)
    return sums / sums[..., -1:]


def draw_index(sums: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return for each row of running sums [..., N] the first index whose sum exceeds its uniform number in [0, 1)."""
    return torch.searchsorted(sums, uniforms[..., None], right=True)[..., 0]


# chapters/02-rl-fundamentals.ipynb · cell sample-episodes
def sample_episodes(
    mdp: TabularMDP, policy: torch.Tensor, count: int, generator: torch.Generator, max_steps: int
) -> TabularEpisodes:
    """Return `count` episodes under the policy [S, A], each of at most `max_steps` steps, as `TabularEpisodes`.

    Raises ValueError if the policy does not fit the MDP, or count or max_steps is less than 1; TypeError if one of
    them is no integer or there is no generator.
    """
    check_policy(mdp, policy)
    check_draws(generator, count=count, max_steps=max_steps)
    first, choice, move = (cumulative(table) for table in (mdp.start, policy.detach(), mdp.transition))
    terminal, steps = mdp.terminal, []
    state = draw_index(first.repeat(count, 1), torch.rand(count, generator=generator, dtype=DTYPE))
    while len(steps) < max_steps and (not steps or not terminal[state].all()):
        uniforms = torch.rand(2, count, generator=generator, dtype=DTYPE)
        action = draw_index(choice[state], uniforms[0])
        steps.append((state, action, mdp.reward[state, action], ~terminal[state]))
        state = draw_index(move[state, action], uniforms[1])
    states, actions, rewards, mask = (torch.stack(column, dim=1) for column in zip(*steps, strict=True))
    return TabularEpisodes(states, actions, rewards, mask, state, terminal[state])


# chapters/02-rl-fundamentals.ipynb · cell sample-episode
def sample_episode(
    mdp: TabularMDP, policy: torch.Tensor, generator: torch.Generator, max_steps: int
) -> TabularEpisodes:
    """Return one episode under the policy [S, A], of at most `max_steps` steps: `TabularEpisodes` without axis B.

    If its first state is terminal, there is one step all the same, with a false mask. Raises as `sample_episodes` does.
    """
    return TabularEpisodes(*(column[0] for column in sample_episodes(mdp, policy, 1, generator, max_steps)))


# chapters/02-rl-fundamentals.ipynb · cell live-system
def can_end(step: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Return the states [S] bool from which `ends` [S] bool can be reached by the transitions [S, S]."""
    for _ in range(len(ends)):  # each time, add the states from which they are one step away
        ends = ends | (step[:, ends] > 0).any(1)
    return ends


def live_system(mdp: TabularMDP, policy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (I - gamma P^pi over the L states that are not terminal [L, L], which those are [S] bool).

    Raises ValueError if gamma is 1 and there is a state, be it one that no episode reaches, from which the policy
    [S, A] never gets to a terminal one.
    """
    check_policy(mdp, policy)
    step = torch.einsum("sa,sat->st", policy, mdp.transition)
    live = ~mdp.terminal
    if mdp.gamma == 1 and not (ends := can_end(step, ~live)).all():
        stuck = int((~ends).nonzero()[0])
        name = mdp.states[stuck] if mdp.states else stuck
        raise ValueError(
            f"gamma is 1 and this policy never ends an episode from state {name}: the return need not be finite"
        )
    return torch.eye(int(live.sum()), dtype=DTYPE) - mdp.gamma * step[live][:, live], live


# chapters/02-rl-fundamentals.ipynb · cell policy-evaluation
def policy_evaluation(mdp: TabularMDP, policy: torch.Tensor) -> torch.Tensor:
    """Return V^pi [S], the solution of the Bellman equations (2.5), by a linear solve; gradients pass through.

    The policy is [S, A]. Raises ValueError as `live_system` does.
    """
    system, live = live_system(mdp, policy)
    values = torch.zeros_like(mdp.start)
    values[live] = torch.linalg.solve(system, (policy * mdp.reward).sum(1)[live])
    return values


def action_values(mdp: TabularMDP, values: torch.Tensor) -> torch.Tensor:
    """Return Q [S, A] one step before the values [S]: the reward plus gamma times the expected next value.

    Raises ValueError if the values are not finite, of type `DTYPE` and one for each state.
    """
    check_table("values", values, list(mdp.start.shape))
    return mdp.reward + mdp.gamma * mdp.transition @ values


def expected_return(mdp: TabularMDP, policy: torch.Tensor) -> torch.Tensor:
    """Return J, the expected return of the policy [S, A] from the start, as a scalar; gradients pass through."""
    return mdp.start @ policy_evaluation(mdp, policy)


# chapters/02-rl-fundamentals.ipynb · cell check-allowed
def check_allowed(allowed: torch.Tensor, shape: list[int]) -> None:
    """Raise ValueError unless `allowed` is [A] or [S, A] and leaves each state an action, TypeError unless bool."""
    if not isinstance(allowed, torch.Tensor) or allowed.dtype != torch.bool:
        kind = getattr(allowed, "dtype", type(allowed).__name__)
        raise TypeError(f"allowed is {kind}; it must be a tensor of torch.bool")
    if list(allowed.shape) not in (shape, shape[1:]):
        raise ValueError(f"allowed is {list(allowed.shape)}; it must be {shape[1:]} or {shape}")
    if not allowed.any(-1).all():
        where = (~allowed.any(-1)).nonzero()[0].tolist()
        raise ValueError(f"state {where[0] if where else 0} has no allowed action")


# chapters/02-rl-fundamentals.ipynb · cell greedy-policy
def best_actions(q: torch.Tensor, allowed: torch.Tensor | None = None) -> torch.Tensor:
    """Return which actions [S, A] bool are the best of those allowed, given action values [S, A].

    Values within 1e-9 of the best count as equal to it, so that rounding does not choose between equally good actions.
    `allowed` is bool, [A] or [S, A]. Raises ValueError or TypeError if it is not, if a state has no allowed action,
    or if an action value is not finite.
    """
    if not isinstance(q, torch.Tensor) or q.dim() != 2 or 0 in q.shape:
        found = list(q.shape) if isinstance(q, torch.Tensor) else type(q).__name__
        raise ValueError(f"action values are {found}; they must be a tensor [S, A] with at least one state and action")
    check_table("action values", q, list(q.shape))
    if allowed is not None:
        check_allowed(allowed, list(q.shape))
        q = q.masked_fill(~allowed, -torch.inf)
    return q >= q.max(1, keepdim=True).values - 1e-9


def greedy_policy(q: torch.Tensor, allowed: torch.Tensor | None = None) -> torch.Tensor:
    """Return the policy [S, A] that takes the first of the `best_actions`; arguments and errors are the same."""
    best = best_actions(q, allowed)
    return torch.nn.functional.one_hot(best.int().argmax(1), best.shape[1]).to(DTYPE)


# chapters/02-rl-fundamentals.ipynb · cell ending-policy
def ending_policy(mdp: TabularMDP, best: torch.Tensor) -> torch.Tensor:
    """Return the policy [S, A] that takes the first of the `best` actions [S, A] bool, if need be one that ends.

    With gamma 1, a state from which the first ones never lead to a terminal state gets the first one that can. Where
    none can, the first stays, and `policy_evaluation` refuses the policy.
    """
    policy = torch.nn.functional.one_hot(best.int().argmax(1), best.shape[1]).to(DTYPE)
    ends = can_end(torch.einsum("sa,sat->st", policy, mdp.transition), mdp.terminal)
    while mdp.gamma == 1:
        leads = best & (mdp.transition[:, :, ends] > 0).any(2) & ~ends[:, None]
        found = leads.any(1)
        if not found.any():
            break
        policy[found] = torch.nn.functional.one_hot(leads[found].int().argmax(1), best.shape[1]).to(DTYPE)
        ends = ends | found
    return policy


# chapters/02-rl-fundamentals.ipynb · cell value-iteration
def value_iteration(
    mdp: TabularMDP, allowed: torch.Tensor | None = None, tolerance: float = 1e-12, max_sweeps: int = 100_000
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (values [S], policy [S, A]) of the best policy that uses only `allowed` actions, bool [A] or [S, A].

    Sweeps until no value changes by more than `tolerance`; with gamma < 1 the values are then right to
    tolerance * gamma / (1 - gamma). Equally good actions are settled by `ending_policy`. Raises ValueError if it
    takes more than `max_sweeps`, or if an argument is wrong, as `best_actions` does.
    """
    check_positive(max_sweeps=max_sweeps)
    if not tolerance >= 0:
        raise ValueError(f"tolerance is {tolerance}; it must be at least 0")
    best_actions(mdp.reward, allowed)  # refuses a wrong `allowed` before the first sweep
    values, barred = torch.zeros_like(mdp.start), torch.tensor(False) if allowed is None else ~allowed
    for _ in range(max_sweeps):
        q = action_values(mdp, values)
        before, values = values, q.masked_fill(barred, -torch.inf).max(1).values
        if (values - before).abs().max() <= tolerance:
            return values, ending_policy(mdp, best_actions(q, allowed))
    raise ValueError(f"values still change after {max_sweeps} sweeps; with gamma {mdp.gamma} they may have no limit")


# chapters/02-rl-fundamentals.ipynb · cell advantages
def advantages_tabular(mdp: TabularMDP, policy: torch.Tensor) -> torch.Tensor:
    """Return A^pi [S, A], how much better each action is than what the policy [S, A] does on average in the state."""
    values = policy_evaluation(mdp, policy)
    return action_values(mdp, values) - values[:, None]


def state_visits(mdp: TabularMDP, policy: torch.Tensor) -> torch.Tensor:
    """Return the expected number of visits to each state [S] in an episode, those at step t counted gamma^t times.

    Terminal states count 0. Divided by its sum this is d^pi. Raises ValueError as `live_system` does.
    """
    system, live = live_system(mdp, policy)
    visits = torch.zeros_like(mdp.start)
    visits[live] = torch.linalg.solve(system.T, mdp.start[live])
    return visits
