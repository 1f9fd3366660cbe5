"""What a type checker makes of a handler: the type of its kind, of its pushes, and of what is not allowed.

mypy and pyright read this file; it's never run. A line that's wrong on purpose says so by an ignore, and both
checkers fail on an ignore that nothing needs.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypedDict, assert_type
from uuid import UUID

from pydantic import BaseModel

from fastjobs import Kind, Kinds, Memory, Queue

q = Queue(Memory())


class Mail(BaseModel):
    user: int


class Row(TypedDict):
    id: int


@q.kind("mail", attempts=5, timeout=timedelta(seconds=30), permanent=(ValueError,), backoff=5)
async def mail(value: Mail) -> None: ...


@q.kind("answers", permanent=lambda error: isinstance(error, OSError), backoff=lambda attempt: attempt * 2.0)
async def answers(value: Mail) -> int:
    return 1


@q.kind("tick")
async def tick() -> None: ...


@q.kind("ids")
async def ids(values: list[UUID]) -> None: ...


@q.kind("row")
async def row(value: Row) -> None: ...


@q.kind("maybe")
async def maybe(value: Mail | None) -> None: ...


@q.kind("in-a-thread")
def in_a_thread(value: Mail) -> int:
    return 1


@q.kind("in-a-thread-of-nothing")
def in_a_thread_of_nothing() -> None: ...


async def plain(value: int) -> str:
    return ""


def plain_sync(value: list[int]) -> str:
    return ""


class Handler:
    async def __call__(self, value: Mail) -> None: ...

    async def method(self, value: Mail) -> None: ...


kinds = Kinds()


@kinds.kind("included", priority=1)
async def included(value: Mail) -> None: ...


assert_type(mail, Kind[Mail])
assert_type(answers, Kind[Mail])
assert_type(tick, Kind[None])
assert_type(ids, Kind[list[UUID]])
assert_type(row, Kind[Row])
assert_type(maybe, Kind[Mail | None])
assert_type(included, Kind[Mail])
assert_type(in_a_thread, Kind[Mail])
assert_type(in_a_thread_of_nothing, Kind[None])
assert_type(q.kind("plain")(plain), Kind[int])
assert_type(q.kind("plain-sync")(plain_sync), Kind[list[int]])
assert_type(q.kind("lambda")(lambda: None), Kind[None])
assert_type(q.kind("object")(Handler()), Kind[Mail])
assert_type(q.kind("method")(Handler().method), Kind[Mail])


@mail.on_fail
async def mail_failed(value: Mail, error: Exception) -> int:
    return value.user


@tick.on_fail
async def tick_failed(error: Exception) -> None: ...


@ids.on_fail
async def ids_failed(values: list[UUID], error: Exception) -> None: ...


@in_a_thread.on_fail
def in_a_thread_failed(value: Mail, error: Exception) -> None: ...


@in_a_thread_of_nothing.on_fail
def in_a_thread_of_nothing_failed(error: Exception) -> None: ...


async def pushes() -> None:
    assert_type(await in_a_thread.push(Mail(user=1)), str | None)
    assert_type(await in_a_thread_of_nothing.push(), str | None)
    assert_type(await mail_failed(Mail(user=1), ValueError()), int)
    await tick_failed(ValueError())
    assert_type(await mail.push(Mail(user=1)), str | None)
    assert_type(await mail.push(Mail(user=1), at=datetime.now(UTC)), str | None)
    assert_type(await mail.push(Mail(user=1), after=5), str | None)
    assert_type(await mail.push(Mail(user=1), after=timedelta(days=1)), str | None)
    assert_type(await mail.push_many([Mail(user=1)]), list[str | None])
    assert_type(await mail.push_many(Mail(user=each) for each in range(3)), list[str | None])
    assert_type(await tick.push(), str | None)
    assert_type(await tick.push(None), str | None)
    assert_type(await tick.push(after=5), str | None)
    assert_type(await tick.push_many([None]), list[str | None])
    assert_type(await ids.push([UUID(int=1)]), str | None)
    assert_type(await row.push({"id": 1}), str | None)
    assert_type(await maybe.push(None), str | None)
    assert_type(await maybe.push(Mail(user=1)), str | None)


async def refused_pushes() -> None:
    await mail.push(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await mail.push()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await mail.push({"user": 1})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await mail.push(Mail(user=1), after="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await mail.push(Mail(user=1), at=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await mail.push_many([5])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    await tick.push(Mail(user=1))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def of_two(value: Mail, other: Mail) -> None: ...
async def of_keyword(*, value: Mail) -> None: ...
def of_two_sync(value: Mail, other: Mail) -> None: ...


q.kind("two")(of_two)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
q.kind("keyword")(of_keyword)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
q.kind("two-sync")(of_two_sync)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
q.kind("retries", retries=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
q.kind("attempts", attempts="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
mail.on_fail(tick_failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
mail.on_fail(ids_failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
