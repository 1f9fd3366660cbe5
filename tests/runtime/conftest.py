"""What the runtime's tests share: a clock that they move, a store in memory, and what was observed and logged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from fastjobs import Memory, Queue, Ran
from fastjobs.testing import Clock


class Mail(BaseModel):
    user: int


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Memory:
    return Memory(clock=clock)


@pytest.fixture
def seen() -> list[Ran]:
    return []


@pytest.fixture
def new_queue(clock: Clock, store: Memory, seen: list[Ran]) -> Callable[..., Queue]:
    """Makes queues on the one store and the one clock."""

    def new(**settings: Any) -> Queue:
        chosen: dict[str, Any] = {
            "store": store,
            "clock": clock,
            "observe": seen.append,
            "grace": 0.5,
            **settings,
        }
        return Queue(**chosen)

    return new


@pytest.fixture
def queue(new_queue: Callable[..., Queue]) -> Queue:
    return new_queue()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[str]]:
    """Answers the log lines that begin with a text."""
    caplog.set_level(logging.INFO, logger="fastjobs")
    return lambda text: [line for line in caplog.messages if line.startswith(text)]
