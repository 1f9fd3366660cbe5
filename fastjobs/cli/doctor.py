"""`fastjobs doctor app:q`: what of a queue's database isn't as the queue needs it."""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from typing import TYPE_CHECKING

import fastjobs
from fastjobs.cli.mistake import Mistake
from fastjobs.cli.target import queue_named, sql_store
from fastjobs.core.text import error_text, one_line
from fastjobs.runtime.queue import Queue

if TYPE_CHECKING:
    from fastjobs.stores.sql.inspecting import Finding

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # pyright: ignore[reportPrivateUsage]

LIMIT = 60.0
"""Seconds that all checks may take; one that reads a whole file with --deep may take longer."""
_PACKAGES = ("SQLAlchemy", "aiosqlite", "asyncpg", "psycopg")


def add(commands: Commands) -> None:
    """Adds `doctor` to the command's words."""
    parser = commands.add_parser(
        "doctor",
        help="say what of a queue's database isn't as the queue needs it",
        description="Connects as the app does, looks at the database and at what it's set to, and says of each thing"
        " whether it's well, and what to do where it isn't. It writes nothing. Exits with 0 where nothing is wrong, 1"
        " where something is, and 2 where it couldn't look.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "queue",
        nargs="?",
        help="module:queue, or module:factory(); else FASTJOBS_QUEUE, else [tool.fastjobs] queue of pyproject.toml",
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument("--deep", action="store_true", help="read the whole of a SQLite file for damage, too")
    parser.set_defaults(order=_order)


def _order(typed: argparse.Namespace) -> int:
    named, queue = queue_named(typed.queue)
    found = asyncio.run(_looked(named, queue, typed.deep))
    levels = Counter(each.level.value for each in found)
    if typed.json:
        told = {
            "queue": named,
            "versions": _versions(),
            "wrong": levels["wrong"],
            "warnings": levels["warning"],
            "findings": [asdict(each) for each in found],
        }
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(_lines(named, found, levels)) + "\n")
    return 1 if levels["wrong"] else 0


async def _looked(named: str, queue: Queue, deep: bool) -> list[Finding]:
    store = sql_store(named, queue)
    try:
        async with asyncio.timeout(None if deep else LIMIT):
            return await store.examine(queue.kinds.keys(), deep=deep)
    except TimeoutError:
        raise Mistake(
            f"can't look at the database of {named}: it didn't answer within {LIMIT:g} seconds"
        ) from None
    except Exception as error:
        first = one_line(error_text(error).partition("\n")[0], 500)
        raise Mistake(f"can't look at the database of {named}: {first}") from None


def _lines(named: str, found: Sequence[Finding], levels: Counter[str]) -> list[str]:
    lines = [" ".join(f"{name} {version}" for name, version in _versions().items()), ""]
    for each in found:
        lines.append(f"{each.level.value:<8} {each.check}: {one_line(each.said, 2000)}")
        if each.do:
            # On one line, as it may be a statement that is copied.
            lines.append(f"         → {one_line(each.do, 2000)}")
    wrong, warnings = levels["wrong"], levels["warning"]
    lines += ["", f"{named}: {wrong} wrong, {warnings} warning{'' if warnings == 1 else 's'}"]
    return lines


def _versions() -> dict[str, str]:
    versions = {"fastjobs": fastjobs.__version__, "Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
