"""The small true book that the mutations are made of: what its cells record is what they print.

Five chapters: two save, four import what earlier ones saved, one shows a figure, one reads a data file, and one has
solutions. `write(root)` puts it on disk with its built library.
"""

from __future__ import annotations

import copy
from pathlib import Path

from synthetic import CellDict, code, md, write_book, write_chapter

from bookkit.library import build, write_package
from bookkit.notebook import load_book, write_atomic

SOFTMAX = '''#@save
import math


def softmax(logits: list[float]) -> list[float]:
    """Return the probabilities that belong to the logits."""
    top = max(logits)
    weights = [math.exp(logit - top) for logit in logits]
    return [weight / sum(weights) for weight in weights]'''
ENTROPY = '''#@save
def entropy(probabilities: list[float]) -> float:
    """Return the entropy of a distribution in nats."""
    return -sum(p * math.log(p) for p in probabilities if p > 0)'''
RETURNS = '''#@save
DISCOUNT = 0.9


def returns(rewards: list[float], discount: float = DISCOUNT) -> list[float]:
    """Return the discounted sum of rewards from each step on."""
    total, found = 0.0, []
    for reward in reversed(rewards):
        total = reward + discount * total
        found.append(total)
    return found[::-1]'''
TABLE = """step = 0
for value in [-1.5, -0.25, 0.0, 0.75]:
    step += 1
    print(f"step {step:2d}  value {value:6.3f}  gain {value * 2 + 1:+.2f}")"""
LOOP = """weight, rate = 4.0, 0.25
for epoch in range(4):
    weight -= rate * 2 * weight
    print("epoch", epoch, "weight", round(weight, 4))"""
TOOLS_READ = "tool read\ntool edit\ntool test\n"
FIGURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 9 9"><title>Loop</title><desc>A ring.</desc></svg>'
)
RUN_CHAPTER = "%%capture\n%run ../01-credit.ipynb"
STUB = "def last(values):\n    raise NotImplementedError"
SOLUTION = "def last(values):\n    return values[-1]"
TEST = "assert last([1, 2, 3]) == 3\nprint('exercise 1.1: passed')"

CHAPTERS: dict[str, list[CellDict]] = {
    "00-choices": [
        md("title", "# Choices"),
        code("softmax", SOFTMAX),
        code("uniform", "print([round(p, 3) for p in softmax([0.0, 0.0])])", "[0.5, 0.5]\n"),
        code("peaked", "print(*(f'{p:.4f}' for p in softmax([2.0, 1.0, -1.0])))", "0.7054 0.2595 0.0351\n"),
        code("entropy", ENTROPY),
        code("bits", "print(f'entropy {entropy([0.5, 0.5]):.6f} nats')", "entropy 0.693147 nats\n"),
        code("words", "print('Größe: ½ · naïve policy, café reward')", "Größe: ½ · naïve policy, café reward\n"),
    ],
    "01-credit": [
        md("title", "# Credit\n\n![A ring of four boxes: agent, action, environment, reward.](../figures/loop.svg)"),
        code("library", "import agentrl as arl"),
        code("returns", RETURNS),
        code("three", "print([round(g, 2) for g in returns([0.0, 0.0, 1.0])])", "[0.81, 0.9, 1.0]\n"),
        code("losses", "print(f'loss {-1.25:.3f}, bonus {0.5:+.1f}')", "loss -1.250, bonus +0.5\n"),
        code("rest", "print('rest', -0.125, '+1 -2')", "rest -0.125 +1 -2\n"),
        code("odds", "print([round(p, 2) for p in arl.softmax([1.0, 0.0])])", "[0.73, 0.27]\n"),
    ],
    "02-data": [
        md("title", "# Data"),
        code("library", "import agentrl as arl"),
        code("read", "rewards = [float(line) for line in open('data/rewards.txt')]"),
        code("size", "print(len(rewards), sum(rewards))", "3 1.5\n"),
        code("discounted", "print(*(round(g, 3) for g in arl.returns(rewards)))", "1.31 0.9 1.0\n"),
        code("lines", "for tool in ['read', 'edit', 'test']:\n    print('tool', tool)", TOOLS_READ),
        code("quiet", "best = max(rewards)"),
        code("best", "print('best reward', best)", "best reward 1.0\n"),
    ],
    "03-training": [
        md("title", "# Training"),
        code(
            "table", TABLE,
            "step  1  value -1.500  gain -2.00\nstep  2  value -0.250  gain +0.50\n"
            "step  3  value  0.000  gain +1.00\nstep  4  value  0.750  gain +2.50\n",
        ),
        code("loop", LOOP, "epoch 0 weight 2.0\nepoch 1 weight 1.0\nepoch 2 weight 0.5\nepoch 3 weight 0.25\n"),
        code("bar", "for n in (10, 50, 100):\n    print(f'\\r{n:3d} % done', end='')\nprint()", "100 % done\n"),
        code("no-newline", "print('seed 7, success 0.75', end='')", "seed 7, success 0.75"),
        code("zero", "print('advantage', 0.0, 'baseline', 0.0)", "advantage 0.0 baseline 0.0\n"),
    ],
    "04-together": [
        md("title", "# Together"),
        code("library", "import agentrl as arl\nlogits = [0.0, -1.0]"),
        code("policy", "print('policy', [round(p, 3) for p in arl.softmax(logits)])", "policy [0.731, 0.269]\n"),
        code("advantage", "print(f'advantage {arl.returns([1.0, -1.0])[0]:.2f}')", "advantage 0.10\n"),
        code("settings", "settings = {'discount': arl.DISCOUNT, 'steps': 24}"),
        code("show", "for key, value in settings.items():\n    print(key, value)", "discount 0.9\nsteps 24\n"),
        code("entropy-now", "print(round(arl.entropy([0.25] * 4), 3))", "1.386\n"),
    ],
}  # fmt: skip
SOLUTIONS: list[CellDict] = [
    code("setup", RUN_CHAPTER),
    code("stub", STUB, role="stub", exercise="1.1"),
    code("solution", SOLUTION, role="solution", exercise="1.1"),
    code("test", TEST, "exercise 1.1: passed\n", role="test", exercise="1.1"),
    code("state", "print(last(returns([1.0, 2.0])))", "2.0\n"),
]


def write(root: Path, library: bool = True) -> Path:
    """Write the book below `root`, with its built library, and return `root`."""
    write_book(root, CHAPTERS)
    write_chapter(root, "01-credit", SOLUTIONS, kind="solutions")
    write_atomic(root / "chapters" / "data" / "rewards.txt", "0.5\n0.0\n1.0\n")
    write_atomic(root / "figures" / "loop.svg", FIGURE + "\n")
    if library:
        write_package(build(load_book(root)), root / "agentrl")
    return root


def cells_of(chapter: str) -> list[CellDict]:
    """Return a copy of a chapter's cells for another place in the book: there it saves nothing, and runs the same."""
    cells = copy.deepcopy(CHAPTERS[chapter])
    for cell in cells:
        cell["source"] = cell["source"].removeprefix("#@save\n")
    return cells
