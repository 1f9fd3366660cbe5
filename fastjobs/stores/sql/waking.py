"""Wakes the queue after a commit that made its jobs visible, and asks before one whether all pushes were awaited.

A wake is a hint: it may come for nothing, and the poll is the truth. So an error in it is logged and goes no
further: raised in a listener it would come out of the app's `commit()`, of a transaction that is kept.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import weakref
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.pool import ConnectionPoolEntry

from fastjobs.core.errors import NotAwaited

log = logging.getLogger("fastjobs")

_AGAIN_AFTER = (0.005, 0.05)
_KEY = "fastjobs"


class Watch:
    """What is to be told and asked at the end of one session's or connection's transaction."""

    def __init__(self) -> None:
        self._told: dict[Callable[[], None], None] = {}
        self._asked: dict[Callable[[], str | None], None] = {}
        self._asked_before: weakref.WeakSet[Callable[[], str | None]] = weakref.WeakSet()
        """Of transactions that have ended: whoever keeps its pusher may push in the next one too."""
        self._pushed: set[str] = set()

    def tells(self, committed: Callable[[], None], kinds: Iterable[str]) -> None:
        """Has it called once after the commit of jobs of these kinds, however often it's said."""
        self._told[committed] = None
        self._pushed.update(kinds)

    def asks(self, unfinished: Callable[[], str | None]) -> None:
        """Has it asked before the commit."""
        self._asked[unfinished] = None

    def refuse(self) -> None:
        """Raises NotAwaited where something asked has a text to say."""
        for unfinished in [*self._asked, *self._asked_before]:
            said = unfinished()
            if said is not None:
                raise NotAwaited(said)

    def told(self) -> list[Callable[[], None]]:
        """Those to call after this commit, each once."""
        told, self._told = list(self._told), {}
        self._pushed.clear()
        return told

    def lost(self) -> list[str]:
        """The kinds of jobs that were pushed and neither committed nor rolled back."""
        return sorted(self._pushed)

    def clear(self) -> None:
        """Forgets all: the transaction has ended."""
        self._pushed.clear()
        self._told.clear()
        self._asked_before.update(self._asked)
        self._asked.clear()


def call(told: list[Callable[[], None]]) -> None:
    """Calls each, whatever the others raise."""
    for committed in told:
        try:
            committed()
        except Exception:
            log.warning(
                "the queue couldn't be woken after a commit; its poll will find the jobs", exc_info=True
            )


def call_around(told: list[Callable[[], None]]) -> None:
    """Calls each now, and on a running loop again soon: a commit is about to be sent, or nobody tells of it."""
    call(told)
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    for delay in _AGAIN_AFTER:
        loop.call_later(delay, call, told, context=contextvars.Context())


def watch_session(session: Session) -> Watch:
    """The session's watch, whose listeners are set once in its life."""
    found = session.info.get(_KEY)
    if isinstance(found, Watch):
        return found
    watch = session.info[_KEY] = Watch()
    event.listen(session, "before_commit", _before_commit)
    event.listen(session, "after_commit", _after_commit)
    event.listen(session, "after_rollback", _after_rollback)
    event.listen(session, "after_transaction_end", _after_end)
    return watch


def _before_commit(session: Session) -> None:
    if session.get_nested_transaction() is None:
        watch_session(session).refuse()


def _after_commit(session: Session) -> None:
    # It's told of a released SAVEPOINT as of a commit.
    if session.get_nested_transaction() is None:
        call(watch_session(session).told())


def _after_rollback(session: Session) -> None:
    if session.get_nested_transaction() is None:
        watch_session(session).clear()


def _after_end(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None:
        watch = watch_session(session)
        lost = watch.lost()
        watch.clear()
        if lost:
            # A push after the last commit is in a transaction that nobody commits: no error says so. That an error
            # closes the session can be seen in a sync one alone, as an async one closes in a task of its own.
            is_async = session.get_bind().dialect.is_async if session.bind is not None else True
            level = logging.INFO if is_async else logging.DEBUG if sys.exc_info()[0] else logging.WARNING
            log.log(
                level,
                "a session was closed without a commit, so the jobs that were pushed in it are gone: commit after the"
                " push kinds=%s",
                ",".join(lost),
            )


_connections: weakref.WeakKeyDictionary[Connection, Watch] = weakref.WeakKeyDictionary()


def watch_connection(connection: Connection) -> Watch:
    """The connection's watch, whose listeners are set once in its life."""
    found = _connections.get(connection)
    if found is None:
        found = _connections[connection] = Watch()
        try:
            event.listen(connection, "commit", _on_commit)
            event.listen(connection, "rollback", _on_rollback)
        except InvalidRequestError:
            _listen_to_view(connection.engine)
    return found


_views: weakref.WeakSet[Engine] = weakref.WeakSet()
"""Engines with execution options, whose connections have no events of their own in SQLAlchemy's first 2.0 releases."""


def _listen_to_view(engine: Engine) -> None:
    if engine in _views:
        return
    _views.add(engine)

    def committed(connection: Connection) -> None:
        if connection in _connections:
            _on_commit(connection)

    def rolled_back(connection: Connection) -> None:
        if connection in _connections:
            _on_rollback(connection)

    event.listen(engine, "commit", committed)
    event.listen(engine, "rollback", rolled_back)


def _on_commit(connection: Connection) -> None:
    watch = watch_connection(connection)
    try:
        watch.refuse()
    except NotAwaited:
        # SQLAlchemy counts the transaction as over, whatever is raised here, so it's ended by hand.
        connection.dialect.do_rollback(connection.connection)
        watch.clear()
        raise
    told = watch.told()
    watch.clear()
    if not told:
        return
    # COMMIT is only about to be sent. Whoever looks at once may be too early, and so they're told again: soon,
    # and as the connection goes back to the pool, which comes after the COMMIT for certain.
    connection.connection.info.setdefault(_KEY, []).extend(told)
    _listen_to_pool(connection)
    call_around(told)


def _on_rollback(connection: Connection) -> None:
    watch_connection(connection).clear()


_pools: weakref.WeakSet[Dialect] = weakref.WeakSet()
"""Engines whose pool is listened to, by what stays the same as an engine makes itself a new pool."""


def _listen_to_pool(connection: Connection) -> None:
    if connection.dialect not in _pools:
        _pools.add(connection.dialect)
        event.listen(connection.engine.pool, "checkin", _on_checkin)


def _on_checkin(_: object, record: ConnectionPoolEntry) -> None:
    wake_now(record.info)


def wake_now(info: MutableMapping[Any, Any]) -> None:
    """Tells those who wait for the COMMIT of the connection with this info: it has been sent, and has come back."""
    told = info.pop(_KEY, None)
    if told:
        call(told)
