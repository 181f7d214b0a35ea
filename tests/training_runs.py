"""A small training that tests interrupt, in a process of its own where it is to be killed."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import agentrl as arl

TOKENIZER = arl.gym_tokenizer()
TASKS = arl.bugfix_tasks()[:3]
CONFIG = arl.TrainConfig(iterations=3, attempts=4, max_turn_tokens=2)
# A fork of a process that has imported torch is there in a moment, and safe as that process computes nothing.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["agentrl", "torch._dynamo"])


class Trained(NamedTuple):
    """What a training gave, to the last bit: its weights, and its rows as text, in which nan equals nan."""

    weights: bytes
    rows: str


def agent(seed: int = 0, **sizes: int) -> arl.TinyAgent:
    """Return a small agent as it is drawn, which repairs nothing."""
    sizes = {"width": 16, "layers": 1, "heads": 2, **sizes}
    return arl.TinyAgent(arl.TinyAgentConfig(len(TOKENIZER), **sizes), arl.generator(seed))


def two_turns(task: arl.BugFixTask, generator: torch.Generator) -> arl.BugFixEnv:
    """Return an environment whose episodes are short."""
    return arl.BugFixEnv(task, max_turns=2, detail="short")


def by_tokens(batch: arl.TrajectoryBatch) -> Tensor:
    """Return rewards of 0 and 1 that depend on what the policy wrote alone."""
    return (torch.where(batch.action_mask, batch.ids, 0).sum(1) % 2).to(arl.DTYPE)


def weights_of(model: torch.nn.Module) -> bytes:
    """Return all weights of a model, bit for bit."""
    return b"".join(weight.detach().numpy().tobytes() for weight in model.parameters())


def files_in(folder: Path) -> dict[str, Path]:
    """Return where a training in this folder keeps itself and its metrics, as arguments of `train`."""
    return {"checkpoint": folder / "agent.pt", "metrics": folder / "metrics.jsonl"}


def trained(
    folder: Path | None = None, model: arl.TinyAgent | None = None, tasks: Any = TASKS, **given: Any
) -> Trained:
    """Return what the small training gives, its files in a folder if there is one; settings and hooks together."""
    names = {field.name for field in dataclasses.fields(arl.TrainConfig)}
    model = agent() if model is None else model
    config = dataclasses.replace(CONFIG, **{name: given.pop(name) for name in names & given.keys()})
    files = files_in(folder) if folder else {}
    history = arl.train(
        model, TOKENIZER, tasks, config, **{"make_env": two_turns, "rewards": by_tokens, **files, **given}
    )
    return Trained(weights_of(model), repr(history.rows))


def in_process(run: Callable[..., None], *arguments: Any) -> int | None:
    """Run a function in a process of its own and return how that ended: 0, or minus the signal."""
    process = PROCESSES.Process(target=run, args=arguments)
    process.start()
    process.join(60)
    if process.is_alive():
        process.kill()
        process.join()
        raise TimeoutError(f"{run.__name__} did not end within a minute")
    return process.exitcode


def struck(folder: Path, moment: int, number: int) -> None:
    """Train in a folder and send this process a signal at a moment: before its files are opened, whole, or renamed.

    When a file is whole, and about to be renamed, it is cut to half first. To be run in a process of its own.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    count, fsync = 0, os.fsync

    def strike(event: str, given: Any) -> None:
        nonlocal count
        if event == "fsync" or (event in ("open", "os.rename") and str(given[0]).startswith(str(folder))):
            count += 1
            if count == moment:
                if event == "fsync":
                    os.ftruncate(given[0], os.fstat(given[0]).st_size // 2)
                os.kill(os.getpid(), number)

    def half(file: int) -> None:
        strike("fsync", (file,))
        fsync(file)

    os.fsync = half
    sys.addaudithook(strike)
    trained(folder)


def shown(progress: bool | None, terminal: str) -> None:
    """Train with stdout and stderr on a terminal, which this opens. To be run in a process of its own."""
    opened = os.open(terminal, os.O_RDWR | os.O_NOCTTY)
    for stream in (1, 2):
        os.dup2(opened, stream)
    sys.stdout, sys.stderr = (open(stream, "w", buffering=1, closefd=False) for stream in (1, 2))  # noqa: SIM115
    trained(progress=progress)
