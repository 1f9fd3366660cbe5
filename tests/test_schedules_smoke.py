"""A short soak of schedules in the ordinary run: processes that push a run each second, killed at random."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.timeout(90)
def test_no_second_is_pushed_twice_or_forgotten_as_processes_that_push_are_killed(
    tmp_path: Path,
) -> None:
    options = "--seconds 3 --processes 2 --settle 1.5"
    ran = subprocess.run(
        [sys.executable, "-m", "tests.soak.schedules", *options.split()],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=80,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    kills, seconds = (int(each) for each in re.findall(r"(\d+) (?:kills|seconds)", ran.stdout))
    assert kills > 0, ran.stdout
    assert seconds >= 2, ran.stdout
