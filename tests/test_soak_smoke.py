"""Short soaks in the ordinary run: two processes of a real app on one database, killed under load, as is a server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.databases.postgres import Server

ROOT = Path(__file__).parent.parent
SHORT = "--kills 2 --stops 0 --freezes 0 --poisons 0 --processes 2 --hold 1.5 --seed 1 --unaimed"


def soak(folder: Path, options: str) -> dict[str, str]:
    """Soaks, and answers the table; fails where a promise was broken."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.soak", *options.split(), "--folder", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=140,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = dict(line.split("  ", 1) for line in ran.stdout.splitlines() if "  " in line)
    assert int(said["pushes acknowledged"]) > 20, ran.stdout
    return {label: value.strip() for label, value in said.items()}


@pytest.mark.timeout(150)
def test_nothing_is_lost_held_twice_or_torn_as_processes_are_killed_under_load(tmp_path: Path) -> None:
    said = soak(tmp_path, f"--seconds 3 {SHORT}")
    assert said["kill -9"] == "2"


@pytest.mark.timeout(150)
def test_nothing_is_lost_held_twice_or_torn_as_the_server_crashes_under_load(
    postgres: Server, tmp_path: Path
) -> None:
    # It starts a server of its own, with fsync; the fixture says where there is none to start.
    options = "--database postgres --seconds 4 --restarts 1 --terminations 1 --cuts 0"
    said = soak(tmp_path, f"{options} {SHORT.replace('--kills 2', '--kills 1')}")
    assert said["kill -9"] == "1"
    assert said["server crashes, kill -9 of it"] in ("1, 0", "0, 1")
