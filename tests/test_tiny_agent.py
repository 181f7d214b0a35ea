"""Chapter 3's library: the tokenizer, TinyAgent against torch's own layers, scoring, sampling, the cache, training."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from agentrl.notation import DTYPE, generator
from agentrl.tiny_agent import (
    CachedChunk,
    Generation,
    KVCache,
    TinyAgent,
    TinyAgentConfig,
    TinyTokenizer,
    generate,
    has_past,
    pad_rows,
    sample,
    sampling_distribution,
    scored_logits,
    sequence_entropy,
    snap_,
    split_generator,
    token_logprobs,
    warm_start,
)
from bookkit.settings import LOWEST, this_machine

CONTROLS = ("<bos>", "<call>", " </call>", "<call>>")
TEXTS = ("def f(x):\n    return x + 1", "read the source", "<call> read </call>")
TOKENIZER = TinyTokenizer.build(TEXTS, CONTROLS)
CONFIG = TinyAgentConfig(vocab_size=11, width=12, layers=2, heads=3, max_positions=24)
MODEL = TinyAgent(CONFIG, generator(0))

texts = st.text(st.characters(exclude_categories=("Cs",)))
# Text made of what a tokenizer could confuse: the controls' own spelling, pieces of it, blanks, accents, emoji.
awkward = st.lists(
    st.sampled_from(
        [*CONTROLS, "<", "call", ">", " ", "\n    ", "\t", "\x00", "\x1f", "\r\n", "e\u0301", "👩‍👩‍👧", "🇩🇪", "\u2028"]
    )
).map("".join)
# Rows of unequal length over the model's vocabulary.
id_rows = st.lists(st.lists(st.integers(0, CONFIG.vocab_size - 1), min_size=1, max_size=12), min_size=1, max_size=4)
few = settings(max_examples=25, deadline=None)


def as_row(ids: list[int]) -> Tensor:
    return torch.tensor([ids])


def random_ids(batch: int, length: int, seed: int = 1) -> Tensor:
    return torch.randint(CONFIG.vocab_size, (batch, length), generator=generator(seed))


def everywhere(ids: Tensor) -> Tensor:
    return torch.ones_like(ids, dtype=torch.bool)


def gap(one: Tensor, other: Tensor) -> float:
    assert one.shape == other.shape
    return (one - other).abs().max().item() if one.numel() else 0.0


class TestTokenizer:
    @given(st.one_of(texts, awkward), st.booleans())
    @example("<bos> is not the start </call><call>>", False)
    @example("e\u0301\ufeff👍🏽\U0010ffff", True)
    def test_every_text_comes_back(self, text: str, controls: bool) -> None:
        assert TOKENIZER.decode(TOKENIZER.encode(text, controls)) == text

    @given(st.one_of(texts, awkward))
    def test_ordinary_text_holds_no_control(self, text: str) -> None:
        assert not set(TOKENIZER.encode(text)) & set(TOKENIZER.control.values())

    @given(awkward, texts)
    def test_a_tokenizer_of_any_texts_gives_back_any_other(self, known: str, text: str) -> None:
        made = TinyTokenizer.build([known], CONTROLS)
        assert made.decode(made.encode(text)) == text
        assert made.decode(made.encode(known, controls=True)) == known

    @given(st.lists(st.integers(0, len(TOKENIZER) - 1)))
    def test_any_ids_have_a_text(self, ids: list[int]) -> None:
        text = TOKENIZER.decode(ids)
        assert text.encode().decode() == text

    def test_each_control_and_each_piece_has_one_id(self) -> None:
        for text, number in TOKENIZER.control.items():
            assert TOKENIZER.encode(text, controls=True) == [number]
        for text in (" read", "read", " source", "\n    ", "return", "("):
            assert len(TOKENIZER.encode(text)) == 1
        every = [*TOKENIZER.control.values(), *TOKENIZER.piece.values()]
        assert sorted(every) == [i for i in range(len(TOKENIZER)) if not 4 <= i < 20]

    def test_of_two_controls_that_begin_alike_the_longer_one_is_meant(self) -> None:
        assert TOKENIZER.encode("<call>><call>", controls=True) == [TOKENIZER.control[c] for c in ("<call>>", "<call>")]

    def test_an_unknown_character_is_spelled_in_half_bytes(self) -> None:
        first = len(CONTROLS)
        assert TOKENIZER.encode("é") == [first + digit for digit in (0xC, 0x3, 0xA, 0x9)]

    @pytest.mark.parametrize("digits", [[0xC], [0xC, 0x3], [0xC, 0x3, 0xA], [0x8, 0x0]])
    def test_half_bytes_that_are_no_character_become_the_replacement_character(self, digits: list[int]) -> None:
        ids = [len(CONTROLS) + digit for digit in digits]
        assert set(TOKENIZER.decode(ids)) == {"\ufffd"}
        read = TOKENIZER.encode(" read")
        assert TOKENIZER.decode([*ids, *read]).endswith(" read")

    @pytest.mark.parametrize("wrong", [-1, len(TOKENIZER), 10**9])
    def test_an_unknown_id_is_an_error_that_names_it(self, wrong: int) -> None:
        with pytest.raises(ValueError, match=f"no token {wrong};"):
            TOKENIZER.decode([0, wrong])

    def test_what_is_no_text_is_refused(self) -> None:
        with pytest.raises(UnicodeEncodeError):
            TOKENIZER.encode("a\ud800")
        with pytest.raises(UnicodeEncodeError):
            TinyTokenizer.build(["a\ud800"])

    @pytest.mark.parametrize("controls", [("<a>", "<a>"), ("",)])
    def test_controls_are_different_and_not_empty(self, controls: tuple[str, ...]) -> None:
        with pytest.raises(ValueError, match="controls must be different and not empty"):
            TinyTokenizer.build(TEXTS, controls)

    def test_one_string_in_place_of_several_is_an_error(self) -> None:
        with pytest.raises(TypeError, match="not one string"):
            TinyTokenizer.build("abc")
        with pytest.raises(TypeError, match="not one string"):
            TinyTokenizer.build(["abc"], "<a>")

    @pytest.mark.parametrize(
        ("control", "piece", "named"),
        [({"<a>": 5}, {}, "control '<a>' has id 5"), ({"<a>": 0}, {"b": 17, "c": 17}, "piece 'c' has id 17")],
    )
    def test_ids_given_by_hand_have_to_count_on(self, control: dict, piece: dict, named: str) -> None:
        with pytest.raises(ValueError, match=named):
            TinyTokenizer(control, piece)

    def test_ids_do_not_depend_on_the_order_of_sets(self) -> None:
        assert TinyTokenizer.build(iter(TEXTS), CONTROLS) == TOKENIZER


class Reference(nn.Module):
    """The same architecture from torch's own layers, with TinyAgent's weights copied in."""

    def __init__(self, model: TinyAgent) -> None:
        super().__init__()
        c = model.config
        self.heads = c.heads
        self.tokens = nn.Embedding(c.vocab_size, c.width, dtype=DTYPE)
        self.positions = nn.Embedding(c.max_positions, c.width, dtype=DTYPE)
        self.norm = nn.RMSNorm(c.width, eps=1e-6, elementwise_affine=False)
        shapes = [(c.width, 3 * c.width), (c.width, c.width), (c.width, c.mlp_ratio * c.width)]
        shapes.append((c.mlp_ratio * c.width, c.width))
        self.layers: list[list[nn.Linear]] = [
            [nn.Linear(*shape, bias=False, dtype=DTYPE) for shape in shapes] for _ in range(c.layers)
        ]
        self.head = nn.Linear(c.width, c.vocab_size, bias=False, dtype=DTYPE)
        with torch.no_grad():
            for mine, theirs in self.pairs(model):
                mine.copy_(theirs)

    def pairs(self, model: TinyAgent) -> Sequence[tuple[Tensor, Tensor]]:
        """Return each weight of this model beside TinyAgent's, in this model's orientation."""
        blocks: Any = model.blocks
        found: list[tuple[Tensor, Tensor]] = [(self.tokens.weight, model.tokens)]
        found.append((self.positions.weight, model.positions))
        found.append((self.head.weight, model.head.T))
        for layer, block in zip(self.layers, blocks, strict=True):
            theirs = (block.attention.qkv, block.attention.out, block.up, block.down)
            found += [(linear.weight, weight.T) for linear, weight in zip(layer, theirs, strict=True)]
        return found

    def forward(self, ids: Tensor, positions: Tensor, visible: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(positions)
        for qkv, out, up, down in self.layers:
            parts = qkv(self.norm(x)).chunk(3, dim=-1)
            query, key, value = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
            mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=visible[:, None])
            x = x + out(mixed.transpose(1, 2).flatten(2))
            x = x + down(torch.relu(up(self.norm(x))))
        return self.head(self.norm(x))


def gradients(model: TinyAgent) -> list[Tensor]:
    return [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]


class TestModel:
    @pytest.mark.parametrize(
        "config", [CONFIG, TinyAgentConfig(7, 8, 1, 1, 4, 9), TinyAgentConfig(30, 16, 3, 4, 1, 20)]
    )
    def test_forward_loss_and_gradient_agree_with_torchs_own_layers(self, config: TinyAgentConfig) -> None:
        model = TinyAgent(config, generator(3))
        reference = Reference(model)
        ids = torch.randint(config.vocab_size, (3, 9), generator=generator(4))
        segments = torch.tensor([[1] * 9, [1, 1, 1, 1, 2, 2, 2, 2, 2], [0, 0, 1, 1, 1, 2, 2, 0, 0]])
        positions = torch.tensor([[*range(9)], [0, 1, 2, 3, 0, 1, 2, 3, 4], [0, 0, 0, 1, 2, 0, 1, 0, 0]])
        visible = torch.zeros(3, 9, 9, dtype=torch.bool)
        for t in range(9):
            visible[:, t, : t + 1] = segments[:, t, None] == segments[:, : t + 1]
        logits, expected = model(ids, segments=segments), reference(ids, positions, visible)
        assert gap(logits, expected) < 1e-12
        scored = has_past(segments)
        loss = -token_logprobs(model, ids, segments)[scored].mean()
        wanted = nn.functional.cross_entropy(expected[:, :-1][scored[:, 1:]], ids[scored])
        assert abs(loss.item() - wanted.item()) < 1e-12
        loss.backward()
        wanted.backward()
        for mine, theirs in reference.pairs(model):
            grad = next(p.grad for p in model.parameters() if p.data_ptr() == theirs.data_ptr())
            assert grad is not None
            assert mine.grad is not None
            assert gap(mine.grad, grad if grad.shape == mine.shape and theirs.is_contiguous() else grad.T) < 1e-12

    @given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 9))
    @few
    def test_the_number_of_parameters_is_the_formulas(
        self, vocab: int, heads: int, layers: int, r: int, p: int
    ) -> None:
        width = 2 * heads
        model = TinyAgent(TinyAgentConfig(vocab, width, layers, heads, r, p), generator(0))
        formula = 2 * vocab * width + p * width + layers * (4 + 2 * r) * width**2
        assert sum(parameter.numel() for parameter in model.parameters()) == formula

    def test_the_default_has_about_a_hundred_thousand_parameters_in_float64(self) -> None:
        model = TinyAgent(TinyAgentConfig(180), generator(0))
        assert 50_000 < sum(parameter.numel() for parameter in model.parameters()) < 150_000
        assert {parameter.dtype for parameter in model.parameters()} == {DTYPE}

    def test_weights_depend_on_the_generator_and_on_nothing_else(self) -> None:
        before = torch.get_rng_state()
        torch.rand(3)
        again = TinyAgent(CONFIG, generator(0))
        assert all(torch.equal(a, b) for a, b in zip(MODEL.parameters(), again.parameters(), strict=True))
        other = TinyAgent(CONFIG, generator(1))
        assert not any(torch.equal(a, b) for a, b in zip(MODEL.parameters(), other.parameters(), strict=True))
        torch.set_rng_state(before)

    @pytest.mark.parametrize(
        ("sizes", "named"),
        [
            ({"vocab_size": 0}, "vocab_size is 0"),
            ({"vocab_size": 5, "layers": -1}, "layers is -1"),
            ({"vocab_size": 5, "width": 2.5}, "width is 2.5"),
            ({"vocab_size": True}, "vocab_size is True"),
            ({"vocab_size": 5, "width": 10}, "width of 10"),
        ],
    )
    def test_a_size_that_cannot_be_is_an_error_that_names_it(self, sizes: dict, named: str) -> None:
        with pytest.raises(ValueError, match=named):
            TinyAgentConfig(**sizes)

    @given(st.integers(0, 9), st.integers(1, CONFIG.vocab_size - 1))
    @few
    def test_a_later_token_changes_no_earlier_logit(self, place: int, by: int) -> None:
        ids = random_ids(2, 10)
        changed = ids.clone()
        changed[:, place] = (changed[:, place] + by) % CONFIG.vocab_size
        with torch.no_grad():
            one, other = MODEL(ids), MODEL(changed)
        assert gap(one[:, :place], other[:, :place]) < 1e-12
        assert ((one[:, place:] - other[:, place:]).abs().amax(-1) > 1e-9).all()

    @given(id_rows)
    @few
    def test_padding_batching_and_packing_change_no_row(self, rows: list[list[int]]) -> None:
        with torch.no_grad():
            alone = [MODEL(as_row(row))[0] for row in rows]
            for side in ("left", "right"):
                ids, mask = pad_rows(rows, side, fill=3)
                together = MODEL(ids, segments=mask)
                assert torch.isfinite(together).all()
                for row, logits, real in zip(alone, together, mask, strict=True):
                    assert gap(logits[real], row) < 1e-12
            packed = as_row([token for row in rows for token in row])
            numbers = as_row([number for number, row in enumerate(rows, 5) for _ in row])
            assert gap(MODEL(packed, segments=numbers)[0], torch.cat(alone)) < 1e-12

    def test_padding_gets_no_gradient_and_spoils_none(self) -> None:
        rows = [[1, 2, 3, 4], [5, 6]]
        model = TinyAgent(CONFIG, generator(2))
        found = []
        for fill in (0, 9):
            model.zero_grad()
            ids, mask = pad_rows(rows, "right", fill)
            token_logprobs(model, ids, mask).sum().backward()
            found.append([g.clone() for g in gradients(model)])
        assert all(gap(one, other) < 1e-12 for one, other in zip(*found, strict=True))

    def test_ids_and_positions_outside_the_tables_are_errors_that_name_them(self) -> None:
        with pytest.raises(ValueError, match="no token id 11; there are 11"):
            MODEL(as_row([1, 11]))
        with pytest.raises(ValueError, match="no token id -1;"):
            MODEL(as_row([-1]))
        with pytest.raises(ValueError, match="no position 24; there are 24"):
            MODEL(random_ids(1, 25))
        with pytest.raises(ValueError, match="no position 24"):
            MODEL(as_row([1]), positions=as_row([24]))

    def test_a_row_longer_than_the_positions_may_hold_shorter_sequences(self) -> None:
        segments = as_row([1] * 20 + [2] * 20)
        assert MODEL(random_ids(1, 40), segments=segments).shape == (1, 40, 11)

    def test_rows_are_padded_on_either_side_and_nothing_else(self) -> None:
        ids, mask = pad_rows([[1, 2], [3], []], "left", fill=7)
        assert ids.tolist() == [[1, 2], [7, 3], [7, 7]]
        assert mask.tolist() == [[True, True], [False, True], [False, False]]
        assert [made.shape for made in pad_rows([])] == [(0, 0), (0, 0)]
        with pytest.raises(ValueError, match="side is 'centre'"):
            pad_rows([[1]], "centre")

    @pytest.mark.parametrize("wrong", [1.5, True, "a", None])
    def test_rows_of_other_things_than_ids_are_errors_that_show_them(self, wrong: Any) -> None:
        with pytest.raises(TypeError, match=f"row 1 holds {wrong!r}; token ids are whole numbers"):
            pad_rows([[1], [2, wrong]])


class TestCache:
    @given(id_rows, st.lists(st.integers(1, 5), min_size=1, max_size=6))
    @few
    def test_cached_and_uncached_logits_agree_however_the_rows_are_cut(
        self, rows: list[list[int]], sizes: list[int]
    ) -> None:
        cache = KVCache(MODEL, len(rows), 12)
        found: list[list[Tensor]] = [[] for _ in rows]
        step = 0
        with torch.no_grad():
            while any(length < len(row) for length, row in zip(cache.lengths.tolist(), rows, strict=True)):
                held = cache.lengths.tolist()
                size = sizes[step % len(sizes)]
                cut = [row[n : n + size + i % 2] for i, (row, n) in enumerate(zip(rows, held, strict=True))]
                ids, real = pad_rows(cut)
                logits = MODEL(ids, segments=real, cache=cache)
                for made, new, mask in zip(found, logits, real, strict=True):
                    made.append(new[mask])
                step += 1
            for made, row in zip(found, rows, strict=True):
                assert gap(torch.cat(made), MODEL(as_row(row))[0]) < 1e-12

    def test_rows_that_are_kept_go_on_as_before(self) -> None:
        ids = random_ids(4, 9)
        cache = KVCache(MODEL, 4)
        with torch.no_grad():
            whole = MODEL(ids)
            MODEL(ids[:, :5], cache=cache)
            cache.keep([3, 1])
            assert cache.lengths.tolist() == [5, 5]
            assert gap(MODEL(ids[[3, 1], 5:], cache=cache), whole[[3, 1], 5:]) < 1e-12

    def test_a_chunk_that_cannot_be_admitted_leaves_the_cache_as_it_was(self) -> None:
        cache = KVCache(MODEL, 2, 6)
        with torch.no_grad():
            MODEL(random_ids(2, 4), cache=cache)
            keys = cache.keys.clone()
            with pytest.raises(ValueError, match="a row needs 7 slots; the cache has 6"):
                MODEL(random_ids(2, 3), cache=cache)
            with pytest.raises(ValueError, match="padding before a new token"):
                MODEL(random_ids(2, 2), segments=torch.tensor([[0, 1], [1, 1]]), cache=cache)
        assert cache.lengths.tolist() == [4, 4]
        assert torch.equal(cache.keys, keys)

    def test_an_id_that_does_not_exist_leaves_the_cache_as_it_was(self) -> None:
        cache = KVCache(MODEL, 1)
        with torch.no_grad():
            MODEL(as_row([1, 2]), cache=cache)
            with pytest.raises(ValueError, match="no token id 99"):
                MODEL(as_row([99]), cache=cache)
            assert cache.lengths.tolist() == [2]
            assert gap(MODEL(as_row([3]), cache=cache)[:, -1], MODEL(as_row([1, 2, 3]))[:, -1]) < 1e-12

    def test_positions_packed_rows_and_other_numbers_of_rows_are_refused(self) -> None:
        cache, ids = KVCache(MODEL, 2), random_ids(2, 4)
        with pytest.raises(ValueError, match="with a cache a row is one sequence"):
            MODEL(ids, positions=torch.tensor([[3, 2, 1, 0]] * 2), cache=cache)
        with pytest.raises(ValueError, match="with a cache a row is one sequence"):
            MODEL(ids, segments=torch.tensor([[1, 1, 2, 2], [1, 1, 1, 1]]), cache=cache)
        with pytest.raises(ValueError, match="1 rows for a cache of 2"):
            MODEL(ids[:1], cache=cache)
        assert cache.lengths.tolist() == [0, 0]

    def test_it_knows_the_ids_of_its_rows(self) -> None:
        cache = KVCache(MODEL, 2)
        with torch.no_grad():
            MODEL(torch.tensor([[1, 2, 0], [3, 4, 5]]), segments=torch.tensor([[1, 1, 0], [1, 1, 1]]), cache=cache)
            MODEL(torch.tensor([[6], [7]]), cache=cache)
        assert [row[:n].tolist() for row, n in zip(cache.ids, cache.lengths, strict=True)] == [[1, 2, 6], [3, 4, 5, 7]]

    def test_padding_is_not_written(self) -> None:
        cache = KVCache(MODEL, 2, 8)
        with torch.no_grad():
            MODEL(random_ids(2, 3), segments=torch.tensor([[1, 0, 0], [1, 1, 1]]), cache=cache)
        assert not cache.keys[:, 0, :, 1:].any()
        assert cache.lengths.tolist() == [1, 3]
        assert isinstance(cache.admit(torch.ones(2, 1, dtype=torch.bool)), CachedChunk)


class TestScoring:
    @given(id_rows)
    @few
    def test_token_logprobs_are_those_of_each_prefix(self, rows: list[list[int]]) -> None:
        ids, mask = pad_rows(rows)
        with torch.no_grad():
            logprobs = token_logprobs(MODEL, ids, mask)
            for found, row in zip(logprobs, rows, strict=True):
                wanted = [MODEL(as_row(row[:t]))[0, -1].log_softmax(-1)[row[t]] for t in range(1, len(row))]
                assert found[0].item() == 0.0
                assert gap(found[1 : len(row)], torch.tensor(wanted, dtype=DTYPE)) < 1e-12
                assert not found[len(row) :].any()

    def test_tokens_after_the_end_and_the_side_of_the_padding_change_nothing(self) -> None:
        with torch.no_grad():
            clean = token_logprobs(MODEL, as_row([1, 2, 3]), everywhere(as_row([1, 2, 3])))[0]
            junk = token_logprobs(MODEL, as_row([1, 2, 3, 9, 9]), as_row([1, 1, 1, 0, 0]))[0]
            left = token_logprobs(MODEL, as_row([9, 9, 1, 2, 3]), as_row([0, 0, 1, 1, 1]))[0]
        assert gap(junk[:3], clean) < 1e-12
        assert gap(left[2:], clean) < 1e-12
        assert not junk[3:].any()
        assert not left[:3].any()

    def test_a_mask_scores_the_same_with_less_work(self) -> None:
        ids = random_ids(3, 8)
        mask = torch.zeros_like(ids, dtype=torch.bool)
        mask[0, 3:5] = mask[2, 1] = True
        with torch.no_grad():
            whole, part = token_logprobs(MODEL, ids, everywhere(ids)), token_logprobs(MODEL, ids, everywhere(ids), mask)
            assert gap(part[mask], whole[mask]) < 1e-12
            assert not part[~mask].any()
            assert scored_logits(MODEL, ids, everywhere(ids), mask).shape == (3, 11)
            nothing = torch.zeros_like(mask)
            assert not token_logprobs(MODEL, ids, everywhere(ids), nothing).any()

    @pytest.mark.parametrize("segments", [[1, 1, 1, 1], [0, 1, 1, 1], [1, 2, 2, 2], [0, 0, 1, 1]])
    def test_a_token_that_nothing_precedes_cannot_be_scored(self, segments: list[int]) -> None:
        ids = random_ids(2, 4)
        mask = torch.zeros_like(ids, dtype=torch.bool)
        first = 0 if segments == [1, 1, 1, 1] else 1
        mask[1, first] = True
        with pytest.raises(ValueError, match=f"row 1, position {first}: no token before it"):
            token_logprobs(MODEL, ids, torch.tensor([[1] * 4, segments]), mask)

    def test_the_temperature_divides_the_logits_and_leaves_them_alone(self) -> None:
        ids = random_ids(1, 6)
        with torch.no_grad():
            logits = MODEL(ids)
            before = logits.clone()
            wanted = (logits / 0.5).log_softmax(-1)[0, :-1].gather(-1, ids[0, 1:, None])[:, 0]
            assert gap(token_logprobs(MODEL, ids, everywhere(ids), temperature=0.5)[0, 1:], wanted) < 1e-12
            sampling_distribution(logits, temperature=0.5, top_k=2, top_p=0.5)
        assert torch.equal(logits, before)

    def test_summed_entropies_average_to_the_entropy_of_the_sequences(self) -> None:
        model = TinyAgent(TinyAgentConfig(3, 8, 1, 2), generator(5))
        every = torch.cartesian_prod(torch.tensor([2]), *[torch.arange(3)] * 3)
        with torch.no_grad():
            model.head.mul_(5)
            logprobs = token_logprobs(model, every, everywhere(every)).sum(1)
            mask = has_past(everywhere(every))
            entropies = sequence_entropy(model, every, everywhere(every), mask)
        chances = logprobs.exp()
        assert chances.sum().item() == pytest.approx(1, abs=1e-12)
        assert (chances * entropies).sum().item() == pytest.approx(-(chances * logprobs).sum().item(), abs=1e-12)

    @pytest.mark.parametrize("wrong", [0, -1.0, math.nan, math.inf])
    def test_a_temperature_at_which_there_are_no_logprobs_is_refused(self, wrong: float) -> None:
        ids = random_ids(1, 4)
        with pytest.raises(ValueError, match=f"temperature {wrong}: it must be finite and above 0"):
            token_logprobs(MODEL, ids, everywhere(ids), temperature=wrong)

    @pytest.mark.parametrize("dtype", [torch.int64, DTYPE])
    def test_a_mask_of_numbers_is_refused_instead_of_used_as_indices(self, dtype: torch.dtype) -> None:
        ids = random_ids(2, 4)
        mask = has_past(everywhere(ids))
        for score in (scored_logits, token_logprobs, sequence_entropy):
            with pytest.raises(TypeError, match=r"mask must be bool of shape \[2, 4\]; it is torch\."):
                score(MODEL, ids, everywhere(ids), mask.to(dtype))
            with pytest.raises(TypeError, match=r"of \[1, 4\]"):
                score(MODEL, ids, everywhere(ids), mask[:1])

    @pytest.mark.parametrize(
        ("wrong", "position"), [([1, 1, 0, 1], 3), ([1, 2, 1, 1], 2), ([-1, -1, -1, -1], 0), ([0, 2, 0, 2], 3)]
    )
    def test_segments_with_holes_or_below_zero_are_refused_by_row_and_position(
        self, wrong: list[int], position: int
    ) -> None:
        ids, segments = random_ids(2, 4), torch.tensor([[1, 1, 1, 1], wrong])
        message = f"row 1, position {position}: segment {wrong[position]} is negative or goes on after a gap"
        with pytest.raises(ValueError, match=message):
            MODEL(ids, segments=segments)
        with pytest.raises(ValueError, match=message):
            token_logprobs(MODEL, ids, segments)

    def test_an_additive_mask_and_one_of_another_shape_are_refused(self) -> None:
        ids = random_ids(2, 4)
        with pytest.raises(TypeError, match=r"must be bool or whole numbers, not torch\.float64"):
            token_logprobs(MODEL, ids, torch.zeros(2, 4, dtype=DTYPE))
        with pytest.raises(ValueError, match=r"ids of shape \[2, 4\], but a mask or segments of shape \[1, 4\]"):
            MODEL(ids, segments=everywhere(ids)[:1])

    def test_a_row_without_selected_tokens_has_entropy_zero(self) -> None:
        ids = random_ids(2, 4)
        mask = torch.zeros_like(ids, dtype=torch.bool)
        mask[0, 2] = True
        with torch.no_grad():
            one, none = sequence_entropy(MODEL, ids, everywhere(ids), mask).tolist()
        assert 0 < one <= math.log(11)
        assert none == 0.0


distributions = st.lists(st.floats(-30, 30), min_size=1, max_size=8).map(lambda z: torch.tensor(z, dtype=DTYPE))


class TestSampling:
    @pytest.mark.parametrize(
        ("logits", "temperature", "token", "logprob"),
        [([2.0, 0, 0], 0.5, 0, -0.035976), ([2.0, 0, 0], 1.0, 0, -0.239545)],
    )
    def test_temperature_has_the_values_of_other_frameworks(
        self, logits: list[float], temperature: float, token: int, logprob: float
    ) -> None:
        found = sampling_distribution(torch.tensor(logits, dtype=DTYPE), temperature)[token].log().item()
        assert found == pytest.approx(logprob, abs=1e-6)

    def test_the_raw_logprob_gives_an_unchanged_policy_a_ratio_that_is_not_one(self) -> None:
        logits = torch.tensor([2.0, 1.0, 0.0], dtype=DTYPE)
        sampled, raw = sampling_distribution(logits, 0.6)[1], logits.softmax(-1)[1]
        assert (sampled / raw).item() == pytest.approx(0.630253, abs=1e-6)

    @given(distributions, st.integers(1, 8))
    def test_top_k_keeps_the_k_largest_and_of_equals_the_lower_ids(self, logits: Tensor, k: int) -> None:
        found = sampling_distribution(logits, top_k=k)
        order = sorted(range(len(logits)), key=lambda i: (-logits.softmax(-1)[i].item(), i))[:k]
        wanted = torch.zeros_like(logits)
        wanted[order] = logits.softmax(-1)[order]
        assert gap(found, wanted / wanted.sum()) < 1e-12

    @given(distributions, st.floats(0.01, 1))
    def test_top_p_keeps_the_smallest_set_that_reaches_p(self, logits: Tensor, p: float) -> None:
        raw, found = logits.softmax(-1), sampling_distribution(logits, top_p=p)
        kept = found > 0
        assert found.sum().item() == pytest.approx(1, abs=1e-12)
        assert raw[kept].sum().item() >= p - 1e-9
        assert raw[kept].sum().item() - raw[kept].min().item() < p + 1e-9
        assert not (~kept).any() or raw[kept].min() >= raw[~kept].max()
        assert gap(found[kept], raw[kept] / raw[kept].sum()) < 1e-12

    @given(distributions, st.floats(0.2, 5), st.integers(1, 8), st.floats(0.05, 1))
    def test_top_p_counts_among_what_top_k_has_left(self, logits: Tensor, temperature: float, k: int, p: float) -> None:
        first = sampling_distribution(logits, temperature, top_k=k)
        again = sampling_distribution(first.clamp(min=1e-300).log(), top_p=p)
        assert gap(sampling_distribution(logits, temperature, k, p), again) < 1e-9 or p > 1 - 1e-9

    def test_temperature_zero_is_greedy_and_takes_the_lower_of_equals(self) -> None:
        logits = torch.tensor([[1.0, 3.0, 3.0], [5.0, 0.0, 0.0]], dtype=DTYPE)
        assert sampling_distribution(logits, 0).tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]

    @pytest.mark.parametrize("wrong", [{"temperature": -1}, {"top_k": 0}, {"top_p": 0}, {"top_p": 1.1}])
    def test_settings_that_cannot_be_are_errors_that_show_them(self, wrong: dict) -> None:
        name, value = next(iter(wrong.items()))
        with pytest.raises(ValueError, match=f"{name} {value}"):
            sampling_distribution(torch.zeros(3), **wrong)

    @pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 1e-320])
    def test_a_temperature_that_leaves_no_distribution_is_refused(self, wrong: float) -> None:
        with pytest.raises(ValueError, match=f"{wrong}"):
            sampling_distribution(torch.tensor([1.0, 2.0, 0.0], dtype=DTYPE), wrong)

    @pytest.mark.parametrize("temperature", [0, 1])
    @pytest.mark.parametrize("row", [[1.0, math.nan], [math.inf, 1.0], [-math.inf, -math.inf]])
    def test_logits_without_a_finite_largest_one_are_refused_by_row(self, row: list[float], temperature: float) -> None:
        with pytest.raises(ValueError, match=r"row \[1\]: the largest"):
            sampling_distribution(torch.tensor([[0.0, -math.inf], row], dtype=DTYPE), temperature)

    def test_without_top_p_no_token_is_dropped_however_improbable(self) -> None:
        logits = torch.tensor([0.0, -45.0], dtype=DTYPE)
        assert gap(sampling_distribution(logits, top_k=2).log(), logits) < 1e-12

    @pytest.mark.parametrize("u", [1.0, -0.1, math.nan, 2.0])
    def test_a_uniform_number_outside_the_unit_interval_is_refused_by_row(self, u: float) -> None:
        with pytest.raises(ValueError, match=r"row \[1\]: u = "):
            sample(torch.full((2, 3), 1 / 3, dtype=DTYPE), torch.tensor([0.5, u], dtype=DTYPE))

    @pytest.mark.parametrize("row", [[0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0]])
    def test_a_row_from_which_nothing_can_be_drawn_is_refused(self, row: list[float]) -> None:
        with pytest.raises(ValueError, match=r"row \[1\]: .* the total "):
            sample(torch.tensor([[0.5, 0.5], row], dtype=DTYPE), torch.tensor([0.5, 0.5], dtype=DTYPE))

    def test_one_uniform_number_is_needed_for_each_distribution(self) -> None:
        with pytest.raises(ValueError, match=r"uniforms of shape \[1\] for \[4\] distributions"):
            sample(torch.full((4, 3), 1 / 3, dtype=DTYPE), torch.tensor([0.5], dtype=DTYPE))

    @given(distributions, st.floats(0, 1, exclude_max=True), st.integers(1, 8))
    def test_a_token_of_probability_zero_is_never_sampled(self, logits: Tensor, u: float, k: int) -> None:
        probabilities = sampling_distribution(logits, top_k=k)
        chosen = int(sample(probabilities, torch.tensor(u, dtype=DTYPE)))
        assert probabilities[chosen] > 0
        below = probabilities[:chosen].sum().item()
        assert below - 1e-12 <= u <= below + probabilities[chosen].item() + 1e-12

    def test_the_ends_of_the_unit_interval(self) -> None:
        probabilities = torch.tensor([[0.0, 0.3, 0.7, 0.0]], dtype=DTYPE)
        for u, chosen in [(0.0, 1), (0.3 - 1e-12, 1), (0.3 + 1e-12, 2), (1 - 2**-53, 2)]:
            assert sample(probabilities, torch.tensor([u], dtype=DTYPE)).tolist() == [chosen]

    def test_ten_thousand_draws_have_the_frequencies_of_the_transformed_distribution(self) -> None:
        probabilities = sampling_distribution(torch.tensor([1.0, 0.5, 0.0, -3.0], dtype=DTYPE), 1.5, top_p=0.9)
        uniforms = torch.rand(10_000, generator=generator(6), dtype=DTYPE)
        counts = sample(probabilities.expand(10_000, -1), uniforms).bincount(minlength=4).to(DTYPE)
        expected = 10_000 * probabilities
        assert counts[3] == 0
        assert (
            (counts - expected)[:3] ** 2 / expected[:3]
        ).sum().item() < 13.8  # 0.1% quantile, two degrees of freedom


TRANSFORMS = [{}, {"temperature": 0.7, "top_k": 5, "top_p": 0.8}, {"temperature": 0}]


class TestGenerate:
    prompts = ([1, 2, 3], [4], [5, 6, 7, 8, 9], [3, 3])

    @pytest.mark.parametrize("transform", TRANSFORMS)
    def test_an_episode_alone_is_the_same_as_in_any_batch(self, transform: dict) -> None:
        together = generate(MODEL, self.prompts, split_generator(generator(7), 4), 9, stop=2, **transform)
        for i in (2, 0, 3, 1):
            stream = split_generator(generator(7), 4)[i]
            alone = generate(MODEL, [self.prompts[i]], [stream], 9, stop=2, **transform)
            assert alone.ids[0] == together.ids[i]
            assert alone.logprobs[0] == pytest.approx(together.logprobs[i], abs=1e-12)

    @pytest.mark.parametrize("transform", TRANSFORMS)
    def test_recorded_logprobs_are_those_of_the_distribution_sampled_from(self, transform: dict) -> None:
        made = generate(MODEL, self.prompts, split_generator(generator(8), 4), 9, stop=2, **transform)
        for prompt, ids, logprobs in zip(self.prompts, made.ids, made.logprobs, strict=True):
            with torch.no_grad():
                scored = MODEL(as_row([*prompt, *ids]))[0, len(prompt) - 1 : -1]
            wanted = sampling_distribution(scored, **transform).gather(-1, torch.tensor(ids)[:, None])[:, 0].log()
            assert logprobs == pytest.approx(wanted.tolist(), abs=1e-12)

    def test_at_temperature_one_they_are_token_logprobs(self) -> None:
        made = generate(MODEL, self.prompts, split_generator(generator(8), 4), 9, stop=2)
        ids, mask = pad_rows([[*p, *new] for p, new in zip(self.prompts, made.ids, strict=True)])
        with torch.no_grad():
            scored = token_logprobs(MODEL, ids, mask)
        for row, prompt, logprobs in zip(scored, self.prompts, made.logprobs, strict=True):
            assert row[len(prompt) : len(prompt) + len(logprobs)].tolist() == pytest.approx(logprobs, abs=1e-12)

    def test_a_row_ends_with_the_stop_token_or_at_the_limit(self) -> None:
        made = generate(MODEL, [[1]] * 40, split_generator(generator(9), 40), 9, stop=2)
        assert {len(ids) for ids in made.ids} > {9}
        for ids, logprobs in zip(made.ids, made.logprobs, strict=True):
            assert len(ids) == len(logprobs)
            assert 2 not in ids[:-1]
            assert len(ids) == 9 or ids[-1] == 2
        assert made.stopped == [ids[-1] == 2 for ids in made.ids]
        assert {True, False} == set(made.stopped)

    def test_without_a_stop_token_every_row_has_full_length(self) -> None:
        made = generate(MODEL, self.prompts, split_generator(generator(9), 4), 6)
        assert [len(ids) for ids in made.ids] == [6] * 4
        assert made.stopped == [False] * 4

    def test_turns_with_a_cache_are_turns_from_scratch(self) -> None:
        def play(cached: bool) -> tuple[list[list[int]], list[list[float]]]:
            contexts, logprobs = [list(p) for p in self.prompts], [[] for _ in self.prompts]
            streams, cache = split_generator(generator(10), 4), KVCache(MODEL, 4) if cached else None
            rows = [0, 1, 2, 3]
            for turn in range(3):
                live = [contexts[r] for r in rows]
                made = generate(MODEL, live, [streams[r] for r in rows], 3, stop=2, cache=cache)
                for r, ids, new in zip(rows, made.ids, made.logprobs, strict=True):
                    contexts[r] += [*ids, *range(r % 3)]  # an observation, for some rows none
                    logprobs[r] += new
                if turn == 0:
                    rows = [3, 0, 1]
                    if cache is not None:
                        cache.keep(rows)
            return contexts, logprobs

        (contexts, logprobs), (wanted, scratch) = play(True), play(False)
        assert contexts == wanted
        for one, other in zip(logprobs, scratch, strict=True):
            assert one == pytest.approx(other, abs=1e-12)

    def test_a_context_with_nothing_new_and_one_that_is_too_long_are_errors(self) -> None:
        with pytest.raises(ValueError, match="row 1: the cache holds its whole context, or the context is empty"):
            generate(MODEL, [[1], []], split_generator(generator(0), 2), 2)
        with pytest.raises(
            ValueError, match="row 0: a context of 20 ids and 6 new tokens need 25 slots; the cache has 24"
        ):
            generate(MODEL, [[1] * 20], split_generator(generator(0), 1), 6)

    @pytest.mark.parametrize(("prompts", "streams", "tokens"), [(0, 1, 3), (2, 1, 3), (1, 2, 3), (1, 1, 0), (1, 1, -1)])
    def test_prompts_without_streams_and_no_tokens_are_errors_that_count_them(
        self, prompts: int, streams: int, tokens: int
    ) -> None:
        with pytest.raises(ValueError, match=f"{prompts} contexts, {streams} streams, {tokens} new tokens"):
            generate(MODEL, [[1]] * prompts, split_generator(generator(0), streams), tokens)

    def test_a_cache_of_other_rows_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="1 contexts for a cache of 2 rows"):
            generate(MODEL, [[1]], split_generator(generator(0), 1), 2, cache=KVCache(MODEL, 2))

    def test_streams_are_drawn_from_their_source_and_differ(self) -> None:
        def firsts() -> list[float]:
            return [torch.rand(1, generator=s, dtype=DTYPE).item() for s in split_generator(generator(11), 50)]

        assert firsts() == firsts()
        assert len(set(firsts())) == 50

    def test_no_prompts_give_nothing(self) -> None:
        assert generate(MODEL, [], [], 3) == Generation([], [], [])

    def test_one_generator_for_all_rows_is_an_error(self) -> None:
        streams: Any = generator(0)
        with pytest.raises(TypeError, match="one generator; give one for each row"):
            generate(MODEL, [[1]], streams, 2)

    @pytest.mark.parametrize("stop", [-1, 11, True, 2.0, [3, 4]])
    def test_a_stop_that_is_no_id_of_the_vocabulary_is_an_error(self, stop: Any) -> None:
        with pytest.raises(ValueError, match=r"stop is .*; it must be one id of the vocabulary, or None"):
            generate(MODEL, [[1]], split_generator(generator(0), 1), 2, stop=stop)

    def test_a_cache_of_another_context_is_an_error_that_names_row_and_position(self) -> None:
        cache = KVCache(MODEL, 2)
        made = generate(MODEL, [[1, 2, 3], [4]], split_generator(generator(1), 2), 3, cache=cache)
        held = [[1, 2, 3, *made.ids[0]], [4, *made.ids[1]]]
        before = cache.lengths.clone()
        other = [held[0] + [5], [4, *made.ids[1][:-2], (made.ids[1][-2] + 1) % 11, 5, 5]]
        with pytest.raises(ValueError, match="row 1: the cache holds another context; they differ at position 2"):
            generate(MODEL, other, split_generator(generator(2), 2), 2, cache=cache)
        assert torch.equal(cache.lengths, before)
        assert len(generate(MODEL, held, split_generator(generator(2), 2), 2, cache=cache).ids) == 2

    def test_whether_the_cache_has_room_does_not_hang_on_the_draw(self) -> None:
        for seed in range(20):
            with pytest.raises(ValueError, match="need 25 slots; the cache has 24"):
                generate(MODEL, [[1] * 18], split_generator(generator(seed), 1), 8, stop=3)
        assert generate(MODEL, [[1] * 24], split_generator(generator(0), 1), 1).stopped == [False]

    @pytest.mark.parametrize(
        ("given", "error"),
        [
            ({"temperature": -1}, ValueError),
            ({"temperature": math.nan}, ValueError),
            ({"top_p": 0}, ValueError),
            ({"top_k": 2.5}, ValueError),
            ({"temprature": 0.5}, TypeError),
            ({"max_new_tokens": 0}, ValueError),
            ({"prompts": [[1, 99]]}, ValueError),
            ({"prompts": [[1, 2.5]]}, TypeError),
        ],
    )
    def test_a_request_that_is_refused_leaves_the_cache_as_it_was(self, given: dict, error: type) -> None:
        cache, streams = KVCache(MODEL, 1), split_generator(generator(0), 1)
        with pytest.raises(error):
            generate(
                **{"model": MODEL, "prompts": [[1]], "streams": streams, "max_new_tokens": 3, "cache": cache, **given}
            )
        assert cache.lengths.tolist() == [0]
        assert generate(MODEL, [[1]], split_generator(generator(0), 1), 3, cache=cache).ids == [
            *generate(MODEL, [[1]], split_generator(generator(0), 1), 3).ids
        ]

    def test_nothing_generated_carries_a_gradient(self) -> None:
        cache = KVCache(MODEL, 1)
        generate(MODEL, [[1]], split_generator(generator(0), 1), 2, cache=cache)
        assert not cache.keys.requires_grad


# Run in a process of its own under some setting: a short training, then a hash of every weight.
TRAINING = """
import hashlib, torch
from agentrl.notation import generator
from agentrl.tiny_agent import TinyAgent, TinyAgentConfig, warm_start
model = TinyAgent(TinyAgentConfig(40), generator(0))
ids = torch.randint(40, (12, 8, 24), generator=generator(1))
ids[..., 12:] = ids[..., :12]
mask = torch.zeros_like(ids, dtype=torch.bool)
mask[..., 12:] = True
losses = warm_start(model, ((i, torch.ones_like(m), m) for i, m in zip(ids, mask)))
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
print(losses[-1] < losses[0], digest.hexdigest())
"""


def trained_hash(**variables: str) -> str:
    root = Path(__file__).resolve().parents[1]
    env = {**os.environ, "PYTHONPATH": str(root), "OMP_WAIT_POLICY": "PASSIVE", **variables}
    done = subprocess.run(
        [sys.executable, "-c", TRAINING], env=env, capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout


class TestTraining:
    def test_snapping_puts_every_entry_on_the_grid_and_knows_one_zero(self) -> None:
        values = torch.tensor([0.1234567, -0.75, 2**-20, -(2**-20), 3.0], dtype=DTYPE)
        snap_([values], 2**16)
        assert (values * 2**16 == (values * 2**16).round()).all()
        assert [math.copysign(1, v) for v in values[2:4].tolist()] == [1, 1]
        assert values[2:].tolist() == [0.0, 0.0, 3.0]
        again = values.clone()
        snap_([again], 2**16)
        assert torch.equal(again, values)

    @pytest.mark.parametrize("grid", [0, -4, 3, 1000])
    def test_a_grid_that_is_no_power_of_two_is_refused(self, grid: int) -> None:
        with pytest.raises(ValueError, match=f"grid is {grid};"):
            snap_([torch.zeros(1)], grid)

    def test_a_warm_start_lowers_the_loss_and_leaves_the_weights_on_the_grid(self) -> None:
        model = TinyAgent(CONFIG, generator(0))
        ids = torch.arange(10).repeat(4, 1)
        losses = warm_start(model, [(ids, everywhere(ids), has_past(everywhere(ids)))] * 30, grid=2**14)
        assert losses[-1] < 0.5 * losses[0]
        assert losses[0] == pytest.approx(math.log(11), abs=1)
        for parameter in model.parameters():
            assert (parameter * 2**14 == (parameter * 2**14).round()).all()

    def test_tokens_outside_the_mask_teach_nothing(self) -> None:
        ids = random_ids(4, 10)
        mask = torch.zeros_like(ids, dtype=torch.bool)
        mask[:, 5] = True
        spoiled = ids.clone()
        spoiled[:, 6:] = 0
        weights = []
        for batch in (ids, spoiled):
            model = TinyAgent(CONFIG, generator(0))
            warm_start(model, [(batch, everywhere(ids), mask)] * 3)
            weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        assert torch.equal(*weights)

    def test_the_weights_are_the_same_in_every_bit_on_two_threads_and_on_the_narrowest_code(self) -> None:
        found = {trained_hash(OMP_NUM_THREADS="1"), trained_hash(OMP_NUM_THREADS="2")}
        if this_machine().mkl:
            found.add(trained_hash(OMP_NUM_THREADS="2", MKL_NUM_THREADS="2", MKL_DYNAMIC="FALSE", **LOWEST))
        else:
            found.add(trained_hash(OMP_NUM_THREADS="1", ATEN_CPU_CAPABILITY="default"))
        assert len(found) == 1
        assert found.pop().startswith("True ")
