"""The page about settings: its app reads the environment, and the library doesn't."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

import fastjobs
from tests.docs.programs import ROOT, load


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_environment_says_how_many_jobs_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_JOBS__WORKERS", "16")
    module = load("settings", monkeypatch)
    assert (module.q.workers, module.q.grace) == (16, 10)
    with TestClient(module.app):
        assert module.q.health().workers == 16


def test_a_file_says_so_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ".env").write_text("SHOP_JOBS__GRACE=25\nSHOP_DATABASE_URL=sqlite+aiosqlite:///other.db\n")
    module = load("settings", monkeypatch)
    assert module.q.grace == 25
    with TestClient(module.app):
        pass
    assert (folder / "other.db").exists()


def test_a_setting_that_cannot_be_keeps_the_app_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_JOBS__WORKERS", "many")
    with pytest.raises(ValidationError, match="workers"):
        load("settings", monkeypatch)
    monkeypatch.setenv("SHOP_JOBS__WORKERS", "4")
    monkeypatch.setenv("SHOP_JOBS__HOLD", "-1")
    with pytest.raises(fastjobs.RegistrationError, match="hold"):
        load("settings", monkeypatch)


def test_the_library_reads_no_variable_but_the_servers_zone() -> None:
    reads: list[str] = []
    for file in sorted((ROOT / "fastjobs").rglob("*.py")):
        name = file.relative_to(ROOT / "fastjobs").as_posix()
        if name.startswith("cli/"):  # the command does, and the page says what
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
                reads.append(name)
    assert reads == ["core/zones.py"]
