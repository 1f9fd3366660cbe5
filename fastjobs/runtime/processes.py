"""Processes for CPU work: each runs one job at a time, so that its crash or its kill is that job's alone.

`concurrent.futures` has a pool too, but one process of it that dies fails the jobs of all, and none can be killed by
itself.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import signal
import threading
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

from fastjobs.core.errors import LostWorker
from fastjobs.runtime.child import REPORT, STARTED, serve
from fastjobs.runtime.crossing import untold

_SPAWN = get_context("spawn")  # a fork would copy the app's threads' locks, as they happen to be


class _Child:
    """One process."""

    def __init__(self) -> None:
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=serve, args=(theirs,), name="fastjobs process", daemon=True)
        try:
            self._process.start()
        except BaseException:
            self._pipe.close()
            raise
        finally:
            theirs.close()
        self.used = False

    def ask(
        self, request: bytes, started: Callable[[], None], reported: Callable[[str], None]
    ) -> dict[str, Any]:
        """Its answer. EOFError or OSError where it died."""
        self._pipe.send_bytes(request)
        while True:
            answer = self._pipe.recv_bytes()
            if answer == STARTED:
                started()
            elif answer.startswith(REPORT):
                reported(answer.removeprefix(REPORT).decode())
            else:
                break
        self.used = True
        found: dict[str, Any] = json.loads(answer)
        return found

    def kill(self) -> None:
        """Ends it, whatever it does. From any thread."""
        self._process.kill()

    def reap(self) -> str:
        """How it ended, once it was killed or has died."""
        self._process.kill()
        self._process.join(5)
        self._pipe.close()
        code = self._process.exitcode
        if code is None or code >= 0:
            return f"it exited with {code}"
        try:
            return f"it was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"it was killed by signal {-code}"


class Work:
    """One job for a process."""

    def __init__(
        self, request: dict[str, Any], started: Callable[[], None], reported: Callable[[str], None]
    ) -> None:
        """`started` is called in the thread that waits, as the handler begins; `reported` as it tells its progress."""
        self.request = json.dumps(request).encode()
        self.job: dict[str, Any] = request["job"]
        self.begun = False
        self.killed = False
        self.reported = reported
        self._started = started
        self._child: _Child | None = None
        self._lock = threading.Lock()

    def started(self) -> None:
        """Its handler has begun."""
        self.begun = True
        self._started()

    def at(self, child: _Child | None) -> bool:
        """It's at this process, or at none any more. False where it was killed."""
        with self._lock:
            self._child = None if self.killed else child
            return not self.killed

    def kill(self) -> None:
        """Kills the process it's at, and has it start in none. From any thread."""
        with self._lock:
            self.killed = True
            if self._child is not None:
                self._child.kill()


class Processes:
    """The processes of one running queue, made as they're needed and used again."""

    def __init__(self, most: int) -> None:
        self.slots = asyncio.Semaphore(most)
        """One for each job that may be at a process at once."""
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()
        self._lock = threading.Lock()
        self._closed = False
        # Before multiprocessing's own, which waits for what these ignore: a SIGTERM.
        atexit.register(self.close)

    def run(self, work: Work) -> None:
        """Has a process run it, and raises what it raised; LostWorker where its process died. In a thread."""
        while True:
            child = self._take()
            if not work.at(child):
                self._drop(child)
                return
            try:
                answer = child.ask(work.request, work.started, work.reported)
            except (EOFError, OSError):
                work.at(None)
                how = self._drop(child)
                if work.killed:
                    return
                if child.used and not work.begun:
                    continue  # it had died while it was idle
                raise LostWorker(
                    f"its process ended in the middle of it: {how}",
                    attempts=work.job["attempt"],
                    lost=1,
                ) from None
            if work.at(None):
                self._put_back(child)
            else:
                self._drop(child)
            if answer["error"] is not None:
                raise untold(answer["error"])
            return

    def close(self) -> None:
        """Kills them all."""
        atexit.unregister(self.close)
        with self._lock:
            self._closed = True
            left = list(self._all)
        for child in left:
            child.kill()
        for child in left:
            if child in self._idle:
                self._drop(child)  # the others are reaped by the threads that wait for them

    def _take(self) -> _Child:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        child = _Child()
        with self._lock:
            self._all.add(child)
            if self._closed:
                child.kill()
        return child

    def _put_back(self, child: _Child) -> None:
        with self._lock:
            self._idle.append(child)

    def _drop(self, child: _Child) -> str:
        with self._lock:
            self._all.discard(child)
        return child.reap()
