"""The names of spans, attributes and metrics: OpenTelemetry's semantic conventions for messaging, and our own.

Those for messaging are still in development there, so that they may change: they stand here and nowhere else.
https://opentelemetry.io/docs/specs/semconv/messaging/ (1.44.0)
"""

from __future__ import annotations

SCOPE = "fastjobs"
"""The instrumentation scope of all that fastjobs makes."""

SYSTEM = "messaging.system"
FASTJOBS = "fastjobs"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
SEND = "send"
PROCESS = "process"
ON_FAIL = "on_fail"
DESTINATION = "messaging.destination.name"
"""The kind's name."""
MESSAGE_ID = "messaging.message.id"
"""The job's id."""
CONVERSATION_ID = "messaging.message.conversation_id"
"""The request's ID."""
BATCH_COUNT = "messaging.batch.message_count"
ERROR_TYPE = "error.type"

EXCEPTION = "exception"
EXCEPTION_TYPE = "exception.type"
EXCEPTION_MESSAGE = "exception.message"
EXCEPTION_STACKTRACE = "exception.stacktrace"

ATTEMPT = "fastjobs.attempt"
"""1 for the first."""
OUTCOME = "fastjobs.outcome"
"""An Outcome's word."""
WAITED = "fastjobs.waited"
"""Seconds past its time before the job was claimed."""
PUSHED = "fastjobs.pushed"
"""How many jobs a push has pushed, where that's fewer than it was given: the others were there already."""

# Metrics.

PROCESS_DURATION = "messaging.process.duration"
SENT_MESSAGES = "messaging.client.sent.messages"
CONSUMED_MESSAGES = "messaging.client.consumed.messages"
OTHER_ERROR = "_OTHER"
"""What `error.type` is where its values would be too many."""

RUNS = "fastjobs.runs"
WAITED_TIME = "fastjobs.waited"
"""The histogram: of what the span attribute says of one run."""
WAITING_JOBS = "fastjobs.jobs.waiting"
DUE_JOBS = "fastjobs.jobs.due"
HELD_JOBS = "fastjobs.jobs.held"
PARKED_JOBS = "fastjobs.jobs.parked"
FAILED_JOBS = "fastjobs.jobs.failed"
OLDEST_AGE = "fastjobs.oldest.age"
PAUSED = "fastjobs.paused"
