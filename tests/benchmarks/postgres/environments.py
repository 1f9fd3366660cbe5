"""Environments of others' queues, made as they're first needed: `.venv-bench-NAME`, of the group `bench-NAME`."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys

from tests.benchmarks.frame import ROOT, NotRun


@functools.cache
def python_of(name: str, least: tuple[int, int] = (3, 11)) -> str:
    """The environment's Python. NotRun where it can't be made, and says why."""
    folder = ROOT / f".venv-bench-{name}"
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    made = folder / ".made"
    if made.exists():
        return str(python)
    print(f"making {folder.name}", file=sys.stderr, flush=True)
    _run([_found(least), "-m", "venv", "--clear", str(folder)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--upgrade", "pip>=25.1"])
    _run([*pip, "--group", f"{ROOT / 'pyproject.toml'}:bench-{name}"])
    made.touch()
    return str(python)


def _found(least: tuple[int, int]) -> str:
    if sys.version_info >= least:
        return sys.executable
    for minor in range(20, least[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        # A name may be there and not run, as a version manager's shim.
        if (
            found
            and not subprocess.run([found, "-c", "import venv, ensurepip"], capture_output=True).returncode
        ):
            return found
    raise NotRun(f"it wants Python {least[0]}.{least[1]} or newer, and none is on the PATH")


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    except subprocess.TimeoutExpired:
        raise NotRun("its environment took over 900 s to make") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr]
        raise NotRun(f"its environment can't be made: {lines[-1].strip()[:200]}")
