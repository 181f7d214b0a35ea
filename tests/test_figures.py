"""The figure tools: what the helpers draw, what the SVG files promise, and what `make_figures.py` does with scripts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import make_figures
import pytest
from checking import hearing, wait_until

from bookkit import figure_scripts
from bookkit import figures as fig

ROOT = Path(__file__).resolve().parents[1]
NS = {"svg": fig.SVG}
GOOD = """
from bookkit.figures import box, card, finish
def draw():
    drawing = card(200, 100)
    box(drawing, 20, 20, 160, 60, {label!r})
    return finish(drawing, "A title", "A description.")
"""


def diagram(label: str = "text", title: str = "A title", desc: str = "A description.") -> str:
    drawing = fig.card(200, 100)
    fig.box(drawing, 20, 20, 160, 60, label)
    return fig.finish(drawing, title, desc)


def chart(values: list[float], title: str = "Chart") -> str:
    with fig.chart_style():
        figure, axes = fig.chart(400, 300)
        axes.plot(range(len(values)), values, label="a")
        axes.plot(range(len(values)), [2 * value for value in values], label="b")
        axes.set_xlabel("iteration")
        axes.legend()
        return fig.chart_svg(figure, title, "What the chart shows.")


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A folder with two figures: ch01_one and ch02_two."""
    folder = tmp_path / "figures"
    folder.mkdir()
    (folder / "ch01_one.py").write_text(GOOD.format(label="one"))
    (folder / "ch02_two.py").write_text(GOOD.format(label="two"))
    return tmp_path


def run(root: Path, *arguments: str) -> int:
    return make_figures.main(["--root", str(root), *arguments])


class TestConventions:
    @pytest.mark.parametrize("svg", [diagram(), chart([1.0, 2.0, 4.0])], ids=["diagram", "chart"])
    def test_file_says_what_it_is_and_scales(self, svg: str) -> None:
        root = ET.fromstring(svg)
        title, desc = root.find("svg:title", NS), root.find("svg:desc", NS)
        assert title is not None
        assert desc is not None
        assert root.get("role") == "img"
        assert (root.get("aria-labelledby") or "").split() == [title.get("id"), desc.get("id")]
        assert [float(v) for v in (root.get("viewBox") or "").split()][2] == float(root.get("width") or 0)
        assert svg.endswith("</svg>\n")
        assert fig.svg_problems(svg) == []

    @pytest.mark.parametrize("svg", [diagram(), chart([1.0, 2.0, 4.0])], ids=["diagram", "chart"])
    def test_first_shape_is_the_card(self, svg: str) -> None:
        first = next(e for e in ET.fromstring(svg) if e.tag not in (f"{{{fig.SVG}}}title", f"{{{fig.SVG}}}desc"))
        assert first.get("fill") == fig.CARD
        assert first.get("stroke") == fig.CARD_BORDER

    def test_title_and_description_are_escaped(self) -> None:
        svg = diagram(title="a < b & c", desc='says "x > y"\nover two lines')
        root = ET.fromstring(svg)
        assert root.findtext("svg:title", namespaces=NS) == "a < b & c"
        assert root.findtext("svg:desc", namespaces=NS) == 'says "x > y" over two lines'

    @pytest.mark.parametrize(("title", "desc"), [("", "d"), ("t", " ")])
    def test_a_figure_without_title_or_description_is_refused(self, title: str, desc: str) -> None:
        with pytest.raises(ValueError, match="title and a description"):
            diagram(title=title, desc=desc)

    def test_ids_of_two_figures_do_not_meet_in_one_page(self) -> None:
        ids = [{e.get("id") for e in ET.fromstring(chart([1.0, 2.0], title)).iter() if e.get("id")} for title in "ab"]
        assert ids[0]
        assert not ids[0] & ids[1]

    def test_rounding_noise_in_the_data_changes_no_byte(self) -> None:
        values = [0.1, 0.7, 0.30000000000000004, 1 / 3]
        noisy = [value * (1 + 1e-13) for value in values]
        assert chart(values) == chart(noisy)

    def test_chart_carries_no_date_version_or_style_sheet(self) -> None:
        svg = chart([1.0, 3.0])
        assert not any(word in svg for word in ("matplotlib", "dc:date", "<style", "<metadata", "<!DOCTYPE"))

    def test_users_matplotlib_settings_do_not_reach_a_chart(self) -> None:
        import matplotlib

        before = chart([1.0, 3.0])
        with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "axes.grid": False}):
            assert chart([1.0, 3.0]) == before
            assert matplotlib.rcParams["font.size"] == 30

    def test_series_differ_by_dash_and_marker_as_well_as_colour(self) -> None:
        for signs in zip(*fig.SERIES, strict=True):
            assert len(set(signs)) == len(fig.SERIES)

    def test_text_and_lines_have_contrast_on_the_card(self) -> None:
        for role in fig.ROLES.values():
            assert contrast(fig.INK, role.fill) >= 7
            assert contrast(role.line, fig.CARD) >= 4.5
        for color, _, _ in fig.SERIES:
            assert contrast(color, fig.CARD) >= 3
        assert contrast(fig.MUTED, fig.CARD) >= 4.5

    def test_so_they_have_in_dark(self) -> None:
        card, ink = fig.DARK[fig.CARD], fig.DARK[fig.INK]
        for role in fig.ROLES.values():
            assert contrast(ink, fig.DARK[role.fill]) >= 7
            assert contrast(fig.DARK[role.line], card) >= 4.5
        for color, _, _ in fig.SERIES:
            assert contrast(fig.DARK[color], card) >= 4.5
        assert contrast(fig.DARK[fig.MUTED], card) >= 4.5

    def test_no_two_colours_become_one(self) -> None:
        assert len(set(fig.DARK.values())) == len(fig.DARK)


class TestDark:
    def test_every_committed_figure_changes_its_colours_and_nothing_else(self) -> None:
        figures = sorted((ROOT / "figures").glob("*.svg"))
        assert len(figures) >= 31
        for path in figures:
            svg = path.read_text(encoding="utf-8")
            turned = fig.dark(svg)
            assert fig.COLOR.sub("", turned) == fig.COLOR.sub("", svg)
            assert fig.CARD not in turned
            assert fig.svg_problems(turned) == []

    def test_a_colour_outside_the_palette_is_named(self) -> None:
        with pytest.raises(ValueError, match="#123456, #abcdef"):
            fig.dark('<path fill="#abcdef" stroke="#123456" style="fill: #ffffff"/>')

    def test_an_id_that_begins_like_a_colour_is_left_alone(self) -> None:
        assert fig.dark('<use xlink:href="#f2dfc96f7-1"/>') == '<use xlink:href="#f2dfc96f7-1"/>'


def contrast(one: str, two: str) -> float:
    """Return the WCAG contrast ratio of two #rrggbb colours."""

    def luminance(color: str) -> float:
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


class TestRounding:
    @pytest.mark.parametrize(
        ("key", "value", "expected"),
        [
            ("d", "M0.12345,-3.999 L1.2345-2e-9", "M 0.12,-4 L 1.23 0"),
            ("d", "M 2034 4250  Q 1547 4250 \n z", "M 2034 4250 Q 1547 4250 z"),
            ("x", "-0.0012", "0"),
            ("x", "65.944999999999993", "65.94"),
            ("x", "65.945000000000007", "65.94"),
            ("viewBox", "0 0 547.2 300.0001", "0 0 547.2 300"),
            ("transform", "translate(1.23456 2.0) scale(0.015625)", "translate(1.23 2) scale(0.015625)"),
            ("transform", "rotate(-90.0001)", "rotate(-90)"),
            ("fill", "#1f2328", "#1f2328"),
            ("style", "stroke: #1f2328; stroke-width: 0.80000001", "stroke: #1f2328; stroke-width: 0.8"),
            ("font-family", "Font 1.2345", "Font 1.2345"),
        ],
    )
    def test_numbers_keep_two_decimals_and_scales_six(self, key: str, value: str, expected: str) -> None:
        got = fig._rounded(key, value)
        assert got.replace("1.23-0", "1.23 0").replace("1.23 -0", "1.23 0") == expected


class TestHelpers:
    def test_text_wider_than_its_box_is_an_error_with_the_text(self) -> None:
        with pytest.raises(ValueError, match="'far too long for this box' is 1"):
            fig.box(fig.card(), 0, 0, 100, 40, "far too long for this box")

    def test_text_taller_than_its_box_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="px tall"):
            fig.box(fig.card(), 0, 0, 100, 40, "a\nb\nc")

    def test_unknown_role_lists_the_roles(self) -> None:
        with pytest.raises(ValueError, match="no role 'wizard'; there are plain, policy"):
            fig.box(fig.card(), 0, 0, 100, 40, "a", role="wizard")

    def test_text_width_follows_the_fonts_metrics(self) -> None:
        assert fig.text_width("iiii", 10) < fig.text_width("mmmm", 10) < fig.text_width("mmmm", 10, bold=True)
        assert fig.text_width("iiii", 10, mono=True) == fig.text_width("mmmm", 10, mono=True)
        assert fig.text_width("ab", 20) == pytest.approx(2 * fig.text_width("ab", 10))

    def test_border_styles_look_different(self) -> None:
        drawn = set()
        for border in ("solid", "dashed", "dotted", "double"):
            drawing = fig.card()
            fig.frame(drawing, 0, 0, 50, 50, border=border)
            drawn.add(fig.finish(drawing, "t", "d"))
        assert len(drawn) == 4

    def test_arrow_ends_short_of_its_target_with_the_head_on_the_line(self) -> None:
        drawing = fig.card()
        fig.arrow(drawing, (0, 10), (100, 10), gap=3)
        paths = ET.fromstring(fig.finish(drawing, "t", "d")).findall("svg:path", NS)
        assert [p.get("d") for p in paths] == ["M 3,10 L 90,10", "M 97,10 L 88,14.2 L 88,5.8 Z"]

    def test_arrow_that_goes_nowhere_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="stands still"):
            fig.arrow(fig.card(), (5, 5), (5, 5))

    def test_token_strip_places_cells_side_by_side_with_the_mask_below(self) -> None:
        drawing = fig.card()
        cells = fig.token_strip(drawing, 10, 10, [("<call>", "policy"), ("read", "environment")], mask=[1, 0], gap=4)
        assert cells[1].x == pytest.approx(cells[0].x + cells[0].width + 4)
        words = [t.text for t in ET.fromstring(fig.finish(drawing, "t", "d")).findall("svg:text", NS)]
        assert words == ["<call>", "1", "read", "0"]

    def test_token_strip_checks_mask_length_and_limit(self) -> None:
        with pytest.raises(ValueError, match="2 entries for 1 tokens"):
            fig.token_strip(fig.card(), 0, 0, [("a", "task")], mask=[1, 0])
        with pytest.raises(ValueError, match="past 20"):
            fig.token_strip(fig.card(), 0, 0, [("aaaa", "task")], limit=20)

    def test_indented_code_keeps_its_indent(self) -> None:
        drawing = fig.card()
        fig.text(drawing, 0, 0, "def f():\n    return 1", mono=True)
        words = [t.text for t in ET.fromstring(fig.finish(drawing, "t", "d")).findall("svg:text", NS)]
        assert words == ["def f():", "\u00a0" * 4 + "return 1"]

    @pytest.mark.parametrize("rising", [True, False])
    def test_hatching_stays_inside_its_area(self, rising: bool) -> None:
        drawing = fig.card()
        fig.hatch(drawing, fig.Box(10, 20, 40, 16), rising=rising)
        paths = [p.get("d") or "" for p in ET.fromstring(fig.finish(drawing, "t", "d")).findall("svg:path", NS)]
        points = [tuple(map(float, part.split(","))) for d in paths for part in d.replace("M ", "").split(" L ")]
        assert len(points) >= 10
        assert all(10 <= x <= 50 and 20 <= y <= 36 for x, y in points)


class TestProblems:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda s: s.replace("</svg>", ""), "not well-formed XML"),
            (lambda s: s.replace(' role="img"', ""), 'no role="img"'),
            (lambda s: s.replace("A description.", " "), "no <desc>"),
            (lambda s: s.replace("-title f", "-titel f"), "does not name the <title>"),
            (lambda s: s.replace("viewBox", "viewbox"), "no viewBox"),
            (lambda s: s.rstrip("\n"), "no newline"),
            (lambda s: s.replace("</svg>", "<script>1</script></svg>"), "a <script> element"),
            (lambda s: s.replace("</svg>", "<image/></svg>"), "a <image> element"),
            (lambda s: s.replace("</svg>", '<use href="https://x.org/a.svg#b"/></svg>'), "refers outside"),
            (lambda s: s.replace("</svg>", '<rect fill="url(other.svg#a)"/></svg>'), "refers outside"),
            (lambda s: s.replace("</svg>", "<style>@import 'x.css';</style></svg>"), "style sheet"),
            (lambda s: s.replace("</svg>", '<rect onclick="x()"/></svg>'), "event handler onclick"),
            (lambda s: s.replace("</svg>", '<g id="a"/><g id="a"/></svg>'), "'a' is used twice"),
            (lambda s: s.replace("</svg>", f"<!--{'x' * fig.MAX_BYTES}--></svg>"), "the limit is 400,000"),
            (lambda s: s.replace("<svg ", "<!DOCTYPE svg><svg ", 1), "a DOCTYPE"),
            (lambda s: "<html/>\n", "not svg"),
        ],
    )
    def test_each_fault_is_named(self, change, message: str) -> None:
        problems = fig.svg_problems(change(diagram()))
        assert any(message in problem for problem in problems), problems

    def test_save_refuses_a_faulty_file_and_leaves_the_old_one(self, tmp_path: Path) -> None:
        script = tmp_path / "ch01_one.py"
        made = fig.save(script, diagram())
        assert made.name == "ch01-one.svg"
        with pytest.raises(ValueError, match=r"ch01-one\.svg: .*no viewBox"):
            fig.save(script, diagram().replace("viewBox", "viewbox"))
        assert made.read_text() == diagram()


class TestCommand:
    def test_draws_all_then_finds_nothing_to_do(self, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(book) == 0
        assert {p.name for p in (book / "figures").glob("*.svg")} == {"ch01-one.svg", "ch02-two.svg"}
        assert "0 unchanged, 2 written, 0 failed" in capsys.readouterr().out
        before = {p: p.stat().st_mtime_ns for p in (book / "figures").iterdir()}
        assert run(book) == 0
        assert "2 unchanged, 0 written, 0 failed" in capsys.readouterr().out
        assert {p: p.stat().st_mtime_ns for p in (book / "figures").iterdir()} == before

    def test_check_names_stale_and_missing_files_and_writes_nothing(
        self, book: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(book, "ch01") == 0
        target = book / "figures" / "ch01-one.svg"
        target.write_text(target.read_text().replace("one", "eno"))
        stale = target.read_bytes()
        assert run(book, "--check") == 1
        err = capsys.readouterr().err
        assert "figures/ch01-one.svg: error: stale" in err
        assert "figures/ch02-two.svg: error: missing" in err
        assert target.read_bytes() == stale
        assert not (book / "figures" / "ch02-two.svg").exists()
        assert run(book) == 0
        assert run(book, "--check") == 0

    @pytest.mark.parametrize("name", ["ch02", "02", "ch02_two", "ch02-two", "figures/ch02-two.svg", "ch02_two.py"])
    def test_names_choose_figures(self, book: Path, name: str) -> None:
        assert run(book, name) == 0
        assert {p.name for p in (book / "figures").glob("*.svg")} == {"ch02-two.svg"}

    def test_unknown_name_lists_what_there_is(self, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(book, "ch1") == 2
        assert "no figure is called 'ch1'; there are: ch01_one, ch02_two" in capsys.readouterr().err

    def test_list_draws_nothing(self, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(book, "--list") == 0
        assert capsys.readouterr().out == "ch01_one\nch02_two\n"
        assert not list((book / "figures").glob("*.svg"))

    @pytest.mark.parametrize(
        ("script", "message"),
        [
            ("def draw():\n    raise RuntimeError('no data')\n", "RuntimeError: no data"),
            ("import nothing_of_this_name\n", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
            ("x = 1\n", "TypeError: the script has no function draw()"),
            ("def draw():\n    return 3\n", "TypeError: draw() returned int"),
            ("def draw():\n    return '<svg/>'\n", "not svg"),
            ("import os\nos._exit(0)\n", "ended without drawing"),
            ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "killed by signal 9"),
            ("import sys\nsys.exit(3)\n", "exit code 3"),
        ],
    )
    def test_a_failing_script_is_named_and_stops_no_other(
        self, book: Path, capsys: pytest.CaptureFixture[str], script: str, message: str
    ) -> None:
        old = book / "figures" / "ch01-one.svg"
        old.write_text("the old picture")
        (book / "figures" / "ch01_one.py").write_text(script)
        assert run(book) == 1
        err = capsys.readouterr().err
        assert "figures/ch01_one.py: error: " in err
        assert message in err
        assert old.read_text() == "the old picture"
        assert (book / "figures" / "ch02-two.svg").exists()

    def test_a_script_that_never_ends_is_stopped(self, book: Path, tmp_path: Path) -> None:
        script = book / "figures" / "ch01_one.py"
        script.write_text("while True:\n    pass\n")
        result = figure_scripts.draw_one(script, tmp_path, timeout=1)
        assert result.error == "still drawing after 1 s"

    def test_an_svg_no_script_draws_is_named(self, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (book / "figures" / "ch09-lost.svg").write_text(diagram())
        assert run(book) == 1
        assert "figures/ch09-lost.svg: error: no script draws this file" in capsys.readouterr().err
        assert run(book, "ch01") == 0

    def test_helpers_with_an_underscore_are_not_figures(self, book: Path) -> None:
        (book / "figures" / "_shared.py").write_text("LABEL = 'shared'\n")
        (book / "figures" / "ch01_one.py").write_text("from _shared import LABEL\n" + GOOD.format(label="x"))
        assert run(book) == 0
        assert {p.name for p in (book / "figures").glob("*.svg")} == {"ch01-one.svg", "ch02-two.svg"}

    def test_the_callers_environment_does_not_reach_a_figure(
        self, book: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        seen = (
            "repr([os.environ.get(k) for k in ('PYTHONHASHSEED', 'MPLBACKEND', 'OMP_NUM_THREADS', 'LC_ALL', 'LANG')])"
        )
        script = "import os\n" + GOOD.replace("{label!r}", "'env'").replace('"A description."', seen)
        (book / "figures" / "ch01_one.py").write_text(script)
        for key, value in (
            ("PYTHONHASHSEED", "77"),
            ("MPLBACKEND", "pdf"),
            ("OMP_NUM_THREADS", "8"),
            ("LANG", "de_DE"),
        ):
            monkeypatch.setenv(key, value)
        assert run(book, "ch01") == 0
        desc = ET.fromstring((book / "figures" / "ch01-one.svg").read_text()).findtext("svg:desc", namespaces=NS)
        assert desc == "['0', 'Agg', '1', 'C.UTF-8', None]"

    def test_a_script_by_itself_writes_the_same_file(self, book: Path) -> None:
        script = book / "figures" / "ch01_one.py"
        script.write_text(script.read_text() + "from bookkit.figures import save\nsave(__file__, draw())\n")
        env = {**os.environ, "PYTHONPATH": str(ROOT / "scripts"), "PYTHONHASHSEED": "5"}
        subprocess.run([sys.executable, str(script)], check=True, env=env, cwd=book)
        assert run(book, "ch01", "--check") == 0

    def test_findings_are_annotations_on_github(
        self, book: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
        assert run(book, "--check") == 1
        assert "::error file=figures/ch01-one.svg::missing" in capsys.readouterr().out


class TestTheBooksOwn:
    def test_every_committed_figure_has_a_script_and_make_test_draws_each_anew(self) -> None:
        assert figure_scripts.find_scripts(ROOT), "the book has figures"
        assert figure_scripts.orphans(ROOT) == []
        recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ntest:")[2].partition("\n\n")[0]
        assert "$(PY) scripts/make_figures.py --check\n" in recipe


def test_no_figures_folder_is_exit_code_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--check"], ["--list"]):
        assert make_figures.main(["--root", str(tmp_path / "gone"), *arguments]) == 2
        assert f"{tmp_path / 'gone'}: no folder figures/" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupted_run_leaves_no_folder_and_no_traceback(book: Path, number: signal.Signals) -> None:
    (book / "figures" / "ch01_one.py").write_text("import time\ntime.sleep(1.5)\n" + GOOD.format(label="one"))
    scratch = book / "scratch"
    scratch.mkdir()
    command = [sys.executable, make_figures.__file__, "--root", str(book), "ch01"]
    env = {**os.environ, "TMPDIR": str(scratch)}
    process = subprocess.Popen(command, env=env, preexec_fn=hearing, stderr=subprocess.PIPE)
    assert wait_until(lambda: any(scratch.glob("agentrl-figures-*/*")))
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, b"Traceback" in errors) == (128 + number, False)
    assert list(scratch.iterdir()) == []
    assert not (book / "figures" / "ch01-one.svg").exists()


def test_a_script_records_only_when_asked_and_then_before_it_draws(tmp_path: Path) -> None:
    script, done = tmp_path / "ch01_one.py", []

    def record() -> None:
        done.append("recorded")

    def draw() -> str:
        done.append("drawn")
        return fig.finish(fig.card(300, 100), "A card", "An empty card.")

    for arguments, expected in (([], ["drawn"]), (["--record"], ["recorded", "drawn"])):
        done.clear()
        assert fig.command(script, "about", draw, record, "what", arguments) == 0
        assert done == expected
    assert (tmp_path / "ch01-one.svg").read_text(encoding="utf-8").startswith("<")
