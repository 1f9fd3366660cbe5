"""The newsletter example: all of its letters on a moved clock, and a few for real."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fastjobs
from examples.newsletter import jobs as example
from fastjobs.testing import Clock

ROOT = Path(__file__).parent.parent.parent
LETTERS = 2000


class Mailer:
    """Sends in 20 ms of the clock's, and knows when each was begun and how many were under way."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.letters: list[float] = []
        self.resets: list[float] = []
        self.most = 0
        self._under_way = 0

    async def send(self, to: str, text: str) -> None:
        if "reset" in text:
            self.resets.append(self._clock.monotonic())
            return
        self.letters.append(self._clock.monotonic())
        self._under_way += 1
        self.most = max(self.most, self._under_way)
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clock.call_later(0.02, lambda: None if sent.done() else sent.set_result(None))
        await sent
        self._under_way -= 1


@pytest.mark.anyio
async def test_no_second_has_more_than_fifty_letters_nor_two_at_once_more_and_no_reset_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    mailer = Mailer(clock)
    monkeypatch.setattr(example, "send", mailer.send)
    q = fastjobs.Queue(fastjobs.Memory(clock=clock), clock=clock, workers=4)
    q.include(example.jobs)
    asked: list[float] = []
    async with q.running():
        await example.publish(1, [f"reader{n}@example.org" for n in range(LETTERS)])
        for _ in range(82):
            asked.append(clock.monotonic())
            await example.password_reset.push(example.Reset(to="ada@example.org"))
            await clock.pass_time(0.5)
    assert len(mailer.letters) == LETTERS
    assert all(
        later - first >= 1 - 1e-6 for first, later in zip(mailer.letters, mailer.letters[50:], strict=False)
    )
    assert mailer.most == 2
    waited = [began - pushed for began, pushed in zip(mailer.resets, asked, strict=True)]
    assert max(waited) < 0.01


def test_it_runs_for_real() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "examples.newsletter", "--readers", "60"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "60 sent" in ran.stdout


def test_its_page_shows_its_jobs() -> None:
    page = (ROOT / "examples/newsletter/README.md").read_text()
    shown = re.findall(r"<!-- (examples/\S+\.py) -->\n```python\n(.*?)```", page, re.DOTALL)
    assert shown
    for file, block in shown:
        assert block == (ROOT / file).read_text(), f"the page shows another {file}"
