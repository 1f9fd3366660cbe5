"""What is done on MySQL and MariaDB, written as steps: statements, each with its values, whose answers come back.

So the same is done by the store's own links, in the app's transaction through SQLAlchemy, and through a driver's own
connection. Placeholders are `%s`, as all three drivers have them; one for a tuple of values becomes a list in brackets.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, StatementError

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.dialects.mysql.errors import CHANGED, DUPLICATE, code, is_locked_out

_T = TypeVar("_T")


class Step(NamedTuple):
    """One statement."""

    text: str
    values: tuple[object, ...] = ()
    meets_others: bool = False
    """Whether it may meet a key that's there, or a lock that's had: then that is its answer, and no error."""
    verified: bool = False
    """Whether rows that it answers must be true now: a transaction that reads as of its start asks another for it."""


class Found(NamedTuple):
    """A statement's answer."""

    rows: Sequence[Sequence[Any]] = ()
    id: int = 0
    """The first id that it gave a row."""
    is_duplicate: bool = False
    is_locked: bool = False


Steps = Generator[Step, Found, _T]


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


def through(connection: Connection, steps: Steps[_T]) -> _T:
    """Takes the steps in SQLAlchemy's transaction."""
    try:
        step = next(steps)
        while True:
            try:
                result = connection.exec_driver_sql(*sent(step))
            except DBAPIError as error:
                step = steps.send(_answer(step, error))
                continue
            found = result.fetchall() if result.returns_rows else ()
            step = steps.send(Found(found, _id(result)))
    except StopIteration as end:
        answer: _T = end.value
        return answer
    except StatementError as error:
        error.hide_parameters = True  # its text would have the value, and goes to logs
        raise


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
            parts.append(f"({', '.join(map(_mark, value))})")
            flat.extend(map(_plain, value))
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


def _answer(step: Step, error: Exception) -> Found:
    """What an error of this statement answers; raises it again where it's none of the two."""
    if step.meets_others and code(error) == DUPLICATE:
        return Found(is_duplicate=True)
    if step.meets_others and is_locked_out(error):
        return Found(is_locked=True)
    if code(error) == CHANGED:
        raise StoreError(
            "the queue's tables were made or altered after this transaction had begun to read, so it can't read them:"
            " roll it back and do it once more"
        ) from error
    raise error
