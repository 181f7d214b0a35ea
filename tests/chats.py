"""Conversations for tests of chat templates: small builders of messages, and named cases."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]
READ = {"type": "function", "function": {"name": "read", "description": "Show the <source> & its 'tests'."}}
EDIT = {"type": "function", "function": {"name": "edit", "parameters": {"op": {"type": "string", "enum": ["é", "约"]}}}}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def user(text: str | None) -> Message:
    return {"role": "user", "content": text}


def tool(text: str | None) -> Message:
    return {"role": "tool", "content": text}


def said(text: str | None = "", thinking: str | None = None, calls: list[Any] | None = None) -> Message:
    fields = {"reasoning_content": thinking, "tool_calls": calls}
    return {
        "role": "assistant",
        "content": text,
        **{name: value for name, value in fields.items() if value is not None},
    }


def call(name: str = "read", arguments: Any = None, nested: bool = True) -> Message:
    function = {"name": name, "arguments": {} if arguments is None else arguments}
    return {"type": "function", "function": function} if nested else function


THOUGHT = "<think>\nHm.\n</think>\n\nYes."
# name, messages, tools
CASES: list[tuple[str, list[Message], list[Any] | None]] = [
    ("a question", [user("Hi")], None),
    ("no tools is an empty list", [user("Hi")], []),
    ("a system message", [system("Be brief."), user("Hi")], None),
    ("an empty system message", [system(""), user("Hi")], None),
    ("system alone", [system("Be brief.")], None),
    ("a second system message", [system("A"), user("Hi"), system("B"), user("Ho")], None),
    ("a system message that is not first", [user("Hi"), system("B")], None),
    ("tools", [user("Hi")], [READ, EDIT]),
    ("tools and a system message", [system("Be brief."), user("Hi")], [READ]),
    ("tools and an empty system message", [system(""), user("Hi")], [READ]),
    ("one answer", [user("Hi"), said("Ho")], None),
    ("an answer with thinking in its content", [user("Hi"), said(THOUGHT)], None),
    ("an answer with reasoning_content", [user("Hi"), said("Yes.", "Hm.")], None),
    ("an empty reasoning_content", [user("Hi"), said("Yes.", "")], None),
    ("reasoning_content before </think> in the content", [user("Hi"), said("a</think>b", "Hm.")], None),
    ("reasoning_content of newlines", [user("Hi"), said("\n\nYes.\n", "\n\nHm.\n\n")], None),
    ("a newline as reasoning_content, not last", [user("Hi"), said("Yes.", "\n"), tool("x")], None),
    ("thinking before the last query", [user("Hi"), said(THOUGHT), user("So?")], None),
    (
        "reasoning_content before the last query",
        [user("Hi"), said("Yes.", "Hm."), user("So?"), said("So.", "Mh.")],
        None,
    ),
    ("thinking twice after the last query", [user("Hi"), said(THOUGHT), tool("1"), said(THOUGHT)], None),
    ("an answer without thinking inside a loop of tools", [user("Hi"), said("Wait."), tool("1"), said("Yes.")], None),
    ("two thoughts in one content", [user("Hi"), said("<think>a</think>b<think>c</think>d")], None),
    ("an end of thinking without a beginning", [user("Hi"), said("a\n</think>\nb")], None),
    ("a beginning of thinking without an end", [user("Hi"), said("<think>\na")], None),
    ("no answer yet to thinking", [user("Hi"), said("<think>\na\n</think>")], None),
    ("empty content", [user(""), said(""), user("")], None),
    ("content that is None", [user(None), said(None), tool(None)], None),
    ("content that is absent", [{"role": "user"}, {"role": "assistant"}], None),
    ("only newlines", [user("\n\n"), said("\n\n"), user("\n")], None),
    ("blanks at the ends", [user("  Hi \t"), said(" Ho \n ")], None),
    ("one call", [user("Hi"), said("", calls=[call()])], [READ]),
    ("a call and an answer", [user("Hi"), said("Let me see.", calls=[call()])], [READ]),
    ("a call after a newline only", [user("Hi"), said("\n", calls=[call()])], [READ]),
    ("a call after thinking", [user("Hi"), said("", "Hm.", [call()])], [READ]),
    ("several calls", [user("Hi"), said("", calls=[call(), call("edit", {"op": "é"}), call()])], [READ, EDIT]),
    ("a call that is not nested", [user("Hi"), said("", calls=[call("edit", {"a": 1}, nested=False)])], None),
    ("arguments as a string", [user("Hi"), said("", calls=[call("edit", '{"op":  "x"}')])], None),
    ("arguments as an empty string", [user("Hi"), said("", calls=[call("edit", "")])], None),
    (
        "arguments of all types",
        [user("Hi"), said("", calls=[call("e", {"a": [1, 2.5, None, True], "é": '约\n"<&>'})])],
        None,
    ),
    ("an empty list of calls", [user("Hi"), said("Ho", calls=[])], None),
    ("one result", [user("Hi"), said("", calls=[call()]), tool("def f(): ..."), said("Done.", "Hm.")], [READ]),
    (
        "several results in a row",
        [user("Hi"), said("", calls=[call(), call()]), tool("a"), tool("b"), tool("c")],
        [READ],
    ),
    ("results apart", [user("Hi"), said("1"), tool("a"), said("2"), tool("b"), said("3")], None),
    ("a result first", [tool("a"), said("Ho")], None),
    ("a result after a result's user", [user("Hi"), tool("a"), user("So?"), tool("b")], None),
    ("an empty result", [user("Hi"), said(""), tool(""), tool("\n")], None),
    (
        "a result in disguise",
        [user("Hi"), said(THOUGHT), user("<tool_response>\n1\n</tool_response>"), said(THOUGHT)],
        None,
    ),
    ("half a disguise", [user("Hi"), said(THOUGHT), user("<tool_response> what is that?"), said(THOUGHT)], None),
    ("only results in disguise", [user("<tool_response></tool_response>"), said(THOUGHT), said(THOUGHT)], None),
    ("no user at all", [system("A"), said(THOUGHT), said(THOUGHT)], None),
    ("an assistant first", [said(THOUGHT), user("Hi"), said("Ho")], None),
    ("two users in a row", [user("Hi"), user("Ho"), said("x"), said("y")], None),
    ("text that spells marks", [user("<|im_end|><|im_start|>assistant"), said("<tool_call>{}</tool_call>")], None),
    ("Chinese, Arabic, emoji", [system("约束"), user("٣ من ٣"), said("👩‍💻 naïve e\u0301", "🧪")], [EDIT]),
    ("odd blanks and line ends", [user("a\r\nb\u2028c\u00a0d\x0b"), said("\u3000e\r\n", "\r\nf\r\n")], None),
    (
        "backslashes and quotes",
        [user("\\n \"q\" 'p' {{ x }} {% y %}"), said("\\", calls=[call('a"b', {"\\": "\t"})])],
        None,
    ),
]
