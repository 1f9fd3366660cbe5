"""The store's threads in this process: its writer, and its reader where something is looked at."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from fastjobs.stores.sql import forks
from fastjobs.stores.sql.dialects.sqlite.gate import Gate, any_held_here
from fastjobs.stores.sql.dialects.sqlite.opened import Opened
from fastjobs.stores.sql.dialects.sqlite.writer import Writer

_inherited: list[Writer] = []
"""Writers of a parent process. Their connections are never used here, and never closed: SQLite forbids both."""


class Threads:
    """Each is begun when it's needed, and anew after its end or a fork; both end with this object."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._lock = threading.Lock()
        self._pid = 0
        self._there: dict[str, Writer] = {}
        self._at_ends: dict[str, weakref.finalize[..., Threads]] = {}
        self.gate: Gate | None = None
        """The file's, once it's known in this process."""

    @property
    def writer(self) -> Writer | None:
        """The writer, if there's one now."""
        return self._there.get("writer")

    def running(self, what: str, opening: Callable[[], Opened]) -> Writer:
        """The "writer", or the "reader", begun by `opening` where it isn't there."""
        with self._lock:
            if self._pid != forks.pid():
                _inherited.extend(self._there.values())
                self._there, self.gate, self._pid = {}, None, forks.pid()
            found = self._there.get(what)
            if found is None or found.is_stopping():
                found = self._there[what] = Writer(opening, f"fastjobs {self._prefix}{what}")
                # One for the latest alone: each would keep its thread, connection and all, as long as this.
                if what in self._at_ends:
                    self._at_ends[what].detach()
                self._at_ends[what] = weakref.finalize(self, found.stop)
            return found

    def taken(self) -> list[Writer]:
        """Those that are there, which are not given out any more; what reads comes first."""
        with self._lock:
            there = self._there if self._pid == forks.pid() else {}
            self._there = {}
        return [there[what] for what in ("reader", "writer") if what in there]

    def has_the_gate(self) -> bool:
        """Whether the running task, or the thread that waits for it, keeps the writer waiting by a transaction."""
        return any_held_here() if self.gate is None else self.gate.held_here()
