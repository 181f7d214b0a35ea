"""Chapter 5 · Trajectories, Templates and Masks.

How does a multi-turn episode become training tensors?

Built from chapters/05-trajectories-and-templates.ipynb by scripts/build_library.py.
Do not edit: change the chapter and run `make library`.
"""

import base64
import hashlib
import json
import math
import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import lru_cache, partial
from html import escape
from itertools import accumulate, groupby, pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import torch
from torch import Tensor

from agentrl.bugfix_gym import EDIT_OPS, BugFixEnv, BugFixTask, InfrastructureError, Transcript, bugfix_tasks
from agentrl.notation import DTYPE, generator
from agentrl.tiny_agent import (
    QWEN3_MARKERS,
    QWEN3_SPECIAL,
    KVCache,
    LabelledBatch,
    TinyAgent,
    TinyTokenizer,
    byte_vocabulary,
    check_transform,
    generate,
    has_past,
    pad_rows,
    sampling_distribution,
    scored_logits,
    split_controls,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = [
    "WRITERS",
    "ENDINGS",
    "GYM_CONTROLS",
    "gym_env",
    "gym_tokenizer",
    "message_parts",
    "encode_transcript",
    "TokenColumns",
    "Trajectory",
    "labelled_batch",
    "recomputed_logprobs",
    "check_logprobs",
    "DriftPlace",
    "DriftReport",
    "retokenization_drift",
    "render_chat",
    "EncodedChat",
    "encode_chat",
    "PrefixReport",
    "written_text",
    "is_prefix_stable",
    "ChatSamples",
    "encode_chats",
    "continue_chat",
    "sampled_turn",
    "cut_to",
    "TrajectoryBatch",
    "collate",
    "same_trajectory",
    "episode_stream",
    "rollout",
    "TokenStrip",
    "token_strip",
]

# chapters/05-trajectories-and-templates.ipynb · cell saved-writers

# Who wrote a token, and how an episode can end.
WRITERS = ("prompt", "template", "policy", "tool")
ENDINGS = ("submitted", "out_of_turns", "out_of_context", "infrastructure")
_PROMPT, _TEMPLATE, _POLICY, _TOOL = range(len(WRITERS))
# TinyAgent's controls: the start of a sequence, the two ends of a call, the two ends of an observation.
GYM_CONTROLS = ("<bos>", "<call>", " </call>", "<obs>", "</obs>")
# What is kept for each token.
_COLUMN_TYPES = {
    "ids": torch.int64,
    "action_mask": torch.bool,
    "logprobs": DTYPE,
    "writer": torch.int64,
    "turn": torch.int64,
}

# chapters/05-trajectories-and-templates.ipynb · cell saved-gym-texts

# A call of each tool but edit, and a message that is malformed in each way.
_GYM_CALLS = ("<call> read </call>", "<call> test </call>", "<call> submit </call>")
_MALFORMED = (
    *("", "<call> read", "<call> read </call> <call> test </call>", "now <call> read </call>", "<call>read </call>"),
    *("<call> fly </call>", "<call> edit </call>", "<call> read all </call>", "<call> edit nothing </call>"),
)


def gym_env(task: BugFixTask, generator: torch.Generator | None = None) -> BugFixEnv:
    """Return the environment in which TinyAgent plays a task: the gym with short observations, and without chance."""
    return BugFixEnv(task, detail="short")


def _gym_texts(task: BugFixTask) -> list[str]:
    """Return what an agent may write and read on a task: each edit, and what each call answers after it."""
    env, texts = gym_env(task), []
    for edit in [f"<call> edit {op} </call>" for op in EDIT_OPS]:
        texts += [edit, env.reset()]
        texts += [env.step(call).observation for call in ("<call> read </call>", edit, *_GYM_CALLS)]
    return texts


# chapters/05-trajectories-and-templates.ipynb · cell saved-gym-tokenizer
def gym_tokenizer(tasks: Sequence[BugFixTask] | None = None) -> TinyTokenizer:
    """Return TinyAgent's tokenizer for the gym: one id for each control, tool, op, digit, and piece of what it reads.

    `tasks` are those of `bugfix_tasks()` if not given; `gym_env` says what is read. Other words are spelled.
    """
    tasks = bugfix_tasks() if tasks is None else tasks
    texts = [*_GYM_CALLS, "0123456789", " 0 1 2 3 4 5 6 7 8 9", *(text for task in tasks for text in _gym_texts(task))]
    for message in _MALFORMED if tasks else ():
        env = gym_env(tasks[0])
        texts += [env.reset(), env.step(message).observation]
    inner = [part for text in texts for part in split_controls(text, GYM_CONTROLS) if part not in GYM_CONTROLS]
    return TinyTokenizer.build(inner, GYM_CONTROLS)


# chapters/05-trajectories-and-templates.ipynb · cell saved-message-parts
def message_parts(tokenizer: TinyTokenizer, who: str, text: str) -> list[tuple[int, list[int]]]:
    """Return a message as parts (writer, ids): its own tokens and, around a tool's, those of the template.

    `who` is "prompt", "policy" or "tool". Controls are read in the policy's text only: give it none from outside.
    """
    if who == "policy":
        return [(_POLICY, tokenizer.encode(text, controls=True))]
    ids = tokenizer.encode(text.encode(errors="replace").decode())  # half a surrogate pair has no UTF-8: "?" instead
    if who == "prompt":
        return [(_PROMPT, ids)]
    if who != "tool":
        raise ValueError(f"a message of {who!r}; it must be of 'prompt', 'policy' or 'tool'")
    return [(_TEMPLATE, [tokenizer.control["<obs>"]]), (_TOOL, ids), (_TEMPLATE, [tokenizer.control["</obs>"]])]


# chapters/05-trajectories-and-templates.ipynb · cell saved-token-log
def _check_count(name: str, count: Any, least: int = 1) -> None:
    """Raise ValueError for what is no whole number of 64 bits, or one below `least`."""
    if type(count) is not int or not least <= count < 2**63:
        raise ValueError(f"{name} is {count!r}; it must be a whole number, at least {least} and below 2**63")


@dataclass
class _TokenLog:
    """The tokens of an episode while it grows, and for each what is known of it."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    writer: list[int] = field(default_factory=list)
    turn: list[int] = field(default_factory=list)
    turns: int = 0

    def write(self, writer: int, ids: Sequence[int], logprobs: Sequence[float] = ()) -> None:
        """Append tokens of the current turn; without log-probabilities nobody sampled them."""
        self.ids += ids
        self.logprobs += logprobs or [math.nan] * len(ids)
        self.writer += [writer] * len(ids)
        self.turn += [self.turns - 1] * len(ids)


# chapters/05-trajectories-and-templates.ipynb · cell saved-encode-transcript
def encode_transcript(
    tokenizer: TinyTokenizer, transcript: Transcript, limit: int | None = None
) -> tuple[list[int], list[int], list[int]]:
    """Return ids, writer and turn, each a list of T, of what the policy read and wrote in a transcript.

    A transcript holds pairs (who, text), as `run_episode` gives them. A tool's message at the end is left out: the
    policy never read it. So is the first message with which there would be more than `limit` tokens, and all after it.
    """
    _check_count("limit", 1 if limit is None else limit)
    log = _TokenLog()
    log.write(_PROMPT, [tokenizer.control["<bos>"]])
    for place, (who, text) in enumerate(transcript):
        parts = message_parts(tokenizer, who, text)
        needed = len(log.ids) + sum(len(ids) for _, ids in parts)
        if (who == "tool" and place == len(transcript) - 1) or (limit is not None and needed > limit):
            break
        log.turns += who == "policy"
        for writer, ids in parts:
            log.write(writer, ids)
    return log.ids, log.writer, log.turn


# chapters/05-trajectories-and-templates.ipynb · cell saved-token-columns
@dataclass(frozen=True, eq=False)
class TokenColumns:
    """What is known of each token of a trajectory, [T], or of several in a table, [B, T].

    `ids` int64; `action_mask` bool, true where the policy sampled the token and it is trained; `logprobs` float64,
    recorded at sampling; `writer` int64, an index into `WRITERS`; `turn` int64, counted from 0, -1 before the first.
    """

    ids: Tensor
    action_mask: Tensor
    logprobs: Tensor
    writer: Tensor
    turn: Tensor

    def __len__(self) -> int:
        return len(self.ids)


# chapters/05-trajectories-and-templates.ipynb · cell saved-trajectory
@dataclass(frozen=True, eq=False)
class Trajectory(TokenColumns):
    """One episode for a learner: columns [T] and what is known of the whole.

    `logprobs` is nan where nothing was sampled, and nowhere else. `reward` is None if `ended` is "infrastructure", and
    only then; `ended` is one of `ENDINGS`. `info` holds plain values. TypeError or ValueError says what cannot be, and
    at which position. The tensors are kept as they are, not copied.
    """

    reward: float | None
    ended: str
    task_id: int
    attempt: int
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_columns(self)
        _check_tokens(self)
        _check_ending(self)


# chapters/05-trajectories-and-templates.ipynb · cell saved-check-columns
def _check_columns(trajectory: Trajectory) -> None:
    """Raise TypeError for a column of another type, ValueError for one of another shape or with a gradient."""
    for name, dtype in _COLUMN_TYPES.items():
        column = getattr(trajectory, name)
        if not isinstance(column, Tensor) or column.dtype != dtype:
            found = column.dtype if isinstance(column, Tensor) else type(column).__name__
            raise TypeError(f"{name} is {found}; it must be a tensor of {dtype}")
        if column.requires_grad:
            raise ValueError(f"{name} requires a gradient; a record is of numbers: detach it")
        if column.dim() != 1 or column.shape != trajectory.ids.shape:
            raise ValueError(
                f"{name} has shape {list(column.shape)}, ids {list(trajectory.ids.shape)}; both must be [T]"
            )


# chapters/05-trajectories-and-templates.ipynb · cell saved-check-ending
def _check_ending(trajectory: Trajectory) -> None:
    """Raise ValueError for a task, an attempt or an ending that cannot be, or a reward that does not go with it."""
    _check_count("task_id", trajectory.task_id, 0)
    _check_count("attempt", trajectory.attempt, 0)
    reward, ended = trajectory.reward, trajectory.ended
    if ended not in ENDINGS:
        raise ValueError(f"ended is {ended!r}; it must be one of {', '.join(ENDINGS)}")
    if (reward is None) != (ended == "infrastructure"):
        raise ValueError(f"reward {reward} and ended {ended!r}: an infrastructure failure, and nothing else, has none")
    if reward is not None and not (isinstance(reward, Real) and math.isfinite(reward)):
        raise ValueError(f"the reward is {reward!r}; it must be a finite number, or None for an infrastructure failure")


# chapters/05-trajectories-and-templates.ipynb · cell saved-contradictions
def _contradictions(trajectory: Trajectory) -> dict[str, Tensor]:
    """Return for each way in which the columns can contradict one another the positions where they do, bool [T]."""
    mask, logprobs, sampled = trajectory.action_mask, trajectory.logprobs, ~trajectory.logprobs.isnan()
    writer, turn, steps = trajectory.writer, trajectory.turn, trajectory.turn.diff(prepend=torch.tensor([-1]))
    return {
        "a negative id": trajectory.ids < 0,
        f"a writer that is no index into {WRITERS}": (writer < 0) | (writer >= len(WRITERS)),
        "an action that the policy did not write": mask & (writer != _POLICY),
        "an action without a log-probability": mask & ~sampled,
        "a log-probability without an action": sampled & ~mask,
        "a log-probability that is above 0 or infinite": sampled & ~((logprobs <= 0) & logprobs.isfinite()),
        "an action with nothing before it": mask & (torch.arange(len(mask)) == 0),
        "a turn below -1, smaller than the one before, or after one left out": (steps < 0) | (steps > 1),
        "a token of policy or tool outside all turns": (turn < 0) & (writer >= _POLICY),
        "a token of the prompt inside a turn": (turn >= 0) & (writer == _PROMPT),
    }


# chapters/05-trajectories-and-templates.ipynb · cell saved-check-tokens
def _check_tokens(trajectory: Trajectory) -> None:
    """Raise ValueError with the first position where the columns contradict one another, and how they do."""
    found = _contradictions(trajectory)
    there = torch.stack(list(found.values()))
    if there.any():
        place = int(there.any(0).nonzero()[0])
        reasons = [reason for reason, positions in found.items() if positions[place]]
        raise ValueError(f"position {place}: {'; '.join(reasons)}")


# chapters/05-trajectories-and-templates.ipynb · cell saved-labelled-batch
def labelled_batch(
    tokenizer: TinyTokenizer, transcripts: Iterable[Transcript], limit: int | None = None
) -> LabelledBatch:
    """Return transcripts as a batch for `warm_start`: ids, attention mask, and true where the policy wrote, [B, T].

    `limit` goes to `encode_transcript`.
    """
    rows = [encode_transcript(tokenizer, transcript, limit) for transcript in transcripts]
    ids, attention_mask = pad_rows([ids for ids, _, _ in rows])
    writer, _ = pad_rows([writer for _, writer, _ in rows], fill=-1)
    return ids, attention_mask, writer == _POLICY


# chapters/05-trajectories-and-templates.ipynb · cell saved-recomputed
def recomputed_logprobs(
    model: TinyAgent, ids: Tensor, attention_mask: Tensor, action_mask: Tensor, **transform: Any
) -> Tensor:
    """Return the log-probabilities of the actions under the distribution the model samples from, [B, T], 0.0 elsewhere.

    All arguments are [B, T]; `transform` goes to `sampling_distribution`. A token that it cuts off gets -inf. Not for
    gradients through top-k and top-p.
    """
    probabilities = sampling_distribution(scored_logits(model, ids, attention_mask, action_mask), **transform)
    chosen = probabilities.gather(-1, ids[action_mask][:, None])[:, 0].log()
    return torch.zeros(ids.shape, dtype=chosen.dtype).masked_scatter(action_mask, chosen)


# chapters/05-trajectories-and-templates.ipynb · cell saved-check-covered
def _check_covered(batch: Any) -> None:
    """Raise ValueError with row and position of the first token that the policy wrote and the mask leaves out."""
    wrote = (batch.writer == _POLICY) & has_past(batch.attention_mask)
    left_out = (wrote & ~batch.action_mask).nonzero().tolist()
    if left_out:
        row, at = left_out[0]
        count = f"{len(left_out)} of its {int(wrote.sum())} tokens"
        raise ValueError(f"row {row}, position {at}: the policy wrote it and it is no action; {count} are left out")


def _check_close(batch: Any, again: Tensor, gaps: Tensor, tolerance: float) -> None:
    """Raise ValueError with row, position and both values of the worst of the gaps, if one is above the tolerance."""
    wrong = ~(gaps <= tolerance)  # true for nan too
    if wrong.any():
        worst = int(gaps.nan_to_num(math.inf).argmax())
        row, at = batch.action_mask.nonzero()[worst].tolist()
        form = ".4f" if gaps[worst] > 1e-3 else ".12f"
        values = f"recorded {batch.logprobs[row, at]:{form}}, recomputed {again[row, at]:{form}}"
        raise ValueError(f"row {row}, position {at}: {values}; {int(wrong.sum())} of {len(gaps)} actions differ")


# chapters/05-trajectories-and-templates.ipynb · cell saved-check-logprobs
@torch.no_grad()
def check_logprobs(
    model: TinyAgent, batch: Any, tolerance: float = 1e-10, *, whole: bool = True, **transform: Any
) -> float:
    """Return the largest difference between recorded and recomputed log-probabilities of a batch's actions.

    `batch` has `ids`, `attention_mask`, `action_mask` and `logprobs`, all [B, T], as a `TrajectoryBatch` has; 0.0 if
    nothing in it is an action. Above the tolerance: ValueError with row, position and both values of the worst. If it
    has `writer` too: ValueError for a token of the policy that is no action; `whole=False` is for batches with such.
    """
    if whole and hasattr(batch, "writer"):
        _check_covered(batch)
    if not batch.action_mask.any():
        return 0.0
    again = recomputed_logprobs(model, batch.ids, batch.attention_mask, batch.action_mask, **transform)
    gaps = (again - batch.logprobs)[batch.action_mask].abs()
    _check_close(batch, again, gaps, tolerance)
    return gaps.max().item()


# chapters/05-trajectories-and-templates.ipynb · cell drift-place
class DriftPlace(NamedTuple):
    """A stretch that came back with other ids: the index of its first id, its kind, its pieces before and after.

    A piece is a token's text, or its bytes where they are no text alone; "½" and a digit is a half byte.
    """

    at: int
    kind: str
    before: list[str | bytes]
    after: list[str | bytes]


# chapters/05-trajectories-and-templates.ipynb · cell drift-report
@dataclass(frozen=True)
class DriftReport:
    """What decoding ids and encoding the text again did: the text, the new ids, the places that changed."""

    text: str
    again: list[int]
    places: list[DriftPlace]

    @property
    def changed(self) -> bool:
        """Whether any id changed."""
        return bool(self.places)

    @property
    def kinds(self) -> Counter[str]:
        """How many places of each kind there are."""
        return Counter(place.kind for place in self.places)


# chapters/05-trajectories-and-templates.ipynb · cell drift-tokens
_AnyTokenizer = Union[TinyTokenizer, "Tokenizer"]


@lru_cache(maxsize=1)
def _letter_bytes() -> dict[str, int]:
    """Return the byte that each letter of byte-level BPE stands for."""
    return byte_vocabulary(b"\n".join(base64.b64encode(bytes([byte])) + b" %d" % byte for byte in range(256)))


def _hex(tokenizer: _AnyTokenizer, id: int) -> str:
    """Return the bytes of a token in hexadecimal; a half byte is one digit."""
    if isinstance(tokenizer, TinyTokenizer):
        string, half = tokenizer.strings[id], id - len(tokenizer.control)
        return string if 0 <= half < 16 else string.encode().hex()
    token, known = tokenizer.id_to_token(id) or "", _letter_bytes()
    is_text = not known.keys() >= {*token}  # an added token, written as it is
    return token.encode().hex() if is_text else bytes(known[letter] for letter in token).hex()


# chapters/05-trajectories-and-templates.ipynb · cell drift-codec
def _decode(tokenizer: _AnyTokenizer, ids: Sequence[int]) -> str:
    """Return the text of ids, controls included."""
    tiny = isinstance(tokenizer, TinyTokenizer)
    return tokenizer.decode(ids) if tiny else tokenizer.decode(ids, skip_special_tokens=False)


def _encode_again(tokenizer: _AnyTokenizer, text: str) -> list[int]:
    """Return the ids of a text in which controls are read as controls, as a program does that keeps only text."""
    tiny = isinstance(tokenizer, TinyTokenizer)
    return tokenizer.encode(text, controls=True) if tiny else tokenizer.encode(text, add_special_tokens=False).ids


def _control_ids(tokenizer: _AnyTokenizer) -> set[int]:
    """Return the ids of the controls."""
    tiny = isinstance(tokenizer, TinyTokenizer)
    return set(tokenizer.control.values()) if tiny else set(tokenizer.get_added_tokens_decoder())


# chapters/05-trajectories-and-templates.ipynb · cell drift-pieces
def _fragment(tokenizer: _AnyTokenizer, id: int) -> str:
    """Return the bytes of a token that is no text alone in hexadecimal, one digit for a half byte, else ""."""
    written = _hex(tokenizer, id)
    return "" if _decode(tokenizer, [id]).encode().hex() == written else written


def _piece(tokenizer: _AnyTokenizer, id: int) -> str | bytes:
    """Return what a token says, as a `DriftPlace` has it."""
    if not (fragment := _fragment(tokenizer, id)):
        return _decode(tokenizer, [id])
    return f"½{fragment}" if len(fragment) == 1 else bytes.fromhex(fragment)


# chapters/05-trajectories-and-templates.ipynb · cell drift-same
def _with_same_tokens(
    ends: list[tuple[int, int]], before: Sequence[str], after: Sequence[str]
) -> list[tuple[int, int]]:
    """Return the common ends and, where the bytes between two of them differ, those of tokens that stayed the same."""
    old, new = ([*accumulate(map(len, some), initial=0)] for some in (before, after))  # two digits are a byte
    found = ends[:1]
    for (i, j), (k, m) in pairwise(ends):
        if "".join(before[i:k]) != "".join(after[j:m]):
            blocks = SequenceMatcher(None, before[i:k], after[j:m], autojunk=False).get_matching_blocks()
            same = [(i + block.a + n, j + block.b + n) for block in blocks for n in range(block.size + 1)]
            found += [(a, b) for a, b in same if old[a] % 2 == new[b] % 2 == 0]
        found.append((k, m))
    return found


# chapters/05-trajectories-and-templates.ipynb · cell drift-cuts
def _shared_length(one: Sequence, other: Sequence) -> int:
    """Return how many characters or ids two sequences share at the start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _common_ends(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]]:
    """Return pairs (tokens before, tokens after) that end at the same byte, in order, for tokens in hexadecimal."""
    old, new = "".join(before), "".join(after)
    head = len(old) if old == new else _shared_length(old, new) // 2 * 2  # whole bytes, of two digits
    tail = min(_shared_length(old[::-1], new[::-1]), min(len(old), len(new)) - head)
    counts = {end: count for count, end in enumerate(accumulate(map(len, after), initial=0))}
    ends = []
    for count, end in enumerate(accumulate(map(len, before), initial=0)):
        other = end if end <= head else end - len(old) + len(new)
        if (end <= head or len(old) - end <= tail) and other in counts:
            ends.append((count, counts[other]))
    return ends if old == new else _with_same_tokens(ends, before, after)


# chapters/05-trajectories-and-templates.ipynb · cell drift-kind
def _moved_space(before: Sequence[str], after: Sequence[str]) -> bool:
    """Return whether only one of two ways to cut the same bytes parts a space from the word after it."""
    one, two = ({*accumulate(map(len, tokens))} for tokens in (before, after))
    text, blank = "".join(before), {"20", "09", "0a", "0d", ""}
    return any(text[cut - 2 : cut] == "20" and text[cut : cut + 2] not in blank for cut in one ^ two)


def _is_text(tokens: Sequence[str]) -> bool:
    """Return whether tokens in hexadecimal, none of them empty, are UTF-8 together."""
    try:
        return "" not in tokens and bytes.fromhex("".join(tokens)).decode() is not None
    except ValueError:
        return False


# chapters/05-trajectories-and-templates.ipynb · cell drift-kind-of
def _drift_kind(
    tokenizer: _AnyTokenizer, before: Sequence[int], after: Sequence[int], crossed: bool, is_text: bool
) -> str:
    """Return the kind of a place; `crossed`: it holds a border; `is_text`: the bytes of the whole were UTF-8."""
    if {*after} & _control_ids(tokenizer) - {*before}:
        return "control"
    old, new = ([_hex(tokenizer, id) for id in ids] for ids in (before, after))
    if "".join(old) != "".join(new) or "" in old:
        return "normal form" if is_text or _is_text(old) else "bytes"
    if _moved_space(old, new):
        return "space"
    return "border" if crossed else "merge"


# chapters/05-trajectories-and-templates.ipynb · cell drift-save
def retokenization_drift(tokenizer: _AnyTokenizer, ids: Sequence[int], borders: Iterable[int] = ()) -> DriftReport:
    """Return what comes back when ids are decoded and the text is encoded again, controls read as controls.

    `borders` are the indices at which another writer begins. A place's kind is the first that fits: "control" (text
    spelled one), "bytes" (ids that are no UTF-8, or no token), "normal form" (the normaliser rewrote characters),
    "space" (a space left or joined the word after it), "border" (a token across a border), "merge" (anything else).
    """
    ids, borders = list(ids), set(borders)
    if wrong := [id for id in ids if id < 0] + [border for border in borders if not 0 <= border <= len(ids)]:
        raise ValueError(f"{wrong[0]} is neither an id nor a border within {len(ids)} ids")
    text = _decode(tokenizer, ids)
    again = _encode_again(tokenizer, text)
    old, new = ([_hex(tokenizer, id) for id in some] for some in (ids, again))
    is_text, places = _is_text(old), []
    for (i, j), (k, m) in pairwise(_common_ends(old, new)):
        if ids[i:k] != again[j:m]:
            crossed = any(i < border < k for border in borders)
            kind = _drift_kind(tokenizer, ids[i:k], again[j:m], crossed, is_text)
            shown = ([_piece(tokenizer, id) for id in some] for some in (ids[i:k], again[j:m]))
            places.append(DriftPlace(i, kind, *shown))
    return DriftReport(text, again, places)


# chapters/05-trajectories-and-templates.ipynb · cell chat-part
_Message = Mapping[str, Any]
_Chat = Sequence[_Message]
_Tools = Sequence[Mapping[str, Any]] | None


class _Part(NamedTuple):
    """A stretch of a rendered chat, who wrote it (one of WRITERS), and the added tokens that it may hold."""

    text: str
    writer: str
    controls: tuple[str, ...] = ()


_TURN_END = _Part("<|im_end|>", "policy", ("<|im_end|>",))


def _template(text: str) -> _Part:
    """Return text that the template writes: every added token in it is one."""
    return _Part(text, "template", (*QWEN3_SPECIAL.split(), *QWEN3_MARKERS.split()))


def _said(text: str) -> _Part:
    """Return text that the policy wrote: the marks of thinking and of calls in it are tokens, no others are."""
    return _Part(text, "policy", ("<think>", "</think>", "<tool_call>", "</tool_call>"))


# chapters/05-trajectories-and-templates.ipynb · cell chat-check
def _check_text(text: str, where: str) -> None:
    """Raise ValueError, naming the place, for a text with half a surrogate pair: no tokenizer can encode it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise ValueError(f"{where}: character {error.start} is {half!r}, half a surrogate pair, no text") from None


def _json(value: Any, where: str) -> str:
    """Return a value as JSON, letters as they are; TypeError or ValueError, naming the place, where it has none."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{where} cannot be written as JSON: {error}") from None


# chapters/05-trajectories-and-templates.ipynb · cell chat-thinking
def _content(message: _Message) -> str:
    """Return the content of a message, which may be absent."""
    return message.get("content") or ""


def _thinking_and_answer(message: _Message) -> tuple[str, str]:
    """Return what an assistant thought, its reasoning_content or what stands before </think>, and what it answered."""
    content = _content(message)
    if isinstance(message.get("reasoning_content"), str):
        return message["reasoning_content"], content
    before, *others = content.split("</think>")
    if not others:
        return "", content
    return before.rstrip("\n").split("<think>")[-1].lstrip("\n"), others[-1].lstrip("\n")


# chapters/05-trajectories-and-templates.ipynb · cell chat-calls
def _call_text(call: Any, where: str = "a tool call") -> str:
    """Return a tool call as Qwen3 writes it; TypeError or ValueError, naming the place, for what is none."""
    function = (call.get("function") or call) if isinstance(call, Mapping) else call
    if not isinstance(function, Mapping):
        raise TypeError(f"{where} is {call!r}; it must be a dict with a name and arguments")
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or arguments is None:
        raise ValueError(f"{where} needs a name and arguments; this one is {dict(function)}")
    written = arguments if isinstance(arguments, str) else _json(arguments, f"{where}: arguments")
    return f'<tool_call>\n{{"name": "{name}", "arguments": {written}}}\n</tool_call>'


def _calls_text(message: _Message, answer: str) -> str:
    """Return the tool calls of a message, a newline between each and what stands before it."""
    calls = [_call_text(call) for call in message.get("tool_calls") or ()]
    return "\n".join([""] * bool(calls and answer) + calls)


# chapters/05-trajectories-and-templates.ipynb · cell chat-check-message
def _check_message(message: Any, where: str) -> None:
    """Raise ValueError or TypeError for a message that Qwen3's template or tokenizer would leave out or fail on."""
    if not isinstance(message, Mapping):
        raise TypeError(f"{where} is {message!r}; it must be a dict with role and content")
    if (role := message.get("role")) not in ("system", "user", "assistant", "tool"):
        raise ValueError(f"{where} has the role {role!r}; it must be system, user, assistant or tool")
    for name in ("content", "reasoning_content"):
        if not isinstance(value := message.get(name), str | None):
            raise TypeError(f"{where}: {name} must be a string or None, not {type(value).__name__}")
        _check_text(value or "", f"{where}, {name}")
    if not isinstance(calls := message.get("tool_calls"), list | tuple | None):
        raise TypeError(f"{where}: tool_calls must be a list or None, not {type(calls).__name__}")
    for number, call in enumerate(calls or ()):
        _check_text(_call_text(call, f"{where}, call {number}"), f"{where}, call {number}")


# chapters/05-trajectories-and-templates.ipynb · cell chat-check-messages
def _check_messages(messages: _Chat) -> None:
    """Raise ValueError or TypeError, naming the message, for what cannot be rendered and encoded."""
    if not isinstance(messages, Sequence):
        raise TypeError(f"the messages are a {type(messages).__name__}; they must be a list")
    if not messages:
        raise ValueError("there are no messages to render")
    for place, message in enumerate(messages):
        _check_message(message, f"message {place}")


# chapters/05-trajectories-and-templates.ipynb · cell chat-tools
_TOOLS_BEFORE = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_AFTER = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
    "</tool_call>"
)


# chapters/05-trajectories-and-templates.ipynb · cell chat-head
def _head_parts(first: _Message, tools: _Tools) -> list[_Part]:
    """Return the system message: the one that stands first, if any, and the tools, if any; else nothing."""
    body = [_Part(_content(first), "prompt")] if first["role"] == "system" else []
    if not body and not tools:
        return []
    if tools:
        listed = "".join("\n" + _json(tool, f"tool {number}") for number, tool in enumerate(tools))
        _check_text(listed, "the tools")
        before = _template("\n\n" * bool(body) + _TOOLS_BEFORE)
        body += [before, _Part(listed, "prompt"), _template(_TOOLS_AFTER)]
    return [_template("<|im_start|>system\n"), *body, _template("<|im_end|>\n")]


# chapters/05-trajectories-and-templates.ipynb · cell chat-last-query
def _last_query(messages: _Chat) -> int:
    """Return the index of the last user message that is not a tool's result in disguise, else the last index."""
    asked = [
        place
        for place, message in enumerate(messages)
        if message["role"] == "user" and isinstance(text := message.get("content"), str)
        if not (text.startswith("<tool_response>") and text.endswith("</tool_response>"))
    ]
    return asked[-1] if asked else len(messages) - 1


# chapters/05-trajectories-and-templates.ipynb · cell chat-assistant
def _assistant_parts(message: _Message, since_query: bool, last: bool) -> list[_Part]:
    """Return an assistant's message, with its thinking if it has some after the last query or is the last message."""
    thinking, answer = _thinking_and_answer(message)
    calls, body = _calls_text(message, answer), []
    if since_query and (last or thinking):
        block = "<think>\n" + thinking.strip("\n") + "\n</think>\n\n"
        own = thinking or answer != _content(message)  # else it is the template that writes an empty block
        body, answer = [_said(block) if own else _template(block)], answer.lstrip("\n")
    return [_template("<|im_start|>assistant\n"), *body, _said(answer + calls), _TURN_END, _template("\n")]


# chapters/05-trajectories-and-templates.ipynb · cell chat-messages
def _tool_parts(message: _Message, first: bool, last: bool) -> list[_Part]:
    """Return a tool's result; the first of a run opens a user's message, the last closes it."""
    begin, end = "<|im_start|>user" * first, "<|im_end|>\n" * last
    result = _Part(_content(message), "tool")
    return [_template(begin + "\n<tool_response>\n"), result, _template("\n</tool_response>" + end)]


def _message_parts(messages: _Chat, place: int, query: int) -> list[_Part]:
    """Return one message as it stands among the others; `query` is the index of the last query."""
    message, roles = messages[place], [None, *(other["role"] for other in messages), None]
    if message["role"] == "assistant":
        return _assistant_parts(message, place > query, place == len(messages) - 1)
    if message["role"] == "tool":
        return _tool_parts(message, roles[place] != "tool", roles[place + 2] != "tool")
    if message["role"] == "system" and place == 0:
        return []  # it stands in the head
    body = _Part(_content(message), "prompt")
    return [_template(f"<|im_start|>{message['role']}\n"), body, _template("<|im_end|>\n")]


# chapters/05-trajectories-and-templates.ipynb · cell chat-parts
def _chat_parts(
    messages: _Chat,
    tools: _Tools = None,
    add_generation_prompt: bool = False,
    enable_thinking: bool = True,
    start: int = 0,
) -> list[_Part]:
    """Return a chat in Qwen3's format, in parts, from the message at `start` on."""
    _check_messages(messages)
    query, parts = _last_query(messages), [] if start else _head_parts(messages[0], tools)
    for place in range(start, len(messages)):
        parts += _message_parts(messages, place, query)
    if add_generation_prompt:
        parts.append(_template("<|im_start|>assistant\n" + "<think>\n\n</think>\n\n" * (not enable_thinking)))
    return parts


# chapters/05-trajectories-and-templates.ipynb · cell chat-render
def render_chat(
    messages: _Chat, tools: _Tools = None, add_generation_prompt: bool = False, enable_thinking: bool = True
) -> str:
    """Return the text of a chat in Qwen3's format, character for character that of the published template.

    A message has a role (system, user, assistant, tool) and content; an assistant's may have reasoning_content and
    tool_calls, each with name and arguments, in "function" or at the top. Arguments are a dict, or a string that is
    written as it is, as the name is. The generation prompt opens an assistant's turn, with an empty thinking block
    where `enable_thinking` is false. What the published template drops or fails on, or what is no JSON or no UTF-8, is
    refused: ValueError or TypeError says which message.
    """
    return "".join(part.text for part in _chat_parts(messages, tools, add_generation_prompt, enable_thinking))


# chapters/05-trajectories-and-templates.ipynb · cell chat-encoded
class EncodedChat(NamedTuple):
    """The ids of a chat and, for each, whether the policy wrote it."""

    ids: list[int]
    mask: list[bool]


# chapters/05-trajectories-and-templates.ipynb · cell chat-encode-plain
def _composed(tokenizer: "Tokenizer", run: Iterable[_Part]) -> tuple[str, list[bool]]:
    """Return the text of a run in composed form (NFC) and, for each byte of it, whether the policy wrote it."""
    text, owners = "", []
    for part in run:
        text = _normalized(tokenizer, text + part.text)
        owners += [part.writer == "policy"] * (len(text.encode()) - len(owners))
    return text, owners


def _encode_plain(tokenizer: "Tokenizer", run: Iterable[_Part]) -> EncodedChat:
    """Return the ids of a run as plain text; a token is the policy's if all its bytes are."""
    text, owners = _composed(tokenizer, run)
    encoded, at = EncodedChat([], []), 0
    for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text):
        for token in tokenizer.model.tokenize(piece):  # one letter of its value is one byte
            encoded.ids.append(token.id)
            encoded.mask.append(all(owners[at : at + len(token.value)]))
            at += len(token.value)
    return encoded


# chapters/05-trajectories-and-templates.ipynb · cell chat-control-id
def _normalized(tokenizer: "Tokenizer", text: str) -> str:
    """Return a text in the tokenizer's normal form; TypeError for a tokenizer of another library."""
    if not hasattr(tokenizer, "normalizer"):
        what = "a Tokenizer of the tokenizers library; one of transformers has it as backend_tokenizer"
        raise TypeError(f"tokenizer is a {type(tokenizer).__name__}; it must be {what}")
    return tokenizer.normalizer.normalize_str(text)


def _control_id(tokenizer: "Tokenizer", text: str) -> int:
    """Return the id of an added token; ValueError where the tokenizer has none, so is not Qwen3's."""
    if (id := tokenizer.token_to_id(text)) is None:
        raise ValueError(f"the tokenizer has no token {text!r}; it must be Qwen3's")
    return id


# chapters/05-trajectories-and-templates.ipynb · cell chat-encode-parts
def _encode_parts(tokenizer: "Tokenizer", parts: Iterable[_Part]) -> EncodedChat:
    """Return the ids and mask of parts: controls, and between two of them the text of all parts as one."""
    pieces = (part._replace(text=text) for part in parts for text in split_controls(part.text, part.controls))
    encoded = EncodedChat([], [])
    for is_control, group in groupby(pieces, lambda piece: piece.text in piece.controls):
        if is_control:
            controls = list(group)
            ids = [_control_id(tokenizer, control.text) for control in controls]
            found = EncodedChat(ids, [control.writer == "policy" for control in controls])
        else:
            found = _encode_plain(tokenizer, group)
        encoded.ids.extend(found.ids)
        encoded.mask.extend(found.mask)
    return encoded


# chapters/05-trajectories-and-templates.ipynb · cell chat-encode
def encode_chat(tokenizer: "Tokenizer", messages: _Chat, tools: _Tools = None) -> EncodedChat:
    """Return the ids of `render_chat(messages, tools)` and a mask, true on what the policy wrote with `<|im_end|>`.

    `tokenizer` is Qwen3's. What a system, user or tool message spells never becomes an added token; what an assistant's
    spells becomes none but the marks of thinking and calls. Every turn is masked in, as the last rendering shows it,
    but for a token across its border: where a turn was sampled in another context, use `encode_chats`. ValueError for
    an answer that ends with `<|im_end|>` itself: it would end twice.
    """
    _check_messages(messages)
    for place, message in enumerate(messages):
        if message["role"] == "assistant" and _content(message).rstrip().endswith(_TURN_END.text):
            raise ValueError(f"message {place} ends with {_TURN_END.text}, which the template writes: leave it out")
    return _encode_parts(tokenizer, _chat_parts(messages, tools))


# chapters/05-trajectories-and-templates.ipynb · cell prefix-report
@dataclass(frozen=True)
class PrefixReport:
    """Whether renderings extend one another; if not, at which message and character they part, and how each goes on."""

    stable: bool
    message: int = -1
    place: int = -1
    before: str = ""
    after: str = ""

    def __bool__(self) -> bool:
        return self.stable

    def __str__(self) -> str:
        if self.stable:
            return "stable"
        return f"message {self.message}, character {self.place}: {self.before!r} became {self.after!r}"


# chapters/05-trajectories-and-templates.ipynb · cell prefix-written
_Render = Callable[..., str]
_Written = Callable[[_Message], str]


def written_text(message: _Message) -> str:
    """Return what the policy wrote, as an assistant's message has it: thinking, answer, calls, end token."""
    thinking, content = message.get("reasoning_content"), _content(message)
    block = f"<think>\n{thinking}\n</think>\n\n" if thinking else ""
    return block + content + _calls_text(message, content) + _TURN_END.text


# chapters/05-trajectories-and-templates.ipynb · cell prefix-check
def _seen_and_now(render: _Render, messages: _Chat, each: str, written: _Written) -> Iterator[tuple[int, str, str]]:
    """Yield the index of a message, a text there was, and the text that has to begin with it."""
    seen = ""
    for place, message in enumerate(messages):
        now, whole = seen, render(messages[: place + 1])
        if place and message["role"] == "assistant":
            now = render(messages[:place], add_generation_prompt=True)
            yield place, seen, now
            now += written(message)
        elif place and each == "alone":
            now = seen + render([message])
        if each != "turn":
            yield place, now, whole
        seen = now if each == "turn" else whole
    yield len(messages) - 1, seen, render(messages)


# chapters/05-trajectories-and-templates.ipynb · cell prefix-stable
def is_prefix_stable(
    render: _Render, messages: _Chat, each: str = "message", written: _Written = written_text
) -> PrefixReport:
    """Return a report, true where each rendering extends the one before it; else it shows the first that does not.

    `render(messages, add_generation_prompt=…)` gives the text, `written(message)` what the policy wrote, end token
    included. "turn": every prompt, and the last rendering, begin with the last prompt and what was written. "message":
    this holds after every message. "alone": also, what a user or tool says adds just what it is rendered to alone.
    """
    if each not in ("turn", "message", "alone"):
        raise ValueError(f"each is {each!r}; it must be 'turn', 'message' or 'alone'")
    for message, seen, now in _seen_and_now(render, messages, each, written):
        if not now.startswith(seen):
            place = _shared_length(seen, now)
            return PrefixReport(False, message, place, seen[place : place + 40], now[place : place + 40])
    return PrefixReport(True)


# chapters/05-trajectories-and-templates.ipynb · cell chat-samples
class ChatSamples(NamedTuple):
    """Training samples of chats, and the indices of the chats that gave none."""

    samples: list[EncodedChat]
    skipped: list[int]


def _prompts(tokenizer: "Tokenizer", messages: _Chat, **options: Any) -> dict[int, list[int]]:
    """Return for the index of each of the policy's messages the ids of its prompt."""
    places = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    asked = {place: _chat_parts(messages[:place], add_generation_prompt=True, **options) for place in places}
    return {place: _encode_parts(tokenizer, parts).ids for place, parts in asked.items()}


def _turn_samples(tokenizer: "Tokenizer", messages: _Chat, **options: Any) -> list[EncodedChat]:
    """Return a sample for each of the policy's messages: its prompt as it was, masked out, and what was written."""
    samples = []
    for place, prompt in _prompts(tokenizer, messages, **options).items():
        said = [_said(written_text(messages[place]).removesuffix(_TURN_END.text)), _TURN_END]
        answer = _encode_parts(tokenizer, said)
        samples.append(EncodedChat(prompt + answer.ids, [False] * len(prompt) + answer.mask))
    return samples


# chapters/05-trajectories-and-templates.ipynb · cell chat-samples-of
def _rewritten(tokenizer: "Tokenizer", messages: _Chat, **options: Any) -> str:
    """Return where a prompt, as text or as ids, does not begin what comes after it, or "" where all do."""
    ids = encode_chat(tokenizer, messages, options.get("tools")).ids
    if not (report := is_prefix_stable(partial(render_chat, **options), messages, "turn")):
        return str(report)
    for place, prompt in _prompts(tokenizer, messages, **options).items():
        if (at := _shared_length(prompt, ids)) < len(prompt):
            return f"message {place}, id {at}: {_piece(tokenizer, prompt[at])!r} became {_piece(tokenizer, ids[at])!r}"
    return ""


# chapters/05-trajectories-and-templates.ipynb · cell chat-one-sample
@contextmanager
def _named(name: str) -> Iterator[None]:
    """Put a name before what errors in the block say."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def _samples_of(tokenizer: "Tokenizer", messages: _Chat, unstable: str, **options: Any) -> list[EncodedChat]:
    """Return the samples of one chat."""
    _check_messages(messages)
    if messages[0]["role"] == "assistant":
        raise ValueError("message 0 is an answer; there must be a prompt before it")
    if not (place := _rewritten(tokenizer, messages, **options)):
        return [encode_chat(tokenizer, messages, options.get("tools"))]
    if unstable == "raise":
        raise ValueError(f"a prompt does not begin with the one before it: {place}")
    return _turn_samples(tokenizer, messages, **options) if unstable == "split" else []


# chapters/05-trajectories-and-templates.ipynb · cell chat-samples-save
def encode_chats(
    tokenizer: "Tokenizer",
    chats: Iterable[_Chat],
    unstable: str = "split",
    tools: _Tools = None,
    enable_thinking: bool = True,
) -> ChatSamples:
    """Return samples in which every masked-in token stands behind what the policy had read when it wrote it.

    A chat whose prompts extend one another, as text and as ids, is one sample. Any other, by `unstable`: "split" gives
    a sample for each turn, "skip" none and notes its index, "raise" a ValueError that shows the place. `tools`
    and `enable_thinking` are those of `render_chat`. Errors name the chat and the message.
    """
    if unstable not in ("split", "skip", "raise"):
        raise ValueError(f"unstable is {unstable!r}; it must be 'split', 'skip' or 'raise'")
    every: list[list[EncodedChat]] = []
    for index, messages in enumerate(chats):
        with _named(f"chat {index}"):
            every.append(_samples_of(tokenizer, messages, unstable, tools=tools, enable_thinking=enable_thinking))
    return ChatSamples([one for some in every for one in some], [n for n, some in enumerate(every) if not some])


# chapters/05-trajectories-and-templates.ipynb · cell chat-continues
def _check_continues(messages: _Chat, known: int, strict: bool, **options: Any) -> None:
    """Raise ValueError where the known messages end with no answer, or the next prompt does not begin with them."""
    now = render_chat(messages, add_generation_prompt=True, **options)
    if not 0 < known < len(messages) or messages[known - 1]["role"] != "assistant":
        raise ValueError(f"known is {known}: message {known - 1} must be an assistant's, and others must follow it")
    seen = render_chat(messages[: known - 1], add_generation_prompt=True, **options) + written_text(messages[known - 1])
    if strict and (place := _shared_length(seen, now)) < len(seen):
        raise ValueError(f"character {place}: {seen[place : place + 40]!r} became {now[place : place + 40]!r}")


# chapters/05-trajectories-and-templates.ipynb · cell chat-continue
def continue_chat(
    tokenizer: "Tokenizer",
    ids: Sequence[int],
    messages: _Chat,
    known: int,
    strict: bool = True,
    tools: _Tools = None,
    enable_thinking: bool = True,
) -> list[int]:
    """Return `ids` as they are, then those that the template adds for `messages[known:]` and the policy's next turn.

    `ids` are the context as it was sampled, to the end of the answer `messages[known - 1]`; they are never decoded. An
    answer cut off before `<|im_end|>` gets one. `tools` and `enable_thinking` are those of `render_chat`. Where the
    next prompt does not begin with what the policy has seen: ValueError, or with `strict` false the policy goes on from
    what it has seen.
    """
    options = {"tools": tools, "enable_thinking": enable_thinking}
    _check_continues(messages, known, strict, **options)
    added = [_TURN_END, _template("\n"), *_chat_parts(messages, add_generation_prompt=True, start=known, **options)]
    ended = list(ids[-1:]) == [_control_id(tokenizer, _TURN_END.text)]
    return [*ids, *_encode_parts(tokenizer, added[1:] if ended else added).ids]


# chapters/05-trajectories-and-templates.ipynb · cell engine-output
def sampled_turn(output: Sequence[int], stops: Iterable[int]) -> tuple[list[int], bool]:
    """Return the ids that were sampled, up to and with the first stop, and whether there was one.

    What an engine puts after the stop is padding, even where it has the same id. Without a stop all of it was sampled.
    """
    known = set(stops)
    end = next((place for place, id in enumerate(output) if id in known), None)
    return (list(output), False) if end is None else (list(output[: end + 1]), True)


def cut_to(sequence: Sequence, limit: int, side: str) -> Sequence:
    """Return at most `limit` items of a sequence; where it is longer, those at the `side`, "left" or "right", go."""
    if side not in ("left", "right") or limit < 0:
        raise ValueError(f"side {side!r}, limit {limit}: need 'left' or 'right', and at least 0")
    extra = max(0, len(sequence) - limit)
    return sequence[extra:] if side == "left" else sequence[: len(sequence) - extra]


# chapters/05-trajectories-and-templates.ipynb · cell saved-batch
@dataclass(frozen=True, eq=False)
class TrajectoryBatch(TokenColumns):
    """Trajectories in tables, padded at the right: made by `collate`, taken apart by `split`.

    [B, T]: the columns, with `logprobs` 0.0 where absent and `writer` and `turn` -1 at padding; `attention_mask`, true
    where there is a token; `positions`. [B]: `rewards`, nan where there is none; `lengths`, `task_ids`, `attempts`.
    """

    attention_mask: Tensor
    positions: Tensor
    rewards: Tensor
    lengths: Tensor
    task_ids: Tensor
    attempts: Tensor
    ended: tuple[str, ...]
    info: tuple[dict[str, Any], ...]

    def split(self) -> list[Trajectory]:
        """Return the trajectories of the rows."""
        return [_row(self, number) for number in range(len(self))]


# chapters/05-trajectories-and-templates.ipynb · cell saved-row
def _row(batch: TrajectoryBatch, number: int) -> Trajectory:
    """Return one row as a trajectory."""
    real = batch.attention_mask[number]
    columns = {name: getattr(batch, name)[number][real] for name in _COLUMN_TYPES}
    columns["logprobs"] = torch.where(columns["action_mask"], columns["logprobs"], math.nan)
    reward = batch.rewards[number].item()
    return Trajectory(
        **columns,
        reward=None if math.isnan(reward) else reward,
        ended=batch.ended[number],
        task_id=int(batch.task_ids[number]),
        attempt=int(batch.attempts[number]),
        info=dict(batch.info[number]),
    )


# chapters/05-trajectories-and-templates.ipynb · cell saved-table
def _table(columns: Iterable[Tensor], real: Tensor, fill: float, dtype: torch.dtype) -> Tensor:
    """Return the columns as the rows of a table [B, T], with `fill` where `real` [B, T] is false."""
    table = torch.full(real.shape, fill, dtype=dtype)
    table[real] = torch.cat([torch.empty(0, dtype=dtype), *columns])
    return table


# chapters/05-trajectories-and-templates.ipynb · cell saved-collate
def collate(trajectories: Iterable[Trajectory]) -> TrajectoryBatch:
    """Return the trajectories as one batch, in their order, padded to the longest; of none, tables of [0, 0]."""
    trajectories = list(trajectories)
    whole = [len(t) for t in trajectories], [t.task_id for t in trajectories], [t.attempt for t in trajectories]
    lengths, task_ids, attempts = (torch.tensor(numbers, dtype=torch.int64) for numbers in whole)
    places = torch.arange(max(lengths.tolist(), default=0))
    real = places < lengths[:, None]
    fills = {"ids": 0, "action_mask": False, "logprobs": math.nan, "writer": -1, "turn": -1}
    tables = {k: _table([getattr(t, k) for t in trajectories], real, fills[k], _COLUMN_TYPES[k]) for k in fills}
    rewards = [math.nan if t.reward is None else t.reward for t in trajectories]
    return TrajectoryBatch(
        **tables | {"logprobs": torch.where(tables["action_mask"], tables["logprobs"], 0.0)},
        **{"attention_mask": real, "positions": torch.where(real, places, 0), "lengths": lengths},
        **{"rewards": torch.tensor(rewards, dtype=DTYPE), "task_ids": task_ids, "attempts": attempts},
        **{"ended": tuple(t.ended for t in trajectories), "info": tuple(dict(t.info) for t in trajectories)},
    )


# chapters/05-trajectories-and-templates.ipynb · cell saved-same-trajectory
def same_trajectory(one: Trajectory, other: Trajectory, tolerance: float = 0.0) -> bool:
    """Return whether both record the same episode: all equal, log-probabilities to the tolerance.

    Of the same episode in another batch the log-probabilities may differ in their last bits: give 1e-12.
    """
    whole = ("reward", "ended", "task_id", "attempt", "info")
    if len(one) != len(other) or any(getattr(one, name) != getattr(other, name) for name in whole):
        return False
    columns = ("ids", "action_mask", "writer", "turn")
    exact = all(torch.equal(getattr(one, name), getattr(other, name)) for name in columns)
    gaps = torch.where(one.action_mask, one.logprobs - other.logprobs, 0.0).abs()
    return exact and bool((gaps <= tolerance).all())


# chapters/05-trajectories-and-templates.ipynb · cell saved-recorder
@dataclass
class _Recorder(_TokenLog):
    """An episode while it is played: its tokens, its environment and how to make it, its random numbers, its state."""

    make: Callable[[], Any] = field(default=lambda: None)
    env: Any = None
    task_id: int = 0
    attempt: int = 0
    stream: torch.Generator = field(default_factory=torch.Generator)
    cut: list[int] = field(default_factory=list)
    reward: float | None = 0.0
    ended: str = ""
    info: dict[str, Any] = field(default_factory=dict)


# chapters/05-trajectories-and-templates.ipynb · cell saved-check-answer
def _check_answer(recorder: _Recorder, observation: Any, reward: Any) -> None:
    """Raise TypeError or ValueError, naming the episode, for an observation that is no text or a wrong reward."""
    place = f"task {recorder.task_id}, attempt {recorder.attempt}, turn {recorder.turns - 1}"
    if not isinstance(observation, str):
        raise TypeError(f"{place}: the environment says {observation!r}; it must be a text")
    if not isinstance(reward, Real):
        raise TypeError(f"{place}: the reward is {reward!r}; it must be a number")
    if not math.isfinite(reward):
        raise ValueError(f"{place}: the reward is {reward}; it must be finite")


# chapters/05-trajectories-and-templates.ipynb · cell saved-ask-offer
def _ask(recorder: _Recorder, call: Callable[[], Any]) -> Any:
    """Return what the environment answers, a prompt or a step; if it breaks, the episode ends without a reward."""
    try:
        answer = call()
    except InfrastructureError as error:
        recorder.ended, recorder.reward, recorder.info = "infrastructure", None, {"error": str(error)}
        return None
    _check_answer(recorder, getattr(answer, "observation", answer), getattr(answer, "reward", 0.0))
    return answer


def _offer(recorder: _Recorder, parts: Sequence[tuple[int, Sequence[int]]], room: int) -> None:
    """Append what the policy is to read; if that makes more than `room` tokens, end the episode without it."""
    needed = len(recorder.ids) + sum(len(ids) for _, ids in parts)
    if needed > room:
        recorder.ended, recorder.info = "out_of_context", {**recorder.info, "needed": needed, "room": room}
        return
    for writer, ids in parts:
        recorder.write(writer, ids)


# chapters/05-trajectories-and-templates.ipynb · cell saved-begin
def _begin(recorder: _Recorder, tokenizer: Any, room: int) -> None:
    """Make the environment, and write the start token and what the environment says first."""

    def first_words() -> Any:
        recorder.env = recorder.make()
        return recorder.env.reset()

    recorder.write(_PROMPT, [tokenizer.control["<bos>"]])
    prompt = _ask(recorder, first_words)
    if not recorder.ended:
        _offer(recorder, message_parts(tokenizer, "prompt", prompt), room)


# chapters/05-trajectories-and-templates.ipynb · cell saved-take-turn
def _take_turn(recorder: _Recorder, said: list[int], logprobs: list[float], tokenizer: Any, room: int) -> None:
    """Write what the policy said, let the environment answer, and write the answer if the episode goes on."""
    recorder.turns += 1
    recorder.write(_POLICY, said, logprobs)
    text = tokenizer.decode(said)
    if said[-1] != tokenizer.control[" </call>"]:
        recorder.cut.append(recorder.turns - 1)
        text += " (cut off)"  # no call, whatever the tokens before it spell
    step = _ask(recorder, lambda: recorder.env.step(text))
    if recorder.ended:
        return
    recorder.reward, recorder.info = recorder.reward + step.reward, step.info
    if step.terminated or step.truncated:
        recorder.ended = "submitted" if step.terminated else "out_of_turns"
    else:
        _offer(recorder, message_parts(tokenizer, "tool", step.observation), room)


# chapters/05-trajectories-and-templates.ipynb · cell saved-stream
def episode_stream(seed: int, task_id: int, attempt: int, *more: str) -> torch.Generator:
    """Return random numbers of one episode, which depend on these arguments and on nothing else.

    Without `more` they are the policy's; "tool" gives the environment's. PyTorch's generator on the CPU reads 32 bits
    of its seed, so two episodes share a stream with a chance of 2**-32.
    """
    digest = hashlib.sha256(" ".join(map(str, (seed, task_id, attempt, *more))).encode()).digest()
    return generator(int.from_bytes(digest[:4], "big"))


# chapters/05-trajectories-and-templates.ipynb · cell saved-recorders
_MakeEnv = Callable[[Any, torch.Generator], Any]


def _recorders(tasks: Iterable[Any], attempts: int, seed: int, make_env: _MakeEnv) -> list[_Recorder]:
    """Return a recorder an episode, task by task; where a task stands twice, its attempts go on counting."""
    _check_count("attempts", attempts)
    _check_count("seed", seed, 0)
    recorders, played, known = [], Counter(), {}
    for task in tasks:
        if known.setdefault(task.id, task) != task:
            raise ValueError(f"two different tasks have the id {task.id}; episodes are told apart by it")
        for attempt in range(played[task.id], played[task.id] + attempts):
            make = partial(make_env, task, episode_stream(seed, task.id, attempt, "tool"))
            stream = episode_stream(seed, task.id, attempt)
            recorders.append(_Recorder(make=make, task_id=task.id, attempt=attempt, stream=stream))
        played[task.id] += attempts
    return recorders


# chapters/05-trajectories-and-templates.ipynb · cell saved-finished
def _finished(recorder: _Recorder) -> Trajectory:
    """Return the record of an episode that has ended."""
    ids, writer, turn = (torch.tensor(column) for column in (recorder.ids, recorder.writer, recorder.turn))
    columns = (ids, writer == _POLICY, torch.tensor(recorder.logprobs, dtype=DTYPE), writer, turn)
    info = {**recorder.info, "cut": tuple(recorder.cut)}
    return Trajectory(*columns, recorder.reward, recorder.ended, recorder.task_id, recorder.attempt, info)


# chapters/05-trajectories-and-templates.ipynb · cell saved-check-players
def _check_players(model: TinyAgent, tokenizer: TinyTokenizer, turn_cap: int, transform: dict) -> None:
    """Raise ValueError for a tokenizer that does not go with model or gym, a cap that is none, or a wrong transform."""
    _check_count("max_turn_tokens", turn_cap)
    if turn_cap >= model.config.max_positions:
        raise ValueError(f"max_turn_tokens is {turn_cap}: no room in the {model.config.max_positions} positions")
    check_transform(**transform)
    if missing := [control for control in GYM_CONTROLS if control not in tokenizer.control]:
        raise ValueError(f"the tokenizer has no control {missing[0]!r}; it needs {', '.join(map(repr, GYM_CONTROLS))}")
    if len(tokenizer) != model.config.vocab_size:
        raise ValueError(f"a tokenizer of {len(tokenizer)} ids, a model of {model.config.vocab_size}")


# chapters/05-trajectories-and-templates.ipynb · cell saved-check-apart
def _check_apart(recorders: list[_Recorder]) -> None:
    """Raise ValueError for one environment in two episodes, which would play in each other's."""
    owners: dict[int, _Recorder] = {}
    for one in recorders:
        other = owners.setdefault(id(one.env), one)
        if one.env is not None and other is not one:
            both = " and ".join(f"task {r.task_id}, attempt {r.attempt}" for r in (other, one))
            raise ValueError(f"make_env gave one environment to {both}; each episode needs its own")


# chapters/05-trajectories-and-templates.ipynb · cell saved-ready
@contextmanager
def _ready_to_sample(model: TinyAgent, tokenizer: Any, turn_cap: int, transform: dict) -> Iterator[None]:
    """Refuse what does not go together; put the model into evaluation mode, and back into the mode it was in."""
    _check_players(model, tokenizer, turn_cap, transform)
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


# chapters/05-trajectories-and-templates.ipynb · cell saved-play
def _play(model: TinyAgent, tokenizer: Any, recorders: list[_Recorder], turn_cap: int, transform: dict) -> None:
    """Play the episodes to their ends in lock step: a turn of all that run, then their environments' answers."""
    stop, room = tokenizer.control[" </call>"], model.config.max_positions - turn_cap
    for recorder in recorders:
        _begin(recorder, tokenizer, room)
    _check_apart(recorders)
    running = [recorder for recorder in recorders if not recorder.ended]
    cache = KVCache(model, len(running))
    while running:
        contexts, streams = [r.ids for r in running], [r.stream for r in running]
        said = generate(model, contexts, streams, turn_cap, stop, cache, **transform)
        for recorder, ids, logprobs in zip(running, said.ids, said.logprobs, strict=True):
            _take_turn(recorder, ids, logprobs, tokenizer, room)
        stay = [row for row, recorder in enumerate(running) if not recorder.ended]
        cache.keep(stay)
        running = [running[row] for row in stay]


# chapters/05-trajectories-and-templates.ipynb · cell saved-rollout
def rollout(
    model: TinyAgent,
    tokenizer: TinyTokenizer,
    tasks: Iterable[Any],
    attempts: int,
    seed: int,
    *,
    max_turn_tokens: int = 6,
    make_env: _MakeEnv = gym_env,
    **transform: Any,
) -> list[Trajectory]:
    """Return `attempts` episodes of each task, task by task, sampled in lock step with one cache.

    A turn ends with ` </call>` or after `max_turn_tokens` (`info["cut"]` has the turns that were cut off); an episode
    that has no room for another turn in `max_positions` ends before it. `make_env(task, generator)` gives a new object
    with `reset` and `step` like `BugFixEnv`'s; what is random in it comes from the generator, the episode's own.
    `transform` goes to `sampling_distribution`. An episode is the same in any batch, but for the last bits of its
    log-probabilities. `model.training` is as it was afterwards.
    """
    recorders = _recorders(tasks, attempts, seed, make_env)
    with _ready_to_sample(model, tokenizer, max_turn_tokens, transform):
        _play(model, tokenizer, recorders, max_turn_tokens, transform)
    return [_finished(recorder) for recorder in recorders]


# chapters/05-trajectories-and-templates.ipynb · cell saved-visible
_SIGNS = {" ": "·", "\n": "↵"}
# The strip's own signs; then letters and marks that count as printable and leave no ink.
_WRITTEN_OUT = re.compile(
    "[\\\\·↵½∅…]|[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def _visible(text: str) -> str:
    """Return the text on one line with nothing hidden, "∅" if it is empty. Different texts stay different."""

    def sign(place: int, character: str) -> str:
        on_its_neighbour = place == 0 and unicodedata.category(character)[0] == "M"  # an accent without its letter
        if on_its_neighbour or not character.isprintable() or _WRITTEN_OUT.match(character):
            character = character.encode("unicode_escape").decode()
        return character

    return "".join(_SIGNS.get(character) or sign(place, character) for place, character in enumerate(text)) or "∅"


# chapters/05-trajectories-and-templates.ipynb · cell saved-columns
def _widths(text: str) -> list[int]:
    """Return how many columns of a terminal each character takes."""
    marks = ("Mn", "Me")
    wide = [2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text]
    return [0 if unicodedata.category(c) in marks else width for c, width in zip(text, wide, strict=True)]


def _columns(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    return sum(_widths(text))


def _clip(text: str, columns: int) -> str:
    """Return the text, cut off with "…" where it takes more columns than these."""
    ends = [*accumulate(_widths(text))]
    if not ends or ends[-1] <= columns:
        return text
    return text[: sum(end < columns for end in ends)] + "…"


# chapters/05-trajectories-and-templates.ipynb · cell saved-strip-token
@dataclass(frozen=True)
class _StripToken:
    """One token as a strip shows it; `tint` is its advantage on a scale from -1 to 1, None where it has none."""

    text: str
    writer: str
    turn: int
    trained: bool
    advantage: str
    tint: float | None
    note: str

    @property
    def below(self) -> str:
        """What stands below it: its action mask and its advantage."""
        return f"{int(self.trained)} {self.advantage}".rstrip()

    @property
    def columns(self) -> int:
        """The columns it takes, with what stands below it."""
        return max(_columns(self.text), len(self.below))


# chapters/05-trajectories-and-templates.ipynb · cell saved-token-text
def _token_text(tokenizer: _AnyTokenizer, id: int) -> str:
    """Return what one token says, visibly; ValueError for an id without a token."""
    if isinstance(tokenizer, TinyTokenizer):
        tokenizer.decode([id])  # refuses an unknown id
    elif tokenizer.id_to_token(id) is None:
        raise ValueError(f"there is no token {id}")
    fragment = _fragment(tokenizer, id)
    return f"½{fragment}" if fragment else _visible(_decode(tokenizer, [id]))


def _signed(value: float) -> str:
    """Return the number with its sign and two digits, "0" for zero."""
    return f"{value:+.2g}" if value else "0"


# chapters/05-trajectories-and-templates.ipynb · cell saved-strip-lines
def _strip_lines(tokens: Sequence[_StripToken], room: int, gap: float) -> Iterator[tuple[str, list[_StripToken]]]:
    """Yield lines of tokens and their labels: a turn begins a line, and none takes more than `room` columns."""
    for turn, group in groupby(tokens, lambda token: token.turn):
        label, line, used = f"turn {turn}" if turn >= 0 else "prompt", [], -gap
        for token in group:
            token = replace(token, text=_clip(token.text, room))
            if line and used + gap + token.columns > room:
                yield label, line
                label, line, used = "", [], -gap
            line.append(token)
            used += gap + token.columns
        yield label, line


# chapters/05-trajectories-and-templates.ipynb · cell saved-strip-looks
class _Look(NamedTuple):
    """How a strip shows who wrote a token: in a terminal's row and colour, and as colour and border of a box."""

    fill: str
    ansi: str
    color: str
    border: str
    svg: str


_LOOKS = {
    "prompt": _Look(".", "2", "#777f88", "2px dotted", 'stroke-width="1.6" stroke-dasharray="1.6 2.6"'),
    "template": _Look(":", "35", "#8f66b8", "2px none", 'stroke-width="0"'),
    "policy": _Look("=", "1;34", "#2a7fc4", "2px solid", 'stroke-width="2"'),
    "tool": _Look("-", "32", "#2a8a55", "2px dashed", 'stroke-width="1.6" stroke-dasharray="5 3"'),
}


# chapters/05-trajectories-and-templates.ipynb · cell saved-text-rows
def _who(writer: str, run: Sequence[_StripToken]) -> str:
    """Return the writer's name and character below a run of tokens; where the name has no room, the character."""
    span = sum(token.columns + 1 for token in run) - 1
    return (writer if len(writer) <= span else "").ljust(span, _LOOKS[writer].fill)


def _text_rows(label: str, line: Sequence[_StripToken], color: bool) -> list[str]:
    """Return one line of tokens and the rows below it, each behind its label."""
    runs = groupby(line, lambda token: token.writer)
    paint = "\x1b[{}m{}\x1b[0m" if color else "{1}"
    said = [paint.format(_LOOKS[t.writer].ansi, t.text) + " " * (t.columns - _columns(t.text)) for t in line]
    rows = [(label, said), ("  who", [_who(writer, list(run)) for writer, run in runs])]
    rows += [("  mask", [str(int(token.trained)).ljust(token.columns) for token in line])]
    rows += [("  adv", [token.advantage.ljust(token.columns) for token in line])]
    return [f"{name:<9}{' '.join(row)}".rstrip() for name, row in rows if "".join(row).strip()]


# chapters/05-trajectories-and-templates.ipynb · cell saved-strip-text
def _strip_text(strip: "TokenStrip", width: int, color: bool) -> str:
    """Return the strip as lines of at most `width` columns."""
    if width < 30:
        raise ValueError(f"a width of {width}; a strip needs at least 30 columns")
    key = "who: " + "  ".join(f"{writer} {4 * look.fill}" for writer, look in _LOOKS.items())
    lines = [*textwrap.wrap(strip.caption, width), *textwrap.wrap(key, width)]
    for label, line in _strip_lines(strip.tokens, width - 9, gap=1):
        lines += ["", *_text_rows(label, line, color)]
    return "\n".join(lines)


# chapters/05-trajectories-and-templates.ipynb · cell saved-svg-token
def _shade(token: _StripToken) -> tuple[str, str]:
    """Return the colour behind a token and how much of it: its writer's, or blue for +, orange for -."""
    if token.tint is None:
        return _LOOKS[token.writer].color, "0.13"
    return "#2a7fc4" if token.tint > 0 else "#c0651a", f"{0.5 * abs(token.tint):.2f}"


def _svg_text(x: float, y: float, text: str, look: str = "") -> str:
    """Return a text of 13 pixels from x on."""
    return f'<text x="{x:g}" y="{y:g}" font-size="13" fill="#1f2328" {look}>{escape(text)}</text>'


# chapters/05-trajectories-and-templates.ipynb · cell saved-svg-box
def _svg_token(token: _StripToken, x: float, y: float) -> str:
    """Return a token's box, its text fitted into 8 pixels a column, and mask and advantage below it."""
    color, share = _shade(token)
    wide, look, middle = 8 * token.columns + 8, _LOOKS[token.writer], 'text-anchor="middle"'
    fit = f'{middle} textLength="{8 * _columns(token.text)}" lengthAdjust="spacingAndGlyphs"'
    frame = f'<rect x="{x:g}" y="{y:g}" width="{wide}" height="25" rx="4" fill="{color}" fill-opacity="{share}"'
    parts = [f"<g><title>{escape(token.note)}</title>", f'{frame} stroke="{look.color}" {look.svg}/>']
    parts.append(_svg_text(x + wide / 2, y + 17, token.text, fit))
    weight = f'{middle} font-weight="bold"' if token.trained else f'{middle} fill-opacity="0.7"'
    return "".join(parts) + _svg_text(x + wide / 2, y + 41, token.below, weight) + "</g>"


# chapters/05-trajectories-and-templates.ipynb · cell saved-strip-svg
def _key() -> list[_StripToken]:
    """Return the line that explains the borders: a token for each writer."""
    return [_StripToken(who, who, -1, who == "policy", "", None, f"written by: {who}") for who in _LOOKS]


def _below(strip: "TokenStrip") -> str:
    """Return what stands below the tokens of a strip."""
    shown = any(token.advantage for token in strip.tokens)
    return "below: action mask, then advantage (blue +, orange -)" if shown else "below: action mask"


def _svg_line(label: str, line: Sequence[_StripToken], y: float) -> str:
    """Return a line of tokens whose boxes begin at y, behind its label."""
    lefts = accumulate((8 * token.columns + 14 for token in line), initial=84)
    tokens = (_svg_token(token, x, y) for token, x in zip(line, lefts, strict=False))
    return _svg_text(16, y + 17, label) + "".join(tokens)


# chapters/05-trajectories-and-templates.ipynb · cell saved-svg
def _strip_svg(strip: "TokenStrip", width: int) -> str:
    """Return the strip as an SVG of this width, on a card of its own."""
    if width < 300:
        raise ValueError(f"a width of {width}; a strip needs at least 300 pixels")
    lines = [("who", _key()), *_strip_lines(strip.tokens, (width - 108) // 8, gap=1.75)]
    head = [*textwrap.wrap(strip.caption, (width - 32) // 8), _below(strip)]
    body = [_svg_text(16, 20 * (row + 1) + 8, text) for row, text in enumerate(head)]
    top, pitch = 20 * len(head) + 22, 54
    body += [_svg_line(label, line, top + pitch * row) for row, (label, line) in enumerate(lines)]
    height = top + pitch * len(lines)
    size = f'width="{width}" height="{height}"'
    said = f"<title>{escape(strip.caption)}</title><desc>{escape(_in_words(strip))}</desc>"
    card = f'<rect {size} rx="10" fill="#fcfcfa"/>'
    font = 'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace"'
    view = f'{size} viewBox="0 0 {width} {height}" fill="none" {font}'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {view}>{said}{card}{"".join(body)}</svg>\n'


# chapters/05-trajectories-and-templates.ipynb · cell saved-in-words
def _in_words(strip: "TokenStrip") -> str:
    """Return how many tokens in a row each writer wrote, for whoever cannot see the picture."""
    turns = []
    for turn, group in groupby(strip.tokens, lambda token: token.turn):
        runs = [(writer, len(list(run))) for writer, run in groupby(group, lambda token: token.writer)]
        label = f"Turn {turn}" if turn >= 0 else "Before the first turn"
        turns.append(f"{label}: " + ", ".join(f"{writer} {count}" for writer, count in runs))
    return "Tokens by writer, in order. " + ". ".join(turns) + "."


# chapters/05-trajectories-and-templates.ipynb · cell saved-html-token
def _html_token(token: _StripToken) -> str:
    """Return a token as an inline block: its text in a border, and mask and advantage below it."""
    color, share = _shade(token)
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    box = f"padding:1px 4px;border-radius:4px;overflow-wrap:anywhere;background:rgba({red},{green},{blue},{share})"
    border = f"border:{_LOOKS[token.writer].border} {_LOOKS[token.writer].color}"
    weight = "font-weight:bold" if token.trained else "opacity:.7"
    outer = "display:inline-block;margin:0 4px 6px 0;text-align:center;vertical-align:top"
    under = f"display:block;font-size:12px;line-height:16px;{weight}"
    text = f'<bdi style="{box};{border}">{escape(token.text)}</bdi><sub style="{under}">{token.below}</sub>'
    return f'<span style="{outer}" title="{escape(token.note)}">{text}</span>'


# chapters/05-trajectories-and-templates.ipynb · cell saved-strip-html
def _strip_html(strip: "TokenStrip") -> str:
    """Return the strip as HTML that wraps with the page and takes the page's colour of text."""
    lines = [("who", _key()), *_strip_lines(strip.tokens, 10**6, gap=1)]
    style = 'style="margin:6px 0;padding-left:72px;line-height:24px"'
    label = '<b style="display:inline-block;width:64px;margin-left:-72px;font-weight:normal">{}</b>'
    rows = (f"<div {style}>{label.format(name)} {' '.join(map(_html_token, line))}</div>" for name, line in lines)
    head = f"<figcaption>{escape(strip.caption)}<br>{_below(strip)}</figcaption>"
    font = "font:13px 'DejaVu Sans Mono',Menlo,Consolas,monospace"
    said = escape(f"Token strip. {_in_words(strip)}")
    return f'<figure role="group" aria-label="{said}" style="margin:0;{font}">{head}{"".join(rows)}</figure>'


# chapters/05-trajectories-and-templates.ipynb · cell saved-token-strip-class
@dataclass(frozen=True, repr=False)
class TokenStrip:
    """A trajectory to look at: print it, let a notebook display it, or write its `svg()` to a file."""

    caption: str
    tokens: tuple[_StripToken, ...]

    def text(self, width: int = 80, color: bool = False) -> str:
        """Return lines for a terminal of `width` columns, with ANSI colours if wanted; ValueError below 30."""
        return _strip_text(self, width, color)

    def svg(self, width: int = 760) -> str:
        """Return an SVG file of this width in pixels, readable on any page; ValueError below 300."""
        return _strip_svg(self, width)

    def html(self) -> str:
        """Return HTML for a notebook or a page."""
        return _strip_html(self)

    __repr__ = text
    _repr_html_ = html


# chapters/05-trajectories-and-templates.ipynb · cell saved-advantages
def _shown_advantages(trajectory: Trajectory, advantages: Sequence[float] | Tensor | None) -> list[float | None]:
    """Return the advantage of each token, None where it is not trained; ValueError names what cannot be shown."""
    count, mask = len(trajectory.ids), trajectory.action_mask.tolist()
    if advantages is None:
        return [None] * count
    given = advantages.tolist() if isinstance(advantages, Tensor) else advantages
    if not isinstance(given, Sequence):
        raise TypeError(f"advantages is {given!r}; give one number for each of the {count} tokens")
    if len(given) != count:
        raise ValueError(f"{len(given)} advantages for {count} tokens")
    values = [float(value) if trained else None for value, trained in zip(given, mask, strict=True)]
    for position, value in enumerate(values):
        if value is not None and not math.isfinite(value):
            raise ValueError(f"position {position}: the advantage is {value}, not finite")
    return values


# chapters/05-trajectories-and-templates.ipynb · cell saved-note
def _note(trajectory: Trajectory, position: int, advantage: float | None) -> str:
    """Return what a tooltip says of one token."""
    logprob, turn = trajectory.logprobs[position].item(), int(trajectory.turn[position])
    trained = "trained" if trajectory.action_mask[position] else "not trained"
    place = f"token {position}, id {int(trajectory.ids[position])}"
    parts = [place, WRITERS[trajectory.writer[position]], f"turn {turn}" if turn >= 0 else "prompt", trained]
    parts += [] if math.isnan(logprob) else [f"log-probability {logprob:.3g}"]
    return ", ".join(parts + ([] if advantage is None else [f"advantage {_signed(advantage)}"]))


def _caption(trajectory: Trajectory) -> str:
    """Return one line about the whole episode."""
    turns, trained = len({*trajectory.turn.tolist()} - {-1}), int(trajectory.action_mask.sum())
    reward = "no reward" if trajectory.reward is None else f"reward {trajectory.reward:g}"
    end = f"{trajectory.ended.replace('_', ' ')}, {reward}"
    sizes = f"{len(trajectory.ids)} tokens, {trained} trained, {turns} turn{'s' * (turns != 1)}"
    return f"task {trajectory.task_id}, attempt {trajectory.attempt}: {sizes}, {end}"


# chapters/05-trajectories-and-templates.ipynb · cell saved-token-strip
def token_strip(
    trajectory: Trajectory, tokenizer: _AnyTokenizer, advantages: Sequence[float] | Tensor | None = None
) -> TokenStrip:
    """Return the trajectory as a strip of tokens to look at.

    `tokenizer` is a TinyTokenizer, or a byte-level one of the tokenizers library, as Qwen3's is. `advantages` [T] are
    read where the action mask is true. ValueError for another number of them, one that is not finite there, or an id
    without a token.
    """
    values = _shown_advantages(trajectory, advantages)
    largest = max((abs(value) for value in values if value), default=1.0)
    columns = zip(trajectory.ids.tolist(), trajectory.writer.tolist(), trajectory.turn.tolist(), values, strict=True)
    tokens = []
    for position, (id, writer, turn, value) in enumerate(columns):
        shown = ("", None) if value is None else (_signed(value), value / largest)
        note, trained = _note(trajectory, position, value), bool(trajectory.action_mask[position])
        tokens.append(_StripToken(_token_text(tokenizer, id), WRITERS[writer], turn, trained, *shown, note))
    return TokenStrip(_caption(trajectory), tuple(tokens))
