"""The work that all contestants do, and how it's timed. It imports no queue, as others' are measured by it too."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from pydantic import BaseModel


class Value(BaseModel):
    user: int
    list: str
    n: int


def value(n: int) -> Value:
    """About 50 bytes of JSON."""
    return Value(user=123_456, list="newsletter", n=n)


class Timed:
    """Times a block, and what the process took of the processor."""

    def __enter__(self) -> Timed:
        self.began, self.cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self.began
        self.cpu = time.process_time() - self.cpu


def percentiles(took: Sequence[float]) -> dict[str, float]:
    """The median, the 95th and the 99th of some seconds, in milliseconds."""
    ordered = sorted(each * 1000 for each in took)
    return {
        "p50_ms": statistics.median(ordered),
        "p95_ms": ordered[int(len(ordered) * 0.95) - 1],
        "p99_ms": ordered[int(len(ordered) * 0.99) - 1],
    }


def growth(before: Sequence[float], after: Sequence[float]) -> dict[str, float]:
    """The 95th of some seconds before and after, in milliseconds, and how many times the first the second is."""
    first, then = percentiles(before)["p95_ms"], percentiles(after)["p95_ms"]
    return {"before_ms": first, "after_ms": then, "grown": then / first}
