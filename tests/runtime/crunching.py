"""Handlers that run in a process of their own, which finds them here by import."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Mapping, MutableMapping
from contextvars import ContextVar
from pathlib import Path

from pydantic import BaseModel

import fastjobs

kinds = fastjobs.Kinds()


class Order(BaseModel):
    do: str
    path: Path | None = None


tenant: ContextVar[str] = ContextVar("tenant", default="none")
theme: ContextVar[str] = ContextVar("theme", default="none")
colour: ContextVar[str] = ContextVar("colour", default="none")


class CarryTenant:
    """One that has nothing of its own."""

    def carry(self, into: MutableMapping[str, str]) -> None:
        into["tenant"] = tenant.get()

    def restore(self, carried: Mapping[str, str]) -> None:
        tenant.set(carried["tenant"])


class RestoreTheme:
    """What stands for a CarryTheme in a process."""

    def carry(self, into: MutableMapping[str, str]) -> None: ...

    def restore(self, carried: Mapping[str, str]) -> None:
        theme.set(carried["theme"])


class CarryTheme(RestoreTheme):
    in_process = RestoreTheme

    def __init__(self, name: str) -> None:
        self.name = name

    def carry(self, into: MutableMapping[str, str]) -> None:
        into["theme"] = self.name


class CarryColour:
    def __init__(self, name: str = "blue") -> None:
        self.name = name

    def carry(self, into: MutableMapping[str, str]) -> None:
        into["colour"] = self.name

    def restore(self, carried: Mapping[str, str]) -> None:
        colour.set(self.name)


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
        case "context":
            from opentelemetry.baggage import get_all
            from opentelemetry.trace import get_current_span

            assert order.path is not None
            span = get_current_span().get_span_context()
            here = {
                "request": fastjobs.request_id(),
                "tenant": tenant.get(),
                "theme": theme.get(),
                "colour": colour.get(),
                "trace": [span.trace_id, span.span_id],
                "baggage": dict(get_all()),
                "sdk": "opentelemetry.sdk" in sys.modules,
            }
            order.path.write_text(json.dumps(here))
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
