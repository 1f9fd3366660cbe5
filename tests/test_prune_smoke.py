"""A short soak of the prune in the ordinary run: how many rows are listed, removed in each step and left."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.databases.postgres import Server

ROOT = Path(__file__).parent.parent


def soak(options: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.soak.prune", *options.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=140,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^all pages .* for 2,100 jobs;", ran.stdout, re.MULTILINE), ran.stdout
    assert re.search(r"^prune  .*2,000 rows in .*, 5 steps of 500 at most$", ran.stdout, re.MULTILINE), (
        ran.stdout
    )
    assert re.search(r"^failed jobs left +100$", ran.stdout, re.MULTILINE), ran.stdout
    claims = re.findall(r"^claims .*, of (\d+)", ran.stdout, re.MULTILINE)
    assert len(claims) == 2, ran.stdout
    assert min(map(int, claims)) > 0, ran.stdout


@pytest.mark.timeout(150)
def test_old_failed_jobs_are_pruned_in_steps_beside_claims() -> None:
    soak("--jobs 2000 --seconds 0.5")


@pytest.mark.timeout(150)
def test_old_failed_jobs_are_pruned_in_steps_beside_claims_on_postgres(postgres: Server) -> None:
    # It starts a server of its own, with fsync; the fixture says where there is none to start.
    soak("--database postgres --jobs 2000 --seconds 0.5")
