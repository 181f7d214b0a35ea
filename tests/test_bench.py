"""The bench: the made-up book it measures, its arithmetic, and that a run yields every row. No time is asserted."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import bench as script
import pytest
from killing import end, files, none_left
from rich.console import Console

from bookkit import bench, benchbook
from bookkit.bench import BASE, Report, Run
from bookkit.benchbook import Synthetic
from bookkit.notebook import dump, load_book, normalise
from bookkit.runner import usable_cores
from bookkit.scratch import sweep

ROWS = [BASE, f"checker, no cache, -j {usable_cores()}", "checker, cached", "nbval", "nbmake, comparing nothing"]


def shown(report: Report) -> str:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(bench.table(report))
    console.print(bench.chapter_table(report))
    return console.export_text()


class TestSynthetic:
    def test_shape_is_parsed(self) -> None:
        assert Synthetic.parse("20,25,3") == Synthetic(20, 25, 3)

    @pytest.mark.parametrize("text", ["20", "20,25", "a,b,c", "0,25,0", "5,2,0", "2,5,3", "201,5,0", "5,5,-1"])
    def test_other_shapes_are_refused_with_the_text(self, text: str) -> None:
        with pytest.raises(ValueError, match=text):
            Synthetic.parse(text)

    def test_book_has_the_shape_and_recorded_outputs(self, tmp_path: Path) -> None:
        benchbook.write_synthetic(tmp_path, Synthetic(4, 8, 0))
        book = load_book(tmp_path)
        assert [len(chapter.code_cells) for chapter in book.chapters] == [8] * 4
        assert all(len(chapter.saved_cells) == 1 for chapter in book.chapters)
        assert [cell.execution_count for cell in book.chapters[0].code_cells] == list(range(1, 9))
        assert book.chapters[1].code_cells[5].stdout == f"total {sum(i % 5 for i in range(60_000))}\n"
        assert book.chapters[2].code_cells[4].stdout == "0 0\n1 4\n2 8\n3 12\n4 16\n"
        assert all(dump(normalise(c.raw)) == c.path.read_text(encoding="utf-8") for c in book.chapters)

    def test_more_notebooks_than_chapters_are_solutions(self, tmp_path: Path) -> None:
        benchbook.write_synthetic(tmp_path, Synthetic(103, 3, 0))
        book = load_book(tmp_path)
        assert [len(book.chapters), len(book.solutions)] == [100, 3]
        assert [len(notebook.saved_cells) for notebook in book.notebooks()].count(0) == 3

    def test_a_chapter_with_torch_trains(self, tmp_path: Path) -> None:
        benchbook.write_synthetic(tmp_path, Synthetic(2, 5, 1))
        first, second = load_book(tmp_path).chapters
        assert [len(first.code_cells), len(second.code_cells)] == [5, 5]
        word, loss = first.code_cells[-1].stdout.split()
        # Adam has then made four steps of about its learning rate: 3 · (1 - 0.4)² = 1.08.
        assert word == "loss"
        assert float(loss) == pytest.approx(1.08, abs=0.03)
        assert "torch" not in "".join(cell.source for cell in second.code_cells)

    @pytest.mark.parametrize("torch", [0, 1, 2, 5])
    def test_as_many_chapters_import_torch_as_asked(self, torch: int) -> None:
        spread = benchbook.torch_notebooks(Synthetic(5, 3, torch))
        assert len(spread) == torch
        assert spread <= set(range(5))


class TestArithmetic:
    def test_ratios_are_taken_within_a_round(self) -> None:
        report = Report({}, 1, 1)
        report.runs = {BASE: [Run(1, 1, 10, 0), Run(10, 5, 20, 0)], "nbval": [Run(3, 4, 10, 0), Run(30, 5, 10, 0)]}
        assert report.ratios("nbval") == [3, 3]
        assert report.ratios("nbval", lambda run: run.cpu) == [4, 1]

    def test_table_has_medians_ranges_and_results(self) -> None:
        report = Report({}, 2, 7)
        report.runs = {
            BASE: [Run(1, 1, 100, 0), Run(2, 1, 100, 0), Run(4, 1, 100, 0)],
            "nbval": [Run(6, 3, 250, 0), Run(10, 3, 250, 1), Run(28, 3, 250, 0)],
        }
        report.chapters = {"00": [1.0, 3.0, 2.0], "01": [0.5, 0.5, 0.5]}
        text = shown(report)
        assert "2 notebooks, 7 code cells, 3 round(s)" in text
        cells = {
            line.split("│")[1].strip(): [c.strip() for c in line.split("│")[2:-1]]
            for line in text.splitlines()
            if "│" in line
        }
        assert cells[BASE] == ["2.0", "1.0", "1.0–1.0", "1.0", "1.0", "100", "1.0", "passed"]
        assert cells["nbval"] == ["10.0", "6.0", "5.0–7.0", "3.0", "3.0", "250", "2.5", "exit 0, 1"]
        assert cells["00"] == ["2.00", "1.00–3.00"]
        assert cells["all"] == ["2.50", ""]

    def test_a_run_is_measured_with_its_children(self, tmp_path: Path) -> None:
        child = "x = bytearray(80_000_000); import time; time.sleep(0.6)"
        parent = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {child!r}]) + 3)"
        run = bench.measure([sys.executable, "-c", parent], tmp_path)
        assert run.exit == 3
        assert run.seconds >= 0.6
        assert run.peak_mb > 80

    def test_the_machine_is_described_without_names(self) -> None:
        found = bench.machine()
        assert found["cores"] >= 1
        line = bench.describe(found)
        assert f"Python {sys.version.split()[0]}" in line
        import platform

        assert platform.node() not in line


class TestCommand:
    @pytest.mark.slow
    def test_a_tiny_book_gives_every_row_and_the_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        out = tmp_path / "bench.json"
        assert script.main(["--synthetic", "2,4,0", "--rounds", "1", "--json", str(out)]) == 0
        printed = capsys.readouterr()
        assert [row for row in ROWS if f"│ {row} " not in printed.out] == []
        assert printed.err.count("exit 0") == len(ROWS), printed.err
        (data,) = json.loads(out.read_text())
        assert list(data["runs"]) == sorted(ROWS)
        assert all(len(runs) == 1 and runs[0]["exit"] == 0 and runs[0]["peak_mb"] > 0 for runs in data["runs"].values())
        assert len(data["chapters"]) == 2
        assert (data["notebooks"], data["cells"]) == (2, 8)

    @pytest.mark.slow
    def test_growth_has_a_column_for_each_size(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        out = tmp_path / "bench.json"
        assert script.main(["--growth", "1,2", "--rounds", "1", "--json", str(out)]) == 0
        printed = capsys.readouterr().out
        table = printed[printed.index("10 code cells a notebook") :]
        assert "1 notebooks" in table
        assert "2 notebooks" in table
        rows = [line.split("│") for line in table.splitlines() if line.count("│") == 4]
        assert [row[1].strip() for row in rows] == ROWS
        assert all(len(cell.split()) == 3 for row in rows for cell in row[2:4])
        assert [report["notebooks"] for report in json.loads(out.read_text())] == [1, 2]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--growth", "5,x"], "--growth 5,x: 'x' is not a number of notebooks"),
            (["--growth", "300"], "1 to 200 notebooks"),
            (["--synthetic", "20"], "is not NOTEBOOKS,CELLS,TORCH"),
            (["--rounds", "0"], "--rounds 0: at least one"),
            (["--synthetic", "1,3,0", "77"], "no notebook of this book starts with 77"),
            (["--root", "/no/such/book"], "no such folder"),
            (["--json", "/no/such/folder/bench.json"], "no such folder: /no/such/folder"),
            (["--json", "/"], "--json /: that is a folder"),
            (["--json", ""], "--json .: that is a folder"),
            (["--growth", "5,²"], "'²' is not a number of notebooks"),
            (["--synthetic", "2,²,0"], "is not NOTEBOOKS,CELLS,TORCH"),
        ],
    )
    def test_wrong_arguments_exit_2(
        self, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert script.main(arguments) == 2
        assert message in capsys.readouterr().err


def test_a_bench_that_is_killed_leaves_a_folder_that_the_next_tool_removes(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(script.__file__)), "--synthetic", "2,4,0", "--rounds", "1"]
    book = f"--root {tmp_path}/scratch/agentrl-bench-"
    ended = end(command, tmp_path / "scratch", when=lambda seen: any(book in line for line in seen))
    assert ended.code == -signal.SIGKILL
    assert none_left(ended.mark) == []
    sweep(tmp_path / "scratch")
    assert files(tmp_path / "scratch").keys() <= {"./"}
