"""A short soak of transactions in the ordinary run: processes killed around their commits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.timeout(150)
@pytest.mark.parametrize("database", ["sqlite", "mariadb"])
def test_what_is_done_or_pushed_in_a_transaction_is_whole_as_processes_are_killed_around_the_commit(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    options = "--jobs 200 --pushes 100 --hold 0.5 --seed 1"
    if database != "sqlite":
        request.getfixturevalue(database)  # which says so where it isn't there
        options = f"--jobs 80 --pushes 60 --hold 0.5 --seed 1 --database {database}"
    ran = subprocess.run(
        [sys.executable, "-m", "tests.soak.done_in", *options.split()],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=140,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = [each for line in ran.stdout.splitlines() for each in line.split("  ")]
    kills = [int(each.removeprefix("kills=")) for each in said if each.startswith("kills=")]
    assert len(kills) == 2, ran.stdout
    assert min(kills) > 3, ran.stdout
