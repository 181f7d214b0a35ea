"""The token strip: nothing hidden, who wrote a token readable without colour, nothing from a token becomes markup."""

from __future__ import annotations

import math
import re
import unicodedata
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from itertools import groupby, pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from wcwidth import wcswidth

import agentrl as arl
from agentrl.trajectories import _clip, _columns, _token_text, _visible
from bookkit.figures import SVG, svg_problems

FILL = {"prompt": ".", "template": ":", "policy": "=", "tool": "-"}
CONTROLS = ("<bos>", "<call>", " </call>", "<obs>", "</obs>")
EVIL = '</svg><script>alert("1")</script>'
GUTTER = 9


def tokenizer(*texts: str, controls: tuple[str, ...] = CONTROLS) -> arl.TinyTokenizer:
    """Return a tokenizer whose pieces are those of a few calls, and of the texts."""
    return arl.TinyTokenizer.build([" read test", "return min(a, b)\n    x", *texts], controls)


def trajectory(ids: list[int], writers: list[str], turns: list[int] | None = None, **other: Any) -> arl.Trajectory:
    """Return an episode of these tokens; the policy's are trained, with log-probabilities -0.5, -1, -1.5, …"""
    writer = torch.tensor([arl.WRITERS.index(who) for who in writers], dtype=torch.int64)
    mask = writer == arl.WRITERS.index("policy")
    logprobs = torch.where(mask, -0.5 * mask.cumsum(0).to(arl.DTYPE), math.nan)
    given_turns = turns if turns is not None else [-1 if who == "prompt" else 0 for who in writers]
    turn = torch.tensor(given_turns, dtype=torch.int64)
    whole = {"reward": 1.0, "ended": "submitted", "task_id": 7, "attempt": 2} | other
    return arl.Trajectory(torch.tensor(ids, dtype=torch.int64), mask, logprobs, writer, turn, **whole)


def call_and_answer(tiny: arl.TinyTokenizer, answer: str = "return min(a, b)\n    x") -> arl.Trajectory:
    """Return prompt, one call, and the tool's answer between the template's marks."""
    parts = [("prompt", "<bos> test"), ("policy", "<call> read </call>"), ("template", "<obs>")]
    tokens = [(who, id) for who, text in parts for id in tiny.encode(text, controls=True)]
    tokens += [("tool", id) for id in tiny.encode(answer)] + [("template", tiny.control["</obs>"])]
    return trajectory([id for _, id in tokens], [who for who, _ in tokens])


def shown(tiny: Any, ids: list[int]) -> list[str]:
    """Return what a strip shows of these ids, given to it as a prompt."""
    return [token.text for token in arl.token_strip(trajectory(ids, ["prompt"] * len(ids)), tiny).tokens]


def one_control(text: str) -> str:
    """Return what a strip shows of a single token with this text."""
    return shown(tokenizer(controls=(text,)), [0])[0]


@st.composite
def episodes(draw: st.DrawFn) -> tuple[arl.Trajectory, arl.TinyTokenizer]:
    """Return an episode of a few turns whose texts may hold anything."""
    texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    tiny = tokenizer(draw(texts))
    runs = [("prompt", -1, tiny.encode(draw(texts)))]
    for turn in range(draw(st.integers(0, 3))):
        runs.append(("policy", turn, draw(st.lists(st.integers(0, len(tiny) - 1), max_size=5))))
        runs += [("template", turn, [3]), ("tool", turn, tiny.encode(draw(texts))), ("template", turn, [4])]
    tokens = [(who, turn, id) for who, turn, ids in runs for id in ids]
    if tokens and tokens[0][0] == "policy":  # an action has something before it
        tokens.insert(0, ("prompt", -1, 0))
    ids = [id for _, _, id in tokens]
    return trajectory(ids, [who for who, _, _ in tokens], [turn for _, turn, _ in tokens]), tiny


tricky = st.text(st.one_of(st.sampled_from(" ·\n↵\\xb7½∅…u2105\u0301"), st.characters()), max_size=8)


class TestWhatATokenSays:
    @given(tricky, tricky)
    def test_different_texts_are_shown_differently(self, one: str, other: str) -> None:
        visible = [_visible(text) for text in (one, other)]
        assert (visible[0] == visible[1]) == (one == other)

    @given(tricky)
    def test_everything_is_visible_and_on_one_line(self, text: str) -> None:
        visible = _visible(text)
        assert visible.isprintable()
        assert visible
        assert not re.search(r"\s", visible)
        assert unicodedata.category(visible[0])[0] != "M"

    @pytest.mark.parametrize(
        ("text", "seen"),
        [
            (" read", "·read"),
            ("\n    ", "↵····"),
            ("\t", "\\t"),
            ("\x1b[31m", "\\x1b[31m"),
            ("a\u200bb", "a\\u200bb"),
            ("\u202eabc", "\\u202eabc"),
            ("❤\ufe0f", "❤\\ufe0f"),
            ("\u3164", "\\u3164"),
            ("\u0301", "\\u0301"),
            ("e\u0301", "e\u0301"),
            ("漢字", "漢字"),
            ("·", "\\xb7"),
            ("\\n", "\\\\n"),
            ("½c", "\\xbdc"),
            ("∅", "\\u2205"),
            ("…", "\\u2026"),
            ("</obs>", "</obs>"),
        ],
    )
    def test_a_token_by_its_text(self, text: str, seen: str) -> None:
        assert one_control(text) == seen

    def test_a_token_without_text_is_seen(self) -> None:
        assert _visible("") == "∅"

    def test_half_bytes_are_marked_and_differ_from_digits_and_letters(self) -> None:
        tiny = tokenizer("9 ca")
        assert shown(tiny, tiny.encode("漢")) == ["½e", "½6", "½b", "½c", "½a", "½2"]
        assert shown(tiny, tiny.encode("9c")) == ["9", "c"]
        halves = range(len(CONTROLS), len(CONTROLS) + 16)
        assert shown(tiny, list(halves)) == [f"½{digit}" for digit in "0123456789abcdef"]

    def test_a_control_that_a_text_spells_is_not_one_token(self) -> None:
        tiny = tokenizer("<obs>")
        assert shown(tiny, tiny.encode("<obs>")) == ["<", "obs", ">"]
        assert shown(tiny, tiny.encode("<obs>", controls=True)) == ["<obs>"]

    def test_qwens_tokens_are_shown_as_text_controls_too_and_parts_of_characters_as_bytes(self) -> None:
        qwen = arl.load_qwen3_tokenizer()
        ids = qwen.encode(" hi<|im_end|>\n\ufffd").ids + qwen.encode("٣").ids
        assert shown(qwen, ids) == ["·hi", "<|im_end|>", "↵", "\ufffd", "½d9", "½a3"]

    def test_no_two_of_qwens_tokens_are_shown_alike(self) -> None:
        qwen = arl.load_qwen3_tokenizer()
        ids = [*range(256), *range(256, qwen.get_vocab_size(), 20)]  # every single byte, and a sample of the others
        assert len({_token_text(qwen, id) for id in ids}) == len(ids)

    @pytest.mark.parametrize(("made", "id"), [(tokenizer, 999), (arl.load_qwen3_tokenizer, 151_900)])
    def test_an_id_without_a_token_is_refused(self, made: Any, id: int) -> None:
        with pytest.raises(ValueError, match=f"there is no token {id}"):
            shown(made(), [id])

    def test_an_added_token_beyond_the_byte_alphabet_is_shown_as_written(self) -> None:
        qwen = arl.load_qwen3_tokenizer()
        qwen.add_special_tokens(["<｜tool▁call｜>"])
        assert shown(qwen, qwen.encode("<｜tool▁call｜>").ids) == ["<｜tool▁call｜>"]


def blocks(text: str) -> list[dict[str, str]]:
    """Return the strip's lines, each as its rows by label; the row of tokens is called "said"."""
    found = []
    for block in text.split("\n\n")[1:]:
        said, *below = block.split("\n")
        rows = {row[:GUTTER].strip(): row[GUTTER:] for row in below}
        found.append({"label": said[:GUTTER].strip(), "said": said[GUTTER:]} | rows)
    return found


def terminal_columns(text: str) -> int:
    """Return the columns a text takes, by another implementation."""
    return wcswidth(text)


class TestTerminal:
    @settings(max_examples=60, deadline=None)
    @given(episodes(), st.integers(30, 140))
    def test_rows_say_each_token_its_mask_and_its_writer(self, episode: Any, width: int) -> None:
        strip = arl.token_strip(*episode)
        rows = blocks(strip.text(width))
        said = [token for row in rows for token in row["said"].split(" ") if token]
        assert said == [token.text for token in strip.tokens]
        assert [bit for row in rows for bit in row["mask"].split()] == [str(int(t.trained)) for t in strip.tokens]
        tokens = iter(strip.tokens)
        for row in rows:
            line = [next(tokens) for _ in row["said"].split()]
            written = [(who, list(run)) for who, run in groupby(line, lambda token: token.writer)]
            spans = [sum(token.columns + 1 for token in run) - 1 for _, run in written]
            at = 0
            for (who, _), span in zip(written, spans, strict=True):
                assert re.fullmatch(f"({who})?{re.escape(FILL[who])}*", row["who"][at : at + span])
                assert who in row["who"][at : at + span] or span < len(who)
                at += span + 1

    @settings(max_examples=60, deadline=None)
    @given(episodes(), st.integers(30, 140))
    def test_no_line_is_wider_than_it_may_be(self, episode: Any, width: int) -> None:
        lines = arl.token_strip(*episode).text(width).split("\n")
        assert max(_columns(line) for line in lines) <= width

    @settings(max_examples=60, deadline=None)
    @given(episodes())
    def test_colour_adds_codes_and_changes_nothing_else(self, episode: Any) -> None:
        strip = arl.token_strip(*episode)
        colored = strip.text(color=True)
        assert "\x1b" not in strip.text()
        assert re.sub(r"\x1b\[[\d;]+m", "", colored) == strip.text()
        assert len(re.findall(r"\x1b\[0m", colored)) == len(strip.tokens)

    @pytest.mark.parametrize("text", ["漢字", "e\u0301a", "🎉", "한글", "naïve", "ｆｕｌｌ", "ab"])
    def test_columns_are_those_of_a_terminal(self, text: str) -> None:
        assert _columns(text) == terminal_columns(text)

    def test_the_mask_stands_below_wide_characters(self) -> None:
        tiny = tokenizer(controls=("漢字", "b"))
        (row,) = blocks(arl.token_strip(trajectory([0, 1], ["prompt"] * 2), tiny).text())
        assert row["said"] == "漢字 b"
        assert row["mask"] == "0    0"

    def test_each_turn_begins_a_line_that_names_it(self) -> None:
        turns, writers = [-1, 0, 0, 1, 1, 2], ["prompt", "policy", "tool", "policy", "tool", "policy"]
        strip = arl.token_strip(trajectory([0] * 6, writers, turns), tokenizer())
        assert [row["label"] for row in blocks(strip.text())] == ["prompt", "turn 0", "turn 1", "turn 2"]

    def test_a_token_longer_than_the_line_is_cut_off_visibly(self) -> None:
        tiny = tokenizer(controls=(200 * " ", "b"))
        first, second = blocks(arl.token_strip(trajectory([0, 1], ["prompt"] * 2), tiny).text(40))
        assert first["said"] == 30 * "·" + "…"
        assert second["said"] == "b"

    @given(tricky, st.integers(1, 8))
    def test_what_is_cut_off_is_as_long_as_fits(self, text: str, columns: int) -> None:
        clipped = _clip(text, columns)
        assert _columns(clipped) <= columns
        if clipped != text:
            kept = clipped.removesuffix("…")
            assert text.startswith(kept)
            assert _columns(text[: len(kept) + 1]) >= columns

    def test_a_long_token_is_measured_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []
        monkeypatch.setattr(unicodedata, "category", lambda c, ask=unicodedata.category: asked.append(c) or ask(c))
        assert _clip("a" * 10_000, 40) == "a" * 39 + "…"
        assert len(asked) < 5 * 10_000

    def test_a_narrow_terminal_is_refused(self) -> None:
        strip = arl.token_strip(call_and_answer(tokenizer()), tokenizer())
        with pytest.raises(ValueError, match="width of 29"):
            strip.text(29)
        assert strip.text(30)

    def test_print_shows_the_strip(self) -> None:
        strip = arl.token_strip(call_and_answer(tokenizer()), tokenizer())
        assert str(strip) == repr(strip) == strip.text()

    def test_the_first_line_tells_of_the_whole_episode(self) -> None:
        tiny = tokenizer()
        episode = call_and_answer(tiny)
        tokens = len(episode.ids)
        first = arl.token_strip(episode, tiny).text().split("\n")[0]
        assert first == f"task 7, attempt 2: {tokens} tokens, 3 trained, 1 turn, submitted, reward 1"

    def test_a_reward_of_zero_and_another_ending_are_told(self) -> None:
        episode = trajectory([0], ["prompt"], reward=0.0, ended="out_of_turns")
        assert arl.token_strip(episode, tokenizer()).caption.endswith("0 turns, out of turns, reward 0")

    def test_a_failure_of_the_infrastructure_is_no_reward_of_zero(self) -> None:
        episode = trajectory([0], ["prompt"], reward=None, ended="infrastructure")
        assert arl.token_strip(episode, tokenizer()).caption.endswith("0 turns, infrastructure, no reward")


class TestAdvantages:
    def strip(self, values: list[float] | torch.Tensor) -> arl.TokenStrip:
        tiny = tokenizer()
        writers = ["prompt", "policy", "tool", "policy", "policy"]
        return arl.token_strip(trajectory([0, 1, 2, 1, 2], writers, [-1, 0, 0, 1, 1]), tiny, values)

    def test_the_sign_is_written(self) -> None:
        strip = self.strip([math.nan, 1.25, math.nan, -0.5, 0.0])
        assert [row.get("adv", "").split() for row in blocks(strip.text())] == [[], ["+1.2"], ["-0.5", "0"]]

    def test_each_row_begins_where_its_token_does(self) -> None:
        row = blocks(self.strip([0, 1.25, 0, -0.25, 0.25]).text())[2]
        begins = [[match.start() for match in re.finditer(r"\S+", row[name])] for name in ("said", "mask", "adv")]
        assert begins[0] == begins[1] == begins[2]

    @pytest.mark.parametrize("value", [0.0, -0.0])
    def test_zero_has_no_sign(self, value: float) -> None:
        assert self.strip([value] * 5).tokens[1].advantage == "0"

    def test_a_small_one_keeps_its_sign(self) -> None:
        assert self.strip([0, -0.00125, 0, 1, 1]).tokens[1].advantage == "-0.0013"

    def test_values_that_are_not_trained_are_never_read(self) -> None:
        bare = self.strip([0.0, 1.0, 0.0, 2.0, -1.0])
        assert self.strip([math.inf, 1.0, math.nan, 2.0, -1.0]) == bare
        assert [token.tint for token in bare.tokens] == [None, 0.5, None, 1.0, -0.5]

    def test_a_tensor_does_what_a_list_does(self) -> None:
        values = [0.0, 1.0, 0.0, 2.0, -1.0]
        assert self.strip(torch.tensor(values, dtype=arl.DTYPE)) == self.strip(values)

    def test_another_number_of_them_is_refused(self) -> None:
        with pytest.raises(ValueError, match="4 advantages for 5 tokens"):
            self.strip([0.0] * 4)

    @pytest.mark.parametrize("value", [0.75, torch.tensor(0.75)])
    def test_one_number_for_all_is_refused(self, value: Any) -> None:
        with pytest.raises(TypeError, match=r"advantages is 0\.75; give one number for each of the 5 tokens"):
            self.strip(value)

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_one_that_is_not_finite_is_refused_with_its_place(self, value: float) -> None:
        with pytest.raises(ValueError, match=f"position 3: the advantage is {value}"):
            self.strip([0.0, 1.0, 0.0, value, 1.0])

    def test_the_tint_grows_with_the_advantage_and_has_two_colours(self) -> None:
        boxes = list(ET.fromstring(self.strip([0, 1, 0, 2, -1]).svg()).iter(f"{{{SVG}}}rect"))[-5:]
        shares = [float(box.get("fill-opacity") or 0) for box in boxes]
        assert shares[3] > shares[1] == shares[4] > 0
        assert boxes[1].get("fill") == boxes[3].get("fill") != boxes[4].get("fill")


class Tags(HTMLParser):
    """Collects tags, attributes and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def styles(self, tag: str) -> list[dict[str, str]]:
        """Return the styles of each element of a kind, by property."""
        found = [(attrs.get("style") or "").split(";") for name, attrs in self.tags if name == tag]
        return [dict(part.split(":", 1) for part in style) for style in found]


def evil_strip() -> arl.TokenStrip:
    """Return a strip in which markup is a token of the prompt, a text of the tool, and a piece in a tooltip."""
    tiny = tokenizer(EVIL, controls=(*CONTROLS, EVIL))
    episode = call_and_answer(tiny, EVIL + "\x00\ufffe")
    ids = [len(CONTROLS), *episode.ids.tolist()]
    writers = ["prompt", *(arl.WRITERS[who] for who in episode.writer)]
    return arl.token_strip(trajectory(ids, writers), tiny)


class TestPicture:
    def test_a_token_that_spells_markup_stays_text(self) -> None:
        strip = evil_strip()
        root = ET.fromstring(strip.svg())
        assert {str(element.tag).removeprefix(f"{{{SVG}}}") for element in root.iter()} == {
            *("svg", "title", "desc", "rect", "text", "g")
        }
        assert EVIL in [element.text for element in root.iter(f"{{{SVG}}}text")]
        page = Tags(strip.html())
        assert {tag for tag, _ in page.tags} == {"figure", "figcaption", "br", "div", "b", "span", "bdi", "sub"}
        assert EVIL in page.texts
        assert {name for _, attrs in page.tags for name in attrs} == {"role", "aria-label", "style", "title"}

    @settings(max_examples=40, deadline=None)
    @given(episodes(), st.integers(300, 900))
    def test_every_token_is_there_once_in_order_and_within_the_width(self, episode: Any, width: int) -> None:
        strip = arl.token_strip(*episode)
        root = ET.fromstring(strip.svg(width))
        groups = list(root.iter(f"{{{SVG}}}g"))[4:]  # the first four explain the borders
        assert [group[2].text for group in groups] == [token.text for token in strip.tokens]
        assert [(group[3].text or "")[0] for group in groups] == [str(int(token.trained)) for token in strip.tokens]
        boxes = [[float(group[1].get(key) or 0) for key in ("y", "x", "width")] for group in groups]
        assert all(x + wide <= width - 10 for _, x, wide in boxes)
        assert all(y2 > y1 or x2 >= x1 + wide1 + 4 for (y1, x1, wide1), (y2, x2, _) in pairwise(boxes))

    def test_the_label_of_a_late_turn_has_room(self) -> None:
        strip = arl.token_strip(trajectory([0] * 125, ["prompt"] + 124 * ["policy"], [*range(-1, 124)]), tokenizer())
        root = ET.fromstring(strip.svg())
        label = next(text for text in root.iter(f"{{{SVG}}}text") if text.text == "turn 123")
        left = float(list(root.iter(f"{{{SVG}}}rect"))[-1].get("x") or 0)
        assert float(label.get("x") or 0) + 8 * len("turn 123") < left

    @settings(max_examples=40, deadline=None)
    @given(episodes())
    def test_the_page_holds_every_token_with_its_mask(self, episode: Any) -> None:
        strip = arl.token_strip(*episode)
        page = Tags(strip.html())
        texts = [text for text in page.texts if text.strip()]
        tail = [value for token in strip.tokens for value in (token.text, str(int(token.trained)))]
        labels = {"prompt", *(f"turn {turn}" for turn in range(9))}
        kept = [text for text in texts if text not in labels]
        assert kept[len(kept) - len(tail) :] == [value for value in tail if value not in labels]

    def test_the_file_has_nothing_a_figure_may_not_have(self) -> None:
        found = svg_problems(evil_strip().svg())
        assert set(found) <= {"aria-labelledby does not name the <title>", "aria-labelledby does not name the <desc>"}

    def test_who_is_told_by_the_border_alone(self) -> None:
        borders = Tags(evil_strip().html()).styles("bdi")[:4]
        assert [style["border"].split()[1] for style in borders] == ["dotted", "none", "solid", "dashed"]
        strokes = [group[1] for group in list(ET.fromstring(evil_strip().svg()).iter(f"{{{SVG}}}g"))[:4]]
        assert len({(box.get("stroke-width"), box.get("stroke-dasharray")) for box in strokes}) == 4

    def test_a_tooltip_tells_log_probability_and_advantage(self) -> None:
        tiny = tokenizer()
        strip = arl.token_strip(call_and_answer(tiny), tiny, [0.5] * len(call_and_answer(tiny).ids))
        notes = [element.text for element in ET.fromstring(strip.svg()).iter(f"{{{SVG}}}title")]
        told = "token 3, id {}, policy, turn 0, trained, log-probability -1, advantage +0.5"
        assert told.format(tiny.encode(" read")[0]) in notes
        assert told.format(tiny.encode(" read")[0]) in [attrs.get("title") for _, attrs in Tags(strip.html()).tags]

    def test_it_is_described_in_words(self) -> None:
        tiny = tokenizer()
        strip = arl.token_strip(call_and_answer(tiny, " read"), tiny)
        words = "Before the first turn: prompt 2. Turn 0: policy 3, template 1, tool 1, template 1."
        assert words in (ET.fromstring(strip.svg()).findtext(f"{{{SVG}}}desc") or "")
        assert words in (Tags(strip.html()).tags[0][1]["aria-label"] or "")

    @pytest.mark.parametrize("page", ["#ffffff", "#111111", "#1e1e1e"])
    def test_borders_and_text_stand_out_on_white_and_on_dark(self, page: str) -> None:
        tiny = tokenizer()
        strip = arl.token_strip(
            trajectory([0, 1, 2, 2, 3], ["prompt", "policy", "policy", "tool", "template"]), tiny, [0, 1, -1, 0, 0]
        )
        letters = "#1f2328" if page == "#ffffff" else "#e1e4e8"
        for style in Tags(strip.html()).styles("bdi"):
            assert contrast(hex_color(style["border"].split()[2]), hex_color(page)) >= 3
            red, green, blue, share = (float(part) for part in style["background"][5:-1].split(","))
            behind = [share * c + (1 - share) * p for c, p in zip((red, green, blue), hex_color(page), strict=True)]
            assert contrast(hex_color(letters), behind) >= 4.5

    def test_a_narrow_picture_is_refused(self) -> None:
        with pytest.raises(ValueError, match="width of 299"):
            evil_strip().svg(299)

    def test_a_notebook_shows_the_page(self) -> None:
        assert evil_strip()._repr_html_() == evil_strip().html()


def hex_color(text: str) -> list[float]:
    """Return red, green and blue of "#rrggbb", each from 0 to 255."""
    return [float(int(text[place : place + 2], 16)) for place in (1, 3, 5)]


def contrast(one: list[float], other: list[float]) -> float:
    """Return the ratio of contrast of two colours by WCAG's formula, from 1 to 21."""

    def luminance(color: list[float]) -> float:
        shares = [value / 255 for value in color]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


class TestSmallest:
    def test_an_episode_without_tokens(self) -> None:
        strip = arl.token_strip(trajectory([], []), tokenizer())
        assert strip.text().split("\n")[0] == "task 7, attempt 2: 0 tokens, 0 trained, 0 turns, submitted, reward 1"
        assert ET.fromstring(strip.svg()) is not None
        assert "turn 0" not in strip.html()

    def test_an_episode_of_one_token(self) -> None:
        assert len(arl.token_strip(trajectory([0], ["prompt"]), tokenizer(), [math.nan]).tokens) == 1

    def test_an_episode_without_actions_has_no_row_of_advantages(self) -> None:
        strip = arl.token_strip(trajectory([0, 1], ["prompt", "prompt"]), tokenizer(), [1.0, 2.0])
        assert "adv" not in strip.text()
        assert strip.tokens[0].tint is None
