"""Measure `arl.train` beside TRL's GRPOTrainer, interleaved in one run: same policy, weights at first, tasks, budget.

Times are CPU seconds of this process, whose torch has one thread: on an idle machine what a clock on the wall shows, on
a busy one not the others' work too. What is compared is ratios within one round, in which all start from one agent.
"""

from __future__ import annotations

import copy
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from rich.table import Table

import agentrl as arl

from .benchpolicy import DTYPES, one_thread
from .scratch import Scratch

BASE = "arl.train, float64"
MISSING = "trl is not installed, so arl.train stands alone: make peers"


@dataclass(frozen=True)
class Budget:
    """What each training may use: `tasks` of the gym (None: all that are trained on), the settings, when it may end."""

    config: arl.TrainConfig = field(default_factory=arl.TrainConfig)
    tasks: int | None = None
    warm_start: int = 100  # batches
    goal: float = 0.9


@dataclass
class Training:
    """What a training did: for each iteration its success, tokens sampled, seconds until rewards, and of the update."""

    episodes: int
    success: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    sampling: list[float] = field(default_factory=list)
    update: list[float] = field(default_factory=list)

    @property
    def iteration(self) -> float:
        """Return the median of the seconds of an iteration."""
        return statistics.median(map(sum, zip(self.sampling, self.update, strict=True)))

    def reached(self, goal: float) -> int | None:
        """Return how many iterations it took until the sampled episodes' success was at the goal, None if never."""
        return next((number for number, rate in enumerate(self.success, 1) if rate >= goal), None)

    def seconds_to(self, goal: float) -> float | None:
        """Return the seconds until then, the last iteration's update left out; None if never."""
        last = self.reached(goal)
        return None if last is None else sum(self.sampling[:last]) + sum(self.update[: last - 1])


class Stopwatch:
    """Writes a training's times down as it goes on."""

    def __init__(self, episodes: int) -> None:
        self.training, self._since = Training(episodes), time.process_time()

    def _lap(self) -> float:
        before, self._since = self._since, time.process_time()
        return self._since - before

    def sampled(self, rewards: list[float], tokens: int) -> None:
        """Note that an iteration's episodes have their rewards, 1 for a repair, and how many tokens were sampled."""
        self.training.sampling.append(self._lap())
        self.training.success.append(sum(rewards) / len(rewards))
        self.training.tokens.append(tokens)

    def updated(self, goal: float) -> bool:
        """Note that the iteration's update is done, and return whether the goal has been reached."""
        self.training.update.append(self._lap())
        return self.training.reached(goal) is not None


Trainer = Callable[[arl.TinyAgent, arl.TinyTokenizer, Budget], Training]


def _tasks(budget: Budget) -> list[arl.BugFixTask]:
    """Return the tasks to train on."""
    return list(arl.split_tasks(arl.bugfix_tasks()).train[: budget.tasks])


def train_ours(agent: arl.TinyAgent, tokenizer: arl.TinyTokenizer, budget: Budget) -> Training:
    """Return what `arl.train` did with a copy of the agent."""
    agent, tasks = copy.deepcopy(agent), _tasks(budget)
    watch = Stopwatch(len(tasks) * budget.config.attempts)

    def rewards(batch: arl.TrajectoryBatch) -> torch.Tensor:
        watch.sampled(batch.rewards.tolist(), int(batch.action_mask.sum()))
        return batch.rewards

    def callback(_: arl.TrainState) -> bool:
        return watch.updated(budget.goal)

    arl.train(agent, tokenizer, tasks, budget.config, rewards=rewards, callback=callback, progress=False)
    return watch.training


def train_trl(dtype: torch.dtype, agent: arl.TinyAgent, tokenizer: arl.TinyTokenizer, budget: Budget) -> Training:
    """Return what TRL's GRPOTrainer did with a copy of the agent in this precision.

    Its seconds until rewards hold a pass for the old log-probabilities too, which `arl.train` has from sampling.
    """
    from . import trlgym  # imports what only the extra `peers` has

    agent, tasks, config = copy.deepcopy(agent).to(dtype), _tasks(budget), budget.config

    def sampled(rewards: list[float], tokens: int) -> None:
        watch.sampled(rewards, tokens)

    class Note(trlgym.transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % (config.epochs * config.minibatches) == 0:
                control.should_training_stop |= watch.updated(budget.goal)

    with Scratch("bench") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # experimental: environment_factory; deprecated: what TRL calls of transformers
        trainer = trlgym.trl_trainer(agent, tokenizer, tasks, config, folder, sampled)
        trainer.add_callback(Note)
        watch = Stopwatch(len(tasks) * config.attempts)
        trainer.train()
    return watch.training


@dataclass
class TrainReport:
    """What was measured: the budget, and each row's trainings, one a round."""

    machine: dict[str, Any]
    budget: Budget
    runs: dict[str, list[Training]] = field(default_factory=dict)

    def ratios(self, row: str, what: Callable[[Training], float | None]) -> list[float]:
        """Return, of the rounds in which both have it, this row's number over that of `arl.train`."""
        pairs = [(what(one), what(of)) for one, of in zip(self.runs[row], self.runs[BASE], strict=True)]
        return [one / of for one, of in pairs if one is not None and of is not None]

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values, ready for JSON."""
        return asdict(self)


def trainers() -> dict[str, Trainer]:
    """Return what there is to measure: `arl.train`, and where TRL is installed its trainer in both precisions."""
    rows: dict[str, Trainer] = {BASE: train_ours}
    if find_spec("trl") is not None:
        rows |= {f"TRL's GRPOTrainer, {name}": partial(train_trl, dtype) for name, dtype in DTYPES.items()}
    return rows


def bench_training(machine: dict[str, Any], budget: Budget, rounds: int, say: Callable[[str], None]) -> TrainReport:
    """Train with all, `rounds` times, starting each round with another one; round n begins with the agent of seed n."""
    rows, tokenizer = trainers(), arl.gym_tokenizer()
    if len(rows) == 1:
        say(MISSING)
    report = TrainReport(machine, budget, {row: [] for row in rows})
    with one_thread():
        for number in range(rounds):
            agent = arl.starting_agent(tokenizer, _tasks(budget), number, budget.warm_start)
            given = replace(budget, config=replace(budget.config, seed=number))
            names, shift = list(rows), number % len(rows)
            for row in (*names[shift:], *names[:shift]):
                report.runs[row].append(rows[row](agent, tokenizer, given))
                say(f"round {number + 1} of {rounds}: {row}: {report.runs[row][-1].iteration:.2f} s an iteration")
    return report


def training_table(report: TrainReport) -> Table:
    """Return the rows side by side: medians over the rounds, and the median of the ratios to `arl.train`."""
    goal, config = report.budget.goal, report.budget.config
    episodes = report.runs[BASE][0].episodes
    made = Table(
        title=f"{episodes} episodes an iteration, {config.iterations} iterations at most, "
        f"{len(report.runs[BASE])} round(s), one thread",
        caption=f"CPU seconds; ×: median over the rounds of the ratio to “{BASE}”; {goal:g}: success in training",
    )
    made.add_column("trainer", no_wrap=True)
    for column in ("episodes/s", "tokens/s", "update s", "iteration s", "×", f"to {goal:g}", "s", "×"):
        made.add_column(column, justify="right")
    for row in report.runs:
        made.add_row(row, *_cells(report, row))
    return made


def _cells(report: TrainReport, row: str) -> list[str]:
    """Return what stands in a row after its name."""
    runs, goal = report.runs[row], report.budget.goal
    sampling = [statistics.median(run.sampling) for run in runs]
    tokens = [sum(run.tokens) / sum(run.sampling) for run in runs]
    speed = [run.episodes / seconds for run, seconds in zip(runs, sampling, strict=True)]
    updates = [statistics.median(run.update) for run in runs]
    to_goal = [run.reached(goal) for run in runs], [run.seconds_to(goal) for run in runs]
    return [
        f"{statistics.median(speed):,.0f}",
        f"{statistics.median(tokens):,.0f}",
        f"{statistics.median(updates):.2f}",
        f"{statistics.median(run.iteration for run in runs):.2f}",
        _median(report.ratios(row, lambda run: run.iteration), ".2f"),
        _median(to_goal[0], ".0f"),
        _median(to_goal[1], ".1f"),
        _median(report.ratios(row, lambda run: run.seconds_to(goal)), ".2f"),
    ]


def _median(numbers: list[Any], form: str) -> str:
    """Return the median of those that are there, and how many are not; a dash if none is."""
    there = [number for number in numbers if number is not None]
    missing = f" ({len(there)} of {len(numbers)})" if len(there) < len(numbers) else ""
    return f"{statistics.median(there):{form}}{missing}" if there else "–"
