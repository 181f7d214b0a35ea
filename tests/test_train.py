"""What `train` promises where something goes wrong: interruptions, wrong files, its output, its memory; the README."""

from __future__ import annotations

import gc
import json
import math
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from checking import environment
from killing import files
from training_runs import (
    CONFIG,
    TASKS,
    TOKENIZER,
    Trained,
    agent,
    by_tokens,
    files_in,
    in_process,
    shown,
    struck,
    trained,
    two_turns,
    weights_of,
)

import agentrl as arl

ROOT = Path(__file__).resolve().parents[1]
CHECKPOINT, METRICS = (path.name for path in files_in(Path()).values())


@pytest.fixture(scope="module")
def whole() -> Trained:
    """What the training gives that nothing interrupts and that writes nothing."""
    return trained()


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def metrics_in(folder: Path) -> list[dict[str, float | None]]:
    """Return the lines of a training's metrics, each of them strictly JSON."""
    text = (folder / METRICS).read_text(encoding="utf-8")
    assert text == "" or text.endswith("\n")
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def without_seconds(lines: list[dict[str, float | None]]) -> str:
    """Return metrics as the text that `Trained` has of rows: nan for null, and no times."""
    rows = [{k: math.nan if v is None else v for k, v in line.items() if not k.startswith("seconds")} for line in lines]
    return repr(rows)


def stop(*given: Any) -> Any:
    raise RuntimeError("stopped")


class At:
    """A hook that does something at one of its calls, counted from 1, and else what `usual` does."""

    def __init__(self, call: int, then: Callable[..., Any], usual: Callable[..., Any]) -> None:
        self.calls, self.at, self.then, self.usual = 0, call, then, usual

    def __call__(self, *given: Any) -> Any:
        self.calls += 1
        return (self.then if self.calls == self.at else self.usual)(*given)


def interrupt(*given: Any) -> None:
    signal.raise_signal(signal.SIGINT)


def no_penalty(part: Any, logprobs: torch.Tensor, logits: Any, whole: Any) -> torch.Tensor:
    return logprobs.sum() * 0.0


HOOKS: dict[str, Any] = {
    "make_env": two_turns,
    "rewards": by_tokens,
    "penalty": no_penalty,
    "callback": lambda state: None,
}


class TestInterrupted:
    def test_files_change_nothing(self, tmp_path: Path, whole: Trained) -> None:
        assert trained(tmp_path) == whole
        assert without_seconds(metrics_in(tmp_path)) == whole.rows

    @pytest.mark.parametrize("done", [0, 1, 2])
    def test_fewer_iterations_and_then_the_rest_are_the_same_training(
        self, tmp_path: Path, whole: Trained, done: int
    ) -> None:
        trained(tmp_path, iterations=done)
        assert len(metrics_in(tmp_path)) == done
        assert trained(tmp_path, agent(1)) == whole  # the weights are those of the file
        assert without_seconds(metrics_in(tmp_path)) == whole.rows

    @pytest.mark.parametrize("end", [stop, interrupt])
    @pytest.mark.parametrize(
        ("hook", "call"), [("make_env", 13), ("rewards", 2), ("penalty", 7), ("callback", 1), ("callback", 3)]
    )
    def test_an_exception_or_ctrl_c_anywhere_leaves_what_can_be_gone_on_from(
        self, tmp_path: Path, hook: str, call: int, end: Callable[..., None]
    ) -> None:
        """In an episode, while grading, in the middle of an update, and between update and checkpoint."""
        undisturbed = trained(**HOOKS)
        disturbed: dict[str, Any] = {**HOOKS, hook: At(call, end, HOOKS[hook])}
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises((RuntimeError, KeyboardInterrupt)):
                trained(tmp_path, **disturbed)
        finally:
            signal.signal(signal.SIGINT, before)
        assert trained(tmp_path, agent(1), **HOOKS) == undisturbed
        assert without_seconds(metrics_in(tmp_path)) == undisturbed.rows

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
    def test_a_signal_before_any_write_or_in_the_middle_of_it(
        self, tmp_path: Path, whole: Trained, number: signal.Signals
    ) -> None:
        ended: list[int | None] = []
        while not ended or ended[-1] != 0:
            folder = tmp_path / str(len(ended))
            folder.mkdir()
            ended.append(in_process(struck, folder, len(ended) + 1, number))
            assert trained(folder) == whole
            assert without_seconds(metrics_in(folder)) == whole.rows
            assert set(files(folder)) == {CHECKPOINT, METRICS}
        assert set(ended[:-1]) == {-9 if number == signal.SIGKILL else 1}
        assert len(ended) > 4 * CONFIG.iterations

    def test_a_line_of_metrics_that_was_half_written_is_written_anew(self, tmp_path: Path, whole: Trained) -> None:
        trained(tmp_path, iterations=2)
        with open(tmp_path / METRICS, "a") as file:
            file.write('{"iteration": 2, "epi')
        trained(tmp_path)
        assert without_seconds(metrics_in(tmp_path)) == whole.rows

    def test_metrics_that_begin_late_or_were_lost_are_not_missed(self, tmp_path: Path, whole: Trained) -> None:
        trained(tmp_path, iterations=1)
        (tmp_path / METRICS).unlink()
        trained(tmp_path, iterations=2)
        assert [line["iteration"] for line in metrics_in(tmp_path)] == [1]
        assert trained(tmp_path) == whole
        assert [line["iteration"] for line in metrics_in(tmp_path)] == [1, 2]

    def test_a_finished_training_is_read_and_nothing_is_done_again(self, tmp_path: Path, whole: Trained) -> None:
        trained(tmp_path)
        before = files(tmp_path)
        assert trained(tmp_path, agent(1), make_env=stop) == whole
        assert files(tmp_path) == before

    def test_what_a_hook_remembers_is_kept(self, tmp_path: Path) -> None:
        class Rising:
            """Rewards that depend on how often they were asked for."""

            def __init__(self) -> None:
                self.asked = 0

            def __call__(self, batch: arl.TrajectoryBatch) -> torch.Tensor:
                self.asked += 1
                return (torch.where(batch.action_mask, batch.ids, 0).sum(1) % (1 + self.asked)).to(arl.DTYPE)

            def state_dict(self) -> dict[str, int]:
                return {"asked": self.asked}

            def load_state_dict(self, state: dict[str, int]) -> None:
                self.asked = state["asked"]

        trained(tmp_path, iterations=1, rewards=Rising())
        assert trained(tmp_path, rewards=Rising()) == trained(rewards=Rising())


class TestRefused:
    @pytest.mark.parametrize(
        ("given", "reason"),
        [
            ({"seed": 1}, "seed is 0, not 1"),
            ({"learning_rate": 1e-3}, "learning_rate is 0.002, not 0.001"),
            ({"loss": "cispo", "clip_low": 1.0}, "clip_low is 0.2, not 1.0|loss is 'ppo', not 'cispo'"),
            ({"overlong": (6, 2)}, r"overlong is None, not \[6, 2\]"),
            ({"tasks": TASKS[:2]}, r"tasks is \[0, 1, 2\], not \[0, 1\]"),
            ({"tasks": TASKS[::-1]}, r"tasks is \[0, 1, 2\], not \[2, 1, 0\]"),
            ({"model": agent(width=24)}, "model.width is 16, not 24"),
            (
                {"model": agent().float()},
                r"weight tokens is \['torch.float64', 247, 16\], not \['torch.float32', 247, 16\]",
            ),
            ({"penalty": no_penalty}, "hooks is .*not .*'penalty'"),
        ],
    )
    def test_a_checkpoint_of_another_training_by_what_differs(
        self, tmp_path: Path, given: dict[str, Any], reason: str
    ) -> None:
        trained(tmp_path, iterations=1)
        before, model = files(tmp_path), given.get("model", agent(1))
        weights = weights_of(model)
        with pytest.raises(ValueError, match=rf"{CHECKPOINT} is of another training: ({reason})"):
            trained(tmp_path, **{"make_env": stop, **given, "model": model})
        assert files(tmp_path) == before
        assert weights_of(model) == weights

    @pytest.mark.parametrize(
        ("given", "error", "reason"),
        [
            ({"config": "grpo"}, TypeError, "config is 'grpo'; it must be a TrainConfig"),
            ({"config": {"seed": 1}}, TypeError, r"config is {'seed': 1}; it must be a TrainConfig"),
            ({"tasks": arl.split_tasks(arl.bugfix_tasks())}, TypeError, r"tasks\[0\] is a tuple without an id"),
            ({"make_env": None}, TypeError, "make_env is None"),
            ({"rewards": 1.0}, TypeError, "rewards is 1.0"),
            ({"advantages": "group"}, TypeError, "advantages is 'group'"),
            ({"penalty": [no_penalty]}, TypeError, r"penalty is \[.*it must be a function"),
            ({"callback": 5}, TypeError, "callback is 5"),
            ({"metrics": "one", "checkpoint": "one"}, ValueError, "checkpoint and metrics are both one"),
            ({"model": agent().requires_grad_(False)}, ValueError, "no weight of the model requires a gradient"),
        ],
    )
    def test_an_argument_of_another_kind_by_its_name_before_any_episode(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], error: type, reason: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        usual = {"model": agent(), "tokenizer": TOKENIZER, "tasks": TASKS, "make_env": stop}
        with pytest.raises(error, match=reason):
            arl.train(**usual | given)
        assert list(tmp_path.iterdir()) == []

    def broken(self) -> dict[str, Callable[[bytes], bytes]]:
        """Return what may have become of a checkpoint."""
        return {
            "empty": lambda data: b"",
            "half": lambda data: data[: len(data) // 2],
            "without its end": lambda data: data[:-1],
            "a text": lambda data: b"epoch 3\n",
            "zeros": lambda data: bytes(len(data)),
        }

    @pytest.mark.parametrize("how", ["empty", "half", "without its end", "a text", "zeros"])
    def test_a_broken_checkpoint_is_refused_by_its_path_and_left_alone(self, tmp_path: Path, how: str) -> None:
        trained(tmp_path, iterations=1)
        path = tmp_path / CHECKPOINT
        path.write_bytes(self.broken()[how](path.read_bytes()))
        self.refused(tmp_path, rf"{CHECKPOINT} is no checkpoint of `train`")

    @pytest.mark.parametrize("other", [agent().state_dict(), [1, 2], {"identity": 3}, {"identity": {}}, None])
    def test_another_file_of_torch_is_refused(self, tmp_path: Path, other: Any) -> None:
        torch.save(other, tmp_path / CHECKPOINT)
        self.refused(tmp_path, rf"{CHECKPOINT} is (no checkpoint|of another training)")

    def test_a_checkpoint_that_lacks_a_part_is_refused(self, tmp_path: Path) -> None:
        trained(tmp_path, iterations=1)
        held = torch.load(tmp_path / CHECKPOINT)
        for name in held:
            torch.save({k: v for k, v in held.items() if k != name}, tmp_path / CHECKPOINT)
            self.refused(tmp_path, rf"{CHECKPOINT} is no checkpoint of `train`")

    def test_metrics_without_their_checkpoint(self, tmp_path: Path) -> None:
        trained(tmp_path, iterations=1)
        (tmp_path / CHECKPOINT).unlink()
        self.refused(tmp_path, f"{METRICS} has the metrics of a training", FileExistsError)

    @pytest.mark.parametrize(
        ("wrong", "reason"),
        [
            ([7], r"has the iterations \[7\], the checkpoint 1"),
            ([0, 1, 2], r"has the iterations \[0, 1, 2\], the checkpoint 1"),
            ([1, 0], r"has the iterations \[1, 0\]"),
            ([0, 0], r"has the iterations \[0, 0\]"),
            (["a text"], "is no file of metrics"),
            ("[]\n", "is no file of metrics"),
            ("a text\n", "is no file of metrics"),
        ],
    )
    def test_metrics_of_another_training(self, tmp_path: Path, wrong: list[Any] | str, reason: str) -> None:
        trained(tmp_path, iterations=1)
        lines = wrong if isinstance(wrong, str) else "".join(json.dumps({"iteration": one}) + "\n" for one in wrong)
        (tmp_path / METRICS).write_text(lines)
        self.refused(tmp_path, f"{METRICS} {reason}")

    @pytest.mark.parametrize("name", [CHECKPOINT, METRICS])
    def test_a_folder_in_the_place_of_a_file(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).mkdir()
        self.refused(tmp_path, name, (OSError, ValueError))

    @pytest.mark.parametrize("name", ["checkpoint", "metrics"])
    def test_a_folder_that_there_is_not(self, tmp_path: Path, name: str) -> None:
        given: dict[str, Any] = {name: tmp_path / "nowhere" / "file"}
        with pytest.raises(FileNotFoundError, match="nowhere"):
            trained(make_env=stop, **given)

    def refused(self, folder: Path, reason: str, kind: Any = ValueError) -> None:
        """Check that a training is refused before it has changed its files or the model."""
        before, model = files(folder), agent(1)
        with pytest.raises(kind, match=reason):
            trained(folder, model, make_env=stop)
        assert files(folder) == before
        assert weights_of(model) == weights_of(agent(1))


class TestOutput:
    def test_metrics_are_json_and_the_history_with_seconds(self, tmp_path: Path) -> None:
        """No episode is repaired here, so that a mean over the repaired ones is no number."""
        rows = trained(tmp_path).rows
        lines = metrics_in(tmp_path)
        assert without_seconds(lines) == rows
        assert all(line["tokens_repaired"] is None for line in lines)
        assert all(0 < line["seconds_sampling"] < 60 and 0 < line["seconds_update"] < 60 for line in lines)  # type: ignore[operator]

    def test_each_line_is_there_when_its_callback_is_called(self, tmp_path: Path) -> None:
        seen: list[int] = []
        trained(tmp_path, callback=lambda state: seen.append(len(metrics_in(tmp_path))))
        assert seen == [1, 2, 3]

    @pytest.mark.parametrize(("progress", "bar"), [(None, False), (False, False), (True, True)])
    def test_where_there_is_no_terminal_nothing_is_printed_unless_wanted(
        self, capfd: pytest.CaptureFixture[str], progress: bool | None, bar: bool
    ) -> None:
        trained(progress=progress)
        out, err = capfd.readouterr()
        assert out == ""
        assert ("3/3" in err) == bool(err) == bar

    @pytest.mark.parametrize(("progress", "bar"), [(None, True), (False, False), (True, True)])
    def test_on_a_terminal_there_is_a_bar_unless_not_wanted(self, progress: bool | None, bar: bool) -> None:
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 80))
        try:
            assert in_process(shown, progress, os.ttyname(theirs)) == 0
            os.close(theirs)
            text = read_all(ours)
        finally:
            os.close(ours)
        assert ("3/3" in text) == bool(text) == bar

    def test_in_a_notebook_nothing_is_printed(self) -> None:
        import nbformat
        from nbclient import NotebookClient

        here = f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r})"
        cell = f"{here}\nfrom training_runs import trained\ntrained().rows[:2]"
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
        NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
        (result,) = notebook.cells[0].outputs
        assert result.data == {"text/plain": "'[{'"}


def read_all(terminal: int) -> str:
    """Return what was written to a terminal whose other end is closed."""
    data = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # Linux's way to say that the other end is closed
            piece = b""
        if not piece:
            return data.decode()
        data += piece


def held() -> tuple[int, int]:
    """Return how many tensors there are in this process, and their bytes."""
    gc.collect()
    tensors = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
    return len(tensors), sum({one.data_ptr(): one.untyped_storage().nbytes() for one in tensors}.values())


def test_five_hundred_iterations_hold_no_more_than_one_hundred() -> None:
    found: dict[int, tuple[tuple[int, int], int]] = {}

    def look(state: arl.TrainState) -> None:
        if state.iteration in (100, 300, 500):
            found[state.iteration] = held(), psutil.Process().memory_info().rss

    trained(tasks=TASKS[:1], attempts=2, max_turn_tokens=1, iterations=500, callback=look)
    assert found[100][0] == found[300][0] == found[500][0]
    assert found[500][1] - found[100][1] < 16 * 2**20  # rows take about 1 of these


@pytest.mark.slow
def test_the_readmes_training_runs_as_it_stands_and_prints_what_stands_below_it(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = re.search(r"^## Train an agent\n(.*?)^## ", readme, re.MULTILINE | re.DOTALL)
    assert section is not None
    code, printed = re.findall(r"^```(?:python)?\n(.*?)^```\n", section[1], re.MULTILINE | re.DOTALL)
    (tmp_path / "train.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=environment(PYTHONPATH=str(ROOT)),
        capture_output=True, encoding="utf-8", timeout=600,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == printed
