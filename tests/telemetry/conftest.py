"""Spans in memory, and queues on one clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fastjobs import CarryTrace, Memory, Queue
from fastjobs.testing import Clock
from tests.telemetry.spans import Spans


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def new_queue(clock: Clock, spans: Spans) -> Callable[..., Queue]:
    """Makes queues that are traced; `trace` are options of CarryTrace."""

    def new(*, trace: dict[str, Any] | None = None, **settings: Any) -> Queue:
        carry = CarryTrace(tracer_provider=spans.provider, **(trace or {}))
        chosen: dict[str, Any] = {
            "store": Memory(clock=clock),
            "clock": clock,
            "carry": [carry],
            "grace": 0.5,
            **settings,
        }
        return Queue(**chosen)

    return new
