"""The repository around the book: the lock, the commands, and what must agree between files."""

import os
import re
import subprocess
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
import yaml
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(file="requirements.lock"):
    pins = dict(line.split("==") for line in (ROOT / file).read_text().split() if "==" in line)
    return {canonical(name): version for name, version in pins.items()}


def tracked():
    listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def test_the_lock_pins_every_direct_dependency_and_no_cuda():
    pins = locked()
    wanted = PROJECT["dependencies"] + [s for extra, specs in EXTRAS.items() if extra != "peers" for s in specs]
    names = {re.split(r"[<>=~!\[; ]", spec)[0].lower() for spec in wanted}
    assert names - pins.keys() == set()
    assert pins["torch"] == "2.13.0"
    assert [name for name in pins if name.startswith(("nvidia", "triton", "cuda"))] == []


def test_make_peers_adds_pinned_packages_beside_the_lock_and_cannot_replace_torch():
    pins = locked("requirements-peers.txt")
    wanted = {canonical(name): pin for name, _, pin in (s.partition("==") for s in EXTRAS["peers"])}
    assert (wanted | locked("requirements-verl.txt")).items() <= pins.items()
    assert pins.keys() & locked().keys() == set()
    assert [name for name in pins if name.startswith(("nvidia", "triton", "cuda"))] == []
    recipe = (ROOT / "Makefile").read_text().partition("\npeers:")[2].partition("\n\n")[0]
    assert "--no-deps --requirement requirements-peers.txt" in recipe


def installed(name):
    with suppress(PackageNotFoundError):
        return version(name).split("+")[0]
    return None


def test_this_environment_is_the_lock_and_peers_that_it_has_are_the_pinned_ones():
    wrong = {name: (installed(name), pin) for name, pin in locked().items() if installed(name) != pin}
    peers = locked("requirements-peers.txt")
    wrong |= {name: (installed(name), pin) for name, pin in peers.items() if installed(name) not in (None, pin)}
    assert wrong == {}


def test_every_command_of_the_makefile_is_explained_and_the_readme_names_the_main_ones():
    makefile = (ROOT / "Makefile").read_text()
    phony = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
    explained = set(re.findall(r"^([a-z-]+):.*## .+$", makefile, re.MULTILINE))
    assert phony == explained
    readme = (ROOT / "README.md").read_text()
    for command in ("check", "test", "peers", "read", "site", "read-site", "books", "figures", "determinism", "bench"):
        assert f"make {command}" in readme


def test_make_asks_npm_for_packages_only_where_their_lock_is_another_than_what_it_installed(tmp_path):
    def planned():
        command = ["make", "--dry-run", "-C", str(tmp_path), "site"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    (tmp_path / "Makefile").symlink_to(ROOT / "Makefile")
    files = ("requirements.lock", ".venv/.built-from-lock", "site/reader/package-lock.json")
    for age, name in enumerate((*files, "site/reader/node_modules/.built-from-lock"), start=1):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (age, age))
    assert "build.mjs" in planned()
    assert "ci --prefix" not in planned()
    lock = tmp_path / "site/reader/package-lock.json"
    os.utime(lock, (5, 5))  # as after another checkout: newer, and the same
    assert "ci --prefix" not in planned()
    lock.write_text("{}")
    assert "ci --prefix site/reader" in planned()


def test_make_empties_no_environment_that_a_link_leads_to(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / ".venv").symlink_to(elsewhere)
    (tmp_path / "book" / "requirements.lock").touch()
    command = ["make", "-C", str(tmp_path / "book"), "-f", str(ROOT / "Makefile"), "check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert ".venv is a link; what it leads to would be emptied" in done.stderr
    assert (elsewhere / "precious").exists()


def test_tests_compute_on_one_thread_and_draw_the_same_examples_in_every_run():
    import torch

    assert torch.get_num_threads() == 1
    assert settings().derandomize


def test_ci_runs_the_readmes_test_command_and_the_workflow_runs_ci():
    assert (ROOT / ".ci/run").read_text().rstrip().endswith("make peers\nexec make test")
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    steps = [step.get("run") for job in workflow["jobs"].values() for step in job["steps"]]
    assert "bash .ci/run" in steps


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == PROJECT["version"]
    assert f"## {PROJECT['version']} ({citation['date-released']})" in (ROOT / "CHANGELOG.md").read_text()
    import agentrl

    assert agentrl.__version__ == PROJECT["version"]


def test_every_hook_of_pre_commit_starts_a_program_that_exists():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    entries = [hook["entry"].split() for repo in config["repos"] for hook in repo["hooks"]]
    assert entries
    for entry in entries:
        scripts = [part for part in entry if part.startswith("scripts/")]
        assert all((ROOT / script).is_file() for script in scripts), entry


def test_no_file_holds_an_absolute_path_of_the_machine_it_was_written_on():
    home = re.compile(rb"/(?:work|root|home/[a-z]+|Users/[A-Za-z]+)/")
    # Tests of the linter plant such paths on purpose.
    planted = {Path(__file__).resolve(), ROOT / "tests" / "test_lint.py"}
    found = [f"{p.relative_to(ROOT)}" for p in tracked() if p not in planted and home.search(p.read_bytes())]
    assert found == []


def test_the_map_of_bookkit_names_every_module_and_no_other():
    import bookkit

    folder = ROOT / "scripts" / "bookkit"
    modules = {p.stem for p in folder.glob("*.py")} - {"__init__"}
    there = modules | {f"{p.parent.name}/" for p in folder.glob("*/__init__.py")}
    named = set(re.findall(r"^    ([\w/]+)(?:,|  +\S)", bookkit.__doc__ or "", re.MULTILINE))
    assert named == there
