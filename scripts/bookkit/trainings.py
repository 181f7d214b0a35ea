"""The longer trainings that chapters 6 to 10 report: played by the library's own functions, kept in chapters/recorded/.

A figure's script says what is trained and calls these with `--record`; tests/test_training.py plays the first
iterations of one recorded seed again and compares.
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

import agentrl as arl

from .figures import SERIES
from .notebook import write_atomic

RECORDED = Path(__file__).resolve().parents[2] / "chapters" / "recorded"
SPLIT = arl.split_tasks(arl.bugfix_tasks())
EVALUATED = 16  # attempts a task in every evaluation
MENU = (
    *(f"<call> {words} </call>" for words in ("read", "test", "submit", *(f"edit {name}" for name in arl.EDIT_OPS))),
    "I would look at the source first.",
)
Learn = Callable[[arl.TinyAgent, arl.TrajectoryBatch, int], dict[str, float]]


@lru_cache(maxsize=1)
def tokenizer() -> arl.TinyTokenizer:
    """Return the tokenizer of all trainings."""
    return arl.gym_tokenizer()


@lru_cache(maxsize=8)
def _started(seed: int) -> arl.TinyAgent:
    return arl.starting_agent(tokenizer(), SPLIT.train, seed)


def starting(seed: int) -> arl.TinyAgent:
    """Return the starting agent of a seed, a copy that may be trained."""
    return copy.deepcopy(_started(seed))


def adam(parameters: Iterable[torch.Tensor], learning_rate: float) -> torch.optim.Adam:
    """Return the optimiser of all trainings."""
    return torch.optim.Adam(parameters, lr=learning_rate, betas=(0.9, 0.95), foreach=False)


def leave_one_out(rewards: torch.Tensor) -> torch.Tensor:
    """Return each episode's reward minus the mean of all others of the batch, [B]."""
    return (rewards - rewards.mean()) * len(rewards) / (len(rewards) - 1)


def evaluate(agent: arl.TinyAgent, seed: int) -> dict[str, list[int]]:
    """Return [repaired, hacked, episodes] on each part of the task split, with random numbers of their own."""
    counts = {}
    for name in SPLIT._fields:
        played = arl.rollout(agent, tokenizer(), getattr(SPLIT, name), EVALUATED, 900_000 + seed)
        counts[name] = list(arl.success_rate(played)[:3])
    return counts


def train(
    agent: arl.TinyAgent, learn: Learn, seed: int, iterations: int, attempts: int = 4, **settings: Any
) -> arl.TrainLog:
    """Return the log of a training: `attempts` episodes of each training task, then `learn`, in every iteration.

    `settings` may have other `tasks`, or a `make_env` for `rollout`.
    """
    log, tasks = arl.TrainLog(), settings.pop("tasks", SPLIT.train)
    for iteration in range(iterations):
        played = arl.rollout(agent, tokenizer(), tasks, attempts, 1_000 * (seed + 1) + iteration, **settings)
        batch = arl.collate(played)
        summary = arl.rollout_summary(tokenizer(), played) | {"reward": batch.rewards.mean().item()}
        log.add(**summary, **learn(agent, batch, iteration))
    return log


def run(agent: arl.TinyAgent, learn: Learn, seed: int, iterations: int) -> dict[str, Any]:
    """Return the record of one training on the gym: counts before and after it, and the log's columns."""
    before = _before(seed)
    log = train(agent, learn, seed, iterations)
    print(log.table("success", "calls", "entropy", "turns", every=10), flush=True)
    return {"before": before, "after": evaluate(agent, seed + 50_000), **columns(log)}


@lru_cache(maxsize=8)
def _before(seed: int) -> dict[str, list[int]]:
    """Return the counts of the starting agent of a seed."""
    return evaluate(_started(seed), seed)


def columns(log: arl.TrainLog) -> dict[str, list[float | None]]:
    """Return the columns of a log, rounded to six digits, enough to draw and above what machines differ in."""
    return {name: [digits(value) for value in log.column(name)] for name in log.rows[0]}


def digits(value: float) -> float | None:
    """Return a number rounded to six digits, None for nan."""
    return None if math.isnan(value) else float(f"{value:.6g}")


BUDGET = 5_600  # episodes of a training by `arl.train`, those of refills counted
SOLVED = 0.9  # success, a mean of three iterations, at which a training has learnt its tasks


def within_budget(agent: arl.TinyAgent, config: arl.TrainConfig, budget: int = BUDGET, **hooks: Any) -> dict[str, Any]:
    """Return the columns of a training by `arl.train` that ends with its budget, and what it took; `agent` has learnt.

    Where refills overshoot the budget, the last iteration is undone and has no place in the columns.
    """
    also, clock, kept = hooks.pop("callback", None), [time.process_time()], [copy.deepcopy(agent.state_dict())]

    def callback(state: arl.TrainState) -> bool:
        if state.history.rows[-1]["episodes"] > budget:
            return True
        clock.append(time.process_time())
        kept[0] = copy.deepcopy(state.model.state_dict())
        return bool(also and also(state))

    history = arl.train(agent, tokenizer(), SPLIT.train, config, callback=callback, progress=False, **hooks)
    agent.load_state_dict(kept[0])
    del history.rows[len(clock) - 1 :]
    return _taken(history, [now - clock[0] for now in clock[1:]]) | columns(history)


def _taken(history: arl.TrainLog, seconds: Sequence[float]) -> dict[str, Any]:
    """Return the episodes, iterations and CPU seconds until success passed SOLVED, None if never, and in all."""
    success = history.column("success")
    past = [at for at in range(2, len(success)) if sum(success[at - 2 : at + 1]) / 3 > SOLVED]
    names = {"iterations": range(1, len(success) + 1), "episodes": history.column("episodes"), "cpu_seconds": seconds}
    first = {name: round(values[past[0]], 1) if past else None for name, values in names.items()}
    return {"solved": first, "spent": {name: round(values[-1], 1) for name, values in names.items()}}


def gym_run(seed: int, **settings: Any) -> dict[str, Any]:
    """Return the record of one training by `arl.train` from a seed's starting agent: counts before, after, columns."""
    agent, before = starting(seed), _before(seed)
    found = within_budget(agent, arl.TrainConfig(**{"seed": seed, **settings}))
    print(found["solved"], found["spent"], [f"{value:.2f}" for value in found["success"]], flush=True)
    return {"before": before, "after": evaluate(agent, seed + 50_000), **found}


def random_menu(generator: torch.Generator) -> Callable[[arl.Transcript], str]:
    """Return a policy that draws its messages uniformly from the menu of chapter 4: every call, and one malformed."""
    return lambda transcript: MENU[int(torch.rand((), generator=generator, dtype=arl.DTYPE) * len(MENU))]


BASELINES = {"random over the menu": 50, "scripted solver": 1, "scripted hacker": 1}  # episodes a task


def baseline(name: str) -> dict[str, list[int]]:
    """Return [repaired, hacked, episodes] of a policy that learns nothing, on each part of the task split."""
    scripted = {"scripted solver": arl.scripted_solver, "scripted hacker": arl.scripted_hacker}
    policy, counts = scripted.get(name) or random_menu(arl.generator(0)), {}
    for part in SPLIT._fields:
        tasks = [task for task in getattr(SPLIT, part) for _ in range(BASELINES[name])]
        outcomes = [arl.run_episode(arl.gym_env(task), policy).outcome for task in tasks]
        counts[part] = [outcomes.count("repaired"), outcomes.count("hacked"), len(outcomes)]
    return counts


def last_token_rewards(batch: arl.TrajectoryBatch) -> torch.Tensor:
    """Return the rewards as a table [B, T], each at its episode's last action."""
    places = torch.arange(batch.ids.shape[1]) * batch.action_mask
    at_end = batch.action_mask & (places == places.amax(1, keepdim=True))
    return torch.where(at_end, batch.rewards[:, None], 0.0)


def new_critic(seed: int, learning_rate: float, generator: torch.Generator) -> arl.Critic:
    """Return a critic with a trunk of its own, at first that of the seed's starting agent, and a new head."""
    trunk = starting(seed)
    head = arl.ValueHead(trunk.config.width, generator)
    return arl.Critic(trunk, head, adam([*trunk.parameters(), *head.parameters()], learning_rate))


def keep(name: str, about: dict[str, Any], jobs: Sequence[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]) -> None:
    """Do the jobs, each (what it is, how to get its numbers), and keep them as runs in chapters/recorded/NAME.

    The file is written after each job, a line a run; a job whose run it has already is left out.
    """
    RECORDED.mkdir(exist_ok=True)
    runs = read(name)["runs"] if (RECORDED / name).exists() else []
    for what, numbers in jobs:
        if any(what.items() <= run.items() for run in runs):
            continue
        print(name, what, flush=True)
        runs.append(what | numbers())
        lines = ",\n".join(json.dumps(run) for run in runs)
        write_atomic(RECORDED / name, f'{{"about": {json.dumps(about, indent=1)},\n"runs": [\n{lines}\n]}}\n')


def read(name: str) -> dict[str, Any]:
    """Return what chapters/recorded/NAME holds."""
    return json.loads((RECORDED / name).read_text(encoding="utf-8"))


def mean_at(curves: Sequence[Sequence[float]], place: int) -> float:
    """Return the mean of the curves at an iteration."""
    return sum(curve[place] for curve in curves) / len(curves)


def band(axes: Any, curves: Sequence[Sequence[float]], episodes: int, number: int, label: str, first: int = 1) -> None:
    """Draw the mean of several curves over the episodes sampled, in a series' look, and their range as a band.

    `first` batches had been sampled at the first point: 0 for what is true before a batch, 1 for what is after it.
    """
    color, dash, marker = SERIES[number]
    points = list(zip(*curves, strict=True))
    xs = [episodes * (place + first) for place in range(len(points))]
    axes.fill_between(xs, [min(p) for p in points], [max(p) for p in points], color=color, alpha=0.16, linewidth=0)
    look = {"marker": marker, "markevery": max(len(points) // 8, 1), "markersize": 6}
    axes.plot(xs, [sum(p) / len(p) for p in points], color=color, linestyle=dash, label=label, **look)


def over_episodes(run: dict[str, Any], name: str, step: int = 280) -> list[float]:
    """Return a column of a run at 0, `step`, 2 `step` … episodes, by straight lines between its iterations.

    An iteration's numbers are of the policy that it sampled from: they stand at the episodes before it.
    """
    xs, ys = [0.0, *run["episodes"][:-1]], run[name]
    values, at = [], 0
    for x in range(0, int(xs[-1]) + 1, step):
        while at + 2 < len(xs) and xs[at + 1] < x:
            at += 1
        share = (x - xs[at]) / (xs[at + 1] - xs[at])
        values.append(ys[at] + share * (ys[at + 1] - ys[at]))
    return values


def together(runs: Sequence[dict[str, Any]], name: str) -> list[list[float]]:
    """Return a column of several runs over episodes, cut to what all of them reached."""
    return shared([over_episodes(run, name) for run in runs])


def shared(curves: Sequence[list[float]]) -> list[list[float]]:
    """Return the curves, cut to the shortest."""
    return [curve[: min(map(len, curves))] for curve in curves]
