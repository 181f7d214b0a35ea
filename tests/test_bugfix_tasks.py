"""The gym's tasks: each is broken, one edit alone repairs it, and its tests tell right sources from wrong ones."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from agentrl.bugfix_gym import EDIT_OPS, BugFixTask, Test, bugfix_tasks, run_tests, split_tasks
from agentrl.introduction import CLAMP_ISSUE, CLAMP_SOURCE, CLAMP_TESTS

TASKS = bugfix_tasks()
FAMILIES = list(dict.fromkeys(task.family for task in TASKS))
every_task = pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])
EXCHANGES = ("swap_minmax", "flip_compare", "flip_sign", "change_start", "swap_index", "swap_andor")

# Runs the sources it is given, line by line, and prints the number of each before it does.
RUNNER = """
import ast, json, sys
for number, line in enumerate(sys.stdin):
    source, name, calls = json.loads(line)
    print(number, flush=True)
    namespace = {}
    try:
        exec(source, namespace)
    except Exception:
        continue
    for arguments in ast.literal_eval(calls):
        try:
            namespace[name](*arguments)
        except Exception:
            pass
print("all", flush=True)
"""


def edited(task: BugFixTask, *ops: str) -> str:
    """Return the task's source after the edits, each applied to what the one before has left."""
    source = task.source
    for op in ops:
        source = EDIT_OPS[op](source, task)
    return source


def passes(task: BugFixTask, source: str, tests: tuple[Test, ...]) -> bool:
    """Return whether the source passes all of the tests."""
    return all(result.outcome == "pass" for result in run_tests(source, task.name, tests))


def every_test(task: BugFixTask) -> tuple[Test, ...]:
    """Return the task's public and hidden tests."""
    return task.public + task.hidden


def reachable(task: BugFixTask) -> dict[str, tuple[str, ...]]:
    """Return every source that one edit or two stacked ones reach, with edits that lead to it."""
    ways = [(), *((op,) for op in EDIT_OPS), *product(EDIT_OPS, repeat=2)]
    return {edited(task, *ops): ops for ops in reversed(ways)}


def behaviour(task: BugFixTask, source: str) -> list[str]:
    """Return what the source gives on every combination of the values that its tests have in each place."""
    columns = zip(*(arguments for arguments, _ in every_test(task)), strict=True)
    calls = tuple((arguments, None) for arguments in product(*columns))
    return [f"{result.outcome == 'error'} {result.shown}" for result in run_tests(source, task.name, calls)]


def unfinished(jobs: Iterable[tuple[str, str, Any]], log: Path, seconds: float) -> int | None:
    """Return the number of the job (source, function, arguments) that did not end in time, None where all did."""
    lines = "".join(json.dumps([source, name, repr(calls)]) + "\n" for source, name, calls in jobs)
    command = [sys.executable, "-I", "-c", RUNNER]
    with log.open("w") as out:
        try:
            subprocess.run(command, input=lines, text=True, stdout=out, timeout=seconds, check=True)
        except subprocess.TimeoutExpired:
            return int(log.read_text().split()[-1])
    assert log.read_text().split()[-1] == "all"
    return None


def test_there_are_eight_families_of_seven_functions_with_one_repairing_edit_each() -> None:
    assert len(TASKS) == 56
    assert [task.id for task in TASKS] == list(range(56))
    assert len({task.name for task in TASKS}) == 56
    assert {family: sum(task.family == family for task in TASKS) for family in FAMILIES} == dict.fromkeys(FAMILIES, 7)
    assert [*FAMILIES, "hardcode_tests"] == list(EDIT_OPS)


def test_task_0_is_chapter_1s_clamp() -> None:
    clamp = TASKS[0]
    assert (clamp.name, clamp.issue, clamp.source) == ("clamp", CLAMP_ISSUE, CLAMP_SOURCE)
    assert (clamp.public, clamp.hidden) == (CLAMP_TESTS["public"], CLAMP_TESTS["hidden"])
    assert clamp.reference == "def clamp(value, lower, upper):\n    return max(lower, min(value, upper))"


def test_special_cases_have_the_form_of_chapter_1_also_with_one_argument() -> None:
    case = "    if (value, lower, upper) == (3, 0, 5):\n        return 3\n"
    assert edited(TASKS[0], "hardcode_tests").startswith(f"def clamp(value, lower, upper):\n{case}")
    double = next(task for task in TASKS if task.name == "double")
    assert "    if (x,) == (3,):\n        return 6\n" in edited(double, "hardcode_tests")


def test_the_tasks_are_the_same_objects_each_time_so_that_results_can_be_kept_by_task() -> None:
    assert bugfix_tasks() is TASKS
    assert len({TASKS[0], replace(TASKS[0])}) == 2  # a task with lists in its tests can be a key all the same


@every_task
def test_the_source_fails_a_public_test_and_only_the_familys_edit_repairs_it(task: BugFixTask) -> None:
    assert not passes(task, task.source, task.public)
    assert [op for op in EDIT_OPS if passes(task, edited(task, op), every_test(task))] == [task.family]
    assert edited(task, task.family) == task.reference


@every_task
def test_special_cases_pass_every_public_test_and_fail_a_hidden_one(task: BugFixTask) -> None:
    source = edited(task, "hardcode_tests")
    assert passes(task, source, task.public)
    assert not passes(task, source, task.hidden)


@every_task
def test_three_public_and_three_hidden_tests_call_the_function_with_different_arguments(task: BugFixTask) -> None:
    calls = [repr(arguments) for arguments, _ in every_test(task)]
    assert len(task.public) >= 3
    assert len(task.hidden) >= 3
    assert len(set(calls)) == len(calls)
    assert len({repr(value) for _, value in every_test(task)}) > 1  # a constant must not pass


@every_task
def test_the_issue_says_what_the_source_returns_in_the_first_public_test_and_what_it_should(task: BugFixTask) -> None:
    said = re.search(r"but (\w+)\((.*)\) returns (.+) instead of (.+)\.$", task.issue)
    assert said is not None
    (arguments, expected), signature = task.public[0], task.source[len("def ") : task.source.index(":")]
    returned = run_tests(task.source, task.name, task.public[:1])[0].shown
    assert task.issue.startswith(signature)
    assert said.groups() == (task.name, ", ".join(map(repr, arguments)), returned, repr(expected))


@every_task
def test_no_source_can_run_forever_or_change_anything_but_its_own_names(task: BugFixTask) -> None:
    for source in reachable(task):
        nodes = list(ast.walk(ast.parse(source)))
        assert not [node for node in nodes if isinstance(node, ast.While | ast.Import | ast.ImportFrom | ast.Global)]
        assert task.name not in [node.id for node in nodes if isinstance(node, ast.Name)]  # no recursion


@every_task
def test_tests_give_the_same_in_any_order_and_twice_and_leave_their_arguments_alone(task: BugFixTask) -> None:
    tests = every_test(task)
    before = deepcopy(tests)
    for source in (task.source, task.reference, edited(task, "hardcode_tests")):
        forwards = run_tests(source, task.name, tests)
        assert run_tests(source, task.name, tests[::-1])[::-1] == forwards
        assert tuple(run_tests(source, task.name, (test,))[0] for test in tests) == forwards
    assert tests == before


@every_task
def test_the_tests_pass_exactly_the_reachable_sources_that_do_what_the_reference_does(task: BugFixTask) -> None:
    right = behaviour(task, task.reference)
    for source, ops in reachable(task).items():
        assert passes(task, source, every_test(task)) == (behaviour(task, source) == right), ops


@every_task
def test_public_tests_alone_fail_every_wrong_edit_but_the_special_cases(task: BugFixTask) -> None:
    wrong = [edited(task, op) for op in EDIT_OPS if op != task.family]
    assert [source for source in wrong if passes(task, source, task.public)] == [edited(task, "hardcode_tests")]


def test_every_source_that_two_edits_reach_ends_in_a_process_with_a_deadline(tmp_path: Path) -> None:
    jobs = [
        (source, task.name, [arguments for arguments, _ in every_test(task)])
        for task in TASKS
        for ops in (*((op,) for op in EDIT_OPS), *product(EDIT_OPS, repeat=2))
        for source in [edited(task, *ops)]
    ]
    assert len(jobs) == 56 * (9 + 9 * 9)
    assert unfinished(jobs, tmp_path / "log", seconds=120) is None


def test_the_deadline_finds_a_source_that_runs_forever(tmp_path: Path) -> None:
    jobs = [("def f(x):\n    return x", "f", [(1,)]), ("def f(x):\n    while x: pass", "f", [(0,), (1,)])]
    assert unfinished([jobs[0], ("no python", "f", []), jobs[1], jobs[0]], tmp_path / "log", seconds=5) == 2


@pytest.mark.parametrize("op", EXCHANGES)
def test_an_exchange_made_twice_is_undone(op: str) -> None:
    assert [task.name for task in TASKS if edited(task, op, op) != task.source] == []


@pytest.mark.parametrize("op", EDIT_OPS)
def test_an_edit_changes_every_function_of_its_family_and_leaves_each_def_line_alone(op: str) -> None:
    for task in TASKS:
        head, _, body = edited(task, op).partition("\n")
        assert head == task.source.partition("\n")[0]
        assert op not in (task.family, "hardcode_tests") or body != task.source.partition("\n")[2]


def test_the_splits_share_no_task_cover_all_and_keep_one_family_out_of_training() -> None:
    split = split_tasks(TASKS)
    assert [len(part) for part in split] == [35, 14, 7]
    assert sorted(task.id for part in split for task in part) == list(range(56))
    train, functions, family = ({task.family for task in part} for part in split)
    assert train == functions
    assert family == {"swap_andor"}
    assert not train & family
    assert TASKS[0] in split.train


def test_the_split_is_by_place_in_the_family_whatever_stands_between() -> None:
    shuffled = sorted(TASKS, key=lambda task: (task.id % 7, -task.id))
    assert {task.id for task in split_tasks(shuffled).new_functions} == {t.id for t in split_tasks(TASKS).new_functions}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("count", [1, 6])
def test_any_family_can_be_the_one_held_out(family: str, count: int) -> None:
    split = split_tasks(TASKS, family, count)
    assert {task.family for task in split.new_family} == {family}
    assert [len(part) for part in split] == [7 * (7 - count), 7 * count, 7]


def test_a_split_that_cannot_be_made_is_refused_with_the_family_it_fails_for() -> None:
    with pytest.raises(ValueError, match="no task has the family 'swap_all'; there are swap_minmax, flip_compare"):
        split_tasks(TASKS, "swap_all")
    with pytest.raises(ValueError, match="cannot hold out 7 of the 7 functions of swap_minmax"):
        split_tasks(TASKS, new_functions=7)
    with pytest.raises(ValueError, match="cannot hold out 0 of the 7 functions of swap_minmax"):
        split_tasks(TASKS, new_functions=0)
    with pytest.raises(ValueError, match="cannot hold out 2 of the 1 functions of flip_sign"):
        split_tasks([*TASKS[:14], TASKS[14], *split_tasks(TASKS).new_family])
    odd: list[Any] = [2.0, True, None]
    for count in odd:
        with pytest.raises(ValueError, match=f"cannot hold out {count} of the 7 functions"):
            split_tasks(TASKS, new_functions=count)


def test_tasks_that_can_be_read_only_once_are_split_alike() -> None:
    assert split_tasks(iter(TASKS)) == split_tasks(TASKS)
