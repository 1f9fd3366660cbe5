"""What can be said of a kind, checked once as it's registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypedDict

from fastjobs.core.backoff import Backoff, wait
from fastjobs.core.duration import SECOND, Seconds, micros
from fastjobs.core.errors import RegistrationError

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
    process: bool
    """Run the handler, a plain `def` of a module, in a process of the queue's own: for CPU work. Default False."""


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

    def hold(self, most: int) -> int:
        """How long a claim of this kind holds its job, in microseconds: its timeout and 15 s, `most` at most."""
        return min(self.timeout + _HOLD_MARGIN, most)


def checked(name: str, settings: KindSettings) -> KindOptions:
    """The options of kind `name`, or a RegistrationError that says which is wrong and how."""
    unknown = set(settings) - set(KindSettings.__annotations__)
    if unknown:
        raise RegistrationError(
            f"kind {name!r}: there is no option {', '.join(sorted(unknown))};"
            f" there are {', '.join(sorted(KindSettings.__annotations__))}"
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
    backoff = settings.get("backoff")
    if inspect.iscoroutinefunction(backoff):
        raise RegistrationError(
            f"kind {name!r}: backoff is a plain function of the attempt, not an async one"
        )
    try:
        timeout = micros(settings.get("timeout", 60), "timeout", least=1000)
        if backoff is not None and not callable(backoff):
            wait(backoff, 1, 0.0)
    except ValueError as bad:
        raise RegistrationError(f"kind {name!r}: {bad}") from None
    return KindOptions(
        attempts=attempts,
        backoff=backoff,
        timeout=timeout,
        permanent=predicate(settings.get("permanent", ()), f"kind {name!r}"),
        priority=priority,
        process=process,
    )
