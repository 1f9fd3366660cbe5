"""A span's place in its trace as text, and back: the W3C's `traceparent` and `tracestate`, by their grammar.

https://www.w3.org/TR/trace-context/. What is read has been in the database, where anyone may have written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping

from opentelemetry.trace import SpanContext, TraceFlags, TraceState

PARENT = "traceparent"
STATE = "tracestate"
MOST_STATE = 512
"""How long a `tracestate` may be. A longer one is left out: it came with a request, and its job has but 4 KB."""

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z", re.ASCII)
_FLAGS = [f"{flags:02x}" for flags in range(256)]
_FLAGS_OF = {text: TraceFlags(flags) for flags, text in enumerate(_FLAGS)}
_NO_STATE = TraceState()


def write(context: SpanContext, into: MutableMapping[str, str]) -> None:
    """Puts it in, if it's any."""
    if not context.is_valid:
        return
    trace_id, span_id, _, flags, state, _ = context
    into[PARENT] = f"00-{trace_id.to_bytes(16).hex()}-{span_id.to_bytes(8).hex()}-{_FLAGS[flags & 0xFF]}"
    if state:
        text = state.to_header()
        if len(text) <= MOST_STATE:
            into[STATE] = text


def read(carried: Mapping[str, str]) -> SpanContext | None:
    """The place that was carried; None where there is none, or what isn't one."""
    text = carried.get(PARENT)
    if text is None:
        return None
    found = _PARENT.match(text)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    # A later version may have more behind these four, and keeps their meaning; 00 has no more, and ff is none.
    if version == "ff" or (version == "00" and more is not None):
        return None
    kept, state = _NO_STATE, carried.get(STATE)
    if state and len(state) <= MOST_STATE and state.isascii():  # what isn't would be logged as it is
        kept = TraceState.from_header([state])
    context = SpanContext(int(trace_id, 16), int(span_id, 16), True, _FLAGS_OF[flags], kept)
    return context if context.is_valid else None
