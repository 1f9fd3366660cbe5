"""Background jobs for FastAPI and Starlette, kept in the app's own database and run inside its own process.

This is the public list, with `fastjobs.testing` for tests and `fastjobs.store` for stores: what is in no `__all__` of
theirs may change in any release. What needs a package of an extra is
behind a lazy door, so that `import fastjobs` loads no SQLAlchemy, no web framework and no test library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from fastjobs.core.carrier import Carrier, Follower
from fastjobs.core.cron import Cron
from fastjobs.core.errors import (
    CarryError,
    ClaimLost,
    FastjobsError,
    LostWorker,
    NotAwaited,
    NotCommitted,
    OutOfAttempts,
    PayloadError,
    Permanent,
    PushError,
    QueueError,
    RegistrationError,
    Retry,
    ScheduleError,
    Snooze,
    StoreError,
    StoreTimeout,
)
from fastjobs.core.every import Every
from fastjobs.core.job import JobState
from fastjobs.core.outcome import Outcome, Ran
from fastjobs.core.rate import Limiter, Throttle
from fastjobs.core.request_id import CarryRequestID, request_id
from fastjobs.core.schedule import Schedule
from fastjobs.core.unique import Unique
from fastjobs.runtime.current import current_job
from fastjobs.runtime.health import Health
from fastjobs.runtime.kind import Kind
from fastjobs.runtime.kinds import Kinds
from fastjobs.runtime.looking import JobInfo, KindInfo
from fastjobs.runtime.queue import Queue
from fastjobs.store import Cancelled, Extra, Store, supports
from fastjobs.stores.memory import Memory
from fastjobs.telemetry.logs import LogFilter, add_log_fields
from fastjobs.web.middleware import RequestIDMiddleware
from fastjobs.web.serving import lifespan
from fastjobs.web.transactions import InTx, SyncInTx, jobs_in_tx

if TYPE_CHECKING:
    from fastjobs import sqlite
    from fastjobs.stores.sql.raw import raw
    from fastjobs.stores.sql.store import SQLStore
    from fastjobs.telemetry.metrics import OTelMetrics
    from fastjobs.telemetry.otel import CarryTrace
    from fastjobs.telemetry.prometheus import PrometheusMetrics

__version__ = "0.1.0"

__all__ = [
    # the queue
    "Queue", "Kind", "Kinds", "current_job", "Permanent", "Retry", "Snooze", "Outcome", "Ran", "Health",
    # its jobs, looked at and acted on
    "JobInfo", "JobState", "KindInfo", "Cancelled",
    # what runs at its times
    "Cron", "Every", "Schedule",
    # which jobs wait, and how many run
    "Unique", "Throttle", "Limiter",
    # where its jobs are kept
    "Store", "Extra", "supports", "Memory", "SQLStore", "sqlite", "raw",
    # beside a web app
    "lifespan", "jobs_in_tx", "InTx", "SyncInTx", "RequestIDMiddleware", "request_id",
    # what goes from a request to its jobs
    "CarryRequestID", "CarryTrace", "Carrier", "Follower",
    # what is told of it
    "OTelMetrics", "PrometheusMetrics", "LogFilter", "add_log_fields",
    # errors
    "FastjobsError", "RegistrationError", "ScheduleError", "StoreError", "QueueError", "PushError", "PayloadError",
    "CarryError", "NotAwaited", "NotCommitted", "ClaimLost", "StoreTimeout", "OutOfAttempts", "LostWorker",
]  # fmt: skip

# The module behind each door, what of it is meant (all of it, where nothing is said), and the extra it needs.
_DOORS = {
    "SQLStore": ("fastjobs.stores.sql.store", "SQLStore", "sqlite"),
    "raw": ("fastjobs.stores.sql.raw", "raw", "sqlite"),
    "sqlite": ("fastjobs.sqlite", "", "sqlite"),
    "CarryTrace": ("fastjobs.telemetry.otel", "CarryTrace", "otel"),
    "OTelMetrics": ("fastjobs.telemetry.metrics", "OTelMetrics", "otel"),
    "PrometheusMetrics": ("fastjobs.telemetry.prometheus", "PrometheusMetrics", "prometheus"),
}


def __getattr__(name: str) -> object:
    if name not in _DOORS:
        raise AttributeError(f"module 'fastjobs' has no attribute {name!r}")
    path, part, extra = _DOORS[name]
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] == "fastjobs":
            raise
        raise ImportError(
            f'fastjobs.{name} needs {missing.name}, which isn\'t installed: pip install "fastjobs[{extra}]"',
            name=missing.name,
        ) from missing
    found: object = getattr(module, part) if part else module
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
