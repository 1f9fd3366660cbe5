"""`traceparent`, `tracestate` and baggage as they're carried: by their grammar, and nothing else is taken for them."""

from __future__ import annotations

import logging
import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.baggage import get_all, set_baggage
from opentelemetry.context import Context, attach
from opentelemetry.trace import SpanContext, TraceFlags, TraceState, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fastjobs import CarryTrace, Queue, RegistrationError, current_job
from fastjobs.telemetry.trace_context import read, write
from tests.telemetry.spans import Spans

ROOT = Path(__file__).parents[2]
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01"


def written(context: SpanContext) -> dict[str, str]:
    into: dict[str, str] = {}
    write(context, into)
    return into


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.integers(0, 255),
    st.dictionaries(
        st.text(string.ascii_lowercase, min_size=1, max_size=8),
        st.text("abc:%~", min_size=1, max_size=8),
        max_size=5,
    ),
)
def test_a_place_in_a_trace_comes_back_as_it_was_and_others_read_it_too(
    trace_id: int, span_id: int, flags: int, state: dict[str, str]
) -> None:
    place = SpanContext(trace_id, span_id, False, TraceFlags(flags), TraceState(list(state.items())))
    carried = written(place)
    found = read(carried)
    assert found is not None
    assert (found.trace_id, found.span_id, found.trace_flags) == (trace_id, span_id, flags)
    assert dict(found.trace_state) == state
    assert found.is_remote
    theirs = TraceContextTextMapPropagator().extract(carried, Context())
    assert get_current_span(theirs).get_span_context() == found


@pytest.mark.parametrize(
    "flags", ["00", "01", "02", "03", "ff"], ids=["none", "sampled", "random", "both", "all"]
)
def test_any_flags_are_read(flags: str) -> None:
    found = read({"traceparent": f"00-{TRACE}-{SPAN}-{flags}"})
    assert found is not None
    assert found.trace_flags == int(flags, 16)


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    for later in (f"01-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what-it-has-more"):
        found = read({"traceparent": later})
        assert found is not None
        assert found.trace_id == int(TRACE, 16)


BAD = [
    "", "00", "-", GOOD + "-more", GOOD + "0", " " + GOOD, GOOD + " ", GOOD + "\n", GOOD.upper(), GOOD[:-1],
    f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{SPAN}-zz",
    f"00-{TRACE[:-1]}g-{SPAN}-01", f"00-+{TRACE[1:]}-{SPAN}-01", f"00-{TRACE[:-2]}_1-{SPAN}-01",
    f"00-{TRACE}-{SPAN}-01".replace("0", "\u0660"), f"0-{TRACE}-{SPAN}-01", "0" * 55, "x" * 4000,
]  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=lambda text: f"{text!r:.40}-{len(text)}")
def test_what_is_no_traceparent_is_none(text: str) -> None:
    assert read({"traceparent": text}) is None


def test_without_one_there_is_none() -> None:
    assert read({}) is None
    assert read({"tracestate": "a=b"}) is None


@pytest.mark.parametrize("state", ["", "no pairs", "a=b,,=", "x" * 513, "a=\u202eb", "é=1", "a=b" * 300])
def test_a_tracestate_that_is_none_costs_the_trace_nothing(
    state: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = read({"traceparent": GOOD, "tracestate": state})
    assert found is not None
    assert found.trace_id == int(TRACE, 16)
    assert all(line.isascii() and line.isprintable() for line in caplog.messages)


def test_no_place_writes_nothing() -> None:
    assert written(SpanContext(0, 0, False)) == {}


# Baggage.


@pytest.mark.anyio
async def test_baggage_is_carried_where_it_is_asked_for_alone(new_queue: Callable[..., Queue]) -> None:
    seen: list[object] = []

    async def mail() -> None:
        seen.append((dict(get_all()), "baggage" in current_job().carried))

    attach(set_baggage("user", "ada b\n"))
    for trace in ({}, {"baggage": True}):
        queue = new_queue(trace=trace)
        await queue.kind("mail")(mail).push()
        await queue.drain()
    assert seen == [({}, False), ({"user": "ada b"}, True)]


def test_baggage_that_a_client_filled_up_costs_no_push() -> None:
    carrier = CarryTrace(baggage=True)
    for n in range(60):
        attach(set_baggage(f"key{n}", "v" * 80))
    into: dict[str, str] = {}
    carrier.carry(into)
    entries = into["baggage"].split(",")
    assert 900 < len(into["baggage"]) <= 1024
    assert all(len(each.partition("=")[2]) == 80 for each in entries)  # none is cut in two
    attach(Context())
    carrier.restore(into)
    assert len(get_all()) == len(entries)
    attach(Context())


@pytest.mark.parametrize("text", ["", "=", "a", "a=b;" * 400, "a=\u202e", ",,,", "a=%0aINFO forged"])
def test_baggage_that_someone_wrote_into_the_table_fails_nothing(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    CarryTrace(baggage=True).restore({"baggage": text})
    assert all(line.isascii() and line.isprintable() for line in caplog.messages)
    attach(Context())


# The SDK.


LATE = """
import asyncio, sys
import fastjobs
from opentelemetry import trace
assert not any(each.startswith("opentelemetry.sdk") for each in sys.modules)

q = fastjobs.Queue(fastjobs.Memory(), carry=[fastjobs.CarryTrace()])

@q.kind("mail")
async def mail() -> None:
    print("in it:", trace.get_current_span().get_span_context().is_valid)

async def main():
    await mail.push()
    await q.drain()
    assert not any(each.startswith("opentelemetry.sdk") for each in sys.modules)
    from tests.telemetry.spans import Spans
    spans = Spans()
    trace.set_tracer_provider(spans.provider)
    await mail.push()
    await q.drain()
    print(spans.tree())

asyncio.run(main())
"""


def test_the_sdk_may_be_set_up_later_and_is_never_imported_by_us() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", LATE], cwd=ROOT, capture_output=True, text=True, timeout=50
    )
    assert ran.returncode == 0, ran.stderr
    told = ran.stdout.splitlines()
    assert told == ["in it: False", "in it: True", "{'send mail': None, 'process mail': 'send mail'}"]


def test_an_app_that_has_done_without_an_sdk_for_long_is_traced_soon_after_it_has_one(
    monkeypatch: pytest.MonkeyPatch, spans: Spans
) -> None:
    carry = CarryTrace()
    for _ in range(2000):
        assert carry.pushing("mail", 1) is None
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", spans.provider)
    pushes = [carry.pushing("mail", 1) for _ in range(32)]
    assert sum(each is not None for each in pushes) >= 16


@pytest.mark.parametrize(
    "options",
    [{"baggage": "no"}, {"link_only": 1}, {"link_only": None}, {"tracer_provider": "otlp"}],
    ids=str,
)
def test_options_that_cannot_be_are_refused_and_not_taken_for_yes(options: dict[str, Any]) -> None:
    with pytest.raises(RegistrationError, match=next(iter(options))):
        CarryTrace(**options)
