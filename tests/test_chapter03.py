"""Chapter 3's warm start gives the same weights everywhere."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bookkit.notebook import Chapter, load_chapter
from bookkit.runner import environment, pinned
from bookkit.settings import choose

ROOT = Path(__file__).resolve().parent.parent
LAST = "first-training"
HASH = """
import hashlib
found = hashlib.sha256()
for name, weight in sorted(model.state_dict().items()):
    found.update(name.encode() + weight.numpy().tobytes())
print("weights:", found.hexdigest())
"""


@pytest.fixture(scope="module")
def chapter() -> Chapter:
    return load_chapter(ROOT / "chapters" / "03-language-models-as-policies.ipynb", ROOT)


def warm_start_weights(chapter: Chapter, folder: Path, **setting: str) -> str:
    """Return the hash of the weights after the chapter's own warm start, run under a setting."""
    number = next(cell.number for cell in chapter.code_cells if cell.id == LAST)
    program = folder / "warm_start.py"
    program.write_text("\n\n".join(c.source for c in chapter.code_cells[:number]) + HASH, encoding="utf-8")
    env = {**environment(pinned(override=setting)), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(program)], env=env, cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_the_warm_start_has_the_same_weights_at_the_lowest_setting_and_on_two_threads(
    chapter: Chapter, tmp_path: Path
) -> None:
    expected = warm_start_weights(chapter, tmp_path)
    assert re.fullmatch(r"weights: [0-9a-f]{64}", expected)
    assert expected != "weights: " + hashlib.sha256().hexdigest()
    lowest_on_two = {name: value for each in choose(["lowest", "threads-2"]) for name, value in each.env.items()}
    assert warm_start_weights(chapter, tmp_path, **lowest_on_two) == expected
