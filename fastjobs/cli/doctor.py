"""`fastjobs doctor app:q`: what of a queue's database isn't as the queue needs it."""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from typing import TYPE_CHECKING

import fastjobs
from fastjobs.cli.asking import entered, first_line, lifespan_error
from fastjobs.cli.hosting import LifespanFailed
from fastjobs.cli.mistake import Mistake
from fastjobs.cli.parsing import Commands, add_app, add_queue, target_typed
from fastjobs.cli.printing import out
from fastjobs.cli.target import Target, sql_store
from fastjobs.core.text import one_line

if TYPE_CHECKING:
    from fastjobs.stores.sql.inspecting import Finding

LIMIT = 60.0
"""Seconds that all checks may take; one that reads a whole file with --deep may take longer."""
_PACKAGES = ("SQLAlchemy", "aiosqlite", "asyncpg", "psycopg", "asyncmy", "aiomysql", "PyMySQL")


def add(commands: Commands) -> None:
    """Adds `doctor` to the command's words."""
    parser = commands.add_parser(
        "doctor",
        help="say what of a queue's database isn't as the queue needs it",
        description="Connects as the app does, looks at the database and at what it's set to, and says of each thing"
        " whether it's well, and what to do where it isn't. It writes nothing. Exits with 0 where nothing is wrong, 1"
        " where something is, and 2 where it couldn't look.",
    )
    add_queue(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument("--deep", action="store_true", help="read the whole of a SQLite file for damage, too")
    add_app(parser)
    parser.set_defaults(order=_order)


def _order(typed: argparse.Namespace) -> int:
    target = target_typed(typed, typed.queue)
    named = target.named
    found = asyncio.run(_looked(target, typed.deep))
    levels = Counter(each.level.value for each in found)
    if typed.json:
        told = {
            "queue": named,
            "versions": _versions(),
            "wrong": levels["wrong"],
            "warnings": levels["warning"],
            "findings": [asdict(each) for each in found],
        }
        out(json.dumps(told, indent=2) + "\n")
    else:
        out("\n".join(_lines(named, found, levels)) + "\n")
    return 1 if levels["wrong"] else 0


async def _looked(target: Target, deep: bool) -> list[Finding]:
    try:
        async with entered(target):
            store = sql_store(target.named, target.queue)
            async with asyncio.timeout(None if deep else LIMIT):
                kinds, most = target.queue.kinds.keys(), target.queue.max_payload
                found = await store.examine(kinds, deep=deep, max_payload=most)
            # With a fallback there's none that nobody handles.
            return [each for each in found if each.check != "unknown kinds" or not target.queue.has_fallback]
    except Mistake:
        raise
    except TimeoutError:
        why = f"it didn't answer within {LIMIT:g} seconds"
    except LifespanFailed as failed:
        raise Mistake(f"the app's lifespan failed: {lifespan_error(failed)}") from None
    except Exception as error:
        why = one_line(first_line(error), 500)
    raise Mistake(f"can't look at the database of {target.named}: {why}")


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
