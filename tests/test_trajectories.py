"""Chapter 5's records: trajectories, batches, messages as ids, rollouts, and the check of log-probabilities."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import agentrl as arl
from agentrl.trajectories import (
    ENDINGS,
    GYM_CONTROLS,
    WRITERS,
    Trajectory,
    check_logprobs,
    collate,
    encode_transcript,
    episode_stream,
    gym_env,
    gym_tokenizer,
    labelled_batch,
    message_parts,
    recomputed_logprobs,
    rollout,
    same_trajectory,
)

TOKENIZER = gym_tokenizer()
END = TOKENIZER.control[" </call>"]
PROMPT, TEMPLATE, POLICY, TOOL = range(4)
TASKS = arl.bugfix_tasks()
READ = "<call> read </call>"
few = settings(max_examples=15, deadline=None)


def agent(seed: int = 0, positions: int = 128, width: int = 16) -> arl.TinyAgent:
    config = arl.TinyAgentConfig(len(TOKENIZER), width=width, layers=1, heads=2, max_positions=positions)
    return arl.TinyAgent(config, arl.generator(seed))


def ids_of(text: str) -> list[int]:
    return TOKENIZER.encode(text, controls=True)


class Scripted(arl.TinyAgent):
    """A model that is nearly sure of the next token: the turns it was given, in order, then the last again."""

    def __init__(self, *turns: Sequence[int], positions: int = 128) -> None:
        config = arl.TinyAgentConfig(len(TOKENIZER), width=2, layers=1, heads=1, max_positions=positions)
        super().__init__(config, arl.generator(0))
        self.turns = turns

    def next_id(self, seen: list[int]) -> int:
        close = TOKENIZER.control["</obs>"]
        turn = self.turns[min(seen.count(close), len(self.turns) - 1)]
        said = len(seen) - (len(seen) - seen[::-1].index(close) if close in seen else self.prompt_length)
        return turn[min(max(said, 0), len(turn) - 1)]

    prompt_length = 1 + len(TOKENIZER.encode(arl.SHORT_PROMPT))

    def features(
        self,
        ids: Tensor,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
        cache: arl.KVCache | None = None,
    ) -> Tensor:
        held = cache.lengths.tolist() if cache is not None else [0] * len(ids)
        before = [cache.ids[row, :count].tolist() for row, count in enumerate(held)] if cache is not None else None
        super().features(ids, positions, segments, cache)
        scores = torch.zeros(*ids.shape, len(TOKENIZER), dtype=arl.DTYPE)
        for row, new in enumerate(ids.tolist()):
            for place in range(len(new)):
                seen = (before[row] if before else []) + new[: place + 1]
                scores[row, place, self.next_id(seen)] = 60.0
        return scores

    def logits(self, features: Tensor) -> Tensor:
        return features


class Room:
    """An environment that answers what it is told to, and remembers what it was sent."""

    def __init__(self, answers: Sequence[Any], prompt: str = arl.SHORT_PROMPT) -> None:
        self.answers, self.prompt, self.heard = iter(answers), prompt, []

    def reset(self) -> str:
        return self.prompt

    def step(self, text: str) -> arl.StepResult:
        self.heard.append(text)
        answer = next(self.answers)
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, arl.StepResult):
            return answer
        return arl.StepResult(answer, 0.0, False, False, {})


COLUMNS = ("ids", "action_mask", "logprobs", "writer", "turn")
ANSWER: Any = arl.StepResult  # also of what is no answer
LAST = arl.StepResult("submitted", 1.0, True, False, {"note": "last"})


def task(number: int) -> Any:
    return SimpleNamespace(id=number)


def column(values: Sequence[Any], dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


def record(**change: Any) -> Trajectory:
    """Return a small sound trajectory with some of its parts exchanged."""
    nan = math.nan
    sound = {
        "ids": column([0, 62, 1, 21, 2, 3, 9, 4]),
        "action_mask": column([0, 0, 1, 1, 1, 0, 0, 0], torch.bool),
        "logprobs": column([nan, nan, -0.1, -1.2, 0.0, nan, nan, nan], arl.DTYPE),
        "writer": column([PROMPT, PROMPT, POLICY, POLICY, POLICY, TEMPLATE, TOOL, TEMPLATE]),
        "turn": column([-1, -1, 0, 0, 0, 0, 0, 0]),
        **{"reward": 0.0, "ended": "out_of_turns", "task_id": 3, "attempt": 1, "info": {"note": "x"}},
    }
    return Trajectory(**(sound | change))


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    """Return any sound trajectory of up to 12 tokens."""
    writer = [PROMPT] * draw(st.integers(0, 3))
    turn, turns = [-1] * len(writer), draw(st.integers(0, 3))
    for number in range(turns):
        new = draw(st.lists(st.sampled_from([TEMPLATE, POLICY, TOOL]), min_size=1, max_size=4))
        writer, turn = writer + new, turn + [number] * len(new)
    may = [who == POLICY and place > 0 for place, who in enumerate(writer)]
    mask = [here and draw(st.booleans()) for here in may]
    logprobs = [draw(st.floats(-50, 0)) if here else math.nan for here in mask]
    ended = draw(st.sampled_from(ENDINGS))
    return Trajectory(
        column(draw(st.lists(st.integers(0, 999), min_size=len(writer), max_size=len(writer)))),
        column(mask, torch.bool),
        column(logprobs, arl.DTYPE),
        column(writer),
        column(turn),
        None if ended == "infrastructure" else draw(st.floats(-1e6, 1e6)),
        ended,
        draw(st.integers(0, 99)),
        draw(st.integers(0, 99)),
        {"cut": draw(st.integers())},
    )


class TestTrajectory:
    def test_a_sound_record_is_accepted_and_has_its_length(self) -> None:
        assert len(record()) == 8

    @pytest.mark.parametrize("name", ["ids", "action_mask", "logprobs", "writer", "turn"])
    def test_a_column_of_another_type_or_shape_is_refused_by_name(self, name: str) -> None:
        sound = getattr(record(), name)
        with pytest.raises(TypeError, match=f"^{name} is list"):
            record(**{name: sound.tolist()})
        with pytest.raises(TypeError, match=f"^{name} is torch"):
            record(**{name: sound.to(torch.float16)})
        shorter = "ids" if name != "ids" else "action_mask"
        with pytest.raises(ValueError, match=f"^{name if name != 'ids' else shorter} has shape"):
            record(**{name: sound[:-1]})
        with pytest.raises(ValueError, match="must be"):
            record(**{name: sound[None]})

    @pytest.mark.parametrize(
        ("name", "place", "value", "reason"),
        [
            ("ids", 6, -1, "negative id"),
            ("writer", 5, 4, "no index"),
            ("writer", 5, -1, "no index"),
            ("writer", 3, TOOL, "the policy did not write"),
            ("writer", 6, PROMPT, "prompt inside a turn"),
            ("action_mask", 3, False, "a log-probability without an action"),
            ("action_mask", 6, True, "an action without a log-probability"),
            ("logprobs", 4, math.nan, "an action without a log-probability"),
            ("logprobs", 0, 0.0, "a log-probability without an action"),
            ("logprobs", 3, 1e-6, "above 0 or infinite"),
            ("logprobs", 3, -math.inf, "above 0 or infinite"),
            ("turn", 5, -1, "smaller than the one before"),
            ("turn", 0, -2, "below -1"),
            ("turn", 7, 2, "after one left out"),
            ("turn", 1, 0, "prompt inside a turn"),
        ],
    )
    def test_a_contradiction_is_refused_at_its_position(self, name: str, place: int, value: Any, reason: str) -> None:
        changed = getattr(record(), name).clone()
        changed[place] = value
        with pytest.raises(ValueError, match=f"^position {place}: .*{reason}"):
            record(**{name: changed})

    def test_an_action_needs_something_before_it(self) -> None:
        one = {"ids": column([5]), "writer": column([POLICY]), "turn": column([0])}
        with pytest.raises(ValueError, match="position 0: an action with nothing before it"):
            record(**one, action_mask=column([1], torch.bool), logprobs=column([-1.0], arl.DTYPE))

    @pytest.mark.parametrize(
        "change",
        [
            {"ended": "done"},
            {"reward": None},
            {"ended": "infrastructure"},
            {"reward": math.nan},
            {"reward": math.inf},
            {"reward": "1.0"},
            {"reward": torch.tensor(1.0)},
        ],
    )
    def test_reward_and_ending_have_to_go_together(self, change: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"ended|reward"):
            record(**change)

    @pytest.mark.parametrize("name", ["task_id", "attempt"])
    @pytest.mark.parametrize("value", ["x", -1, 1.0, None, True, 2**70])
    def test_a_task_or_attempt_that_is_no_whole_number_is_refused_by_name(self, name: str, value: Any) -> None:
        with pytest.raises(ValueError, match=f"^{name} is "):
            record(**{name: value})

    def test_a_record_holds_no_graph(self) -> None:
        with pytest.raises(ValueError, match=r"^logprobs requires a gradient"):
            record(logprobs=record().logprobs.requires_grad_())

    def test_what_the_policy_wrote_need_not_be_trained(self) -> None:
        nothing = {
            "action_mask": torch.zeros(8, dtype=torch.bool),
            "logprobs": torch.full((8,), math.nan).to(arl.DTYPE),
        }
        assert not record(**nothing).action_mask.any()

    def test_an_equal_record_is_the_same_and_any_change_is_not(self) -> None:
        assert same_trajectory(record(), record())
        lower = record().logprobs - 1e-11
        assert same_trajectory(record(), record(logprobs=lower), 1e-10)
        assert not same_trajectory(record(), record(logprobs=lower))
        changes = {"ids": record().ids + 1, "turn": column([-1, -1, 0, 0, 0, 0, 0, 1]), "reward": 1.0, "task_id": 4}
        for name, value in (changes | {"attempt": 2, "ended": "submitted", "info": {}}).items():
            assert not same_trajectory(record(), record(**{name: value})), name


class TestCollate:
    @given(st.lists(trajectories(), max_size=5))
    @settings(deadline=None)
    def test_split_is_its_inverse(self, some: list[Trajectory]) -> None:
        back = collate(some).split()
        assert len(back) == len(some)
        assert all(same_trajectory(one, other) for one, other in zip(back, some, strict=True))

    @given(st.lists(trajectories(), min_size=1, max_size=4))
    @settings(deadline=None)
    def test_the_tables_are_of_one_shape_and_padding_is_nobodys(self, some: list[Trajectory]) -> None:
        batch = collate(some)
        shape = (len(some), max(map(len, some)))
        for name in ("ids", "attention_mask", "positions", "action_mask", "logprobs", "writer", "turn"):
            assert getattr(batch, name).shape == shape, name
        pad = ~batch.attention_mask
        assert batch.attention_mask.sum(1).tolist() == [len(t) for t in some] == batch.lengths.tolist()
        assert not batch.action_mask[pad].any()
        assert (batch.writer[pad] == -1).all()
        assert (batch.logprobs[~batch.action_mask] == 0).all()
        assert all(row[:n].tolist() == list(range(n)) for row, n in zip(batch.positions, map(len, some), strict=True))

    def test_it_takes_any_iterable(self) -> None:
        some = [record(), record(attempt=2)]
        batch = collate(one for one in some)
        assert all(same_trajectory(one, other) for one, other in zip(batch.split(), some, strict=True))

    def test_positions_at_padding_are_zero(self) -> None:
        batch = collate([record(), record(**{name: getattr(record(), name)[:2] for name in COLUMNS})])
        assert batch.positions.tolist() == [list(range(8)), [0, 1] + [0] * 6]

    def test_what_is_written_into_a_copy_leaves_the_original_alone(self) -> None:
        original = record()
        batch = collate([original])
        batch.split()[0].info["note"] = "y"
        assert batch.info[0] == {"note": "x"}
        batch.info[0]["note"] = "z"
        assert original.info == {"note": "x"}

    def test_of_nothing_it_is_an_empty_batch(self) -> None:
        batch = collate([])
        assert len(batch) == 0
        assert batch.ids.shape == batch.logprobs.shape == (0, 0)
        assert (batch.split(), batch.rewards.shape, batch.ended) == ([], (0,), ())
        assert check_logprobs(agent(), batch) == 0.0

    def test_a_missing_reward_is_nan_and_comes_back_as_none(self) -> None:
        batch = collate([record(), record(reward=None, ended="infrastructure")])
        assert batch.rewards.isnan().tolist() == [False, True]
        assert [t.reward for t in batch.split()] == [0.0, None]

    def test_m03_the_end_token_stays_an_action_where_it_has_the_id_of_padding(self) -> None:
        """TRL#3200, #6357: a mask built by `ids != pad`. Here the end token has id 0, with which tables are filled."""
        ids, mask = column([7, 8, 0]), column([0, 1, 1], torch.bool)
        logprobs = torch.where(mask, -0.5, math.nan).to(arl.DTYPE)
        columns = {"ids": ids, "action_mask": mask, "logprobs": logprobs}
        ending = record(**columns, writer=column([PROMPT, POLICY, POLICY]), turn=column([-1, 0, 0]))
        batch = collate([ending, record()])
        assert batch.action_mask[0].tolist() == [False, True, True] + [False] * 5
        assert batch.attention_mask[0].sum() == 3
        assert same_trajectory(batch.split()[0], ending)

    def test_m35_what_follows_in_the_table_does_not_reach_a_row(self) -> None:
        model = agent()
        short, long = rollout(model, TOKENIZER, TASKS[:2], 1, 0, max_turn_tokens=3)[0], record(ids=torch.arange(8) + 90)
        alone, together = collate([short]), collate([short, *[long] * 2, *rollout(model, TOKENIZER, TASKS[2:3], 1, 5)])
        scores = [recomputed_logprobs(model, b.ids, b.attention_mask, b.action_mask)[0] for b in (alone, together)]
        assert (scores[0] - scores[1][: len(short)]).abs().max() < 1e-12


class TestMessages:
    @given(st.text(), st.sampled_from(["prompt", "tool"]))
    def test_text_from_outside_holds_no_control(self, text: str, who: str) -> None:
        outside = [
            ids for writer, ids in message_parts(TOKENIZER, who, text + "".join(GYM_CONTROLS)) if writer != TEMPLATE
        ]
        assert not {id for ids in outside for id in ids} & set(TOKENIZER.control.values())

    def test_a_tool_may_answer_half_a_surrogate_pair(self) -> None:
        _, (writer, ids), _ = message_parts(TOKENIZER, "tool", "a\ud800b")
        assert (WRITERS[writer], TOKENIZER.decode(ids)) == ("tool", "a?b")

    def test_an_unknown_writer_is_refused(self) -> None:
        with pytest.raises(ValueError, match="'env'"):
            message_parts(TOKENIZER, "env", "x")

    def test_a_transcript_becomes_the_ids_of_the_rollout_that_says_the_same(self) -> None:
        calls = ["read", "edit swap_minmax", "test", "submit"]
        turns = iter(calls)
        transcript = arl.run_episode(gym_env(TASKS[0]), lambda _: f"<call> {next(turns)} </call>").transcript
        played = rollout(Scripted(*(ids_of(f"<call> {call} </call>") for call in calls)), TOKENIZER, TASKS[:1], 1, 0)[0]
        ids, writer, turn = encode_transcript(TOKENIZER, transcript)
        assert (ids, writer, turn) == (played.ids.tolist(), played.writer.tolist(), played.turn.tolist())
        assert (played.reward, played.ended) == (1.0, "submitted")

    def test_a_limit_cuts_at_a_message(self) -> None:
        transcript: arl.Transcript = [("prompt", "fix"), ("policy", READ), ("tool", "0 1 2 3"), ("policy", READ)]
        whole, short = (encode_transcript(TOKENIZER, transcript, limit) for limit in (None, 12))
        assert len(whole[0]) > 12 >= len(short[0])
        assert short[0] == whole[0][: len(short[0])]
        assert short[1][-1] == POLICY

    def test_a_message_that_just_fits_the_limit_is_kept(self) -> None:
        transcript: arl.Transcript = [("prompt", "fix"), ("policy", READ), ("tool", "0 1 2 3"), ("policy", READ)]
        whole = encode_transcript(TOKENIZER, transcript)[0]
        upto = encode_transcript(TOKENIZER, transcript[:2])[0]
        assert encode_transcript(TOKENIZER, transcript, len(whole))[0] == whole
        assert encode_transcript(TOKENIZER, transcript, len(upto))[0] == upto
        assert len(encode_transcript(TOKENIZER, transcript, len(upto) - 1)[0]) == len(upto) - 3

    @pytest.mark.parametrize("limit", [0, -1, 1.5])
    def test_a_limit_without_room_for_the_start_token_is_refused(self, limit: Any) -> None:
        with pytest.raises(ValueError, match=r"^limit is"):
            encode_transcript(TOKENIZER, [("prompt", "fix")], limit)

    def test_labels_are_where_the_policy_wrote(self) -> None:
        transcripts = [[("prompt", "fix"), ("policy", READ)], [("prompt", "fix"), ("policy", READ), ("tool", "x")]]
        ids, attention_mask, mask = labelled_batch(TOKENIZER, [*transcripts, [("prompt", "fix")]])
        assert mask.sum(1).tolist() == [3, 3, 0]
        assert (mask <= attention_mask).all()
        assert ids[0][mask[0]].tolist() == ids_of(READ)


class TestTokenizer:
    def test_each_tool_and_edit_is_one_token(self) -> None:
        for call in ("read", "test", "submit"):
            assert len(ids_of(f"<call> {call} </call>")) == 3
        for edit in arl.EDIT_OPS:
            assert len(ids_of(f"<call> edit {edit} </call>")) == 4
        assert all(len(TOKENIZER.encode(text)) == 1 for digit in range(10) for text in (f"{digit}", f" {digit}"))

    @pytest.mark.parametrize("stack", [False, True])
    def test_no_answer_of_the_gym_has_to_be_spelled(self, stack: bool) -> None:
        wrong = ["", "<call> read", "x <call> read </call>", "<call> fly </call>", "<call> edit </call>", READ + READ]
        wrong += ["<call> edit nothing </call>", "<call> read it </call>", "<call>  read </call>", "</call>", "<call>"]
        for one in TASKS:
            env = arl.BugFixEnv(one, max_turns=99, detail="short", stack_edits=stack)
            heard = [env.reset(), *(env.step(text).observation for text in wrong)]
            for edit in arl.EDIT_OPS:
                heard += [env.step(f"<call> {call} </call>").observation for call in (f"edit {edit}", "read", "test")]
            for text in heard:
                pieces = arl.PIECE_PATTERN.findall(text)
                assert len(TOKENIZER.encode(text)) == len(pieces), (one.name, text)

    def test_it_can_be_made_for_some_tasks_or_none(self) -> None:
        assert len(gym_tokenizer(TASKS[:1])) < len(TOKENIZER)
        assert tuple(gym_tokenizer([]).control) == GYM_CONTROLS


class TestStreams:
    def test_a_stream_depends_on_three_numbers_only(self) -> None:
        first = [torch.rand(3, generator=episode_stream(*key)).tolist() for key in [(0, 7, 2), (0, 7, 2)]]
        assert first[0] == first[1]

    def test_neighbours_have_different_streams(self) -> None:
        keys = [(seed, task, attempt) for seed in range(5) for task in range(12) for attempt in range(8)]
        starts = {torch.randint(2**62, (1,), generator=episode_stream(*key)).item() for key in keys}
        assert len(starts) == len(keys)

    def test_the_environments_numbers_are_not_the_policys(self) -> None:
        starts = {
            torch.randint(2**62, (1,), generator=episode_stream(0, 7, attempt, *more)).item()
            for attempt in range(8)
            for more in ((), ("tool",))
        }
        assert len(starts) == 16

    def test_e01_the_attempts_of_a_group_differ(self) -> None:
        """verl#5179, SkyRL#1042: one seed for all members of a group."""
        group = rollout(agent(), TOKENIZER, TASKS[:1], 8, 0)
        assert len({tuple(one.ids.tolist()) for one in group}) == 8
        assert [one.attempt for one in group] == list(range(8))

    def test_e01_a_task_that_stands_twice_goes_on_counting(self) -> None:
        twice = rollout(agent(), TOKENIZER, [TASKS[0], TASKS[1], TASKS[0]], 2, 0)
        assert [(one.task_id, one.attempt) for one in twice] == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3)]
        assert len({tuple(one.ids.tolist()) for one in twice}) == 6


def flaky(task: arl.BugFixTask, generator: torch.Generator) -> arl.FlakyEnv:
    return arl.FlakyEnv(task, detail="short", generator=generator, flip=0.3, timeout=0.15)


class TestRollout:
    @given(
        st.lists(st.sampled_from(TASKS), min_size=1, max_size=4, unique_by=lambda one: one.id),
        st.integers(1, 3),
        st.integers(0, 10**6),
        st.sampled_from(
            [{}, {"temperature": 0.6}, {"temperature": 1.5, "top_p": 0.9}, {"top_k": 5}, {"temperature": 0}]
        ),
    )
    @few
    def test_an_episode_is_the_same_alone_and_in_any_batch(
        self, some: list[Any], attempts: int, seed: int, transform: dict[str, Any]
    ) -> None:
        model = agent(seed % 7)
        batch = rollout(model, TOKENIZER, some, attempts, seed, **transform)
        turned = {(t.task_id, t.attempt): t for t in rollout(model, TOKENIZER, some[::-1], attempts, seed, **transform)}
        alone = rollout(model, TOKENIZER, some[:1], 1, seed, **transform)[0]
        assert same_trajectory(alone, batch[0], 1e-12)
        assert all(same_trajectory(one, turned[one.task_id, one.attempt], 1e-12) for one in batch)

    @given(st.integers(0, 10**6), st.floats(0.3, 3), st.one_of(st.none(), st.integers(1, 40)), st.floats(0.2, 1))
    @few
    def test_recomputed_log_probabilities_are_those_recorded(
        self, seed: int, temperature: float, top_k: int | None, top_p: float
    ) -> None:
        model = agent(seed, width=8 + 8 * (seed % 2))
        transform = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        batch = collate(rollout(model, TOKENIZER, TASKS[:3], 2, seed, max_turn_tokens=4, **transform))
        assert check_logprobs(model, batch, **transform) <= 1e-10
        assert batch.action_mask.any(1).all()

    def test_an_episode_in_a_flaky_environment_is_the_same_alone_and_in_any_batch(self) -> None:
        model = Scripted(ids_of("<call> test </call>"))
        batch = rollout(model, TOKENIZER, TASKS[:6], 4, 1, make_env=flaky)
        turned = rollout(model, TOKENIZER, TASKS[5::-1], 4, 1, make_env=flaky)
        alone = [one for at in TASKS[:6] for one in rollout(model, TOKENIZER, [at], 4, 1, make_env=flaky)]
        fewer = rollout(model, TOKENIZER, TASKS[:6], 1, 1, make_env=flaky)
        assert {one.ended for one in batch} == {"infrastructure", "out_of_turns"}
        assert all(same_trajectory(one, other, 1e-12) for one, other in zip(batch, alone, strict=True))
        known = {(one.task_id, one.attempt): one for one in batch}
        assert all(same_trajectory(one, known[one.task_id, one.attempt], 1e-12) for one in (*turned, *fewer))

    def test_e01_the_attempts_of_a_task_meet_different_failures(self) -> None:
        played = rollout(Scripted(ids_of("<call> test </call>")), TOKENIZER, TASKS[:8], 4, 1, make_env=flaky)
        groups = [[one.ended for one in played[at : at + 4]] for at in range(0, 32, 4)]
        assert sum(len(set(group)) > 1 for group in groups) >= 4

    def test_it_holds_for_an_agent_that_has_learnt_the_calls(self) -> None:
        model, gen = agent(width=32), arl.generator(1)
        calls = [ids_of(f"<call> {call} </call>") for call in ("read", "test", "edit swap_minmax", "submit")]
        rows = [[TOKENIZER.control["<bos>"], *TOKENIZER.encode(arl.SHORT_PROMPT), *call] for call in calls]
        ids, real = arl.pad_rows(rows)
        mask = real.clone()
        mask[:, : len(rows[0]) - 3] = False
        picks = [torch.randint(4, (16,), generator=gen) for _ in range(60)]
        arl.warm_start(model, ((ids[p], real[p], mask[p]) for p in picks))
        played = rollout(model, TOKENIZER, TASKS[:6], 4, 0)
        assert check_logprobs(model, collate(played)) <= 1e-10
        assert {one.ended for one in played} >= {"submitted"}

    def test_the_rest_of_the_context_is_as_the_environment_said_it(self) -> None:
        for one in rollout(agent(), TOKENIZER, TASKS[:4], 2, 3):
            env = gym_env(TASKS[one.task_id])
            transcript: arl.Transcript = [("prompt", env.reset())]
            for turn in range(int(one.turn.max()) + 1):
                said = one.ids[(one.turn == turn) & (one.writer == POLICY)].tolist()
                text = TOKENIZER.decode(said)
                transcript.append(("policy", text))
                whole = text if said[-1] == END else text + " (cut off)"
                transcript.append(("tool", env.step(whole).observation))
            mine = one.ids[one.writer != POLICY].tolist()
            ids, writer, _ = encode_transcript(TOKENIZER, transcript)
            assert mine == [id for id, who in zip(ids, writer, strict=True) if who != POLICY]

    def test_each_turn_belongs_to_the_policy_up_to_its_end_token(self) -> None:
        one = rollout(Scripted(ids_of(READ), ids_of("<call> submit </call>")), TOKENIZER, TASKS[:1], 1, 0)[0]
        borders = [(writer, turn) for writer, turn in zip(one.writer.tolist(), one.turn.tolist(), strict=True)]
        assert [WRITERS[w] for w, t in borders if t == 1] == ["policy"] * 3
        assert one.ids[one.action_mask].tolist() == ids_of(READ) + ids_of("<call> submit </call>")
        assert one.ids[one.writer == TEMPLATE].tolist() == [TOKENIZER.control["<obs>"], TOKENIZER.control["</obs>"]]

    @pytest.mark.parametrize("attempts", [0, -1, 1.5, True])
    def test_a_count_that_cannot_be_is_refused(self, attempts: Any) -> None:
        with pytest.raises(ValueError, match="attempts is"):
            rollout(agent(), TOKENIZER, TASKS[:1], attempts, 0)
        with pytest.raises(ValueError, match="max_turn_tokens is"):
            rollout(agent(), TOKENIZER, TASKS[:1], 1, 0, max_turn_tokens=attempts)

    def test_a_tokenizer_that_does_not_go_with_the_model_or_the_gym_is_refused(self) -> None:
        with pytest.raises(ValueError, match="a tokenizer of"):
            rollout(agent(), gym_tokenizer(TASKS[:1]), TASKS[:1], 1, 0)
        with pytest.raises(ValueError, match="no control '<bos>'"):
            rollout(agent(), arl.TinyTokenizer.build([" read"], ["<call>", " </call>"]), TASKS[:1], 1, 0)

    @pytest.mark.parametrize("cap", [128, 1000])
    def test_a_turn_that_leaves_no_room_for_anything_before_it_is_refused(self, cap: int) -> None:
        with pytest.raises(ValueError, match=f"^max_turn_tokens is {cap}: no room in the 128 positions"):
            rollout(agent(), TOKENIZER, TASKS[:1], 1, 0, max_turn_tokens=cap)

    @pytest.mark.parametrize("seed", [None, 0.5, 1.0, "1", -1, True])
    def test_a_seed_that_is_no_whole_number_is_refused(self, seed: Any) -> None:
        with pytest.raises(ValueError, match=r"^seed is"):
            rollout(agent(), TOKENIZER, TASKS[:1], 1, seed)

    def test_two_tasks_with_one_id_are_refused(self) -> None:
        with pytest.raises(ValueError, match="two different tasks have the id 3"):
            rollout(agent(), TOKENIZER, [TASKS[3], replace(TASKS[4], id=3)], 1, 0)

    def test_one_environment_for_two_episodes_is_refused(self) -> None:
        env = gym_env(TASKS[0])
        with pytest.raises(ValueError, match="one environment to task 0, attempt 0 and task 0, attempt 1"):
            rollout(agent(), TOKENIZER, TASKS[:1], 2, 0, make_env=lambda *_: env)

    def test_no_tasks_give_no_episodes(self) -> None:
        assert rollout(agent(), TOKENIZER, [], 3, 0) == []

    def test_m32_tasks_are_left_as_they_were(self) -> None:
        """AReaL#436: an episode changed its task, and the next began with the history of the first."""
        before = [repr(vars(one)) for one in TASKS[:3]]
        first, second = (rollout(agent(), TOKENIZER, TASKS[:3], 1, 0) for _ in range(2))
        assert before == [repr(vars(one)) for one in TASKS[:3]]
        assert all(same_trajectory(one, other) for one, other in zip(first, second, strict=True))


class TestEndings:
    def play(
        self, turns: Sequence[str | list[int]], answers: Sequence[Any], cap: int = 6, positions: int = 128
    ) -> tuple[Trajectory, Room]:
        room = Room(answers)
        model = Scripted(*(ids_of(turn) if isinstance(turn, str) else turn for turn in turns), positions=positions)
        played = rollout(model, TOKENIZER, [task(0)], 1, 0, make_env=lambda *_: room, max_turn_tokens=cap)
        return played[0], room

    def test_a_submitted_episode_says_so(self) -> None:
        one, _ = self.play([READ], ["pass", LAST])
        assert (one.ended, one.reward, one.info["note"]) == ("submitted", 1.0, "last")

    def test_an_episode_out_of_turns_says_so(self) -> None:
        one, _ = self.play([READ], [arl.StepResult("", 0.0, False, True, {})])
        assert (one.ended, one.reward) == ("out_of_turns", 0.0)

    def test_rewards_of_several_steps_add_up(self) -> None:
        one, _ = self.play([READ], [arl.StepResult("", 0.25, False, False, {}), LAST])
        assert one.reward == 1.25

    def test_r17_a_turn_that_ends_at_the_cap_is_whole(self) -> None:
        """verifiers 0315d48c: a turn of exactly the largest length, end token included, is not truncated."""
        one, room = self.play([READ], [LAST], cap=3)
        assert (one.info["cut"], room.heard) == ((), [READ])

    def test_r16_a_turn_that_is_cut_off_is_malformed_and_kept(self) -> None:
        """tinker#506: cut off in mid-call is not the same as a wrong format, and no reason to stop."""
        one, room = self.play([READ, READ], ["again", LAST], cap=2)
        assert one.info["cut"] == (0, 1)
        assert all(arl.parse_call(text).problem for text in room.heard)
        assert one.ids[one.action_mask].tolist() == ids_of(READ)[:2] * 2
        assert one.ended == "submitted"

    def test_a_turn_cut_off_is_malformed_even_if_its_tokens_spell_a_call(self) -> None:
        spelled = TOKENIZER.encode(READ)
        assert END not in spelled
        one, room = self.play([spelled], [LAST], cap=len(spelled))
        assert TOKENIZER.decode(spelled) == READ
        assert arl.parse_call(room.heard[0]).problem
        assert one.info["cut"] == (0,)

    def test_the_gym_tells_a_cut_off_call_from_others(self) -> None:
        one = rollout(Scripted(ids_of(READ)), TOKENIZER, TASKS[:1], 1, 0, max_turn_tokens=2)[0]
        answers = TOKENIZER.decode(one.ids[(one.writer == TOOL) & (one.turn == 0)].tolist())
        assert (answers, one.ended, one.info["cut"]) == ("error: unfinished call", "out_of_turns", (0, 1, 2, 3, 4))

    def test_m20_the_cap_of_a_turn_does_not_cut_the_episode(self) -> None:
        """rllm#575: turns of 6 + 4 (observation) + 6 with a cap of 8 are 16 tokens, not 8."""
        turn = [*[TOKENIZER.encode(" read")[0]] * 5, END]
        one, _ = self.play([turn, turn], ["0 1", LAST], 8)
        body = one.ids[Scripted.prompt_length :]
        assert len(body) == 16
        assert int(one.action_mask.sum()) == 12

    def test_m23_caps_count_tokens_and_not_characters(self) -> None:
        """SkyRL#764: a string of many characters was compared with a limit of tokens."""
        call = "<call> edit hardcode_tests </call>"
        assert len(call) > 30
        one, room = self.play([call], [LAST], cap=4)
        assert (room.heard, one.info["cut"]) == ([call], ())

    def test_m05_m06_ids_are_those_sampled_and_never_a_re_encoding(self) -> None:
        """TRL#5242, rllm#272: "r" "e" "a" "d" would come back as one token."""
        said = [TOKENIZER.control["<call>"], *(TOKENIZER.encode(c)[0] for c in " read"), END]
        one, room = self.play([said], [LAST], 8)
        assert room.heard == [READ]
        assert ids_of(READ) != said
        assert one.ids[one.action_mask].tolist() == said
        assert len(one.logprobs[one.action_mask]) == len(said)

    def test_an_empty_turn_is_an_action_of_one_token(self) -> None:
        one, room = self.play([" </call>"], ["no", LAST])
        assert one.ids[one.action_mask].tolist() == [END, END]
        assert room.heard == [" </call>"] * 2
        assert one.info["cut"] == ()

    def test_r15_a_malformed_call_is_answered_and_trained(self) -> None:
        """verifiers#1763: the episode goes on, and the tokens are the policy's all the same."""
        wrong = ids_of("<call> fly </call>")
        one = rollout(Scripted(wrong, ids_of(READ)), TOKENIZER, TASKS[:1], 1, 0, max_turn_tokens=9)[0]
        assert one.ids[(one.turn == 0) & one.action_mask].tolist() == wrong
        assert int(one.turn.max()) == 4

    @pytest.mark.parametrize("positions", [8, 12, 20, 40])
    def test_r16_the_context_is_never_longer_than_the_model(self, positions: int) -> None:
        """verifiers#637: what has no room is not fed; the episode ends cleanly."""
        model = agent(positions=positions)
        for one in (played := rollout(model, TOKENIZER, TASKS[:5], 2, 0, max_turn_tokens=4)):
            assert len(one) <= positions
            assert one.ended != "submitted" or one.reward is not None
        assert check_logprobs(model, collate(played)) <= 1e-10
        assert {one.ended for one in played} == {"out_of_context"}

    def test_a_prompt_without_room_leaves_the_start_token(self) -> None:
        one = rollout(agent(positions=6), TOKENIZER, TASKS[:1], 1, 0, max_turn_tokens=4)[0]
        assert (one.ids.tolist(), one.ended, one.reward) == ([TOKENIZER.control["<bos>"]], "out_of_context", 0.0)
        assert one.info["needed"] > one.info["room"]

    def test_the_last_turn_that_fits_is_played(self) -> None:
        long = " ".join(map(str, [1] * 50))
        needed = Scripted.prompt_length + 3 + 2 + len(TOKENIZER.encode(long)) + 3
        fits, _ = self.play([READ], [long, LAST], positions=needed, cap=3)
        assert (fits.ended, len(fits)) == ("submitted", needed)
        short, _ = self.play([READ], [long, LAST], positions=needed - 1, cap=3)
        assert (short.ended, len(short)) == ("out_of_context", Scripted.prompt_length + 3)

    def test_a_broken_environment_ends_its_own_episode_alone(self) -> None:
        rooms = [Room(["pass", LAST]), Room(["pass", arl.InfrastructureError("lost")]), Room([LAST])]
        given = iter(rooms)
        played = rollout(Scripted(ids_of(READ)), TOKENIZER, map(task, range(3)), 1, 0, make_env=lambda *_: next(given))
        assert [one.ended for one in played] == ["submitted", "infrastructure", "submitted"]
        assert [one.reward for one in played] == [1.0, None, 1.0]
        assert (played[1].info["error"], int(played[1].turn.max())) == ("lost", 1)
        assert played[1].ids[played[1].turn == 1].tolist() == ids_of(READ)

    def test_an_environment_that_cannot_begin_leaves_the_start_token(self) -> None:
        class Broken(Room):
            def reset(self) -> str:
                raise arl.InfrastructureError("no sandbox")

        one = rollout(agent(), TOKENIZER, [task(0)], 1, 0, make_env=lambda *_: Broken([]))[0]
        assert (len(one), one.ended, one.reward, one.info["error"]) == (1, "infrastructure", None, "no sandbox")

    def test_an_environment_that_cannot_be_made_ends_its_own_episode_alone(self) -> None:
        def make(task: Any, generator: torch.Generator) -> Room:
            if task.id == 1:
                raise arl.InfrastructureError("no sandbox")
            return Room([LAST])

        played = rollout(Scripted(ids_of(READ)), TOKENIZER, map(task, range(3)), 1, 0, make_env=make)
        assert [(one.ended, one.reward) for one in played] == [
            ("submitted", 1.0),
            ("infrastructure", None),
            ("submitted", 1.0),
        ]
        assert (len(played[1]), played[1].info["error"]) == (1, "no sandbox")

    @pytest.mark.parametrize("prompt", [None, 5, b"fix"])
    def test_a_prompt_that_is_no_text_is_refused_with_its_episode(self, prompt: Any) -> None:
        with pytest.raises(TypeError, match=r"^task 4, attempt 0, turn -1: the environment says .* must be a text"):
            rollout(agent(), TOKENIZER, [task(4)], 1, 0, make_env=lambda *_: Room([LAST], prompt))

    @pytest.mark.parametrize(
        ("step", "error", "reason"),
        [
            (ANSWER(None, 0.0, False, False, {}), TypeError, "the environment says None"),
            (ANSWER("x", None, True, False, {}), TypeError, "the reward is None"),
            (ANSWER("x", torch.tensor(1.0), True, False, {}), TypeError, "the reward is tensor"),
            (ANSWER("x", math.nan, True, False, {}), ValueError, "the reward is nan"),
            (ANSWER("x", math.inf, False, False, {}), ValueError, "the reward is inf"),
        ],
    )
    def test_an_answer_that_is_none_is_refused_with_its_episode_and_turn(
        self, step: Any, error: type[Exception], reason: str
    ) -> None:
        with pytest.raises(error, match=f"^task 0, attempt 0, turn 1: {reason}"):
            self.play([READ, READ], ["pass", step])

    def test_a_step_that_returns_nothing_is_refused(self) -> None:
        class Silent(Room):
            def step(self, text: str) -> Any:
                return None

        with pytest.raises(TypeError, match=r"^task 0, attempt 0, turn 0: the environment says None"):
            rollout(agent(), TOKENIZER, [task(0)], 1, 0, make_env=lambda *_: Silent([]))

    def test_which_turns_were_cut_off_is_the_rollouts_to_say(self) -> None:
        one, _ = self.play([READ], [arl.StepResult("", 1.0, True, False, {"cut": "mine", "note": 1})], cap=2)
        assert one.info == {"cut": (0,), "note": 1}

    @pytest.mark.parametrize(
        "stop", [KeyboardInterrupt(), asyncio.CancelledError(), SystemExit(3), ZeroDivisionError()]
    )
    def test_r14_anything_else_passes_through_and_the_model_is_as_it_was(self, stop: BaseException) -> None:
        """verifiers#1197: a cancellation that is swallowed becomes a reward of 0."""
        for mode in (True, False):
            model = agent().train(mode)
            with pytest.raises(type(stop)):
                rollout(model, TOKENIZER, [task(0)], 1, 0, make_env=lambda *_: Room([stop]))
            assert model.training is mode

    def test_r23_one_broken_episode_does_not_touch_the_rewards_of_others(self) -> None:
        """verifiers#186: all rows of a batch lost their reward."""
        given = iter([Room([arl.InfrastructureError("x")]), Room([LAST]), Room([LAST])])
        played = rollout(Scripted(ids_of(READ)), TOKENIZER, map(task, range(3)), 1, 0, make_env=lambda *_: next(given))
        assert collate(played).rewards.nan_to_num(nan=-7.0).tolist() == [-7.0, 1.0, 1.0]


class Dropping(arl.TinyAgent):
    """A model with dropout in front of its head."""

    def logits(self, features: Tensor) -> Tensor:
        return super().logits(torch.nn.functional.dropout(features, 0.5, self.training))


class TestCheckLogprobs:
    def batch(self, **transform: Any) -> tuple[arl.TinyAgent, Any]:
        model = agent(3)
        return model, collate(rollout(model, TOKENIZER, TASKS[:4], 2, 0, **transform))

    def test_o04_a_rollout_samples_without_dropout_and_restores_the_mode(self) -> None:
        """TRL#3234, verl#4708: with dropout on, the first ratios are not 1."""
        config = arl.TinyAgentConfig(len(TOKENIZER), width=16, layers=1, heads=2)
        model = Dropping(config, arl.generator(0)).train()
        batch = collate(rollout(model, TOKENIZER, TASKS[:3], 2, 0))
        assert model.training
        with pytest.raises(ValueError, match="differ"):
            check_logprobs(model, batch)
        assert check_logprobs(model.eval(), batch) <= 1e-10

    def test_o01_the_trainer_divides_by_the_temperature_that_sampled(self) -> None:
        """TRL#3029 and others: logits [2, 0, 0] at temperature 0.5 give -0.035976, not -0.239545."""
        logits = torch.tensor([2.0, 0.0, 0.0], dtype=arl.DTYPE)
        assert arl.sampling_distribution(logits, temperature=0.5)[0].log().item() == pytest.approx(-0.035976, abs=1e-6)
        assert logits.log_softmax(-1)[0].item() == pytest.approx(-0.239545, abs=1e-6)
        model, batch = self.batch(temperature=0.5)
        assert check_logprobs(model, batch, temperature=0.5) <= 1e-10
        with pytest.raises(ValueError, match="differ"):
            check_logprobs(model, batch)

    def test_o02_the_ratio_of_the_unchanged_policy_is_one(self) -> None:
        """TRL#4163: raw log-probabilities over those of the tempered distribution give 0.630253."""
        logits = torch.tensor([2.0, 1.0, 0.0], dtype=arl.DTYPE)
        sampled = arl.sampling_distribution(logits, temperature=0.6)[1].log()
        again = arl.tempered(logits, 0.6).log_softmax(-1)[1]
        assert (again - sampled).exp().item() == pytest.approx(1.0, abs=1e-12)
        wrong = (sampled - logits.log_softmax(-1)[1]).exp().item()
        assert min(wrong, 1 / wrong) == pytest.approx(0.630253, abs=1e-6)

    def test_o03_logits_are_left_as_they_were(self) -> None:
        """verl#6935: a division in place on a view."""
        logits = torch.tensor([2.0, 1.0], dtype=arl.DTYPE)
        assert (arl.tempered(logits, 0.5).tolist(), logits.tolist()) == ([4.0, 2.0], [2.0, 1.0])

    def test_one_changed_value_is_found_at_its_place(self) -> None:
        model, batch = self.batch()
        row, at = batch.action_mask.nonzero()[17].tolist()
        batch.logprobs[row, at] += 1e-6
        with pytest.raises(
            ValueError, match=rf"^row {row}, position {at}: .* 1 of {int(batch.action_mask.sum())} "
        ) as found:
            check_logprobs(model, batch)
        recorded, recomputed = re.findall(r"-\d+\.\d+", str(found.value))
        assert float(recorded) - float(recomputed) == pytest.approx(1e-6, rel=1e-3), "both are shown to that digit"
        assert check_logprobs(model, batch, tolerance=1e-5) == pytest.approx(1e-6, rel=1e-3)
        batch.logprobs[row, at] = math.nan
        with pytest.raises(ValueError, match=f"row {row}, position {at}"):
            check_logprobs(model, batch)

    def test_a_shifted_mask_other_ids_and_a_token_that_was_cut_off_are_found(self) -> None:
        model, batch = self.batch()
        shifted = batch.action_mask.roll(-1, 1) & arl.has_past(batch.attention_mask)
        changed = batch.ids.clone()
        row, at = batch.action_mask.nonzero()[0].tolist()
        changed[row, at] = (changed[row, at] + 1) % len(TOKENIZER)
        for wrong in (replace(batch, action_mask=shifted), replace(batch, ids=changed)):
            with pytest.raises(ValueError, match="differ"):
                check_logprobs(model, wrong, whole=False)
        with pytest.raises(ValueError, match="recomputed -inf"):
            check_logprobs(model, batch, top_k=1)

    def test_what_is_no_action_is_not_compared(self) -> None:
        model, batch = self.batch()
        batch.logprobs[~batch.action_mask] = math.nan
        assert check_logprobs(model, batch) <= 1e-10
        none = replace(batch, action_mask=torch.zeros_like(batch.action_mask))
        assert check_logprobs(model, none, whole=False) == 0.0

    @pytest.mark.parametrize("kept", [True, False])
    def test_m03_a_mask_without_end_tokens_is_found_where_the_writers_are_known(self, kept: bool) -> None:
        """TRL#3200, #6357: what is left out has no log-probability to differ."""
        model = Scripted(ids_of(READ))
        batch = collate(rollout(model, TOKENIZER, TASKS[:2], 1, 0))
        mask = batch.action_mask & (batch.ids != END)
        faulty = replace(batch, action_mask=mask, logprobs=batch.logprobs if kept else batch.logprobs * mask)
        row, at = (batch.action_mask & ~mask).nonzero()[0].tolist()
        with pytest.raises(ValueError, match=f"^row {row}, position {at}: the policy wrote it .* 10 of its 30 tokens"):
            check_logprobs(model, faulty)
        assert check_logprobs(model, faulty, whole=False) <= 1e-10
        assert check_logprobs(model, replace(batch, action_mask=batch.action_mask)) <= 1e-10

    def test_an_empty_mask_is_found_where_the_writers_are_known(self) -> None:
        model, batch = self.batch()
        with pytest.raises(ValueError, match="the policy wrote it and it is no action"):
            check_logprobs(model, replace(batch, action_mask=torch.zeros_like(batch.action_mask)))

    def test_the_weights_after_one_update_are_told_from_those_that_sampled(self) -> None:
        model, batch = self.batch()
        arl.warm_start(model, [(batch.ids, batch.attention_mask, batch.action_mask)])
        with pytest.raises(ValueError, match="differ"):
            check_logprobs(model, batch)


def test_m02_the_log_probability_is_that_of_the_token_sampled() -> None:
    """NeMo-RL#3297: that of the most probable token was recorded. Here one token has -0.1, the sampled one about -3."""

    class Fixed(arl.TinyAgent):
        def logits(self, features: Tensor) -> Tensor:
            scores = torch.full((*features.shape[:-1], len(TOKENIZER)), -60.0, dtype=arl.DTYPE)
            scores[..., END], scores[..., 7] = -0.05, -3.0
            return scores

    model = Fixed(arl.TinyAgentConfig(len(TOKENIZER), width=2, layers=1, heads=1), arl.generator(0))
    played = rollout(model, TOKENIZER, [task(number) for number in range(60)], 1, 0, make_env=lambda *_: Room([LAST]))
    values = {token: torch.cat([one.logprobs[one.ids == token] for one in played]) for token in (END, 7)}
    total = math.log(math.exp(-0.05) + math.exp(-3.0))
    for token, score in ((END, -0.05), (7, -3.0)):
        sampled = values[token][~values[token].isnan()]
        assert len(sampled) > 0
        assert (sampled - (score - total)).abs().max() < 1e-10
