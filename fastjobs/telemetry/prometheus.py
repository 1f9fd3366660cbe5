"""`PrometheusMetrics`: the queue's metrics by prometheus_client, for a /metrics route of the app's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from fastjobs.core.duration import Seconds
from fastjobs.core.errors import RegistrationError
from fastjobs.core.outcome import Ran
from fastjobs.runtime.queue import Queue
from fastjobs.telemetry.numbers import CAP, Counted, Numbers
from fastjobs.telemetry.ran import BUCKETS, began

_GAUGES: tuple[tuple[str, str, Callable[[Numbers], float]], ...] = (
    ("fastjobs_jobs_waiting", "Jobs that wait for their time or a worker", lambda each: each.waiting),
    ("fastjobs_jobs_due", "Of those that wait the ones whose time has come", lambda each: each.due),
    ("fastjobs_jobs_held", "Jobs that run or are about to", lambda each: each.held),
    ("fastjobs_jobs_parked", "Jobs that wait for another of their value", lambda each: each.parked),
    ("fastjobs_jobs_failed", "Jobs that failed for good and are kept", lambda each: each.failed),
    (
        "fastjobs_oldest_age_seconds",
        "How long the job that is due longest has been due",
        lambda each: each.oldest,
    ),
    ("fastjobs_paused", "1 while the kind is paused", lambda each: int(each.paused)),
)


class PrometheusMetrics:
    """The queue's metrics by prometheus_client: `Queue(observe=PrometheusMetrics())`. One may serve several queues.

    This process's own, in `registry`: `fastjobs_runs_total` by kind and outcome, and by kind `fastjobs_run_seconds` and
    `fastjobs_waited_seconds`, histograms, and `fastjobs_pushed_total`.

    The store's, whichever instance tells of them, by kind: `fastjobs_jobs_waiting`, `_due`, `_held`, `_parked` and
    `_failed`, `fastjobs_oldest_age_seconds`, `fastjobs_paused`. They're collected by `gauges`, which is in the registry
    too. They're had by one query every `every` seconds at most, 5 by default, while the queue runs; no number is
    counted past `cap` + 1. A scrape in a thread waits for them; one on an event loop's thread gets the last ones that
    were had, at the first scrape none. Jobs of kinds without a handler here are under the kind "_other".

    RegistrationError where the registry has these already: make one for all queues. Needs the extra `prometheus`.
    """

    gauges: Collector
    """For a registry of a route's own, as where prometheus_client puts several processes' metrics together."""

    def __init__(self, *, registry: CollectorRegistry = REGISTRY, every: Seconds = 5, cap: int = CAP) -> None:
        self._counted = Counted(every=every, cap=cap)
        try:
            self._runs = Counter(
                "fastjobs_runs",
                "Runs that ended, by what became of them",
                ["kind", "outcome"],
                registry=registry,
            )
            self._took = Histogram(
                "fastjobs_run_seconds", "How long handlers ran", ["kind"], registry=registry, buckets=BUCKETS
            )
            self._waited = Histogram(
                "fastjobs_waited_seconds",
                "How long past their time jobs were claimed",
                ["kind"],
                registry=registry,
                buckets=BUCKETS,
            )
            self._pushed = Counter("fastjobs_pushed", "Jobs that were pushed", ["kind"], registry=registry)
            self.gauges = _Gauges(self._counted)
            registry.register(self.gauges)
        except ValueError as taken:
            raise RegistrationError(
                "PrometheusMetrics: the registry has such metrics already, so make one for all queues, or give each its"
                f" registry= ({taken})"
            ) from None

    def __call__(self, ran: Ran) -> None:
        """A run has ended."""
        kind = self._counted.label(ran.kind)
        self._runs.labels(kind, ran.outcome.value).inc()
        if began(ran):
            self._took.labels(kind).observe(ran.took)
            self._waited.labels(kind).observe(ran.waited)

    def pushed(self, kind: str, count: int) -> None:
        """Jobs were pushed."""
        self._pushed.labels(self._counted.label(kind)).inc(count)

    def watch(self, queue: Queue) -> None:
        """Tells of this queue's jobs. `Queue(observe=…)` calls it."""
        self._counted.watch(queue)


class _Gauges(Collector):
    def __init__(self, counted: Counted) -> None:
        self._counted = counted

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Their names, which the registry keeps free of others."""
        for name, text, _of in _GAUGES:
            yield GaugeMetricFamily(name, text, labels=["kind"])

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The numbers, by kind."""
        found = self._counted.read()
        for name, text, of in _GAUGES:
            family = GaugeMetricFamily(name, text, labels=["kind"])
            for label, numbers in sorted(found.items()):
                family.add_metric([label], of(numbers))
            yield family
