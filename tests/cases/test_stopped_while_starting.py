"""A stop that comes while the app starts is not lost, and one that comes twice is one."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, os, signal, sys, time
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs

path, port, moment = sys.argv[1:]
engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
fastjobs.sqlite.configure(engine)


asked = time.monotonic()


def stop(now):
    global asked
    if moment == now:
        asked = time.monotonic()
        os.kill(os.getpid(), signal.SIGTERM)


class Store(fastjobs.SQLStore):
    async def open(self, kinds=()):
        stop("as the store opens")
        await super().open(kinds)


q = fastjobs.Queue(Store(engine), grace=0.5)


@q.kind("slow")
async def slow() -> None:
    stop("as a job starts")
    stop("twice")
    if moment == "twice":
        os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(60)


@asynccontextmanager
async def own(app):
    stop("before the queue starts")
    yield
    await engine.dispose()
    print("ended in order after", time.monotonic() - asked, flush=True)


asyncio.run(slow.push())
uvicorn.run(FastAPI(lifespan=fastjobs.lifespan(q, within=own)), port=int(port), log_level="warning")
"""

MOMENTS = ["before the queue starts", "as the store opens", "as a job starts", "twice"]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_stop_at_any_moment_of_the_start_ends_the_app_in_time(tmp_path: Path, moment: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "app.db", str(_free_port()), moment],
        capture_output=True,
        text=True,
        timeout=50,
    )
    said, _, seconds = ended.stdout.partition(" after ")
    assert said == "ended in order", ended.stderr
    assert float(seconds) < 10, "not after the minute that its job takes"
    assert ended.returncode in (0, -signal.SIGTERM, 128 + signal.SIGTERM), ended.stderr
    assert "Traceback" not in ended.stderr
