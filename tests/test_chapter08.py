"""Chapter 8's checks came out true in the recorded outputs; its prose and its figures say what they show."""

import json
import math
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import agentrl as arl
from bookkit.notebook import Chapter, load_chapter

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    chapter: Chapter = load_chapter(ROOT / "chapters" / "08-ppo.ipynb", ROOT)
    return {cell.id: cell.stdout for cell in chapter.code_cells}


def script(name: str) -> dict[str, Any]:
    """Return the names of a figure's script."""
    return runpy.run_path(str(ROOT / "figures" / f"{name}.py"))


def test_only_the_product_of_ratios_gives_the_exact_gradient(printed: dict[str, str]) -> None:
    found = dict(re.findall(r"^(.*?) +cosine .*equal: (True|False)$", printed["ratio-gradients"], re.MULTILINE))
    assert found == {"product of ratios": "True", "ratio of each token": "False", "no ratio": "False"}


def test_in_expectation_the_product_climbs_as_fresh_episodes_do_and_the_others_fall_behind(
    printed: dict[str, str],
) -> None:
    rows = re.findall(
        r"^([a-z ]+?) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", printed["expected-steps-print"], re.MULTILINE
    )
    fresh, product, token, none = ([float(number) for number in row[1:]] for row in rows[1:])
    assert fresh == product
    assert fresh[-1] > token[-1] > none[-1]


def test_the_bounds_hold_in_every_row_and_the_surrogate_promises_too_much_far_away(printed: dict[str, str]) -> None:
    rows = [[float(number) for number in line.split()] for line in printed["trust-bound"].splitlines()[1:]]
    assert all(gap <= bound <= with_kl for _, _, _, gap, bound, with_kl, _ in rows)
    share, gain, promised = rows[-1][:3]
    assert share == 1
    assert promised > 1.5 * gain


def test_the_sampled_shares_are_those_of_equation_8_5_while_enough_samples_count(printed: dict[str, str]) -> None:
    table = [[float(n) for n in line.split()] for line in printed["ess-length-print"].splitlines()[1:]]
    for length, tokens, sequences, exact, _ in table:
        assert exact == pytest.approx(1.01**-length, abs=1e-5)
        assert tokens == pytest.approx(1 / 1.01, abs=1e-3)
        assert sequences == pytest.approx(exact, abs=0.02)


def test_two_of_the_four_cases_outside_the_band_lose_their_gradient(printed: dict[str, str]) -> None:
    rows = [line.split() for line in printed["four-cases"].splitlines()[1:]]
    clipped = {(float(a), float(ratio)) for a, ratio, _, state, *_ in rows if state == "yes"}
    assert clipped == {(1.0, 1.5), (-1.0, 0.5)}
    for a, ratio, _, state, derivative, _ in rows:
        assert float(derivative) == (0.0 if state == "yes" else float(a) * float(ratio))


def test_the_first_ratio_test_finds_each_planted_fault_and_nothing_else(printed: dict[str, str]) -> None:
    verdicts = {line.split("  ")[0]: "FAULT" in line for line in printed["planted-print"].splitlines()[1:]}
    faults = dict.fromkeys(["temperature", "shift", "dropout", "padding side"], True)
    assert verdicts == {"no fault": False, **faults}


def test_a_threshold_on_the_kl_estimate_lets_two_of_the_faults_pass(printed: dict[str, str]) -> None:
    estimates = re.findall(r"^(\S+(?: \w+)?) +-?[\d.]+ +([\d.]+)", printed["planted-print"], re.MULTILINE)
    low = {name for name, estimate in estimates if 0 < float(estimate) < 0.01}
    assert low == {"dropout", "padding side"}


def test_the_mean_of_means_is_another_gradient_and_the_global_count_the_same(printed: dict[str, str]) -> None:
    text = printed["accumulation-print"]
    assert float(re.findall(r"mean of means +gradient off by ([\d.]+)", text)[0]) > 0.1
    assert re.search(r"sum over the global count +gradient equal to 1e-12", text)


def test_one_token_is_most_of_the_kl_estimate(printed: dict[str, str]) -> None:
    estimate, exact = map(float, re.findall(r"estimate ([\d.]+), exact ([\d.]+)", printed["largest-token"])[0])
    without = float(re.findall(r"without this token: ([\d.]+)", printed["largest-token-print"])[0])
    assert estimate > 5 * exact
    assert without == pytest.approx(exact, rel=0.2)


def test_early_stopping_makes_fewer_steps(printed: dict[str, str]) -> None:
    clip, stopped = (re.findall(r"^ +\d+ +(\d) ", part, re.MULTILINE) for part in printed["one-update"].split("max_kl"))
    assert clip == ["2"] * 8
    assert stopped == ["2", "1"]


def test_nearly_all_that_leaves_the_band_was_a_decision(printed: dict[str, str]) -> None:
    certain, decided = (float(share) for share in re.findall(r"\(([\d.]+)%\)", printed["certain-tokens"]))
    assert certain < 1
    assert decided > 20


def test_the_live_training_repeats_the_recorded_one(printed: dict[str, str]) -> None:
    assert re.findall(r"as recorded: (True|False)", printed["ppo-live"]) == ["True"] * 4


def test_the_curve_of_figure_8_1_is_what_the_chapter_printed() -> None:
    figure = script("ch08_effective_sample_size")
    assert json.loads(figure["DATA"].read_text(encoding="utf-8"))["rows"] == figure["rows"]()


@pytest.mark.parametrize(("advantage", "dual"), [(1, False), (-1, False), (-1, True)])
def test_the_curves_of_figure_8_2_are_the_librarys(advantage: int, dual: bool) -> None:
    figure = script("ch08_clipped_objective")
    for ratio in (0.3, 0.79, 0.81, 1.19, 1.21, 2.9, 3.1, 4.0):
        logprob = torch.tensor([[math.log(ratio)]], dtype=arl.DTYPE, requires_grad=True)
        given = (torch.zeros(1, 1), torch.full((1, 1), float(advantage)), torch.ones(1, 1, dtype=torch.bool))
        loss = arl.ppo_policy_loss(logprob, *given, dual_clip=3.0 if dual else None).loss
        (slope,) = torch.autograd.grad(loss, logprob)
        assert figure["objective"](ratio, advantage, dual) == pytest.approx(-loss.item())
        assert figure["derivative"](ratio, advantage, dual) == pytest.approx(-slope.item())
