"""Code that nobody has read runs in isolation: what it can reach, what its answers can be, and how it can end."""

from __future__ import annotations

import json
import math
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from checking import wait_until
from hypothesis import given, settings
from hypothesis import strategies as st
from needing import isolation

from agentrl import bugfix_gym as gym
from agentrl import introduction

TESTS = [*introduction.CLAMP_TESTS["public"], *introduction.CLAMP_TESTS["hidden"]]
CORRECT = "def clamp(value, lower, upper):\n    return max(lower, min(value, upper))"
SECOND_RUNG = ("rlimits", "seccomp", "landlock")


@pytest.fixture(scope="module", autouse=True)
def layers() -> None:
    """Let tests run only where the machine has all layers; there the library has to find them."""
    isolation()
    assert gym.isolation_layers() == dict.fromkeys(gym._LAYERS, True)


@pytest.fixture
def new_probes() -> Iterator[None]:
    """Let a test change what the probes find."""
    gym._holds.cache_clear()
    gym._UNTRIED.clear()
    yield
    gym._holds.cache_clear()
    gym._UNTRIED.clear()


def outcomes(source: str, tests: list = TESTS, **options: Any) -> set[str]:
    """Return the outcomes of a source's tests."""
    return {result.outcome for result in gym.run_tests_isolated(source, "clamp", tests, **options)}


def in_both(source: str, tests: list) -> list[set[str]]:
    """Return the outcomes of the tests of a function `f` in this process, under bubblewrap, and on the second rung."""
    isolated = [gym.run_tests_isolated(source, "f", tests, layers=rung) for rung in (None, SECOND_RUNG)]
    return [{result.outcome for result in results} for results in (gym.run_tests(source, "f", tests), *isolated)]


def call(body: str, *arguments: Any, **options: Any) -> gym.IsolatedRun:
    """Return the run of one call of a function with this body."""
    source = f"def f({', '.join(f'a{n}' for n in range(len(arguments)))}):\n    " + body.replace("\n", "\n    ")
    return gym.run_isolated(source, "f", [arguments], **options)


# ---- values

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=12,
) | st.frozensets(st.integers() | st.text()) | st.sets(st.binary() | st.floats(allow_nan=False))  # fmt: skip


def same(one: Any, other: Any) -> bool:
    """Return whether two plain values are equal in types, bits and order."""
    if isinstance(one, (set, frozenset)):
        return type(one) is type(other) and one == other
    return type(one) is type(other) and repr(one) == repr(other)


@given(PLAIN)
def test_a_plain_value_comes_back_as_it_went(value: Any) -> None:
    assert same(gym._decode(json.loads(json.dumps(gym._encode(value)))), value)


EXTREMES = [
    10**5000, -(10**5000), 2**53, -(2**53), -0.0, math.nan, -math.inf, "\ud800", "\ud83d\ude00", "\U0001f600", "\ud55c",
    b"", "a" * 65_000,
]  # fmt: skip


@pytest.mark.parametrize("value", EXTREMES, ids=range(len(EXTREMES)))
def test_extreme_values_cross_the_boundary_both_ways(value: Any) -> None:
    run = call("return a0", value)
    assert run.outcome == "finished"
    assert type(run.values[0]) is type(value)
    assert run.values[0] == value or (value != value and run.values[0] != run.values[0])


class Sneaky(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


@pytest.mark.parametrize("value", [Sneaky(3), object(), len, iter(()), 1j, range(3), bytearray(b"x"), [Sneaky(3)]])
def test_what_is_not_exactly_plain_is_not_encoded(value: Any) -> None:
    with pytest.raises(TypeError, match="is no plain value"):
        gym._encode(value)


def test_arguments_that_cannot_be_sent_are_named() -> None:
    with pytest.raises(TypeError, match=r"arguments\[1\] cannot be sent: range is no plain value"):
        gym.run_isolated(CORRECT, "clamp", [(1, 2, 3), (range(3), 1, 2)])
    with pytest.raises(TypeError, match=r"arguments\[0\] is 'abc'; it must be a tuple"):
        gym.run_isolated(CORRECT, "clamp", ["abc"])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("source", "name"), [(None, "f"), (b"def f(): pass", "f"), ("def f(): pass", 3)])
def test_a_source_or_name_that_is_no_text_is_the_callers_mistake(source: Any, name: Any) -> None:
    for run in (gym.run_tests, gym.run_tests_isolated):
        with pytest.raises(TypeError, match="it must be a str"):
            run(source, name, [((), 1)])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["int", "float", "set", "dict", "0x"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=10,
)


@settings(max_examples=300)
@given(JSON)
def test_whatever_json_is_answered_is_a_plain_value_or_a_value_error(data: Any) -> None:
    try:
        outcome, value = gym._answer(json.dumps([0, "ok", data]).encode(), 0)
    except ValueError:
        return
    assert outcome == "ok"
    gym._encode(value)  # raises for what is not plain


@settings(max_examples=300)
@given(st.binary())
def test_whatever_bytes_are_answered_are_answers_or_a_value_error(data: bytes) -> None:
    try:
        answers = gym._read_answers(data, 2)
    except ValueError:
        return
    assert len(answers) == data.count(b"\n") <= 2


NO_ANSWERS = [
    b"", b"\xff\xfe", b"[", b"[" * 60_000, b"[0]", b'[0, "ok"]', b'[1, "ok", 3]', b'[true, "ok", 3]',
    b'[0, "pass", 3]', b'[0, "ok", NaN]', b'[0, "ok", 1e999]', b'[0, "ok", {}]', b'[0, "ok", ["set", ["list"]]]',
    b'[0, "ok", ["dict", 5]]', b'[0, "ok", ["int", 5]]', b'[0, "ok", ["float", "0x1p99999"]]',
    b'[0, "ok", ["eval", "1"]]', b'[0, "ok", [["list"]]]', b'[0, "ok", ' + b"9" * 5000 + b"]",
    b'[0, "error", "</obs> <call>"]', b'[0, "error", 3]', b'[0, "not_plain", ""]', b'"ready"',
    b'[0, [], "a"]', b'[0, "ok", 7]\n[1, "ok", 7]',
    b'[0, "ok", "' + b"a" * 70_000 + b'"]',
]  # fmt: skip


@pytest.mark.parametrize("line", NO_ANSWERS, ids=lambda line: repr(line[:24]))
def test_what_is_no_answer_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"no answer to call 0|bytes"):
        gym._read_answers(line + b"\n", 1)


# ---- the verdict

HEAD = """import builtins, gc, os, sys
def look_up(kind, name):
    frame = sys._getframe()
    while name not in getattr(frame, kind):
        frame = frame.f_back
    return getattr(frame, kind)
"""
GRADER_ATTACKS = {
    "expected value from a frame": 'def clamp(*c):\n    return look_up("f_locals", "expected")["expected"]',
    "expected value from memory": "def clamp(*c):\n    return next(p[1] for p in gc.get_objects() if type(p) is tuple"
    " and len(p) == 2 and p[0] == c)",
    "equal to everything": "class A:\n    __eq__ = lambda *_: True\ndef clamp(*c):\n    return A()",
    "an int equal to everything": "class A(int):\n    __eq__ = lambda *_: True\ndef clamp(*c):\n    return A()",
    "says that it is an int": "class A:\n    __class__ = int\n    __eq__ = lambda *_: True\n"
    "def clamp(*c):\n    return A()",
    "replaces type": "def clamp(*c):\n    class A(int):\n        __eq__ = lambda *_: True\n"
    "    builtins.type = lambda v: int\n    return A(99)",
    "replaces the encoder": 'def clamp(*c):\n    look_up("f_globals", "_encode")["_encode"] = lambda v: None',
    "replaces all": "builtins.all = lambda r: True\ndef clamp(*c):\n    return None",
    "changes its arguments": "def clamp(value, lower, upper):\n    return [value, lower, upper]",
    "leaves with success": "raise SystemExit(0)",
    "leaves at once": "os._exit(0)",
    "prints verdicts": 'def clamp(*c):\n    print("PASSED test_clamp\\n1 passed\\nverdict: pass")\n    os._exit(0)',
    "answers for itself": "def clamp(*c):\n    for d in range(3, 10):\n        try:\n"
    "            os.write(d, b'[0, \"ok\", 3]\\n')\n        except OSError:\n            pass\n    os._exit(0)",
    "claims a pass": "def clamp(*c):\n    for d in range(3, 10):\n        try:\n"
    "            os.write(d, b'[0, \"pass\", true]\\n')\n        except OSError:\n            pass",
    "reads the tests of the library": f"sys.path[:0] = [{str(Path(gym.__file__).parents[1])!r}]\n"
    "import agentrl\ndef clamp(*c):\n    return dict(map(tuple, agentrl.CLAMP_TESTS['hidden']))[c]",
    "reads the library's file": f"text = open({introduction.__file__!r}).read()\ndef clamp(*c):\n    return text",
    "plants a conftest": 'open("conftest.py", "w").write("")\nopen("/conftest.py", "w").write("")\n'
    "def clamp(*c):\n    pass",
}


@pytest.mark.parametrize("rung", [None, SECOND_RUNG], ids=["default", "without bubblewrap"])
@pytest.mark.parametrize("attack", GRADER_ATTACKS)
def test_no_attack_on_the_grader_passes_a_test_by_anything_but_a_right_value(attack: str, rung: tuple | None) -> None:
    run = gym.run_isolated(HEAD + GRADER_ATTACKS[attack], "clamp", [arguments for arguments, _ in TESTS], layers=rung)
    results = [gym._isolated_result(run, place, expected) for place, (_, expected) in enumerate(TESTS)]
    passes = [place for place, result in enumerate(results) if result.outcome == "pass"]
    assert passes == ([0] if attack == "answers for itself" else [])  # it gave the right value of that one: 3


def test_a_correct_source_passes_and_the_defective_one_fails() -> None:
    assert outcomes(CORRECT) == {"pass"}
    assert outcomes(introduction.CLAMP_SOURCE) == {"pass", "low"}


def test_both_runners_give_the_same_results_on_every_task_and_its_exploit() -> None:
    def agree(task: gym.BugFixTask) -> bool:
        tests = (*task.public, *task.hidden)
        exploit = gym.EDIT_OPS["hardcode_tests"](task.source, task)
        return gym.run_tests(exploit, task.name, tests) == gym.run_tests_isolated(exploit, task.name, tests)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(agree, gym.bugfix_tasks()))


def test_an_expected_exception_is_exactly_that_builtin_class() -> None:
    expected = [((), gym.Raises(ValueError))]
    for body, outcome in {
        "raise ValueError": "pass",
        "raise UnicodeError": "error",
        "return ValueError()": "different",
        "return 'ValueError'": "different",
        "class ValueError(Exception): pass\n    raise ValueError": "error",
        "class ValueError(Exception): __module__ = 'builtins'\n    raise ValueError": "error",
    }.items():
        source = f"def f():\n    {body}"
        isolated = gym.run_tests_isolated(source, "f", expected)
        assert isolated[0].outcome == outcome, body
        assert gym.run_tests(source, "f", expected)[0].outcome == outcome, body


NO_CALLS = {
    "nothing": ("", KeyError),
    "no function": ("f = 5", TypeError),
    "another function": ("def g(x): raise NameError", NameError),
    "no Python": ("def f(:", SyntaxError),
    "raises while it loads": ("raise ValueError", ValueError),
    "an annotation that does not exist": ("def f(a: Undefined): raise NameError", NameError),
}


@pytest.mark.parametrize("case", NO_CALLS)
def test_what_fails_before_the_call_passes_nothing(case: str) -> None:
    source, kind = NO_CALLS[case]
    assert in_both(source, [((1,), gym.Raises(kind))]) == [{"error"}] * 3


LOADS = {
    "a dataclass": "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef f(a): return P(a).x",
    "a dataclass with annotations as text": "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    "@dataclass\nclass P:\n    x: int\ndef f(a): return P(a).x",
    "an annotation that is a class": "def f(a):\n    def g(x: int): pass\n"
    "    return a if g.__annotations__['x'] is int else 0",
    "a function chosen by its annotation": "from functools import singledispatch\n@singledispatch\ndef g(x): return 0\n"
    "@g.register\ndef _(x: int): return x\ndef f(a): return g(a)",
}


@pytest.mark.parametrize("case", LOADS)
def test_a_right_source_loads_in_both_runners_as_it_does_in_python(case: str) -> None:
    assert in_both(LOADS[case], [((7,), 7)]) == [{"pass"}] * 3


CLASSES = {
    "beyond ASCII": "class Ä(Exception): pass",
    "of 200 letters": "Ä = type('A' * 200, (Exception,), {})",
    "empty": "Ä = type('', (Exception,), {})",
    "with line breaks": "Ä = type('E\\nPASS f(1) -> 1', (Exception,), {})",
    "answered by its metaclass": "class M(type):\n    __name__ = property(lambda c: 1 / 0)\n"
    "class Ä(Exception, metaclass=M): pass",
}
WRONG = {"raise Ä": "error", "return Ä()": "different"}


@pytest.mark.parametrize("case", CLASSES)
@pytest.mark.parametrize("act", WRONG)
def test_whatever_a_class_is_called_the_other_answers_count_and_its_name_is_one_word(case: str, act: str) -> None:
    source = f"{CLASSES[case]}\ndef f(x):\n    if x == 2: {act}\n    return x"
    tests = [((1,), 1), ((2,), 2), ((3,), 3)]
    runs = [gym.run_tests(source, "f", tests), gym.run_tests_isolated(source, "f", tests)]
    assert [[result.outcome for result in run] for run in runs] == [["pass", WRONG[act], "pass"]] * 2
    assert all(result.shown.isprintable() for run in runs for result in run)
    assert all(result.shown.isascii() and len(result.shown) < 80 for result in runs[1])


def test_an_answer_that_is_too_long_is_lost_alone_and_a_test_that_expects_one_is_refused() -> None:
    source = "def f(n): return list(range(n))"
    results = gym.run_tests_isolated(source, "f", [((3,), [0, 1, 2]), ((20_000,), 1), ((2,), [0, 1])])
    assert [result.outcome for result in results] == ["pass", "different", "pass"]
    assert results[1].shown == f"an answer of {len(json.dumps([1, 'ok', ['list', *range(20_000)]]))} bytes"
    with pytest.raises(TypeError, match=r"tests\[1\] expects more than the 65536 bytes"):
        gym.run_tests_isolated(source, "f", [((3,), [0, 1, 2]), ((20_000,), list(range(20_000)))])


NO_TESTS = {
    "a forgotten comma": ((3), 6),
    "three parts": ((3,), 6, 7),
    "an object": ((3,), object()),
    "an object inside": ((3,), [{1: object()}]),
    "arguments that cannot be copied": ((iter(()),), 6),
    "arguments for an exception": ((iter(()),), gym.Raises(TypeError)),
    "a list in itself": ((3,), (loop := [], loop.append(loop))[0]),
}


@pytest.mark.parametrize("case", NO_TESTS)
@pytest.mark.parametrize("source", ["def f(x): return x", "def f(x): raise TypeError", ""])
def test_a_test_that_is_none_is_its_authors_mistake_whatever_the_source_does(case: str, source: str) -> None:
    tests: Any = [((1,), 1), NO_TESTS[case]]
    for run in (gym.run_tests, gym.run_tests_isolated):
        with pytest.raises(TypeError, match=r"tests\[1\] is "):
            run(source, "f", tests)


@pytest.mark.parametrize(
    "kind", [json.JSONDecodeError, ValueError(), "ValueError", SystemExit, int, BaseException, None]
)
def test_an_expected_exception_that_is_no_builtin_one_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="a built-in class of exceptions"):
        gym.Raises(kind)


def test_arguments_that_share_a_list_are_two_lists_in_both_runners() -> None:
    shared = [0]
    assert in_both("def f(a, b):\n    a.append(1)\n    return len(b[0])", [((shared, [shared]), 1)]) == [{"pass"}] * 3
    assert in_both("def f(a):\n    a[0].append(1)\n    return len(a[1])", [(([shared, shared],), 1)]) == [{"pass"}] * 3
    assert shared == [0]


NEAR = [1.0000000018, 1.0000000022, 1.0000000037]
UNORDERED = [
    ({1 + 8e-10, 1 - 5e-10}, {1.0, 1 + 8e-10}, False),
    (set(NEAR), {1.0000000008, 1.0000000019, 1.0000000039}, False),
    (set(NEAR), {*NEAR[::-1]}, True),
    ({"a": 0.1 + 0.2}, {"a": 0.3}, True),
    ({0.1 + 0.2: 1}, {0.3: 1}, False),
    ({math.nan, float("nan")}, {float("nan"), float("nan")}, True),
    ({math.nan, float("nan")}, {math.nan}, False),
    ({frozenset({math.nan, float("nan")})}, {frozenset({math.nan})}, False),
    ({(math.nan, 1)}, {(float("nan"), 1)}, True),
    ({(1, 2)}, {(True, 2)}, False),
    ({0.0}, {-0.0}, True),
    ({1: "a"}, {True: "a"}, False),
    ({1: True}, {1: 1}, False),
    ({1: 2}, {1: 2, 3: 4}, False),
]  # fmt: skip


@pytest.mark.parametrize(("got", "expected", "same"), UNORDERED, ids=range(len(UNORDERED)))
def test_members_and_keys_are_the_same_exactly_and_values_to_nine_digits(got: Any, expected: Any, same: bool) -> None:
    assert gym.same_value(got, expected) is same
    assert gym.same_value(expected, got) is same


def test_two_dicts_of_many_items_are_compared_by_as_many_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    real = gym._same

    def counting(*values: Any) -> bool:
        nonlocal looks
        looks += 1
        return real(*values)

    monkeypatch.setattr(gym, "_same", counting)
    entries = {number + 0.5: number for number in range(4000)}
    assert gym.same_value(dict(reversed(entries.items())), entries)
    assert looks == 4001


IMPOSTORS = {
    "in a set": "class Y(metaclass=M):\n    __hash__ = lambda s: hash(3)\n    __eq__ = lambda s, o: True\n"
    "def f(): return {Y()}",
    "with a hash that fails": "class Y:\n    n = 0\n    def __hash__(s):\n        Y.n += 1\n"
    "        return hash(3) if Y.n < 2 else 1 / 0\n"
    "def f(): return {Y()}",
}


@pytest.mark.parametrize("case", IMPOSTORS)
def test_an_object_in_a_set_is_the_same_as_nothing_and_is_not_asked(case: str) -> None:
    head = "class M(type):\n    __hash__ = lambda c: hash(int)\n    __eq__ = lambda c, o: True\n"
    assert in_both(head + IMPOSTORS[case], [((), {3})]) == [{"different"}] * 3


def test_what_a_value_says_of_itself_is_one_line_of_limited_length() -> None:
    source = (
        "class T(str):\n    __len__ = lambda s: 1\nclass V:\n    def __repr__(s): return T('a\\nPASS f() -> 1' * 99)\n"
    )
    shown = gym.run_tests(f"{source}def f(): return V()", "f", [((), 1)])[0].shown
    assert shown.isprintable()
    assert (type(shown), len(shown)) == (str, 60)


def test_what_a_source_is_told_of_all_tests_can_come_back_so_that_public_tests_have_a_run_of_their_own() -> None:
    source = """import sys
def f(x):
    frame = sys._getframe()
    while 'calls' not in frame.f_locals:
        frame = frame.f_back
    return str(frame.f_locals['calls'])"""
    public, hidden = [((1,), 1)], [((222,), 222)]
    assert "222" in gym.run_tests_isolated(source, "f", public + hidden)[0].shown
    assert "222" not in gym.run_tests_isolated(source, "f", public)[0].shown


def test_r01_text_that_looks_like_code_stays_text() -> None:
    text = "__import__('os').getpid()"
    assert call("return a0", text).values == (text,)


def test_r02_the_verifier_works_and_ends_in_time_when_a_worker_thread_calls_it() -> None:
    limits = gym.Limits(wall_seconds=1.0)
    found: dict[str, set[str]] = {}
    jobs = {"good": CORRECT, "endless": "def clamp(*c):\n    while True: pass", "asleep": "import time\ntime.sleep(99)"}

    def work() -> None:
        for name, source in jobs.items():
            found[name] = outcomes(source, limits=limits if name != "good" else None)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == {"good": {"pass"}, "endless": {"timeout"}, "asleep": {"timeout"}}


def test_r04_a_printed_pass_is_kept_as_printed_and_is_no_verdict() -> None:
    run = call("import os\nprint('PASSED test_x', flush=True)\nos._exit(1)")
    assert (run.outcome, run.outcomes, run.printed) == ("crash", ("none",), "PASSED test_x\n")


def test_r11_nothing_that_a_run_writes_is_there_for_the_next() -> None:
    write = "open('/tmp/conftest.py', 'w').write('x')\nimport os\nreturn os.listdir('/tmp')"
    assert call(write).values == (["conftest.py"],)
    assert call("import os\nreturn os.listdir('/tmp')").values == ([],)
    assert not Path("/tmp/conftest.py").exists()


def test_a_call_has_a_namespace_of_its_own_and_shares_the_process() -> None:
    source = "import sys\nn = 0\ndef f():\n    global n\n    n += 1\n"
    source += "    sys.n = getattr(sys, 'n', 0) + 1\n    return n, sys.n"
    assert gym.run_isolated(source, "f", [(), (), ()]).values == ((1, 1), (1, 2), (1, 3))


# ---- how it ends

ENDINGS = {
    "value": ("return 7", "finished", "ok"),
    "exception": ("raise KeyError(7)", "finished", "error"),
    "SystemExit": ("raise SystemExit(0)", "finished", "error"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "finished", "error"),
    "recursion": ("return f()", "finished", "error"),
    "fork": ("import os\nreturn os.fork()", "finished", "error"),
    "thread": ("import threading\nthreading.Thread(target=print).start()", "finished", "error"),
    "kill itself": ("import os\nos.kill(os.getpid(), 9)", "finished", "error"),
    "signal itself": ("import os, signal\nsignal.signal(1, 1)\nos.kill(os.getpid(), 1)", "finished", "error"),
    "generator": ("yield 1", "finished", "not_plain"),
    "list in itself": ("x = []\nx.append(x)\nreturn x", "finished", "not_plain"),
    "deep list": ("x = []\nfor _ in range(10**5): x = [x]\nreturn x", "finished", "not_plain"),
    "no source": ("return (", "finished", "not_loaded"),
    "CPU": ("while True: pass", "timeout", "none"),
    "CPU, signal ignored": ("import signal\nsignal.signal(signal.SIGXCPU, 1)\nwhile True: pass", "timeout", "none"),
    "sleep": ("import time\ntime.sleep(99)", "timeout", "none"),
    "all pipes closed": ("import os, time\nos.closerange(0, 99)\ntime.sleep(99)", "timeout", "none"),
    "descriptors closed": ("import os\nos.closerange(0, 99)", "crash", "none"),
    "exit 0": ("import os\nos._exit(0)", "crash", "none"),
    "exit 3": ("import os\nos._exit(3)", "crash", "none"),
    "segmentation fault": ("import ctypes\nctypes.string_at(0)", "crash", "none"),
    "abort": ("import os\nos.abort()", "crash", "none"),
    "memory": ("return bytes(2**30)", "out_of_memory", "none"),
    "memory in pieces": ("x = []\nwhile True: x.append(bytes(2**20))", "out_of_memory", "none"),
    "output": ("print('x' * 10**8)", "too_much_output", "none"),
    "error output": ("import sys\nwhile True: sys.stderr.write('x' * 10**6)", "too_much_output", "none"),
    "long answer": ("return 'x' * 70_000", "finished", "too_long"),
    "answer beyond memory": ("return 'x' * 300 * 2**20", "out_of_memory", "none"),
    "long forged answer": ("import os\nos.write(3, b'[0, \"ok\", \"' + b'x' * 70_000 + b'\"]\\n')", "protocol", "none"),
    "flood of answers": ("import os\nwhile True: os.write(3, b'x' * 10**6)", "too_much_output", "none"),
    "garbage": ("import os\nos.write(3, b'\\xff\\n')\nreturn 7", "protocol", "none"),
    "two answers": ("import os\nos.write(3, b'[0, \"ok\", 7]\\n')\nreturn 7", "protocol", "none"),
    "half an answer": ("import os\nos.write(3, b'[0, \"ok\"')\nos._exit(0)", "crash", "none"),
    "reads what comes": ("import sys\nreturn sys.stdin.read()", "finished", "ok"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_way_to_end_has_its_name(ending: str) -> None:
    body, outcome, answer = ENDINGS[ending]
    run = call(body, limits=gym.Limits(wall_seconds=1.5 if outcome == "timeout" and ending != "CPU" else 20.0))
    assert (run.outcome, run.outcomes) == (outcome, (answer,)), run.detail
    assert len(run.printed) <= 2 * 2**20
    assert ending != "CPU" or run.detail == "out of CPU time"


@pytest.mark.parametrize("rung", [None, SECOND_RUNG], ids=["default", "without bubblewrap"])
def test_a_source_that_ignores_the_signal_of_cpu_time_is_killed_all_the_same(rung: tuple | None) -> None:
    body = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    run = call(body, limits=gym.Limits(wall_seconds=500.0), layers=rung)
    assert (run.outcome, run.outcomes) == ("timeout", ("none",))
    assert "out of CPU time" in run.detail  # and not, after 500 seconds, "out of time"


UNUSUAL = """
import signal, sys
from agentrl import bugfix_gym as gym
signal.signal(signal.SIGXCPU, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGXCPU, signal.SIGCHLD})
for layers in (None, ("rlimits", "seccomp", "landlock")):
    sources = ("def f():\\n    while True: pass", "def f(): return 7", "import os\\ndef f(): os._exit(3)")
    limits = gym.Limits(wall_seconds=500.0)
    print([gym.run_isolated(source, "f", [()], limits, layers=layers).detail for source in sources])
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
try:
    gym.run_isolated("def f(): return 7", "f", [()])
except gym.InfrastructureError as error:
    print(error)
"""


def test_how_the_caller_has_signals_handled_does_not_reach_the_child() -> None:
    root = Path(gym.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", UNUSUAL], cwd=root, capture_output=True, text=True, check=True)
    *runs, refused = done.stdout.splitlines()
    assert runs == ["['out of CPU time', '', 'ended with status 3']"] * 2
    assert refused.startswith("this process ignores SIGCHLD")


@pytest.mark.parametrize("end", ["os._exit(77)", "raise MemoryError", "os._exit(137)", "os._exit(152)", "os._exit(1)"])
def test_an_end_that_a_source_chooses_is_no_failure_of_the_infrastructure(end: str) -> None:
    for rung in (None, SECOND_RUNG):
        results = gym.run_tests_isolated(f"import os\ndef f(): {end}", "f", [((), 1)], layers=rung)
        assert results[0].outcome in ("crash", "out_of_memory", "timeout")


def test_an_end_after_right_answers_leaves_the_answers() -> None:
    body = "import os\nos.write(3, b'[0, \"ok\", 7]\\n')\nos._exit(1)"
    run = call(body)
    assert (run.outcome, run.outcomes, run.values) == ("crash", ("ok",), (7,))


def test_a_timeout_a_crash_no_memory_and_a_wrong_value_are_four_different_outcomes() -> None:
    limits = gym.Limits(wall_seconds=20.0)
    bodies = ("while True: pass", "import os; os._exit(0)", "return bytes(2**30)", "return 7")
    results = [gym.run_tests_isolated(f"def f():\n    {body}", "f", [((), 3)], limits)[0].outcome for body in bodies]
    assert results == ["timeout", "crash", "out_of_memory", "high"]


def test_answers_given_before_the_end_count_and_the_rest_has_the_runs_outcome() -> None:
    source = "def f(n):\n    import os\n    return os._exit(0) if n == 2 else n"
    results = gym.run_tests_isolated(source, "f", [((n,), n) for n in range(4)])
    assert [result.outcome for result in results] == ["pass", "pass", "crash", "crash"]


def test_no_calls_are_a_finished_run_and_no_tests_are_no_pass() -> None:
    assert gym.run_isolated("", "f", []).outcome == "finished"
    assert not gym.passed(gym.run_tests_isolated("", "f", []))


def test_a_child_that_does_not_begin_is_a_failure_of_the_infrastructure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gym, "_child_program", lambda: "raise SystemExit('no sandbox today')")
    with pytest.raises(gym.InfrastructureError, match="no sandbox today"):
        outcomes(CORRECT, unsafe=True)
    monkeypatch.setattr(gym, "_python", lambda: "/nowhere/python")
    with pytest.raises(gym.InfrastructureError, match="/nowhere/python"):
        gym.run_isolated(CORRECT, "clamp", [], unsafe=True, layers=())


@pytest.mark.parametrize("place", ["_wrapped", "_request", "_start", "_watch"])
def test_what_the_machine_refuses_the_parent_is_a_failure_of_the_infrastructure(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise OSError(24, "Too many open files")

    gym.isolation_layers()
    monkeypatch.setattr(gym, place, refuse)
    with pytest.raises(gym.InfrastructureError, match=r"no child could be run: .*Too many open files"):
        outcomes(CORRECT)


def test_without_a_folder_for_temporary_files_nothing_runs_and_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch, new_probes: None
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    assert gym.isolation_layers() == dict.fromkeys(gym._LAYERS, False)
    with pytest.raises(gym.InfrastructureError, match="/nowhere"):
        outcomes(CORRECT)
    with pytest.raises(gym.InfrastructureError, match=r"no child could be run: .*/nowhere"):
        outcomes(CORRECT, unsafe=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpu_seconds", 0), ("cpu_seconds", 0.5), ("cpu_seconds", 10**30), ("wall_seconds", math.nan),
        ("wall_seconds", math.inf), ("memory_bytes", -1), ("memory_bytes", 2**70), ("open_files", True),
    ],
)  # fmt: skip
def test_a_limit_that_is_none_is_refused_by_name_and_value(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value!r}; it must be a positive"):
        gym.Limits(**{name: value})


def test_a_layer_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="there is no layer 'chroot'; there are rlimits, seccomp"):
        gym.run_isolated(CORRECT, "clamp", [], layers=("chroot",))


# ---- the host

HOST_ATTACKS = {
    "write a file": ('open(f"{folder}/mark", "w").write("x")', {"landlock", "bubblewrap"}),
    "make a folder": ('os.mkdir(f"{folder}/made") is None', {"landlock", "bubblewrap"}),
    "remove a file": ('os.unlink(f"{folder}/victim") is None', {"landlock", "bubblewrap"}),
    "change rights": ('os.chmod(f"{folder}/secret", 0o777) is None', {"seccomp", "bubblewrap"}),
    "write 2 MiB": (
        'open(f"{folder}/big", "wb", buffering=0).write(bytes(2**21)) == 2**21', {"rlimits", "landlock", "bubblewrap"},
    ),
    "see its size": ('os.stat(f"{folder}/secret").st_size == 7', {"bubblewrap"}),
    "follow a link": ('os.readlink(f"{folder}/link") == "/etc/planted"', {"seccomp", "bubblewrap"}),
    "read a secret": ('open(f"{folder}/secret").read() == "planted"', {"landlock", "bubblewrap"}),
    "list a folder": ("os.listdir(folder)", {"landlock", "bubblewrap"}),
    "read a process": ('open(f"/proc/{pid}/cmdline").read()', {"landlock", "bubblewrap"}),
    "read its memory": ('open(f"/proc/{pid}/mem", "rb").fileno()', {"landlock", "bubblewrap"}),
    "connect": ('socket.create_connection(("127.0.0.1", port), timeout=5)', {"seccomp", "bubblewrap"}),
    "listen": ("socket.socket()", {"seccomp"}),
    "fork": ("os.waitpid(os.fork() or os._exit(0), 0)", {"seccomp"}),
    "take a gigabyte": ("bytes(2**30)", {"rlimits"}),
    "have a signal sent": ("have_killed(other)", {"seccomp", "bubblewrap"}),
    "open 200 files": ("len([os.dup(0) for _ in range(200)]) == 200", {"rlimits"}),
    "kill a process": ("os.kill(pid, signal.SIGKILL) is None", {"seccomp", "bubblewrap"}),
    "change its own limits": (
        "resource.setrlimit(resource.RLIMIT_CPU, resource.getrlimit(resource.RLIMIT_CPU)) is None", {"seccomp"},
    ),
}  # fmt: skip


HAVE_KILLED = """
def have_killed(pid):
    inner, outer = os.pipe()
    for command, value in ((fcntl.F_SETOWN, pid), (10, 9), (fcntl.F_SETFL, os.O_ASYNC)):  # 10: F_SETSIG
        fcntl.fcntl(inner, command, value)
    return os.write(outer, b"x") == 1
"""


def reached(layers: tuple[str, ...] | None) -> set[str]:
    """Return the attacks on the host that succeed under these layers, judged by what the attacks say."""
    cases = "\n".join(f"        if kind == {kind!r}: return bool({what})" for kind, (what, _) in HOST_ATTACKS.items())
    source = f"import fcntl, os, resource, signal, socket\n{HAVE_KILLED}\n"
    source += f"def attack(kind, folder, port, pid, other):\n    try:\n{cases}\n"
    source += "    except (OSError, MemoryError, ValueError): return False"
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        Path(folder, "secret").write_text("planted")
        Path(folder, "secret").chmod(0o600)
        Path(folder, "victim").touch()
        Path(folder, "link").symlink_to("/etc/planted")
        victim, other = (subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(2))
        calls = [(kind, folder, server.getsockname()[1], victim.pid, other.pid) for kind in HOST_ATTACKS]
        run = gym.run_isolated(source, "attack", calls, unsafe=True, layers=layers)
        left = sorted(path.name for path in Path(folder).iterdir())
        found = {kind for kind, value in zip(HOST_ATTACKS, run.values, strict=True) if value}
        for process, kind in ((victim, "kill a process"), (other, "have a signal sent")):
            if kind not in found:
                assert process.poll() is None
                process.kill()
            assert process.wait(20) == -signal.SIGKILL
    assert run.outcome == "finished"
    assert ("write a file" in found, "remove a file" in found) == ("mark" in left, "victim" not in left)
    return found


def test_no_attack_on_the_host_reaches_anything() -> None:
    assert reached(None) == set()


def test_the_second_rung_leaves_what_stat_tells_of_a_file_and_nothing_else() -> None:
    assert reached(SECOND_RUNG) == {"see its size"}


@pytest.mark.parametrize("layer", ["", "rlimits", "seccomp", "landlock", "bubblewrap"])
def test_each_layer_alone_stops_its_own_attacks_and_no_others(layer: str) -> None:
    expected = {kind for kind, (_, stopped_by) in HOST_ATTACKS.items() if layer not in stopped_by}
    assert reached((layer,) if layer else ()) == expected


@pytest.mark.parametrize("rung", [None, SECOND_RUNG], ids=["default", "without bubblewrap"])
def test_the_child_sees_no_environment_no_descriptors_of_ours_and_no_installed_package(rung: tuple | None) -> None:
    body = """import os, sys
def can(act, *arguments):
    try: return bool(act(*arguments))
    except OSError: return False
names = sorted(set(os.environ) - {'LC_CTYPE', 'PWD'})  # set by Python and by bubblewrap
return names, [n for n in range(64) if can(os.fstat, n)], [can(os.listdir, path) for path in a0], can(open, a1)"""
    folders = (Path("/usr/lib"), Path(sys.base_prefix, "lib"))
    shown = [path for folder in folders for path in folder.glob("python*/*-packages")]
    packages = [path for path in {*sys.path, *map(str, shown)} if path.endswith("-packages") and os.listdir(path)]
    assert len(packages) > 1
    descriptor = os.open(__file__, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    try:
        run = call(body, packages, introduction.__file__, layers=rung)
    finally:
        os.close(descriptor)
    environment, descriptors, seen, library = run.values[0]
    assert (environment, descriptors, library) == ([], [0, 1, 2, 3], False)
    assert seen == [False] * len(packages)


# ---- probes and refusal


def test_without_bubblewrap_the_probe_says_so_and_the_second_rung_has_to_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, new_probes: None
) -> None:
    monkeypatch.setenv("PATH", "")
    assert gym.isolation_layers() == {"rlimits": True, "seccomp": True, "landlock": True, "bubblewrap": False}
    run = gym.run_isolated(CORRECT, "clamp", [(3, 0, 5)])
    assert (run.outcome, run.values) == ("refused", (None,))
    assert run.detail.startswith("no bubblewrap here (bubblewrap: bubblewrap is not installed")
    assert run.detail.endswith(f"with layers={SECOND_RUNG}, or run it all the same with unsafe=True")
    for layers in (SECOND_RUNG, None):
        run = gym.run_isolated(CORRECT, "clamp", [(3, 0, 5)], layers=layers, unsafe=layers is None)
        assert (run.outcome, run.values, run.layers) == ("finished", (3,), SECOND_RUNG)
    with pytest.raises(gym.InfrastructureError, match="bubblewrap is not installed"):
        gym.run_isolated(CORRECT, "clamp", [], layers=("bubblewrap",), unsafe=True)


FAKES = {
    "fails": "#!/bin/sh\necho bwrap: No permissions to create new namespace >&2\nexit 1\n",
    "isolates nothing": '#!/bin/sh\nwhile [ "$1" != "--chdir" ]; do shift; done\nshift 2\nexec "$@"\n',
}


@pytest.mark.parametrize("fake", FAKES)
def test_a_bubblewrap_that_does_not_isolate_is_not_believed(
    fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_probes: None
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(FAKES[fake])
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not gym.isolation_layers()["bubblewrap"]


def test_that_a_layer_could_not_be_tried_is_not_remembered_for_good(
    monkeypatch: pytest.MonkeyPatch, new_probes: None
) -> None:
    real = gym._start

    def refuse(*_: Any) -> Any:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(gym, "_start", refuse)
    assert not any(gym.isolation_layers().values())
    monkeypatch.setattr(gym, "_start", real)
    assert not any(gym.isolation_layers().values()), "it is not tried again at once: each try starts a process"
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + 61)
    assert all(gym.isolation_layers().values())


def test_a_probe_that_had_no_answer_says_nothing_about_its_layer(
    monkeypatch: pytest.MonkeyPatch, new_probes: None
) -> None:
    monkeypatch.setattr(gym, "_PROBES", "import os\ndef probe(*_): os._exit(0)")
    assert "the probe had no answer: crash" in gym._lack("seccomp")
    monkeypatch.undo()
    gym._UNTRIED.clear()
    assert gym._lack("seccomp") == ""


def test_where_no_child_can_be_started_the_reason_is_told(monkeypatch: pytest.MonkeyPatch, new_probes: None) -> None:
    monkeypatch.setattr(gym, "_python", lambda: "/nowhere/python")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        gym.InfrastructureError, match=r"no rlimits, seccomp, bubblewrap here.*rlimits: .*/nowhere/python"
    ):
        outcomes(CORRECT)


def test_on_a_processor_without_a_list_of_system_calls_the_filter_does_not_hold(
    monkeypatch: pytest.MonkeyPatch, new_probes: None
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert not gym.isolation_layers()["seccomp"]
    assert gym.run_isolated(CORRECT, "clamp", [(3, 0, 5)]).outcome == "refused"


@pytest.mark.parametrize(
    ("holding", "lacking"),
    [
        ((), "no rlimits, seccomp, bubblewrap here"),
        (("rlimits", "bubblewrap"), "no seccomp here"),
        (("rlimits", "seccomp"), "no bubblewrap here"),
        (("rlimits", "seccomp", "landlock"), "no bubblewrap here"),
        (("seccomp", "landlock", "bubblewrap"), "no rlimits here"),
    ],
)
def test_where_layers_are_missing_nothing_runs_unless_told(
    holding: tuple[str, ...], lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gym, "isolation_layers", lambda: {layer: layer in holding for layer in gym._LAYERS})
    monkeypatch.setattr(gym, "_start", lambda *_: pytest.fail("a child was started"))
    run = gym.run_isolated(CORRECT, "clamp", [(3, 0, 5)] * 2)
    assert (run.outcome, run.outcomes, run.values) == ("refused", ("none", "none"), (None, None))
    assert run.detail.startswith(f"{lacking}; ")
    assert run.detail.endswith("run it all the same with unsafe=True")
    assert ("install bubblewrap" in run.detail) == ("bubblewrap" in lacking)
    with pytest.raises(gym.InfrastructureError, match=lacking):
        gym.run_tests_isolated(CORRECT, "clamp", TESTS)
    monkeypatch.undo()
    monkeypatch.setattr(gym, "isolation_layers", lambda: dict.fromkeys(gym._LAYERS, False))
    assert outcomes(CORRECT, unsafe=True) == {"pass"}


# ---- nothing is left


def marked(mark: str) -> list[psutil.Process]:
    """Return the processes with this mark on their command line."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"] or []
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(mark in word for word in line):
            found.append(process)
    return found


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a mark that the children's command lines carry."""
    text = f"child of {os.getpid()} at {time.monotonic_ns()}"
    program = gym._child_program() + f"\n# {text}\n"
    monkeypatch.setattr(gym, "_child_program", lambda: program)
    return text


def test_two_hundred_runs_at_four_a_time_leave_no_process_file_or_descriptor(mark: str, tmp_path: Path) -> None:
    ends: list[tuple[str, str]] = [("return a0", "finished")] * 16
    ends += [("import os\nos._exit(1)", "crash"), ("print('x' * 10**7)", "too_much_output")]
    ends += [("import time\ntime.sleep(99)", "timeout"), ("raise a0", "finished")]

    def run(number: int) -> str:
        """Return what was unexpected, "" if nothing."""
        body, outcome = ends[number % len(ends)]
        limits = gym.Limits(wall_seconds=1.0 if outcome == "timeout" else 60.0)
        try:
            made = call(body, number, limits=limits)
        except gym.InfrastructureError as error:  # the machine was too busy to begin within the second
            return "" if outcome == "timeout" and "out of time" in str(error) else repr(error)
        right = made.outcome == outcome and (body != "return a0" or made.values == (number,))
        return "" if right else f"{body!r}: {made}"

    old, tempfile.tempdir = tempfile.tempdir, str(tmp_path)
    try:
        gym.isolation_layers()
        before = psutil.Process().num_fds()
        with ThreadPoolExecutor(4) as pool:
            assert [found for found in pool.map(run, range(200)) if found] == []
    finally:
        tempfile.tempdir = old
    assert psutil.Process().num_fds() == before
    assert list(tmp_path.iterdir()) == []
    assert wait_until(lambda: not marked(mark))


LEAVES_A_CHILD = "import os, time\nif os.fork() == 0:\n    time.sleep(60)\nreturn 7"


def test_what_a_child_writes_before_its_end_is_read_however_the_two_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = gym._drain

    def drain(selector: Any, texts: dict[int, bytearray]) -> bool:
        news = slow(selector, texts)
        time.sleep(0 if news else 0.3)  # long enough for the child to write and to end after nothing was there
        return news

    monkeypatch.setattr(gym, "_drain", drain)
    assert call("import time\ntime.sleep(0.1)\nreturn 7").values == (7,)


def test_a_grandchild_that_holds_the_pipes_does_not_hold_us_up_and_is_killed(mark: str) -> None:
    for layers in ((), ("bubblewrap",)):
        start = time.monotonic()
        run = call(LEAVES_A_CHILD, limits=gym.Limits(wall_seconds=50.0), unsafe=True, layers=layers)
        assert (run.outcome, run.values) == ("finished", (7,))
        assert time.monotonic() - start < 40  # it did not wait for the grandchild
        assert wait_until(lambda: not marked(mark))


def test_an_interrupted_run_leaves_no_process(mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(gym, "_drain", interrupt)
    with pytest.raises(KeyboardInterrupt):
        call("import time\ntime.sleep(60)")
    assert wait_until(lambda: not marked(mark))


ORPHANS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from agentrl import bugfix_gym as gym
program = gym._child_program() + f"\\n# {sys.argv[1]}\\n"
gym._child_program = lambda: program
def run(view):
    layers = ("rlimits", "seccomp", view)
    gym.run_isolated("import time\\ntime.sleep(60)", "f", [()], gym.Limits(wall_seconds=60.0), layers=layers)
with ThreadPoolExecutor(2) as pool:
    list(pool.map(run, ("bubblewrap", "landlock")))
"""


def test_a_child_does_not_outlive_a_parent_that_is_killed() -> None:
    text = f"orphan of {os.getpid()} at {time.monotonic_ns()}"
    root = Path(gym.__file__).parents[1]
    parent = subprocess.Popen([sys.executable, "-c", ORPHANS, text], cwd=root, stderr=subprocess.PIPE)

    def ours() -> list[psutil.Process]:
        return [process for process in marked(text) if process.pid != parent.pid]

    try:
        assert wait_until(lambda: len(ours()) > 2, 60)  # bubblewrap is two processes more
        time.sleep(0.3)  # past the moment at which the children ask for this
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.communicate()
    assert wait_until(lambda: not ours())


def test_runs_in_threads_do_not_mix() -> None:
    answer: Callable[[int], tuple[Any, ...]] = lambda n: call("return a0, [a0] * 3", n).values  # noqa: E731
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(answer, range(12))) == [((n, [n] * 3),) for n in range(12)]
