"""What the checker accepts, selects and reports; its engines print the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from checking import Checked, check, command, junit_cases
from checking import environment as clean_environment
from synthetic import CellDict, code, md, write_book, write_chapter

from bookkit.checker import make_plan
from bookkit.compare import differences, numbers_only, render
from bookkit.engines import kind_of, wanted_modules
from bookkit.looks import looks_around
from bookkit.runner import environment, pinned
from bookkit.stage import Stage

DOUBLE = '#@save\ndef double(x: int) -> int:\n    """Return twice x."""\n    return 2 * x'
PICKLE = """import pickle
class Thing:
    def __init__(self, x):
        self.x = x
print(pickle.loads(pickle.dumps(Thing(4))).x)"""
POOL = """from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(2)
print(list(pool.map(abs, [-1, -2])))"""
LIVE_LOOP = """import asyncio
async def f(): return 1
g = f()
try:
    asyncio.run(g)
except RuntimeError as error:
    g.close()
    print(type(error).__name__)"""
ENVIRONMENT = """import os, sys
names = ["TZ", "COLUMNS", "NO_COLOR", "MPLBACKEND", "OMP_NUM_THREADS", "PYTHONHASHSEED", "HF_HUB_OFFLINE"]
print([os.environ[name] for name in names], os.environ.get("AGENTRL_MODEL_DIR"))
here, library = sys.path.index(""), sys.path.index(os.path.dirname(os.__file__))
print(__name__, "__file__" in globals(), here > library, repr(sys.stdin.read()))"""
FUTURE = """from __future__ import annotations
def f(x: Undefined) -> None: ...
print(f.__annotations__['x'])"""
FORK = """import os
if os.fork() == 0:
    print('fork', flush=True)
    os._exit(0)
n = os.wait()"""
PROCESSES = """import multiprocessing as mp
with mp.get_context('fork').Pool(1) as p:
    print(p.map(abs, [-3]))"""
THREAD = """import threading
t = threading.Thread(target=print, args=('thread',))
t.start(); t.join()"""
LEAK = """import os
os.chdir('/')
os.environ['LEAK'] = 'yes'
import builtins, textwrap
builtins.leak = 1
textwrap.dedent = None"""
LEAKS = """import builtins, textwrap, os
print(hasattr(builtins, 'leak'), os.environ.get('LEAK'), textwrap.dedent(' a'))"""
MODULES = {
    "01-basics": [
        code("save", DOUBLE),
        code("use", "print(double(2))", "4\n"),
        code("state", "x = 1"),
        code("more-state", "x += 1\nprint(x)", "2\n"),
        code("no-newline", "print('a', end='')", "a"),
        code("pickle", PICKLE, "4\n"),
        code("unicode", "print('Grüße, 你好 · ½')", "Grüße, 你好 · ½\n"),
        code("semicolon", "double(3);"),
        code("underscore", "(5, 6);\nlen('abc');\nprint(1 + 1)", "2\n"),
    ],
    "06-futures": [
        code("future", FUTURE, "Undefined\n"),
        code("future-lasts", "def g(x: Undefined) -> None: ...\nprint(g.__annotations__['x'])", "Undefined\n"),
        code("source", "import inspect\nprint(inspect.getsource(f))", "def f(x: Undefined) -> None: ...\n\n"),
    ],
    "02-streams": [
        code("subprocess", "import subprocess\nr = subprocess.run(['echo', 'child'])", "child\n"),
        code("shell", "!echo from the shell", "from the shell\n"),
        code("progress", "print('10 %\\r20 %\\rdone')", "done\n"),
        code("backspace", "print('abd\\b\\bc')", "acd\n"),
        code("bytes", "import os\nn = os.write(1, b'\\xff ok\\n')", "\ufffd ok\n"),
        code("fork", FORK, "fork\n"),
        code("stderr", "import sys\nprint('unseen', file=sys.stderr)"),
        code("plot", "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nlines = ax.plot([1, 2])\nplt.show()"),
        code("capture", "%%capture seen\nprint('hidden')"),
        code("captured", "print(seen.stdout)", "hidden\n\n"),
        code("magic", "t = %timeit -n1 -r1 -o -q pass\nprint(t.loops)", "1\n"),
    ],
    "03-tasks": [
        code("await", "import asyncio\nawait asyncio.sleep(0)\nprint('awaited')", "awaited\n"),
        code("gather", "async def f(x): return x\nprint(await asyncio.gather(f(1), f(2)))", "[1, 2]\n"),
        code("live-loop", LIVE_LOOP, "RuntimeError\n"),
        code("thread", THREAD, "thread\n"),
        code("pool", POOL, "[1, 2]\n"),
        code("processes", PROCESSES, "[3]\n"),
        code("raises", "raise KeyError('x')", tags=["raises-exception"]),
        code("goes-on", "print('on')", "on\n"),
    ],
    "04-place": [
        code("library", "import agentrl as arl\nprint(arl.double(4))", "8\n"),
        code("data", "print(open('data/numbers.txt').read())", "1 2 3\n\n"),
        code("write", "with open('data/numbers.txt', 'w') as f: n = f.write('changed')"),
        code("move", LEAK),
        code("environment", ENVIRONMENT, "['UTC', '80', '1', 'Agg', '1', '0', '1'] None\n__main__ False True ''\n"),
    ],
    "05-after": [
        code("leaks", LEAKS, "False None a\n"),
        code("folder", "print(os.path.basename(os.getcwd()), open('data/numbers.txt').read())", "chapters 1 2 3\n\n"),
        code("lab", "print('real model')", "42\n", output="lab"),
    ],
}  # fmt: skip


def write_modules(root: Path, version: str = "0.0.1") -> Path:
    """Write the book of everything that must pass."""
    write_book(root, MODULES, version)
    (root / "chapters" / "data").mkdir()
    (root / "chapters" / "data" / "numbers.txt").write_text("1 2 3\n", encoding="utf-8")
    uses = code("setup", "%%capture\n%run ../01-basics.ipynb")
    cells = [uses, md("one", "## Exercise 1.1 ★"), code("answer", "print(double(21), x)", "42 2\n")]
    write_chapter(root, "01-basics", cells, kind="solutions")
    return root


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Checked]:
    root = write_modules(tmp_path_factory.mktemp("good"))
    return root, check(root, "-j", "2", "--junit", str(root / "junit.xml"))


def test_all_that_notebooks_can_do_passes(good: tuple[Path, Checked]) -> None:
    root, checked = good
    assert checked.code == 0, checked.out + checked.err
    count = sum(map(len, MODULES.values())) + 1
    assert checked.last == f"{count} passed, 0 failed, 1 skipped"
    assert [checked.status(label) for label in ("01", "01/solutions", "05")] == ["ok", "ok", "ok"]
    assert (root / "chapters" / "data" / "numbers.txt").read_text() == "1 2 3\n"


def test_lab_cells_are_skipped_by_name_without_a_model(good: tuple[Path, Checked]) -> None:
    root, checked = good
    assert "lab cells, compared loosely: 1, 0 run, 1 skipped: 05 · lab (no real model here)" in checked.out
    assert junit_cases(root / "junit.xml")["05"]["lab"].status == "skipped"


@pytest.mark.parametrize("engine", ["--kernel", "--spawn"])
def test_engines_agree(good: tuple[Path, Checked], engine: str) -> None:
    root, checked = good
    other = check(root, engine, "--no-cache", "-j", "2")
    assert other.code == 0, other.out + other.err
    assert without_seconds(other.out) == without_seconds(checked.out)


def without_seconds(text: str) -> str:
    """Return a report without its times."""
    return re.sub(r" +\d+\.\d s  ", " S ", text)


def test_a_lab_cell_runs_with_a_model_and_its_difference_is_a_note(tmp_path: Path) -> None:
    cells = [
        code("drifts", "import os\nprint(os.listdir(os.environ['AGENTRL_MODEL_DIR']))", "other\n", output="lab"),
        code("exact", "print(1)", "1\n"),
    ]
    write_book(tmp_path, {"01-lab": cells, "02-broken": [code("raises", "1 / 0", output="lab")]})
    (tmp_path / "labs" / "model").mkdir(parents=True)
    (tmp_path / "labs" / "model" / "weights").touch()
    checked = check(tmp_path)
    assert (checked.status("01"), checked.status("02")) == ("ok", "failed")
    assert "note chapters/01-lab.ipynb · cell drifts" in checked.out
    assert "+['weights']" in checked.out
    assert "lab cells, compared loosely: 2, 2 run, 0 skipped" in checked.out


def test_the_report_does_not_depend_on_how_many_run_at_once(tmp_path: Path) -> None:
    slow = code("slow", "import time\ntime.sleep(0.4)\nprint(1)", "2\n")
    bad = [code("bad", "print('x')", "y\n"), code("worse", "1 / 0"), code("unseen", "print(1)")]
    write_book(tmp_path, {"01-slow": [slow], "02-bad": bad, "03-good": [code("a", "print(3)", "3\n")]})
    one, two = (check(tmp_path, "--no-cache", "-j", n) for n in ("1", "2"))
    assert without_seconds(one.out) == without_seconds(two.out)
    assert (one.code, two.code) == (1, 1)


def test_a_difference_is_shown_with_place_mark_and_how_to_accept(tmp_path: Path) -> None:
    text = "step 1  value 0.2857\nstep 2  value 0.5714\n"
    source = f"print({text!r}, end='')"
    recorded = text.replace("0.5714", "0.5715")
    path = write_chapter(tmp_path, "06-gradients", [md("title", "# Six"), code("steps", source, recorded)])
    checked = check(tmp_path, "06")
    assert checked.code == 1
    line = next(i for i, text in enumerate(path.read_text().split("\n"), 1) if "print(" in text)
    assert f"FAIL chapters/06-gradients.ipynb · cell steps (code cell 1, line {line} of the file)" in checked.out
    lines = checked.out.splitlines()
    assert any(entry.strip() == "-step 2  value 0.5715" for entry in lines)
    mark = next(i for i, entry in enumerate(lines) if entry.strip() == "^")
    assert lines[mark - 1][lines[mark].index("^")] == "4"
    assert "only numbers differ" in checked.out
    assert "python scripts/check_chapters.py 06 --update" in checked.out
    assert checked.last == "0 passed, 1 failed"


def test_prefixes_select_chapters_and_solutions(tmp_path: Path) -> None:
    cell = [code("a", "print(1)", "1\n")]
    write_book(tmp_path, {"00-zero": cell, "01-one": cell, "10-ten": cell, "A-extra": cell})
    write_chapter(tmp_path, "01-one", cell, kind="solutions")
    listed = {
        prefixes: [line.split()[0] for line in check(tmp_path, "--list", *prefixes).out.splitlines()]
        for prefixes in [(), ("0",), ("01",), ("01/solutions",), ("A", "10"), ("--no-solutions", "0")]
    }
    assert listed == {
        (): ["00", "01", "01/solutions", "10", "A"],
        ("0",): ["00", "01", "01/solutions"],
        ("01",): ["01", "01/solutions"],
        ("01/solutions",): ["01/solutions"],
        ("A", "10"): ["10", "A"],
        ("--no-solutions", "0"): ["00", "01"],
    }
    nothing = check(tmp_path, "--no-solutions", "01/solutions")
    assert nothing.code == 2
    assert "no chapter starts with '01/solutions'; there are 00, 01, 10, A" in nothing.err
    unknown = check(tmp_path, "07")
    assert unknown.code == 2
    assert "no chapter starts with '07'; there are 00, 01, 01/solutions, 10, A" in unknown.err


def test_a_library_that_cannot_be_built_stops_the_chapters_after_it(tmp_path: Path) -> None:
    bad = [code("save", "#@save\ndef f(:\n    pass")]
    fine = [code("a", "print(1)", "1\n")]
    write_book(tmp_path, {"01-fine": fine, "02-bad": bad, "03-after": fine})
    checked = check(tmp_path)
    assert checked.code == 2
    assert "chapters/02-bad.ipynb · cell save" in checked.out
    assert checked.status("01") == "ok"
    assert not re.search("^03 ", checked.out, re.MULTILINE)
    said = "not everything could be checked: 1 problem above stood in the way; left out: 03"
    assert said in checked.out.splitlines()
    assert check(tmp_path, "01").code == 0
    assert check(tmp_path, "03").code == 2


def test_no_book_is_an_error(tmp_path: Path) -> None:
    checked = check(tmp_path)
    assert checked.code == 2
    assert "a book has chapters/" in checked.out


def test_a_report_cannot_be_a_folder(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-a": [code("a", "print(1)", "1\n")]})
    checked = check(tmp_path, "--junit", str(tmp_path))
    assert (checked.code, checked.out) == (2, "")
    assert f"--junit {tmp_path}: a folder; name a file" in checked.err


def test_a_report_appears_whole_and_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-a": [code("a", "print(1)", "1\n")]})
    report, pipe = tmp_path / "reports" / "j.xml", tmp_path / "pipe"
    report.parent.mkdir()
    report.write_text("old")
    with open(report) as reader:  # whoever has the old file open never sees half of a new one
        assert check(tmp_path, "--junit", str(report)).code == 0
        assert reader.read() == "old"
    assert [path.name for path in report.parent.iterdir()] == ["j.xml"]
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert check(tmp_path, "--junit", str(pipe)).code == 0
    assert os.read(reading, 65536).endswith(b"</testsuites>\n")
    os.close(reading)
    assert pipe.is_fifo()
    assert "</testsuites>" in check(tmp_path, "--junit", "/dev/stdout").out


def test_a_report_that_cannot_be_written_is_exit_code_two(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-a": [code("a", "print(1)", "1\n")]})
    checked = check(tmp_path, "--junit", str(tmp_path / "pyproject.toml" / "junit.xml"))
    assert checked.code == 2
    assert checked.last == "1 passed, 0 failed"
    assert "check_chapters: cannot read or write: " in checked.err
    assert "Traceback" not in checked.err


def test_a_lock_and_a_project_that_are_not_utf8_are_no_traceback(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-a": [code("a", "print(1)", "1\n")]})
    (tmp_path / "requirements.lock").write_bytes(b"torch \xff\n")
    assert check(tmp_path).code == 0
    (tmp_path / "pyproject.toml").write_bytes(b"[project] \xff\n")
    checked = check(tmp_path)
    assert (checked.code, checked.err) == (2, "")
    assert "pyproject.toml: error: not readable" in checked.out


def test_another_installed_library_is_never_imported(tmp_path: Path) -> None:
    other = tmp_path / "site"
    (other / "agentrl").mkdir(parents=True)
    (other / "agentrl" / "__init__.py").write_text("late = 1\n")
    reach = f"import sys\nsys.path.insert(0, {str(other)!r})"
    first = [code("reach", reach), code("import", "import agentrl\nprint(hasattr(agentrl, 'late'))", "False\n")]
    asks = "import agentrl as arl\nprint(arl.double(1), hasattr(arl, 'late'))"
    child = f"import subprocess, sys\nr = subprocess.run([sys.executable, '-c', {asks!r}])"
    second = [code("reach", reach), code("lib", asks, "2 False\n"), code("child", child, "2 False\n")]
    write_book(tmp_path, {"01-first": [*first, code("save", DOUBLE)], "02-second": second})
    for engine in ("-j1", "--spawn", "--kernel"):
        checked = check(tmp_path, "--no-cache", engine, PYTHONPATH=str(other))
        assert checked.code == 0, checked.out


def test_github_annotations_point_at_the_cell(tmp_path: Path) -> None:
    path = write_chapter(tmp_path, "01-a", [code("x", "y = 0\n1 / y")])
    line = next(i for i, text in enumerate(path.read_text().split("\n"), 1) if "1 / y" in text)
    checked = check(tmp_path, GITHUB_ACTIONS="true")
    assert f"::error file=chapters/01-a.ipynb,line={line}::cell x: ZeroDivisionError" in checked.out
    assert "::error" not in check(tmp_path).out


def test_junit_holds_what_xml_cannot(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-odd": [code("odd", "print('\\x00\\x1b[31m <&> \\ud800')"), code("after", "1 / 0")]})
    odd = [code("odd-\x01-id", "print(1)", "1\n")]
    write_chapter(tmp_path, "03-odd-too", odd)
    (tmp_path / "chapters" / "02-broken.ipynb").write_text("[]", encoding="utf-8")
    (tmp_path / "chapters" / os.fsdecode(b"04-\xff.ipynb")).write_text("[]", encoding="utf-8")
    checked = check(tmp_path, "--junit", str(tmp_path / "deep" / "j.xml"))
    assert checked.code == 2
    cases = junit_cases(tmp_path / "deep" / "j.xml")
    assert cases["01"]["odd"].status == "failed"
    assert "\\x1b[31m <&> ?" in cases["01"]["odd"].text
    assert "not a notebook" in cases["book"]["problem-1"].message
    assert cases["03"]["odd-\\x01-id"].status == "passed"
    assert "04-\\udcff.ipynb" in cases["book"]["problem-2"].message


STUB = code("stub", "def half(x):\n    raise NotImplementedError", role="stub", exercise="1.3")
SOLUTION = code("solution", "def half(x):\n    return x / 2", role="solution", exercise="1.3")
TEST = code("test", "assert half(4) == 2\nprint('passed')", "passed\n", role="test", exercise="1.3")


def solutions(root: Path, cells: list[CellDict]) -> Checked:
    """Check a book whose solutions have these cells."""
    write_book(root, {"01-a": [code("a", "print(1)", "1\n")]})
    write_chapter(root, "01-a", [code("setup", "%%capture\n%run ../01-a.ipynb"), *cells], kind="solutions")
    return check(root, "01/solutions", "--no-cache", "--timeout", "5")


def test_a_stub_must_fail_its_test_and_the_solution_pass(tmp_path: Path) -> None:
    checked = solutions(tmp_path, [STUB, SOLUTION, TEST, code("state", "print(half(3))", "1.5\n")])
    assert checked.code == 0, checked.out


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([{**STUB, "source": "half = lambda x: x / 2"}, SOLUTION, TEST], "exercise 1.3: the stub passes its test"),
        ([{**STUB, "source": "import os\nhalf = lambda x: os._exit(0)"}, SOLUTION, TEST], "the stub passes its test"),
        (
            [{**STUB, "source": "def half(x):\n    while True: pass"}, SOLUTION, TEST],
            "did not end on the stub within 5 s",
        ),
        ([STUB, {**SOLUTION, "source": "half = lambda x: x"}, TEST], "AssertionError"),
        ([SOLUTION, TEST], "exercise 1.3 has no stub cell"),
        ([STUB, SOLUTION], "exercise 1.3 has no test cell"),
        ([STUB, TEST], "exercise 1.3 has no solution cell"),
        ([STUB, STUB | {"id": "again"}, SOLUTION, TEST], "more than one stub or test cell"),
        ([SOLUTION, STUB, TEST], "the order is solution, stub, test"),
        ([STUB, SOLUTION, TEST, code("x", "y = 1", role="hint", exercise="1.3")], "role 'hint' is none of"),
        ([STUB, SOLUTION, TEST, code("x", "y = 1", role="test")], "has a role but no exercise"),
    ],
    ids=[
        "passes",
        "exits",
        "loops",
        "wrong-solution",
        "no-stub",
        "no-test",
        "no-solution",
        "two",
        "order",
        "role",
        "bare",
    ],
)
def test_exercises_that_are_not_in_order(tmp_path: Path, cells: list[CellDict], words: str) -> None:
    checked = solutions(tmp_path, cells)
    assert checked.code == 1
    assert words in checked.out


def test_the_probe_of_a_stub_leaves_no_trace(tmp_path: Path) -> None:
    test = {**TEST, "source": "print('tested')\nseen.append(1)\nassert half(4) == 2"}
    after = code("after", "print(seen)", "[1]\n")
    start = code("start", "seen = []")
    test["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["tested\n"]}]
    checked = solutions(tmp_path, [start, STUB, SOLUTION, test, after])
    assert checked.code == 0, checked.out


def test_an_error_in_a_notebook_that_is_run_names_its_cell(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-a": [code("deep", "x = 1\n1 / 0")]})
    write_chapter(tmp_path, "01-a", [code("setup", "%%capture\n%run ../01-a.ipynb")], kind="solutions")
    checked = check(tmp_path, "01/solutions")
    assert checked.code == 1
    assert "chapters/01-a.ipynb:deep:2" in checked.out


def test_options_are_checked(tmp_path: Path) -> None:
    for options in (["--timeout", "0"], ["--timeout", "x"], ["-j", "0"], ["--env", "X"], ["--env", "=x"]):
        done = subprocess.run(
            command(write_book(tmp_path, {"01-a": [code("a", "x = 1")]}), *options),
            env=clean_environment(), capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 2, options
        assert "Traceback" not in done.stderr
        assert "_seconds" not in done.stderr


def test_render_is_what_a_terminal_shows() -> None:
    assert render("abcd\rxy") == "xycd"
    assert render("ab\b\bc\n") == "cb\n"
    assert render("a\r\nb") == "a\nb"
    assert render("\b\bx") == "x"
    assert differences("1\r2\n", "2\n") == []


def test_differences_mark_the_first_differing_character() -> None:
    lines = differences("same\nab c\n", "same\nabxc\n")
    mark = lines.index(next(line for line in lines if line.strip() == "^"))
    column = lines[mark].index("^")
    assert (lines[mark - 2][column], lines[mark - 1][column]) == (" ", "x")
    assert numbers_only("loss 0.5\n", "loss -12.25\n")
    assert not numbers_only("loss 0.5\n", "gain 0.5\n")
    assert "only blanks differ" in "\n".join(differences("a\n", "a \n"))
    assert any("(nothing)" in line for line in differences("", "x\n"))
    lines = differences("a\n", "b\n", ("one run", "another run"))
    assert lines[:2] == ["--- one run", "+++ another run"]
    assert lines[-4:-1] == [
        "first difference, line 1 of 1 (one run) and 1 (another run):",
        "one run:     a␊",
        "another run: b␊",
    ]


def test_differences_of_long_texts_stay_short() -> None:
    old = "".join(f"{i}\n" for i in range(50_000))
    new = old.replace("25000\n", "x\n")
    lines = differences(old, new)
    assert len(lines) < 60
    assert "-25000" in lines


def test_pinned_environment_wins_over_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "x")
    monkeypatch.setenv("LC_NUMERIC", "de_DE.UTF-8")
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.setenv("PATHS_OF_MKL_", "x")
    found = environment(pinned())
    assert (found["OMP_NUM_THREADS"], found["PYTHONHASHSEED"], found["LC_ALL"]) == ("1", "0", "C.UTF-8")
    assert not {"PYTEST_CURRENT_TEST", "LC_NUMERIC", "PYTHONOPTIMIZE", "MKL_CBWR"} & set(found)
    assert (found["PATHS_OF_MKL_"], found["PATH"]) == ("x", os.environ["PATH"])
    assert environment(pinned(override={"MKL_CBWR": "AUTO"}))["MKL_CBWR"] == "AUTO"
    assert environment(pinned(override={"OMP_NUM_THREADS": "2"}))["OMP_NUM_THREADS"] == "2"


def test_only_what_the_code_imports_is_preloaded() -> None:
    assert wanted_modules(["x = 1  # import torch"]) == []
    assert wanted_modules(["import numpy as np", "def f():\n    from torch import nn"]) == ["numpy", "torch"]
    steps = ["import torch", "optimiser = torch.optim.Adam(parameters)"]
    assert wanted_modules(steps) == ["torch", "torch._dynamo"]
    assert wanted_modules(steps[1:]) == []


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("import math", "none"),
        ("import numpy", "numpy"),
        ("import torch", "torch"),
        ("import numpy, torch\nimport torch", "torch"),
        ("import os\nos.environ['OMP_NUM_THREADS'] = '2'\nimport torch", "none"),
        ("from os import environ\nenviron |= settings\nimport torch", "none"),
        ("import os\nos.environ.update(settings)\nimport numpy", "none"),
        ("import os\ndel os.environ['A']\nimport torch", "none"),
        ("import os\nos.putenv('A', 'b')\nimport torch", "none"),
        ("%env OMP_NUM_THREADS=2\nimport torch", "none"),
        ("import os\nimport torch\nprint(os.environ.get('A'), os.environ['B'], os.environ['C'] == 'd')", "torch"),
    ],
)
def test_which_server_a_notebook_runs_in(source: str, kind: str) -> None:
    assert kind_of([source]) == kind


def test_what_is_imported_already_does_not_depend_on_the_chapters_chosen(tmp_path: Path) -> None:
    loaded = code("loaded", "import sys\nprint('numpy' in sys.modules, 'torch' in sys.modules)", "False False\n")
    setting = "import os\nos.environ['ATEN_CPU_CAPABILITY'] = 'default'\nimport torch"
    chapters = {
        "01-plain": [loaded],
        "02-numpy": [code("numpy", "import numpy\nimport sys\nprint('torch' in sys.modules)", "False\n")],
        "03-torch": [code("torch", "import torch\nprint(torch.ones(1).item())", "1.0\n")],
        "04-sets": [code("set", setting), code("use", "print(torch.backends.cpu.get_cpu_capability())", "DEFAULT\n")],
    }
    write_book(tmp_path, chapters)
    for prefixes in ([], ["01"], ["01", "02"]):
        checked = check(tmp_path, "--no-cache", *prefixes)
        assert checked.code == 0, checked.out


UNSAFE = """
import sys, threading
from bookkit import forkserver
threading.Thread(target=threading.Event().wait, daemon=True).start()
try:
    forkserver.assert_fork_safe()
except forkserver.UnsafeFork as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_a_server_with_threads_refuses_to_fork() -> None:
    scripts = str(Path(__file__).resolve().parents[1] / "scripts")
    done = subprocess.run(
        [sys.executable, "-c", UNSAFE], env=clean_environment(PYTHONPATH=scripts), capture_output=True, text=True
    )
    assert "the fork server has 2 threads after importing" in done.stdout, done.stderr


STOPPED = """
import os, signal, time
from bookkit import forkserver, supervisor
supervisor.adopt_orphans()
child = os.fork()
if child == 0:
    if os.fork() == 0:
        time.sleep(3600)
    os.kill(os.getpid(), signal.SIGSTOP)
while not supervisor.child_pids(child):
    time.sleep(0.01)
os.waitpid(child, os.WUNTRACED)
forkserver._wait_for({child}, patience=0.1)
print("left:", len(supervisor.child_pids(os.getpid())))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="adopting orphans is Linux's")
def test_a_stopped_supervisor_and_what_it_started_are_killed_in_the_end() -> None:
    scripts = str(Path(__file__).resolve().parents[1] / "scripts")
    done = subprocess.run(
        [sys.executable, "-c", STOPPED],
        env=clean_environment(PYTHONPATH=scripts), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "left: 0\n", done.stderr


def test_cells_are_counted_once_in_json(good: tuple[Path, Checked]) -> None:
    root, _ = good
    raw = json.loads((root / "chapters" / "01-basics.ipynb").read_text(encoding="utf-8"))
    assert len(junit_cases(root / "junit.xml")["01"]) == sum(c["cell_type"] == "code" for c in raw["cells"])


LOOKING = [
    "%run ../02-two.ipynb",
    "open('../' + '02-two.ipynb')",
    "print(f'{name}.ipynb')",
    "import os\nprint(os.listdir('..'))",
    "from os import walk as go",
    "from pathlib import Path\nprint(list(Path().glob('*')))",
    "import tarfile\ntarfile.open('x.tar', 'w').add('.')",
    "from zipfile import ZipFile",
    "from shutil import copytree, make_archive",
    "import shutil\nshutil.copytree('.', 'x')",
    "import filecmp",
    "import subprocess as s",
    "import asyncio\nawait asyncio.create_subprocess_shell('ls')",
    "import os\nos.system('ls')",
    "import os\nos.execlp('ls', 'ls')",
    "get_ipython().getoutput('ls')",
    "!ls",
    "    !ls",
    "names = !ls",
    "x = %sx ls",
    "%ls",
    "%%bash\nls",
    "for",
]
STAYING = [
    "%%capture\n%run ../01-one.ipynb",
    "if True:\n    %run ../01-one.ipynb",
    "print(open('data.txt').read())",
    '"""Built from chapters/01-one.ipynb."""\nx = 1',
    "x = 1  # as in 02-two.ipynb",
    "system, fork = solve()\nprint(system.T)",
    "print({'role': 'system'}, 7 % 3, a != b, f'{x!r}', 'a random walk')",
    "model.eval()\nexecuted = glob_norm(model)",
    "import asyncio\nawait asyncio.sleep(0)",
    "exec(source, names)",
]


@pytest.mark.parametrize(
    ("source", "expected"), [*((source, True) for source in LOOKING), *((source, False) for source in STAYING)]
)
def test_code_that_could_look_at_other_notebooks(source: str, expected: bool) -> None:
    assert looks_around("01-one.ipynb", ["x = 1", source]) is expected


def test_of_the_library_only_what_lists_files_counts() -> None:
    assert not looks_around("", ["import agentrl as arl"], ["import subprocess\nsubprocess.run(command)"])
    assert looks_around("", ["import agentrl as arl"], ["import os\nos.listdir()"])


def test_a_chapter_that_runs_its_own_solutions_names_another_notebook() -> None:
    assert looks_around("", ["%run solutions/01-one.ipynb"])


def test_other_notebooks_are_there_where_code_could_look_at_them(tmp_path: Path) -> None:
    listing = 'import os\n\n\ndef names() -> list[str]:\n    """Return names."""\n    return os.listdir()'
    saved = code("save", f"#@save\n{listing}")
    chapters = {
        "01-plain": [code("a", "print(open('a.txt').read())")],
        "02-lists": [code("b", "import os\nprint(os.listdir())")],
        "03-saves": [saved],
        "04-uses": [code("d", "import agentrl as arl\nprint(arl.names())")],
        "05-does-not": [code("e", "print(1)")],
    }
    write_book(tmp_path, chapters)
    for number in ("01", "03"):
        write_chapter(tmp_path, {"01": "01-plain", "03": "03-saves"}[number], [code("s", "x = 1")], kind="solutions")
    assert {label: names for label, names in staged_notebooks(tmp_path).items() if len(names) < 7} == {
        "01": ["01-plain"],
        "01/solutions": ["01-plain", "solutions/01-plain"],
        "05": ["05-does-not"],
    }
    (tmp_path / "chapters" / "helper.py").write_text("import os\nnames = os.listdir('.')\n", encoding="utf-8")
    assert {len(names) for names in staged_notebooks(tmp_path).values()} == {7}


def staged_notebooks(root: Path) -> dict[str, list[str]]:
    """Return the names of the notebooks that each notebook of a book finds in its copy of chapters/."""
    found = {}
    for job in make_plan(root, [], remember=False).jobs:
        stage = Stage(job)
        paths = (stage.book / "chapters").rglob("*.ipynb")
        found[job.chapter.label] = sorted(
            p.relative_to(stage.book / "chapters").with_suffix("").as_posix() for p in paths
        )
        stage.remove()
    return found


def test_programs_linked_folders_and_folders_named_zh_are_there(tmp_path: Path) -> None:
    source = (
        "print(open('data/zh/a').read())\n!./tool.sh\nwith open('data/zh/a', 'w') as file:\n    n = file.write('x')"
    )
    write_book(tmp_path, {"01-a": [code("a", source, "linked\nhi\n")]})
    chapters = tmp_path / "chapters"
    (tmp_path / "shared" / "zh").mkdir(parents=True)
    (tmp_path / "shared" / "zh" / "a").write_text("linked", encoding="utf-8")
    (chapters / "data").symlink_to("../shared")
    (chapters / "tool.sh").write_text("#!/bin/sh\necho hi\n", encoding="utf-8")
    (chapters / "tool.sh").chmod(0o755)
    (chapters / "zh").mkdir()
    os.mkfifo(chapters / "pipe")
    checked = check(tmp_path)
    assert checked.code == 0, checked.out
    assert (tmp_path / "shared" / "zh" / "a").read_text(encoding="utf-8") == "linked"


@pytest.mark.parametrize("target", [".", "..", "/", "deep/.."])
def test_a_link_without_end_is_named(tmp_path: Path, target: str) -> None:
    write_book(tmp_path, {"01-a": [code("a", "print(1)", "1\n")]})
    (tmp_path / "chapters" / "deep").mkdir()
    (tmp_path / "chapters" / "link").symlink_to(target)
    plan = make_plan(tmp_path, [], remember=False)
    assert plan.jobs == ()
    (problem,) = plan.problems
    assert problem.path == "chapters/link"
    assert problem.message.startswith(f"a link to {(tmp_path / 'chapters' / target).resolve()}, a folder that the link")


def test_links_to_each_other_are_named(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-a": [code("a", "print(1)", "1\n")]})
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / "chapters" / name).mkdir()
        (tmp_path / "chapters" / name / "link").symlink_to(f"../{other}")
    checked = check(tmp_path)
    assert (checked.code, checked.err) == (2, "")
    assert "chapters/a/link/link: error: a link to " in checked.out


@pytest.mark.parametrize("what", ["chapters", "chapters/01-a.ipynb"])
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_chapters_and_notebooks_may_be_links_within_the_book(tmp_path: Path, what: str, inside: bool) -> None:
    root = write_book(tmp_path / "book", {"01-a": [code("a", "print(1)", "2\n")]})
    real = (root if inside else tmp_path) / "real" / Path(what).name
    real.parent.mkdir()
    (root / what).rename(real)
    (root / what).symlink_to(real)
    checked = check(root)
    assert checked.err == ""
    if not inside:
        assert checked.code == 2
        assert f"{what}: error: a link to {real}, which is outside the book's folder {root}" in checked.out
        return
    assert checked.status("01") == "differs"
    assert check(root, "--update").status("01") == "recorded"
    assert (root / what).is_symlink()
    assert check(root).status("01") == "cached"


@pytest.mark.parametrize("script", ["check_chapters.py", "determinism.py"])
def test_a_book_without_chapters_and_temporary_files_among_them_are_refused(tmp_path: Path, script: str) -> None:
    def run(**extra: str) -> str:
        path = Path(__file__).resolve().parents[1] / "scripts" / script
        arguments = ["--planted", "0", "--settings", "time-zone"] if script == "determinism.py" else []
        done = subprocess.run(
            [sys.executable, str(path), "--root", str(tmp_path), *arguments],
            env=clean_environment(**extra), capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 2, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    chapters = tmp_path / "chapters"
    chapters.mkdir()
    assert f"there is no chapter in {chapters}" in run()
    write_book(tmp_path, {"01-a": [code("a", "print(1)", "1\n")]})
    (chapters / "tmp").mkdir()
    assert f"temporary files go to {chapters / 'tmp'}, in the book's chapters" in run(TMPDIR=str(chapters / "tmp"))
