"""Chapter 6: its estimates scatter as derived, its tables hold the reference numbers, its figures match its outputs."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from bookkit.notebook import Chapter, load_chapter

ROOT = Path(__file__).resolve().parent.parent
G4 = {  # rows 1, 2 and 3, 4, 5, 6: the value of verl's agg_loss, and what a token of either row weighs in it
    "token-mean": (3.5, 1 / 6, 1 / 6),
    "token-sum": (21.0, 1, 1),
    "seq-mean-token-sum": (10.5, 1 / 2, 1 / 2),
    "seq-mean-token-mean": (3.0, 1 / 4, 1 / 8),
    "seq-mean-token-sum-norm": (2.625, 1 / 8, 1 / 8),
}


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    chapter: Chapter = load_chapter(ROOT / "chapters" / "06-policy-gradient.ipynb", ROOT)
    return {cell.id: cell.stdout for cell in chapter.code_cells}


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.\d+|-?\d+", text)]


def script(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "figures" / f"{name}.py"))


def data(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "figures" / "data" / f"{name}.json").read_text(encoding="utf-8"))


def test_the_sampled_slope_is_0_for_the_smallest_step_and_wrong_for_the_next(printed: dict[str, str]) -> None:
    exact, *sampled = (numbers(line)[-1] for line in printed["sampled-slope"].splitlines())
    assert sampled[0] == 0
    assert abs(sampled[1]) > 10 * abs(exact)


def test_monte_carlo_errors_are_near_those_derived_and_fall(printed: dict[str, str]) -> None:
    rows = [numbers(line) for line in printed["monte-carlo-print"].splitlines()[1:]]
    assert len(rows) == 6
    for row in rows:
        triples = [row[place : place + 3] for place in range(0, 12, 3)]  # cosine, error, the error to be expected
        assert all(0.5 < error / expected < 2 for _, error, expected in triples)
        assert [error for _, error, _ in triples] == sorted((error for _, error, _ in triples), reverse=True)
        assert triples[2][0] > 0.8


def test_reward_to_go_helps_one_policy_and_hurts_the_other_until_a_value_is_subtracted(printed: dict[str, str]) -> None:
    rows = re.findall(r"^(random|reader) (.*?) {2,}\S+ +\S+ \((\S+)\)", printed["monte-carlo-print"], re.MULTILINE)
    expected = {(policy, weights): float(error) for policy, weights, error in rows}  # of ten episodes
    assert len(expected) == 6
    assert expected["random", "to-go"] < expected["random", "return"]
    assert expected["reader", "to-go"] > expected["reader", "return"]
    for policy in ("random", "reader"):
        assert expected[policy, "to-go - V"] < min(expected[policy, "return"], expected[policy, "to-go"])


def test_no_baseline_beats_the_best_of_each_state_and_no_constant_the_best_constant(printed: dict[str, str]) -> None:
    rows = re.findall(r"^(random|reader)  (.*?) +(\d\.\d{4}) \(", printed["exact-baselines"], re.MULTILINE)
    for policy in ("random", "reader"):
        found = {label: float(value) for name, label, value in rows if name == policy}
        none, mean, best, value, by_state = found.values()
        assert by_state <= min(none, mean, best, value)
        assert best <= min(none, mean)


def test_the_batch_mean_has_the_part_n_minus_1_of_n_and_leave_one_out_all(printed: dict[str, str]) -> None:
    pattern = r"of (\d), (batch mean|leave one out) *: (\S+) of the gradient, variance (\S+)"
    rows = re.findall(pattern, printed["pairs-and-triples-print"])
    assert len(rows) == 4
    derived = {int(line[0]): dict(re.findall(r"(batch mean|leave one out) (\S+?)(?:,|$)", line)) for line in
               printed["batch-variances"].splitlines()}  # fmt: skip
    for n, name, part, variance in rows:
        expected = (int(n) - 1) / int(n) if name == "batch mean" else 1
        assert float(part) == pytest.approx(expected, abs=1e-6)
        assert derived[int(n)][name] == variance


def test_measured_variances_are_near_the_exact_ones(printed: dict[str, str]) -> None:
    rows = re.findall(r"^ +(\S.*?) +(\d\.\d\d) \((\d\.\d\d)\)", printed["measured-baselines-print"], re.MULTILINE)
    assert len(rows) == 16
    assert all(float(exact) * 0.8 < float(found) < float(exact) * 1.25 for _, found, exact in rows)


def test_figure_1_draws_the_variances_that_the_chapter_prints(printed: dict[str, str]) -> None:
    kept = data("ch06-baseline-variance")
    lines = re.findall(r"^(\w+) +n = (\d+) +(.*)$", printed["when-rare"], re.MULTILINE)
    assert len(lines) == 10
    for policy, n, rest in lines:
        for kind, value in re.findall(r"(J|best constant|batch mean|leave one out) (\d\.\d\d)", rest):
            curve = kept["policies"][policy]["exact"][kind]
            assert curve[kept["exact"].index(int(n))] == pytest.approx(float(value), abs=0.0051)
    for row in kept["policies"].values():
        for kind, found in row["measured"].items():
            exact = [row["exact"][kind][kept["exact"].index(n)] for n in kept["measured"]]
            assert found == pytest.approx(exact, rel=0.15)


def test_token_weights_are_those_of_the_reference(printed: dict[str, str]) -> None:
    rows = printed["token-weights"].splitlines()[1:]
    assert [row.split()[0] for row in rows] == list(G4)
    for row in rows:
        name, value, *weights = row.replace("|", "").split()
        expected, short, long = G4[name]
        assert float(value) == pytest.approx(expected, abs=5e-4)
        assert [float(weight) for weight in weights] == pytest.approx([short] * 2 + [long] * 4, abs=5e-4)


def test_only_sums_over_an_episode_point_along_the_gradient(printed: dict[str, str]) -> None:
    rows = re.findall(r"^(\S+) +cosine (\S+)  size (\S+)", printed["aggregation-gradients"], re.MULTILINE)
    assert {name for name, cosine, _ in rows if cosine == "1.0000"} == {
        "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm",
    }  # fmt: skip
    sizes = {name: float(size) for name, _, size in rows}
    assert (sizes["token-sum"], sizes["seq-mean-token-sum"], sizes["seq-mean-token-sum-norm"]) == (2, 1, 0.25)


def test_each_planted_mistake_misses_the_gradient(printed: dict[str, str]) -> None:
    errors = dict(re.findall(r"^(\w[\w ]*?) +cosine +\S+  error (\S+)$", printed["mistakes-print"], re.MULTILINE))
    assert errors.pop("as it should be") == "0.00"
    assert len(errors) == 3
    assert all(float(error) > 0.1 for error in errors.values())
    assert printed["not-detached"].startswith("refused: the advantages require a gradient")


def test_on_the_gym_the_gradient_without_the_mask_is_another(printed: dict[str, str]) -> None:
    cosine, length = numbers(printed["unmasked-gradient"])
    assert abs(cosine) < 0.5
    assert length > 3


def test_figure_2_draws_the_trainings_that_the_chapter_begins(printed: dict[str, str]) -> None:
    legal = data("ch06-format-learning")["legal"]
    rows = re.findall(r"^seed (\d): (\d+) batches before .*: ([\d ]+)$", printed["format-runs"], re.MULTILINE)
    assert [seed for seed, _, _ in rows] == ["0", "1", "2"]
    for seed, silent, shown in rows:
        counts = [int(count) for count in shown.split()]
        assert counts[:-1] == legal[seed][:70:10]
        assert counts[-1] == legal[seed][69]
        assert legal[seed][: int(silent) + 1].count(0) == int(silent)
    assert script("ch06_format_learning")["learn_format"](1, updates=4) == legal["1"][:4]


def test_each_agent_of_the_small_vocabulary_learns_one_call_and_no_edit(printed: dict[str, str]) -> None:
    rows = re.findall(r"legal (\S+), of which read (\S+), test (\S+), submit (\S+), all nine edits (\S+)$",
                      printed["format-runs"], re.MULTILINE)  # fmt: skip
    assert len(rows) == 3
    for legal, read, test, submit, edits in rows:
        assert max(map(float, (read, test, submit))) > 0.75 * float(legal)
        assert float(edits) < 0.001


def test_every_recorded_training_repairs_more_and_none_learns_the_new_family(printed: dict[str, str]) -> None:
    runs = json.loads((ROOT / "chapters" / "recorded" / "06-reinforce.json").read_text(encoding="utf-8"))["runs"]
    trained = [run for run in runs if run.get("learning_rate") == 2e-3]
    assert len(trained) >= 3
    for run in trained:
        for part in ("train", "new_functions"):
            assert run["after"][part][0] > 4 * run["before"][part][0]
        assert run["after"]["new_family"][0] <= run["before"]["new_family"][0]
        assert run["entropy"][-1] < run["entropy"][0]
    assert "the beginning of that of seed 2: True" in printed["recorded"]


def test_one_step_that_is_too_large_ends_learning_for_good(printed: dict[str, str]) -> None:
    before, *after = (numbers(line) for line in printed["collapse-run"].splitlines()[1:])
    assert before[1] > 0
    assert all(row[1] == 0 and row[-1] == 0 for row in after)  # success, and the gradient's norm
    assert after[0][2] > after[-1][2]  # calls go on falling all the same
    assert "largest change of a weight in these updates: 0.000000" in printed["no-way-back"]
    worst = [line for line in printed["recorded-large"].splitlines() if line.startswith("rate 0.03")]
    assert len(worst) == 3
    assert all("afterwards 0 of" in line for line in worst)
