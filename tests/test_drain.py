"""A kernel's cell ends after what child processes wrote has arrived."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from checking import check
from synthetic import code, write_book

from bookkit.drain import MARK, Drain

# The kernel's reading thread gets slow, as on a machine that is busy with other things.
SLOW = """import os, threading, time
read = os.read
def slow(fd, size):
    data = read(fd, size)
    if threading.current_thread() is not threading.main_thread():
        time.sleep(0.5)
    return data
os.read = slow"""
CHILD = "import subprocess\nr = subprocess.run(['echo', 'child'])"


class Stream:
    """What `Drain` needs of ipykernel's stream: a pipe, a thread that reads it in pieces, slowly, `write`, `flush`."""

    def __init__(self, size: int) -> None:
        self.out, self.fd = os.pipe()
        self.size, self.text, self.flushes = size, "", 0
        self.watch_fd_thread = threading.Thread(target=self.watch, daemon=True)

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        self.flushes += 1

    def watch(self) -> None:
        while data := os.read(self.out, self.size):
            time.sleep(0.002)
            self.write(data.decode())


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("text", ["", "one\n", "no line end", f"a piece of the mark: {MARK[:4]}"])
def test_all_that_was_written_has_arrived_and_no_mark(size: int, text: str) -> None:
    stream = Stream(size)
    drain = Drain(stream, stream.fd)
    stream.watch_fd_thread.start()
    for number in (1, 2):
        os.write(stream.fd, text.encode())
        drain.wait()
        assert stream.text == text * number
    stream.write("from the main thread")
    assert stream.text == text * 2 + "from the main thread"
    os.close(stream.fd)
    stream.watch_fd_thread.join(5)
    os.close(stream.out)


def test_flushes_within_a_cell_wait_for_its_end() -> None:
    stream = Stream(100)
    drain = Drain(stream, stream.fd)
    stream.flush()
    assert stream.flushes == 1
    drain.begin()
    stream.flush()
    assert stream.flushes == 1
    drain.wait()
    stream.flush()
    assert stream.flushes == 3
    os.close(stream.fd)
    os.close(stream.out)


def test_a_kernel_loses_none_of_many_flushed_lines(tmp_path: Path) -> None:
    source = "for n in range(20_000):\n    print(n, flush=True)"
    write_book(tmp_path, {"01-one": [code("flushes", source, "".join(f"{n}\n" for n in range(20_000)))]})
    checked = check(tmp_path, "--kernel")
    assert checked.code == 0, checked.out


def test_a_kernel_whose_reader_is_slow_loses_no_output_of_a_child(tmp_path: Path) -> None:
    cells = [code("slow", SLOW), code("child", CHILD, "child\n"), code("again", CHILD, "child\n")]
    write_book(tmp_path, {"01-one": cells})
    checked = check(tmp_path, "--kernel")
    assert checked.code == 0, checked.out
