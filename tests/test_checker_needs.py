"""Cells that need what may be missing: run where it is, skipped by name and reason elsewhere, never silently."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from checking import check, junit_cases
from needing import isolation
from synthetic import code, write_book, write_chapter

from bookkit import needs
from bookkit.notebook import load_chapter

ROOT = Path(__file__).resolve().parents[1]
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="isolation takes Linux")
# Stands for a bubblewrap that works: it starts what follows its options.
STARTS = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
REFUSED = "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n"
NONE = "no bubblewrap: apt install bubblewrap"
CELLS = [
    code("before", "print(1)", "1\n"),
    code("inside", "print('isolated')", "isolated\n", output="sandbox"),
    code("outside", "print('reached')", "stopped\n", output="sandbox"),
]


def path_with(folder: Path, script: str | None) -> str:
    """Return a PATH that has nothing but this bubblewrap, or nothing at all. The other layers must be there."""
    if why := needs._missing_filter() or needs._missing_landlock():
        pytest.skip(why)
    folder.mkdir(exist_ok=True)
    if script is not None:
        (folder / "bwrap").write_text(script)
        (folder / "bwrap").chmod(0o755)
    return str(folder)


def recorded(root: Path) -> list[str]:
    """Return what the code cells of chapter 1 have recorded."""
    return [cell.stdout for cell in load_chapter(root / "chapters" / "01-one.ipynb", root).code_cells]


@ON_LINUX
def test_sandbox_cells_are_skipped_by_name_and_reason_where_nothing_isolates(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-one": CELLS})
    checked = check(tmp_path, "--junit", str(tmp_path / "j.xml"), PATH=path_with(tmp_path / "none", None))
    assert (checked.code, checked.last) == (0, "1 passed, 0 failed, 2 skipped")
    said = f"sandbox cells, compared exactly: 2, 0 run, 2 skipped: 01 · inside, 01 · outside ({NONE})"
    assert said in checked.out.splitlines()
    case = junit_cases(tmp_path / "j.xml")["01"]["inside"]
    assert (case.status, case.message) == ("skipped", NONE)


@ON_LINUX
@pytest.mark.parametrize("engine", ["-j1", "--kernel"])
def test_sandbox_cells_run_and_are_compared_exactly_where_a_process_is_isolated(tmp_path: Path, engine: str) -> None:
    write_book(tmp_path, {"01-one": CELLS})
    checked = check(tmp_path, engine, PATH=path_with(tmp_path / "bin", STARTS))
    assert (checked.code, checked.last) == (1, "2 passed, 1 failed")
    assert "· cell outside (code cell 3" in checked.out
    assert "sandbox cells, compared exactly: 2, 2 run, 0 skipped" in checked.out.splitlines()


def test_cells_that_an_earlier_failure_kept_from_running_are_not_said_to_lack_anything(tmp_path: Path) -> None:
    (tmp_path / "labs" / "model").mkdir(parents=True)
    write_book(tmp_path, {"01-one": [code("bad", "1 / 0"), code("real", "print(1)", "1\n", output="lab")]})
    checked = check(tmp_path)
    assert "lab cells, compared loosely: 1, 0 run, 1 skipped: 01 · real (not run: cell bad failed)" in checked.out
    assert "  1 cell not run: cell bad failed (real)" in checked.out.splitlines()


@ON_LINUX
def test_a_result_recorded_without_the_layers_does_not_serve_where_they_are(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-one": CELLS[:2], "02-plain": CELLS[:1]})
    write_chapter(tmp_path, "01-one", [code("setup", "%%capture\n%run ../01-one.ipynb")], kind="solutions")
    without, within = path_with(tmp_path / "none", None), path_with(tmp_path / "bin", STARTS)
    labels = ("01", "01/solutions")
    for path, expected in ((without, "ok"), (without, "cached"), (within, "ok"), (within, "cached")):
        checked = check(tmp_path, PATH=path)
        assert [checked.status(label) for label in labels] == [expected] * 2, checked.out
    assert check(tmp_path, PATH=without).last == "3 passed, 0 failed, 1 skipped"


@ON_LINUX
def test_update_keeps_what_skipped_cells_recorded_and_records_those_that_run(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-one": [code("before", "print(1)"), *CELLS[1:]]})
    assert check(tmp_path, "--update", PATH=path_with(tmp_path / "none", None)).code == 0
    assert recorded(tmp_path) == ["1\n", "isolated\n", "stopped\n"]
    assert check(tmp_path, "--update", PATH=path_with(tmp_path / "bin", STARTS)).code == 0
    assert recorded(tmp_path) == ["1\n", "isolated\n", "reached\n"]


@ON_LINUX
def test_update_refuses_a_sandbox_cell_whose_two_runs_differ(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-one": [code("chance", "import os\nprint(os.getpid())", output="sandbox")]})
    updated = check(tmp_path, "--update", PATH=path_with(tmp_path / "bin", STARTS))
    assert (updated.code, updated.status("01")) == (1, "refused")
    assert "two runs print different text" in updated.out


@ON_LINUX
def test_in_ci_a_sandbox_cell_that_cannot_run_is_an_error_and_the_rest_is_checked(tmp_path: Path) -> None:
    lab = code("real", "print(1)", "1\n", output="lab")
    write_book(tmp_path, {"01-one": [*CELLS, lab], "02-two": [lab]})
    path = path_with(tmp_path / "none", None)
    checked = check(tmp_path, "--junit", str(tmp_path / "j.xml"), PATH=path, CI="true")
    assert checked.code == 2
    why = f"error: 2 sandbox cells cannot run ({NONE}), and in CI none is skipped: inside, outside"
    assert f"chapters/01-one.ipynb · cell inside: {why}" in checked.out.splitlines()
    assert checked.last == "1 passed, 0 failed, 4 skipped"
    assert junit_cases(tmp_path / "j.xml")["book"].keys() == {"problem-1"}
    assert check(tmp_path, "02", PATH=path, CI="true").code == 0


@pytest.mark.parametrize(("system", "ci"), [("linux", "1"), ("linux", "0"), ("darwin", "1")])
def test_only_in_ci_on_linux_sandbox_cells_must_run(monkeypatch: pytest.MonkeyPatch, system: str, ci: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setenv("CI", ci)
    assert needs.may_be_missing(needs.SANDBOX) is not (system == "linux" and ci == "1")
    assert needs.may_be_missing(needs.LAB)


FAULTS = {
    "refused": (REFUSED, "bubblewrap isolates nothing here: bwrap: setting up uid map: Permission denied"),
    "silent": ("#!/bin/sh\nexit 3\n", "bubblewrap isolates nothing here: exit status 3"),
    "odd": ("#!/bin/sh\nprintf 'bad \\377 \\n\\n' >&2\nexit 1\n", "bubblewrap isolates nothing here: bad \ufffd"),
    "no program": ("\0", "bubblewrap does not run: "),
    "endless": ("#!/bin/sh\nexec /bin/sleep 60\n", "bubblewrap does not run: "),
    "absent": (None, NONE),
    "there": (STARTS, ""),
}


@ON_LINUX
@pytest.mark.parametrize("fault", FAULTS)
def test_the_probe_reports_what_a_bubblewrap_says_and_never_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    script, expected = FAULTS[fault]
    monkeypatch.setenv("PATH", path_with(tmp_path / "bin", script))
    monkeypatch.setattr(needs, "PROBE_LIMIT", 0.5 if fault == "endless" else 30.0)
    monkeypatch.setattr(needs, "RESTRICTED", tmp_path / "absent")
    monkeypatch.setattr(needs, "_missing_filter", lambda: "")
    monkeypatch.setattr(needs, "_missing_landlock", lambda: "")
    found = needs.missing_layers()
    assert found == expected or (expected.endswith(": ") and found.startswith(expected) and len(found) > len(expected))
    if fault == "refused":
        monkeypatch.setattr(needs, "RESTRICTED", tmp_path / "restricted")
        (tmp_path / "restricted").write_text("1\n")
        assert needs.missing_layers() == f"{expected}; AppArmor restricts user namespaces here, README says what to do"


@ON_LINUX
def test_a_process_that_the_probe_starts_is_alone_without_rights_and_without_network() -> None:
    isolation()
    shows = "import os, socket; print(os.getpid() < 9, os.getuid(), socket.if_nameindex(), os.access('/', os.W_OK))"
    inside = [str(needs.bubblewrap()), *needs.NAMESPACES, "--", sys.executable, "-I", "-S", "-c", shows]
    seen = subprocess.run(inside, env={}, cwd="/", capture_output=True, text=True, check=True).stdout
    assert seen == "True 65534 [(1, 'lo')] False\n"


@ON_LINUX
@pytest.mark.parametrize("layer", ["_missing_filter", "_missing_landlock"])
def test_a_layer_that_the_kernel_lacks_is_named(monkeypatch: pytest.MonkeyPatch, layer: str) -> None:
    for each in ("_missing_bubblewrap", "_missing_filter", "_missing_landlock"):
        monkeypatch.setattr(needs, each, lambda each=each: f"no {each}" if each == layer else "")
    assert needs.missing_layers() == f"no {layer}"


@ON_LINUX
def test_an_answer_that_the_kernel_does_not_know_the_call_is_a_missing_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "SECCOMP_MODE_FILTER", 99)  # such a mode there is not
    monkeypatch.setattr(needs, "LANDLOCK_CREATE_RULESET", 9999)  # nor such a call
    assert needs._missing_filter() == "no seccomp filters in this kernel"
    assert needs._missing_landlock() == "no Landlock in this kernel, or it is not enabled"


@ON_LINUX
def test_nobody_looks_for_layers_that_no_cell_needs(tmp_path: Path) -> None:
    write_book(tmp_path, {"01-one": CELLS[:1]})
    called = tmp_path / "called"
    assert check(tmp_path, PATH=path_with(tmp_path / "bin", f"#!/bin/sh\n: > {called}\n")).code == 0
    assert not called.exists()
    write_book(tmp_path, {"01-one": CELLS[:2]})
    assert check(tmp_path, PATH=path_with(tmp_path / "bin", f"#!/bin/sh\n: > {called}\n")).code == 0
    assert called.exists()


@ON_LINUX
@pytest.mark.slow
def test_the_book_passes_where_no_process_can_be_isolated(tmp_path: Path) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["bookkit"]
    chapters = sorted({name.split(":")[0] for name in settings["sandbox_cells"]})
    assert chapters
    checked = check(ROOT, *chapters, "--no-cache", "-j", "2", limit=500, PATH=path_with(tmp_path / "none", None))
    assert checked.code == 0, checked.out + checked.err
    assert f"sandbox cells, compared exactly: {len(settings['sandbox_cells'])}, 0 run" in checked.out
