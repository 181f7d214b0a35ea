"""Measure TinyAgent beside transformer models of the same shape, interleaved in one run: generating and training.

Times are CPU seconds of this process, whose torch has one thread: on an idle machine what a clock on the wall shows, on
a busy one not the others' work too. What is compared is ratios within one round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
from rich.table import Table

BASE = "TinyAgent"
DTYPES = {"float64": torch.float64, "float32": torch.float32}
WORK = ("generate", "train")
LEARNING_RATE = 2e-3
MISSING = "transformers is not installed, so TinyAgent stands alone: pip install '.[labs]'"


@dataclass(frozen=True)
class Shape:
    """The model's sizes, and how much each measurement generates and trains on, for at least `seconds`."""

    vocab: int = 180
    width: int = 64
    layers: int = 2
    heads: int = 4
    hidden: int = 128
    prompt: int = 32
    new: int = 32
    rows: int = 64
    seconds: float = 0.5

    @property
    def positions(self) -> int:
        """Return the length of the longest sequence."""
        return self.prompt + self.new


@dataclass(frozen=True)
class Contender:
    """A model to measure. `generate` and `train` do one batch and return its tokens."""

    name: str
    dtype: str
    parameters: int
    generate: Callable[[], int]
    train: Callable[[], int]

    @property
    def row(self) -> str:
        """Return what stands in the table."""
        return f"{self.name}, {self.dtype}"


@dataclass
class PolicyReport:
    """What was measured: the shape, each row's parameters, and its tokens a second by kind of work, round by round."""

    machine: dict[str, Any]
    shape: Shape
    parameters: dict[str, int] = field(default_factory=dict)
    rates: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def ratios(self, row: str, work: str) -> list[float]:
        """Return, round by round, this row's rate over that of TinyAgent in the same precision."""
        base = f"{BASE}, {row.rpartition(', ')[2]}"
        return [rate / of for rate, of in zip(self.rates[row][work], self.rates[base][work], strict=True)]

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values, ready for JSON."""
        return asdict(self)


def bench_policy(machine: dict[str, Any], shape: Shape, rounds: int, say: Callable[[str], None]) -> PolicyReport:
    """Measure every contender on both kinds of work, `rounds` times, starting each round with another one."""
    if find_spec("transformers") is None:
        say(MISSING)
    with one_thread():
        todo = contenders(shape)
        report = PolicyReport(machine, shape, {contender.row: contender.parameters for contender in todo})
        report.rates = {contender.row: {work: [] for work in WORK} for contender in todo}
        for contender in todo:
            contender.generate()  # what only the first batch has to do is not measured
            contender.train()
        for number in range(rounds):
            shift = number % len(todo)
            for contender in (*todo[shift:], *todo[:shift]):
                for work in WORK:
                    report.rates[contender.row][work].append(rate(getattr(contender, work), shape.seconds))
            say(f"round {number + 1} of {rounds}")
    return report


@contextmanager
def one_thread() -> Iterator[None]:
    """Give torch one thread for as long as this lasts."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def rate(work: Callable[[], int], seconds: float) -> float:
    """Return tokens a second of CPU time, from as many batches as take that long."""
    tokens, started = 0, time.process_time()
    while (passed := time.process_time() - started) < seconds or not tokens:
        tokens += work()
    return tokens / max(passed, 1e-9)


def contenders(shape: Shape) -> list[Contender]:
    """Return TinyAgent, and where transformers is installed its models too, each in both precisions."""
    made = [tiny_agent(shape, dtype) for dtype in DTYPES]
    if find_spec("transformers") is not None:
        made += [peer(shape, name, dtype) for name in ("Llama", "GPT-2") for dtype in DTYPES]
    return made


def tiny_agent(shape: Shape, dtype: str) -> Contender:
    """Return TinyAgent as the book uses it: its own cache and sampling, Adam, weights snapped to the grid."""
    import agentrl as arl

    config = arl.TinyAgentConfig(
        shape.vocab, shape.width, shape.layers, shape.heads, shape.hidden // shape.width, shape.positions
    )
    model = arl.TinyAgent(config, arl.generator(0)).to(DTYPES[dtype])
    ids, mask = _ids(shape), torch.ones(shape.rows, shape.positions, dtype=torch.bool)
    prompts = ids[:, : shape.prompt].tolist()
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE, foreach=False)

    def generate() -> int:
        streams = arl.split_generator(arl.generator(1), shape.rows)
        return sum(map(len, arl.generate(model, prompts, streams, shape.new).ids))

    def train() -> int:
        optimizer.zero_grad()
        (-arl.token_logprobs(model, ids, mask).sum() / _predicted(ids)).backward()
        optimizer.step()
        arl.snap_(model.parameters())
        return _predicted(ids)

    return Contender(BASE, dtype, _count(model), generate, train)


def peer(shape: Shape, name: str, dtype: str) -> Contender:
    """Return a model of transformers with the same sizes, which generates with the library's own `generate`."""
    model = _peer_model(shape, name).to(DTYPES[dtype])
    ids = _ids(shape)
    prompts = ids[:, : shape.prompt]
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE, foreach=False)
    plain = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0, "use_cache": True}
    length = {"max_new_tokens": shape.new, "min_new_tokens": shape.new}

    def generate() -> int:
        with torch.random.fork_rng(devices=[]):
            made = model.generate(prompts, attention_mask=torch.ones_like(prompts), **plain, **length)
        return made[:, shape.prompt :].numel()

    def train() -> int:
        optimizer.zero_grad()
        logits = model(input_ids=ids, use_cache=False).logits
        torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimizer.step()
        return _predicted(ids)

    return Contender(f"{name} of transformers", dtype, _count(model), generate, train)


def _peer_model(shape: Shape, name: str) -> Any:
    """Return a fresh model without dropout, with a head of its own, that knows no token as an end."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    ends: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0, "tie_word_embeddings": False}
    if name == "Llama":
        return transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=shape.vocab,
                hidden_size=shape.width,
                num_hidden_layers=shape.layers,
                num_attention_heads=shape.heads,
                intermediate_size=shape.hidden,
                max_position_embeddings=shape.positions,
                **ends,
            )
        )
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=shape.vocab,
            n_embd=shape.width,
            n_layer=shape.layers,
            n_head=shape.heads,
            n_inner=shape.hidden,
            n_positions=shape.positions,
            **dropout,
            **ends,
        )
    )


def _ids(shape: Shape) -> torch.Tensor:
    """Return the rows everybody continues and trains on."""
    return torch.randint(shape.vocab, (shape.rows, shape.positions), generator=torch.Generator().manual_seed(0))


def _predicted(ids: torch.Tensor) -> int:
    """Return how many tokens of the rows are predicted: all but the first of each."""
    return ids[:, 1:].numel()


def _count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def policy_table(report: PolicyReport) -> Table:
    """Return the rows side by side: median rates, and the median of the ratios to TinyAgent in the same precision."""
    shape, rounds = report.shape, len(next(iter(report.rates.values()))["train"])
    made = Table(
        title=f"{shape.layers} layers of width {shape.width}, {shape.rows} rows of {shape.positions} tokens, "
        f"{rounds} round(s), one thread",
        caption=f"tokens a second of CPU time; ×: median over the rounds of the ratio to “{BASE}” in that precision",
    )
    made.add_column("model", no_wrap=True)
    for column in ("parameters", "generated/s", "×", "trained/s", "×"):
        made.add_column(column, justify="right")
    for row, rates in report.rates.items():
        cells: list[str] = []
        for work in WORK:
            ratio = statistics.median(report.ratios(row, work))
            cells += [f"{statistics.median(rates[work]):,.0f}", f"{ratio:.2f}"]
        made.add_row(row, f"{report.parameters[row]:,}", *cells)
    return made
