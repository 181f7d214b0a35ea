"""Mutations in which cells do something new: print what nobody can repeat, end the process, leave things behind.

Where a thing is allowed, the kind holds it twice: recorded as it is, which has to pass, and recorded otherwise.
"""

from __future__ import annotations

import copy
from typing import Any

from mutantbook import SOLUTIONS
from mutation import DIFFERS, Kind, Mutation, Sheet, one, pair, sheet
from synthetic import CellDict

SLEEP = "86399.7"  # seconds that leftover processes sleep
WORDS = ["read", "edit", "test", "submit", "reward", "policy", "mask", "state", "action", "return"]
SET = f"for word in {{*{WORDS}}}:\n    print(word)"
SHUFFLED = "\n".join(WORDS) + "\n"
VOLATILE = ("two runs print different text",)
ENDED = "the process ended inside this cell"
STILL_THERE = ("still running", f"sleep {SLEEP}")
CAME_BACK = "a forked process came back from the cell"
BIG = "50,000,001 bytes of output; the limit is"
LATE = """import threading, time
def late():
    time.sleep(0.3)
    print('late')
threading.Thread(target=late).start()"""
HELD_BACK = """import threading
go = threading.Event()
late = threading.Thread(target=lambda: (go.wait(), print('late')))
late.start()"""
DAEMON = f"""import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "{SLEEP}"])
    os._exit(0)
os.wait();"""
FORK = "import os\nif os.fork() == 0:\n    {child}\nended = os.wait()"
BAR = "for n in range(0, 101, 25):\n    print(f'\\r{n:3d} %', end='')\nprint()"
WARN = """import warnings
warnings.showwarning = lambda message, *place: print("warning:", message)
warnings.warn("the step is large")"""
REDIRECTED = """import os
kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
n = os.dup2(nowhere, 1)
print("nowhere")"""
DEAF = """import time
while True:
    try:
        time.sleep(9)
    except BaseException:
        pass"""
CHILDREN = f"import subprocess\nbomb = [subprocess.Popen(['sleep', '{SLEEP}']) for n in range(30)]"
LONG_LINE = "x" * 4095 + "\n"
AWAIT = "import asyncio\nawait asyncio.sleep(0)\nprint('awaited')"


def kind(name: str, weakness: str, *mutations: Mutation) -> Kind:
    """Return a kind that the checker judges."""
    return Kind(name, "checker", weakness, list(mutations))


# What cannot be the same twice

PRINTED = [
    kind(
        "time printed",
        "numbers-masked",
        one("seconds since 1970", "import time\nprint(time.time())", "1700000000.123456\n", DIFFERS),
        one("seconds it took", "import time\nprint(time.perf_counter())", "1.000000123\n", DIFFERS),
        one("date and hour", "import datetime\nprint(datetime.datetime.now())", "2020-01-01 10:00:00\n", DIFFERS),
    ),
    kind(
        "randomness without seed",
        "numbers-masked",
        one("random.random", "import random\nprint(random.random())", "0.5714025946899135\n", DIFFERS),
        one("random.sample", "import random\nprint(random.sample(range(1000), 4))", "[1, 2, 3, 4]\n", DIFFERS),
        one("os.urandom", "import os\nprint(os.urandom(8).hex())", "00ff00ff00ff00ff\n", DIFFERS),
        one("uuid4", "import uuid\nprint(uuid.uuid4())", "9c5b94b1-35ad-49bb-b118-8e8fc24abf80\n", DIFFERS),
    ),
    kind(
        "set and hash order",
        "lines-in-any-order",
        one("the order of a set", SET, SHUFFLED, DIFFERS),
        one("the hash of a text", "print(hash('reward') % 1000)", "1000\n", DIFFERS),
    ),
    kind(
        "an address in a repr",
        "addresses-masked",
        one("an object", "print(object())", "<object object at 0x7f0000000000>\n", DIFFERS),
        one("a function", "def f(): ...\nprint(f)", "<function f at 0x7f0000000000>\n", DIFFERS),
        one("a list of it", "print([lambda: 1])", "[<function <lambda> at 0x7f0000000000>]\n", DIFFERS),
    ),
    Kind(
        "time and chance at an update",
        "update",
        "recorded-at-first-run",
        [
            one("time", "import time\nprint(time.time_ns())", fails=VOLATILE),
            one("chance", "import random\nprint(random.random())", fails=VOLATILE),
            one("process number", "import os\nprint(os.getpid())", fails=VOLATILE),
            one("scratch folder", "import tempfile\nprint(tempfile.mkdtemp())", fails=VOLATILE),
        ],
    ),
    Kind(
        "set and hash order at an update",
        "update",
        "one-hash-seed",
        [
            one("the order of a set", SET, fails=VOLATILE),
            one("the hash of a text", "print(hash('reward'))", fails=VOLATILE),
        ],
    ),
]

# Ways to print

BYTES = "import os\nn = os.write(1, {data})"
STREAMS = [
    kind("print(end='')", "blanks-ignored", *pair("no newline", "print('reward', end='')", "reward", "reward\n")),
    kind(
        "a progress bar",
        "raw-carriage-returns",
        *pair("a bar", BAR, "100 %\n", " 75 %\n"),
        *pair("steps back", "print('99 \\b\\b\\b100')", "100\n", "99\n"),
    ),
    kind(
        "colour codes printed",
        "colours-stripped",
        *pair("bold", "print('\\x1b[1mbest\\x1b[0m 3')", "\x1b[1mbest\x1b[0m 3\n", "best 3\n"),
    ),
    kind(
        "bytes that are not UTF-8",
        "bad-bytes-dropped",
        *pair("one byte", BYTES.format(data="b'a\\xffb\\n'"), "a\ufffdb\n", "ab\n"),
        *pair("half a character", BYTES.format(data="b'\\xc3 ok\\n'"), "\ufffd ok\n", " ok\n"),
    ),
    kind(
        "a warning on stdout",
        "recorded-only",
        one("not recorded", WARN, "", DIFFERS),
        one("recorded", WARN, "warning: the step is large\n"),
    ),
    kind(
        "a child process printing",
        "plain-exec",
        *pair("subprocess", "import subprocess\nr = subprocess.run(['echo', 'child'])", "child\n"),
        *pair("os.system", "import os\nn = os.system('echo system')", "system\n"),
        *pair("a fork", FORK.format(child="print('fork', flush=True); os._exit(0)"), "fork\n"),
    ),
    kind("%magic", "plain-exec", *pair("%%capture", "%%capture seen\nprint('hidden')", "", "hidden\n")),
    kind(
        "!shell",
        "plain-exec",
        *pair("echo", "!echo shell", "shell\n"),
        *pair("into a variable", "lines = !echo shell\nprint(lines[0])", "shell\n"),
    ),
    kind("top-level await", "plain-exec", *pair("await", AWAIT, "awaited\n")),
    kind(
        "50 MB of output",
        "output-cut-silently",
        one("nothing recorded", "print('x' * 50_000_000)", "", BIG),
        one("the beginning recorded", "print('x' * 50_000_000)", "x" * 1024 * 1024, BIG),
    ),
    kind(
        "endless output",
        "stopped-is-ended",
        one("nothing recorded", "while True:\n    print('x' * 4095)", "", "endless output"),
        one("the beginning recorded", "while True:\n    print('x' * 4095)", LONG_LINE * 256, "endless output"),
    ),
    kind(
        "a value displayed",
        "echo-ignored",
        one("the last expression", "x = 3\nx", "", "displays a value"),
        one("display()", "display('x')", "", "calls display()"),
        one("a semicolon", "x = 3\nx;"),
        one("None", "None"),
    ),
    kind(
        "stdout redirected or closed",
        "outputs-uncompared",
        Mutation(
            "descriptor 1 redirected",
            [sheet(("cell", REDIRECTED, "nowhere\n"), ("next", "print(1)", "1\n"), cell=DIFFERS, next=DIFFERS)],
        ),
        Mutation(
            "and put back",
            [sheet(("cell", REDIRECTED + "\nn = os.dup2(kept, 1)"), ("next", "print(1)", "1\n"))],
        ),
        Mutation(
            "sys.stdout closed",
            [sheet(("cell", "import sys\nsys.stdout.close()"), ("next", "print(1)", "1\n"), next="closed file")],
        ),
        Mutation(
            "descriptor 1 closed",
            [sheet(("cell", "import os\nos.close(1)"), ("next", "print(1)", "1\n"), next="Bad file descriptor")],
        ),
        Mutation(
            "sys.stdout replaced",
            [sheet(("cell", "import io, sys\nsys.stdout = io.StringIO()"), ("next", "print(1)", "1\n"), next=DIFFERS)],
        ),
        one("output cut back", "import os\nprint('reward')\nos.ftruncate(1, 0)", "reward\n", DIFFERS),
    ),
]

# Ways to end

ENDINGS = [
    kind(
        "an exception",
        "errors-are-output",
        one("in a function", "def f(x):\n    return 1 / x\nf(0)", "", "ZeroDivisionError"),
        one("an unknown name", "print(nobody)", "", "NameError"),
        one("a syntax error", "x = = 2", "", "SyntaxError"),
        one("a failed assertion", "assert x == 2, x", "", "AssertionError: 1"),
    ),
    kind(
        "sys.exit",
        "exit-is-success",
        one("sys.exit(0)", "import sys\nsys.exit(0)", "", "the cell calls exit"),
        one("sys.exit(3)", "import sys\nsys.exit(3)", "", ("the cell calls exit", "3")),
        one("raise SystemExit", "raise SystemExit", "", "the cell calls exit"),
        one("exit()", "exit()", "", "the cell calls exit"),
    ),
    kind(
        "os._exit",
        "stopped-is-ended",
        one("os._exit(0)", "import os\nos._exit(0)", "", f"{ENDED}: exit status 0"),
        one("os._exit(3)", "import os\nos._exit(3)", "", f"{ENDED}: exit status 3"),
    ),
    kind(
        "killed by a signal",
        "stopped-is-ended",
        one("SIGKILL", "import os\nos.kill(os.getpid(), 9)", "", f"{ENDED}: killed by SIGKILL"),
        one("SIGKILL to its group", "import os\nos.killpg(0, 9)", "", f"{ENDED}: killed by SIGKILL"),
        one("SIGSEGV", "import ctypes\nctypes.string_at(0)", "", "killed by SIGSEGV"),
        one("SIGABRT", "import os\nos.abort()", "", "killed by SIGABRT"),
    ),
    kind(
        "an endless loop",
        "stopped-is-ended",
        one("a loop", "while True:\n    pass", "", "timeout"),
        one("one that catches all", DEAF, "", "timeout"),
        one("stopped by itself", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", "", "timeout"),
        one(
            "a lock taken twice", "import threading\nlock = threading.Lock()\nwhile lock.acquire(): ...", "", "timeout"
        ),
    ),
    kind(
        "out of memory",
        "stopped-is-ended",
        one("a hundred times 40 MB", "hog = [bytearray(40_000_000) for n in range(100)]", "", "out of memory"),
    ),
    kind("input()", "plain-exec", one("asked", "name = input('who? ')", "", "nobody to answer input()")),
]

# What is left behind

AFTERMATH = [
    kind(
        "a thread printing later",
        "nothing-after-the-cell",
        one("after the last cell", LATE, "", "output after the cell had ended"),
        Mutation(
            "into the next cell",
            [
                sheet(
                    ("cell", HELD_BACK),
                    ("next", "go.set()\nlate.join()", "late\n"),
                    cell="output after the cell had ended",
                )
            ],
        ),
        one(
            "a thread that goes on",
            "import threading\nthreading.Thread(target=threading.Event().wait).start()",
            "",
            "is still running after the last cell",
        ),
    ),
    kind(
        "a child process left",
        "nothing-after-the-cell",
        one("a child", f"import subprocess\nchild = subprocess.Popen(['sleep', '{SLEEP}'])", "", STILL_THERE),
        one("a daemon", DAEMON, "", STILL_THERE),
        one("thirty children", CHILDREN, "", STILL_THERE),
    ),
    kind(
        "a fork that comes back",
        "nothing-after-the-cell",
        one("not waited for", "import os\npid = os.fork()", "", CAME_BACK),
        one("a child that exits", FORK.format(child="raise SystemExit"), "", CAME_BACK),
        one("a child that raises", FORK.format(child="1 / 0"), "", CAME_BACK),
        one("a family", "import os\nfor n in range(3):\n    pid = os.fork()", "", CAME_BACK),
        one("a child that ends itself", FORK.format(child="os._exit(0)")),
    ),
]

# What one chapter does and the next must not see


def leak(name: str, change: str, look: str, recorded: str, told: str = "") -> Kind:
    """Return the kind in which one chapter changes the world and the next, looking, must find it as ever."""
    mutation = Mutation("seen by the next chapter", [sheet(("change", change, told)), sheet(("look", look, recorded))])
    return kind(name, "plain-exec", mutation)


def depends(title: str, make: str, use: str, recorded: str, words: str) -> Mutation:
    """Return the mutation in which a chapter uses what another left in its process."""
    return Mutation(title, [sheet(("make", make)), sheet(("use", use, recorded), use=words)])


BETWEEN = [
    leak(
        "a changed working directory",
        "import os\nos.chdir('/')",
        "import os\nprint(os.path.basename(os.getcwd()))",
        "chapters\n",
    ),
    leak(
        "a changed environment variable",
        "import os\nos.environ['REWARD'] = '1'",
        "import os\nprint(os.environ.get('REWARD'))",
        "None\n",
    ),
    leak(
        "a monkeypatched builtin",
        "import builtins\nbuiltins.sum = lambda values: 0",
        "print(sum([1, 2]))",
        "3\n",
    ),
    leak(
        "a changed file of the book",
        "with open('data/rewards.txt', 'w') as file:\n    n = file.write('9')",
        "print(open('data/rewards.txt').read(), end='')",
        "0.5\n0.0\n1.0\n",
    ),
    leak(
        "a deleted working directory",
        "import os, shutil\nshutil.rmtree(os.getcwd())\nprint(os.path.exists('data'))",
        "import os\nprint(sorted(os.listdir('data')))",
        "['rewards.txt']\n",
        told="False\n",
    ),
    kind(
        "state of another chapter",
        "plain-exec",
        depends("a variable", "leftover = 3", "print(leftover)", "3\n", "NameError: name 'leftover' is not defined"),
        depends("an import", "import json as notes", "print(notes.dumps([1]))", "[1]\n", "NameError: name 'notes'"),
        depends(
            "an attribute of a module",
            "import string\nstring.seen = 7",
            "import string\nprint(string.seen)",
            "7\n",
            "AttributeError",
        ),
    ),
]

# Exceptions that are announced, and exercises

RAISES: dict[str, Any] = {
    "tags": ["raises-exception"],
    "outputs": [{"output_type": "error", "ename": "KeyError", "evalue": "'x'", "traceback": ["KeyError: 'x'"]}],
}


def solutions(title: str, changed: str, source: str, fails: str, words: str) -> Mutation:
    """Return the mutation that gives one cell of the solutions another source."""
    cells: list[CellDict] = copy.deepcopy(SOLUTIONS)
    for cell in cells:
        if cell["id"] == changed:
            cell["source"] = source
    return Mutation(title, [Sheet(cells, {fails: (words,)}, solutions=True)])


ANNOUNCED = [
    kind(
        "raises-exception",
        "any-exception",
        one("raises what is recorded", "raise KeyError('x')", **RAISES),
        one("raises something else", "1 / 0", "", ("KeyError is recorded", "ZeroDivisionError"), **RAISES),
        one("raises nothing", "x = 2", "", "raised nothing", **RAISES),
        one("raises nothing, none recorded", "x = 2", "", "raised nothing", tags=["raises-exception"]),
    ),
    kind(
        "a stub that passes",
        "stubs-untested",
        solutions(
            "already solved", "stub", "def last(values):\n    return values[-1]", "stub", "the stub passes its test"
        ),
        solutions("in one line", "stub", "last = lambda values: 3", "stub", "the stub passes its test"),
        solutions(
            "ends the test well",
            "stub",
            "import os\nlast = lambda values: os._exit(0)",
            "stub",
            "the stub passes its test",
        ),
    ),
    kind(
        "a solution that fails",
        "errors-are-output",
        solutions("the wrong end", "solution", "def last(values):\n    return values[0]", "test", "AssertionError"),
        solutions("nothing", "solution", "pass", "test", "NotImplementedError"),
    ),
]
KINDS = [*PRINTED, *STREAMS, *ENDINGS, *AFTERMATH, *BETWEEN, *ANNOUNCED]
