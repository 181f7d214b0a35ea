"""`render_chat` against the published template of Qwen3, character for character, and against cases written by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chats import CASES, EDIT, READ, THOUGHT, Message, call, said, system, tool, user
from hypothesis import given, settings
from hypothesis import strategies as st
from needing import peer

import agentrl as arl

OPTIONS = [{}, {"add_generation_prompt": True}, {"add_generation_prompt": True, "enable_thinking": False}]


@pytest.fixture(scope="module")
def published() -> Callable[..., str]:
    """Return a function that renders with the published template, in the settings that transformers gives it."""
    folder = Path(peer("trl").__file__ or "").parent
    template = (folder / "chat_templates" / "qwen3.jinja").read_text(encoding="utf-8")
    from transformers.utils.chat_template_utils import render_jinja_template

    def render(messages: list[Message], tools: list[Any] | None = None, **options: Any) -> str:
        rendered, _ = render_jinja_template([messages], tools=tools, chat_template=template, **options)
        return rendered[0]

    return render


def test_there_are_at_least_forty_named_conversations_and_their_names_differ():
    assert len({name for name, _, _ in CASES}) == len(CASES) >= 40


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "+".join(o) or "plain")
@pytest.mark.parametrize(("messages", "tools"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_named_conversation_is_rendered_as_the_published_template_does(published, messages, tools, options):
    assert arl.render_chat(messages, tools, **options) == published(messages, tools, **options)


MARKS = ["<think>", "</think>", THOUGHT, "<tool_response>", "</tool_response>", "<|im_end|>", "<tool_call>"]
ODD = ["Hi", "\n", "\n\n", " x \n", "e\u0301", "约束", "👩‍💻", "'q\"", "<&>", "\\n", "\r\n", "{}", "\u2028", ""]
PIECES = st.sampled_from([*MARKS, *ODD])
TEXT = st.lists(PIECES, max_size=4).map("".join) | st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
MAYBE = st.none() | TEXT
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
CALL = st.builds(call, TEXT, TEXT | st.dictionaries(TEXT, JSON, max_size=2), st.booleans())
ANSWER = st.builds(said, MAYBE, MAYBE, st.none() | st.lists(CALL, max_size=3))
MESSAGE = st.one_of(st.builds(user, MAYBE), ANSWER, st.builds(tool, MAYBE), st.builds(system, TEXT))
CHAT = st.lists(MESSAGE, min_size=1, max_size=6)
TOOLS = st.none() | st.lists(st.dictionaries(TEXT, JSON, max_size=2), max_size=2)


@settings(max_examples=400, deadline=None)
@given(CHAT, TOOLS, st.booleans(), st.booleans())
def test_a_generated_conversation_is_rendered_as_the_published_template_does(published, messages, tools, ask, think):
    options = {"add_generation_prompt": ask, "enable_thinking": think}
    assert arl.render_chat(messages, tools, **options) == published(messages, tools, **options)


# What follows needs no other project.
def turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


EMPTY = "<think>\n\n</think>\n\n"
BY_HAND = {
    "a question": ([user("Hi")], turn("user", "Hi")),
    "system": ([system("A"), user("Hi")], turn("system", "A") + turn("user", "Hi")),
    "the last answer gets an empty block": (
        [user("Hi"), said("Ho")],
        turn("user", "Hi") + turn("assistant", EMPTY + "Ho"),
    ),
    "thinking is kept after the last query": (
        [user("Hi"), said("Ho", "Hm.")],
        turn("user", "Hi") + turn("assistant", "<think>\nHm.\n</think>\n\nHo"),
    ),
    "and dropped before it": (
        [user("Hi"), said("<think>\nHm.\n</think>\n\nHo"), user("So?")],
        turn("user", "Hi") + turn("assistant", "Ho") + turn("user", "So?"),
    ),
    "a run of results is one message": (
        [user("Hi"), said("Ho"), tool("a"), tool("b")],
        turn("user", "Hi")
        + turn("assistant", "Ho")
        + turn("user", "<tool_response>\na\n</tool_response>\n<tool_response>\nb\n</tool_response>"),
    ),
    "calls": (
        [user("Hi"), said("Ho", calls=[call("read", {"é": 1})]), user("So?")],
        turn("user", "Hi")
        + turn("assistant", 'Ho\n<tool_call>\n{"name": "read", "arguments": {"é": 1}}\n</tool_call>')
        + turn("user", "So?"),
    ),
}


@pytest.mark.parametrize(("messages", "expected"), BY_HAND.values(), ids=list(BY_HAND))
def test_a_small_conversation_is_rendered_as_written_by_hand(messages, expected):
    assert arl.render_chat(messages) == expected


def test_the_generation_prompt_opens_a_turn_and_can_switch_thinking_off():
    assert arl.render_chat([user("Hi")], add_generation_prompt=True) == turn("user", "Hi") + "<|im_start|>assistant\n"
    silent = arl.render_chat([user("Hi")], add_generation_prompt=True, enable_thinking=False)
    assert silent == turn("user", "Hi") + "<|im_start|>assistant\n" + EMPTY


def test_tools_are_listed_one_a_line_as_json_behind_the_system_message():
    text = arl.render_chat([system("A"), user("Hi")], [READ, EDIT])
    assert text.startswith("<|im_start|>system\nA\n\n# Tools\n\n")
    listed = text.split("<tools>\n")[1].split("\n</tools>")[0].split("\n")
    assert [line[:28] for line in listed] == ['{"type": "function", "functi'] * 2
    assert "<source> & its 'tests'" in listed[0]
    assert "约" in listed[1]


@settings(max_examples=200, deadline=None)
@given(CHAT, TOOLS)
def test_a_rendering_ends_a_message_and_the_generation_prompt_comes_behind_it(messages, tools):
    text = arl.render_chat(messages, tools)
    assert text == "" or text.endswith("<|im_end|>\n")
    assert arl.render_chat(messages, tools, add_generation_prompt=True) == text + "<|im_start|>assistant\n"


REFUSED = {
    "no messages": ([], ValueError, "no messages"),
    "a message that is none": ([user("Hi"), "Ho"], TypeError, "message 1 is 'Ho'"),
    "an unknown role": ([user("Hi"), {"role": "developer", "content": "x"}], ValueError, "message 1 .*'developer'"),
    "a list of parts": ([{"role": "user", "content": [{"text": "x"}]}], TypeError, "message 0: content .*list"),
    "thinking that is no string": (
        [user("Hi"), said("x") | {"reasoning_content": 3}],
        TypeError,
        "message 1: reasoning",
    ),
    "messages that come one by one": (iter([user("Hi")]), TypeError, "messages are a list_iterator"),
    "half of a surrogate pair": (
        [user("Hi"), tool("ab\ud83d")],
        ValueError,
        r"message 1, content: character 2 is '\\ud83d'",
    ),
    "half of a pair in thinking": (
        [user("Hi"), said("x", "\udc80")],
        ValueError,
        "message 1, reasoning_content: character 0",
    ),
}
# What is no list of calls; the pattern is that of the error, behind the number of the message.
REFUSED_CALLS = {
    "a string": ("read", TypeError, ": tool_calls must be a list or None, not str"),
    "a dict": (call(), TypeError, ": tool_calls must be a list or None, not dict"),
    "None in a list": ([call(), None], TypeError, ", call 1 is None"),
    "a function that is only a name": ([{"function": "read"}], TypeError, ", call 0 is .*'read'"),
    "a call without a name": ([{"arguments": {}}], ValueError, ", call 0 needs a name"),
    "a call without arguments": ([call(), {"name": "read"}], ValueError, ", call 1 needs a name and arguments"),
    "a set": ([call(arguments={"x": {1}})], TypeError, ", call 0: arguments cannot be .* JSON: .*set"),
    "nan": ([call(arguments={"x": float("nan")})], ValueError, ", call 0: arguments cannot be .* JSON"),
    "an infinite number": ([call(arguments={"x": [float("inf")]})], ValueError, ", call 0: arguments cannot be"),
    "half of a pair in an argument": ([call(arguments={"x": "\ud800"})], ValueError, ", call 0: character"),
    "half of a pair in a name": ([call("\udfff")], ValueError, ", call 0: character"),
}


@pytest.mark.parametrize(("messages", "error", "match"), REFUSED.values(), ids=list(REFUSED))
def test_what_the_template_would_drop_or_fail_on_is_refused(messages, error, match):
    with pytest.raises(error, match=match):
        arl.render_chat(messages)


@pytest.mark.parametrize(("calls", "error", "match"), REFUSED_CALLS.values(), ids=list(REFUSED_CALLS))
def test_what_is_no_call_is_refused_with_its_message_and_number(calls, error, match):
    messages = [user("Hi"), said("x"), user("So?"), said("y") | {"tool_calls": calls}]
    with pytest.raises(error, match=f"message 3{match}"):
        arl.render_chat(messages)


@pytest.mark.parametrize(
    ("tools", "error", "match"),
    [([READ, {"type": {1}}], TypeError, "tool 1 cannot be written"), ([{"type": "\ud800"}], ValueError, "the tools: ")],
)
def test_a_tool_that_has_no_json_or_no_utf8_is_refused(tools, error, match):
    with pytest.raises(error, match=match):
        arl.render_chat([user("Hi")], tools)


@pytest.mark.parametrize("arguments", ["", "{not json", '{"x": 1}'])
def test_arguments_that_are_a_string_are_written_as_they_are(arguments):
    text = arl.render_chat([user("Hi"), said("", calls=[call("read", arguments)])])
    assert f'"arguments": {arguments}}}\n</tool_call>' in text
