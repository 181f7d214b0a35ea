"""Chapter 9's checks came out true in the recorded outputs; its table, its figure and its records agree."""

import json
import math
import re
import runpy
from dataclasses import asdict
from pathlib import Path

import pytest

import agentrl as arl
from bookkit.notebook import Chapter, load_chapter

ROOT = Path(__file__).resolve().parent.parent
NAMES = {"grpo": "GRPO", "dr_grpo": "Dr. GRPO", "dapo": "DAPO", "rloo": "RLOO", "gspo": "GSPO", "cispo": "CISPO"}


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    chapter: Chapter = load_chapter(ROOT / "chapters" / "09-grpo-and-variants.ipynb", ROOT)
    return {cell.id: cell.stdout for cell in chapter.code_cells}


def test_every_check_of_the_chapter_came_out_true(printed: dict[str, str]) -> None:
    cells = ("loops-print", "by-formula-check", "presets-check", "gspo-differences", "same-bits", "resume", "memory")
    for cell in cells:
        assert ": True" in printed[cell], cell
        assert ": False" not in printed[cell], cell


def test_six_names_are_three_directions_in_the_first_step(printed: dict[str, str]) -> None:
    rows = re.findall(r"^(.{10})((?: +[\d.]+){6})$", printed["directions"], re.MULTILINE)
    cosine = dict(zip((name.strip() for name, _ in rows), (line.split() for _, line in rows), strict=True))
    same = [{other for other, value in zip(cosine, row, strict=True) if value == "1.0000"} for row in cosine.values()]
    assert same == [
        {"GRPO", "GSPO"}, {"Dr. GRPO", "RLOO"}, {"DAPO", "CISPO"},
        {"Dr. GRPO", "RLOO"}, {"GRPO", "GSPO"}, {"DAPO", "CISPO"},
    ]  # fmt: skip


def test_the_figure_of_coefficients_draws_the_chapters_table(printed: dict[str, str]) -> None:
    figure = runpy.run_path(str(ROOT / "figures" / "ch09_coefficients.py"))
    for told, row in (("success", 0), ("failure", 7)):
        for name, shown in NAMES.items():
            drawn = figure["coefficients"](arl.PRESETS[name])[row].tolist()
            (line,) = re.findall(
                rf"^{told}  {re.escape(shown)} +((?: *-?[\d.]+)+)$", printed["later-step"], re.MULTILINE
            )
            assert [float(number) for number in line.split()] == [round(1000 * value, 1) + 0.0 for value in drawn]


def test_the_push_on_stopping_is_that_of_equation_9_5(printed: dict[str, str]) -> None:
    for line in printed["length-bias"].splitlines()[1:]:
        s, length, total, mean, formula = map(float, line.split())
        assert total == 0
        assert mean == formula == pytest.approx(s - s * math.log(1 / s) / (1 - s), abs=1e-4)
        assert length == 1 / s


def test_the_agent_learns_and_then_repairs_the_same_task(printed: dict[str, str]) -> None:
    success = [float(line.split()[2]) for line in printed["live"].splitlines()[1:]]
    assert success[0] < 0.2
    assert sum(success[-3:]) / 3 > 0.9
    assert printed["before"].endswith("out_of_turns, reward 0\n")
    assert "= repaired, reward 1\n" in printed["live-after"]


def test_the_records_are_of_the_presets_as_they_are() -> None:
    about = json.loads((ROOT / "chapters" / "recorded" / "09-variants.json").read_text(encoding="utf-8"))["about"]
    default = asdict(arl.TrainConfig())
    found = {name: default | settings for name, settings in about["settings"].items()}
    assert found == json.loads(json.dumps({name: asdict(preset) for name, preset in arl.PRESETS.items()}))


def test_a_difference_is_claimed_only_where_all_five_seeds_agree(printed: dict[str, str]) -> None:
    cells = [text for cell, text in printed.items() if cell.startswith("recorded-")]
    claims = re.findall(r"([+-][\d.]+) ± ([\d.]+), above in (\d) of 5: (.*)", "\n".join(cells))
    assert len(claims) > 20
    for mean, half, above, verdict in claims:
        agree = above in "05" and abs(float(mean)) > float(half)
        assert verdict == ("differs" if agree else "within the spread")
