"""What a type checker makes of `kind.schedule`: the value is the kind's, and a kind without one takes none.

mypy and pyright read this file; it's never run. A line that's wrong on purpose says so by an ignore, and both
checkers fail on an ignore that nothing needs.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import BaseModel

from fastjobs import Cron, Every, Memory, Queue

q = Queue(Memory())


class Mail(BaseModel):
    user: int


class Mine:
    def next(self, after: datetime, /) -> datetime | None:
        return None


class NotOne:
    def next(self, after: datetime, /) -> str:
        return "tomorrow"


@q.kind("mail")
async def mail(value: Mail) -> None: ...


@q.kind("tick")
async def tick() -> None: ...


mail.schedule(Cron("0 2 * * *"), Mail(user=1))
mail.schedule(Every(60), Mail(user=1), name="more", missed="all", jitter=timedelta(minutes=1))
mail.schedule(Mine(), Mail(user=1), jitter=1.5)
tick.schedule(Every(60))
tick.schedule(Every(60), None, missed="skip")
mail.schedule(Every(60))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
mail.schedule(Every(60), 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
tick.schedule(Every(60), 5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
tick.schedule("0 2 * * *")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
tick.schedule(NotOne())  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
tick.schedule(Every(60), missed="never")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
