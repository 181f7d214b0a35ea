"""Chapter 7: its checks came out true, its tables hold the reference numbers, its figures match what it printed."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from bookkit.notebook import Chapter, load_chapter

ROOT = Path(__file__).resolve().parent.parent
G1 = {  # advantages of the three policy tokens at lambda 0.95, by the frameworks' own functions
    "this book": [0.4705, 0.39, 0.2],
    "through values": [1.212426, 1.170975, 0.2],
    "through zeros": [0.378801, 0.293475, 0.2],
    "cut": [-0.0425, -0.15, 0.2],
}
G3 = {  # first and second advantage of (1, 0, 0, 0), of the same with lengths 2, 4, 4, 6, and of (.50, .51, .50, .51)
    "this book, group": [1.499997, -0.499999, 1.499997, -0.499999, -0.865875, 0.865875],
    "GRPO (verl)": [1.499997, -0.499999, 1.499997, -0.499999, -0.865875, 0.865875],
    "GRPO (TRL)": [1.4997, -0.4999, 1.4997, -0.4999, -0.851281, 0.851281],
    "GRPO (rLLM)": [1.732047, -0.577349, 1.732047, -0.577349, -0.9998, 0.9998],
    "group_norm (OpenRLHF)": [1.5, -0.5, 1.5, -0.5, -0.866025, 0.866025],
    "Dr. GRPO": [0.75, -0.25, 0.75, -0.25],
    "RLOO": [1, -1 / 3, 1, -1 / 3],
    "OPO (verl)": [0.75, -0.25, 0.875, -0.125],
    "GPG (verl)": [3, -1, 3, -1],
    "RF++-baseline (verl)": [1.5, -0.5, 2.561738, -0.365963],
    "pass@k (verl)": [1.999996, 0, 1.999996, 0],
    "MaxRL (SkyRL)": [2.999988, -0.999996, 2.999988, -0.999996],
}


@pytest.fixture(scope="module")
def chapter() -> Chapter:
    return load_chapter(ROOT / "chapters" / "07-advantages-and-credit.ipynb", ROOT)


@pytest.fixture(scope="module")
def printed(chapter: Chapter) -> dict[str, str]:
    return {cell.id: cell.stdout for cell in chapter.code_cells}


def numbers(text: str) -> list[float]:
    """Return the numbers of a text in their order."""
    return [float(found) for found in re.findall(r"-?\d+\.\d+", text)]


def script(name: str) -> dict[str, Any]:
    """Return what a figure's script defines."""
    return runpy.run_path(str(ROOT / "figures" / f"{name}.py"))


def test_the_value_of_a_token_does_not_see_it(printed: dict[str, str]) -> None:
    assert re.search(r"moves: False, at \d+: True$", printed["value-shift"].strip())


def test_only_bootstrapping_with_the_state_that_was_cut_off_gives_the_value(printed: dict[str, str]) -> None:
    *rows, last = printed["truncation-print"].splitlines()[1:]
    (value,) = numbers(last)
    for row in rows:
        terminated, left_out, right, restarted, sampled_terminated, sampled_right = numbers(row)
        assert right == value
        assert all(abs(wrong - value) > 0.01 for wrong in (terminated, left_out, restarted))
        assert [sampled_terminated, sampled_right] == pytest.approx([terminated, right], abs=0.01)


def test_formula_enumeration_and_samples_of_a_group_agree(printed: dict[str, str]) -> None:
    pairs, formula = (numbers(line)[0] for line in printed["group-check"].splitlines())
    assert pairs == formula
    exact = {int(line.split()[0]): numbers(line) for line in printed["group-exact"].splitlines()[1:]}
    sampled = [numbers(line) for line in printed["group-sampled"].splitlines()]
    assert [along for along, _ in sampled] == pytest.approx([1, 7 / 8], abs=0.03)
    assert [noise for _, noise in sampled] == pytest.approx(exact[8][2:4], rel=0.03)


def test_one_token_axis_agrees_with_each_framework(printed: dict[str, str]) -> None:
    for name, expected in G1.items():
        found = re.search(rf"^lambda 0.95 +{re.escape(name)} +(.*)$", printed["five-tokens"], re.MULTILINE)
        assert found
        assert numbers(found[1]) == pytest.approx(expected, abs=1e-6), name


def test_group_advantages_agree_with_each_framework(printed: dict[str, str]) -> None:
    rows = {line[:22].strip(): numbers(line[22:]) for line in printed["one-group-print"].splitlines()[2:]}
    assert rows.keys() == G3.keys()
    for name, expected in G3.items():
        assert rows[name][: len(expected)] == pytest.approx(expected, abs=1e-6), name
        assert rows[name][-2:] == [0.0, 0.0], name


def test_no_critic_biases_lambda_1_and_exact_values_bias_none(printed: dict[str, str]) -> None:
    rows = [line for line in printed["lambda-exact"].splitlines() if " bias " in line]
    assert [numbers(line.split("bias")[1])[-1] for line in rows] == [0.0] * 5
    assert {*numbers(rows[0].split("bias")[1])} == {0.0}
    falling = [numbers(line.split("bias")[1]) for line in rows[1:]]
    assert all(biases == sorted(biases, reverse=True) and biases[0] > 0.2 for biases in falling)


def test_an_untrained_critic_is_worse_than_none_and_a_trained_one_pays_at_a_small_lambda(
    printed: dict[str, str],
) -> None:
    first, _, *rows = printed["learning-critic-print"].splitlines()
    without = numbers(first)[0]
    errors = [numbers(row)[1:] for row in rows]
    better = [[int(count) for count in re.findall(r"\((\d)\)", row)] for row in rows]
    assert better[0] == [0, 0, 0]
    assert all(error > without for error in errors[0])
    assert [counts[2] for counts in better[2:]] == [8, 8]
    assert errors[-1][2] < 0.8 * without < errors[-1][0]


def test_an_untrained_critic_of_the_gym_is_noisier_than_no_baseline_in_every_seed(printed: dict[str, str]) -> None:
    rows = {line[:39].strip(): numbers(line[39:]) for line in printed["critic-study-print"].splitlines()[2:]}
    untrained = rows["critic after 0 batches, lambda 1"][::2]
    assert len(untrained) == 3
    assert all(critic > none for critic, none in zip(untrained, rows["reward"][::2], strict=True))


def test_useless_turns_get_credit_from_an_episodes_advantage_only(printed: dict[str, str]) -> None:
    sums = [numbers(line)[-1] for line in printed["decisive-tokens"].splitlines()[1:]]
    whole, exact, _, to_go = sums
    assert min(whole, to_go) > 4 > 0 > exact
    (total,) = numbers(printed["decisive-print"].splitlines()[-1])
    (episode,) = {numbers(line)[-1] for line in printed["decisive-print"].splitlines()[1:-1]}
    assert total == episode


def test_the_figure_of_lambda_is_drawn_from_the_chapters_table() -> None:
    import json

    gae_lambda = script("ch07_gae_lambda")
    assert json.loads(gae_lambda["DATA"].read_text(encoding="utf-8")) == gae_lambda["rows"]()


def test_the_figure_of_weights_agrees_with_the_chapters_table(printed: dict[str, str]) -> None:
    figure = script("ch07_task_weight")
    head, *lines = printed["task-weight"].splitlines()
    rows = {line[:16].strip(): numbers(line[16:]) for line in lines}
    for name, drawn in zip(("leave-one-out", "none", "group", "mean"), figure["DIVISORS"].values(), strict=True):
        assert [figure["weight"](p, drawn) for p in numbers(head)] == pytest.approx(rows[name], abs=6e-4), name


def test_what_later_chapters_use_is_saved(chapter: Chapter) -> None:
    saved = "\n".join(cell.source for cell in chapter.saved_cells)
    defined = set(re.findall(r"^(?:def|class) ([a-zA-Z]\w+)", saved, flags=re.MULTILINE))
    assert defined == {
        "recorded_values",
        "discounted_returns",
        "group_mean_advantages",
        "leave_one_out_advantages",
        "ValueHead",
        "token_values",
        "explained_variance",
        "AdvantageEstimate",
        "gae",
        "broadcast_to_tokens",
        "turn_advantages",
        "normalize_advantages",
    }
