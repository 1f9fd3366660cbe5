"""What SQLStore asks of a database: a class for each dialect, with a reason for each thing that differs in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.job import NewJob
from fastjobs.core.marks import Kept, Mark
from fastjobs.store import Cancelled, Places, Run, Throttled
from fastjobs.stores.sql.dialects.mysql.beside import Beside

_T = TypeVar("_T")


class Database(Protocol):
    """One database, for one store. Nothing is connected before `open`, or the first call without one."""

    @property
    def name(self) -> str:
        """SQLAlchemy's name of the dialect."""
        ...

    @property
    def beside(self) -> Beside | None:
        """What asks beside a transaction of the app's, where that's needed."""
        ...

    async def open(self, kinds: Sequence[str]) -> None:
        """Connects, makes or upgrades the tables, and notes the kinds."""
        ...

    async def close(self) -> None:
        """Lets go of what it has connected on this loop, once all that was asked before is done."""
        ...

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]: ...

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, ahead: int, others: Claimable | None
    ) -> Claimed: ...

    async def mark(self, some: Sequence[Mark]) -> list[Kept]: ...

    async def prune(self, failed_for: int, limit: int) -> int: ...

    async def sweep(self) -> int: ...

    async def take(self, asked: Sequence[Throttled]) -> list[Places]: ...

    async def settle(self, started: Sequence[tuple[Places, int, int]]) -> None: ...

    async def cancel(self, ids: Sequence[str]) -> list[Cancelled]: ...

    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None: ...

    async def tell_the_time(self) -> int:
        """As `now`, of a database that is connected."""
        ...

    async def runs(self, names: Sequence[str]) -> Mapping[str, int]: ...

    async def push_run(self, run: Run) -> bool: ...

    def listen(self, wake: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """While entered, calls `wake`, from any thread, when another instance may have pushed."""
        ...

    async def run(self, work: Callable[[Connection], _T]) -> _T:
        """Runs what is written once for all databases, in a transaction that is committed after it."""
        ...

    async def look(self, work: Callable[[Connection], _T]) -> _T:
        """Runs what only reads and is written once for all databases; it waits for nobody's transaction."""
        ...

    def tell_soon(self) -> None:
        """Has other instances look, as after a push. What it comes after is committed; it's called on a loop that the
        database is open on."""
        ...

    def prepare(self, connection: Connection, kinds: Sequence[str]) -> None:
        """Makes the app's transaction one that can be pushed in, and sees to it that each kind has a row."""
        ...

    def tell(self, connection: Connection) -> Callable[[], None] | None:
        """Has other instances hear of a push in the app's transaction as it commits; or what is to be called then."""
        ...

    def freed(self, kind: str, key: bytes) -> Callable[[], None] | None:
        """What is to be called after a commit of the app's that ended the job which had the key; None for nothing."""
        ...

    def now(self) -> int:
        """The database's now, in Unix microseconds."""
        ...
