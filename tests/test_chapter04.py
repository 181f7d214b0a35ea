"""Chapter 4's exercises: the tests of their solutions refuse answers that are wrong in a plausible way."""

import ast
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from agentrl import bugfix_gym
from bookkit.notebook import Chapter, load_chapter

ROOT = Path(__file__).resolve().parent.parent
NAME = "04-environments-and-tools.ipynb"
KEPT = ("TASKS", "MESSAGES")  # what the tests use of the chapter's values


def is_definition(node: ast.stmt) -> bool:
    """Return whether a statement imports, defines a function, or gives one of the kept names its value."""
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Name) and node.targets[0].id in KEPT
    return isinstance(node, ast.FunctionDef | ast.Import | ast.ImportFrom)


@pytest.fixture(scope="module")
def defined() -> dict[str, Any]:
    """Return the names of the chapter that the tests of exercises use, without running its experiments."""
    chapter: Chapter = load_chapter(ROOT / "chapters" / NAME, ROOT)
    names = dict(vars(bugfix_gym)) | {"combinations": combinations}
    for cell in chapter.code_cells:
        if not cell.source.startswith("#@save"):
            body = [node for node in ast.parse(cell.source).body if is_definition(node)]
            exec(compile(ast.Module(body, []), cell.id, "exec"), names)
    return names


@pytest.fixture(scope="module")
def solutions() -> dict[tuple[str, str], str]:
    chapter = load_chapter(ROOT / "chapters" / "solutions" / NAME, ROOT, "solutions")
    marked = [(cell.metadata.get("agentrl", {}), cell.source) for cell in chapter.code_cells]
    return {(mark["exercise"], mark["role"]): source for mark, source in marked if "exercise" in mark}


KEPT_RUNS = "kept = [run for run in runs if run.reward is not None]\n    if not kept: raise ValueError\n    "
NORMAL = 'words = %s.replace("<call>", "<call> ").replace("</call>", " </call>").split()\n    normal = parse_call(%s)'
PARSER = f"def spaced_call(text):\n    {NORMAL}\n    return parse_call(text) if normal.problem else normal"
WRONG = {
    ("4.1", "any case"): PARSER % ("text.lower()", '" ".join(words)'),
    ("4.1", "marks around it"): PARSER % ('text.strip(" \\n\\t.!,:")', '" ".join(words)'),
    ("4.1", "no space after edit"): PARSER % ('text.replace("edit", "edit ")', '" ".join(words)'),
    ("4.2", "one for each task"): "def environment_makers(tasks):\n"
    '    return [lambda env=BugFixEnv(task, detail="short"): env for task in tasks]',
    ("4.2", "remembered by task"): "_made = cache(lambda task: BugFixEnv(task, detail='short'))\n"
    "def environment_makers(tasks):\n    return [partial(_made, task) for task in tasks]",
    ("4.2", "in full"): "def environment_makers(tasks):\n    return [partial(BugFixEnv, task) for task in tasks]",
    ("4.3", "reward 1"): f"def success_rate(runs):\n    {KEPT_RUNS}return sum(r.reward == 1 for r in kept) / len(kept)",
    ("4.3", "half a reward"): f"def success_rate(runs):\n    {KEPT_RUNS}"
    "return sum(r.reward >= 0.5 for r in kept) / len(kept)",
    ("4.3", "over all"): f"def success_rate(runs):\n    {KEPT_RUNS}"
    "return sum(r.outcome == 'repaired' for r in kept) / len(runs)",
    ("4.3", "submitted only"): "def success_rate(runs):\n"
    "    kept = [run for run in runs if run.ended == 'submitted']\n    if not kept: raise ValueError\n"
    "    return sum(r.outcome == 'repaired' for r in kept) / len(kept)",
    ("4.4", "of the expected value"): "def close(got, expected):\n"
    "    if math.isinf(got) or math.isinf(expected): return got == expected\n"
    "    return abs(got - expected) <= 1e-9 * abs(expected)",
    ("4.4", "of the smaller"): "def close(got, expected):\n"
    "    if math.isinf(got) or math.isinf(expected): return got == expected\n"
    "    return abs(got - expected) <= 1e-9 * min(abs(got), abs(expected))",
    ("4.4", "stated as what fails"): "def close(got, expected):\n    if math.isinf(got): return got == expected\n"
    "    return not abs(got - expected) > 1e-9 * max(abs(got), abs(expected))",
    ("4.5", "one of the edits"): "def endless_success(edits):\n    return Fraction(1, edits)",
    ("4.6", "always one"): "def fewest_hidden(task):\n    return 1",
    ("4.7", "too few terms"): "def expected_wait(needed, spare):\n"
    "    return sum((Fraction(1, k) for k in range(spare, needed + spare) if k), Fraction(0))",
}


@pytest.mark.parametrize(("exercise", "fault"), WRONG)
def test_the_test_of_an_exercise_refuses_a_wrong_answer(
    exercise: str, fault: str, defined: dict[str, Any], solutions: dict[tuple[str, str], str]
) -> None:
    names = dict(defined)
    exec(WRONG[exercise, fault], names)
    with pytest.raises(AssertionError):
        exec(solutions[exercise, "test"], names)
