"""Figure 6.1: the variance of a batch's gradient estimate by baseline, from figures/data/ch06-baseline-variance.json.

`python figures/ch06_baseline_variance.py` draws the figure. With `--record` it first computes the exact variances of
§6.3 again and samples the batches they are compared with (about a minute of CPU), and rewrites that file.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import torch
from torch import Tensor

import agentrl as arl
from bookkit.figures import INK, MUTED, SERIES, chart, chart_style, chart_svg, command
from bookkit.notebook import write_atomic

DATA = Path(__file__).resolve().parent / "data" / "ch06-baseline-variance.json"
EXACT = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
MEASURED = (2, 4, 8, 16, 32)
BATCHES, CHUNK = 2_000, 200
DESC = (
    "Two panels, for the policies random and reader. The vertical axis is n times the variance of the mean over n "
    "episodes, relative to no baseline; the horizontal axis is n, from 2 to 64, logarithmic. Lines are exact, markers "
    "measured. {}"
)


def policies(mdp: arl.TabularMDP) -> dict[str, Tensor]:
    """Return the two policies of §6.1 as logits."""

    def careful(state: arl.RepairState) -> str:
        edit = f"edit {state.candidates[0]}" if state.source == "buggy" else "submit"
        return edit if state.read else "read"

    uniform = torch.full(mdp.reward.shape, 1 / len(mdp.actions), dtype=arl.DTYPE)
    return {"random": uniform.log(), "reader": (0.7 * arl.rule_policy(mdp, careful) + 0.3 * uniform).log()}


def exact_gradient(mdp: arl.TabularMDP, logits: Tensor) -> Tensor:
    """Return the gradient of the expected return for logits [S, A]."""
    logits = logits.detach().requires_grad_()
    return torch.autograd.grad(arl.expected_return(mdp, logits.softmax(-1)), logits)[0]


def exact_variances(mdp: arl.TabularMDP, logits: Tensor, sizes: tuple[int, ...]) -> dict[str, list[float]]:
    """Return n times the exact variance by baseline and n, relative to no baseline: Equations (6.6) and (6.10)."""
    policy, r = logits.softmax(-1), mdp.reward
    ahead = mdp.transition @ arl.policy_evaluation(mdp, policy)
    square = r**2 + 2 * r * ahead
    q, q2 = r + ahead, square + mdp.transition @ arl.policy_evaluation(replace(mdp, reward=square), policy)
    share = arl.state_visits(mdp, policy)[:, None] * policy * (1 - 2 * policy + (policy**2).sum(1, keepdim=True))
    mean, best = (policy[0] @ q[0]).item(), ((share * q).sum() / share.sum()).item()
    spread, length = (policy[0] @ q2[0]).item() - mean**2, exact_gradient(mdp, logits).pow(2).sum().item()
    moment = {b: (share * (q2 - 2 * b * q + b**2)).sum().item() for b in (0.0, mean, best)}
    none, pairs = moment[0.0] - length, moment[mean] + spread * share.sum().item()
    left_out = [((n - 2) * (moment[mean] - length) + pairs) / (n - 1) for n in sizes]
    return {
        "J": [(moment[mean] - length) / none for _ in sizes],
        "best constant": [(moment[best] - length) / none for _ in sizes],
        "leave one out": [value / none for value in left_out],
        "batch mean": [value * ((n - 1) / n) ** 2 / none for n, value in zip(sizes, left_out, strict=True)],
        "none": [none for _ in sizes],
    }


def estimates(mdp: arl.TabularMDP, logits: Tensor, n: int, source: torch.Generator) -> dict[str, Tensor]:
    """Return the estimates of CHUNK sampled batches of n episodes, [CHUNK, S * A], by baseline."""
    played = arl.sample_episodes(mdp, logits.softmax(-1), n * CHUNK, source, 5)
    scores = torch.nn.functional.one_hot(played.actions, len(mdp.actions)) - logits.softmax(-1)[played.states]
    rows = torch.arange(n * CHUNK)[:, None].expand_as(played.states)
    summed = torch.zeros(n * CHUNK, *logits.shape, dtype=arl.DTYPE)
    summed.index_put_((rows, played.states), played.mask[..., None] * scores, accumulate=True)
    returns = played.rewards.sum(1).view(CHUNK, n)
    centred = returns - returns.mean(1, keepdim=True)
    weights = {"leave one out": centred * n / (n - 1), "batch mean": centred}
    return {name: torch.einsum("bn,bnd->bd", w, summed.view(CHUNK, n, -1)) / n for name, w in weights.items()}


def measured_variances(mdp: arl.TabularMDP, logits: Tensor, none: float) -> dict[str, list[float]]:
    """Return n times the variance over BATCHES sampled batches by baseline and n, relative to no baseline."""
    found: dict[str, list[float]] = {"leave one out": [], "batch mean": []}
    for n in MEASURED:
        source, sums, squares = arl.generator(n), dict.fromkeys(found, torch.zeros(())), dict.fromkeys(found, 0.0)
        for _ in range(BATCHES // CHUNK):
            for name, some in estimates(mdp, logits, n, source).items():
                sums[name], squares[name] = sums[name] + some.sum(0), squares[name] + some.pow(2).sum().item()
        for name, values in found.items():
            spread = (squares[name] - sums[name].pow(2).sum().item() / BATCHES) / (BATCHES - 1)
            values.append(n * spread / none)
    return found


def record() -> None:
    """Compute and sample again, and write the data."""
    torch.set_num_threads(1)
    mdp, rows = arl.repair_mdp(), {}
    for name, logits in policies(mdp).items():
        exact = exact_variances(mdp, logits, EXACT)
        rows[name] = {"exact": exact, "measured": measured_variances(mdp, logits, exact["none"][0])}
    kept = {"exact": EXACT, "measured": MEASURED, "batches": BATCHES, "policies": rows}
    write_atomic(DATA, json.dumps(kept, indent=1, default=list) + "\n")


def in_words(data: dict[str, Any]) -> str:
    """Return what the curves show, for the description."""
    said = []
    for name, row in data["policies"].items():
        curves = row["exact"]
        ends = [
            f"{kind} from {curves[kind][0]:.2f} to {curves[kind][-1]:.2f}" for kind in ("leave one out", "batch mean")
        ]
        said.append(
            f"{name}: {' and '.join(ends)}; J {curves['J'][0]:.2f}; best constant {curves['best constant'][0]:.2f}"
        )
    return ". ".join(said) + "."


def panel(axes: Any, data: dict[str, Any], name: str) -> None:
    """Draw the curves of one policy."""
    row = data["policies"][name]
    axes.axhline(1, color=INK, linewidth=1, marker="none")
    axes.text(64, 1.02, "no baseline", ha="right", va="bottom", color=MUTED)
    for number, kind in enumerate(("leave one out", "batch mean", "J", "best constant")):
        color, dash, marker = SERIES[number]
        axes.plot(data["exact"], row["exact"][kind], color=color, linestyle=dash, marker="none", label=kind)
        if kind in row["measured"]:
            axes.plot(data["measured"], row["measured"][kind], color=color, linestyle="none", marker=marker)
    axes.set_xscale("log", base=2)
    axes.set_xticks([2, 4, 8, 16, 32, 64], ["2", "4", "8", "16", "32", "64"])
    axes.set_title(name)
    axes.set_xlabel("episodes in a batch, n")


def draw() -> str:
    """Return the figure's SVG."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    with chart_style():
        figure, axes = chart(760, 380, ncols=2, sharey=True)
        for place, name in enumerate(data["policies"]):
            panel(axes[place], data, name)
        axes[0].set_ylim(0, 2.05)
        axes[0].set_ylabel("n × variance, relative to no baseline")
        axes[1].legend(loc="upper right")
        return chart_svg(figure, "Variance by baseline", DESC.format(in_words(data)))


if __name__ == "__main__":
    raise SystemExit(command(__file__, __doc__, draw, record, "compute and sample again and rewrite the data"))
