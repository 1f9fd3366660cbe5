"""A process that's killed at any of its statements loses nothing and tears nothing: some of the points, each time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio.to_thread
import pytest

from tests.dying.finding import look
from tests.dying.story import App

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="lacks fork")
def test_death_at_a_statement_loses_nothing_and_tears_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.dying", "--first", "3", "--every", "15"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "it lived to its end" in done.stdout


@pytest.fixture
async def told(tmp_path: Path) -> Path:
    """Where a story was told to its end."""
    await App(tmp_path).live()
    return tmp_path


@pytest.mark.anyio
async def test_an_acknowledged_job_that_is_gone_is_found(told: Path) -> None:
    App(told).diary.write("acked", "gone")
    assert "gone was acknowledged, and is lost" in await _looked(told)


@pytest.mark.anyio
async def test_a_row_without_its_job_is_found(told: Path) -> None:
    diary = told / "diary"
    diary.write_text(diary.read_text().replace("handled\ttx-1\n", ""))
    assert any(each.startswith("tx-1: its row is there") for each in await _looked(told))


async def _looked(folder: Path) -> list[str]:
    return await anyio.to_thread.run_sync(look, folder)
