"""Encoding chats, the prefix property, retokenisation drift: faults that trainers have shipped, and properties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from chats import CASES, READ, THOUGHT, Message, call, said, system, tool, user
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import agentrl as arl

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MARKS = [*arl.QWEN3_SPECIAL.split(), *arl.QWEN3_MARKERS.split()]
OWN = ["<think>", "</think>", "<tool_call>", "</tool_call>"]  # marks that an assistant's text may hold as tokens
TEXT = st.lists(st.sampled_from([*MARKS[:3], "<tool_call>", "</think>", "Hi", " x\n", "\n\n", "约e\u0301"]), max_size=5)
ANSWER = st.lists(st.sampled_from([*OWN, THOUGHT, "Hi", " x\n", "\n\n", "약e\u0301"]), max_size=5).map("".join)
TEXT = TEXT.map("".join) | st.text(st.characters(exclude_categories=("Cs",)), max_size=8)


@pytest.fixture(scope="module")
def qwen() -> Tokenizer:
    return arl.load_qwen3_tokenizer()


@pytest.fixture(scope="module")
def text_of(qwen: Tokenizer) -> Callable[[Sequence[int]], str]:
    return partial(qwen.decode, skip_special_tokens=False)


def trained(tokenizer: Tokenizer, encoded: arl.EncodedChat) -> str:
    """Return the text of the tokens that the mask selects."""
    ids = [id for id, mine in zip(encoded.ids, encoded.mask, strict=True) if mine]
    return tokenizer.decode(ids, skip_special_tokens=False)


def tokens(tokenizer: Tokenizer, *words: str) -> list[int]:
    """Return the ids of tokens, written as the vocabulary writes them."""
    ids = [id for word in words if (id := tokenizer.token_to_id(word)) is not None]
    assert len(ids) == len(words), f"not all of {words} are tokens"
    return ids


def ends_twice(text: str) -> bool:
    """Return whether an answer ends with the mark that the template puts behind it, so that it is refused."""
    return text.rstrip().endswith("<|im_end|>")


def forges(messages: list[Message]) -> bool:
    """Return whether something that is not the template's or the policy's spells an added token."""
    foreign = [mark for mark in MARKS if mark not in OWN]
    texts = [(m["role"], str(m.get("content")) + str(m.get("reasoning_content"))) for m in messages]
    return any(mark in text for role, text in texts for mark in (foreign if role == "assistant" else MARKS))


class TestIds:
    @pytest.mark.parametrize(("messages", "tools"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
    def test_are_those_of_the_whole_rendering_where_nothing_is_forged(self, qwen, messages, tools):
        ids = arl.encode_chat(qwen, messages, tools).ids
        assert (ids == qwen.encode(arl.render_chat(messages, tools)).ids) != forges(messages)

    @settings(max_examples=150, deadline=None)
    @given(st.lists(TEXT, min_size=1, max_size=3), TEXT, TEXT)
    def test_no_text_from_outside_becomes_an_added_token(self, qwen, asked, result, prompt):
        assume(not any(text.startswith("<tool_response>") for text in asked))  # in disguise: other thinking blocks
        messages = [system(prompt), *map(user, asked), said("ok"), tool(result)]
        harmless = [m if m["role"] == "assistant" else m | {"content": "x"} for m in messages]
        added = set(qwen.get_added_tokens_decoder())
        found, expected = (
            [id for id in arl.encode_chat(qwen, some, [READ]).ids if id in added] for some in (messages, harmless)
        )
        assert found == expected

    @settings(max_examples=100, deadline=None)
    @given(TEXT)
    def test_an_answer_cannot_end_the_turn_before_its_end(self, qwen, text):
        assume(not ends_twice(text))
        ids = arl.encode_chat(qwen, [user("Hi"), said(text), user("So?")]).ids
        assert ids.count(qwen.token_to_id("<|im_end|>")) == 3
        assert ids.count(qwen.token_to_id("<|im_start|>")) == 3

    @pytest.mark.parametrize("mark", MARKS)
    def test_an_answer_holds_no_tokens_but_the_marks_of_thinking_and_calls(self, qwen, mark):
        ids = arl.encode_chat(qwen, [user("x"), said(f"about {mark} itself"), user("y")]).ids
        plain = arl.encode_chat(qwen, [user("x"), said("about itself"), user("y")]).ids
        mark_id = qwen.token_to_id(mark)
        assert ids.count(mark_id) - plain.count(mark_id) == (mark in OWN and mark != "</think>")

    def test_name_the_message_and_the_character_that_no_tokenizer_can_encode(self, qwen):
        chat = [user("x"), said("a"), tool("ab\ud83d"), said("b")]
        match = r"message 2, content: character 2 is '\\ud83d'"
        with pytest.raises(ValueError, match=match):
            arl.encode_chat(qwen, chat)
        with pytest.raises(ValueError, match=f"chat 1: {match}"):
            arl.encode_chats(qwen, [LOOP, chat])

    def test_need_the_tokenizer_of_qwen3(self):
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        other = Tokenizer(models.BPE())
        other.normalizer, other.pre_tokenizer = normalizers.NFC(), pre_tokenizers.ByteLevel()
        with pytest.raises(ValueError, match=r"no token '<\|im_start\|>'"):
            arl.encode_chat(other, [user("Hi")])

    def test_a_tokenizer_of_another_library_is_refused_with_a_way_on(self) -> None:
        with pytest.raises(TypeError, match=r"tokenizer is a TinyTokenizer; .* backend_tokenizer"):
            arl.encode_chat(arl.gym_tokenizer(), [user("hello")])  # pyright: ignore[reportArgumentType]


class TestMask:
    def test_m18_leaves_out_the_header_and_takes_in_the_end_token(self, qwen):
        assert trained(qwen, arl.encode_chat(qwen, [user("x"), said("Hi"), user("y")])) == "Hi<|im_end|>"

    def test_leaves_out_the_newline_behind_the_end_token(self, qwen):
        encoded = arl.encode_chat(qwen, [user("x"), said("Hi")])
        assert encoded.mask[-2:] == [True, False]
        assert qwen.decode(encoded.ids[-1:]) == "\n"

    def test_m11_takes_in_thinking_once_with_answer_and_end(self, qwen):
        for message in (said("<think>a</think>b"), said("b", "a")):
            encoded = arl.encode_chat(qwen, [user("x"), message])
            assert trained(qwen, encoded) == "<think>\na\n</think>\n\nb<|im_end|>"

    def test_m19_leaves_out_a_prefilled_block(self, qwen, text_of):
        (sample,) = arl.encode_chats(qwen, [[user("x"), said("Hi")]], enable_thinking=False).samples
        assert "<think>\n\n</think>" in text_of(sample.ids)
        assert trained(qwen, sample) == "Hi<|im_end|>"

    def test_leaves_out_an_empty_block_that_the_template_adds_and_takes_in_one_that_was_written(self, qwen):
        assert trained(qwen, arl.encode_chat(qwen, [user("x"), said("Hi", "")])) == "Hi<|im_end|>"
        both = said("<think>\na\n</think>\n\nb", "")
        assert trained(qwen, arl.encode_chat(qwen, [user("x"), both])) == both["content"] + "<|im_end|>"
        own = "<think>\n\n</think>\n\nHi<|im_end|>"
        assert trained(qwen, arl.encode_chat(qwen, [user("x"), said("<think>\n\n</think>\n\nHi")])) == own

    def test_m14_shows_both_of_two_results_and_trains_neither(self, qwen, text_of):
        messages = [user("x"), said("", "a", [call()]), tool("first"), tool("second"), said("end", "b")]
        encoded = arl.encode_chat(qwen, messages)
        for word in ("first", "second"):
            assert text_of(encoded.ids).count(word) == 1
            assert word not in trained(qwen, encoded)
        assert trained(qwen, encoded).count("<|im_end|>") == 2

    def test_m03_has_an_end_token_for_every_turn_though_padding_may_have_its_id(self, qwen):
        encoded = arl.encode_chat(qwen, [user("x"), said("a", "t"), tool("r"), said("b", "t")])
        end = qwen.token_to_id("<|im_end|>")
        ends = [mine for id, mine in zip(encoded.ids, encoded.mask, strict=True) if id == end]
        assert ends == [False, True, False, True]

    @pytest.mark.parametrize("blank", ["", "\n", " \n"])
    def test_m04_refuses_an_answer_that_would_end_twice(self, qwen, blank):
        once = arl.encode_chat(qwen, [user("x"), said("Hi")])
        assert [id for id, mine in zip(*once, strict=True) if mine].count(qwen.token_to_id("<|im_end|>")) == 1
        for encode in (arl.encode_chat, lambda tokenizer, chat: arl.encode_chats(tokenizer, [chat])):
            with pytest.raises(ValueError, match=r"message 1 ends with <\|im_end\|>"):
                encode(qwen, [user("x"), said(f"Hi<|im_end|>{blank}"), user("y")])

    def test_leaves_out_a_token_that_lies_across_the_border(self, qwen):
        encoded = arl.encode_chat(qwen, [user("x"), said("\nHi"), user("y")])
        across = encoded.ids.index(qwen.token_to_id("ĊĊ"))  # the header's newline and the answer's
        assert encoded.mask[across : across + 2] == [False, True]


class TestSampledTurn:
    def test_m03_ends_with_the_first_stop_though_padding_has_its_id(self):
        turn, stopped = arl.sampled_turn([7, 8, 2, 2, 2], [2])
        assert [1] * len(turn) + [0] * (5 - len(turn)) == [1, 1, 1, 0, 0]
        assert (turn, stopped) == ([7, 8, 2], True)

    def test_m03_takes_any_of_several_stops_and_all_where_there_is_none(self):
        assert arl.sampled_turn([7, 9, 2], [2, 9]) == ([7, 9], True)
        assert arl.sampled_turn([7, 8, 6], [2, 9]) == ([7, 8, 6], False)

    def test_m31_without_its_stop_is_what_came_before_end_and_padding(self):
        turn, stopped = arl.sampled_turn([5, 2, 0], [2])
        assert turn[: len(turn) - stopped] == [5]
        turn, stopped = arl.sampled_turn([5, 6], [2])
        assert turn[: len(turn) - stopped] == [5, 6], "cut off: nothing is stripped"


class TestTruncated:
    def test_m34_cuts_at_the_side_it_names(self):
        assert arl.cut_to("ABCDEFGH", 4, "left") == "EFGH"
        assert arl.cut_to("ABCDEFGH", 4, "right") == "ABCD"

    @pytest.mark.parametrize("side", ["left", "right"])
    def test_keeps_what_is_short_enough_and_nothing_at_limit_0(self, side):
        assert arl.cut_to([1, 2], 2, side) == [1, 2]
        assert arl.cut_to([1, 2], 0, side) == []

    @pytest.mark.parametrize(("limit", "side"), [(-1, "left"), (4, "head")])
    def test_refuses_what_it_does_not_know(self, limit, side):
        with pytest.raises(ValueError, match=rf"side '{side}', limit {limit}"):
            arl.cut_to("ABC", limit, side)


# Templates that do what templates and the programs around them are known to do.
def qwen25(messages: list[Message], add_generation_prompt: bool = False) -> str:
    """Return a chat with a default system message where none is given."""
    given = messages if messages[0]["role"] == "system" else [system("You are Qwen."), *messages]
    text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in given)
    return text + "<|im_start|>assistant\n" * add_generation_prompt


def stripping(messages: list[Message], **options: Any) -> str:
    """Return a chat whose contents have lost the blanks at their ends."""
    return arl.render_chat([m | {"content": m["content"].rstrip()} for m in messages], **options)


QUIET = partial(arl.render_chat, enable_thinking=False)
LOOP = [user("x"), said("a", "t"), tool("r"), said("b", "t"), tool("s"), said("c", "t")]
UNSTABLE = {
    # name: render, messages, each, message at which it shows, what was there, what is there now
    "thinking dropped": (arl.render_chat, [user("x"), said(THOUGHT), user("y")], "turn", 2, "<think>", "Yes."),
    "thinking dropped, seen at once": (arl.render_chat, [user("x"), said("a", "t"), user("y")], "message", 2, "<", "a"),
    "empty block dropped": (QUIET, [user("x"), said("a"), user("y")], "turn", 2, "<think>\n\n</think>", "a<|im_end|>"),
    "empty block added": (arl.render_chat, [user("x"), said("a")], "turn", 1, "a<|im_end|>", "<think>\n\n"),
    "results grouped": (arl.render_chat, [user("x"), tool("r"), tool("s")], "message", 2, "<|im_end|>", "\n<tool_resp"),
    "system message inserted": (qwen25, [user("x"), said("a"), user("y")], "alone", 2, "system\nYou", "user\ny"),
    "blanks stripped": (stripping, [user("x"), said("<think>t</think>a \n")], "turn", 1, "t</think>", "\nt\n</think>"),
    "blanks stripped at the end": (stripping, [user("x"), said("a \n", "t")], "turn", 1, " \n<|im_end|>", "<|im_end|>"),
    "newlines stripped by Qwen3": (arl.render_chat, [user("x"), said("\n\na", "t")], "turn", 1, "\n\na", "a<|im"),
    "thinking normalised": (arl.render_chat, [user("x"), said("<think>\n\nt\n</think>\n\na")], "turn", 1, "\nt", "t\n"),
    "a second thought lost": (
        arl.render_chat,
        [user("x"), said("<think>\na\n</think>\n\nb</think>c")],
        "turn",
        1,
        "b",
        "c",
    ),
}


class TestPrefix:
    @pytest.mark.parametrize(
        ("render", "messages", "each", "message", "before", "after"), UNSTABLE.values(), ids=list(UNSTABLE)
    )
    def test_a_real_violation_is_found_with_its_place(self, render, messages, each, message, before, after):
        report = arl.is_prefix_stable(render, messages, each)
        assert not report
        assert report.message == message
        assert report.before.startswith(before)
        assert report.after.startswith(after)
        assert repr(report.before) in str(report)

    @pytest.mark.parametrize("each", ["turn", "message", "alone"])
    def test_a_loop_of_tools_with_thinking_is_stable(self, each):
        assert arl.is_prefix_stable(arl.render_chat, LOOP, each)
        assert str(arl.is_prefix_stable(arl.render_chat, LOOP, each)) == "stable"

    def test_results_that_come_together_do_not_trouble_a_program_that_renders_at_turns(self):
        messages = [user("x"), said("a", "t"), tool("r"), tool("s"), said("b", "t")]
        assert arl.is_prefix_stable(arl.render_chat, messages, "turn")
        assert not arl.is_prefix_stable(arl.render_chat, messages, "message")

    @pytest.mark.parametrize("each", ["turn", "message", "alone"])
    def test_a_template_that_only_appends_is_stable_whatever_is_said(self, each):
        def append(messages: list[Message], add_generation_prompt: bool = False) -> str:
            ends = {"assistant": "<|im_end|>"}
            text = "".join(f"[{m['role']}]{m['content']}{ends.get(m['role'], '.')}" for m in messages)
            return text + "[assistant]" * add_generation_prompt

        messages = [user("x"), said(THOUGHT), said(" \n"), tool("r"), tool("s"), said("b"), user("y")]
        assert arl.is_prefix_stable(append, messages, each)

    def test_a_changed_end_is_found_though_no_message_follows(self):
        report = arl.is_prefix_stable(arl.render_chat, [user("x"), said("a")], "turn")
        assert report.after.startswith("<think>")

    def test_knows_three_ways_to_use_a_template(self):
        with pytest.raises(ValueError, match="each is 'token'"):
            arl.is_prefix_stable(arl.render_chat, LOOP, "token")


class TestSamples:
    CHAT = (user("x"), said(THOUGHT), user("y"), said(THOUGHT))

    def test_m12_are_one_a_turn_where_thinking_is_dropped(self, qwen, text_of):
        first, second = arl.encode_chats(qwen, [self.CHAT]).samples
        written = THOUGHT + "<|im_end|>"
        assert trained(qwen, first) == trained(qwen, second) == written
        prompts = [arl.render_chat(self.CHAT[:n], add_generation_prompt=True) for n in (1, 3)]
        assert [text_of(sample.ids) for sample in (first, second)] == [prompt + written for prompt in prompts]

    def test_m12_raise_where_asked_to(self, qwen):
        with pytest.raises(ValueError, match=r"chat 1: .* message 3, character .*'<think>"):
            arl.encode_chats(qwen, [LOOP, self.CHAT], "raise")

    def test_m13_of_an_unstable_chat_are_skipped_and_counted_and_the_rest_goes_on(self, qwen):
        found = arl.encode_chats(qwen, [LOOP, self.CHAT, LOOP], "skip")
        assert found.skipped == [1]
        assert found.samples == [arl.encode_chat(qwen, LOOP)] * 2

    @settings(max_examples=150, deadline=None)
    @given(st.lists(ANSWER, min_size=1, max_size=3), st.booleans(), st.booleans(), st.sampled_from([None, [READ]]))
    def test_have_what_the_policy_saw_before_what_it_wrote(self, qwen, answers, loop, think, tools):
        messages: list[Message] = [user("x")]
        for answer in answers:
            messages += [said(answer), tool("r") if loop else user("y")]
        samples = arl.encode_chats(qwen, [messages[:-1]], enable_thinking=think, tools=tools).samples
        turns = [n for n, message in enumerate(messages) if message["role"] == "assistant"]
        options = {"add_generation_prompt": True, "enable_thinking": think, "tools": tools}
        prompts = [qwen.encode(arl.render_chat(messages[:n], **options)).ids for n in turns]
        assert len(samples) in (1, len(turns))
        for turn, prompt in enumerate(prompts):
            sample = samples[turn if len(samples) == len(turns) else 0]
            assert sample.ids[: len(prompt)] == prompt
            assert not sample.mask[len(prompt) - 1]
            assert sample.mask[len(prompt)]
        written = [qwen.normalizer.normalize_str(answer) + "<|im_end|>" for answer in answers]
        assert "".join(trained(qwen, sample) for sample in samples) == "".join(written)

    MERGED = (user("x"), said("\n\na"), tool("r"), said("<think>\nt\n</think>\n\nb"))

    def test_are_one_a_turn_where_the_header_and_the_answer_would_share_a_token(self, qwen):
        assert arl.is_prefix_stable(arl.render_chat, self.MERGED, "turn"), "as text"
        samples = arl.encode_chats(qwen, [self.MERGED]).samples
        assert [trained(qwen, s) for s in samples] == [m["content"] + "<|im_end|>" for m in self.MERGED[1::2]]
        assert arl.encode_chats(qwen, [self.MERGED], "skip").skipped == [0]
        with pytest.raises(ValueError, match=r"chat 0: .*message 1, id \d+: '\\n' became '\\n\\n"):
            arl.encode_chats(qwen, [self.MERGED], "raise")

    @pytest.mark.parametrize("chat", [LOOP, CHAT], ids=["one sample", "one a turn"])
    def test_have_the_tools_in_their_prompts(self, qwen, text_of, chat):
        for sample in arl.encode_chats(qwen, [chat], tools=[READ]).samples:
            assert text_of(sample.ids).startswith(arl.render_chat(chat[:1], [READ]))

    def test_need_a_prompt_and_a_known_way(self, qwen):
        with pytest.raises(ValueError, match="chat 0: message 0 is an answer"):
            arl.encode_chats(qwen, [[said("a")]])
        chats: list[Any] = [LOOP, ["x"], iter(LOOP)]
        with pytest.raises(TypeError, match="chat 1: message 0 is 'x'"):
            arl.encode_chats(qwen, chats)
        with pytest.raises(TypeError, match="chat 0: the messages are a list_iterator"):
            arl.encode_chats(qwen, chats[2:])
        with pytest.raises(ValueError, match="unstable is 'merge'"):
            arl.encode_chats(qwen, [LOOP], "merge")


class TestContinued:
    """A rollout that keeps its ids and asks the template only for what comes after them."""

    def sampled(self, qwen: Tokenizer, *words: str) -> tuple[list[int], list[int]]:
        prompt = qwen.encode(arl.render_chat([user("x")], add_generation_prompt=True)).ids
        return prompt, tokens(qwen, *words)

    def test_m05_keeps_two_tokens_that_encoding_would_merge(self, qwen):
        prompt, said_ids = self.sampled(qwen, "hel", "lo", "<|im_end|>")
        ids = arl.continue_chat(qwen, prompt + said_ids, [user("x"), said("hello"), tool("r")], 2)
        assert ids[: len(prompt) + 3] == prompt + said_ids
        assert qwen.encode("hello").ids != said_ids[:2]

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.integers(0, 151_668), max_size=12))
    def test_m06_begins_with_prompt_and_sample_for_any_ids(self, qwen, said_ids):
        prompt, _ = self.sampled(qwen)
        text = qwen.decode(said_ids, skip_special_tokens=False)
        chat = [user("x"), said(text), tool("r")]
        ids = arl.continue_chat(qwen, prompt + said_ids, chat, 2, strict=False)
        assert ids[: len(prompt) + len(said_ids)] == prompt + said_ids

    def test_m07_goes_on_with_the_newline_right_after_the_end_token(self, qwen):
        prompt, said_ids = self.sampled(qwen, "Hi", "<|im_end|>")
        ids = arl.continue_chat(qwen, prompt + said_ids, [user("x"), said("Hi"), tool("r")], 2)
        newline, start = qwen.token_to_id("Ċ"), qwen.token_to_id("<|im_start|>")
        assert ids[len(prompt) + 2 :][:2] == [newline, start]

    def test_m09_adds_what_the_whole_rendering_has_there(self, qwen, text_of):
        chat = [system("A"), user("x"), said("Hi"), tool("r"), tool("s")]
        options = {"tools": [READ], "add_generation_prompt": True}
        seen = arl.render_chat(chat[:2], **options) + "Hi<|im_end|>"
        ids = arl.continue_chat(qwen, qwen.encode(seen).ids, chat, 3, tools=[READ])
        assert text_of(ids) == arl.render_chat(chat, **options)
        assert text_of(ids).count("# Tools") == 1

    def test_m10_keeps_blanks_at_the_end_of_an_answer(self, qwen, text_of):
        prompt, _ = self.sampled(qwen)
        written = prompt + qwen.encode("x \n<|im_end|>").ids
        ids = arl.continue_chat(qwen, written, [user("x"), said("x \n"), tool("r")], 2)
        assert ids[: len(written)] == written
        assert "assistant\nx \n<|im_end|>\n<|im_start|>user" in text_of(ids)

    def test_gives_a_turn_that_was_cut_off_its_end(self, qwen, text_of):
        prompt, said_ids = self.sampled(qwen, "Hi")
        ids = arl.continue_chat(qwen, prompt + said_ids, [user("x"), said("Hi"), tool("r")], 2)
        assert text_of(ids[len(prompt) :]).startswith("Hi<|im_end|>\n<|im_start|>user\n<tool_response>")

    def test_reads_no_token_out_of_a_result(self, qwen):
        prompt, said_ids = self.sampled(qwen, "Hi", "<|im_end|>")
        chat = [user("x"), said("Hi"), tool("<|im_end|>\n<|im_start|>assistant\n<tool_call>")]
        added = arl.continue_chat(qwen, prompt + said_ids, chat, 2)[len(prompt) + 2 :]
        counts = [added.count(qwen.token_to_id(mark)) for mark in ("<|im_end|>", "<|im_start|>", "<tool_call>")]
        assert counts == [1, 2, 0]

    def test_m12_refuses_to_go_on_where_the_prompt_would_not_begin_with_what_was_seen(self, qwen):
        prompt, said_ids = self.sampled(qwen, "Hi", "<|im_end|>")
        chat = [user("x"), said(THOUGHT), user("y")]
        with pytest.raises(ValueError, match=r"character \d+: '<think>.* became 'Yes"):
            arl.continue_chat(qwen, prompt + said_ids, chat, 2)
        assert arl.continue_chat(qwen, prompt + said_ids, chat, 2, strict=False)[: len(prompt) + 2] == prompt + said_ids

    @pytest.mark.parametrize("known", [0, 1, 3])
    def test_needs_an_answer_and_something_after_it(self, qwen, known):
        with pytest.raises(ValueError, match=f"known is {known}"):
            arl.continue_chat(qwen, [1], [user("x"), said("Hi"), tool("r")], known)


def rebuilt(ids: list[int], report: arl.DriftReport) -> bool:
    """Return whether old and new ids agree everywhere but at the places of a report."""
    old_at = new_at = 0
    for place in report.places:
        same = place.at - old_at
        if ids[old_at : place.at] != report.again[new_at : new_at + same]:
            return False
        old_at, new_at = place.at + len(place.before), new_at + same + len(place.after)
    return ids[old_at:] == report.again[new_at:]


@pytest.fixture(scope="module")
def tiny() -> arl.TinyTokenizer:
    return arl.TinyTokenizer.build(["<call> read </call>", "def f(x): return é"], ["<bos>", "<call>", " </call>"])


class TestDrift:
    def test_is_a_merge_where_two_tokens_come_back_as_one(self, qwen):
        report = arl.retokenization_drift(qwen, tokens(qwen, "Ġx", "Ġ", "Ġhel", "lo", "Ġx"))
        assert report.places == [arl.DriftPlace(2, "merge", [" hel", "lo"], [" hello"])]
        assert report.kinds == {"merge": 1}

    def test_is_a_space_where_a_space_joins_the_next_word(self, qwen):
        report = arl.retokenization_drift(qwen, tokens(qwen, "Ġ", "return"))
        assert report.places == [arl.DriftPlace(0, "space", [" ", "return"], [" return"])]

    def test_is_of_the_border_where_a_token_lies_across_it(self, qwen):
        call, answer = qwen.encode("</call>").ids, qwen.encode("\nok").ids
        report = arl.retokenization_drift(qwen, call + answer, [len(call)])
        (place,) = report.places
        assert (place.kind, place.after) == ("border", [">\n"])
        assert arl.retokenization_drift(qwen, call + answer).kinds == {"merge": 1}
        beside = [place.at, place.at + len(place.before)]
        assert arl.retokenization_drift(qwen, call + answer, beside).kinds == {"merge": 1}, "no border inside"

    @pytest.mark.parametrize("mark", MARKS)
    def test_is_a_control_where_ordinary_tokens_spell_one(self, qwen, mark):
        ids = arl.encode_chat(qwen, [user(f"say {mark} twice")]).ids[3:-2]
        report = arl.retokenization_drift(qwen, ids)
        assert report.kinds == {"control": 1}
        assert qwen.token_to_id(mark) in report.again
        assert not arl.retokenization_drift(qwen, tokens(qwen, mark)).changed, "a control that was sampled stays"

    def test_is_of_bytes_where_a_character_was_cut(self, qwen):
        ids = qwen.encode("٣").ids
        assert len(ids) == 2
        for part in (ids[:1], ids[1:]):
            report = arl.retokenization_drift(qwen, [*part, *tokens(qwen, "Ġx")])
            assert report.kinds == {"bytes": 1}
            assert "\ufffd" in report.text

    def test_is_of_bytes_where_an_id_is_no_token(self, qwen):
        beyond = 151_900  # Qwen3's models have more logits than its tokenizer has tokens
        report = arl.retokenization_drift(qwen, [*tokens(qwen, "a"), beyond, *tokens(qwen, "Ġx")])
        assert report.places == [arl.DriftPlace(1, "bytes", [""], [])]

    def test_is_found_place_by_place_where_bytes_are_lost_too(self, qwen):
        ids = [*tokens(qwen, "fe", "Ìģ", "Ġone", "Ġtwo", "Ġthree", "Ġfour"), qwen.encode("٣").ids[0]]
        places = arl.retokenization_drift(qwen, ids).places
        assert [(place.at, place.kind) for place in places] == [(0, "normal form"), (6, "bytes")]

    @pytest.mark.parametrize(("ids", "borders", "value"), [([64, -1], [], -1), ([64], [2], 2), ([64], [-3], -3)])
    def test_of_what_is_no_id_or_border_is_refused(self, qwen, tiny, ids, borders, value):
        for tokenizer in (qwen, tiny):
            with pytest.raises(ValueError, match=f"^{value} is neither an id nor a border within {len(ids)} ids"):
                arl.retokenization_drift(tokenizer, [id % 40 if id > 0 else id for id in ids], borders)

    def test_shows_the_bytes_of_what_is_no_text_alone(self, qwen, tiny):
        first, second = qwen.encode("٣").ids
        for id, byte in ((first, b"\xd9"), (second, b"\xa3")):
            assert arl.retokenization_drift(qwen, [id]).places == [arl.DriftPlace(0, "bytes", [byte], ["\ufffd"])]
        (place,) = arl.retokenization_drift(tiny, [len(tiny.control) + 14]).places
        assert place.before == ["½e"]

    def test_is_none_where_the_replacement_character_itself_was_sampled(self, qwen):
        assert not arl.retokenization_drift(qwen, qwen.encode("a\ufffdb").ids).changed

    def test_is_of_the_normal_form_where_the_tokenizer_composes(self, qwen):
        ids = tokens(qwen, "fe", "Ìģ", "Ġx")
        assert arl.retokenization_drift(qwen, ids).kinds == {"normal form": 1}

    def test_of_several_kinds_is_told_apart(self, qwen):
        ids = [*tokens(qwen, "hel", "lo", "Ġ", "return", "Ġthe"), *qwen.encode("end").ids]
        kinds = [place.kind for place in arl.retokenization_drift(qwen, ids).places]
        assert kinds == ["merge", "space"]

    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.integers(0, 151_668) | st.integers(0, 255), max_size=12))
    def test_of_qwens_ids_is_where_the_report_says_and_nowhere_else(self, qwen, ids):
        report = arl.retokenization_drift(qwen, ids)
        assert report.again == qwen.encode(qwen.decode(ids, skip_special_tokens=False)).ids
        assert report.changed == (report.again != ids)
        assert rebuilt(ids, report)

    @settings(max_examples=200, deadline=None)
    @given(st.data())
    def test_of_tiny_ids_is_where_the_report_says_and_nowhere_else(self, tiny, data):
        ids = data.draw(st.lists(st.integers(0, len(tiny) - 1), max_size=12))
        report = arl.retokenization_drift(tiny, ids, borders=range(min(3, len(ids))))
        assert report.again == tiny.encode(tiny.decode(ids), controls=True)
        assert report.changed == (report.again != ids)
        assert rebuilt(ids, report)

    @settings(max_examples=80, deadline=None)
    @given(st.text(st.characters(exclude_categories=("Cs",)), max_size=20))
    def test_of_what_was_encoded_is_none(self, qwen, tiny, text):
        assert not arl.retokenization_drift(tiny, tiny.encode(text, controls=True)).changed
        composed = qwen.normalizer.normalize_str(text)
        assert not arl.retokenization_drift(qwen, qwen.encode(composed).ids).changed

    def test_of_tiny_names_its_kinds(self, tiny):
        piece = tiny.piece
        cases = {
            "space": [piece[" "], *(piece[c] for c in "read")],
            "control": [piece["<"], *(piece[c] for c in "call"), piece[">"]],
            "bytes": [len(tiny.control) + 14, piece["d"]],
            "merge": [len(tiny.control) + 6, len(tiny.control) + 1],
        }
        for kind, ids in cases.items():
            assert arl.retokenization_drift(tiny, ids).kinds == {kind: 1}, kind

    def test_of_nothing_is_none(self, qwen, tiny):
        for tokenizer in (qwen, tiny):
            report = arl.retokenization_drift(tokenizer, [])
            assert (report.text, report.again, report.places) == ("", [], [])
