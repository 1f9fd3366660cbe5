"""An app on SQLite in a folder of its own, for the commands that ask its queue: its clock stands still."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fastjobs.cli.command import main

MODULE = "shop_of_jobs"
APP = """
import fastjobs
from fastjobs.testing import Clock
from pydantic import BaseModel
from sqlalchemy import create_engine

START = 1_790_589_723_000_000  # 2026-09-28T10:02:03Z
clock = Clock(START)
engine = create_engine("sqlite:///app.db")
fastjobs.sqlite.configure(engine)
store = fastjobs.SQLStore(engine, clock=clock)
q = fastjobs.Queue(store, clock=clock, carry=[fastjobs.CarryRequestID()])
error: Exception = ConnectionRefusedError("smtp.example.com:587: connection refused")

class Mail(BaseModel):
    user: int
    email: str

@q.kind("verify-mail", attempts=2, backoff=0)
async def verify(mail: Mail) -> None:
    raise error

@q.kind("report", attempts=1)
async def report() -> None:
    raise fastjobs.Permanent("no data")

@q.kind("index", unique=fastjobs.Unique(one_at_a_time=True))
async def index(post: int) -> None: ...
"""


class Shop:
    """The app, and what is typed in its folder."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        (folder / "app.db").touch()  # a command makes no database; the app's first start does
        self.write()

    def write(self, more: str = "") -> None:
        """Writes the app, with more at its end, and has it imported anew."""
        (self.folder / f"{MODULE}.py").write_text(APP + more)
        self._monkeypatch.delitem(sys.modules, MODULE, raising=False)
        importlib.invalidate_caches()

    def do(self, work: Callable[[Any], Awaitable[object]]) -> Any:
        """Has the app do something, in the way that `work` says of its module; the store is closed after it."""
        app: ModuleType = importlib.import_module(MODULE)

        async def done() -> object:
            try:
                return await work(app)
            finally:
                await app.store.close()

        return asyncio.run(done())

    def typed(self, *words: str) -> tuple[int, str, str]:
        """The exit code of `fastjobs …`, and what it wrote to stdout and stderr."""
        self._capsys.readouterr()
        code = main(words)
        told = self._capsys.readouterr()
        return code, told.out, told.err


async def fail(app: Any, users: int = 1, *, email: str = "ann@example.com") -> None:
    """Has mails fail for good, of as many users."""
    for user in range(1, users + 1):
        await app.verify.push(app.Mail(user=user, email=email))
    await app.q.drain()
