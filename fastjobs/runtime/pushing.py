"""Pushes through someone's transaction: `kind.in_(tx).push(…)`, sync or async.

An async push that is never awaited would be a job that is silently not there, so the commit asks, and refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, cast, overload

from fastjobs.core.duration import Seconds
from fastjobs.core.errors import StoreTimeout
from fastjobs.core.job import Alike, NewJob
from fastjobs.runtime.following import Followed
from fastjobs.runtime.waiting import limited
from fastjobs.store import Pusher, Store, SyncPusher

if TYPE_CHECKING:
    from fastjobs.runtime.kind import Kind

T = TypeVar("T")
R = TypeVar("R")


class SyncPush(Generic[T]):
    """A kind that pushes through one sync transaction."""

    def __init__(self, kind: Kind[T], pusher: SyncPusher) -> None:
        self._kind = kind
        self._pusher = pusher

    @overload
    def push(
        self: SyncPush[None],
        value: None = None,
        *,
        at: datetime | None = None,
        after: Seconds | None = None,
        name: str | None = None,
    ) -> str | None: ...
    @overload
    def push(
        self, value: T, *, at: datetime | None = None, after: Seconds | None = None, name: str | None = None
    ) -> str | None: ...
    def push(
        self,
        value: Any = None,
        *,
        at: datetime | None = None,
        after: Seconds | None = None,
        name: str | None = None,
    ) -> str | None:
        """As `Kind.push`, kept as the transaction commits, and not at all as it or its savepoint rolls back."""
        return self._push(*self._kind.jobs((value,), at, after, name=name))[0]

    def push_many(
        self, values: Iterable[T], *, at: datetime | None = None, after: Seconds | None = None
    ) -> list[str | None]:
        """As `Kind.push_many`, in the transaction."""
        return self._push(*self._kind.jobs(values, at, after))

    def _push(self, jobs: Sequence[NewJob], followed: Followed | None) -> list[str | None]:
        push = partial(self._pusher.push, jobs)
        return push() if followed is None else followed.through(push)


class AsyncPush(Generic[T]):
    """A kind that pushes through one async transaction."""

    def __init__(
        self, kind: Kind[T], pusher: Pusher, unfinished: Unfinished, store: Store | None = None
    ) -> None:
        """`store` is the one that stands for a transaction, where one does."""
        self._kind = kind
        self._pusher = pusher
        self._unfinished = unfinished
        self._store = store

    @overload
    def push(
        self: AsyncPush[None],
        value: None = None,
        *,
        at: datetime | None = None,
        after: Seconds | None = None,
        name: str | None = None,
    ) -> Coroutine[Any, Any, str | None]: ...
    @overload
    def push(
        self, value: T, *, at: datetime | None = None, after: Seconds | None = None, name: str | None = None
    ) -> Coroutine[Any, Any, str | None]: ...
    def push(
        self,
        value: Any = None,
        *,
        at: datetime | None = None,
        after: Seconds | None = None,
        name: str | None = None,
    ) -> Coroutine[Any, Any, str | None]:
        """As `Kind.push`, kept as the transaction commits, and not at all as it or its savepoint rolls back.

        It's to be awaited: a commit with a push that never was raises NotAwaited, and doesn't commit.
        """
        jobs, followed = self._kind.jobs((value,), at, after, self._store, name=name)
        return self._later(jobs, followed, lambda ids: ids[0])

    def push_many(
        self, values: Iterable[T], *, at: datetime | None = None, after: Seconds | None = None
    ) -> Coroutine[Any, Any, list[str | None]]:
        """As `Kind.push_many`, in the transaction. It's to be awaited, as `push` is."""
        return self._later(*self._kind.jobs(values, at, after, self._store), lambda ids: ids)

    def _later(
        self, jobs: Sequence[NewJob], followed: Followed | None, answer: Callable[[list[str | None]], R]
    ) -> Coroutine[Any, Any, R]:
        pusher = self._pusher
        if self._store is not None:  # a transaction's calls are the app's own; a store's have their limit
            pusher = _Limited(self._store)

        async def pushed() -> R:
            push = pusher.push(jobs)
            return answer(await (push if followed is None else followed.awaited(push)))

        text = (
            f"a push of {self._kind.name!r} in this transaction was never awaited, so its job isn't in it:"
            " write await jobs(kind).push(…), or await kind.in_(tx).push(…)"
        )
        later = Later(pushed, self._unfinished, text)
        self._unfinished.pending.append(later)
        return later


async def push_to(store: Store, jobs: Sequence[NewJob]) -> list[str | None]:
    """The store's answer to a push, or a StoreTimeout that says what it may have waited for."""
    try:
        return await limited(store.push(jobs), "a push")
    except StoreTimeout as late:
        if isinstance(jobs, Alike) or not any(job.key is not None or job.name is not None for job in jobs):
            raise
        raise StoreTimeout(
            f"{late}: it may be down, or a transaction that is open may have pushed the same key or name, for whose end"
            " this waits"
        ) from late


class _Limited:
    """A store that stands for a transaction, with the limit of a store's calls."""

    sync: ClassVar[Literal[False]] = False

    def __init__(self, store: Store) -> None:
        self._store = store

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        return await push_to(self._store, jobs)


class Unfinished:
    """What was to be awaited before its transaction's commit, and wasn't yet: pushes of one `in_`, or a `done_in`."""

    def __init__(self) -> None:
        self.pending: list[Later[Any]] = []

    def __call__(self) -> str | None:
        """What to say of the first of them, once; None where there's none."""
        if not self.pending:
            return None
        text = self.pending[0].text
        # It has been told, and its transaction doesn't commit: the next one has nothing of it.
        self.pending.clear()
        return text


class Later(Coroutine[Any, Any, R]):
    """What runs as it's awaited: a coroutine that knows whether it was."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, R]], unfinished: Unfinished, text: str) -> None:
        """`text` is what to say where it was never awaited."""
        self.text = text
        self._make = make
        self._unfinished = unfinished
        self._running: Coroutine[Any, Any, R] | None = None

    def _started(self) -> Coroutine[Any, Any, R]:
        if self._running is None:
            if self in self._unfinished.pending:
                self._unfinished.pending.remove(self)
            self._running = self._make()
        return self._running

    def __await__(self) -> Generator[Any, Any, R]:
        return self._started().__await__()

    def send(self, value: Any, /) -> Any:
        return self._started().send(value)

    def throw(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
        /,
    ) -> Any:
        return self._started().throw(cast("BaseException", typ))

    def close(self) -> None:
        if self._running is not None:
            self._running.close()
