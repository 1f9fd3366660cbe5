"""What a process for CPU work does: one job after another, as it's asked, until it's told to end or is alone."""

from __future__ import annotations

import functools
import json
import os
import signal
import threading
from contextvars import Context
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

from fastjobs.core.carrier import Carrier
from fastjobs.core.errors import StoreError
from fastjobs.core.payload import Codec
from fastjobs.runtime.carrying import restore
from fastjobs.runtime.crossing import Reference, found, made, told
from fastjobs.runtime.current import CurrentJob, running_job
from fastjobs.runtime.handlers import signature
from fastjobs.runtime.lines import say_error
from fastjobs.runtime.threads import outcome

STARTED = b"started"
REPORT = b"progress:"


class _Reports:
    """Tells the app of the handler's progress for as long as that runs; what comes later is of no job."""

    def __init__(self, asked: Connection, refuses: str | None) -> None:
        self._asked = asked
        self._refuses = refuses
        self._guard = threading.Lock()
        self._over = False

    def report(self, text: str) -> None:
        """From any thread of the handler's."""
        if self._refuses is not None:
            raise StoreError(self._refuses)
        with self._guard:
            if not self._over:
                self._asked.send_bytes(REPORT + text.encode())

    def end(self) -> None:
        """The handler has ended."""
        with self._guard:
            self._over = True


_made = functools.cache(made)


class _Job:
    def __init__(self, job: CurrentJob) -> None:
        self._job = job

    def current(self) -> CurrentJob:
        return self._job


class _Handler:
    def __init__(self, kind: str, at: Reference) -> None:
        self.fn = found(at)
        takes = signature(f"kind {kind!r}", self.fn)
        self.takes_value = takes.takes_value
        self.codec: Codec[Any] = Codec(kind, takes.annotation)


def serve(asked: Connection) -> None:
    """Runs what it's asked to. In a process of its own."""
    # What stops the app is the app's to answer: it gives its jobs their grace, and kills this process in the end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_app, daemon=True).start()
    handlers: dict[Reference, _Handler] = {}
    while True:
        try:
            request = json.loads(asked.recv_bytes())
        except (EOFError, OSError):
            return
        error = _one(asked, handlers, request)
        asked.send_bytes(json.dumps({"error": None if error is None else told(error)}).encode())


def _one(
    asked: Connection, handlers: dict[Reference, _Handler], request: dict[str, Any]
) -> BaseException | None:
    at: Reference = (request["module"], request["name"])
    try:
        if at not in handlers:
            handlers[at] = _Handler(request["job"]["kind"], at)
        handler = handlers[at]
        values = [handler.codec.load(request["payload"])] if handler.takes_value else []
    except BaseException as error:  # the app's modules may raise anything as they're imported
        return error
    context = Context()
    reports = _Reports(asked, request["keeps_no_progress"])
    context.run(running_job.set, _Job(CurrentJob(**request["job"], _report=reports.report)))
    context.run(restore, _carriers(request["carriers"]), request["restored"])
    asked.send_bytes(STARTED)
    try:
        return outcome(context, handler.fn, *values)
    finally:
        reports.end()


def _carriers(named: list[list[str]]) -> list[Carrier]:
    """Those that can be made here. One that can't loses its own part alone."""
    found: list[Carrier] = []
    for module, name in named:
        try:
            found.append(_made((module, name)))
        except BaseException as error:  # the app's modules may raise anything as they're imported
            say_error("a carrier failed, and its part is not restored", error, carrier=name)
    return found


def _end_with_the_app() -> None:
    """An app that was killed has lost its jobs' holds: they run again, and not beside their last run."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
