"""The jobs: a newsletter at the pace that the mail server allows, and mails that can't wait for it."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

import fastjobs

jobs = fastjobs.Kinds()


class Letter(BaseModel):
    issue: int
    to: str


class Reset(BaseModel):
    to: str


async def send(to: str, text: str) -> None:
    """Stands for the mail server, which takes 20 ms for each mail."""
    await asyncio.sleep(0.02)


# The server takes 50 of these a second, by two connections. All instances of the app keep to that together.
@jobs.kind("newsletter", rate=fastjobs.Throttle(50, per=1), at_once=2)
async def newsletter(letter: Letter) -> None:
    await send(letter.to, f"Issue {letter.issue} is out.")


# With more workers than two there is always one for these, and a claim takes them first.
@jobs.kind("password-reset", priority=10, timeout=10)
async def password_reset(reset: Reset) -> None:
    await send(reset.to, "Choose a new password: https://example.org/reset")


async def publish(issue: int, readers: list[str]) -> None:
    """Pushes a letter for each reader, which takes a moment; they're sent as fast as they may be."""
    await newsletter.push_many([Letter(issue=issue, to=reader) for reader in readers])
