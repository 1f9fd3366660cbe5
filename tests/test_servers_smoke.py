"""Real exits: `fastjobs run` and uvicorn are told to stop while a hundred jobs run, and end by a bug of our own.

`python -m tests.servers` does this with every server, and a hundred times.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.cli.process import Process
from tests.servers.__main__ import stop_once
from tests.servers.serving import FASTJOBS, UVICORN, Server

TIMES = 5
_MEMORY = Path("/dev/shm")  # a disk that others keep busy is no part of what is tested


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as made:
        yield Path(made)


@pytest.mark.parametrize("server", [FASTJOBS, UVICORN], ids=lambda server: server.name)
@pytest.mark.timeout(180)
def test_each_exit_is_in_time_and_leaves_every_job_due_at_once_with_its_attempt(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # They share a machine that may have few cores with each other: what each takes is measured by the command.
    monkeypatch.setattr("tests.servers.__main__.SLACK", 10.0)
    with ThreadPoolExecutor(2) as pool:
        stops = list(pool.map(partial(stop_once, server), [folder / str(n) for n in range(TIMES)]))
    assert [stopped.wrong for stopped in stops] == [[]] * TIMES


BROKEN = """
import asyncio, logging
from fastapi import FastAPI
import fastjobs
from fastjobs.runtime.ledger import Ledger

logging.basicConfig(level=logging.INFO)
q = fastjobs.Queue(fastjobs.Memory(), grace=0.5)
run = Ledger.run

async def broken(ledger):
    while not ledger.pending:
        await asyncio.sleep(0.01)
    raise RuntimeError("a bug")

Ledger.run = broken

@q.kind("mail")
async def mail() -> None: ...

async def push(app):
    await mail.push()
    yield

app = FastAPI(lifespan=fastjobs.lifespan(q, within=push))
"""


def test_a_bug_of_fastjobs_own_ends_a_real_server_in_order_and_its_exit_says_that_it_was_told_to(
    tmp_path: Path,
) -> None:
    (tmp_path / "main.py").write_text(BROKEN)
    process = Process(tmp_path, "main:app", "--port", "0", module="uvicorn")
    try:
        code, _ = process.ends()
    finally:
        process.kill()
    assert 'CRITICAL:fastjobs:a bug in fastjobs part="the ledger"' in process.log
    assert "RuntimeError: a bug" in process.log
    assert "Application shutdown complete" in process.log
    # uvicorn stops in order, and then ends by the signal it was sent; older ones by 0.
    assert code in (-signal.SIGTERM, 0)
