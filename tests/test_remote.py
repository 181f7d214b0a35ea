"""remote_check.sh and remote_figures.sh, over a real ssh to a server of the test's own on this machine.

Without sshd, ssh, rsync or git the tests that need them are skipped; where the variable CI is set, they fail instead.
"""

from __future__ import annotations

import ast
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from checking import Checked, environment, junit_cases, wait_until
from remote import gpu
from synthetic import code, write_book, write_chapter

from bookkit import figures as fig

ROOT = Path(__file__).resolve().parents[1]
OWN = ("REMOTE", "PIP_", "AGENTRL_MODEL_DIR", "RECORD", "JOBS", "PYTHON", "MAKEFLAGS")
SBIN = ":/usr/sbin:/usr/local/sbin:/sbin"
MARKER = ".made-by-remote-scripts"
FIGURE = "def draw():\n    return {svg!r}\n"
RECORDED = """
import json, sys
from pathlib import Path
if __name__ == "__main__" and "--record" in sys.argv:
    (Path(__file__).parent / "data" / "ch02.json").write_text(json.dumps({"measured": 2}))
"""


def svg(label: str) -> str:
    """Return a figure with a label in a box."""
    drawing = fig.card(200, 100)
    fig.box(drawing, 20, 20, 160, 60, label)
    return fig.finish(drawing, "A title", "A description.")


def need(program: str) -> str:
    """Return where a program is; skip the test that needs it, or fail it in CI, where it is missing."""
    found = shutil.which(program, path=os.environ.get("PATH", os.defpath) + SBIN)
    if found is None:
        missing(f"{program} is not installed here (bash .ci/install does it)")
    return str(found)


def missing(reason: str) -> None:
    """Skip the test for a reason; in CI, where nothing may be missing, fail it."""
    if os.environ.get("CI", "").lower() in ("", "0", "false"):
        pytest.skip(reason)
    pytest.fail(reason)


@dataclass
class Server:
    """An ssh server on loopback: its process, and the variables that lead the scripts to it."""

    process: subprocess.Popen[bytes]
    variables: dict[str, str]


def serve(folder: Path) -> Server:
    """Start sshd as the user who runs the tests, with keys made for it alone."""
    sshd = need("sshd")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    if os.geteuid() == 0 and sys.platform == "linux":
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd insists; the system's own service would make it
    settings = {
        "Port": port, "ListenAddress": "127.0.0.1", "HostKey": folder / "host", "PidFile": "none",
        "AuthorizedKeysFile": folder / "user.pub", "StrictModes": "no", "UsePAM": "no", "PermitRootLogin": "yes",
        "PasswordAuthentication": "no", "KbdInteractiveAuthentication": "no", "LogLevel": "VERBOSE",
    }  # fmt: skip
    (folder / "config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    key = (folder / "host.pub").read_text().split()[:2]
    (folder / "known").write_text(f"[127.0.0.1]:{port} {' '.join(key)}\n")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([sshd, "-D", "-e", "-f", str(folder / "config")], stdout=log, stderr=log)
    ssh = (
        f"ssh -F /dev/null -p {port} -i {folder / 'user'} -o IdentitiesOnly=yes -o BatchMode=yes"
        f" -o UserKnownHostsFile={folder / 'known'} -o StrictHostKeyChecking=yes"
    )
    return Server(process, {"REMOTE": f"{getpass.getuser()}@127.0.0.1", "REMOTE_SSH": ssh})


def end(process: subprocess.Popen[Any]) -> None:
    """End a process with everything it has started."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for member in family:
        member.kill()
    process.wait()


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables that send the scripts over ssh to a server that is known to answer."""
    for program in ("ssh", "ssh-keygen", "rsync", "git"):
        need(program)
    folder = tmp_path_factory.mktemp("sshd")
    server = serve(folder)
    try:
        command = [*server.variables["REMOTE_SSH"].split(), server.variables["REMOTE"], "true"]

        def answers() -> bool:
            return subprocess.run(command, capture_output=True).returncode == 0

        if not wait_until(lambda: server.process.poll() is not None or answers()) or server.process.poll() is not None:
            missing(f"sshd does not let its own user in here:\n{(folder / 'log').read_text()}")
        yield server.variables
    finally:
        if server.process.poll() is None:
            end(server.process)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small book of two chapters and two figures, with the scripts, in a git repository of its own."""
    need("git")
    need("rsync")
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "scripts", root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    write_book(root, {"01-one": [code("one", "print(1)", "1\n")], "02-two": [code("two", "print(2)", "2\n")]})
    (root / "figures" / "data").mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", root)  # how the library is formatted
    (root / "figures" / "ch01_one.py").write_text(FIGURE.format(svg=svg("one")))
    (root / "figures" / "ch02_two.py").write_text(FIGURE.format(svg=svg("two")) + RECORDED)
    (root / "figures" / "data" / "ch02.json").write_text('{"measured": 1}')
    (root / ".gitignore").write_text("build/\n.cache/\n__pycache__/\n*.secret\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run(["git", "add", "."], cwd=root, check=True)
    return root


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A scratch folder that is not there yet, with a name that wants quoting."""
    return tmp_path / "Bücher und 'mehr'"


def variables(extra: dict[str, str]) -> dict[str, str]:
    """Return the environment for a script: none of the caller's settings, and this Python for the book."""
    kept = {name: value for name, value in environment().items() if not name.startswith(OWN)}
    return {**kept, "REMOTE_PYTHON": sys.executable, **extra}


def start(root: Path, script: str, *arguments: str | Path, **extra: str) -> subprocess.Popen[str]:
    """Start one of the scripts of a checkout."""
    command = [str(root / "scripts" / f"{script}.sh"), *map(str, arguments)]
    return subprocess.Popen(
        command, env=variables(extra), cwd=root.parent, text=True, encoding="utf-8",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> Checked:
    """Wait for a script and return what it said."""
    try:
        out, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        end(process)
        raise
    return Checked(process.returncode, out, err)


def run(root: Path, script: str, *arguments: str | Path, **extra: str) -> Checked:
    """Run one of the scripts of a checkout to its end."""
    return finish(start(root, script, *arguments, **extra))


def report(done: Checked) -> Path:
    """Return the folder that a script names at its end."""
    return Path(done.err.splitlines()[-1].split("everything it left is in ")[1])


def endless(root: Path, pid_file: Path) -> None:
    """Replace chapter 01 by one whose cell notes its process and never ends."""
    source = f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\nwhile True:\n    time.sleep(0.1)"
    write_chapter(root, "01-one", [code("forever", source)])


def replace_checker(root: Path) -> None:
    """Replace the checker by a program that prints its arguments, where what it checks does not matter."""
    (root / "scripts" / "check_chapters.py").write_text("import sys\nprint(ascii(sys.argv))\n")


def is_idle(work: Path) -> bool:
    """Return whether no process works in the scratch folder and nobody holds it."""
    for process in psutil.process_iter(["cwd", "cmdline"]):
        words = [process.info["cwd"] or "", *(process.info["cmdline"] or [])]
        if any(str(work / "book") in word or str(work / "results") in word for word in words):
            return False
    return not (work / "lock").is_symlink()


def running(process: subprocess.Popen[str], pid_file: Path) -> int:
    """Wait until the endless cell runs and return its process."""

    def runs() -> bool:
        return pid_file.exists() and pid_file.read_text() != ""

    wait_until(lambda: runs() or process.poll() is not None, 60)
    if not runs():
        if process.poll() is None:
            end(process)
        pytest.fail(f"the cell does not run: {finish(process)}")
    return int(pid_file.read_text())


class TestCheck:
    def test_an_equal_book_is_0_and_its_report_is_here(self, checkout: Path, work: Path, ssh: dict[str, str]) -> None:
        done = run(checkout, "remote_check", work, **ssh)
        assert (done.code, done.last) == (0, "2 passed, 0 failed"), done.err
        assert "GPU: " in done.err
        folder = report(done)
        assert folder.parent == checkout / "build" / "remote"
        assert folder.name.startswith("127.0.0.1-")
        assert (folder / "output.txt").read_text() == done.out
        assert (folder / "exit-code").read_text() == "0\n"
        assert {key: list(cases) for key, cases in junit_cases(folder / "junit.xml").items()} == {
            "01": ["one"],
            "02": ["two"],
        }
        assert "GPU: " in (folder / "host.txt").read_text()
        assert sorted(p.name for p in (checkout / "build" / "remote").iterdir()) == [folder.name]
        assert sorted(p.name for p in work.iterdir()) == [MARKER, "book", "results"]
        assert list((work / "results").iterdir()) == []

    def test_the_copy_follows_the_checkout_and_keeps_what_the_run_there_has_built(
        self, checkout: Path, work: Path, ssh: dict[str, str]
    ) -> None:
        (checkout / "chapters" / "key.secret").write_text("git ignores this")
        assert run(checkout, "remote_check", work, **ssh).code == 0
        assert not (work / "book" / "chapters" / "key.secret").exists()
        (checkout / "chapters" / "02-two.ipynb").unlink()
        write_chapter(checkout, "03-three", [code("three", "print(3)", "3\n")])
        (checkout / "chapters" / "-new ü.txt").touch()
        (work / "book" / "chapters" / "left over.txt").write_text("nobody has this any more")
        again = run(checkout, "remote_check", work, **ssh)
        assert (again.status("01"), again.status("03")) == ("cached", "ok")
        names = sorted(p.name for p in (work / "book" / "chapters").iterdir())
        assert names == ["-new ü.txt", "01-one.ipynb", "03-three.ipynb"]

    def test_a_cell_that_differs_is_1_and_the_report_names_it(
        self, checkout: Path, work: Path, ssh: dict[str, str]
    ) -> None:
        write_chapter(checkout, "02-two", [code("two", "print(2)", "3\n")])
        done = run(checkout, "remote_check", work, "02", **ssh)
        assert (done.code, done.status("02")) == (1, "differs")
        assert "cell two" in done.out
        cases = junit_cases(report(done) / "junit.xml")
        assert {key: {name: case.status for name, case in found.items()} for key, found in cases.items()} == {
            "02": {"two": "failed"}
        }

    def test_a_prefix_that_is_no_chapter_is_2(self, checkout: Path, work: Path, ssh: dict[str, str]) -> None:
        done = run(checkout, "remote_check", work, "77", **ssh)
        assert done.code == 2
        assert "no chapter starts with '77'; there are 01, 02" in done.out
        assert (report(done) / "exit-code").read_text() == "2\n"

    @pytest.mark.parametrize("where", ["here", "there"])
    def test_prefixes_arrive_as_they_are_and_nothing_in_them_is_run(
        self, checkout: Path, work: Path, ssh: dict[str, str], where: str
    ) -> None:
        prefixes = [
            "$(touch hit)",
            "`touch hit`",
            "; touch hit; '",
            'a "b" \\',
            "--update",
            "two\nlines",
            "ü  *",
            "",
            "~",
        ]
        replace_checker(checkout)
        done = run(checkout, "remote_check", work, *prefixes, **(ssh if where == "there" else {}))
        assert done.code == 0, done.err
        arguments = ast.literal_eval(done.out)
        assert arguments[arguments.index("--") + 1 :] == prefixes
        assert [*checkout.parent.glob("**/hit"), *Path.home().glob("hit")] == []

    def test_progress_arrives_before_the_end(self, checkout: Path, work: Path, ssh: dict[str, str]) -> None:
        gate = checkout.parent / "gate"
        source = f"import os, time\nwhile not os.path.exists({str(gate)!r}):\n    time.sleep(0.05)\nprint('open')"
        write_chapter(checkout, "02-two", [code("two", source, "open\n")])
        process = start(checkout, "remote_check", work, JOBS="1", **ssh)
        assert process.stdout is not None
        first = process.stdout.readline()
        gate.touch()
        done = finish(process)
        assert first.startswith("01 "), done
        assert (done.code, done.last) == (0, "2 passed, 0 failed"), done.err

    def test_without_a_remote_it_runs_here(self, checkout: Path, work: Path) -> None:
        done = run(checkout, "remote_check", work.name)
        assert (done.code, done.last) == (0, "2 passed, 0 failed"), done.err
        assert report(done).name.startswith(os.uname().nodename)
        assert (work / "book" / ".cache").is_dir()

    @pytest.mark.slow
    def test_this_book_is_checked_from_a_copy(self, tmp_path: Path, ssh: dict[str, str]) -> None:
        done = run(ROOT, "remote_check", tmp_path / "scratch", "00", **ssh)
        folder = report(done)
        try:
            assert (done.code, done.status("00")) == (0, "ok"), done
            assert set(junit_cases(folder / "junit.xml")) == {"00", "00/solutions"}
        finally:
            shutil.rmtree(folder)


class TestEnding:
    @pytest.mark.parametrize("victim", ["ssh", "script"])
    def test_when_this_side_dies_no_checker_is_left_there(
        self, checkout: Path, work: Path, ssh: dict[str, str], victim: str
    ) -> None:
        pid_file = checkout.parent / "pid"
        endless(checkout, pid_file)
        process = start(checkout, "remote_check", work, **ssh)
        cell = running(process, pid_file)
        if victim == "ssh":
            family = psutil.Process(process.pid).children(recursive=True)
            next(child for child in family if child.name() == "ssh").kill()
        else:
            process.kill()
        done = finish(process)
        assert done.code == (255 if victim == "ssh" else -signal.SIGKILL), done
        assert ("the connection to " in done.err and " was lost" in done.err) == (victim == "ssh")
        assert wait_until(lambda: not psutil.pid_exists(cell) and is_idle(work), 60)
        assert list((work / "results").iterdir()) == []
        assert not (checkout / "build").exists()

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
    @pytest.mark.parametrize("where", ["here", "there"])
    def test_a_signal_ends_the_run_and_leaves_nothing(
        self, checkout: Path, work: Path, ssh: dict[str, str], where: str, number: signal.Signals
    ) -> None:
        pid_file, temporary = checkout.parent / "pid", checkout.parent / "tmp"
        temporary.mkdir()
        endless(checkout, pid_file)
        extra = ssh if where == "there" else {}
        process = start(checkout, "remote_check", work, TMPDIR=str(temporary), **extra)
        cell = running(process, pid_file)
        process.send_signal(number)
        done = finish(process)
        assert (done.code, "the run in" in done.err) == (128 + number, True), done
        assert not psutil.pid_exists(cell)
        assert wait_until(lambda: is_idle(work))
        assert list(temporary.iterdir()) == []

    def test_a_second_run_in_the_same_folder_is_refused_and_told_who_is_there(
        self, checkout: Path, work: Path, ssh: dict[str, str]
    ) -> None:
        pid_file = checkout.parent / "pid"
        endless(checkout, pid_file)
        process = start(checkout, "remote_check", work, **ssh)
        running(process, pid_file)
        holder = os.readlink(work / "lock")
        second = run(checkout, "remote_figures", work, **ssh)
        process.terminate()
        finish(process)
        assert (second.code, second.out) == (2, "")
        assert f"in use by {holder}" in second.err
        assert f"on {os.uname().nodename}, started by" in holder

    def test_a_lock_whose_holder_is_dead_is_taken_over_with_a_word(
        self, checkout: Path, work: Path, ssh: dict[str, str]
    ) -> None:
        replace_checker(checkout)
        gone = subprocess.Popen(["true"])
        gone.wait()
        work.mkdir()
        (work / MARKER).touch()
        owner = f"process {gone.pid} on {os.uname().nodename}, started by somebody"
        (work / "lock").symlink_to(owner)
        done = run(checkout, "remote_check", work, "01", **ssh)
        assert done.code == 0, done.err
        assert f"a run that did not end well ({owner})" in done.err
        (work / "lock").symlink_to(owner.replace(" on ", " on another-"))
        assert run(checkout, "remote_check", work, "01", **ssh).code == 2


class TestRefusals:
    @pytest.mark.parametrize(
        ("given", "reason"),
        [
            ("", "WORKDIR is empty"),
            ("/", "/ is no scratch folder"),
            ("{tmp}/../../../../../../../..", "/ is no scratch folder"),
            ("~", " is no scratch folder"),
            ("~nobody/x", "~nobody/x: write ~/"),
            ("{tmp}/new/../new", "may lead anywhere"),
            ("{tmp}/file", "{tmp}/file is not a folder"),
            ("{tmp}/file/below", "{tmp}/file is not a folder"),
            ("{tmp}/full", "{tmp}/full holds files that are not from these scripts"),
            ("{tmp}/checkout", "{tmp}/checkout holds files that are not from these scripts"),
            ("a\nb", "holds a line break"),
        ],
    )
    def test_a_dangerous_folder_there_is_refused(
        self, checkout: Path, ssh: dict[str, str], given: str, reason: str
    ) -> None:
        tmp = checkout.parent
        (tmp / "file").write_text("kept")
        (tmp / "full").mkdir()
        (tmp / "full" / "file").write_text("kept")
        before = sorted(tmp.rglob("*"))
        done = run(checkout, "remote_check", given.format(tmp=tmp), **ssh)
        assert (done.code, done.out) == (2, ""), done
        assert reason.format(tmp=tmp) in done.err
        assert sorted(tmp.rglob("*")) == before
        assert not Path("/", MARKER).exists()

    @pytest.mark.parametrize(
        ("given", "reason"),
        [
            (".", "lies in the checkout"),
            ("build/scratch", "lies in the checkout"),
            ("..", "holds the checkout"),
        ],
    )
    def test_here_the_checkout_and_what_is_around_it_is_refused(self, checkout: Path, given: str, reason: str) -> None:
        (checkout.parent / MARKER).touch()
        before = sorted(checkout.parent.rglob("*"))
        done = run(checkout, "remote_figures", checkout / given)
        assert (done.code, done.out) == (2, "")
        assert reason in done.err
        assert sorted(checkout.parent.rglob("*")) == before

    @pytest.mark.parametrize(
        "remote", ["-oProxyCommand=touch hit", "me@host:22", "a b", "host;touch hit", "$(touch hit)"]
    )
    def test_a_remote_that_is_no_host_is_refused(self, checkout: Path, work: Path, remote: str) -> None:
        done = run(checkout, "remote_check", work, REMOTE=remote)
        assert (done.code, done.out) == (2, "")
        assert f"REMOTE={remote} is not user@host" in done.err
        assert list(checkout.parent.glob("**/hit")) == []

    def test_no_folder_is_a_usage_error_and_help_is_not(self, checkout: Path) -> None:
        assert run(checkout, "remote_check").code == 2
        assert "Usage: [REMOTE=user@host] scripts/remote_figures.sh WORKDIR" in run(checkout, "remote_figures").err
        done = run(checkout, "remote_check", "--help")
        assert (done.code, done.err) == (0, "")
        assert "REMOTE_SSH" in done.out

    def test_a_folder_that_is_no_git_checkout_is_refused(self, checkout: Path, work: Path) -> None:
        shutil.rmtree(checkout / ".git")
        done = run(checkout, "remote_check", work, GIT_CEILING_DIRECTORIES=str(checkout.parent))
        assert (done.code, f"{checkout} is not a git checkout" in done.err) == (2, True)

    def test_a_missing_program_is_named_with_its_side(self, checkout: Path, work: Path) -> None:
        tools = checkout.parent / "tools"
        tools.mkdir()
        names = (
            "bash basename cat date dirname env git grep id ln ls mkdir mkfifo mktemp mv readlink rm sed sleep tail tar"
        )
        for name in (*names.split(), "uname"):
            (tools / name).symlink_to(need(name))
        here = run(checkout, "remote_check", work, PATH=str(tools))
        assert (here.code, "this machine has no rsync" in here.err) == (2, True), here
        (tools / "rsync").symlink_to(need("rsync"))
        no_ssh = run(checkout, "remote_check", work, PATH=str(tools), REMOTE="host")
        assert (no_ssh.code, "this machine has no ssh" in no_ssh.err) == (2, True), no_ssh
        (tools / "rsync").unlink()
        poor = checkout.parent / "poor"  # stands for an ssh to a machine without rsync
        poor.write_text(f"#!/bin/sh\nfor last; do :; done\nPATH='{tools}' exec bash -c \"$last\"\n")
        poor.chmod(0o755)
        there = run(checkout, "remote_check", work, REMOTE="host", REMOTE_SSH=str(poor))
        assert (there.code, f"{os.uname().nodename}: there is no rsync here" in there.err) == (2, True), there

    def test_a_host_that_does_not_answer_is_255(self, checkout: Path, work: Path, ssh: dict[str, str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        done = run(checkout, "remote_check", work, REMOTE="127.0.0.1", REMOTE_SSH=f"ssh -F /dev/null -p {port}")
        assert (done.code, done.out) == (255, "")
        assert "no connection to 127.0.0.1" in done.err


class TestEnvironment:
    MAKEFILE = """
.venv/.built-from-lock: requirements.lock
	@mkdir -p .venv/bin
	@printf '#!/bin/sh\\nexec "$(PYTHON)" "$$@"\\n' >.venv/bin/python
	@chmod +x .venv/bin/python
	@echo "$$PIP_INDEX_URL" >>.venv/built
	@cp requirements.lock $@
"""

    def test_make_builds_it_once_for_each_lock_with_the_callers_settings(
        self, checkout: Path, work: Path, ssh: dict[str, str]
    ) -> None:
        replace_checker(checkout)
        (checkout / "Makefile").write_text(self.MAKEFILE)
        settings = {**ssh, "REMOTE_PYTHON": "", "PYTHON": sys.executable, "PIP_INDEX_URL": "https://a/b?c='d'&$e"}
        built = work / "book" / ".venv" / "built"
        for lock, times in (("torch==1\n", 1), ("torch==1\n", 1), ("torch==2\n", 2)):
            (checkout / "requirements.lock").write_text(lock)
            os.utime(checkout / "requirements.lock", (4e9, 4e9) if times == 1 else (1, 1))  # clocks do not matter
            done = run(checkout, "remote_check", work, "01", **settings)
            assert done.code == 0, done.err
            assert built.read_text() == "https://a/b?c='d'&$e\n" * times

    def test_an_environment_that_cannot_be_built_is_2(self, checkout: Path, work: Path) -> None:
        (checkout / "Makefile").write_text(".venv/.built-from-lock:\n\t@echo no luck >&2; false\n")
        done = run(checkout, "remote_check", work, REMOTE_PYTHON="")
        assert (done.code, done.out) == (2, "")
        assert "no luck" in done.err
        assert "the environment could not be built" in done.err

    @pytest.mark.parametrize(("python", "reason"), [("/gone/python", "is no program here"), ("false", "does not run")])
    def test_a_python_that_does_not_run_is_2(self, checkout: Path, work: Path, python: str, reason: str) -> None:
        done = run(checkout, "remote_check", work, REMOTE_PYTHON=python)
        assert (done.code, done.out) == (2, "")
        assert python in done.err
        assert reason in done.err


class TestFigures:
    def test_the_drawn_figures_come_back_and_are_compared(
        self, checkout: Path, work: Path, ssh: dict[str, str]
    ) -> None:
        first = run(checkout, "remote_figures", work, **ssh)
        assert (first.code, first.last) == (0, "figures: 0 unchanged, 2 written, 0 failed"), first.err
        assert "same bytes here: 0; others: figures/ch01-one.svg figures/ch02-two.svg" in first.err
        drawn = report(first) / "figures"
        assert sorted(p.name for p in drawn.iterdir()) == ["ch01-one.svg", "ch02-two.svg"]
        shutil.copy(drawn / "ch01-one.svg", checkout / "figures")
        (checkout / "figures" / "ch02-two.svg").write_text("stale")
        second = run(checkout, "remote_figures", work, **ssh)
        assert "same bytes here: 1; others: figures/ch02-two.svg" in second.err
        assert (report(second) / "figures" / "ch02-two.svg").read_bytes() == (drawn / "ch02-two.svg").read_bytes()
        assert (checkout / "figures" / "ch02-two.svg").read_text() == "stale"

    def test_a_script_that_fails_is_1_and_no_old_figure_passes_for_its_own(
        self, checkout: Path, work: Path, ssh: dict[str, str]
    ) -> None:
        (checkout / "figures" / "ch01-one.svg").write_text("an old one")
        (checkout / "figures" / "ch01_one.py").write_text("def draw():\n    raise RuntimeError('no data')\n")
        done = run(checkout, "remote_figures", work, **ssh)
        assert done.code == 1
        assert "RuntimeError: no data" in done.out
        assert [p.name for p in (report(done) / "figures").iterdir()] == ["ch02-two.svg"]

    def test_data_recorded_there_comes_back_and_only_that(
        self, checkout: Path, work: Path, ssh: dict[str, str]
    ) -> None:
        drawn = run(checkout, "remote_figures", work, "ch02", **ssh)
        assert not (report(drawn) / "figures" / "data").exists()
        (checkout / "figures" / "data" / "other.json").write_text("{}")
        done = run(checkout, "remote_figures", work, "ch02", RECORD="1", **ssh)
        assert done.code == 0, done.out
        assert {p.name: p.read_text() for p in (report(done) / "figures" / "data").iterdir()} == {
            "ch02.json": '{"measured": 2}'
        }
        assert [p.name for p in (report(done) / "figures").glob("*.svg")] == ["ch02-two.svg"]

    def test_an_unknown_figure_is_2(self, checkout: Path, work: Path, ssh: dict[str, str]) -> None:
        done = run(checkout, "remote_figures", work, "ch07 $(touch hit)", **ssh)
        assert done.code == 2
        assert "no figure is called 'ch07 $(touch hit)'" in done.out
        assert list(checkout.parent.glob("**/hit")) == []


class TestGpu:
    @staticmethod
    def torch(cuda: list[str], mps: bool = False) -> Any:
        return SimpleNamespace(
            __version__="9.9+cpu",
            cuda=SimpleNamespace(
                is_available=lambda: bool(cuda), device_count=lambda: len(cuda), get_device_name=lambda i: cuda[i]
            ),
            backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda: mps)),
        )

    def test_a_gpu_is_named_with_what_may_use_it(self) -> None:
        assert gpu.describe(self.torch(["A", "B"])).startswith("GPU: A, B, visible to lab cells and recordings")

    def test_a_torch_that_cannot_use_one_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gpu.sys, "platform", "linux")
        assert "torch 9.9+cpu in this environment cannot use it; CPU only" in gpu.describe(self.torch([]))

    def test_without_a_trace_of_one_torch_is_not_imported(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(gpu, "may_have_one", lambda: False)
        monkeypatch.setattr(gpu.importlib, "import_module", lambda name: pytest.fail(f"imported {name}"))
        gpu.main()
        assert capsys.readouterr().out == "GPU: none; CPU only\n"
