"""Figure 3.3: the cost of one more token with and without a cache of keys and values, in operations and in time.

`python figures/ch03_cache_cost.py` draws the figure from figures/data/ch03-cache-cost.json. With `--record` it measures
first and rewrites that file (about a minute): TinyAgent as in Chapter 3, one sequence at a time, one thread, the two
ways in turn, and the median of many repetitions. Times depend on the machine; their ratio much less.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "scripts"), str(Path(__file__).resolve().parents[1])]

from bookkit import figures as fig
from bookkit.notebook import write_atomic

DATA = Path(__file__).resolve().parent / "data" / "ch03-cache-cost.json"
VOCABULARY, LENGTHS, REPETITIONS = 88, range(36, 121, 12), 400
DESC = (
    "Two panels with the number of tokens in the context on the horizontal axis. Left, on a logarithmic scale, the "
    "floating-point operations of the next token: with the cache a nearly level line, without it a line more than "
    "thirty times higher that rises. Right, the measured time without the cache divided by the time with it: it rises "
    "with the context and stays far below the ratio of the operations."
)


def flops(length: int, cached: bool) -> int:
    """Return the operations of the matrix products that give the logits after a context of `length` tokens."""
    width, layers, ratio = 64, 2, 2
    token = layers * (2 * (4 + 2 * ratio) * width**2 + 4 * length * width)
    return 2 * width * VOCABULARY + (1 if cached else length) * token


def measured(length: int) -> float:
    """Return the median time of one more token without a cache over the median with one."""
    import torch

    import agentrl as arl

    torch.set_num_threads(1)
    model = arl.TinyAgent(arl.TinyAgentConfig(VOCABULARY), arl.generator(0))
    ids = torch.randint(VOCABULARY, (1, length), generator=arl.generator(1))
    cache = arl.KVCache(model, 1)
    model.features(ids[:, :-1], cache=cache)

    def with_cache() -> None:
        cache.lengths.fill_(length - 1)
        model.logits(model.features(ids[:, -1:], cache=cache)[:, -1])

    def without_cache() -> None:
        model.logits(model.features(ids)[:, -1])

    pairs = [(_seconds(without_cache), _seconds(with_cache)) for _ in range(REPETITIONS)]
    whole, step = zip(*pairs, strict=True)
    return median(whole) / median(step)


def _seconds(action: Callable[[], None]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def record() -> None:
    """Measure every length and write the data file."""
    import torch

    with torch.no_grad():
        ratios = [round(measured(length), 2) for length in LENGTHS]
    about = {
        "what": "time of one more token without a cache over the time with one, by tokens in the context",
        "recorded_on": "one x86-64 machine, one thread, float64",
        "repetitions": REPETITIONS,
    }
    write_atomic(DATA, json.dumps({"about": about, "lengths": list(LENGTHS), "time_ratio": ratios}, indent=1) + "\n")


def draw() -> str:
    """Return the figure's SVG."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    with fig.chart_style():
        figure, axes = fig.chart(760, 360, ncols=2)
        _operations(axes[0], data["lengths"])
        axes[1].plot(data["lengths"], data["time_ratio"], **_look(2))
        axes[1].set_title("measured time")
        axes[1].set_ylabel("without the cache / with it")
        axes[1].set_ylim(0)
        for axis in axes:
            axis.set_xlabel("tokens in the context")
            axis.set_xticks(data["lengths"][::2])
        return fig.chart_svg(figure, "Cost of one more token with and without a cache", DESC)


def _operations(axis: Any, lengths: Sequence[int]) -> None:
    """Draw the left panel, each line with its name beside it."""
    for number, (name, cached) in enumerate([("with the cache", True), ("without", False)]):
        costs = [flops(length, cached) for length in lengths]
        axis.plot(lengths, costs, **_look(number))
        axis.text(lengths[0], costs[0] * (2.4 if number else 1.35), name, ha="left", va="bottom")
    axis.set_yscale("log")
    axis.set_ylim(1e5, 1e8)
    axis.set_title("operations")
    axis.set_ylabel("floating-point operations")


def _look(number: int) -> Any:
    return dict(zip(("color", "linestyle", "marker"), fig.SERIES[number], strict=True))


if __name__ == "__main__":
    about = "measure again and rewrite the data (about a minute)"
    raise SystemExit(fig.command(__file__, __doc__, draw, record, about))
