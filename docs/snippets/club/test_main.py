"""The tests of the club: async, each in a transaction of its own (see conftest.py)."""

import pytest
from httpx import ASGITransport, AsyncClient
from sqlalchemy import select

import fastjobs
from fastjobs.testing import Jobs

from . import main
from .main import Joined, Member, give_credit, welcome

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    sent: list[str] = []

    async def send(email: str, text: str) -> None:
        sent.append(f"{email}: {text}")

    monkeypatch.setattr(main, "send", send)
    return sent


async def post(path: str) -> int:
    async with AsyncClient(transport=ASGITransport(main.app), base_url="http://test") as client:
        answer = await client.post(path)
        member: int = answer.json()["id"]
        return member


async def test_who_joins_is_given_credit_and_welcomed(jobs: Jobs, sent: list[str]) -> None:
    member = await post("/members/ada@example.org")
    assert jobs.pushed(give_credit, Joined(member=member))
    assert await jobs.adrain() == 2
    assert sent == ["ada@example.org: Welcome! Your credit is 10."]


async def test_nothing_is_left_of_the_test_before() -> None:
    async with main.reading() as session:
        assert (await session.scalars(select(Member))).all() == []


async def test_the_welcome_is_pushed_as_the_credit_is_kept(jobs: Jobs) -> None:
    member = await post("/members/ada@example.org")
    await jobs.arun(give_credit, Joined(member=member))  # this handler alone
    assert jobs.pushed(welcome) == [Joined(member=member)]


async def test_a_mail_server_that_is_down_is_tried_again(
    jobs: Jobs, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(email: str, text: str) -> None:
        raise ConnectionRefusedError("the mail server is down")

    await post("/members/ada@example.org")
    with monkeypatch.context() as down:
        down.setattr(main, "send", refuse)
        with pytest.raises(ConnectionRefusedError):
            await jobs.adrain()
    assert [(job.kind, job.attempts) for job in jobs.waiting] == [("welcome", 1)]
    jobs.clock.advance(60)
    assert await jobs.adrain() == 1
    assert len(sent) == 1
    assert [ran.outcome for ran in jobs.ran] == [
        fastjobs.Outcome.DONE,  # the credit
        fastjobs.Outcome.RETRIED,
        fastjobs.Outcome.DONE,
    ]
