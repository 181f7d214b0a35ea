"""The figures of chapters 4 and 5 show what the chapters print."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

import agentrl as arl

ROOT = Path(__file__).resolve().parents[1]


def script(name: str) -> dict[str, Any]:
    """Return the names of a figure's script."""
    return runpy.run_path(str(ROOT / "figures" / f"{name}.py"))


def recorded(chapter: str, cell_id: str) -> str:
    """Return what a cell of a chapter is recorded to print."""
    cells = json.loads(next((ROOT / "chapters").glob(f"{chapter}-*.ipynb")).read_text(encoding="utf-8"))["cells"]
    (cell,) = (cell for cell in cells if cell["id"] == cell_id)
    return "".join("".join(output["text"]) for output in cell["outputs"])


@pytest.mark.parametrize(("count", "total"), [(0, 56), (54, 56), (56, 56), (81, 2800)])
def test_the_baselines_have_the_chapters_intervals(count: int, total: int) -> None:
    assert script("ch04_baselines")["wilson"](count, total) == pytest.approx(arl.wilson_interval(count, total))


def test_the_token_strip_is_the_episode_that_the_chapter_prints() -> None:
    trajectory, advantage = script("ch05_token_strip")["episode"]()
    strip = arl.token_strip(trajectory, arl.gym_tokenizer(), [advantage] * len(trajectory))
    assert strip.text(100) + "\n" == recorded("05", "strip-solved")
    policy = trajectory.writer == arl.WRITERS.index("policy")
    assert trajectory.action_mask.equal(policy)


def test_the_drift_is_what_the_chapter_prints() -> None:
    drift = script("ch05_drift")
    rows = json.loads(drift["DATA"].read_text(encoding="utf-8"))["rows"]
    assert rows == drift["rows"]()
    assert {row["kind"] for row in rows} == {"merge, space", "space", "border", "control", "bytes"}
