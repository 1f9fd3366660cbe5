"""What is found after a death: the database is whole, what was acknowledged is there or done, and nothing is torn."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

from tests.dying.story import ATTEMPTS, BAD, IN_TX, ROLLED_BACK, TOGETHER, App

_FAILED = "SELECT payload FROM fastjobs_jobs WHERE failed_at IS NOT NULL"
_LEFT = "SELECT payload FROM fastjobs_jobs WHERE failed_at IS NULL"


def look(folder: Path) -> list[str]:
    """What is wrong, before all that is left has been run and after it."""
    broken = _whole(folder)
    if not broken:
        asyncio.run(App(folder, ahead=True).recover())
        broken = _whole(folder) + _judge(folder)
    return broken


def _whole(folder: Path) -> list[str]:
    found = _rows(folder, "PRAGMA integrity_check")
    return [] if found == ["ok"] else [f"the database is damaged: {found}"]


def _judge(folder: Path) -> list[str]:
    said: defaultdict[str, list[str]] = defaultdict(list)
    tried: dict[str, int] = {}
    for line in (folder / "diary").read_text().splitlines():
        word, *refs = line.split("\t")
        if word == "begins":
            tried[refs[0]] = max(tried.get(refs[0], 0), int(refs[1]))
        else:
            said[word] += refs
    handled = set(said["handled"])
    failed = [payload.strip('"') for payload in _rows(folder, _FAILED)]
    orders = set(_rows(folder, "SELECT ref FROM orders")) if _has(folder, "orders") else set[str]()
    ended = handled | set(failed)
    broken = [f"{ref} was acknowledged, and is lost" for ref in said["acked"] if ref not in ended]
    broken += [f"{ref} was never pushed" for ref in ended if ref not in said["pushes"]]
    broken += [f"{ref} is left, and was due" for ref in _rows(folder, _LEFT)]
    broken += [f"{ref} was tried {times} times" for ref, times in tried.items() if times > ATTEMPTS]
    if sorted(failed) not in ([], [BAD]):
        broken.append(f"these failed: {failed}")
    if 0 < len(handled & set(TOGETHER)) < len(TOGETHER):
        broken.append(f"one push was kept in part: {handled & set(TOGETHER)}")
    for ref in IN_TX:
        if (ref in orders) != (ref in handled):
            broken.append(f"{ref}: its row is {'' if ref in orders else 'not '}there, and its job isn't so")
    if ROLLED_BACK in orders | ended:
        broken.append("what was rolled back is there")
    return broken


def _has(folder: Path, table: str) -> bool:
    return table in _rows(folder, "SELECT name FROM sqlite_master WHERE type = 'table'")


def _rows(folder: Path, sql: str) -> list[str]:
    with closing(sqlite3.connect(folder / "app.db")) as connection:
        return [str(row[0]) for row in connection.execute(sql).fetchall()]
