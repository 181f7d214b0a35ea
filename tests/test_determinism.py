"""The determinism matrix: which settings a machine has, what a report says, and that real differences are found."""

from __future__ import annotations

from pathlib import Path

import determinism as script
import pytest
from rich.console import Console
from synthetic import code, md, write_book

from bookkit import determinism as matrix
from bookkit.determinism import SETTINGS, Difference, Machine, Outcome

FULL = Machine("AVX512", True, frozenset({"c", "c.utf8", "de_de.utf8", "tr_tr.utf8"}))
BARE = Machine("DEFAULT", False, frozenset({"c", "posix"}))
BY_NAME = {setting.name: setting for setting in SETTINGS}
REPORT = """<testsuites>
<testsuite name="01"><testcase name="steady"/><testcase name="shaky"><failure message="output differs">
--- recorded
+++ now
first difference, line 1 of 1 recorded and 1 now:
recorded: x 0.5␊
now:      x 0.6␊
              ^
</failure></testcase><testcase name="after"><skipped/></testcase></testsuite>
<testsuite name="02"><testcase name="broken"><error message="NameError: name x"/></testcase></testsuite>
<testsuite name="03"><testcase name="fine"/></testsuite>
</testsuites>"""


def shown(outcomes: list[Outcome]) -> str:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(matrix.table(outcomes))
    return console.export_text()


class TestSettings:
    def test_a_full_machine_runs_all(self) -> None:
        assert [s.name for s in SETTINGS if s.missing(FULL)] == []

    def test_what_a_machine_lacks_is_said(self) -> None:
        assert {s.name: s.missing(BARE) for s in SETTINGS if s.missing(BARE)} == {
            "aten-avx2": "this CPU's level is DEFAULT, not AVX2",
            "aten-avx512": "this CPU's level is DEFAULT, not AVX512",
            "mkl-compatible": "this torch has no MKL",
            "lowest": "this torch has no MKL",
            "locale-german": "the locale de_DE.UTF-8 is not installed",
            "locale-turkish": "the locale tr_TR.UTF-8 is not installed",
        }

    def test_a_lower_level_is_there_on_a_higher_cpu_and_not_the_reverse(self) -> None:
        middle = Machine("AVX2", True, frozenset())
        assert BY_NAME["aten-avx2"].missing(middle) is None
        assert BY_NAME["aten-avx512"].missing(middle) == "this CPU's level is AVX2, not AVX512"

    def test_the_probe_asks_this_machine(self) -> None:
        found = matrix.probe()
        assert found.capability
        assert found.locales & {"c", "posix"}

    def test_every_setting_but_the_first_changes_something(self) -> None:
        assert SETTINGS[0].name == "as-checked"
        assert not SETTINGS[0].env
        assert all(s.env or s.elsewhere for s in SETTINGS[1:])
        assert len(BY_NAME) == len(SETTINGS)

    def test_chosen_settings_keep_their_order(self) -> None:
        assert [s.name for s in matrix.choose(["hash-random", "threads-2"])] == ["threads-2", "hash-random"]
        assert matrix.choose([]) == list(SETTINGS)

    def test_an_unknown_setting_lists_those_there_are(self) -> None:
        with pytest.raises(KeyError, match="no setting is called 'threads-3'; there are: as-checked, aten-default"):
            matrix.choose(["threads-3"])


class TestReport:
    def test_junit_gives_notebooks_and_first_differences(self) -> None:
        notebooks, found = matrix.read_junit(REPORT)
        assert notebooks == ("01", "02", "03")
        assert found == (
            Difference("01", "shaky", "recorded: x 0.5␊ | now: x 0.6␊"),
            Difference("02", "broken", "NameError: name x"),
        )

    def test_table_counts_the_differing_cells_of_a_chapter_and_its_solutions(self) -> None:
        notebooks, found = matrix.read_junit(REPORT)
        twice = (*found, Difference("01/solutions", "answer", "x"))
        outcomes = [
            Outcome(BY_NAME["threads-2"], (*notebooks, "01/solutions"), twice),
            Outcome(BY_NAME["locale-german"], skipped="not installed"),
            Outcome(BY_NAME["folder"], error="the checker ended with 2"),
            Outcome(BY_NAME["hash-0"], notebooks),
        ]
        rows = {line.split()[0]: line.split()[1:] for line in shown(outcomes).splitlines() if line.split()}
        assert rows["setting"] == ["01", "02", "03"]
        assert rows["threads-2"] == ["≠2", "≠1", "="]
        assert rows["locale-german"] == ["–"] * 3
        assert rows["folder"] == ["!"] * 3
        assert rows["hash-0"] == ["="] * 3

    def test_summary_counts_and_names(self) -> None:
        outcomes = [
            Outcome(BY_NAME["threads-2"], ("01",), (Difference("01", "a", "x"),)),
            Outcome(BY_NAME["locale-german"], skipped="not installed"),
            Outcome(BY_NAME["folder"], error="the checker ended with 2"),
            Outcome(BY_NAME["hash-0"], ("01",)),
        ]
        assert matrix.summary(outcomes) == (
            "1 setting equal, 1 differ (threads-2), 1 did not run (folder), 1 skipped (locale-german)"
        )

    @pytest.mark.parametrize(
        ("outcomes", "code"),
        [
            ([Outcome(SETTINGS[0], ("01",))], 0),
            ([Outcome(SETTINGS[0], ("01",)), Outcome(SETTINGS[1], skipped="no")], 0),
            ([Outcome(SETTINGS[0], ("01",), (Difference("01", "a", "x"),))], 1),
            ([Outcome(SETTINGS[0], error="bad"), Outcome(SETTINGS[1], ("01",), (Difference("01", "a", "x"),))], 2),
            ([Outcome(SETTINGS[1], skipped="no")], 2),
        ],
    )
    def test_exit_code(self, outcomes: list[Outcome], code: int) -> None:
        assert script.exit_code(outcomes) == code


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book whose first chapter depends on nothing, and whose second depends on everything a setting can change."""
    words = [f"word{number}" for number in range(40)]
    order = f"print(list(set({words!r})) == sorted(set({words!r})))"
    steady = [md("title", "# Steady"), code("sum", "print(1 + 1)", "2\n")]
    shaky = [
        md("title", "# Shaky"),
        code("zone", "import time\nprint(time.localtime(0).tm_gmtoff)", "0\n"),
        code("threads", "import os\nprint(os.environ['OMP_NUM_THREADS'])", "1\n"),
        code("folder", "import tempfile\nprint('elsewhere' in os.getcwd())", "False\n"),
        code("seed", "import sys\nprint(sys.flags.hash_randomization)", "0\n"),
        code("level", "print(os.environ.get('ATEN_CPU_CAPABILITY'))", "None\n"),
        code("order", order, "False\n"),
    ]
    root = tmp_path_factory.mktemp("book")
    return write_book(root, {"01-steady": steady, "02-shaky": shaky})


class TestRuns:
    @pytest.mark.parametrize(
        ("name", "cell", "line"),
        [
            ("as-checked", None, ""),
            ("hash-0", None, ""),
            ("time-zone", "zone", "recorded: 0␊ | now: 20700␊"),
            ("threads-4", "threads", "recorded: 1␊ | now: 4␊"),
            ("folder", "folder", "recorded: False␊ | now: True␊"),
            ("hash-random", "seed", "recorded: 0␊ | now: 1␊"),
            ("aten-default", "level", "recorded: None␊ | now: default␊"),
        ],
    )
    def test_a_setting_reaches_the_cells_and_the_difference_is_found(
        self, book: Path, name: str, cell: str | None, line: str
    ) -> None:
        outcome = matrix.run_setting(BY_NAME[name], book, [])
        assert outcome.error is None
        assert len(outcome.notebooks) == 2
        assert [(d.cell, d.first_line) for d in outcome.differences] == ([(cell, line)] if cell else [])
        assert all("02" in d.chapter for d in outcome.differences)

    def test_command_names_the_cell_and_exits_1(self, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert script.main(["--root", str(book), "--settings", "hash-0,time-zone"]) == 1
        out = capsys.readouterr().out
        assert "hash-0: equal in 2 notebooks" in out
        assert "time-zone: 1 cell differs" in out
        assert "time-zone: 02 · cell zone: recorded: 0␊ | now: 20700␊" in out
        assert "1 setting equal, 1 differ (time-zone)" in out

    def test_prefixes_choose_chapters(self, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert script.main(["--root", str(book), "--settings", "time-zone", "01"]) == 0
        assert "time-zone: equal in 1 notebook\n" in capsys.readouterr().out

    def test_an_unknown_chapter_is_an_error_not_a_pass(self, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert script.main(["--root", str(book), "--settings", "time-zone", "77"]) == 2
        assert "no chapter starts with '77'; there are" in capsys.readouterr().err

    def test_a_folder_without_a_book_and_no_jobs_are_errors_before_anything_runs(
        self, book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert script.main(["--root", str(tmp_path / "nowhere")]) == 2
        assert script.main(["--root", str(book), "-j", "0"]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert "a book has chapters/" in said.err
        assert "-j 0: at least one notebook at once" in said.err

    def test_an_unknown_setting_is_an_error(self, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert script.main(["--root", str(book), "--settings", "moon"]) == 2
        assert "no setting is called 'moon'" in capsys.readouterr().err

    def test_list_runs_nothing(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert script.main(["--root", str(tmp_path), "--list"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == [s.name for s in SETTINGS]

    @pytest.mark.slow
    def test_torch_obeys_the_settings(self, tmp_path: Path) -> None:
        level = code("level", "import torch\nprint(torch.backends.cpu.get_cpu_capability())", "DEFAULT\n")
        threads = code("threads", "print(torch.get_num_threads())", "4\n")
        book = write_book(tmp_path, {"01-torch": [md("title", "# Torch"), level, threads]})
        cells = {
            name: [found.cell for found in matrix.run_setting(BY_NAME[name], book, []).differences]
            for name in ("aten-default", "threads-4")
        }
        assert cells["aten-default"] == ["threads"]
        assert "threads" not in cells["threads-4"]
