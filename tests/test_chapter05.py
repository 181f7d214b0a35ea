"""Chapter 5's checks came out true in the recorded outputs, and what its prose says of the experiments they show."""

import re
from pathlib import Path

import pytest

from bookkit.notebook import Chapter, load_chapter

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    chapter: Chapter = load_chapter(ROOT / "chapters" / "05-trajectories-and-templates.ipynb", ROOT)
    return {cell.id: cell.stdout for cell in chapter.code_cells}


def test_only_the_masked_update_is_the_gradient(printed: dict[str, str]) -> None:
    found = re.findall(r"^(actions only|mask left off).*: (True|False)", printed["mask-exact-print"], re.MULTILINE)
    assert found == [("actions only", "True")] * 2 + [("mask left off", "False")] * 2


def test_the_check_sees_each_fault_but_the_actions_left_out(printed: dict[str, str]) -> None:
    text = printed["logprob-faults-print"]
    cases = re.findall(r"^(\w[^:]*): ratios .*\n    (passes: True|row \d+)", text, re.MULTILINE)
    assert [name for name, verdict in cases if verdict == "passes: True"] == ["nothing", "end tokens left out"]
    assert len(cases) == 5


def test_with_the_mask_each_seed_solves_more(printed: dict[str, str]) -> None:
    chances = re.findall(r"^seed (\d) (mask|no mask) .*solves (\S+)$", printed["mask-training-print"], re.MULTILINE)
    by_name = {name: [float(chance) for _, kind, chance in chances if kind == name] for name in ("mask", "no mask")}
    assert len(by_name["mask"]) == 3
    assert min(by_name["mask"]) > 4 * max(by_name["no mask"])
    wins = [int(count) for count in re.findall(r"solved +(\d+)", printed["mask-update-print"])]
    for before, masked, unmasked in zip(wins[::3], wins[1::3], wins[2::3], strict=True):
        assert masked > max(before, unmasked)


def test_the_attempts_of_a_task_break_apart_from_one_another(printed: dict[str, str]) -> None:
    both, one = map(int, re.findall(r": (\d+)", printed["flaky-alone"]))
    lost = int(re.findall(r"'infrastructure': (\d+)", printed["endings"])[0])
    assert 2 * both + one == lost
    assert one > both


def test_the_exact_bound_holds_in_every_row(printed: dict[str, str]) -> None:
    rows = re.findall(r"solved +(\d+) of (\d+), exact bound (\S+)$", printed["rollout-rates"], re.MULTILINE)
    assert len(rows) == 6
    assert all(int(won) / int(played) > float(bound) for won, played, bound in rows)
