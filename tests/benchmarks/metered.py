"""Times a block of a contestant on a server: the wall, its own processor, the server's, and everything else's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.benchmarks.work import Timed

Found = dict[str, Any]

_TICK = os.sysconf("SC_CLK_TCK")


class Metered(Timed):
    """A Timed that looks at the server too, where it's a process of this machine, and at what else runs.

    The server's time is that of all its processes, so also of the checkpointer, of autovacuum, and of whoever else
    uses it.
    """

    def __init__(self, server: int | None) -> None:
        self._server = server

    def __enter__(self) -> Metered:
        self._server_before, self._busy_before = self._of_server(), _busy()
        super().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.server = self._of_server() - self._server_before
        self.others = max(_busy() - self._busy_before - self.cpu - self.server, 0) / self.seconds

    def found(self, count: int, **more: Any) -> Found:
        """What a row says of so many of what was timed."""
        each = {"rate": count / self.seconds, "cpu_us": self.cpu / count * 1e6, **more}
        if self._server is not None:
            each |= {"server_us": self.server / count * 1e6, "others": self.others}
        return each

    def _of_server(self) -> float:
        if self._server is None:
            return 0.0
        _, times = stat(self._server)
        total = sum(times)
        for each in Path("/proc").iterdir():
            if each.name.isdigit():
                parent, times = stat(int(each.name))
                if parent == self._server:
                    total += sum(times[:2])
        return total / _TICK


def stat(process: int) -> tuple[int, list[int]]:
    """The process's parent, and its ticks: its own, user and system, and those of its children that ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, [0, 0, 0, 0]
    return int(fields[1]), [int(each) for each in fields[11:15]]


def _busy() -> float:
    """Seconds of all processors that were not idle, since the machine started."""
    try:
        with open("/proc/stat") as file:
            ticks = [int(each) for each in file.readline().split()[1:9]]
    except OSError:
        return 0.0
    return (sum(ticks) - ticks[3] - ticks[4]) / _TICK
