"""The settings under which the book is checked again, what each changes, and what this machine has of them.

A setting is a set of environment variables laid over those the checker pins, with a folder where one is needed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

Family = Literal["nothing", "vector", "threads", "mkl", "lowest", "hash", "locale", "zone", "folder", "account"]
NUMERIC: tuple[Family, ...] = ("vector", "threads", "mkl", "lowest")
LEVELS = ("DEFAULT", "AVX2", "AVX512")
LOCALE_SOURCES = Path("/usr/share/i18n/locales")


@dataclass(frozen=True)
class Machine:
    """What decides which settings this machine has: torch's vector level, whether it has MKL, the locales.

    `buildable` are locales that are not installed but can be compiled from their sources in a moment.
    """

    capability: str
    mkl: bool
    locales: frozenset[str]
    buildable: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Setting:
    """One way to run the book: variables laid over the checker's own, and what the machine must have for it."""

    name: str
    what: str
    family: Family
    env: Mapping[str, str] = field(default_factory=dict)
    level: str | None = None
    locale: str | None = None

    @property
    def numeric(self) -> bool:
        """Whether it can change a digit: it chooses other code or another order of additions. The rest is text."""
        return self.family in NUMERIC

    @property
    def mkl(self) -> bool:
        """Whether it speaks to MKL, and means nothing without it."""
        return self.family in ("mkl", "lowest")

    def missing(self, machine: Machine) -> str | None:
        """Return why this machine cannot run the setting, or None."""
        if self.level not in (None, "DEFAULT") and machine.capability not in LEVELS[LEVELS.index(self.level) :]:
            return f"this CPU's level is {machine.capability}, not {self.level}"
        if self.mkl and not machine.mkl:
            return "this torch has no MKL"
        if self.locale and plain(self.locale) not in machine.locales | machine.buildable:
            return f"the locale {self.locale} is neither installed nor can it be compiled here"
        return None

    def effect(self, machine: Machine) -> frozenset[str]:
        """Return the cells of the arrival chapter that must print something else here; none if it is as pinned."""
        found = {"vector"} if self.level not in (None, machine.capability) else set()
        if self.mkl:
            found.add("mkl")
        if int(self.env.get("OMP_NUM_THREADS", 1)) > 1:
            found.add("threads")
        if self.family == "hash":
            found |= {"hash"} if self.env != AS_PINNED["hash"] else set()
        elif self.family in ("locale", "zone", "folder", "account"):
            found.add(self.family)
        return frozenset(found)


def _threads(count: int) -> Setting:
    what = f"{count} thread{'s' * (count > 1)} in torch's operations"
    return Setting(f"threads-{count}", what, "threads", _thread_variables(count))


def _thread_variables(count: int) -> dict[str, str]:
    # OpenBLAS would start its threads when NumPy is imported, and a process with threads must not be forked.
    # Without MKL_DYNAMIC=FALSE torch takes no more threads than there are cores, whatever it is told. Threads that
    # wait asleep change no result and leave the cores to others.
    counts = {"OMP_NUM_THREADS": str(count), "MKL_NUM_THREADS": str(count)}
    return {**counts, "MKL_DYNAMIC": "FALSE", "OMP_WAIT_POLICY": "PASSIVE"}


# What the checker pins already: a setting with these variables changes nothing.
AS_PINNED: Mapping[str, Mapping[str, str]] = {"threads": _thread_variables(1), "hash": {"PYTHONHASHSEED": "0"}}
LOWEST = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}
ACCOUNT = {"USER": "somebody", "LOGNAME": "somebody"}
SETTINGS: tuple[Setting, ...] = (
    Setting("as-checked", "what the checker pins, nothing changed", "nothing"),
    Setting(
        "aten-default", "torch without vector instructions", "vector", {"ATEN_CPU_CAPABILITY": "default"}, "DEFAULT"
    ),
    Setting("aten-avx2", "torch limited to AVX2", "vector", {"ATEN_CPU_CAPABILITY": "avx2"}, "AVX2"),
    Setting("aten-avx512", "torch with AVX-512", "vector", {"ATEN_CPU_CAPABILITY": "avx512"}, "AVX512"),
    _threads(1),
    _threads(2),
    _threads(4),
    Setting("mkl-compatible", "MKL's oldest code path", "mkl", {"MKL_CBWR": "COMPATIBLE"}),
    Setting("lowest", "torch, MKL and oneDNN all at their lowest", "lowest", LOWEST, "DEFAULT"),
    Setting("hash-0", "PYTHONHASHSEED=0", "hash", {"PYTHONHASHSEED": "0"}),
    Setting("hash-random", "a random order of sets", "hash", {"PYTHONHASHSEED": "random"}),
    Setting("locale-posix", "the POSIX locale", "locale", {"LC_ALL": "POSIX"}),
    Setting("locale-german", "a comma for a point", "locale", {"LC_ALL": "de_DE.UTF-8"}, locale="de_DE.UTF-8"),
    Setting("locale-turkish", "another upper case of i", "locale", {"LC_ALL": "tr_TR.UTF-8"}, locale="tr_TR.UTF-8"),
    # Written out, so that no time zone database is needed.
    Setting("time-zone", "45 minutes off the hour, east", "zone", {"TZ": "XYZ-05:45"}),
    Setting("folder", "another working and temporary folder, a blank and an ü in its name", "folder"),
    Setting("account", "another user name and an empty home folder", "account", ACCOUNT),
)

# Several of these at once: each of their values is run, in fewer runs. What differs is then looked for one by one.
JOINT: tuple[Setting, ...] = (
    Setting(
        "all-lowest",
        "torch, MKL, oneDNN at their lowest, 4 threads",
        "lowest",
        LOWEST | _thread_variables(4),
        "DEFAULT",
    ),
    Setting(
        "avx2-threads-2",
        "torch limited to AVX2, 2 threads",
        "vector",
        {"ATEN_CPU_CAPABILITY": "avx2"} | _thread_variables(2),
        "AVX2",
    ),
)


def choose(names: Sequence[str]) -> list[Setting]:
    """Return the settings of these names in their own order, all for none; KeyError lists those there are."""
    known = {setting.name: setting for setting in SETTINGS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise KeyError(f"no setting is called {unknown[0]!r}; there are: {', '.join(known)}")
    return [setting for setting in SETTINGS if not names or setting.name in names]


def numeric_here(settings: Sequence[Setting], machine: Machine) -> list[Setting]:
    """Return the settings that can change a digit and on this machine differ from what the checker pins."""
    return [s for s in settings if s.numeric and not s.missing(machine) and s.effect(machine)]


def fewest(settings: Sequence[Setting], machine: Machine) -> list[Setting]:
    """Return as few settings as have every value that some setting changes a digit with here, joint ones first."""
    single = numeric_here(settings, machine)
    joint = [setting for setting in JOINT if not setting.missing(machine) and setting.effect(machine)]
    had = {value for setting in joint for value in setting.env.items()}
    return joint + [setting for setting in single if not setting.env.items() <= had]


def farthest(settings: Sequence[Setting], machine: Machine) -> Setting:
    """Return the setting that on this machine changes most of what is pinned, of several the first."""
    return max(settings, key=lambda setting: len(setting.effect(machine)))


def plain(locale: str) -> str:
    """Return a locale's name as `locale -a` may or may not write it, made alike: `de_DE.UTF-8` is `de_de.utf8`."""
    return locale.strip().lower().replace("-", "")


@cache
def this_machine() -> Machine:
    """Ask torch, in a process of its own, what the CPU offers, and the system which locales it has."""
    code = "import json, torch.backends as b; print(json.dumps([b.cpu.get_cpu_capability(), b.mkl.is_available()]))"
    env = {k: v for k, v in os.environ.items() if k != "ATEN_CPU_CAPABILITY"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    capability, mkl = json.loads(done.stdout.splitlines()[-1])
    try:
        listed = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        listed = ""
    return Machine(str(capability), bool(mkl), frozenset(map(plain, listed.splitlines())), _buildable())


def _buildable() -> frozenset[str]:
    """Return the locales that this machine can compile, in UTF-8."""
    if not shutil.which("localedef") or not LOCALE_SOURCES.is_dir():
        return frozenset()
    return frozenset(f"{plain(path.name)}.utf8" for path in LOCALE_SOURCES.iterdir())


def prepare(setting: Setting, folder: Path, machine: Machine) -> tuple[dict[str, str], Path | None]:
    """Make what a setting needs in `folder`; return its variables and the folder to start in, if it is another.

    An uninstalled locale is compiled; OSError or CalledProcessError when that fails.
    """
    env = dict(setting.env)
    place = None
    if setting.family == "folder":
        place = folder / "elsewhere, für alle"
        place.mkdir()
    elif setting.family == "account":
        home = folder / "home"
        home.mkdir()
        env["HOME"] = str(home)
    elif setting.locale and plain(setting.locale) not in machine.locales:
        source, charset = setting.locale.split(".")
        command = ["localedef", "--no-archive", "-i", source, "-f", charset, str(folder / setting.locale)]
        subprocess.run(command, capture_output=True, text=True, check=True)
        env["LOCPATH"] = str(folder)
    return env, place
