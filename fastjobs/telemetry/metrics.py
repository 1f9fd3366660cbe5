"""`OTelMetrics`: the queue's metrics by OpenTelemetry. It needs opentelemetry-api alone; the app sets the SDK up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.util.types import AttributeValue

from fastjobs.core.duration import Seconds
from fastjobs.core.outcome import Ran
from fastjobs.runtime.queue import Queue
from fastjobs.telemetry import conventions as names
from fastjobs.telemetry.exceptions import type_of
from fastjobs.telemetry.numbers import CAP, Counted, Numbers
from fastjobs.telemetry.ran import BUCKETS, began

_MOST_ERRORS = 100

_GAUGES: tuple[tuple[str, str, str, Callable[[Numbers], float]], ...] = (
    (names.WAITING_JOBS, "{job}", "Jobs that wait for their time or a worker", lambda each: each.waiting),
    (names.DUE_JOBS, "{job}", "Of those that wait the ones whose time has come", lambda each: each.due),
    (names.HELD_JOBS, "{job}", "Jobs that run or are about to", lambda each: each.held),
    (names.PARKED_JOBS, "{job}", "Jobs that wait for another of their value", lambda each: each.parked),
    (names.FAILED_JOBS, "{job}", "Jobs that failed for good and are kept", lambda each: each.failed),
    (names.OLDEST_AGE, "s", "How long the job that is due longest has been due", lambda each: each.oldest),
    (names.PAUSED, "1", "1 while the kind is paused", lambda each: int(each.paused)),
)


class OTelMetrics:
    """The queue's metrics by OpenTelemetry: `Queue(observe=OTelMetrics())`. One object may serve several queues.

    By the conventions for messaging: `messaging.process.duration`, `messaging.client.sent.messages` and
    `messaging.client.consumed.messages`. By our own names, for each kind: `fastjobs.runs` by their outcome,
    `fastjobs.waited` (seconds past their time, a histogram), the gauges `fastjobs.jobs.waiting`, `.due`, `.held`,
    `.parked` and `.failed`, `fastjobs.oldest.age` (seconds) and `fastjobs.paused`.

    The gauges are of the whole store, whichever instance tells of them, and are had by one query every `every` seconds
    at most, 5 by default, while the queue runs; no number is counted past `cap` + 1. Jobs of kinds without a handler
    here are under the kind "_other". `meter_provider` is the global one by default, also where it's set later.

    Needs the extra `otel`.
    """

    def __init__(
        self, *, meter_provider: MeterProvider | None = None, every: Seconds = 5, cap: int = CAP
    ) -> None:
        self._counted = Counted(every=every, cap=cap)
        self._errors: set[str] = set()
        meter = metrics.get_meter(names.SCOPE, meter_provider=meter_provider)
        self._duration = meter.create_histogram(
            names.PROCESS_DURATION,
            "s",
            "How long handlers ran",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self._waited = meter.create_histogram(
            names.WAITED_TIME,
            "s",
            "How long past their time jobs were claimed",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self._sent = meter.create_counter(names.SENT_MESSAGES, "{message}", "Jobs that were pushed")
        self._consumed = meter.create_counter(names.CONSUMED_MESSAGES, "{message}", "Runs that began")
        self._runs = meter.create_counter(names.RUNS, "{run}", "Runs that ended, by what became of them")
        for name, unit, text, of in _GAUGES:
            meter.create_observable_gauge(name, [partial(self._observe, of)], unit, text)

    def __call__(self, ran: Ran) -> None:
        """A run has ended."""
        kind = {names.DESTINATION: self._counted.label(ran.kind)}
        self._runs.add(1, {**kind, names.OUTCOME: ran.outcome.value})
        if not began(ran):
            return
        about: dict[str, AttributeValue] = {
            names.SYSTEM: names.FASTJOBS,
            names.OPERATION_NAME: names.PROCESS,
            **kind,
        }
        if ran.error is not None:
            about[names.ERROR_TYPE] = self._error(ran.error)
        self._consumed.add(1, about)
        self._duration.record(ran.took, about)
        self._waited.record(ran.waited, kind)

    def pushed(self, kind: str, count: int) -> None:
        """Jobs were pushed."""
        label = self._counted.label(kind)
        about = {names.SYSTEM: names.FASTJOBS, names.OPERATION_NAME: names.SEND, names.DESTINATION: label}
        self._sent.add(count, about)

    def watch(self, queue: Queue) -> None:
        """Tells of this queue's jobs. `Queue(observe=…)` calls it."""
        self._counted.watch(queue)

    def _observe(self, of: Callable[[Numbers], float], options: CallbackOptions) -> Iterable[Observation]:
        for label, numbers in self._counted.read().items():
            yield Observation(of(numbers), {names.DESTINATION: label})

    def _error(self, error: Exception) -> str:
        name = type_of(error)
        if name not in self._errors:
            if len(self._errors) >= _MOST_ERRORS:
                return names.OTHER_ERROR
            self._errors.add(name)
        return name
