"""The pages' programs: each block is its file, word for word, each file runs, and each link leads somewhere."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient

import fastjobs
from tests.docs.programs import ROOT, SNIPPETS, load

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
PART = re.compile(r"<!-- from (docs/snippets/\S+\.py) -->\n```python\n(.*?)```", re.DOTALL)
SHOWN = re.compile(r"<!-- (docs/snippets/\S+) -->\n```\w+\n(.*?)```", re.DOTALL)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_pages_block_is_its_file(page: Path) -> None:
    text = page.read_text()
    shown: list[tuple[str, str]] = SHOWN.findall(text)
    assert len(shown) == text.count("<!-- docs/snippets/")
    for file, block in shown:
        assert block == (ROOT / file).read_text(), f"{name_of(page)} shows another {file}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_pages_excerpt_is_a_part_of_its_file(page: Path) -> None:
    text = page.read_text()
    parts: list[tuple[str, str]] = PART.findall(text)
    assert len(parts) == text.count("<!-- from docs/snippets/")
    for file, block in parts:
        assert f"\n\n{block}" in (ROOT / file).read_text(), f"{name_of(page)} shows what isn't in {file}"


def test_each_program_is_shown_whole_on_a_page() -> None:
    shown = {file for page in PAGES for file, _block in SHOWN.findall(page.read_text())}
    files = [
        file.relative_to(ROOT).as_posix()
        for file in SNIPPETS.rglob("*")
        if file.is_file()
        and file.suffix != ".pyc"
        and file.name != "__init__.py"
        and "/." not in file.as_posix()
    ]
    assert sorted(shown) == sorted(files)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_pages_links_lead_to_files_that_are_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.fixture
def snippet(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, imported in a folder of its own: its database is in there."""
    monkeypatch.chdir(tmp_path)
    return load(request.param, monkeypatch)


class Heard(logging.Handler):
    """Waits for a line of the log."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.came = threading.Event()
        logging.getLogger().addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if self.text in record.getMessage():
            self.came.set()


@pytest.fixture(autouse=True)
def no_handler_is_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.INFO)
    before = list(logging.getLogger().handlers)
    yield
    logging.getLogger().handlers[:] = before


@pytest.mark.anyio
@pytest.mark.parametrize("snippet", ["kinds"], indirect=True)
async def test_the_kinds_page_runs_what_is_due(
    snippet: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    await snippet.main()
    assert capsys.readouterr().out == "user -1 has no welcome mail: there is no user -1\n"


@pytest.mark.parametrize("snippet", ["quickstart"], indirect=True)
def test_the_quickstart_welcomes_who_registers(snippet: ModuleType) -> None:
    heard = Heard("Welcome, Ada!")
    with TestClient(snippet.app) as client:
        assert client.post("/register/Ada").json() == {"job": "1"}
        assert heard.came.wait(10)


@pytest.mark.parametrize("snippet", ["transactions"], indirect=True)
def test_the_transactions_program_rolls_a_blocked_user_back(
    snippet: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[int] = []
    done = threading.Event()
    handler = snippet.welcome.handler

    async def told(mail: object) -> None:
        await handler(mail)
        ran.append(1)
        done.set()

    snippet.welcome.handler = told
    with TestClient(snippet.app) as client:
        assert client.post("/register", params={"email": "eve@blocked.example"}).status_code == 403
        assert client.post("/register", params={"email": "ada@example.org"}).json() == {"id": 1}
        assert done.wait(10)
    assert capsys.readouterr().out == "Welcome, ada@example.org!\n"
    assert ran == [1]


@pytest.mark.parametrize("snippet", ["request_ids"], indirect=True)
def test_the_request_ids_program_puts_the_requests_id_in_the_apps_own_lines(snippet: ModuleType) -> None:
    written = io.StringIO()
    snippet.output.setStream(written)
    # As in a process of its own, where basicConfig finds no handler: pytest has one already.
    snippet.output.setFormatter(logging.Formatter("%(levelname)s [%(request_id)s] %(name)s: %(message)s"))
    logging.getLogger().addHandler(snippet.output)
    heard = Heard("reindexing")
    with TestClient(snippet.app) as client:
        response = client.post("/reindex", headers={"X-Request-ID": "abc-1"})
        assert response.json() == {"request": "abc-1"}
        assert heard.came.wait(10)
    assert "INFO [abc-1] root: reindexing\n" in written.getvalue()


@pytest.mark.anyio
@pytest.mark.parametrize("snippet", ["failed_jobs"], indirect=True)
async def test_the_failed_jobs_program_lists_what_failed_and_runs_the_mails_again(
    snippet: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    q: fastjobs.Queue = snippet.q
    refuses = [True]

    @q.kind("welcome-mail")
    async def welcome(user: int) -> None:
        if refuses[0]:
            raise fastjobs.Permanent("refused")

    @q.kind("report", attempts=1)
    async def report() -> None:
        raise ValueError("no data")

    await welcome.push(7)
    await report.push()
    assert await q.drain() == 2
    await snippet.main()
    told = capsys.readouterr().out
    assert re.search(
        r"^\d{4}-\d\d-\d\d \d\d:\d\d job 2, report, 1 attempts: ValueError: no data$", told, re.M
    )
    assert "job 1, welcome-mail, 1 attempts: Permanent: refused\n" in told
    assert told.endswith("\nrun again: 1\n")
    refuses[0] = False
    assert await q.drain() == 1
    assert [job.kind for job in await q.failed()] == ["report"]
    await snippet.engine.dispose()
    store = q.store
    assert isinstance(store, fastjobs.SQLStore)
    await store.close()


@pytest.mark.parametrize("snippet", ["status"], indirect=True)
def test_the_status_routes_say_how_far_a_report_is_and_cancel_it(
    snippet: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = threading.Event()

    async def work(_: float) -> None:
        while not works.is_set():
            await asyncio.sleep(0.001)

    monkeypatch.setattr(snippet, "asyncio", SimpleNamespace(sleep=work))

    def until(client: TestClient, url: str, told: dict[str, object]) -> None:
        deadline = time.monotonic() + 20
        while (answer := client.get(url).json()) != told:
            assert time.monotonic() < deadline, answer

    with TestClient(snippet.app) as client:
        ordered = client.post("/reports/2026")
        url = ordered.headers["Location"]
        assert (ordered.status_code, ordered.json()) == (202, {"status": url})
        until(client, url, {"state": "held", "progress": {"month": 1, "of": 12}})
        assert client.delete(url).json() == {"cancel": "asked"}
        until(client, url, {"state": "cancelled"})
        works.set()
        done = client.post("/reports/2027").headers["Location"]
        until(client, done, {"state": "done", "text": " ".join(f"2027-{n:02}" for n in range(1, 13))})
        assert client.delete(done).json() == {"cancel": "not there"}
        assert client.get("/reports/99").status_code == 404


@pytest.mark.anyio
@pytest.mark.parametrize("snippet", ["done_in"], indirect=True)
async def test_the_done_in_program_tops_up_once_and_sends_for_a_receipt(
    snippet: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    await snippet.main()
    assert capsys.readouterr().out == "ada has 10 now\n"


@pytest.mark.anyio
@pytest.mark.parametrize("snippet", ["unique"], indirect=True)
async def test_the_unique_program_indexes_each_post_once_and_writes_one_invoice(
    snippet: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    await snippet.main()
    told = sorted(capsys.readouterr().out.splitlines())
    assert told == ["order 7 has its invoice", "post 1 is indexed", "post 2 is indexed"]


@pytest.mark.anyio
@pytest.mark.parametrize("snippet", ["schedules"], indirect=True)
async def test_the_schedules_program_refreshes_a_few_times_and_reports_at_its_times_alone(
    snippet: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    await snippet.main()
    told = capsys.readouterr().out.splitlines()
    assert 1 <= len(told) <= 4
    assert all(each.startswith("refreshed at ") for each in told)
    assert [each.name for each in snippet.q.schedules] == ["report", "report-monthly", "refresh-rates"]


@pytest.mark.anyio
@pytest.mark.parametrize("snippet", ["limits"], indirect=True)
async def test_the_limits_program_keeps_to_each_accounts_rate_and_to_the_limiters_word(
    snippet: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    await snippet.main()
    assert capsys.readouterr().out.splitlines() == [
        "account 1: ada",
        "account 1: bob",
        "account 1: eve",
        "account 2: sue",
        "4 jobs ran, and joe's waits for its turn",
        "0 messages went, as the provider is busy",
    ]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with the package `shop` in it, as the page has one make it."""
    shutil.copytree(SNIPPETS / "shop", tmp_path / "shop", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run_in(folder: Path, *arguments: str) -> str:
    """What a Python in this folder prints; it ends well."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    ran = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_sync_apps_own_tests_pass_and_leave_no_database(shop: Path) -> None:
    assert "4 passed" in run_in(shop, "-m", "pytest", "-q", "-p", "no:cacheprovider", "shop")
    assert list(shop.glob("*.db*")) == []


def test_the_sync_app_confirms_an_order_and_forgets_a_blocked_one(shop: Path) -> None:
    assert run_in(shop, "-c", ORDERS) == "[('ada@example.org', 'We have your order.')]\n"


ORDERS = """
import threading
import time
from fastapi.testclient import TestClient
from shop import jobs
from shop.main import app

came, sent = threading.Event(), []
def send(email, text):
    sent.append((email, text))
    came.set()
jobs.send = send
with TestClient(app) as client:
    assert client.post("/orders", json={"email": "eve@blocked.example"}).status_code == 403
    assert client.post("/orders", json={"email": "ada@example.org"}).json() == {"id": 1, "email": "ada@example.org"}
    assert client.post("/stock").json()["job"]
    assert came.wait(10)
print(sent)
"""


@pytest.fixture
def club(tmp_path: Path) -> Path:
    """A folder with the package `club` in it."""
    shutil.copytree(SNIPPETS / "club", tmp_path / "club", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_async_apps_own_tests_pass_and_leave_no_database(club: Path) -> None:
    assert "4 passed" in run_in(club, "-m", "pytest", "-q", "-p", "no:cacheprovider", "club")
    assert list(club.glob("*.db*")) == []


def test_the_async_app_gives_credit_and_says_so_in_its_welcome(club: Path) -> None:
    assert run_in(club, "-c", MEMBERS) == "ada@example.org: Welcome! Your credit is 10.\n"


MEMBERS = """
import threading
import time
from fastapi.testclient import TestClient
from club import main

came, sent = threading.Event(), []
async def send(email, text):
    sent.append(f"{email}: {text}")
    came.set()
main.send = send
with TestClient(main.app) as client:
    assert client.post("/members/ada@example.org").json() == {"id": 1}
    assert came.wait(10)
print(*sent)
"""


@pytest.mark.parametrize("snippet", ["readiness"], indirect=True)
def test_the_readiness_route_answers_200_while_the_queue_is_well_and_503_while_it_isnt(
    snippet: ModuleType,
) -> None:
    with TestClient(snippet.app) as client:
        well = client.get("/ready")
        assert (well.status_code, well.json()["ok"], well.json()["workers"]) == (200, True, 4)
    stopped = TestClient(snippet.app).get("/ready")  # without its lifespan
    assert (stopped.status_code, stopped.json()["running"]) == (503, False)


@pytest.mark.anyio
@pytest.mark.parametrize("snippet", ["carrying"], indirect=True)
async def test_the_carrying_program_writes_each_tenants_report(
    snippet: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    await snippet.main()
    assert capsys.readouterr().out == "May of acme\nMay of umbrella\n"


TRACED = """
import importlib.util, sys, threading
from fastapi.testclient import TestClient
import fastjobs

spec = importlib.util.spec_from_file_location("traced", sys.argv[1])
traced = importlib.util.module_from_spec(spec)
sys.modules["traced"] = traced
spec.loader.exec_module(traced)
ended, handler = threading.Event(), traced.welcome.handler

async def told(user):
    await handler(user)
    ended.set()

traced.welcome.handler = told
with TestClient(traced.app) as client:
    assert client.post("/register").json() == {"job": "1"}
    assert ended.wait(20)
traced.provider.shutdown()
"""


def test_the_tracing_program_shows_the_tree_that_its_page_shows(tmp_path: Path) -> None:
    # In a process of its own, as it sets the SDK up for all of it.
    told = run_in(tmp_path, "-c", TRACED, str(SNIPPETS / "tracing.py"))
    spans: list[dict[str, Any]] = []
    decoder = json.JSONDecoder()
    while told.strip():
        span, end = decoder.raw_decode(told.lstrip())
        spans.append(span)
        told = told.lstrip()[end:]
    names = {span["context"]["span_id"]: span["name"] for span in spans}
    edges = sorted((span["name"], names.get(span["parent_id"])) for span in spans)
    ours = [(name, parent) for name, parent in edges if name.startswith(("process", "smtp"))]
    assert ours == [
        ("process welcome-mail", "send welcome-mail"),
        ("process welcome-mail", "send welcome-mail"),
        ("smtp", "process welcome-mail"),
        ("smtp", "process welcome-mail"),
    ]
    runs = [span["attributes"] for span in spans if span["name"] == "process welcome-mail"]
    assert sorted((run["fastjobs.attempt"], run["fastjobs.outcome"]) for run in runs) == [
        (1, "retried"),
        (2, "done"),
    ]
    if ("send welcome-mail", "fastapi.endpoint") in edges:  # from FastAPI 0.142 on
        assert ("fastapi.endpoint", "POST /register") in edges
        assert len({span["context"]["trace_id"] for span in spans}) == 1
