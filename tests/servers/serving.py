"""The servers: how each is started, how many processes of the app it makes, and what it takes for itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

APP = "tests.servers.app:app"


@dataclass(frozen=True, slots=True)
class Server:
    """One way to run the app."""

    name: str
    words: Callable[[int, Path], list[str]]
    """What follows `python -m`, for a port and a folder."""
    processes: int = 1
    serves: bool = True
    """Whether it answers requests."""
    needs: str = "uvicorn"
    """The module that it is."""
    codes: tuple[int, ...] = (0,)
    """The exit codes of a stop in order."""


def _uvicorn(*more: str) -> Callable[[int, Path], list[str]]:
    return lambda port, folder: ["uvicorn", APP, "--port", str(port), "--log-level", "warning", *more]


def _gunicorn(*more: str) -> Callable[[int, Path], list[str]]:
    return lambda port, folder: [
        *("gunicorn", APP, "-k", "uvicorn_worker.UvicornWorker", "-b", f"127.0.0.1:{port}"),
        *("--log-level", "warning", "--worker-tmp-dir", str(folder), *more),
    ]


FASTJOBS = Server(
    "fastjobs run",
    lambda port, folder: ["fastjobs", "run", "tests.servers.app:q"],
    serves=False,
    needs="fastjobs",
)
# Its own exit is by the signal that it was given, raised again.
UVICORN = Server("uvicorn", _uvicorn(), codes=(0, -15))
RELOADING = Server(
    "uvicorn --reload",
    lambda port, folder: [*_uvicorn("--reload", "--reload-dir", str(folder / "touched"))(port, folder)],
    codes=(0, -15),
)
SERVERS = (
    FASTJOBS,
    UVICORN,
    Server("uvicorn --workers 2", _uvicorn("--workers", "2"), processes=2, codes=(0, -15)),
    RELOADING,
    Server("gunicorn -w 2", _gunicorn("-w", "2"), processes=2, needs="gunicorn"),
    Server("gunicorn -w 2 --preload", _gunicorn("-w", "2", "--preload"), processes=2, needs="gunicorn"),
    Server(
        "hypercorn -w 2",
        lambda port, folder: ["hypercorn", APP, "-b", f"127.0.0.1:{port}", "-w", "2"],
        processes=2,
        needs="hypercorn",
    ),
    Server(
        "granian --workers 2",
        lambda port, folder: ["granian", "--interface", "asgi", "--port", str(port), "--workers", "2", APP],
        processes=2,
        needs="granian",
    ),
)
