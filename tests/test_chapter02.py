"""Chapter 2's numbers agree where they must, and it saves what later chapters measure against."""

import re
from pathlib import Path

import pytest

from bookkit.notebook import Chapter, load_chapter

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def chapter() -> Chapter:
    return load_chapter(ROOT / "chapters" / "02-rl-fundamentals.ipynb", ROOT)


def printed(chapter: Chapter, cell: str) -> str:
    """Return what the cell with this id has recorded."""
    return next(found.stdout for found in chapter.code_cells if found.id == cell)


def test_the_three_evaluations_agree_as_printed(chapter: Chapter) -> None:
    rows = [line.split() for line in printed(chapter, "three-ways").splitlines()[1:]]
    assert [row[0] for row in rows] == ["uniform", "guesser", "reader"]
    for _, solved, swept, sampled in rows:
        assert solved == swept
        assert float(sampled) == pytest.approx(float(solved), abs=0.01)


def test_the_error_of_sampling_is_printed_beside_its_exact_value(chapter: Chapter) -> None:
    lines = printed(chapter, "monte-carlo").splitlines()[1:]
    measured, exact = zip(*([float(x) for x in re.findall(r"0\.\d+", line)] for line in lines), strict=True)
    assert list(measured) == pytest.approx(exact, rel=0.25)
    assert [round(exact[i] / exact[i + 1], 1) for i in range(2)] == [3.2, 3.2]  # the root of ten


def test_local_credit_parts_the_three_readings_and_whole_credit_does_not(chapter: Chapter) -> None:
    lines = printed(chapter, "per-turn-gradients").splitlines()[1:-1]
    found = {line[:21].strip(): [float(x) for x in line[21:].split()] for line in lines}
    sizes = {name: numbers[4] for name, numbers in found.items()}
    assert len({sizes[f"own reward, {unit}"] for unit in ("token", "turn", "episode")}) == 3
    assert found["own reward, token"][5] > found["own reward, turn"][5] > 0
    assert sizes["reward-to-go, token"] == sizes["reward-to-go, turn"] != sizes["own reward, episode"]


def test_reading_pays_exactly_below_the_threshold_where_the_source_is_clear(chapter: Chapter) -> None:
    *rows, single = printed(chapter, "turn-cost").splitlines()
    assert single.endswith("no")
    found = [
        re.search(r"k = (\d), q = (\S+) +(\w+) .* (\d) of 8, from it on 0 of 3, at no cost (\w+)$", row) for row in rows
    ]
    unclear = [match.groups() for match in found if match and match[3] == "unclear"]
    clear = [match.groups() for match in found if match and match[3] == "clear"]
    assert unclear == [("2", "1/2", "unclear", "0", "no")]
    assert len(clear) == len(rows) - 1 == 8
    assert all(pays == "8" and free == ("no" if k == "2" else "yes") for k, _, _, pays, free in clear)


def test_what_later_chapters_use_is_saved(chapter: Chapter) -> None:
    saved = "\n".join(cell.source for cell in chapter.saved_cells)
    defined = set(re.findall(r"^(?:def|class) (\w+)", saved, flags=re.MULTILINE))
    assert defined >= {
        "TabularMDP",
        "repair_mdp",
        "policy_evaluation",
        "action_values",
        "value_iteration",
        "advantages_tabular",
        "state_visits",
        "expected_return",
        "sample_episode",
        "sample_episodes",
    }
