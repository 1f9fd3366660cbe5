"""`observe=` takes several observers: each is told, and what one raises is logged and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fastjobs import Memory, OTelMetrics, Outcome, PrometheusMetrics, Queue, Ran, RegistrationError
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio


async def nothing() -> None: ...


async def test_several_observers_are_each_told_whatever_another_raises(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Ran] = []

    def breaks(ran: Ran) -> None:
        raise SystemExit("no metrics today")

    q = Queue(Memory(clock=clock), clock=clock, observe=[breaks, told.append])
    mail = q.kind("mail")(nothing)
    await mail.push()
    await q.drain()
    assert [ran.outcome for ran in told] == [Outcome.DONE]
    (line,) = [each for each in caplog.messages if "observe= failed" in each]
    assert "kind=mail job=1 attempt=1" in line
    assert "no metrics today" in line


async def test_a_count_of_pushes_that_fails_fails_no_push(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    class Breaks(PrometheusMetrics):
        def pushed(self, kind: str, count: int) -> None:
            raise OSError("disk full")

    q = Queue(Memory(clock=clock), clock=clock, observe=Breaks(registry=CollectorRegistry()))
    mail = q.kind("mail")(nothing)
    assert await mail.push() == "1"
    assert [each for each in caplog.messages if "observe= failed" in each and "disk full" in each]


@pytest.mark.parametrize(
    ("observe", "says"),
    [
        (3, "observe= is a function of a Ran"),
        ("metrics", "observe= is a function of a Ran"),
        ([print, None], "observe= is a function of a Ran"),
        (OTelMetrics, r"observe= takes what observes, not its class: OTelMetrics\(\)"),
        ([nothing], "plain function, not an async one"),
    ],
    ids=["a number", "a string", "a None among them", "a class", "an async one"],
)
def test_what_cannot_observe_is_refused(observe: Any, says: str) -> None:
    with pytest.raises(RegistrationError, match=says):
        Queue(observe=observe)
