"""IPython's shell without a kernel, as the checker's worker uses it: nothing is shown, everything is recorded."""

from __future__ import annotations

import codecs
import json
import os
import subprocess
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, TextIO, TypeVar

from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.syspathcontext import prepended_to_syspath
from traitlets import Type
from traitlets.config import Config

from .libguard import LIBRARY

SHOWN_LIMIT = 200
Module = TypeVar("Module")


def own(module: Module) -> Module:
    """Return a copy of a module's names: a cell may replace them in the module, and the checker goes on with these."""
    names: Any = SimpleNamespace(**vars(module))
    return names


json, os, subprocess, traceback = own(json), own(os), own(subprocess), own(traceback)


@dataclass
class Shown:
    """What a cell put on display besides its output: echoed values, display() calls, an exception."""

    echoes: list[str] = field(default_factory=list)
    displays: list[str] = field(default_factory=list)
    error: BaseException | None = None
    exits: bool = False


class Compiler(CachingCompiler):
    """Names code after its notebook and cell, so that tracebacks say where it stands."""

    place = "cell"

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        """Return the place of the cell that is running."""
        return Compiler.place


class EchoHook(DisplayHook):
    """Records the value of a cell's last expression instead of printing it."""

    def write_output_prompt(self) -> None:
        """Print no prompt."""

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        """Record the value's text."""
        shell: Any = self.shell
        shell.shown.echoes.append(str(format_dict.get("text/plain", ""))[:SHOWN_LIMIT])

    def finish_displayhook(self) -> None:
        """Print nothing after it."""
        self._is_active = False


class Publisher(DisplayPublisher):
    """Records what display() is given instead of printing it."""

    def publish(self, data: dict[str, Any], metadata: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Record the text of a display."""
        shell: Any = self.shell
        shell.shown.displays.append(str(data.get("text/plain", ", ".join(data)))[:SHOWN_LIMIT])


class ZMQInteractiveShell(InteractiveShell):
    """InteractiveShell that records exceptions and displays, and whose shell lines write to the cell's stdout.

    It bears the name of a kernel's shell: by that name libraries know that they are in Jupyter, and print accordingly.
    """

    displayhook_class = Type(EchoHook)
    display_pub_class = Type(Publisher)
    compiler_class = Type(Compiler)

    def __init__(self, **kwargs: Any) -> None:
        self.shown = Shown()
        self.own_stdout = sys.stdout
        super().__init__(**kwargs)

    def showtraceback(self, exc_tuple: Any = None, *args: Any, **kwargs: Any) -> None:
        """Record the exception; the report shows it."""
        self.shown.error = exc_tuple[1] if exc_tuple else sys.exc_info()[1]

    def showsyntaxerror(self, filename: str | None = None, running_compiled_code: bool = False) -> None:
        """Record the exception; the report shows it."""
        self.shown.error = sys.exc_info()[1]

    def showindentationerror(self) -> None:
        """Record the exception; the report shows it."""
        self.shown.error = sys.exc_info()[1]

    def _format_exception_for_storage(self, exception: BaseException, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return what IPython's history keeps; formatting it in colour would cost more than many a cell."""
        return {"ename": type(exception).__name__, "evalue": str(exception), "traceback": []}

    def enable_gui(self, gui: str | None = None) -> None:
        """Do nothing: `%matplotlib inline` asks for the event loop of no window."""

    def ask_exit(self) -> None:
        """Record that exit() or quit() was called: in Jupyter it ends the kernel."""
        self.shown.exits = True

    def system(self, cmd: str) -> None:
        """Run `!cmd`, its output (as in Jupyter, its stderr too) to stdout, or to what a cell has put in its place."""
        command = ["sh", "-c", self.var_expand(cmd, depth=1)]
        caught = sys.stdout is not self.own_stdout
        sys.stdout.flush()
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if caught else 1, stderr=subprocess.STDOUT
        ) as process:
            try:
                if process.stdout is not None:
                    _copy_text(process.stdout.fileno(), sys.stdout)
                process.wait()
            except BaseException:
                process.kill()
                raise
        self.user_ns["_exit_code"] = process.returncode

    def safe_execfile_ipy(self, fname: Any, shell_futures: bool = False, raise_exceptions: bool = False) -> None:
        """Run a notebook's code cells here, each named after its place; the first exception is raised."""
        path = Path(fname).expanduser().resolve()
        outer = Compiler.place
        try:
            with prepended_to_syspath(str(path.parent)):
                for place, source in _cells_of(path):
                    Compiler.place = place
                    self.run_cell(source, silent=True, shell_futures=shell_futures).raise_error()
        finally:
            Compiler.place = outer


def _copy_text(source: int, target: TextIO) -> None:
    """Write what arrives on a descriptor to a text stream, as it comes, until the other side has closed."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while True:
        data = os.read(source, 65536)
        if text := decoder.decode(data, final=not data):
            target.write(text)
        if not data:
            return


def _cells_of(path: Path) -> list[tuple[str, str]]:
    text = path.read_text(encoding="utf-8")
    name = "/".join(path.parts[-2:])
    if path.suffix != ".ipynb":
        return [(name, text)]
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return [(f"{name}:{cell.get('id', '?')}", "".join(cell["source"])) for cell in cells]


def make_shell() -> ZMQInteractiveShell:
    """Return the process's one shell: no history file, no colours, no user configuration."""
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.enable_tip = False
    config.IPKernelApp = Config()  # other libraries look for this section
    return ZMQInteractiveShell.instance(config=config)


def describe(error: BaseException, place: str, scratch: str) -> dict[str, Any]:
    """Return an exception as plain data: name, message, the frames in notebooks and library, line within the cell."""
    frames = _frames(error, error.__traceback__)
    line = next((number for where, number, _, _ in reversed(frames) if where == place), None)
    if isinstance(error, SyntaxError) and error.lineno is not None:
        frames.append((_short(str(error.filename)), error.lineno, "", (error.text or "").strip()))
        line = error.lineno if error.filename == place else line
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return {
        "ename": _printable(type(error).__name__),
        "evalue": _message(error).replace(f"{scratch}/lib/", "").replace(f"{scratch}/book/", ""),
        "frames": frames,
        "line": line,
        "cause": f"{type(cause).__name__}: {_message(cause)}" if cause is not None else "",
    }


def _message(error: BaseException) -> str:
    try:
        return _printable(str(error.msg if isinstance(error, SyntaxError) else error))
    except Exception as broken:
        return f"(its message cannot be shown: {type(broken).__name__})"


def _printable(text: str) -> str:
    """Return text with lone surrogates as escapes: no file in UTF-8 can hold them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _frames(error: BaseException, trace: TracebackType | None) -> list[tuple[str, int, str, str]]:
    """Return (place, line, function, source) of the frames that readers know, and always of the last one."""
    try:
        every = traceback.extract_tb(trace)
    except Exception:
        return []
    own = [f for f in every if _known(f.filename)]
    if every and (not own or own[-1] is not every[-1]):
        own.append(every[-1])
    kept = own if len(own) <= 12 else own[:6] + own[-6:]
    return [(_short(f.filename), f.lineno or 0, f.name, (f.line or "").strip()) for f in kept]


def _known(filename: str) -> bool:
    return ".ipynb:" in filename or f"{os.sep}lib{os.sep}{LIBRARY}{os.sep}" in filename


def _short(filename: str) -> str:
    """Return a path without the folders a reader cannot open: the staged library's, the environment's."""
    for mark in (f"{os.sep}lib{os.sep}{LIBRARY}{os.sep}", f"{os.sep}site-packages{os.sep}"):
        if mark in filename:
            head = f"{LIBRARY}/" if LIBRARY in mark else ""
            return head + filename.rsplit(mark, 1)[1]
    return filename
