"""remote_check.sh and remote_figures.sh, over a real ssh to a server of the test's own on this machine.

Without sshd, ssh, rsync or git the tests that need them are skipped; where the variable CI is set, they fail instead.
"""

from __future__ import annotations

import ast
import getpass
import os
import re
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
from checking import Checked, environment, hearing, junit_cases, wait_until
from needing import missing
from needing import program as need
from remote import gpu
from synthetic import code, write_book, write_chapter

from bookkit import figures as fig

ROOT = Path(__file__).resolve().parents[1]
OWN = ("REMOTE", "PIP_", "AGENTRL_MODEL_DIR", "RECORD", "JOBS", "PYTHON", "MAKEFLAGS")
MARKER = ".made-by-remote-scripts"
ENDLESS = "import os, time\nopen({!r}, 'w').write(str(os.getpid()))\nwhile True:\n    time.sleep(0.1)"
FIGURE = "def draw():\n    return {svg!r}\n"
RECORDED = """
import json, sys
from pathlib import Path
if __name__ == "__main__" and "--record" in sys.argv:
    (Path(__file__).parent / "data" / "ch02.json").write_text(json.dumps({"measured": 2}))
    recorded = Path(__file__).parents[1] / "chapters" / "recorded"
    recorded.mkdir(exist_ok=True)
    (recorded / "02-run.json").write_text("{}")
"""


def svg(label: str) -> str:
    """Return a figure with a label in a box."""
    drawing = fig.card(200, 100)
    fig.box(drawing, 20, 20, 160, 60, label)
    return fig.finish(drawing, "A title", "A description.")


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
def near(tmp_path: Path) -> dict[str, str]:
    """The variables that send the scripts to this machine past any network: where the connection does not matter."""
    command = tmp_path / "near"
    command.write_text('#!/bin/sh\nshift 5\nexec bash -c "$*"\n')  # two -o with a value, and the host
    command.chmod(0o755)
    return {"REMOTE": "near", "REMOTE_SSH": str(command)}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small book of two chapters and two figures, with the scripts, in a git repository of its own."""
    need("git")
    need("rsync")
    root = tmp_path_factory.mktemp("book") / "checkout"
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
def checkout(tmp_path: Path, book: Path) -> Path:
    """A copy of the small book for one test."""
    return Path(shutil.copytree(book, tmp_path / "checkout"))


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
        command, env=variables(extra), cwd=root.parent, preexec_fn=hearing, text=True, encoding="utf-8",
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
    write_chapter(root, "01-one", [code("forever", ENDLESS.format(str(pid_file)))])


def replace_checker(root: Path, source: str = "import sys\nprint(ascii(sys.argv))\n") -> None:
    """Replace the checker by a program that prints its arguments, where what it checks does not matter."""
    (root / "scripts" / "check_chapters.py").write_text(source)


def caller(checkout: Path, how: str) -> Path:
    """Return a folder whose scripts/remote_check.sh calls that of the checkout with streams changed: `>&-`."""
    script = checkout.parent / "caller" / "scripts" / "remote_check.sh"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\nexec '{checkout}/scripts/remote_check.sh' \"$@\" {how}\n")
    script.chmod(0o755)
    return script.parents[1]


def marked(work: Path) -> Path:
    """Make a scratch folder as an earlier run would have left it."""
    work.mkdir()
    (work / MARKER).touch()
    return work


def dead_process() -> int:
    """Return the number of a process that has ended."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    return gone.pid


def machine() -> str:
    """Return the name of this machine as it stands in the names of temporary folders."""
    return re.sub(r"[^A-Za-z0-9-]", "_", os.uname().nodename)


def tree(folder: Path) -> dict[str, str]:
    """Return everything in a folder: files with what they hold."""
    return {str(p.relative_to(folder)): p.read_text() if p.is_file() else "" for p in folder.rglob("*")}


def is_idle(work: Path) -> bool:
    """Return whether no process works in the scratch folder, nobody holds it and no link leads to it."""
    for process in psutil.process_iter(["cwd", "cmdline"]):
        words = [process.info["cwd"] or "", *(process.info["cmdline"] or [])]
        if any(str(work / "book") in word or str(work / "results") in word for word in words):
            return False
    links = Path("/tmp").glob("book-copy.*/book")
    return not (work / "lock").is_symlink() and str(work / "book") not in [os.readlink(p) for p in links]


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
        self, checkout: Path, work: Path, near: dict[str, str]
    ) -> None:
        replace_checker(checkout)
        (checkout / "chapters" / "key.secret").write_text("git ignores this")
        assert run(checkout, "remote_check", work, **near).code == 0
        assert not (work / "book" / "chapters" / "key.secret").exists()
        (checkout / "chapters" / "02-two.ipynb").unlink()
        write_chapter(checkout, "03-three", [code("three", "print(3)", "3\n")])
        (checkout / "chapters" / "-new ü.txt").touch()
        (work / "book" / "chapters" / "left over.txt").write_text("nobody has this any more")
        kept = [work / "book" / name / "file" for name in (".venv", ".cache", "build", "labs/model", "x/__pycache__")]
        for file in kept:
            file.parent.mkdir(parents=True)
            file.touch()
        assert run(checkout, "remote_check", work, **near).code == 0
        assert [file for file in kept if not file.exists()] == []
        names = sorted(p.name for p in (work / "book" / "chapters").iterdir())
        assert names == ["-new ü.txt", "01-one.ipynb", "03-three.ipynb"]

    def test_a_cell_that_differs_is_1_and_the_report_names_it(
        self, checkout: Path, work: Path, near: dict[str, str]
    ) -> None:
        write_chapter(checkout, "02-two", [code("two", "print(2)", "3\n")])
        done = run(checkout, "remote_check", work, "02", **near)
        assert (done.code, done.status("02")) == (1, "differs")
        assert "cell two" in done.out
        cases = junit_cases(report(done) / "junit.xml")
        assert {key: {name: case.status for name, case in found.items()} for key, found in cases.items()} == {
            "02": {"two": "failed"}
        }

    def test_a_prefix_that_is_no_chapter_is_2(self, checkout: Path, work: Path, near: dict[str, str]) -> None:
        done = run(checkout, "remote_check", work, "77", **near)
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


class TestEnding:
    @pytest.mark.parametrize("victim", ["ssh", "script"])
    def test_when_this_side_dies_no_checker_is_left_there(
        self, checkout: Path, work: Path, ssh: dict[str, str], victim: str
    ) -> None:
        pid_file, temporary = checkout.parent / "pid", checkout.parent / "tmp"
        temporary.mkdir()
        endless(checkout, pid_file)
        process = start(checkout, "remote_check", work, TMPDIR=str(temporary), **ssh)
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
        assert len(list(temporary.iterdir())) == (victim == "script")  # which could not clean up
        assert run(checkout, "remote_check", "~", TMPDIR=str(temporary)).code == 2
        assert list(temporary.iterdir()) == []

    @pytest.mark.parametrize(("where", "number"), [("here", signal.SIGINT), ("there", signal.SIGTERM)])
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

    def test_a_folder_of_a_process_that_is_gone_is_removed_and_no_other(self, tmp_path: Path) -> None:
        names = {
            "dead": f"x.{machine()}.{dead_process()}.abc",
            "alive": f"x.{machine()}.{os.getpid()}.abc",
            "elsewhere": f"x.{machine()}-2.{dead_process()}.abc",
            "other": f"y.{machine()}.{dead_process()}.abc",
        }
        for name in names.values():
            (tmp_path / name).mkdir()
            (tmp_path / name / "file").touch()
        dead_link = tmp_path / f"x.{machine()}.{dead_process()}.link"
        dead_link.symlink_to(tmp_path / names["other"])
        both = ROOT / "scripts" / "remote" / "both.sh"
        made = subprocess.check_output(["bash", "-c", 'source "$1"; own_folder x', "-", both], cwd=tmp_path, text=True)
        left = {names["alive"], names["elsewhere"], names["other"], made.strip()}
        assert {p.name for p in tmp_path.iterdir()} == left
        assert (tmp_path / names["other"] / "file").exists()

    def test_when_nobody_reads_what_it_prints_the_run_ends_with_141(self, checkout: Path, work: Path) -> None:
        replace_checker(checkout, "while True:\n    print('a line', flush=True)\n")
        process = start(checkout, "remote_check", work)
        assert process.stdout is not None
        assert process.stdout.readline() == "a line\n"
        process.stdout.close()
        if not wait_until(lambda: process.poll() is not None, 60):
            end(process)
        assert process.returncode == 141
        assert wait_until(lambda: is_idle(work))

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
    def test_when_what_it_prints_cannot_be_written_that_is_2(self, checkout: Path, work: Path) -> None:
        replace_checker(checkout)
        done = run(caller(checkout, ">/dev/full"), "remote_check", work)
        assert (done.code, "the run in this machine has ended too" in done.err) == (2, True), done
        assert is_idle(work)

    @pytest.mark.parametrize("how", [">&-", "2>&-", "<&- >&- 2>&-"])
    def test_with_streams_closed_it_runs_all_the_same(self, checkout: Path, work: Path, how: str) -> None:
        replace_checker(checkout)
        done = run(caller(checkout, how), "remote_check", work, "01")
        assert done.code == 0, done
        outputs = [p.read_text() for p in (checkout / "build" / "remote").glob("*/output.txt")]
        assert [ast.literal_eval(output)[-1] for output in outputs] == ["01"]

    def test_a_second_run_in_the_same_folder_is_refused_and_told_who_is_there(
        self, checkout: Path, work: Path, near: dict[str, str]
    ) -> None:
        pid_file = checkout.parent / "pid"
        replace_checker(checkout, ENDLESS.format(str(pid_file)))
        process = start(checkout, "remote_check", work, **near)
        running(process, pid_file)
        holder = os.readlink(work / "lock")
        second = run(checkout, "remote_figures", work, **near)
        process.terminate()
        finish(process)
        assert (second.code, second.out) == (2, "")
        assert f"in use by {holder}" in second.err
        assert f"on {os.uname().nodename}, started by" in holder

    def test_a_lock_whose_holder_is_dead_is_taken_over_with_a_word(
        self, checkout: Path, work: Path, near: dict[str, str]
    ) -> None:
        replace_checker(checkout)
        number = dead_process()
        marked(work)
        left_over = Path(f"/tmp/book-copy.{machine()}.{number}.test")
        left_over.mkdir()
        owner = f"process {number} on {os.uname().nodename}, started by somebody"
        (work / "lock").symlink_to(owner)
        done = run(checkout, "remote_check", work, "01", **near)
        assert done.code == 0, done.err
        assert f"a run that did not end well ({owner})" in done.err
        (work / "lock").symlink_to(owner.replace(" on ", " on another-"))
        assert not left_over.exists()
        assert run(checkout, "remote_check", work, "01", **near).code == 2


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
        self, checkout: Path, near: dict[str, str], given: str, reason: str
    ) -> None:
        tmp = checkout.parent
        (tmp / "file").write_text("kept")
        (tmp / "full").mkdir()
        (tmp / "full" / "file").write_text("kept")
        before = sorted(tmp.rglob("*"))
        done = run(checkout, "remote_check", given.format(tmp=tmp), **near)
        assert (done.code, done.out) == (2, ""), done
        assert reason.format(tmp=tmp) in done.err
        assert sorted(tmp.rglob("*")) == before
        assert not Path("/", MARKER).exists()

    @pytest.mark.parametrize("name", ["book", "results", "lock", MARKER])
    def test_a_link_out_of_the_folder_is_refused_and_nothing_there_is_touched(
        self, checkout: Path, work: Path, near: dict[str, str], name: str
    ) -> None:
        replace_checker(checkout)
        precious = checkout.parent / "precious"
        for folder in ("a", "b", "c"):
            (precious / folder).mkdir(parents=True)
            (precious / folder / "file").write_text("kept")
        marked(work)
        (work / name).unlink(missing_ok=True)
        (work / name).symlink_to(precious / "a" / "file" if name == MARKER else precious)
        before = tree(precious)
        done = run(checkout, "remote_check", work, **near)
        assert (done.code, done.out) == (2, ""), done
        reason = "holds files that are not from these scripts" if name == MARKER else f"{name} is a "
        assert reason in done.err
        assert tree(precious) == before

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
        assert done.code == 2
        assert f"which files of {checkout} are the book's" in done.err
        assert "not a git repository" in done.err

    def test_when_git_does_not_trust_the_checkout_its_own_words_say_what_to_do(
        self, checkout: Path, work: Path
    ) -> None:
        settings = {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        done = run(checkout, "remote_check", work, **settings)
        assert done.code == 2
        assert f"git config --global --add safe.directory {checkout}" in done.err

    @pytest.mark.parametrize("fault", ["broken", "empty"])
    def test_when_git_lists_no_files_that_is_2(self, checkout: Path, work: Path, fault: str) -> None:
        if fault == "broken":
            (checkout / ".git" / "index").write_text("no index")
        else:
            (checkout / ".git" / "index").unlink()
            (checkout / ".gitignore").write_text("*\n")
        done = run(checkout, "remote_check", work)
        reason = "git cannot list the files of" if fault == "broken" else "git knows no files in"
        assert (done.code, f"{reason} {checkout}" in done.err) == (2, True), done
        assert not work.exists()

    def test_a_temporary_folder_that_is_not_there_is_named(self, checkout: Path, work: Path) -> None:
        done = run(checkout, "remote_check", work, TMPDIR="/gone/tmp")
        assert (done.code, "cannot make a folder in /gone/tmp" in done.err) == (2, True), done

    def test_a_missing_program_is_named_with_its_side(self, checkout: Path, work: Path) -> None:
        tools = checkout.parent / "tools"
        tools.mkdir()
        names = "bash cat date dirname env git grep id ln ls mkdir mkfifo mktemp mv readlink rm sed sleep tail tar tr"
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

    def test_a_host_that_does_not_answer_is_255(self, checkout: Path, work: Path) -> None:
        need("ssh")
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
        self, checkout: Path, work: Path, near: dict[str, str]
    ) -> None:
        replace_checker(checkout)
        (checkout / "Makefile").write_text(self.MAKEFILE)
        settings = {**near, "REMOTE_PYTHON": "", "PYTHON": sys.executable, "PIP_INDEX_URL": "https://a/b?c='d'&$e"}
        built = work / "book" / ".venv" / "built"
        for lock, times in (("torch==1\n", 1), ("torch==1\n", 1), ("torch==2\n", 2)):
            (checkout / "requirements.lock").write_text(lock)
            os.utime(checkout / "requirements.lock", (4e9, 4e9) if times == 1 else (1, 1))  # clocks do not matter
            done = run(checkout, "remote_check", work, "01", **settings)
            assert done.code == 0, done.err
            assert built.read_text() == "https://a/b?c='d'&$e\n" * times

    def test_what_a_caller_has_exported_changes_nothing(
        self, checkout: Path, work: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        replace_checker(checkout)
        read = checkout.parent / "read"
        (checkout.parent / "start").write_text(f"echo x >>'{read}'\n")
        (checkout.parent / "decoy" / "checkout" / "scripts" / "remote").mkdir(parents=True)
        exported = {
            "CDPATH": str(checkout.parent / "decoy"), "BASH_ENV": str(checkout.parent / "start"), "TMOUT": "1",
            "SHELLOPTS": "noclobber:noglob", "BASHOPTS": "failglob", "GLOBIGNORE": "*", "FUNCNEST": "1",
            "TAR_OPTIONS": "--exclude=*", "QUOTING_STYLE": "c",
            "BASH_FUNC_cd%%": "() { echo mine; }", "BASH_FUNC_rm%%": "() { echo mine; }",
        }  # fmt: skip
        monkeypatch.chdir(checkout.parent)
        done = run(Path("checkout"), "remote_check", "work", "01", **exported)
        assert done.code == 0, done
        assert ast.literal_eval(done.out)[-1] == "01"
        assert (checkout.parent / "work" / "book" / "chapters" / "01-one.ipynb").exists()
        assert read.read_text() == "x\n"  # by the bash that was started, before it reads the script, and no other

    def test_a_script_called_through_links_finds_its_checkout(self, checkout: Path, work: Path) -> None:
        replace_checker(checkout)
        links = checkout.parent / "links" / "scripts"
        links.mkdir(parents=True)
        (links / "second").symlink_to("../../checkout/scripts/remote_check.sh")
        (links / "remote_check.sh").symlink_to("second")
        done = run(links.parent, "remote_check", work, "01")
        assert done.code == 0, done
        assert report(done).parent == checkout / "build" / "remote"

    def test_links_in_the_copy_are_replaced_by_what_belongs_there(
        self, checkout: Path, work: Path, near: dict[str, str]
    ) -> None:
        replace_checker(checkout)
        (checkout / "Makefile").write_text(self.MAKEFILE)
        (checkout / "requirements.lock").write_text("torch==1\n")
        outside, book = checkout.parent / "outside", marked(work) / "book"
        (outside / "model").mkdir(parents=True)
        (outside / "file").write_text("kept")
        for name in (".venv", ".cache", "build", "chapters", "figures", "scripts/__pycache__"):
            (book / name).parent.mkdir(parents=True, exist_ok=True)
            (book / name).symlink_to(outside)
        (book / "labs").mkdir()
        (book / "labs" / "model").symlink_to(outside / "model")
        before = tree(outside)
        done = run(checkout, "remote_check", work, REMOTE_PYTHON="", PYTHON=sys.executable, **near)
        assert done.code == 0, done
        assert tree(outside) == before
        links = {str(p.relative_to(book)) for p in book.rglob("*") if p.is_symlink()}
        assert links == {"labs/model"}
        assert (book / ".venv" / "bin" / "python").is_file()

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
        assert not (drawn / "data").exists()
        assert sorted(p.name for p in drawn.iterdir()) == ["ch01-one.svg", "ch02-two.svg"]
        shutil.copy(drawn / "ch01-one.svg", checkout / "figures")
        (checkout / "figures" / "ch02-two.svg").write_text("stale")
        second = run(checkout, "remote_figures", work)
        assert "same bytes here: 1; others: figures/ch02-two.svg" in second.err
        assert (report(second) / "figures" / "ch02-two.svg").read_bytes() == (drawn / "ch02-two.svg").read_bytes()
        assert (checkout / "figures" / "ch02-two.svg").read_text() == "stale"

    def test_a_script_that_fails_is_1_and_no_old_figure_passes_for_its_own(
        self, checkout: Path, work: Path, near: dict[str, str]
    ) -> None:
        (checkout / "figures" / "ch01-one.svg").write_text("an old one")
        (checkout / "figures" / "ch01_one.py").write_text("def draw():\n    raise RuntimeError('no data')\n")
        done = run(checkout, "remote_figures", work, **near)
        assert done.code == 1
        assert "RuntimeError: no data" in done.out
        assert [p.name for p in (report(done) / "figures").iterdir()] == ["ch02-two.svg"]

    def test_data_recorded_there_comes_back_and_only_that(
        self, checkout: Path, work: Path, near: dict[str, str]
    ) -> None:
        (checkout / "figures" / "data" / "other.json").write_text("{}")
        done = run(checkout, "remote_figures", work, "ch02", RECORD="1", **near)
        assert done.code == 0, done.out
        assert {p.name: p.read_text() for p in (report(done) / "figures" / "data").iterdir()} == {
            "ch02.json": '{"measured": 2}'
        }
        assert [p.name for p in (report(done) / "figures").glob("*.svg")] == ["ch02-two.svg"]
        assert [p.name for p in (report(done) / "chapters" / "recorded").iterdir()] == ["02-run.json"]

    def test_a_link_through_which_data_would_be_recorded_elsewhere_is_refused(
        self, checkout: Path, work: Path, near: dict[str, str]
    ) -> None:
        data, elsewhere = checkout / "figures" / "data", checkout.parent / "elsewhere"
        data.rename(elsewhere)
        data.symlink_to(elsewhere)
        subprocess.run(["git", "add", "--all"], cwd=checkout, check=True)
        before = tree(elsewhere)
        done = run(checkout, "remote_figures", work, "ch02", RECORD="1", **near)
        assert (done.code, "figures/data" in done.out) == (2, True), done
        assert tree(elsewhere) == before

    def test_an_unknown_figure_is_2(self, checkout: Path, work: Path, near: dict[str, str]) -> None:
        done = run(checkout, "remote_figures", work, "ch07 $(touch hit)", **near)
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
