"""The gym's parser, environment and verifier (chapter 4): what they promise, and faults that projects shipped."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import agentrl as arl
from agentrl import bugfix_gym
from bookkit.notebook import load_chapter

ROOT = Path(__file__).resolve().parent.parent
TASKS = arl.bugfix_tasks()
CLAMP = TASKS[0]
FRAGMENTS = [
    "<call>",
    "</call>",
    " ",
    "  ",
    "\n",
    "read",
    "test",
    "edit",
    "submit",
    "swap_minmax",
    "nil",
    "é",
    "\ud800",
]
any_text = st.text(st.characters()) | st.lists(st.sampled_from(FRAGMENTS)).map("".join)


def call(words: str) -> str:
    """Return the message of a call."""
    return f"<call> {words} </call>"


def started(task: arl.BugFixTask = CLAMP, **settings: Any) -> arl.BugFixEnv:
    """Return an environment in which an episode is running."""
    env = arl.BugFixEnv(task, **settings)
    env.reset()
    return env


def steps(env: arl.BugFixEnv, *words: str) -> list[arl.StepResult]:
    """Return the results of these calls."""
    return [env.step(call(w)) for w in words]


def playing(*words: str) -> Callable[[arl.Transcript], str]:
    """Return a policy that makes these calls in order."""
    return lambda transcript: call(words[len(transcript) // 2])


# The parser


@pytest.mark.parametrize("tool", ["read", "test", "submit"])
def test_a_tool_alone_is_a_call(tool: str):
    assert arl.parse_call(call(tool)) == arl.Call(tool, None)


def test_an_edit_carries_its_name_and_need_not_be_on_the_menu():
    assert arl.parse_call(call("edit swap_minmax")) == arl.Call("edit", "swap_minmax")
    assert arl.parse_call(call("edit no_such_edit")) == arl.Call("edit", "no_such_edit")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "no call"),
        ("please read", "no call"),
        ("<call> read", "unfinished call"),
        ("<call> edit swap_min", "unfinished call"),
        (call("read") + call("test"), "several calls"),
        ("so: " + call("read"), "text around the call"),
        (call("read") + "\n", "text around the call"),
        ("<call>read</call>", "badly formed call"),
        ("<call>  read </call>", "badly formed call"),
        ("<call> </call>", "badly formed call"),
        ("<call> read\n</call>", "badly formed call"),
        (call("edit swap_minmax flip_sign"), "badly formed call"),
        (call("edit ｓwap_minmax"), "badly formed call"),
        (call("frobnicate swap_minmax"), "unknown tool"),
        (call("Read"), "unknown tool"),
        (call("edit"), "missing argument"),
        (call("read clamp"), "extra argument"),
        (call("submit swap_minmax"), "extra argument"),
    ],
)
def test_what_is_wrong_with_a_message_is_named_by_kind(text: str, kind: str):
    parsed = arl.parse_call(text)
    assert (parsed.tool, parsed.argument) == ("", None)
    assert parsed.problem.split(": ")[0] == kind
    assert len(parsed.problem) > len(kind) + 2, "and said in more words"


@pytest.mark.parametrize("words", ["x" * 5000, "edit " + "x" * 5000])
def test_a_long_name_is_quoted_in_part(words: str):
    (step,) = steps(started(), words)
    assert "xxx" in step.observation
    assert len(step.observation) < 250


@given(any_text)
@example("<call> read </call>")
def test_a_text_is_a_call_exactly_if_it_is_written_as_one(text: str):
    parsed = arl.parse_call(text)
    words = " ".join(word for word in (parsed.tool, parsed.argument) if word)
    assert bool(parsed.problem) != (text == call(words))


# The environment


@pytest.mark.parametrize("message", [None, 5, b"<call> read </call>", ["<call> read </call>"]])
def test_what_is_no_text_is_an_error_of_the_caller_and_the_episode_goes_on(message: Any):
    env = started()
    for ask in (arl.parse_call, env.step):
        with pytest.raises(TypeError, match=re.escape(f"not {message!r}")):
            ask(message)
    assert (env.running, env.turns) == (True, 0)
    assert steps(env, "edit swap_minmax", "submit")[-1].reward == 1.0


@settings(max_examples=10_000, deadline=None)
@given(any_text)
def test_any_text_as_an_action_gives_an_observation(text: str):
    for detail in ("full", "short"):
        step = started(detail=detail).step(text)
        assert step.observation.encode(), "not empty, and encodable whatever the policy wrote"
        assert not re.search(r"</?call>|</?obs>|<bos>", step.observation) or step.info["problem"]
        assert (step.reward, step.truncated) == (0.0, False)
        assert step.observation.startswith("error: ") == bool(step.info["problem"])


def test_the_clamp_episode_of_chapter_1_has_the_same_texts():
    env = arl.BugFixEnv(CLAMP)
    assert env.reset() == arl.CLAMP_ISSUE
    seen = [step.observation for step in steps(env, "read", "test", "edit swap_minmax", "test", "submit")]
    assert seen == [
        arl.CLAMP_SOURCE,
        "FAIL clamp(3, 0, 5) -> 0\nPASS clamp(-2, 0, 5) -> 0\nFAIL clamp(9, 0, 5) -> 0",
        "edited with swap_minmax",
        "PASS clamp(3, 0, 5) -> 3\nPASS clamp(-2, 0, 5) -> 0\nPASS clamp(9, 0, 5) -> 5",
        "submitted",
    ]


def test_in_short_the_prompt_is_the_same_for_all_tasks_and_tests_are_counts():
    assert {arl.BugFixEnv(task, detail="short").reset() for task in TASKS} == {arl.SHORT_PROMPT}
    seen = [
        s.observation for s in steps(started(detail="short"), "test", "edit add_return", "edit swap_minmax", "test")
    ]
    assert seen == ["1 of 3 pass, low", "no change", "edited", "3 of 3 pass"]


def test_reward_is_paid_at_a_submission_that_passes_every_test_and_nowhere_else():
    env = started()
    assert [s.reward for s in steps(env, "edit swap_minmax", "test", "read", "submit")] == [0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("edit", [name for name in arl.EDIT_OPS if name != "swap_minmax"])
def test_any_other_edit_of_the_clamp_is_not_paid(edit: str):
    assert steps(started(), f"edit {edit}", "submit")[-1].reward == 0.0


def test_hidden_tests_alone_do_not_make_a_repair():
    lax = replace(CLAMP, hidden=(((-7, -5, -1), -5),))  # the defective source passes this one
    episode = arl.run_episode(arl.BugFixEnv(lax), playing("submit"))
    assert (episode.info["public_pass"], episode.info["hidden_pass"]) == (False, True)
    assert (episode.reward, episode.outcome) == (0.0, "failed")


def test_info_says_what_the_tests_say_of_the_source_as_it_stands():
    looks = [(s.info["public_pass"], s.info["hidden_pass"], s.info["hacked"]) for s in steps(
        started(), "read", "edit hardcode_tests", "edit swap_minmax", "edit add_return"
    )]  # fmt: skip
    assert looks == [(False, False, False), (True, False, True), (True, True, False), (False, False, False)]


def test_an_edit_replaces_the_one_before_and_read_shows_the_source_as_it_stands():
    env = started()
    *_, shown = steps(env, "edit hardcode_tests", "edit swap_minmax", "read")
    assert shown.observation == env.source == CLAMP.reference


@pytest.mark.parametrize(
    ("detail", "told"),
    [("full", "add_return finds nothing to change; the source is the original"), ("short", "no change")],
)
def test_an_edit_that_finds_nothing_takes_the_one_before_back_and_says_so(detail: str, told: str):
    env = started(detail=detail)
    _, undone, tested, shown, submitted = steps(env, "edit swap_minmax", "edit add_return", "test", "read", "submit")
    assert undone.observation == told
    assert "3 of 3" not in tested.observation
    assert shown.observation == CLAMP.source
    assert (submitted.reward, undone.info["public_pass"]) == (0.0, False)


def test_with_stack_edits_an_edit_that_finds_nothing_leaves_the_one_before():
    env = started(stack_edits=True)
    _, nothing, submitted = steps(env, "edit swap_minmax", "edit add_return", "submit")
    assert (nothing.observation, submitted.reward) == ("add_return finds nothing to change", 1.0)


def test_with_stack_edits_an_edit_applies_to_the_source_as_it_stands():
    env = started(stack_edits=True)
    steps(env, "edit swap_minmax", "edit swap_minmax")
    assert env.source == CLAMP.source
    edited = steps(env, "edit hardcode_tests", "edit swap_minmax")
    assert "== (3, 0, 5)" in env.source
    assert "max(lower, min(value, upper))" in env.source
    assert [s.observation for s in edited] == ["edited with hardcode_tests", "edited with swap_minmax"]


def test_an_unknown_edit_names_itself_and_the_menu_and_changes_nothing():
    env = started()
    (step,) = steps(env, "edit frobnicate")
    assert "'frobnicate'" in step.observation
    assert all(name in step.observation for name in arl.EDIT_OPS)
    assert (env.source, env.turns, step.info["call"].tool) == (CLAMP.source, 1, "")


def test_submitting_terminates_and_running_out_of_turns_truncates():
    assert [(s.terminated, s.truncated) for s in steps(started(), "read", "submit")] == [(False, False), (True, False)]
    assert [s.truncated for s in steps(started(max_turns=2), "edit swap_minmax", "test")] == [False, True]


def test_no_step_is_taken_before_reset_or_after_an_end():
    env = arl.BugFixEnv(CLAMP, max_turns=1)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"reset\(\)"):
            env.step(call("read"))
        env.reset()
        env.step(call("read"))
    with pytest.raises(RuntimeError, match="ended"):
        env.step(call("read"))


@pytest.mark.parametrize("turns", [0, -1, 2.0, True, None])
def test_a_number_of_turns_that_cannot_be_is_refused(turns: Any):
    with pytest.raises(ValueError, match=f"max_turns is {turns!r}"):
        arl.BugFixEnv(CLAMP, max_turns=turns)


def test_an_unknown_amount_of_detail_is_refused():
    with pytest.raises(ValueError, match="detail is 'long'"):
        arl.BugFixEnv(CLAMP, detail="long")


@pytest.mark.parametrize("without", ["public", "hidden"])
def test_a_task_without_tests_is_refused(without: str):
    task = replace(TASKS[3], **{without: ()})
    with pytest.raises(ValueError, match=f"task 3 has {len(task.public)} public and {len(task.hidden)} hidden tests"):
        arl.BugFixEnv(task)


@pytest.mark.parametrize("stack", ["no", 0, None])
def test_to_stack_edits_is_a_yes_or_a_no(stack: Any):
    with pytest.raises(ValueError, match=f"stack_edits is {stack!r}"):
        arl.BugFixEnv(CLAMP, stack_edits=stack)


ODD_SOURCES = [
    "def clamp(v, l, u): return v",
    "def clamp(value: int, lower, upper):\n    return value",
    "def clamp(value, lower=0, upper=9):\n    return value",
    "def clamp(*values):\n    return values[0]",
    "import math\ndef clamp(value, lower, upper):\n    return value",
    "",
]


@pytest.mark.parametrize("source", ODD_SOURCES)
def test_a_source_that_the_menu_could_not_hardcode_is_left_alone_and_makes_no_environment(source: str):
    odd = replace(CLAMP, source=source)
    assert arl.EDIT_OPS["hardcode_tests"](source, odd) == source
    with pytest.raises(ValueError, match=re.escape(f"task 0: its source begins with {source.split(chr(10))[0]!r}")):
        arl.BugFixEnv(odd)


@pytest.mark.parametrize("head", ["f()", "f(x)", "f(x, y)", "f(x, y, z)"])
def test_hardcoding_answers_any_number_of_arguments(head: str):
    arguments = tuple(range(head.count(",") + ("()" not in head)))
    task = replace(CLAMP, name="f", source=f"def {head}:\n    return None", public=((arguments, 7),))
    hardcoded = arl.EDIT_OPS["hardcode_tests"](task.source, task)
    assert arl.run_tests(hardcoded, "f", task.public) == (("pass", "7"),)
    assert hardcoded.endswith("\n    return None")


@given(st.lists(st.sampled_from(["read", "test", "submit", *(f"edit {name}" for name in arl.EDIT_OPS)]), max_size=8))
def test_two_episodes_played_in_turn_are_those_played_alone(words: list[str]):
    def told(env: arl.BugFixEnv, word: str) -> Any:
        return env.step(call(word)) if env.running else None

    first, second, alone = started(TASKS[8]), started(TASKS[8]), started(TASKS[8])
    reverse = list(reversed(words))
    mixed = [(told(first, a), told(second, b)) for a, b in zip(words, reverse, strict=True)]
    assert [a for a, _ in mixed] == [told(alone, word) for word in words]
    alone.reset()
    assert [b for _, b in mixed] == [told(alone, word) for word in reverse]


# Episodes, policies, baselines


def test_a_transcript_says_who_wrote_what_and_the_policy_gets_a_copy():
    def policy(transcript: arl.Transcript) -> str:
        transcript.clear()
        return call("submit")

    episode = arl.run_episode(arl.BugFixEnv(CLAMP), policy)
    assert episode.transcript == [("prompt", CLAMP.issue), ("policy", call("submit")), ("tool", "submitted")]
    assert (episode.ended, episode.outcome, episode.turns, episode.reward) == ("submitted", "failed", 1, 0.0)


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        (("edit swap_minmax", "submit"), "repaired"),
        (("edit hardcode_tests", "submit"), "hacked"),
        (("submit",), "failed"),
        (("edit swap_minmax", *["read"] * 4), "out_of_turns"),
        (("edit hardcode_tests", *["read"] * 4), "out_of_turns"),
    ],
)
def test_what_came_of_an_episode(words: tuple[str, ...], outcome: str):
    assert arl.run_episode(arl.BugFixEnv(CLAMP), playing(*words)).outcome == outcome


@pytest.mark.parametrize("ended", ["crashed", "", "sumbitted", None])
def test_an_end_that_no_episode_has_has_no_outcome(ended: Any):
    with pytest.raises(ValueError, match=f"ended is {ended!r}"):
        arl.episode_outcome(ended, {"public_pass": True, "hidden_pass": True, "hacked": False})


@pytest.mark.parametrize("detail", ["full", "short"])
def test_the_solver_repairs_all_but_the_tasks_whose_edits_do_not_fit_into_five_turns(detail: str):
    runs = {task.name: arl.run_episode(arl.BugFixEnv(task, detail=detail), arl.scripted_solver) for task in TASKS}
    assert {name for name, run in runs.items() if run.outcome != "repaired"} == {"sum_to", "sum_below"}
    longer = [arl.run_episode(arl.BugFixEnv(task, max_turns=7, detail=detail), arl.scripted_solver) for task in TASKS]
    assert {run.outcome for run in longer} == {"repaired"}


@pytest.mark.parametrize("detail", ["full", "short"])
def test_the_hacker_looks_successful_everywhere_and_is_paid_nowhere(detail: str):
    runs = [arl.run_episode(arl.BugFixEnv(task, detail=detail), arl.scripted_hacker) for task in TASKS]
    assert {(run.outcome, run.reward, run.turns) for run in runs} == {("hacked", 0.0, 2)}


def test_the_right_edit_and_a_submission_repair_every_task():
    runs = [arl.run_episode(arl.BugFixEnv(task), playing(f"edit {task.family}", "submit")) for task in TASKS]
    assert {(run.outcome, run.reward) for run in runs} == {("repaired", 1.0)}


def test_the_figure_of_the_baselines_shows_what_the_chapter_printed():
    chapter = load_chapter(ROOT / "chapters" / "04-environments-and-tools.ipynb", ROOT)
    printed = next(cell.stdout for cell in chapter.code_cells if cell.id == "baselines-table")
    rows = json.loads((ROOT / "figures" / "data" / "ch04-baselines.json").read_text(encoding="utf-8"))["rows"]
    found = re.findall(r"^(\w[\w ]+?) +(\d+) +(\d+) \(.*?\) +(\d+) \(.*?\) +([\d.]+)$", printed, re.MULTILINE)
    assert len(found) == 5
    assert [tuple(map(str, row.values())) for row in rows] == found


@pytest.mark.parametrize(("count", "total"), [(0, 56), (3, 56), (56, 56), (1, 2), (81, 2800)])
def test_the_bounds_of_the_wilson_interval_are_z_deviations_from_the_observed_share(count: int, total: int):
    low, high = arl.wilson_interval(count, total)
    assert 0 <= low <= count / total <= high <= 1
    for p in {low, high} - {0.0, 1.0}:
        assert (count / total - p) ** 2 == pytest.approx(1.959964**2 * p * (1 - p) / total, abs=1e-12)


@pytest.mark.parametrize("total", [*range(1, 101), 400, 2800])
def test_a_wilson_interval_holds_the_observed_share_and_ends_exactly_at_0_and_1(total: int):
    for count in range(total + 1):
        low, high = arl.wilson_interval(count, total)
        assert 0 <= low <= count / total <= high <= 1
        assert ((low == 0), (high == 1)) == (count == 0, count == total)


@pytest.mark.parametrize(
    ("count", "total"), [(1, 0), (0, 0), (-1, 5), (6, 5), (1.5, 3), (True, 1), (1, True), (math.nan, 3), (1, 2.0)]
)
def test_a_count_that_cannot_be_has_no_interval(count: Any, total: Any):
    with pytest.raises(ValueError, match=f"{count} of {total}"):
        arl.wilson_interval(count, total)


@pytest.mark.parametrize("z", [0.0, -2.0, math.nan, math.inf])
def test_a_width_that_cannot_be_is_refused(z: float):
    with pytest.raises(ValueError, match=f"z is {z!r}"):
        arl.wilson_interval(1, 3, z)


# The verifier


def naive(source: str, name: str, tests: Any, same: Callable[[Any, Any], Any] = lambda got, want: got == want) -> bool:
    """Return what a first runner says: one namespace, the tests' own arguments, an exception taken for a value."""
    namespace: dict[str, Any] = {}
    exec(source, namespace)

    def got(arguments: tuple) -> Any:
        try:
            return namespace[name](*arguments)
        except Exception as error:
            return type(error)

    return all(same(got(arguments), getattr(want, "kind", want)) for arguments, want in tests)


def twice(source: str, name: str, tests: Any) -> bool:
    """Return whether tests pass when they may be run again."""
    return naive(source, name, tests) or naive(source, name, tests)


def by(same: Callable[[Any, Any], Any]) -> Callable[[str, str, Any], bool]:
    """Return a naive runner that compares in this way."""
    return lambda source, name, tests: naive(source, name, tests, same)


YES = "class Yes:\n    __eq__ = lambda self, other: True\n    __hash__ = None\ndef f(x): return Yes()"
LIAR = "class Liar(int):\n    __eq__ = lambda self, other: True\ndef f(x): return Liar(7)"
INSIDE = "class Yes:\n    __eq__ = lambda self, other: True\ndef f(x): return [Yes(), Yes()]"
ALIAS = "class ZeroDivisionError(Exception): pass\ndef f(x):\n    raise ZeroDivisionError"
COUNTER = "seen = []\ndef f(x):\n    seen.append(x)\n    return [6, 10][len(seen) - 1]"
SPOILER = "def f(v):\n    result = list(v)\n    v.sort()\n    return result"
DOUBLED = [((3,), 6), ((5,), 10)]
INVERSE = [((0,), arl.Raises(ZeroDivisionError)), ((2,), 0.5)]
TRAPS: dict[str, tuple[Callable[..., bool], str, str, list]] = {
    "True for 1": (naive, "def f(v): return 7 in v", "def f(v): return v.count(7)", [(([7],), 1), (([2],), 0)]),
    "2.0 for 2": (naive, "def f(n): return n / 2", "def f(n): return n // 2", [((4,), 2)]),
    "True in a list": (naive, "def f(v): return [x == 1 for x in v]", "def f(v): return v", [(([1, 0],), [1, 0])]),
    "1.0 as a key": (naive, "def f(x): return {x + 0.0: x}", "def f(x): return {x: x}", [((1,), {1: 1})]),
    "an object that equals all": (naive, YES, "def f(x): return 2 * x", DOUBLED),
    "a number that equals all": (naive, LIAR, "def f(x): return 2 * x", DOUBLED),
    "objects in a list": (naive, INSIDE, "def f(x): return [x, x]", [((1,), [1, 1])]),
    "nan": (
        by(lambda got, want: not abs(got - want) > 1e-6),
        "def f(x): return float('nan')",
        "def f(x): return 2 * x",
        DOUBLED,
    ),
    "infinity": (
        by(lambda got, want: abs(got - want) <= 1e-9 * max(abs(got), abs(want))),
        "def f(x): return float('inf')",
        "def f(x): return 2.0 * x",
        [((3,), 6.0)],
    ),
    "0.0 for small": (
        by(lambda got, want: math.isclose(got, want, abs_tol=1e-6)),
        "def f(n): return 0.0",
        "def f(n): return 0.5**n",
        [((30,), 2.0**-30)],
    ),
    "tolerance for whole numbers": (
        by(math.isclose),
        "def f(n): return n",
        "def f(n): return n + 1",
        [((10**12,), 10**12 + 1)],
    ),
    "order and copies": (
        by(lambda got, want: set(got) == set(want)),
        "def f(v): return v",
        "def f(v): return sorted(set(v))",
        [(([2, 1, 2],), [1, 2])],
    ),
    "text for a number": (
        by(lambda got, want: str(got) == str(want)),
        "def f(x): return str(2 * x)",
        "def f(x): return 2 * x",
        DOUBLED,
    ),
    "arguments changed": (twice, SPOILER, "def f(v): return sorted(v)", [(([2, 1],), [1, 2])]),
    "state between tests": (naive, COUNTER, "def f(x): return 2 * x", DOUBLED),
    "the class for the exception": (
        naive,
        "def f(x): return 1 / x if x else ZeroDivisionError",
        "def f(x): return 1 / x",
        INVERSE,
    ),
    "any exception": (
        by(lambda got, want: got == want or (isinstance(got, type) and isinstance(want, type))),
        "def f(x): return 1 / x if x else nil",
        "def f(x): return 1 / x",
        INVERSE,
    ),
    "a subclass of the exception": (
        by(lambda got, want: issubclass(got, want) if isinstance(got, type) else got == want),
        "class Mine(ZeroDivisionError): pass\ndef f(x):\n    raise Mine",
        "def f(x): return 1 / x",
        INVERSE[:1],
    ),
    "an exception of that name": (
        by(lambda got, want: getattr(got, "__name__", got) == getattr(want, "__name__", want)),
        ALIAS,
        "def f(x): return 1 / x",
        INVERSE[:1],
    ),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_cheat_that_a_naive_runner_passes_is_failed_and_the_solution_is_passed(trap: str):
    runner, cheat, solution, tests = TRAPS[trap]
    assert runner(cheat, "f", deepcopy(tests))
    assert not arl.passed(arl.run_tests(cheat, "f", tests))
    assert arl.passed(arl.run_tests(solution, "f", tests))


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
        | st.frozensets(st.integers() | st.booleans() | st.text(), max_size=3)
        | st.sets(st.integers() | st.floats(), max_size=3)
    ),
    max_leaves=8,
)


@given(plain, plain)
def test_a_value_is_the_same_as_its_copy_and_sameness_goes_both_ways(one: Any, other: Any):
    assert arl.same_value(deepcopy(one), one)
    assert arl.same_value(one, other) == arl.same_value(other, one)
    assert not arl.same_value([one], (one,))


@given(st.dictionaries(st.text(), st.integers()), st.sets(st.integers()))
def test_dicts_and_sets_are_compared_without_order(entries: dict, items: set):
    assert arl.same_value(dict(reversed(entries.items())), entries)
    assert arl.same_value({item + 0 for item in reversed(list(items))}, items)


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        (math.nan, -math.nan, True),
        ([math.nan], [math.nan], True),
        (0.1 + 0.2, 0.3, True),
        (0.0, -0.0, True),
        (math.inf, math.inf, True),
        (math.inf, -math.inf, False),
        (1e-300, 0.0, False),
        (1.0 + 1e-8, 1.0, False),
        ({1, 2}, {2, 1}, True),
        ({1}, {True}, False),
        ({1.0, 1.0 + 1e-12}, {1.0, 2.0}, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ("", set(), False),
        (None, 0, False),
        ([], None, False),
        (set(), frozenset(), False),
    ],
)
def test_values_at_the_edges(got: Any, expected: Any, same: bool):
    assert arl.same_value(got, expected) is same


@pytest.mark.parametrize("expected", [object(), 1j, len, [object()], bytearray()])
def test_a_test_that_expects_no_plain_value_is_an_error_of_its_author(expected: Any):
    with pytest.raises(TypeError, match="is no plain value"):
        arl.same_value(deepcopy(expected) if type(expected) is list else expected, expected)


@pytest.mark.parametrize(
    ("body", "outcome", "shown"),
    [
        ("return 6", "pass", "6"),
        ("return 5", "low", "5"),
        ("return 7.5", "high", "7.5"),
        ("return 6.0", "different", "6.0"),
        ("return float('nan')", "different", "nan"),
        ("return '6'", "different", "'6'"),
        ("return True", "different", "True"),
        ("pass", "none", "None"),
        ("return nil", "error", "raised NameError"),
        ("return f(x)", "error", "raised RecursionError"),
        ("return 'x' * 100", "different", "'" + "x" * 56 + "..."),
    ],
)
def test_how_a_test_went(body: str, outcome: str, shown: str):
    assert arl.run_tests(f"def f(x):\n    {body}", "f", [((3,), 6)]) == ((outcome, shown),)


@pytest.mark.parametrize("source", ["def f(x: return", "", "def g(x): return 6", "raise ValueError", "\x00", "f = 6"])
def test_a_source_that_defines_no_such_function_fails_every_test(source: str):
    assert [result.outcome for result in arl.run_tests(source, "f", [((3,), 6), ((4,), 8)])] == ["error", "error"]


def test_a_value_that_refuses_to_be_printed_is_named_by_its_class():
    source = "class Shy:\n    def __repr__(self): raise KeyError\ndef f(x): return Shy()"
    assert arl.run_tests(source, "f", [((3,), 6)]) == (("different", "<Shy: its repr raised KeyError>"),)


def test_the_tests_of_a_task_are_run_once_for_each_task_and_source(monkeypatch: pytest.MonkeyPatch):
    ran: Counter[str] = Counter()
    real = bugfix_gym.run_tests

    def counting(source: str, *rest: Any) -> Any:
        ran[source] += 1
        return real(source, *rest)

    monkeypatch.setattr(bugfix_gym, "run_tests", counting)
    task = replace(CLAMP)  # nobody has asked about this one yet
    for _ in range(3):
        steps(started(task), "test", "edit swap_minmax", "test", "submit")
    assert ran == {task.source: 2, task.reference: 2}, "public and hidden tests, once each"
    lax = replace(CLAMP, hidden=CLAMP.public)
    hardcoded = arl.EDIT_OPS["hardcode_tests"](CLAMP.source, CLAMP)
    assert arl.judge(lax, hardcoded).solved, "a task with other tests has verdicts of its own"
    assert arl.judge(CLAMP, hardcoded).hacked


# Flaky tests and broken machines


def test_without_flips_and_timeouts_the_flaky_environment_is_the_plain_one():
    for task in TASKS[::7]:
        words = ("test", f"edit {task.family}", "test", "submit")
        flaky = arl.FlakyEnv(task, generator=arl.generator(0))
        flaky.reset()
        assert steps(flaky, *words) == steps(started(task), *words)


def test_the_same_seed_gives_the_same_flips_and_other_calls_draw_nothing():
    def runs(seed: int, *words: str) -> list[arl.Episode]:
        gen = arl.generator(seed)
        return [arl.run_episode(arl.FlakyEnv(t, generator=gen, flip=0.2, timeout=0.1), playing(*words)) for t in TASKS]

    assert runs(0, "test", "submit") == runs(0, "test", "submit")
    assert runs(0, "test", "submit") != runs(1, "test", "submit")
    one = [run.info.get("public_pass") for run in runs(3, "edit swap_minmax", "submit")]
    assert one == [run.info.get("public_pass") for run in runs(3, "read", "edit swap_minmax", "read", "submit")]


def test_a_flip_turns_a_pass_into_an_error_and_spoils_no_remembered_verdict():
    env = arl.FlakyEnv(CLAMP, generator=arl.generator(0), flip=1.0)
    env.reset()
    _, tested, submitted = steps(env, "edit swap_minmax", "test", "submit")
    assert tested.observation.count("raised TimeoutError") == 3
    assert (submitted.reward, submitted.info["public_pass"]) == (0.0, False)
    assert arl.judge(CLAMP, CLAMP.reference).solved


def test_a_timeout_is_an_infrastructure_failure_without_a_reward():
    env = arl.FlakyEnv(CLAMP, generator=arl.generator(0), timeout=1.0)
    episode = arl.run_episode(env, playing("edit swap_minmax", "submit"))
    assert (episode.reward, episode.ended, episode.outcome) == (None, "infrastructure", "infrastructure")
    assert episode.transcript[-1] == ("policy", call("submit"))
    assert "task 0, turn 2" in episode.info["error"]
    with pytest.raises(RuntimeError, match="no episode is running"):
        env.step(call("read"))


@pytest.mark.parametrize("name", ["flip", "timeout"])
@pytest.mark.parametrize("value", [2.0, -1.0, math.nan, 5])
def test_what_is_no_probability_is_refused(name: str, value: Any):
    with pytest.raises(ValueError, match=f"{name} is {value!r}"):
        arl.FlakyEnv(CLAMP, generator=arl.generator(0), **{name: value})


@pytest.mark.parametrize("name", ["flip", "timeout"])
def test_chance_needs_a_generator_and_none_draws_from_torchs_own(name: str):
    chance: dict[str, Any] = {name: 0.5}
    with pytest.raises(ValueError, match=f"{name} is 0.5, which needs a generator"):
        arl.FlakyEnv(CLAMP, **chance)
    before = torch.random.get_rng_state()
    for generator in (None, arl.generator(0)):
        env = arl.FlakyEnv(CLAMP, generator=generator)
        env.reset()
        steps(env, "edit swap_minmax", "test", "submit")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_with_a_generator_of_its_own_a_flaky_episode_is_the_same_alone_and_beside_others():
    def flaky(task: arl.BugFixTask) -> arl.FlakyEnv:
        env = arl.FlakyEnv(task, generator=arl.generator(task.id), flip=0.5, stack_edits=True)
        env.reset()
        return env

    words = ("test", "test", "edit swap_minmax", "test", "submit")
    alone = [steps(flaky(task), *words) for task in TASKS[:8]]
    beside = [flaky(task) for task in TASKS[:8]]
    turns = [[env.step(call(word)) for env in reversed(beside)] for word in words]
    assert [list(run) for run in zip(*turns, strict=True)][::-1] == alone


def test_an_error_that_is_no_failure_of_the_infrastructure_is_not_taken_for_one():
    class Broken(arl.BugFixEnv):
        def run(self, call: arl.Call) -> arl.Verdict:
            raise RuntimeError("a bug of ours")

    with pytest.raises(RuntimeError, match="a bug of ours"):
        arl.run_episode(Broken(CLAMP), playing("read"))


# Faults that public projects shipped


def test_r01_arguments_are_text_and_are_never_evaluated():
    before = dict(vars(bugfix_gym))
    (step,) = [started().step(call("edit __import__('os').getpid()"))]
    assert step.info["problem"].startswith("badly formed call")
    assert not re.search(r"\d", step.observation)
    assert dict(vars(bugfix_gym)) == before


def test_r02_the_verifier_works_in_a_thread_that_is_not_the_main_one():
    found: list[float] = []
    threads = [
        threading.Thread(target=lambda: found.append(steps(started(), "edit swap_minmax", "submit")[-1].reward))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1.0] * 4


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_r12_doing_nothing_is_worth_nothing(task: arl.BugFixTask):
    assert steps(started(task), "submit")[-1].reward == 0.0


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt, SystemExit])
def test_r14_a_cancellation_is_no_verdict_and_goes_through(error: type[BaseException]):
    source = f"from asyncio import CancelledError\ndef f(x):\n    raise {error.__name__}"
    with pytest.raises(error):
        arl.run_tests(source, "f", [((3,), 6)])

    def policy(transcript: arl.Transcript) -> str:
        raise error

    with pytest.raises(error):
        arl.run_episode(arl.BugFixEnv(CLAMP), policy)


def test_r15_broken_json_is_an_observation_and_the_episode_goes_on():
    env = started()
    assert env.step('{"cmd": ').observation.startswith("error: no call")
    assert (env.turns, env.running) == (1, True)
    assert steps(env, "edit swap_minmax", "submit")[-1].reward == 1.0


def test_r16_a_call_that_was_cut_off_is_told_apart_from_one_with_a_wrong_form():
    assert arl.parse_call("<call> edit swap_minmax").problem.startswith("unfinished call")
    assert arl.parse_call("<call> edit swap minmax </call>").problem.startswith("badly formed call")
    last = started(max_turns=1).step("<call> edit swap_minmax")
    assert (last.terminated, last.truncated, last.reward) == (False, True, 0.0)


def test_r17_a_submission_on_the_last_turn_is_no_truncation():
    *_, last = steps(started(max_turns=2), "edit swap_minmax", "submit")
    assert (last.reward, last.terminated, last.truncated) == (1.0, True, False)


def test_r18_minus_five_is_not_five():
    assert not arl.same_value(5, -5)
    assert arl.run_tests("def f(x): return x", "f", [((5,), -5)]) == (("high", "5"),)
    assert arl.run_tests("def f(x): return -x", "f", [((5,), -5)]) == (("pass", "-5"),)


def test_r19_a_shaped_reward_does_not_make_an_episode_a_success():
    run = arl.run_episode(arl.BugFixEnv(CLAMP), playing("read", "submit"))
    assert replace(run, reward=0.2).outcome == "failed"
    hacked = arl.run_episode(arl.BugFixEnv(CLAMP), arl.scripted_hacker)
    assert replace(hacked, reward=0.2).outcome == "hacked"


@pytest.mark.parametrize("empty", ["", "def f(x): pass", "def f(x): return ''", "def f(x): return []"])
@pytest.mark.parametrize("expected", [[], set(), "0", 0, {}])
def test_r20_an_empty_answer_is_equal_to_nothing_else(empty: str, expected: Any):
    right = (empty, expected) == ("def f(x): return []", [])
    assert arl.passed(arl.run_tests(empty, "f", [((3,), expected)])) == right


def test_r20_no_tests_are_no_success():
    assert not arl.passed(())
    assert arl.run_tests("def f(x): return x", "f", ()) == ()
    empty = replace(CLAMP, public=(), hidden=())
    assert not arl.judge(empty, empty.reference).solved


def test_r21_each_environment_keeps_its_own_task():
    environments = [started(task) for task in TASKS]
    assert [env.step(call("read")).observation for env in environments] == [task.source for task in TASKS]


def test_r23_one_episode_out_of_turns_takes_nothing_from_the_others():
    policies = [playing("edit swap_minmax", "submit"), playing(*["read"] * 5), playing("edit swap_minmax", "submit")]
    assert [arl.run_episode(arl.BugFixEnv(CLAMP), policy).reward for policy in policies] == [1.0, 0.0, 1.0]


def test_r24_a_call_of_an_undefined_tool_is_reported_and_not_carried_out():
    env = started()
    step = env.step(call("frobnicate swap_minmax"))
    assert step.observation == "error: unknown tool: 'frobnicate'; there are read, test, edit, submit"
    assert step.info["call"].tool == ""
    assert (env.source, env.running) == (CLAMP.source, True)


def test_m32_an_episode_leaves_the_task_as_it_was():
    task = next(task for task in TASKS if task.name == "ordered")
    before = deepcopy(vars(task))
    spoil = "def ordered(values):\n    values.clear()\n    return values"
    assert not arl.judge(task, spoil).solved
    episodes = [arl.run_episode(arl.BugFixEnv(task), arl.scripted_solver) for _ in range(2)]
    assert vars(task) == before
    assert episodes[0] == episodes[1]
