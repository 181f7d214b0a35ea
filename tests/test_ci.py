""".ci/install with programs that stand in for the system's, and how tests tell of what is missing."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import needing
import pytest

ROOT = Path(__file__).resolve().parents[1]
LOGS = '#!/bin/sh\necho "{name} $*" >> "$LOG"\n'
FONTS = '#!/bin/sh\n[ "$*" = ":lang=zh-cn family" ] && echo "Noto Sans CJK SC"\n'
LINUX = ("ssh", "rsync", "bwrap", "chromium", "java")
RUNS = '#!/bin/sh\necho "sudo" >> "$LOG"\nexec "$@"\n'


def machine(folder: Path, programs: dict[str, str], system: str = "Linux", user: int = 1000) -> Path:
    """Return a folder of programs: those that the script itself uses, and what else is given with its text."""
    tools = folder / "tools"
    tools.mkdir()
    for name in ("bash", "env", "echo"):
        (tools / name).symlink_to(str(shutil.which(name)))
    says = {"uname": f"#!/bin/sh\necho {system}\n", "id": f"#!/bin/sh\necho {user}\n", "sshd": "#!/bin/sh\n"}
    for name, text in (says | programs).items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return tools


def install(tools: Path) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run .ci/install where there is nothing but these programs; return how it went and what it had done."""
    log = tools.parent / "log"
    command = [str(shutil.which("bash")), str(ROOT / ".ci" / "install")]
    done = subprocess.run(command, env={"PATH": str(tools), "LOG": str(log)}, capture_output=True, text=True)
    return done, log.read_text().splitlines() if log.exists() else []


def test_it_installs_what_is_missing_as_root(tmp_path: Path) -> None:
    done, log = install(machine(tmp_path, {"apt-get": LOGS.format(name="apt-get")}, user=0))
    assert (done.returncode, done.stderr) == (0, "")
    wanted = "openssh-client rsync bubblewrap chromium default-jre-headless fonts-noto-cjk"
    assert done.stdout == f"installing {wanted}\n"
    assert [line.split()[1] for line in log] == ["update", "install"]
    assert log[1].endswith(f" {wanted}")


def test_it_asks_sudo_where_it_is_not_root(tmp_path: Path) -> None:
    done, log = install(machine(tmp_path, {"apt-get": LOGS.format(name="apt-get"), "sudo": RUNS}))
    assert done.returncode == 0
    assert [line.split()[0] for line in log] == ["sudo", "apt-get"] * 2


@pytest.mark.parametrize(
    ("system", "there"),
    [
        ("Linux", ("ssh", "rsync", "bwrap", "chromium", "java")),
        ("Linux", ("ssh", "rsync", "bwrap", "google-chrome", "java")),
        ("Darwin", ("ssh", "rsync")),
    ],
)
def test_it_does_nothing_where_nothing_is_missing_any_browser_will_do_and_a_macos_needs_less(
    tmp_path: Path, system: str, there: tuple[str, ...]
) -> None:
    programs = {"apt-get": LOGS.format(name="apt-get"), "fc-list": FONTS} | dict.fromkeys(there, "#!/bin/sh\n")
    done, log = install(machine(tmp_path, programs, system))
    assert (done.returncode, done.stdout, done.stderr, log) == (0, "", "", [])


@pytest.mark.parametrize("fonts", [None, "#!/bin/sh\n", "#!/bin/sh\nexit 1\n"])
def test_it_installs_chinese_fonts_where_fontconfig_knows_of_none_or_is_not_there(
    tmp_path: Path, fonts: str | None
) -> None:
    programs = {"apt-get": LOGS.format(name="apt-get")} | dict.fromkeys(LINUX, "#!/bin/sh\n")
    done, log = install(machine(tmp_path, programs | ({"fc-list": fonts} if fonts else {}), user=0))
    assert (done.returncode, done.stdout) == (0, "installing fonts-noto-cjk\n")
    assert log[1].endswith(" fonts-noto-cjk")


def test_it_names_what_it_cannot_install(tmp_path: Path) -> None:
    done, _ = install(machine(tmp_path, {"ssh": "#!/bin/sh\n"}))
    assert done.returncode == 1
    wanted = "rsync bubblewrap chromium default-jre-headless fonts-noto-cjk"
    said = f"please install {wanted}; this machine has no apt-get to do it with"
    assert done.stderr == f".ci/install: {said}\n"
    (tmp_path / "tools" / "apt-get").write_text(LOGS.format(name="apt-get"))
    (tmp_path / "tools" / "apt-get").chmod(0o755)
    done, log = install(tmp_path / "tools")
    assert (done.returncode, log) == (1, [])
    assert done.stderr == f".ci/install: installing {wanted} takes root or sudo\n"


@pytest.mark.parametrize(
    ("needs", "name", "said"),
    [
        (needing.peer, "no_such_trainer", "no_such_trainer is not installed here (make peers does it)"),
        (needing.program, "no-such-program", "no-such-program is not installed here (bash .ci/install does it)"),
    ],
)
def test_a_test_that_lacks_something_is_skipped_by_name_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, needs: Callable[[str], object], name: str, said: str
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception) as skipped:
        needs(name)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception) as failed:
        needs(name)
    assert (str(skipped.value), str(failed.value)) == (said, said)


def test_peers_are_imported_in_one_way_so_that_none_is_skipped_in_ci() -> None:
    direct = "importor" + "skip"
    found = [path.name for path in (ROOT / "tests").glob("*.py") if direct in path.read_text(encoding="utf-8")]
    assert found == []
