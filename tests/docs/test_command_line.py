"""The page of the command line: each order on it is given, one after the other, and answers what the page shows."""

from __future__ import annotations

import asyncio
import importlib
import re
import shlex
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import fastjobs
from fastjobs.cli.command import main
from tests.docs.programs import ROOT, SNIPPETS

PAGE = ROOT / "docs" / "guide" / "command-line.md"
# Times, requests' IDs, and how long a job has been due.
PASSING = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z| UTC)|\b[A-Z2-7]{26}\b|\b\d+s\b|(?<=oldest\": )[\d.]+"
)


def orders() -> Iterator[tuple[str, str]]:
    """Each order of the page's consoles, and what follows it there."""
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL):
        for each in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            order, _, told = each.partition("\n")
            yield order, told


def plain(told: str) -> str:
    """Without what differs from one time to the next, columns' widths too."""
    return re.sub(" +", " ", PASSING.sub("…", told))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The app as the page has it: mails that failed, an invoice that waits."""
    shutil.copy(SNIPPETS / "command_line.py", tmp_path / "app.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delenv("FASTJOBS_QUEUE", raising=False)
    sys.modules.pop("app", None)
    yield tmp_path
    sys.modules.pop("app", None)


async def drained(q: fastjobs.Queue) -> None:
    """Has every attempt made that is left, without the waits between them."""
    async with q.running(run=False):
        while True:
            await q.drain()
            with sqlite3.connect("app.db") as database:
                waits = database.execute(
                    "UPDATE fastjobs_jobs SET run_at = 0 WHERE kind = 'verify-mail' AND failed_at IS NULL"
                ).rowcount
            database.close()
            if not waits:
                return


def test_each_order_of_the_page_answers_what_the_page_shows(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = importlib.import_module("app")
    client = TestClient(app.app)  # without its lifespan: it runs nothing
    client.post("/register/7", params={"email": "zoe@example.com"})
    client.post("/register/8", params={"email": "ann@example.com"})
    client.post("/orders/100")
    asyncio.run(drained(app.q))
    found = list(orders())
    assert len(found) > 10
    for order, told in found:
        capsys.readouterr()
        command, *words = shlex.split(order)
        assert command == "fastjobs"
        main(words)
        written = capsys.readouterr()
        assert plain(written.out + written.err) == plain(told), f"fastjobs {' '.join(words)}"
