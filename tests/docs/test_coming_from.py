"""The app of the pages about other queues: ours is run, and theirs is the same app."""

from __future__ import annotations

import ast
import queue
import re
from pathlib import Path
from types import ModuleType

import pytest
from fastapi.testclient import TestClient

from tests.docs.programs import SNIPPETS, load

OURS = ["sync_app", "async_app"]
THEIRS = sorted((SNIPPETS / "coming_from" / "theirs").glob("*.py"))


@pytest.fixture(params=OURS)
def ours(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.chdir(tmp_path)
    name: str = request.param
    return load(f"coming_from/{name}", monkeypatch)


@pytest.fixture
def mails(ours: ModuleType, monkeypatch: pytest.MonkeyPatch) -> queue.Queue[tuple[str, str]]:
    """What was sent, in its order."""
    sent: queue.Queue[tuple[str, str]] = queue.Queue()

    def send(to: str, text: str) -> None:
        sent.put((to, text))

    monkeypatch.setattr(ours, "send", send)
    return sent


def test_who_registers_gets_a_mail(ours: ModuleType, mails: queue.Queue[tuple[str, str]]) -> None:
    with TestClient(ours.app) as client:
        assert client.post("/register", params={"email": "ada@example.org"}).json() == {"id": 1}
        assert mails.get(timeout=10) == ("ada@example.org", "Welcome!")


def test_the_team_hears_each_night_how_many_there_are(
    ours: ModuleType, mails: queue.Queue[tuple[str, str]]
) -> None:
    (nightly,) = ours.q.schedules
    assert (nightly.name, repr(nightly.schedule)) == ("count-users", "Cron('0 2 * * *', 'Europe/Paris')")
    with TestClient(ours.app) as client:
        client.post("/register", params={"email": "ada@example.org"})
        assert mails.get(timeout=10)[0] == "ada@example.org"
        ours.count_users.sync.push()
        assert mails.get(timeout=10) == ("team@example.org", "There are 1 users.")


def test_a_mail_that_is_refused_is_sent_again(
    ours: ModuleType, mails: queue.Queue[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []
    send = ours.send

    def refuses_once(to: str, text: str) -> None:
        if not refused:
            refused.append(to)
            raise ConnectionRefusedError("the mail server is down")
        send(to, text)

    monkeypatch.setattr(ours, "send", refuses_once)
    with TestClient(ours.app) as client:
        client.post("/register", params={"email": "ada@example.org"})
        assert mails.get(timeout=20) == ("ada@example.org", "Welcome!")
    assert refused == ["ada@example.org"]


@pytest.mark.parametrize("program", THEIRS, ids=lambda path: path.stem)
def test_their_program_is_the_same_app(program: Path) -> None:
    text = program.read_text()
    ast.parse(text)
    ours = (SNIPPETS / "coming_from" / "sync_app.py").read_text()
    for part in ('"Welcome!"', '"team@example.org"', '@app.post("/register")', "There are {users} users."):
        assert part in text
        assert part in ours
    model = re.compile(r"class User\(SQLModel.*?\n\n\n", re.DOTALL)
    (theirs,), (mine,) = model.findall(text), model.findall(ours)
    assert theirs == mine
