"""Every kind of mutation of a book is caught, and a tool weakened in one way misses it: this suite can fail.

The mutations are those of mutants.py; `pytest -s tests/test_mutations.py` or `python tests/mutants.py` print the table.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import mutantbook
import pytest
from checking import check
from mutants import KINDS
from mutation import Kind, Mutation, Sheet
from mutation_runs import (
    MARK,
    Placed,
    Result,
    Suite,
    by_weakness,
    can_share,
    is_missed,
    marked,
    objection,
    place_all,
    print_table,
    run_kinds,
)
from weakened import NONE, WEAKNESSES

from bookkit.library import build
from bookkit.librarycli import Request, run
from bookkit.notebook import load_book

BY_NAME = {kind.name: kind for kind in KINDS}


@pytest.fixture(scope="module")
def suite() -> Suite:
    done = run_kinds(KINDS)
    print()
    print_table(done)
    return done


@pytest.mark.parametrize("name", BY_NAME)
def test_every_mutation_is_caught_or_handled_as_documented(suite: Suite, name: str) -> None:
    result = next(result for result in suite.results if result.kind.name == name)
    assert not result.wrong


@pytest.mark.parametrize("name", BY_NAME)
def test_a_weakened_tool_misses_one(suite: Suite, name: str) -> None:
    result = next(result for result in suite.results if result.kind.name == name)
    assert result.missed, f"{BY_NAME[name].weakness} misses none of {len(BY_NAME[name].mutations)}"


def test_no_process_no_folder_and_no_changed_file_is_left(suite: Suite) -> None:
    assert (suite.processes, suite.scratch, suite.changed) == ([], [], [])


def test_the_unchanged_book_passes(tmp_path: Path) -> None:
    mutantbook.write(tmp_path)
    checked = check(tmp_path, "--no-cache")
    assert checked.code == 0, checked.out + checked.err
    assert run(Request(tmp_path, check=True)) == 0
    assert len(build(load_book(tmp_path))) == 4


def test_each_kind_has_a_name_of_its_own_and_mutations_of_their_own_titles() -> None:
    assert len(BY_NAME) == len(KINDS)
    for kind in KINDS:
        titles = [mutation.title for mutation in kind.mutations]
        assert titles, kind.name
        assert len(set(titles)) == len(titles), kind.name
        assert kind.weakness in WEAKNESSES.keys() - {NONE}, kind.name


def test_every_weakness_is_used() -> None:
    assert {kind.weakness for kind in KINDS} == WEAKNESSES.keys() - {NONE}


def test_mutations_that_share_a_notebook_change_different_cells() -> None:
    shared = 0
    for book in place_all(KINDS):
        for placed in book.placed.values():
            changed: dict[str, set[str]] = {}
            for each in placed:
                for name in each.sheets if can_share(each.mutation) else ():
                    assert not changed.setdefault(name, set()) & set(each.mutation.changed)
                    shared += bool(changed[name])
                    changed[name] |= set(each.mutation.changed)
    assert shared > 50


def test_a_kind_of_a_shared_process_is_tried_alone() -> None:
    kinds: list[Kind] = [kind for kind in KINDS if kind.weakness == "plain-exec"]
    assert len(kinds) > 1
    assert [group for _, group in by_weakness(kinds)] == [[kind] for kind in kinds]


def placed(**fails: tuple[str, ...]) -> Placed:
    """Return a mutation of the one notebook "10", with the failures expected in it."""
    return Placed(Mutation("a mutation"), {"10": Sheet([], fails)})


def test_what_is_not_caught_as_expected_is_objected_to() -> None:
    due, allowed = placed(cell=("differs",)), placed()
    assert objection(due, {"10": {"cell": "output differs"}}) == ""
    assert "no result" in objection(due, {})
    assert "cell 'cell' passes" in objection(due, {"10": {}})
    assert "['differs'] not in" in objection(due, {"10": {"cell": "timeout"}})
    assert "['other'] fail too" in objection(due, {"10": {"cell": "output differs", "other": "x"}})
    assert objection(allowed, {"10": {}}) == ""
    assert "['cell'] fail too" in objection(allowed, {"10": {"cell": "timeout"}})


def test_missed_is_what_a_tool_is_silent_about_or_a_false_alarm_but_not_a_notebook_without_result() -> None:
    due, allowed = placed(cell=("differs",)), placed()
    assert is_missed(due, {"10": {}})
    assert not is_missed(due, {"10": {"cell": "another reason"}})
    assert is_missed(allowed, {"10": {"cell": "timeout"}})
    assert not is_missed(allowed, {"10": {}})
    assert not is_missed(due, {})
    assert not is_missed(allowed, {})


def test_a_suite_with_a_mutation_not_caught_or_something_left_is_not_good() -> None:
    kind = KINDS[0]
    good = Result(kind, {}, ["missed"])
    assert Suite([good], [], [], []).good
    assert not Suite([Result(kind, {"title": "why"}, ["missed"])], [], [], []).good
    assert not Suite([Result(kind)], [], [], []).good
    assert not Suite([good], ["sleep"], [], []).good
    assert not Suite([good], [], ["chapters/00-a.ipynb"], []).good


def test_a_process_that_is_left_is_found_by_its_mark() -> None:
    process = subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: "of-this-test"})
    try:
        assert [each.pid for each in marked("of-this-test")] == [process.pid]
    finally:
        process.kill()
        process.wait()
    assert marked("of-this-test") == []
