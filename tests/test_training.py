"""What chapters 6 to 8 train with: the starting agent, what is counted and logged, and their update steps."""

from __future__ import annotations

import copy
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch

import agentrl as arl
from agentrl.ppo import _minibatch_counts, _objective, _ppo_gradient
from bookkit import trainings

TOKENIZER = arl.gym_tokenizer()
TASKS = arl.bugfix_tasks()
SMALL = {"width": 16, "layers": 1, "heads": 2}


def agent(seed: int = 0) -> arl.TinyAgent:
    """Return a small agent as it is drawn."""
    return arl.starting_agent(TOKENIZER, TASKS, seed, batches=0, **SMALL)


@pytest.fixture(scope="module")
def batch() -> arl.TrajectoryBatch:
    """Eight episodes of a small agent, of different lengths, with rewards that vary."""
    played = arl.collate(arl.rollout(agent(), TOKENIZER, TASKS[:4], 2, 0, max_turn_tokens=2))
    keep = torch.tensor([9, 14, 20, 30, 12, 25, 18, 16])
    real = torch.arange(played.ids.shape[1]) < keep[:, None]
    return replace(
        played,
        attention_mask=played.attention_mask & real,
        action_mask=played.action_mask & real,
        lengths=played.lengths.minimum(keep),
        rewards=torch.tensor([1.0, 0, 0, 1, 0, 0.5, 0, 0], dtype=arl.DTYPE),
    )


def sgd(model: torch.nn.Module, rate: float = 1.0) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=rate, foreach=False)


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def episode(ended: str = "submitted", reward: float | None = 0.0, text: str = "<call> submit </call>", **info: Any):
    """Return an episode of one message after the start token."""
    ids = torch.tensor([TOKENIZER.control["<bos>"], *TOKENIZER.encode(text, controls=True)])
    mask = torch.arange(len(ids)) > 0
    logprobs = torch.where(mask, torch.tensor(-0.5, dtype=arl.DTYPE), math.nan)
    told = {"public_pass": False, "hidden_pass": False, "hacked": False, "cut": (), **info}
    return arl.Trajectory(ids, mask, logprobs, mask * 2, mask.long() - 1, reward, ended, 0, 0, told)


class TestStartingAgent:
    def test_same_arguments_give_the_same_weights_and_another_seed_others(self) -> None:
        made = [arl.starting_agent(TOKENIZER, TASKS, seed, batches=2, episodes=3, **SMALL) for seed in (1, 1, 2)]
        assert torch.equal(flat(made[0]), flat(made[1]))
        assert not torch.equal(flat(made[0]), flat(made[2]))

    def test_without_batches_it_is_as_drawn(self) -> None:
        config = arl.TinyAgentConfig(len(TOKENIZER), **SMALL)
        assert torch.equal(flat(agent(3)), flat(arl.TinyAgent(config, arl.generator(3))))

    def test_imitation_raises_the_probability_of_what_it_imitates(self) -> None:
        told = arl.labelled_batch(TOKENIZER, arl.warm_start_episodes(TASKS, 8, arl.generator(9)))
        scores = [
            arl.masked_mean(arl.token_logprobs(model, *told), told[2]).item()
            for model in (agent(), arl.starting_agent(TOKENIZER, TASKS, 0, batches=8, episodes=8, **SMALL))
        ]
        assert scores[1] > scores[0] + 1

    def test_random_calls_are_drawn_with_the_stated_probabilities(self) -> None:
        draw, count = arl.generator(0), 4000
        calls = Counter(arl.random_call(draw, 1, "flip_sign") for _ in range(count))
        edits = sum(number for call, number in calls.items() if " edit " in call)
        expected = {"<call> test </call>": 0.15, "<call> submit </call>": 0.3, "<call> read </call>": 0.0}
        for call, share in expected.items():
            assert abs(calls[call] / count - share) < 0.03
        assert abs(edits / count - 0.55) < 0.03
        assert abs(calls["<call> edit flip_sign </call>"] / edits - (0.4 + 0.6 / len(arl.EDIT_OPS))) < 0.05
        assert all(arl.parse_call(call).problem == "" for call in calls)

    def test_the_first_call_reads_as_often_as_it_is_told(self) -> None:
        draw = arl.generator(0)
        assert {arl.random_call(draw, 0, "flip_sign", read_first=1.0) for _ in range(50)} == {"<call> read </call>"}
        never = {arl.random_call(draw, 0, "flip_sign", read_first=0.0) for _ in range(50)}
        assert "<call> read </call>" not in never
        assert "<call> edit flip_sign </call>" in {arl.random_call(draw, 3, "flip_sign", right=1.0) for _ in range(50)}

    def test_no_tasks_are_refused(self) -> None:
        with pytest.raises(ValueError, match="tasks is empty"):
            arl.warm_start_episodes([], 1, arl.generator(0))

    @pytest.mark.parametrize("counts", [{"batches": -1}, {"episodes": 0}, {"episodes": -3}])
    def test_counts_that_cannot_be_are_refused(self, counts: dict[str, int]) -> None:
        with pytest.raises(ValueError, match=f"{next(iter(counts))}=.* must be at least 1"):
            arl.starting_agent(TOKENIZER, TASKS, 0, **(SMALL | {"batches": 1} | counts))

    @pytest.mark.parametrize("odds", [{"right": 2.0}, {"right": math.nan}, {"read_first": -0.1}])
    def test_odds_that_are_no_probabilities_are_refused(self, odds: dict[str, float]) -> None:
        with pytest.raises(ValueError, match=f"{next(iter(odds))} is .* probability"):
            arl.random_call(arl.generator(0), 1, "flip_sign", **odds)

    def test_a_family_that_no_edit_repairs_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"'nope'; there are swap_minmax"):
            arl.random_call(arl.generator(0), 1, "nope")


class TestCounting:
    def test_success_is_the_verdict_and_not_the_reward(self) -> None:
        repaired = episode(reward=0.2, public_pass=True, hidden_pass=True)
        shaped = episode(reward=0.9)
        hacked = episode(reward=1.0, public_pass=True, hacked=True)
        broken = episode("infrastructure", None)
        counts = arl.success_rate([repaired, shaped, hacked, broken])
        assert counts == (1, 1, 3, 1)
        assert counts.rate == 1 / 3
        assert counts.interval == arl.wilson_interval(1, 3)

    def test_the_rate_of_no_episode_is_nan(self) -> None:
        assert math.isnan(arl.success_rate([episode("infrastructure", None)]).rate)

    def test_a_summary_counts_calls_turns_tokens_and_entropy(self) -> None:
        calls = ["<call> read </call>", "<call> edit flip_sign </call>", "<call> edit nothing </call>", "<call> read"]
        found = arl.rollout_summary(TOKENIZER, [episode(text=text) for text in calls])
        lengths = [len(TOKENIZER.encode(text, controls=True)) for text in calls]
        assert found["calls"] == 0.5
        assert found["turns"] == 1
        assert found["tokens"] == sum(lengths) / 4
        assert found["entropy"] == 0.5

    def test_a_turn_that_was_cut_off_is_no_call(self) -> None:
        assert arl.rollout_summary(TOKENIZER, [episode(cut=(0,))])["calls"] == 0

    def test_nothing_to_summarise_is_refused(self) -> None:
        with pytest.raises(ValueError, match="0 messages in 0 episodes"):
            arl.rollout_summary(TOKENIZER, [])

    def test_a_summary_takes_an_iterator(self) -> None:
        some = [episode(), episode("infrastructure", None)]
        assert arl.rollout_summary(TOKENIZER, iter(some)) == arl.rollout_summary(TOKENIZER, some)


class TestTrainLog:
    def test_a_column_and_a_table_show_what_was_added(self) -> None:
        log = arl.TrainLog()
        for step in range(5):
            log.add(step=step, success=step / 4)
        assert log.column("success") == [0, 0.25, 0.5, 0.75, 1]
        assert log.table("step", "success", every=3) == "\n".join(
            ["      step   success", "         0     0.000", "         3     0.750", "         4     1.000"]
        )

    def test_zero_is_printed_without_a_sign(self) -> None:
        log = arl.TrainLog()
        log.add(loss=-0.0001)
        assert log.table("loss").split() == ["loss", "0.000"]

    def test_other_names_and_no_numbers_are_refused_and_not_added(self) -> None:
        log = arl.TrainLog()
        log.add(loss=1.0)
        with pytest.raises(ValueError, match="row 1 has success; the first has loss"):
            log.add(success=1.0)
        with pytest.raises(TypeError, match=r"row 1.*item"):
            log.add(loss=torch.tensor(1.0))  # pyright: ignore[reportArgumentType]
        with pytest.raises(ValueError, match=r"no column 'kl'; there are loss"):
            log.column("kl")
        assert len(log.rows) == 1

    def test_an_empty_row_and_a_step_below_1_are_refused(self) -> None:
        log = arl.TrainLog()
        with pytest.raises(ValueError, match="row 0 is empty"):
            log.add()
        log.add(loss=1.0)
        for every in (0, -2):
            with pytest.raises(ValueError, match=f"every={every} must be at least 1"):
                log.table("loss", every=every)

    def test_long_names_and_numbers_do_not_run_into_their_neighbours(self) -> None:
        log = arl.TrainLog()
        log.add(a_long_column_name=1.0, second=123456789012.5)
        heads, numbers = log.table("a_long_column_name", "second").splitlines()
        assert heads.split() == ["a_long_column_name", "second"]
        assert numbers.split() == ["1.000", "123456789012.500"]


class TestMicrobatches:
    @pytest.mark.parametrize("size", [None, 1, 3, 8, 100])
    def test_the_parts_are_all_rows_once_each_as_wide_as_its_longest(self, batch, size) -> None:
        seen = []
        for rows, part in arl.microbatches(batch, size):
            seen += rows.tolist()
            assert part.ids.shape == (len(rows), int(batch.lengths[rows].max()))
            assert torch.equal(part.ids, batch.ids[rows, : part.ids.shape[1]])
            assert part.ended == tuple(batch.ended[row] for row in rows.tolist())
        assert sorted(seen) == list(range(len(batch)))
        assert (batch.lengths[seen].diff() >= 0).all(), "shorter rows first"

    @pytest.mark.parametrize("size", [0, -1, 2.0, True])
    def test_a_size_that_is_none_is_refused(self, batch, size) -> None:
        with pytest.raises(ValueError, match="microbatch is"):
            list(arl.microbatches(batch, size))

    @pytest.mark.parametrize("rows", [[-1], [0, 8], [False] * 8, [1.0]])
    def test_rows_that_the_batch_does_not_have_are_refused(self, batch, rows: list) -> None:
        with pytest.raises(ValueError, match=r"rows are .* from 0 to 7"):
            list(arl.microbatches(batch, None, torch.tensor(rows)))


class TestApplyGradient:
    def test_a_gradient_that_is_not_finite_changes_nothing(self) -> None:
        model = agent()
        before, optimizer = flat(model), trainings.adam(model.parameters(), 1e-3)
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, math.nan)
        with pytest.raises(ValueError, match="norm is nan"):
            arl.apply_gradient(optimizer)
        assert torch.equal(flat(model), before)
        assert not optimizer.state

    def test_a_long_gradient_is_scaled_and_its_whole_norm_returned(self) -> None:
        weight = torch.nn.Parameter(torch.zeros(2, dtype=arl.DTYPE))
        weight.grad = torch.tensor([3.0, 4.0], dtype=arl.DTYPE)
        assert arl.apply_gradient(torch.optim.SGD([weight], lr=1.0), max_grad_norm=1.0, grid=None) == 5.0
        torch.testing.assert_close(weight.detach(), torch.tensor([-0.6, -0.8], dtype=arl.DTYPE), rtol=1e-6, atol=0)

    def test_weights_are_on_the_grid_afterwards(self) -> None:
        weight = torch.nn.Parameter(torch.zeros(2, dtype=arl.DTYPE))
        weight.grad = torch.tensor([0.3, 0.1], dtype=arl.DTYPE)
        arl.apply_gradient(torch.optim.SGD([weight], lr=1.0), grid=4)
        assert weight.tolist() == [-0.25, 0.0]

    def test_without_a_gradient_there_is_no_step(self) -> None:
        with pytest.raises(ValueError, match="0 tensors"):
            arl.apply_gradient(sgd(agent()))


def stepped(batch: arl.TrajectoryBatch, advantages: torch.Tensor, **settings: Any) -> torch.Tensor:
    """Return how one step of gradient descent moved a small agent's weights."""
    model = agent()
    before = flat(model)
    arl.reinforce_update(model, sgd(model), batch, advantages, max_grad_norm=None, grid=None, **settings)
    return flat(model) - before


class TestReinforceUpdate:
    @pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "token-sum"])
    @pytest.mark.parametrize("microbatch", [1, 3, 5])
    def test_microbatches_leave_the_gradient_unchanged(self, batch, aggregation, microbatch) -> None:
        whole = stepped(batch, batch.rewards, aggregation=aggregation)
        parts = stepped(batch, batch.rewards, aggregation=aggregation, microbatch=microbatch)
        assert whole.norm() > 1e-3
        assert (whole - parts).abs().max() <= 1e-12

    def test_the_step_is_along_the_gradient_of_the_loss(self, batch) -> None:
        model = agent()
        logprobs = arl.token_logprobs(model, batch.ids, batch.attention_mask, batch.action_mask)
        (-batch.rewards[:, None] * torch.where(batch.action_mask, logprobs, 0.0)).sum().div(len(batch)).backward()
        wanted = torch.cat(
            [-parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
        )
        assert (stepped(batch, batch.rewards) - wanted).abs().max() <= 1e-12

    def test_a_table_of_advantages_that_are_one_an_episode_is_the_same(self, batch) -> None:
        table = arl.broadcast_to_tokens(batch.rewards, batch.action_mask)
        assert (stepped(batch, table, microbatch=3) - stepped(batch, batch.rewards)).abs().max() <= 1e-12

    def test_what_stands_at_padding_is_never_read(self, batch) -> None:
        table = torch.where(batch.action_mask, batch.rewards[:, None], math.nan)
        assert (stepped(batch, table) - stepped(batch, batch.rewards)).abs().max() <= 1e-12

    def test_a_reward_of_a_broken_environment_is_refused(self, batch) -> None:
        rewards = batch.rewards.clone()
        rewards[2] = math.nan
        with pytest.raises(ValueError, match="nan"):
            stepped(batch, rewards)

    def test_advantages_with_a_gradient_are_refused(self, batch) -> None:
        with pytest.raises(ValueError, match="detach"):
            stepped(batch, batch.rewards.clone().requires_grad_())


def new_critic(model: arl.TinyAgent, shared: bool = False, **settings: Any) -> arl.Critic:
    trunk = model if shared else copy.deepcopy(model)
    head = arl.ValueHead(model.config.width, arl.generator(5))
    optimizer = None if shared else torch.optim.SGD([*trunk.parameters(), *head.parameters()], lr=0.05, foreach=False)
    return arl.Critic(trunk, head, optimizer, **settings)


class TestValues:
    def test_a_value_is_read_one_position_before_its_token(self, batch) -> None:
        model = agent()
        head = arl.ValueHead(model.config.width, arl.generator(5))
        found = arl.token_values(model, head, batch.ids, batch.attention_mask, batch.action_mask)
        features = model.features(batch.ids, segments=batch.attention_mask)
        for row, at in batch.action_mask.nonzero().tolist():
            assert abs((found[row, at] - head(features[row, at - 1])).item()) <= 1e-12
        assert (found[~batch.action_mask] == 0).all()

    def test_a_value_knows_nothing_of_its_own_token(self, batch) -> None:
        model, at = agent(), int(batch.action_mask[0].nonzero()[-1])
        head = arl.ValueHead(model.config.width, arl.generator(5))
        other = batch.ids.clone()
        other[0, at] = (other[0, at] + 1) % len(TOKENIZER)
        one, two = (
            arl.token_values(model, head, x, batch.attention_mask, batch.action_mask) for x in (batch.ids, other)
        )
        assert torch.equal(one[0, : at + 1], two[0, : at + 1])

    def test_a_mask_of_numbers_and_a_first_token_are_refused(self, batch) -> None:
        model = agent()
        head = arl.ValueHead(model.config.width, arl.generator(5))
        with pytest.raises(TypeError, match="bool"):
            arl.token_values(model, head, batch.ids, batch.attention_mask, batch.action_mask.long())
        with pytest.raises(ValueError, match="row 0, position 0"):
            arl.token_values(model, head, batch.ids, batch.attention_mask, batch.attention_mask)


def updated(batch: arl.TrajectoryBatch, critic: str = "", **settings: Any) -> tuple[arl.TinyAgent, list[arl.PPOEpoch]]:
    """Return a small agent after a PPO update, and what each epoch did."""
    model, more = agent(), {}
    if critic:
        returns = arl.broadcast_to_tokens(batch.rewards, batch.action_mask)
        more = {"critic": new_critic(model, critic == "shared"), "returns": returns}
    optimizer = sgd(model, settings.pop("rate", 1.0))
    if critic == "shared":
        optimizer.add_param_group({"params": list(more["critic"].head.parameters())})
    settings = {"max_grad_norm": None, "grid": None, **settings}
    return model, arl.ppo_update(model, optimizer, batch, batch.rewards, arl.generator(0), **more, **settings)


class TestPPOUpdate:
    def test_before_the_first_step_every_ratio_is_one(self, batch) -> None:
        _, (first,) = updated(batch, epochs=1, minibatches=1)
        assert first.clip_fraction == 0
        assert abs(first.ratio_max - 1) < 1e-9
        assert abs(first.approx_kl) < 1e-12
        assert first.steps == 1

    def test_one_step_on_the_whole_batch_is_reinforce_with_a_token_mean(self, batch) -> None:
        model, _ = updated(batch, epochs=1, minibatches=1)
        step = flat(model) - flat(agent())
        assert (step - stepped(batch, batch.rewards, aggregation="token-mean")).abs().max() <= 1e-9

    @pytest.mark.parametrize("critic", ["", "own", "shared"])
    @pytest.mark.parametrize("microbatch", [1, 3])
    def test_microbatches_leave_two_epochs_of_two_steps_unchanged(self, batch, critic, microbatch) -> None:
        given = {"epochs": 2, "rate": 0.1, "critic": critic}
        (one, told), (two, again) = updated(batch, **given), updated(batch, microbatch=microbatch, **given)
        assert (flat(one) - flat(two)).abs().max() <= 1e-12
        for epoch, other in zip(told, again, strict=True):
            assert epoch == pytest.approx(other, abs=1e-9)

    def test_a_token_weighs_the_same_in_any_minibatch(self, batch) -> None:
        def gradient(minibatches: int, parts: list[list[int]]) -> torch.Tensor:
            model, chosen = agent(), arl.PPOSettings(minibatches=minibatches)
            targets = {"advantages": arl.broadcast_to_tokens(batch.rewards, batch.action_mask)}
            objective = _objective(chosen, batch.action_mask, None, None, None)
            for rows in parts:
                _ppo_gradient((model, None), batch, targets, chosen, objective, torch.tensor(rows))
            return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]) / minibatches

        whole = gradient(1, [list(range(8))])
        assert (gradient(3, [[0, 3], [1, 2, 7], [4, 5, 6]]) - whole).abs().max() <= 1e-12
        assert _minibatch_counts(batch.action_mask, 2, None).tokens == int(batch.action_mask.sum()) / 2

    def test_max_kl_ends_the_update_before_the_step(self, batch) -> None:
        _, epochs = updated(batch, epochs=5, minibatches=1, max_kl=1e-6)
        assert [epoch.steps for epoch in epochs] == [1, 0]
        assert epochs[-1].approx_kl > 1e-6
        _, all_of_them = updated(batch, epochs=3, minibatches=1, max_kl=1e9)
        assert [epoch.steps for epoch in all_of_them] == [1, 1, 1]

    @pytest.mark.parametrize("critic", ["own", "shared"])
    def test_a_critic_comes_closer_to_its_returns(self, batch, critic) -> None:
        _, epochs = updated(batch, critic=critic, epochs=6, rate=0.05, minibatches=1)
        assert epochs[-1].value_loss < epochs[0].value_loss

    def test_a_critic_of_its_own_does_not_change_what_the_policy_learns(self, batch) -> None:
        (one, _), (two, _) = updated(batch), updated(batch, critic="own")
        assert torch.equal(flat(one), flat(two))

    @pytest.mark.parametrize(
        ("settings", "error", "says"),
        [
            ({"epochs": 0}, ValueError, "epochs is 0"),
            ({"minibatches": 9}, ValueError, "minibatches is 9.*8 episodes"),
            ({"microbatch": 0}, ValueError, "microbatch is 0"),
            ({"clip": 0.2}, TypeError, "clip"),
            ({"returns": torch.zeros(8, 4)}, ValueError, "give both or neither"),
        ],
    )
    def test_what_cannot_be_is_refused_and_nothing_moves(self, batch, settings, error, says) -> None:
        model = agent()
        before = flat(model)
        with pytest.raises(error, match=says):
            arl.ppo_update(model, sgd(model), batch, batch.rewards, arl.generator(0), **settings)
        assert torch.equal(flat(model), before)


def recorded(name: str, **what: Any) -> dict[str, Any]:
    """Return the run of a record that was made so."""
    return next(run for run in trainings.read(name)["runs"] if what.items() <= run.items())


@pytest.mark.slow
class TestRecords:
    """The first iterations of a recorded seed, played again, give the digits on file."""

    @pytest.mark.parametrize("place", [0, 2])
    def test_reinforce(self, place) -> None:
        from figures import ch06_learning_curve as figure

        rate, seed = figure.RATES[place], figure.SEEDS[0]
        model = trainings.starting(seed)
        log = trainings.train(model, figure.reinforce(model, rate), seed, 2)
        kept = recorded(figure.RECORD, policy="REINFORCE", seed=seed, learning_rate=rate)
        for name, values in trainings.columns(log).items():
            assert values == pytest.approx(kept[name][:2], rel=1e-5), name

    @pytest.mark.parametrize("critic", [False, True])
    def test_ppo(self, critic) -> None:
        from figures import ch08_epochs as figure

        seed = figure.SEEDS[0]
        model = trainings.starting(seed)
        learn = figure.with_critic if critic else figure.without_critic
        log = trainings.train(model, learn(model, seed, epochs=4), seed, 2)
        kept = recorded(figure.RECORD, seed=seed, epochs=4, critic=critic)
        for name, values in trainings.columns(log).items():
            assert values == pytest.approx(kept[name][:2], rel=1e-5), name

    @pytest.mark.parametrize("preset", ["grpo", "dapo"])
    def test_variants(self, preset) -> None:
        from figures import ch09_variants as figure

        seed = figure.SEEDS[0]
        config = replace(arl.PRESETS[preset], seed=seed, iterations=2)
        found = trainings.within_budget(trainings.starting(seed), config)
        same_beginning(found, recorded(figure.RECORD, preset=preset, seed=seed))

    @pytest.mark.parametrize("arm", ["dr_grpo-with-std", "gspo-paper-clip"])
    def test_ablations(self, arm) -> None:
        from figures import ch09_ablations as figure

        seed = figure.SEEDS[0]
        config = replace((figure.ARMS | figure.LATER)[arm], seed=seed, iterations=2)
        found = trainings.within_budget(trainings.starting(seed), config)
        same_beginning(found, recorded(figure.RECORD, arm=arm, seed=seed))

    def test_a_rounding_difference_is_gone_where_weights_are_snapped(self) -> None:
        from figures import ch09_rounding as figure

        seed, grid = figure.SEEDS[0], figure.GRIDS[-1]
        kept = recorded(figure.RECORD, seed=seed, grid=grid)
        found = figure.compared(seed, grid, iterations=3)
        assert found["difference"] == kept["difference"][:3]
        assert found["difference"][0] > 0
        assert found["first_other_token"] == kept["first_other_token"]

    @pytest.mark.parametrize("arm", ["kl-0.1", "sft-0.1"])
    def test_regularisers(self, arm) -> None:
        from figures import ch10_regularisers as figure

        seed = figure.SEEDS[0]
        kept, found = recorded(figure.RECORD, arm=arm, seed=seed), figure.trained(seed, arm, iterations=2)
        same_beginning(found, kept)


def same_beginning(found: dict[str, Any], kept: dict[str, Any]) -> None:
    """Check that a shorter training's columns are the first numbers of the recorded ones."""
    columns = {name: values for name, values in found.items() if isinstance(values, list) and name != "at"}
    assert {"success", "entropy", "episodes"} <= columns.keys()
    for name, values in columns.items():
        for at, value in enumerate(values):
            assert value == pytest.approx(kept[name][at], rel=1e-5), (name, at)
