"""The registration example, run: its demo on each database, the app by itself, and the demo stopped half-way."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from examples.registration.demo import ROOT, Inbox, free_port, mail_server, show, until
from tests.databases import mysql
from tests.databases.postgres import Database


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, int]]:
    """The app and the port on which it expects its mail server."""
    smtp_port = free_port()
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("registration") / "app.db"
        patch.setenv("DATABASE_URL", f"sqlite+aiosqlite:///{path}")
        patch.setenv("SMTP_PORT", str(smtp_port))
        from examples.registration import app as module

        yield module.app, smtp_port


@pytest.mark.parametrize("database", ["sqlite", "postgres", "mariadb", "mysql"])
def test_mails_are_retried_a_declined_card_leaves_nothing_and_a_killed_report_is_done_after_it(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    on_server: Database | mysql.Database | None = None
    driver = "asyncpg" if database == "postgres" else "asyncmy"
    if database == "postgres":
        on_server = request.getfixturevalue("postgres_database")
    elif database != "sqlite":
        server: mysql.Server = request.getfixturevalue(database)
        on_server = server.create_database()
    url = f"sqlite+aiosqlite:///{tmp_path / 'app.db'}" if on_server is None else on_server.url(driver)
    with contextlib.ExitStack() as ending:
        app = show(url, ending)  # raises where anything isn't so
        assert len(app.get("/people")) == 3
    if on_server is not None:
        left = on_server.execute("SELECT kind, attempts FROM fastjobs_jobs")
        assert left == [("welcome-mail", 1)]  # the mail to nobody, which failed
        people = on_server.execute("SELECT name, welcomed FROM person ORDER BY id")
        assert people == [("Ada", True), ("Grace", True), ("Nobody", False)]


def test_a_mail_is_retried_until_the_server_is_up_and_a_declined_card_leaves_nothing(
    app: tuple[Any, int], caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox()
    with TestClient(app[0]) as client:
        ada = client.post("/register", json={"name": "Ada", "email": "ada@example.org"})
        assert ada.status_code == 200
        mallory = {"name": "Mallory", "email": "mallory@example.org", "card": "stolen"}
        assert client.post("/register", json=mallory).status_code == 402
        until(lambda: "will run again" in caplog.text, "a mail is refused")
        assert f"request_id={ada.headers['x-request-id']}" in caplog.text
        with mail_server(inbox, app[1]):
            until(lambda: client.get("/people").json()[0]["welcomed"], "Ada is welcomed")
    assert inbox.addresses() == ["ada@example.org"]


def test_an_address_that_is_not_there_is_told_to_support(
    app: tuple[Any, int], caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox()
    with mail_server(inbox, app[1]), TestClient(app[0]) as client:
        client.post("/register", json={"name": "Nobody", "email": "nobody@nowhere.example"})
        until(lambda: "tell support: the mail server knows no such address" in caplog.text, "on_fail runs")
        assert inbox.mails == []


@pytest.mark.parametrize(
    "body",
    [
        {"name": "", "email": "ada@example.org"},
        {"name": "Ada", "email": "no address"},
        {"name": "Ada", "email": "a@example.org\nBcc: all@example.org"},
    ],
)
def test_a_form_that_is_wrong_is_refused(app: tuple[Any, int], body: dict[str, str]) -> None:
    with TestClient(app[0]) as client:
        assert client.post("/register", json=body).status_code == 422


def test_a_report_is_made(app: tuple[Any, int]) -> None:
    with TestClient(app[0]) as client:
        id = client.post("/reports", params={"steps": 0}).json()["id"]
        until(lambda: client.get(f"/reports/{id}").json()["finished_at_attempt"] == 1, "the report is done")
        assert client.get("/reports/1000").status_code == 404


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_leaves_no_process_behind(how: signal.Signals, tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "examples.registration.demo"],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert demo.stdout is not None
    with demo, demo.stdout:
        url = ""
        for line in demo.stdout:
            if found := re.search(r"it serves at (http://\S+),", line):
                url = found[1]
                break
        assert httpx.get(f"{url}/people", timeout=10).is_success
        demo.send_signal(how)
        said = demo.stdout.read()
        demo.wait(20)
    assert "Traceback" not in said
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/people", timeout=10)
    assert list(tmp_path.iterdir()) == []
