"""What can be said of a kind, checked once as it's registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypedDict

from fastjobs.core.backoff import Backoff, wait
from fastjobs.core.duration import DAY, SECOND, Seconds, micros
from fastjobs.core.errors import RegistrationError
from fastjobs.core.rate import Limiter, Throttle, rate
from fastjobs.core.unique import Unique, unique

PermanentIf = type[BaseException] | Iterable[type[BaseException]] | Callable[[BaseException], bool]
"""Errors that trying again won't mend: exception types, or a predicate of the exception."""

_HOLD_MARGIN = 15 * SECOND


class KindSettings(TypedDict, total=False):
    """The keywords of `@q.kind(name, …)`."""

    attempts: int
    """How often a job may run before it fails for good, the first time included. Default 10."""
    backoff: Backoff | None
    """The wait after an attempt that failed: a callable of the attempt, or a fixed one with up to a tenth more.
    Default attempt⁴ seconds and up to a tenth more, a day at most."""
    timeout: Seconds
    """How long a run may take. Default 60 seconds."""
    permanent: PermanentIf
    """Errors that fail the job at once: exception types, or a predicate. Default none."""
    priority: int
    """Jobs of kinds of a higher priority are taken first. Default 0."""
    unique: bool | Unique
    """True, or a `Unique(…)`: one job waits for each value. Default False."""
    at_once: int | None
    """How many of its jobs may run at once, on all instances together. Default None: as many as there are workers."""
    rate: Throttle | Limiter | None
    """How fast its jobs may start, on all instances together: a `Throttle`, or a limiter of the app's own."""
    keep_name: Seconds
    """How long a `name=` of a push stays taken after its job has ended. Default a day."""
    process: bool
    """Run the handler, a plain `def` of a module, in a process of the queue's own: for CPU work. Default False."""


class FallbackSettings(TypedDict, total=False):
    """The keywords of `@q.fallback(…)`: as those of a kind."""

    attempts: int
    backoff: Backoff | None
    timeout: Seconds
    permanent: PermanentIf
    priority: int


Predicate = Callable[[BaseException], bool]


def predicate(permanent: PermanentIf, what: str) -> Predicate | None:
    """One predicate of what `permanent=` may be; None for nothing."""
    if isinstance(permanent, type):
        if not issubclass(permanent, BaseException):
            raise RegistrationError(f"{what}: permanent takes exception types, and {permanent!r} is none")
        kind: type[BaseException] = permanent
        return lambda error: isinstance(error, kind)
    if callable(permanent):
        if inspect.iscoroutinefunction(permanent):
            raise RegistrationError(
                f"{what}: permanent is asked at once, so it's a plain function, not async"
            )
        return permanent
    try:
        types = tuple(permanent)
    except TypeError:
        raise RegistrationError(
            f"{what}: permanent takes exception types or a predicate, not {permanent!r}"
        ) from None
    for each in types:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise RegistrationError(f"{what}: permanent takes exception types, and {each!r} is none")
    return (lambda error: isinstance(error, types)) if types else None


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOptions:
    """A kind's options, checked."""

    attempts: int
    backoff: Backoff | None
    timeout: int
    """Microseconds."""
    permanent: Predicate | None
    priority: int
    process: bool
    unique: Unique | None
    at_once: int | None
    rate: Throttle | Limiter | None
    keep_name: int
    """Microseconds."""

    @property
    def one_at_a_time(self) -> bool:
        """Whether no two jobs of one value run at once."""
        return self.unique is not None and self.unique.one_at_a_time

    @property
    def in_turn(self) -> bool:
        """Whether the end of one of its jobs may let the next one run."""
        return self.at_once is not None or self.one_at_a_time

    def hold(self, most: int) -> int:
        """How long a claim of this kind holds its job, in microseconds: its timeout and 15 s, `most` at most."""
        return min(self.timeout + _HOLD_MARGIN, most)


def checked(name: str, settings: KindSettings) -> KindOptions:
    """The options of kind `name`, or a RegistrationError that says which is wrong and how."""
    unknown = set(settings) - set(KindSettings.__annotations__)
    if unknown:
        of_unique = sorted(unknown & set(Unique.__annotations__))
        raise RegistrationError(
            f"kind {name!r}: there is no option {', '.join(sorted(unknown))};"
            f" there are {', '.join(sorted(KindSettings.__annotations__))}"
            + (f". Unique has it: unique=Unique({of_unique[0]}=…)" if of_unique else "")
        )
    attempts = settings.get("attempts", 10)
    if isinstance(attempts, bool) or not isinstance(attempts, int) or not 1 <= attempts <= 1_000_000:
        raise RegistrationError(
            f"kind {name!r}: attempts is a whole number from 1 to 1,000,000, not {attempts!r}"
        )
    priority = settings.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > 1_000_000:
        raise RegistrationError(f"kind {name!r}: priority is a whole number, not {priority!r}")
    process = settings.get("process", False)
    if not isinstance(process, bool):
        raise RegistrationError(f"kind {name!r}: process is True or False, not {process!r}")
    at_once = settings.get("at_once")
    if at_once is not None and (
        isinstance(at_once, bool) or not isinstance(at_once, int) or not 1 <= at_once <= 1_000_000
    ):
        raise RegistrationError(
            f"kind {name!r}: at_once is a whole number from 1 to 1,000,000, not {at_once!r}"
        )
    backoff = settings.get("backoff")
    if inspect.iscoroutinefunction(backoff):
        raise RegistrationError(
            f"kind {name!r}: backoff is a plain function of the attempt, not an async one"
        )
    try:
        timeout = micros(settings.get("timeout", 60), "timeout", least=1000)
        if backoff is not None and not callable(backoff):
            wait(backoff, 1, 0.0)
        keep_name = micros(settings.get("keep_name", DAY // SECOND), "keep_name")
    except ValueError as bad:
        raise RegistrationError(f"kind {name!r}: {bad}") from None
    return KindOptions(
        attempts=attempts,
        backoff=backoff,
        timeout=timeout,
        permanent=predicate(settings.get("permanent", ()), f"kind {name!r}"),
        priority=priority,
        process=process,
        unique=unique(settings.get("unique", False), f"kind {name!r}"),
        at_once=at_once,
        rate=rate(settings.get("rate"), f"kind {name!r}"),
        keep_name=keep_name,
    )
