"""Those that `observe=` names, as one: told of each run, and, where they count them, of each push."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from fastjobs.core.errors import RegistrationError
from fastjobs.core.job import Job
from fastjobs.core.outcome import Ran
from fastjobs.runtime.handlers import is_async
from fastjobs.runtime.lines import say_error

if TYPE_CHECKING:
    from fastjobs.runtime.queue import Queue

Observe = Callable[[Ran], object]


@runtime_checkable
class Meter(Protocol):
    """An observer that also counts pushes, and looks at the queue itself when it's asked for numbers."""

    def __call__(self, ran: Ran) -> object:
        """A run has ended, and its end is kept."""
        ...

    def pushed(self, kind: str, count: int) -> object:
        """So many jobs were pushed in this process, also by its schedules; a transaction may still roll back."""
        ...

    def watch(self, queue: Queue) -> object:
        """It's an observer of this queue; called as that is made."""
        ...


class Observers:
    """Several observers: each is told, whatever another raises."""

    def __init__(self, each: Sequence[Observe]) -> None:
        self._each = tuple(each)
        self._meters = tuple(found for found in each if isinstance(found, Meter))

    def __call__(self, ran: Ran) -> None:
        if len(self._each) == 1:
            self._each[0](ran)  # whoever calls this says more of what it raises
            return
        for each in self._each:
            try:
                each(ran)
            except (
                BaseException
            ) as error:  # as with a handler: a CancelledError of its own would end the ledger
                say_error("observe= failed", error, kind=ran.kind, job=ran.job, attempt=ran.attempt)

    @property
    def counts_pushes(self) -> bool:
        """Whether any of them does."""
        return bool(self._meters)

    def pushed(self, kind: str, count: int) -> None:
        """Jobs were pushed."""
        for each in self._meters:
            try:
                each.pushed(kind, count)
            except Exception as error:
                say_error("observe= failed", error, kind=kind)

    def watch(self, queue: Queue) -> None:
        """Gives them the queue; what one raises is the app's mistake, and is raised."""
        for each in self._meters:
            each.watch(queue)


def observers(observe: Observe | Sequence[Observe] | None) -> Observers | None:
    """What `Queue(observe=…)` was given, checked; None for nothing."""
    if observe is None:
        return None
    several = isinstance(observe, Sequence) and not isinstance(observe, str)
    found = list(cast("Sequence[Observe]", observe)) if several else [cast("Observe", observe)]
    for each in found:
        if not callable(each):
            raise RegistrationError(f"observe= is a function of a Ran, not {each!r}; or a list of such")
        if isinstance(each, type):
            raise RegistrationError(f"observe= takes what observes, not its class: {each.__name__}()")
        if is_async(each):
            raise RegistrationError(
                "observe= is called and not awaited, so it's a plain function, not an async one"
            )
    return Observers(found) if found else None


class CountedPushes:
    """Follows pushes for those who count them. It carries nothing."""

    def __init__(self, pushed: Callable[[str, int], object]) -> None:
        self._pushed = pushed

    def carry(self, into: MutableMapping[str, str]) -> None:
        """Nothing."""

    def restore(self, carried: Mapping[str, str]) -> None:
        """Nothing."""

    def pushing(self, kind: str, count: int) -> _Push:
        """A push begins."""
        return _Push(self._pushed, kind)

    def running(self, job: Job, carried: Mapping[str, str], waited: float, *, on_fail: bool) -> None:
        """Runs are observed once their ends are kept."""

    def unseen(self) -> None:
        """Nothing."""


class _Push:
    __slots__ = ("_kind", "_pushed")

    def __init__(self, pushed: Callable[[str, int], object], kind: str) -> None:
        self._pushed = pushed
        self._kind = kind

    def carry(self, into: MutableMapping[str, str]) -> None:
        pass

    def begin(self) -> None:
        pass

    def end(self, ids: Sequence[str | None] | None, error: BaseException | None) -> None:
        if ids is not None and (count := len(ids) - ids.count(None)):
            self._pushed(self._kind, count)
