"""Say in one line whether this machine has a GPU that a lab cell or a figure's recording could use.

Chapters and figures run on the CPU by design; nothing here decides where anything runs.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from types import ModuleType

TRACES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, a GPU of Windows seen from Linux
NONE = "GPU: none; CPU only"


def may_have_one() -> bool:
    """Return whether anything points to a GPU: importing torch to find none takes seconds."""
    return sys.platform == "darwin" or any(map(os.path.exists, TRACES)) or shutil.which("nvidia-smi") is not None


def describe(torch: ModuleType) -> str:
    """Return the line for what torch can use."""
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        return f"GPU: {', '.join(names)}, visible to lab cells and recordings; chapters and figures use the CPU"
    if torch.backends.mps.is_available():
        return "GPU: Apple's (mps), visible to lab cells and recordings; chapters and figures use the CPU"
    if sys.platform == "darwin":
        return NONE
    return f"GPU: one may be here, but torch {torch.__version__} in this environment cannot use it; CPU only"


def main() -> None:
    """Print the line."""
    if not may_have_one():
        print(NONE)
        return
    try:
        print(describe(importlib.import_module("torch")))
    except ImportError:
        print("GPU: unknown, this environment has no torch; CPU only")


if __name__ == "__main__":
    main()
