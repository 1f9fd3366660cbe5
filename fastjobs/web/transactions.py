"""Jobs in a request's own transaction, as a dependency: `jobs_in_tx(q, Tx)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_args, get_origin

from fastjobs.core.errors import RegistrationError

if TYPE_CHECKING:
    from fastjobs.runtime.kind import AsyncTx, Kind, SyncTx
    from fastjobs.runtime.pushing import AsyncPush, SyncPush
    from fastjobs.runtime.queue import Queue

T = TypeVar("T")


class InTx:
    """Pushes in the request's async transaction: `await jobs(welcome).push(value)` is `welcome.in_(tx).push(value)`.

    A route annotates it with the dependency that `jobs_in_tx` makes:
    `jobs: Annotated[fastjobs.InTx, Depends(jobs_in_tx)]`.
    """

    def __init__(self, q: Queue, tx: AsyncTx) -> None:
        self._q = q
        self.tx = tx
        """The transaction, which is the very one that the route has by the same alias."""

    def __call__(self, kind: Kind[T]) -> AsyncPush[T]:
        """The kind, pushing in the transaction. Raises RegistrationError for a kind of another queue."""
        return _of(self._q, kind).in_(self.tx)


class SyncInTx:
    """Pushes in the request's sync transaction: `jobs(welcome).push(value)`, with no await.

    `InTx` is its twin for an AsyncSession or AsyncConnection.
    """

    def __init__(self, q: Queue, tx: SyncTx) -> None:
        self._q = q
        self.tx = tx
        """The transaction, which is the very one that the route has by the same alias."""

    def __call__(self, kind: Kind[T]) -> SyncPush[T]:
        """The kind, pushing in the transaction. Raises RegistrationError for a kind of another queue."""
        return _of(self._q, kind).in_(self.tx)


def jobs_in_tx(q: Queue, tx: object) -> Callable[..., Any]:
    """A FastAPI dependency that pushes jobs through the request's transaction: kept as it commits, or not at all.

        Tx = Annotated[AsyncSession, Depends(get_tx, scope="function")]
        jobs_in_tx = fastjobs.jobs_in_tx(q, Tx)

        @app.post("/register")
        async def register(tx: Tx, jobs: Annotated[fastjobs.InTx, Depends(jobs_in_tx)]) -> None: ...

    `tx` is the app's own alias, and not `get_tx`: its scope is a part of what FastAPI tells dependencies apart by, so
    the bare function with another scope would be another session, with a transaction of its own. Either scope works;
    only `scope="function"` commits before the response is sent. The route's annotation is `InTx` for an async session
    or connection and `SyncInTx` for a sync one. Raises RegistrationError for what is no such alias.
    """
    alias = getattr(tx, "__value__", tx)  # what a `type Tx = …` statement stands for
    if not _is_dependency(alias):
        name = getattr(tx, "__name__", "get_tx") if callable(tx) and not get_args(tx) else "get_tx"
        is_async = inspect.isasyncgenfunction(tx) or inspect.iscoroutinefunction(tx)
        session = "Session" if inspect.isfunction(tx) and not is_async else "AsyncSession"
        raise RegistrationError(
            f"jobs_in_tx takes the alias that the routes use for their transaction, not {tx!r}:"
            f' Tx = Annotated[{session}, Depends({name}, scope="function")], then jobs_in_tx(q, Tx)'
        )

    # async, as FastAPI runs a sync dependency in a thread; and no yield, so that either scope may be beneath it.
    async def jobs(tx: Any) -> InTx | SyncInTx:
        is_async = inspect.iscoroutinefunction(getattr(cast("object", tx), "commit", None))
        return InTx(q, tx) if is_async else SyncInTx(q, tx)

    # Objects, not the strings of `from __future__ import annotations`: a local name isn't found from a string.
    jobs.__annotations__ = {"tx": alias, "return": Any}
    return jobs


def _is_dependency(alias: object) -> bool:
    """Whether it's an Annotated with FastAPI's Depends, known by its shape, so that FastAPI needn't be imported."""
    if get_origin(alias) is not Annotated:
        return False
    return any(hasattr(each, "dependency") and hasattr(each, "use_cache") for each in get_args(alias)[1:])


def _of(q: Queue, kind: Kind[T]) -> Kind[T]:
    if kind.queue is not None and kind.queue is not q:
        raise RegistrationError(
            f"kind {kind.name!r} is of another queue than these jobs: each queue has a jobs_in_tx of its own"
        )
    return kind
