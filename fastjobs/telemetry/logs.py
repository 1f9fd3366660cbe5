"""What a log line says of the request, the job and the trace that it belongs to: for logging, and for structlog."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

from fastjobs.core.errors import RegistrationError
from fastjobs.core.request_id import request_id
from fastjobs.core.text import one_line
from fastjobs.runtime.current import running_job

FIELDS = ("request_id", "kind", "job", "attempt", "trace_id", "span_id")
_MOST = 128


class LogFilter(logging.Filter):
    """Gives each log record the fields `request_id`, `kind`, `job`, `attempt`, `trace_id` and `span_id`.

    `handler.addFilter(fastjobs.LogFilter())`: on a handler, so that it's for the lines of every logger, and on a
    QueueHandler where there is one, as it looks at the context that the line is logged in. They're strings, and attempt
    is a number. One that isn't so there is `empty`: a "-" by default, for formats; None suits JSON.

    - `request_id` is that of the request in a route, and in the jobs that it pushed.
    - `kind`, `job` (its id) and `attempt` are there in handlers, their threads and processes, and in on_fails.
    - `trace_id` and `span_id` are those of OpenTelemetry's current span, where the app has OpenTelemetry.

    What a record has already, by `extra=` or of another filter, stays. It passes every record, and never raises. An
    `empty` that is neither a string nor None is a RegistrationError.
    """

    def __init__(self, *, empty: str | None = "-") -> None:
        super().__init__()
        if empty is not None and not isinstance(empty, str):
            raise RegistrationError(f"LogFilter: empty is a string or None, not {empty!r}")
        self._empty = None if empty is None else _Empty(empty)

    def filter(self, record: logging.LogRecord) -> bool:
        """Sets the fields; always True."""
        has = record.__dict__
        found: dict[str, Any] | None = None
        for name in FIELDS:
            there = has.get(name)
            # What another one of these has found empty, for its own handler, is empty still.
            if there is None or isinstance(there, _Empty):
                if found is None:
                    found = log_fields()
                has[name] = found.get(name, self._empty)
        return True


class _Empty(str):
    """Stands where there is nothing to say."""

    __slots__ = ()


def add_log_fields(
    logger: object, method: str, event_dict: MutableMapping[str, Any], /
) -> MutableMapping[str, Any]:
    """The same for structlog, as a processor: `structlog.configure(processors=[fastjobs.add_log_fields, …])`.

    Sets those of LogFilter's fields that there are, and leaves what the event has by their names. It never raises.
    """
    for name, value in log_fields().items():
        event_dict.setdefault(name, value)
    return event_dict


def log_fields() -> dict[str, Any]:
    """What there is to say in the current context."""
    found: dict[str, Any] = {}
    for part in (_request, _job, _trace):
        # A log line is never the place to fail.
        with suppress(Exception):
            found |= part()
    return found


def _request() -> dict[str, str]:
    id = request_id()
    return {} if id is None else {"request_id": _plain(id)}


def _job() -> dict[str, Any]:
    holder = running_job.get(None)
    if holder is None:
        return {}
    job = holder.current()
    return {"kind": _plain(job.kind), "job": _plain(job.id), "attempt": job.attempt}


def _trace() -> dict[str, str]:
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:  # so that nobody has a span
        return {}
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def _plain(value: object) -> str:
    return one_line(str(value), _MOST)
