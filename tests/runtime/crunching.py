"""Handlers that run in a process of their own, which finds them here by import."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Awaitable
from pathlib import Path

from pydantic import BaseModel

import fastjobs

kinds = fastjobs.Kinds()


class Order(BaseModel):
    do: str
    path: Path | None = None


class Odd(Exception):
    """One that wants more than a text, and keeps it to itself."""

    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(code)
        self.hint = hint

    def __str__(self) -> str:
        return f"code {self.args[0]}: {self.hint}"


async def _later() -> None: ...


@kinds.kind("crunch", process=True, attempts=2, timeout=30, backoff=0, permanent=Odd)
def crunch(order: Order) -> Awaitable[None] | None:
    match order.do:
        case "tell":
            assert order.path is not None
            job = fastjobs.current_job()
            told = f"{job.kind} {job.attempt} {job.last_error} {fastjobs.request_id()} {os.getpid()} {os.getppid()}"
            order.path.write_text(told)
        case "raise":
            raise ValueError("no such image")
        case "odd":
            raise Odd(7, hint="upside down")
        case "snooze":
            raise fastjobs.Snooze("later", after=600)
        case "exit":
            os._exit(3)
        case "crash":
            ctypes.string_at(0)
        case "report":
            for step in range(100):
                fastjobs.current_job().progress({"step": step})
            raise ValueError("at step 99")
        case "report-badly":
            assert not fastjobs.current_job().cancelled
            fastjobs.current_job().progress(order)
        case "system-exit":
            raise SystemExit(4)
        case "coroutine":
            return _later()
        case "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
        case "hang":
            assert order.path is not None
            order.path.write_text(str(os.getpid()))
            time.sleep(600)
        case _:
            pass
    return None


def hang(path: Path) -> None:
    path.write_text(str(os.getpid()))
    time.sleep(600)


def shadowed() -> None: ...  # pyright: ignore[reportRedeclaration]


shadow = shadowed


def shadowed() -> None: ...  # type: ignore[no-redef]
