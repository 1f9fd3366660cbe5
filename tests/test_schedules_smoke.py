"""A short soak of schedules in the ordinary run: processes that push a run each second, killed at random."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.timeout(90)
def test_no_second_is_pushed_twice_or_forgotten_as_processes_that_push_are_killed() -> None:
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.soak.schedules",
            "--seconds",
            "3",
            "--processes",
            "2",
            "--settle",
            "2.5",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=80,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 twice" in ran.stdout
    assert "sqlite: 0 kills" not in ran.stdout
