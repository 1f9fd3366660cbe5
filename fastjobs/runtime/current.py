"""The job that the current code runs for."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, overload

from fastjobs.core.errors import QueueError
from fastjobs.core.progress import progress_text

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    from fastjobs.stores.sql.raw import RawAsync, RawSync

    SyncTx = Session | Connection | scoped_session[Any] | RawSync
    AsyncTx = AsyncSession | AsyncConnection | async_scoped_session[Any] | RawAsync


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentJob:
    """The job a handler runs for."""

    id: str
    kind: str
    attempt: int
    """1 for the first."""
    last_error: str | None
    """What the attempt before failed with; None for the first."""
    carried: Mapping[str, str]
    """What its push carried, by name."""
    _done_in: Callable[[object], Coroutine[Any, Any, None] | None] | None = field(
        default=None, repr=False, compare=False
    )
    _stop_asked: Callable[[], bool] = field(default=lambda: False, repr=False, compare=False)
    _report: Callable[[str], None] = field(default=lambda text: None, repr=False, compare=False)

    @property
    def cancelled(self) -> bool:
        """Whether someone cancelled this job: it changes while the handler runs, and may be asked from any thread.

        It's for a `def` handler, which nothing else can stop: one that sees it raises or returns. What it raises
        removes the job; one that returns is done. An async handler is cancelled, and with `process=True` its process
        is ended.
        """
        return self._stop_asked()

    def progress(self, value: object) -> None:
        """Reports how far the job is: any JSON value, of 1 KiB at most as JSON, that `Queue.job` shows with the job.

        It's cheap: it answers at once, from any thread, and the last value is written about once a second, in one
        write for all jobs that run here. It's kept through retries and with a failed job, and goes with the job as
        that is done. A report that can't be written is left out, and the job goes on. Once its handler has ended it
        does nothing.

        Raises PayloadError for what is no JSON or too long, StoreError where the store has no PROGRESS.
        """
        self._report(progress_text(value, self.kind))

    @overload
    def done_in(self, tx: SyncTx) -> None: ...
    @overload
    def done_in(self, tx: AsyncTx) -> Coroutine[Any, Any, None]: ...
    def done_in(self, tx: Any) -> Any:
        """Marks the job done through the handler's own transaction: its writes and its end commit together.

        `tx` is what `Kind.in_` takes, but for a Store: `await current_job().done_in(session)` for an async one, with
        no await for a sync one, in a `def` handler. The job is done once that commits, and whatever happens to the
        handler then, it doesn't run again: what it raises after the commit goes to the log as a warning. Where it
        isn't committed as the handler ends, the attempt has failed, with a NotCommitted or with what the handler
        raised. From this call on the hold isn't renewed, so commit soon.

        Raises ClaimLost where another claim has the job by now: let it out, so that the transaction rolls back.
        Raises QueueError for a second call in one run, in an on_fail, after the handler has ended, and with
        `process=True`; StoreError for a transaction that isn't the store's, and a store without DONE_IN. A commit
        with a `done_in` that was never awaited raises NotAwaited, and doesn't commit.
        """
        if self._done_in is None:
            raise QueueError(
                "done_in is for a handler that the queue runs in the app's own process: with process=True, the end of"
                " a job is kept outside of any transaction of the handler's"
            )
        return self._done_in(tx)


class HasJob(Protocol):
    """What runs a job, and says which only where it's asked: most handlers never ask."""

    def current(self) -> CurrentJob:
        """The job."""
        ...


running_job: ContextVar[HasJob] = ContextVar("fastjobs.current_job")


def current_job() -> CurrentJob:
    """The job that this code runs for: in a handler, in its on_fail, and in what they call.

    Raises QueueError anywhere else. A task that a handler started and left behind still sees its job.
    """
    try:
        return running_job.get().current()
    except LookupError:
        raise QueueError("there's no current job here: only a handler, and what it calls, has one") from None
