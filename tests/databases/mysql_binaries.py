"""Finds MariaDB and MySQL: one that is named, the PATH's, in the usual places, or what `.ci/databases` unpacked."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Family = Literal["mariadb", "mysql"]
FAMILIES: tuple[Family, Family] = ("mariadb", "mysql")

TITLES: dict[Family, str] = {"mariadb": "MariaDB", "mysql": "MySQL"}

NAMED_BY: dict[Family, str] = {"mariadb": "FASTJOBS_MARIADB_BIN", "mysql": "FASTJOBS_MYSQL_BIN"}
"""The environment variables that name a folder with `mariadbd` or `mysqld`."""

ABSENT: dict[Family, str] = {
    "mariadb": "no MariaDB was found: install MariaDB 10.6 or newer (Debian's package is `mariadb-server-core`), "
    f"or name the folder of its `mariadbd` by {NAMED_BY['mariadb']}",
    "mysql": "this machine lacks MySQL: install MySQL 8.0 or newer, "
    f"or name the folder of its `mysqld` by {NAMED_BY['mysql']}",
}
"""Why a test is skipped. In CI, a word of what the machine lacks is a skip that may be."""

UNPACKED = Path("/var/tmp/fastjobs-mysql")
"""Where `.ci/databases` puts MySQL, with the libc it is run by."""

_OLDEST: dict[Family, tuple[int, int]] = {"mariadb": (10, 6), "mysql": (8, 0)}
"""What has SKIP LOCKED in both."""

_USUAL = (
    "/usr/sbin",
    "/usr/bin",
    "/usr/libexec",
    "/usr/local/sbin",
    "/usr/local/mysql/bin",
    "/usr/local/opt/{}*/bin",
    "/opt/homebrew/opt/{}*/bin",
    "/opt/local/lib/{}*/bin",
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """An installed server."""

    family: Family
    version: tuple[int, int, int]
    program: Path
    """The server itself, `mariadbd` or `mysqld`."""
    command: tuple[str, ...]
    """How it's run, up to its own options."""
    installer: Path | None = None
    """What makes a folder of data: MariaDB has a script for it, MySQL's server does it itself."""

    @property
    def base(self) -> Path:
        """What the server calls its basedir."""
        return self.program.parent.parent


def find_server(family: Family) -> Binaries | None:
    """The first one that is found."""
    if os.name == "nt":
        return None
    named = os.environ.get(NAMED_BY[family])
    if named:
        found = _look(family, Path(named))
        if found is None:
            raise RuntimeError(
                f"{NAMED_BY[family]} is {named!r}, and no {TITLES[family]} that is new enough runs from there"
            )
        return found
    return next((found for folder in _places(family) if (found := _look(family, folder))), None)


def _places(family: Family) -> Iterator[Path]:
    for name in ("mariadbd", "mysqld"):
        on_path = shutil.which(name)
        if on_path is not None:
            yield Path(on_path).parent
    for pattern in _USUAL:
        for folder in sorted(glob.glob(pattern.format(family)), reverse=True):
            yield Path(folder)
    # What anyone may write to is only run if root, or who runs the tests, has made it.
    if family == "mysql" and UNPACKED.is_dir() and UNPACKED.stat().st_uid in (0, os.geteuid()):
        yield UNPACKED / "usr" / "sbin"


def _look(family: Family, folder: Path) -> Binaries | None:
    for name in ("mariadbd", "mysqld") if family == "mariadb" else ("mysqld",):
        if not os.access(folder / name, os.X_OK):
            continue
        program = (folder / name).resolve()
        command = _command(program)
        try:
            said = subprocess.run(
                [*command, "--no-defaults", "--version"],
                capture_output=True,
                text=True,
                timeout=20,
                check=True,
            ).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        version = re.search(r"Ver (\d+)\.(\d+)\.(\d+)", said)
        if version is None or ("MariaDB" in said) is not (family == "mariadb"):
            continue
        numbers = (int(version[1]), int(version[2]), int(version[3]))
        installer = _installer(program) if family == "mariadb" else None
        if numbers >= _OLDEST[family] and (family == "mysql" or installer is not None):
            return Binaries(family, numbers, program, command, installer)
    return None


def _command(program: Path) -> tuple[str, ...]:
    """How a program is run: by the libc beside it, if it came with one."""
    if UNPACKED.resolve() not in program.parents:
        return (str(program),)
    libraries = glob.glob(f"{UNPACKED}/usr/lib/*-linux-gnu*")
    [loader, *_] = [*(name for each in libraries for name in glob.glob(f"{each}/ld-linux*.so.*")), ""]
    return (loader, "--library-path", ":".join(libraries), str(program))


def _installer(program: Path) -> Path | None:
    places = [program.parent, program.parent.parent / "bin", program.parent.parent / "scripts"]
    found = shutil.which("mariadb-install-db", path=os.pathsep.join(map(str, places)))
    return Path(found) if found else None
