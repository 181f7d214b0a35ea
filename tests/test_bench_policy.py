"""The bench of TinyAgent: every model does the work it is timed for, the arithmetic, every row. No time is asserted."""

from __future__ import annotations

import json
from pathlib import Path

import bench as script
import pytest
import torch
from rich.console import Console

from bookkit import benchpolicy
from bookkit.benchpolicy import BASE, WORK, Contender, PolicyReport, Shape

TINY = Shape(vocab=11, width=8, layers=1, heads=2, hidden=16, prompt=3, new=4, rows=2, seconds=0)
MODELS = [BASE, "Llama of transformers", "GPT-2 of transformers"]
ROWS = [f"{model}, {dtype}" for model in MODELS for dtype in ("float64", "float32")]


@pytest.fixture(scope="module")
def contenders() -> list[Contender]:
    return benchpolicy.contenders(TINY)


def table_rows(text: str) -> dict[str, list[str]]:
    """Return the cells of a printed table by their row's name."""
    lines = [line.split("│") for line in text.splitlines() if line.count("│") == 7]
    return {line[1].strip(): [cell.strip() for cell in line[2:-1]] for line in lines}


@pytest.mark.slow
class TestContenders:
    def test_there_is_one_for_each_model_and_precision(self, contenders: list[Contender]) -> None:
        assert [contender.row for contender in contenders] == ROWS

    def test_all_do_the_same_number_of_tokens(self, contenders: list[Contender]) -> None:
        assert [contender.generate() for contender in contenders] == [2 * 4] * len(ROWS)
        assert [contender.train() for contender in contenders] == [2 * 6] * len(ROWS)

    def test_parameters_are_those_of_the_shape(self, contenders: list[Contender]) -> None:
        vocab, width, hidden, positions = 11, 8, 16, 7
        attention, tables = 4 * width * width, 2 * vocab * width
        tiny = tables + positions * width + attention + 2 * width * hidden
        # Llama turns positions into rotations and has a third matrix in its MLP; it and GPT-2 scale their norms.
        llama = tables + attention + 3 * width * hidden + 3 * width
        gpt2 = tiny + 4 * width + hidden + width + 3 * 2 * width
        assert [contender.parameters for contender in contenders] == [tiny, tiny, llama, llama, gpt2, gpt2]

    def test_the_global_random_state_is_left_as_it_was(self, contenders: list[Contender]) -> None:
        before = torch.random.get_rng_state()
        for contender in contenders:
            contender.generate()
        assert torch.equal(torch.random.get_rng_state(), before)


class TestArithmetic:
    def test_a_rate_is_over_as_many_batches_as_take_the_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = iter([0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5])
        monkeypatch.setattr(benchpolicy.time, "process_time", lambda: next(clock))
        batches: list[int] = []

        def work() -> int:
            batches.append(100)
            return 100

        assert benchpolicy.rate(work, 2.0) == 200
        assert len(batches) == 4

    def test_ratios_are_to_tiny_agent_in_the_same_precision_round_by_round(self) -> None:
        report = PolicyReport({}, TINY)
        report.rates = {
            f"{BASE}, float64": {"generate": [10.0, 20.0], "train": [1.0, 1.0]},
            f"{BASE}, float32": {"generate": [40.0, 40.0], "train": [1.0, 1.0]},
            "Llama of transformers, float32": {"generate": [20.0, 80.0], "train": [3.0, 4.0]},
        }
        assert report.ratios("Llama of transformers, float32", "generate") == [0.5, 2.0]
        assert report.ratios(f"{BASE}, float64", "generate") == [1.0, 1.0]

    def test_the_table_has_medians_of_rates_and_of_ratios(self) -> None:
        report = PolicyReport({}, TINY, {f"{BASE}, float64": 1234, "GPT-2 of transformers, float64": 2345})
        report.rates = {
            f"{BASE}, float64": {"generate": [1000.0, 2000.0, 9000.0], "train": [1.0, 2.0, 4.0]},
            "GPT-2 of transformers, float64": {"generate": [3000.0, 1000.0, 9000.0], "train": [1.0, 1.0, 1.0]},
        }
        assert table_rows(printed_table(report)) == {
            f"{BASE}, float64": ["1,234", "2,000", "1.00", "2", "1.00"],
            "GPT-2 of transformers, float64": ["2,345", "3,000", "1.00", "1", "0.50"],
        }


def printed_table(report: PolicyReport) -> str:
    """Return the report's table as it is printed."""
    console = Console(width=110)
    with console.capture() as captured:
        console.print(benchpolicy.policy_table(report))
    return captured.get()


class TestCommand:
    @pytest.mark.slow
    def test_a_tiny_run_gives_every_row_and_the_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(benchpolicy, "Shape", lambda: TINY)
        torch.set_num_threads(2)
        assert script.main(["--policy", "--rounds", "2", "--json", str(tmp_path / "bench.json")]) == 0
        said = capsys.readouterr()
        assert list(table_rows(said.out)) == ROWS
        assert "transformers " in said.out.partition("2 round(s)")[0]
        assert "round 2 of 2" in said.err
        (data,) = json.loads((tmp_path / "bench.json").read_text())
        assert set(data["rates"]) == set(ROWS)
        assert all(min(rates[work]) > 0 and len(rates[work]) == 2 for rates in data["rates"].values() for work in WORK)
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)

    def test_without_transformers_tiny_agent_stands_alone_and_that_is_said(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(benchpolicy, "Shape", lambda: TINY)
        monkeypatch.setattr(benchpolicy, "find_spec", lambda _: None)
        assert script.main(["--policy", "--rounds", "1"]) == 0
        said = capsys.readouterr()
        assert list(table_rows(said.out)) == ROWS[:2]
        assert "transformers is not installed" in said.err
        assert "pip install '.[labs]'" in said.err

    @pytest.mark.parametrize("more", [["02"], ["--synthetic", "2,4,0"], ["--growth", "1,2"]])
    def test_books_beside_it_are_refused(self, more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert script.main(["--policy", *more]) == 2
        assert "--policy measures models and no books" in capsys.readouterr().err
