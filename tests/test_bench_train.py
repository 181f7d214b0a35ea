"""The bench of training: GRPOTrainer plays the same gym with the same policy, the arithmetic. No time is asserted."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from typing import Any

import bench as script
import pytest
import torch
from needing import peer
from rich.console import Console

import agentrl as arl
from bookkit import benchtrain
from bookkit.benchtrain import BASE, Budget, Stopwatch, Training, TrainReport

CONFIG = arl.TrainConfig(iterations=1, attempts=4, epochs=2, minibatches=2)
SMALL = Budget(CONFIG, tasks=3, warm_start=20)
TASKS = arl.split_tasks(arl.bugfix_tasks()).train[: SMALL.tasks]


@pytest.fixture(scope="module")
def trlgym() -> Any:
    """Return the module that makes GRPOTrainer play the gym."""
    for name in ("trl", "datasets"):
        peer(name)
    from bookkit import trlgym

    return trlgym


@pytest.fixture(scope="module")
def tokenizer() -> arl.TinyTokenizer:
    return arl.gym_tokenizer()


@pytest.fixture(scope="module")
def agent(tokenizer: arl.TinyTokenizer) -> arl.TinyAgent:
    return arl.starting_agent(tokenizer, TASKS, 0, SMALL.warm_start)


@pytest.fixture(scope="module")
def played(trlgym: Any, agent: Any, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return a batch of GRPOTrainer's, what it said of it, and its model with the gradient of the batch's loss."""
    seen: list[Any] = []
    folder = tmp_path_factory.mktemp("trl")
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = trlgym.trl_trainer(agent, tokenizer, TASKS, CONFIG, folder, lambda *given: seen.append(given))
        rows = [row for row in trainer.train_dataset for _ in range(CONFIG.attempts)]
        batch = trainer._generate_and_score_completions(rows)
        trainer.current_gradient_accumulation_steps = 1
        trainer._compute_loss(trainer.model, batch).backward()
    (told,) = seen
    known = {"rewards": told[0], "tokens": told[1], "tasks": [row["task"] for row in rows]}
    return {**batch, **known, "trunk": trainer.model.transformer, "head": trainer.model.lm_head}


def turns(batch: dict[str, Any], row: int) -> list[list[int]]:
    """Return the ids that the policy wrote in a row of a batch, turn by turn."""
    mask = batch["tool_mask"][row] * batch["completion_mask"][row]
    found, before = [], 0
    for id, mine in zip(batch["completion_ids"][row].tolist(), mask.tolist(), strict=True):
        if mine and not before:
            found.append([])
        if mine:
            found[-1].append(id)
        before = mine
    return found


@pytest.mark.slow
class TestSame:
    def test_every_text_an_environment_says_has_the_same_ids(self, trlgym, tokenizer):
        theirs = trlgym.trl_tokenizer(tokenizer)
        assert len(theirs) == len(tokenizer)
        for task in arl.bugfix_tasks():
            for edit in arl.EDIT_OPS:
                env = arl.gym_env(task)
                texts = [env.reset()]
                for call in (f"edit {edit}", "read", "test", "fly"):
                    texts.append(env.step(f"<call> {call} </call>").observation)
                for text in texts:
                    ids = tokenizer.encode(text)
                    assert theirs(text)["input_ids"] == ids, text
                    assert theirs.decode(ids) == text

    def test_the_policy_gives_the_same_log_probabilities(self, trlgym, agent, tokenizer):
        batch = arl.collate(arl.rollout(agent, tokenizer, TASKS, 2, 0))
        model = trlgym.trl_model(agent, tokenizer.control[" </call>"])
        with torch.no_grad():
            logits = model(input_ids=batch.ids, attention_mask=batch.attention_mask.long()).logits[:, :-1]
        theirs = logits.log_softmax(-1).gather(-1, batch.ids[:, 1:, None])[..., 0]
        mask = batch.action_mask[:, 1:]
        assert (theirs - batch.logprobs[:, 1:])[mask].abs().max() < 1e-9
        weights = [one.numel() for one in model.parameters() if one.requires_grad]
        assert sum(weights) == sum(one.numel() for one in agent.parameters())

    def test_an_episode_is_what_the_gym_makes_of_the_same_messages(self, played, tokenizer):
        start, end = tokenizer.control["<obs>"], tokenizer.control["</obs>"]
        by_id = {task.id: task for task in TASKS}
        lengths = set()
        for row, number in enumerate(played["tasks"]):
            env, wrote, expected = arl.gym_env(by_id[number]), turns(played, row), []
            prompt = [tokenizer.control["<bos>"], *tokenizer.encode(env.reset())]
            assert played["prompt_ids"][row].tolist() == prompt
            for ids in wrote:
                assert env.running, row
                text = tokenizer.decode(ids)
                step = env.step(text if text.endswith(" </call>") else f"{text} (cut off)")
                expected += [*ids, start, *tokenizer.encode(step.observation), end]
            expected = expected[: len(expected) - 2 - len(tokenizer.encode(step.observation))]
            assert not env.running, row
            assert played["completion_ids"][row][played["completion_mask"][row].bool()].tolist() == expected
            assert played["rewards"][row] == step.reward
            lengths.add(len(wrote))
        assert len(lengths) > 1, "short and long episodes"

    def test_it_says_how_many_tokens_the_policy_wrote(self, played):
        assert played["tokens"] == int((played["tool_mask"] * played["completion_mask"]).sum())

    def test_advantages_are_those_of_the_rewards(self, played):
        rewards = torch.tensor(played["rewards"]).double().view(len(TASKS), CONFIG.attempts)
        ours = arl.grpo_advantages(rewards, eps=1e-4).flatten()
        assert (played["advantages"].double() - ours).abs().max() < 1e-5

    def test_the_same_batch_gives_the_same_gradient(self, played, agent):
        ids = torch.cat([played["prompt_ids"], played["completion_ids"]], 1)
        real = torch.cat([played["prompt_mask"], played["completion_mask"]], 1).bool()
        wrote = torch.cat([0 * played["prompt_ids"], played["tool_mask"]], 1).bool() & real
        new = arl.token_logprobs(agent, ids, real, wrote)
        old = torch.where(wrote, new.detach(), 0.0)
        rewards = torch.tensor(played["rewards"], dtype=arl.DTYPE).view(len(TASKS), -1)
        advantages = arl.grpo_advantages(rewards, eps=1e-4).flatten()
        assert (advantages != 0).any()
        loss = arl.ppo_policy_loss(new, old, advantages, wrote, aggregation="seq-mean-token-mean").loss
        weights = [agent.tokens, agent.head, *(block.attention.qkv for block in agent.blocks)]
        ours = torch.autograd.grad(loss, weights)
        blocks = [block.attn.c_attn.weight.grad for block in played["trunk"].h]
        theirs = [played["trunk"].wte.weight.grad, played["head"].weight.grad.T, *blocks]
        for mine, other in zip(ours, theirs, strict=True):
            assert (mine - other).abs().max() < 1e-5 * mine.abs().max(), "TRL's log-probabilities are float32"

    def test_a_configuration_that_is_not_grpos_is_refused(self, trlgym, tmp_path):
        with pytest.raises(ValueError, match="aggregation is 'token-mean'"):
            trlgym.trl_settings(replace(CONFIG, aggregation="token-mean"), 12, 100, tmp_path)

    def test_a_training_has_a_row_an_iteration_and_moves_a_copy(self, trlgym, agent, tokenizer):
        before = [one.clone() for one in agent.parameters()]
        for dtype in (torch.float64, torch.float32):
            with torch.random.fork_rng(devices=[]):
                found = benchtrain.train_trl(dtype, agent, tokenizer, replace(SMALL, goal=2.0))
            assert (found.episodes, found.tokens[0] > 0) == (12, True)
            assert [len(one) for one in (found.success, found.tokens, found.sampling, found.update)] == [1] * 4
        assert all(torch.equal(one, was) for one, was in zip(agent.parameters(), before, strict=True))


class TestOurs:
    def test_a_training_ends_with_the_iteration_in_which_the_goal_is_reached(self, agent, tokenizer):
        budget = replace(SMALL, config=replace(CONFIG, iterations=3))
        assert len(benchtrain.train_ours(agent, tokenizer, replace(budget, goal=2.0)).update) == 3
        assert len(benchtrain.train_ours(agent, tokenizer, replace(budget, goal=0.0)).update) == 1

    def test_it_says_what_the_history_says(self, agent, tokenizer):
        found = benchtrain.train_ours(agent, tokenizer, replace(SMALL, goal=2.0))
        played = arl.rollout(agent, tokenizer, TASKS, 4, 0)  # iteration 0 of seed 0
        assert found.success == [arl.success_rate(played).rate]
        assert found.tokens == [sum(int(one.action_mask.sum()) for one in played)]


def training(success: list[float], sampling: float, update: float) -> Training:
    """Return a training of 10 episodes and 100 tokens an iteration."""
    count = len(success)
    return Training(10, success, [100] * count, [sampling] * count, [update] * count)


class TestArithmetic:
    def test_laps_are_of_cpu_time_between_the_calls(self, monkeypatch):
        clock = iter([10.0, 11.0, 11.5, 13.5, 13.75])
        monkeypatch.setattr(benchtrain.time, "process_time", lambda: next(clock))
        watch = Stopwatch(2)
        watch.sampled([1.0, 0.0], 7)
        assert not watch.updated(0.9)
        watch.sampled([1.0, 1.0], 9)
        assert watch.updated(0.9)
        assert watch.training == Training(2, [0.5, 1.0], [7, 9], [1.0, 2.0], [0.5, 0.25])

    def test_the_update_after_the_goal_was_reached_does_not_count(self):
        found = training([0.2, 0.95, 0.8], 1.0, 3.0)
        assert (found.reached(0.9), found.seconds_to(0.9), found.iteration) == (2, 5.0, 4.0)
        assert (found.reached(0.99), found.seconds_to(0.99)) == (None, None)

    def test_the_table_has_medians_and_ratios_within_a_round_and_says_how_many_reached_the_goal(self):
        report = TrainReport({}, replace(SMALL, goal=0.9))
        report.runs = {
            BASE: [training([0.2, 0.95], 1.0, 3.0), training([0.92], 2.0, 2.0)],
            "other": [training([0.2, 0.1], 4.0, 4.0), training([0.1, 0.92], 1.0, 1.0)],
        }
        assert report.ratios("other", lambda run: run.iteration) == [2.0, 0.5]
        console = Console(width=120)
        with console.capture() as captured:
            console.print(benchtrain.training_table(report))
        lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in captured.get().splitlines()]
        assert [line for line in lines if line] == [
            [BASE, "8", "75", "2.50", "4.00", "1.00", "2", "3.5", "1.00"],
            ["other", "6", "62", "2.50", "5.00", "1.25", "2 (1 of 2)", "3.0 (1 of 2)", "1.50"],
        ]

    def test_without_trl_ours_stands_alone_and_that_is_said(self, monkeypatch):
        monkeypatch.setattr(benchtrain, "find_spec", lambda _: None)
        said: list[str] = []
        report = benchtrain.bench_training({"cores": 1}, SMALL, 1, said.append)
        assert list(report.runs) == [BASE]
        assert "trl is not installed" in said[0]
        assert "make peers" in said[0]
        assert report.as_json()["runs"][BASE][0]["episodes"] == 12


class TestCommand:
    def test_a_tiny_run_gives_the_table_and_the_file(self, monkeypatch, tmp_path, capsys):
        monkeypatch.setattr(benchtrain, "Budget", lambda: SMALL)
        monkeypatch.setattr(benchtrain, "find_spec", lambda _: None)
        torch.set_num_threads(2)
        assert script.main(["--train", "--rounds", "2", "--json", str(tmp_path / "bench.json")]) == 0
        said = capsys.readouterr()
        assert "12 episodes an iteration" in said.out
        assert "trl " in said.out.partition("12 episodes")[0]
        assert "round 2 of 2" in said.err
        (data,) = json.loads((tmp_path / "bench.json").read_text())
        assert [len(run["tokens"]) for run in data["runs"][BASE]] == [1, 1]
        assert data["budget"]["config"]["attempts"] == 4
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)

    @pytest.mark.parametrize("more", [["02"], ["--growth", "1,2"], ["--policy"]])
    def test_other_measurements_beside_it_are_refused(self, more, capsys):
        assert script.main(["--train", *more]) == 2
        assert "measures models and no books: give it alone" in capsys.readouterr().err
