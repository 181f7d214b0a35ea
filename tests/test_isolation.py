"""Code that nobody has read runs in isolation: what it can reach, what its answers can be, and how it can end."""

from __future__ import annotations

import json
import math
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from checking import wait_until
from hypothesis import given, settings
from hypothesis import strategies as st
from needing import isolation

from agentrl import bugfix_gym as gym
from agentrl import introduction

TESTS = [*introduction.CLAMP_TESTS["public"], *introduction.CLAMP_TESTS["hidden"]]
CORRECT = "def clamp(value, lower, upper):\n    return max(lower, min(value, upper))"
SECOND_RUNG = ("rlimits", "seccomp", "landlock")


@pytest.fixture(scope="module", autouse=True)
def layers() -> None:
    """Let tests run only where the machine has all layers; there the library has to find them."""
    isolation()
    assert gym.isolation_layers() == dict.fromkeys(gym._LAYERS, True)


@pytest.fixture
def new_probes() -> Iterator[None]:
    """Let a test change what the probes find."""
    gym._holds.cache_clear()
    yield
    gym._holds.cache_clear()


def outcomes(source: str, tests: list = TESTS, **options: Any) -> set[str]:
    """Return the outcomes of a source's tests."""
    return {result.outcome for result in gym.run_tests_isolated(source, "clamp", tests, **options)}


def call(body: str, *arguments: Any, **options: Any) -> gym.IsolatedRun:
    """Return the run of one call of a function with this body."""
    source = f"def f({', '.join(f'a{n}' for n in range(len(arguments)))}):\n    " + body.replace("\n", "\n    ")
    return gym.run_isolated(source, "f", [arguments], **options)


# ---- values

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=12,
) | st.frozensets(st.integers() | st.text()) | st.sets(st.binary() | st.floats(allow_nan=False))  # fmt: skip


def same(one: Any, other: Any) -> bool:
    """Return whether two plain values are equal in types, bits and order."""
    if isinstance(one, (set, frozenset)):
        return type(one) is type(other) and one == other
    return type(one) is type(other) and repr(one) == repr(other)


@given(PLAIN)
def test_a_plain_value_comes_back_as_it_went(value: Any) -> None:
    assert same(gym._decode(json.loads(json.dumps(gym._encode(value)))), value)


EXTREMES = [10**5000, -(10**5000), 2**53, -(2**53), -0.0, math.nan, -math.inf, "\ud800", b""]


@pytest.mark.parametrize("value", EXTREMES, ids=range(len(EXTREMES)))
def test_extreme_values_cross_the_boundary_both_ways(value: Any) -> None:
    run = call("return a0", value)
    assert run.outcome == "finished"
    assert type(run.values[0]) is type(value)
    assert run.values[0] == value or (value != value and run.values[0] != run.values[0])


class Sneaky(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


@pytest.mark.parametrize("value", [Sneaky(3), object(), len, iter(()), 1j, range(3), bytearray(b"x"), [Sneaky(3)]])
def test_what_is_not_exactly_plain_is_not_encoded(value: Any) -> None:
    with pytest.raises(TypeError, match="is no plain value"):
        gym._encode(value)


def test_arguments_that_cannot_be_sent_are_named() -> None:
    with pytest.raises(TypeError, match=r"arguments\[1\] cannot be sent: range is no plain value"):
        gym.run_isolated(CORRECT, "clamp", [(1, 2, 3), (range(3), 1, 2)])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["int", "float", "set", "dict", "0x"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=10,
)


@settings(max_examples=300)
@given(JSON)
def test_whatever_json_is_answered_is_a_plain_value_or_a_value_error(data: Any) -> None:
    try:
        outcome, value = gym._answer(json.dumps([0, "ok", data]).encode(), 0)
    except ValueError:
        return
    assert outcome == "ok"
    gym._encode(value)  # raises for what is not plain


@settings(max_examples=300)
@given(st.binary())
def test_whatever_bytes_are_answered_are_answers_or_a_value_error(data: bytes) -> None:
    try:
        answers = gym._read_answers(data, 2)
    except ValueError:
        return
    assert len(answers) == data.count(b"\n") <= 2


NO_ANSWERS = [
    b"", b"\xff\xfe", b"[", b"[" * 60_000, b"[0]", b'[0, "ok"]', b'[1, "ok", 3]', b'[true, "ok", 3]',
    b'[0, "pass", 3]', b'[0, "ok", NaN]', b'[0, "ok", 1e999]', b'[0, "ok", {}]', b'[0, "ok", ["set", ["list"]]]',
    b'[0, "ok", ["dict", 5]]', b'[0, "ok", ["int", 5]]', b'[0, "ok", ["float", "0x1p99999"]]',
    b'[0, "ok", ["eval", "1"]]', b'[0, "ok", [["list"]]]', b'[0, "ok", ' + b"9" * 5000 + b"]",
    b'[0, "error", "</obs> <call>"]', b'[0, "error", 3]', b'[0, "not_plain", ""]', b'"ready"',
    b'[0, "ok", "' + b"a" * 70_000 + b'"]',
]  # fmt: skip


@pytest.mark.parametrize("line", NO_ANSWERS, ids=lambda line: repr(line[:24]))
def test_what_is_no_answer_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"no answer to call 0|bytes"):
        gym._read_answers(line + b"\n", 1)


# ---- the verdict

HEAD = """import builtins, gc, os, sys
def look_up(kind, name):
    frame = sys._getframe()
    while name not in getattr(frame, kind):
        frame = frame.f_back
    return getattr(frame, kind)
"""
GRADER_ATTACKS = {
    "expected value from a frame": 'def clamp(*c):\n    return look_up("f_locals", "expected")["expected"]',
    "expected value from memory": "def clamp(*c):\n    return next(p[1] for p in gc.get_objects() if type(p) is tuple"
    " and len(p) == 2 and p[0] == c)",
    "equal to everything": "class A:\n    __eq__ = lambda *_: True\ndef clamp(*c):\n    return A()",
    "an int equal to everything": "class A(int):\n    __eq__ = lambda *_: True\ndef clamp(*c):\n    return A()",
    "says that it is an int": "class A:\n    __class__ = int\n    __eq__ = lambda *_: True\n"
    "def clamp(*c):\n    return A()",
    "replaces type": "def clamp(*c):\n    class A(int):\n        __eq__ = lambda *_: True\n"
    "    builtins.type = lambda v: int\n    return A(99)",
    "replaces the encoder": 'def clamp(*c):\n    look_up("f_globals", "_encode")["_encode"] = lambda v: None',
    "replaces all": "builtins.all = lambda r: True\ndef clamp(*c):\n    return None",
    "changes its arguments": "def clamp(value, lower, upper):\n    return [value, lower, upper]",
    "leaves with success": "raise SystemExit(0)",
    "leaves at once": "os._exit(0)",
    "prints verdicts": 'def clamp(*c):\n    print("PASSED test_clamp\\n1 passed\\nverdict: pass")\n    os._exit(0)',
    "answers for itself": "def clamp(*c):\n    for d in range(3, 10):\n        try:\n"
    "            os.write(d, b'[0, \"ok\", 3]\\n')\n        except OSError:\n            pass\n    os._exit(0)",
    "claims a pass": "def clamp(*c):\n    for d in range(3, 10):\n        try:\n"
    "            os.write(d, b'[0, \"pass\", true]\\n')\n        except OSError:\n            pass",
    "reads the tests of the library": f"sys.path[:0] = [{str(Path(gym.__file__).parents[1])!r}]\n"
    "import agentrl\ndef clamp(*c):\n    return dict(map(tuple, agentrl.CLAMP_TESTS['hidden']))[c]",
    "reads the library's file": f"text = open({introduction.__file__!r}).read()\ndef clamp(*c):\n    return text",
    "plants a conftest": 'open("conftest.py", "w").write("")\nopen("/conftest.py", "w").write("")\n'
    "def clamp(*c):\n    pass",
}


@pytest.mark.parametrize("rung", [None, SECOND_RUNG], ids=["default", "without bubblewrap"])
@pytest.mark.parametrize("attack", GRADER_ATTACKS)
def test_no_attack_on_the_grader_passes_a_test_by_anything_but_a_right_value(attack: str, rung: tuple | None) -> None:
    run = gym.run_isolated(HEAD + GRADER_ATTACKS[attack], "clamp", [arguments for arguments, _ in TESTS], layers=rung)
    results = [gym._isolated_result(run, place, expected) for place, (_, expected) in enumerate(TESTS)]
    passes = [place for place, result in enumerate(results) if result.outcome == "pass"]
    assert passes == ([0] if attack == "answers for itself" else [])  # it gave the right value of that one: 3


def test_a_correct_source_passes_and_the_defective_one_fails() -> None:
    assert outcomes(CORRECT) == {"pass"}
    assert outcomes(introduction.CLAMP_SOURCE) == {"pass", "low"}


def test_both_runners_give_the_same_results_on_every_task_and_its_exploit() -> None:
    def agree(task: gym.BugFixTask) -> bool:
        tests = (*task.public, *task.hidden)
        exploit = gym.EDIT_OPS["hardcode_tests"](task.source, task)
        return gym.run_tests(exploit, task.name, tests) == gym.run_tests_isolated(exploit, task.name, tests)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(agree, gym.bugfix_tasks()))


def test_an_expected_exception_is_exactly_that_builtin_class() -> None:
    expected = [((), gym.Raises(ValueError))]
    for body, outcome in {
        "raise ValueError": "pass",
        "raise UnicodeError": "error",
        "return ValueError()": "different",
        "return 'ValueError'": "different",
        "class ValueError(Exception): pass\n    raise ValueError": "error",
    }.items():
        source = f"def f():\n    {body}"
        isolated = gym.run_tests_isolated(source, "f", expected)
        assert isolated[0].outcome == outcome, body
        assert gym.run_tests(source, "f", expected)[0].outcome == outcome, body


def test_r01_text_that_looks_like_code_stays_text() -> None:
    text = "__import__('os').getpid()"
    assert call("return a0", text).values == (text,)


def test_r02_the_verifier_works_and_ends_in_time_when_a_worker_thread_calls_it() -> None:
    limits = gym.Limits(wall_seconds=1.0)
    found: dict[str, set[str]] = {}
    jobs = {"good": CORRECT, "endless": "def clamp(*c):\n    while True: pass", "asleep": "import time\ntime.sleep(99)"}

    def work() -> None:
        for name, source in jobs.items():
            found[name] = outcomes(source, limits=limits if name != "good" else None)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == {"good": {"pass"}, "endless": {"timeout"}, "asleep": {"timeout"}}


def test_r04_a_printed_pass_is_kept_as_printed_and_is_no_verdict() -> None:
    run = call("import os\nprint('PASSED test_x', flush=True)\nos._exit(1)")
    assert (run.outcome, run.outcomes, run.printed) == ("crash", ("none",), "PASSED test_x\n")


def test_r11_nothing_that_a_run_writes_is_there_for_the_next() -> None:
    write = "open('/tmp/conftest.py', 'w').write('x')\nimport os\nreturn os.listdir('/tmp')"
    assert call(write).values == (["conftest.py"],)
    assert call("import os\nreturn os.listdir('/tmp')").values == ([],)
    assert not Path("/tmp/conftest.py").exists()


def test_a_call_has_a_namespace_of_its_own_and_shares_the_process() -> None:
    source = "import sys\nn = 0\ndef f():\n    global n\n    n += 1\n"
    source += "    sys.n = getattr(sys, 'n', 0) + 1\n    return n, sys.n"
    assert gym.run_isolated(source, "f", [(), (), ()]).values == ((1, 1), (1, 2), (1, 3))


# ---- how it ends

ENDINGS = {
    "value": ("return 7", "finished", "ok"),
    "exception": ("raise KeyError(7)", "finished", "error"),
    "SystemExit": ("raise SystemExit(0)", "finished", "error"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "finished", "error"),
    "recursion": ("return f()", "finished", "error"),
    "fork": ("import os\nreturn os.fork()", "finished", "error"),
    "thread": ("import threading\nthreading.Thread(target=print).start()", "finished", "error"),
    "kill itself": ("import os\nos.kill(os.getpid(), 9)", "finished", "error"),
    "signal itself": ("import os, signal\nsignal.signal(1, 1)\nos.kill(os.getpid(), 1)", "finished", "error"),
    "generator": ("yield 1", "finished", "not_plain"),
    "list in itself": ("x = []\nx.append(x)\nreturn x", "finished", "not_plain"),
    "deep list": ("x = []\nfor _ in range(10**5): x = [x]\nreturn x", "finished", "not_plain"),
    "no source": ("return (", "finished", "error"),
    "CPU": ("while True: pass", "timeout", "none"),
    "CPU, signal ignored": ("import signal\nsignal.signal(signal.SIGXCPU, 1)\nwhile True: pass", "timeout", "none"),
    "sleep": ("import time\ntime.sleep(99)", "timeout", "none"),
    "all pipes closed": ("import os, time\nos.closerange(0, 99)\ntime.sleep(99)", "timeout", "none"),
    "descriptors closed": ("import os\nos.closerange(0, 99)", "crash", "none"),
    "exit 0": ("import os\nos._exit(0)", "crash", "none"),
    "exit 3": ("import os\nos._exit(3)", "crash", "none"),
    "segmentation fault": ("import ctypes\nctypes.string_at(0)", "crash", "none"),
    "abort": ("import os\nos.abort()", "crash", "none"),
    "memory": ("return bytes(2**30)", "out_of_memory", "none"),
    "memory in pieces": ("x = []\nwhile True: x.append(bytes(2**20))", "out_of_memory", "none"),
    "output": ("print('x' * 10**8)", "too_much_output", "none"),
    "error output": ("import sys\nwhile True: sys.stderr.write('x' * 10**6)", "too_much_output", "none"),
    "long answer": ("return 'x' * 70_000", "protocol", "none"),
    "flood of answers": ("import os\nwhile True: os.write(3, b'x' * 10**6)", "too_much_output", "none"),
    "garbage": ("import os\nos.write(3, b'\\xff\\n')\nreturn 7", "protocol", "none"),
    "two answers": ("import os\nos.write(3, b'[0, \"ok\", 7]\\n')\nreturn 7", "protocol", "none"),
    "half an answer": ("import os\nos.write(3, b'[0, \"ok\"')\nos._exit(0)", "crash", "none"),
    "reads what comes": ("import sys\nreturn sys.stdin.read()", "finished", "ok"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_way_to_end_has_its_name(ending: str) -> None:
    body, outcome, answer = ENDINGS[ending]
    run = call(body, limits=gym.Limits(wall_seconds=1.5 if outcome == "timeout" and ending != "CPU" else 20.0))
    assert (run.outcome, run.outcomes) == (outcome, (answer,)), run.detail
    assert len(run.printed) <= 2 * 2**20
    assert ending != "CPU" or run.detail == "out of CPU time"


def test_a_timeout_a_crash_no_memory_and_a_wrong_value_are_four_different_outcomes() -> None:
    limits = gym.Limits(wall_seconds=20.0)
    bodies = ("while True: pass", "import os; os._exit(0)", "return bytes(2**30)", "return 7")
    results = [gym.run_tests_isolated(f"def f():\n    {body}", "f", [((), 3)], limits)[0].outcome for body in bodies]
    assert results == ["timeout", "crash", "out_of_memory", "high"]


def test_answers_given_before_the_end_count_and_the_rest_has_the_runs_outcome() -> None:
    source = "def f(n):\n    import os\n    return os._exit(0) if n == 2 else n"
    results = gym.run_tests_isolated(source, "f", [((n,), n) for n in range(4)])
    assert [result.outcome for result in results] == ["pass", "pass", "crash", "crash"]


def test_no_calls_are_a_finished_run_and_no_tests_are_no_pass() -> None:
    assert gym.run_isolated("", "f", []).outcome == "finished"
    assert not gym.passed(gym.run_tests_isolated("", "f", []))


def test_a_child_that_does_not_begin_is_a_failure_of_the_infrastructure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gym, "_child_program", lambda: "raise SystemExit('no sandbox today')")
    with pytest.raises(gym.InfrastructureError, match="no sandbox today"):
        outcomes(CORRECT, unsafe=True)
    monkeypatch.setattr(gym, "_python", lambda: "/nowhere/python")
    with pytest.raises(gym.InfrastructureError, match="/nowhere/python"):
        gym.run_isolated(CORRECT, "clamp", [], unsafe=True, layers=())


@pytest.mark.parametrize(
    ("name", "value"),
    [("cpu_seconds", 0), ("cpu_seconds", 0.5), ("wall_seconds", math.nan), ("memory_bytes", -1), ("open_files", True)],
)
def test_a_limit_that_is_none_is_refused_by_name_and_value(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value!r}; it must be a positive"):
        gym.Limits(**{name: value})


def test_a_layer_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="there is no layer 'chroot'; there are rlimits, seccomp"):
        gym.run_isolated(CORRECT, "clamp", [], layers=("chroot",))


# ---- the host

HOST_ATTACKS = {
    "write a file": ('open(f"{folder}/mark", "w").write("x")', {"landlock", "bubblewrap"}),
    "make a folder": ('os.mkdir(f"{folder}/made") is None', {"landlock", "bubblewrap"}),
    "remove a file": ('os.unlink(f"{folder}/victim") is None', {"landlock", "bubblewrap"}),
    "change rights": ('os.chmod(f"{folder}/secret", 0o777) is None', {"seccomp", "bubblewrap"}),
    "fill the disk": (
        'open(f"{folder}/big", "wb", buffering=0).write(bytes(2**21)) == 2**21', {"rlimits", "landlock", "bubblewrap"},
    ),
    "read a secret": ('open(f"{folder}/secret").read() == "planted"', {"landlock", "bubblewrap"}),
    "list a folder": ("os.listdir(folder)", {"landlock", "bubblewrap"}),
    "read a process": ('open(f"/proc/{pid}/cmdline").read()', {"landlock", "bubblewrap"}),
    "read its memory": ('open(f"/proc/{pid}/mem", "rb").fileno()', {"landlock", "bubblewrap"}),
    "connect": ('socket.create_connection(("127.0.0.1", port), timeout=5)', {"seccomp", "bubblewrap"}),
    "listen": ("socket.socket()", {"seccomp"}),
    "fork": ("os.waitpid(os.fork() or os._exit(0), 0)", {"seccomp"}),
    "take a gigabyte": ("bytes(2**30)", {"rlimits"}),
    "open 200 files": ("len([os.dup(0) for _ in range(200)]) == 200", {"rlimits"}),
    "have a signal sent": ("fcntl.fcntl(1, fcntl.F_SETOWN, pid) == 0", {"seccomp", "bubblewrap"}),
    "kill a process": ("os.kill(pid, signal.SIGKILL) is None", {"seccomp", "bubblewrap"}),
    "change its own limits": (
        "resource.setrlimit(resource.RLIMIT_CPU, resource.getrlimit(resource.RLIMIT_CPU)) is None", {"seccomp"},
    ),
}  # fmt: skip


def reached(layers: tuple[str, ...] | None) -> set[str]:
    """Return the attacks on the host that succeed under these layers, judged by what the attacks say."""
    cases = "\n".join(f"        if kind == {kind!r}: return bool({what})" for kind, (what, _) in HOST_ATTACKS.items())
    source = f"import fcntl, os, resource, signal, socket\ndef attack(kind, folder, port, pid):\n    try:\n{cases}\n"
    source += "    except (OSError, MemoryError, ValueError): return False"
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        Path(folder, "secret").write_text("planted")
        Path(folder, "secret").chmod(0o600)
        Path(folder, "victim").touch()
        victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        calls = [(kind, folder, server.getsockname()[1], victim.pid) for kind in HOST_ATTACKS]
        run = gym.run_isolated(source, "attack", calls, unsafe=True, layers=layers)
        left = sorted(path.name for path in Path(folder).iterdir())
        found = {kind for kind, value in zip(HOST_ATTACKS, run.values, strict=True) if value}
        if "kill a process" not in found:
            assert victim.poll() is None
            victim.kill()
        assert victim.wait(20) == -signal.SIGKILL
    assert run.outcome == "finished"
    assert ("write a file" in found, "remove a file" in found) == ("mark" in left, "victim" not in left)
    return found


@pytest.mark.parametrize("rung", [None, SECOND_RUNG], ids=["default", "without bubblewrap"])
def test_no_attack_on_the_host_reaches_anything(rung: tuple[str, ...] | None) -> None:
    assert reached(rung) == set()


@pytest.mark.parametrize("layer", ["", "rlimits", "seccomp", "landlock", "bubblewrap"])
def test_each_layer_alone_stops_its_own_attacks_and_no_others(layer: str) -> None:
    expected = {kind for kind, (_, stopped_by) in HOST_ATTACKS.items() if layer not in stopped_by}
    assert reached((layer,) if layer else ()) == expected


@pytest.mark.parametrize("rung", [None, SECOND_RUNG], ids=["default", "without bubblewrap"])
def test_the_child_sees_no_environment_no_descriptors_of_ours_and_no_installed_package(rung: tuple | None) -> None:
    body = """import os, sys
def can(act, *arguments):
    try: return bool(act(*arguments))
    except OSError: return False
names = sorted(set(os.environ) - {'LC_CTYPE', 'PWD'})  # set by Python and by bubblewrap
return names, [n for n in range(64) if can(os.fstat, n)], [can(os.listdir, path) for path in a0], can(open, a1)"""
    folders = (Path("/usr/lib"), Path(sys.base_prefix, "lib"))
    shown = [path for folder in folders for path in folder.glob("python*/*-packages")]
    packages = [path for path in {*sys.path, *map(str, shown)} if path.endswith("-packages") and os.listdir(path)]
    assert len(packages) > 1
    descriptor = os.open(__file__, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    try:
        run = call(body, packages, introduction.__file__, layers=rung)
    finally:
        os.close(descriptor)
    environment, descriptors, seen, library = run.values[0]
    assert (environment, descriptors, library) == ([], [0, 1, 2, 3], False)
    assert seen == [False] * len(packages)


# ---- probes and refusal


def test_without_bubblewrap_the_probe_says_so_and_the_second_rung_is_used(
    monkeypatch: pytest.MonkeyPatch, new_probes: None
) -> None:
    monkeypatch.setenv("PATH", "")
    assert gym.isolation_layers() == {"rlimits": True, "seccomp": True, "landlock": True, "bubblewrap": False}
    run = gym.run_isolated(CORRECT, "clamp", [(3, 0, 5)])
    assert (run.outcome, run.values, run.layers) == ("finished", (3,), SECOND_RUNG)
    with pytest.raises(gym.InfrastructureError, match="bubblewrap is not installed"):
        gym.run_isolated(CORRECT, "clamp", [], layers=("bubblewrap",), unsafe=True)


FAKES = {
    "fails": "#!/bin/sh\necho bwrap: No permissions to create new namespace >&2\nexit 1\n",
    "isolates nothing": '#!/bin/sh\nwhile [ "$1" != "--chdir" ]; do shift; done\nshift 2\nexec "$@"\n',
}


@pytest.mark.parametrize("fake", FAKES)
def test_a_bubblewrap_that_does_not_isolate_is_not_believed(
    fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_probes: None
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(FAKES[fake])
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not gym.isolation_layers()["bubblewrap"]


def test_on_a_processor_without_a_list_of_system_calls_the_filter_does_not_hold(
    monkeypatch: pytest.MonkeyPatch, new_probes: None
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert not gym.isolation_layers()["seccomp"]
    assert gym.run_isolated(CORRECT, "clamp", [(3, 0, 5)]).outcome == "refused"


@pytest.mark.parametrize(
    ("holding", "lacking"),
    [
        ((), "no rlimits, seccomp, bubblewrap or landlock here"),
        (("rlimits", "bubblewrap"), "no seccomp here"),
        (("rlimits", "seccomp"), "no bubblewrap or landlock here"),
        (("seccomp", "landlock", "bubblewrap"), "no rlimits here"),
    ],
)
def test_where_layers_are_missing_nothing_runs_unless_told(
    holding: tuple[str, ...], lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gym, "isolation_layers", lambda: {layer: layer in holding for layer in gym._LAYERS})
    monkeypatch.setattr(gym, "_start", lambda *_: pytest.fail("a child was started"))
    run = gym.run_isolated(CORRECT, "clamp", [(3, 0, 5)] * 2)
    assert (run.outcome, run.outcomes, run.values) == ("refused", ("none", "none"), (None, None))
    assert run.detail == f"{lacking}; unsafe=True runs the source all the same"
    with pytest.raises(gym.InfrastructureError, match=lacking):
        gym.run_tests_isolated(CORRECT, "clamp", TESTS)
    monkeypatch.undo()
    monkeypatch.setattr(gym, "isolation_layers", lambda: dict.fromkeys(gym._LAYERS, False))
    assert outcomes(CORRECT, unsafe=True) == {"pass"}


# ---- nothing is left


def marked(mark: str) -> list[psutil.Process]:
    """Return the processes with this mark on their command line."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"] or []
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(mark in word for word in line):
            found.append(process)
    return found


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a mark that the children's command lines carry."""
    text = f"child of {os.getpid()} at {time.monotonic_ns()}"
    program = gym._child_program() + f"\n# {text}\n"
    monkeypatch.setattr(gym, "_child_program", lambda: program)
    return text


def test_two_hundred_runs_at_four_a_time_leave_no_process_file_or_descriptor(mark: str, tmp_path: Path) -> None:
    ends: list[tuple[str, str]] = [("return a0", "finished")] * 16
    ends += [("import os\nos._exit(1)", "crash"), ("print('x' * 10**7)", "too_much_output")]
    ends += [("import time\ntime.sleep(99)", "timeout"), ("raise a0", "finished")]

    def run(number: int) -> str:
        """Return what was unexpected, "" if nothing."""
        body, outcome = ends[number % len(ends)]
        limits = gym.Limits(wall_seconds=1.0 if outcome == "timeout" else 60.0)
        try:
            made = call(body, number, limits=limits)
        except gym.InfrastructureError as error:  # the machine was too busy to begin within the second
            return "" if outcome == "timeout" and "out of time" in str(error) else repr(error)
        right = made.outcome == outcome and (body != "return a0" or made.values == (number,))
        return "" if right else f"{body!r}: {made}"

    old, tempfile.tempdir = tempfile.tempdir, str(tmp_path)
    try:
        gym.isolation_layers()
        before = psutil.Process().num_fds()
        with ThreadPoolExecutor(4) as pool:
            assert [found for found in pool.map(run, range(200)) if found] == []
    finally:
        tempfile.tempdir = old
    assert psutil.Process().num_fds() == before
    assert list(tmp_path.iterdir()) == []
    assert wait_until(lambda: not marked(mark))


LEAVES_A_CHILD = "import os, time\nif os.fork() == 0:\n    time.sleep(60)\nreturn 7"


def test_what_a_child_writes_before_its_end_is_read_however_the_two_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = gym._drain

    def drain(selector: Any, texts: dict[int, bytearray]) -> bool:
        news = slow(selector, texts)
        time.sleep(0 if news else 0.3)  # long enough for the child to write and to end after nothing was there
        return news

    monkeypatch.setattr(gym, "_drain", drain)
    assert call("import time\ntime.sleep(0.1)\nreturn 7").values == (7,)


def test_a_grandchild_that_holds_the_pipes_does_not_hold_us_up_and_is_killed(mark: str) -> None:
    for layers in ((), ("bubblewrap",)):
        start = time.monotonic()
        run = call(LEAVES_A_CHILD, limits=gym.Limits(wall_seconds=50.0), unsafe=True, layers=layers)
        assert (run.outcome, run.values) == ("finished", (7,))
        assert time.monotonic() - start < 40  # it did not wait for the grandchild
        assert wait_until(lambda: not marked(mark))


def test_an_interrupted_run_leaves_no_process(mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(gym, "_drain", interrupt)
    with pytest.raises(KeyboardInterrupt):
        call("import time\ntime.sleep(60)")
    assert wait_until(lambda: not marked(mark))


ORPHANS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from agentrl import bugfix_gym as gym
program = gym._child_program() + f"\\n# {sys.argv[1]}\\n"
gym._child_program = lambda: program
def run(view):
    layers = ("rlimits", "seccomp", view)
    gym.run_isolated("import time\\ntime.sleep(60)", "f", [()], gym.Limits(wall_seconds=60.0), layers=layers)
with ThreadPoolExecutor(2) as pool:
    list(pool.map(run, ("bubblewrap", "landlock")))
"""


def test_a_child_does_not_outlive_a_parent_that_is_killed() -> None:
    text = f"orphan of {os.getpid()} at {time.monotonic_ns()}"
    root = Path(gym.__file__).parents[1]
    parent = subprocess.Popen([sys.executable, "-c", ORPHANS, text], cwd=root, stderr=subprocess.PIPE)

    def ours() -> list[psutil.Process]:
        return [process for process in marked(text) if process.pid != parent.pid]

    try:
        assert wait_until(lambda: len(ours()) > 2, 60)  # bubblewrap is two processes more
        time.sleep(0.3)  # past the moment at which the children ask for this
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.communicate()
    assert wait_until(lambda: not ours())


def test_runs_in_threads_do_not_mix() -> None:
    answer: Callable[[int], tuple[Any, ...]] = lambda n: call("return a0, [a0] * 3", n).values  # noqa: E731
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(answer, range(12))) == [((n, [n] * 3),) for n in range(12)]
