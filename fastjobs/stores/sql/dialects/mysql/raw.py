"""Pushes, and ends of jobs, in a transaction that was begun on asyncmy's, aiomysql's or PyMySQL's own connection."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Engine

from fastjobs.core.errors import StoreError
from fastjobs.core.job import Job, NewJob
from fastjobs.stores.sql.dialects.mysql import within
from fastjobs.stores.sql.dialects.mysql.beside import Beside
from fastjobs.stores.sql.dialects.mysql.statements import make_statements
from fastjobs.stores.sql.dialects.mysql.steps import Found, Step, Steps, answer_within, sent
from fastjobs.stores.sql.raw import RawAsync, RawSync
from fastjobs.stores.sql.tables import Tables
from fastjobs.stores.sql.values import claimed_row

_IN_TRANSACTION = 1
"""The bit of the server's status that says so."""


class RawMySQL:
    """What is sent through one connection, step by step: whoever takes the steps awaits their answers, or doesn't."""

    def __init__(
        self,
        now: Callable[[], int],
        beside: Beside | None,
        tables: Tables,
        engine: Engine,
        tx: RawSync | RawAsync,
        committed: Callable[[], None],
    ) -> None:
        self.committed = committed
        self._now = now
        self._beside = beside
        self._texts = make_statements(tables)
        self._connection = tx.connection
        self._driver = tx.driver
        # With a schema the tables are named with it, whichever database the connection is of.
        self._database = engine.url.database if tables.schema is None else None
        # A cursor of the driver's own, so that rows are tuples whatever the app has its connection make of them.
        self._cursor: Any = importlib.import_module(f"{tx.driver}.cursors").Cursor

    def push(self, jobs: Sequence[NewJob]) -> Steps[list[str | None]]:
        """Inserts the jobs, and answers their ids."""
        self._check()
        if not jobs:
            return []
        return (yield from within.push_steps(self._texts, jobs, self._now(), self._beside, self._database))

    def done(self, job: Job) -> Steps[bool]:
        """Removes the job, and answers whether its claim had it."""
        self._check()
        row = claimed_row(job.id, job.claim)
        if row is None:
            return False
        return (yield from within.done_steps(self._texts, *row, self._now(), self._database)).was_held

    def execute(self, step: Step) -> Found:
        """One step, by PyMySQL."""
        if step.where != "here" and self._beside is not None:
            return self._beside.asks_sync()(step)
        with self._connection.cursor(self._cursor) as cursor:
            try:
                cursor.execute(*sent(step))
            except Exception as error:
                return answer_within(step, error)
            return Found(cursor.fetchall() if cursor.description else (), cursor.lastrowid or 0)

    async def execute_async(self, step: Step) -> Found:
        """One step, by an async driver."""
        if step.where != "here" and self._beside is not None:
            return await self._beside.read(step)
        async with self._connection.cursor(self._cursor) as cursor:
            try:
                await cursor.execute(*sent(step))
            except Exception as error:
                return answer_within(step, error)
            return Found(await cursor.fetchall() if cursor.description else (), cursor.lastrowid or 0)

    def _check(self) -> None:
        """Refuses a connection that is in no transaction, where each statement would be kept by itself."""
        connection = self._connection
        # One that commits by hand begins one by itself, at the next statement.
        if not connection.get_autocommit():
            return
        is_begun = (
            connection.server_status & _IN_TRANSACTION
            if self._driver == "pymysql"
            else connection.get_transaction_status()
        )
        if not is_begun:
            raise StoreError(
                "this connection is in no transaction, so what is pushed or done in it would be kept at once: begin one"
                " first, and commit it afterwards"
            )
