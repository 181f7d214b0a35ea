"""The gym behind Gymnasium's interface: its own checker accepts it, and it changes nothing about an episode."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.bugfix_gym import BugFixEnv, bugfix_tasks, gymnasium_env

TASKS = bugfix_tasks()
CALLS = ["read", "test", "edit swap_minmax", "edit hardcode_tests", "edit nothing", "fix it", "submit"]
call_lists = st.lists(st.sampled_from([f"<call> {call} </call>" for call in CALLS]), max_size=6)


def played(env: Any, messages: list[str]) -> list[Any]:
    """Return what the environment answers, up to its end."""
    first = env.reset()
    answers = [first[0] if isinstance(first, tuple) else first]
    for message in messages:
        answers.append(tuple(env.step(message)))
        if answers[-1][2] or answers[-1][3]:
            break
    return answers


@pytest.mark.parametrize("detail", ["full", "short"])
@pytest.mark.filterwarnings("error")
def test_gymnasiums_own_checker_accepts_every_task(detail: str) -> None:
    from gymnasium.utils.env_checker import check_env

    for task in TASKS:
        check_env(gymnasium_env(task, detail=detail), skip_render_check=True)


@given(st.sampled_from(TASKS), call_lists, st.sampled_from(["full", "short"]), st.booleans())
@settings(deadline=None, max_examples=50)
def test_an_episode_is_the_same_with_and_without_the_adapter(task, messages, detail, stack) -> None:
    options = {"max_turns": 4, "detail": detail, "stack_edits": stack}
    assert played(gymnasium_env(task, **options), messages) == played(BugFixEnv(task, **options), messages)


@given(st.sampled_from(TASKS), st.randoms(use_true_random=False), st.sampled_from(["full", "short"]))
@settings(deadline=None, max_examples=50)
def test_observations_lie_in_the_observation_space_whatever_is_sampled_from_the_action_space(task, rng, detail) -> None:
    env = gymnasium_env(task, max_turns=20, detail=detail)
    env.action_space.seed(rng.randrange(2**31))
    observation, info = env.reset(seed=0)
    assert (observation in env.observation_space, info) == (True, {})
    for message in [
        env.action_space.sample() if rng.random() < 0.5 else f"<call> {rng.choice(CALLS)} </call>" for _ in range(20)
    ]:
        observation, _, terminated, truncated, _ = env.step(message)
        assert observation in env.observation_space
        if terminated or truncated:
            return


def test_what_many_stacked_edits_make_can_be_read() -> None:
    env = gymnasium_env(TASKS[0], stack_edits=True, max_turns=100)
    env.reset()
    for _ in range(50):
        env.step("<call> edit hardcode_tests </call>")
    observation = env.step("<call> read </call>")[0]
    assert len(observation) > 5_000
    assert observation in env.observation_space


def test_settings_that_the_environment_refuses_are_refused_by_the_adapter() -> None:
    with pytest.raises(ValueError, match="max_turns is 0"):
        gymnasium_env(TASKS[0], max_turns=0)


def test_without_the_package_the_adapter_says_so_and_the_library_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ModuleNotFoundError, match="gymnasium"):
        gymnasium_env(TASKS[0])


def test_importing_the_library_does_not_import_gymnasium() -> None:
    program = "import sys, agentrl; print('gymnasium' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"
