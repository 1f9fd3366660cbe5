"""A queue's settings, checked once, in the units that the runtime counts in."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from fastjobs.clock import Clock
from fastjobs.core.carrier import Carrier, Follower
from fastjobs.core.duration import SECOND, Seconds, micros
from fastjobs.core.errors import RegistrationError
from fastjobs.core.options import PermanentIf, Predicate, predicate
from fastjobs.core.outcome import Ran
from fastjobs.runtime.handlers import is_async
from fastjobs.runtime.observing import CountedPushes, observers

STORE_LIMIT = 10.0
"""How many seconds a store's call may take."""
LET_GO = 1.0
"""How many seconds a stop may take beyond grace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `Queue(…)` was given, checked."""

    workers: int
    processes: int
    poll: float
    """Seconds."""
    grace: float
    """Seconds."""
    hold: int
    """Microseconds."""
    carry: tuple[Carrier, ...]
    carriers: tuple[tuple[Carrier, Follower | None], ...]
    """Each, and itself again where it also follows each push and each run; and those who count pushes."""
    followers: tuple[Follower, ...]
    """Those that do."""
    observe: Callable[[Ran], object] | None
    pushed: Callable[[str, int], None]
    """Told how many jobs of which kind were pushed other than by a push that `carriers` follow."""
    permanent: Predicate | None
    keep_failed: int | None
    """Microseconds; None for ever."""
    max_payload: int
    clock: Clock


def _processors() -> int:
    """How many processors this process may use."""
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def settings(
    *,
    workers: int,
    processes: int | None,
    poll: Seconds,
    grace: Seconds,
    hold: Seconds,
    carry: Sequence[Carrier],
    observe: Callable[[Ran], object] | Sequence[Callable[[Ran], object]] | None,
    permanent: PermanentIf,
    keep_failed: Seconds | None,
    max_payload: int,
    clock: Clock,
) -> Settings:
    """The checked settings, or a RegistrationError that says which is wrong."""
    _check_workers(workers)
    if processes is None:
        processes = _processors()
    if isinstance(processes, bool) or not isinstance(processes, int) or not 1 <= processes <= 10_000:
        raise RegistrationError(f"processes is a whole number from 1 to 10,000, not {processes!r}")
    if isinstance(max_payload, bool) or not isinstance(max_payload, int) or max_payload < 1:
        raise RegistrationError(f"max_payload is a number of bytes, not {max_payload!r}")
    if not isinstance(carry, Sequence):
        raise RegistrationError(f"carry= is a list of carriers, as in [CarryRequestID()], not {carry!r}")
    for each in carry:
        if not (callable(getattr(each, "carry", None)) and callable(getattr(each, "restore", None))):
            raise RegistrationError(
                f"carry= takes carriers, with a carry and a restore, and {each!r} is none"
                + ("; it's a class: make one, as in CarryRequestID()" if isinstance(each, type) else "")
            )
        if isinstance(each, type):
            raise RegistrationError(f"carry= takes carriers, not their classes: {each.__name__}()")
        called = ["carry", "restore"]
        if getattr(each, "pushing", None) is not None:
            called += ["pushing", "running", "unseen"]
        for name in called:
            if not callable(getattr(each, name, None)):
                raise RegistrationError(
                    f"carry= takes a carrier with a pushing for a Follower, and {each!r} has no {name}"
                )
        if any(is_async(getattr(each, name)) for name in called):
            raise RegistrationError(
                f"carry= takes carriers, whose {', '.join(called[:-1])} and {called[-1]} are called and not awaited:"
                f" {each!r} has an async one"
            )
    observed_by = observers(observe)
    carriers = [(each, _follower(each)) for each in carry]
    if observed_by is not None and observed_by.counts_pushes:
        pushes = CountedPushes(observed_by.pushed)
        carriers.append((pushes, pushes))
    try:
        return Settings(
            workers=workers,
            processes=processes,
            poll=micros(poll, "poll", least=1000) / SECOND,
            grace=micros(grace, "grace") / SECOND,
            hold=micros(hold, "hold", least=100_000),
            carry=tuple(carry),
            carriers=tuple(carriers),
            followers=tuple(found for each in carry if (found := _follower(each)) is not None),
            observe=observed_by,
            pushed=_nothing if observed_by is None else observed_by.pushed,
            permanent=predicate(permanent, "permanent="),
            keep_failed=None if keep_failed is None else micros(keep_failed, "keep_failed"),
            max_payload=max_payload,
            clock=clock,
        )
    except RegistrationError:
        raise
    except ValueError as bad:
        raise RegistrationError(str(bad)) from None


def _nothing(kind: str, count: int) -> None:
    """Nobody counts."""


def _follower(carrier: Carrier) -> Follower | None:
    return None if getattr(carrier, "pushing", None) is None else cast("Follower", carrier)


def with_workers(settings: Settings, workers: int | None) -> Settings:
    """The settings with so many workers; as they are for None."""
    if workers is None:
        return settings
    _check_workers(workers)
    return replace(settings, workers=workers)


def _check_workers(workers: int) -> None:
    if isinstance(workers, bool) or not isinstance(workers, int) or not 0 <= workers <= 10_000:
        raise RegistrationError(f"workers is a whole number from 0 (push only) to 10,000, not {workers!r}")
