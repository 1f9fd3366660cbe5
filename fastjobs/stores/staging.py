"""Memory's part in SQLAlchemy transactions: what is pushed is staged, and joins the store as they commit.

Each staged push stands at the transaction it was made in, which may be a savepoint. A savepoint that is
released hands its pushes to the one around it, one that is rolled back drops them, and the outermost commit
delivers what is left. It imports SQLAlchemy, so `Memory` imports it at the first `within`. Longer than 300 lines,
as sessions and connections tell of their ends in two ways, which are read against each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, cast
from weakref import WeakSet

from sqlalchemy import Connection, event
from sqlalchemy.engine import Transaction
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from fastjobs.core.errors import NotAwaited, StoreError
from fastjobs.core.job import NewJob
from fastjobs.store import Ender, Pusher, SyncEnder, SyncPusher
from fastjobs.stores.outcomes import InTheWay


class Staged(NamedTuple):
    """Jobs that have their ids and are nowhere yet, or one that is to be done.

    `keep` has their store take them in, or let it go, at the commit; `drop` is called where nothing comes of it.
    """

    ids: list[str | None]
    keep: Callable[[], None]
    drop: Callable[[], None] = lambda: None


@dataclass(frozen=True, eq=False)
class Hooks:
    """What a store gives to stage with: `new` makes the jobs, the other two are `within`'s.

    `new` is also given what stands for the outermost transaction, and raises InTheWay where the jobs have to wait for
    another's. With `savepoints` the release of an outermost savepoint is a commit, for a test's transaction that never
    commits.
    """

    new: Callable[[Sequence[NewJob], object], Staged]
    committed: Callable[[], None]
    unfinished: Callable[[], str | None]
    savepoints: bool = False


def pusher(tx: object, hooks: Hooks) -> Pusher | SyncPusher:
    """What stages through `tx`, as `fastjobs.store.TransactionStore.within` says."""
    # A scoped session stands for the session of its scope, and that is the one that commits.
    scoped = isinstance(tx, (scoped_session, async_scoped_session))
    target = cast("Callable[[], object]", tx)() if scoped else tx
    if isinstance(target, Session):
        return _SyncStager(target, _session_stage(target), hooks)
    if isinstance(target, AsyncSession):
        return _Stager(target, _session_stage(target.sync_session), hooks)
    if isinstance(target, Connection):
        return _SyncStager(target, _connection_stage(target), hooks)
    if isinstance(target, AsyncConnection) and target.sync_connection is not None:
        return _Stager(target, _connection_stage(target.sync_connection), hooks)
    raise StoreError(
        "Memory pushes through an open SQLAlchemy session or connection, sync or async,"
        f" and this {type(tx).__name__} is none"
    )


def ender(tx: object, hooks: Hooks) -> Ender | SyncEnder:
    """What stages the end of a job through `tx`; `hooks.new` answers its id, or none where it's another claim's."""
    stager = pusher(tx, hooks)
    is_sync = stager.sync
    return _SyncEnder(cast("SyncPusher", stager)) if is_sync else _Ender(cast("Pusher", stager))


class _SyncEnder:
    sync: ClassVar[Literal[True]] = True

    def __init__(self, stager: SyncPusher) -> None:
        self._stager = stager

    def done(self) -> bool:
        return bool(self._stager.push(()))


class _Ender:
    sync: ClassVar[Literal[False]] = False

    def __init__(self, stager: Pusher) -> None:
        self._stager = stager

    async def done(self) -> bool:
        return bool(await self._stager.push(()))


class _SyncStager:
    sync: ClassVar[Literal[True]] = True

    def __init__(self, tx: Session | Connection, stage: _Stage, hooks: Hooks) -> None:
        self._tx = tx
        self._stage = stage
        self._hooks = hooks
        stage.join(hooks)

    def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        while True:
            try:
                return self._stage.push(self._tx, jobs, self._hooks)
            except InTheWay as met:
                met.over_in_thread()


class _Stager:
    sync: ClassVar[Literal[False]] = False

    def __init__(self, tx: AsyncSession | AsyncConnection, stage: _Stage, hooks: Hooks) -> None:
        self._tx = tx
        self._stage = stage
        self._hooks = hooks
        stage.join(hooks)

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        while True:
            try:
                # Beginning a transaction may do I/O, by a driver's way or a listener of the app's.
                return await self._tx.run_sync(self._stage.push, jobs, self._hooks)
            except InTheWay as met:
                await met.over()


class _Stage:
    """What one session or connection has staged, by the transaction or savepoint it was pushed in."""

    def __init__(self) -> None:
        self._pushed: defaultdict[object, list[tuple[Staged, Hooks]]] = defaultdict(list)
        # Those of this transaction are kept until it ends, so that a push nobody awaited is told though its
        # pusher is gone. A pusher that lives on is asked in the transactions after it as well.
        self._joined: list[Hooks] = []
        self._alive: WeakSet[Hooks] = WeakSet()

    def join(self, hooks: Hooks) -> None:
        self._joined.append(hooks)
        self._alive.add(hooks)

    def push(self, tx: Any, jobs: Sequence[NewJob], hooks: Hooks) -> list[str | None]:
        level = self.level(tx)
        staged = hooks.new(jobs, self)
        self._pushed[level].append((staged, hooks))
        return staged.ids

    def level(self, tx: Any) -> object:
        """The innermost transaction that `tx` is in, begun where there is none."""
        raise NotImplementedError

    def ask(self, *, savepoint: bool = False) -> None:
        """Raises NotAwaited where a push was made and never awaited: of all, or of those that a savepoint commits."""
        for hooks in [*self._joined, *(each for each in self._alive if each not in self._joined)]:
            if (hooks.savepoints or not savepoint) and (text := hooks.unfinished()):
                raise NotAwaited(text)

    def hand_over(self, level: object, to: object) -> None:
        if pushed := self._pushed.pop(level, None):
            self._pushed[to] += pushed

    def deliver_released(self, level: object) -> None:
        """An outermost savepoint is released: what takes that for a commit is delivered."""
        pushed = self._pushed.pop(level, [])
        self._pushed[level] += [each for each in pushed if not each[1].savepoints]
        self._keep([each for each in pushed if each[1].savepoints])

    def drop(self, level: object) -> None:
        # The latest first: what it changed is as the one before it had it.
        for staged, _ in reversed(self._pushed.pop(level, [])):
            staged.drop()

    def end(self) -> None:
        """The outermost transaction has ended: what it didn't deliver is gone."""
        for level in reversed(list(self._pushed)):
            self.drop(level)
        self._joined.clear()

    def deliver(self, *levels: object) -> None:
        pushed = [each for level in levels for each in self._pushed.pop(level, ())]
        self.end()
        self._keep(pushed)

    def _keep(self, pushed: Sequence[tuple[Staged, Hooks]]) -> None:
        for staged, _ in pushed:
            staged.keep()
        for committed in dict.fromkeys(hooks.committed for _, hooks in pushed):
            committed()


class _SessionStage(_Stage):
    def __init__(self, session: Session) -> None:
        super().__init__()
        event.listen(session, "before_commit", self._before_commit)
        event.listen(session, "after_commit", self._after_commit)
        event.listen(session, "after_transaction_end", self._after_end)

    def level(self, tx: Session) -> object:
        if not tx.is_active:
            tx.connection()  # raises SQLAlchemy's own error: a flush failed, and a rollback is due
        if tx.get_transaction() is None:
            tx.begin()
        return tx.get_nested_transaction() or tx.get_transaction()

    def _before_commit(self, session: Session) -> None:
        nested = session.get_nested_transaction()
        if nested is None:
            self.ask()
        elif not _around(nested).nested:
            self.ask(savepoint=True)

    def _after_commit(self, session: Session) -> None:
        # It's called for a savepoint's release too.
        nested = session.get_nested_transaction()
        if nested is None:
            self.deliver(session.get_transaction())
        else:
            around = _around(nested)
            if not around.nested:
                self.deliver_released(nested)
            self.hand_over(nested, around)

    def _after_end(self, session: Session, transaction: SessionTransaction) -> None:
        # After a rollback, and after a close that no other event tells of; after a commit nothing is left.
        self.drop(transaction)
        if transaction.parent is None:
            self.end()


def _around(nested: SessionTransaction) -> SessionTransaction:
    """The transaction or savepoint around a savepoint."""
    around = nested.parent
    while around is not None and not around.nested and around.parent is not None:
        around = around.parent  # a flush has one of its own
    assert around is not None
    return around


class _ConnectionStage(_Stage):
    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._released: list[tuple[Staged, Hooks]] = []
        event.listen(connection, "savepoint", self._save)
        event.listen(connection, "release_savepoint", self._release)
        event.listen(connection, "rollback_savepoint", self._roll_back_to)
        event.listen(connection, "rollback", self._roll_back)
        # The event "commit" comes before COMMIT is sent, and none comes after it, nor when it fails. So this
        # connection's own method is wrapped, which is what each commit of it goes through.
        commit = connection._commit_impl  # pyright: ignore[reportPrivateUsage]
        vars(connection)["_commit_impl"] = lambda: self._commit(connection, commit)

    def level(self, tx: Connection) -> Transaction | None:
        if not tx.in_transaction():
            tx.begin()
        return self._current(tx)

    def end(self) -> None:
        for staged, _ in reversed(self._released):
            staged.drop()
        self._released.clear()
        super().end()

    def _current(self, connection: Connection) -> Transaction | None:
        """The innermost transaction. It takes what the savepoints released in it had."""
        level = connection.get_nested_transaction() or connection.get_transaction()
        self._pushed[level] += self._released
        self._released.clear()
        return level

    def _save(self, connection: Connection, name: str | None) -> None:
        self._current(connection)

    def _release(self, connection: Connection, name: str, context: Any) -> None:
        # It comes before the release, and only after that is the one around it the current one: what this one
        # had waits for the next thing that happens to the connection.
        level = self._current(connection)
        if getattr(level, "_previous_nested", None) is None:
            self.ask(savepoint=True)
            self.deliver_released(level)
        self._released += self._pushed.pop(level, ())

    def _roll_back_to(self, connection: Connection, name: str, context: Any) -> None:
        self.drop(self._current(connection))

    def _roll_back(self, connection: Connection) -> None:
        self.end()

    def _commit(self, connection: Connection, commit: Callable[[], None]) -> None:
        self._current(connection)
        try:
            self.ask()
            commit()
        except BaseException:
            # The rollback that is due now tells of itself by no event.
            self.end()
            raise
        # A savepoint that is open still commits with the rest. One that failed to be released doesn't.
        self.deliver(
            *(level for level in self._pushed if not isinstance(level, Transaction) or level.is_active)
        )


_STAGE = "_fastjobs_stage"


# A stage lives in its session or connection, and goes with it: a table of them beside would keep both for ever,
# as what a stage holds leads back to its session.


def _session_stage(session: Session) -> _Stage:
    stage: _Stage | None = vars(session).get(_STAGE)
    if stage is None:
        stage = vars(session)[_STAGE] = _SessionStage(session)
    return stage


def _connection_stage(connection: Connection) -> _Stage:
    stage: _Stage | None = vars(connection).get(_STAGE)
    if stage is None:
        stage = vars(connection)[_STAGE] = _ConnectionStage(connection)
    return stage
