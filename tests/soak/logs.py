"""Reads what the queue said in the app's logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

_LINE = re.compile(r"(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) \w+ fastjobs[.\w]*: (?P<text>.*)")
_OF_OUTAGE = re.compile(r"\bpart=|\bStoreTimeout\b")


class LogLine(NamedTuple):
    """One line of a queue's."""

    process: str
    wall: float
    """Unix seconds."""
    text: str

    @property
    def is_of_outage(self) -> bool:
        """Whether it says that the store fails, or works again; others are of one job each."""
        return bool(_OF_OUTAGE.search(self.text))


def said(log: Path) -> Iterator[LogLine]:
    """The queue's lines in a process's log."""
    for line in log.read_text(errors="replace").splitlines():
        if found := _LINE.match(line):
            moment = datetime.strptime(found["at"], "%Y-%m-%d %H:%M:%S,%f").astimezone()
            yield LogLine(log.stem, moment.timestamp(), found["text"])
