"""A short soak in the ordinary run: two processes of a real app on one file, kill -9 twice under load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.timeout(150)
def test_nothing_is_lost_held_twice_or_torn_as_processes_are_killed_under_load(tmp_path: Path) -> None:
    options = (
        "--seconds 3 --kills 2 --stops 0 --freezes 0 --poisons 0 --processes 2 --hold 1.5 --seed 1 --unaimed"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "tests.soak", *options.split(), "--folder", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=140,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = dict(line.split("  ", 1) for line in ran.stdout.splitlines() if "  " in line)
    assert said["kill -9"].strip() == "2"
    assert int(said["pushes acknowledged"]) > 20, ran.stdout
