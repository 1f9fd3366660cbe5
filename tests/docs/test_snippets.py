"""The pages' programs: each block is its file, word for word, each file runs, and each link leads somewhere."""

from __future__ import annotations

import importlib.util
import logging
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from fastapi.testclient import TestClient

ROOT = Path(__file__).parent.parent.parent
SNIPPETS = ROOT / "docs" / "snippets"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
SHOWN = re.compile(r"<!-- (docs/snippets/\S+\.py) -->\n```python\n(.*?)```", re.DOTALL)


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
def test_a_pages_links_lead_to_files_that_are_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.fixture
def snippet(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, imported in a folder of its own: its database is in there."""
    monkeypatch.chdir(tmp_path)
    name: str = request.param
    spec = importlib.util.spec_from_file_location(f"snippet_{name}", SNIPPETS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


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
def test_the_request_ids_program_logs_the_requests_id(snippet: ModuleType) -> None:
    heard = Heard("for request abc-1")
    with TestClient(snippet.app) as client:
        response = client.post("/reindex", headers={"X-Request-ID": "abc-1"})
        assert response.json() == {"request": "abc-1"}
        assert heard.came.wait(10)
