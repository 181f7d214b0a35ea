"""The repository around the book: the lock, the commands, and what must agree between files."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def locked():
    pins = dict(line.split("==") for line in (ROOT / "requirements.lock").read_text().split() if "==" in line)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins.items()}


def tracked():
    listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def test_the_lock_pins_every_direct_dependency_and_no_cuda():
    pins = locked()
    wanted = PROJECT["dependencies"] + [d for extra in PROJECT["optional-dependencies"].values() for d in extra]
    names = {re.split(r"[<>=~!\[; ]", spec)[0].lower() for spec in wanted}
    assert names - pins.keys() == set()
    assert pins["torch"] == "2.13.0"
    assert [name for name in pins if name.startswith(("nvidia", "triton", "cuda"))] == []


def test_this_environment_is_the_lock():
    from importlib.metadata import version

    wrong = {name: (version(name), pin) for name, pin in locked().items() if version(name).split("+")[0] != pin}
    assert wrong == {}


def test_every_command_of_the_makefile_is_explained_and_the_readme_names_the_main_ones():
    makefile = (ROOT / "Makefile").read_text()
    phony = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
    explained = set(re.findall(r"^([a-z-]+):.*## .+$", makefile, re.MULTILINE))
    assert phony == explained
    readme = (ROOT / "README.md").read_text()
    for command in ("check", "test", "read", "figures", "determinism", "bench"):
        assert f"make {command}" in readme


def test_ci_runs_the_readmes_test_command_and_the_workflow_runs_ci():
    assert (ROOT / ".ci/run").read_text().rstrip().endswith("exec make test")
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
