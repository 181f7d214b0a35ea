"""Figure 0.3: how far the weights of two identical training runs drift apart when only the rounding differs.

`python figures/ch00_rounding_growth.py` draws the figure from figures/data/ch00-rounding-growth.json. With `--record`
it trains first and rewrites that file: 18 pairs of runs (two loops, three arithmetics, three seeds), each pair with
the same seed and different settings of the CPU, and six runs twice under equal settings. The policy is a two-layer
transformer that learns to write six digits in reverse order; its loops are small versions of those in chapters 6 and
9. Digits depend on the machine that records, and those of float32 on two threads change from run to run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from bookkit import figures as fig
from bookkit.notebook import write_atomic

DATA = Path(__file__).resolve().parent / "data" / "ch00-rounding-growth.json"
DIGITS, PROMPT, LENGTH, WIDTH, HEADS, LAYERS = 10, 6, 12, 64, 4, 2
GROUP, BATCH, ITERATIONS, LEARNING_RATE, CLIP, GRID = 8, 128, 150, 2e-3, 0.2, 65536
SEEDS = (0, 1, 2)
ARITHMETICS = ("float32", "float64", "float64 snapped")
# What differs between the two runs of a pair, and nothing else.
SETTINGS: dict[str, dict[str, str]] = {
    "reference": {"OMP_NUM_THREADS": "1"},
    "other": {"OMP_NUM_THREADS": "2", "ATEN_CPU_CAPABILITY": "default"},
}


@dataclass(frozen=True)
class Loop:
    """What sets the two training loops apart."""

    activation: str
    epochs: int
    minibatches: int


ZERO = 1e-17  # where exact zeros are drawn
DESC = (
    "Two panels with the iteration on the horizontal axis and the largest weight difference on a logarithmic vertical "
    "axis, three seeds each. Left, one smooth update a batch: float32 stays near one hundred-thousandth until tokens "
    "part in iteration 74 to 134, then jumps; float64 stays below one trillionth; snapped float64 stays at zero. "
    "Right, four clipped updates a batch: the difference rises first and tokens part later, in iteration 13 to 15 for "
    "float32 and 59 to 61 for float64, and both pass one tenth; snapped float64 stays at zero."
)
LOOPS = {"one smooth update": Loop("tanh", 1, 1), "four clipped updates": Loop("relu", 2, 2)}


def initial_weights(generator: Any) -> dict[str, Any]:
    """Return the policy's float64 weights by name, drawn uniformly from the generator."""
    import torch

    def uniform(rows: int, columns: int, bound: float) -> torch.Tensor:
        return (torch.rand(rows, columns, generator=generator, dtype=torch.float64) * 2 - 1) * bound

    unit, residual = math.sqrt(3 / WIDTH), 1 / math.sqrt(2 * LAYERS)
    weights = {"token": uniform(DIGITS, WIDTH, 0.5), "position": uniform(LENGTH, WIDTH, 0.1)}
    weights["head"] = uniform(WIDTH, DIGITS, 0.5 * unit)
    for layer in range(LAYERS):
        weights[f"qkv{layer}"] = uniform(WIDTH, 3 * WIDTH, unit)
        weights[f"out{layer}"] = uniform(WIDTH, WIDTH, residual * unit)
        weights[f"up{layer}"] = uniform(WIDTH, 4 * WIDTH, unit)
        weights[f"down{layer}"] = uniform(4 * WIDTH, WIDTH, residual * unit / 2)
    return weights


def logits(weights: dict[str, Any], ids: Any, activation: str) -> Any:
    """Return the next-token logits `[B, T, digits]` of a causal transformer with root-mean-square normalisation."""
    import torch

    def norm(x: torch.Tensor) -> torch.Tensor:
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()

    rows, length = ids.shape
    x = weights["token"][ids] + weights["position"][:length]
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    for layer in range(LAYERS):
        q, k, v = (norm(x) @ weights[f"qkv{layer}"]).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(later, -math.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, WIDTH)
        x = x + mixed @ weights[f"out{layer}"]
        x = x + getattr(torch, activation)(norm(x) @ weights[f"up{layer}"]) @ weights[f"down{layer}"]
    return norm(x) @ weights["head"]


def answer_logprobs(weights: dict[str, Any], ids: Any, activation: str) -> Any:
    """Return the log-probabilities `[B, T - prompt]` of the sampled digits."""
    before = logits(weights, ids, activation)[:, PROMPT - 1 : -1].log_softmax(-1)
    return before.gather(-1, ids[:, PROMPT:, None])[..., 0]


def sample(weights: dict[str, Any], generator: Any, activation: str) -> tuple[Any, Any]:
    """Return ids `[B, T]` (random prompts in groups of eight, sampled answers) and the share of right digits `[B]`."""
    import torch

    prompts = torch.randint(DIGITS, (BATCH // GROUP, PROMPT), generator=generator).repeat_interleave(GROUP, 0)
    ids = prompts
    while ids.shape[1] < LENGTH:
        cumulative = logits(weights, ids, activation)[:, -1].double().softmax(-1).cumsum(-1)
        drawn = torch.rand(BATCH, 1, generator=generator, dtype=torch.float64)
        ids = torch.cat([ids, (cumulative <= drawn).sum(-1, keepdim=True).clamp(max=DIGITS - 1)], 1)
    right = ids[:, PROMPT:] == prompts.flip(1)
    return ids, right.to(weights["head"].dtype).mean(1)


def train(loop: Loop, arithmetic: str, seed: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Return, for each iteration, the weights after it (one flat tensor), the ids sampled in it and the mean reward."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    dtype = torch.float32 if arithmetic == "float32" else torch.float64
    weights = {name: weight.to(dtype) for name, weight in initial_weights(generator).items()}
    optimiser = torch.optim.Adam([w.requires_grad_() for w in weights.values()], lr=LEARNING_RATE, foreach=False)
    history: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    for _ in range(ITERATIONS):
        with torch.no_grad():
            ids, rewards = sample(weights, generator, loop.activation)
            old = answer_logprobs(weights, ids, loop.activation)
        groups = rewards.view(-1, GROUP)
        centred = groups - groups.mean(1, keepdim=True)
        advantages = (centred / (groups.std(1, keepdim=True) + 1e-6)).view(-1, 1)
        for _ in range(loop.epochs):
            for rows in torch.randperm(BATCH, generator=generator).chunk(loop.minibatches):
                ratio = (answer_logprobs(weights, ids[rows], loop.activation) - old[rows]).exp()
                clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
                loss = -torch.minimum(ratio * advantages[rows], clipped * advantages[rows]).mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                if arithmetic == "float64 snapped":
                    snap(weights)
        flat = torch.cat([weight.detach().double().flatten() for weight in weights.values()])
        for column, value in zip(history, (flat, ids, float(rewards.mean())), strict=True):
            column.append(value)
    return history


def snap(weights: dict[str, Any]) -> None:
    """Round every weight in place to the nearest multiple of 1 / GRID."""
    for weight in weights.values():
        weight.data.copy_((weight.data * GRID).round() / GRID)


def worker(loop: str, arithmetic: str, seed: int, path: str) -> None:
    """Train once under the settings of this process's environment and save the history to `path`."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    weights, ids, rewards = train(LOOPS[loop], arithmetic, seed)
    torch.save({"weights": torch.stack(weights), "ids": torch.stack(ids), "rewards": rewards}, path)


def run(settings: str, loop: str, arithmetic: str, seed: int, folder: Path) -> dict[str, Any]:
    """Return the history of a training run in a process of its own, under one of SETTINGS."""
    import torch

    path = folder / "history.pt"
    clean = {k: v for k, v in os.environ.items() if k not in ("ATEN_CPU_CAPABILITY", "MKL_CBWR")}
    chosen = SETTINGS[settings]
    threads = {"MKL_NUM_THREADS": chosen["OMP_NUM_THREADS"], "OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, __file__, "--worker", loop, arithmetic, str(seed), str(path)]
    subprocess.run(command, check=True, env={**clean, **chosen, **threads})
    return torch.load(path)


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[float]:
    """Return the largest absolute weight difference of two runs after each iteration."""
    return (one["weights"] - other["weights"]).abs().amax(1).tolist()


def compare(loop: str, arithmetic: str, seed: int, folder: Path) -> dict[str, Any]:
    """Return the record of one pair: largest weight difference by iteration, first different token, final rewards."""
    reference, other = (run(settings, loop, arithmetic, seed, folder) for settings in SETTINGS)
    parted = (reference["ids"] != other["ids"]).flatten(1).any(1).tolist()
    return {
        "loop": loop,
        "arithmetic": arithmetic,
        "seed": seed,
        "first_different_token": _first(parted),
        "final_reward": [round(sum(history["rewards"][-10:]) / 10, 3) for history in (reference, other)],
        "difference": [float(f"{value:.2e}") for value in differences(reference, other)],
    }


def repeat(settings: str, arithmetic: str, folder: Path) -> dict[str, Any]:
    """Return the record of a run and its repetition under equal settings: the first iteration that differs, or None."""
    one, again = (run(settings, "four clipped updates", arithmetic, SEEDS[1], folder) for _ in range(2))
    first = _first([value > 0 for value in differences(one, again)])
    return {"settings": settings, "arithmetic": arithmetic, "seed": SEEDS[1], "first_different_weight": first}


def _first(flags: list[bool]) -> int | None:
    return flags.index(True) + 1 if True in flags else None


def record() -> None:
    """Train every pair of runs and write the data file."""
    pairs = []
    for loop in LOOPS:
        for arithmetic in ARITHMETICS:
            for seed in SEEDS:
                with tempfile.TemporaryDirectory() as folder:
                    pairs.append(compare(loop, arithmetic, seed, Path(folder)))
                last = pairs[-1]
                print(
                    loop, arithmetic, seed, last["first_different_token"], last["difference"][-1], last["final_reward"]
                )
    repeats = []
    for settings in SETTINGS:
        for arithmetic in ARITHMETICS:
            with tempfile.TemporaryDirectory() as folder:
                repeats.append(repeat(settings, arithmetic, Path(folder)))
            print(repeats[-1])
    about = {
        "what": "largest absolute difference between the weights of two runs that differ in CPU settings only",
        "recorded_on": "one x86-64 machine with AVX-512",
        "settings": SETTINGS,
        "loops": {name: asdict(loop) for name, loop in LOOPS.items()},
        "iterations": ITERATIONS,
        "learning_rate": LEARNING_RATE,
        "grid": GRID,
    }
    rows, again = (",\n".join(json.dumps(entry) for entry in entries) for entries in (pairs, repeats))
    text = f'{{"about": {json.dumps(about, indent=1)},\n"repeats": [\n{again}\n],\n"pairs": [\n{rows}\n]}}\n'
    write_atomic(DATA, text)


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the figure; record its data before when asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="train again and rewrite the data (about 20 minutes)")
    parser.add_argument("--worker", nargs=4, metavar=("LOOP", "ARITHMETIC", "SEED", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.worker:
        loop, arithmetic, seed, path = arguments.worker
        worker(loop, arithmetic, int(seed), path)
        return 0
    if arguments.record:
        record()
    fig.save(__file__, draw())
    return 0


def draw() -> str:
    """Return the figure's SVG."""
    pairs = json.loads(DATA.read_text(encoding="utf-8"))["pairs"]
    with fig.chart_style():
        figure, axes = fig.chart(760, 420, ncols=2, sharey=True)
        for axis, loop in zip(axes, LOOPS, strict=True):
            axis.set_title(f"{loop} a batch")
            axis.set_xlabel("iteration")
            axis.set_xlim(0, ITERATIONS)
            for pair in pairs:
                if pair["loop"] == loop:
                    _line(axis, pair)
        _scale(axes[0])
        handles = [_key(arithmetic) for arithmetic in ARITHMETICS]
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=3,
            title="mark: the last iteration before a sampled token differs",
        )
        return fig.chart_svg(figure, "Growth of a rounding difference over training", DESC)


def _line(axis: Any, pair: dict[str, Any]) -> None:
    """Draw one pair's difference by iteration, zero in its own band, and mark where its tokens part."""
    color, dash, marker = fig.SERIES[ARITHMETICS.index(pair["arithmetic"])]
    heights = [value or ZERO for value in pair["difference"]]
    axis.plot(range(1, len(heights) + 1), heights, color=color, linestyle=dash, marker="none", linewidth=1.6)
    parted = pair["first_different_token"]
    if parted is not None and parted > 1:
        before = parted - 1  # the weights after this iteration sampled the first different token
        axis.plot(before, heights[before - 1], color=color, marker=marker, markersize=8, markeredgecolor=fig.INK)


def _scale(axis: Any) -> None:
    """Set the logarithmic scale that both panels share, with a band for exact zeros at its foot."""
    powers = range(-15, 1, 3)
    axis.set_yscale("log")
    axis.set_ylim(ZERO / 10, 10)
    axis.set_yticks([ZERO, *(10.0**power for power in powers)], ["0", *(f"$10^{{{power}}}$" for power in powers)])
    axis.set_yticks([], minor=True)
    axis.set_ylabel("largest weight difference")


def _key(arithmetic: str) -> Any:
    """Return a sample of a line for the legend, with its mark if the tokens of such runs ever part."""
    from matplotlib.lines import Line2D

    look: Any = dict(zip(("color", "linestyle", "marker"), fig.SERIES[ARITHMETICS.index(arithmetic)], strict=True))
    if arithmetic == "float64 snapped":
        look["marker"] = "none"
    return Line2D([], [], markersize=8, markeredgecolor=fig.INK, label=arithmetic, **look)


if __name__ == "__main__":
    raise SystemExit(main())
