"""The determinism matrix: which settings a machine has, what a report says, and that real differences are found.

The last two classes run settings for real: on planted differences of each family, and on the planted training.
"""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import determinism as script
import pytest
from rich.console import Console
from synthetic import code, md, write_book, write_chapter

from bookkit import determinism as matrix
from bookkit import planted, settings
from bookkit.checker import make_plan
from bookkit.determinism import Books, Difference, Outcome
from bookkit.settings import SETTINGS, Machine, Setting

ROOT = Path(__file__).resolve().parents[1]
FULL = Machine("AVX512", True, frozenset({"c", "c.utf8", "de_de.utf8", "tr_tr.utf8"}))
BARE = Machine("DEFAULT", False, frozenset({"c", "posix"}))
BY_NAME = {setting.name: setting for setting in SETTINGS}
REPORT = """<testsuites>
<testsuite name="01"><testcase name="steady"/><testcase name="shaky"><failure message="output differs">
--- recorded
+++ now
first difference, line 1 of 1 (recorded) and 1 (now):
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
            "locale-german": "the locale de_DE.UTF-8 is neither installed nor can it be compiled here",
            "locale-turkish": "the locale tr_TR.UTF-8 is neither installed nor can it be compiled here",
        }

    def test_a_locale_that_can_be_compiled_is_not_missing(self) -> None:
        assert BY_NAME["locale-german"].missing(Machine("AVX2", True, frozenset(), frozenset({"de_de.utf8"}))) is None

    def test_a_lower_level_is_there_on_a_higher_cpu_and_not_the_reverse(self) -> None:
        middle = Machine("AVX2", True, frozenset())
        assert BY_NAME["aten-avx2"].missing(middle) is None
        assert BY_NAME["aten-avx512"].missing(middle) == "this CPU's level is AVX2, not AVX512"

    def test_this_machine_is_asked(self) -> None:
        found = settings.this_machine()
        assert found.capability
        assert found.locales & {"c", "posix"}

    def test_every_setting_but_the_first_changes_something(self) -> None:
        assert SETTINGS[0].name == "as-checked"
        assert not SETTINGS[0].env
        assert all(s.env or s.family == "folder" for s in SETTINGS[1:])
        assert len(BY_NAME) == len(SETTINGS)

    def test_what_is_pinned_anyway_has_no_effect_and_the_rest_has_its_familys(self) -> None:
        assert {s.name: sorted(s.effect(FULL)) for s in SETTINGS} == {
            "as-checked": [],
            "aten-default": ["vector"],
            "aten-avx2": ["vector"],
            "aten-avx512": [],
            "threads-1": [],
            "threads-2": ["threads"],
            "threads-4": ["threads"],
            "mkl-compatible": ["mkl"],
            "lowest": ["mkl", "vector"],
            "hash-0": [],
            "hash-random": ["hash"],
            "locale-posix": ["locale"],
            "locale-german": ["locale"],
            "locale-turkish": ["locale"],
            "time-zone": ["zone"],
            "folder": ["folder"],
            "account": ["account"],
        }

    def test_the_short_form_takes_what_can_change_a_digit_on_this_machine(self) -> None:
        full = ["aten-default", "aten-avx2", "threads-2", "threads-4", "mkl-compatible", "lowest"]
        assert [s.name for s in settings.numeric_here(SETTINGS, FULL)] == full
        assert [s.name for s in settings.numeric_here(SETTINGS, BARE)] == ["threads-2", "threads-4"]

    @pytest.mark.parametrize("machine", [FULL, BARE])
    def test_the_short_form_has_every_value_that_can_change_a_digit_in_fewer_runs(self, machine: Machine) -> None:
        single, joint = settings.numeric_here(SETTINGS, machine), settings.fewest(SETTINGS, machine)
        values = {value for setting in single for value in setting.env.items()}
        assert {value for setting in joint for value in setting.env.items()} == values
        assert len(joint) <= len(single)

    def test_on_a_machine_with_all_levels_it_is_two_runs_and_elsewhere_single_ones(self) -> None:
        assert [s.name for s in settings.fewest(SETTINGS, FULL)] == ["all-lowest", "avx2-threads-2"]
        assert settings.fewest(SETTINGS, BARE) == settings.numeric_here(SETTINGS, BARE)

    def test_a_joint_setting_has_the_effects_of_its_parts(self) -> None:
        effects = {setting.name: sorted(setting.effect(FULL)) for setting in settings.JOINT}
        assert effects == {"all-lowest": ["mkl", "threads", "vector"], "avx2-threads-2": ["threads", "vector"]}

    def test_the_farthest_setting_changes_most_and_is_the_first_of_equals(
        self,
    ) -> None:
        assert settings.farthest(settings.numeric_here(SETTINGS, FULL), FULL).name == "lowest"
        assert settings.farthest(settings.fewest(SETTINGS, FULL), FULL).name == "all-lowest"
        assert settings.farthest(settings.numeric_here(SETTINGS, BARE), BARE).name == "threads-2"

    def test_chosen_settings_keep_their_order(self) -> None:
        assert [s.name for s in settings.choose(["hash-random", "threads-2"])] == ["threads-2", "hash-random"]
        assert settings.choose([]) == list(SETTINGS)

    def test_an_unknown_setting_lists_those_there_are(self) -> None:
        with pytest.raises(KeyError, match="no setting is called 'threads-3'; there are: as-checked, aten-default"):
            settings.choose(["threads-3"])


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

    def test_table_says_what_arrived(self) -> None:
        outcomes = [
            Outcome(BY_NAME["as-checked"], ("planted",), arrived=frozenset()),
            Outcome(BY_NAME["lowest"], ("planted",), arrived=frozenset({"vector", "mkl"})),
            Outcome(BY_NAME["locale-german"], skipped="not installed"),
        ]
        rows = {line.split()[0]: line.split()[1:] for line in shown(outcomes).splitlines() if line.split()}
        assert rows["as-checked"] == ["=", "as", "checked"]
        assert rows["lowest"] == ["=", "mkl,", "vector"]
        assert rows["locale-german"] == ["–", "–"]

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


def planted_outcome(name: str, *found: Difference) -> Outcome:
    """Return what the planted book with controls gives under a setting, keys for names as in the report."""
    return Outcome(BY_NAME[name], ("01", "02", "03", "04"), found)


class TestPlantedReport:
    WEIGHT = Difference("04", "weights", "recorded: iteration 3: ab␊ | now: iteration 3: cd␊")
    TOKEN = Difference("04", "tokens", "recorded: iteration 14: ab␊ | now: iteration 14: cd␊")

    def test_differences_in_the_arrival_chapter_are_wanted_and_those_in_the_training_are_not(self) -> None:
        training = Difference("02", "weights", "recorded: iteration 9: ab␊ | now: iteration 9: cd␊")
        arrival = Difference("01", "zone", "x")
        outcome = matrix.sort_planted(planted_outcome("time-zone", arrival, training, self.WEIGHT), FULL)
        assert outcome.notebooks == ("planted", "float64", "float32")
        assert [(d.chapter, d.cell) for d in outcome.differences] == [("planted", "weights")]
        assert [(d.chapter, d.cell) for d in outcome.controls] == [("float32", "weights")]
        assert outcome.arrived == {"zone"}
        assert outcome.error is None

    def test_a_setting_that_changes_nothing_it_should_has_not_run(self) -> None:
        outcome = matrix.sort_planted(planted_outcome("lowest", Difference("01", "mkl", "x")), FULL)
        assert outcome.error == "it did not reach the cells: vector as without it"
        assert script.exit_code([outcome]) == 2

    def test_the_iterations_at_which_a_control_parts_are_read_from_its_cells(self) -> None:
        outcome = matrix.sort_planted(
            planted_outcome("aten-default", Difference("01", "vector", "x"), self.WEIGHT, self.TOKEN), FULL
        )
        assert matrix.partings(outcome, "float32") == {"weights": "3", "tokens": "14", "returns": "="}
        assert matrix.partings(outcome, "float64") == {"weights": "=", "tokens": "=", "returns": "="}
        console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
        console.print(matrix.control_table([outcome]))
        assert "aten-default = = = 3 14 =" in " ".join(console.export_text().split())

    def test_a_matrix_that_never_sees_a_control_differ_is_blind_and_fails(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        arrived = Difference("01", "vector", "x")
        seeing = matrix.sort_planted(planted_outcome("aten-default", arrived, self.WEIGHT), FULL)
        assert matrix.blind([seeing]) == ["float64"]
        assert script.exit_code([seeing]) == 1
        both = matrix.sort_planted(
            planted_outcome("aten-default", arrived, self.WEIGHT, Difference("03", "weights", "x")), FULL
        )
        assert script.exit_code([both]) == 0
        script.show([seeing])
        assert "float64: printed the same under every setting, so this matrix would not see" in capsys.readouterr().out

    def test_without_controls_nothing_is_called_blind(self) -> None:
        assert matrix.blind([Outcome(BY_NAME["threads-2"], ("00", "planted"))]) == []


# The arrival chapter's cells that need no torch, and one that the checker's own pins show in.
FAMILIES = ("hash", "locale", "zone", "folder", "account")
TEXT_CELLS = {
    **{cell: source for cell, source in planted.cells_of("arrival.py").items() if cell in FAMILIES},
    "count": "print(os.environ['OMP_NUM_THREADS'])",
}
TEXT_SETTINGS = {
    "as-checked": [],
    "threads-1": [],
    "threads-4": ["count"],
    "hash-0": [],
    "hash-random": ["hash"],
    "locale-posix": ["locale"],
    "locale-german": ["locale"],
    "time-zone": ["zone"],
    "folder": ["folder"],
    "account": ["account"],
}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book whose first chapter depends on nothing, its second on all the text settings; recorded as pinned."""
    steady = [md("title", "# Steady"), code("total", "print(1 + 1)")]
    shaky = [md("title", "# Shaky"), *(code(cell, source) for cell, source in TEXT_CELLS.items())]
    root = write_book(tmp_path_factory.mktemp("book"), {"01-steady": steady, "02-shaky": shaky})
    planted.record(root, jobs=2)
    return root


def skip_if_missing(setting: Setting) -> None:
    """Skip a test whose setting this machine does not have."""
    why = setting.missing(settings.this_machine())
    if why:
        pytest.skip(why)


class TestPlantedDifferences:
    @pytest.mark.parametrize("name", TEXT_SETTINGS)
    def test_a_setting_changes_its_own_cell_and_no_other(self, book: Path, name: str) -> None:
        skip_if_missing(BY_NAME[name])
        outcome = matrix.run_setting(BY_NAME[name], Books(book))
        assert outcome.error is None
        assert outcome.notebooks == ("01", "02")
        assert [(d.chapter, d.cell) for d in outcome.differences] == [("02", cell) for cell in TEXT_SETTINGS[name]]

    def test_every_cell_of_the_arrival_chapter_is_in_one_of_the_two_books(self) -> None:
        assert {*FAMILIES, "vector", "threads", "mkl"} == set(planted.cells_of("arrival.py"))
        assert set().union(*(s.effect(FULL) for s in SETTINGS)) == set(planted.cells_of("arrival.py"))

    def test_the_first_differing_line_is_named(self, book: Path) -> None:
        (found,) = matrix.run_setting(BY_NAME["time-zone"], Books(book)).differences
        assert found.first_line == "recorded: ('UTC', 'UTC') 0␊ | now: ('XYZ', 'XYZ') 20700␊"

    def test_an_uninstalled_locale_is_compiled(self, tmp_path: Path) -> None:
        german = BY_NAME["locale-german"]
        skip_if_missing(german)
        there = settings.this_machine()
        env, _ = settings.prepare(german, tmp_path, Machine(there.capability, there.mkl, frozenset(), there.buildable))
        assert env["LOCPATH"] == str(tmp_path)
        assert (tmp_path / "de_DE.UTF-8").is_dir()

    def test_a_locale_that_cannot_be_compiled_is_an_error_not_a_pass(self, book: Path) -> None:
        klingon = Setting("klingon", "a locale without sources", "locale", {"LC_ALL": "tlh.UTF-8"}, locale="tlh.UTF-8")
        machine = Machine("DEFAULT", False, frozenset(), frozenset({"tlh.utf8"}))
        outcome = matrix.run_setting(klingon, Books(book), machine)
        assert outcome.error is not None
        assert outcome.error.startswith("it could not be prepared: ")

    def test_command_names_the_cell_and_exits_1(self, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
        chosen = ["--root", str(book), "--planted", "0", "--settings", "hash-0,time-zone", "-j", "2"]
        assert script.main(chosen) == 1
        out = capsys.readouterr().out
        assert "hash-0: equal in 2 notebooks" in out
        assert "time-zone: 1 cell differs" in out
        assert "time-zone: 02 · cell zone: recorded: ('UTC', 'UTC') 0␊ | now: ('XYZ', 'XYZ') 20700␊" in out
        assert "1 setting equal, 1 differ (time-zone)" in out

    def test_cells_that_cannot_run_on_this_machine_are_named(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("AGENTRL_MODEL_DIR", raising=False)
        cells = [code("exact", "print(1)", "1\n"), code("real", "print(2)", "2\n", output="lab")]
        write_book(tmp_path, {"01-one": cells})
        assert script.main(["--root", str(tmp_path), "--planted", "0", "--settings", "hash-0"]) == 0
        out = capsys.readouterr().out
        assert "cells that run under no setting: 01 · real (no real model here)\n" in out

    def test_prefixes_choose_chapters(self, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert script.main(["--root", str(book), "--planted", "0", "--settings", "time-zone", "01"]) == 0
        assert "time-zone: equal in 1 notebook\n" in capsys.readouterr().out

    def test_the_short_form_leaves_out_chapters_that_use_no_torch(self, tmp_path: Path) -> None:
        function = 'def one() -> torch.Tensor:\n    """Return a one."""\n    return torch.ones(1)'
        chapters = {
            "01-plain": [code("plain", "print(1)")],
            "02-saving": [code("saving", f"#@save\nimport torch\n\n\n{function}")],
            "03-apart": [code("apart", "print(2)")],
            "04-using": [code("using", "import agentrl as arl\nprint(len(arl.one()))")],
        }
        write_book(tmp_path, chapters)
        plan = make_plan(tmp_path, [], remember=False)
        assert plan.problems == ()
        assert script.torch_chapters(plan) == ("02", "04")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Outcome]]:
    """What the short form, called as in `make test`, says and gives on a small book that is taken to use torch."""
    root = write_book(tmp_path_factory.mktemp("digits"), {key: [code("one", "print(1)", "1\n")] for key in DIGITS_BOOK})
    write_chapter(root, "01-a", [code("loose", "print(2)", "2\n", output="lab"), code("one", "print(1)", "1\n")])
    for key in DIGITS_BOOK:
        write_chapter(root, key, [code("answer", "print(1)", "1\n")], kind="solutions")
    outcomes: list[Outcome] = []
    with pytest.MonkeyPatch.context() as patch, StringIO() as out, redirect_stdout(out):
        patch.setattr(script, "uses_torch", lambda job: True)
        patch.setattr(script, "show", outcomes.extend)
        patch.setenv("AGENTRL_MODEL_DIR", str(root))  # a model, so that the lab cell could run
        assert script.main([*digits_of_make_test(), "--root", str(root), "--planted", "0"]) == 0
        return out.getvalue(), outcomes


DIGITS_BOOK = ("01-a", "02-b")


def digits_of_make_test() -> list[str]:
    """Return the arguments with which `make test` calls the short form."""
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ntest:")[2].partition("\n\n")[0]
    (call,) = re.findall(r"scripts/determinism\.py (.*)", recipe)
    return call.replace("$(JOBS)", "2").split()


class TestMakeTest:
    def test_every_chapter_that_uses_torch_runs_under_every_value_that_can_change_a_digit(
        self, digits: tuple[str, list[Outcome]]
    ) -> None:
        wanted = [setting.name for setting in settings.fewest(SETTINGS, settings.this_machine())]
        assert [outcome.setting.name for outcome in digits[1]] == wanted
        assert all({"01", "02"} <= {*outcome.notebooks} for outcome in digits[1])

    def test_solutions_run_under_the_setting_that_changes_most_and_this_is_said(
        self, digits: tuple[str, list[Outcome]]
    ) -> None:
        said, outcomes = digits
        most = settings.farthest([outcome.setting for outcome in outcomes], settings.this_machine()).name
        ran = {o.setting.name: [name for name in o.notebooks if name.endswith("/solutions")] for o in outcomes}
        assert ran == {o.setting.name: ["01/solutions", "02/solutions"] * (o.setting.name == most) for o in outcomes}
        assert f"their solutions run under {most} alone" in said

    def test_lab_cells_are_named_and_do_not_run(self, digits: tuple[str, list[Outcome]]) -> None:
        assert "cells that run under no setting: 01 · loose (output compared loosely)\n" in digits[0]

    def test_no_chapter_of_the_book_from_the_first_with_torch_on_is_left_out(self) -> None:
        arguments = script.parser().parse_args(digits_of_make_test())
        assert (arguments.digits, arguments.prefixes, arguments.settings, arguments.planted) == (True, [], "", None)
        plan = make_plan(ROOT, [], remember=False)
        numeric, written = script.torch_chapters(plan), [chapter.key for chapter in plan.book.chapters]
        assert numeric
        assert list(numeric) == written[written.index(numeric[0]) :]


class TestBadInput:
    def test_an_unknown_chapter_is_an_error_not_a_pass(self, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert script.main(["--root", str(book), "--settings", "time-zone", "77"]) == 2
        assert "no chapter starts with '77'; there are" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("arguments", "word"),
        [
            (["-j", "0"], "-j 0: at least one setting at once"),
            (["--settings", "hash-0,time-zone,hash-0"], "hash-0 is named twice"),
            (["--settings", ","], "--settings ',': a name is empty"),
            (["--planted", "-1"], "--planted -1: a number of iterations, or 0 for no planted book"),
            (["--planted", "0", "--control"], "--control trains in the planted book, which --planted 0 leaves out"),
            (["--settings", "moon"], "no setting is called 'moon'"),
        ],
    )
    def test_a_bad_value_is_an_error_before_anything_runs(
        self, book: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], word: str
    ) -> None:
        assert script.main(["--root", str(book), *arguments]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert word in said.err

    def test_a_folder_without_a_book_is_an_error(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert script.main(["--root", str(tmp_path / "nowhere")]) == 2
        assert "a book has chapters/" in capsys.readouterr().err

    def test_list_runs_nothing(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert script.main(["--root", str(tmp_path), "--list"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == [s.name for s in SETTINGS]


TORCH_CELLS = {
    "level": "import torch\nprint(torch.backends.cpu.get_cpu_capability())",
    "threads": "print(torch.get_num_threads())",
    # Threads add up parts of a million numbers; a softmax over fewer than torch splits among threads depends on the
    # vector width; the code of a matrix product is MKL's.
    "sum": "wave = torch.arange(1_000_000).double().sin().float()\nprint(float(wave.sum()).hex())",
    "softmax": "print(float(wave[:20_000].softmax(0).square().sum()).hex())",
    "product": "wide, tall = wave[:64_000].double().view(64, 1000), wave[7:64_007].double().view(1000, 64)\n"
    "print([x.hex() for x in (wide @ tall)[0].tolist()])",
    "steady": "print(sum(range(100)))",
}


@pytest.fixture(scope="module")
def torch_books(tmp_path_factory: pytest.TempPathFactory) -> Books:
    """A chapter with a cell for each numeric family, and the planted book with a training of two iterations."""
    root = tmp_path_factory.mktemp("torch")
    cells = [code(cell, source) for cell, source in TORCH_CELLS.items()]
    write_book(root / "book", {"01-torch": cells})
    planted.record(root / "book", jobs=1)
    return Books(root / "book", (), planted.write_planted(root / "planted", 2, controls=True, jobs=2), controls=True)


@pytest.fixture(scope="module")
def torch_outcomes(torch_books: Books) -> dict[str, Outcome]:
    """What one setting of each family does to them, of those this machine has."""
    names = ("aten-default", "threads-4", "mkl-compatible")
    outcomes = matrix.run_all([BY_NAME[name] for name in names], torch_books, 2, lambda _: None)
    return {outcome.setting.name: outcome for outcome in outcomes if outcome.skipped is None}


@pytest.mark.slow
class TestTraining:
    def test_every_setting_arrives_and_changes_nothing_else(self, torch_outcomes: dict[str, Outcome]) -> None:
        there = settings.this_machine()
        assert {name: (o.error, o.arrived) for name, o in torch_outcomes.items()} == {
            name: (None, BY_NAME[name].effect(there)) for name in torch_outcomes
        }

    def test_a_planted_digit_differs_under_the_settings_that_can_change_it(
        self, torch_outcomes: dict[str, Outcome]
    ) -> None:
        there = settings.this_machine()
        wanted = {"threads-4": ["threads", "sum"], "mkl-compatible": ["product"]}
        wanted["aten-default"] = [] if there.capability == "DEFAULT" else ["level", "softmax"]
        found = {name: [d.cell for d in o.differences if d.chapter == "01"] for name, o in torch_outcomes.items()}
        assert found == {name: wanted[name] for name in torch_outcomes}

    def test_the_snapped_training_prints_the_same_everywhere(self, torch_outcomes: dict[str, Outcome]) -> None:
        assert all("planted" in outcome.notebooks for outcome in torch_outcomes.values())
        assert [d for o in torch_outcomes.values() for d in o.differences if d.chapter == "planted"] == []

    def test_the_controls_part_under_another_vector_width(self, torch_outcomes: dict[str, Outcome]) -> None:
        if settings.this_machine().capability == "DEFAULT":
            pytest.skip("this machine has one vector width")
        outcome = torch_outcomes["aten-default"]
        assert matrix.partings(outcome, "float32")["weights"] in ("1", "2")
        assert matrix.partings(outcome, "float64")["weights"] in ("1", "2")

    @pytest.mark.parametrize("file", ["arrival.py", "training.py", "main_loop.py"])
    def test_no_two_cells_of_a_planted_chapter_share_an_id(self, file: str) -> None:
        text = (planted.HERE / file).read_text(encoding="utf-8")
        assert len(planted.cells_of(file)) == text.count("\n# %% ")

    def test_the_three_trainings_differ_in_nothing_but_their_arithmetic(self) -> None:
        cells = {a: planted.training_cells(a, 5) for a in planted.ARITHMETIC.values()}
        assert [list(c) for c in cells.values()] == [list(planted.cells_of("training.py"))] * 3
        assert {a: c["settings"] for a, c in cells.items()} == {
            a: f"ARITHMETIC, ITERATIONS = {a!r}, 5" for a in ("snapped", "float64", "float32")
        }
        assert all({**c, "settings": ""} == {**cells["snapped"], "settings": ""} for c in cells.values())


class TestMainLoop:
    """The planted chapter that trains with the library: which books get it, and how its differences are told."""

    def test_a_book_that_does_not_save_the_loop_gets_none(self, tmp_path: Path) -> None:
        write_book(tmp_path / "book", {"01-one": [code("a", "print(1)")]})
        assert planted.write_main_loop(tmp_path / "loop", tmp_path / "book", short=True) is None
        assert not (tmp_path / "loop").exists()

    def test_its_differences_bear_its_name(self) -> None:
        found = Outcome(BY_NAME["lowest"], ("99",), (Difference("99", "weights", "x"),))
        named = matrix.named_loop(found)
        assert named.notebooks == ("main-loop",)
        assert named.differences == (Difference("main-loop", "weights", "x"),)

    def test_the_short_form_changes_the_settings_cell_and_nothing_else(self) -> None:
        cells = planted.cells_of("main_loop.py")
        names = [target.strip() for target in cells["settings"].split("=")[0].split(",")]
        assert [name.strip() for name in planted.SHORT_LOOP.split("=")[0].split(",")] == names

    def test_it_prints_a_digest_of_the_weights_before_and_after_every_iteration(self) -> None:
        cells = planted.cells_of("main_loop.py")
        assert list(cells)[-2:] == ["tokens", "weights"]
        assert "weight_digests = [], [digest(list(agent.parameters()))]" in cells["train"]
