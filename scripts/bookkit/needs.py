"""What cells of the classes `lab` and `sandbox` need, and whether it is here.

An exact cell needs nothing. One of another class is skipped, by name and with the reason, where what it needs is
missing. A lab cell's output is compared loosely, as the model's digits are not the same everywhere; a sandbox cell's
exactly.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

LAB, SANDBOX = "lab", "sandbox"
HOW_COMPARED = {LAB: "loosely", SANDBOX: "exactly"}
NAMESPACES = (
    "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--uid", "65534",
    "--cap-drop", "ALL", "--ro-bind", "/", "/", "--die-with-parent",
)  # fmt: skip
RESTRICTED = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
PROBE_LIMIT = 30.0
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
LANDLOCK_CREATE_RULESET, LANDLOCK_VERSION = 444, 1  # the number is the same on every processor


def in_ci() -> bool:
    """Return whether this is continuous integration, by the variable CI."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def may_be_missing(output_class: str) -> bool:
    """Return whether cells of a class may be skipped: in CI on Linux those that can be isolated there may not."""
    return output_class != SANDBOX or sys.platform != "linux" or not in_ci()


def missing(classes: Collection[str], model: str | None) -> dict[str, str]:
    """Return, for those of the classes whose cells cannot run here, why. Only what is asked for is looked for."""
    found = {}
    if LAB in classes and model is None:
        found[LAB] = "no real model here"
    if SANDBOX in classes and (why := missing_layers()):
        found[SANDBOX] = why
    return found


def model_folder(root: Path) -> str | None:
    """Return where the real model for lab cells is, or None when there is none here."""
    given = os.environ.get("AGENTRL_MODEL_DIR")
    for path in [Path(given)] if given else [root / "labs" / "model"]:
        if path.is_dir():
            return str(path.resolve())
    return None


def missing_layers() -> str:
    """Return which layer that isolates a process is missing here, "" when none is: each is tried, none assumed."""
    if sys.platform != "linux":
        return "isolation takes Linux"
    return _missing_bubblewrap() or _missing_filter() or _missing_landlock()


def bubblewrap() -> str | None:
    """Return where bubblewrap is, on PATH or beside this interpreter; None where there is none."""
    places = [os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)]
    return shutil.which("bwrap", path=os.pathsep.join(places))


def _missing_bubblewrap() -> str:
    """Return why no process can be started in namespaces of its own."""
    program = bubblewrap()
    if program is None:
        return "no bubblewrap: apt install bubblewrap"
    command = [program, *NAMESPACES, "--", sys.executable, "-I", "-S", "-c", ""]
    try:
        done = subprocess.run(command, env={}, cwd="/", capture_output=True, timeout=PROBE_LIMIT, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"bubblewrap does not run: {error}"
    return _why(done) if done.returncode else ""


def _why(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return what bubblewrap said when it could not start a process, and what is known to cause it."""
    lines = done.stderr.decode("utf-8", "replace").split("\n")
    said = next((line.strip() for line in reversed(lines) if line.strip()), f"exit status {done.returncode}")
    return f"bubblewrap isolates nothing here: {said}{_restriction()}"


def _restriction() -> str:
    """Return a hint where AppArmor keeps users without rights from making namespaces."""
    try:
        restricted = RESTRICTED.read_text(encoding="ascii").strip() == "1"
    except OSError:
        return ""
    return "; AppArmor restricts user namespaces here, README says what to do" if restricted else ""


def _missing_filter() -> str:
    """Return why a process cannot be kept from system calls; the kernel refuses this one's filter, at no address."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, None, 0, 0)
    return "" if ctypes.get_errno() == errno.EFAULT else "no seccomp filters in this kernel"


def _missing_landlock() -> str:
    """Return why a process cannot give up its access to files by Landlock, asked for its version."""
    version = ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION)
    return "" if version >= 1 else "no Landlock in this kernel, or it is not enabled"
