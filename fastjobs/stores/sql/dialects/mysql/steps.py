"""What is done on MySQL and MariaDB, written as steps: statements, each with its values, whose answers come back.

So the same is done by the store's own links, in the app's transaction through SQLAlchemy, and through a driver's own
connection. Placeholders are `%s`, as all three drivers have them; one for a tuple of values becomes a list in brackets,
or behind `ROWS` the rows of a table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, StatementError

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.dialects.mysql.errors import CHANGED, DUPLICATE, code, is_locked_out

_T = TypeVar("_T")

ROWS = "JSON_TABLE("

Where = Literal["here", "committed", "newest"]
"""In the transaction itself; or beside it, where what is committed is seen, or also what nobody has committed yet."""


class Step(NamedTuple):
    """One statement."""

    text: str
    values: tuple[object, ...] = ()
    meets_others: bool = False
    """Whether it may meet a key that's there, or a lock that's had: then that is its answer, and no error."""
    verified: bool = False
    """Whether what it reads must be true now, and not as of the transaction's start. What its first column says tells
    the rows apart."""
    where: Where = "here"


class Found(NamedTuple):
    """A statement's answer."""

    rows: Sequence[Sequence[Any]] = ()
    id: int = 0
    """The first id that it gave a row."""
    is_duplicate: bool = False
    is_locked: bool = False


Steps = Generator[Step, Found, _T]
Ask = Callable[[Step], Found]
"""Takes one step."""

_AS_IT_IS = "/*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */ "
"""Before a statement that locks: a MariaDB that has this setting takes a row for none of its own to change that another
has changed since the transaction's start, as the marks of a job that runs do. Others take it for a comment."""

PAUSES = (0.005, 0.01, 0.02, *(0.05,) * 60)
"""Seconds between the looks at what another's open transaction has pushed."""


def in_line(cursor: Any, steps: Steps[_T]) -> _T:
    """Takes the steps on this cursor of a driver's connection."""
    try:
        step = next(steps)
        while True:
            try:
                cursor.execute(*sent(step))
            except Exception as error:
                step = steps.send(_answer(step, error))
                continue
            rows = cursor.fetchall() if cursor.description else ()
            step = steps.send(Found(rows, cursor.lastrowid or 0))
    except StopIteration as end:
        answer: _T = end.value
        return answer


def through(connection: Connection, steps: Steps[_T], beside: Ask | None = None) -> _T:
    """Takes the steps in SQLAlchemy's transaction, and those that are beside it by `beside`."""

    def ask(step: Step) -> Found:
        if step.where != "here" and beside is not None:
            return beside(step)
        try:
            result = connection.exec_driver_sql(*sent(step))
        except DBAPIError as error:
            return answer_within(step, error)
        found = result.fetchall() if result.returns_rows else ()
        return Found(found, _id(result))

    try:
        step = next(steps)
        while True:
            step = steps.send(ask(step))
    except StopIteration as end:
        answer: _T = end.value
        return answer
    except StatementError as error:
        error.hide_parameters = True  # its text would have the value, and goes to logs
        raise


def seen_now(steps: Steps[_T]) -> Steps[_T]:
    """The steps in a transaction of which it isn't known what it sees, and for how long it will be open.

    What must be true now is read beside it: what is committed there, unless someone is removing or changing it; and
    what nobody has committed, if this transaction sees it, as then it's its own. What is someone else's is waited for
    without a lock: one that waits for a row has others wait for it until its transaction ends.
    """
    try:
        step = next(steps)
        while True:
            if step.verified:
                found = yield from _verified(step)
            elif step.where == "here" and not _only_reads(step.text):
                found = yield step._replace(text=_AS_IT_IS + step.text)
            else:
                found = yield step
            step = steps.send(found)
    except StopIteration as end:
        answer: _T = end.value
        return answer


def _verified(step: Step) -> Steps[Found]:
    rows: list[Sequence[Any]] = []
    for pause in (*PAUSES, None):
        newest = {row[0] for row in (yield step._replace(where="newest")).rows}
        if not newest:
            return Found()
        found = yield step._replace(where="committed")
        rows = [row for row in found.rows if row[0] in newest]
        known = {row[0] for row in rows}
        if known != newest:
            found = yield step
            rows += [row for row in found.rows if row[0] in newest and row[0] not in known]
        if pause is None or {row[0] for row in rows} == newest:
            break
        yield Step("DO SLEEP(%s)", (pause,))
    # Whoever has it still may wait for this transaction as well, which the server finds out.
    return Found(rows)


def _only_reads(text: str) -> bool:
    return text.lstrip("(").startswith("SELECT") and "FOR UPDATE" not in text


def aside(step: Step) -> Steps[Found]:
    """The step as it's taken beside a transaction, by a connection that commits each statement."""
    if step.where == "newest":
        yield Step("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
    return (yield step)


def sent(step: Step) -> tuple[str, tuple[object, ...] | None]:
    """The statement as a driver takes it. Bytes go as hexadecimal text: aiomysql can't send them beside a PyMySQL of
    1.2 or newer."""
    text, values = step.text, step.values
    if not any(isinstance(value, (tuple, bytes)) for value in values):
        return text, values or None
    first, *rest = text.split("%s")
    parts, flat = [first], list[object]()
    for value, part in zip(values, rest, strict=True):
        if isinstance(value, tuple):
            some = cast("tuple[object, ...]", value)
            if parts[-1].endswith(ROWS):
                parts.append("%s")
                flat.append(json.dumps([*map(_plain, some)]))
            else:
                parts.append(f"({', '.join(map(_mark, some))})")
                flat.extend(map(_plain, some))
        else:
            parts.append(_mark(value))
            flat.append(_plain(value))
        parts.append(part)
    return "".join(parts), tuple(flat)


def _mark(value: object) -> str:
    return "UNHEX(%s)" if isinstance(value, bytes) else "%s"


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value


def _id(result: Any) -> int:
    return 0 if result.returns_rows else result.lastrowid or 0


def answer_within(step: Step, error: Exception) -> Found:
    """What an error of this statement in the app's transaction answers; raises it again where it's none.

    One that waited in vain is the app's to hear of: it may have lost the transaction by that.
    """
    if step.meets_others and code(error) == DUPLICATE:
        return Found(is_duplicate=True)
    if code(error) == CHANGED:
        raise StoreError(
            "the queue's tables were made or altered after this transaction had begun to read, so it can't read them:"
            " roll it back and do it once more"
        ) from error
    raise error


def _answer(step: Step, error: Exception) -> Found:
    """The same on a link of the store's own, where a lock that's had is an answer, too."""
    if step.meets_others and is_locked_out(error):
        return Found(is_locked=True)
    return answer_within(step, error)
