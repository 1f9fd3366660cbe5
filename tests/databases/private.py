"""What a server of the tests' own stands on: a folder, a user and a port for it, and a watch over its process."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def make_folder(what: str) -> tuple[Path, Mapping[str, Any]]:
    """A new folder, and the user to run a server as in it, as `subprocess` takes one: nothing where we aren't root."""
    folder = Path(tempfile.mkdtemp(prefix=f"fastjobs-{what}-", dir=_folder_for_all()))
    folder.chmod(0o755)
    if os.geteuid() != 0:
        return folder, {}
    # Postgres and PgBouncer refuse to run as root.
    user = _plain_user()
    os.chown(folder, user.pw_uid, user.pw_gid)
    return folder, {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Watched:
    """A server's process, which ends when this process does, however that ends. Then its folder goes, too."""

    def __init__(self, command: Sequence[str], folder: Path, user: Mapping[str, Any]) -> None:
        asked = {
            "command": list(command),
            "folder": str(folder),
            "log": str(folder / "log"),
            "env": environment(folder),
            "user": dict(user),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-IS", str(Path(__file__).with_name("watching.py")), json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        told = self._process.stdout.readline().strip()  # nothing, if the program can't be run
        self.pid = int(told) if told else 0
        """The server's process id."""

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self, signal: str, within: float) -> None:
        """Sends the server a signal by its name, waits until it has ended, and lets go of it."""
        watch = self._process
        assert watch.stdin is not None
        assert watch.stdout is not None
        # It may have ended already, and nobody reads.
        with contextlib.suppress(BrokenPipeError):
            watch.stdin.write(f"{signal}\n")
            watch.stdin.flush()
        try:
            watch.wait(within)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{watch.args!r} didn't stop within {within:.0f} s of a {signal}") from None
        with contextlib.suppress(BrokenPipeError):
            watch.stdin.close()
        watch.stdout.close()


def environment(folder: Path) -> dict[str, str]:
    """What a server sees of ours: nothing that could set it up otherwise, as PGPORT would."""
    return {"PATH": os.defpath, "LC_ALL": "C", "HOME": str(folder)}


def _plain_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError(
        "Postgres doesn't run as root, and there is neither a user postgres nor nobody to run it as"
    )


def _folder_for_all() -> str:
    """A folder for temporary files that every user can look into."""
    for place in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        path = Path(place).resolve()
        if os.geteuid() != 0 or all(each.stat().st_mode & 0o001 for each in (path, *path.parents)):
            return str(path)
    raise RuntimeError("there is no temporary folder that every user can look into; set TMPDIR to one")
