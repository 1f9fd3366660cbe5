"""An error as a span tells of it: its type, its text and where it was, each of a length that no handler decides."""

from __future__ import annotations

import traceback

from opentelemetry.trace import Span, StatusCode

from fastjobs.core.text import error_text, kept_text
from fastjobs.telemetry import conventions as names

_MOST_FRAMES = 50
_MOST_STACK = 16_384
_MOST_TEXT = 1024


def type_of(error: BaseException) -> str:
    """The name of its class, with the module unless it's built in: of few values, as a metric's label is."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def told(span: Span, error: BaseException) -> None:
    """The span failed with it: its status, its `error.type`, and an event with the rest.

    Not by the SDK's own `record_exception`, which calls the error's `str()`, whatever that does, and keeps all of it.
    """
    kind, text = type_of(error), kept_text(error_text(error), _MOST_TEXT)
    span.set_attribute(names.ERROR_TYPE, kind)
    span.set_status(StatusCode.ERROR, text)
    message = text.removeprefix(f"{type(error).__name__}: ")
    about = {names.EXCEPTION_TYPE: kind, names.EXCEPTION_MESSAGE: message}
    if error.__traceback__ is not None:
        frames = "".join(traceback.format_tb(error.__traceback__, -_MOST_FRAMES))
        stack = f"Traceback (most recent call last):\n{frames}{text}\n"
        about[names.EXCEPTION_STACKTRACE] = kept_text(stack, _MOST_STACK)
    span.add_event(names.EXCEPTION, about)
