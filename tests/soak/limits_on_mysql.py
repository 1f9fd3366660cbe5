"""What takes one limit out of the store on MariaDB and MySQL: of its code in this process, or of its tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fastjobs.store import NewJob, Throttled
from fastjobs.stores.sql.dialects.mysql import claim, database, keyed, push, throttles, within
from fastjobs.stores.sql.dialects.mysql.claim import Asked
from fastjobs.stores.sql.dialects.mysql.keyed import Slot
from fastjobs.stores.sql.dialects.mysql.statements import Statements, make_statements
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps
from fastjobs.stores.sql.tables import Tables
from tests.soak.mysql_place import execute

_INDEXES = {"no-index": ("unique", "kind, unique_key"), "no-names": ("name", "name")}
_LOCKED = " FOR UPDATE SKIP LOCKED"


def break_tables(control: str, url: str) -> None:
    """Takes the index out that the control names."""
    if control in _INDEXES:
        name, columns = _INDEXES[control]
        index = f"fastjobs_jobs_{name}"
        # Under the same name, by which the statements ask for it.
        execute(url, f"ALTER TABLE fastjobs_jobs DROP INDEX {index}, ADD INDEX {index} ({columns})")


def break_here(control: str) -> None:
    """Breaks what the control says in this process, from now on."""
    if control == "no-lock":
        _restate(lambda texts: replace(texts, lock_kinds=_without(texts.lock_kinds, _LOCKED)))
        _slow_down()
    elif control == "no-count":
        claim._held = _none_held
    elif control == "no-slot":
        keyed.take_slots = _all_won
    elif control == "no-index":
        # Else each looks before it pushes, and few would meet.
        push._there = _none_there
    elif control == "no-rate":
        throttles._busy = _none_busy
    elif control == "no-names":
        _restate(
            lambda texts: replace(
                texts,
                name_taken="SELECT 1 FROM DUAL WHERE 0 AND %s IS NULL AND %s IS NULL AND %s IS NULL",
                name_kept="SELECT 1 FROM DUAL WHERE 0 AND %s IS NULL AND %s IS NULL",
            )
        )


def _slow_down() -> None:
    """As slow a claim as an app's server may have on a bad day: two of them meet sooner."""
    held = claim._held

    def slowly(asked: Asked, kind: str, most: int) -> Steps[int]:
        found = yield from held(asked, kind, most)
        yield Step("SELECT SLEEP(0.01)")
        return found

    claim._held = slowly


def _none_held(asked: Asked, kind: str, most: int) -> Steps[int]:
    yield from ()
    return 0


def _none_there(texts: Statements, jobs: Sequence[NewJob]) -> Steps[set[tuple[str, bytes]]]:
    yield from ()
    return set()


def _none_busy(texts: Statements, each: Throttled, now: int) -> Steps[dict[int, int]]:
    yield from ()
    return {}


def _all_won(texts: Statements, slots: Sequence[Slot], now: int) -> Steps[set[int]]:
    yield from ()
    return {slot.job for slot in slots}


def _restate(changed: Callable[[Statements], Statements]) -> None:
    def remade(tables: Tables) -> Statements:
        return changed(make_statements(tables))

    modules: tuple[Any, ...] = (database, within)
    for module in modules:
        module.make_statements = remade


def _without(text: str, part: str) -> str:
    assert part in text, f"there is no {part!r} to take out"
    return text.replace(part, "")
