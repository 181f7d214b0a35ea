"""What makes a cached result hold and what does not; the verdict is never cached."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from checking import Checked, check, command, environment, wait_until
from killing import files
from synthetic import CellDict, code, md, write_book, write_chapter

from bookkit.cache import model_files, package_folders, processor, versions
from bookkit.checker import make_plan
from bookkit.runner import Job
from bookkit.stage import Stage, Tree

SAVE = '#@save\ndef double(x: int) -> int:\n    """Return twice x."""\n    return 2 * x'
READ = "with open('data/a.txt') as file:\n    print(file.read().strip())"
FIRST = [md("title", "# One"), code("save", SAVE), code("use", "print(double(2))", "4\n")]
SECOND = [code("import", "import agentrl as arl"), code("use", "print(arl.double(1))", "2\n")]
THIRD = [code("read", READ, "one\n")]
FOURTH = [code("list", "import os\nprint(sorted(os.listdir('data')))", "['a.txt', 'b.txt']\n")]
FIFTH = [code("child", "import subprocess\nr = subprocess.run(['head', '-n1', 'data/a.txt'])", "one\n")]
ALL = ("01", "01/solutions", "02", "03", "04", "05")


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """Return a book whose results are all in the cache."""
    chapters = {"01-one": FIRST, "02-two": SECOND, "03-three": THIRD, "04-four": FOURTH, "05-five": FIFTH}
    write_book(tmp_path, chapters)
    (tmp_path / "chapters" / "data").mkdir()
    for name, text in (("a.txt", "one\n"), ("b.txt", "two\n")):
        (tmp_path / "chapters" / "data" / name).write_text(text, encoding="utf-8")
    (tmp_path / "requirements.lock").write_text("numpy==2.0\n", encoding="utf-8")
    write_solutions(tmp_path)
    assert check(tmp_path, "-j", "2").code == 0
    return tmp_path


def write_solutions(root: Path, comment: str = "") -> None:
    """Write solutions that run their chapter."""
    use = f"print(double(5))  {comment}".rstrip()
    cells = [code("setup", "%%capture\n%run ../01-one.ipynb"), code("use", use, "10\n")]
    write_chapter(root, "01-one", cells, kind="solutions")


def rerun(checked: Checked) -> list[str]:
    """Return the notebooks that were not taken from the cache."""
    return [label for label in ALL if checked.status(label) != "cached"]


def rewrite(name: str, cells: list[CellDict]) -> Callable[[Path], object]:
    """Return an edit that writes a chapter anew."""
    return lambda root: write_chapter(root, name, cells)


def write(name: str, text: str) -> Callable[[Path], object]:
    """Return an edit that writes a file below the root."""
    return lambda root: (root / name).write_text(text, encoding="utf-8")


MORE = SAVE + '\n\ndef triple(x: int) -> int:\n    """Return three times x."""\n    return 3 * x'
# Chapters 04 and 05 list a folder and start a program: they could look at any notebook, whatever is in it.
EDITS: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "nothing": (lambda root: None, []),
    "prose": (rewrite("01-one", [md("title", "# Another title"), *FIRST[1:]]), ["04", "05"]),
    "time stamp": (lambda root: (root / "chapters" / "03-three.ipynb").touch(), []),
    "code": (rewrite("03-three", [code("read", READ + "  # same", "one\n")]), ["03", "04", "05"]),
    "tags": (rewrite("03-three", [code("read", READ, "one\n", tags=["slow"])]), ["03", "04", "05"]),
    # Chapters after 01 see another library, its solutions another chapter; 01 itself has other code.
    "library": (rewrite("01-one", [FIRST[0], code("save", MORE), FIRST[2]]), list(ALL)),
    "code of a chapter that solutions run": (
        rewrite("01-one", [*FIRST, code("new", "x = 1")]),
        ["01", "01/solutions", "04", "05"],
    ),
    "solutions": (lambda root: write_solutions(root, "# more"), ["01/solutions", "04", "05"]),
    # Cells can read a file in more ways than can be watched.
    "data file": (write("chapters/data/b.txt", "three\n"), list(ALL)),
    "lock": (write("requirements.lock", "numpy==2.1\n"), list(ALL)),
}


@pytest.mark.parametrize("edit", EDITS, ids=lambda name: name.replace(" ", "-"))
def test_what_is_run_again_after_an_edit(book: Path, edit: str) -> None:
    change, expected = EDITS[edit]
    change(book)
    checked = check(book, "-j", "2")
    assert checked.code == 0, checked.out
    assert rerun(checked) == expected
    assert rerun(check(book)) == []


def test_a_new_file_in_a_listed_folder_runs_it_again(book: Path) -> None:
    (book / "chapters" / "data" / "c.txt").touch()
    checked = check(book, "04")
    assert checked.status("04") == "differs"


def test_a_recorded_run_is_there_for_a_chapter_and_its_solutions_and_an_edit_of_it_is_seen(tmp_path: Path) -> None:
    read = "from pathlib import Path\nprint(Path({!r}).read_text())"
    write_book(tmp_path, {"01-one": [code("read", read.format("recorded/01-run.json"), "[0.5]\n")]})
    write_chapter(
        tmp_path, "01-one", [code("read", read.format("../recorded/01-run.json"), "[0.5]\n")], kind="solutions"
    )
    (tmp_path / "chapters" / "recorded").mkdir()
    write("chapters/recorded/01-run.json", "[0.5]")(tmp_path)
    for status in ("ok", "cached"):
        checked = check(tmp_path)
        assert [checked.status(label) for label in ("01", "01/solutions")] == [status, status]
    write("chapters/recorded/01-run.json", "[0.75]")(tmp_path)
    checked = check(tmp_path)
    assert [checked.status(label) for label in ("01", "01/solutions")] == ["differs", "differs"]
    assert checked.out.count("+[0.75]") == 2


def test_an_edited_output_is_compared_from_the_cache_and_fails(book: Path) -> None:
    write_chapter(book, "03-three", [code("read", READ, "two\n")])
    write_chapter(book, "02-two", [SECOND[0], {**SECOND[1], "execution_count": "never"}])
    checked = check(book)
    assert checked.code == 1
    assert checked.status("03") == "differs"
    assert "+one" in checked.out
    assert "never run" in checked.out
    assert rerun(checked) == ["02", "03", "04", "05"]
    assert " 0.0 s  differs" in checked.out
    write_chapter(book, "03-three", THIRD)
    assert check(book, "03").status("03") == "cached"


def test_failures_are_not_cached(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-bad": [code("flaky", "x = 1\nx")], "02-dies": [code("dies", "1 / 0")]})
    assert check(tmp_path).code == 1
    assert not list((tmp_path / ".cache" / "checker").glob("0*.json"))
    again = check(tmp_path)
    assert (again.status("01"), again.status("02")) == ("failed", "failed")


def damage_json(path: Path) -> None:
    """Change a result and leave the checksum as it was."""
    entry = json.loads(path.read_text(encoding="utf-8"))
    entry["cells"][0]["stdout"] = "forged\n"
    path.write_text(json.dumps(entry), encoding="utf-8")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "empty": lambda path: path.write_bytes(b""),
    "not text": lambda path: path.write_bytes(b"\xff\x00\xfe"),
    "another shape": lambda path: path.write_text('["entry"]'),
    "forged": damage_json,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "nested too deeply": lambda path: path.write_text("[" * 100_000),
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda name: name.replace(" ", "-"))
def test_a_damaged_entry_is_ignored_and_said_to_be(tmp_path: Path, damage: str) -> None:
    write_book(tmp_path, {"01-one": [code("a", "print(1)", "1\n")]})
    assert check(tmp_path).code == 0
    (entry,) = (tmp_path / ".cache" / "checker").glob("01.*.json")
    DAMAGES[damage](entry)
    checked = check(tmp_path)
    assert (checked.code, checked.status("01")) == (0, "ok")
    assert "cache: 1 damaged entry ignored" in checked.out


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda name: name.replace(" ", "-"))
def test_a_damaged_library_is_built_again_and_said_to_be(tmp_path: Path, damage: str) -> None:
    write_book(tmp_path, {"01-one": FIRST, "02-two": SECOND})
    assert check(tmp_path).code == 0
    (entry,) = (tmp_path / ".cache" / "checker").glob("library.*.json")
    if damage == "forged":
        entry.write_text(entry.read_text(encoding="utf-8").replace("double", "trouble"), encoding="utf-8")
    else:
        DAMAGES[damage](entry)
    checked = check(tmp_path)
    assert (checked.code, checked.status("01"), checked.status("02")) == (0, "cached", "cached")
    assert "cache: 1 damaged entry ignored" in checked.out


def test_without_cache_everything_runs_and_nothing_is_kept(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-one": [code("a", "print(1)", "1\n")]})
    for _ in range(2):
        assert check(tmp_path, "--no-cache").status("01") == "ok"
    assert not (tmp_path / ".cache").exists()


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-one": [code("a", "print(1)", "1\n")]})
    (tmp_path / ".cache").write_text("a file where the folder should be")
    for _ in range(2):
        assert check(tmp_path).status("01") == "ok"


def test_the_environment_and_the_model_are_part_of_the_key(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-one": [code("a", "print(1)", "1\n"), code("lab", "print(2)", "2\n", output="lab")]})
    assert check(tmp_path).status("01") == "ok"
    assert check(tmp_path, "--env", "OMP_NUM_THREADS=2").status("01") == "ok"
    (tmp_path / "labs" / "model").mkdir(parents=True)
    assert check(tmp_path).last == "2 passed, 0 failed"
    assert check(tmp_path, "--env", "OMP_NUM_THREADS=2").status("01") == "ok"
    assert check(tmp_path).status("01") == "cached"
    (tmp_path / "labs" / "model" / "weights").touch()
    assert check(tmp_path).status("01") == "ok"
    assert check(tmp_path).status("01") == "cached"


def test_only_a_few_entries_are_kept_for_a_notebook(tmp_path: Path) -> None:
    for number in range(6):
        write_book(tmp_path, {"01-one": [code("a", f"print({number})", f"{number}\n")]})
        assert check(tmp_path).code == 0
    assert len(list((tmp_path / ".cache" / "checker").glob("01.*.json"))) == 4
    assert len(list((tmp_path / ".cache" / "checker").glob("library.*.json"))) == 4
    assert check(tmp_path).status("01") == "cached"


def only_job(root: Path) -> Job:
    """Return the job of a book's only notebook."""
    (job,) = make_plan(root, [], remember=False).jobs
    return job


@pytest.mark.parametrize(
    ("source", "whole"),
    [("print(1)", False), ("import json\nprint(json.load(open('01-one.ipynb'))['metadata'])", True)],
    ids=["by-its-code", "whole-where-it-is-read"],
)
def test_how_a_notebook_counts_for_its_own_result(tmp_path: Path, source: str, whole: bool) -> None:
    def digest(cells: list[CellDict]) -> str:
        write_book(tmp_path, {"01-one": cells})
        return Tree(tmp_path).seen_by(only_job(tmp_path))

    plain = digest([md("m", "a"), code("a", source, "1\n")])
    assert plain == digest([md("m", "a"), code("a", source, "1\n")])
    assert (plain != digest([md("m", "b"), code("a", source, "1\n")])) is whole
    assert (plain != digest([md("m", "a"), code("a", source, "2\n", count=7)])) is whole
    assert plain != digest([md("m", "a"), code("a", source + "  #", "1\n")])


CHANGES: dict[str, tuple[Callable[[Path], object], bool]] = {
    "new file": (write("chapters/c.txt", ""), True),
    "new folder": (lambda root: (root / "chapters" / "new").mkdir(), True),
    "file gone": (lambda root: (root / "chapters" / "data" / "a.txt").unlink(), True),
    "right to execute": (lambda root: (root / "chapters" / "data" / "a.txt").chmod(0o755), True),
    "linked folder": (lambda root: (root / "chapters" / "link").symlink_to("data"), True),
    "time stamp": (lambda root: os.utime(root / "chapters" / "data" / "a.txt", (0, 0)), False),
    "translation": (lambda root: (root / "chapters" / "zh" / "data").mkdir(parents=True), False),
    "zh elsewhere": (lambda root: (root / "chapters" / "data" / "zh").mkdir(), True),
    "hidden file": (write("chapters/.hidden", ""), False),
    "another notebook": (write("chapters/02-two.ipynb", "{}"), False),
    "pipe": (lambda root: os.mkfifo(root / "chapters" / "pipe"), False),
    "link to nothing": (lambda root: (root / "chapters" / "link").symlink_to("nothing"), False),
    "link to itself": (lambda root: (root / "chapters" / "link").symlink_to("link"), False),
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda name: name.replace(" ", "-"))
def test_what_counts_below_chapters_and_is_copied(tmp_path: Path, change: str) -> None:
    write_book(tmp_path, {"01-one": [code("a", "print(1)", "1\n")]})
    (tmp_path / "chapters" / "data").mkdir()
    (tmp_path / "chapters" / "data" / "a.txt").write_text("one\n", encoding="utf-8")
    job, (edit, counts) = only_job(tmp_path), CHANGES[change]
    before = Tree(tmp_path).seen_by(job)
    edit(tmp_path)
    after = Tree(tmp_path).seen_by(job)
    assert (before != after) is counts
    stage = Stage(job)
    stage.remove()
    assert stage.seen == after


# What reads a file without Python's `open`, and prints 3 or 7 for the two texts below.
READS = {
    "stat": "import os\nprint(os.path.getsize('data/r.txt'))",
    "folder descriptor": "import os\nfd = os.open('data', os.O_RDONLY)\nprint(os.stat('r.txt', dir_fd=fd).st_size)",
    "sqlite": (
        "import sqlite3\nc = sqlite3.connect('file:data/d.db?mode=ro', uri=True)\n"
        "print(c.execute('select x from t').fetchone()[0])"
    ),
}


def write_data(root: Path, number: int) -> None:
    """Write a text and a database that say this number in every way that `READS` reads."""
    folder = root / "chapters" / "data"
    folder.mkdir(exist_ok=True)
    (folder / "r.txt").write_text(str(number).ljust(number), encoding="utf-8")
    (folder / "d.db").unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(folder / "d.db")) as base:
        base.executescript(f"create table t(x); insert into t values({number})")


def test_a_file_counts_however_it_is_read(tmp_path: Path) -> None:
    chapters = {f"0{n}-reads-{n}": [code("read", source, "3\n")] for n, source in enumerate(READS.values(), 1)}
    write_book(tmp_path, chapters)
    write_data(tmp_path, 3)
    assert check(tmp_path).code == 0
    assert [check(tmp_path).status(name[:2]) for name in chapters] == ["cached"] * len(READS)
    write_data(tmp_path, 7)
    checked = check(tmp_path)
    assert [checked.status(name[:2]) for name in chapters] == ["differs"] * len(READS), checked.out


@pytest.mark.parametrize(("first", "meanwhile", "last"), [("right", "wrong", "ok"), ("wrong", "right", "differs")])
def test_a_file_edited_during_a_run_leaves_no_result_behind(
    tmp_path: Path, first: str, meanwhile: str, last: str
) -> None:
    root, begun, go = tmp_path / "book", tmp_path / "begun", tmp_path / "go"
    wait = f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\n"
    wait += f"while not pathlib.Path({str(go)!r}).exists():\n    time.sleep(0.01)"
    read = "print(open('r.txt').read())"
    write_book(root, {"01-waits": [code("wait", wait)], "02-reads": [code("read", read, "right\n")]})
    data = root / "chapters" / "r.txt"
    data.write_text(first, encoding="utf-8")
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(check, root, "-j", "1")
        assert wait_until(begun.exists, 60)
        data.write_text(meanwhile, encoding="utf-8")
        go.touch()
        during = run.result()
    assert during.status("02") == ("ok" if meanwhile == "right" else "differs")
    data.write_text(first, encoding="utf-8")
    assert check(root).status("02") == last
    assert check(root).status("01") == "cached"


def test_the_callers_settings_for_python_and_numbers_do_not_reach_cells(tmp_path: Path) -> None:
    names = ["PYTHONOPTIMIZE", "ATEN_CPU_CAPABILITY", "MKL_CBWR", "OMP_DYNAMIC", "OPENBLAS_CORETYPE", "MALLOC_PERTURB_"]
    source = f"import os\nprint([n for n in {names} if n in os.environ], os.environ['HERE'])\nassert False"
    write_book(tmp_path, {"01-a": [code("a", source, "[] x\n", tags=["raises-exception"])]})
    for engine in ("-j1", "--spawn", "--kernel"):
        around: Any = {**dict.fromkeys(names, "1"), "ATEN_CPU_CAPABILITY": "default", "HERE": "x"}
        checked = check(tmp_path, "--no-cache", engine, **around)
        assert checked.code == 0, checked.out
    given = check(tmp_path, "--no-cache", "--env", "MKL_CBWR=AUTO", HERE="x")
    assert "+['MKL_CBWR'] x" in given.out


def test_the_model_and_the_machine_are_told_apart(tmp_path: Path) -> None:
    weights = tmp_path / "model" / "deep" / "weights"
    weights.parent.mkdir(parents=True)
    weights.write_text("1", encoding="utf-8")
    before = model_files(str(tmp_path / "model"))
    assert before == model_files(str(tmp_path / "model"))
    weights.write_text("2", encoding="utf-8")
    os.utime(weights, ns=(0, before[0][2] + 1))
    assert [before[0][:2]] == [["deep/weights", 1]]
    assert model_files(str(tmp_path / "model")) != before
    assert model_files(None) == []
    told = tmp_path / "cpuinfo"
    told.write_text("processor\t: 0\nmodel name\t: A\nflags\t\t: sse avx\n\nprocessor\t: 1\nmodel name\t: A\n")
    assert processor(told) == ["flags\t\t: sse avx", "model name\t: A"]
    assert len(processor(tmp_path / "none")) == 1
    assert [folder for folder, changed in versions()["packages"] if changed] == package_folders() != []


def chain(root: Path, doc: str = "Return x.", recorded: bool = True) -> list[str]:
    """Write six chapters that each save a function, and solutions of every second one; return the labels in order."""
    labels = []
    for number in range(1, 7):
        said = doc if number == 3 else "Return x."
        saved = code("save", f'#@save\ndef f{number}(x: int) -> int:\n    """{said}"""\n    return x')
        use = code("use", f"print(f{number}({number}))", f"{number}\n" if recorded else "old\n")
        write_chapter(root, f"0{number}-c{number}", [saved, use])
        labels.append(f"0{number}")
        if number % 2 == 0:
            solution = [code("own", f"print({number})", f"{number}\n" if recorded else "old\n")]
            write_chapter(root, f"0{number}-c{number}", solution, kind="solutions")
            labels.append(f"0{number}/solutions")
    return labels


def test_an_edited_saved_cell_runs_every_later_chapter_and_no_earlier_one(tmp_path: Path) -> None:
    write_book(tmp_path, {})
    labels = chain(tmp_path)
    assert check(tmp_path, "-j", "2").code == 0
    chain(tmp_path, "Return x as it is.")
    checked = check(tmp_path, "-j", "2")
    assert checked.code == 0
    again = [label for label in labels if checked.status(label) == "ok"]
    assert again == labels[labels.index("03") :]
    assert all(checked.status(label) == "cached" for label in labels if label not in again)


def at_once(root: Path, *runs: tuple[str, ...]) -> list[Checked]:
    """Run checkers side by side."""
    with ThreadPoolExecutor(len(runs)) as pool:
        return list(pool.map(lambda options: check(root, *options), runs))


@pytest.mark.parametrize(
    ("cache", "turns"), [("cold", 2), ("warm", 4), ("outdated", 2), ("damaged", 1)], ids=lambda value: str(value)
)
def test_checkers_at_once_give_right_verdicts_and_leave_the_cache_whole(tmp_path: Path, cache: str, turns: int) -> None:
    write_book(tmp_path, {})
    labels = chain(tmp_path)
    assert check(tmp_path).code == 0
    for turn in range(turns):
        if cache == "cold":
            shutil.rmtree(tmp_path / ".cache")
        if cache == "outdated":
            chain(tmp_path, f"Return x, for the turn {turn}.")
        if cache == "damaged":
            for entry in (tmp_path / ".cache" / "checker").iterdir():
                entry.write_bytes(entry.read_bytes()[:50])
        for checked in at_once(tmp_path, ("-j", "2"), ("-j", "1")):
            assert (checked.code, checked.err) == (0, "")
            assert {checked.status(label) for label in labels} <= {"ok", "cached"}
            assert cache == "damaged" or "damaged" not in checked.out
        after = check(tmp_path)
        assert {after.status(label) for label in labels} == {"cached"}
        assert "damaged" not in after.out


def test_a_checker_beside_an_update_says_what_is_recorded_before_or_after(tmp_path: Path) -> None:
    write_book(tmp_path, {})
    for _ in range(2):
        labels = chain(tmp_path, recorded=False)
        one, update, other = at_once(tmp_path, ("-j", "2"), ("--update",), ("--update", "-j", "2"))
        assert (one.err, update.err, other.err) == ("", "", "")
        assert {one.status(label) for label in labels} <= {"ok", "cached", "differs"}
        # An update that finds a notebook recorded by the other since it began leaves it alone.
        said = {run.status(label) for run in (update, other) for label in labels}
        assert said <= {"recorded", "unchanged", "refused"}
        for run in (update, other):
            assert run.code == (1 if "edited while it ran" in run.out else 0)
        after = check(tmp_path)
        assert (after.code, after.last) == (0, "15 passed, 0 failed")


def without_overriding() -> None:
    """Make permissions bind root too: give up the right to override them before the program starts."""
    if os.geteuid() == 0 and sys.platform == "linux":
        for capability in (1, 2, 3):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """Yield a book in which nothing can be written."""
    root = write_book(tmp_path / "book", {"01-one": FIRST, "02-two": SECOND})
    paths = [root, *root.rglob("*")]
    for path in paths:
        path.chmod(path.stat().st_mode & ~0o222)
    touch = [sys.executable, "-c", f"open({str(root / 'new')!r}, 'w')"]
    if subprocess.run(touch, preexec_fn=without_overriding, stderr=subprocess.DEVNULL).returncode == 0:
        pytest.skip("this user can write everywhere")
    yield root
    for path in paths:
        path.chmod(path.stat().st_mode | 0o200)


def test_a_read_only_checkout_is_checked_without_cache_and_cannot_be_updated(read_only: Path) -> None:
    def run(*options: str) -> Checked:
        done = subprocess.run(
            command(read_only, *options),
            preexec_fn=without_overriding,
            env=environment(),
            capture_output=True,
            text=True,
        )
        return Checked(done.returncode, done.stdout, done.stderr)

    before = files(read_only)
    for _ in range(2):
        checked = run()
        assert (checked.code, checked.err) == (0, "")
        assert (checked.status("01"), checked.status("02")) == ("ok", "ok")
        assert "damaged" not in checked.out
    unchanged = run("--update")
    assert (unchanged.code, unchanged.status("01")) == (0, "unchanged")
    assert files(read_only) == before


def test_an_update_of_a_read_only_notebook_says_which(read_only: Path) -> None:
    path = read_only / "chapters" / "02-two.ipynb"
    path.chmod(0o644)
    path.write_text(path.read_text(encoding="utf-8").replace('"2\\n"', '"3\\n"'), encoding="utf-8")
    before = files(read_only)
    done = subprocess.run(
        command(read_only, "--update"), preexec_fn=without_overriding, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 2
    assert f"cannot read or write: [Errno 13] Permission denied: '{path}'" in done.stderr
    assert "Traceback" not in done.stderr
    assert files(read_only) == before
