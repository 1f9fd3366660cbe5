"""Writes down what a process does, a line each, so that a line that was written outlives a kill -9."""

from __future__ import annotations

import json
import time
from pathlib import Path

SUFFIX = ".jsonl"


class Recorder:
    """Appends to one process's own file.

    A line is `[moment, what, …]`, the moment in nanoseconds by the monotonic clock, which all processes of a machine
    have in common. Each line goes to the system at once: only the machine's own end can lose it.
    """

    def __init__(self, folder: Path, process: str) -> None:
        self._file = (folder / f"{process}{SUFFIX}").open("a", buffering=1, encoding="ascii")

    def write(self, what: str, *parts: object) -> None:
        """Appends a line."""
        self._file.write(json.dumps([time.monotonic_ns(), what, *parts]) + "\n")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def lines(file: Path) -> list[list[object]]:
    """What a process wrote down. A last line that was cut by its end is left out."""
    text = file.read_text(encoding="ascii")
    whole, _, _cut = text.rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]
