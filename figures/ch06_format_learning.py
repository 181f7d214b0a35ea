"""Figure 6.2: learning the call grammar from reward alone, from figures/data/ch06-format-learning.json.

`python figures/ch06_format_learning.py` draws the figure. With `--record` it first trains five seeds again, as §6.5
does with three and fewer updates (about a minute of CPU), and rewrites that file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import torch

import agentrl as arl
from bookkit.figures import chart, chart_style, chart_svg, command
from bookkit.notebook import write_atomic

DATA = Path(__file__).resolve().parent / "data" / "ch06-format-learning.json"
SEEDS, UPDATES, BATCH = (0, 1, 2, 3, 4), 100, 256
END = 2
LEGAL = [[1, 3 + tool, END] for tool in range(3)] + [[1, 6, 7 + edit, END] for edit in range(len(arl.EDIT_OPS))]
DESC = (
    "Share of legal calls in each batch of {batch} turns against the number of updates, for five seeds. Each curve "
    "stays at 0 until a legal call is sampled, then rises steeply. First legal call and share at the end: {ends}."
)


def learn_format(seed: int, updates: int = UPDATES) -> list[int]:
    """Return the number of legal calls in each batch of a training from the first weights on: §6.5's `learn_format`."""
    source, legal = arl.generator(seed), []
    config = arl.TinyAgentConfig(7 + len(arl.EDIT_OPS), width=32, heads=2, max_positions=8)
    agent = arl.TinyAgent(config, source)
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, betas=(0.9, 0.95), foreach=False)
    for _ in range(updates):
        written = arl.generate(agent, [[0]] * BATCH, arl.split_generator(source, BATCH), 5, stop=END).ids
        rewards = torch.tensor([float(turn in LEGAL) for turn in written], dtype=arl.DTYPE)
        legal.append(int(rewards.sum()))
        ids, attention = arl.pad_rows([[0, *turn] for turn in written])
        mask = arl.has_past(attention)
        advantages = (rewards - rewards.mean()) * BATCH / (BATCH - 1)
        optimizer.zero_grad()
        arl.policy_gradient_loss(arl.token_logprobs(agent, ids, attention, mask), advantages, mask).backward()
        arl.apply_gradient(optimizer)
    return legal


def record() -> None:
    """Train again and write the data."""
    torch.set_num_threads(1)
    rows = {str(seed): learn_format(seed) for seed in SEEDS}
    write_atomic(DATA, json.dumps({"batch": BATCH, "legal": rows}) + "\n")


def draw() -> str:
    """Return the figure's SVG."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    ends = []
    with chart_style():
        figure, axes = chart(760, 340)
        for seed, legal in data["legal"].items():
            axes.plot([count / data["batch"] for count in legal], label=f"seed {seed}", markevery=10)
            first = next(number for number, count in enumerate(legal) if count)
            ends.append(f"seed {seed} batch {first}, {legal[-1] / data['batch']:.2f}")
        axes.set_xlabel("updates")
        axes.set_ylabel("share of legal calls")
        axes.set_ylim(-0.03, 1.03)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        desc = DESC.format(batch=data["batch"], ends="; ".join(ends))
        return chart_svg(figure, "Learning the call grammar from reward", desc)


if __name__ == "__main__":
    raise SystemExit(command(__file__, __doc__, draw, record, "train again and rewrite the data (about a minute)"))
